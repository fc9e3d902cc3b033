"""How a setting's value is read: from TOML as it is, from the environment and the command line as text."""

from __future__ import annotations

import math
from collections.abc import Callable, Iterable, Mapping, Sequence
from typing import Any

from fedfairx.core.agent_kernels import LARGEST
from fedfairx.errors import InvalidInput, require
from fedfairx.service.feature_table import Feature

Reader = Callable[[str, object], Any]  # (name, value) → the value, or `InvalidInput`

LONGEST = 200  # characters of a name
YES, NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")


def text(name: str, value: object) -> str:
    """Any text."""
    require(isinstance(value, str), name, "must be text", value)
    return str(value)


def choice(*allowed: str) -> Reader:
    """One of some words."""

    def read(name: str, value: object) -> str:
        require(value in allowed, name, f"must be one of {', '.join(allowed)}", value)
        return str(value)

    return read


def whole(low: int, high: int = 2**53) -> Reader:
    """A whole number within limits."""

    def read(name: str, value: object) -> int:
        rule = (
            f"must be a whole number from {low} to {high}"
            if high < 2**53
            else f"must be a whole number >= {low}"
        )
        try:
            found = int(value) if isinstance(value, str) else value
        except ValueError:
            found = None
        require(type(found) is int and low <= found <= high, name, rule, value)
        assert isinstance(found, int)
        return found

    return read


def number(low: float, high: float = math.inf, *, above: bool = False) -> Reader:
    """A finite number within limits; with `above` the lower one itself is out."""
    rule = f"must be a finite number {'>' if above else '>='} {low:g}" + (
        "" if high == math.inf else f" and <= {high:g}"
    )

    def read(name: str, value: object) -> float:
        try:
            found = float(value) if isinstance(value, str | int | float) else math.nan
        except (ValueError, OverflowError):
            found = math.nan
        fits = math.isfinite(found) and low <= found <= high and not (above and found == low)
        require(fits and not isinstance(value, bool), name, rule, value)
        return found

    return read


def optional(inner: Reader) -> Reader:
    """What `inner` reads, or nothing at all."""

    def read(name: str, value: object) -> Any:
        return None if value is None or value == "" else inner(name, value)

    return read


def pair(name: str, value: object) -> tuple[float, float]:
    """Two numbers, the first below the second: "1:5", in TOML [1, 5]."""
    ends = value.replace(",", ":").split(":") if isinstance(value, str) else value
    try:
        low, high = (float(end) for end in ends)  # type: ignore[attr-defined]
    except (TypeError, ValueError):
        low = high = math.nan
    require(-LARGEST <= low < high <= LARGEST, name, "must be two numbers, low < high, like 1:5", value)
    return low, high


def names(name: str, value: object) -> tuple[str, ...]:
    """Different names: "ann, ben", in TOML ["ann", "ben"], where they may have commas in them."""
    parts = filter(None, (part.strip() for part in value.split(","))) if isinstance(value, str) else value
    if not isinstance(parts, Iterable):
        raise InvalidInput(f"{name} must be a list of names, got {type(value).__name__}")
    made = tuple(parts)
    for each in made:
        fits = isinstance(each, str) and 0 < len(each) <= LONGEST
        require(fits, name, f"must be names of 1 to {LONGEST} characters", each)
    require(len(set(made)) == len(made), name, "must be different names", list(made))
    return made


def switch(name: str, value: object) -> bool:
    """True or false."""
    if isinstance(value, str) and value.lower() in (*YES, *NO):
        return value.lower() in YES
    require(isinstance(value, bool), name, "must be true or false", value)
    return bool(value)


def features(name: str, value: object) -> tuple[Feature, ...]:
    """Features with their ranges: "price=0:10, rating=1:5", in TOML {price = [0, 10], rating = [1, 5]}."""
    pairs = _pairs_of_text(name, value) if isinstance(value, str) else _pairs_of_table(name, value)
    made = tuple(Feature(key, low, high) for key, low, high in pairs)
    names = [feature.name for feature in made]
    require(len(set(names)) == len(names), name, "must be named differently", names)
    return made


def _pairs_of_text(name: str, value: str) -> list[tuple[str, float, float]]:
    found = []
    for part in filter(None, (part.strip() for part in value.split(","))):
        key, _, ends = part.partition("=")
        low, _, high = ends.partition(":")
        try:
            found.append((key.strip(), float(low), float(high)))
        except ValueError:
            raise InvalidInput(f'{name} must be like "price=0:10, rating=1:5", got {part!r}') from None
    return found


def _pairs_of_table(name: str, value: object) -> list[tuple[str, float, float]]:
    if isinstance(value, tuple) and all(isinstance(part, Feature) for part in value):
        return [(part.name, part.low, part.high) for part in value]
    if not isinstance(value, Mapping):
        raise InvalidInput(f"{name} must be a table of ranges, got {type(value).__name__}")
    found = []
    for key, ends in value.items():
        fits = (
            isinstance(ends, Sequence) and len(ends) == 2 and all(type(end) in (int, float) for end in ends)
        )
        require(fits, f"{name}.{key}", "must be a range [low, high]", ends)
        found.append((str(key), float(ends[0]), float(ends[1])))
    return found
