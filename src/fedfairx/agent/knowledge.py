"""How little is known: the number of rewards that shares rest on, against the numbers that a model has."""

from __future__ import annotations

from dataclasses import dataclass, replace

#: Rewards for each number of the model until which shares follow luck as much as merit, by
#: `benchmarks/little_known.py`.
ENOUGH = 4


@dataclass(frozen=True)
class Knowledge:
    """What the shares of an agent rest on.

    own: its own rewards; where they decay, the sum of their weights.
    others: what it believes of others' messages, in rewards like its own.
    numbers: how many numbers the model has: columns of contexts, or actions without features.

    >>> print(Knowledge(own=12, others=0, numbers=40))
    Shares rest on 12 rewards for a model of 40 numbers: before about 160 they follow luck as much as merit.
    """

    own: float
    others: float
    numbers: int

    @property
    def rewards(self) -> int:
        """How many rewards shares rest on."""
        return round(self.own + self.others)

    @property
    def enough(self) -> int:
        """The number of rewards from which shares clearly follow merit more than luck."""
        return ENOUGH * self.numbers

    @property
    def little(self) -> bool:
        """Whether shares follow luck as much as merit."""
        return self.rewards < self.enough

    def when(self, own: float) -> Knowledge:
        """The same at the time of so many own rewards; of the others' messages as now."""
        return replace(self, own=min(max(own, 0.0), self.own))

    def __str__(self) -> str:
        text = f"Shares rest on {self.rewards} reward{'' if self.rewards == 1 else 's'}"
        if not self.little:
            return f"{text}."
        numbers = f"{self.numbers} number{'' if self.numbers == 1 else 's'}"
        luck = f"before about {self.enough} they follow luck as much as merit"
        return f"{text} for a model of {numbers}: {luck}."
