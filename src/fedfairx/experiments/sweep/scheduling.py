"""What a job is, about how long it takes, and in which order jobs begin. Results don't depend on it."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Sequence
from dataclasses import dataclass
from functools import cached_property

from fedfairx.agent.algorithms import algorithm as find_algorithm
from fedfairx.core.partners import ALIKE
from fedfairx.core.rules import OPTIMISM
from fedfairx.experiments.experiment import Run

EARLY = 20_000  # rounds that a run's first ones are worth: while little is known the solver works hardest
POSTERIOR = 0.3  # of the time of optimism, which has a solver
WEIGHING_OTHERS = 2.4  # where every agent weighs the others' releases beside its own, each time
COMPILING = 1.5e9  # effort that takes about as long as compiling a kernel: some seven seconds

Kernel = tuple[bool, int, bool, bool]


@dataclass(frozen=True)
class Job:
    """Some seeds of one run."""

    run: Run
    seeds: tuple[int, ...]
    wanted_by: tuple[str, ...]  # experiments

    @property
    def cost(self) -> int:
        return self.run.cost * len(self.seeds)

    @cached_property
    def effort(self) -> float:
        """About how long it takes, beside other jobs."""
        world, chosen = self.run.scenario, find_algorithm(self.run.algorithm)
        size = world.agents * len(self.seeds) * world.arms * world.dimension
        rule = 1.0 if chosen.rule == OPTIMISM else POSTERIOR
        weighing = self.run.options.get("decide_from") == "own+released" and chosen.rule == OPTIMISM
        return (world.horizon + EARLY) * size * rule * (WEIGHING_OTHERS if weighing else 1.0)

    @cached_property
    def kernel(self) -> Kernel:
        """Which parts of the simulator it needs: jobs of one kernel run the same machine code."""
        chosen, options = find_algorithm(self.run.algorithm), self.run.options
        optimistic = chosen.rule == OPTIMISM
        differ = options.get("partners", ALIKE) != ALIKE
        return optimistic, chosen.solver.rule if optimistic else 0, chosen.private, differ

    @property
    def label(self) -> str:
        count = len(self.seeds)
        seeds = f"{count} seeds" if count > 1 else f"seed {self.seeds[0]}"
        return f"{self.wanted_by[0]} {self.run.key}, {seeds}"


def _in_turn(jobs: Sequence[Job]) -> list[Job]:
    """The longest jobs first, that none of them begins last; of about that length, by experiments.

    One by one those are complete, and are drawn while others run: first what has most to do and to draw.
    """
    longest, total = defaultdict[str, float](float), defaultdict[str, float](float)
    for job in jobs:
        for name in job.wanted_by:
            longest[name] = max(job.effort, longest[name])
            total[name] += job.effort

    def turn(name: str) -> tuple[int, float, str]:
        return -math.frexp(longest[name])[1], -total[name], name

    return sorted(jobs, key=lambda job: (min(map(turn, job.wanted_by)), -job.effort, job.label))


def ordered(jobs: Sequence[Job]) -> list[Job]:
    """Experiment by experiment, what is long first; but the first jobs of each kernel come early, and apart.

    On a new machine the first job of a kernel waits until it is compiled, and Numba compiles one thing at a
    time: whoever takes the kernel's second job meanwhile, or the first one of another, waits too. So each is
    followed by jobs whose kernels are there, enough for the other workers. The plainer kernels come first:
    until the first is there everybody waits, and of what they have the others need not be told again. Behind
    it stands a second job of its own: whoever took another kernel's first might be let in before it.
    """
    in_turn = _in_turn(jobs)
    first: dict[Kernel, int] = {}  # the place of each kernel's first job
    for place, job in enumerate(in_turn):
        first.setdefault(job.kernel, place)
    openers = [first[kernel] for kernel in sorted(first)]
    order, compiled = list[int](), set[Kernel]()
    left = [place for place in range(len(in_turn)) if place not in openers]
    for opener in openers:
        order.append(opener)
        beside, ready = (COMPILING, compiled) if compiled else (1.0, {in_turn[opener].kernel})
        for place in list(left):
            if beside > 0 and in_turn[place].kernel in ready:
                left.remove(place)
                order.append(place)
                beside -= in_turn[place].effort
        compiled.add(in_turn[opener].kernel)
    return [in_turn[place] for place in (*order, *left)]
