"""A durable decision and its reward, one by one and a hundred in a transaction; and opening again.

The baselines are the same agent in memory, and a bare SQLite table that gets a row of the same size for the
decision and one for the reward, in the same transactions. Time is CPU time, except for opening, so the speed
of the disk does not count.
"""

from __future__ import annotations

import shutil
import sqlite3
import tempfile
import time
from pathlib import Path

import numpy as np

import fedfairx as ffx
from measure import Contestant, Report, main, race

ARMS, DIMENSION, GROUP = 10, 5, 100


class Bare:
    """Bare SQLite, without an agent."""

    def __init__(self, path: Path) -> None:
        self._connection = sqlite3.connect(path, isolation_level=None)
        self._connection.execute("PRAGMA journal_mode=WAL")
        self._connection.execute("PRAGMA synchronous=FULL")
        self._connection.execute("CREATE TABLE rows (seq INTEGER PRIMARY KEY, body BLOB)")
        self._next = 0

    def steps(self, size: int) -> None:
        for body in (bytes(8 * (ARMS * DIMENSION + ARMS + DIMENSION)), bytes(40)):
            rows = [(self._next + i, body) for i in range(size)]
            self._next += size
            if size == 1:
                self._connection.execute("BEGIN IMMEDIATE")
                self._connection.execute("INSERT INTO rows VALUES (?, ?)", rows[0])
                self._connection.execute("COMMIT")
            else:
                self._connection.executemany("INSERT INTO rows VALUES (?, ?)", rows)

    def group(self) -> None:
        self._connection.execute("BEGIN IMMEDIATE")
        self.steps(GROUP)
        self._connection.execute("COMMIT")


def step(agent: ffx.Agent, contexts: np.ndarray) -> None:
    agent.observe(agent.decide(contexts), reward=0.5)


def group(agent: ffx.Agent, contexts: np.ndarray) -> None:
    with agent.transaction():
        for _ in range(GROUP):
            step(agent, contexts)


def run(report: Report) -> None:
    folder = Path(tempfile.mkdtemp())
    try:
        costs(report, folder)
        opening(report, folder, decisions=20_000 if report.quick else 1_000_000)
    finally:
        shutil.rmtree(folder)


def costs(report: Report, folder: Path) -> None:
    x = np.random.default_rng(0).random((ARMS, DIMENSION)) / 3
    budget = ffx.Budget(epsilon=2.0, releases=10)
    memory = ffx.Agent(DIMENSION, seed=0)
    kept = ffx.Agent.open(folder / "kept.db", dimension=DIMENSION, seed=0)
    private = ffx.Agent.open(folder / "private.db", dimension=DIMENSION, seed=0, budget=budget)
    bare = Bare(folder / "bare.db")
    contestants = {
        "memory": Contestant(lambda: group(memory, x), GROUP),
        "bare, 100": Contestant(bare.group, GROUP),
        "durable, 100": Contestant(lambda: group(kept, x), GROUP),
        "private, 100": Contestant(lambda: group(private, x), GROUP),
        "bare, 1": Contestant(lambda: bare.steps(1), 1),
        "durable, 1": Contestant(lambda: step(kept, x), 1),
    }
    race(contestants, turns=5)
    timed = race(contestants, turns=20 if report.quick else 200)
    report.heading(f"decide + observe, K={ARMS}, d={DIMENSION}")
    for name, each in timed.items():
        report.time(name, each)
    report.ratio("a hundred together: durable ÷ bare SQLite", timed["durable, 100"].over(timed["bare, 100"]))
    report.ratio("one by one: durable ÷ bare SQLite", timed["durable, 1"].over(timed["bare, 1"]))
    more = timed["durable, 100"].typical - timed["memory"].typical
    report.add("what durability adds, a hundred together", more * 1e6, "µs", at_most=40.0)
    kept.close()
    private.close()


def opening(report: Report, folder: Path, *, decisions: int) -> None:
    """Time opening a log of that many decisions, one in a thousand pending, after a crash."""
    x = np.random.default_rng(0).random((4, DIMENSION)) / 3
    agent = ffx.Agent.open(folder / "long.db", dimension=DIMENSION, seed=0)
    for _ in range(decisions // 1000):
        with agent.transaction():
            for _ in range(999):
                step(agent, x)
            agent.decide(x)
    agent.journal.log.closing.clear()
    agent.close()
    start = time.perf_counter()
    again = ffx.Agent.open(folder / "long.db")
    took = time.perf_counter() - start
    assert again.observed + again.pending == decisions
    report.heading("opening again")
    report.add(f"with {decisions:,} decisions in the log", took, "s", at_most=5.0)
    again.close()


if __name__ == "__main__":
    main("durable", run, __doc__)
