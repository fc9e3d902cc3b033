"""When to synchronise: the oracle's rounds, and never more than was said beforehand."""

from __future__ import annotations

import math
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import reference as ref
from fedfairx.agent import schedules
from fedfairx.agent.schedules import Determinant, Doubling, FigureGap, Geometric, Paper, Plan
from fedfairx.errors import InvalidInput
from paper import theory

plans = st.builds(Plan, st.integers(1, 5000), st.integers(1, 40), st.integers(1, 12))


@given(plans)
def test_the_papers_rule_is_the_oracles(plan: Plan) -> None:
    rounds = Paper().rounds(plan).tolist()
    assert rounds == ref.paper_rounds(plan.horizon, plan.agents, plan.dimension)
    assert Paper().gap_for(plan) == ref.paper_gap(plan.horizon, plan.agents, plan.dimension)
    bound = theory.communication_bound(plan.agents, dimension=plan.dimension, horizon=plan.horizon)
    assert len(rounds) == Paper().max_releases(plan) <= bound


def test_the_papers_rule_at_the_papers_size() -> None:
    rounds = Paper().rounds(Plan(100_000, 10, 5))
    assert rounds[:6].tolist() == [1, 2, 4, 8, 13, 18]
    assert rounds.size == 20_002


@given(plans, st.integers(1, 300))
def test_the_other_public_rules_are_the_oracles(plan: Plan, start: int) -> None:
    assert FigureGap().rounds(plan).tolist() == ref.figure_gap_rounds(plan.horizon)
    assert Doubling(start).rounds(plan).tolist() == ref.doubling_rounds(plan.horizon, start)
    given = ref.periodic_rounds(plan.horizon, gap=start, double_until=start)
    assert Paper(gap=start).rounds(plan).tolist() == given


def test_the_figures_breaks() -> None:
    rounds = FigureGap().rounds(Plan(20_000, 10, 5)).tolist()
    assert rounds == [2**k for k in range(12)] + [2048 + 4330 * k for k in range(1, 5)]
    assert Doubling().rounds(Plan(1000, 10, 5)).tolist() == [100, 200, 400, 800]


def test_geometric_rounds_grow_by_the_ratio_whatever_the_horizon() -> None:
    assert Geometric(ratio=1.5, start=2).rounds(Plan(20, 10, 5)).tolist() == [2, 3, 4, 6, 9, 13, 19]
    short, long = (Geometric().rounds(Plan(horizon, 10, 5)) for horizon in (10_000, 100_000))
    assert long[: short.size].tolist() == short.tolist()
    assert (short.size, long.size) == (33, 45)
    assert Geometric().rounds(Plan(20, 10, 5)).tolist() == [10, 12, 14, 16, 19]  # a short run shares too
    assert Geometric().rounds(Plan(1, 10, 5)).tolist() == [1]
    assert ((long[1:] > 1.15 * long[:-1]) & (long[1:] <= 1.2 * long[:-1])).all()


@given(plans, st.sampled_from(sorted(schedules.SCHEDULES)))
def test_every_schedule_says_its_releases_beforehand(plan: Plan, name: str) -> None:
    schedule = schedules.schedule(name)
    rounds = schedule.rounds(plan)
    assert rounds.size <= schedule.max_releases(plan) <= plan.horizon
    assert ((rounds >= 1) & (rounds <= plan.horizon)).all()
    assert (rounds[1:] > rounds[:-1]).all()
    assert schedule.public == (name != "determinant")


def test_where_the_data_decide_no_release_is_made_beyond_the_last() -> None:
    """Nor before the threshold, nor after the horizon."""
    table = schedules.timetable(Determinant(threshold=6.0, cap=3), Plan(10, 2, 2))

    def is_due(t: int = 5, growth: float = 3.5, releases: int = 2) -> bool:
        return table.is_due(t, since=2, growths=[0.0, growth], releases=releases)

    assert is_due()
    assert is_due(t=10)
    assert not is_due(t=11)
    assert not is_due(releases=3)
    assert not is_due(growth=3.0)


def test_every_round_never_and_the_cap() -> None:
    plan = Plan(50, 2, 2)
    assert schedules.schedule("every-round").rounds(plan).tolist() == list(range(1, 51))
    assert schedules.schedule("never").max_releases(plan) == 0
    assert Determinant(cap=7).max_releases(plan) == 7
    assert Determinant(cap=700).max_releases(plan) == 50
    assert schedules.schedule(Determinant(3.0)) == Determinant(3.0)


@pytest.mark.parametrize(
    ("make", "text"),
    [
        (lambda: Plan(0, 1, 1), "horizon must be an integer >= 1, got horizon=0"),
        (lambda: Plan(5, -1, 1), "agents must be an integer >= 1, got agents=-1"),
        (lambda: Plan(5, 1, 0), "dimension must be an integer >= 1, got dimension=0"),
        (lambda: Plan(5, 1.5, 1), "agents must be an integer >= 1, got agents=1.5"),  # type: ignore[arg-type]
        (lambda: Paper(gap=0), "gap must be a whole number >= 1 and <="),
        (lambda: FigureGap(gap=0), "gap must be a whole number >= 1 and <="),
        (lambda: FigureGap(double_until=0), "double_until must be a whole number >= 1 and <="),
        (lambda: Doubling(0), "start must be a whole number >= 1 and <="),
        (lambda: Geometric(ratio=1.0), "ratio must be a finite number > 1, got ratio=1.0"),
        (lambda: Geometric(start="5"), "start must be a whole number >= 1 and <="),
        (lambda: Determinant(0.0), "threshold must be a finite number > 0, got threshold=0.0"),
        (lambda: Determinant(math.nan), "threshold must be a finite number > 0, got threshold=nan"),
        (lambda: Determinant(1.0, 0), "cap must be a whole number >= 1 and <="),
        (lambda: schedules.schedule("weekly"), "schedule must be one of paper,"),
    ],
)
def test_what_is_refused(make: Any, text: str) -> None:
    with pytest.raises(InvalidInput) as refused:
        make()
    assert str(refused.value).startswith(text)
