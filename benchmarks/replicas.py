"""Several services with one PostgreSQL database: what they answer together, and what bounds it.

Services, PostgreSQL (which flushes each commit to the disk) and `wrk` are on one machine. Two things bound a
larger site: for how long a decision has the write lock, which one process has at a time, and how much CPU it
takes every process to catch up with a step of another one. Both are measured with agents in one process, each
with a log and connections of its own, as processes have them; then with processes that write all the time.

With FEDFAIRX_BEFORE=PATH, the `src` folder of a checkout from before databases could be shared, a service
that has its database alone is compared with that version.
"""

from __future__ import annotations

import os
import re
import shutil
import sys
import tempfile
import time
import urllib.request
from collections.abc import Iterator
from concurrent.futures import ProcessPoolExecutor, ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from multiprocessing import get_context
from pathlib import Path

import numpy as np

import fedfairx as ffx
from measure import Report, Timed, main
from service import CONTEXTS, DIMENSION, MANY, Held, Server, Servers, ask, in_turns, script

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
from servers import Postgres, postgres_programs

PROCESSES = (1, 2, 4)
GROUPS = (1, 10, 100, 1_000)  # decisions in a group
LARGE = 100  # decisions in a group of a busy site
MACHINES = (3, 10)
ROUND_TRIP = 0.5  # milliseconds between a machine and PostgreSQL, for what is extrapolated
TRIPS = 9  # of a group that follows another process's


@dataclass(frozen=True)
class Costs:
    """Seconds of a decision and its reward, each of which is a step in a group of `LARGE`."""

    locked: float  # under the write lock, without catching up
    caught_up: float  # of each other process, under the write lock
    caught_up_cpu: float
    cpu: float  # of the service's process


def run(report: Report) -> None:
    programs = postgres_programs()
    if programs is None or shutil.which("wrk") is None:
        report.note("PostgreSQL or wrk is not installed: nothing was measured")
        return
    with ExitStack() as stack:
        server = Postgres(programs, flush=True)
        stack.callback(server.remove)
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        cpu = together(report, server, folder)
        locked = under_the_lock(report, server)
        caught_up, caught_up_cpu = catching_up(report, server)
        in_each_others_way(report, server)
        extrapolate(report, Costs(locked, caught_up, caught_up_cpu, cpu))
        before = os.environ.get("FEDFAIRX_BEFORE")
        if before is not None:
            alone(report, server, folder, before)


# --- services ---------------------------------------------------------------------------------------------


def together(report: Report, server: Postgres, folder: Path) -> float:
    """Decisions and rewards by 1, 2 and 4 services; return the CPU seconds of both, of one service."""
    turns, seconds = (1, 3.0) if report.quick else (5, 10.0)
    mixed = script(folder, "mixed", {"contexts": CONTEXTS}, rewards=True)
    cpu: list[float] = []
    for count in PROCESSES:
        report.heading(f"{count} services, {MANY} connections in all, decisions and as many rewards")
        with ExitStack() as stack:
            services = [
                Servers(stack, folder).service(
                    *("--dimension", str(DIMENSION), "--name", "shop", "--replica"),
                    *("--database", place),
                )
                for place in [server.schema()] * count
            ]
            turns_of = [asked(services, seconds, mixed) for _ in range(turns)]
        rates = np.array([sum(each.rate for each in held) / 2 for held, _ in turns_of])
        report.time("time of a decision and its reward, of all", Timed(1 / rates))
        report.add("decisions per second, and as many rewards", float(np.median(rates)), "1/s")
        for name in ("median", "p99"):
            worst = [max(getattr(each, name) for each in held) for held, _ in turns_of]
            report.add(f"{name}, of the slowest service", float(np.median(worst)), "ms")
        refused = sum(each.refused for held, _ in turns_of for each in held)
        report.add("answers that were no success", refused, "", at_most=0)
        counted = [numbers for _, numbers in turns_of]
        report.add("requests in a group", _median(counted, "commit_steps_total", "commits_total"), "")
        share = np.median([each["lock_held_seconds_total"] / seconds for each in counted])
        report.add("share of the time in which somebody has the write lock", float(share), "")
        held = _median(counted, "lock_held_seconds_total", "decisions_total")
        report.add("under the lock, by a decision and its reward", 1e6 * held, "µs")
        cpu.append(float(np.median([np.mean([each.cpu for each in held]) for held, _ in turns_of])))
        report.add("CPU of a service, by a decision and its reward", 2 * cpu[-1], "µs")
    return 2 * cpu[0] / 1e6


