"""The terms of a federation, which its members agree on before the first record.

Everything here is public and the same for all members: a release means the same to all of them only if
dimension, mechanism and schedule are the same, and the terms limit what a member may send (`limits`). Members
with different terms refuse each other.
"""

from __future__ import annotations

import copy
import dataclasses
import hashlib
import os
import time
from collections.abc import Mapping
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any, Unpack, cast

import numpy as np

from fedfairx.agent.actions import as_arms
from fedfairx.agent.agent import Agent
from fedfairx.agent.algorithms import algorithm
from fedfairx.agent.half_life import HalfLife
from fedfairx.agent.options import PLAIN, SECURE, Keywords, Options, bounds_of, described
from fedfairx.agent.reward_limits import RewardLimits
from fedfairx.agent.schedules import SCHEDULES, Plan, Schedule
from fedfairx.agent.settings import StoredSettings, describe_merit, floats, merit_from, read_value
from fedfairx.core.confidence import Confidence
from fedfairx.core.merit import Custom, Merit
from fedfairx.core.partners import ALIKE, DIFFER
from fedfairx.core.posterior import Prior
from fedfairx.core.rules import OPTIMISM
from fedfairx.core.slates import as_weights
from fedfairx.errors import InvalidInput, StateError, require
from fedfairx.features import Schema
from fedfairx.federation.roster.limits import ReleaseLimits
from fedfairx.federation.roster.rounds import Rounds
from fedfairx.privacy import Bounds, Budget, Centring, NonPrivate, NonPrivateSums, Privatizer
from fedfairx.privacy.budget import INTERCEPT
from fedfairx.privacy.ledger.ledger import Ledger
from fedfairx.privacy.ledger.rollback import Confirm
from fedfairx.privacy.mechanisms.gaussian import Mechanism
from fedfairx.privacy.mechanisms.noise import NoiseSource
from fedfairx.privacy.mechanisms.noise_share import NoiseShare
from fedfairx.util.canonical_json import canonical
from fedfairx.util.config import Scope

#: The rules of secure aggregation. In 1, records could be carried from one epoch into the next.
PROTOCOL = 2
#: Options of members that are part of the terms with secure aggregation.
SECURE_TERMS = ("decide_from", "partners")
#: What is left out where there is none, as it was before there was any.
LATER = ("features", "aggregation", "intercept")
ONLY_STORED = ("features", "privacy", "digest", "protocol")
#: The schedules that terms can name.
NAMES = {type(each): name for name, each in SCHEDULES.items()}
#: Largest norm of contexts if sums are exact and no bounds are given: far beyond the unit ball.
EXACT_NORM = 10.0


