"""The agent: it decides, observes, shares what it learns, and can be saved or stored in a database.

`model` holds what it has learnt, `exchange` its releases and those of its peers, `persistence` its database.
"""

from __future__ import annotations

import json
import math
import secrets
import threading
from collections import Counter
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from dataclasses import replace
from itertools import takewhile
from os import PathLike
from typing import Any, Self, Unpack, cast

import numpy as np
from numpy.typing import ArrayLike

from fedfairx.agent import settings as files
from fedfairx.agent.actions import as_arms, as_schema, context_of
from fedfairx.agent.decision import Decision, known
from fedfairx.agent.draws import Draws
from fedfairx.agent.exchange import Exchange, privacy_in_short
from fedfairx.agent.half_life import NOT_PRIVATE
from fedfairx.agent.input_warnings import LOOKS, ScaleWatch
from fedfairx.agent.model import Model
from fedfairx.agent.options import PLAIN, WHERE_SECURE, Keywords, Options
from fedfairx.agent.partners import Partners
from fedfairx.agent.persistence import AgentStore, find_store, make_store
from fedfairx.agent.reward_limits import check_weights
from fedfairx.agent.settings import AgentSettings, plain_value, read_value
from fedfairx.agent.slots import Rewards, Slate, are_several, as_row_weights
from fedfairx.agent.state import MOST, AgentState, Parts, Waiting, waiting_decision
from fedfairx.agent.validation import (
    Check,
    Releases,
    Seen,
    as_baseline,
    as_blocks,
    as_contexts,
    as_names,
    as_persons,
    as_reward,
    as_rewards,
    as_sound_contexts,
    check_privatizer,
    in_block,
    is_whole,
)
from fedfairx.core.agent_kernels import likely_sizes
from fedfairx.core.merit import Merit
from fedfairx.core.posterior import LikelySizes, Posterior, Prior
from fedfairx.core.slates import ONE, Slots, Weights, as_weights
from fedfairx.core.statistics import packed_size, unpack
from fedfairx.errors import (
    AlreadyObserved,
    FedFairXError,
    InvalidInput,
    ReplacementRefused,
    StateError,
    UnknownDecision,
    require,
)
from fedfairx.features import Encoded, Schema, are_described
from fedfairx.privacy import Bounds, Budget, NonPrivateSums, Privatizer, Release, carry_over
from fedfairx.privacy.ledger.rollback import Confirm
from fedfairx.privacy.privatizers.stream import refuse_person
from fedfairx.storage import erasure, replacement
from fedfairx.storage.decision_ids import IdPrefixes
from fedfairx.storage.erasure import Deletion, Rollback
from fedfairx.storage.journal import Journal, Made
from fedfairx.storage.open_log import open_log
from fedfairx.storage.records import DecisionNote, packed_log
from fedfairx.storage.replacement import Booked
from fedfairx.storage.transaction_log import Log, StepCounter
from fedfairx.util.arrays import Array, Coordinates
from fedfairx.util.formatting import html_table

#: Contexts (K, d), names of actions without features, or features by name, as `Schema.encode` takes them.
Arms = ArrayLike | Sequence[Any] | Mapping[str, Any] | Any


