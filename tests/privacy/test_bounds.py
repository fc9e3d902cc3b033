"""Clipping, and the sensitivity that follows from it, against brute force."""

from __future__ import annotations

import math

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedfairx.core.statistics import pack
from fedfairx.errors import InvalidInput
from fedfairx.privacy.bounds import Bounds, Unbounded

ADJACENCIES = ["replace", "add-remove"]
CASES = [(1.0, 1.0, 1.0), (1.0, 1.0, 0.4), (2.0, 0.5, 1.0), (0.5, 2.0, 1.0), (1.0, 1.0, 3.0), (1.3, 0.8, 0.7)]


def _change(first, second, scale) -> float:
    """Mahalanobis length of the change of the packed statistics, straight from the definition."""
    packed = [pack(np.outer(x, x), x * y) for x, y in (first, second)]
    return float(np.linalg.norm((packed[0] - packed[1]) / scale))


def _largest_change(bounds: Bounds, dimension: int) -> float:
    """Maximises over both records by many searches whose steps shrink; knows nothing of the closed form."""
    generator = np.random.default_rng(7)
    scale, size = bounds.entry_scale(dimension), 2 * max(bounds.context_norm, bounds.reward)
    rows, columns = np.triu_indices(dimension)

    def packed(free: np.ndarray) -> np.ndarray:
        x, y, _ = bounds.clip_many(free[:, :-1], free[:, -1])  # as `clip` row by row
        return np.hstack([x[:, rows] * x[:, columns], x * y[:, None]])

    def changes(free: np.ndarray) -> np.ndarray:
        other = 0.0 if bounds.adjacency == "add-remove" else packed(free[:, dimension + 1 :])
        return np.linalg.norm((packed(free[:, : dimension + 1]) - other) / scale, axis=1)

    free = size * generator.normal(size=(100, 2 * (dimension + 1)))
    if bounds.nonnegative:
        free = np.abs(free)
    best = changes(free)
    for step in size * np.geomspace(1.0, 1e-4, 200):
        tried = free + step * generator.normal(size=free.shape)
        found = changes(tried)
        free[found > best] = tried[found > best]
        best = np.maximum(best, found)
    return float(best.max())


@pytest.mark.long
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize(("norm", "reward", "share"), CASES)
def test_sensitivity_is_what_brute_force_finds(adjacency, nonnegative, norm, reward, share) -> None:
    bounds = Bounds(
        context_norm=norm, reward=reward, adjacency=adjacency, nonnegative=nonnegative, gram_share=share
    )
    found = _largest_change(bounds, 2)
    assert found <= bounds.sensitivity * (1 + 1e-9)
    assert found >= bounds.sensitivity * (1 - 1e-3)


@pytest.mark.long
@pytest.mark.parametrize("adjacency", ADJACENCIES)
@pytest.mark.parametrize("nonnegative", [False, True])
@pytest.mark.parametrize(
    ("norm", "reward", "share", "whole"),
    [(1.0, 1.0, 1.0, 1.2), (1.0, 1.0, 0.4, 0.8), (2.0, 0.5, 1.0, 1.9), (1.0, 1.0, 3.0, 1.3)],
)
def test_shrinking_whole_records_has_the_sensitivity_that_brute_force_finds(
    adjacency, nonnegative, norm, reward, share, whole
) -> None:
    given = {"context_norm": norm, "reward": reward, "adjacency": adjacency, "gram_share": share}
    bounds = Bounds(**given, nonnegative=nonnegative, record_norm=whole)
    found = _largest_change(bounds, 2)
    assert found <= bounds.sensitivity * (1 + 1e-9)
    attained = _change(*(bounds.clip(*record)[:2] for record in bounds.worst_pair(2)), bounds.entry_scale(2))
    assert max(found, attained) >= bounds.sensitivity * (1 - 1e-3)  # a search may stop in a corner
    assert bounds.sensitivity < Bounds(**given, nonnegative=nonnegative).sensitivity