@dataclass(frozen=True, init=False)
class Terms:
    """The terms of a federation. Defaults are resolved at once, so that all members have the same values.

    dimension: number of features of an action, if they have no names.
    schema: the features by name (`features.Schema`), the same for all members, instead of a dimension.
    agents: number of members for which the schedule is made; later members change neither schedule nor noise.
    horizon: number of a member's rounds for which the schedule is made; a round is a decision with all its
        slots.
    spare: number of rounds by which the records of a release may be ahead of the schedule: rewards that come
        in batches, and records from before the federation. By default it is `horizon`.
    options: how members decide, learn and share, as one object, or fields of `Options` as keywords.
        `reward_range` is that of every member's rewards: members refuse other rewards, or clip them where
        sums are private. Records are clipped to `bounds` before they are summed, also where sums are exact:
        other members refuse sums that such records can't have. `decide_from`, `partners` and `half_life` are
        left to each member. With secure aggregation `decide_from` and `partners` are part of the terms, since
        one member's choice touches what the others can claim.
    rounds: with secure aggregation, the public times at which all members send, instead of the schedule. By
        default they begin now.
    records: with secure aggregation, the largest number of a member's records that enter; later ones stay
        local. By default ten million, or as many as totals have room for.
    """

    dimension: int
    agents: int
    horizon: int
    options: Options
    spare: int
    schema: Schema | None
    rounds: Rounds | None
    records: int | None

    def __init__(
        self,
        *,
        dimension: int | None = None,
        agents: int,
        horizon: int,
        options: Options | None = None,
        spare: int | None = None,
        schema: Schema | None = None,
        rounds: Rounds | None = None,
        records: int | None = None,
        **keywords: Unpack[Keywords],
    ) -> None:
        dimension, _ = as_arms(dimension, None, schema)
        Plan(horizon, agents, dimension)
        require(spare is None or spare >= 0, "spare", "must be >= 0", spare)
        if options is None:
            keywords.setdefault("algorithm", "priv-fairx-bayes")
            if keywords.get("aggregation") == SECURE and _may_differ(keywords):
                keywords.setdefault("partners", DIFFER)
        options = Options.given(options, **keywords)
        if options.secure:
            share = NoiseShare.among(agents, colluding=options.colluding, records=records)
            options = replace(options, colluding=share.colluding, decide_from=options.composed.decide_from)
            rounds = rounds or Rounds(begin=int(time.time()))
        else:
            for name, argument in (("rounds", rounds), ("records", records)):
                require(argument is None, name, f"is for aggregation={SECURE!r}", argument, "leave it out")
        for each in described():
            if each.scope is not Scope.AGREED and not (options.secure and each.name in SECURE_TERMS):
                value = getattr(options, each.name)
                whom = "to each member" if each.scope is Scope.MEMBER else "out: terms do not state it"
                same = value == getattr(Options, each.name)
                require(same, each.name, f"must be left {whom}", value)
        own = algorithm(options.algorithm)
        for name in ("rule", "solver"):
            same = getattr(options.composed, name) == getattr(own, name)
            text = f"must be that of {own.name}: terms name an algorithm"
            require(same, name, text, getattr(options, name))
        text = "must be one that all members have, not a custom function"
        require(not isinstance(options.merit, Custom), "merit", text, options.merit)
        times = options.composed.schedule
        require(
            type(times) in NAMES, "schedule", "must be one of fedfairx's own, which all members have", times
        )
        if schema is not None and options.private and options.bounds is None and options.centring is None:
            options = replace(options, bounds=bounds_of(schema, options.reward_range))
        options = replace(
            _settled(options if schema else options.around_middle(dimension), schema), schedule=times
        )
        spare = horizon if spare is None else spare
        vars(self).update(dimension=dimension, agents=agents, horizon=horizon, options=options, spare=spare)
        vars(self).update(schema=schema, rounds=rounds, records=records)
        _ = self.stated  # calibrates the mechanism, and refuses what does not fit
        if self.share is not None:
            vars(self).update(records=self.share.records)

    @property
    def bounds(self) -> Bounds:
        """The bounds to which records are clipped."""
        assert self.options.bounds is not None
        return self.options.bounds

    @property
    def columns(self) -> int:
        """How many coordinates the statistics have: the dimension, and the intercept of arrays."""
        return self.dimension + self.options.intercept

    @property
    def private(self) -> bool:
        """Whether members send noisy sums."""
        return self.options.private

    @property
    def secure(self) -> bool:
        """Whether only the sum of all members' rows is seen."""
        return self.options.secure

    @property
    def share(self) -> NoiseShare | None:
        """A member's share of the noise, with secure aggregation."""
        return getattr(self.stated, "share", None)

    @property
    def times(self) -> Schedule:
        """The schedule of a member's releases, in its own rounds."""
        return self.options.composed.schedule

    @property
    def plan(self) -> Plan:
        return Plan(self.horizon, self.agents, self.dimension)

    @property
    def releases(self) -> int:
        """The largest number of releases of a member."""
        return self.rounds.count if self.rounds is not None else max(self.times.max_releases(self.plan), 1)

    def budget(self, decide_from: str | None = None, *, members: int | None = None) -> Budget:
        """The privacy budget of a member, if the algorithm is private.

        members: with secure aggregation, how many the roster has; by default those of the first one.
        """
        if not self.secure:
            return replace(self.options, decide_from=decide_from).budget(self.releases)
        agreed = self.options.decide_from
        self._require_agreed("decide_from", decide_from, agreed)
        budget = self.options.budget(self.releases, agents=self.agents)
        assert budget.share is not None
        budget = replace(budget, share=replace(budget.share, records=self.records))
        return budget if members is None else budget.among(members)

    def _require_agreed(self, name: str, value: str | None, agreed: str | None) -> None:
        text = f"must be left out or that of the terms, {agreed}: with secure aggregation all decide alike"
        require(value in (None, agreed), name, text, value)

    @cached_property
    def stated(self) -> Mechanism:
        """The mechanism of every member's releases."""
        return self.budget().calibrate() if self.private else NonPrivate()

    @cached_property
    def limits(self) -> ReleaseLimits:
        """The plausibility limits of a member's releases; with secure aggregation, of totals of `agents`."""
        if self.share is not None:
            return self.limits_of_totals(self.agents)
        rounds = self.times.rounds(self.plan)
        if rounds.size == 0:  # the schedule depends on the data
            rounds = np.full(self.releases, self.horizon)
        return ReleaseLimits(
            self.stated,
            self.columns,
            bounds=self.bounds,
            centring=self.options.centring,
            records=(rounds + self.spare) * len(self.bounds.slots),
        )

    def limits_of_totals(self, members: int) -> ReleaseLimits:
        """The plausibility limits of totals of this many members, with secure aggregation."""
        assert self.share is not None
        return ReleaseLimits(
            self.stated,
            self.columns,
            bounds=self.bounds,
            centring=self.options.centring,
            records=np.full(self.releases, members * int(self.share.records or 0)),
            rows=members,
        )

    # --- a member's agent ----------------------------------------------------------------------------

    def privatizer(
        self,
        noise: NoiseSource | None,
        *,
        ledger: Ledger | None = None,
        confirm: Confirm | None = None,
        decide_from: str | None = None,
        members: int | None = None,
    ) -> Privatizer:
        """A member's privatizer; where the algorithm is not private, exact sums of clipped records."""
        if not self.private:
            return NonPrivateSums(self.columns, self.bounds)
        name = self.options.composed.name
        if noise is None:
            raise InvalidInput(f"noise must be given for {name}: fedfairx.privacy.KeyedNoise(…)")
        budget = self.budget(decide_from, members=members)
        return budget.privatizer(self.columns, noise=noise, ledger=ledger, confirm=confirm)

    def agent(
        self,
        name: str,
        *,
        noise: NoiseSource | None = None,
        ledger: Ledger | None = None,
        decide_from: str | None = None,
        partners: str | None = None,
        half_life: HalfLife | None = None,
        members: int | None = None,
        seed: int | np.random.SeedSequence | None = None,
    ) -> Agent:
        """A member's agent, in memory.

        `decide_from`, `partners` (by default they may differ) and `half_life` are its own choice; with secure
        aggregation they are those of the terms. `members` is as for `budget`.
        """
        privatizer = self.privatizer(noise, ledger=ledger, decide_from=decide_from, members=members)
        options = self._member(partners, half_life)
        arms = self._arms(None)
        return Agent(**arms, options=options, privatizer=privatizer, name=name, seed=seed)

    def open_agent(
        self,
        name: str,
        place: str | os.PathLike[str],
        *,
        decide_from: str | None = None,
        partners: str | None = None,
        half_life: HalfLife | None = None,
        schema: Schema | None = None,
        members: int | None = None,
        **opening: Any,
    ) -> Agent:
        """A member's agent in a database (`Agent.open`), which also holds its ledger and noise key.

        schema: its own names for features, if the terms have none.
        members: as for `budget`; an agent that exists goes on with those of its epoch.
        """
        budget = self.budget(decide_from, members=members) if self.private else None
        member = self._member(partners, half_life)
        options = replace(member, bounds=None if self.private else self.bounds)
        arms = self._arms(schema)
        return Agent.open(place, **arms, options=options, budget=budget, name=name, **opening)

    def _arms(self, schema: Schema | None) -> dict[str, Any]:
        """The dimension of a member's agent and its schema, if any: that of the terms, or its own."""
        text = "must be left out: these terms are for arrays, and have an intercept for them"
        alone = schema is None or not self.options.intercept
        require(alone, "schema", text, str(schema), "found a federation with features, or intercept=False")
        if self.schema is not None:
            same = schema in (None, self.schema)
            text = f"must be left out or that of the terms, {self.schema}"
            require(same, "schema", text, str(schema))
        return {"dimension": self.dimension, "schema": self.schema or schema}

    def _member(self, partners: str | None, half_life: HalfLife | None) -> Options:
        """The options of a member's agent; its privatizer has those of privacy."""
        options, limit = self.options, self.bounds.reward
        if self.secure:
            self._require_agreed("partners", partners, options.partners)
            partners = options.partners
        stored = {item.name for item in dataclasses.fields(StoredSettings)}
        values = {name: value for name, value in vars(options).items() if name in stored}
        values |= {"reward_range": options.reward_range or (-limit, limit), "half_life": half_life}
        return Options(**values | {"partners": ALIKE if options.optimistic else partners or DIFFER})

    # --- as plain values -----------------------------------------------------------------------------

    @cached_property
    def digest(self) -> str:
        """SHA-256 of all terms; every message carries it."""
        return hashlib.sha256(self._canonical).hexdigest()

    def to_dict(self) -> dict[str, Any]:
        """Plain values, from which `from_dict` makes the same terms."""
        return copy.deepcopy(self._described)

    @cached_property
    def _canonical(self) -> bytes:
        """All terms as canonical JSON."""
        return canonical(self._described)

    @cached_property
    def _described(self) -> dict[str, Any]:
        """What `to_dict` returns a copy of; made once, as every roster has it, and not to be changed."""
        prior = _prior(self.options)
        stated = vars(self.options) | vars(self) | {"features": self.schema, "protocol": PROTOCOL}
        stated |= {"algorithm": self.options.composed.name, "confidence": self.options.region}
        stated |= {"prior": replace(prior, mean=tuple(prior.means(self.columns).tolist()))}
        stated |= {"privacy": None, "aggregation": None}
        if self.private:
            stated["privacy"] = _values(_StoredPrivacy, stated | {"digest": self.stated.digest()})
        if self.secure:
            stated["aggregation"] = _values(_StoredAggregation, stated)
        values = _values(_StoredTerms, stated)
        values["intercept"] = self.options.intercept or None
        return {name: value for name, value in values.items() if value is not None or name not in LATER}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Terms:
        """The terms that `to_dict` described; `StateError` says what is wrong with others."""
        stored = read_value(dict(values), _StoredTerms, "terms")
        optimism = algorithm(stored.algorithm).rule == OPTIMISM
        means, privacy, agreed = stored.prior.mean, stored.privacy, stored.aggregation
        columns = stored.dimension + bool(stored.intercept)
        if not isinstance(means, tuple) or len(means) != columns:
            raise StateError(f"terms.prior.mean must be {columns} numbers")
        if agreed is not None and agreed.protocol != PROTOCOL:
            raise StateError(
                f"terms.aggregation.protocol must be {PROTOCOL}, got {agreed.protocol}: this federation "
                "was founded by a version of fedfairx whose members carry records from one epoch into "
                "the next; found a new federation (`fedfairx federate init`)"
            )
        prior = stored.prior if len(set(means)) > 1 else replace(stored.prior, mean=means[0])
        keywords: dict[str, Any] = _fields(stored) | {"slots": stored.bounds.slots}
        keywords |= {
            "intercept": bool(stored.intercept),
            "prior": None if optimism else prior,
            "merit": merit_from(stored.merit),
        }
        keywords |= {"schedule": _schedule(stored.schedule)} | ({} if optimism else {"confidence": None})
        keywords |= {} if privacy is None else _fields(privacy)
        keywords |= {"aggregation": PLAIN} if agreed is None else _fields(agreed) | {"aggregation": SECURE}
        features = keywords["features"]
        try:
            keywords["schema"] = None if features is None else Schema.from_dict(features)
            terms = cls(**{name: value for name, value in keywords.items() if name not in ONLY_STORED})
        except InvalidInput as error:
            raise StateError(f"these terms are not valid: {error}") from None
        if privacy is not None and terms.stated.digest() != privacy.digest:
            raise StateError("terms.privacy.digest is not that of the mechanism that these terms describe")
        return terms


