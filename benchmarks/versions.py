"""Decisions with their rewards, this version compared with another: FEDFAIRX_BEFORE=PATH, its `src` folder.

Each version has a process of its own, on the same core and with the same hashes of texts, and they take
turns. How fast a process is depends on chance for as long as it runs, so there are several pairs of
processes. A figure is the median over the pairs, with a 95 % interval by the bootstrap. Time is CPU time; of
a service it is that of the server for an answer.
"""

from __future__ import annotations

import argparse
import atexit
import os
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import service
from measure import Report, finish, parser

ARMS, DIMENSION, GROUP, LOG = 10, 5, 100, 100_000  # LOG: steps in the log that is opened
HERE = Path(__file__).resolve().parents[1] / "src"
RESAMPLES = 10_000
Work = Callable[[], float | None]  # may return its seconds
TASKS: dict[str, Callable[[Path], tuple[Work, int]]] = {}  # each gives its work and the units in it


def task(make: Callable[[Path], tuple[Work, int]]) -> Callable[[Path], tuple[Work, int]]:
    TASKS[make.__name__] = make
    return make


# --- what is timed, in a process of one version -----------------------------------------------------------


class Rounds:
    """The same contexts and rewards, again and again."""

    def __init__(self, agent: Any, *, named: bool = False) -> None:
        rng = np.random.default_rng(0)
        self.agent = agent
        self.contexts = [None if named else rng.random((ARMS, DIMENSION)) / 3 for _ in range(GROUP)]
        self.block = None if named else np.stack(self.contexts)
        self.rewards = rng.random((GROUP, ARMS)).tolist()

    def one_by_one(self) -> None:
        for contexts, rewards in zip(self.contexts, self.rewards, strict=True):
            decision = self.agent.decide(contexts)
            self.agent.observe(decision, reward=rewards[decision.action])

    def slots(self) -> None:
        for contexts, rewards in zip(self.contexts, self.rewards, strict=True):
            decision = self.agent.decide(contexts, slots=3)
            self.agent.observe(decision, rewards=[rewards[action] for action in decision.actions])

    def group(self) -> None:
        with self.agent.transaction():
            self.one_by_one()

    def group_of_slots(self) -> None:
        with self.agent.transaction():
            self.slots()

    def batch(self) -> None:
        decisions = self.agent.decide_many(self.block)
        pairs = zip(decisions, self.rewards, strict=True)
        self.agent.observe_many(decisions, [rewards[decision.action] for decision, rewards in pairs])


LONG = ("open_a_log", "verify_a_log")


def _ten(work: Work) -> tuple[Work, int]:
    def ten() -> None:
        for _ in range(10):
            work()

    return ten, 10 * GROUP


def _agent(folder: Path | None = None) -> Any:
    import fedfairx as ffx

    if folder is None:
        return ffx.Agent(DIMENSION, seed=0)
    return ffx.Agent.open(Path(tempfile.mkdtemp(dir=folder)) / "agent.db", dimension=DIMENSION, seed=0)


@task
def memory_one_slot(_folder: Path) -> tuple[Work, int]:
    return _ten(Rounds(_agent()).one_by_one)


@task
def memory_named(_folder: Path) -> tuple[Work, int]:
    import fedfairx as ffx

    agent = ffx.Agent(actions=[f"action {n}" for n in range(ARMS)], seed=0)
    return _ten(Rounds(agent, named=True).one_by_one)


@task
def memory_three_of_ten(_folder: Path) -> tuple[Work, int]:
    return _ten(Rounds(_agent()).slots)


@task
def memory_batches(_folder: Path) -> tuple[Work, int]:
    return _ten(Rounds(_agent()).batch)


@task
def durable_one_by_one(folder: Path) -> tuple[Work, int]:
    return Rounds(_agent(folder)).one_by_one, GROUP


@task
def durable_groups(folder: Path) -> tuple[Work, int]:
    return _ten(Rounds(_agent(folder)).group)


@task
def durable_batches(folder: Path) -> tuple[Work, int]:
    return _ten(Rounds(_agent(folder)).batch)


@task
def durable_three_of_ten_in_groups(folder: Path) -> tuple[Work, int]:
    return _ten(Rounds(_agent(folder)).group_of_slots)


