"""The agent: it decides, observes, shares what it learns, and can be saved, or live in a database.

What it knows is in `model`, what it exchanges with others in `exchange`, how it is kept in `persistence`.
"""

from __future__ import annotations

import json
import secrets
import threading
from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager, nullcontext
from itertools import takewhile
from os import PathLike
from typing import Any, Self, Unpack

import numpy as np
from numpy.typing import ArrayLike

from fedfairx.agent import settings as files
from fedfairx.agent.actions import as_arms, context_of
from fedfairx.agent.decision import Decision, known
from fedfairx.agent.display import privacy_in_short
from fedfairx.agent.draws import Draws
from fedfairx.agent.exchange import Exchange
from fedfairx.agent.input_warnings import LOOKS, ScaleWatch
from fedfairx.agent.model import Model
from fedfairx.agent.options import Keywords, Options
from fedfairx.agent.partners import Partners
from fedfairx.agent.persistence import AgentStore, find_store, make_store
from fedfairx.agent.settings import AgentSettings, plain_value, read_value
from fedfairx.agent.state import MOST, AgentState, Parts, Waiting, waiting_decision
from fedfairx.agent.validation import (
    Check,
    as_contexts,
    as_names,
    as_persons,
    as_reward,
    as_rewards,
    as_row,
    as_sound_contexts,
    check_privatizer,
)
from fedfairx.core.merit import Merit
from fedfairx.core.posterior import Prior
from fedfairx.core.statistics import packed_size
from fedfairx.errors import (
    AlreadyObserved,
    FedFairXError,
    InvalidInput,
    ReplacementRefused,
    StateError,
    UnknownDecision,
    require,
)
from fedfairx.privacy import Budget, NonPrivateSums, Privatizer, Release
from fedfairx.privacy.ledger.rollback import Confirm, message_digest
from fedfairx.storage import replacement
from fedfairx.storage.decision_ids import IdPrefixes
from fedfairx.storage.journal import Journal
from fedfairx.storage.open_log import open_log
from fedfairx.storage.records import DecisionNote, packed_log
from fedfairx.storage.replacement import Booked
from fedfairx.storage.rollback_marker import leave_mark
from fedfairx.storage.transaction_log import Log, StepCounter
from fedfairx.util.arrays import Array, Coordinates
from fedfairx.util.formatting import html_table

Given = tuple[Decision | str, float, str | int | None]  # decision, reward, person


