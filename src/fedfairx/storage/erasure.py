"""Content that leaves the log: contexts that are older than they must be, and the records of a person.

A row that loses its content keeps its number, its time and its seal, without the salt. What is written is an
event in the chain (`amendments`) that says which rows these are, and the rows themselves.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from dataclasses import dataclass, field

from fedfairx import steps
from fedfairx.decision import DELETED, REWARDED
from fedfairx.storage.amendments import LEARNT, marks
from fedfairx.storage.database import Ask
from fedfairx.storage.journal import SOME, Journal
from fedfairx.storage.rows import HEAD, TABLES, OutcomeRow
from fedfairx.storage.seals import WITHOUT_SALT
from fedfairx.util.formatting import counted

#: What stays of a decision; of several slots, their weights and the positions of their actions.
_KEPT = "seq, agent, time, slots"
_BLANK = (
    f"INSERT INTO decisions ({_KEPT}, seal, contexts, policy, theta, action, drawn, propensity) "
    "VALUES (?, ?, ?, ?, ?, ?, ?, ?, ?, ?, ?)"
)
_WITH_CONTEXTS = "LENGTH(d.contexts) > 0"
_ENDED = (
    "EXISTS (SELECT 1 FROM outcomes o WHERE o.decision = d.seq AND o.slot = 0 AND o.turn = 0 AND o.seq < ?)"
)
_OLD = f"FROM decisions d WHERE d.agent = ? AND d.seq >= ? AND d.seq < ? AND {_WITH_CONTEXTS} AND {_ENDED}"
_LEARNT = f"FROM events WHERE agent = ? AND {LEARNT} AND seq < ? AND time < ? AND LENGTH(body) > {HEAD}"


@dataclass(frozen=True, slots=True)
class Old:
    """Rows that are old: decisions from `first` on and before `before`, and logs learnt before `until`.

    Of the decisions only those that had ended before number `ended`.
    """

    first: int
    before: int
    ended: int
    until: int  # microseconds since 1970

    def count(self, journal: Journal) -> int:
        """How many of them have content."""
        read, agent = journal.log.database.read, journal.agent
        decisions = read(f"SELECT COUNT(*) {_OLD}", (agent, self.first, self.before, self.ended))
        learnt = read(f"SELECT COUNT(*) {_LEARNT}", (agent, self.before, self.until))
        return int(decisions[0][0]) + int(learnt[0][0])

    def drop(self, journal: Journal, limit: int) -> int:
        """Inside a transaction: drop the content of some of them, at most `limit`; return of how many."""
        log, agent = journal.log, journal.agent
        values = (agent, self.first, self.before, self.ended, limit)
        numbers = [seq for (seq,) in log.write(f"SELECT d.seq {_OLD} ORDER BY d.seq LIMIT ?", values)]
        blank_decisions(journal, numbers)
        more = min(1, limit - len(numbers))  # a log may be long
        question = f"SELECT seq, body {_LEARNT} LIMIT ?"
        for seq, body in log.write(question, (agent, self.before, self.until, more)):
            emptied = f"UPDATE events SET body = ?, seal = {WITHOUT_SALT} WHERE agent = ? AND seq = ?"
            log.write(emptied, (body[:HEAD], agent, seq))
            numbers.append(seq)
        return len(numbers)


def first_with_content(journal: Journal, *, after: int, before: int) -> int:
    """The number of the first decision with content, from `after` on; `before` if there is none before it."""
    where = f"d.agent = ? AND d.seq >= ? AND d.seq < ? AND {_WITH_CONTEXTS}"
    question = f"SELECT d.seq FROM decisions d WHERE {where} ORDER BY d.seq LIMIT 1"
    rows = journal.log.database.read(question, (journal.agent, after, before))
    return int(rows[0][0]) if rows else before


def append_drop(journal: Journal, old: Old, *, count: int, rule: str, snapshot: int) -> None:
    """Inside a transaction: write that these rows lose their content, and delete snapshots before one."""
    before = journal.amendments(journal.log.database.execute).dropped.dropped
    journal.append(steps.Dropped(before + count, old.before, old.until, rule, old.first))
    journal.log.write("DELETE FROM snapshots WHERE agent = ? AND seq < ?", (journal.agent, snapshot))


def blank_decisions(journal: Journal, numbers: Sequence[int]) -> None:
    """Inside a transaction: remove the content of these decisions.

    Rows are deleted and inserted again: SQLite does not free the pages of rows that become shorter.
    """
    log = journal.log
    for at in range(0, len(numbers), SOME):
        values = (journal.agent, *numbers[at : at + SOME])
        where = f"FROM decisions WHERE agent = ? AND seq IN ({marks(values[1:])})"
        rows = log.write(f"SELECT {_KEPT}, {WITHOUT_SALT} {where} ORDER BY seq", values)
        log.write(f"DELETE {where}", values)
        log.database.execute_many(_BLANK, [(*row, b"", b"", b"", 0, 0, 0.0) for row in rows])


# --- a person's records -----------------------------------------------------------------------------------


@dataclass(frozen=True)
class Deletion:
    """What was deleted of a person, and what could not be.

    decisions: decisions whose contexts, policies and names were deleted.
    rewards: rewards that were deleted.
    withdrawn: decisions that waited for a reward.
    shared: decisions that keep their contexts, because they also have rewards of other people.
    remaining: rewards that stay in the agent's sums, because what it learnt before was dropped by age.
    sent: rewards that are in messages that were sent.
    private: whether those messages have noise.
    release: the number of the message without these rewards, if an agent without noise has sent some.
    statement: all of this, in words.

    >>> import fedfairx as ffx
    >>> with ffx.Agent.open("persons.db", actions=["ann", "ben"]) as agent:
    ...     agent.observe(agent.decide(), reward=1.0, person="p-81")
    ...     agent.delete_person("p-81").rewards
    1
    """

    decisions: int = 0
    rewards: int = 0
    withdrawn: int = 0
    shared: int = 0
    remaining: int = 0
    sent: int = 0
    private: bool = False
    release: int | None = None
    statement: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "statement", str(self))

    def __str__(self) -> str:
        sentences = [
            f"Deleted: {counted(self.decisions, 'decision')} and {counted(self.rewards, 'reward')}; "
            f"{counted(self.withdrawn, 'decision')} waited and will get no reward."
        ]
        if self.shared:
            many = counted(self.shared, "decision")
            sentences.append(f"The contexts of {many} stay: other people have rewards for them too.")
        if self.remaining:
            many = counted(self.remaining, "reward")
            text = f"{many} stay in the agent's sums: the contexts before them were dropped by age."
            sentences.append(text)
        if self.sent and self.private:
            many = counted(self.sent, "reward")
            sentences.append(f"{many} stay, under noise, in messages that were sent, and in those to come.")
        elif self.sent:
            many = counted(self.sent, "reward")
            sentences.append(f"Peers hold sums with {many} until they take release {self.release}.")
        return " ".join(sentences)


def decisions_of(journal: Journal, person: str) -> list[int]:
    """The numbers of decisions with an outcome of this person, as of the open transaction."""
    question = "SELECT DISTINCT decision FROM outcomes WHERE agent = ? AND person = ? ORDER BY decision"
    return [number for (number,) in journal.log.database.execute(question, (journal.agent, person))]


def delete_rows(journal: Journal, decisions: Sequence[int], outcomes: Iterable[OutcomeRow]) -> None:
    """Inside a transaction: remove the content of decisions and outcomes; the chain says which, not whose.

    A sum keeps its status while a slot has a reward.
    """
    blank_decisions(journal, decisions)
    rows = {row.seq: row for row in sorted(outcomes, key=lambda row: row.slot == 0)}  # sums last
    for seq, row in rows.items():
        whole = row.decision in decisions or row.slot > 0 or not _has_rewards(journal, row.decision)
        status = DELETED if whole and row.learnt is not None else row.status
        journal.log.write(
            f"UPDATE outcomes SET reward = NULL, person = NULL, status = ?, seal = {WITHOUT_SALT} "
            "WHERE agent = ? AND seq = ?",
            (status, journal.agent, seq),
        )
    journal.append(steps.Deleted(sorted((*decisions, *rows))))


def _has_rewards(journal: Journal, number: int) -> bool:
    """Whether a slot of a decision with several has a reward."""
    question = "SELECT 1 FROM outcomes WHERE agent = ? AND decision = ? AND slot > 0"
    rest = "AND (reward IS NOT NULL OR status = ?) LIMIT 1"  # one that was no number is NULL
    return bool(journal.log.write(f"{question} {rest}", (journal.agent, number, REWARDED)))


# --- rollbacks --------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Rollback:
    """What a rollback has undone.

    decisions: decisions since then, which stay in the log, marked.
    rewards: rewards since then, which are no longer learnt from.
    withdrawn: decisions since then that waited for a reward.
    release: the number of the message that replaces those sent since then, if there were any.
    statement: all of this, in words.

    >>> import time
    >>> import fedfairx as ffx
    >>> with ffx.Agent.open("undone.db", actions=["ann", "ben"]) as agent:
    ...     before = time.time()
    ...     agent.observe(agent.decide(), reward=1.0)
    ...     agent.roll_back(to=before).rewards
    1
    """

    decisions: int
    rewards: int
    withdrawn: int
    release: int | None = None
    statement: str = field(init=False, repr=False)

    def __post_init__(self) -> None:
        object.__setattr__(self, "statement", str(self))

    def __str__(self) -> str:
        text = (
            f"Undone: what {counted(self.rewards, 'reward')} taught. The log keeps "
            f"{counted(self.decisions, 'decision')} since then, marked; "
            f"{self.withdrawn} waited and will get no reward."
        )
        if self.release is not None:
            text += f" Release {self.release} replaces what was sent; peers must take it as a new run."
        return text


def first_step_at(journal: Journal, time: int, ask: Ask) -> int | None:
    """The number of the first step at `time` (microseconds since 1970) or later; None if there is none."""
    question = "SELECT MIN(seq) FROM {} WHERE agent = ? AND time >= ?"
    numbers = [ask(question.format(table), (journal.agent, time))[0][0] for table in TABLES]
    return min((int(seq) for seq in numbers if seq is not None), default=None)
