"""The agent: it decides, observes, shares what it learns, and can be saved or stored in a database.

Every call turns its input into steps. A step is checked, applied to the core (`core`), which alone holds what
changes, and appended to the log (`log`), all in one transaction. Warnings come last.
"""

from __future__ import annotations

import math
import secrets
from collections import Counter
from collections.abc import Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import closing, contextmanager
from itertools import takewhile
from os import PathLike
from typing import Any, Self, TypeVar, Unpack, cast

import numpy as np
from numpy.typing import ArrayLike

from fedfairx import steps
from fedfairx.agent.actions import as_arms, as_schema, check_minimum_share
from fedfairx.agent.core import Core
from fedfairx.agent.exchange import Exchange, privacy_in_short
from fedfairx.agent.half_life import NOT_PRIVATE
from fedfairx.agent.input_warnings import LOOKS, HeightWatch, ScaleWatch
from fedfairx.agent.knowledge import Knowledge
from fedfairx.agent.log import ENDED, NullLog, StepLog
from fedfairx.agent.model import AgentModel
from fedfairx.agent.options import (
    GIVE_CATEGORY,
    NAMES_ALONE,
    PLAIN,
    WHERE_SECURE,
    Expiry,
    Keywords,
    Options,
)
from fedfairx.agent.own_record import OwnRecord
from fedfairx.agent.partners import Partners
from fedfairx.agent.persistence import AgentStore, Specification, find_store, make_store, saved
from fedfairx.agent.reward_limits import check_weights
from fedfairx.agent.settings import CUSTOM, describe_merit
from fedfairx.agent.state import AgentState
from fedfairx.agent.uniforms import Uniforms
from fedfairx.agent.validation import (
    Check,
    Releases,
    Seen,
    as_blocks,
    as_names,
    as_note,
    as_persons,
    as_reward,
    as_rewards,
    as_row_weights,
    as_sound_contexts,
    check_privatizer,
    in_block,
    is_whole,
)
from fedfairx.core.agent_kernels import likely_sizes
from fedfairx.core.merit import Merit
from fedfairx.core.own_record import CONTEXTS, likely_ratios
from fedfairx.core.posterior import LikelySizes, NamesBelief, Posterior, Prior
from fedfairx.core.slates import ONE, Slots, Weights, as_weights
from fedfairx.core.statistics import unpack
from fedfairx.decision import (
    EXPIRED,
    REASONS,
    REWARDED,
    WITHDRAWN,
    Decision,
    DecisionNote,
    Rewards,
    are_several,
)
from fedfairx.errors import (
    AlreadyObserved,
    FedFairXError,
    InvalidInput,
    PrivacyError,
    ReplacementRefused,
    UnknownDecision,
    require,
)
from fedfairx.features import Encoded, Schema, are_described
from fedfairx.privacy import (
    Budget,
    NonPrivateSums,
    Privatizer,
    Release,
    carry_over,
)
from fedfairx.privacy.ledger.rollback import Confirm
from fedfairx.privacy.privatizers.stream import refuse_person
from fedfairx.storage import erasure, replacement
from fedfairx.storage.database import Database
from fedfairx.storage.erasure import Deletion, Rollback
from fedfairx.storage.journal import Journal
from fedfairx.storage.open_log import is_on_server, open_for_reading, open_log
from fedfairx.storage.replacement import StoredReward, record_of
from fedfairx.storage.rows import OutcomeRow
from fedfairx.storage.transaction_log import Log
from fedfairx.util.arrays import Array
from fedfairx.util.files import write_atomically
from fedfairx.util.formatting import html_table
from fedfairx.util.frames import is_frame, names_in, without_names

#: Contexts (K, d), names of actions without features, or features by name, as `Schema.encode` takes them.
ActionsLike = ArrayLike | Sequence[Any] | Mapping[str, Any] | Any


LIKELY = 1e-3  # how likely a ρ must be, over the likeliest, to count for intervals
WORK = 100_000_000  # multiplications, about, in a step of `learn`: a second or two, for each who replays it
_REASONS = REASONS | {ENDED: "has its reward already (or was forgotten)"}
Kind = TypeVar("Kind", bound="Agent")


