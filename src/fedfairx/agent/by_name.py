"""Merits and schedules by name, with parameters, as flags, files and requests give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from fedfairx.agent.schedules import Schedule, schedule
from fedfairx.core.merit import Affine, Exponential, Logistic, Merit, Power
from fedfairx.errors import InvalidInput

Thing = TypeVar("Thing")
MERITS: dict[str, Merit] = {
    type(each).__name__.lower(): each for each in (Exponential(), Affine(), Power(), Logistic())
}


def split(text: object) -> tuple[str, dict[str, float]]:
    """ "paper:gap=50" → ("paper", {"gap": 50.0})."""
    name, _, rest = _text(text).partition(":")
    values: dict[str, float] = {}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        try:
            values[key.strip()] = float(value)
        except ValueError:
            raise InvalidInput(f"{name} takes parameters as name=number, got {part!r}") from None
    return name.strip(), values


def as_schedule(text: object) -> Schedule:
    """A schedule by name, with parameters: "paper:gap=50", "doubling:start=10"."""
    name, values = split(text)
    return _with(schedule(name), name, values)


def as_merit(text: object) -> Merit:
    """A merit by name, with parameters: "doubling:0.1", "exponential:steepness=10", "affine:offset=0.1"."""
    kind, _, rest = _text(text).partition(":")
    if kind.strip() == "doubling":
        try:
            return Exponential.doubling(float(rest))
        except ValueError:
            raise InvalidInput(f'merit must be like "doubling:0.1", got merit={text!r}') from None
    name, values = split(text)
    if name not in MERITS:
        raise InvalidInput(f"merit must be one of doubling, {', '.join(MERITS)}, got merit={name!r}")
    return _with(MERITS[name], name, values)


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f'a name must be text such as "affine:slope=2", got {type(value).__name__}')
    return value


def _with(thing: Thing, name: str, values: Mapping[str, float]) -> Thing:
    fields = getattr(thing, "__dataclass_fields__", {})
    changes: dict[str, Any] = {}
    for key, value in values.items():
        if key not in fields:
            raise InvalidInput(f"{name} has no parameter {key!r}; it has: {', '.join(fields) or 'none'}")
        whole = "int" in str(fields[key].type)
        if whole and not value.is_integer():
            raise InvalidInput(f"{key} must be an integer, got {key}={value:g}")
        changes[key] = int(value) if whole else value
    changed: Thing = replace(thing, **changes) if changes else thing  # type: ignore[type-var]
    return changed
