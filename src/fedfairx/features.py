"""Build contexts: from described features (`Schema`), or from arrays: blocks, an intercept, the unit ball."""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from itertools import chain
from operator import itemgetter
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedfairx.errors import InvalidInput, require
from fedfairx.util.arrays import Array, as_floats, not_finite, not_numbers
from fedfairx.util.canonical_json import digest_of
from fedfairx.util.frames import is_frame
from fedfairx.util.places import is_plain, kind_of, meant, place

__all__ = ["Encoded", "Feature", "Schema", "disjoint", "intercept", "unit_ball"]

OTHER = "other"  # the level of values that are not among a category's levels
BOOL = "bool"
CONSTANT = "intercept"  # the name of its column
MOST_COLUMNS = 10_000
LARGEST = 1e100  # size of a number
LONGEST = 500  # characters of a schema in an error
_LIKE = (
    "features must be like {'price': (0, 10), 'city': ['Rome', 'Oslo'], 'new': bool}: "
    "a range, levels or bool for each"
)
_ANOTHER = "create another agent for another meaning"


@dataclass(frozen=True)
class Feature:
    """A number with its range, a category with its levels, or, with neither, a boolean.

    >>> Feature("city", levels=("Rome", "Oslo")).kind
    ['Rome', 'Oslo']
    """

    name: str
    range: tuple[float, float] | None = None
    levels: tuple[str, ...] = ()

    def __post_init__(self) -> None:
        named = isinstance(self.name, str) and bool(self.name.strip())
        require(named, "features", "must have names", self.name)
        if self.range is not None:
            low, high = self.range
            is_range = all(math.isfinite(end) and abs(end) <= LARGEST for end in (low, high)) and low < high
            require(is_range, f"features.{self.name}", "must be two finite numbers, low < high", self.range)
        texts = all(isinstance(level, str) and level for level in self.levels)
        different = len(set(self.levels)) == len(self.levels)
        text = "must have levels that are different texts"
        require(texts and different, f"features.{self.name}", text, list(self.levels))

    @property
    def codes(self) -> tuple[str, ...]:
        """The levels of a category, with "other" among them; those of a boolean; one, "", of a number."""
        if not self.levels:
            return ("false", "true") if self.range is None else ("",)
        return self.levels if OTHER in self.levels else (*self.levels, OTHER)

    @property
    def kind(self) -> Any:
        """Its range, its levels, or "bool", as plain values."""
        if self.range is not None:
            return list(self.range)
        return list(self.levels) or BOOL

    def __str__(self) -> str:
        """As it is written on the command line."""
        if self.range is not None:
            return f"{self.name}={self.range[0]!r}:{self.range[1]!r}"
        return f"{self.name}={'|'.join(self.levels) or BOOL}"


def features_of(source: object) -> tuple[Feature, ...]:
    """Features from {name: range, levels or bool}, from such pairs, or from "price=0:10,city=Rome|Oslo"."""
    if isinstance(source, str):
        parts = [part.partition("=") for part in source.split(",") if part.strip()]
        pairs: list[Any] = [(name.strip(), _written(kind.strip(), source)) for name, _, kind in parts]
    elif isinstance(source, Mapping):
        pairs = list(source.items())
    else:
        pairs = list(source) if isinstance(source, list | tuple) else [None]
    features = tuple(each if isinstance(each, Feature) else _feature(each) for each in pairs)
    names = [each.name for each in features]
    require(len(set(names)) == len(names), "features", "must be named differently", names)
    return features


def _written(text: str, whole: str) -> object:
    """A range, levels or bool as written on the command line."""
    if "|" in text:
        return [level.strip() for level in text.split("|") if level.strip()]
    if text == BOOL:
        return BOOL
    try:
        low, high = map(float, text.split(":"))
    except ValueError:
        like = 'features must be like "price=0:10,city=Rome|Oslo,new=bool"'
        raise InvalidInput(f"{like}, got {whole}") from None
    return low, high


def _feature(pair: Any) -> Feature:
    if not (isinstance(pair, list | tuple) and len(pair) == 2 and isinstance(pair[0], str)):
        raise InvalidInput(f"{_LIKE}, got {type(pair).__name__}")
    name, kind = pair
    if kind is bool or (isinstance(kind, str) and kind == BOOL):
        return Feature(name)
    parts = list(kind) if isinstance(kind, list | tuple) else []
    if parts and all(isinstance(part, str) for part in parts):
        return Feature(name, None, tuple(parts))
    number = all(isinstance(part, int | float) and not isinstance(part, bool) for part in parts)
    if len(parts) != 2 or not number:
        raise InvalidInput(f"{_LIKE}, got {name!r} with something else")
    try:
        return Feature(name, (float(parts[0]), float(parts[1])))
    except OverflowError:
        raise InvalidInput(f"features.{name} must be two finite numbers, low < high") from None


