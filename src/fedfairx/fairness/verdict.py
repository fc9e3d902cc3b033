"""Shown against entitled, in words.

"within"           surely between four fifths and five quarters of what it is entitled to (tolerance 0.2)
"below", "above"   surely less, or more, than it is entitled to, and not surely within
"too little data"  none of these can be said yet
"""

from __future__ import annotations

from dataclasses import dataclass

WITHIN, BELOW, ABOVE, UNKNOWN = "within", "below", "above", "too little data"


@dataclass(frozen=True)
class Share:
    """A share and the interval that holds at all times."""

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """An action or a group, over the rounds in which it was there."""

    name: str
    rounds: int
    count: int  # how often it was shown
    shown: Share
    policy: float  # what the policies gave it: shown without the luck of the draw
    entitled: Share
    verdict: str

    @property
    def shortfall(self) -> Share:
        """Entitled less shown; the interval holds where both do."""
        return Share(
            self.entitled.value - self.shown.value,
            self.entitled.low - self.shown.high,
            self.entitled.high - self.shown.low,
        )


def verdict(shown: Share, entitled: Share, tolerance: float) -> str:
    """What can be said for sure while both intervals hold."""
    least = 1.0 - tolerance
    if shown.low >= least * entitled.high and least * shown.high <= entitled.low:
        return WITHIN
    if shown.high < entitled.low:
        return BELOW
    if shown.low > entitled.high:
        return ABOVE
    return UNKNOWN
