"""Sweeps: plan the jobs that are not stored yet, run them on an engine, store each result."""

from __future__ import annotations

import time
from collections import defaultdict
from collections.abc import Callable, Collection, Iterable, Iterator, Sequence
from concurrent.futures import FIRST_COMPLETED, CancelledError, Executor, Future, wait
from dataclasses import dataclass, replace

import numpy as np

from fedfairx.errors import ResultsError
from fedfairx.experiments.experiment import Run
from fedfairx.experiments.outcomes import Outcome
from fedfairx.experiments.provenance import Provenance, provenance
from fedfairx.experiments.sweep.job_order import Job, ordered
from fedfairx.experiments.sweep.progress import SweepProgress
from fedfairx.experiments.sweep.store import ResultStore
from fedfairx.lanes.vector_llvm import WIDTH

# Small enough that two workers end together and progress is seen, large enough to fill the kernel's lanes.
JOB_COST = 5_000_000  # agent-rounds
# What Dask's executor says where a worker dies between giving its result and being asked whether it is done:
# it takes the result for an error. The job is done once more.
LOST = "TypeError: cannot unpack non-iterable Outcome object"


@dataclass(frozen=True)
class Failure:
    """A job that failed."""

    job: Job
    reason: str


@dataclass(frozen=True)
class Swept:
    """The outcome of a sweep."""

    jobs: int
    reused: int  # (run, seed) pairs that were stored already
    failures: tuple[Failure, ...]
    seconds: float


class SweepInterruptedError(ResultsError):
    """The sweep was interrupted; finished jobs are stored."""


def plan(
    wanted: Iterable[tuple[str, Run]], seeds: int, store: ResultStore, *, first: Collection[str] = ()
) -> tuple[list[Job], int]:
    """The jobs still to do, `ordered`, and how many (run, seed) pairs are stored already.

    `wanted` are runs with the name of their experiment. The same run of two experiments is done once; seeds
    that only one of them wants are jobs of their own. Experiments named in `first` come first.
    """
    jobs: list[Job] = []
    reused = 0
    same = defaultdict[str, list[tuple[str, Run]]](list)
    for experiment, run in wanted:
        same[run.identity(store.made_by)].append((experiment, run))
    for identity, users in same.items():
        stored, run = store.seeds(identity), users[0][1]
        missing = defaultdict[tuple[str, ...], list[int]](list)  # by the experiments that want the seed
        for seed in max((each.seeds(seeds) for _, each in users), key=len):
            if seed in stored:
                reused += 1
            else:
                users_of_seed = [name for name, each in users if seed in each.seeds(seeds)]
                missing[tuple(dict.fromkeys(users_of_seed))].append(seed)
        size = seeds_of_a_job(run)
        for wanted_by, own in missing.items():
            jobs += [Job(run, tuple(own[i : i + size]), wanted_by) for i in range(0, len(own), size)]
    return ordered(jobs, first=first), reused


def seeds_of_a_job(run: Run) -> int:
    """Number of seeds in a job: about `JOB_COST`, and such that their agents fill the kernel's blocks."""
    usual = max(1, round(JOB_COST / run.cost))

    def left_empty(seeds: int) -> float:
        return -seeds * run.scenario.agents % WIDTH / seeds

    # Some number among any WIDTH fills its blocks; none that is farther away is better.
    least, most = max(1, usual // 2, usual - WIDTH), min(2 * usual, usual + WIDTH)
    return min(range(least, most + 1), key=lambda seeds: (left_empty(seeds), abs(seeds - usual)))


def perform(run: Run, seeds: Sequence[int], expected: Provenance) -> Outcome:
    """Simulate or play: the function that an engine's worker calls."""
    from fedfairx.simulation import simulate

    if provenance() != expected:  # a cluster's worker with another installation
        raise ResultsError(f"worker must have {expected}, got {provenance()}")
    began = time.perf_counter()
    if run.play is not None:
        return replace(run.play(run, seeds), seconds=time.perf_counter() - began)
    result = simulate(run.scenario, algorithm=run.algorithm, seeds=tuple(seeds), **run.options)
    return Outcome(
        seeds=np.asarray(result.seeds, dtype=np.int64),
        rounds=np.asarray(result.rounds, dtype=np.int64),
        fairness_regret=np.asarray(result.fairness_regret),
        reward_regret=np.asarray(result.reward_regret),
        syncs=np.asarray(result.syncs, dtype=np.int64),
        exposure=np.asarray(result.exposure),
        weakest=result.weakest_share() if result.shown.shape[2] else np.empty((len(result.seeds), 0)),
        seconds=time.perf_counter() - began,
    )


def sweep(
    jobs: Sequence[Job],
    *,
    executor: Executor,
    store: ResultStore,
    progress: SweepProgress,
    reused: int = 0,
    stored: Callable[[Job], None] = lambda _: None,
) -> Swept:
    """Run all jobs and store each result as it comes; a failed job is noted and the others go on.

    `stored` is called after each, while other jobs run.
    """
    began = time.perf_counter()
    failures: list[Failure] = []
    progress.start(len(jobs), sum(job.cost for job in jobs))
    futures = {executor.submit(perform, job.run, job.seeds, store.made_by): job for job in jobs}
    handled: set[Future[Outcome]] = set()
    try:
        for future in _in_order(futures):
            failed = _take(future, futures[future], store, progress)
            handled.add(future)  # not before: one that is interrupted while it is stored is stored again
            failures += failed
            if not failed:
                stored(futures[future])
        for lost in [failure for failure in failures if failure.reason == LOST]:
            failures.remove(lost)
            again = executor.submit(perform, lost.job.run, lost.job.seeds, store.made_by)
            failures += _take(again, lost.job, store, progress)
    except KeyboardInterrupt:
        failures += _stop(futures, handled, store, progress)
        done = len(handled) - len(failures)
        raise SweepInterruptedError(f"{done} of {len(jobs)} jobs are stored in {store.folder}") from None
    finally:
        progress.close()
    return Swept(len(jobs), reused, tuple(failures), time.perf_counter() - began)


def _in_order(futures: Iterable[Future[Outcome]]) -> Iterator[Future[Outcome]]:
    """The futures as they are done; those that are done at the same time in the order given."""
    waiting = list(futures)
    while waiting:
        done, _ = wait(waiting, return_when=FIRST_COMPLETED)
        yield from (future for future in waiting if future in done)
        waiting = [future for future in waiting if future not in done]


def _take(future: Future[Outcome], job: Job, store: ResultStore, progress: SweepProgress) -> list[Failure]:
    try:
        outcome = future.result()
    except (Exception, CancelledError) as error:  # a worker may fail in any way; the other jobs must go on
        reason = f"{type(error).__name__}: {error}".splitlines()[0]
        progress.say(f"FAILED {job.label}: {reason}")
        return [Failure(job, reason)]
    store.write(job.run, outcome)
    progress.done(job.label, job.cost, outcome.seconds)
    return []


def _stop(
    futures: dict[Future[Outcome], Job],
    handled: set[Future[Outcome]],
    store: ResultStore,
    progress: SweepProgress,
) -> list[Failure]:
    """Cancel jobs that have not begun; running ones finish, because a kernel can't be interrupted."""
    failures: list[Failure] = []
    under_way = [future for future in futures if future not in handled and not future.cancel()]
    if under_way:
        progress.say(f"stopping after the {len(under_way)} jobs under way (Ctrl-C again leaves at once)")
    for future in _in_order(under_way):
        failures += _take(future, futures[future], store, progress)
        handled.add(future)
    return failures
