"""Counts of the records of each person, for a privatizer that bounds them."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Protocol

from fedfairx.errors import LedgerMismatch


class Persons(Protocol):
    """Number of records that each person has brought. The owner's secret, like the ledger.

    Guarantees:
    - Every method returns only when its effect is as durable as the rest.
    """

    def bind(self, records: int) -> None:
        """Bind the counts to a limit; `LedgerMismatch` if they are bound to another."""
        ...

    def count(self, person: str, change: int) -> int:
        """Add `change` to the number of records of a person, and return it."""
        ...

    def of(self, person: str) -> int:
        """Number of records of one person."""
        ...

    def total(self) -> int:
        """Number of records of all persons."""
        ...


class MemoryPersons:
    """Counts in memory; they are in the state of their privatizer.

    Guarantees:
    - As `Persons`; `repr` shows nobody.
    """

    def __init__(self, counts: Mapping[str, int] | None = None, *, records: int | None = None) -> None:
        self.counts = {str(person): int(count) for person, count in (counts or {}).items()}
        self.records = records

    def bind(self, records: int) -> None:
        if self.records not in (None, records):
            raise LedgerMismatch(another_limit(self.records, records))
        self.records = records

    def count(self, person: str, change: int) -> int:
        self.counts[person] = self.counts.get(person, 0) + change
        return self.counts[person]

    def of(self, person: str) -> int:
        return self.counts.get(person, 0)

    def total(self) -> int:
        return sum(self.counts.values())


def another_limit(stored: int | None, given: int) -> str:
    """Error text for counts that belong to another limit."""
    return f"these persons are counted for records={stored}, got records={given}; a run keeps its limit"
