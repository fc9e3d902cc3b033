"""The audit: test whether agents, as configured and as coded, keep the requested guarantee.

It has three parts: exact checks of schedule, calibration and clipping (`exact_checks.py`); tests of the draws
that noise is made of (`noise_tests.py`); black-box attacks (`attacks.py`). With secure aggregation the claim
is about totals without the rows of the members that collude. Tests and attacks are statistical and can fail
by chance, so a failure is followed by a second look on fresh keys, and a claim is called false only if both
fail. The audit can show that a claim is false; it can't show that a claim is true, which is why the claim has
a proof. That whole agents send what the proof says is compared in the project's tests, number by number.
"""

from __future__ import annotations

import time
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedfairx.agent.options import Options
from fedfairx.audit import exact_checks
from fedfairx.audit.attacks import Attack, attack
from fedfairx.audit.noise_tests import TESTS, noise_tests, sample
from fedfairx.audit.subject import AuditedConfig, CheckResult
from fedfairx.errors import require
from fedfairx.privacy.accounting import epsilon_for, mu_for
from fedfairx.privacy.guarantee import plain_values
from fedfairx.privacy.mechanisms.noise_share import NoiseShare
from fedfairx.util.figure_style import COLOURS, styled

# Probability that any statistic of one look at a correct mechanism fails: half for the attacks, half for the
# tests.
_LOOK_ERROR_RATE = 1e-3
# Both looks have to fail, and their keys are independent.
ERROR_RATE = _LOOK_ERROR_RATE**2


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """Result of an audit. `attacks` and `checks` are of the last look; `unconfirmed` failed in the first.

    Guarantees:
    - `ok` is False only if an exact check fails, or both of two looks on independent keys do. For a correct
      mechanism that happens in 1 audit of a million (`ERROR_RATE`), all tests and bounds together.
    """

    mechanism: str
    releases: int
    dimension: int
    epsilon: float  # as requested
    delta: float
    claimed_mu: float
    claimed_epsilon: float
    attacks: tuple[Attack, ...]
    checks: tuple[CheckResult, ...]
    unconfirmed: tuple[str, ...]
    runs: int
    seconds: float
    share: NoiseShare | None = None  # of an agent's noise, with secure aggregation

    @property
    def found_mu(self) -> float:
        """The best lower bound on μ."""
        return max(attack.mu for attack in self.attacks)

    @property
    def found_epsilon(self) -> float:
        """The best lower bound on ε at the requested δ."""
        return max(attack.epsilon for attack in self.attacks)

    @property
    def ok(self) -> bool:
        """Whether nothing contradicts the claim."""
        return not self.failed

    @property
    def failed(self) -> tuple[str, ...]:
        """Names of the checks and attacks that contradict the claim."""
        return _failed(self.attacks, self.checks, self.claimed_mu, self.claimed_epsilon)

    def __str__(self) -> str:
        lines = [
            f"{self.mechanism}, {self.releases} releases, d={self.dimension}, "
            f"requested (ε={self.epsilon:g}, δ={self.delta:g})",
            f"claimed μ {self.claimed_mu:.4g}, found at least {self.found_mu:.4g}",
            f"claimed ε {self.claimed_epsilon:.4g} at δ={self.delta:g}, "
            f"found at least {self.found_epsilon:.4g}",
        ]
        if self.share is not None:
            m, c, h = self.share.agreed
            lines[1:1] = [f"totals of {m} members, of whom {c} may collude; each adds 1/{h} of the variance"]
        lines += [
            f"  black box, record in leaf {a.leaf}: μ ≥ {a.mu:.4g}, ε ≥ {a.epsilon:.4g} "
            f"({a.false_positives} and {a.false_negatives} errors in {a.tested} runs of each world)"
            for a in self.attacks
        ]
        lines += [
            f"  white box, {check.name}: {check.found:.4g} ({check.allowed}) {'ok' if check.ok else 'FAILED'}"
            for check in self.checks
        ]
        if self.unconfirmed:
            lines.append(f"failed in a first look and not on fresh keys: {', '.join(self.unconfirmed)}")
        lines.append("nothing contradicts the claim" if self.ok else "THE CLAIM IS FALSE")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Return plain values for JSON, without the scores; an infinity becomes None."""
        attack = ("leaf", "mu", "epsilon", "false_positives", "false_negatives", "tested")
        return {
            **plain_values(self, "ok", "mechanism", "releases", "dimension", "epsilon", "delta"),
            "claimed": plain_values(self, "mu", "epsilon", prefix="claimed_"),
            "found": plain_values(self, "mu", "epsilon", prefix="found_"),
            "attacks": [plain_values(each, *attack) for each in self.attacks],
            "checks": [plain_values(each, "name", "found", "allowed", "ok") for each in self.checks],
            **plain_values(self, "failed", "unconfirmed"),
            "error_rate": ERROR_RATE,
            **plain_values(self, "runs", "seconds"),
            **({} if self.share is None else {"share": self.share.to_dict()}),
        }


def audit(
    options: Options, *, dimension: int, releases: int, agents: int = 3, runs: int = 8_000, seed: int = 0
) -> AuditReport:
    """Audit the agents that private `options` make, over contexts of `dimension` and this many releases.

    agents: with secure aggregation, the number of members.
    runs: number of runs of each world of the black-box attack.

    Guarantees:
    - The claim of correct code is called false in 1 audit of a million, all tests and bounds together; exact
      checks do not fail by chance.
    - The code under audit is the agents' own: calibration, clipping, leaves, stream and keyed noise.
    """
    require(runs >= 100, "runs", "must be >= 100", runs)
    require(dimension >= 1, "dimension", "must be >= 1", dimension)
    require(releases >= 1, "releases", "must be >= 1", releases)
    require(options.private, "algorithm", "must be a private one to audit a claim", options.composed.name)
    options.check_dimension(dimension)
    epsilon, delta = float(options.epsilon or 0.0), options.delta
    began = time.perf_counter()
    subject = AuditedConfig(options=options, dimension=dimension, releases=releases, agents=agents)
    public = subject.budget.public_schedule
    claimed_mu = min(subject.mechanism.mu, mu_for(epsilon, delta))
    claimed_epsilon = epsilon_for(delta, claimed_mu)
    sensitivity, pair = exact_checks.data_path(subject)
    certain = (
        # A schedule that depends on the data leaks by its timing, whatever the noise.
        CheckResult("schedule: fixed before the first record", float(public), "= 1", public),
        *exact_checks.calibration(subject, epsilon, delta),
        sensitivity,
    )
    unconfirmed: tuple[str, ...] = ()
    share = _LOOK_ERROR_RATE / 2
    for look in (1, 2):
        key = f"{seed}, look {look}"
        checks = noise_tests(subject, sample(subject, key=key), share / TESTS, key=key)
        attacks = attack(subject, pair=pair, delta=delta, runs=runs, key=f"{key}, attack", error_rate=share)
        failed = _failed(attacks, checks, claimed_mu, claimed_epsilon)
        if not failed:
            break
        unconfirmed = failed if look == 1 else ()
    return AuditReport(
        mechanism=subject.mechanism.name,
        releases=releases,
        dimension=dimension,
        epsilon=epsilon,
        delta=delta,
        claimed_mu=claimed_mu,
        claimed_epsilon=claimed_epsilon,
        attacks=attacks,
        checks=(*certain, *checks),
        unconfirmed=unconfirmed,
        runs=runs,
        seconds=time.perf_counter() - began,
        share=subject.mechanism.share,
    )


def _failed(
    attacks: tuple[Attack, ...], checks: tuple[CheckResult, ...], mu: float, epsilon: float
) -> tuple[str, ...]:
    failures = [f"attack on leaf {a.leaf}" for a in attacks if a.mu > mu or a.epsilon > epsilon]
    return (*failures, *(check.name for check in checks if not check.ok))


#: The two worlds of an attack, with their colours.
WORLDS = (
    ("with the one record", COLOURS["fed-fairx-linucb"]),
    ("with the other", COLOURS["priv-fairx-linucb"]),
)


def plot(report: AuditReport, path: str | Path) -> None:
    """Draw histograms of the best attack's scores in the two worlds, with its threshold."""
    best = max(report.attacks, key=lambda a: a.mu)
    with styled():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5.6, 3.4), layout="constrained")
        axes = figure.subplots()
        bins = np.histogram_bin_edges(np.concatenate(best.scores), bins=60).tolist()
        for scores, (label, colour) in zip(best.scores, WORLDS, strict=True):
            axes.hist(scores, bins=bins, density=True, histtype="stepfilled", color=colour, alpha=0.25)
            axes.hist(scores, bins=bins, density=True, histtype="step", color=colour, lw=1.4, label=label)
        axes.axvline(best.threshold, ymax=0.8, color="#333333", lw=1.0, ls="--", label="its threshold")
        text = f"claimed μ = {report.claimed_mu:.3g}, found at least {report.found_mu:.3g}"
        axes.set(title=f"{report.mechanism}: {text}", ylabel="density", yticks=[])
        axes.set_xlabel(f"the attack's score; the record is in leaf {best.leaf} of {report.releases}")
        axes.grid(visible=False)
        axes.margins(y=0.28)  # room for the legend
        axes.legend(loc="upper left", ncols=3, handlelength=1.4, columnspacing=1.2)
        figure.savefig(path)
