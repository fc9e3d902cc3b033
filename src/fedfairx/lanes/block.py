"""How many lanes a block has: one, which is written None, or WIDTH, which is written BLOCK.

Which of the two is known while compiling, from the type: a stage compiled for None works on floats, one
compiled for BLOCK on Vectors (see `vector`). A plain number is refused: reading a block where there are
fewer lanes would read what belongs to others.
"""

from __future__ import annotations

from typing import Any

from numba import types
from numba.extending import overload

from fedfairx.lanes.registers import WIDTH

Lanes = tuple[()] | None

BLOCK: tuple[()] = ()


def lane_count(lanes: Lanes) -> int:
    """The number of lanes, for the few loops that take lanes one by one."""
    return 1 if lanes is None else WIDTH


@overload(lane_count, strict=False)  # strict would compare the annotations too
def _lane_count(lanes: Any) -> Any:
    if isinstance(lanes, types.NoneType):
        return lambda lanes: 1  # noqa: ARG005
    return lambda lanes: WIDTH  # noqa: ARG005
