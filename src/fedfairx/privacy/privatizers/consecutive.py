"""Consecutive runs: a new run that continues where a spent one ended, and what both cost together.

The new run's privatizer takes new records only. Its releases are added to the last message of the run before,
so that messages stay cumulative and their numbers continue; that message is public, so adding it is
post-processing. The noise of the two runs is independent, so the squares of their μ add. A record lies in
one of the runs, and by itself costs no more than that run's μ; the sum is what holds for a person with a
record in each.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedfairx.errors import StateError, require
from fedfairx.privacy.accounting import epsilon_for
from fedfairx.privacy.guarantee import Guarantee
from fedfairx.privacy.ledger.rollback import Confirm, message_digest
from fedfairx.privacy.mechanisms.factorization import Integers
from fedfairx.privacy.mechanisms.gaussian import Mechanism
from fedfairx.privacy.privatizers.protocol import Privatizer
from fedfairx.privacy.privatizers.stream import StreamPrivatizer
from fedfairx.privacy.release import Release
from fedfairx.util.arrays import Array


@dataclass(frozen=True, kw_only=True)
class Continued:
    """Two mechanisms, one after the other; `before` made `made` releases, and the last of them stays in.

    Guarantees:
    - `mu` is √(μ₁² + μ₂²).
    - `sd` is that of the sum of the last message of `before` and the new run's.
    """

    before: Mechanism
    made: int
    after: Mechanism

    @property
    def name(self) -> str:
        return self.after.name

    @property
    def releases(self) -> int:
        return self.made + self.after.releases

    @property
    def mu(self) -> float:
        return math.hypot(self.before.mu, self.after.mu)

    def sd(self, number: int | Sequence[int] | Integers) -> Array:
        numbers = np.asarray(number, dtype=np.int64)
        first = self.before.sd(np.minimum(numbers, self.made))
        second = self.after.sd(np.maximum(numbers - self.made, 1))
        return np.asarray(np.where(numbers <= self.made, first, np.hypot(first, second)))

    def digest(self) -> str:
        parts = f"continued {self.before.digest()} {self.made} {self.after.digest()}"
        return hashlib.sha256(parts.encode()).hexdigest()


class ContinuedPrivatizer:
    """`inner`, a new run's privatizer, after `before`, which makes no release any more.

    Records that `before` took after its last release are in neither's messages, unless `carry_over` has
    moved them. `confirm` is as for `StreamPrivatizer`, in the numbers of both runs.

    Guarantees:
    - Its messages are a function of the inner privatizer's and of the last message of `before`.
    - Numbers and counts continue; the guarantee is for all messages of both runs, μ² added.
    - The guarantee covers a person if both runs bound a person's records; it states the larger bound.
    - Runs with other neighbours (adjacency, a public point or none) have no common claim: they are refused.
    """

    def __init__(self, inner: Privatizer, *, before: Privatizer, confirm: Confirm | None = None) -> None:
        same = inner.dimension == before.dimension
        require(same, "inner", f"must have dimension {before.dimension}", inner.dimension)
        require_same_neighbours(before.guarantee, inner.guarantee)
        before.release(before.spent)  # finishes one that was begun
        self.inner = inner
        self.before = before
        self._claimed = before.guarantee
        self._last = before.release(self._claimed.spent)
        self.mechanism = Continued(before=before.mechanism, made=self._last.number, after=inner.mechanism)
        if confirm is not None:
            confirm(self.spent, message_digest(self.release(self.spent).to_bytes()))

    @property
    def dimension(self) -> int:
        return self.inner.dimension

    @property
    def stream(self) -> StreamPrivatizer | None:
        """The new run's."""
        return self.inner.stream

    @property
    def owner(self) -> str | None:
        return self.inner.owner

    @property
    def spent(self) -> int:
        """Number of releases of both runs."""
        return self._last.number + self.inner.spent

    @property
    def clipped(self) -> int:
        """Number of records of both runs that were clipped. For the owner only; it is never sent."""
        return self.before.clipped + self.inner.clipped

    @property
    def waiting(self) -> int:
        """Number of records in the new run's open leaf."""
        return self.inner.waiting

    @property
    def guarantee(self) -> Guarantee:
        """What both runs cost together, at the new run's δ."""
        new, old = self.inner.guarantee, self._claimed
        mu = math.hypot(old.mu, new.mu)
        bounded = old.person_records is not None and new.person_records is not None
        return replace(
            new,
            mu=mu,
            epsilon=epsilon_for(new.delta, mu),
            context_norm=max(old.context_norm, new.context_norm),
            reward=max(old.reward, new.reward),
            releases=old.spent + new.releases,
            spent=old.spent + new.spent,
            simulated=old.simulated or new.simulated,
            reasons=tuple(dict.fromkeys(old.reasons + new.reasons)),
            person_records=max(old.person_records or 0, new.person_records or 0) if bounded else None,
            runs=old.runs + new.runs,
        )

    def add(
        self, context: Array, reward: float, record: str | int | None = None, person: str | int | None = None
    ) -> None:
        """Take one record into the new run's open leaf."""
        self.inner.add(context, reward, record, person)

    def release(self, number: int | None = None) -> Release:
        last = self._last
        if number is not None:
            following = self.spent + 1
            require(1 <= number <= following, "number", f"must be in 1..{following}", number)
            if number <= last.number:
                return self.before.release(number)
        inner = self.inner.release(None if number is None else number - last.number)
        return Release(
            last.number + inner.number,
            last.packed + inner.packed,
            last.count + inner.count,
            self.mechanism.digest(),
        )

    def state(self) -> dict[str, Any]:
        """The states of both runs, and the message that the new one's are added to."""
        return {
            "schema": 2,
            "last": self._last.to_bytes().hex(),
            "before": self.before.state(),
            "inner": self.inner.state(),
        }

    @classmethod
    def from_state(
        cls, state: Mapping[str, Any], *, inner: Privatizer, before: Privatizer
    ) -> ContinuedPrivatizer:
        """The privatizer that `state` described; the others are what its "inner" and "before" describe."""
        if state.get("schema") != 2:
            raise StateError(f"schema must be 2, got schema={state.get('schema')!r}")
        continued = cls(inner, before=before)
        if continued._last.to_bytes().hex() != state["last"]:
            raise StateError("before must be the run that was continued, and its last message is another one")
        return continued


