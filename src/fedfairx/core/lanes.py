"""How many lanes a block has: a number, or None for exactly one, known while compiling.

Every stage loops over lanes innermost. A block of many lanes runs at vector speed. For a block of one, the
loop must vanish: passing None instead of 1 makes the count a constant of the compiled code.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import overload

Lanes = int | None


def lane_count(lanes: Lanes) -> int:
    """The number of lanes."""
    return 1 if lanes is None else lanes


@overload(lane_count, strict=False)  # strict would compare the annotations too
def _lane_count(lanes: Any) -> Any:
    if isinstance(lanes, types.NoneType):
        return lambda lanes: 1  # noqa: ARG005
    return lambda lanes: lanes
