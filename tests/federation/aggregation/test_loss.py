"""What a member's death costs the others: `benchmarks/loss.py`, which has the figures."""

from __future__ import annotations

import importlib.util
import sys
from pathlib import Path
from types import ModuleType

import pytest

FOLDER = Path(__file__).resolve().parents[3] / "benchmarks"


@pytest.fixture(scope="module")
def benchmark() -> ModuleType:
    spec = importlib.util.spec_from_file_location("loss_benchmark", FOLDER / "loss.py")
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(sys, "path", [str(FOLDER), *sys.path])
        spec.loader.exec_module(module)
    return module


@pytest.mark.long
@pytest.mark.parametrize("name", ["default rounds", "hourly rounds"])
def test_a_death_that_is_seen_loses_nothing_and_any_other_at_most_one_leaf(
    benchmark: ModuleType, name: str
) -> None:
    rounds = benchmark.SCHEDULES[name]
    first, last = benchmark.around(rounds)
    leaf = (last - first) / benchmark.DAY
    for death in (first + 60.0, last - benchmark.NOTICED - 1.0):
        assert benchmark.lost_days(rounds, death, 1) == 0.0
    for death, sent in ((last - benchmark.NOTICED, False), (last, True)):
        assert benchmark.lost_days(rounds, death, 1, sent=sent) == pytest.approx(leaf)
    assert benchmark.lost_days(rounds, last, 1, name=benchmark.SENDER, sent=True) == 0.0


def test_rows_without_signs_of_life_lose_what_comes_until_the_removal(benchmark: ModuleType) -> None:
    """The mistake that the condition prevents: the benchmark sees it."""
    rounds = benchmark.SCHEDULES["default rounds"]
    first, last = benchmark.around(rounds)
    death = (first + last) / 2
    until = max(moment for moment in rounds.times if moment < death + 7 * benchmark.DAY)
    found = benchmark.lost_days(rounds, death, 7, ignore_signs=True)
    assert found == pytest.approx((until - first) / benchmark.DAY)
    assert found > 3 * (last - first) / benchmark.DAY
