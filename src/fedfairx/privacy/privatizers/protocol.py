"""The protocol between an agent and its privatizer."""

from __future__ import annotations

from typing import Any, Protocol, runtime_checkable

from fedfairx.privacy.guarantee import Guarantee
from fedfairx.privacy.mechanisms.gaussian import Mechanism
from fedfairx.privacy.privatizers.stream import StreamPrivatizer
from fedfairx.privacy.release import Release
from fedfairx.util.arrays import Array


@runtime_checkable
class Privatizer(Protocol):
    """Takes an agent's records and makes the releases that leave the agent."""

    @property
    def dimension(self) -> int: ...

    @property
    def mechanism(self) -> Mechanism: ...

    @property
    def guarantee(self) -> Guarantee:
        """What is promised for the messages; `spent` alone is cheaper to ask for."""
        ...

    @property
    def owner(self) -> str | None:
        """Name of the agent that the noise was made for; None if any agent may use it."""
        ...

    @property
    def spent(self) -> int:
        """Number of releases made."""
        ...

    @property
    def clipped(self) -> int:
        """Number of records that were clipped. For the owner only; it is never sent."""
        ...

    @property
    def waiting(self) -> int:
        """Number of records that are in no release yet."""
        ...

    @property
    def stream(self) -> StreamPrivatizer | None:
        """The private stream that records enter now; None if sums are exact."""
        ...

    def add(
        self, context: Array, reward: float, record: str | int | None = None, person: str | int | None = None
    ) -> None:
        """Take one record into the open leaf. A private one takes any number: a refusal would tell of it.

        person: whose record it is; given exactly if the privatizer bounds the records of a person.
        """
        ...

    def release(self, number: int | None = None) -> Release:
        """Close the open leaf and return the cumulative statistics, or an earlier release by its number."""
        ...

    def state(self) -> dict[str, Any]:
        """Everything needed to go on, as plain values."""
        ...