class Encoded(NamedTuple):
    """Contexts (K, d), and by feature how many numbers were clipped and how many values were unknown.

    >>> encoded = Schema({"price": (0, 10)}).encode([{"price": 12}])
    >>> encoded.clipped
    {'price': 1}
    """

    contexts: Array
    clipped: dict[str, int]
    unknown: dict[str, int]


_Column = tuple[tuple[str, str], ...]  # the features of a column, each with its level: none, one or two


@dataclass(frozen=True, init=False)
class Schema:
    """Describes what a caller sends, and makes contexts in the unit ball of it.

    features: {name: kind}. A number has a range, as (0, 10): values are scaled from it to [-1, 1], and
        clipped. With 0 in its middle, what is known before the first rewards is as little at one end as at
        the other. A category has levels, as ["Rome", "Oslo"], with a column each: other values count as
        "other". `bool` has the levels "false" and "true": with one column, an agent that knows nothing yet
        would think less certain, and show more often, what is true.
    shared: names of the features that all actions of a decision share: the situation, sent once.
    products: pairs of features that are multiplied, as "city:price", so that the effect of one can depend on
        the other; one number twice is its square. By default each shared feature with each other one: without
        a product, a shared feature adds the same to all actions.
    intercept: whether there is a constant column, so that rewards need not be 0 where all features are.
        Without it, adding the same number to all rewards changes shares.
    before: the earlier version that this one appends to; `extend` sets it.

    A column is divided by the largest norm that a context can have: √T with T terms, one for each feature,
    product and intercept. A category counts once, however many levels it has, since only one of its columns
    is not 0. Later versions append columns and keep the divisor of the first: what was learnt stays true.

    >>> schema = Schema({"price": (0, 10), "new": bool, "city": ["Rome", "Oslo"]}, shared=["city"])
    >>> schema.products
    ('price:city', 'new:city')
    >>> schema.columns[:6]
    ('price', 'new=false', 'new=true', 'city=Rome', 'city=Oslo', 'city=other')
    >>> schema.encode([{"price": 4, "new": True}], context={"city": "Rome"}).contexts.round(3)[:, :6]
    array([[-0.082,  0.   ,  0.408,  0.408,  0.   ,  0.   ]])
    """

    features: tuple[Feature, ...]
    shared: tuple[str, ...]
    products: tuple[str, ...]
    intercept: bool
    before: Schema | None

    def __init__(
        self,
        features: Mapping[str, object] | Sequence[object] | str,
        *,
        shared: Sequence[str] = (),
        products: Sequence[str] | None = None,
        intercept: bool = True,
        before: Schema | None = None,
    ) -> None:
        all_features = features_of(features)
        names = [each.name for each in all_features]
        situation = _names(shared, "shared")
        for name in situation:
            require(name in names, "shared", f"must be features, of {', '.join(names)}", name)
        own = [name for name in names if name not in situation]
        require(bool(own), "features", "must be at least one that is not shared", len(names))
        require(isinstance(intercept, bool), "intercept", "must be True or False", intercept)
        if products is None:
            products = [f"{one}:{two}" for one in own for two in situation]
        pairs = [_pair(text, all_features) for text in _names(products, "products")]
        different = len(set(pairs)) == len(pairs)
        require(different, "products", "must be different pairs", list(products))
        values = {
            "features": all_features,
            "shared": tuple(name for name in names if name in situation),
            "products": tuple(f"{one}:{two}" for one, two in pairs),
            "intercept": intercept,
            "before": before,
        }
        for field, value in values.items():
            object.__setattr__(self, field, value)
        if before is not None:
            _check_extension(before, self)
        size = self.width
        text = f"must make at most {MOST_COLUMNS} columns: a product of categories has one for each pair"
        require(size <= MOST_COLUMNS, "features", text, size)

    # --- what it describes -----------------------------------------------------------------------------

    @cached_property
    def names(self) -> tuple[str, ...]:
        """The features, in order."""
        return tuple(each.name for each in self.features)

    @cached_property
    def own(self) -> tuple[str, ...]:
        """The features that each action has, in order: those that are not shared."""
        return tuple(name for name in self.names if name not in self.shared)

    @cached_property
    def columns(self) -> tuple[str, ...]:
        """The name of each column, as "price", "city=Rome" or "price:city=Rome"."""
        return tuple(
            ":".join(f"{name}={level}" if level else name for name, level in key) or CONSTANT
            for key in self._keys
        )

    @property
    def width(self) -> int:
        """d, how many columns a context has."""
        return len(self._keys)

    @property
    def constant(self) -> int | None:
        """Which column is the intercept, if there is one."""
        return self._keys.index(()) if self.intercept else None

    @property
    def has_numbers(self) -> bool:
        """Whether a feature is a number, so that entries of contexts may be negative."""
        return any(each.range is not None for each in self.features)

    @property
    def norm(self) -> float:
        """The largest norm of a context: 1, or more if later versions have appended features.

        The divisor stays that of the first version, which had T₁ terms; with T terms it is √(T/T₁).
        """
        return math.sqrt(len(self._terms)) / self._divisor

    def __str__(self) -> str:
        """As settings on the command line."""
        parts = [f"features={','.join(map(str, self.features))}"]
        parts += [f"shared={','.join(self.shared)}"] if self.shared else []
        parts += [f"products={','.join(self.products)}"] if self.products else []
        return " ".join([*parts, f"intercept={str(self.intercept).lower()}"])

    # --- versions --------------------------------------------------------------------------------------

    def extend(self, later: Schema) -> Schema:
        """This schema with what `later` appends to it: features, levels, products or an intercept.

        It is this very schema if there is nothing new; anything but appending is refused. Columns that are
        there stay where they are, with their scale, and new ones follow.
        """
        _check_extension(self, later)
        if {*later._natural} <= {*self._keys}:
            return self
        return replace(later, before=self)

    @property
    def versions(self) -> int:
        """1, and one more for each time that something was appended."""
        return 1 if self.before is None else 1 + self.before.versions

    def to_dict(self) -> dict[str, Any]:
        """Plain values, from which `from_dict` makes the same schema."""
        values: dict[str, Any] = {
            "features": [[each.name, each.kind] for each in self.features],
            "shared": list(self.shared),
            "products": list(self.products),
            "intercept": self.intercept,
        }
        return values if self.before is None else values | {"before": self.before.to_dict()}

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Schema:
        """The schema of these plain values; all but `features` may be left out."""
        keys = ("features", "shared", "products", "intercept", "before")
        if not isinstance(values, Mapping) or "features" not in values:
            raise InvalidInput("schema must be an object with features")
        odd = [str(name) for name in values if name not in keys]
        require(not odd, "schema", f"must have no other fields than {', '.join(keys)}", odd[:1])
        before = values.get("before")
        return cls(**{**values, "before": None if before is None else cls.from_dict(before)})

    @cached_property
    def digest(self) -> str:
        """SHA-256 of the canonical JSON of `to_dict`."""
        return digest_of(self.to_dict())

    # --- from rows to contexts -------------------------------------------------------------------------

    def encode(self, actions: Any, context: Any = None, *, where: tuple[str, ...] = ("actions",)) -> Encoded:
        """Contexts (K, d) of actions, given by the names of features, and what was clipped or unknown.

        actions: a row for each: a list of dicts (or of lists, in the order of features), {name: row}, or a
            data frame of pandas or polars, whose other columns are ignored. `Agent.decide` takes the names of
            actions from its column `name`, or from an index of text.
        context: the shared features, as a dict or a row of pandas. Without it, each row must have them too.
        where: for errors, the name of the list of rows, and then that of the part of a row that its features
            are in, if they are not all of it.
        """
        names, once = (self.names, ()) if context is None else (self.own, self.shared)
        rows = _Rows(actions, where, names, self.shared)
        columns = rows.columns()
        count, unknown = len(columns[0]), dict[str, int]()
        situation = rows
        if context is not None:
            require(bool(once), "context", "must be left out: no feature is shared", "one")
            situation = _Rows([context], ("context",), once, self.shared)
            columns += [list(column) * count for column in situation.columns()]
        numbers, codes = np.ones((len(self.features) + 1, count)), None
        ranged: Sequence[str] = (*names, *once)
        if self._layout.fixed is None:
            codes, number_columns = np.zeros(numbers.shape, dtype=np.intp), {}
            for name, column in zip(ranged, columns, strict=True):
                at, feature, table = self._table[name]
                try:
                    if feature.range is not None:
                        number_columns[name] = column
                    elif table is None:
                        codes[at] = _booleans(column)
                    else:
                        codes[at], missing = _codes(column, table)
                        if missing:
                            unknown[name] = 1 if name in once else missing
                except _Odd as odd:
                    raise (situation if name in once else rows).refusal(name, odd) from None
            ranged, columns = list(number_columns), list(number_columns.values())
        if columns:
            try:
                numbers[self._ranged[context is None]] = _numbers(columns)
            except _Odd as odd:
                name = ranged[odd.column]
                raise (situation if name in once else rows).refusal(name, odd) from None
        return Encoded(*self._contexts(numbers, codes, once), unknown)

    def _contexts(
        self, numbers: Array, codes: NDArray[Any] | None, once: Sequence[str]
    ) -> tuple[Array, dict[str, int]]:
        """Contexts from each feature's number and code (F + 1, K), the last of which is the constant."""
        layout, clipped = self._layout, dict[str, int]()
        scaled = ((numbers - layout.low) + (numbers - layout.high)) / layout.width  # exact at both ends
        inside = np.minimum(np.maximum(scaled, -1.0), 1.0)
        moved = (numbers < layout.low) | (numbers > layout.high)
        if moved.any():
            times = zip(self.names, moved.sum(axis=1).tolist(), strict=False)
            clipped = {name: 1 if name in once else many for name, many in times if many}
        if layout.alone:
            contexts = np.ascontiguousarray(inside[: self.width].T)
            contexts /= self._divisor
            return contexts, clipped
        values = inside[layout.first] * inside[layout.second]
        contexts = np.zeros((numbers.shape[1], self.width))
        if codes is None:
            contexts[:, layout.fixed] = values.T
        else:
            at = layout.columns[layout.start + codes[layout.first] * layout.stride + codes[layout.second]]
            contexts[np.arange(len(contexts)), at] = values
        contexts /= self._divisor
        return contexts, clipped

    def decode(self, contexts: ArrayLike) -> dict[str, list[Any]]:
        """The features of contexts (K, d) as callers have them: numbers, levels and booleans, by name.

        A number that was clipped is an end of its range, and an unknown level is "other". Contexts of an
        earlier version have fewer columns: features that it did not have are left out.

        >>> schema = Schema({"price": (0, 10), "city": ["Rome", "Oslo"]})
        >>> schema.decode(schema.encode([{"price": 2.5, "city": "Oslo"}, {"price": 12, "city": "Bern"}])[0])
        {'price': [2.5, 10.0], 'city': ['Oslo', 'other']}
        """
        rows = np.asarray(contexts, dtype=np.float64)
        values: dict[str, list[Any]] = {}
        for each, places in self._own_columns:
            columns = {level: rows[:, place] for level, place in places.items() if place < rows.shape[1]}
            if columns and each.range is None:
                largest = np.array(list(columns.values())).argmax(axis=0)
                levels = [list(columns)[code] for code in largest]
                values[each.name] = levels if each.levels else [level == "true" for level in levels]
            elif columns and each.range is not None:
                (low, high), scaled = each.range, columns[""] * self._divisor
                numbers = 0.5 * ((1.0 - scaled) * low + (1.0 + scaled) * high)
                digits = 12 - math.floor(math.log10(max(abs(low), abs(high))))  # further ones are of rounding
                values[each.name] = [round(number, digits) + 0.0 for number in numbers.tolist()]
        return values

    @cached_property
    def _own_columns(self) -> list[tuple[Feature, dict[str, int]]]:
        """Each feature, and the places of its own columns, by level."""
        places = {key: place for place, key in enumerate(self._keys)}
        return [
            (each, {level: places[(each.name, level),] for level in each.codes}) for each in self.features
        ]

    @cached_property
    def column_features(self) -> tuple[tuple[str, ...], ...]:
        """The features that each column is made of: none of the intercept, one, or two of a product.

        >>> Schema({"price": (0, 10), "new": bool}, shared=["new"], intercept=False).column_features[-1]
        ('price', 'new')
        """
        return tuple(tuple(name for name, _ in key) for key in self._keys)

    def effects(self) -> Array:
        """(d, d): times θ, what each column says in units of the reward, with its features' other values at
        their middle: a number in the middle of its range, a category at the mean of its levels.

        Of a number it is the expected reward at the highest value less that at the lowest; of a square, that
        at both ends less that in the middle; of a level, that with it less the mean of all levels, among
        which "other" counts only if it is stated. Of a product of two features it is how much larger the
        effect of one is at that level of the other than on average, or at the highest value of the other
        than at the lowest. Of the intercept it is the expected reward with all features at their middle.

        >>> schema = Schema({"price": (0, 10), "new": bool})
        >>> theta = 3**0.5 * np.array([0.1, -0.1, 0.3, 0.5])  # of price, new=false, new=true, intercept
        >>> (schema.effects() @ theta).round(3).tolist()
        [0.2, -0.2, 0.2, 0.6]
        """
        matrix = np.full((self.width, self.width), 1.0 / self._divisor)
        for each in self.features:
            stated = each.levels or each.codes
            table = _contrasts([code in stated for code in each.codes], number=each.range is not None)
            kinds = [_kind(key, each) for key in self._keys]
            matrix *= table[np.ix_(kinds, kinds)]
        return matrix

    @cached_property
    def _table(self) -> dict[str, tuple[int, Feature, dict[str, int] | None]]:
        """By name: its place, itself, and the codes of a category's levels."""
        return {
            each.name: (
                place,
                each,
                {level: code for code, level in enumerate(each.codes)} if each.levels else None,
            )
            for place, each in enumerate(self.features)
        }

    @cached_property
    def _ranged(self) -> tuple[NDArray[Any], NDArray[Any]]:
        """The places of numbers, in the order of their columns with a shared context, and without one."""
        numbers = [each.name for each in self.features if each.range is not None]
        apart = [name for shared in (False, True) for name in numbers if (name in self.shared) == shared]
        places = {name: place for place, name in enumerate(self.names)}
        return np.array([places[name] for name in apart]), np.array([places[name] for name in numbers])

    @cached_property
    def _terms(self) -> list[tuple[str, ...]]:
        """The features of each term: none of the intercept, one, or two of a product."""
        terms: list[tuple[str, ...]] = [(name,) for name in self.names]
        pairs = [tuple(text.split(":")) for text in self.products]
        return [*terms, *pairs, *([()] if self.intercept else [])]

    @cached_property
    def _natural(self) -> list[_Column]:
        """The columns of all terms in their order, each term's by the levels of its features."""
        return [key for term in self._terms for key in self._columns_of(term)]

    def _columns_of(self, term: tuple[str, ...]) -> list[_Column]:
        keys: list[_Column] = [()]
        for name in term:
            codes = self._table[name][1].codes
            keys = [(*key, (name, level)) for key in keys for level in codes]
        return keys

    @cached_property
    def _keys(self) -> tuple[_Column, ...]:
        """The columns: those of the earlier version first."""
        if self.before is None:
            return tuple(self._natural)
        old = self.before._keys
        earlier = set(old)
        return (*old, *(key for key in self._natural if key not in earlier))

    @cached_property
    def _divisor(self) -> float:
        return math.sqrt(len(self._terms)) if self.before is None else self.before._divisor

    @cached_property
    def _layout(self) -> _Layout:
        """Where the values of terms go; each is a product of two features, of which the constant is one."""
        places = {name: place for place, name in enumerate(self.names)}
        constant = len(self.features)
        numbers = [each.range or (-1.0, 1.0) for each in self.features]
        low, high = np.array([*numbers, (-1.0, 1.0)]).T
        first, second = (
            np.array([places[term[part]] if len(term) > part else constant for term in self._terms])
            for part in (0, 1)
        )
        sizes = np.array([*(len(each.codes) for each in self.features), 1])
        counts = sizes[first] * sizes[second]
        where = {key: column for column, key in enumerate(self._keys)}
        columns = np.array([where[key] for key in self._natural])
        fixed = columns if (counts == 1).all() else None
        low, high, start, stride = (
            each[:, None] for each in (low, high, np.cumsum(counts) - counts, sizes[second])
        )
        alone = fixed is not None and not self.products and columns.tolist() == list(range(len(columns)))
        return _Layout(low, high, high - low, first, second, start, stride, columns, fixed, alone)


