"""Actions that were declared: their names, in the order in which they were added."""

from __future__ import annotations

import re
from collections.abc import Iterable, Sequence
from typing import Any

import numpy as np

from fedfairx.errors import InvalidInput, require
from fedfairx.features import Schema
from fedfairx.util.arrays import Coordinates
from fedfairx.util.places import kind_of, place, require_different

_HALF_PAIR = re.compile("[\ud800-\udfff]")  # half of a surrogate pair, which UTF-8 can't encode


def is_utf8(name: str) -> bool:
    """Whether it can be written as UTF-8."""
    return not _HALF_PAIR.search(name)


class Actions:
    """Names in the order in which they were added; a retired one keeps its coordinate."""

    def __init__(self, names: Iterable[str] = (), retired: Iterable[str] = ()) -> None:
        self._numbers: dict[str, int] = {}
        self._retired: set[str] = set()
        self._offered: dict[str, int] = {}  # coordinates of those that are not retired
        self._all: tuple[Coordinates, list[str]] | None = None
        self.add(names)
        self.retire(retired)

    def __len__(self) -> int:
        return len(self._numbers)

    def __contains__(self, name: object) -> bool:
        return name in self._numbers

    @property
    def names(self) -> tuple[str, ...]:
        """All names, retired ones included, by coordinate."""
        return tuple(self._numbers)

    @property
    def retired(self) -> tuple[str, ...]:
        """Names that are no longer offered."""
        return tuple(name for name in self._numbers if name in self._retired)

    def number(self, name: str) -> int:
        """The coordinate of an action."""
        return self._numbers[name]

    def add(self, names: Iterable[str]) -> None:
        """Offer these actions from now on: new ones, or retired ones again."""
        texts = _texts(names)
        for name in texts:
            require(is_utf8(name), "actions", "must be names that can be written as UTF-8", ascii(name))
        offered = [name for name in texts if name in self._numbers and name not in self._retired]
        require(not offered, "actions", "must be new or retired", offered[0] if offered else None)
        for name in texts:
            self._numbers.setdefault(name, len(self._numbers))
            self._retired.discard(name)
        self._change()

    def retire(self, names: Iterable[str]) -> None:
        """Stop offering these actions; at least one must remain."""
        texts = _texts(names)
        for index, name in enumerate(texts):
            if name not in self._offered:
                raise not_offered(index, name)
        retiring = set(texts)
        left = len(self._numbers) - len(self._retired | retiring)
        require(left > 0 or not retiring, "actions", "must leave one that is offered", len(retiring))
        self._retired |= retiring
        self._change()

    def changed(self, how: str, names: Iterable[str]) -> Actions:
        """These actions after some were added ("add") or retired ("retire")."""
        actions = Actions()
        actions._numbers, actions._retired = dict(self._numbers), set(self._retired)
        actions._change()
        if how == "add":
            actions.add(names)
        else:
            actions.retire(names)
        return actions

    def _change(self) -> None:
        self._offered = {name: at for name, at in self._numbers.items() if name not in self._retired}
        self._all = None

    def offered(self, wanted: object = None) -> tuple[Coordinates, list[str]]:
        """Coordinates and names of these actions; by default of all that are not retired."""
        if self._all is None:
            self._all = np.array([*self._offered.values()], dtype=np.int64), [*self._offered]
        if wanted is None or (type(wanted) is list and wanted == self._all[1]):
            return self._all
        names = _texts(wanted)
        require(bool(names), "actions", "must be at least one", 0)
        try:
            return np.array([*map(self._offered.__getitem__, names)], dtype=np.int64), names
        except KeyError as error:
            raise not_offered(names.index(error.args[0]), error.args[0]) from None

    def require_offered(self, names: Sequence[str]) -> None:
        """Refuse a name that is not offered."""
        for index, name in enumerate(names):
            if name not in self._offered:
                raise not_offered(index, name)

    def known(self, names: object) -> list[str]:
        """Names of actions that were shown, possibly several times; retired ones are allowed."""
        texts = _texts(names, different=False)
        for index, name in enumerate(texts):
            if name not in self._numbers:
                raise InvalidInput(f"{place('actions', index)} must be one that this agent has, got {name!r}")
        return texts

    def coordinates(self, names: Sequence[str]) -> Coordinates:
        """Coordinates of actions that it has, for the optimistic rule."""
        return np.array([self._numbers[name] for name in names], dtype=np.int64)


def not_offered(index: int, name: str) -> InvalidInput:
    """The error for the action of this index among those that a caller named."""
    text = "must be one that this agent has and has not retired"
    return InvalidInput(f"{place('actions', index)} {text}, got {name!r}")


def check_minimum_share(share: float, count: int) -> None:
    """Refuse a least share of each action that so many actions can't all have."""
    fits = share * count <= 1.0 + 1e-9
    require(fits, "minimum_share", f"must be at most 1/{count} with {count} actions", share)


def as_arms(
    dimension: object, names: Sequence[str] | None, schema: Schema | None = None
) -> tuple[int, Actions | None]:
    """How many numbers describe an action, 0 if it has a name alone, and the actions that were declared."""
    actions = None if names is None else Actions(names)
    require(actions is None or len(actions) > 0, "actions", "must be at least one name", names)
    if schema is not None:
        size = as_schema(schema).width
        text = f"must be left out or {size}, as of schema"
        require(dimension in (None, size), "dimension", text, dimension)
        return size, actions
    if dimension is None and actions is not None:
        return 0, actions
    whole = isinstance(dimension, int | np.integer) and not isinstance(dimension, bool)
    ok = whole and dimension >= 1  # type: ignore[operator]
    shown = dimension if np.ndim(dimension) == 0 else kind_of(dimension)  # type: ignore[arg-type]
    require(ok, "dimension", "must be an integer >= 1", shown, "or give actions or a schema")
    return int(dimension), actions  # type: ignore[call-overload]


def as_schema(schema: object) -> Schema:
    """Refuse what is no schema."""
    typed = isinstance(schema, Schema)
    remedy = "give fedfairx.features.Schema({'price': (0, 10), 'city': ['Rome', 'Oslo'], 'new': bool})"
    require(typed, "schema", "must be a features.Schema", type(schema).__name__, remedy)
    return schema  # type: ignore[return-value]


def _texts(names: object, *, different: bool = True) -> list[str]:
    several = isinstance(names, Iterable) and not isinstance(names, str | bytes)
    listed: list[Any] = list(names) if several else []  # type: ignore[call-overload]
    texts = set(map(type, listed)) <= {str} or all(isinstance(name, str) for name in listed)
    if not (several and texts and all(listed)):
        text = "actions must be a list of names, which are strings that are not empty"
        odd = [index for index, name in enumerate(listed) if not (isinstance(name, str) and name)][:1]
        kind = f"{kind_of(listed[odd[0]])} as {place('actions', odd[0])}" if odd else kind_of(names)
        raise InvalidInput(f"{text}, got {kind}")
    if different:
        require_different(listed, "actions", "must have different names")
    return listed