def _may_differ(keywords: Keywords) -> bool:
    """Whether partners may differ: these agents have a posterior, and decide from their own exact data."""
    chosen = algorithm(keywords.get("algorithm") or "priv-fairx-bayes")
    decide_from = keywords.get("decide_from") or chosen.decide_from
    return chosen.rule != OPTIMISM and decide_from == "own+released"


def _settled(options: Options, schema: Schema | None) -> Options:
    """The options with defaults filled in: rule, merit, prior or region, intercept, solver, bounds."""
    settled, bounds = options.for_agent(featureless=False, schema=schema), options.bounds
    if bounds is None and not options.private:
        low, high = options.reward_range or RewardLimits(_prior(settled), None).ends
        bounds = Bounds(context_norm=EXACT_NORM, reward=max(abs(low), abs(high)))
    bounds, constant = bounds or options.record_bounds, INTERCEPT if options.private else 1.0
    constant = constant if settled.intercept and options.centring is None else 0.0
    bounds = replace(bounds, slots=as_weights(options.slots), constant=constant)
    point = options.centring and replace(options.centring, intercept=settled.intercept)
    return replace(settled, bounds=bounds, centring=point)


def _prior(options: Options) -> Prior:
    """The prior; for an algorithm without one the default, which is stored but not used."""
    assert options.merit is not None
    return options.prior or Prior.for_merit(options.merit, reward_range=options.reward_range)


