"""The longest jobs begin first, but for those that have a kernel compiled: nobody waits for two at once."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedfairx.agent.schedules import Geometric
from fedfairx.experiments.experiment import Run
from fedfairx.experiments.outcomes import Outcome
from fedfairx.experiments.sweep.job_order import COMPILING, Job, ordered
from fedfairx.simulation import Scenario

WORLD = Scenario(agents=10, arms=10, dimension=5, horizon=100_000)


def job(key: str, algorithm: str, seeds: int = 8, wanted_by: str = "exp", **options: Any) -> Job:
    return Job(Run(key, WORLD, algorithm, options), tuple(range(seeds)), tuple(wanted_by.split()))


def _play(run: Run, seeds: Sequence[int]) -> Outcome:
    raise NotImplementedError


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


def test_experiments_are_complete_one_by_one_unless_one_has_much_longer_jobs() -> None:
    """Each can be drawn while the next ones run. What is long never begins last."""
    jobs = [
        *(job(f"few {i}", "b0", 7, "few") for i in range(2)),
        *(job(f"many {i}", "b0", seeds, "many") for i, seeds in enumerate((1, 6, 3, 7))),
        job("both", "b0", 2, "few many"),
        job("long", "b0", 16, "lone"),
    ]
    many = ["many 3", "many 1", "many 2", "both", "many 0"]
    assert keys(ordered(jobs)) == ["long", *many, "few 0", "few 1"]


def test_a_kernel_is_what_is_compiled_together() -> None:
    plain = job("a", "fairx-bayes").kernel
    assert job("b", "fairx-lints").kernel == plain  # another rule of the same machine code
    assert job("c", "fed-fairx-bayes").kernel == plain
    others = [
        job("d", "fed-fairx-bayes", partners="differ"),
        job("e", "priv-fairx-bayes", epsilon=1.0),
        job("f", "linucb"),
        job("g", "fed-fairx-linucb"),
        job("h", "priv-fairx-linucb", epsilon=1.0),
    ]
    assert len({plain, *(each.kernel for each in others)}) == 1 + len(others)
    live = [
        replace(each, run=replace(each.run, play=_play)).kernel
        for each in (job("k", "b0"), job("l", "linucb"))
    ]
    assert len({plain, *(each.kernel for each in others), *live}) == 3 + len(others)
    for also in (job("i", "fairx-linucb"), job("j", "fed-fairx-linucb", schedule=Geometric())):
        assert also.kernel == job("g", "fed-fairx-linucb").kernel


def test_kernels_are_compiled_apart_and_the_plainer_first() -> None:
    """Between two first jobs of a kernel stands work for the others, of kernels that are compiled by then.

    For the first one there are none: behind it stands one more of its own.
    """
    longest_last = {"fairx-linucb": 7, "linucb": 9}
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
    assert (first[plainest], first[second]) == (0, 2)
    between = order[3 : first[third]]
    assert {each.kernel for each in (order[1], *between)} == {plainest}
    assert sum(each.effort for each in between) >= COMPILING > sum(each.effort for each in between[:-1])
    after = [each.effort for each in order[-12:]]
    assert after == sorted(after, reverse=True)


def test_some_experiments_come_first_and_what_they_compile_is_not_compiled_again() -> None:
    jobs = [
        job("long", "b0", 16, "ours"),
        job("longest", "fairx-bayes", 99, "ours"),
        job("short", "b0", 1, "paper"),
        job("shared", "b0", 2, "ours paper"),
    ]
    assert keys(ordered(jobs, first=["paper"])) == ["shared", "short", "longest", "long"]


def test_live_agents_are_spread_among_others() -> None:
    """Two of them at once would wait for each other, because Python runs one thread at a time."""
    live = [job(f"live {i}", "b0", 1, "real") for i in range(3)]
    live = [replace(each, run=replace(each.run, play=_play)) for each in live]
    jobs = [*live, *(job(f"kernel {i}", "b0", 1) for i in range(30))]
    places = [place for place, name in enumerate(keys(ordered(jobs))) if name.startswith("live")]
    assert np.diff(places).min() >= 9


def test_no_jobs_and_one_kernel_are_orders_too() -> None:
    assert ordered([]) == []
    assert keys(ordered([job("a", "b0", 1), job("b", "b0", 3)])) == ["b", "a"]
