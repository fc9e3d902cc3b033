"""Everything about a run but its scenario and its seeds: what it is made of, and what contradicts itself."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass
from functools import partial
from typing import Any

from fedfairx.core.confidence import Confidence
from fedfairx.core.posterior import Prior
from fedfairx.core.rules import OPTIMISM
from fedfairx.errors import require
from fedfairx.federation.algorithms import Algorithm
from fedfairx.federation.schedules import Determinant, Schedule
from fedfairx.privacy import Bounds, Centring, Gaussian, calibrate
from fedfairx.simulation.environments import Scenario
from fedfairx.simulation.state import OWN_RELEASED, RELEASED, RELEASED_LOCAL

Calibrate = Callable[..., Gaussian]  # (*, epsilon, delta, releases, sensitivity)

DECIDE_FROM = {"released": RELEASED, "released+local": RELEASED_LOCAL, "own+released": OWN_RELEASED}


_KINDS = {"scenario": Scenario, "prior": Prior, "confidence": Confidence, "bounds": Bounds}


def check_kinds(*, scenario: object, **optional: object) -> None:
    """Refuse a number where a `Prior` or the like belongs; None leaves an optional one out."""
    for name, value in {"scenario": scenario, **optional}.items():
        kind = _KINDS[name]
        fits = isinstance(value, kind) or (value is None and name != "scenario")
        require(fits, name, f"must be a {kind.__name__}", value)


@dataclass(frozen=True)
class Options:
    """Everything about a run but its scenario and its seeds."""

    algorithm: Algorithm
    schedule: Schedule
    confidence: Confidence
    prior: Prior
    epsilon: float | None
    delta: float
    mechanism: str | Calibrate
    bounds: Bounds
    centring: Centring | None
    decide_from: str
    shift: float
    exposure: bool

    def check(self, scenario: Scenario) -> None:
        """Refuse what contradicts itself."""
        require(
            self.decide_from in DECIDE_FROM,
            "decide_from",
            f"must be one of {', '.join(DECIDE_FROM)}",
            self.decide_from,
        )
        require(math.isfinite(self.shift) and self.shift >= 0, "shift", "must be finite and >= 0", self.shift)
        if not self.algorithm.private:
            text = f"is for private algorithms, and {self.algorithm.name} is not private"
            require(self.epsilon is None, "epsilon", text, self.epsilon, "leave it out")
            return
        require(self.epsilon is not None, "epsilon", f"must be given for {self.algorithm.name}", self.epsilon)
        if isinstance(self.schedule, Determinant):
            require(
                self.decide_from == "released+local",
                "decide_from",
                'must be "released+local" for B1',
                self.decide_from,
            )
        if self.centring is not None:
            same = self.centring.dimension == scenario.dimension
            require(same, "centring", f"must have dimension {scenario.dimension}", self.centring.dimension)
        self.calibrate(1)  # its own checks of epsilon, delta and the mechanism's name

    @property
    def inner_bounds(self) -> Bounds:
        """The bounds that the noise is calibrated to."""
        if self.centring is None:
            return self.bounds
        return self.centring.inner_bounds(adjacency=self.bounds.adjacency, gram_share=self.bounds.gram_share)

    def calibrate(self, releases: int) -> Gaussian:
        """The mechanism for so many releases: by name, or by a function that takes what `calibrate` takes."""
        make = partial(calibrate, self.mechanism) if isinstance(self.mechanism, str) else self.mechanism
        return make(
            epsilon=float(self.epsilon or 0),
            delta=self.delta,
            releases=releases,
            sensitivity=self.inner_bounds.sensitivity,
        )

    def summary(self) -> dict[str, Any]:
        """Plain values, for a record of the run."""
        private, optimism = self.algorithm.private, self.algorithm.rule == OPTIMISM
        return {
            "rule": self.algorithm.rule,
            "schedule": repr(self.schedule),
            "confidence": repr(self.confidence) if optimism else None,
            "solver": repr(self.algorithm.solver) if optimism else None,
            "prior": None if optimism else repr(self.prior),
            "epsilon": self.epsilon,
            "delta": self.delta if private else None,
            "mechanism": str(self.mechanism) if private else None,
            "bounds": repr(self.bounds) if private else None,
            "centring": repr(self.centring) if private else None,
            "decide_from": self.decide_from if private else "released+local",
            "shift": self.shift if private and optimism else None,
        }
