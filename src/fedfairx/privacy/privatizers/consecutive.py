"""Consecutive runs: a new run that continues a finished one, and what both cost together.

The new run's privatizer takes new records only. Its releases are added to the last message of the previous
run, so that messages stay cumulative and their numbers continue; that message is public, so adding it is
post-processing. The noise of the two runs is independent, so the squares of their μ add. A record lies in
one of the runs and costs no more than that run's μ; the sum holds for a person with a record in each.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace

import numpy as np

from fedfairx.errors import require
from fedfairx.privacy.accounting import epsilon_for
from fedfairx.privacy.guarantee import Guarantee
from fedfairx.privacy.ledger.rollback import Confirm
from fedfairx.privacy.mechanisms.factorization import Integers
from fedfairx.privacy.mechanisms.gaussian import Mechanism
from fedfairx.privacy.privatizers.stream import Privatizer
from fedfairx.privacy.release import Release
from fedfairx.util.arrays import Array


@dataclass(frozen=True, kw_only=True)
class Continued:
    """Two mechanisms in sequence; `before` made `made` releases, and the last is part of all later ones.

    Guarantees:
    - `mu` is √(μ₁² + μ₂²).
    - `sd` is that of the last message of `before` plus the new run's message.
    """

    before: Mechanism
    earlier: int
    after: Mechanism

    @property
    def name(self) -> str:
        return self.after.name

    @property
    def releases(self) -> int:
        return self.earlier + self.after.releases

    @property
    def mu(self) -> float:
        return math.hypot(self.before.mu, self.after.mu)

    def sd(self, number: int | Sequence[int] | Integers) -> Array:
        numbers = np.asarray(number, dtype=np.int64)
        first = self.before.sd(np.minimum(numbers, self.earlier))
        second = self.after.sd(np.maximum(numbers - self.earlier, 1))
        return np.asarray(np.where(numbers <= self.earlier, first, np.hypot(first, second)))

    def digest(self) -> str:
        parts = f"continued {self.before.digest()} {self.earlier} {self.after.digest()}"
        return hashlib.sha256(parts.encode()).hexdigest()


class ContinuedPrivatizer:
    """A new run's privatizer `inner`, after `before`, which makes no more releases.

    Records that `before` took after its last release are in no message, unless `carry_over` has moved them.
    `confirm` is as for `StreamPrivatizer`, with numbers that count both runs.

    >>> from fedfairx.privacy import KeyedNoise, new_key, private
    >>> noises = [KeyedNoise(new_key(), agent="clinic", run=run) for run in ("first", "second")]
    >>> before, after = [private(2, epsilon=2.0, releases=9, noise=noise) for noise in noises]
    >>> last = before.release()
    >>> both = ContinuedPrivatizer(after, before=before).guarantee
    >>> both.runs, round(both.mu / after.guarantee.mu, 3)
    (2, 1.414)

    Guarantees:
    - Its messages are a function of the messages of `inner` and of the last message of `before`.
    - Numbers and counts continue; the guarantee is for all messages of both runs: μ² adds.
    - The guarantee covers a person if both runs bound a person's records; it states the larger bound.
    - Runs with different neighbours (adjacency, public point or none) have no common claim and are refused.
    """

    def __init__(self, inner: Privatizer, *, before: Privatizer, confirm: Confirm | None = None) -> None:
        same = inner.dimension == before.dimension
        require(same, "inner", f"must have dimension {before.dimension}", inner.dimension)
        require_same_neighbours(before.guarantee, inner.guarantee)
        old, new = before.stream, inner.stream
        if old is not None and new is not None and new.mechanism.share is not None:  # rows stay centred
            same = old.centring == new.centring
            require(same, "centring", "must be that of the run before, with secure aggregation", new.centring)
        before.release(before.spent)  # finishes a release that was begun
        self.inner = inner
        self.before = before
        self.dimension = inner.dimension
        self.stream = inner.stream
        self.owner = inner.owner
        self._claimed = before.guarantee
        self._last = before.release(self._claimed.spent)
        self.mechanism = Continued(before=before.mechanism, earlier=self._last.number, after=inner.mechanism)
        if confirm is not None:
            confirm(self.spent, self.release(self.spent).digest)

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
        """The guarantee of both runs together, at the new run's δ."""
        new, old = self.inner.guarantee, self._claimed
        mu = math.hypot(old.mu, new.mu)
        bounded = old.person_records is not None and new.person_records is not None
        return replace(
            new,
            mu=mu,
            epsilon=epsilon_for(new.delta, mu),
            context_norm=max(old.context_norm, new.context_norm),
            reward=max(old.reward, new.reward),
            largest_record=max(old.largest_record, new.largest_record),
            record_norm=_either(old, new),
            releases=old.spent + new.releases,
            spent=old.spent + new.spent,
            simulated=old.simulated or new.simulated,
            reasons=tuple(dict.fromkeys(old.reasons + new.reasons)),
            person_records=max(old.person_records or 0, new.person_records or 0) if bounded else None,
            runs=old.runs + new.runs,
        )

    def add(
        self,
        context: Array,
        reward: float,
        record: str | int | None = None,
        person: str | int | None = None,
        weight: float = 1.0,
    ) -> None:
        """Add one record to the new run's open leaf."""
        self.inner.add(context, reward, record, person, weight)

    def release(self, number: int | None = None) -> Release:
        last = self._last
        if number is not None:
            following = self.spent + 1
            require(1 <= number <= following, "number", f"must be in 1..{following}", number)
            if number <= last.number:
                return self.before.release(number)
        inner = self.inner.release(None if number is None else number - last.number)
        digest = self.mechanism.digest()
        return Release(
            last.number + inner.number, last.packed + inner.packed, last.count + inner.count, digest
        )


