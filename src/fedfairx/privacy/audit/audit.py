"""The audit: does the mechanism, as configured and as coded, keep the promise that was asked for?

Three parts: exact checks (`exact_checks.py`), white-box tests of the noise (`noise_tests.py`) and black-box
attacks (`attacks.py`). The last two are statistical and fail by chance, so a look that fails is followed by a
second one on fresh keys, and only what fails twice is called false. The audit can show that a claim is false;
that it finds nothing proves nothing, which is why the claim has a proof.
"""

from __future__ import annotations

import math
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedfairx.errors import InvalidInput, require
from fedfairx.privacy.accounting import epsilon_for, mu_for
from fedfairx.privacy.audit import exact_checks
from fedfairx.privacy.audit.attacks import Attack, attack
from fedfairx.privacy.audit.noise_tests import TESTS, noise_path, noise_tests, recorded_noise
from fedfairx.privacy.audit.subject import AuditedConfig, Check, Record, RecordingCentring
from fedfairx.privacy.bounds import Bounds
from fedfairx.privacy.centring import Centring
from fedfairx.privacy.mechanisms.gaussian import Gaussian
from fedfairx.privacy.mechanisms.noise import KeyedNoise, NoiseSource
from fedfairx.privacy.privatizers.protocol import Privatizer
from fedfairx.privacy.privatizers.stream import StreamPrivatizer
from fedfairx.util.figure_style import COLOURS, styled

# Chance that any statistic of one look at a right mechanism fails; half for the attacks, half for the tests.
_LOOK_ERROR_RATE = 1e-3
# Both looks have to fail, on keys that have nothing to do with each other.
ERROR_RATE = _LOOK_ERROR_RATE**2


@dataclass(frozen=True, kw_only=True)
class AuditReport:
    """What an audit found. `attacks` and `checks` are of the last look; `unconfirmed` failed once, not twice.

    Guarantees:
    - `ok` is False only if an exact check fails, or both of two looks on unrelated keys do: of a right
      mechanism, by chance, in 1 audit of a million (`ERROR_RATE`), all tests and bounds together.
    """

    mechanism: str
    releases: int
    dimension: int
    epsilon: float  # what was asked for
    delta: float
    claimed_mu: float
    claimed_epsilon: float
    attacks: tuple[Attack, ...]
    checks: tuple[Check, ...]
    unconfirmed: tuple[str, ...]
    runs: int
    seconds: float

    @property
    def found_mu(self) -> float:
        """The best lower bound on μ."""
        return max(attack.mu for attack in self.attacks)

    @property
    def found_epsilon(self) -> float:
        """The best lower bound on ε at the δ asked for."""
        return max(attack.epsilon for attack in self.attacks)

    @property
    def ok(self) -> bool:
        """Whether nothing contradicts the claim."""
        return not self.failed

    @property
    def failed(self) -> tuple[str, ...]:
        """What contradicts the claim, by name."""
        return _failed(self.attacks, self.checks, self.claimed_mu, self.claimed_epsilon)

    def __str__(self) -> str:
        lines = [
            f"{self.mechanism}, {self.releases} releases, d={self.dimension}, "
            f"asked for (ε={self.epsilon:g}, δ={self.delta:g})",
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
            f"  white box, {check.name}: {check.found:.4g} ({check.allowed}) {'ok' if check.ok else 'FAILED'}"
            for check in self.checks
        ]
        if self.unconfirmed:
            lines.append(f"failed in a first look and not on fresh keys: {', '.join(self.unconfirmed)}")
        lines.append("nothing contradicts the claim" if self.ok else "THE CLAIM IS FALSE")
        return "\n".join(lines)

    def to_dict(self) -> dict[str, Any]:
        """Plain values for JSON, without the scores; an infinity becomes None."""
        return {
            "ok": self.ok,
            "mechanism": self.mechanism,
            "releases": self.releases,
            "dimension": self.dimension,
            "epsilon": self.epsilon,
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
                {
                    "name": c.name,
                    "found": c.found if math.isfinite(c.found) else None,
                    "allowed": c.allowed,
                    "ok": c.ok,
                }
                for c in self.checks
            ],
            "failed": list(self.failed),
            "unconfirmed": list(self.unconfirmed),
            "error_rate": ERROR_RATE,
            "runs": self.runs,
            "seconds": self.seconds,
        }


