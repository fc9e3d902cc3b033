"""The longest jobs begin first, but for those that have a kernel compiled: nobody waits for two at once."""

from __future__ import annotations

from typing import Any

from fedfairx.experiments.experiment import Run
from fedfairx.experiments.sweep.order import COMPILING, Job, ordered
from fedfairx.federation.schedules import Geometric, Never
from fedfairx.simulation import Scenario

WORLD = Scenario(agents=10, arms=10, dimension=5, horizon=100_000)


def job(key: str, algorithm: str, seeds: int = 8, **options: Any) -> Job:
    return Job(Run(key, WORLD, algorithm, options), tuple(range(seeds)), "exp")


def keys(jobs: list[Job]) -> list[str]:
    return [each.run.key for each in jobs]


def test_of_one_kernel_what_takes_longest_begins_first() -> None:
    own = {"epsilon": 2.0, "decide_from": "own+released"}
    jobs = [
        job("short", "priv-fairx-linucb", 2, epsilon=2.0),
        job("plain", "priv-fairx-linucb", epsilon=2.0),
        job("weighing", "priv-fairx-linucb", **own),
    ]
    assert keys(ordered(jobs)) == ["weighing", "plain", "short"]


def test_a_kernel_is_what_is_compiled_together() -> None:
    alone = job("a", "fairx-bayes").kernel
    assert job("b", "fairx-lints").kernel == alone  # another rule of the same machine code
    assert job("c", "fed-fairx-bayes", schedule=Never()).kernel == alone
    others = [
        job("d", "fed-fairx-bayes"),
        job("e", "fed-fairx-bayes", partners="differ"),
        job("f", "priv-fairx-bayes", epsilon=1.0),
        job("g", "fairx-linucb"),
        job("h", "linucb"),
        job("i", "fed-fairx-linucb"),
        job("j", "priv-fairx-linucb", epsilon=1.0),
    ]
    assert len({alone, *(each.kernel for each in others)}) == 1 + len(others)
    assert job("k", "fed-fairx-linucb", schedule=Geometric()).kernel == job("i", "fed-fairx-linucb").kernel


def test_kernels_are_compiled_apart_and_the_plainer_first() -> None:
    """Between two first jobs of a kernel stands work for the others, of kernels that are compiled by then."""
    longest_last = {"fairx-linucb": 7, "fed-fairx-linucb": 9}
    many = [job(f"{name} {i}", name, seeds) for name, seeds in longest_last.items() for i in range(9)]
    many += [job(f"fairx-bayes {i}", "fairx-bayes") for i in range(30)]
    order = ordered(many)
    assert sorted(keys(order)) == sorted(keys(many))
    first: dict[Any, int] = {}
    for place, each in enumerate(order):
        first.setdefault(each.kernel, place)
    plainest, second, third = first
    assert plainest == job("", "fairx-bayes").kernel
    assert second == job("", "fairx-linucb").kernel
    assert (first[plainest], first[second]) == (0, 1)
    between = order[2 : first[third]]
    assert {each.kernel for each in between} == {plainest}
    assert sum(each.effort for each in between) >= COMPILING > sum(each.effort for each in between[:-1])
    after = [each.effort for each in order[-12:]]
    assert after == sorted(after, reverse=True)


def test_no_jobs_and_one_kernel_are_orders_too() -> None:
    assert ordered([]) == []
    assert keys(ordered([job("a", "b0", 1), job("b", "b0", 3)])) == ["b", "a"]
