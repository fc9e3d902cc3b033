"""Contexts: from rows with named features, for arms without features, and scaled to the unit ball."""

from __future__ import annotations

import json
import math
from itertools import product as every
from typing import Any

import numpy as np
import pandas as pd
import polars as pl
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedfairx as ffx
from fedfairx.errors import InvalidInput
from fedfairx.features import Schema

numbers = st.floats(-1e6, 1e6)


@given(st.lists(numbers, min_size=1, max_size=6), st.integers(1, 8))
def test_each_arm_has_the_context_in_its_own_block(context: list[float], arms: int) -> None:
    rows = ffx.features.disjoint(context, arms)
    assert rows.shape == (arms, arms * len(context))
    blocks = rows.reshape(arms, arms, len(context))
    for a in range(arms):
        for b in range(arms):
            assert blocks[a, b].tolist() == (context if a == b else [0.0] * len(context))


def test_an_agent_takes_them_as_they_are() -> None:
    agent = ffx.Agent(6, seed=0)
    rows = ffx.features.disjoint(np.array([1.0, 0.5]), arms=3)
    agent.observe(agent.decide(rows), reward=1.0)
    assert ffx.features.disjoint([1.0], 3).tolist() == np.eye(3).tolist()


def test_arms_share_nothing() -> None:
    agent = ffx.Agent(4, seed=0, intercept=False)
    rows = ffx.features.disjoint([0.6, 0.8], arms=2)
    decision = agent.decide(rows)
    agent.observe(decision, reward=1.0)
    estimates = agent.estimate.reshape(2, 2)
    assert estimates[decision.action].any()
    assert not estimates[1 - decision.action].any()


