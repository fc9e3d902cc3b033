"""Jobs, their estimated duration, and their order, on which results do not depend."""

from __future__ import annotations

import math
from collections import defaultdict
from collections.abc import Collection, Sequence
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

LIVE = 50.0  # times the time of a simulation: compiled code is called from Python in every round

Kernel = tuple[bool, bool, int, bool, bool]


@dataclass(frozen=True)
class Job:
    """Some seeds of one run."""

    run: Run
    seeds: tuple[int, ...]
    wanted_by: tuple[str, ...]  # experiments that need these seeds

    @property
    def cost(self) -> int:
        return self.run.cost * len(self.seeds)

    @cached_property
    def effort(self) -> float:
        """Estimated duration, relative to other jobs."""
        world, chosen = self.run.scenario, find_algorithm(self.run.algorithm)
        size = world.agents * len(self.seeds) * world.arms * world.dimension
        rule = 1.0 if chosen.rule == OPTIMISM else POSTERIOR
        weighing = self.run.options.get("decide_from") == "own+released" and chosen.rule == OPTIMISM
        live = 1.0 if self.run.play is None else LIVE
        return (world.horizon + EARLY) * size * rule * live * (WEIGHING_OTHERS if weighing else 1.0)

    @cached_property
    def kernel(self) -> Kernel:
        """Parts of the simulator, or of an agent: jobs of one kernel run the same machine code."""
        chosen, options = find_algorithm(self.run.algorithm), self.run.options
        optimistic = chosen.rule == OPTIMISM
        differ = options.get("partners", ALIKE) != ALIKE
        live = self.run.play is not None
        return live, optimistic, chosen.solver.rule if optimistic else 0, chosen.private, differ

    @property
    def label(self) -> str:
        count = len(self.seeds)
        seeds = f"{count} seeds" if count > 1 else f"seed {self.seeds[0]}"
        return f"{self.wanted_by[0]} {self.run.key}, {seeds}"


def _in_turn(jobs: Sequence[Job]) -> list[Job]:
    """Sort by duration, the longest first so that none begins last; jobs of similar duration by experiment.

    So experiments complete one by one, those with most work first, and are drawn while others run.
    """
    longest, total = defaultdict[str, float](float), defaultdict[str, float](float)
    for job in jobs:
        for name in job.wanted_by:
            longest[name] = max(job.effort, longest[name])
            total[name] += job.effort

    def turn(name: str) -> tuple[int, float, str]:
        return -math.frexp(longest[name])[1], -total[name], name

    return sorted(jobs, key=lambda job: (min(map(turn, job.wanted_by)), -job.effort, job.label))


def _spread(jobs: Sequence[Job]) -> list[Job]:
    """Spread live jobs evenly among the others, because two of them at once wait for each other's GIL."""
    places: list[tuple[float, bool, int, Job]] = []
    for live in (False, True):
        kind = [job for job in jobs if (job.run.play is not None) == live]
        whole, before = sum(job.effort for job in kind), 0.0
        for job in kind:
            places.append((before / whole, live, len(places), job))
            before += job.effort
    return [job for *_, job in sorted(places, key=lambda place: place[:3])]


def ordered(jobs: Sequence[Job], *, first: Collection[str] = ()) -> list[Job]:
    """Order jobs by experiment and duration, those of the experiments `first` before all others."""
    stages: dict[bool, list[Job]] = {True: [], False: []}
    for job in jobs:
        stages[any(name in first for name in job.wanted_by)].append(job)
    compiled = set[Kernel]()
    return [job for stage in stages.values() for job in _spread(_apart(_in_turn(stage), compiled))]


def _apart(jobs: Sequence[Job], compiled: set[Kernel]) -> list[Job]:
    """Put the first job of each kernel that is not `compiled` early and apart from others.

    On a new machine the first job of a kernel waits for its compilation, and Numba compiles one thing at a
    time: a worker with the kernel's second job, or with another kernel's first, waits too. So each first job
    is followed by enough jobs of compiled kernels for the other workers. Simple kernels come first: all
    workers wait for the first one, and later kernels reuse its parts. It is followed by a second job of its
    own, because another kernel's compilation could take the lock before it. Kernels are added to `compiled`.
    """
    first: dict[Kernel, int] = {}  # the place of each kernel's first job
    for place, job in enumerate(jobs):
        if job.kernel not in compiled:
            first.setdefault(job.kernel, place)
    openers = [first[kernel] for kernel in sorted(first)]
    order = list[int]()
    left = [place for place in range(len(jobs)) if place not in openers]
    for opener in openers:
        order.append(opener)
        beside, ready = (COMPILING, compiled) if compiled else (1.0, {jobs[opener].kernel})
        for place in list(left):
            if beside > 0 and jobs[place].kernel in ready:
                left.remove(place)
                order.append(place)
                beside -= jobs[place].effort
        compiled.add(jobs[opener].kernel)
    return [jobs[place] for place in (*order, *left)]
