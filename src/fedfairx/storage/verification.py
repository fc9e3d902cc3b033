"""Verification of all logs in a database against their seals, and copies, without writing to it."""

from __future__ import annotations

import os
import secrets
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from itertools import islice

from fedfairx import steps
from fedfairx.decision import REWARDED
from fedfairx.errors import StateError, require
from fedfairx.storage.agents import read_agent
from fedfairx.storage.amendments import Amendments
from fedfairx.storage.database import PAGE, Database, Row, damaged, pages
from fedfairx.storage.journal import Journal
from fedfairx.storage.open_log import open_database
from fedfairx.storage.rows import TABLES
from fedfairx.storage.schema import create_tables
from fedfairx.storage.seals import DIGEST
from fedfairx.storage.transaction_log import Log
from fedfairx.util.formatting import counted


@dataclass(frozen=True)
class LogCheck:
    """The result of checking one agent's log; `damage` names the first damaged row.

    Decisions and rewards are counted up to that row. `head` is the digest of the last row, in hexadecimal.
    `dropped` and `deleted` are the numbers of rows that lost their content by age, and in the deletion of
    people's records; `gone` says until when and by what rule.
    """

    agent: str
    decisions: int
    rewards: int
    head: str
    damage: str | None
    dropped: int = 0
    deleted: int = 0
    gone: str | None = None


def check_logs(database: Database, *, agent: str | None = None) -> list[LogCheck]:
    """Check the rows, the chain, the snapshots and the settings of all agents, or of one."""
    log = Log(database)
    agents = database.execute("SELECT agent, name FROM agents ORDER BY agent")
    names = [name for _, name in agents]
    listed = ", ".join(map(repr, names))
    require(agent is None or agent in names, "agent", f"must be one that there is, {listed}", agent)
    for table in TABLES:
        rows = database.execute(
            f"SELECT seq FROM {table} WHERE agent NOT IN (SELECT agent FROM agents) LIMIT 1"
        )
        if rows:
            raise damaged(database.place, f"step {rows[0][0]} is of no agent")
    return [_check(log, number, name) for number, name in agents if agent in (None, name)]


class SteadyCheck:
    """The check of all steps of a log, some at a time, while others write.

    It begins anywhere, so that a process that is started again and again checks all of them in the end.
    Snapshots, settings and the privacy ledger are left to `check_logs`.
    """

    def __init__(self, log: Log) -> None:
        self._log = log
        self._ask = log.database.read
        self._next = secrets.randbelow(log.end + 1)
        self._heads: dict[int, bytes] = {}  # the digest of the last row before `_next`, by agent
        self.steps = 0  # checked so far
        self.damage: dict[str, str] = {}  # by name of the agent

    def go_on(self, most: int = PAGE) -> int:
        """Check up to `most` steps; return how many, which is 0 once at the end of the log."""
        names = {int(agent): str(name) for agent, name in self._ask("SELECT agent, name FROM agents")}
        try:
            some = sorted(row for table in TABLES for row in self._after(table, most))[:most]
        except StateError as error:  # it is the database that is damaged
            some, self.damage = [], dict.fromkeys(names.values(), str(error))
        if not some:
            self._next, self._heads = 0, {}
            return 0
        until = some[-1][0] + 1
        for agent in {agent for _, agent in some}:
            try:
                self._check(agent, until)
            except StateError as error:
                self._heads.pop(agent, None)
                self.damage[names.get(agent, str(agent))] = str(error)
        self._next = until
        self.steps += len(some)
        return len(some)

    def _after(self, table: str, most: int) -> list[Row]:
        """The numbers and agents of the next rows of a table: what is on disk changes no more."""
        where = "WHERE seq >= ? AND seq < ? ORDER BY seq LIMIT ?"
        return self._ask(f"SELECT seq, agent FROM {table} {where}", (self._next, self._log.end, most))

    def _check(self, agent: int, until: int) -> None:
        with self._log.lock:  # which the journal's own statements need
            journal = Journal(self._log, agent)
        known = self._heads.get(agent)
        for entry in journal.entries(self._next, until=until, after=known, ask=self._ask):
            self._heads[agent] = entry.seal[DIGEST]


def _check(log: Log, number: int, name: str) -> LogCheck:
    journal, decisions, rewards, amended = Journal(log, number), 0, 0, Amendments()
    gone = {"dropped": 0, "deleted": 0}
    releases = [0]  # in each run of a private agent
    head, damage = journal.head(before=0), None
    try:
        private = read_agent(log, number).secret is not None
        amended = journal.amendments()
        for entry in journal.entries():
            step = entry.step
            if entry.number in amended.deleted:
                gone["deleted"] += 1
            elif _is_empty(step):
                gone["dropped"] += 1
            if isinstance(step, steps.Decided):
                decisions += 1
            elif isinstance(step, steps.Ended):
                rewards += len(step.rewards) if step.status == REWARDED else 0
            elif isinstance(step, steps.Released):
                releases[-1] += 1
            elif isinstance(step, steps.RunBegun | steps.EpochBegun):
                releases.append(0)
            head = entry.seal[DIGEST]
        for _ in journal.snapshots(damaged=True):
            pass
        if private:
            _compare_ledger(log.database, number, releases)
    except StateError as error:
        damage = str(error)
    return LogCheck(name, decisions, rewards, head.hex(), damage, **gone, gone=amended.gone())


def _compare_ledger(database: Database, agent: int, releases: Sequence[int]) -> None:
    """Raise unless the privacy ledger has as many releases as the log, in each run."""
    question = "SELECT run, COUNT(*) FROM ledger_releases WHERE agent = ? GROUP BY run"
    ledger = {int(run): int(count) for run, count in database.execute(question, (agent,))}
    logged = dict(enumerate(releases, 1))
    for run in sorted(ledger | logged):
        one, other = ledger.get(run, 0), logged.get(run, 0)
        if one != other:
            text = f"its privacy ledger has {counted(one, 'release')} of run {run}, and its log {other}"
            raise damaged(database.place, text)


def _is_empty(step: steps.Step) -> bool:
    if isinstance(step, steps.Learnt):
        return not len(step.rows)
    return isinstance(step, steps.Decided) and not step.decision.arms


def copy_database(source: Database, path: str | os.PathLike[str]) -> None:
    """Copy all tables into a new SQLite file."""
    target = open_database(path)
    try:
        create_tables(target)
        target.begin()
        for table in sorted(source.tables() & target.tables() - {"fedfairx"}):  # others are of processes
            rows: Iterator[Row]
            if table in TABLES:
                question = f"SELECT * FROM {table} WHERE seq > ? ORDER BY seq LIMIT ?"
                rows = pages(source.execute, question, (), after=-1)
            else:
                rows = iter(source.execute(f"SELECT * FROM {table}"))
            while some := list(islice(rows, PAGE)):
                marks = ", ".join("?" * len(some[0]))
                target.execute_many(f"INSERT INTO {table} VALUES ({marks})", some)
        target.commit()
    finally:
        target.close()