class Agent:
    """Chooses arms in proportion to their merit, and learns from rewards, alone or with other agents.

    dimension: d, how many numbers describe an arm.
    schema: instead of a dimension, the features of an arm by name (`features.Schema`): `decide` then takes
        them as people have them. A later version may append (`extend_schema`).
    actions: instead of a dimension, the names of arms without features: each has its own expected reward.
        Actions can be added and retired later.
    options: how the agent decides and learns, as one object; or give its fields as keywords (see `Options`):
    rule: how shares are computed: "expected-merit", "greedy" (the merit of the expected reward), "thompson"
        (the merit under a drawn parameter), or "optimism" (the paper's).
    merit: what a reward is worth, one of `fedfairx.merit`; a steeper one gives the best arms more. By default
        an arm that is better by 7 % of the reward range gets twice the share; the default range is (0, 1).
    reward_range: (low, high) of all rewards, if known. It sets the defaults of merit and prior, and rewards
        outside are refused.
    prior: what is believed before the first reward (`Prior`), for every rule but "optimism".
    minimum_share: the least share of every arm, in [0, 1).
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
        asked = Options.given(options, **keywords)
        text = f"must be given for {asked.composed.name}, as Options.privatizer(…) makes it"
        require(privatizer is not None or not asked.private, "privatizer", text, privatizer)
        require(name is None or isinstance(name, str), "name", "must be a string", name)
        require(not isinstance(seed, int) or seed >= 0, "seed", "must be >= 0", seed)
        dimension, arms = as_arms(dimension, actions, schema)
        if privatizer is None:
            privatizer = NonPrivateSums(dimension)
        check_privatizer(privatizer, dimension=dimension, name=name)
        shared = privatizer.stream is not None and privatizer.stream.mechanism.share is not None
        text = f"must be {PLAIN!r} where the privatizer's noise is no share: {WHERE_SECURE}"
        require(shared or not asked.secure, "aggregation", text, asked.aggregation)
        self.name: str = name or privatizer.owner or f"agent-{secrets.token_hex(4)}"
        self.options = asked.for_agent(arms_of_their_own=arms is not None)
        one = arms is None or self.options.prior is None or not isinstance(self.options.prior.mean, tuple)
        require(one, "prior", "must have one mean for all actions, since more can be added", "a tuple")
        decide_from = privatizer.guarantee.decide_from
        self._model = Model(dimension, self.options, arms, schema, decide_from=decide_from, sums=None)
        self._exchange = Exchange(self.name, self._model, privatizer)
        self.private = self._model.sums is None
        aged = self.options.half_life
        require(aged is None or not self.private, "half_life", NOT_PRIVATE, aged)
        self._draws = Draws(seed, self._model.uniforms_each)
        self._pending: dict[int, Decision] = {}  # by number, in order
        self._parts = Parts(self._model, self._exchange, self._draws, self._pending)
        self._store: AgentStore | None = None
        self._journal: Journal | None = None  # the store's
        self._lock = threading.RLock()
        self._numbers = StepCounter()
        self._origins = IdPrefixes()
        self._origin = self._origins.begin(0)
        self._slots = as_weights(self.options.slots)
        bounded = privatizer.guarantee.slots
        text = f"must be those of the privatizer's bounds, {bounded}"
        require(not self.private or self._slots == bounded, "slots", text, self._slots, "see Bounds.slots")
        self.clipped_values: Counter[str] = Counter()  # by feature, since the agent was made or opened
        self.unknown_values: Counter[str] = Counter()  # of categories, by feature
        self._looks = LOOKS
        self._scale = ScaleWatch(self._expected_length())

    def _expected_length(self) -> float:
        """The length of contexts that fits the prior or the confidence region."""
        prior, reward_range = self.options.prior, self.options.reward_range
        if prior is None:
            return 1.0 / self.options.region.parameter_norm
        own = self._model.actions is not None
        return Prior.for_merit(self.merit, reward_range=reward_range, arms_of_their_own=own).sd / prior.sd

    # --- what it is ----------------------------------------------------------------------------------

    @property
    def dimension(self) -> int:
        """d: how many numbers describe an arm, or how many actions without features were ever added."""
        return self._model.dimension

    @property
    def schema(self) -> Schema | None:
        """The features of an arm, if it was made with a schema."""
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
        shape = f"actions={list(self.actions)}" if self.actions else f"dimension={self.dimension}"
        if self.schema is not None:
            shape = f"features={list(self.schema.names)}"
        kind = "private, " if self.private else ""
        return (
            f"Agent({self.name!r}, {shape}, rule={self.rule!r}, merit={self.merit!r}, "
            f"{kind}{self.observed} observed, {self.pending} pending)"
        )

    def _repr_html_(self) -> str:
        rows = [
            ("actions", ", ".join(self.actions)) if self.actions else ("dimension", self.dimension),
            *([] if self.schema is None else [("features", ", ".join(self.schema.names))]),
            ("rule", self.rule),
            ("merit", repr(self.merit)),
            ("rewards observed", self.observed),
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
            return next((made.time / 1e6 for made in self._pending.values()), None)

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
        """θ̂ = V⁻¹ b (d,)."""
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
            assumed, learner = self.options.prior, self._model.learner
            if assumed is None:
                own = self._model.actions is not None
                return Prior.for_merit(
                    self.merit, reward_range=self.options.reward_range, arms_of_their_own=own
                )
            sd = math.sqrt(learner.noise_variance / learner.ridge)
            mean = assumed.mean
            if learner.learns_mean:  # of actions without features one for all, else that of the intercept
                mean = learner.sizes.mean if self._model.actions is not None else tuple(learner.mean.tolist())
            return Prior(mean, sd, math.sqrt(learner.noise_variance), assumed.learn)

    @property
    def posterior(self) -> Posterior:
        """What is believed of θ, averaged over what σ and the prior may be, for `exposure` and for intervals.

        Decisions come from the likeliest σ and prior, which give `estimate` and `covariance`.
        """
        assumed, prior = self.options.prior, self.prior  # as learnt; the default one for "optimism"
        with self._lock:
            learner, own = self._model.learner, self._model.own_sums()
            gram, moment = unpack(learner.statistics.copy())
            own = None if own is None else own.copy()
            squares, observed, size = learner.squares, learner.observed, learner.dimension
            common = self._model.common()
        learnt = np.zeros(size)
        if own is None or not prior.learn:
            sizes, mean = LikelySizes.fixed(sd=prior.sd, noise_sd=prior.noise_sd), prior.means(size)
        else:
            first = assumed or prior
            sizes, mean = likely_sizes(own, squares, observed, first, common=common), first.means(size)
            learnt[common] = not isinstance(first.mean, tuple)
        return Posterior(gram, moment, mean, sizes, learnt, self.options.reward_range)

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
        contexts: Arms | None = None,
        *,
        actions: Arms | None = None,
        context: Any = None,
        slots: Slots | None = None,
    ) -> Array:
        """The probabilities (K,) of the arms if `decide` were called now, or, for several slots, exposures.

        Nothing is drawn or changed. For "thompson" it is the policy under the parameter that the next
        decision will draw.
        """
        with self._lock:
            rows, _, _ = self._arms(contexts, None, actions, context)
            weights, memory = self._weights(slots), self._model.learner.memory.copy()
            if weights is not ONE:
                return self._draw_slate(rows, weights, memory)[1][: len(rows)]
            values = np.empty(len(rows) + 2 * self.dimension)
            self._model.draw(rows, values, self._draws, memory)
        return values[: len(rows)]

    # --- deciding ------------------------------------------------------------------------------------

    def decide(
        self,
        contexts: Arms | None = None,
        *,
        actions: Arms | None = None,
        context: Any = None,
        slots: Slots | None = None,
        names: Sequence[str] | None = None,
        note: DecisionNote | None = None,
    ) -> Decision:
        """Draw an arm from a (K, d) array of contexts; K may change from call to call.

        actions: instead of contexts, the features of each action by name, if the agent has a schema: a list
            of dicts, {name: dict}, or a data frame (`Schema.encode`). If actions have no features, the names
            of those to choose from; by default all.
        context: the features that all actions share, by name.
        slots: shows several arms: 3 is a set of three, [1.0, 0.63, 0.5] a ranking whose slots get this much
            attention; by default the options' slots. `decision.actions` are the rows by slot, and
            `decision.exposure` is the expected weight of every arm: proportional to its merit as far as slots
            allow.
        names: one for each arm; `decision.name` is then the name of the drawn one.
        note: stored by a durable agent beside the decision. If it names the row of a baseline (a list of
            rows, where there are several slots), that is what is taken and learnt from.
        """
        with self._lock:
            rows, called, encoded = self._arms(contexts, names, actions, context)
            weights = self._slots if slots is None else self._weights(slots)
            if note is not None and note.baseline is not None:
                note = note._replace(baseline=as_baseline(note.baseline, len(rows), weights))
            if self._journal is None:
                made = self._decide(rows, weights, called, note)
            else:
                with self._journal.log.step():
                    if note is not None and note.key is not None:
                        self._journal.require_new(note.key)
                    made = self._decide(rows, weights, called, note)
                    propensity = made._propensity
                    made.time = self._journal.append_decision(
                        made.number,
                        rows,
                        made._values,
                        made._action,
                        made.drawn,
                        float(made._values[made._action]) if propensity is None else propensity,
                        called,
                        note,
                        None if made.slate is None else made.slate.to_json(note),
                        len(made.weights),
                    )
            if encoded is not None:
                self.count_values(encoded)
            return made

    def _weights(self, slots: Slots | None) -> Weights:
        """The weights of a decision's slots."""
        if slots is None:
            return self._slots
        weights = as_weights(slots)
        fixed = self.private or self.bound is not None
        if fixed and weights != self._slots[: len(weights)]:
            text = f"must be those of the options, {self._slots}, or the first of them"
            raise InvalidInput(f"slots {text}: its privacy and its terms are for these, got {slots=}")
        check_weights(weights, self.options.reward_range)
        return weights

    def _arms(
        self,
        contexts: Arms | None = None,
        names: Sequence[str] | None = None,
        actions: Arms | None = None,
        context: Any = None,
    ) -> tuple[Array | Coordinates, list[str] | None, Encoded | None]:
        """The arms to choose from, as contexts (K, d) or coordinates (K,) of actions, and their names.

        The last result is what became of features that were given by name.
        """
        model, encoded = self._model, None
        if actions is not None:
            require(contexts is None, "contexts", "must be left out beside actions", "both")
        if model.actions is not None:
            require(names is None, "names", "must be left out: this agent's actions have names", names)
            require(context is None, "context", "must be left out: actions have no features", "one")
            return *model.actions.offered(contexts if actions is None else actions), None
        by_name = actions is not None or context is not None
        if by_name or (model.schema is not None and are_described(contexts)):
            given: Any = contexts if actions is None else actions
            encoded = self._encode(given, context)
            if names is None and isinstance(given, Mapping):
                names = list(given)
            contexts = encoded.contexts
        rows = as_contexts(cast("Any", contexts), model.dimension)
        return rows, None if names is None else as_names(names, rows.shape[0]), encoded

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
        rows: Array | Coordinates,
        weights: Weights,
        called: list[str] | None,
        note: DecisionNote | None,
    ) -> Decision:
        model = self._model
        arms, dimension = len(rows), model.dimension
        propensity = slate = None
        taken = None if note is None or note.mode == "live" else note.baseline
        number = self._numbers.next
        if weights is ONE:
            values = np.empty(arms + 2 * dimension)
            drawn = [model.draw(rows, values, self._draws)]
        else:
            drawn, values = self._draw_slate(rows, weights)
        shown = drawn if taken is None else [taken] if isinstance(taken, int) else list(taken)
        if weights is not ONE:
            names = None if called is None else [called[arm] for arm in shown]
            slate = Slate(weights, shown, names, drawn=drawn)
        if self._looks:
            self._look(rows)  # before anything changes: the warning may be turned into an error
        self._draws.advance()
        action = shown[0]
        name = None if called is None else called[action]
        if note is not None:
            propensity = note.propensity(action, float(values[action]), weights)
        decision = Decision(number, action, values, arms, name, self._origin, 0, propensity, slate)
        self._pending[number] = decision
        if taken is not None:
            decision.drawn = drawn[0]
            values[arms + dimension :] = np.concatenate([context_of(rows, arm, dimension) for arm in shown])
        self._numbers.next = number + 1
        return decision

    def _draw_slate(
        self, rows: Array | Coordinates, weights: Weights, memory: Array | None = None
    ) -> tuple[list[int], Array]:
        """The arm in each slot for the next uniforms, which are not taken, and what a `Decision` holds."""
        arms, slots, dimension = len(rows), len(weights), self._model.dimension
        if slots > arms:
            text = f"slots must be at most as many as the {arms} arms, got slots={slots}"
            raise InvalidInput(f"{text}; where there are few arms, give decide(slots=…) fewer")
        values = np.empty(arms + (1 + slots) * dimension)
        return self._model.draw_slate(rows, weights, values, self._draws, memory), values

    def _look(self, rows: Any) -> None:
        if rows.ndim == 2:
            self._scale.look(rows)
        self._looks -= 1

    def decide_many(
        self,
        contexts: Sequence[Arms] | Array,
        *,
        slots: Slots | None = None,
        names: Sequence[Sequence[str] | None] | None = None,
        notes: Sequence[DecisionNote | None] | None = None,
    ) -> list[Decision]:
        """Make independent decisions for a (B, K, d) array, or for B arrays (K_b, d).

        With a schema, one of them may also be {"actions": …, "context": …}, as `decide` takes them. The
        decisions are those of B calls of `decide`; if one array is refused, no decision is made.

        slots: of every decision, as `decide` takes them.
        names: of the arms of each decision, or None where they have none.
        notes: stored by a durable agent beside each decision, or None where there is nothing to store.
        """
        with self._lock:
            whole = is_whole(contexts, self.dimension)
            blocks: Any = contexts if whole else list(contexts)
            actions, weights = self._model.actions, self._weights(slots)
            called: list[Any] = [None] * len(blocks) if names is None else list(names)
            noted = [None] * len(blocks) if notes is None else list(notes)
            for what, given in (("names", called), ("notes", noted)):
                text = f"must be as many as the {len(blocks)} decisions"
                require(len(given) == len(blocks), what, text, len(given))
            most = len(weights)
            counted: list[Encoded] = []
            if whole and actions is None:
                blocks = as_blocks(blocks, self.dimension)
                if names is not None:
                    called = [None if each is None else as_names(each, blocks.shape[1]) for each in called]
            elif actions is None:
                parts = []
                for index, (block, given) in enumerate(zip(blocks, called, strict=True)):
                    asked = block if _is_request(block) else {"contexts": block}
                    try:
                        parts.append(self._arms(names=given, **asked))
                    except InvalidInput as error:
                        raise in_block(index, error) from None
                blocks = as_blocks([rows for rows, _, _ in parts], self.dimension)
                called = [each for _, each, _ in parts]
                counted = [each for *_, each in parts if each is not None]
            for rows in blocks if self._looks and actions is None else ():
                self._scale.look(rows)
            for block in blocks[:1] if whole else blocks:
                arms = len(block) if actions is None else len(actions.offered(block)[1])
                text = f"must be at most as many as the {arms} arms of each decision"
                require(most <= arms, "slots", text, most)
            with self._step():
                if weights is ONE and self._can_draw_together(blocks, noted):
                    made = self._decide_together(blocks, called, noted)
                else:
                    made = [
                        self.decide(block, slots=slots, names=each, note=note)
                        for block, each, note in zip(blocks, called, noted, strict=True)
                    ]
            for encoded in counted:
                self.count_values(encoded)
            return made

    def _can_draw_together(self, blocks: object, notes: Sequence[DecisionNote | None]) -> bool:
        """Whether one call can draw all: by a posterior, among as many arms with features, no baseline."""
        model = self._model
        return (
            model.actions is None
            and not model.optimism
            and self._draws.each == 1
            and isinstance(blocks, np.ndarray)
            and all(note is None or note.baseline is None for note in notes)
        )

    def _decide_together(
        self,
        contexts: Array,
        called: Sequence[Sequence[str] | None],
        notes: Sequence[DecisionNote | None],
    ) -> list[Decision]:
        """`decide` for sound contexts (B, K, d), where `_can_draw_together`."""
        count, arms, dimension = contexts.shape
        journal, pending, origin = self._journal, self._pending, self._origin
        keys = [note.key for note in notes if note is not None and note.key is not None]
        require(len(set(keys)) == len(keys), "notes", "must have different keys", f"{len(keys)} keys")
        if journal is not None:
            for key in keys:
                journal.require_new(key)
        self._looks = max(self._looks - count, 0)
        values = np.empty((count, arms + 2 * dimension))
        actions = self._model.draw_together(contexts, values, np.array(self._draws.take(count)))
        first, decided = self._numbers.next, []
        self._numbers.next = first + count
        now = 0
        if journal is not None:
            now = journal.append_decisions(first, contexts, values, actions, called, notes)
        for number, action, each, row in zip(
            range(first, first + count), actions, called, values, strict=True
        ):
            name = None if each is None else each[action]
            # A copy keeps the memory of no other decision.
            made = pending[number] = Decision(number, action, row.copy(), arms, name, origin, now)
            decided.append(made)
        return decided

    # --- actions without features --------------------------------------------------------------------

    @property
    def actions(self) -> tuple[str, ...]:
        """Names of the actions without features that it chooses from."""
        with self._lock:
            actions = self._model.actions
            return () if actions is None else tuple(actions.offered()[1])

    @property
    def all_actions(self) -> tuple[str, ...]:
        """`actions` and the retired ones, in the order of the coordinates of `estimate`."""
        with self._lock:
            return () if self._model.actions is None else self._model.actions.names

    def add_actions(self, *names: str) -> None:
        """Add new actions, about which nothing is known, or bring back retired ones."""
        self._change_actions("add", names)

    def retire_actions(self, *names: str) -> None:
        """Stop choosing these actions; one must remain. Their outstanding rewards are still learnt."""
        self._change_actions("retire", names)

    def _change_actions(self, how: str, names: Sequence[str]) -> None:
        actions = self._model.actions
        if actions is None:
            raise InvalidInput("actions must have been given when the agent was made: its arms have features")
        with self._lock, self._step():
            fixed = self.private or self.bound is not None or bool(self._exchange.latest)
            new = [name for name in names if how == "add" and name not in actions]
            text = "must be ones that it has: this agent shares its statistics, whose size is fixed"
            require(not (fixed and new), "actions", text, new[:1])
            self._parts.change_actions(how, names)
            self._append("actions", json.dumps({"how": how, "names": list(names)}))

    def extend_schema(self, schema: Schema) -> None:
        """Append to the schema: features, levels of categories, products. Anything else is refused.

        What is known stays, and new columns start at the prior. An agent that shares its statistics can't:
        their size is fixed, and a private one's records would get longer than its noise is for.
        """
        with self._lock, self._step():
            model = self._model
            if model.schema is None:
                raise InvalidInput(
                    "schema must have been given when the agent was made; create another agent"
                )
            later = model.schema.extend(schema)
            if later is model.schema:
                return
            clips = model.sums is not None and model.sums.bounds is not None
            fixed = self.private or self.bound is not None or clips or bool(self._exchange.latest)
            text = f"must be the one that it has, {model.schema}: this agent shares its statistics"
            remedy = "create another agent"
            require(not fixed, "schema", text, str(schema), remedy)
            prior = self.options.prior
            one = prior is None or not isinstance(prior.mean, tuple)
            text = "must be the one that it has: its prior has a mean for each of its columns"
            require(one, "schema", text, str(schema), remedy)
            self._parts.extend_schema(later)
            self._append("schema", json.dumps(later.to_dict()))

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
        with self._lock:
            if rewards is not None:
                if reward is not None:
                    raise InvalidInput("reward must be left out where rewards are given, which are several")
                if replace:
                    self._replace_many([decision], [rewards], None if person is None else [person])
                    return
                if self._journal is None:
                    count = self._take_rewards(decision, rewards, person)
                else:
                    with self._journal.log.step():
                        count = self._take_rewards(decision, rewards, person)
                self._warn(count)
                return
            if reward is None:
                text = "reward must be a number, got reward of type NoneType"
                raise InvalidInput(f"{text}; where there are several slots, give rewards")
            if replace:
                self._replace_many([decision], [reward], None if person is None else [person])
                return
            if self._journal is None:
                self._take(decision, reward, person)
            else:
                with self._journal.log.step():
                    self._take(decision, reward, person)
            self._warn(1)

    def _take(
        self,
        decision: Decision | str,
        reward: float,
        person: str | int | None = None,
        status: str = "rewarded",
    ) -> None:
        pending, model = self._pending, self._model
        number = known(decision, pending, self._gone)
        limits = model.limits
        fits = type(reward) is float and limits.low <= reward <= limits.high
        value = reward if fits else self._reward(reward)
        made = pending[number]
        self._refuse_slots(made)
        self._enter(made, value, person)
        del pending[number]
        if model.learn(made, value):
            self._exchange.judge_again()
        if self._journal is not None:
            self._journal.append_outcome(number, status, value, person)

    def _take_rewards(self, decision: Decision | str, rewards: Rewards, person: str | int | None) -> int:
        """Take these rewards of a decision's slots, all or none; how many there were."""
        made = self._pending[known(decision, self._pending, self._gone)]
        slate = made.slate
        plain = self._journal is None and not self.private and person is None
        if plain and slate is not None and self._model.learn_slate(made, slate, rewards):
            del self._pending[made.number]  # all at once, as most often
            return len(slate.shown)
        return self._take_outcomes(made, self._outcomes(made, rewards), person)

    def _outcomes(self, made: Decision, rewards: Rewards) -> dict[int, float | None]:
        """The outcomes of a decision's slots, checked; None withdraws a slot."""
        slate = made.slate or Slate(ONE, made.actions, made.names)
        values: dict[int, float | None] = {}
        for slot, reward in slate.slots_of(rewards).items():
            if slot not in slate.waiting:
                action = slate.shown[slot]
                raise AlreadyObserved(f"decision {made.id} has an outcome for action {action} already")
            values[slot] = None if reward is None else self._reward(reward)
        return values

    def _refuse_slots(self, made: Decision) -> None:
        """Refuse one reward for several slots."""
        if made.slate is not None:
            raise _of_one_slot(made.id, len(made.weights))

    def _take_outcomes(
        self, made: Decision, values: Mapping[int, float | None], person: str | int | None
    ) -> int:
        """Take checked outcomes of a decision's slots; how many rewards there were."""
        if made.slate is not None:
            self._end_slots(made, made.slate, values, person)
        else:
            for reward in values.values():
                if reward is None:
                    self._end(made.number, "withdrawn")
                else:
                    self._take(made, reward, person)
        return sum([value is not None for value in values.values()])

    def _end_slots(
        self,
        made: Decision,
        slate: Slate,
        values: Mapping[int, float | None],
        person: str | int | None = None,
        status: str | None = None,
    ) -> None:
        """Take the outcomes of some slots; that of the last slot ends the decision."""
        rewards = {slot: reward for slot, reward in values.items() if reward is not None}
        stream = self.privatizer.stream
        for slot in rewards:
            if stream is not None and stream.ledger.leaf_of(f"{made.id}/{slot}") is not None:
                raise AlreadyObserved(f"decision {made.id} has the reward of slot {slot + 1} in its ledger")
        for slot, value in rewards.items():  # a refusal comes with the first
            self._enter(made, value, person, slot)
        for slot, reward in values.items():
            became = status or ("withdrawn" if reward is None else "rewarded")
            if reward is not None:
                self._parts.learn(made, reward, slot)
            slate.end(slot, reward, became)
            if self._journal is not None:
                self._journal.append_outcome(made.number, became, reward, person, slot=slot + 1)
        if not slate.waiting:
            self._end(made.number, slate.status, slate.total)

    def _end(self, number: int, status: str, reward: float | None = None) -> None:
        """A decision waits no longer; there is nothing more to learn from it."""
        del self._pending[number]
        if self._journal is not None:
            self._journal.append_outcome(number, status, reward)

    def _enter(self, made: Decision, value: float, person: str | int | None, slot: int = 0) -> None:
        """Give the record to the privatizer; to exact sums, learning adds it."""
        if self._journal is not None and not self._counts_persons:
            person = None  # the log keeps it, so that the person's records can be deleted
        if not self.private and person is None:  # exact sums refuse a person
            return
        if made.slate is None:
            self._exchange.privatizer.add(made.chosen(), value, made.id, person)
        else:
            record, weight = f"{made.id}/{slot}", made.slate.weights[slot]
            self._exchange.privatizer.add(made.chosen(slot), value, record, person, weight)

    @property
    def _counts_persons(self) -> bool:
        """Whether its privatizer bounds the records of a person."""
        stream = self.privatizer.stream
        return stream is not None and stream.person_records is not None

    def _reward(self, reward: float) -> float:
        """Check a reward, and convert it to a float; a private agent takes any, since it clips them."""
        value = as_reward(reward)
        if not self.private:
            self._model.limits.check(value)
        return value

    def _gone(self, identity: str) -> FedFairXError:
        """The error that says why no decision of this id is pending."""
        number, status = self._origins.number_in(identity), None
        if number is not None and number < self._numbers.next:
            if self._journal is None:
                return AlreadyObserved(f"decision {identity} has its reward already (or was forgotten)")
            status = self._journal.status_of(number)
        if status is None:
            return UnknownDecision(f"decision must be one that this agent made, got decision={identity!r}")
        reasons = {"withdrawn": "was forgotten", "expired": "has expired", "deleted": "was deleted"}
        why = reasons.get(status, "has its reward already")
        return AlreadyObserved(f"decision {identity} {why}")

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
        with self._lock:
            given = list(rewards)
            if replace:
                self._replace_many(list(decisions), given, persons)
                return
            made = [self._pending[number] for number in self._different(decisions)]
            same = len(made) == len(given)
            require(same, "rewards", f"must be as many as the {len(made)} decisions", len(given))
            values = [self._outcomes_of(*each) for each in zip(made, given, strict=True)]
            whose = as_persons(persons, len(made))
            count = 0
            with self._step():
                for each in zip(made, values, whose, strict=True):
                    count += self._take_outcomes(*each)
            self._warn(count)

    def _outcomes_of(self, made: Decision, given: float | Rewards) -> dict[int, float | None]:
        """The outcomes of a decision's slots from its reward, or from the rewards of several slots."""
        if are_several(given):
            return self._outcomes(made, given)
        self._refuse_slots(made)
        return {0: self._reward(cast("float", given))}

    def _different(self, decisions: Iterable[Decision | str]) -> list[int]:
        """The numbers of these pending decisions, each of which must occur once."""
        numbers = [known(decision, self._pending, self._gone) for decision in decisions]
        if len(set(numbers)) != len(numbers):
            raise AlreadyObserved("a decision occurs twice among these decisions")
        return numbers

    def learn(
        self,
        contexts: Arms,
        rewards: Iterable[float],
        *,
        weights: Iterable[float] | None = None,
        persons: Iterable[str | int] | None = None,
    ) -> None:
        """Learn from a log: contexts (n, d) of arms that were shown elsewhere, and their rewards (n,).

        weights: of the slots (n,) in which they were shown; by default 1.

        An agent whose actions have no features takes their names (n,) instead of contexts; one with a schema
        also takes rows by name, each with all features, shared ones included. Each record counts
        as if this agent had shown the arm: the privatizer bounds it and it will be released. If one record is
        refused, none is taken.
        """
        rows: Any
        encoded: Encoded | None = None
        if self._model.actions is None:
            if self._model.schema is not None and are_described(contexts):
                encoded = self._encode(contexts)
                contexts = encoded.contexts
            rows = as_sound_contexts(cast("Any", contexts), self.dimension)
        else:
            rows = self._model.actions.coordinates(contexts)
        values = as_rewards(rewards, len(rows), self._reward)
        whose = as_persons(persons, len(rows))
        each = None if weights is None else as_row_weights(weights, len(rows))
        if each is not None:
            check_weights(each, self.options.reward_range)
        text = "must be 1 to learn a log privately: which of its rows are one decision is not known"
        known = not self.private or (each is None and self._slots is ONE)
        require(known, "slots", text, len(self._slots))
        with self._lock:
            if self._looks:
                self._look(rows)
            with self._step():
                first = self._numbers.next
                if not self._counts_persons:
                    for person in whose:
                        refuse_person(person)  # it would be stored nowhere
                for place, (row, value, person) in enumerate(zip(rows, values, whose, strict=True)):
                    weight = 1.0 if each is None else float(each[place])
                    made = self._parts.shown(first + place, row, self._origin, weight)
                    self._enter(made, value, person)
                    self._parts.learn(made, value)
                if self._journal is None:
                    self._numbers.next += len(rows)
                else:
                    kind, body = "learn", rows.reshape(len(rows), -1)
                    if each is not None:
                        kind, body = "learn weighted", np.column_stack([body, each])
                    self._journal.append_event(kind, packed_log(body, values), steps=len(rows))
            if encoded is not None:
                self.count_values(encoded)
            self._warn(len(rows))

    def forget(self, decision: Decision | str) -> None:
        """Stop waiting for the reward of a decision."""
        self.forget_many([decision])

    def forget_many(self, decisions: Iterable[Decision | str]) -> None:
        """`forget` several decisions; if one is refused, none is forgotten."""
        with self._lock, self._step():
            for number in self._different(decisions):
                self._give_up(self._pending[number], "withdrawn")

    def _give_up(self, made: Decision, status: str, reward: float | None = None) -> None:
        """No reward will come for a decision, or for those of its slots that wait; or it was this one."""
        if made.slate is not None:
            values = dict.fromkeys(sorted(made.slate.waiting), reward)
            self._end_slots(made, made.slate, values, status=status)
        elif reward is None:
            self._end(made.number, status)
        else:
            self._take(made, reward, status=status)

    def set_window(self, window: float | None, default_reward: float | None = None) -> None:
        """Set the seconds after which `expire` gives up on a reward, and the reward learnt then, if any."""
        fits = window is None or (isinstance(window, int | float) and window > 0)
        require(fits, "window", "must be > 0", window)
        fits = default_reward is None or window is not None
        require(fits, "window", "must be given with default_reward", None)
        try:
            reward = None if default_reward is None else self._reward(default_reward)
        except InvalidInput as error:
            raise InvalidInput(f"default_{error}") from None
        self.window, self.default_reward = window, reward

    def expire(self, now: float | None = None) -> int:
        """Give up on decisions that are older than `window`; return how many.

        `now` is in seconds since 1970. If there is a `default_reward`, it is learnt as their reward.
        """
        with self._lock, self._step():
            if self._journal is None or self.window is None:
                raise InvalidInput("window must be given when the agent is opened, got window=None")
            latest = (self._journal.log.now() if now is None else int(now * 1e6)) - int(self.window * 1e6)
            due = list(takewhile(lambda made: made.time <= latest, self._pending.values()))
            for made in due:
                self._give_up(made, "expired", self.default_reward)
            return len(due)

    def _warn(self, records: int) -> None:
        """Warn about clipping and scale, after all else: the caller may have turned warnings into errors."""
        sums = self._model.sums
        if sums is None or sums.bounds is not None:
            self._exchange.watch.look(records)
        if self._model.limits.contradiction is not None:
            self._model.limits.warn()

    @property
    def warnings(self) -> list[str]:
        """The warnings about the size of contexts and rewards (`ScaleWarning`) since it was opened."""
        said = self._scale.said, self._model.limits.said
        return [text for text in said if text is not None]

    # --- replacing a reward --------------------------------------------------------------------------

    def _replace_many(
        self,
        decisions: Sequence[Decision | str],
        rewards: Sequence[float | Rewards],
        persons: Iterable[str | int] | None,
    ) -> None:
        """Take these rewards, all or none; each replaces the earlier reward of its decision, if any."""
        journal, store = self._journal, self._store
        if journal is None or store is None:
            raise InvalidInput(
                "replace must be left out: an agent in memory keeps no log to replay; use Agent.open"
            )
        count = len(decisions)
        require(len(rewards) == count, "rewards", f"must be as many as the {count} decisions", len(rewards))
        if len({str(getattr(decision, "id", decision)) for decision in decisions}) != count:
            raise AlreadyObserved("a decision occurs twice among these decisions")
        whose = as_persons(persons, count)
        with self._step():
            journal.log.settle()
            first: list[tuple[int, dict[int, float | None], str | int | None]] = []
            wrong: list[tuple[Booked, float]] = []
            for decision, given, person in zip(decisions, rewards, whose, strict=True):
                (made,) = journal.made([self._number(journal, decision)])
                if not made.policy.size:
                    identity = journal.id_of(made.seq)
                    raise ReplacementRefused(f"the content of decision {identity} was dropped or deleted")
                new: dict[int, float | None] = {}
                for slot, value in self._values(journal, made, given).items():
                    found = replacement.booked(journal, made, 0 if made.slots is None else slot + 1)
                    if found is None:
                        new[slot] = value
                    elif self._is_wrong(journal, found, value, person):
                        wrong.append((found, cast("float", value)))
                if new:
                    first.append((made.seq, new, person))
            for number, new, person in first:
                self._take_outcomes(self._pending[number], new, person)
            for found, value in wrong:
                if self.private:
                    self._amend(journal, found, value)
                replacement.replace(journal, found, value)
            for number in sorted({found.made.seq for found, _ in wrong if found.made.slots is not None}):
                replacement.sum_again(journal, number)
            if wrong:
                journal.log.settle()
                store.restore()
        self._warn(count)

    def _number(self, journal: Journal, decision: Decision | str) -> int:
        """The number of a decision in the log, pending or not."""
        try:
            return known(decision, self._pending, self._gone)
        except AlreadyObserved:
            number = journal.origins.number_in(decision.id if isinstance(decision, Decision) else decision)
            if number is None:
                raise
            return number

    def _values(self, journal: Journal, made: Made, given: float | Rewards) -> dict[int, float | None]:
        """Rewards by slot, checked, of a decision in the log."""
        if made.slots is not None:
            slate = Slate.from_json(made.slots, made.names)
            if not are_several(given):
                raise _of_one_slot(journal.id_of(made.seq), len(slate.shown))
        else:
            slate = Slate(ONE, [made.action], None if made.names is None else [made.names[made.action]])
        several = given if are_several(given) else [cast("float", given)]
        values = slate.slots_of(several)
        return {slot: None if value is None else self._reward(value) for slot, value in values.items()}

    def _is_wrong(
        self, journal: Journal, found: Booked, value: float | None, person: str | int | None
    ) -> bool:
        """Whether a reward differs from this one; refuse to replace one that is final."""
        text = "must be a number where one replaces another: what was learnt can't be withdrawn"
        require(value is not None, "rewards", text, None)
        same = person is None or str(person) == found.person
        require(same, "person", "must be the one whose record it is", "another")
        before = found.outcome.reward
        if before == value or (before != before and value != value):
            return False
        self._refuse_released(journal, found)
        return True

    def _refuse_released(self, journal: Journal, found: Booked) -> None:
        identity, seq = journal.id_of(found.outcome.decision), found.outcome.seq
        if seq < journal.snapshot_numbers()[0]:
            raise ReplacementRefused(f"decision {identity} was rewarded before contexts were dropped by age")
        if journal.amendments(journal.log.database.execute).is_undone(seq):
            raise ReplacementRefused(f"the reward of decision {identity} was rolled back; use learn")
        event, stream = replacement.sealed_by(journal, found.outcome), self.privatizer.stream
        if event is None or (stream is not None and stream.is_open(self._record_of(journal, found)[0])):
            return
        why = f"the reward of decision {identity} is in release {event.body.decode()} already"
        if event.kind == "run":
            why = f"decision {identity} was rewarded under an earlier budget"
        elif event.kind == "epoch":
            why = f"decision {identity} was rewarded before the federation's epoch began"
        remedy = "let a new agent learn the right rewards"
        if self.bound is not None or any(name != self.name for name in self._exchange.latest):
            remedy = "create a new run of the federation, in which a new agent learns the right rewards"
        raise ReplacementRefused(f"{why} and can't be replaced; to undo it, {remedy}")

    def _record_of(self, journal: Journal, found: Booked) -> tuple[str, int]:
        """The id of a record in the privacy ledger, and its slot."""
        record, slot = journal.id_of(found.made.seq), max(found.outcome.slot - 1, 0)
        return (record if found.made.slots is None else f"{record}/{slot}"), slot

    def _amend(self, journal: Journal, found: Booked, value: float | None) -> bool:
        """Change the record in the open leaf, or blank it; False if it must stay as it is."""
        outcome, made, person, turn = found.outcome, found.made, found.person, (1, 1)
        if not self._counts_persons:
            person = None
        if person is not None:
            turn = replacement.turn_of(journal, outcome, person)
        stream = self.privatizer.stream
        assert outcome.reward is not None
        assert stream is not None
        (record, slot), weight = self._record_of(journal, found), 1.0
        if made.slots is not None:
            weight = Slate.from_json(made.slots, None).weights[slot]
        more: Any = {"person": person, "turn": turn, "weight": weight}
        if value is None:
            return stream.blank(made.contexts[slot], outcome.reward, record, **more)
        stream.amend(made.contexts[slot], outcome.reward, value, record, **more)
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
        store, fits = self._durable(), isinstance(before, int | float) and 0 <= before < 1e11
        require(fits, "before", "must be a time in seconds since 1970", before)
        if store.log.in_transaction:
            raise InvalidInput("drop_contexts must be called outside of a transaction: it makes its own")
        return store.drop_contexts(before, rule, limit)

    def delete_person(self, person: str | int, *, decisions: Iterable[Decision | str] = ()) -> Deletion:
        """Delete a person's records from a durable agent's log, and rebuild what it has learnt without them.

        An agent that is not private is then what it would be if the decisions had been withdrawn. In a
        private one, records in its messages stay there; `Deletion` says how many.

        decisions: more decisions of this person: ones that wait, or whose rewards came without a person.
        """
        store, whose = self._durable(), str(person)
        journal = store.journal
        with self._lock, self._step():
            journal.log.settle()
            more = {self._number(journal, each) for each in decisions}
            blank, gone, learnt = [], [], []
            withdrawn = shared = 0
            for number in sorted({*erasure.decisions_of(journal, whose), *more}):
                if number in self._pending:
                    self._give_up(self._pending[number], "withdrawn")
                    journal.log.settle()
                    withdrawn += 1
                ended = erasure.outcomes_of(journal, number)
                (made,) = journal.made([number])
                theirs = {each.slot for each in ended if each.person not in (None, whose)}
                if theirs and number not in more:
                    ended = [each for each in ended if each.slot not in theirs]
                    shared += 1
                else:
                    blank.append(number)
                gone += ended
                for each in ended:
                    if each.status == "rewarded" and not each.turn and (each.slot or made.slots is None):
                        found = replacement.booked(journal, made, each.slot)
                        learnt += [] if found is None else [found]
            if not gone and not blank:
                return Deletion(private=self.private)
            return self._delete(store, blank, gone, learnt, withdrawn, shared)

    def _delete(
        self,
        store: AgentStore,
        blank: list[int],
        gone: list[erasure.Ended],
        learnt: list[Booked],
        withdrawn: int,
        shared: int,
    ) -> Deletion:
        """Delete these decisions and outcomes, of which some were learnt, and rebuild the agent."""
        journal = store.journal
        if self.private:
            sent = sum(
                not found.made.policy.size or not self._amend(journal, found, None) for found in learnt
            )
        else:
            sent = sum(replacement.sealed_by(journal, found.outcome) is not None for found in learnt)
        erasure.delete_rows(journal, blank, gone)
        store.snapshot_due = True  # and what was deleted is overwritten
        journal.log.settle()
        for number in sorted({each.decision for each in gone} - {*blank}):
            replacement.sum_again(journal, number)
        reach = journal.snapshot_numbers()[0]
        again = [found.outcome.seq for found in learnt if found.outcome.seq >= reach]
        release = None
        if again:
            release = self._rebuild(store, min(again))
        return Deletion(
            decisions=len(blank),
            rewards=len(learnt),
            withdrawn=withdrawn,
            shared=shared,
            remaining=0 if self.decide_from == "released" else len(learnt) - len(again),
            sent=sent,
            private=self.private,
            release=release,
        )

    def _rebuild(self, store: AgentStore, seq: int) -> int | None:
        """Replay the log from before a step; return the number of a new release, if it made some before.

        Exact sums that were sent are no longer those that the log gives, so the last number is not used for
        these.
        """
        store.log.write("DELETE FROM snapshots WHERE agent = ? AND seq > ?", (store.journal.agent, seq))
        store.log.settle()
        store.restore()
        store.snapshot_due = True
        sums = self._model.sums
        return None if sums is None or not sums.spent else self.release().number

    def roll_back(self, *, to: float) -> Rollback:
        """Return a durable agent that is not private to what it knew at a time, in seconds since 1970.

        The log keeps what has happened since. Decisions since then are marked in it, and those that wait get
        no reward; actions that were added stay, with nothing known about them.
        """
        store = self._durable()
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
        with self._lock, self._step():
            journal.log.settle()
            ask = journal.log.database.execute
            first = erasure.first_step_at(journal, int(to * 1e6), ask)
            if first is None:
                return Rollback(0, 0, 0)
            if first < journal.snapshot_numbers()[0]:
                raise InvalidInput("to must be later: what was learnt before it was dropped by age (keep)")
            waiting = [made for number, made in self._pending.items() if number >= first]
            for made in waiting:
                self._give_up(made, "withdrawn")
            journal.log.settle()
            where = "WHERE agent = ? AND seq >= ?"
            (decisions,) = ask(f"SELECT COUNT(*) FROM decisions {where}", (journal.agent, first))[0]
            before = self.observed
            self._append("rollback", json.dumps({"to": first, "time": int(to * 1e6)}))
            release = self._rebuild(store, first)
            return Rollback(int(decisions), before - self.observed, len(waiting), release)

    def _durable(self) -> AgentStore:
        if self._store is None:
            raise InvalidInput("this agent lives in memory and keeps no log: open it with Agent.open")
        return self._store

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
            with self._step():
                release, new = self._exchange.release(number)
                if new:
                    self._append("release", str(release.number))
                return release

    def _age(self) -> None:
        """Decay sums to now before a message is made or taken: a step of its own, whatever follows."""
        if self._model.aging is not None:
            with self._step():
                if self._model.age():
                    self._append("age", "")

    def past_release(self, number: int) -> Release:
        """A release that was made before, at no cost; `PrivacyError` if it is no longer available."""
        with self._lock:
            return self._exchange.made(number)

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
            with self._step():
                self._exchange.absorb(releases)
                if self._journal is not None:
                    others = {name: each for name, each in releases.items() if name != self.name}
                    sent = {name: release.to_bytes().hex() for name, release in others.items()}
                    self._append("absorb", json.dumps(sent))

    def drop_peers(self, names: Collection[str]) -> None:
        """Drop the releases of these agents, as if they had never sent any. The agent's own release stays."""
        with self._lock, self._step():
            gone = sorted(self._exchange.latest.keys() & set(names) - {self.name})
            if gone:
                self._exchange.drop(gone)
                self._append("part", json.dumps(gone))

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
        with self._lock, self._step():
            if not self.private:
                raise InvalidInput("privatizer must be left out: this agent is not private and has no budget")
            run = 0
            if isinstance(privatizer, Budget):
                if self._store is None:
                    raise InvalidInput("privatizer must be a privatizer: a Budget is for a durable agent")
                privatizer, run = self._store.new_run(privatizer.with_slots(self._slots))
            elif self._store is not None:
                raise InvalidInput("privatizer must be a Budget: this agent's ledger is in its database")
            if not self._exchange.next_run(privatizer):
                self.release()
            self._exchange.begin_run(privatizer)
            self._append("run", str(run))

    def begin_epoch(self, privatizer: Privatizer | Budget) -> None:
        """With secure aggregation, begin an epoch: its rows start from nothing, with noise of their own.

        The total of the epoch before stays part of what is held; the noise of all epochs adds up. Records
        since the last row go into the first one. A durable agent takes a `Budget`. Numbers of rows begin at
        1 again.
        """
        with self._lock, self._step():
            old, run = self.privatizer, self._exchange.run + 1
            if isinstance(privatizer, Budget):
                privatizer, run = self._durable().new_run(privatizer)
            elif self._store is not None:
                raise InvalidInput("privatizer must be a Budget: this agent's ledger is in its database")
            check_privatizer(privatizer, dimension=self.dimension, name=self.name)
            same = privatizer.mechanism.digest() == old.mechanism.digest()
            require(same, "privatizer", "must have the mechanism of the epoch before", "another")
            if not carry_over(old, privatizer):
                raise InvalidInput("privatizer must clip as in the epoch before, and count no persons")
            self._exchange.begin_epoch(privatizer, run)
            self._append("epoch", str(run))

    def add_total(self, total: Release, *, members: int) -> None:
        """With secure aggregation, learn from the last total of an epoch of so many members, not its own."""
        with self._lock, self._step():
            self._exchange.add_total(total, members)
            self._append("total", json.dumps([total.to_bytes().hex(), members]))

    # --- saving --------------------------------------------------------------------------------------

    def state(self) -> AgentState:
        """Everything that it knows, exact to the bit, as one value: agents of equal state decide alike.

        For a durable agent, whose decisions and ledger are in its database, `pending` holds numbers only.
        """
        with self._lock:
            return self._parts.state(whole=self._store is None)

    def save(self, path: str | PathLike[str]) -> None:
        """Write the agent to a JSON file from which `load` continues; the file is replaced atomically.

        The file is as secret as the data. It does not hold keys or a user's own merit function.
        """
        with self._lock:
            names = None if self._model.actions is None else list(self._model.actions.names)
            body = {
                **plain_value(AgentSettings.of(self.name, self.dimension, names, self.options, None)),
                **plain_value(self._parts.state(whole=True)),
                "next_number": self._numbers.next,
                "origins": [{"first": n, "origin": o} for n, o in self._origins.used(self._numbers.next)],
                "decide_from": self.decide_from,
                "private": self.private,
            }
        files.write(body, path)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        *,
        merit: Merit | None = None,
        privatizer: Callable[[dict[str, Any]], Privatizer] | None = None,
    ) -> Self:
        """Load an agent that `save` wrote: it continues with the same decisions, bit for bit.

        Only the noise of future releases and the ids of future decisions are new, so that two agents loaded
        from one file never share them.

        merit: your own merit (`Custom`), which is not in the file.
        privatizer: makes a private agent's privatizer from its stored state; the file holds no keys.
        """
        body = files.read(path)
        settings = read_value(body, AgentSettings, "agent")
        state = read_value(body, AgentState, "agent")
        saved = read_value(body, files.SavedAgent, "agent")
        if not 0 <= saved.next_number <= MOST:
            raise StateError(f"agent.next_number must be from 0 to {MOST}")
        if settings.dimension < 1 or len(state.own) != packed_size(settings.dimension):
            raise StateError("agent.own must fit agent.dimension")  # before anything of that size is made
        made = files.stored_privatizer(
            state.privatizer, settings.dimension, private=saved.private, make=privatizer
        )
        try:
            agent = cls(
                **settings.arms(), options=settings.options(merit), privatizer=made, name=settings.name
            )
        except InvalidInput as error:
            raise StateError(f"the file's settings don't make an agent: {error}") from None
        if agent.decide_from != saved.decide_from or agent.private != saved.private:
            raise StateError(
                f"privatizer must decide from {saved.decide_from!r}, as when the agent was saved, "
                f"got {agent.decide_from!r}"
            )
        agent._parts.restore(state)
        agent._numbers.next = saved.next_number
        agent._origins.given = [(each.first, each.origin) for each in saved.origins]
        actions = agent._model.actions
        for each in state.pending:
            if not isinstance(each, Waiting):
                raise StateError("agent.pending must be decisions, got a number")
            waiting = waiting_decision(each, agent.dimension, saved.next_number)
            named = waiting.names is not None and all(name in (actions or ()) for name in waiting.names)
            if actions is not None and not named:
                raise StateError("the file has a pending decision for an action that the agent does not have")
            agent._pending[waiting.number] = waiting
        agent._origin = agent._origins.begin(agent._numbers.next)
        return agent

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
        stored one. Every call is on disk before it returns,
        or has changed nothing. Only one process at a time can have it open: `close` it, or use it as a
        context manager.

        name: which agent, if the database holds several; one process must open all of them.
        dimension, schema, actions, options, seed: as for `Agent`, like other keywords.
        budget: makes the agent private (`privacy.Budget`); ledger and noise key are in the same database. If
            there is a schema, its bounds follow from it and from `reward_range`, unless they are given. For
            an agent that is not private, `bounds` clip records before others get their sums.
        window, default_reward: seconds after which `expire` gives up on a reward, and the reward learnt then;
            they may change from one opening to the next.
        confirm: asks the peers whether this is the latest copy, before anything is sent
            (`privacy.refuse_old_copy`).
        """
        given: Any = {key: value for key, value in keywords.items() if value is not None}
        bounds = given.get("bounds") if options is None else options.bounds
        alone = budget is None or bounds is None
        require(alone, "bounds", "must be left out if a budget is given, which has its own", bounds)
        slots = as_weights(given.get("slots", ONE) if options is None else options.slots)
        sharing = bounds if budget is None else budget.with_slots(slots)
        log = open_log(place)
        with _opening(log):
            store = find_store(log, name)
            if store is not None:
                if schema is not None and store.settings.features is None:
                    store.adopt(as_schema(schema))
                settings = store.settings
                merit = given.get("merit") if options is None else options.merit
                kept = settings.options(merit if settings.merit["kind"] == files.CUSTOM else None)
                made = store.first_privatizer()
                agent = cls(**settings.arms(), options=kept, privatizer=made, name=settings.name)
                if budget is not None:
                    if agent.schema is not None and budget.bounds is None and store.budgets:
                        budget = replace(budget, bounds=store.budgets[-1].bounds)
                    sharing = budget.with_slots(as_weights(kept.slots))
                size = dimension if agent.schema is None else None
                store.refuse_others(kept, sharing, dimension=size, options=options, keywords=given)
                agent._attach_to(store)
                store.restore()
                agent._refuse_actions(actions)
                if schema is not None:
                    agent.extend_schema(as_schema(schema))
                size = agent.dimension
                require(dimension in (None, size), "dimension", f"must be the stored one, {size}", dimension)
                agent.set_window(window, default_reward)
            else:
                if dimension is None and actions is None and schema is None:
                    which = f"no agent{'' if name is None else f' {name!r}'} in {log.database.place}"
                    raise InvalidInput(f"dimension, schema or actions must be given: there is {which}")
                asked, (dimension, arms) = (
                    Options.given(options, **given),
                    as_arms(dimension, actions, schema),
                )
                if schema is not None and budget is not None and not (budget.bounds or budget.centring):
                    nonnegative = not schema.has_numbers
                    follows = Bounds.for_range(asked.reward_range, norm=schema.norm, nonnegative=nonnegative)
                    sharing = replace(budget, bounds=follows).with_slots(slots)
                budgeted = isinstance(sharing, Budget) or not asked.private
                require(budgeted, "budget", f"must be given for {asked.composed.name}", None)
                require(name is None or isinstance(name, str), "name", "must be a string", name)
                settings = AgentSettings.of(
                    name or f"agent-{secrets.token_hex(4)}",
                    dimension,
                    None if arms is None else list(arms.names),
                    asked.for_agent(arms_of_their_own=arms is not None),
                    None if schema is None else schema.to_dict(),
                )
                with log.step():
                    store = make_store(log, settings, sharing)
                    made = store.first_privatizer()
                    agent = cls(
                        **settings.arms(), options=asked, privatizer=made, name=settings.name, seed=seed
                    )
                    agent._attach_to(store)
                    agent.set_window(window, default_reward)  # an agent that is refused is not stored
                    store.take_snapshot()
            if confirm is not None:
                last = agent._exchange.latest.get(agent.name)
                confirm(agent.released, "" if last is None else last.digest)
            agent._origin = store.follow()  # last: after an error, nothing of the agent may stay in the log
        return agent

    def _attach_to(self, store: AgentStore) -> None:
        self._store, self._journal, store.parts = store, store.journal, self._parts
        self._lock = store.log.lock
        self._numbers = store.log.numbers
        if self._model.aging is not None:
            self._model.aging.clock = store.clock
        self._origins = store.journal.origins

    def _refuse_actions(self, given: Sequence[str] | None) -> None:
        """Refuse actions that the agent does not have."""
        if given is None:
            return
        actions = self._model.actions
        if actions is None:
            raise InvalidInput("actions must be left out: this agent's arms have features")
        new = [name for name in given if name not in actions]
        require(not new, "actions", "must be ones that it has", new[:1], "add others once it is open")

    def _step(self) -> AbstractContextManager[Any]:
        """One step of a durable agent, written to disk as a whole or not at all."""
        return nullcontext() if self._journal is None else self._journal.log.step()

    def _append(self, kind: str, body: str) -> None:
        """Store an event, inside a step."""
        if self._journal is not None:
            self._journal.append_event(kind, body.encode())

    @property
    def durable(self) -> bool:
        """Whether it is stored in a database (`Agent.open`)."""
        return self._journal is not None

    @property
    def journal(self) -> Journal:
        """The stored decisions, by id, by key or by time."""
        if self._journal is None:
            raise InvalidInput("this agent lives in memory and has no journal: open it with Agent.open")
        return self._journal

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Make all steps inside one transaction, which is on disk when it ends; on failure none of them is.

        Results of a step must not be passed on before the end. A step that is refused (`InvalidInput` and the
        like) changes nothing, and the others stay.
        """
        with self._lock, self._step():
            yield

    def verify(self) -> None:
        """Replay a durable agent's whole log; `StateError` unless it ends in the same state, to the bit.

        It takes about as long as learning the rewards took, and blocks all other calls.
        """
        self._durable().verify()

    def close(self) -> None:
        """Close the database; an agent in memory has none."""
        if self._store is not None:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()


@contextmanager
def _opening(log: Log) -> Iterator[None]:
    """Hold the lock of a log that other agents may be using, and close the log if opening fails."""
    with log.lock:
        try:
            yield
        except BaseException:
            log.close()
            raise


def _is_request(block: object) -> bool:
    """Whether it is {"actions": …, "context": …}, and not {name: features} of actions."""
    return isinstance(block, Mapping) and "actions" in block and block.keys() <= {"actions", "context"}


def _of_one_slot(identity: str, slots: int) -> InvalidInput:
    """The error for one reward of several slots."""
    return InvalidInput(f"reward is of one slot, and decision {identity} has {slots}: use rewards")