class _Layout(NamedTuple):
    """Where the numbers of F features and the constant go: T terms, products of two of them, into columns."""

    low: Array  # (F + 1, 1)
    high: Array  # (F + 1, 1)
    width: Array  # (F + 1, 1)
    first: NDArray[Any]  # (T,)
    second: NDArray[Any]  # (T,)
    start: NDArray[Any]  # (T, 1) of its columns in `columns`
    stride: NDArray[Any]  # (T, 1) how many codes its second feature has
    columns: NDArray[Any]  # of all terms in their order, by the codes of both features
    fixed: NDArray[Any] | None  # the column of each term, if all features are numbers
    alone: bool  # whether they are also the columns, and the constant the last


def _names(value: object, what: str) -> tuple[str, ...]:
    are_names = isinstance(value, list | tuple) and all(isinstance(name, str) for name in value)
    require(are_names, what, "must be a list of names", value)
    names: tuple[str, ...] = tuple(value)  # type: ignore[arg-type]
    require(len(set(names)) == len(names), what, "must be different", list(names))
    return names


def _pair(text: str, features: Sequence[Feature]) -> tuple[str, str]:
    """The two features of a product, in their order among features."""
    names = [each.name for each in features]
    pair = text.split(":")
    is_pair = len(pair) == 2 and all(name in names for name in pair)
    require(is_pair, "products", f'must be two features each, as "a:b", of {", ".join(names)}', text)
    one, two = sorted(pair, key=names.index)
    square = one != two or features[names.index(one)].range is not None
    require(square, "products", "must be of two different features, or of a number with itself", text)
    return one, two