def _log(folder: Path) -> tuple[Path, Any]:
    """A database with so many steps, left as after a crash, and its agent."""
    import fedfairx as ffx

    place = folder / "long.db"
    if not place.exists():
        agent = _agent(folder)
        source, rounds = Path(agent.journal.place), Rounds(agent)
        agent.journal.write_snapshot = lambda _body: None  # the log is replayed whole
        for _ in range(LOG // (2 * GROUP)):
            rounds.group()
        agent.journal.log.closing.clear()
        agent.close()
        shutil.copy(source, place)
    copy = Path(tempfile.mkdtemp(dir=folder)) / "agent.db"
    shutil.copy(place, copy)
    return copy, ffx.Agent.open


@task
def open_a_log(folder: Path) -> tuple[Work, int]:
    place, opened = _log(folder)

    def work() -> None:
        agent = opened(place)
        agent.journal.log.closing.clear()  # without a snapshot
        agent.journal.log.restorers.clear()
        agent.close()

    return work, LOG


@task
def verify_a_log(folder: Path) -> tuple[Work, int]:
    place, opened = _log(folder)
    return opened(place).verify, LOG


def _service(folder: Path, connections: int, *, rewards: bool) -> tuple[Work, int]:
    """Requests for a second; it is stopped with this process."""
    stack = ExitStack()
    atexit.register(stack.close)
    server = service.Servers(stack, folder).service("--dimension", str(DIMENSION))
    body = {"contexts": service.CONTEXTS}
    script = service.script(folder, f"{connections}", body, rewards=rewards)

    def work() -> float:
        return service.ask(server.port, server.process, 1.0, script, connections).cpu / 1e6

    return work, 1


@task
def service_one_connection(folder: Path) -> tuple[Work, int]:
    return _service(folder, 1, rewards=False)


@task
def service_64_connections(folder: Path) -> tuple[Work, int]:
    return _service(folder, 64, rewards=False)


@task
def service_with_rewards(folder: Path) -> tuple[Work, int]:
    return _service(folder, 8, rewards=True)


def serve() -> None:
    """Run the task that each line of the standard input names, and print its seconds per unit."""
    os.sched_setaffinity(0, {max(os.sched_getaffinity(0))})  # on one core: another may be slower
    with tempfile.TemporaryDirectory() as folder:
        ready: dict[str, tuple[Work, int]] = {}
        for line in sys.stdin:
            name = line.strip()
            if name not in ready:
                ready[name] = TASKS[name](Path(folder))
                for _ in range(1 if name in LONG else 3):
                    ready[name][0]()
            work, units = ready[name]
            start = time.process_time()
            seconds = work()
            print((seconds or time.process_time() - start) / units, flush=True)


# --- the comparison ---------------------------------------------------------------------------------------


@contextmanager
def process(source: Path, seed: int) -> Iterator[Callable[[str], float]]:
    """A process with the version of that folder and this seed of hashes, which times tasks by name."""
    environment = os.environ | {"PYTHONPATH": str(source), "PYTHONHASHSEED": str(seed)}
    arguments = [sys.executable, __file__, "--serve"]
    pipe = subprocess.PIPE
    with subprocess.Popen(arguments, stdin=pipe, stdout=pipe, text=True, env=environment) as child:
        assert child.stdin is not None
        assert child.stdout is not None

        def timed(name: str) -> float:
            child.stdin.write(f"{name}\n")  # type: ignore[union-attr]
            child.stdin.flush()  # type: ignore[union-attr]
            return float(child.stdout.readline())  # type: ignore[union-attr]

        yield timed
        child.stdin.close()


def ratios_of_pair(seed: int, before: Path, turns: int, names: list[str]) -> dict[str, float]:
    """This version's time over the other's, by task, the median over the turns of one pair of processes.

    In every other pair the other version starts first: of two equal processes the later one may be faster.
    """
    order = (0, 1) if seed % 2 == 0 else (1, 0)
    with ExitStack() as stack:
        timed = {each: stack.enter_context(process((HERE, before)[each], seed)) for each in order}
        ratios = {}
        for name in names:
            times: tuple[list[float], list[float]] = ([], [])
            for turn in range(1 + (min(turns, 3) if name in LONG else turns)):
                for each in order if turn % 2 == 0 else reversed(order):
                    times[each].append(timed[each](name))
            ours, theirs = np.array(times)[:, 1:]
            ratios[name] = float(np.median(ours / theirs))
        return ratios


def run(report: Report, names: list[str], pairs: int, turns: int) -> None:
    before = os.environ.get("FEDFAIRX_BEFORE")
    if before is None:
        sys.exit("FEDFAIRX_BEFORE must be the `src` folder of another checkout, got nothing")
    if shutil.which("wrk") is None:
        names = [name for name in names if not name.startswith("service")]
        report.note("wrk is not installed: services were not measured")
    report.heading(f"This version ÷ {before}: {pairs} pairs of processes, {turns} turns in each")
    all_ratios = []
    for seed in range(pairs):
        all_ratios.append(ratios_of_pair(seed, Path(before), turns, names))
        text = ", ".join(f"{ratio:.3f}" for ratio in all_ratios[-1].values())
        print(f"  pair {seed + 1} of {pairs}: {text}", file=sys.stderr, flush=True)
    rng = np.random.default_rng(0)
    for name in names:
        ratios = np.array([each[name] for each in all_ratios])
        medians = np.median(rng.choice(ratios, (RESAMPLES, pairs)), axis=1)
        low, high = np.quantile(medians, (0.025, 0.975))
        report.add(name.replace("_", " "), float(np.median(ratios)), "×", low=float(low), high=float(high))


def main() -> None:
    options: argparse.ArgumentParser = parser(__doc__)
    options.add_argument("--pairs", type=int, default=12, help="pairs of processes")
    options.add_argument("--turns", type=int, default=10, help="turns in each pair")
    options.add_argument("--serve", action="store_true", help=argparse.SUPPRESS)
    options.add_argument("tasks", nargs="*", metavar="TASK", help=f"some of {', '.join(TASKS)}")
    args = options.parse_args()
    if args.serve:
        serve()
        return
    names, pairs, turns = args.tasks or list(TASKS), args.pairs, args.turns
    if args.quick:
        pairs, turns = 2, 2
    finish(Report("versions", args.quick, args.json), lambda report: run(report, names, pairs, turns))


if __name__ == "__main__":
    main()
