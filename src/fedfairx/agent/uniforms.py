"""An agent's random numbers: uniforms drawn ahead, from a generator whose position can be stored."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

from fedfairx.errors import StateError
from fedfairx.util.arrays import Array

AHEAD = 64  # decisions whose uniforms are drawn in one call, which costs as much as for one
STREAM = 1  # spawn key of a seed, so that a caller's default_rng(seed) draws other numbers
PCG64 = "PCG64"


@dataclass(frozen=True)
class GeneratorPosition:
    """The generator's position: two numbers of 128 bits, in hexadecimal since JSON numbers are shorter."""

    generator: str
    state: str
    increment: str


class Uniforms:
    """Uniforms, `each` of them per decision. `ahead[-1]` is the next one: a refused call takes none."""

    def __init__(self, seed: int | np.random.SeedSequence | None, each: int) -> None:
        if isinstance(seed, int | np.integer):
            seed = np.random.SeedSequence(int(seed), spawn_key=(STREAM,))
        self._generator = np.random.Generator(np.random.PCG64(seed))
        self.each = each
        self.ahead: list[float] = []
        self._fill()

    def _fill(self) -> None:
        self.ahead = self._generator.random(AHEAD * self.each)[::-1].tolist()

    def advance(self) -> None:
        """Take the uniforms of one decision."""
        ahead = self.ahead
        if self.each == 1:  # as most often
            ahead.pop()
        else:
            del ahead[-self.each :]
        if not ahead:
            self._fill()

    def peek(self, count: int) -> list[float]:
        """The uniforms of the next `count` decisions, which need one each; they stay unused."""
        if len(self.ahead) < count:
            self.ahead = self._generator.random(count + AHEAD)[::-1].tolist() + self.ahead
        return self.ahead[: -count - 1 : -1]

    def resize(self, each: int) -> None:
        """Draw `each` uniforms per decision from now on."""
        self._generator.bit_generator.advance(-len(self.ahead))  # type: ignore[attr-defined]
        self.each = each
        self._fill()

    def normals(self, count: int) -> Array:
        """Standard normals (count, 1) for Thompson's draw, from the uniforms after the one for the action."""
        from scipy.special import ndtri

        return np.asarray(ndtri(np.array(self.ahead[-1 - count : -1][::-1])))[:, None]

    @property
    def last(self) -> float:
        """The last uniform of the next decision."""
        return self.ahead[-self.each]

    @property
    def position(self) -> GeneratorPosition:
        """The generator's position, as if nothing had been drawn ahead."""
        generator: Any = np.random.PCG64()
        generator.state = self._generator.bit_generator.state
        generator.advance(-len(self.ahead))
        numbers = generator.state["state"]
        return GeneratorPosition(PCG64, hex(numbers["state"]), hex(numbers["inc"]))

    def restore(self, position: GeneratorPosition, each: int) -> None:
        """Go to a `position`, and draw `each` uniforms per decision."""
        try:
            state, increment = int(position.state, 16), int(position.increment, 16)
        except ValueError:
            raise StateError("random must be hexadecimal numbers") from None
        if position.generator != PCG64:
            raise StateError(f"random.generator must be {PCG64}")
        if not (0 <= state < 2**128 and 0 <= increment < 2**128):
            raise StateError(f"random must be a position of {PCG64}: two numbers below 2^128")
        self._generator.bit_generator.state = {
            "bit_generator": PCG64,
            "state": {"state": state, "inc": increment},
            "has_uint32": 0,
            "uinteger": 0,
        }
        self.each = each
        self._fill()
