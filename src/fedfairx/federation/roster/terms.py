"""What the members of a federation agree on before the first record, and what is made of it.

Everything here is public and the same for all: a release of one member means the same to every other only
if dimension, mechanism and schedule are the same, and what one may send is bounded by what was agreed
(`plausible.py`). Members with other terms refuse each other.
"""

from __future__ import annotations

import dataclasses
import os
from collections.abc import Mapping
from dataclasses import dataclass, field
from functools import cached_property
from typing import Any, Literal, cast

import numpy as np

from fedfairx.agent.agent import Agent
from fedfairx.agent.algorithms import Algorithm, algorithm
from fedfairx.agent.fields import Fields
from fedfairx.agent.options import SCALE
from fedfairx.agent.parts import describe_merit, merit_from
from fedfairx.agent.reward_limits import RewardLimits, as_reward_range
from fedfairx.agent.schedules import SCHEDULES, Plan, Schedule
from fedfairx.core.confidence import Confidence
from fedfairx.core.merit import Custom, Exponential, Merit, Range
from fedfairx.core.partners import ALIKE, DIFFER
from fedfairx.core.posterior import Prior
from fedfairx.core.rules import OPTIMISM
from fedfairx.errors import InvalidInput, StateError, require
from fedfairx.federation.roster.limits import Limits
from fedfairx.privacy import (
    Bounds,
    Budget,
    Centring,
    NonPrivate,
    NonPrivateSums,
    Privatizer,
)
from fedfairx.privacy.guarantee import DecideFrom
from fedfairx.privacy.ledger.ledger import Ledger
from fedfairx.privacy.ledger.rollback import Confirm
from fedfairx.privacy.mechanisms.gaussian import Mechanism
from fedfairx.privacy.mechanisms.noise import NoiseSource
from fedfairx.util.canonical_json import digest_of

#: Length that contexts may have where sums are exact and no bounds are given: far beyond the unit ball that
#: agents expect.
EXACT_NORM = 10.0