@given(
    st.sampled_from(ADJACENCIES),
    st.booleans(),
    st.floats(0.1, 5.0),
    st.floats(0.1, 5.0),
    st.floats(0.1, 5.0),
    st.floats(0.1, 7.0),
    st.integers(0, 2**32),
)
def test_no_pair_of_shrunk_records_exceeds_it(
    adjacency, nonnegative, norm, reward, share, whole, seed
) -> None:
    given = {"context_norm": norm, "reward": reward, "adjacency": adjacency, "gram_share": share}
    bounds = Bounds(**given, nonnegative=nonnegative, record_norm=whole)
    scale, generator = bounds.entry_scale(3), np.random.default_rng(seed)
    assert bounds.sensitivity <= Bounds(**given, nonnegative=nonnegative).sensitivity
    attained = _change(*bounds.worst_pair(3), scale)
    assert attained <= bounds.sensitivity * (1 + 1e-9)
    if nonnegative or adjacency == "add-remove" or whole**2 <= 2 * norm**2:
        assert attained == pytest.approx(bounds.sensitivity, rel=1e-9)
    for _ in range(5):
        long = 3 * max(norm, reward)
        pair = [bounds.clip(generator.normal(size=3) * long, generator.normal() * long)[:2] for _ in "ab"]
        if adjacency == "add-remove":
            pair[1] = (np.zeros(3), 0.0)
        assert _change(*pair, scale) <= bounds.sensitivity * (1 + 1e-9)


def test_whole_records_are_shrunk_after_they_are_clipped() -> None:
    bounds = Bounds(context_norm=1.0, reward=1.0, gram_share=0.5, record_norm=0.9)
    x, y, moved = bounds.clip(np.array([0.6, 0.8]), 0.7)
    assert moved
    assert x @ x + 0.5 * y**2 == pytest.approx(0.81)
    assert (x / y).tolist() == pytest.approx([0.6 / 0.7, 0.8 / 0.7])  # y = θᵀx stays true
    x, y, moved = bounds.clip(np.array([3.0, 4.0]), -9.0)  # first to (0.6, 0.8) and -1
    assert (x / y).tolist() == pytest.approx([-0.6, -0.8])
    assert x @ x + 0.5 * y**2 == pytest.approx(0.81)
    short = np.array([0.3, 0.4])
    x, y, moved = bounds.clip(short, 1.0)
    assert (x.tolist(), y, moved) == ([0.3, 0.4], 1.0, False)
    assert bounds.sensitivity == pytest.approx(0.81)
    assert bounds.to_dict()["record_norm"] == 0.9
    assert Bounds(**bounds.to_dict()) == bounds
    assert "record_norm" not in Bounds().to_dict()  # as before there was one
    with pytest.raises(InvalidInput, match="record_norm must be a finite number > 0"):
        Bounds(record_norm=0.0)
    with pytest.raises(InvalidInput, match="record_norm must be left out where a decision has several slots"):
        Bounds(record_norm=1.0, slots=2)


@given(
    st.sampled_from(ADJACENCIES),
    st.booleans(),
    st.floats(0.1, 5.0),
    st.floats(0.1, 5.0),
    st.floats(0.1, 5.0),
    st.integers(0, 2**32),
)
def test_no_pair_exceeds_and_the_worst_pair_attains_it(
    adjacency, nonnegative, norm, reward, share, seed
) -> None:
    bounds = Bounds(
        context_norm=norm, reward=reward, adjacency=adjacency, nonnegative=nonnegative, gram_share=share
    )
    scale = bounds.entry_scale(3)
    attained = _change(*bounds.worst_pair(3), scale)
    assert attained == pytest.approx(bounds.sensitivity, rel=1e-12)
    generator = np.random.default_rng(seed)
    records = [
        bounds.clip(generator.normal(size=3) * 3 * norm, generator.normal() * 3 * reward)[:2] for _ in "ab"
    ]
    if adjacency == "add-remove":
        records[1] = (np.zeros(3), 0.0)
    assert _change(*records, scale) <= bounds.sensitivity * (1 + 1e-9)


def test_the_stated_values() -> None:
    assert Bounds().sensitivity == 2.0
    assert Bounds(adjacency="add-remove").sensitivity == pytest.approx(math.sqrt(1.5), rel=1e-15)
    assert Bounds(nonnegative=True).sensitivity == pytest.approx(math.sqrt(3.0), rel=1e-15)
    assert Bounds(gram_share=0.3).sensitivity == 1.3
    assert Bounds(context_norm=math.sqrt(5.0)).sensitivity == pytest.approx(6.0)


@pytest.mark.parametrize("nonnegative", [False, True])
def test_one_dimension_never_exceeds_it(nonnegative: bool) -> None:
    bounds = Bounds(nonnegative=nonnegative)
    assert _largest_change(bounds, 1) <= bounds.sensitivity * (1 + 1e-9)
    assert _change(*bounds.worst_pair(1), bounds.entry_scale(1)) <= bounds.sensitivity


def test_entry_scale_is_goe_with_the_share() -> None:
    scale = Bounds(gram_share=0.25).entry_scale(3)
    root = math.sqrt(2.0)
    assert scale.tolist() == [root, 1.0, 1.0, root, 1.0, root, 2.0, 2.0, 2.0]


