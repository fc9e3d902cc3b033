"""How agents decide, learn and share: the one configuration of agents, federations, simulations and services.

A field has its type, limits and scope here, and its help in the docstring of `Options`. The keywords of
`Agent`, `Federation` and `simulate`, flags, environment variables, TOML keys, the body of a request that
makes an agent, and the terms of a federation come from it (`util/config.py`). Contradictions are refused
here.
"""

from __future__ import annotations

from collections.abc import Callable, Sequence
from dataclasses import dataclass, fields, replace
from datetime import timedelta
from functools import cache, cached_property
from typing import Any, Literal, TypedDict, Unpack, cast

from fedfairx.agent.algorithms import ALGORITHMS, SOLVERS, Algorithm
from fedfairx.agent.algorithms import algorithm as find_algorithm
from fedfairx.agent.by_name import as_merit, as_schedule
from fedfairx.agent.half_life import LONGEST, NOT_PRIVATE, HalfLife, as_half_life
from fedfairx.agent.reward_limits import check_order, check_weights
from fedfairx.agent.schedules import SCHEDULES, Plan, Schedule
from fedfairx.agent.schedules import schedule as find_schedule
from fedfairx.core.confidence import LARGEST_SETTING, Confidence
from fedfairx.core.merit import Exponential, Merit
from fedfairx.core.optimism.solver import Solver
from fedfairx.core.partners import ALIKE, DIFFER, PARTNERS
from fedfairx.core.posterior import Prior
from fedfairx.core.rules import OPTIMISM, RULES
from fedfairx.core.slates import MOST, ONE, Slots, as_weights, read_slots
from fedfairx.errors import InvalidInput, require
from fedfairx.features import Schema
from fedfairx.privacy import Bounds, Budget, Centring, NonPrivateSums, Privatizer, mechanisms
from fedfairx.privacy.budget import INTERCEPT, Calibrate
from fedfairx.privacy.guarantee import DECIDE_FROM, DecideFrom, require_decide_from
from fedfairx.privacy.ledger.ledger import Ledger
from fedfairx.privacy.mechanisms.gaussian import require_mechanism
from fedfairx.privacy.mechanisms.noise import NoiseSource
from fedfairx.privacy.mechanisms.noise_share import NoiseShare
from fedfairx.util.config import (
    COUNT,
    NUMBER,
    POSITIVE,
    READERS,
    SHARE,
    Limits,
    Part,
    Scope,
    Setting,
    check_fields,
    option,
    settings_of,
    with_default,
)
from fedfairx.util.places import meant

#: The default scale of the radius, fitted to the paper's curve (docs/paper/reproduction.md), so that what is
#: deployed is what its figures show. The theorem's is 1.
SCALE = 0.5
#: What members see of each other: every release, or only the sum of all.
AGGREGATIONS = PLAIN, SECURE = "plain", "secure"
#: Where secure aggregation is available, for errors.
WHERE_SECURE = "secure aggregation is for simulate, Federation and the terms of a federation"
AGENT, AGREED, MEMBER, RUNNING, _ = Scope
OWN = "the algorithm's own"  # what None means
#: Why a private agent can't have names alone.
NAMES_ALONE = "must have features where messages have noise: a name's own record is in no message"
GIVE_CATEGORY = "give schema=fedfairx.features.Schema({'name': ['ann', 'ben']}), where a name is a feature"
_KINDS = {"prior": Prior, "confidence": Confidence, "bounds": Bounds, "centring": Centring}


class Keywords(TypedDict, total=False):
    """The fields of `Options` as keywords, for editors; a test holds that they are the same.

    `Federation` also takes a merit for each agent, and `simulate` the centring of its scenario.
    """

    rule: str | None
    merit: Merit | Sequence[Merit] | None
    reward_range: tuple[float, float] | None
    minimum_share: float
    slots: Slots
    epsilon: float | None
    delta: float
    decide_from: str | None
    partners: str
    half_life: HalfLife | None
    own_record: bool
    algorithm: str | Algorithm
    schedule: str | Schedule | None
    prior: Prior | None
    intercept: bool
    confidence: Confidence | None
    solver: str | Solver | None
    mechanism: str | Calibrate
    bounds: Bounds | None
    centring: Centring | Literal["scenario"] | None
    shift: float
    aggregation: str
    colluding: int | None


