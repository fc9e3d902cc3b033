"""What an agent asks of its privatizer, and a privatizer of what its records are centred at."""

from __future__ import annotations

from typing import Any, Protocol

from fedfairx.privacy.guarantee import Guarantee
from fedfairx.privacy.mechanisms.gaussian import PublicMechanism
from fedfairx.privacy.release import Release
from fedfairx.util.arrays import Array


class Privatizer(Protocol):
    """Takes an agent's records and gives what may leave it."""

    @property
    def dimension(self) -> int: ...

    @property
    def mechanism(self) -> PublicMechanism: ...

    @property
    def guarantee(self) -> Guarantee: ...

    def add(self, context: Array, reward: float, record: str | int | None = None) -> None:
        """Take one record into the open leaf. A private one takes any number: a refusal would tell of it."""
        ...

    def release(self, number: int | None = None) -> Release:
        """Close the open leaf and give the cumulative statistics; a past `number` is given again."""
        ...

    def state(self) -> dict[str, Any]: ...


class PersonTaking(Protocol):
    """A privatizer that asks whose a record is (`PersonBound`)."""

    def add(
        self, context: Array, reward: float, record: str | int | None = None, person: str | int | None = None
    ) -> None: ...


class Amending(Protocol):
    """A privatizer whose records can be changed until they are released; those of durable agents are."""

    def amend(
        self,
        context: Array,
        old: float,
        new: float,
        record: str | int,
        *,
        person: str | None = None,
        turn: tuple[int, int] = (1, 1),
    ) -> None:
        """Put the reward `new` into the place of `old`, in a record of the open leaf.

        person, turn: whose record it is, and which of how many in this run, for a `PersonBound`.
        """
        ...
