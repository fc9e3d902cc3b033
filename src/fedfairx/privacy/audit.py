"""The audit: does the mechanism, as configured and as coded, keep its claim?

`audit` attacks it from outside (`black_box.py`) and takes it apart from inside (`white_box.py`). It can
show that a claim is false; that it fails to do so proves nothing, which is why the claim has a proof of
its own.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedfairx.errors import InvalidInput, require
from fedfairx.privacy.accounting import epsilon_for
from fedfairx.privacy.black_box import Attack, attack
from fedfairx.privacy.bounding import Bounds
from fedfairx.privacy.mechanisms import Gaussian
from fedfairx.privacy.privatizer import Privatizer, StreamPrivatizer
from fedfairx.privacy.white_box import Check, inspect

__all__ = ["AuditReport", "audit", "plot"]

_ATTACK_ERROR_RATE = 0.01
_CHECK_ERROR_RATE = 1e-4


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """What an audit found.

    Guarantees:
    - `ok` is False only if a lower bound exceeds the claim, a white-box check fails, or (in fewer than 1
      of 100 audits of a correct mechanism) by chance.
    """

    mechanism: str
    releases: int
    dimension: int
    delta: float
    claimed_mu: float
    claimed_epsilon: float
    attacks: tuple[Attack, ...]
    checks: tuple[Check, ...]
    runs: int
    seconds: float

    @property
    def found_mu(self) -> float:
        """The best lower bound on μ."""
        return max(attack.mu for attack in self.attacks)

    @property
    def found_epsilon(self) -> float:
        """The best lower bound on ε at the claim's δ."""
        return max(attack.epsilon for attack in self.attacks)

    @property
    def ok(self) -> bool:
        """Whether nothing contradicts the claim."""
        return (
            self.found_mu <= self.claimed_mu
            and self.found_epsilon <= self.claimed_epsilon
            and all(check.ok for check in self.checks)
        )

    def __str__(self) -> str:
        lines = [
            f"{self.mechanism}, {self.releases} releases, d={self.dimension}",
            f"claimed μ {self.claimed_mu:.4g}, found at least {self.found_mu:.4g}",
            f"claimed ε {self.claimed_epsilon:.4g} at δ={self.delta:g}, "
            f"found at least {self.found_epsilon:.4g}",
        ]
        lines += [
            f"  black box, record in leaf {a.leaf}: μ ≥ {a.mu:.4g}, ε ≥ {a.epsilon:.4g} "
            f"({a.false_positives} and {a.false_negatives} errors in {a.tested} a world)"
            for a in self.attacks
        ]
        lines += [
            f"  white box, {check.name}: {check.found:.4f} ({check.allowed}) {'ok' if check.ok else 'FAILED'}"
            for check in self.checks
        ]
        lines.append("nothing contradicts the claim" if self.ok else "THE CLAIM IS FALSE")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without the scores."""
        return {
            "ok": self.ok,
            "mechanism": self.mechanism,
            "releases": self.releases,
            "dimension": self.dimension,
            "delta": self.delta,
            "claimed": {"mu": self.claimed_mu, "epsilon": self.claimed_epsilon},
            "found": {"mu": self.found_mu, "epsilon": self.found_epsilon},
            "attacks": [
                {
                    "leaf": a.leaf,
                    "mu": a.mu,
                    "epsilon": a.epsilon,
                    "false_positives": a.false_positives,
                    "false_negatives": a.false_negatives,
                    "tested": a.tested,
                }
                for a in self.attacks
            ],
            "checks": [
                {"name": c.name, "found": c.found, "allowed": c.allowed, "ok": c.ok} for c in self.checks
            ],
            "runs": self.runs,
            "seconds": self.seconds,
        }


def audit(
    mechanism: Gaussian,
    *,
    bounds: Bounds,
    dimension: int,
    runs: int = 8_000,
    seed: int = 0,
    privatizer: Callable[..., Privatizer] = StreamPrivatizer,
) -> AuditReport:
    """Audit a mechanism over bounded records of `dimension`; `runs` is the number of runs of each world.

    `privatizer` makes what is audited; it is called as `StreamPrivatizer` is.

    Guarantees:
    - A bound above the claim means a false claim, but for 1 chance in 100; each check fails by 1 chance
      in 10 000.
    - The code under audit is the agents' own: clip, leaf, stream, keyed noise, release.
    """
    require(runs >= 100, "runs", "must be >= 100", runs)
    require(dimension >= 1, "dimension", "must be >= 1", dimension)
    if not bounds.is_private:
        raise InvalidInput("bounds must be bounded to audit a claim; without clipping nothing is claimed")
    began = time.perf_counter()
    attacks = attack(
        mechanism,
        bounds=bounds,
        dimension=dimension,
        runs=runs,
        seed=seed,
        error_rate=_ATTACK_ERROR_RATE,
        privatizer=privatizer,
    )
    checks = inspect(
        mechanism,
        bounds=bounds,
        dimension=dimension,
        seed=seed,
        error_rate=_CHECK_ERROR_RATE,
        privatizer=privatizer,
    )
    return AuditReport(
        mechanism=mechanism.name,
        releases=mechanism.releases,
        dimension=dimension,
        delta=mechanism.delta,
        claimed_mu=mechanism.mu,
        claimed_epsilon=epsilon_for(mechanism.delta, mechanism.mu),
        attacks=attacks,
        checks=checks,
        runs=runs,
        seconds=time.perf_counter() - began,
    )


def plot(report: AuditReport, path: str | Path) -> None:
    """Histograms of the best attack's scores in the two worlds, with its threshold."""
    import matplotlib.pyplot as plt

    best = max(report.attacks, key=lambda a: a.mu)
    figure, axes = plt.subplots(figsize=(7.0, 4.0), layout="constrained")
    for scores, label in zip(best.scores, ("one record", "the other"), strict=True):
        axes.hist(scores, bins=80, alpha=0.5, density=True, label=f"world with {label}")
    axes.axvline(best.threshold, color="black", linewidth=1.0, label="threshold")
    axes.set_xlabel(f"discriminant score, record in leaf {best.leaf} of {report.releases}")
    axes.set_ylabel("density")
    axes.set_title(
        f"{report.mechanism}: claimed μ {report.claimed_mu:.3g}, found at least {report.found_mu:.3g}"
    )
    axes.legend()
    figure.savefig(path, dpi=150)
    plt.close(figure)
