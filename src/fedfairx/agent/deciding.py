"""The deciding half of an agent: an arm, and later its reward."""

from __future__ import annotations

import json
from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import TYPE_CHECKING, Any, cast

import numpy as np
from numpy.typing import ArrayLike

from fedfairx.agent.actions import context_of
from fedfairx.agent.answering import Answering
from fedfairx.agent.decision import Decision, known, shown
from fedfairx.agent.input_warnings import LOOKS, ClippingWatch, ScaleWatch
from fedfairx.agent.validation import (
    as_persons,
    as_reward,
    as_rewards,
    as_row,
    as_sound_contexts,
)
from fedfairx.core.rules import OPTIMISM
from fedfairx.errors import (
    AlreadyObserved,
    FedFairXError,
    InvalidInput,
    ReplacementRefused,
    UnknownDecision,
    require,
)
from fedfairx.privacy.privatizers.consecutive import takes_persons
from fedfairx.storage import replacement
from fedfairx.storage.decision_ids import IdPrefixes
from fedfairx.storage.records import DecisionNote, packed_log
from fedfairx.storage.replacement import Booked
from fedfairx.storage.transaction_log import Numbers
from fedfairx.util.arrays import Array, Coordinates

if TYPE_CHECKING:
    from fedfairx.privacy.privatizers.protocol import Amending
    from fedfairx.storage.journal import Journal