@dataclass(frozen=True, kw_only=True)
class Terms:
    """What members agree on. Whatever is left out is set when terms are made, and is then the same for all.

    agents: how many the schedule is made for; who joins later changes neither schedule nor noise.
    reward_range: (low, high) of every member's rewards; it sets the defaults of merit, prior and bounds.
        Members refuse other rewards, or clip them where sums are private.
    bounds: what records are clipped to before they are summed, also where sums are exact: others refuse what
        such records can't make.
    spare: a member's release number k holds at most as many records as rounds until then, and so many more:
        rewards that come in batches, and records from before the federation. By default it is `horizon`.
    """

    dimension: int
    agents: int
    horizon: int
    algorithm: str = "priv-fairx-bayes"
    schedule: Schedule | None = None  # None: the algorithm's own
    reward_range: Range | None = None
    merit: Merit = None  # type: ignore[assignment]  # set below, like those that follow
    prior: Prior = None  # type: ignore[assignment]
    confidence: Confidence = field(default_factory=lambda: Confidence(scale=SCALE))
    minimum_share: float = 0.0
    epsilon: float | None = None
    delta: float = 1e-6
    mechanism: str = "blt"
    bounds: Bounds = None  # type: ignore[assignment]
    centring: Centring | None = None
    spare: int | None = None

    def __post_init__(self) -> None:
        Plan(self.horizon, self.agents, self.dimension)
        self._settle()
        own = isinstance(self.merit, Custom)
        text = "must be one that all members have, not a function of one's own"
        require(not own, "merit", text, self.merit)
        known = type(self.times) in {type(each) for each in SCHEDULES.values()}
        require(known, "schedule", "must be one of fedfairx's own, which all members have", self.times)
        if self._algorithm.private:
            require(self.epsilon is not None, "epsilon", f"must be given for {self.algorithm}", self.epsilon)
        else:
            text = f"must be left out: {self.algorithm} is not private"
            require(self.epsilon is None, "epsilon", text, self.epsilon)
        require(self.spare is None or self.spare >= 0, "spare", "must be >= 0", self.spare)
        _ = self.stated  # calibrates: what does not fit is refused here

    def _settle(self) -> None:
        """Set what was left out."""
        known = as_reward_range(self.reward_range)
        merit = self.merit or Exponential.for_range(*(known or (0.0, 1.0)))
        prior = self.prior or Prior.for_merit(merit, reward_range=known)
        bounds = self.bounds
        if bounds is None and self.epsilon is None:
            low, high = known or RewardLimits(prior, None).ends
            bounds = Bounds(context_norm=EXACT_NORM, reward=max(abs(low), abs(high)))
        elif bounds is None:
            bounds = Bounds.for_range(known if self.centring is None else None)
        found = {"reward_range": known, "merit": merit, "prior": prior, "bounds": bounds}
        for name, value in found.items():
            object.__setattr__(self, name, value)

    @property
    def _algorithm(self) -> Algorithm:
        return algorithm(self.algorithm)

    @property
    def times(self) -> Schedule:
        """When a member releases, in rounds of its own."""
        return self._algorithm.schedule if self.schedule is None else self.schedule

    @property
    def plan(self) -> Plan:
        return Plan(self.horizon, self.agents, self.dimension)

    @property
    def releases(self) -> int:
        """How many releases a member makes at most."""
        return max(self.times.max_releases(self.plan), 1)

    @cached_property
    def stated(self) -> Mechanism:
        """The mechanism of every member's releases."""
        if self.epsilon is None:
            return NonPrivate()
        return self.budget().calibrate()

    def budget(self, decide_from: str | None = None) -> Budget:
        """The privacy budget of a member, if the algorithm is private."""
        return Budget(
            epsilon=self.epsilon or 0.0,
            delta=self.delta,
            releases=self.releases,
            mechanism=self.mechanism,
            bounds=self.bounds,
            centring=self.centring,
            decide_from=cast("DecideFrom", decide_from or self._algorithm.decide_from),
            public_schedule=self.times.public,
        )

    @cached_property
    def limits(self) -> Limits:
        """What a release of a member can hold."""
        rounds = self.times.rounds(self.plan)
        if rounds.size == 0:  # the data decide
            rounds = np.full(self.releases, self.horizon)
        spare = self.horizon if self.spare is None else self.spare
        return Limits(
            self.stated,
            self.dimension,
            bounds=self.bounds,
            centring=self.centring,
            records=rounds + spare,
        )

    # --- what is made of them ------------------------------------------------------------------------

    def privatizer(
        self,
        noise: NoiseSource | None,
        *,
        ledger: Ledger | None = None,
        confirm: Confirm | None = None,
        decide_from: str | None = None,
    ) -> Privatizer:
        """A member's privatizer; where the algorithm is not private, exact sums of clipped records."""
        if self.epsilon is None:
            return NonPrivateSums(self.dimension, self.bounds)
        if noise is None:
            raise InvalidInput(f"noise must be given for {self.algorithm}: fedfairx.privacy.KeyedNoise(…)")
        return self.budget(decide_from).privatizer(
            self.dimension, noise=noise, ledger=ledger, confirm=confirm
        )

    def agent(
        self,
        name: str,
        *,
        noise: NoiseSource | None = None,
        ledger: Ledger | None = None,
        decide_from: str | None = None,
        partners: str = DIFFER,
        seed: int | np.random.SeedSequence | None = None,
    ) -> Agent:
        """A member's agent, in memory. `partners` and `decide_from` are its own affair, as of `Agent`."""
        privatizer = self.privatizer(noise, ledger=ledger, decide_from=decide_from)
        return Agent(self.dimension, seed=seed, privatizer=privatizer, name=name, **self._settings(partners))

    def open_agent(
        self,
        name: str,
        place: str | os.PathLike[str],
        *,
        decide_from: str | None = None,
        partners: str = DIFFER,
        **opening: Any,
    ) -> Agent:
        """The same in a database of its own (`Agent.open`), its ledger and noise key in it too."""
        return Agent.open(
            place,
            dimension=self.dimension,
            budget=None if self.epsilon is None else self.budget(decide_from),
            bounds=self.bounds if self.epsilon is None else None,
            name=name,
            **self._settings(partners),
            **opening,
        )

    def _settings(self, partners: str) -> dict[str, Any]:
        optimistic = self._algorithm.rule == OPTIMISM
        return {
            "rule": self._algorithm.rule,
            "merit": self.merit,
            "reward_range": self.reward_range or (-self.bounds.reward, self.bounds.reward),
            "prior": None if optimistic else self.prior,
            "minimum_share": self.minimum_share,
            "confidence": self.confidence if optimistic else None,
            "solver": self._algorithm.solver if optimistic else None,
            "partners": ALIKE if optimistic else partners,
        }

    # --- as a file's part ----------------------------------------------------------------------------

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all of it: members compare it with every message."""
        return digest_of(self.to_dict())

    def to_dict(self) -> dict[str, Any]:
        """Plain values, from which `from_dict` makes the same terms."""
        names = {type(each): name for name, each in SCHEDULES.items()}
        times: Any = self.times
        schedule: dict[str, Any] = dataclasses.asdict(times)
        return {
            "dimension": self.dimension,
            "agents": self.agents,
            "horizon": self.horizon,
            "algorithm": self._algorithm.name,
            "schedule": {"name": names[type(self.times)], **schedule},
            "reward_range": None if self.reward_range is None else list(self.reward_range),
            "merit": describe_merit(self.merit),
            "prior": {
                "mean": self.prior.means(self.dimension).tolist(),
                "sd": float(self.prior.sd),
                "noise_sd": float(self.prior.noise_sd),
                "learn": self.prior.learn,
            },
            "confidence": {key: float(value) for key, value in dataclasses.asdict(self.confidence).items()},
            "minimum_share": float(self.minimum_share),
            "spare": self.horizon if self.spare is None else self.spare,
            "bounds": self.bounds.to_dict(),
            "privacy": None
            if self.epsilon is None
            else {
                "epsilon": float(self.epsilon),
                "delta": float(self.delta),
                "mechanism": self.mechanism,
                "centring": None if self.centring is None else self.centring.to_dict(),
                "digest": self.stated.digest(),
            },
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Terms:
        """The terms that `to_dict` described; `StateError` says what is wrong with others."""
        fields = Fields(dict(values), "terms")
        dimension = fields.integer("dimension", 1)
        given: dict[str, Any] = {
            "dimension": dimension,
            "agents": fields.integer("agents", 1),
            "horizon": fields.integer("horizon", 1),
            "algorithm": fields.text("algorithm"),
            "schedule": schedule_from(fields.part("schedule").plain()),
            "reward_range": fields.pair("reward_range"),
            "merit": merit_from(fields.part("merit"), None),
            "minimum_share": fields.number("minimum_share", 0.0),
            "spare": fields.integer("spare"),
        }
        try:
            given["prior"] = prior_from(fields.part("prior"), dimension)
            given["confidence"] = confidence_from(fields.part("confidence"))
            given["bounds"] = bounds_from(fields.part("bounds"))
            if fields.plain().get("privacy", 0) is None:
                return cls(**given)
            privacy = fields.part("privacy")
            centring = privacy.plain().get("centring")
            terms = cls(
                **given,
                epsilon=privacy.number("epsilon"),
                delta=privacy.number("delta"),
                mechanism=privacy.text("mechanism"),
                centring=None if centring is None else centring_from(privacy.part("centring"), dimension),
            )
        except InvalidInput as error:
            raise StateError(f"these terms can't be kept: {error}") from None
        if terms.stated.digest() != privacy.text("digest"):
            raise StateError("terms.privacy.digest is another mechanism's than the one these terms describe")
        return terms


def schedule_from(values: Mapping[str, Any]) -> Schedule:
    name = values.get("name")
    if name not in SCHEDULES:
        raise StateError(f"terms.schedule.name must be one of {', '.join(SCHEDULES)}, got {name!r}")
    found: Any = SCHEDULES[name]
    try:
        return cast(
            "Schedule", dataclasses.replace(found, **{k: v for k, v in values.items() if k != "name"})
        )
    except (TypeError, InvalidInput) as error:
        raise StateError(f"terms.schedule has no such parameters: {error}") from None


def bounds_from(fields: Fields) -> Bounds:
    return Bounds(
        context_norm=fields.number("context_norm"),
        reward=fields.number("reward"),
        adjacency=cast('Literal["replace", "add-remove"]', fields.text("adjacency")),
        nonnegative=fields.flag("nonnegative"),
        gram_share=fields.number("gram_share"),
    )


def centring_from(fields: Fields, dimension: int) -> Centring:
    return Centring(
        context=tuple(fields.numbers("context", dimension).tolist()),
        context_radius=fields.number("context_radius"),
        reward=fields.number("reward"),
        reward_radius=fields.number("reward_radius"),
        constant=fields.number("constant"),
    )


def prior_from(fields: Fields, dimension: int) -> Prior:
    means = fields.numbers("mean", dimension).tolist()
    return Prior(
        means[0] if means.count(means[0]) == dimension else tuple(means),
        fields.number("sd"),
        fields.number("noise_sd"),
        fields.flag("learn"),
    )


def confidence_from(fields: Fields) -> Confidence:
    return Confidence(**{each.name: fields.number(each.name) for each in dataclasses.fields(Confidence)})
