"""How agents decide, learn and share: one object that makes an agent, a federation, a simulation, a service.

The keywords of `Federation` and `simulate` are its fields; whatever contradicts itself is refused here, once.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import MISSING, dataclass, field, fields, replace
from functools import cached_property, partial
from typing import Any

import numpy as np

from fedfairx.agent.agent import Agent
from fedfairx.agent.algorithms import ALGORITHMS, Algorithm
from fedfairx.agent.algorithms import algorithm as find_algorithm
from fedfairx.agent.reward_limits import as_reward_range
from fedfairx.agent.schedules import SCHEDULES, Plan, Schedule
from fedfairx.agent.schedules import schedule as find_schedule
from fedfairx.agent.solvers import SOLVERS
from fedfairx.core.confidence import Confidence
from fedfairx.core.merit import Merit
from fedfairx.core.optimism.solver import Solver
from fedfairx.core.partners import ALIKE, DIFFER, PARTNERS
from fedfairx.core.posterior import Prior
from fedfairx.core.rules import OPTIMISM
from fedfairx.errors import require
from fedfairx.privacy import Bounds, Centring, Gaussian, NonPrivateSums, Privatizer, calibrate, mechanisms
from fedfairx.privacy.mechanisms.noise import NoiseSource
from fedfairx.privacy.privatizers.factory import assemble

Calibrate = Callable[..., Gaussian]  # (*, epsilon, delta, releases, sensitivity)

DECIDE_FROM = ("own+released", "released", "released+local")
#: Of the radius, where an algorithm of the paper is told no other: fitted to the paper's own curve
#: (docs/reproduction.md), so that what is deployed is what its figures show. The theorem's is 1.
SCALE = 0.5
_OWN = {"unset": "the algorithm's own"}  # what None means, for the command line
_KINDS = {"prior": Prior, "confidence": Confidence, "bounds": Bounds, "centring": Centring}


@dataclass(frozen=True, kw_only=True)
class Options:
    """How agents decide, learn and share; all but who they are, how long they run, and what merit is.

    algorithm: the rule, what is shared, and whether privately: a name of `fedfairx.algorithms()`.
    schedule: when agents share, instead of the algorithm's own: a name or a `Schedule`.
    reward_range: (low, high) that no reward leaves, if known; it sets the default prior.
    prior: what is believed before the first reward, by every rule but "optimism".
    minimum_share: the share that every arm gets in any case, in [0, 1).
    confidence: the region that "optimism" chooses from; by default half the theorem's radius, as fitted to
        the paper's curves.
    solver: how "optimism" finds its θ: a name or a `Solver`.
    epsilon: ε of the privacy of each agent's messages, all together; private algorithms need one.
    delta: δ of the same; above 1e-3 it says little.
    mechanism: how noise is laid over releases: a name that `fedfairx list` shows, or a function of your own.
    bounds: what records are clipped to; their neighbouring relation, and how noise is divided.
    centring: the public point that records are clipped around; by default it is zero.
    decide_from: what a private agent's decisions may use, instead of the algorithm's own; "released" is the
        strict mode, whose claim covers decisions too.
    shift: what makes private sums definite, in sds of their noise, for "optimism".
    partners: "alike", one θ for all, or "differ": each agent learns from its own rewards how far the others
        speak of its own θ.

    >>> Options(algorithm="priv-fairx-bayes", epsilon=2.0).composed.schedule
    Geometric(ratio=1.2, start=30)
    """

    algorithm: str | Algorithm = field(default="fed-fairx-bayes", metadata={"choices": tuple(ALGORITHMS)})
    schedule: str | Schedule | None = field(default=None, metadata={"choices": tuple(SCHEDULES), **_OWN})
    reward_range: tuple[float, float] | None = None
    prior: Prior | None = None
    minimum_share: float = 0.0
    confidence: Confidence | None = None
    solver: str | Solver | None = field(default=None, metadata={"choices": tuple(SOLVERS), **_OWN})
    epsilon: float | None = None
    delta: float = 1e-6
    mechanism: str | Calibrate = field(default="blt", metadata={"choices": mechanisms()})
    bounds: Bounds | None = None
    centring: Centring | None = None
    decide_from: str | None = field(default=None, metadata={"choices": DECIDE_FROM, **_OWN})
    shift: float = 4.0
    partners: str = field(default=ALIKE, metadata={"choices": PARTNERS})

    def __post_init__(self) -> None:
        for name, kind in _KINDS.items():
            value = getattr(self, name)
            require(value is None or isinstance(value, kind), name, f"must be a {kind.__name__}", value)
        object.__setattr__(self, "reward_range", as_reward_range(self.reward_range))
        chosen = find_algorithm(self.algorithm)
        if self.optimistic:
            text = f"is for algorithms that have a posterior, and {chosen.name} has none"
            require(self.prior is None, "prior", text, self.prior, "give a confidence")
        else:
            text = f"is for algorithms that are optimistic, and {chosen.name} is not"
            require(self.confidence is None, "confidence", text, self.confidence, "give a prior")
            require(self.solver is None, "solver", text, self.solver, "leave it out")
        least = self.minimum_share
        share = isinstance(least, int | float) and 0 <= least < 1
        require(share, "minimum_share", "must be in [0, 1)", least)
        self._check_partners()
        require(math.isfinite(self.shift) and self.shift >= 0, "shift", "must be finite and >= 0", self.shift)
        if chosen.private:
            self._check_privacy()
            return
        text = f"is for private algorithms, and {chosen.name} is not private"
        require(self.epsilon is None, "epsilon", text, self.epsilon, "leave it out")
        require(self.decide_from is None, "decide_from", text, self.decide_from, "leave it out")

    def _check_partners(self) -> None:
        name, told = self.composed.name, self.partners
        require(told in PARTNERS, "partners", f"must be one of {', '.join(PARTNERS)}", told)
        if told == DIFFER:
            text = f"must be {ALIKE!r} for {name}, which has no posterior"
            require(not self.optimistic, "partners", text, told)
            own = not self.private or self.composed.decide_from == "own+released"
            text = f"must be {ALIKE!r} where private agents do not decide from their own exact data"
            require(own, "partners", text, told, 'or decide_from="own+released"')

    def _check_privacy(self) -> None:
        composed = self.composed
        require(self.epsilon is not None, "epsilon", f"must be given for {composed.name}", self.epsilon)
        known = composed.decide_from in DECIDE_FROM
        require(known, "decide_from", f"must be one of {', '.join(DECIDE_FROM)}", composed.decide_from)
        if not composed.schedule.public:  # it reads local data anyway: deciding from them costs nothing more
            local = composed.decide_from == "released+local"
            text = f'must be "released+local" for {composed.name.upper()}, whose schedule looks at the data'
            require(local, "decide_from", text, composed.decide_from)
        self.calibrated(1)  # its own checks of epsilon, delta and the mechanism's name

    @classmethod
    def given(cls, options: Options | None, **keywords: Any) -> Options:
        """`options`, or those that keywords make; both at once are refused."""
        if options is None:
            return cls(**keywords)
        require(isinstance(options, cls), "options", "must be Options", options)
        defaults = {item.name: item.default for item in fields(cls) if item.default is not MISSING}
        for name, value in keywords.items():
            same = value is defaults[name] or value == defaults[name]
            require(same, name, "must be left out where options are given, which hold it", value)
        return options

    @cached_property
    def composed(self) -> Algorithm:
        """The algorithm, with what these options change of it: its schedule, solver, and `decide_from`."""
        chosen = find_algorithm(self.algorithm)
        if self.solver is not None:
            chosen = chosen.with_solver(self.solver)
        return replace(
            chosen,
            schedule=chosen.schedule if self.schedule is None else find_schedule(self.schedule),
            decide_from=self.decide_from or chosen.decide_from,
        )

    @property
    def private(self) -> bool:
        """Whether what is shared is noisy."""
        return find_algorithm(self.algorithm).private

    @property
    def optimistic(self) -> bool:
        """Whether decisions come from a confidence region, and not from a posterior."""
        return find_algorithm(self.algorithm).rule == OPTIMISM

    @property
    def region(self) -> Confidence:
        """The confidence region of optimism."""
        return self.confidence or Confidence(scale=SCALE)

    @property
    def record_bounds(self) -> Bounds:
        """What records are clipped to; where they are centred, it gives adjacency and Gram's share alone."""
        return self.bounds or Bounds.for_range(self.reward_range if self.centring is None else None)

    @property
    def inner_bounds(self) -> Bounds:
        """The bounds that noise is calibrated to: of records as they are once they are centred."""
        bounds = self.record_bounds
        if self.centring is None:
            return bounds
        return self.centring.inner_bounds(adjacency=bounds.adjacency, gram_share=bounds.gram_share)

    def calibrated(self, releases: int) -> Gaussian:
        """The mechanism for so many releases: by name, or by a function that takes what `calibrate` takes."""
        make = partial(calibrate, self.mechanism) if isinstance(self.mechanism, str) else self.mechanism
        made = make(
            epsilon=float(self.epsilon or 0),
            delta=self.delta,
            releases=releases,
            sensitivity=self.inner_bounds.sensitivity,
        )
        return replace(made, public_point=self.centring)

    def check_dimension(self, dimension: int) -> None:
        """Refuse a public point of another dimension."""
        if self.private and self.centring is not None:
            same = self.centring.dimension == dimension
            require(same, "centring", f"must have dimension {dimension}", self.centring.dimension)

    def privatizer(self, dimension: int, *, releases: int, noise: NoiseSource, **other: Any) -> Privatizer:
        """What stands between an agent's records and its messages; `other` is as of `StreamPrivatizer`."""
        self.check_dimension(dimension)
        return assemble(
            dimension,
            mechanism=self.calibrated(releases),
            bounds=self.inner_bounds,
            centring=self.centring,
            noise=noise,
            decide_from=self.composed.decide_from,
            public_schedule=self.composed.schedule.public,
            **other,
        )

    def privatizers(self, plan: Plan, noise: Callable[[int], NoiseSource]) -> list[Privatizer]:
        """One for each agent of a plan, by number; `noise` gives an agent's own."""
        if not self.private:
            return [NonPrivateSums(plan.dimension) for _ in range(plan.agents)]
        releases = max(self.composed.schedule.max_releases(plan), 1)
        return [
            self.privatizer(plan.dimension, releases=releases, noise=noise(i)) for i in range(plan.agents)
        ]

    def agent(
        self,
        dimension: int,
        *,
        merit: Merit | None = None,
        seed: int | np.random.SeedSequence | None = None,
        privatizer: Privatizer | None = None,
        name: str | None = None,
    ) -> Agent:
        """An agent that follows these options; a private one takes what `privatizer` makes."""
        text = f"must be given for {self.composed.name}, as Options.privatizer(…) makes it"
        require(privatizer is not None or not self.private, "privatizer", text, privatizer)
        return Agent(
            dimension,
            rule=self.composed.rule,
            merit=merit,
            reward_range=self.reward_range,
            seed=seed,
            prior=self.prior,
            minimum_share=self.minimum_share,
            confidence=self.region if self.optimistic else None,
            privatizer=privatizer,
            solver=self.composed.solver if self.optimistic else None,
            shift=self.shift,
            partners=self.partners,
            name=name,
        )

    def summary(self) -> dict[str, Any]:
        """Plain values, for a record of the run."""
        composed, private, optimism = self.composed, self.private, self.optimistic
        return {
            "rule": composed.rule,
            "schedule": repr(composed.schedule),
            "minimum_share": self.minimum_share,
            "confidence": repr(self.region) if optimism else None,
            "solver": repr(composed.solver) if optimism else None,
            "reward_range": self.reward_range,
            "prior": None if optimism or self.prior is None else repr(self.prior),
            "epsilon": self.epsilon,
            "delta": self.delta if private else None,
            "mechanism": str(self.mechanism) if private else None,
            "bounds": repr(self.record_bounds) if private else None,
            "centring": repr(self.centring) if private else None,
            "decide_from": composed.decide_from,
            "shift": self.shift if private and optimism else None,
            "partners": self.partners,
        }
