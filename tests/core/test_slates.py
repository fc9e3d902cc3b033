"""Several slots: exposures in proportion to merit as far as slots allow, and slots filled accordingly."""

from __future__ import annotations

from collections.abc import Callable
from functools import cache
from itertools import pairwise
from types import FunctionType
from typing import Any

import numpy as np
import pytest
from hypothesis import example, given, settings
from hypothesis import strategies as st
from numpy.typing import ArrayLike

import reference as ref
from fedfairx.core.slates import (
    MOST,
    ONE,
    as_weights,
    fill_slots,
    give_to_best,
    rank,
    share_out,
    slate_scratch,
)
from fedfairx.errors import InvalidInput
from fedfairx.lanes.decorators import compiled
from fedfairx.lanes.rows import floats, size_of, zeros
from fedfairx.util.arrays import Array


@compiled
def _fill(exposure: Array, weights: Array, least: float, uniform: float, memory: Array, best: bool) -> None:
    work = slate_scratch(floats(memory), weights.shape[0], exposure.shape[0])
    if best:
        give_to_best(floats(exposure), floats(weights), least, work)
    else:
        share_out(floats(exposure), floats(weights), least, work)
    fill_slots(floats(exposure), floats(weights), uniform, work)


@cache
def _scratch_size(slots: int, arms: int) -> int:
    return size_of(slate_scratch, slots, arms)


def slate(
    logits: ArrayLike, weights: ArrayLike, *, uniform: float = 0.5, least: float = 0.0, best: bool = False
) -> tuple[Array, list[int]]:
    """The exposures of all arms, and the arms in the slots."""
    exposure, weights = np.array(logits, dtype=float), np.array(weights, dtype=float)
    memory = zeros(_scratch_size(weights.size, exposure.size))
    memory[: weights.size] = -1.0  # what is shown
    _fill(exposure, weights, least, uniform, memory, best)
    return exposure, memory[: weights.size].astype(int).tolist()


