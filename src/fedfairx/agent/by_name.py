"""Merits and schedules by name, with parameters, as flags, files and requests give them."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import replace
from typing import Any, TypeVar

from fedfairx.agent.schedules import Schedule, schedule
from fedfairx.core.merit import Affine, Exponential, Logistic, Merit, Power
from fedfairx.errors import InvalidInput
from fedfairx.util.config import plain_settings

Thing = TypeVar("Thing")
MERITS: dict[str, Merit] = {
    type(each).__name__.lower(): each for each in (Exponential(), Affine(), Power(), Logistic())
}


def split(text: object) -> tuple[str, dict[str, str]]:
    """ "paper:gap=50" → ("paper", {"gap": "50"})."""
    name, _, rest = _text(text).partition(":")
    values: dict[str, str] = {}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        if not value:
            raise InvalidInput(f"{name} takes parameters as name=number, got {part!r}")
        values[key.strip()] = value
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


def _with(thing: Thing, name: str, values: Mapping[str, str]) -> Thing:
    kind: type = type(thing)
    parameters, changes = plain_settings(kind), dict[str, Any]()
    for key, value in values.items():
        if key not in parameters:
            has = ", ".join(parameters) or "none"
            raise InvalidInput(f"{name} has no parameter {key!r}; it has: {has}")
        changes[key] = parameters[key].read(value, text=True)
    changed: Thing = replace(thing, **changes) if changes else thing  # type: ignore[type-var]
    return changed