@dataclass(frozen=True, kw_only=True)
class SharedOptions:
    """The options that agents of programs and of services have alike. `Options` explains them."""

    rule: str | None = option(None, AGREED, choices=RULES, unset=OWN)
    merit: Merit | None = option(
        None, AGREED, like="doubling:0.1", unset="7 % of the reward range doubles the share"
    )
    reward_range: tuple[float, float] | None = option(
        None,
        AGREED,
        Limits(ge=-LARGEST_SETTING, le=LARGEST_SETTING),
        like="1:5",
        metavar="LOW:HIGH",
    )
    minimum_share: float = option(0.0, AGREED, Limits(ge=0, lt=1))
    slots: Slots = option(ONE, AGREED, like="3 or 1,0.63,0.5", unset=1, metavar="INT|NUMBER,…")
    epsilon: float | None = with_default(Budget, "epsilon", None)
    delta: float = with_default(Budget, "delta", Budget.delta)
    decide_from: str | None = option(None, MEMBER, choices=DECIDE_FROM, unset=OWN)
    partners: str = option(ALIKE, MEMBER, choices=PARTNERS)
    half_life: HalfLife | None = option(None, MEMBER, like="1000 or 30d", metavar="REWARDS|TIME")
    own_record: bool = option(True, MEMBER)