def _kind(key: _Column, feature: Feature) -> int:
    """What a column has of a feature: 0 nothing, 1 and so on its levels or its number, then its square."""
    codes = [feature.codes.index(level) for name, level in key if name == feature.name]
    return 0 if not codes else codes[0] + len(codes)


def _contrasts(stated: Sequence[bool], *, number: bool) -> Array:
    """What `Schema.effects` makes, in a row by kind, of a function of one feature, in a column by kind."""
    if number:  # 1, x and x²: their values in the middle, ends' difference, and ends less middle
        return np.array([[1.0, 0.0, 0.0], [0.0, 2.0, 0.0], [0.0, 0.0, 1.0]])
    weights = np.array([0.0, *stated]) / sum(stated)
    table = np.eye(weights.size) - weights
    table[0], table[1:, 0] = weights, 0.0
    table[0, 0] = 1.0
    return table


def _check_extension(before: Schema, later: Schema) -> None:
    """Refuse what does not keep every column of `before` as it is."""
    for old, new in zip(before.features, later.features, strict=False):
        same = old.name == new.name and old.range == new.range and bool(old.levels) == bool(new.levels)
        if not same or new.levels[: len(old.levels)] != old.levels:
            raise _refusal(before, later)
    keeps_all = len(before.features) <= len(later.features) and set(before._natural) <= set(later._natural)
    if not keeps_all or set(before.shared) != {name for name in before.names if name in later.shared}:
        raise _refusal(before, later)