def audit(
    mechanism: Gaussian,
    *,
    bounds: Bounds,
    dimension: int,
    epsilon: float | None = None,
    delta: float | None = None,
    centring: Centring | None = None,
    public_schedule: bool = True,
    runs: int = 8_000,
    seed: int = 0,
    privatizer: Callable[..., Privatizer] = StreamPrivatizer,
    noise: Callable[..., NoiseSource] = KeyedNoise,
) -> AuditReport:
    """Audit a mechanism over records of `dimension`; `runs` is the number of runs of each world.

    `epsilon` and `delta` are what was asked for; without them, what the mechanism says was. `bounds` are
    those of what is summed: with `centring`, its `inner_bounds`. `privatizer` and `noise` make what is
    audited; they are called as `StreamPrivatizer` and `KeyedNoise` are.

    Guarantees:
    - A right mechanism is called false in 1 audit of a million, all tests and bounds together; exact checks
      do not fail by chance.
    - The code under audit is the agents' own: clip, leaf, stream, keyed noise, release.
    """
    require(runs >= 100, "runs", "must be >= 100", runs)
    require(dimension >= 1, "dimension", "must be >= 1", dimension)
    if not bounds.is_private:
        raise InvalidInput("bounds must be bounded to audit a claim; without clipping nothing is claimed")
    epsilon = mechanism.epsilon if epsilon is None else epsilon
    delta = mechanism.delta if delta is None else delta
    began = time.perf_counter()
    subject = AuditedConfig(
        mechanism=mechanism,
        bounds=bounds,
        dimension=dimension,
        centring=None if centring is None else RecordingCentring.of(centring),
        make=privatizer,
        source=noise,
    )
    claimed_mu = min(mechanism.mu, mu_for(epsilon, delta))
    claimed_epsilon = epsilon_for(delta, claimed_mu)
    path, pair = exact_checks.data_path(subject)
    certain = (
        exact_checks.public(public_schedule),
        exact_checks.keys(),
        *exact_checks.calibration(subject, epsilon, delta),
        *path,
    )
    unconfirmed: tuple[str, ...] = ()
    for look in (1, 2):
        attacks, checks = _look(subject, pair, delta=delta, runs=runs, seed=seed, look=look)
        failed = _failed(attacks, checks, claimed_mu, claimed_epsilon)
        if not failed:
            break
        unconfirmed = failed if look == 1 else ()
    return AuditReport(
        mechanism=mechanism.name,
        releases=mechanism.releases,
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
    )


def _look(
    subject: AuditedConfig,
    pair: tuple[Record | None, Record | None],
    *,
    delta: float,
    runs: int,
    seed: int,
    look: int,
) -> tuple[tuple[Attack, ...], tuple[Check, ...]]:
    """Run everything that depends on keys, once."""
    share = _LOOK_ERROR_RATE / 2
    noise = recorded_noise(subject, seed=seed, look=look)
    tests = noise_tests(noise, subject.inner_dimension, share / TESTS)
    attacks = attack(subject, pair=pair, delta=delta, runs=runs, seed=seed, look=look, error_rate=share)
    return attacks, (*noise_path(noise), *tests)


def _failed(
    attacks: tuple[Attack, ...], checks: tuple[Check, ...], mu: float, epsilon: float
) -> tuple[str, ...]:
    found = [f"attack on leaf {a.leaf}" for a in attacks if a.mu > mu or a.epsilon > epsilon]
    return (*found, *(check.name for check in checks if not check.ok))


#: The two that an attack must tell apart, in the house's colours.
WORLDS = (("with the one record", COLOURS["fed-fairx-linucb"]), ("with the other", COLOURS["blt"]))


def plot(report: AuditReport, path: str | Path) -> None:
    """Histograms of the best attack's scores in the two worlds, with its threshold."""
    best = max(report.attacks, key=lambda a: a.mu)
    with styled():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5.6, 3.4), layout="constrained")
        axes = figure.subplots()
        bins = np.histogram_bin_edges(np.concatenate(best.scores), bins=60).tolist()
        worlds = zip(best.scores, WORLDS, strict=True)
        for scores, (label, colour) in worlds:
            axes.hist(scores, bins=bins, density=True, histtype="stepfilled", color=colour, alpha=0.25)
            axes.hist(scores, bins=bins, density=True, histtype="step", color=colour, lw=1.4, label=label)
        axes.axvline(
            best.threshold, ymax=0.8, color="#333333", lw=1.0, ls="--", label="the attack's threshold"
        )
        axes.set_xlabel(f"the attack's score; the record is in leaf {best.leaf} of {report.releases}")
        axes.set_ylabel("density")
        axes.set_yticks([])
        axes.grid(visible=False)
        axes.set_title(
            f"{report.mechanism}: claimed μ = {report.claimed_mu:.3g}, found at least {report.found_mu:.3g}"
        )
        axes.margins(y=0.28)  # room for the legend
        axes.legend(loc="upper left", ncols=3, handlelength=1.4, columnspacing=1.2)
        figure.savefig(path)