@dataclass(frozen=True, kw_only=True)
class Options(SharedOptions):
    """How agents decide, learn and share: everything except who they are and how long they run.

    algorithm: the rule, what is shared, and whether privately: a name of `fedfairx.algorithms()`.
    rule: how shares are computed: "expected-merit", "greedy" (the merit of the expected reward), "thompson"
        (the merit under a drawn parameter), or "optimism" (the paper's).
    merit: what a reward is worth, one of `fedfairx.merit`; a steeper one gives the best actions more. By
        default an action that is better by 7 % of the reward range gets twice the share; the default range is
        (0, 1).
    schedule: when agents share, instead of the algorithm's own: a name or a `Schedule`.
    reward_range: (low, high) of all rewards, if known. It sets the defaults of merit and prior, and rewards
        outside are refused.
    prior: what is believed before the first reward (`Prior`), for every rule but "optimism".
    intercept: whether arrays get a constant, so that rewards need not be 0 where all numbers are; without it
        shares depend on how high rewards are. The paper's rule, "optimism", has none, named actions need
        none, and a schema has its own.
    minimum_share: the least share of every action, in [0, 1).
    slots: how many actions a decision shows, or the weight of every slot. Where slots have weights, the
        reward range must contain 0.
    confidence: the region that "optimism" chooses from; by default half the theorem's radius, as fitted to
        the paper's curves.
    solver: how "optimism" finds its θ: a name or a `Solver`.
    epsilon: ε for all of an agent's messages together, which makes them private;
        docs/howto/choose-epsilon.md. Private algorithms need one.
    delta: δ for all of an agent's messages together; above 1e-3 the guarantee is weak.
    mechanism: how noise is added to releases: a name that `fedfairx list` shows, or a function of your own.
    bounds: what records are clipped to; also their neighbouring relation, and how noise is divided.
    centring: the public point that records are clipped around; by default zero.
    decide_from: what a private agent's decisions may use; "released" is the strict mode, whose claim also
        covers what a record changes in later decisions.
    shift: what "optimism" adds to private sums to make them definite, in sds of their noise.
    partners: "alike" (one θ for all) or "differ": the agent learns from its own rewards whom to believe, and
        how far. For rules with a posterior, unless decisions come from releases alone.
    half_life: after how many rewards, or after what time ("30d"), a record counts half, for a world that
        changes; by default all count alike. Not for private agents, nor for "optimism".
    own_record: whether an action with a name is judged by its own rewards beside its features: one that was
        declared, or whose name comes again. Not for "optimism", nor where decisions come from releases alone.
    aggregation: "plain" (each agent's releases are seen) or "secure": only the sum of all agents' releases is
        ever seen, so that each adds only a share of the noise. For private agents.
    colluding: with secure aggregation, how many agents may collude with each other and with the hub.

    >>> Options(algorithm="priv-fairx-bayes", epsilon=2.0).composed.schedule
    Geometric(ratio=1.2, start=30)
    """

    algorithm: str | Algorithm = option("fed-fairx-bayes", AGREED, choices=tuple(ALGORITHMS))
    schedule: str | Schedule | None = option(
        None, AGREED, choices=tuple(SCHEDULES), like="geometric:ratio=1.2", unset=OWN
    )
    prior: Prior | None = option(None, AGREED)
    intercept: bool = option(True, AGREED)
    confidence: Confidence | None = option(None, AGREED)
    solver: str | Solver | None = option(None, AGREED, choices=tuple(SOLVERS), unset=OWN)
    mechanism: str | Calibrate = option("blt", AGREED, choices=mechanisms())
    bounds: Bounds | None = option(None, AGREED)
    centring: Centring | None = option(None, AGREED)
    shift: float = option(4.0, AGENT, Limits(ge=0, le=1e100))
    aggregation: str = option(PLAIN, AGREED, choices=AGGREGATIONS)
    colluding: int | None = option(None, AGREED, COUNT, unset="a fifth of the agents, at least one")

    def __post_init__(self) -> None:
        check_fields(self, Options)
        for name, kind in _KINDS.items():
            value = getattr(self, name)
            require(value is None or isinstance(value, kind), name, f"must be a {kind.__name__}", value)
        check_order(self.reward_range)
        typed = isinstance(self.algorithm, str | Algorithm)
        require(typed, "algorithm", "must be a name of fedfairx.algorithms() or an Algorithm", self.algorithm)
        require_mechanism(self.mechanism)
        typed = self.merit is None or (isinstance(self.merit, Merit) and not isinstance(self.merit, type))
        text = "must be a merit function of fedfairx.merit, such as Exponential(10)"
        require(typed, "merit", text, self.merit)
        chosen = self.composed
        if self.optimistic:
            text = f"is not for rule='{OPTIMISM}', which has no posterior"
            require(self.prior is None, "prior", text, self.prior, "give a confidence")
        else:
            text = f"is for rule='{OPTIMISM}', and the rule is {chosen.rule!r}"
            require(self.confidence is None, "confidence", text, self.confidence, "give a prior")
            require(self.solver is None, "solver", text, self.solver, "leave it out")
        weights = as_weights(self.slots)
        object.__setattr__(self, "slots", weights)
        check_weights(weights, self.reward_range)
        same = self.bounds is None or self.bounds.slots in (ONE, self.slots)
        require(same, "bounds", "must leave slots to the options", self.bounds, "give slots")
        self._check_partners()
        self._check_half_life()
        self._check_aggregation()
        if chosen.private:
            self._check_privacy()
            return
        text = f"is for private algorithms, and {chosen.name} is not private"
        remedy = f"give algorithm='priv-fairx-{'linucb' if self.optimistic else 'bayes'}', or leave it out"
        require(self.epsilon is None, "epsilon", text, self.epsilon, remedy)
        require(self.decide_from is None, "decide_from", text, self.decide_from, remedy)

    def _check_partners(self) -> None:
        if self.partners == DIFFER:
            text = f"must be {ALIKE!r} for rule='{OPTIMISM}', which has no posterior"
            require(not self.optimistic, "partners", text, self.partners)
            own = not self.private or self.composed.decide_from == "own+released"
            text = f"must be {ALIKE!r} where private agents do not decide from their own exact data"
            require(own, "partners", text, self.partners, 'or decide_from="own+released"')

    def _check_half_life(self) -> None:
        object.__setattr__(self, "half_life", as_half_life(self.half_life))
        if self.half_life is not None:
            require(not self.private, "half_life", NOT_PRIVATE, self.half_life)
            text = f"is not for rule='{OPTIMISM}', whose region is for records that all count alike"
            require(not self.optimistic, "half_life", text, self.half_life)

    def _check_aggregation(self) -> None:
        if self.aggregation == PLAIN:
            text = f"is for aggregation={SECURE!r}"
            require(self.colluding is None, "colluding", text, self.colluding, "leave it out")
            return
        composed = self.composed
        text = f"must be {PLAIN!r} for {composed.name}, which is not private"
        require(composed.private, "aggregation", text, self.aggregation)
        text = f"must be {PLAIN!r} for {composed.name}, whose schedule looks at the data"
        require(composed.schedule.public, "aggregation", text, self.aggregation)
        from_releases = composed.decide_from in ("own+released", "released")
        text = "must be released or own+released with secure aggregation"
        require(from_releases, "decide_from", text, composed.decide_from)

    def _check_privacy(self) -> None:
        composed = self.composed
        require(self.epsilon is not None, "epsilon", f"must be given for {composed.name}", self.epsilon)
        require_decide_from(composed.decide_from)
        if not composed.schedule.public:  # it reads local data anyway: deciding from them costs nothing more
            local = composed.decide_from == "released+local"
            text = f'must be "released+local" for {composed.name.upper()}, whose schedule looks at the data'
            require(local, "decide_from", text, composed.decide_from)

    @classmethod
    def given(cls, options: Options | None, **keywords: Unpack[Keywords]) -> Options:
        """`options`, or the options that keywords make; both at once are refused."""
        names = [item.name for item in fields(cls)]
        for name in keywords:
            if name not in names:
                near = ": give a schema" if name == "features" else meant(name, names)
                raise TypeError(f"there is no option {name}{near}")
        if options is None:
            return cls(**keywords)  # type: ignore[arg-type]  # checked there
        require(isinstance(options, cls), "options", "must be Options", options)
        defaults = {item.name: item.default for item in fields(cls)}
        for name, value in keywords.items():
            same = value is defaults[name] or value == defaults[name]
            require(same, name, "must be left out where options are given, which hold it", value)
        return options

    @cached_property
    def composed(self) -> Algorithm:
        """The algorithm with the rule, schedule, solver and `decide_from` of these options."""
        chosen = find_algorithm(self.algorithm)
        if self.rule is not None:
            chosen = replace(chosen, rule=self.rule)
        if self.solver is not None:
            chosen = chosen.with_solver(self.solver)
        return replace(
            chosen,
            schedule=chosen.schedule if self.schedule is None else find_schedule(self.schedule),
            decide_from=self.decide_from or chosen.decide_from,
        )

    @property
    def private(self) -> bool:
        """Whether noise is added to what is shared."""
        return find_algorithm(self.algorithm).private

    @property
    def optimistic(self) -> bool:
        """Whether decisions come from a confidence region instead of a posterior."""
        return self.composed.rule == OPTIMISM

    @property
    def region(self) -> Confidence:
        """The confidence region of optimism."""
        return self.confidence or Confidence(scale=SCALE)

    @property
    def record_bounds(self) -> Bounds:
        """What records are clipped to; if they are centred, only its adjacency and Gram share are used."""
        bounds = self.bounds or Bounds.for_range(self.reward_range if self.centring is None else None)
        return replace(bounds, slots=as_weights(self.slots))

    @property
    def secure(self) -> bool:
        """Whether only the sum of all agents' releases is seen."""
        return self.aggregation == SECURE

    def budget(self, releases: int, *, agents: int | None = None) -> Budget:
        """The privacy budget of each agent of a private algorithm, for this number of releases.

        `agents` is how many share, which secure aggregation needs to know.
        """
        share = None
        if self.secure:
            text = f"must be {PLAIN!r} here: {WHERE_SECURE}"
            require(agents is not None, "aggregation", text, self.aggregation)
            share = NoiseShare.among(int(agents or 0), colluding=self.colluding)
        budget = Budget(
            epsilon=float(self.epsilon or 0.0),
            delta=self.delta,
            releases=max(releases, 1),
            mechanism=self.mechanism,
            bounds=self.record_bounds,
            centring=self.centring,
            decide_from=cast("DecideFrom", self.composed.decide_from),
            public_schedule=self.composed.schedule.public,
            share=share,
        )
        return budget.with_intercept() if self.has_intercept else budget

    def around_middle(self, dimension: int) -> Options:
        """Centre private rewards at the middle of their range, unless bounds or a public point are given.

        The noise on a sum counts for more, the larger the intercept that it is multiplied with.
        """
        self.check_dimension(dimension)
        said = self.bounds is not None or self.centring is not None or self.slots != ONE
        if not self.private or not self.has_intercept or self.reward_range is None or said:
            return self
        low, high = self.reward_range
        half = 0.5 * (high - low)
        centring = Centring(
            context=(0.0,) * dimension,
            context_radius=1.0,
            reward=0.5 * (low + high),
            reward_radius=half,
            constant=INTERCEPT,
            intercept=True,
        )
        return replace(self, centring=centring, bounds=Bounds(gram_share=1.0 / half**2))

    def check_dimension(self, dimension: int) -> None:
        """Refuse a public point of another dimension."""
        if self.private and self.centring is not None:
            size = len(self.centring.context)
            require(size == dimension, "centring", f"must have dimension {dimension}", size)

    def privatizer(
        self,
        dimension: int,
        *,
        releases: int,
        noise: NoiseSource,
        ledger: Ledger | None = None,
        agents: int | None = None,
    ) -> Privatizer:
        """What adds noise between an agent's records and its messages; `agents` is as for `budget`."""
        budget = self.around_middle(dimension).budget(releases, agents=agents)
        return budget.privatizer(dimension + self.has_intercept, noise=noise, ledger=ledger)

    def privatizers(self, plan: Plan, noise: Callable[[int], NoiseSource]) -> list[Privatizer]:
        """A privatizer for each agent of a plan, by number; `noise` gives the noise of each."""
        columns = plan.dimension + self.has_intercept
        if not self.private:
            return [NonPrivateSums(columns) for _ in range(plan.agents)]
        centred = self.around_middle(plan.dimension)
        budget = centred.budget(self.composed.schedule.max_releases(plan), agents=plan.agents)
        return [budget.privatizer(columns, noise=noise(i)) for i in range(plan.agents)]

    @property
    def has_intercept(self) -> bool:
        """Whether an agent of arrays has an intercept by these options."""
        return self.intercept and not self.optimistic

    def for_agent(self, *, featureless: bool, schema: Schema | None = None) -> Options:
        """These options with rule, merit, prior, region and intercept filled in, as an agent has them.

        featureless: whether actions have names alone.
        """
        merit = self.merit or Exponential.for_range(*(self.reward_range or (0.0, 1.0)))
        optimism = self.optimistic
        if featureless:
            require(not self.private, "actions", NAMES_ALONE, "names alone", GIVE_CATEGORY)
            text = "must be True where actions have no features: nothing else tells them apart"
            require(self.own_record or optimism, "own_record", text, self.own_record)
        intercept = (self.has_intercept or (featureless and not optimism)) and schema is None
        constant = intercept or (schema is not None and schema.intercept)
        default = Prior.for_merit(
            merit,
            reward_range=self.reward_range,
            arms_of_their_own=featureless,
            intercept=constant,
        )
        return replace(
            self,
            intercept=intercept,
            rule=self.composed.rule,
            merit=merit,
            prior=None if optimism else self.prior or default,
            confidence=self.region if optimism else None,
            solver=self.composed.solver if optimism else None,
        )

    def summary(self) -> dict[str, Any]:
        """The options as plain values, for the record of a run."""
        composed, private, optimism = self.composed, self.private, self.optimistic
        return {
            "rule": composed.rule,
            "schedule": repr(composed.schedule),
            "minimum_share": self.minimum_share,
            "confidence": repr(self.region) if optimism else None,
            "solver": repr(composed.solver) if optimism else None,
            "reward_range": self.reward_range,
            "prior": None if optimism or self.prior is None else repr(self.prior),
            "intercept": self.has_intercept,
            "epsilon": self.epsilon,
            "delta": self.delta if private else None,
            "mechanism": str(self.mechanism) if private else None,
            "bounds": repr(self.record_bounds) if private else None,
            "centring": repr(self.centring) if private else None,
            "decide_from": composed.decide_from,
            "shift": self.shift if private and optimism else None,
            "partners": self.partners,
            "aggregation": self.aggregation,
            "colluding": self.colluding,
        }