ANY_FLOAT = st.floats(allow_nan=True, allow_infinity=True, width=64)


@given(
    arrays(np.float64, st.integers(1, 6), elements=ANY_FLOAT), ANY_FLOAT, st.booleans(), st.floats(1e-3, 1e3)
)
def test_shrinking_takes_anything_too(context, reward, nonnegative, norm) -> None:
    bounds = Bounds(
        context_norm=norm, reward=0.7, nonnegative=nonnegative, gram_share=2.0, record_norm=0.8 * norm
    )
    x, y, moved = bounds.clip(context, reward)
    assert math.sqrt(float(x @ x) + 2.0 * y**2) <= 0.8 * norm * (1 + 4e-12)
    assert (0.0 if nonnegative else -0.7) <= y <= 0.7
    assert moved == (not (np.array_equal(x, context) and y == reward))
    again = bounds.clip(x, y)
    assert np.array_equal(again[0], x)
    assert again[1:] == (y, False)


@given(
    arrays(np.float64, st.integers(1, 6), elements=ANY_FLOAT), ANY_FLOAT, st.booleans(), st.floats(1e-3, 1e3)
)
def test_clip_takes_anything_and_keeps_the_limits(context, reward, nonnegative, norm) -> None:
    bounds = Bounds(context_norm=norm, reward=0.7, nonnegative=nonnegative)
    x, y, moved = bounds.clip(context, reward)
    assert np.isfinite(x).all()
    assert float(np.linalg.norm(x)) <= norm * (1 + 2e-12)
    assert (0.0 if nonnegative else -0.7) <= y <= 0.7
    if nonnegative:
        assert (x >= 0).all()
    assert moved == (not (np.array_equal(x, context) and y == reward))
    again = bounds.clip(x, y)
    assert np.array_equal(again[0], x)
    assert again[1:] == (y, False)


@given(
    arrays(np.float64, (5, 3), elements=st.floats(-3, 3)), arrays(np.float64, 5, elements=st.floats(-3, 3))
)
def test_clip_many_is_clip_row_by_row(contexts, rewards) -> None:
    bounds = Bounds()
    x, y, moved = bounds.clip_many(contexts, rewards)
    for row in range(5):
        one = bounds.clip(contexts[row], rewards[row])
        assert np.array_equal(one[0], x[row])
        assert one[1:] == (y[row], moved[row])


def test_a_record_inside_is_returned_bit_for_bit() -> None:
    generator = np.random.default_rng(0)
    for _ in range(1000):
        context = generator.normal(size=4)
        context /= np.linalg.norm(context)  # unit vectors are rounded to either side of 1
        x, y, moved = Bounds().clip(context, 1.0)
        assert not moved
        assert x.tobytes() == context.tobytes()
        assert y == 1.0


def test_nonnegative_drops_signs_before_the_norm() -> None:
    x, y, moved = Bounds(nonnegative=True).clip(np.array([-3.0, 0.6, 0.8]), -0.5)
    assert x.tolist() == [0.0, 0.6, 0.8]
    assert (y, moved) == (0.0, True)


def test_sensitivity_can_not_be_set() -> None:
    with pytest.raises(TypeError):
        Bounds(sensitivity=1.0)
    with pytest.raises(AttributeError):
        Bounds().sensitivity = 1.0


@pytest.mark.parametrize("name", ["context_norm", "reward", "gram_share"])
@pytest.mark.parametrize("value", [0.0, -1.0, math.inf, math.nan])
def test_limits_must_be_positive(name: str, value: float) -> None:
    with pytest.raises(InvalidInput, match=f"{name} must be a finite number > 0"):
        Bounds(**{name: value})


def test_adjacency_is_one_of_two() -> None:
    with pytest.raises(InvalidInput, match="adjacency must be"):
        Bounds(adjacency="swap")


def test_unbounded_returns_every_record_and_is_not_private() -> None:
    free = Unbounded()
    x, y, moved = free.clip(np.array([5.0, 5.0]), 9.0)
    assert x.tolist() == [5.0, 5.0]
    assert (y, moved) == (9.0, False)
    assert not free.is_private
    assert free.sensitivity == Bounds().sensitivity
    assert np.array_equal(free.entry_scale(2), Bounds().entry_scale(2))


def test_bounds_that_were_read_have_their_defaults() -> None:
    read = msgspec.json.decode(b'{"reward": 2}', type=Bounds)
    assert read.to_dict() == Bounds(reward=2.0).to_dict()