@pytest.mark.parametrize(
    ("context", "arms", "text"),
    [
        ([0.731], 0, "arms must be an integer >= 1, got arms=0"),
        ([0.731], -2, "arms must be an integer >= 1, got arms=-2"),
        ([0.731], 2.0, "arms must be an integer >= 1, got arms=2.0"),
        ([0.731], True, "arms must be an integer >= 1, got arms=True"),
        ([0.731], None, "arms must be an integer >= 1, got arms=None"),
        ([], 2, "context must have shape (d,) with d >= 1, got context='array of shape (0,)'"),
        (0.731, 2, "context must have shape (d,) with d >= 1, got context='array of shape ()'"),
        ([[0.731]], 2, "context must have shape (d,) with d >= 1, got context='array of shape (1, 1)'"),
        (
            [0.731, float("nan")],
            2,
            "context must be finite, got context='array of shape (2,) with NaN or infinity'",
        ),
        ([0.731, float("inf")], 2, "context must be finite"),
        ([0.731, "x"], 2, "context must be a (d,) array of numbers"),
        ([0.731, [1.0]], 2, "context must be a (d,) array of numbers"),
    ],
)
def test_what_is_refused(context: Any, arms: Any, text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        ffx.features.disjoint(context, arms)
    assert str(refused.value).startswith(text)
    assert "731" not in str(refused.value)


@given(st.lists(st.lists(numbers, min_size=3, max_size=3), min_size=1, max_size=5))
def test_a_constant_column_comes_last(contexts: list[list[float]]) -> None:
    rows = ffx.features.intercept(contexts)
    assert rows[:, :-1].tolist() == contexts
    assert (rows[:, -1] == 1.0).all()


@given(st.lists(st.lists(st.floats(-1e300, 1e300), min_size=3, max_size=3), min_size=1), st.floats(1e-3, 1e6))
def test_no_context_leaves_the_unit_ball_and_short_ones_are_scaled(
    contexts: list[list[float]], norm: float
) -> None:
    for row, scaled in zip(np.array(contexts), ffx.features.unit_ball(contexts, norm=norm), strict=True):
        assert np.hypot.reduce(scaled) <= 1 + 1e-12
        if np.hypot.reduce(row) < norm * (1 - 1e-9):
            assert scaled.tolist() == (row / norm).tolist()


def test_complex_numbers_are_refused() -> None:
    with pytest.raises(InvalidInput, match="array of numbers"):
        ffx.features.disjoint(np.array([1.0 + 2.0j]), arms=2)


@pytest.mark.parametrize(
    ("contexts", "norm", "text"),
    [
        (
            [[1.0], [float("nan")]],
            1.0,
            "contexts[1][0] must be finite, got nan",
        ),
        ([1.0], 1.0, "contexts must have shape (K, d)"),
        ([[]], 1.0, "contexts must have shape (K, d)"),
        ([["high"]], 1.0, "contexts[0][0] must be a number, got a string"),
        ([[1j]], 1.0, "contexts[0][0] must be a number, got a complex number"),
        ([[1.0]], 0.0, "norm must be a finite number > 0, got norm=0.0"),
        ([[1.0]], "long", "norm must be a finite number > 0"),
        ([[1.0]], float("inf"), "norm must be a finite number > 0"),
    ],
)
def test_what_can_not_be_scaled(contexts: Any, norm: Any, text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        ffx.features.unit_ball(contexts, norm=norm)
    assert str(refused.value).startswith(text)


# --- Schema -----------------------------------------------------------------------------------------------

CITIES = ["Rome", "Oslo", "Bonn", "Graz"]
KINDS = {
    "price": (0.0, 10.0),
    "city": CITIES[:2],
    "new": bool,
    "age": (-3.0, 7.0),
    "shop": ["a", "b", "other"],
}


def naive(schema: Schema, row: dict[str, Any]) -> dict[str, float]:
    """The context of one row by the names of columns, feature by feature, without a constant divisor."""

    def parts(name: str) -> dict[str, float]:
        kind = KINDS[name]
        if kind is bool:
            return {f"{name}={str(bool(row[name])).lower()}": 1.0}
        if isinstance(kind, tuple):
            return {name: min(max(2.0 * (row[name] - kind[0]) / (kind[1] - kind[0]) - 1.0, -1.0), 1.0)}
        levels = next(each.levels for each in schema.features if each.name == name)
        return {f"{name}={row[name] if row[name] in levels else 'other'}": 1.0}

    found: dict[str, float] = {}
    for name in schema.names:
        found |= parts(name)
    for product in schema.products:
        one, two = product.split(":")
        found |= {f"{a}:{b}": x * y for a, x in parts(one).items() for b, y in parts(two).items()}
    return found | ({"intercept": 1.0} if schema.intercept else {})


@st.composite
def schemas(draw: st.DrawFn) -> Schema:
    names = draw(st.lists(st.sampled_from(sorted(KINDS)), min_size=1, unique=True))
    shared = draw(st.lists(st.sampled_from(names), unique=True, max_size=len(names) - 1))
    pairs = [f"{one}:{two}" for i, one in enumerate(names) for two in names[i + 1 :]]
    pairs += [f"{name}:{name}" for name in names if isinstance(KINDS[name], tuple)]
    products = draw(st.none() | st.lists(st.sampled_from(pairs), unique=True)) if pairs else None
    described = {name: KINDS[name] for name in names}
    return Schema(described, shared=shared, products=products, intercept=draw(st.booleans()))


VALUES: dict[str, st.SearchStrategy[Any]] = {
    "price": st.floats(-5.0, 15.0),
    "age": st.integers(-5, 9),
    "new": st.booleans(),
    "city": st.sampled_from([*CITIES, "other", None]),
    "shop": st.sampled_from(["a", "b", "c", "other"]),
}


def rows_of(schema: Schema, names: Any) -> st.SearchStrategy[dict[str, Any]]:
    return st.fixed_dictionaries({name: VALUES[name] for name in names})


@given(st.data(), schemas())
def test_contexts_are_those_of_a_naive_encoder(data: st.DataObject, schema: Schema) -> None:
    actions = data.draw(st.lists(rows_of(schema, schema.own), min_size=1, max_size=6))
    context = data.draw(rows_of(schema, schema.shared)) if schema.shared else None
    made = schema.encode(actions, context)
    whole = [row | (context or {}) for row in actions]
    terms = len(schema.features) + len(schema.products) + schema.intercept
    for row, found in zip(whole, made.contexts, strict=True):
        expected = {name: value / terms**0.5 for name, value in naive(schema, row).items()}
        assert [expected.get(name, 0.0) for name in schema.columns] == pytest.approx(
            found.tolist(), abs=1e-15
        )
        assert set(expected) <= set(schema.columns)
        assert np.hypot.reduce(found) <= 1 + 1e-15
    counted = actions if context is None else [*actions, context]
    for name in schema.names:
        kind, values = KINDS[name], [row[name] for row in counted if name in row]
        ranged = isinstance(kind, tuple)
        outside = sum(not kind[0] <= value <= kind[1] for value in values) if ranged else 0
        strange = sum(value not in [*kind, "other"] for value in values) if isinstance(kind, list) else 0
        assert made.clipped.get(name, 0) == outside
        assert made.unknown.get(name, 0) == strange
    assert schema.encode(whole).contexts.tolist() == made.contexts.tolist()  # shared ones in every row


@given(schemas())
def test_the_largest_norm_is_attained(schema: Schema) -> None:
    largest = {"price": 10, "age": 7, "new": True, "city": "Oslo", "shop": "c"}
    made = schema.encode([{name: largest[name] for name in schema.names}]).contexts
    assert np.hypot.reduce(made[0]) == pytest.approx(schema.norm, abs=1e-15) == pytest.approx(1.0)
    assert made.min() >= 0.0
    others = {"price": 0, "age": -3, "new": False, "city": "Rome", "shop": "a"}
    least = schema.encode([{name: others[name] for name in schema.names}]).contexts
    assert np.hypot.reduce(least[0]) == pytest.approx(schema.norm, abs=1e-15)


@given(st.floats(-1e6, 1e6), st.floats(1e-6, 1e6))
def test_the_ends_of_a_range_are_not_clipped(low: float, width: float) -> None:
    schema = Schema({"x": (low, low + width)}, intercept=False)
    made = schema.encode([{"x": low}, {"x": low + width}])
    assert made.contexts.tolist() == [[-1.0], [1.0]]
    assert made.clipped == {}


def test_before_any_reward_both_ends_of_a_range_are_alike() -> None:
    """Price and rating are high or low together; the middle is nearest to what an average action is."""
    agent = ffx.Agent(schema=Schema({"rating": (1, 5), "price": (0, 100), "bike": bool}), seed=0)
    rows = [(5, 100, True), (1, 0, False), (3, 50, True)]
    shares = agent.policy(actions=[dict(zip(("rating", "price", "bike"), row, strict=True)) for row in rows])
    assert shares[0] == pytest.approx(shares[1])
    assert ((shares > 1 / 9) & (shares < 2 / 3)).all()


@given(st.data(), schemas())
def test_frames_are_as_dicts(data: st.DataObject, schema: Schema) -> None:
    rows = data.draw(st.lists(rows_of(schema, schema.names), min_size=1, max_size=5))
    expected = schema.encode(rows)
    named = schema.encode({f"n{i}": row for i, row in enumerate(rows)})
    listed = schema.encode([[row[name] for name in schema.names] for row in rows])
    frame = pd.DataFrame(rows).assign(id="x")
    by_row = schema.encode([frame.iloc[i] for i in range(len(rows))])
    kinds = {"price": pl.Float64, "age": pl.Int64, "new": pl.Boolean}
    other = pl.DataFrame(rows, schema={name: kinds.get(name, pl.String) for name in schema.names})
    for found in (named, listed, schema.encode(frame), by_row, schema.encode(other)):
        assert found.contexts.tobytes() == expected.contexts.tobytes()
        assert (found.clipped, found.unknown) == (expected.clipped, expected.unknown)
    if schema.shared:
        alone = frame.iloc[0]
        own = schema.encode(frame[list(schema.own)], alone)
        assert own.contexts[0].tobytes() == expected.contexts[0].tobytes()


def test_names_come_from_a_frame() -> None:
    rows = {"price": [4.0, 9.0], "new": [True, False]}
    schema = Schema({"price": (0, 10), "new": bool})
    agent, names = ffx.Agent(schema=schema, seed=0), ["soup", "roast"]
    frames = {
        "index": pd.DataFrame(rows, index=names),
        "column": pd.DataFrame({**rows, "name": names}),
        "both": pd.DataFrame({**rows, "name": names}, index=["x", "y"]),
        "polars": pl.DataFrame({**rows, "name": names}),
    }
    for frame in frames.values():
        for decision in (
            agent.decide(frame),
            agent.decide(actions=frame),
            *agent.decide_many([frame, {"actions": frame}]),
        ):
            assert decision.name == names[decision.action]
        assert agent.decide(frame, names=["a", "b"]).name in ("a", "b")
    unnamed = (pd.DataFrame(rows), pd.DataFrame(rows, index=[7, 9]), pl.DataFrame(rows))
    assert [agent.decide(frame).name for frame in unnamed] == [None, None, None]
    with pytest.raises(InvalidInput, match="names must be 2 strings, one for each action"):
        agent.decide(pd.DataFrame({**rows, "name": ["soup", None]}))


def test_a_name_that_is_a_feature_is_no_name() -> None:
    agent = ffx.Agent(schema=Schema({"name": ["long", "short"], "price": (0, 1)}), seed=0)
    frame = pd.DataFrame({"name": ["long", "short"], "price": [0.1, 0.2]})
    assert agent.decide(frame).name is None
    assert agent.decide(frame.set_axis(["soup", "roast"])).name in ("soup", "roast")
    assert agent.unknown_values == {}


def test_frames_of_numbers_and_of_names_alone() -> None:
    rows, names = {"a": [0.1, 0.2], "b": [0.3, 0.1]}, ["soup", "roast"]
    named = pd.DataFrame({"name": names, **rows})
    numbers, plain = ffx.Agent(2, seed=0), np.array([[0.1, 0.3], [0.2, 0.1]])
    for frame in (named, named.set_index("name"), pl.DataFrame({"name": names, **rows})):
        decision = numbers.decide(frame)
        assert decision.name == names[decision.action]
        np.testing.assert_array_equal(numbers.policy(frame), numbers.policy(plain))
    agent = ffx.Agent(actions=["bread", *names], seed=0)
    assert {agent.decide(named).name for _ in range(40)} == set(names)
    with pytest.raises(InvalidInput, match="actions must have a column `name`, or an index of text"):
        agent.decide(pd.DataFrame(rows))


def test_numbers_alone_are_encoded_bit_for_bit() -> None:
    """To [-1, 1], a constant, divided by the root of their number."""
    rng, low, high = np.random.default_rng(0), np.array([0.0, 1.0, -7.3]), np.array([10.0, 5.0, 0.2])
    rows = rng.normal(size=(50, 3)) * 8
    for constant in (True, False):
        schema = Schema({"a": (0, 10), "b": (1, 5), "c": (-7.3, 0.2)}, intercept=constant)
        scaled = np.clip(((rows - low) + (rows - high)) / (high - low), -1.0, 1.0)
        expected = np.column_stack([scaled, np.ones(50)]) if constant else scaled
        expected /= math.sqrt(expected.shape[1])
        assert schema.encode(rows.tolist()).contexts.tobytes() == expected.tobytes()


def test_whole_numbers_and_missing_values_are_levels() -> None:
    schema = Schema({"store": ["17", "18"], "x": (0, 1)}, intercept=False)
    frame = pd.DataFrame({"store": [17, 18, 19], "x": [0.75] * 3})
    made = schema.encode(frame)
    assert np.nonzero(made.contexts)[1].tolist() == [0, 3, 1, 3, 2, 3]
    assert made.unknown == {"store": 1}
    assert schema.encode([{"store": value, "x": 0} for value in (None, math.nan, 17.0)]).unknown == {
        "store": 2
    }
    assert schema.encode(pd.DataFrame({"store": pd.Categorical(["18", None]), "x": [1, 1]})).unknown == {
        "store": 1
    }


@given(schemas())
def test_a_schema_is_its_plain_values(schema: Schema) -> None:
    again = Schema.from_dict(json.loads(json.dumps(schema.to_dict())))
    assert again == schema
    assert (again.digest, again.columns, hash(again)) == (schema.digest, schema.columns, hash(schema))
    assert schema.extend(again) is schema
    flags = {"features": ",".join(map(str, schema.features)), "shared": schema.shared}
    assert Schema(flags["features"], shared=flags["shared"]).features == schema.features
    with pytest.raises(AttributeError):
        schema.intercept = True  # type: ignore[misc]


LATER = {
    "price": (0.0, 10.0),
    "city": CITIES,
    "new": bool,
    "age": (-3.0, 7.0),
    "shop": ["a", "b", "other", "c"],
}


@given(st.data(), st.integers(1, 4), st.booleans())
def test_later_versions_append_columns(data: st.DataObject, first: int, constant: bool) -> None:
    """Columns that are there stay where they are, with the same values; new ones follow."""
    names = list(LATER)
    shared = data.draw(st.lists(st.sampled_from(names[1:]), unique=True))
    early = Schema(
        {name: KINDS[name] for name in names[:first]},
        shared=[name for name in shared if name in names[:first]],
        intercept=constant,
    )
    middle = {name: KINDS[name] for name in names[: first + 1]}
    second = early.extend(
        Schema(middle, shared=[name for name in shared if name in middle], intercept=constant)
    )
    last = second.extend(Schema(LATER, shared=shared))
    assert (early.versions, second.versions, last.versions) == (1, 2, 3)
    whole = Schema(LATER, shared=shared)
    assert sorted(last.columns) == sorted(whole.columns)
    assert last.columns[: len(second.columns)] == second.columns
    assert second.columns[: len(early.columns)] == early.columns
    row = data.draw(rows_of(last, names))
    row["city"], row["shop"] = "Rome", "a"  # known from the beginning
    known = {name: row[name] for name in early.names}
    assert (
        last.encode([row]).contexts[0, : early.width].tolist() == early.encode([known]).contexts[0].tolist()
    )
    naively = naive(last, row)
    root = math.sqrt(len(early.features) + len(early.products) + early.intercept)
    expected = [naively.get(name, 0.0) / root for name in last.columns]
    assert last.encode([row]).contexts[0].tolist() == pytest.approx(expected, abs=1e-15)
    largest = {"price": 10, "age": 7, "new": True, "city": "Graz", "shop": "c"}
    terms = len(whole.features) + len(whole.products) + 1
    assert last.norm == pytest.approx(math.sqrt(terms) / root)
    assert np.hypot.reduce(last.encode([largest]).contexts[0]) == pytest.approx(last.norm)
    assert Schema.from_dict(last.to_dict()) == last
    assert last.extend(whole) is last
    for old in (early, second):
        with pytest.raises(InvalidInput, match="must be what the agent has learnt from"):
            last.extend(old)


@pytest.mark.parametrize(
    "later",
    [
        Schema({"city": CITIES[:2], "price": (0, 10)}, shared=["city"]),
        Schema({"price": (0, 11), "city": CITIES[:2]}, shared=["city"]),
        Schema({"price": (0, 10), "city": CITIES[1:2]}, shared=["city"]),
        Schema({"price": (0, 10), "city": ["Bonn", *CITIES[:2]]}, shared=["city"]),
        Schema({"price": (0, 10), "city": bool}, shared=["city"]),
        Schema({"price": (0, 10), "city": (0, 10)}, shared=["city"]),
        Schema({"price": (0, 10), "city": CITIES[:2]}, products=["price:city"]),
        Schema({"price": (0, 10), "city": CITIES[:2]}, shared=["city"], products=[]),
        Schema({"price": (0, 10), "city": CITIES[:2]}, shared=["city"], intercept=False),
        Schema({"price": (0, 10)}),
    ],
)
def test_anything_but_appending_is_refused(later: Schema) -> None:
    schema = Schema({"price": (0, 10), "city": CITIES[:2]}, shared=["city"])
    with pytest.raises(
        InvalidInput, match=r"schema must be what the agent has learnt from, .* create another"
    ):
        schema.extend(later)
    with pytest.raises(InvalidInput, match="schema must be"):
        Schema.from_dict(later.to_dict() | {"before": schema.to_dict()})


@pytest.mark.parametrize(
    ("given", "text"),
    [
        ({"features": {}}, "features must be at least one that is not shared"),
        ({"features": {"a": (0, 1)}, "shared": ["a"]}, "features must be at least one that is not shared"),
        ({"features": {"a": (0, 1)}, "shared": ["b"]}, "shared must be features, of a, got shared='b'"),
        ({"features": {"a": (0, 1)}, "shared": "a"}, "shared must be a list of names"),
        ({"features": {"a": (1, 0)}}, "features.a must be two finite numbers, low < high"),
        ({"features": {"a": (0, math.inf)}}, "features.a must be two finite numbers"),
        ({"features": {"a": (0, 10**400)}}, "features.a must be two finite numbers"),
        ({"features": {"a": ["x", "x"]}}, "features.a must have levels that are different texts"),
        ({"features": {"a": ["x", ""]}}, "features.a must have levels that are different texts"),
        ({"features": {"a": []}}, "features must be like"),
        ({"features": {"a": [1, 2, 3]}}, "features must be like"),
        ({"features": {"a": (True, 2)}}, "features must be like"),
        ({"features": {"a": "number"}}, "features must be like"),
        ({"features": {1: (0, 1)}}, "features must be like"),
        ({"features": {" ": (0, 1)}}, "features must have names"),
        ({"features": 3}, "features must be like"),
        ({"features": [["a", (0, 1)], ["a", bool]]}, "features must be named differently"),
        ({"features": "a=0:1,b"}, 'features must be like "price=0:10,city=Rome|Oslo,new=bool"'),
        (
            {"features": {"a": (0, 1), "b": bool}, "products": ["a"]},
            'products must be two features each, as "a:b"',
        ),
        ({"features": {"a": (0, 1)}, "products": ["a:c"]}, "products must be two features each"),
        (
            {"features": {"a": (0, 1), "b": bool}, "products": ["b:b"]},
            "products must be of two different features",
        ),
        (
            {"features": {"a": (0, 1), "b": bool}, "products": ["a:b", "b:a"]},
            "products must be different pairs",
        ),
        ({"features": {"a": (0, 1)}, "intercept": 1}, "intercept must be True or False"),
        (
            {
                "features": {"a": list(map(str, range(200))), "b": list(map(str, range(200)))},
                "products": ["a:b"],
            },
            "features must make at most 10000 columns",
        ),
        ({"features": {"a": (0, 1)}, "size": 1}, "schema must have no other fields"),
        ({"shared": []}, "schema must be an object with features"),
    ],
)
def test_what_is_no_schema(given: dict[str, Any], text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        Schema.from_dict(given)
    assert str(refused.value).startswith(text)


NUMBER = "must be a finite number of at most 1e+100 in size"


@pytest.mark.parametrize(
    ("actions", "context", "text"),
    [
        ([], {"city": "x"}, "actions must be a list of rows, {name: row} or a data frame, got none"),
        (7, {"city": "x"}, "actions must be a list of rows"),
        ([{"price": 1.0}], {"city": "x"}, "actions[0].new must be given, got none"),
        (
            [{"price": 1.0, "new": True, "x": 731}],
            {"city": "x"},
            "actions[0].x is unknown: features are price, new",
        ),
        ([{"price": 1.0, "new": True}], None, "context.city must be given, or actions[0].city, got none"),
        ([{"price": 1.0, "new": True}], {}, "context.city must be given, got none"),
        ([{"price": 1.0, "new": True}], {"city": "x", "y": 731}, "context.y is unknown: features are city"),
        ([{"price": 1.0, "new": True}], 731, "context must be features by name, got a number"),
        ([{"price": "731", "new": True}], {"city": "x"}, f"actions[0].price {NUMBER}, got a string"),
        ([{"price": True, "new": True}], {"city": "x"}, f"actions[0].price {NUMBER}, got a boolean"),
        ([{"price": None, "new": True}], {"city": "x"}, f"actions[0].price {NUMBER}, got null"),
        ([{"price": math.nan, "new": True}], {"city": "x"}, f"actions[0].price {NUMBER}, got nan"),
        (
            [{"price": 10**400, "new": True}],
            {"city": "x"},
            f"actions[0].price {NUMBER}, got a number that is",
        ),
        (
            [{"price": 1 + 731j, "new": True}],
            {"city": "x"},
            f"actions[0].price {NUMBER}, got a complex number",
        ),
        ([{"price": [1.0], "new": True}], {"city": "x"}, f"actions[0].price {NUMBER}, got a list"),
        ([{"price": 1.0, "new": "yes"}], {"city": "x"}, "actions[0].new must be true or false, got a string"),
        ([{"price": 1.0, "new": 0.731}], {"city": "x"}, "actions[0].new must be true or false, got a number"),
        ([{"price": 1.0, "new": None}], {"city": "x"}, "actions[0].new must be true or false, got null"),
        ([{"price": 1.0, "new": True}], {"city": ["731"]}, "context.city must be text, got a list"),
        ([{"price": 1.0, "new": True}], {"city": True}, "context.city must be text, got a boolean"),
        ([[1.0]], {"city": "x"}, "actions[0] must be 2 values, got 1 of them"),
        (pd.DataFrame({"price": [1.0]}), {"city": "x"}, "actions must have every feature, got no column new"),
        (
            pd.DataFrame([[1.0, 731, True]], columns=["price", "price", "new"]),
            {"city": "x"},
            "actions must have each feature once, got actions='2 columns price'",
        ),
        (
            pd.DataFrame({"price": [1.0, None], "new": True}),
            {"city": "x"},
            f"actions[1].price {NUMBER}, got nan",
        ),
        (
            {"ann": {"price": 1.0, "new": [0, 731]}},
            {"city": "x"},
            "actions.ann.new must be true or false, got a list",
        ),
        ([[1.0, True], [1.0, [731]]], {"city": "x"}, "actions[1][1] (new) must be true or false, got a list"),
        (
            [{"price": 1.0, "new": True, "Ann, 731": 1}],
            {"city": "x"},
            "actions[0] must have no unknown feature, got",
        ),
        (
            [{"price": 1.0, "new": True, "city": "x"}],
            {"city": "x"},
            "actions[0].city must be left out: it is shared",
        ),
    ],
)
def test_rows_that_are_refused(actions: Any, context: Any, text: str) -> None:
    schema = Schema({"price": (0, 10), "new": bool, "city": ["x"]}, shared=["city"])
    with pytest.raises(InvalidInput) as refused:
        schema.encode(actions, context)
    assert str(refused.value).startswith(text)
    assert "731" not in str(refused.value)
    with pytest.raises(InvalidInput, match="context must be left out: no feature is shared"):
        Schema({"a": (0, 1)}).encode([{"a": 1.0}], {"a": 1.0})


# --- back from contexts to features ------------------------------------------------------------------------


def test_contexts_are_decoded_to_what_was_sent() -> None:
    kinds = {"price": (-3.0, 7.0), "city": ["Rome", "Oslo"], "new": bool, "zero": (-1.0, 1.0)}
    schema = Schema(kinds, shared=["city"], products=["price:city", "price:price", "new:zero"])
    rng = np.random.default_rng(8)
    rows = [
        {"price": round(float(rng.uniform(-3, 7)), 2), "new": bool(rng.random() < 0.5), "zero": zero}
        for zero in (0.0, -1.0, 0.3, 1.0, 0.0)
    ]
    decoded = schema.decode(schema.encode(rows, {"city": "Oslo"}).contexts)
    assert decoded == {name: [{**row, "city": "Oslo"}[name] for row in rows] for name in kinds}
    assert [type(value) for value in (decoded["new"][0], decoded["price"][0])] == [bool, float]


def test_decoded_values_were_clipped_or_other() -> None:
    schema = Schema({"price": (0.0, 10.0), "city": ["Rome", "Oslo"]})
    odd = schema.encode([{"price": 99.0, "city": "Bern"}, {"price": -1.0, "city": "Rome"}]).contexts
    assert schema.decode(odd) == {"price": [10.0, 0.0], "city": ["other", "Rome"]}


def test_contexts_of_an_earlier_version_lack_what_came_later() -> None:
    first = Schema({"price": (0.0, 10.0), "city": ["Rome"]})
    later = first.extend(Schema({"price": (0.0, 10.0), "city": ["Rome", "Oslo"], "new": bool}))
    contexts = first.encode([{"price": 2.0, "city": "Rome"}, {"price": 3.0, "city": "Bern"}]).contexts
    assert later.decode(contexts) == {"price": [2.0, 3.0], "city": ["Rome", "other"]}
    assert len(later.column_features) == later.width
    both = later.encode([{"price": 2.0, "city": "Oslo", "new": True}]).contexts
    assert later.decode(both) == {"price": [2.0], "city": ["Oslo"], "new": [True]}


def test_effects_are_differences_of_expected_rewards() -> None:
    """By encoding every row: differences between ends of ranges and from the mean of levels."""
    first = Schema({"a": (-1, 4), "c": ["x", "y"], "b": bool}, products=["a:c", "a:a", "c:b"])
    later = {"a": (-1, 4), "c": ["x", "y", "z"], "b": bool, "w": (0, 1)}
    schema = first.extend(Schema(later, products=["a:c", "a:a", "c:b", "a:w"]))
    theta = np.random.default_rng(0).standard_normal(schema.width)
    middle = {"a": [1.5], "c": ["x", "y", "z"], "b": [False, True], "w": [0.5]}

    def mean(**fixed: object) -> float:
        values = middle | {name: [value] for name, value in fixed.items()}
        rows = [dict(zip(values, row, strict=True)) for row in every(*values.values())]
        return float((schema.encode(rows).contexts @ theta).mean())

    effects = dict(zip(schema.columns, (schema.effects() @ theta).tolist(), strict=True))
    a_in = {level: mean(a=4, c=level) - mean(a=-1, c=level) for level in middle["c"]}
    expected = {
        "intercept": mean(),
        "a": mean(a=4) - mean(a=-1),
        "w": mean(w=1) - mean(w=0),
        "c=z": mean(c="z") - mean(),
        "c=other": mean(c="elsewhere") - mean(),
        "b=true": mean(b=True) - mean(),
        "a:a": (mean(a=4) + mean(a=-1)) / 2 - mean(),
        "a:c=y": a_in["y"] - np.mean(list(a_in.values())),
        "c=x:b=true": mean(c="x", b=True) - mean(c="x") - mean(b=True) + mean(),
        "a:w": mean(a=4, w=1) - mean(a=-1, w=1) - mean(a=4, w=0) + mean(a=-1, w=0),
    }
    assert {name: effects[name] for name in expected} == pytest.approx(expected, abs=1e-12)