def require_same_neighbours(old: Guarantee, new: Guarantee) -> None:
    """Refuse a run whose claim is about another change of a record: the two claims would not add."""
    for name, before, after in (
        ("adjacency", old.adjacency, new.adjacency),
        ("centred", old.centred, new.centred),
    ):
        require(after == before, name, f"must be that of the run before, {before!r}", after)


def carry_over(before: Privatizer, after: Privatizer) -> bool:
    """Move the records of the open leaf of `before`, which are in no message, into that of `after`.

    The leaf is a sum of clipped records, so both must clip alike; and where persons are counted, each run
    counts its own, so it stays where it is. A release that was begun is finished first. The new ledger
    doesn't know the ids of what is moved.

    Guarantees:
    - False: no record has moved.
    - Each record is in the open leaf of one of the two. A crash half way leaves it in none, never in both.
    """
    old, new = before.stream, after.stream
    if old is None or new is None:
        return False
    require(old.ledger is not new.ledger, "privatizer", "must have a ledger of its own", "the old one's")
    ours, theirs = old.parameters(), new.parameters()
    alike = all(ours[name] == theirs[name] for name in ("dimension", "bounds", "public_point"))
    counted = any(each.person_records is not None for each in (old, new))
    with old._one_at_a_time(), new._one_at_a_time():
        old._finish()
        if counted or not alike:
            return False
        here, there = old._position, new._position
        old._held = new._held = None  # to be read from the ledgers, whatever happens
        old.ledger.add(None, replace(here, leaf=np.zeros_like(here.leaf), leaf_count=0))
        new.ledger.add(
            None, replace(there, leaf=there.leaf + here.leaf, leaf_count=there.leaf_count + here.leaf_count)
        )
    return True