@dataclass(frozen=True, kw_only=True)
class Expiry:
    """Until when a reward is waited for, by an agent on disk or in a service.

    window: seconds after which a reward is no longer waited for, also of agents made without a window;
        docs/howto/late-and-missing-rewards.md.
    default_reward: reward that is learnt when the window is past; nothing if not given.
    """

    window: float | None = option(None, RUNNING, POSITIVE)
    default_reward: float | None = option(None, RUNNING, NUMBER)

    def __post_init__(self) -> None:
        check_fields(self, Expiry)
        if self.default_reward is not None and self.window is None:
            raise InvalidInput("default_reward must come with a window, after which it is learnt")


@cache
def described() -> tuple[Setting, ...]:
    """The description of every option."""
    return settings_of(Options)


def bounds_of(schema: Schema, reward_range: tuple[float, float] | None) -> Bounds:
    """The default bounds of a private agent with this schema."""
    return Bounds.for_range(reward_range, norm=schema.norm, nonnegative=not schema.has_numbers)


def _slots(value: Any) -> Slots:
    """Weights of slots: "3" or "1,0.63,0.5", in TOML and JSON 3 or [1, 0.63, 0.5]."""
    return read_slots(value) if isinstance(value, str) else as_weights(value)


_NAMED: tuple[Part, ...] = ((str, Limits(max_length=200)),)
READERS |= {
    Merit: (as_merit, _NAMED),
    Schedule: (as_schedule, _NAMED),
    Sequence[float]: (
        _slots,
        ((int, Limits(ge=1, le=MOST)), (list[float], SHARE._replace(min_items=1))),
    ),
    timedelta: (as_half_life, ((float, Limits(gt=0, le=LONGEST)), (str, Limits(max_length=50)))),
}