def _values(kind: type, stated: Mapping[str, Any]) -> dict[str, Any]:
    """What is stated of the fields of a stored type, as plain values."""
    return {item.name: _plain(stated[item.name]) for item in dataclasses.fields(kind)}


def _fields(value: Any) -> dict[str, Any]:
    return {item.name: getattr(value, item.name) for item in dataclasses.fields(value)}


def _plain(value: Any) -> Any:
    """A term as canonical JSON has it."""
    if isinstance(value, Prior | Confidence):
        plain = _fields(value).items()
        return {name: each if isinstance(each, bool) else floats(each) for name, each in plain}
    if isinstance(value, Merit):
        return describe_merit(value)
    if type(value) in NAMES:
        return {"name": NAMES[type(value)], **dataclasses.asdict(value)}
    if isinstance(value, tuple):
        return list(value)
    return value.to_dict() if hasattr(value, "to_dict") else value


def _schedule(values: Mapping[str, Any]) -> Schedule:
    name = values.get("name")
    if name not in SCHEDULES:
        raise StateError(f"terms.schedule.name must be one of {', '.join(SCHEDULES)}, got {name!r}")
    schedule: Any = SCHEDULES[name]
    try:
        changes = {key: value for key, value in values.items() if key != "name"}
        return cast("Schedule", dataclasses.replace(schedule, **changes))
    except (TypeError, InvalidInput) as error:
        raise StateError(f"terms.schedule has no such parameters: {error}") from None


@dataclass(frozen=True)
class _StoredPrivacy:
    epsilon: float
    delta: float
    mechanism: str
    centring: Centring | None
    digest: str


@dataclass(frozen=True)
class _StoredAggregation:
    colluding: int
    decide_from: str
    partners: str
    records: int
    rounds: Rounds
    protocol: int = 1


@dataclass(frozen=True)
class _StoredTerms:
    """The values that `Terms.to_dict` returns."""

    dimension: int
    agents: int
    horizon: int
    algorithm: str
    schedule: dict[str, Any]
    reward_range: tuple[float, float] | None
    merit: dict[str, Any]
    prior: Prior
    confidence: Confidence
    minimum_share: float
    spare: int
    bounds: Bounds
    privacy: _StoredPrivacy | None
    features: dict[str, Any] | None = None
    intercept: bool | None = None
    aggregation: _StoredAggregation | None = None