def asked(services: list[Server], seconds: float, script: str) -> tuple[list[Held], dict[str, float]]:
    """Ask all services at once, and count what they have done meanwhile."""
    before = counts(services)
    with ThreadPoolExecutor(len(services)) as pool:
        waiting = [
            pool.submit(ask, each.port, each.process, seconds, script, MANY // len(services))
            for each in services
        ]
        held = [each.result() for each in waiting]
    after = counts(services)
    return held, {name: after[name] - before[name] for name in after}


def counts(services: list[Server]) -> dict[str, float]:
    """The counts of all services together, over their labels."""
    found: dict[str, float] = {}
    for each in services:
        with urllib.request.urlopen(f"http://127.0.0.1:{each.port}/metrics") as answer:
            text = answer.read().decode()
        for name, number in re.findall(r"^fedfairx_(\w+_total)(?:\{.*\})? (\S+)$", text, re.MULTILINE):
            found[name] = found.get(name, 0.0) + float(number)
    return found


def _median(counted: list[dict[str, float]], name: str, by: str) -> float:
    return float(np.median([each[name] / each[by] for each in counted]))


# --- the write lock ---------------------------------------------------------------------------------------


@contextmanager
def agents(server: Postgres, count: int) -> Iterator[list[ffx.Agent]]:
    """Agents that share a database, as those of several processes do."""
    place = server.schema()
    with ExitStack() as stack:
        yield [
            stack.enter_context(
                ffx.Agent.open(
                    f"{place}&application_name=process{number}", dimension=DIMENSION, name="shop", shared=True
                )
            )
            for number in range(count)
        ]


def steps(agent: ffx.Agent, x: np.ndarray, size: int) -> tuple[float, float]:
    """A group of decisions, and one of their rewards: seconds for which each had the write lock."""
    database = agent.journal.log.database
    times = [database.held]
    made = agent.decide_many([x] * size)
    times.append(database.held)
    agent.observe_many(made, [0.5] * size)
    times.append(database.held)
    return times[1] - times[0], times[2] - times[1]


def under_the_lock(report: Report, server: Postgres) -> float:
    """By size of the group; return the seconds of a decision and its reward in groups of `LARGE`."""
    report.heading(f"Under the write lock, nobody else writes, K={len(CONTEXTS)}, d={DIMENSION}")
    x = np.array(CONTEXTS)
    large = 0.0
    with agents(server, 1) as (agent,):
        steps(agent, x, LARGE)
        for size in GROUPS:
            turns = 5 if report.quick else 50
            times = np.array([steps(agent, x, size) for _ in range(turns)]) / size
            typical = np.median(times, axis=0)
            report.time(f"a decision, in groups of {size}", Timed(times[:, 0]))
            report.time(f"a reward, in groups of {size}", Timed(times[:, 1]))
            goal = {"at_least": 10_000.0} if size == LARGE else {}
            report.add(f"decisions a second, at most, in groups of {size}", 1 / typical[0], "1/s", **goal)
            if size == LARGE:
                large = float(typical.sum())
    return large


def catching_up(report: Report, server: Postgres) -> tuple[float, float]:
    """Seconds and CPU seconds to apply a decision and its reward by another process."""
    report.heading("Catching up with another process's groups, under the write lock")
    x, turns = np.array(CONTEXTS), 5 if report.quick else 50
    wall, cpu = [], []
    with agents(server, 2) as (one, two):
        for turn in range(turns + 3):
            steps(one, x, LARGE)
            log = two.journal.log
            held, began = log.database.held, time.thread_time()
            with log.transaction:
                pass
            if turn >= 3:
                cpu.append((time.thread_time() - began) / LARGE)
                wall.append((log.database.held - held) / LARGE)
    report.time(f"a decision and its reward, {LARGE} of them at a time", Timed(np.array(wall)))
    report.time("the same, CPU of the process", Timed(np.array(cpu)))
    return float(np.median(wall)), float(np.median(cpu))


def in_each_others_way(report: Report, server: Postgres) -> None:
    """Processes that do nothing but groups of `LARGE`."""
    report.heading(f"Processes that write all the time, groups of {LARGE}")
    seconds, turns = (2.0, 1) if report.quick else (6.0, 5)
    for count in PROCESSES:
        rates, held = [], []
        for _ in range(turns):
            with agents(server, 1) as (agent,), ProcessPoolExecutor(count, get_context("spawn")) as pool:
                address = agent.journal.log.database._address
                ends = time.time() + 3.0 + 2.0 * count + seconds  # all are open when they begin
                each = list(pool.map(write, [address] * count, [ends - seconds] * count, [ends] * count))
            written = sum(pairs for pairs, _ in each)
            rates.append(written / seconds)
            held.append(sum(locked for _, locked in each) / written)
        report.time(f"under the lock, a decision and its reward, {count} processes", Timed(np.array(held)))
        report.add(f"decisions a second, and as many rewards, {count} processes", np.median(rates), "1/s")


def write(address: str, begins: float, ends: float) -> tuple[int, float]:
    """Write until the time ends: how many decisions, and for how many seconds under the lock."""
    x, count = np.array(CONTEXTS), 0
    with ffx.Agent.open(address, name="shop", shared=True) as agent:
        database = agent.journal.log.database
        steps(agent, x, LARGE)
        time.sleep(begins - time.time())
        held = database.held
        while time.time() < ends:
            steps(agent, x, LARGE)
            count += LARGE
        return count, database.held - held


def extrapolate(report: Report, costs: Costs) -> None:
    """What more machines could do, each with one service, in groups of `LARGE`, if PostgreSQL keeps up."""
    title = "Extrapolated: decisions a second, and as many rewards"
    report.heading(f"{title}, groups of {LARGE}, {ROUND_TRIP} ms to PostgreSQL")
    trips = 2 * TRIPS * ROUND_TRIP / 1e3 / LARGE  # of a decision and its reward
    for machines in MACHINES:
        others = machines - 1
        by_lock = 1 / (costs.locked + trips + others * costs.caught_up)
        by_cpu = machines / (costs.cpu + others * costs.caught_up_cpu)
        report.add(f"{machines} machines, by the write lock", by_lock, "1/s", note="extrapolated")
        report.add(f"{machines} machines, by the CPU of services", by_cpu, "1/s", note="extrapolated")


# --- a service that has its database alone ----------------------------------------------------------------


def alone(report: Report, server: Postgres, folder: Path, before: str) -> None:
    """A service without --replica, compared with the version before."""
    starts, turns, seconds = (1, 2, 2.0) if report.quick else (3, 4, 2.0)
    decisions = script(folder, "decisions", {"contexts": CONTEXTS})
    for kind in ("SQLite", "PostgreSQL"):
        report.heading(f"A service that has its database alone, {kind}, {starts} starts")
        ratios: dict[int, list[float]] = {1: [], MANY: []}
        for _ in range(starts):
            with ExitStack() as stack:
                pair = {
                    name: Servers(stack, folder).service(
                        *("--dimension", str(DIMENSION)),
                        *(("--database", server.schema()) if kind == "PostgreSQL" else ()),
                        source=source,
                    )
                    for name, source in (("now", None), ("before", before))
                }
                for connections, found in ratios.items():
                    each = in_turns(pair, turns, seconds, decisions, connections)
                    found += [a.rate / b.rate for a, b in zip(each["now"], each["before"], strict=True)]
        for connections, found in ratios.items():
            name = f"answers per second ÷ before, {connections} connections"
            report.ratio(name, np.array(found), at_least=0.95)


if __name__ == "__main__":
    main("replicas", run, __doc__)
