"""A new run that goes on where a spent one ended, and what both cost together.

The new run's privatizer takes new records only. Its releases are added to the last message of the run before,
so that messages stay cumulative and their numbers go on; that message is public, so adding it is
post-processing. The noise of the two runs is independent, so the squares of their μ add. A record lies in
one of the runs, and by itself costs no more than that run's μ; the sum is what holds for a person with a
record in each.
"""

from __future__ import annotations

import hashlib
import math
from collections.abc import Sequence
from dataclasses import dataclass, replace
from typing import Any

import numpy as np

from fedfairx.core.statistics import Array
from fedfairx.errors import require
from fedfairx.privacy.accounting import epsilon_for
from fedfairx.privacy.factors import Integers
from fedfairx.privacy.guarantee import Guarantee
from fedfairx.privacy.mechanisms import Stated
from fedfairx.privacy.protocols import Privatizer
from fedfairx.privacy.release import Release

__all__ = ["Continued", "ContinuedPrivatizer"]


@dataclass(frozen=True, kw_only=True)
class Continued:
    """Two mechanisms, one after the other; `before` made `made` releases, and the last of them stays in.

    Guarantees:
    - `mu` is √(μ₁² + μ₂²).
    - `sd` is that of the sum of the last message of `before` and the new run's.
    """

    before: Stated
    made: int
    after: Stated

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

    Records that `before` took after its last release are in neither's messages.

    Guarantees:
    - Its messages are a function of the inner privatizer's and of the last message of `before`.
    - Numbers and counts go on; the guarantee is for all messages of both runs, μ² added.
    """

    def __init__(self, inner: Privatizer, *, before: Privatizer) -> None:
        same = inner.dimension == before.dimension
        require(same, "inner", f"must have dimension {before.dimension}", inner.dimension)
        self.inner = inner
        self._claimed = before.guarantee
        self._last = before.release(self._claimed.spent)
        self.mechanism = Continued(before=before.mechanism, made=self._last.number, after=inner.mechanism)

    @property
    def dimension(self) -> int:
        return self.inner.dimension

    @property
    def owner(self) -> str | None:
        """The agent that its noise is for."""
        owner: str | None = getattr(self.inner, "owner", None)
        return owner

    @property
    def guarantee(self) -> Guarantee:
        """What both runs cost together, at the new run's δ."""
        new, old = self.inner.guarantee, self._claimed
        mu = math.hypot(old.mu, new.mu)
        return replace(
            new,
            mu=mu,
            epsilon=epsilon_for(new.delta, mu),
            releases=old.spent + new.releases,
            spent=old.spent + new.spent,
            simulated=old.simulated or new.simulated,
            reasons=tuple(dict.fromkeys(old.reasons + new.reasons)),
        )

    def add(self, context: Array, reward: float, record: str | int | None = None) -> None:
        self.inner.add(context, reward, record)

    def release(self, number: int | None = None) -> Release:
        last = self._last
        if number == last.number:
            return last
        inner = self.inner.release(None if number is None else number - last.number)
        return Release(
            last.number + inner.number,
            last.packed + inner.packed,
            last.count + inner.count,
            self.mechanism.digest(),
        )

    def state(self) -> dict[str, Any]:
        """The inner one's state, and the message that it is added to."""
        return {"schema": 1, "last": self._last.to_bytes().hex(), "inner": self.inner.state()}