def _refusal(before: Schema, later: Schema) -> InvalidInput:
    return InvalidInput(
        f"schema must be what the agent has learnt from, {_short(before)}, or append to it, "
        f"got {_short(later)}; {_ANOTHER}"
    )


def _short(schema: Schema) -> str:
    text = str(schema)
    return text if len(text) <= LONGEST else f"{text[:LONGEST]}…"


def are_described(rows: object) -> bool:
    """Whether these are features by name: rows, {name: row} or a data frame; and not an array of numbers."""
    if isinstance(rows, list | tuple) and rows:
        return isinstance(rows[0], Mapping) or hasattr(rows[0], "to_dict")
    return isinstance(rows, Mapping) or is_frame(rows)


class _Odd(Exception):
    """A value that breaks the rule of its feature."""

    def __init__(self, rule: str, column: int, row: int, value: object) -> None:
        super().__init__(rule)
        self.rule, self.column, self.row, self.kind = rule, column, row, kind_of(value)


class _Rows:
    """Rows of features as a caller gave them: their values, and for errors where each stands."""

    def __init__(
        self, source: Any, where: tuple[str, ...], names: Sequence[str], shared: Sequence[str]
    ) -> None:
        self._source, self._where, self._names, self._shared = source, where, names, shared

    def columns(self) -> list[Sequence[Any]]:
        """The values of each feature."""
        source, names, (what, *_) = self._source, self._names, self._where
        if is_frame(source):
            return self._frame_columns()
        rows = list(source.values()) if isinstance(source, Mapping) else source
        if not isinstance(rows, list | tuple) or not rows:
            kind = "none" if isinstance(rows, list | tuple) else kind_of(rows)
            raise InvalidInput(f"{what} must be a list of rows, {{name: row}} or a data frame, got {kind}")
        size, wanted = len(names), itemgetter(*names)
        try:
            if all(type(row) is dict and len(row) == size for row in rows):
                return list(zip(*map(wanted, rows), strict=True)) if size > 1 else [list(map(wanted, rows))]
        except KeyError:
            pass  # `_listed` says which
        return list(zip(*(self._listed(row, index) for index, row in enumerate(rows)), strict=True))

    def _frame_columns(self) -> list[Sequence[Any]]:
        source, names, (what, *_) = self._source, self._names, self._where
        have = list(source.columns)
        for name in names:
            if name not in have:
                raise InvalidInput(f"{what} must have every feature, got no column {name}")
            once = have.count(name) == 1
            require(once, what, "must have each feature once", f"{have.count(name)} columns {name}")
        columns = [source[name].to_list() for name in names]
        require(bool(columns[0]), what, "must be at least one", 0)
        return columns

    def _place(self, index: int, *keys: object) -> str:
        """The place of a row, or of a value in it."""
        what, *part = self._where
        if what == "context":
            return place(what, *keys)
        key = list(self._source)[index] if isinstance(self._source, Mapping) else index
        return place(what, key, *part, *keys)

    def _listed(self, row: Any, index: int) -> Sequence[Any]:
        """The values of a row, in the order of names."""
        names = self._names
        if isinstance(row, list | tuple):
            if len(row) != len(names):
                where = self._place(index)
                raise InvalidInput(f"{where} must be {len(names)} values, got {len(row)} of them")
            return row
        foreign = not isinstance(row, Mapping) and hasattr(row, "to_dict")  # a row of pandas
        row = row.to_dict() if foreign else row
        if not isinstance(row, Mapping):
            raise InvalidInput(f"{self._place(index)} must be features by name, got {kind_of(row)}")
        if not foreign:
            for name in row:
                if name not in names:
                    raise self._unknown(index, name)
        for name in names:
            if name not in row:
                raise self._missing(index, name)
        return [row[name] for name in names]

    def _missing(self, index: int, name: str) -> InvalidInput:
        text = f"{self._place(index, name)} must be given"
        if name in self._shared and self._where[0] != "context":
            text = f"{place('context', name)} must be given, or {text.removesuffix(' must be given')}"
        return InvalidInput(f"{text}, got none")

    def _unknown(self, index: int, name: object) -> InvalidInput:
        if name in self._shared:
            text = "must be left out: it is shared, and given in context"
        else:
            near = meant(str(name), self._names)
            text = f"is unknown{near}" if near else f"is unknown: features are {', '.join(self._names)}"
        if name in self._shared or is_plain(name):
            return InvalidInput(f"{self._place(index, name)} {text}")
        return InvalidInput(
            f"{self._place(index)} must have no unknown feature, got one whose name is not shown; "
            f"features are {', '.join(self._names)}"
        )

    def refusal(self, name: str, odd: _Odd) -> InvalidInput:
        """The error of a value that breaks the rule of this feature."""
        index = 0 if self._where[0] == "context" else odd.row
        key: object = name
        if isinstance(self._source, list | tuple) and isinstance(self._source[index], list | tuple):
            key = self._names.index(name)
        called = "" if key == name else f" ({name})"
        return InvalidInput(f"{self._place(index, key)}{called} {odd.rule}, got {odd.kind}")


