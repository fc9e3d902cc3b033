"""The deciding half of an agent: an arm, and later its reward."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from itertools import takewhile
from typing import Any

import numpy as np
from numpy.typing import ArrayLike

from fedfairx.arrays import Array
from fedfairx.core.memory import LARGEST
from fedfairx.core.rules import OPTIMISM
from fedfairx.errors import AlreadyObserved, FedFairXError, InvalidInput, UnknownDecision, require
from fedfairx.federation.answering import Answering
from fedfairx.federation.checks import (
    as_contexts,
    as_names,
    as_persons,
    as_reward,
    as_rewards,
    as_row,
    as_sound_contexts,
)
from fedfairx.federation.clipping import ClippingWatch
from fedfairx.federation.decision import Decision, known, shown
from fedfairx.federation.scale import LOOKS, ScaleWatch
from fedfairx.privacy.continued import takes_persons
from fedfairx.storage.log import Numbers
from fedfairx.storage.origins import Origins
from fedfairx.storage.rows import DecisionNote, packed_log


class Deciding(Answering):
    """`Agent` without its keeping."""

    window: float | None = None  # seconds after which a durable agent's decision may expire
    default_reward: float | None = None  # that it has then earned

    def __init__(self, dimension: int, *, seed: int | np.random.SeedSequence | None, **knowing: Any) -> None:
        super().__init__(dimension, seed=seed, **knowing)
        self._pending: dict[int, Decision] = {}  # by number, in order
        self._numbers = Numbers()
        self._origins = Origins()
        self._origin = self._origins.begin(0)
        self._looks = LOOKS
        self._watch = ClippingWatch(self.privatizer)
        expected = self.confidence.parameter_norm if self.rule == OPTIMISM else 2 * self.prior.sd
        self._scale = ScaleWatch(expected)

    def set_window(self, window: float | None, default_reward: float | None = None) -> None:
        """After how many seconds `expire` gives up on a reward, and what it then was, if anything."""
        fits = window is None or (isinstance(window, int | float) and window > 0)
        require(fits, "window", "must be > 0", window)
        require(
            default_reward is None or window is not None, "window", "must be given with default_reward", None
        )
        self.window = window
        self.default_reward = None if default_reward is None else as_reward(default_reward)

    @property
    def pending(self) -> int:
        """Decisions whose reward has not come."""
        return len(self._pending)

    @property
    def observed(self) -> int:
        """Rewards that it has taken, those of `learn` too."""
        return self._released_count + self._local_count

    @property
    def model_version(self) -> int:
        """Grows with every reward and every message that it takes."""
        return self.observed + sum([release.number for release in self._latest.values()])

    # --- deciding ------------------------------------------------------------------------------------

    def decide(
        self,
        contexts: ArrayLike,
        *,
        names: Sequence[str] | None = None,
        note: DecisionNote | None = None,
    ) -> Decision:
        """Draw an arm for a (K, d) array of contexts; K may change from call to call.

        With `names`, one for each arm, `decision.name` is that of the drawn one. `note` is what a durable
        agent keeps beside the decision; where it names a baseline's row, that is the action taken and learnt
        from.
        """
        rows = as_contexts(contexts, self.dimension)
        called = None if names is None else as_names(names, rows.shape[0])
        with self._lock:
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

    def _decide(self, rows: Array, called: list[str] | None, note: DecisionNote | None) -> Decision:
        arms, dimension = rows.shape
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
            values[arms + dimension :] = rows[taken]
        self._numbers.next = number + 1
        return decision

    def _look(self, rows: Array) -> None:
        self._scale.look(rows)
        self._looks -= 1

    def decide_many(self, contexts: Sequence[ArrayLike] | Array) -> list[Decision]:
        """Independent decisions from one state of knowledge: a (B, K, d) array, or B arrays (K_b, d).

        The same decisions as B calls of `decide`, and none of them if one of the arrays is refused.
        """
        blocks = [as_sound_contexts(block, self.dimension) for block in contexts]
        with self._lock:
            for rows in blocks if self._looks else ():
                self._scale.look(rows)
            with self._step():
                return [self.decide(rows) for rows in blocks]

    # --- observing -----------------------------------------------------------------------------------

    def observe(self, decision: Decision | str, *, reward: float, person: str | int | None = None) -> None:
        """Take the reward of a decision: at once or later, in any order, each once.

        A private agent takes any number, since a refusal would show in the public count: the privatizer clips
        it, and what one can't compute with (NaN, infinity) it learns from as 0. `person` says whose record it
        is, for a privatizer that bounds a person's records (`PersonBound`).
        """
        with self._lock:
            if self._journal is None:
                self._take(decision, reward, person)
            else:
                with self._journal.log.step():
                    self._take(decision, reward, person)
            if self._plain is None:
                self._watch.look()  # last, since the owner may have made the warning an error

    def _take(
        self,
        decision: Decision | str,
        reward: float,
        person: str | int | None = None,
        status: str = "rewarded",
    ) -> None:
        pending = self._pending
        number = known(decision, pending, self._gone)
        value = reward if type(reward) is float and abs(reward) <= LARGEST else self._reward(reward)
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
    ) -> None:
        """`observe` for several; when one of them is refused, none has been taken."""
        with self._lock:
            numbers = self._different(decisions)
            values = [self._reward(reward) for reward in rewards]
            same = len(numbers) == len(values)
            require(same, "rewards", f"must be as many as the {len(numbers)} decisions", len(values))
            whose = as_persons(persons, len(numbers))
            with self._step():
                for number, value, person in zip(numbers, values, whose, strict=True):
                    self._take(self._pending[number], value, person)
            if self._plain is None:
                self._watch.look(len(values))

    def _different(self, decisions: Iterable[Decision | str]) -> list[int]:
        """The numbers of decisions that wait for their reward; each may be meant once."""
        numbers = [known(decision, self._pending, self._gone) for decision in decisions]
        if len(set(numbers)) != len(numbers):
            raise AlreadyObserved("a decision occurs twice among these decisions")
        return numbers

    def learn(
        self, contexts: ArrayLike, rewards: Iterable[float], *, persons: Iterable[str | int] | None = None
    ) -> None:
        """Start from a log: contexts (n, d) of arms that somebody has shown, and their rewards (n,).

        Each is a record as if this agent had shown the arm: the privatizer bounds it and it will be released.
        When one of them is refused, none has been taken.
        """
        rows = as_sound_contexts(contexts, self.dimension)
        values = as_rewards(rewards, len(rows), clipped=self.private)
        whose = as_persons(persons, len(rows))
        if persons is not None:
            takes_persons(self.privatizer)
        with self._lock:
            if self._looks:
                self._look(rows)
            with self._step():
                self._learn_log(rows, values, whose)
            if self._plain is None:
                self._watch.look(len(rows))

    def _learn_log(self, rows: Array, values: list[float], whose: Sequence[str | int | None]) -> None:
        first = self._numbers.next
        for place, (row, value, person) in enumerate(zip(rows, values, whose, strict=True)):
            made = shown(first + place, row, self._origin)
            self._enter(made, value, person)
            self._learn(made, value)
            if self._journal is None:
                self._numbers.next += 1
        if self._journal is not None:
            self._journal.happened("learn", packed_log(rows, values), steps=len(rows))

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

    def _reward(self, reward: float) -> float:
        return as_reward(reward, clipped=self.private)
