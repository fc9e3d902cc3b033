"""Reading a saved state field by field. An error names the field and what it is, never its content."""

from __future__ import annotations

import math
import sys
from collections.abc import Iterator
from typing import Any

import numpy as np

from fedfairx.errors import StateError
from fedfairx.util.arrays import Array

LARGEST_INTEGER = 2**53  # above it a JSON number is not exact everywhere


class Fields:
    """A JSON object whose fields are asked for by name and type."""

    def __init__(self, values: object, where: str) -> None:
        if not isinstance(values, dict):
            raise StateError(f"{where} must be an object, got {_kind(values)}")
        self._values: dict[str, Any] = values
        self._where = where

    def _take(self, name: str) -> Any:
        if name not in self._values:
            raise StateError(f"{self._where} has no field {name!r}")
        return self._values[name]

    def _refuse(self, name: str, rule: str) -> StateError:
        return StateError(f"{self._where}.{name} must be {rule}, got {_kind(self._values[name])}")

    def names(self) -> list[str]:
        """The names of all fields."""
        return list(self._values)

    def plain(self) -> dict[str, Any]:
        """The object itself."""
        return self._values

    def part(self, name: str) -> Fields:
        """An object within this one."""
        return Fields(self._take(name), f"{self._where}.{name}")

    def parts(self, name: str) -> Iterator[Fields]:
        """A list of objects."""
        values = self._take(name)
        if not isinstance(values, list):
            raise self._refuse(name, "a list")
        for index, value in enumerate(values):
            yield Fields(value, f"{self._where}.{name}[{index}]")

    def text(self, name: str) -> str:
        """A string."""
        value = self._take(name)
        if not isinstance(value, str):
            raise self._refuse(name, "a string")
        return value

    def texts(self, name: str) -> list[str] | None:
        """A list of strings, or null."""
        values = self._take(name)
        if values is None:
            return None
        if not isinstance(values, list) or not all(isinstance(value, str) for value in values):
            raise self._refuse(name, "a list of strings")
        return list(values)

    def flag(self, name: str) -> bool:
        """True or false."""
        value = self._take(name)
        if not isinstance(value, bool):
            raise self._refuse(name, "true or false")
        return value

    def integer(self, name: str, low: int = 0, high: int = LARGEST_INTEGER) -> int:
        """A whole number within its limits."""
        value = self._take(name)
        whole = isinstance(value, int) and not isinstance(value, bool)
        if not whole or not low <= value <= high:
            raise self._refuse(name, f"an integer from {low} to {high}")
        return int(value)

    def number(self, name: str, low: float = -math.inf) -> float:
        """A finite number."""
        value = self._take(name)
        if not _finite(value) or value < low:
            raise self._refuse(name, "a finite number" if low == -math.inf else f"a finite number >= {low:g}")
        return float(value)

    def numbers(self, name: str, size: int) -> Array:
        """So many finite numbers."""
        values = self._take(name)
        if not isinstance(values, list) or len(values) != size or not all(map(_finite, values)):
            raise self._refuse(name, f"{size} finite numbers")
        return np.array(values, dtype=np.float64)

    def pair(self, name: str) -> tuple[float, float] | None:
        """Two finite numbers, or null."""
        if self._take(name) is None:
            return None
        low, high = self.numbers(name, 2).tolist()
        return low, high

    def hexadecimal(self, name: str) -> int:
        """A whole number >= 0 written as 0x…, below 2^128."""
        text = self.text(name)
        try:
            value = int(text, 16)
        except ValueError:
            value = -1
        if not 0 <= value < 2**128:
            raise self._refuse(name, "a hexadecimal number below 2^128")
        return value

    def octets(self, name: str) -> bytes:
        """Bytes written as hexadecimal digits."""
        text = self.text(name)
        try:
            return bytes.fromhex(text)
        except ValueError:
            raise self._refuse(name, "hexadecimal digits") from None


def _finite(value: object) -> bool:
    """Whether this is a number that a float can hold; a whole number in JSON may have any size."""
    return type(value) in (int, float) and abs(value) <= sys.float_info.max  # type: ignore[arg-type]


def _kind(value: object) -> str:
    """What a value is, without the value."""
    return f"a list of {len(value)}" if isinstance(value, list) else type(value).__name__
