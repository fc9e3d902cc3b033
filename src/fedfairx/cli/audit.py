"""`fedfairx audit`: attack agents as configured; exit non-zero when their claim is false."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path

from fedfairx.cli.privacy import MechanismVerb
from fedfairx.privacy import Budget
from fedfairx.util.config import with_default


@dataclass(frozen=True, kw_only=True)
class Audit(MechanismVerb):
    """Attack the privacy of agents, and compare findings with the claim. Exits 1 when a finding contradicts
    the claim and a second run with fresh keys confirms it. An audit can refute a claim but never prove one;
    it calls one in a million correct configurations false.

        fedfairx audit --mechanism blt --epsilon 2 --delta 1e-6
        fedfairx audit --epsilon 2 --centred
        fedfairx audit --releases 20 --plot audit.png
        fedfairx audit --releases 20 --aggregation secure --agents 5 --colluding 1

    releases: number of releases (default: as many as the schedule makes).
    runs: number of runs in each of the two worlds.
    seed: seed of the runs.
    plot: draw the scores of the two worlds into this file: .png, .svg or .pdf.
    """

    releases: int | None = with_default(Budget, "releases", None)
    runs: int = 8_000
    seed: int = 0
    plot: Path | None = None

    def run(self) -> int:
        from fedfairx.audit.audit import audit, plot

        releases = self.budget.releases if self.releases is None else self.releases
        report = audit(
            self.asked,
            dimension=self.dimension,
            releases=releases,
            agents=self.agents,
            runs=self.runs,
            seed=self.seed,
        )
        if self.plot is not None:
            plot(report, self.plot)
        self.answer(report.to_dict(), str(report))
        return 0 if report.ok else 1
