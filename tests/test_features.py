"""Contexts for arms that have no features."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedfairx as ffx
from fedfairx.errors import InvalidInput

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
    agent = ffx.Agent(4, seed=0)
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
            "contexts must be finite, got contexts='array of shape (2, 1) with NaN or ",
        ),
        ([1.0], 1.0, "contexts must have shape (K, d)"),
        ([[]], 1.0, "contexts must have shape (K, d)"),
        ([["high"]], 1.0, "contexts must be a (K, d) array of numbers"),
        ([[1j]], 1.0, "contexts must be a (K, d) array of numbers"),
        ([[1.0]], 0.0, "norm must be a finite number > 0, got norm=0.0"),
        ([[1.0]], "long", "norm must be a finite number > 0"),
        ([[1.0]], float("inf"), "norm must be a finite number > 0"),
    ],
)
def test_what_can_not_be_scaled(contexts: Any, norm: Any, text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        ffx.features.unit_ball(contexts, norm=norm)
    assert str(refused.value).startswith(text)