def _numbers(columns: Sequence[Sequence[Any]]) -> Array:
    """The columns (n, K) of numbers."""
    numbers = _as_numbers(columns)
    if numbers is not None:
        return numbers
    numbers = np.empty((len(columns), len(columns[0])))
    for row, values in enumerate(zip(*columns, strict=True)):
        for column, value in enumerate(values):
            one = _as_numbers([[value]])
            if one is None:
                rule = f"must be a finite number of at most {LARGEST:g} in size"
                raise _Odd(rule, column, row, value)
            numbers[column, row] = one[0, 0]
    return numbers


def _as_numbers(columns: Sequence[Sequence[Any]]) -> Array | None:
    """The columns (n, K) as numbers; None if one is not, or if they are of types that do not go together."""
    kinds, numbers = set(map(type, chain.from_iterable(columns))), None
    try:
        if kinds <= {int, float}:
            numbers = np.array(columns, dtype=np.float64)
        elif not kinds & {bool, np.bool_, str, bytes} and np.asarray(columns).dtype.kind in "iuf":
            numbers = np.asarray(columns, dtype=np.float64)
    except (TypeError, ValueError, OverflowError):
        return None
    return (
        numbers if numbers is not None and numbers.ndim == 2 and (np.abs(numbers) <= LARGEST).all() else None
    )