def _either(old: Guarantee, new: Guarantee) -> float | None:
    """The norm that whole records of both runs have at most; None if those of one are not shrunk alike."""
    if old.record_norm is None or new.record_norm is None or old.gram_share != new.gram_share:
        return None
    return max(old.record_norm, new.record_norm)


def require_same_neighbours(old: Guarantee, new: Guarantee) -> None:
    """Refuse a run whose claim is about another change of a record: the two claims would not add."""
    for name in ("adjacency", "centred", "slots"):
        before, after = getattr(old, name), getattr(new, name)
        require(after == before, name, f"must be that of the run before, {before!r}", after)
    before, after = (None if each.share is None else each.share.agreed for each in (old, new))
    require(after == before, "share", f"must be among as many as in the run before, {before!r}", after)


def carry_over(before: Privatizer, after: Privatizer) -> bool:
    """Move the records in the open leaf of `before`, which are in no message, to the open leaf of `after`.

    The leaf is a sum of clipped records, so it moves only if both clip alike. Each run counts its own
    persons, so it also stays where persons are counted. An unfinished release of `before` is finished first.
    The ids of the records move with it, so they can still be replaced or blanked, and not be given again.
    Frozen leaves never move.

    >>> from fedfairx.privacy import KeyedNoise, new_key, private
    >>> noises = [KeyedNoise(new_key(), agent="clinic", run=run) for run in ("first", "second")]
    >>> before, after = [private(2, epsilon=2.0, releases=9, noise=noise) for noise in noises]
    >>> before.add([0.5, 0.5], 1.0)
    >>> carry_over(before, after), after.release().count
    (True, 1)

    Guarantees:
    - If the result is False, no record has moved.
    - Each record is in the open leaf of one of the two. A crash may leave it in neither, never in both.
    """
    old, new = before.stream, after.stream
    if old is None or new is None:
        return False
    require(old.ledger is not new.ledger, "privatizer", "must have a separate ledger", "the old one's")
    first, second = old.parameters(), new.parameters()
    alike = all(first[name] == second[name] for name in ("dimension", "bounds", "public_point"))
    counted = any(each.person_records is not None for each in (old, new))
    with old._one_at_a_time(), new._one_at_a_time():
        old._finish()
        if counted or not alike:
            return False
        here, there = old._position, new._position
        old._position_copy = new._position_copy = None  # read again from the ledgers, whatever happens
        records = old.ledger.give_leaf(replace(here, leaf=np.zeros_like(here.leaf), leaf_count=0))
        leaf, count = there.leaf + here.leaf, there.leaf_count + here.leaf_count
        new.ledger.take_leaf(records, replace(there, leaf=leaf, leaf_count=count))
    return True
