"""For errors about data: where a value stands in what a caller gave, and what kind of value it is.

A context is a person's data and must not be in an error, so an error has its place and its kind.
"""

from __future__ import annotations

import math
import re
from collections.abc import Iterable, Mapping, Sequence
from numbers import Number

from fedfairx.errors import InvalidInput

_NULLS = ("NoneType", "NAType", "NaTType")  # the last two are of pandas
_PLAIN = re.compile(r"[^\W\d][\w-]{0,39}")


def place(*keys: object) -> str:
    """Where a value stands in what a caller gave: numbers are positions, the rest are names.

    >>> place("actions", 17, "features", "distance")
    'actions[17].features.distance'
    """
    parts = [f"[{key}]" if isinstance(key, int) else f".{key}" for key in keys]
    return "".join(parts).removeprefix(".")


def inside(outer: str, error: InvalidInput) -> InvalidInput:
    """The error of a part of what a caller gave, with the place of that part in front.

    >>> inside("decisions[3]", InvalidInput("actions must be at least one, got 0"))
    InvalidInput('decisions[3].actions must be at least one, got 0')
    """
    return InvalidInput(f"{outer}.{error}")


def kind_of(value: object) -> str:
    """What kind of value this is, for errors about data, which must not be in them.

    >>> [kind_of(value) for value in (None, "Oslo", True, 3.2, float("nan"), [1], {})]
    ['null', 'a string', 'a boolean', 'a number', 'nan', 'a list', 'an object']
    """
    name = type(value).__name__
    if name in _NULLS:
        return "null"
    if isinstance(value, str | bytes):
        return "a string"
    if name in ("bool", "bool_"):
        return "a boolean"
    if isinstance(value, Number):
        if "complex" in name:
            return "a complex number"
        try:
            number = float(value)  # type: ignore[arg-type]
        except OverflowError:
            return "a number that is too large"
        return "nan" if math.isnan(number) else "infinity" if math.isinf(number) else "a number"
    if isinstance(value, Mapping):
        return "an object"
    return "a list" if isinstance(value, Sequence) or name == "ndarray" else name


def is_plain(name: object) -> bool:
    """Whether a name that a caller made up may be in an error: other text might be a person's data.

    >>> is_plain("prise"), is_plain("Ann, 3 Elm Street")
    (True, False)
    """
    return isinstance(name, str) and _PLAIN.fullmatch(name) is not None


def meant(name: str, names: Iterable[str]) -> str:
    """The name that a misspelt one is close to, as a question; nothing if there is none.

    >>> meant("ratng", ["rating", "city"])
    ': did you mean rating?'
    """
    from difflib import get_close_matches  # slow to import

    near = get_close_matches(name, list(names), n=1)
    return f": did you mean {near[0]}?" if near else ""


def require_different(names: Sequence[str], what: str, rule: str) -> None:
    """Raise `InvalidInput` if a name occurs twice; the text has it, and where it stands.

    >>> require_different(["ann", "ben", "ann"], "actions", "must have different names")
    Traceback (most recent call last):
    fedfairx.errors.InvalidInput: actions must have different names, got 'ann' as actions[0] and actions[2]
    """
    if len(set(names)) == len(names):
        return
    first: dict[str, int] = {}
    for index, name in enumerate(names):
        before = first.setdefault(name, index)
        if before != index:
            where = f"{place(what, before)} and {place(what, index)}"
            raise InvalidInput(f"{what} {rule}, got {name!r} as {where}")