def _booleans(column: Sequence[Any]) -> NDArray[Any]:
    """The codes of booleans."""
    codes = _as_booleans(column)
    if codes is not None:
        return codes
    for row, value in enumerate(column):
        if _as_booleans([value]) is None:
            raise _Odd("must be true or false", 0, row, value)
    return np.array([bool(value) for value in column], dtype=np.intp)


def _as_booleans(column: Sequence[Any]) -> NDArray[Any] | None:
    try:
        values = np.asarray(column)
    except ValueError:  # lists of different lengths
        return None
    are_booleans = (
        values.ndim == 1 and values.dtype.kind in "biuf" and bool(((values == 0) | (values == 1)).all())
    )
    return values.astype(np.intp) if are_booleans else None


def _codes(column: Sequence[Any], table: Mapping[str, int]) -> tuple[list[int], int]:
    """The codes of a category's values, and how many of them are none of its levels."""
    if set(map(type, column)) != {str}:
        column = [_text(value, row) for row, value in enumerate(column)]
    codes = [table.get(value, -1) for value in column]
    missing = codes.count(-1)
    if missing:
        codes = [table[OTHER] if code < 0 else code for code in codes]
    return codes, missing


def _text(value: Any, row: int) -> str | None:
    """A category's value: text, or a whole number as text; None where it is missing."""
    if isinstance(value, str):
        return value
    if isinstance(value, int | float | np.integer | np.floating) and not isinstance(value, bool):
        return str(int(value)) if math.isfinite(value) and value == int(value) else None
    if value is None or type(value).__name__ in ("NAType", "NaTType"):  # of pandas
        return None
    raise _Odd("must be text", 0, row, value)


