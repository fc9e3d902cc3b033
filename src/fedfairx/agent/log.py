"""The log that an agent writes its steps to: that of a database, or `NullLog`, which keeps none."""

from __future__ import annotations

import threading
from collections.abc import Iterable, Sequence
from contextlib import AbstractContextManager
from typing import Any, Protocol

from fedfairx.agent.half_life import wall_clock
from fedfairx.core.slates import ONE
from fedfairx.decision import Decision
from fedfairx.errors import InvalidInput
from fedfairx.privacy import Budget, Privatizer
from fedfairx.steps import Decided, Ended, Event, numbers_of
from fedfairx.storage.decision_ids import IdPrefixes
from fedfairx.storage.transaction_log import StepCounter

ENDED = "ended"  # the status of a decision of which nothing else is kept


class StepLog(Protocol):
    """What an agent needs of its log. It appends inside a transaction, after its core has taken the step."""

    @property
    def lock(self) -> AbstractContextManager[Any]:
        """Held while an agent reads what may change."""

    @property
    def transaction(self) -> AbstractContextManager[Any]:
        """Makes what happens inside atomic, for other threads and, if there is a disk, on it."""

    numbers: StepCounter
    prefixes: IdPrefixes
    #: The prefix of the ids to come.
    prefix: str

    @property
    def time(self) -> int:
        """The time of the transaction, in microseconds since 1970; 0 if nothing is kept."""

    def clock(self) -> int:
        """The time of the step that is taken or replayed, by which records age."""

    def append(self, step: Event) -> None:
        """Write a step that is of no decision."""

    def append_decisions(self, decided: Sequence[Decided]) -> None:
        """Write decisions, whose numbers follow one another."""

    def append_outcomes(self, step: Ended, decision: Decision) -> None:
        """Write outcomes of slots of a decision, which has them already."""

    def require_new(self, key: str) -> None:
        """Raise `KeyTaken` if a decision was made under this key."""

    def status_of(self, number: int) -> str | None:
        """The status of a decision that does not wait; None if there is none of this number."""

    def new_run(self, privatizer: Privatizer | Budget) -> tuple[Privatizer, int]:
        """Keep what a private agent continues with, as a privatizer and its number."""

    def run(self, number: int) -> Privatizer:
        """The privatizer of a run."""

    def close(self) -> None:
        """Write no more."""


class NullLog:
    """The log of an agent in memory: it gives steps the numbers of a database's, and keeps nothing of them.

    following, prefixes: the number of its first step, and the prefixes of ids from before it, if the agent
        was loaded.
    """

    def __init__(self, following: int = 0, prefixes: Iterable[tuple[int, str]] = ()) -> None:
        self.lock = self.transaction = threading.RLock()
        self.numbers = StepCounter(following)
        self.prefixes = IdPrefixes(prefixes)
        self.prefix = self.prefixes.begin(following)
        self.time = 0
        self.clock = wall_clock
        self._runs = 1
        self._next: Privatizer | None = None  # of the run that may begin

    def append(self, step: Event) -> None:
        self.numbers.next += numbers_of(step)

    def append_decisions(self, decided: Sequence[Decided]) -> None:
        pass

    def append_outcomes(self, step: Ended, decision: Decision) -> None:
        ended = decision.weights is not ONE and len(decision.outcomes) == len(decision.shown)
        self.numbers.next += len(step.rewards) + ended  # with their sum

    def require_new(self, key: str) -> None:
        pass

    def status_of(self, number: int) -> str | None:  # noqa: ARG002
        return ENDED

    def new_run(self, privatizer: Privatizer | Budget) -> tuple[Privatizer, int]:
        if isinstance(privatizer, Budget):
            raise InvalidInput("privatizer must be a privatizer: a Budget is for a durable agent")
        self._next = privatizer
        return privatizer, self._runs + 1

    def run(self, number: int) -> Privatizer:
        assert self._next is not None
        self._runs = number
        return self._next

    def close(self) -> None:
        pass