class Agent:
    """Chooses actions in proportion to their merit, and learns from rewards, alone or with other agents.

    dimension: d, how many numbers describe an action.
    schema: instead of a dimension, the features of an action by name (`features.Schema`): `decide` then takes
        them as people have them. A later version may append (`extend_schema`).
    actions: the names of actions. Each is judged by its own rewards and, beside a dimension or a schema, by
        its features. Actions can be added and retired later.
    options: how the agent decides and learns, as one object. Or give its fields as keywords, of which the
        most used follow; `Options` explains all.
    rule: how shares are computed: "expected-merit", "greedy" (the merit of the expected reward), "thompson"
        (the merit under a drawn parameter), or "optimism" (the paper's).
    merit: what a reward is worth, one of `fedfairx.merit`; a steeper one gives the best actions more. By
        default an action that is better by 7 % of the reward range gets twice the share; the default range is
        (0, 1).
    reward_range: (low, high) of all rewards, if known. It sets the defaults of merit and prior, and rewards
        outside are refused.
    prior: what is believed before the first reward (`Prior`), for every rule but "optimism".
    minimum_share: the least share of every action, in [0, 1).
    slots: how many actions a decision shows, or the weight of every slot.
    confidence, solver, shift: for "optimism"; see `Options`.
    partners: "alike" (one θ for all) or "differ": the agent learns from its own rewards whom to believe, and
        how far. For rules with a posterior, unless decisions come from releases alone. The attribute of this
        name is a table of the partners, their weights and the reasons.
    half_life: after how many rewards, or after what time ("30d"), a record counts half, for a world that
        changes; by default all count alike. Not for private agents, nor for "optimism".
    privatizer: adds noise to what this agent sends, as `fedfairx.privacy.private` makes it; without one,
        `release` gives exact sums, which are NOT private.
    name: identifies its releases, and must differ from the names of other agents; by default it is random.
    seed: of the random draws; without one they differ from run to run.

    >>> agent = Agent(2, seed=0)
    >>> decision = agent.decide([[1.0, 0.0], [0.0, 1.0]])
    >>> decision.policy.tolist()
    [0.5, 0.5]
    >>> agent.observe(decision, reward=1.0)
    >>> agent.observed, agent.pending
    (1, 0)

    >>> agent = Agent(actions=["ann", "ben", "cid"], seed=0)
    >>> agent.observe(agent.decide(), reward=1.0)
    >>> agent.add_actions("dora")
    >>> agent.decide(["ben", "dora"]).policy.tolist()
    [0.5, 0.5]

    Threads may share an agent: a lock makes each call atomic. A seed then repeats a run only if the order of
    calls is the same. A `ClippingWarning` says when a private agent's bounds clip more than 1 % of its
    records.
    """

    window: float | None = None  # seconds after which a durable agent's decision may expire
    default_reward: float | None = None  # the reward of an expired decision
    bound: str | None = None  # the federation whose terms set its budget; see `Member`

    def __init__(
        self,
        dimension: int | None = None,
        *,
        schema: Schema | None = None,
        actions: Sequence[str] | None = None,
        options: Options | None = None,
        privatizer: Privatizer | None = None,
        name: str | None = None,
        seed: int | np.random.SeedSequence | None = None,
        **keywords: Unpack[Keywords],
    ) -> None:
        options = Options.given(options, **keywords)
        text = f"must be given for {options.composed.name}, as Options.privatizer(…) makes it"
        require(privatizer is not None or not options.private, "privatizer", text, privatizer)
        require(name is None or isinstance(name, str), "name", "must be a string", name)
        typed = seed is None or isinstance(seed, np.random.SeedSequence)
        typed = typed or (isinstance(seed, int | np.integer) and seed >= 0)
        require(typed, "seed", "must be an integer >= 0 or a numpy.random.SeedSequence", seed)
        dimension, arms = as_arms(dimension, actions, schema)
        featureless = not dimension
        filled = options.for_agent(featureless=featureless, schema=schema)
        dimension += filled.intercept
        if featureless and arms is not None and not filled.intercept:
            dimension = len(arms)  # by the optimistic rule each has a coordinate
        if privatizer is None:
            privatizer = NonPrivateSums(dimension)
        noisy = isinstance(privatizer, Privatizer) and not isinstance(privatizer, NonPrivateSums)
        require(not (noisy and featureless), "actions", NAMES_ALONE, "names alone", GIVE_CATEGORY)
        check_privatizer(privatizer, dimension=dimension, intercept=filled.intercept, name=name)
        shared = privatizer.stream is not None and privatizer.stream.mechanism.share is not None
        text = f"must be {PLAIN!r} where the privatizer's noise is no share: {WHERE_SECURE}"
        require(shared or not options.secure, "aggregation", text, options.aggregation)
        self.name: str = name or privatizer.owner or f"agent-{secrets.token_hex(4)}"
        self.options = filled
        check_minimum_share(self.options.minimum_share, 1 if arms is None else len(arms))
        one = not featureless or self.options.prior is None or not isinstance(self.options.prior.mean, tuple)
        require(one, "prior", "must have one mean for all actions, since more can be added", "a tuple")
        decide_from = privatizer.guarantee.decide_from
        constant = privatizer.constant if isinstance(privatizer, NonPrivateSums) else 0.0
        centre, point, stream = 0.0, None, privatizer.stream
        if stream is not None:
            constant, centring = stream.constant, stream.centring
            if centring is not None and constant:
                centre, point = centring.reward / constant, np.array(centring.context)
        self._model = AgentModel(
            dimension,
            self.options,
            arms,
            schema,
            decide_from=decide_from,
            sums=privatizer if isinstance(privatizer, NonPrivateSums) else None,
            featureless=featureless,
            constant=constant if filled.intercept else 0.0,
            centre=centre,
            point=point,
        )
        self._exchange = Exchange(self.name, self._model, privatizer)
        self.private = self._model.sums is None
        aged = self.options.half_life
        require(aged is None or not self.private, "half_life", NOT_PRIVATE, aged)
        self._clips = self.private or (self._model.sums is not None and self._model.sums.bounds is not None)
        self._draws = Uniforms(seed, self._model.uniforms_each)
        self._core = Core(self._model, self._exchange, self._draws)
        self._pending = self._core.pending
        self._write_to(NullLog())
        self._slots = as_weights(self.options.slots)
        bounded = privatizer.guarantee.slots
        text = f"must be those of the privatizer's bounds, {bounded}"
        require(not self.private or self._slots == bounded, "slots", text, self._slots, "see Bounds.slots")
        self.clipped_values: Counter[str] = Counter()  # by feature, since the agent was made or opened
        self.unknown_values: Counter[str] = Counter()  # of categories, by feature
        self._looks = LOOKS
        self._scale = ScaleWatch(self._expected_length())
        level = bool(self._model.common()) or featureless
        self._height = None if level else HeightWatch(_remedy(self.options))

    def _write_to(self, log: StepLog) -> None:
        """Write steps to this log from now on."""
        self._log, self._lock, self._transaction = log, log.lock, log.transaction
        self._core.runs = log.run
        if self._model.aging is not None:
            self._model.aging.clock = log.clock

    def _take(self, step: steps.Event) -> None:
        """Inside a transaction: check a step, take it and write it."""
        self._core.check(step)
        self._core.apply(step)
        self._log.append(step)

    def _expected_length(self) -> float:
        """The length of contexts that fits the prior or the confidence region."""
        prior = self.options.prior
        if prior is None:
            return 1.0 / self.options.region.parameter_norm
        return self._model.default_prior.sd / prior.sd

    # --- what it is ----------------------------------------------------------------------------------

    @property
    def dimension(self) -> int:
        """How many numbers describe an action (d); 0 if it has a name alone."""
        return self._model.given

    @property
    def columns(self) -> int:
        """How many coordinates θ has: `dimension`, and one more if arrays have an intercept, the last."""
        return self._model.dimension

    @property
    def constant(self) -> float:
        """The intercept that contexts of arrays get as their last number; 0 if there is none."""
        return self._model.constant

    @property
    def schema(self) -> Schema | None:
        """The features of an action, if it was made with a schema."""
        return self._model.schema

    @property
    def rule(self) -> str:
        """How shares are computed."""
        return str(self.options.rule)

    @property
    def merit(self) -> Merit:
        """What a reward is worth."""
        assert self.options.merit is not None
        return self.options.merit

    @property
    def decide_from(self) -> str:
        """The data that decisions use: "released+local", "own+released" or "released"; see `agent.model`."""
        return self._model.decide_from

    @property
    def privatizer(self) -> Privatizer:
        """What adds noise between its records and its messages."""
        return self._exchange.privatizer

    def __repr__(self) -> str:  # only settings and counts: it ends up in logs
        shape = f"dimension={self.dimension}" if self.dimension else f"actions={list(self.actions)}"
        if self.schema is not None:
            shape = f"features={list(self.schema.names)}"
        kind, known = "private, " if self.private else "", self.knowledge
        rests = f", shares rest on {known.rewards} rewards" if known.rewards != self.observed else ""
        rests += f", luck as much as merit before {known.enough}" if known.little else ""
        return (
            f"Agent({self.name!r}, {shape}, rule={self.rule!r}, merit={self.merit!r}, "
            f"{kind}{self.observed} observed, {self.pending} pending{rests})"
        )

    def _repr_html_(self) -> str:
        rows = [
            ("actions", ", ".join(self.actions)) if self.actions else ("dimension", self.dimension),
            *([] if self.schema is None else [("features", ", ".join(self.schema.names))]),
            ("rule", self.rule),
            ("merit", repr(self.merit)),
            ("rewards observed", self.observed),
            ("what is known", self.knowledge),
            ("decisions pending", self.pending),
            ("decides from", self.decide_from),
            ("privacy", privacy_in_short(self.privatizer.guarantee)),
        ]
        return html_table((), rows, caption=f"Agent {self.name}")

    # --- what it knows -------------------------------------------------------------------------------

    @property
    def observed(self) -> int:
        """Number of rewards that it has taken, those of `learn` included."""
        return self._model.observed

    @property
    def pending(self) -> int:
        """Number of decisions that wait for their reward."""
        return len(self._pending)

    @property
    def oldest_pending(self) -> float | None:
        """When the oldest of them was made, in seconds since 1970, by a durable agent; None if none waits."""
        with self._lock:
            return next((each.time / 1e6 for each in self._pending.values()), None)

    @property
    def knowledge(self) -> Knowledge:
        """On how many rewards shares rest, and whether they follow luck as much as merit yet.

        >>> Agent(dimension=5, seed=0).knowledge.little
        True
        """
        with self._lock:
            return self._model.knowledge

    @property
    def model_version(self) -> int:
        """A number that grows with every reward and every message that it takes."""
        return self.observed + sum([release.number for release in self._exchange.latest.values()])

    @property
    def gram(self) -> Array:
        """V = λI + Gram (d, d) of the next decision."""
        with self._lock:
            return self._model.gram

    @property
    def moment(self) -> Array:
        """b (d,), including the term of the prior's mean."""
        with self._lock:
            return self._model.learner.moment

    @property
    def estimate(self) -> Array:
        """θ̂ = V⁻¹ b (d,), and one coordinate more, the last, if arrays have an intercept; so have V and b."""
        with self._lock:
            return np.asarray(self._model.learner.inverse @ self._model.learner.moment)

    @property
    def covariance(self) -> Array:
        """σ² V⁻¹ (d, d), of θ around `estimate` under the posterior; "optimism" has none, and takes its σ."""
        with self._lock:
            return np.asarray(self._model.noise_sd**2 * self._model.learner.inverse)

    @property
    def radius(self) -> float:
        """√β, the half-width of the confidence region in the norm of V.

        For rules with a posterior it is σ, one standard deviation in that norm.
        """
        return self._model.learner.radius

    @property
    def noise_sd(self) -> float:
        """σ of the rewards: assumed, or learnt from the agent's own rewards."""
        return self._model.noise_sd

    @property
    def prior(self) -> Prior:
        """The prior and the σ that it decides with, learnt from its own rewards or assumed.

        For "optimism", which has none, the default prior of its merit.
        """
        with self._lock:
            return self._model.prior

    @property
    def posterior(self) -> Posterior:
        """What is believed of θ, averaged over what σ and the prior may be, for `exposure` and for intervals.

        Decisions come from the likeliest σ and prior, which give `estimate` and `covariance`.
        """
        assumed, prior = self.options.prior, self.prior  # as learnt; the default one for "optimism"
        with self._lock:
            model = self._model
            learner, own, records = model.learner, model.own_sums(), model.records
            plain = learner.statistics.copy()
            if records is not None and own is not None:
                plain = own if model.others is None else own + model.others
                tallies, mine, places = records.used.copy(), records.mine.copy(), dict(records.places)
                ratio, guess = records.ratio, model.own_sd**2
            own = None if own is None else own.copy()
            squares, observed, size = learner.squares, learner.observed, learner.dimension
            common, centre = model.common(), model.centre
        gram, moment = unpack(plain)
        learnt, names = np.zeros(size), None
        if own is None or not prior.learn:
            sizes, mean = LikelySizes.fixed(sd=prior.sd, noise_sd=prior.noise_sd), prior.means(size)
            if records is not None:
                names = NamesBelief(places, tallies, np.ones(1), np.array([ratio]), (sizes,))
        else:
            first = assumed or prior
            more: Any = {"common": common, "centre": centre}
            sizes, _ = likely_sizes(own, squares, observed, first, **more)
            if records is not None:
                cases = {}
                for case, white, beside in likely_ratios(own, mine, guess, least=0.0):
                    cases[case] = likely_sizes(white, squares, observed, first, **more, names=beside)
                names = _likely_names(places, tallies, cases or {ratio: (sizes, 0.0)})
            mean = first.means(size)
            learnt[common] = not isinstance(first.mean, tuple)
        mean[common] += centre
        return Posterior(gram, moment, mean, sizes, learnt, self.options.reward_range, names)

    @property
    def growth(self) -> float:
        """log(det V / det V at the last absorb), which triggers a synchronisation of the baseline B1."""
        return self._model.growth

    @property
    def reward_limits(self) -> tuple[float, float]:
        """The smallest and the largest reward that it accepts now."""
        return self._model.limits.ends

    def own_sums(self) -> Array | None:
        """Packed exact sums of all its own records; None if it decides from releases alone."""
        with self._lock:
            return self._model.own_sums()

    def own_records(self) -> tuple[Array, tuple[str, ...], Array] | None:
        """`own_sums`, `names`, and the tallies (n, d + 2) of these in the sums (`core.own_record`)."""
        with self._lock:
            own, records = self._model.own_sums(), self._model.records
            if own is None:
                return None
            names = () if records is None else tuple(records.places)
            tallies = np.zeros((0, self.columns + CONTEXTS)) if records is None else records.mine
            return own.copy(), names, tallies[: len(names)].copy()

    def tallies_of(self, names: Sequence[str]) -> tuple[Array, float] | None:
        """Tallies (K, d + 2) that decisions come from, zeros of a name without one, and ρ.

        None while names play no part in decisions.
        """
        with self._lock:
            records = self._model.records
            if records is None or not records.places:
                return None
            places = np.array([records.places.get(name, -1) for name in names], dtype=np.int64)
            return np.where(places[:, None] >= 0, records.used[places], 0.0), records.ratio

    @property
    def own_sd(self) -> float:
        """τ, the standard deviation of what names differ by beside features: a first guess, or learnt."""
        with self._lock:
            return math.sqrt(self._model.own_variance)

    @property
    def held(self) -> dict[str, Release]:
        """The latest release that it holds from every agent, its own included, by name."""
        with self._lock:
            return dict(self._exchange.latest)

    @property
    def partners(self) -> Partners:
        """The agents whose releases it holds, by name: how far each is believed now, and why."""
        with self._lock:
            return self._exchange.partners

    def policy(
        self,
        contexts: ActionsLike | None = None,
        *,
        actions: ActionsLike | None = None,
        context: Any = None,
        slots: Slots | None = None,
        names: Sequence[str] | None = None,
    ) -> Array:
        """The probabilities (K,) of actions if `decide` were called now, or, for several slots, exposures.

        Nothing is drawn or changed. For "thompson" it is the policy under the parameter that the next
        decision will draw.
        """
        with self._lock:
            rows, names, _ = self._arms(contexts, names, actions, context)
            weights, memory = self._weights(slots), self._model.learner.memory.copy()
            _, values = self._model.draw(rows, weights, self._draws, names, memory)
        return values[: len(rows)]

    # --- deciding ------------------------------------------------------------------------------------

    def decide(
        self,
        contexts: ActionsLike | None = None,
        *,
        actions: ActionsLike | None = None,
        context: Any = None,
        slots: Slots | None = None,
        names: Sequence[str] | None = None,
        note: DecisionNote | None = None,
    ) -> Decision:
        """Draw an action from a (K, d) array of contexts; K may change from call to call.

        actions: instead of contexts, the features of each action by name, if the agent has a schema: a list
            of dicts, {name: dict}, or a data frame (`Schema.encode`), whose column `name` or index of text
            has the names. If actions have no features, the names of those to choose from; by default all.
        context: the features that all actions share, by name.
        slots: shows several actions: 3 is a set of three, [1.0, 0.63, 0.5] a ranking whose slots get this
            much attention; by default the options' slots. `decision.actions` are the rows by slot, and
            `decision.exposure` is the expected weight of every action: proportional to its merit as far as
            slots allow.
        names: one for each action; `decision.name` is then the name of the drawn one.
        note: stored by a durable agent beside the decision. If it names the row of a baseline (a list of
            rows, where there are several slots), that is what is taken and learnt from.
        """
        with self._transaction:
            rows, labels, encoded = self._arms(contexts, names, actions, context)
            weights = self._slots if slots is None else self._weights(slots)
            if note is not None:
                note = as_note(note, len(rows), weights)
            decision = self._decide(rows, weights, labels, note)
            if encoded is not None:
                self.count_values(encoded)
            return decision

    def _weights(self, slots: Slots | None) -> Weights:
        """The weights of a decision's slots."""
        if slots is None:
            return self._slots
        weights = as_weights(slots)
        if (self.private or self.bound is not None) and weights != self._slots[: len(weights)]:
            text = f"must be those of the options, {self._slots}, or the first of them"
            raise InvalidInput(f"slots {text}: its privacy and its terms are for these, got {slots=}")
        if type(slots) is not int:  # a set's are all 1
            check_weights(weights, self.options.reward_range)
        return weights

    def _arms(
        self,
        contexts: ActionsLike | None = None,
        names: Sequence[str] | None = None,
        actions: ActionsLike | None = None,
        context: Any = None,
    ) -> tuple[Array, list[str] | None, Encoded | None]:
        """The actions to choose from, as contexts (K, d), and their names.

        The last result is what became of features that were given by name.
        """
        model, encoded = self._model, None
        plain = model.schema is None and not model.featureless
        if plain and type(contexts) is np.ndarray and actions is context is None:  # as most often
            rows = model.enter(contexts, again=True)
            if names is None and model.actions is None:
                return rows, None, None
            return rows, self._labels(names, len(rows)), None
        if actions is not None:
            require(contexts is None, "contexts", "must be left out beside actions", "both")
        if model.featureless:
            return self._names_alone(contexts if actions is None else actions, names, context)
        by_name = actions is not None or context is not None
        if by_name or (model.schema is not None and are_described(contexts)):
            features: Any = contexts if actions is None else actions
            encoded = self._encode(features, context)
            if names is None and isinstance(features, Mapping):
                names = list(features)
            elif names is None and is_frame(features):
                names = names_in(features, cast("Schema", model.schema).names)
            contexts = encoded.contexts
        elif type(contexts) is not np.ndarray and is_frame(contexts):
            names = names_in(contexts) if names is None else names
            contexts = without_names(contexts)
        try:
            rows = model.enter(contexts)  # type: ignore[arg-type]
        except InvalidInput as error:
            if model.schema is None:
                raise
            features = ", ".join(model.schema.names)
            raise InvalidInput(f"{error}; or give each action's features by name: {features}") from None
        return rows, self._labels(names, len(rows)), encoded

    def _names_alone(
        self, offered: Any, names: Sequence[str] | None, context: Any
    ) -> tuple[Array, list[str], None]:
        """`_arms` of actions that have names alone."""
        require(names is None, "names", "must be left out: this agent's actions have names", names)
        require(context is None, "context", "must be left out: actions have no features", "one")
        if offered is not None and is_frame(offered):
            offered, text = names_in(offered), "must have a column `name`, or an index of text"
            require(offered is not None, "actions", text, "a frame with neither")
        assert self._model.actions is not None
        wanted = self._model.actions.offered(offered)[1]
        return self._model.rows_of(wanted), wanted, None

    def _labels(self, names: Sequence[str] | None, count: int) -> list[str] | None:
        """The names of rows; of declared actions, which must be offered, by default all in their order."""
        actions, labels = self._model.actions, None if names is None else as_names(names, count)
        if actions is None:
            return labels
        if labels is not None:
            actions.require_offered(labels)
            return labels
        offered = actions.offered()[1]
        text = f"must be given: the rows are {count}, and {len(offered)} actions are offered"
        require(len(offered) == count, "names", text, None)
        return offered

    def _encode(self, actions: Any, context: Any = None) -> Encoded:
        schema = self._model.schema
        if schema is None:
            raise InvalidInput("contexts must be given: this agent has no schema for features by name")
        return schema.encode(actions, context)

    def count_values(self, encoded: Encoded) -> None:
        """Count what was clipped or unknown, in `clipped_values` and `unknown_values`."""
        self.clipped_values.update(encoded.clipped)
        self.unknown_values.update(encoded.unknown)

    def _decide(
        self,
        rows: Array,
        weights: Weights,
        names: list[str] | None,
        note: DecisionNote | None,
    ) -> Decision:
        """Inside a transaction: draw among checked actions, and write the decision."""
        log = self._log
        if note is not None and note.key is not None:
            log.require_new(note.key)
        shown, values = self._model.draw(rows, weights, self._draws, names)
        if self._looks:
            self._look(rows)  # before anything changes: the warning may be turned into an error
        propensity = instead = None
        if note is not None:
            if note.baseline is not None and note.mode != "live":
                instead, shown, size = shown, list(note.wanted), self._model.dimension
                values[len(rows) + size :] = rows[shown].ravel()
            propensity = note.propensity(shown[0], float(values[shown[0]]), weights)
        labels = None if names is None else [names[arm] for arm in shown]
        number = log.numbers.next
        log.numbers.next = number + 1
        decision = Decision(
            number, shown, values, len(rows), weights, labels, log.prefix, log.time, propensity, instead
        )
        too_many = self._core.decided(decision)
        log.append_decisions((steps.Decided(decision, rows, names, note),))
        if too_many:
            self._forget_names()
        return decision

    def _forget_names(self) -> None:
        """Forget the names that were not shown for longest, while there are too many."""
        records = self._model.records
        while records is not None and records.too_many:
            self._take(steps.NamesForgotten(records.oldest()))

    def _look(self, rows: Array) -> None:
        if not self._model.featureless:
            self._scale.look(rows)
        self._looks -= 1

    def decide_many(
        self,
        contexts: Sequence[ActionsLike] | Array,
        *,
        slots: Slots | None = None,
        names: Sequence[Sequence[str] | None] | None = None,
        notes: Sequence[DecisionNote | None] | None = None,
    ) -> list[Decision]:
        """Make independent decisions for a (B, K, d) array, or for B arrays (K_b, d).

        With a schema, one of them may also be {"actions": …, "context": …}, as `decide` takes them. The
        decisions are those of B calls of `decide`; if one array is refused, no decision is made.

        slots: of every decision, as `decide` takes them.
        names: of the actions of each decision, or None where they have none.
        notes: stored by a durable agent beside each decision, or None where there is nothing to store.
        """
        with self._transaction:
            weights, model = self._weights(slots), self._model
            whole = model.actions is None and is_whole(contexts, self.dimension)
            blocks: Any = contexts if whole else list(contexts)
            labels: list[Any] = [None] * len(blocks) if names is None else list(names)
            all_notes = [None] * len(blocks) if notes is None else list(notes)
            for what, texts in (("names", labels), ("notes", all_notes)):
                text = f"must be as many as the {len(blocks)} decisions"
                require(len(texts) == len(blocks), what, text, len(texts))
            values: list[Encoded | None] = []
            if not whole:
                blocks, labels, values = self._arms_of_each(blocks, labels)
            blocks = as_blocks(blocks, self.columns, constant=model.constant, point=model.point)
            for rows in blocks if self._looks and not model.featureless else ():
                self._scale.look(rows)
            if whole and names is not None:
                labels = [None if each is None else as_names(each, blocks.shape[1]) for each in labels]
            arms = min(map(len, blocks[:1] if whole else blocks), default=len(weights))
            text = f"must be at most as many as the {arms} actions of each decision"
            require(len(weights) <= arms, "slots", text, len(weights))
            plain = all(note is None or note.baseline is None for note in all_notes)
            if not plain:  # all before the first is drawn
                pairs = zip(all_notes, blocks, strict=True)
                all_notes = [as_note(note, len(rows), weights) for note, rows in pairs]
            plain = plain and len({label is None for label in labels}) < 2
            if plain and self._model.can_draw_together(blocks, weights):
                decisions = self._decide_together(blocks, labels, all_notes)
            else:
                decisions = [
                    self._decide(rows, weights, label, note)
                    for rows, label, note in zip(blocks, labels, all_notes, strict=True)
                ]
            for encoded in values:
                if encoded is not None:
                    self.count_values(encoded)
            return decisions

    def _arms_of_each(self, blocks: Sequence[Any], names: Sequence[Any]) -> tuple[list[Any], ...]:
        """`_arms` of several decisions, as three lists."""
        arms = []
        for index, (block, labels) in enumerate(zip(blocks, names, strict=True)):
            request = block if _is_request(block) else {"contexts": block}
            try:
                rows, names_of, encoded = self._arms(names=labels, **request)
                arms.append((rows.copy(), names_of, encoded))  # it may be used again for the next
            except InvalidInput as error:
                raise in_block(index, error) from None
        return [rows for rows, _, _ in arms], [label for _, label, _ in arms], [each for _, _, each in arms]

    def _decide_together(
        self,
        contexts: Array,
        names: Sequence[Sequence[str] | None],
        notes: Sequence[DecisionNote | None],
    ) -> list[Decision]:
        """`_decide` for sound contexts (B, K, d) and no baselines, where the model can draw them together."""
        log, core, (count, arms, _) = self._log, self._core, contexts.shape
        keys = [note.key for note in notes if note is not None and note.key is not None]
        require(len(set(keys)) == len(keys), "notes", "must have different keys", f"{len(keys)} keys")
        for key in keys:
            log.require_new(key)
        self._looks = max(self._looks - count, 0)
        actions, values = self._model.draw_together(contexts, np.array(self._draws.peek(count)), names)
        prefix, time, decided, too_many = log.prefix, log.time, [], False
        first = log.numbers.next
        log.numbers.next = first + count
        for place, action in enumerate(actions):
            labels = names[place]
            label = None if labels is None else [labels[action]]
            row = values[place].copy()  # it keeps the memory of no other decision
            decision = Decision(first + place, [action], row, arms, ONE, label, prefix, time)
            too_many = core.decided(decision)
            decided.append(steps.Decided(decision, contexts[place], labels, notes[place]))
        log.append_decisions(decided)
        if too_many:
            self._forget_names()
        return [step.decision for step in decided]

    # --- declared actions ----------------------------------------------------------------------------

    @property
    def actions(self) -> tuple[str, ...]:
        """Names of the declared actions that it chooses from."""
        with self._lock:
            actions = self._model.actions
            return () if actions is None else tuple(actions.offered()[1])

    @property
    def all_actions(self) -> tuple[str, ...]:
        """`actions` and the retired ones, in the order in which they were added."""
        with self._lock:
            return () if self._model.actions is None else self._model.actions.names

    @property
    def names(self) -> tuple[str, ...]:
        """Names that have an own record: `all_actions`, or those that came again with decisions."""
        with self._lock:
            records = self._model.records
            return () if records is None else tuple(records.places)

    def record_of(self, name: str) -> OwnRecord | None:
        """What it knows of a name beside features; None if it has no own record.

        >>> agent = Agent(actions=["ann", "ben"], seed=0)
        >>> agent.record_of("ann")
        OwnRecord(rewards=0.0, effect=0.0, sd=0.125, weight=0.0)
        """
        with self._lock:
            return self._model.record_of(name)

    def add_actions(self, *names: str) -> None:
        """Add new actions, about which nothing is known, or bring back retired ones."""
        self._change_actions("add", names)

    def retire_actions(self, *names: str) -> None:
        """Stop choosing these actions; one must remain. Their outstanding rewards are still learnt."""
        self._change_actions("retire", names)

    def _change_actions(self, how: str, names: Sequence[str]) -> None:
        with self._transaction:
            actions = self._model.actions
            if how == "add" and actions is not None:
                new = [name for name in map(str, names) if name not in actions]
                text = "must be ones that it has: this agent shares its statistics, whose size is fixed"
                fixed = self._shares and self._model.featureless and self._model.optimism
                require(not (fixed and new), "actions", text, new[:1])
                count = len(actions) - len(actions.retired) + len(names)
                check_minimum_share(self.options.minimum_share, count)
            self._take(steps.ActionsChanged(how, list(names)))

    @property
    def _shares(self) -> bool:
        """Whether others hold its statistics, or may: their size is fixed."""
        return self.private or self.bound is not None or bool(self._exchange.latest)

    def extend_schema(self, schema: Schema) -> None:
        """Append to the schema: features, levels of categories, products. Anything else is refused.

        What is known stays, and new columns start at the prior. An agent that shares its statistics can't:
        their size is fixed, and a private one's records would get longer than its noise is for.
        """
        with self._transaction:
            model = self._model
            later = schema if model.schema is None else model.schema.extend(schema)
            if later is model.schema:
                return
            clips = model.sums is not None and model.sums.bounds is not None
            text = f"must be the one that it has, {model.schema}: this agent shares its statistics"
            fixed = model.schema is not None and (clips or self._shares)
            require(not fixed, "schema", text, str(schema), "create another agent")
            self._take(steps.SchemaExtended(later))

    # --- observing -----------------------------------------------------------------------------------

    def observe(
        self,
        decision: Decision | str,
        *,
        reward: float | None = None,
        rewards: Rewards | None = None,
        person: str | int | None = None,
        replace: bool = False,
    ) -> None:
        """Learn the reward of a decision, once, at any later time and in any order.

        A decision with several slots has `rewards`: {action: reward} by row or name, for some or all of its
        actions, or a list in the order of slots. None means that an action was not seen, and withdraws it.

        A reward outside `reward_range` is refused; without a range, an absurdly large one
        (docs/howto/keep-an-agent.md). A private agent accepts any number and clips it, since a refusal would
        show in the public count.

        person: whose record it is, for a privatizer that bounds a person's records (`Budget.person_records`),
            and for `delete_person`; an agent in memory that bounds none refuses it.
        replace: replace earlier rewards that were wrong, as if they had never come. Only a durable agent can,
            and not once a reward is in a release (`ReplacementRefused`).
        """
        value: Any = reward
        if rewards is not None:
            if reward is not None:
                raise InvalidInput("reward must be left out where rewards are given, which are several")
            value = rewards
        elif reward is None:
            text = "reward must be a number, got reward of type NoneType"
            raise InvalidInput(f"{text}; where there are several slots, give rewards")
        if replace:
            value = as_reward(value) if rewards is None else value
            self._replace_many([decision], [value], None if person is None else [person])
            return
        limits = self._model.limits
        with self._transaction:
            waiting = self._waiting(decision)
            plain = type(value) is float and waiting.weights is ONE and limits.low <= value <= limits.high
            outcomes = {0: value} if plain else self._outcomes(waiting, value, several=rewards is not None)
            self._end(waiting, outcomes, REWARDED, person)
        missed = self._height is not None and self._height.due
        if self._clips or missed or limits.contradiction is not None:
            self._warn(outcomes)

    def _waiting(self, decision: Decision | str) -> Decision:
        """The pending decision that is meant."""
        if isinstance(decision, Decision) and self._pending.get(decision.number) is decision:
            return decision
        identity = decision.id if isinstance(decision, Decision) else decision
        if not isinstance(identity, str):
            raise UnknownDecision(
                f"decision must be a Decision or its id, got decision of type {type(identity).__name__}"
            )
        number = self._log.prefixes.number_in(identity)
        waiting = None if number is None else self._pending.get(number)
        if waiting is None or waiting.id != identity:
            raise self._gone(identity)
        return waiting

    def _outcomes(self, decision: Decision, rewards: Any, *, several: bool) -> dict[int, float | None]:
        """The rewards of a decision's slots, checked; None withdraws a slot."""
        if not several and decision.weights is not ONE:
            text = f"reward is of one slot, and decision {decision.id} has {len(decision.weights)}"
            raise InvalidInput(f"{text}: use rewards")
        if several and type(rewards) is list and len(rewards) == len(decision.shown):  # as most often
            by_slot = dict(enumerate(rewards))
        else:
            by_slot = decision.slots_of(rewards) if several else {0: rewards}
        limits = self._model.limits
        low, high = limits.low, limits.high
        for slot, reward in by_slot.items():
            if type(reward) is float and low <= reward <= high:  # as most often
                continue
            if reward is not None or not several:
                by_slot[slot] = self._reward(reward)
        return by_slot

    def _end(
        self,
        decision: Decision,
        rewards: Mapping[int, float | None],
        status: str = REWARDED,
        person: str | int | None = None,
    ) -> None:
        """Inside a transaction: take outcomes of a decision's slots; that of the last one ends it."""
        if not rewards:
            return
        step = steps.Ended(decision.number, rewards, status, person)
        if decision.outcomes:
            self._core.check(step)
        if self.private or person is not None:
            self._enter(decision, rewards, person)
        if self._height is not None and self._height.open:
            for slot, reward in rewards.items():
                if reward is not None:
                    self._height.look(decision.weights[slot] * decision.chosen(slot), reward)
        self._core.ended(step)
        self._log.append_outcomes(step, decision)

    def _enter(
        self, decision: Decision, rewards: Mapping[int, float | None], person: str | int | None
    ) -> None:
        """Give records to the privatizer; to exact sums, learning adds them."""
        if person is not None and self.durable and not self._counts_persons:
            person = None  # the log keeps it, so that the person's records can be deleted
        if not self.private and person is None:  # exact sums refuse a person
            return
        privatizer, stream = self._exchange.privatizer, self._exchange.privatizer.stream
        records = [(slot, reward) for slot, reward in rewards.items() if reward is not None]
        if stream is not None and decision.weights is not ONE:
            for slot, _ in records:
                if stream.ledger.leaf_of(record_of(decision, slot)) is not None:
                    text = f"decision {decision.id} has the reward of slot {slot + 1} in its ledger"
                    raise AlreadyObserved(text)
        for slot, reward in records:  # what is refused is refused with the first, before any is added
            record, weight = record_of(decision, slot), decision.weights[slot]
            privatizer.add(decision.chosen(slot), reward, record, person, weight)

    @property
    def _counts_persons(self) -> bool:
        """Whether its privatizer bounds the records of a person."""
        stream = self.privatizer.stream
        return stream is not None and stream.person_records is not None

    def _reward(self, reward: Any) -> float:
        """Check a reward, and convert it to a float; a private agent takes any, since it clips them."""
        value = as_reward(reward)
        if not self.private:
            self._model.limits.check(value)
        return value

    def _gone(self, identity: str) -> FedFairXError:
        """The error that says why no decision of this id is pending."""
        log = self._log
        number, status = log.prefixes.number_in(identity), None
        if number is not None and number < log.numbers.next:
            status = log.status_of(number)
        if status is None:
            return UnknownDecision(f"decision must be one that this agent made, got decision={identity!r}")
        return AlreadyObserved(f"decision {identity} {_REASONS.get(status, 'has its reward already')}")

    def observe_many(
        self,
        decisions: Iterable[Decision | str],
        rewards: Iterable[float | Rewards],
        persons: Iterable[str | int] | None = None,
        *,
        replace: bool = False,
    ) -> None:
        """`observe` several decisions; if one reward is refused, none is taken.

        rewards: one for each decision, or what `observe` takes as `rewards` of several slots.
        """
        values = list(rewards)
        if replace:
            self._replace_many(list(decisions), values, persons)
            return
        with self._transaction:
            waiting = self._different(decisions)
            same = len(waiting) == len(values)
            require(same, "rewards", f"must be as many as the {len(waiting)} decisions", len(values))
            outcomes = [
                self._outcomes(decision, each, several=are_several(each))
                for decision, each in zip(waiting, values, strict=True)
            ]
            for decision, each in zip(waiting, outcomes, strict=True):  # all before the first is taken
                self._core.check(steps.Ended(decision.number, each))
            whose = as_persons(persons, len(waiting))
            for decision, each, person in zip(waiting, outcomes, whose, strict=True):
                self._end(decision, each, person=person)
        self._warn(*outcomes)

    def _different(self, decisions: Iterable[Decision | str]) -> list[Decision]:
        """These pending decisions, each of which must occur once."""
        waiting = [self._waiting(decision) for decision in decisions]
        if len({decision.number for decision in waiting}) != len(waiting):
            raise AlreadyObserved("a decision occurs twice among these decisions")
        return waiting

    def learn(
        self,
        contexts: ActionsLike,
        rewards: Iterable[float],
        *,
        names: Sequence[str] | None = None,
        weights: Iterable[float] | None = None,
        persons: Iterable[str | int] | None = None,
    ) -> None:
        """Learn from a log: contexts (n, d) of actions that were shown elsewhere, and their rewards (n,).

        names: of the actions (n,), for their own records.
        weights: of the slots (n,) in which they were shown; by default 1.

        An agent whose actions have names alone takes these (n,) instead of contexts; one with a schema
        also takes rows by name, each with all features, shared ones included. Each record counts as if this
        agent had shown the action: the privatizer bounds it and it will be released. If one record is
        refused, none is taken.
        """
        rows: Any
        encoded: Encoded | None = None
        with self._transaction:
            model, labels = self._model, None
            if model.featureless and model.actions is not None:
                require(names is None, "names", "must be left out: contexts are names", "both")
                labels = model.actions.known(contexts)
                rows = model.rows_of(labels)
            else:
                if model.schema is not None and are_described(contexts):
                    encoded = self._encode(contexts)
                    contexts = encoded.contexts
                given = cast("Any", contexts)
                rows = as_sound_contexts(given, self.columns, constant=model.constant, point=model.point)
                labels = None if names is None else as_names(names, len(rows))
                if labels is not None and model.actions is not None:
                    model.actions.known(labels)
            values = as_rewards(rewards, len(rows), self._reward)
            whose = as_persons(persons, len(rows))
            each = None if weights is None else as_row_weights(weights, len(rows))
            if each is not None:
                check_weights(each, self.options.reward_range)
            text = "must be 1 to learn a log privately: which of its rows are one decision is not known"
            alone = not self.private or (each is None and self._slots is ONE)
            require(alone, "slots", text, len(self._slots))
            if self._looks:
                self._look(rows)
            if not self._counts_persons:
                for person in whose:
                    refuse_person(person)  # it would be stored nowhere
            most = max(WORK // max(self.columns**2, 1_000), 1)
            for at in range(0, len(rows), most):
                part = slice(at, at + most)
                if self.private:
                    self._enter_rows(rows[part], values[part], whose[part])
                some = None if each is None else each[part]
                self._take(steps.Learnt(rows[part], values[part], some, labels and labels[part]))
                self._forget_names()
            if self._height is not None and self._height.open:
                for row, value in zip(rows, values, strict=True):
                    self._height.look(row, value)
            if encoded is not None:
                self.count_values(encoded)
        self._warn(dict(enumerate(values)))

    def _enter_rows(self, rows: Any, rewards: Sequence[float], persons: Sequence[str | int | None]) -> None:
        """Give records of actions that were shown elsewhere to the privatizer."""
        first, prefix = self._log.numbers.next, self._log.prefix
        for place, (reward, person) in enumerate(zip(rewards, persons, strict=True)):
            self._exchange.privatizer.add(rows[place], reward, f"{prefix}-{first + place}", person)

    def forget(self, decision: Decision | str) -> None:
        """Stop waiting for the reward of a decision."""
        self.forget_many([decision])

    def forget_many(self, decisions: Iterable[Decision | str]) -> None:
        """`forget` several decisions; if one is refused, none is forgotten."""
        with self._transaction:
            for decision in self._different(decisions):
                self._end(decision, dict.fromkeys(decision.waiting), WITHDRAWN)

    def set_window(self, window: float | None, default_reward: float | None = None) -> None:
        """Set the seconds after which `expire` gives up on a reward, and the reward learnt then, if any."""
        expiry = Expiry(window=window, default_reward=default_reward)
        try:
            reward = None if expiry.default_reward is None else self._reward(expiry.default_reward)
        except InvalidInput as error:
            raise InvalidInput(f"default_{error}") from None
        text = "must be left out with person_records: it would be a record of nobody"
        require(reward is None or not self._counts_persons, "default_reward", text, reward)
        self.window, self.default_reward = expiry.window, reward

    def expire(self, now: float | None = None) -> int:
        """Give up on decisions that are older than `window`; return how many.

        `now` is in seconds since 1970. If there is a `default_reward`, it is learnt as their reward.
        """
        with self._transaction:
            if not self.durable or self.window is None:
                raise InvalidInput("window must be given when the agent is opened, got window=None")
            latest = (self._log.time if now is None else int(now * 1e6)) - int(self.window * 1e6)
            due = list(takewhile(lambda decision: decision.time <= latest, self._pending.values()))
            for decision in due:
                self._end(decision, dict.fromkeys(decision.waiting, self.default_reward), EXPIRED)
            return len(due)

    def _warn(self, *rewards: Mapping[int, float | None]) -> None:
        """Warn about clipping and scale, after all else: the caller may have turned warnings into errors."""
        with self._lock:
            if self._clips:
                records = sum(value is not None for each in rewards for value in each.values())
                self._exchange.watch.look(records)
            if self._model.limits.contradiction is not None:
                self._model.limits.warn()
            if self._height is not None:
                self._height.warn()

    @property
    def warnings(self) -> list[str]:
        """The warnings about the size of rewards, and of contexts since it was opened (`ScaleWarning`)."""
        height = None if self._height is None else self._height.warning
        warned = self._scale.warning, self._model.limits.warning, height
        return [text for text in warned if text is not None]

    # --- replacing a reward --------------------------------------------------------------------------

    def _replace_many(
        self,
        decisions: Sequence[Decision | str],
        rewards: Sequence[float | Rewards],
        persons: Iterable[str | int] | None,
    ) -> None:
        """Take these rewards, all or none; each replaces the earlier reward of its decision, if any."""
        if not self.durable:
            raise InvalidInput(
                "replace must be left out: an agent in memory keeps no log to replay; use Agent.open"
            )
        journal, count = self.journal, len(decisions)
        require(len(rewards) == count, "rewards", f"must be as many as the {count} decisions", len(rewards))
        if len({str(getattr(decision, "id", decision)) for decision in decisions}) != count:
            raise AlreadyObserved("a decision occurs twice among these decisions")
        whose = as_persons(persons, count)
        with self._transaction:
            journal.log.settle()
            first: list[tuple[int, dict[int, float | None], str | int | None]] = []
            wrong: list[tuple[StoredReward, float]] = []
            for decision, reward, person in zip(decisions, rewards, whose, strict=True):
                (stored,) = journal.decided([self._number(decision)])
                if not stored.arms:
                    raise ReplacementRefused(f"the content of decision {stored.id} was dropped or deleted")
                new: dict[int, float | None] = {}
                for slot, value in self._outcomes(stored, reward, several=are_several(reward)).items():
                    old = replacement.stored_reward(journal, stored, slot)
                    if old is None:
                        new[slot] = value
                    elif self._is_wrong(old, value, person):
                        wrong.append((old, cast("float", value)))
                if new:
                    first.append((stored.number, new, person))
            for number, new, person in first:
                self._end(self._pending[number], new, person=person)
            for old, value in wrong:
                if self.private:
                    self._amend(old, value)
                replacement.replace(journal, old, value)
            for number in sorted({old.decision.number for old, _ in wrong if old.first.slot}):
                replacement.sum_again(journal, number)
            if wrong:
                self._stored().rebuild()
        self._warn(*(new for _, new, _ in first))

    def _number(self, decision: Decision | str) -> int:
        """The number of a decision in the log, pending or not."""
        try:
            return self._waiting(decision).number
        except AlreadyObserved:
            identity = decision.id if isinstance(decision, Decision) else decision
            number = self._log.prefixes.number_in(identity)
            if number is None:
                raise
            return number

    def _is_wrong(self, old: StoredReward, value: float | None, person: str | int | None) -> bool:
        """Whether a reward differs from the stored one; refuse to replace one that is final."""
        text = "must be a number where one replaces another: what was learnt can't be withdrawn"
        require(value is not None, "rewards", text, None)
        same = person is None or str(person) == old.newest.person
        require(same, "person", "must be the one whose record it is", "another")
        before = old.newest.learnt
        if before == value or (before != before and value != value):
            return False
        self._refuse_released(old)
        return True

    def _refuse_released(self, old: StoredReward) -> None:
        journal, identity, seq = self.journal, old.decision.id, old.first.seq
        if seq < journal.snapshot_numbers()[0]:
            raise ReplacementRefused(f"decision {identity} was rewarded before contexts were dropped by age")
        if journal.amendments(journal.log.database.execute).is_undone(seq):
            raise ReplacementRefused(f"the reward of decision {identity} was rolled back; use learn")
        step, stream = replacement.sealed_by(journal, old.first), self.privatizer.stream
        if step is None or (stream is not None and stream.is_open(old.record)):
            return
        why = f"decision {identity} was rewarded under an earlier budget"
        if isinstance(step, steps.Released):
            why = f"the reward of decision {identity} is in release {step.number} already"
        elif isinstance(step, steps.EpochBegun):
            why = f"decision {identity} was rewarded before the federation's epoch began"
        remedy = "let a new agent learn the right rewards"
        if self.bound is not None or any(name != self.name for name in self._exchange.latest):
            remedy = "create a new run of the federation, in which a new agent learns the right rewards"
        raise ReplacementRefused(f"{why} and can't be replaced; to undo it, {remedy}")

    def _amend(self, old: StoredReward, value: float | None) -> bool:
        """Change the record in the open leaf, or blank it; False if it must stay as it is."""
        person, turn = old.newest.person if self._counts_persons else None, (1, 1)
        if person is not None:
            turn = replacement.turn_of(self.journal, old.first, person)
        stream, reward = self.privatizer.stream, old.newest.learnt
        assert reward is not None
        assert stream is not None
        context = old.decision.chosen(old.slot)
        more: Any = {"person": person, "turn": turn, "weight": old.decision.weights[old.slot]}
        if value is None:
            return stream.blank(context, reward, old.record, **more)
        stream.amend(context, reward, value, old.record, **more)
        return True

    # --- dropping, deleting, rolling back ------------------------------------------------------------

    def drop_contexts(self, *, before: float, rule: str = "", limit: int | None = None) -> int:
        """Drop what a durable agent no longer needs of decisions made before a time; return of how many.

        Contexts, policies and names go; ids, times, outcomes and seals stay. Decisions that wait for a reward
        stay whole, and so do those that ended after the first snapshot that is kept. Afterwards rewards from
        before that snapshot can't be replaced, and the agent can't be rolled back to before it.

        before: seconds since 1970.
        rule: why, in a word such as "400d"; `fedfairx verify` shows it.
        limit: of how many at most, if it is to be done bit by bit.
        """
        store, is_time = self._stored(), isinstance(before, int | float) and 0 <= before < 1e11
        require(is_time, "before", "must be a time in seconds since 1970", before)
        if store.log.in_transaction:
            raise InvalidInput("drop_contexts must be called outside of a transaction: it makes its own")
        return store.drop_contexts(before, rule, limit)

    def delete_person(self, person: str | int, *, decisions: Iterable[Decision | str] = ()) -> Deletion:
        """Delete a person's records from a durable agent's log, and rebuild what it has learnt without them.

        An agent that is not private is then what it would be if the decisions had been withdrawn. In a
        private one, records in its messages stay there; `Deletion` says how many.

        In a decision that is shared with others, rewards without a person are deleted, too.

        decisions: more decisions of this person: ones that wait, or whose rewards came without a person.
        """
        journal, whose = self._stored().journal, str(person)
        with self._transaction:
            journal.log.settle()
            more = {self._number(each) for each in decisions}
            blank: list[int] = []
            outcomes: list[OutcomeRow] = []
            rewards: list[StoredReward] = []
            withdrawn = shared = 0
            for number in sorted({*erasure.decisions_of(journal, whose), *more}):
                if number in self._pending:
                    waiting = self._pending[number]
                    self._end(waiting, dict.fromkeys(waiting.waiting), WITHDRAWN)
                    journal.log.settle()
                    withdrawn += 1
                rows = journal.outcomes(number)
                (decision,) = journal.decided([number])
                theirs = {row.slot for row in rows if row.person not in (None, whose)}
                if theirs and number not in more:
                    rows = [row for row in rows if row.slot not in theirs]
                    shared += 1
                else:
                    blank.append(number)
                outcomes += rows
                for row in rows:
                    own = row.slot > 0 or decision.weights is ONE  # and not the sum of its slots
                    if row.learnt is not None and not row.turn and own:
                        newest = [each for each in rows if each.slot == row.slot][-1]
                        rewards.append(StoredReward(decision, row, newest))
            if not outcomes and not blank:
                return Deletion(private=self.private)
            return self._delete(blank, outcomes, rewards, withdrawn, shared)

    def _delete(
        self,
        blank: list[int],
        outcomes: list[OutcomeRow],
        rewards: list[StoredReward],
        withdrawn: int,
        shared: int,
    ) -> Deletion:
        """Delete these decisions and outcomes, of which some were learnt, and rebuild the agent."""
        store = self._stored()
        journal = store.journal
        if self.private:
            sent = sum(not reward.decision.arms or not self._amend(reward, None) for reward in rewards)
        else:
            sent = sum(replacement.sealed_by(journal, reward.first) is not None for reward in rewards)
        erasure.delete_rows(journal, blank, outcomes)
        store.snapshot_due = True  # and what was deleted is overwritten
        journal.log.settle()
        for number in sorted({row.decision for row in outcomes} - {*blank}):
            replacement.sum_again(journal, number)
        reach = journal.snapshot_numbers()[0]
        again = [reward.first.seq for reward in rewards if reward.first.seq >= reach]
        release = self._rebuild(store, min(again)) if again else None
        return Deletion(
            decisions=len(blank),
            rewards=len(rewards),
            withdrawn=withdrawn,
            shared=shared,
            remaining=0 if self.decide_from == "released" else len(rewards) - len(again),
            sent=sent,
            private=self.private,
            release=release,
        )

    def _rebuild(self, store: AgentStore, seq: int) -> int | None:
        """Replay the log from before a step; return the number of a new release, if it made some before.

        Exact sums that were sent are no longer those that the log gives, so the last number is not used for
        these.
        """
        store.journal.delete_snapshots(after=seq)
        store.rebuild()
        store.snapshot_due = True
        sums = self._model.sums
        return None if sums is None or not sums.spent else self.release().number

    def roll_back(self, *, to: float) -> Rollback:
        """Return a durable agent that is not private to what it knew at a time, in seconds since 1970.

        The log keeps what has happened since. Decisions since then are marked in it, and those that wait get
        no reward; actions that were added stay, with nothing known about them.
        """
        store = self._stored()
        if self.private:
            raise InvalidInput(
                "to must be left out: a private agent can't go back, since its messages are out and its "
                "noise and budget are spent; let a new agent learn the right rewards"
            )
        if self.bound is not None:
            raise InvalidInput(
                f"to must be left out while {self.name!r} is a member of federation {self.bound}, whose "
                "members refuse sums of fewer records than before: stop it, roll back, and found a new run"
            )
        require(isinstance(to, int | float) and 0 <= to < 1e11, "to", "must be seconds since 1970", to)
        journal = store.journal
        with self._transaction:
            journal.log.settle()
            ask = journal.log.database.execute
            first = erasure.first_step_at(journal, int(to * 1e6), ask)
            if first is None:
                return Rollback(0, 0, 0)
            if first < journal.snapshot_numbers()[0]:
                raise InvalidInput("to must be later: what was learnt before it was dropped by age (keep)")
            waiting = [decision for number, decision in self._pending.items() if number >= first]
            for decision in waiting:
                self._end(decision, dict.fromkeys(decision.waiting), WITHDRAWN)
            journal.log.settle()
            where = "WHERE agent = ? AND seq >= ?"
            (decisions,) = ask(f"SELECT COUNT(*) FROM decisions {where}", (journal.agent, first))[0]
            before = self.observed
            self._take(steps.RolledBack(first, int(to * 1e6)))
            release = self._rebuild(store, first)
            return Rollback(int(decisions), before - self.observed, len(waiting), release)

    def _stored(self) -> AgentStore:
        """The part of a database that holds it."""
        if not isinstance(self._log, AgentStore):
            raise InvalidInput("this agent lives in memory and keeps no log: open it with Agent.open")
        return self._log

    # --- sharing -------------------------------------------------------------------------------------

    @property
    def released(self) -> int:
        """The number of its own latest release; 0 before the first."""
        return self._exchange.released

    @property
    def unreleased(self) -> int:
        """Number of rewards that it has taken since its latest release."""
        return self._model.local_count

    def release(self, number: int | None = None) -> Release:
        """Release the agent's cumulative statistics, privatized: the message that it may send to others.

        It holds everything observed until now, exactly once. After a release that was interrupted, the next
        call returns that one, without what came since. A past `number` is returned again, at no cost.
        """
        with self._lock:
            self._age()
            with self._transaction:
                release, records = self._exchange.make(number)
                if release.number > self.released:
                    self._take(steps.Released(release.number, records, release))
                return release

    def _age(self) -> None:
        """Decay sums to now before a message is made or taken: a transaction of its own, whatever follows."""
        if self._model.aging is not None:
            with self._transaction:
                if self._model.aging.is_due(self.observed):
                    self._take(steps.Aged())

    def past_release(self, number: int) -> Release:
        """A release that was made before, at no cost; `PrivacyError` if it is no longer available."""
        with self._transaction:
            return self._exchange.release(number)

    def accepted(
        self, releases: Releases, *, limits: Check | None = None, seen: Seen | None = None
    ) -> dict[str, Release]:
        """The releases that are new to this agent, by sender, as `validation.accept` decides."""
        with self._lock:
            return self._exchange.accepted(releases, limits, seen)

    def absorb(self, releases: Mapping[str, Release]) -> None:
        """Learn from the latest releases of other agents, by name; older ones than those held are ignored.

        A release is cumulative: it replaces its sender's earlier one and is never added to it. Under its own
        name an agent accepts only its own latest release. If one release is refused, none is taken.
        """
        with self._lock:
            self._age()
            with self._transaction:
                if self.name in releases:
                    self._exchange.accepted(releases)
                others = {name: release for name, release in releases.items() if name != self.name}
                self._take(steps.Absorbed(others))

    def drop_peers(self, names: Collection[str]) -> None:
        """Drop the releases of these agents, as if they had never sent any. The agent's own release stays."""
        with self._transaction:
            gone = sorted(self._exchange.latest.keys() & set(names) - {self.name})
            if gone:
                self._take(steps.PeersDropped(gone))

    def begin_run(self, privatizer: Privatizer | Budget) -> None:
        """Continue under a new budget when the old one is spent; everything learnt and shared stays.

        A durable agent takes a `Budget`, and makes the privatizer in its own database.

        Records since the last release go into the first release of the new run, if it clips as the old one
        did. If not, or if a person's records are bounded, the old run makes a last release of them; if it has
        none left, they get into no message, and a warning says how many.

        A member of a federation with a roster can't: members who begin new runs at different times would have
        different mechanisms, and refuse each other's releases.
        """
        if self.bound is not None:
            raise InvalidInput(
                f"the budget of {self.name!r} can't change: it shares under the terms of federation "
                f"{self.bound}, which cover one run; create another federation to share for longer"
            )
        with self._transaction:
            if not self.private:
                raise InvalidInput("privatizer must be left out: this agent is not private and has no budget")
            if isinstance(privatizer, Budget):
                privatizer = privatizer.with_slots(self._slots)
                if self._model.constant:
                    privatizer = privatizer.with_intercept()
            after, run = self._log.new_run(privatizer)
            if not self._exchange.next_run(after):
                self.release()
            self._take(steps.RunBegun(run))

    def begin_epoch(self, privatizer: Privatizer | Budget) -> None:
        """With secure aggregation, begin an epoch: its rows start from nothing, with noise of their own.

        The total of the epoch before stays part of what is held; the noise of all epochs adds up. Records
        since the last row go into the first one. A durable agent takes a `Budget`. Numbers of rows begin at
        1 again.
        """
        with self._transaction:
            old = self.privatizer
            after, run = self._log.new_run(privatizer)
            check_privatizer(
                after, dimension=self.columns, intercept=bool(self._model.constant), name=self.name
            )
            same = after.mechanism.digest() == old.mechanism.digest()
            require(same, "privatizer", "must have the mechanism of the epoch before", "another")
            if not carry_over(old, after):
                raise InvalidInput("privatizer must clip as in the epoch before, and count no persons")
            self._take(steps.EpochBegun(run))

    def add_total(self, total: Release, *, members: int) -> None:
        """With secure aggregation, learn from the last total of an epoch of so many members, not its own."""
        with self._transaction:
            self._take(steps.TotalAdded(total, members))

    # --- saving --------------------------------------------------------------------------------------

    def state(self) -> AgentState:
        """Everything that it knows, exact to the bit, as one value: agents of equal state decide alike."""
        with self._lock:
            return self._core.state()

    def save(self, path: str | PathLike[str]) -> None:
        """Write the agent to a file that `load` and `open` read; the file is replaced atomically.

        Only a file that `save` wrote and that nobody has opened since is replaced. It holds all that the
        agent knows and the decisions that wait, but no log, and no merit function of the user's own. It is as
        secret as the data. A private agent is refused: `open` keeps it on disk.
        """
        from fedfairx.storage.sqlite import require_replaceable  # few agents are saved

        text = "must be a file; open makes an agent on a server"
        require(not is_on_server(path), "path", text, "an address")
        require_replaceable(path)
        write_atomically(path, self._content())

    def _content(self) -> bytes:
        """The content of a file that holds the agent as it is now."""
        with self._lock:
            if self.private:
                raise PrivacyError(
                    f"agent {self.name!r} is private, and can't be saved or copied: two copies would make "
                    "two messages of one number; Agent.open(path, budget=…) keeps it and its ledger on disk"
                )
            return saved(self.name, self._core, self._log)

    def __reduce__(self) -> tuple[Any, ...]:
        """Copy and pickle what `save` writes; a merit function of the user's own is pickled beside it."""
        content = self._content()  # refuses a private agent, which can't be loaded into memory either
        if self.durable:
            way, where = "open it there (Agent.open), or copy it into memory (Agent.load)", self.journal.place
            raise InvalidInput(f"agent {self.name!r} is in {where}, and can't be copied or pickled: {way}")
        own = describe_merit(self.merit)["kind"] == CUSTOM
        return _unpickled, (type(self), content, self.merit if own else None)

    @classmethod
    def load(cls, place: str | PathLike[str], *, name: str | None = None, merit: Merit | None = None) -> Self:
        """Load an agent into memory, as it was saved or is now in a database; the place is only read.

        It continues with the same decisions, bit for bit. Only the ids of its future decisions are new, so
        that two agents loaded from one place never share them.

        place: a file, or the database of an agent that is not private.
        name: which agent, if there are several.
        merit: your own merit (`Custom`), which is not stored.
        """
        with open_for_reading(place) as database:
            return _load(cls, database, name, merit)

    # --- durable -------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        place: str | PathLike[str],
        *,
        name: str | None = None,
        dimension: int | None = None,
        schema: Schema | None = None,
        actions: Sequence[str] | None = None,
        options: Options | None = None,
        budget: Budget | None = None,
        seed: int | np.random.SeedSequence | None = None,
        window: float | None = None,
        default_reward: float | None = None,
        confirm: Confirm | None = None,
        **keywords: Unpack[Keywords],
    ) -> Self:
        """Open an agent in a file (SQLite) or a `postgresql://` database; see docs/howto/keep-an-agent.md.

        The first opening creates the agent and needs a dimension, a schema or actions. Later openings need
        only the place, and refuse a setting that differs from the stored one. Only a schema may append to the
        stored one. Every call is on disk before it returns, or has changed nothing. Only one process at a
        time can have the database open: `close` it, or use it as a context manager.

        name: which agent, if the database holds several.
        dimension, schema, actions, options, seed: as for `Agent`, like other keywords.
        budget: makes the agent private (`privacy.Budget`); ledger and noise key are in the same database. If
            there is a schema, its bounds follow from it and from `reward_range`, unless they are given. For
            an agent that is not private, `bounds` clip records before others get their sums.
        window: seconds after which `expire` gives up on a reward; it may change from one opening to the next.
        default_reward: the reward learnt then; it may change too.
        confirm: asks the peers whether this is the latest copy, before anything is sent
            (`privacy.refuse_old_copy`).
        """
        spec = Specification(name, dimension, schema, actions, options, budget, keywords)
        log = open_log(place)
        with _opening(log):
            store = find_store(log, name)
            if store is None:
                with log.transaction:
                    store = make_store(log, spec)
                    agent = cls._in(store, spec.all_options, seed)
                    agent.set_window(window, default_reward)  # an agent that is refused is not stored
                    store.take_snapshot()
            else:
                if schema is not None and store.settings.features is None:
                    store.adopt(as_schema(schema))
                store.refuse_others(spec)
                agent = cls._in(store, store.options(spec.merit), None)
                store.restore()
                agent._refuse_actions(actions)
                if schema is not None:
                    agent.extend_schema(as_schema(schema))
                size = agent.dimension
                require(dimension in (None, size), "dimension", f"must be the stored one, {size}", dimension)
                agent.set_window(window, default_reward)
            if confirm is not None:
                last = agent._exchange.latest.get(agent.name)
                confirm(agent.released, "" if last is None else last.digest)
            store.follow()  # last: after an error, nothing of the agent may stay in the log
        return agent

    @classmethod
    def _in(cls, store: AgentStore, options: Options, seed: int | np.random.SeedSequence | None) -> Self:
        """An agent whose steps go into a database, before anything of it is restored."""
        settings, first = store.settings, store.first_privatizer()
        agent = cls(**settings.arms(), options=options, privatizer=first, name=settings.name, seed=seed)
        agent._write_to(store)
        store.core = agent._core
        return agent

    def _refuse_actions(self, names: Sequence[str] | None) -> None:
        """Refuse actions that the agent does not have."""
        if names is None:
            return
        actions = self._model.actions
        if actions is None:
            raise InvalidInput("actions must be left out: this agent's actions have features")
        new = [name for name in names if name not in actions]
        require(not new, "actions", "must be ones that it has", new[:1], "add others once it is open")

    @property
    def durable(self) -> bool:
        """Whether it is stored in a database (`Agent.open`)."""
        return isinstance(self._log, AgentStore)

    @property
    def journal(self) -> Journal:
        """The stored decisions, by id, by key or by time."""
        return self._stored().journal

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all steps inside one transaction, which is on disk when it ends; on failure none of them is.

        Results of a step must not be passed on before the end. A step that is refused (`InvalidInput` and the
        like) changes nothing, and the others stay.
        """
        with self._transaction:
            yield

    def verify(self) -> None:
        """Replay a durable agent's whole log; `StateError` unless it ends in the same state, to the bit.

        It takes about as long as learning the rewards took, and blocks all other calls.
        """
        self._stored().verify()

    def close(self) -> None:
        """Close the database; an agent in memory has none."""
        self._log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


def _load(kind: type[Kind], database: Database, name: str | None, merit: Merit | None) -> Kind:
    """The agent of a database, in memory."""
    log = Log(database)
    store = find_store(log, name)
    if store is None:
        raise InvalidInput(f"name must be that of an agent in {database.place}, got {name=}")
    if store.budgets:
        raise PrivacyError(
            f"agent {store.settings.name!r} is private, and can't be loaded: two copies would make two "
            f"messages of one number; open it where it is, with Agent.open({database.place!r})"
        )
    agent = kind._in(store, store.settings.options(merit), None)
    store.restore()
    agent._write_to(NullLog(log.end, store.prefixes.pairs))
    return agent


def _unpickled(kind: type[Agent], content: bytes, merit: Merit | None) -> Agent:
    """The agent that `Agent.__reduce__` wrote."""
    from fedfairx.storage.sqlite import SqliteDatabase

    with closing(SqliteDatabase("a copy", access="memory", content=content)) as database:
        return _load(kind, database, None, merit)


def _likely_names(
    places: Mapping[str, int], tallies: Array, cases: Mapping[float, tuple[LikelySizes, float]]
) -> NamesBelief:
    """What names differ by, with those ρ that are not unlikely; `cases` has sizes and ln p of each."""
    logs = np.array([likely for _, likely in cases.values()])
    weights = np.exp(logs - logs.max())
    weights /= weights.sum()
    kept = np.flatnonzero(weights >= LIKELY * weights.max())
    ratios, sizes = np.array(list(cases)), [each for each, _ in cases.values()]
    chances = weights[kept] / weights[kept].sum()
    return NamesBelief(places, tallies, chances, ratios[kept], tuple(sizes[case] for case in kept))


@contextmanager
def _opening(log: Log) -> Iterator[None]:
    """Hold the lock of a log that other agents may be using, and close the log if opening fails."""
    with log.lock:
        try:
            yield
        except BaseException:
            log.close()
            raise


def _remedy(options: Options) -> str:
    """How an agent without an intercept gets one."""
    if options.optimistic:
        return "Append a column of ones to contexts (fedfairx.features.intercept)"
    return "Create it with intercept=True"


def _is_request(block: object) -> bool:
    """Whether it is {"actions": …, "context": …}, and not {name: features} of actions."""
    return isinstance(block, Mapping) and "actions" in block and block.keys() <= {"actions", "context"}