class Deciding(Answering):
    """`Agent` without its keeping."""

    window: float | None = None  # seconds after which a durable agent's decision may expire
    default_reward: float | None = None  # that it has then earned

    def __init__(
        self, dimension: int | None, *, seed: int | np.random.SeedSequence | None, **knowing: Any
    ) -> None:
        super().__init__(dimension, seed=seed, **knowing)
        self._pending: dict[int, Decision] = {}  # by number, in order
        self._numbers = Numbers()
        self._origins = IdPrefixes()
        self._origin = self._origins.begin(0)
        self._looks = LOOKS
        self._watch = ClippingWatch(self.privatizer)
        if self.rule == OPTIMISM:
            self._scale = ScaleWatch(1.0 / self.confidence.parameter_norm)
        else:
            self._scale = ScaleWatch(self.default_prior.sd / self.prior.sd)

    def set_window(self, window: float | None, default_reward: float | None = None) -> None:
        """After how many seconds `expire` gives up on a reward, and what it then was, if anything."""
        fits = window is None or (isinstance(window, int | float) and window > 0)
        require(fits, "window", "must be > 0", window)
        require(
            default_reward is None or window is not None, "window", "must be given with default_reward", None
        )
        self.window = window
        self.default_reward = None if default_reward is None else self._reward(default_reward)

    @property
    def pending(self) -> int:
        """Decisions whose reward has not come."""
        return len(self._pending)

    @property
    def model_version(self) -> int:
        """Grows with every reward and every message that it takes."""
        return self.observed + sum([release.number for release in self._latest.values()])

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
                made.time = self._journal.decided(
                    made.number, rows, made._values, made.action, made.drawn, called, note
                )
                return made

    def _decide(
        self, rows: Array | Coordinates, called: list[str] | None, note: DecisionNote | None
    ) -> Decision:
        arms, dimension = len(rows), self.dimension
        taken = None if note is None else as_row(note.baseline, arms)
        values = np.empty(arms + 2 * dimension)
        uniforms, number = self._uniforms, self._numbers.next
        action = self._answer(rows, self._learner.memory, values)
        if self._looks:
            self._look(rows)  # before anything changes, since the warning may be an error
        del uniforms[-self._uniforms_each :]
        if not uniforms:
            self._draw_ahead()
        shown = action if taken is None else taken
        name = None if called is None else called[shown]
        decision = self._pending[number] = Decision(number, shown, values, arms, name, self._origin)
        if taken is not None:
            decision.drawn = action
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
            if self._actions is None:
                blocks = [as_sound_contexts(block, self.dimension) for block in blocks]
                for rows in blocks if self._looks else ():
                    self._scale.look(rows)
            else:
                for block in blocks:
                    self._actions.offered(block)
            with self._step():
                return [self.decide(block) for block in blocks]

    # --- actions without features --------------------------------------------------------------------

    @property
    def actions(self) -> tuple[str, ...]:
        """Names of the actions that it chooses from, where they have no features."""
        with self._lock:
            return () if self._actions is None else tuple(self._actions.offered()[1])

    @property
    def all_actions(self) -> tuple[str, ...]:
        """The same with those that were retired, in the order of the coordinates of `estimate`."""
        with self._lock:
            return () if self._actions is None else self._actions.names

    def add_actions(self, *names: str) -> None:
        """Choose from these too, from now on: new ones, of which nothing is known, or retired ones again."""
        self._change_actions("add", names)

    def retire_actions(self, *names: str) -> None:
        """Choose from these no longer; one must be left. Rewards that are still to come are learnt."""
        self._change_actions("retire", names)

    def _change_actions(self, how: str, names: Sequence[str]) -> None:
        if self._actions is None:
            raise InvalidInput("actions must have been given when the agent was made: its arms have features")
        with self._lock, self._step():
            fixed = self.private or self.bound is not None or bool(self._latest)
            new = [name for name in names if how == "add" and name not in self._actions]
            text = "must be known: this agent shares its statistics, whose size is fixed"
            require(not (fixed and new), "actions", text, new[:1])
            self._apply_actions(how, names)
            if self._journal is not None:
                self._journal.happened("actions", json.dumps({"how": how, "names": list(names)}).encode())

    def _apply_actions(self, how: str, names: Sequence[str]) -> None:
        assert self._actions is not None
        if how == "add":
            self._add_actions(names)
        else:
            self._actions.retire(names)

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
        (docs/durable.md). A private agent takes any number, since a refusal would show in the public count,
        and clips it. `person` says whose record it is, for a privatizer that bounds a person's records
        (`PersonBound`).

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
        pending = self._pending
        number = known(decision, pending, self._gone)
        limits = self._limits
        fits = type(reward) is float and limits.low <= reward <= limits.high
        value = reward if fits else self._reward(reward)
        made = pending[number]
        self._enter(made, value, person)
        del pending[number]
        self._learn(made, value)
        if self._journal is not None:
            self._journal.ended(number, status, value, person)

    def _enter(self, made: Decision, value: float, person: str | int | None) -> None:
        """Give the record to the privatizer, unless it is a plain sum, which learning adds to."""
        if person is not None:
            takes_persons(self.privatizer).add(made.chosen(), value, made.id, person)
        elif self._plain is None:
            self.privatizer.add(made.chosen(), value, made.id)

    def _gone(self, identity: str) -> FedFairXError:
        """Why there is no decision of this id that waits."""
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

    def _replace_many(
        self,
        decisions: Sequence[Decision | str],
        rewards: Sequence[float],
        persons: Iterable[str | int] | None,
    ) -> None:
        require_log(self)
        count = len(decisions)
        require(len(rewards) == count, "rewards", f"must be as many as the {count} decisions", len(rewards))
        identities = [getattr(decision, "id", decision) for decision in decisions]
        if len({str(identity) for identity in identities}) != count:
            raise AlreadyObserved("a decision occurs twice among these decisions")
        whose = as_persons(persons, count)
        with self._step():
            take_or_replace(self, list(zip(decisions, rewards, whose, strict=True)))
        self._warn(count)

    def _different(self, decisions: Iterable[Decision | str]) -> list[int]:
        """The numbers of decisions that wait for their reward; each may be meant once."""
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
        if self._actions is None:
            rows = as_sound_contexts(contexts, self.dimension)
        else:
            rows = self._actions.coordinates(contexts)
        values = as_rewards(rewards, len(rows), self._reward)
        whose = as_persons(persons, len(rows))
        if persons is not None:
            takes_persons(self.privatizer)
        with self._lock:
            if self._looks:
                self._look(rows)
            with self._step():
                self._learn_log(rows, values, whose)
            self._warn(len(rows))

    def _learn_log(self, rows: Any, values: list[float], whose: Sequence[str | int | None]) -> None:
        first = self._numbers.next
        for place, (row, value, person) in enumerate(zip(rows, values, whose, strict=True)):
            made = self._shown(first + place, row)
            self._enter(made, value, person)
            self._learn(made, value)
            if self._journal is None:
                self._numbers.next += 1
        if self._journal is not None:
            self._journal.happened("learn", packed_log(rows.reshape(len(rows), -1), values), steps=len(rows))

    def _shown(self, number: int, row: Any) -> Decision:
        """A decision of somebody else's: a context, or the coordinate of an action."""
        if self._actions is None:
            return shown(number, row, self._origin)
        context = np.zeros(self.dimension)
        context[int(row)] = 1.0
        return shown(number, context, self._origin, self._actions.names[int(row)])

    def forget(self, decision: Decision | str) -> None:
        """Give up on a reward that will never come."""
        self.forget_many([decision])

    def forget_many(self, decisions: Iterable[Decision | str]) -> None:
        """`forget` for several; when one of them is refused, none has been forgotten."""
        with self._lock, self._step():
            for number in self._different(decisions):
                del self._pending[number]
                if self._journal is not None:
                    self._journal.ended(number, "withdrawn", None)

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
                    self._journal.ended(made.number, "expired", None)
                else:
                    self._take(made, self.default_reward, status="expired")
            return len(due)

    def _warn(self, records: int) -> None:
        """After so many records: last of all, since the owner may have made a warning an error."""
        if self._plain is None or self._plain.bounds is not None:
            self._watch.look(records)
        if self._limits.contradiction is not None:
            self._limits.warn()

    def _reward(self, reward: float) -> float:
        """A reward that may be taken, as a float: any, where it will be clipped."""
        value = as_reward(reward)
        if not self.private:
            self._limits.check(value)
        return value


