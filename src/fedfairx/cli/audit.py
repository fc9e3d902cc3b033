"""`fedfairx audit`: attack a mechanism as configured; exit non-zero when its claim is false."""

from __future__ import annotations

from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedfairx.cli.common import Output, add_verb, print_json
from fedfairx.cli.privacy import Mechanism


@dataclass(frozen=True, kw_only=True)
class Audit(Mechanism, Output):
    """Flags of `fedfairx audit`.

    releases: number of releases (default: as many as the schedule makes).
    runs: runs of each of the two worlds.
    seed: seed of the runs.
    plot: draw the scores of the two worlds: .png, .svg or .pdf.
    """

    releases: int | None = None
    runs: int = 8_000
    seed: int = 0
    plot: Path | None = None


def add(verbs: Any) -> None:
    add_verb(
        verbs,
        "audit",
        run,
        Audit,
        summary="Attack the privacy mechanism as configured, and compare what is found with what is claimed. "
        "Exits 1 when a finding contradicts the claim and does so again on fresh keys. "
        "It can refute a claim and never prove one; it calls one in a million correct mechanisms false.",
        example="""
            fedfairx audit --mechanism blt --epsilon 2 --delta 1e-6
            fedfairx audit --epsilon 2 --centred
            fedfairx audit --releases 20 --plot audit.png""",
    )


def run(args: Audit) -> int:
    from fedfairx.privacy.audit.audit import audit, plot

    budget = args.budget(**({} if args.releases is None else {"releases": args.releases}))
    report = audit(
        budget.calibrate(),
        bounds=budget.summed_bounds,
        dimension=args.dimension,
        epsilon=args.epsilon,
        delta=args.delta,
        centring=budget.centring,
        public_schedule=budget.public_schedule,
        runs=args.runs,
        seed=args.seed,
    )
    if args.plot is not None:
        plot(report, args.plot)
    if args.json:
        print_json(report.to_dict())
    else:
        print(report)
    return 0 if report.ok else 1
