"""Shares of noise for secure aggregation: every member adds a part, and only the sum of all is ever seen.

If the members' sums are only ever seen as a total, the total needs the noise of one member, σ², and each of
h honest members adds σ²/h of it. Rows of all members are aligned and linear, so when up to c colluding
members subtract their own rows, what is left of a total still carries at least σ²: the central mechanism.

Rows are rounded to a public grid, so that they add up exactly and can be divided into shares of a ring.
docs/explanation/noise-shares.md proves that the sum of rounded rows is as private as a rounded sum.
"""

from __future__ import annotations

import math
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedfairx.errors import require
from fedfairx.util.arrays import Array

#: The grid's step is at most 2⁻¹⁰ of the least sd that an entry of a row has given all earlier rows,
GRID_BITS = 10
#: and every total is below 2⁴⁸ steps, so that floats hold it exactly and the ring of 2⁶⁴ does not wrap.
RANGE_BITS = 48
#: Sds of noise that a total's range has room for.
TAIL = 12.0
#: Records of a member that enter at most, unless others are agreed or the range has room for fewer.
RECORDS = 10_000_000


def default_colluding(members: int) -> int:
    """How many members may collude unless something else is agreed: a fifth, and at least one."""
    return max(1, members // 5)


@dataclass(frozen=True, kw_only=True)
class NoiseShare:
    """Who adds which part of the noise of a total, and whom that protects against.

    members: m, the members whose rows make a total.
    colluding: c, the members that may collude with each other and with the hub.
    honest: h, the honest members whose noise must be in every total; by default all founding members but c.
    records: N, the records of a member that may enter; further ones stay local. By default ten million, or as
        many as the range has room for.
    step_exponent: of the grid's step, a power of two; calibration sets it.

    >>> share = NoiseShare.among(5, colluding=1)
    >>> share.honest
    4

    Guarantees:
    - A federation with fewer than h + c members is refused: a total without the colluders' rows would
      carry less noise than is claimed.
    - `times_mu(c)` is at most 1.
    """

    members: int
    colluding: int
    honest: int
    records: int | None = None
    step_exponent: int | None = None

    def __post_init__(self) -> None:
        c, h, m = self.colluding, self.honest, self.members
        require(c >= 1, "colluding", "must be >= 1: whoever reads totals is a member", c)
        require(h >= 2, "honest", f"must be >= 2: a total of {m} members less {c} would be one's own row", h)
        text = f"must be >= {h + c}: of fewer, {c} that collude leave less noise in a total than is claimed"
        require(m >= h + c, "members", text, m)
        require(self.records is None or self.records >= 1, "records", "must be >= 1", self.records)

    @classmethod
    def among(cls, members: int, *, colluding: int | None = None, records: int | None = None) -> NoiseShare:
        """The shares of a founding roster of this size."""
        c = default_colluding(members) if colluding is None else colluding
        text = f"must be at least {c + 2} for secure aggregation where {c} may collude"
        require(members >= c + 2, "members", text, members)
        return cls(members=members, colluding=c, honest=members - c, records=records)

    @property
    def step(self) -> float:
        """The grid's step."""
        assert self.step_exponent is not None
        return math.ldexp(1.0, self.step_exponent)

    @property
    def noise(self) -> float:
        """Sd of a member's noise over that which one member alone would need."""
        return 1.0 / math.sqrt(self.honest)

    def total_noise(self, members: int) -> float:
        """Sd of the noise of this many members' sum over that which one member alone would need."""
        return math.sqrt(members / self.honest)

    def times_mu(self, colluding: int) -> float:
        """μ against this many colluding members, over the claim: √(h/(m − c′))."""
        require(0 <= colluding < self.members, "colluding", f"must be in 0..{self.members - 1}", colluding)
        return math.sqrt(self.honest / (self.members - colluding))

    @property
    def worst_times_mu(self) -> float:
        """μ if a single row is seen, over the claim: √h."""
        return math.sqrt(self.honest)

    @property
    def agreed(self) -> tuple[int, int, int]:
        """m, c and h."""
        return self.members, self.colluding, self.honest

    def parameters(self) -> dict[str, Any]:
        """Return what members must agree on, as plain values, for the digest. Rosters may grow."""
        return {
            "colluding": self.colluding,
            "honest": self.honest,
            "records": self.records,
            "step_exponent": self.step_exponent,
        }

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        return dict(vars(self))


def on_grid(row: Array, share: NoiseShare) -> Array:
    """Round a row to the grid of a calibrated share."""
    return np.asarray(share.step * np.rint(row / share.step))


def step_exponent(least_sd: float) -> int:
    """Return e of the largest step 2^e that is at most 2⁻¹⁰ of this sd."""
    return math.frexp(least_sd)[1] - 1 - GRID_BITS


def most_records(share: NoiseShare, *, step: float, bound: float, sd: float) -> int:
    """Return the largest N with m·(N·bound + 12 sd) < 2⁴⁸·step; 0 if there is none.

    bound: the largest entry that one record adds to. sd: of the noisiest entry of a row.
    """
    room = math.ldexp(step, RANGE_BITS) / share.members - TAIL * sd
    return max(math.ceil(room / bound) - 1, 0)