Given = tuple[Decision | str, float, str | int | None]  # decision, reward, person


def require_log(agent: Deciding) -> Journal:
    """The journal of an agent that has one."""
    if agent._journal is None:
        raise InvalidInput(
            "replace must be left out: an agent in memory keeps no log to learn anew from; use Agent.open"
        )
    return agent._journal


def take_or_replace(agent: Deciding, given: Sequence[Given]) -> None:
    """Inside a step: take these rewards, all or none, each in the place of another if there is one."""
    journal = require_log(agent)
    journal.log.settle()
    waiting: list[Given] = []
    wrong: list[tuple[Booked, float]] = []
    for decision, reward, person in given:
        found = _booked(agent, journal, decision)
        value = agent._reward(reward)
        if found is None:
            waiting.append((decision, value, person))
            continue
        whose = person is None or str(person) == found.person
        require(whose, "person", "must be the one whose record it is", "another")
        if not _same(found.outcome.reward, value):
            _refuse_released(agent, journal, found)
            wrong.append((found, value))
    for each in waiting:
        agent._take(*each)
    if not wrong:
        return
    for found, value in wrong:
        if agent.private:
            _amend(agent, journal, found, value)
        replacement.replace(journal, found.outcome, value)
    journal.log.settle()
    agent._keeper.restore()


def _booked(agent: Deciding, journal: Journal, decision: Decision | str) -> Booked | None:
    """What is booked for a decision; None if it waits for its reward. Others are refused."""
    found: list[Booked] = []

    def gone(identity: str) -> FedFairXError:
        number = journal.origins.number_in(identity)
        there = None if number is None else replacement.booked(journal, number)
        if there is not None:
            found.append(there)
        return agent._gone(identity)

    try:
        known(decision, agent._pending, gone)
    except AlreadyObserved:
        if not found:
            raise
        return found[0]
    return None


def _same(one: float | None, other: float) -> bool:
    return one == other or (one != one and other != other)


def _refuse_released(agent: Deciding, journal: Journal, found: Booked) -> None:
    event = replacement.sealed_by(journal, found.outcome)
    if event is None:
        return
    identity = journal.id_of(found.outcome.decision)
    federated = agent.bound is not None or any(name != agent.name for name in agent._latest)
    remedy = (
        "found a new run of the federation, in which a new agent learns the right rewards"
        if federated
        else "let a new agent learn the right rewards"
    )
    if event.kind == "run":
        why = f"decision {identity} was rewarded under an earlier budget"
    else:
        why = f"the reward of decision {identity} is in release {event.body.decode()} already"
    raise ReplacementRefused(f"{why} and can't be replaced; to be without it, {remedy}")


def _amend(agent: Deciding, journal: Journal, found: Booked, value: float) -> None:
    """Change the record in the open leaf."""
    identity = journal.id_of(found.outcome.decision)
    more: dict[str, Any] = {}
    if found.person is not None:
        more = {"person": found.person, "turn": replacement.turn_of(journal, found.outcome, found.person)}
    privatizer = cast("Amending", agent.privatizer)
    assert found.outcome.reward is not None
    privatizer.amend(found.made.context, found.outcome.reward, value, identity, **more)