@st.composite
def problems(draw: st.DrawFn, most: int = 60) -> tuple[Array, Array]:
    """Log merits and weights: flat and steep, with ties, sets and ranked slots, some of weight 0."""
    arms = draw(st.integers(1, most))
    slots = draw(st.integers(1, arms))
    rng = np.random.default_rng(draw(st.integers(0, 2**32 - 1)))
    logits = rng.normal(0.0, draw(st.sampled_from([0.0, 0.1, 1.0, 10.0, 1000.0])), arms)
    if draw(st.booleans()):
        logits = np.round(logits)
    kind = draw(st.sampled_from(["set", "logarithmic", "random", "zeros"]))
    weights = {
        "set": np.ones(slots),
        "logarithmic": 1.0 / np.log2(np.arange(slots) + 2.0),
        "random": np.sort(rng.random(slots))[::-1].copy(),
        "zeros": np.where(np.arange(slots) <= slots // 2, 0.7, 0.0),
    }[kind]
    return logits, weights


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(problems(most=6))
def test_exposures_are_those_of_linear_programs(problem: tuple[Array, Array]) -> None:
    logits, weights = problem
    logits = logits / max(1.0, np.ptp(logits) / 6.0)  # a linear program can't tell tiny merits from none
    expected = ref.fair_exposures(np.exp(logits - logits.max()), weights)
    assert np.abs(slate(logits, weights)[0] - expected).max() <= 1e-7


@pytest.mark.long
@settings(max_examples=300, deadline=None)
@given(problems(), st.floats(0.0, 1.0, exclude_max=True), st.sampled_from([0.0, 0.001, 0.5]))
def test_exposures_can_be_given_and_keep_the_order_of_merit(
    problem: tuple[Array, Array], uniform: float, least: float
) -> None:
    logits, weights = problem
    exposure, shown = slate(logits, weights, uniform=uniform, least=least)
    order = np.argsort(-logits, kind="stable")
    total = weights.sum()
    assert abs(exposure.sum() - total) <= 1e-13 * logits.size
    assert (np.diff(exposure[order]) <= 1e-15).all()
    padded = np.zeros(logits.size)
    padded[: weights.size] = weights
    assert (np.cumsum(exposure[order]) <= np.cumsum(padded) + 1e-13 * logits.size).all()
    assert (exposure >= min(least, 1.0 / logits.size) * total * (1.0 - 1e-12)).all()
    assert len(set(shown)) == weights.size
    assert min(shown) >= 0
    for one, other in pairwise(order):
        if logits[one] == logits[other]:
            assert exposure[one] == pytest.approx(exposure[other], rel=1e-12)


@settings(max_examples=200, deadline=None)
@given(problems())
def test_what_is_left_by_capped_arms_is_shared_in_proportion(problem: tuple[Array, Array]) -> None:
    """Rates e/f rise along the order of merit, and arms of one rate get all that their slots have."""
    logits, weights = problem
    exposure, _ = slate(logits, weights)
    order = np.argsort(-logits, kind="stable")
    some = order[exposure[order] > 1e-290]
    rates = np.log(exposure[some]) - logits[some]
    assert (np.diff(rates) >= -1e-9).all()
    padded = np.zeros(logits.size)
    padded[: weights.size] = weights
    slack = np.cumsum(padded)[: some.size] - np.cumsum(exposure[some])
    assert (slack[:-1][np.diff(rates) > 1e-6] <= 1e-12 * logits.size).all()


@settings(deadline=None)
@given(problems(), st.integers(0, 2**32 - 1), st.sampled_from([0.01, 0.5, 3.0]))
def test_wrong_merits_cost_no_more_than_their_errors_where_they_are_shown(
    problem: tuple[Array, Array], seed: int, error: float
) -> None:
    """Bound (5) of docs/explanation/expected-merit.md."""
    believed, weights = problem
    true = believed + np.random.default_rng(seed).normal(0.0, error, believed.size)
    one, other = slate(believed, weights)[0], slate(true, weights)[0]
    bound = 2.0 * float(one @ np.abs(1.0 - np.exp(true - believed)))
    assert np.abs(one - other).sum() <= bound * (1.0 + 1e-9) + 1e-12


class _Coin:
    """Stands for a uniform number u: `u * gap < moved` is decided by a script, and its probability kept."""

    def __init__(self, tree: _Tree) -> None:
        self.tree = tree

    def __mul__(self, gap: float) -> _Coin:
        self.gap = gap
        return self

    def __lt__(self, moved: float) -> bool:
        return self.tree.toss(moved / self.gap)


class _Tree:
    """All ways in which coins can fall, with their probabilities."""

    def __init__(self) -> None:
        self.path: list[bool] = []

    def toss(self, heads: float) -> bool:
        assert -1e-12 <= heads <= 1.0 + 1e-12
        if self.at == len(self.path):
            self.path.append(False)
        fell = self.path[self.at]
        self.at += 1
        self.probability *= heads if fell else 1.0 - heads
        return fell

    def walk(self, run: Callable[[], list[int]]) -> Any:
        while True:
            self.at, self.probability = 0, 1.0
            yield run(), self
            while self.path and self.path[-1]:
                self.path.pop()
            if not self.path:
                return
            self.path[-1] = True


def uncompiled(stage: Any, **others: Any) -> Callable[..., None]:
    """The Python source of a stage, with other functions in its names."""
    source = stage.py_func if hasattr(stage, "py_func") else stage.__wrapped__
    return FunctionType(source.__code__, source.__globals__ | others)


@pytest.mark.long
@settings(max_examples=60, deadline=None)
@given(problems(most=7), st.sampled_from([0.0, 0.05]), st.booleans())
@example((np.log([8.0, 4.0, 2.0, 1.0, 1.0]), np.array([1.0, 0.63, 0.5])), 0.0, False)
def test_expected_exposure_is_exact(problem: tuple[Array, Array], least: float, best: bool) -> None:
    """Over all ways in which the coins can fall, at most K - 1 of them in each."""
    logits, weights = problem
    exposure, tree = np.array(logits), _Tree()
    sizes = weights.size, logits.size
    work = slate_scratch(floats(zeros(size_of(slate_scratch, *sizes))), *sizes)
    share = give_to_best if best else share_out

    def run() -> list[int]:
        exposure[:] = logits
        share(floats(exposure), floats(weights), least, work)
        fill(floats(exposure), floats(weights), 0.5, work)
        return [int(work.shown[p]) for p in range(weights.size)]

    fill = uncompiled(fill_slots, uniform_of=lambda _state: _Coin(tree), bits=lambda _uniform: 0, GOLDEN=0)
    expected, mass = np.zeros(logits.size), 0.0
    for shown, fallen in tree.walk(run):
        expected[shown] += fallen.probability * weights
        mass += fallen.probability
        assert fallen.at <= max(logits.size - 1, 0)
    assert mass == pytest.approx(1.0, abs=1e-12)
    assert np.abs(expected - exposure).max() <= 1e-13


@pytest.mark.long
def test_draws_have_their_exposures() -> None:
    """5 000 slates: every mean weight within 4 standard errors; one is outside once in 16 000 runs."""
    rng = np.random.default_rng(0)
    for logits, weights in (
        (np.log([8.0, 4.0, 2.0, 1.0, 1.0]), [1.0, 0.63, 0.5]),
        (rng.normal(size=10), [1.0, 1.0, 1.0]),
        (rng.normal(size=30), 1.0 / np.log2(np.arange(5) + 2.0)),
    ):
        mean, square = np.zeros(len(logits)), np.zeros(len(logits))
        for uniform in rng.random(5_000):
            exposure, shown = slate(logits, weights, uniform=uniform)
            mean[shown] += np.asarray(weights) / 5_000
            square[shown] += np.asarray(weights) ** 2 / 5_000
        assert (np.abs(mean - exposure) <= 4.0 * np.sqrt((square - mean**2).clip(1e-12) / 5_000)).all()


def test_one_arm_can_have_no_more_than_a_slot() -> None:
    exposure, _ = slate(np.log([30.0, 9.0, 1.0, 1.0]), [1.0, 1.0])
    assert exposure.tolist() == pytest.approx([1.0, 9 / 11, 1 / 11, 1 / 11], abs=1e-15)


def test_drawing_one_after_the_other_is_not_fair() -> None:
    """Of merits 4 : 1 : 1 : 1 : 1 the first would be shown in 11 of 14 pairs; it is due a slot in all."""
    merit = np.array([4.0, 1.0, 1.0, 1.0, 1.0])
    second = sum(merit[1:] / 8.0 * 4.0 / (8.0 - merit[1:]))
    assert 4.0 / 8.0 + second == pytest.approx(11.0 / 14.0)
    exposure, shown = slate(np.log(merit), [1.0, 1.0])
    assert exposure.tolist() == pytest.approx([1.0, 0.25, 0.25, 0.25, 0.25], abs=1e-15)
    assert 0 in shown


@pytest.mark.parametrize("steep", [1.0, 800.0, 1e5])
def test_arms_behind_one_of_overwhelming_merit_share_in_proportion(steep: float) -> None:
    """Merits that underflow beside the best are not lost: 0, and so on, behind e^1 : e^0 : e^0."""
    exposure, shown = slate([2.0 * steep, 1.0 - steep, -steep, -steep], [1.0, 1.0])
    assert exposure[0] == pytest.approx(1.0, abs=1e-12)
    behind = np.exp([1.0, 0.0, 0.0])
    assert exposure[1:] == pytest.approx(behind / behind.sum(), rel=1e-9)
    assert shown[0] == 0


def test_as_many_slots_as_arms_show_all_of_them() -> None:
    exposure, shown = slate([3.0, 1.0, 2.0], [1.0, 1.0, 1.0])
    assert exposure.tolist() == pytest.approx([1.0, 1.0, 1.0], abs=1e-15)
    assert sorted(shown) == [0, 1, 2]


def test_slots_for_the_best_are_in_order() -> None:
    exposure, shown = slate([0.1, 0.9, 0.5, 0.7], [1.0, 0.6], best=True)
    assert exposure.tolist() == [0.0, 1.0, 0.0, 0.6]
    assert shown == [1, 3]


@settings(max_examples=100, deadline=None)
@given(st.lists(st.integers(-3, 3), min_size=1, max_size=40), st.data())
def test_ranks_are_those_of_a_stable_sort(scores: list[int], data: st.DataObject) -> None:
    slots = data.draw(st.integers(1, len(scores)))
    order = np.empty(slots)
    rank(floats(np.array(scores, dtype=float)), floats(order))
    assert order.tolist() == np.argsort(-np.array(scores), kind="stable")[:slots].tolist()


@pytest.mark.parametrize("slots", [1, 10, 5_000, 10_000])
def test_ten_thousand_arms(slots: int) -> None:
    logits = np.random.default_rng(1).normal(0.0, 3.0, 10_000)
    weights = np.linspace(1.0, 0.1, slots)
    exposure, shown = slate(logits, weights)
    assert abs(exposure.sum() - weights.sum()) <= 1e-9
    assert len(set(shown)) == slots


@pytest.mark.parametrize(
    ("slots", "weights"),
    [
        (3, (1.0, 1.0, 1.0)),
        (np.int64(2), (1.0, 1.0)),
        ([1, 0.5, 0.5, 0], (1.0, 0.5, 0.5, 0.0)),
        ([0.3], (0.3,)),
    ],
)
def test_a_number_of_slots_is_a_set_and_weights_stay(slots: Any, weights: tuple[float, ...]) -> None:
    assert as_weights(slots) == weights


@pytest.mark.parametrize("slots", [1, [1.0], (1,), np.ones(1), ONE])
def test_one_slot_of_weight_one_is_the_same_object_however_it_is_given(slots: Any) -> None:
    assert as_weights(slots) is ONE


@pytest.mark.parametrize(
    "slots",
    [0, MOST + 1, True, 2.0, None, "2", [], ["x"], [0.0], [1.5, 1.0], [0.5, 0.6], [0.5, -0.1], [1.0, np.nan]],
    ids=str,
)
def test_other_weights_are_refused(slots: Any) -> None:
    with pytest.raises(InvalidInput, match="slots must be"):
        as_weights(slots)