# --- arrays ------------------------------------------------------------------------------------------------


def disjoint(context: ArrayLike, arms: int) -> Array:
    """Contexts (K, K·d) of K actions from one shared (d,): row a holds it in block a, zeros elsewhere.

    Each action then has its own block of θ, so that actions share nothing but an intercept: the disjoint
    linear model of Li et al. 2010, with `intercept=False`. With the context [1.0] each action has its own
    mean reward, and the agent's dimension is K.

    >>> disjoint([1.0, 0.5], arms=2)
    array([[1. , 0.5, 0. , 0. ],
           [0. , 0. , 1. , 0.5]])
    """
    whole = isinstance(arms, int | np.integer) and not isinstance(arms, bool)
    require(bool(whole and arms >= 1), "arms", "must be an integer >= 1", arms)
    shared = as_floats(context)
    if shared is None:
        raise InvalidInput("context must be a (d,) array of numbers, got another type")
    fits = shared.ndim == 1 and shared.size >= 1
    require(fits, "context", "must have shape (d,) with d >= 1", f"array of shape {shared.shape}")
    finite = bool(np.isfinite(shared).all())
    require(finite, "context", "must be finite", f"array of shape {shared.shape} with NaN or infinity")
    rows = np.zeros((int(arms), int(arms), shared.size))
    rows[np.arange(int(arms)), np.arange(int(arms))] = shared
    return rows.reshape(int(arms), -1)


def intercept(contexts: ArrayLike) -> Array:
    """Append a column of ones to contexts (K, d), so that rewards may differ from 0 where features are 0.

    Agents of arrays append their own, unless they have `intercept=False`. Contexts become longer: scale them
    afterwards, `unit_ball(intercept(x), norm=…)`.

    >>> intercept([[0.2], [0.4]])
    array([[0.2, 1. ],
           [0.4, 1. ]])
    """
    rows = _rows(contexts)
    return np.column_stack([rows, np.ones(len(rows))])


def unit_ball(contexts: ArrayLike, *, norm: float) -> Array:
    """Divide contexts (K, d) by `norm`, a known bound on their length; longer ones get length 1.

    `norm` must be chosen without looking at the data where they are private, and be the same in every call:
    what an agent learns is about scaled contexts.

    >>> unit_ball([[3.0, 4.0], [30.0, 40.0]], norm=10.0)
    array([[0.3, 0.4],
           [0.6, 0.8]])
    """
    number = isinstance(norm, int | float | np.number) and not isinstance(norm, bool)
    require(bool(number and 0 < norm < np.inf), "norm", "must be a finite number > 0", norm)
    scaled = _rows(contexts) / float(norm)
    lengths = np.hypot.reduce(scaled, axis=1, keepdims=True)  # which no square can make overflow
    return np.asarray(scaled / np.maximum(lengths, 1.0))


def _rows(contexts: ArrayLike) -> Array:
    """A finite (K, d) array."""
    rows = as_floats(contexts)
    if rows is None:
        raise not_numbers("contexts", contexts)
    fits = rows.ndim == 2 and rows.size >= 1
    require(fits, "contexts", "must have shape (K, d) with K, d >= 1", f"array of shape {rows.shape}")
    if not np.isfinite(rows).all():
        raise not_finite("contexts", rows, np.inf)
    return rows