class Agent:
    """Chooses arms in proportion to their merit, and learns from rewards, alone or with others.

    dimension: d, how many numbers describe an arm.
    actions: names of arms that have no features, instead: each has an expected reward of its own. More can be
        added, and some retired, later.
    options: how it decides and learns, as one object; or give its fields as keywords (`Options`):
    rule: where shares come from: "expected-merit", "greedy" (the merit of the expected reward), "thompson"
        (of a drawn parameter), or "optimism" (the paper's).
    merit: what a reward is worth, one of `fedfairx.merit`; steeper ones give the best arms more. By default
        7 % of the reward range better doubles the share; without a range it is taken to be (0, 1).
    reward_range: (low, high) that no reward leaves, if known: it sets the defaults of merit and prior, and
        other rewards are refused.
    prior: what is believed before the first reward (`Prior`), by every rule but "optimism".
    minimum_share: that every arm gets in any case, in [0, 1).
    confidence, solver, shift: of "optimism"; see `Options`.
    partners: "alike", one θ for all, or "differ": whom to believe, and how far, is learnt from its own
        rewards; for the rules of the posterior, and not where decisions come from releases alone. The
        attribute of that name is a table of who they are, what they weigh, and why.
    privatizer: what stands between this agent's records and its messages, as `fedfairx.privacy.private`
        makes it; without one `release` gives exact sums, which are NOT private.
    name: what others know its releases by, and must differ from theirs; by default it is random.
    seed: of the draws; without one they differ from run to run.

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

    Threads may share an agent: a lock makes each call whole. Whose turn is next is then the threads' affair,
    and a seed repeats a run only if the order of calls is repeated. A `ClippingWarning` says when a private
    agent's bounds move more than 1 % of its records.
    """

    window: float | None = None  # seconds after which a durable agent's decision may expire
    default_reward: float | None = None  # that it has then earned
    bound: str | None = None  # the federation whose terms its budget is; see `Member`

    def __init__(
        self,
        dimension: int | None = None,
        *,
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
        dimension, arms = as_arms(dimension, actions)
        if privatizer is None:
            privatizer = NonPrivateSums(dimension)
        check_privatizer(privatizer, dimension=dimension, name=name)
        self.name: str = name or privatizer.owner or f"agent-{secrets.token_hex(4)}"
        self.options = asked.for_agent(arms_of_their_own=arms is not None)
        one = arms is None or self.options.prior is None or not isinstance(self.options.prior.mean, tuple)
        require(one, "prior", "must have one mean for all actions, since more can be added", "a tuple")
        decide_from = privatizer.guarantee.decide_from
        self._model = Model(dimension, self.options, arms, decide_from=decide_from, sums=None)
        self._exchange = Exchange(self.name, self._model, privatizer)
        self.private = self._model.sums is None
        self._draws = Draws(seed, self._model.uniforms_each)
        self._pending: dict[int, Decision] = {}  # by number, in order
        self._parts = Parts(self._model, self._exchange, self._draws, self._pending)
        self._store: AgentStore | None = None
        self._journal: Journal | None = None  # the store's
        self._lock = threading.RLock()
        self._numbers = StepCounter()
        self._origins = IdPrefixes()
        self._origin = self._origins.begin(0)
        self._looks = LOOKS
        self._scale = ScaleWatch(self._expected_length())

    def _expected_length(self) -> float:
        """The length that contexts have if the prior or the confidence is right."""
        options = self.options
        if options.prior is None:
            assert options.confidence is not None
            return 1.0 / options.confidence.parameter_norm
        assert options.merit is not None
        own = self._model.actions is not None
        default = Prior.for_merit(options.merit, reward_range=options.reward_range, arms_of_their_own=own)
        return default.sd / options.prior.sd

    # --- what it is ----------------------------------------------------------------------------------

    @property
    def dimension(self) -> int:
        """d: numbers that describe an arm, or the actions without features, retired ones too."""
        return self._model.dimension

    @property
    def rule(self) -> str:
        """Where shares come from."""
        return str(self.options.rule)

    @property
    def merit(self) -> Merit:
        """What a reward is worth."""
        assert self.options.merit is not None
        return self.options.merit

    @property
    def decide_from(self) -> str:
        """What decisions come from: "released+local", "own+released" or "released"; see `agent.model`."""
        return self._model.decide_from

    @property
    def privatizer(self) -> Privatizer:
        """What stands between its records and its messages."""
        return self._exchange.privatizer

    def __repr__(self) -> str:  # settings and counts alone: such lines end up in logs
        shape = f"actions={list(self.actions)}" if self.actions else f"dimension={self.dimension}"
        kind = "private, " if self.private else ""
        return (
            f"Agent({self.name!r}, {shape}, rule={self.rule!r}, merit={self.merit!r}, "
            f"{kind}{self.observed} observed, {self.pending} pending)"
        )

    def _repr_html_(self) -> str:
        rows = [
            ("actions", ", ".join(self.actions)) if self.actions else ("dimension", self.dimension),
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
        """Rewards that it has taken, those of `learn` too."""
        return self._model.observed

    @property
    def pending(self) -> int:
        """Decisions whose reward has not come."""
        return len(self._pending)

    @property
    def model_version(self) -> int:
        """Grows with every reward and every message that it takes."""
        return self.observed + sum([release.number for release in self._exchange.latest.values()])

    @property
    def gram(self) -> Array:
        """V = λI + Gram (d, d), as the next decision will use it."""
        with self._lock:
            return self._model.gram

    @property
    def moment(self) -> Array:
        """b (d,), and what the prior's mean adds to it."""
        with self._lock:
            return self._model.learner.moment

    @property
    def estimate(self) -> Array:
        """θ̂ = V⁻¹ b (d,)."""
        with self._lock:
            return np.asarray(self._model.learner.inverse @ self._model.learner.moment)

    @property
    def radius(self) -> float:
        """√β, the half-width of the confidence region in the norm of V.

        Of the rules that have a posterior σ: one standard deviation of it in that norm.
        """
        return self._model.learner.radius

    @property
    def noise_sd(self) -> float:
        """σ of the rewards as this agent has it: assumed, or learnt from its own rewards."""
        return self._model.noise_sd

    @property
    def growth(self) -> float:
        """log(det V / det V at the last absorb): what the baseline B1 watches."""
        return self._model.growth

    @property
    def reward_limits(self) -> tuple[float, float]:
        """The smallest and the largest reward that it takes now."""
        return self._model.limits.ends

    def own_sums(self) -> Array | None:
        """Packed exact sums of all its own records; None of an agent that decides from releases alone."""
        with self._lock:
            return self._model.own_sums()

    @property
    def held(self) -> dict[str, Release]:
        """The latest release of every agent that it has one of, its own too, by name."""
        with self._lock:
            return dict(self._exchange.latest)

    @property
    def partners(self) -> Partners:
        """Whose releases it holds, how far each is believed now, and why: a table, by name."""
        with self._lock:
            return self._exchange.partners

    def policy(self, contexts: ArrayLike | Sequence[str] | None = None) -> Array:
        """(K,) the probability of every arm if `decide` were called now; nothing is drawn or changed.

        By Thompson's rule it is the policy of the parameter that the next decision will draw.
        """
        with self._lock:
            rows, _ = self._arms(contexts)
            arms = len(rows)
            values = np.empty(arms + 2 * self.dimension)
            self._model.draw(rows, values, self._draws, self._model.learner.memory.copy())
        return values[:arms]

    # --- deciding ------------------------------------------------------------------------------------

    def decide(
        self,
        contexts: ArrayLike | Sequence[str] | None = None,
        *,
        names: Sequence[str] | None = None,
        note: DecisionNote | None = None,
    ) -> Decision:
        """Draw an arm for a (K, d) array of contexts; K may change from call to call.

        With `names`, one for each arm, `decision.name` is that of the drawn one. An agent whose actions have
        no features takes the names of those that can be chosen now, or nothing for all of them. `note` is
        what a durable agent keeps beside the decision; where it names a baseline's row, that is the action
        taken and learnt from.
        """
        with self._lock:
            rows, called = self._arms(contexts, names)
            if self._journal is None:
                return self._decide(rows, called, note)
            with self._journal.log.step():
                if note is not None and note.key is not None:
                    self._journal.require_new(note.key)
                made = self._decide(rows, called, note)
                made.time = self._journal.append_decision(
                    made.number, rows, made._values, made.action, made.drawn, made.probability, called, note
                )
                return made

    def _arms(
        self, contexts: ArrayLike | Sequence[str] | None, names: Sequence[str] | None = None
    ) -> tuple[Array | Coordinates, list[str] | None]:
        """What is chosen from, and its names: contexts (K, d), or coordinates (K,) of actions without any."""
        model = self._model
        if model.actions is not None:
            require(names is None, "names", "must be left out: this agent's actions have names", names)
            return model.actions.offered(contexts)
        rows = as_contexts(contexts, model.dimension)  # type: ignore[arg-type]
        return rows, None if names is None else as_names(names, rows.shape[0])

    def _decide(
        self, rows: Array | Coordinates, called: list[str] | None, note: DecisionNote | None
    ) -> Decision:
        model = self._model
        arms, dimension = len(rows), model.dimension
        taken = propensity = None
        if note is not None:
            baseline = as_row(note.baseline, arms)
            taken = None if note.mode == "live" else baseline
        values = np.empty(arms + 2 * dimension)
        number = self._numbers.next
        drawn = model.draw(rows, values, self._draws)
        if self._looks:
            self._look(rows)  # before anything changes, since the warning may be an error
        self._draws.advance()
        action = drawn if taken is None else taken
        name = None if called is None else called[action]
        if note is not None:
            propensity = note.propensity(action, float(values[action]))
        decision = Decision(number, action, values, arms, name, self._origin, 0, propensity)
        self._pending[number] = decision
        if taken is not None:
            decision.drawn = drawn
            values[arms + dimension :] = context_of(rows, taken, dimension)
        self._numbers.next = number + 1
        return decision

    def _look(self, rows: Any) -> None:
        if rows.ndim == 2:
            self._scale.look(rows)
        self._looks -= 1

    def decide_many(self, contexts: Sequence[ArrayLike | Sequence[str]] | Array) -> list[Decision]:
        """Independent decisions from one state of knowledge: a (B, K, d) array, or B arrays (K_b, d).

        The same decisions as B calls of `decide`, and none of them if one of the arrays is refused.
        """
        with self._lock:
            blocks: Sequence[Any] = list(contexts)
            if self._model.actions is None:
                blocks = [as_sound_contexts(block, self.dimension) for block in blocks]
                for rows in blocks if self._looks else ():
                    self._scale.look(rows)
            else:
                for block in blocks:
                    self._model.actions.offered(block)
            with self._step():
                return [self.decide(block) for block in blocks]

    # --- actions without features --------------------------------------------------------------------

    @property
    def actions(self) -> tuple[str, ...]:
        """Names of the actions that it chooses from, where they have no features."""
        with self._lock:
            actions = self._model.actions
            return () if actions is None else tuple(actions.offered()[1])

    @property
    def all_actions(self) -> tuple[str, ...]:
        """The same with those that were retired, in the order of the coordinates of `estimate`."""
        with self._lock:
            return () if self._model.actions is None else self._model.actions.names

    def add_actions(self, *names: str) -> None:
        """Choose from these too, from now on: new ones, of which nothing is known, or retired ones again."""
        self._change_actions("add", names)

    def retire_actions(self, *names: str) -> None:
        """Choose from these no longer; one must be left. Rewards that are still to come are learnt."""
        self._change_actions("retire", names)

    def _change_actions(self, how: str, names: Sequence[str]) -> None:
        actions = self._model.actions
        if actions is None:
            raise InvalidInput("actions must have been given when the agent was made: its arms have features")
        with self._lock, self._step():
            fixed = self.private or self.bound is not None or bool(self._exchange.latest)
            new = [name for name in names if how == "add" and name not in actions]
            text = "must be known: this agent shares its statistics, whose size is fixed"
            require(not (fixed and new), "actions", text, new[:1])
            self._parts.change_actions(how, names)
            self._append("actions", json.dumps({"how": how, "names": list(names)}))

    # --- observing -----------------------------------------------------------------------------------

    def observe(
        self,
        decision: Decision | str,
        *,
        reward: float,
        person: str | int | None = None,
        replace: bool = False,
    ) -> None:
        """Take the reward of a decision: at once or later, in any order, each once.

        A reward outside of the agent's `reward_range` is refused; without a range, one that is absurdly large
        (docs/howto/keep-an-agent.md). A private agent takes any number, since a refusal would show in the
        public count, and clips it. `person` says whose record it is, for a privatizer that bounds a person's
        records (`Budget.person_records`).

        With `replace` a durable agent takes it in the place of one that was booked wrongly, and is then as if
        that had never come; what is in a release stays (`ReplacementRefused`).
        """
        with self._lock:
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
        self._enter(made, value, person)
        del pending[number]
        if model.learn(made, value):
            self._exchange.judge_again()
        if self._journal is not None:
            self._journal.append_outcome(number, status, value, person)

    def _enter(self, made: Decision, value: float, person: str | int | None) -> None:
        """Give the record to the privatizer, unless its sums are exact, which learning adds to."""
        if self.private or person is not None:  # which exact sums refuse
            self._exchange.privatizer.add(made.chosen(), value, made.id, person)

    def _reward(self, reward: float) -> float:
        """A reward that may be taken, as a float: any, where it will be clipped."""
        value = as_reward(reward)
        if not self.private:
            self._model.limits.check(value)
        return value

    def _gone(self, identity: str) -> FedFairXError:
        """Why no decision of this id is pending."""
        number = self._origins.number_in(identity)
        if number is None or number >= self._numbers.next:
            return UnknownDecision(f"decision must be one that this agent made, got decision={identity!r}")
        if self._journal is None:
            return AlreadyObserved(f"decision {identity} has its reward already (or was forgotten)")
        status = self._journal.status_of(number)
        if status is None:
            return UnknownDecision(f"decision must be one that this agent made, got decision={identity!r}")
        why = {"withdrawn": "was forgotten", "expired": "has expired"}.get(status, "has its reward already")
        return AlreadyObserved(f"decision {identity} {why}")

    def observe_many(
        self,
        decisions: Iterable[Decision | str],
        rewards: Iterable[float],
        persons: Iterable[str | int] | None = None,
        *,
        replace: bool = False,
    ) -> None:
        """`observe` for several; when one of them is refused, none has been taken."""
        with self._lock:
            if replace:
                self._replace_many(list(decisions), list(rewards), persons)
                return
            numbers = self._different(decisions)
            values = [self._reward(reward) for reward in rewards]
            same = len(numbers) == len(values)
            require(same, "rewards", f"must be as many as the {len(numbers)} decisions", len(values))
            whose = as_persons(persons, len(numbers))
            with self._step():
                for number, value, person in zip(numbers, values, whose, strict=True):
                    self._take(self._pending[number], value, person)
            self._warn(len(values))

    def _different(self, decisions: Iterable[Decision | str]) -> list[int]:
        """The numbers of pending decisions; each may be named once."""
        numbers = [known(decision, self._pending, self._gone) for decision in decisions]
        if len(set(numbers)) != len(numbers):
            raise AlreadyObserved("a decision occurs twice among these decisions")
        return numbers

    def learn(
        self,
        contexts: ArrayLike | Sequence[str],
        rewards: Iterable[float],
        *,
        persons: Iterable[str | int] | None = None,
    ) -> None:
        """Start from a log: contexts (n, d) of arms that somebody has shown, and their rewards (n,). An agent
        whose actions have no features takes their names (n,).

        Each is a record as if this agent had shown the arm: the privatizer bounds it and it will be released.
        When one of them is refused, none has been taken.
        """
        rows: Array | Coordinates
        if self._model.actions is None:
            rows = as_sound_contexts(contexts, self.dimension)
        else:
            rows = self._model.actions.coordinates(contexts)
        values = as_rewards(rewards, len(rows), self._reward)
        whose = as_persons(persons, len(rows))
        with self._lock:
            if self._looks:
                self._look(rows)
            with self._step():
                self._learn_log(rows, values, whose)
            self._warn(len(rows))

    def _learn_log(self, rows: Any, values: list[float], whose: Sequence[str | int | None]) -> None:
        first = self._numbers.next
        for place, (row, value, person) in enumerate(zip(rows, values, whose, strict=True)):
            made = self._parts.shown(first + place, row, self._origin)
            self._enter(made, value, person)
            self._parts.learn(made, value)
        if self._journal is None:
            self._numbers.next += len(rows)
        else:
            self._journal.append_event(
                "learn", packed_log(rows.reshape(len(rows), -1), values), steps=len(rows)
            )

    def forget(self, decision: Decision | str) -> None:
        """Give up on a reward that will never come."""
        self.forget_many([decision])

    def forget_many(self, decisions: Iterable[Decision | str]) -> None:
        """`forget` for several; when one of them is refused, none has been forgotten."""
        with self._lock, self._step():
            for number in self._different(decisions):
                del self._pending[number]
                if self._journal is not None:
                    self._journal.append_outcome(number, "withdrawn", None)

    def set_window(self, window: float | None, default_reward: float | None = None) -> None:
        """After how many seconds `expire` gives up on a reward, and what it then was, if anything."""
        fits = window is None or (isinstance(window, int | float) and window > 0)
        require(fits, "window", "must be > 0", window)
        fits = default_reward is None or window is not None
        require(fits, "window", "must be given with default_reward", None)
        self.window = window
        self.default_reward = None if default_reward is None else self._reward(default_reward)

    def expire(self, now: float | None = None) -> int:
        """Give up on decisions older than the `window` that the agent was opened with, and say how many.

        `now` is in seconds since 1970. With a `default_reward` that is what such a decision has earned.
        """
        with self._lock, self._step():
            if self._journal is None or self.window is None:
                raise InvalidInput("window must be given when the agent is opened, got window=None")
            latest = (self._journal.log.now() if now is None else int(now * 1e6)) - int(self.window * 1e6)
            due = list(takewhile(lambda made: made.time <= latest, self._pending.values()))
            for made in due:
                if self.default_reward is None:
                    del self._pending[made.number]
                    self._journal.append_outcome(made.number, "expired", None)
                else:
                    self._take(made, self.default_reward, status="expired")
            return len(due)

    def _warn(self, records: int) -> None:
        """After so many records: last of all, since the owner may have made a warning an error."""
        sums = self._model.sums
        if sums is None or sums.bounds is not None:
            self._exchange.watch.look(records)
        if self._model.limits.contradiction is not None:
            self._model.limits.warn()

    # --- replacing a reward --------------------------------------------------------------------------

    def _replace_many(
        self,
        decisions: Sequence[Decision | str],
        rewards: Sequence[float],
        persons: Iterable[str | int] | None,
    ) -> None:
        if self._journal is None:
            raise InvalidInput(
                "replace must be left out: an agent in memory keeps no log to replay; use Agent.open"
            )
        count = len(decisions)
        require(len(rewards) == count, "rewards", f"must be as many as the {count} decisions", len(rewards))
        identities = [getattr(decision, "id", decision) for decision in decisions]
        if len({str(identity) for identity in identities}) != count:
            raise AlreadyObserved("a decision occurs twice among these decisions")
        whose = as_persons(persons, count)
        with self._step():
            self._take_or_replace(self._journal, list(zip(decisions, rewards, whose, strict=True)))
        self._warn(count)

    def _take_or_replace(self, journal: Journal, given: Sequence[Given]) -> None:
        """Inside a step: take these rewards, all or none, each in the place of another if there is one."""
        journal.log.settle()
        waiting: list[Given] = []
        wrong: list[tuple[Booked, float]] = []
        for decision, reward, person in given:
            found = self._booked(journal, decision)
            value = self._reward(reward)
            if found is None:
                waiting.append((decision, value, person))
                continue
            whose = person is None or str(person) == found.person
            require(whose, "person", "must be the one whose record it is", "another")
            before = found.outcome.reward
            if before != value and not (before != before and value != value):
                self._refuse_released(journal, found)
                wrong.append((found, value))
        for each in waiting:
            self._take(*each)
        if not wrong:
            return
        for found, value in wrong:
            if self.private:
                self._amend(journal, found, value)
            replacement.replace(journal, found, value)
        journal.log.settle()
        assert self._store is not None
        self._store.restore()

    def _booked(self, journal: Journal, decision: Decision | str) -> Booked | None:
        """What is booked for a decision; None if it waits for its reward. Others are refused."""
        found: list[Booked] = []

        def gone(identity: str) -> FedFairXError:
            number = journal.origins.number_in(identity)
            there = None if number is None else replacement.booked(journal, number)
            if there is not None:
                found.append(there)
            return self._gone(identity)

        try:
            known(decision, self._pending, gone)
        except AlreadyObserved:
            if not found:
                raise
            return found[0]
        return None

    def _refuse_released(self, journal: Journal, found: Booked) -> None:
        event = replacement.sealed_by(journal, found.outcome)
        if event is None:
            return
        identity = journal.id_of(found.outcome.decision)
        federated = self.bound is not None or any(name != self.name for name in self._exchange.latest)
        remedy = (
            "create a new run of the federation, in which a new agent learns the right rewards"
            if federated
            else "let a new agent learn the right rewards"
        )
        if event.kind == "run":
            why = f"decision {identity} was rewarded under an earlier budget"
        else:
            why = f"the reward of decision {identity} is in release {event.body.decode()} already"
        raise ReplacementRefused(f"{why} and can't be replaced; to be without it, {remedy}")

    def _amend(self, journal: Journal, found: Booked, value: float) -> None:
        """Change the record in the open leaf."""
        identity = journal.id_of(found.outcome.decision)
        more: dict[str, Any] = {}
        if found.person is not None:
            more = {"person": found.person, "turn": replacement.turn_of(journal, found.outcome, found.person)}
        assert found.outcome.reward is not None
        stream = self.privatizer.stream
        assert stream is not None
        stream.amend(found.made.context, found.outcome.reward, value, identity, **more)

    # --- sharing -------------------------------------------------------------------------------------

    @property
    def released(self) -> int:
        """The number of its own latest release; 0 before the first."""
        return self._exchange.released

    @property
    def unreleased(self) -> int:
        """Rewards that it has taken since its latest release."""
        return self._model.local_count

    def release(self, number: int | None = None) -> Release:
        """Close the open leaf and give what may leave this agent: its cumulative statistics, privatized.

        What was observed until now is in the release, exactly once; what comes next is in the next one. After
        a release that was interrupted the next call gives that one, which lacks what came since. A past
        `number` is given again, and costs nothing.
        """
        with self._lock, self._step():
            release, new = self._exchange.release(number)
            if new:
                self._append("release", str(release.number))
            return release

    def past_release(self, number: int) -> Release:
        """A release that was made before, at no cost; `PrivacyError` if it can't be given any more."""
        with self._lock:
            return self._exchange.made(number)

    def accepted(
        self,
        releases: Mapping[str, Release],
        *,
        limits: Check | None = None,
        seen: Mapping[str, tuple[int, str]] | None = None,
    ) -> dict[str, Release]:
        """Those of these releases that are new to this agent, by sender, as `validation.accept` decides."""
        with self._lock:
            return self._exchange.accepted(releases, limits=limits, seen=seen)

    def absorb(self, releases: Mapping[str, Release]) -> None:
        """Take the latest releases of other agents (by name); what is older than what is held is ignored.

        A release is cumulative: it replaces its sender's earlier one and is never added to it. Under its own
        name an agent takes its own latest release alone. When one is refused, none has been taken.
        """
        with self._lock, self._step():
            self._exchange.absorb(releases)
            if self._journal is not None:
                told = {name: release.to_bytes().hex() for name, release in releases.items()}
                self._append("absorb", json.dumps(told))

    def drop_peers(self, names: Collection[str]) -> None:
        """Drop what is held of these agents, as if they had never sent anything. Its own release stays."""
        with self._lock, self._step():
            gone = sorted(self._exchange.latest.keys() & set(names) - {self.name})
            if gone:
                self._exchange.drop(gone)
                self._append("part", json.dumps(gone))

    def begin_run(self, privatizer: Privatizer | Budget) -> None:
        """Go on under a new budget when the old one is spent; all that was learnt and shared stays.

        A durable agent takes a `Budget` and makes the privatizer in its own database.

        Records since the last release go into the first of the new run, if it clips as the old one did. If
        not, or where a person's records are bounded, the old run makes a last release of them; if it has none
        left, they get into no message, and a warning says how many.

        Not for a member of a federation with a roster: members who begin new runs at different moments would
        have different mechanisms, and refuse each other.
        """
        if self.bound is not None:
            raise InvalidInput(
                f"the budget of {self.name!r} must stay: it shares under the terms of federation "
                f"{self.bound}, which are of one run; create another federation to share for longer"
            )
        with self._lock, self._step():
            if not self.private:
                raise InvalidInput("privatizer must be left out: this agent is not private and has no budget")
            run = 0
            if isinstance(privatizer, Budget):
                if self._store is None:
                    raise InvalidInput("privatizer must be a privatizer: a Budget is for a durable agent")
                privatizer, run = self._store.new_run(privatizer)
            elif self._store is not None:
                raise InvalidInput("privatizer must be a Budget: this agent's ledger is in its database")
            if not self._exchange.next_run(privatizer):
                self.release()
            self._exchange.begin_run(privatizer)
            self._append("run", str(run))

    # --- saving --------------------------------------------------------------------------------------

    def state(self) -> AgentState:
        """What it knows, exact to the bit, as one value: agents of equal state decide alike.

        Of a durable agent, whose decisions and ledger are in its database, pending ones are numbers.
        """
        with self._lock:
            return self._parts.state(whole=self._store is None)

    def save(self, path: str | PathLike[str]) -> None:
        """Write all that it needs to go on to a file, as JSON, whole or not at all.

        The file is as secret as the data. Keys and a user's own merit function are not in it.
        """
        with self._lock:
            body = {
                **plain_value(self._settings()),
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
        """The agent that `save` wrote: it goes on with the same decisions, bit for bit.

        Only the noise of a private agent's releases to come and the ids of decisions to come are new, so that
        two lives of one file never share them.

        A merit of your own (`Custom`) is not in the file: give it as `merit`. Nor are keys: a private agent
        needs `privatizer`, which makes its privatizer from the stored state of the old one.
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
            if actions is not None and waiting.name not in actions:
                raise StateError("the file has a pending decision that is of none of the agent's actions")
            agent._pending[waiting.number] = waiting
        agent._origin = agent._origins.begin(agent._numbers.next)
        return agent

    def _settings(self) -> AgentSettings:
        actions = self._model.actions
        names = None if actions is None else list(actions.names)
        return AgentSettings.of(self.name, self.dimension, names, self.options)

    # --- durable -------------------------------------------------------------------------------------

    @classmethod
    def open(
        cls,
        place: str | PathLike[str],
        *,
        name: str | None = None,
        dimension: int | None = None,
        actions: Sequence[str] | None = None,
        options: Options | None = None,
        budget: Budget | None = None,
        seed: int | np.random.SeedSequence | None = None,
        window: float | None = None,
        default_reward: float | None = None,
        confirm: Confirm | None = None,
        **keywords: Unpack[Keywords],
    ) -> Self:
        """An agent in a file (SQLite) or a `postgresql://` database; see docs/howto/keep-an-agent.md.

        The first opening makes it, and needs `dimension` or `actions`; later ones need nothing but the place,
        and refuse a setting that differs from what is kept. Every call is on disk before it returns, or has
        changed nothing. One process at a time has it open: `close` it, or use it as a context manager.

        name: of the agent, where several live in one database: each of its own name, all opened by one
            process.
        dimension, actions, options, seed: as of `Agent`, and so are other keywords.
        budget: makes it private (`privacy.Budget`); ledger and noise key are in the same database.
            Of one that is not private, `bounds` are what records are clipped to before others get their sums.
        window, default_reward: seconds after which `expire` gives up on a reward, and what it then was; they
            may differ from one opening to the next.
        confirm: asks the peers whether this is the latest copy, before anything is sent (`privacy.peers`).
        """
        log = open_log(place)
        try:
            agent = cls._open(log, name, dimension, actions, options, budget, seed, keywords)
            leave_mark(log)
            agent.set_window(window, default_reward)
            if confirm is not None:
                last = agent._exchange.latest.get(agent.name)
                confirm(agent.released, message_digest(None if last is None else last.to_bytes()))
        except BaseException:
            log.close()
            raise
        return agent

    @classmethod
    def _open(
        cls,
        log: Log,
        name: str | None,
        dimension: int | None,
        actions: Sequence[str] | None,
        options: Options | None,
        budget: Budget | None,
        seed: int | np.random.SeedSequence | None,
        keywords: Keywords,
    ) -> Self:
        given: Any = {key: value for key, value in keywords.items() if value is not None}
        bounds = given.get("bounds") if options is None else options.bounds
        alone = budget is None or bounds is None
        require(alone, "bounds", "must be left out beside a budget, which has its own", bounds)
        sharing = budget or bounds
        store = find_store(log, name)
        if store is not None:
            settings = store.settings
            merit = given.get("merit") if options is None else options.merit
            kept = settings.options(merit if settings.merit["kind"] == files.CUSTOM else None)
            privatizer = store.first_privatizer()
            agent = cls(**settings.arms(), options=kept, privatizer=privatizer, name=settings.name)
            store.refuse_others(kept, sharing, dimension=dimension, options=options, keywords=given)
            agent._live_in(store)
            store.load(agent._parts)
            agent._refuse_actions(actions)
        else:
            if dimension is None and actions is None:
                which = "" if name is None else f" {name!r}"
                where = log.database.place
                raise InvalidInput(f"dimension or actions must be given: there is no agent{which} in {where}")
            asked, (dimension, arms) = Options.given(options, **given), as_arms(dimension, actions)
            budgeted = isinstance(sharing, Budget) or not asked.private
            require(budgeted, "budget", f"must be given for {asked.composed.name}", None)
            require(name is None or isinstance(name, str), "name", "must be a string", name)
            settings = AgentSettings.of(
                name or f"agent-{secrets.token_hex(4)}",
                dimension,
                None if arms is None else list(arms.names),
                asked.for_agent(arms_of_their_own=arms is not None),
            )
            with log.step():
                store = make_store(log, settings, sharing)
                made = store.first_privatizer()
                agent = cls(**settings.arms(), options=asked, privatizer=made, name=settings.name, seed=seed)
                store.take_snapshot(agent._parts)
            agent._live_in(store)
        agent._origin = store.keep(agent._parts)
        return agent

    def _live_in(self, store: AgentStore) -> None:
        self._store, self._journal = store, store.journal
        self._lock = store.log.lock
        self._numbers = store.log.numbers
        self._origins = store.journal.origins

    def _refuse_actions(self, given: Sequence[str] | None) -> None:
        """Actions that the caller names must be ones that the agent has."""
        if given is None:
            return
        actions = self._model.actions
        if actions is None:
            raise InvalidInput("actions must be left out: this agent's arms have features")
        new = [name for name in given if name not in actions]
        require(not new, "actions", "must be ones that it has", new[:1], "others are added while it is open")

    def _step(self) -> AbstractContextManager[Any]:
        """One step: on disk whole or not at all, where the agent is durable."""
        return nullcontext() if self._journal is None else self._journal.log.step()

    def _append(self, kind: str, body: str) -> None:
        """Inside a step: keep an event."""
        if self._journal is not None:
            self._journal.append_event(kind, body.encode())

    @property
    def durable(self) -> bool:
        """Whether it lives in a database (`Agent.open`), and not in memory."""
        return self._journal is not None

    @property
    def journal(self) -> Journal:
        """What is kept, to be asked: decisions by id, by key, by time."""
        if self._journal is None:
            raise InvalidInput("this agent lives in memory and keeps no journal: open it with Agent.open")
        return self._journal

    @property
    def incarnation(self) -> str:
        """The prefix of the ids that it gives: a new one each time an agent is made, loaded or opened."""
        return self._origin

    @contextmanager
    def transaction(self) -> Iterator[None]:
        """Steps inside are one transaction: on disk when it ends, all of them or, on failure, none.

        Nothing that a step inside has given may be told to anybody before the end. A step that is refused
        (`InvalidInput` and the like) changes nothing, and the others stay.
        """
        with self._lock, self._step():
            yield

    def verify(self) -> None:
        """Replay a durable agent's whole log; `StateError` unless it ends in the same state, to the bit.

        It takes about as long as the rewards took, and nothing else can be done meanwhile.
        """
        if self._store is None:
            raise InvalidInput("this agent lives in memory and has no log: open it with Agent.open")
        self._store.verify()

    def close(self) -> None:
        """Let go of the database; an agent in memory has none."""
        if self._store is not None:
            self._store.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()
