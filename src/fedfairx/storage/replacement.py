"""Rewards that replace earlier ones: the state they need, and how they are written.

All functions but the last are called inside a transaction, after `Log.settle`: they see what it has written.
"""

from __future__ import annotations

from typing import NamedTuple

from fedfairx import steps
from fedfairx.core.slates import ONE
from fedfairx.decision import REASONS, REWARDED, Decision
from fedfairx.errors import AlreadyObserved
from fedfairx.steps import Event, Replaced
from fedfairx.storage.journal import Journal
from fedfairx.storage.rows import OutcomeRow
from fedfairx.storage.seals import EVENT


class StoredReward(NamedTuple):
    """The reward of a decision's slot: the outcome that came first, and the one that counts."""

    decision: Decision
    first: OutcomeRow
    newest: OutcomeRow

    @property
    def slot(self) -> int:
        """The slot, from 0 on."""
        return max(self.first.slot - 1, 0)

    @property
    def record(self) -> str:
        """Its id in the privacy ledger."""
        return record_of(self.decision, self.slot)


def record_of(decision: Decision, slot: int) -> str:
    """The id of a slot's record in the privacy ledger."""
    return decision.id if decision.weights is ONE else f"{decision.id}/{slot}"


def stored_reward(journal: Journal, decision: Decision, slot: int) -> StoredReward | None:
    """The reward of a slot as it was learnt; None if the slot has no outcome.

    `AlreadyObserved` if it has ended without a reward.
    """
    rows = journal.outcomes(decision.number, 0 if decision.weights is ONE else slot + 1)
    if not rows:
        return None
    if rows[-1].status != REWARDED:
        which = f"decision {decision.id}" + ("" if decision.weights is ONE else f", slot {slot + 1},")
        raise AlreadyObserved(f"{which} {REASONS[rows[-1].status]}")
    return StoredReward(decision, rows[0], rows[-1])


def sealed_by(journal: Journal, outcome: OutcomeRow) -> Event | None:
    """The first step after a reward that makes it final: a release that contains it, a new run or epoch."""
    rows = journal.log.database.execute(
        f"SELECT {EVENT}, seal FROM events WHERE agent = ? AND seq > ? "
        f"AND kind IN {steps.SEALING} ORDER BY seq LIMIT 1",
        (journal.agent, outcome.seq),
    )
    return journal.event(rows[0]) if rows else None


def turn_of(journal: Journal, outcome: OutcomeRow, person: str) -> tuple[int, int]:
    """The position of a reward among its person's rewards in this run, and the number of those."""
    ask, agent = journal.log.database.execute, journal.agent
    question = "SELECT COALESCE(MAX(seq), -1) FROM events WHERE agent = ? AND kind = ?"
    ((start,),) = ask(question, (agent, steps.RunBegun.kind))
    count = (
        "SELECT COUNT(*) FROM outcomes WHERE agent = ? AND person = ? AND turn = 0 AND status = ? AND seq > ?"
    )
    whose = (agent, person, REWARDED, start)
    return ask(f"{count} AND seq <= ?", (*whose, outcome.seq))[0][0], ask(count, whose)[0][0]


def replace(journal: Journal, old: StoredReward, reward: float) -> None:
    """Write a new reward for a slot, and delete snapshots that contain the earlier one.

    Both rows stay. On replay, the newest reward is learnt in the place of the first.
    """
    row = old.newest
    journal.delete_snapshots(after=old.first.seq)
    journal.append(Replaced(row.decision, reward, row.person, row.slot, row.turn + 1))


def sum_again(journal: Journal, number: int) -> None:
    """Write the sum of a decision's rewards again, if it has any and all of its slots have ended."""
    journal.log.settle()
    rows = journal.outcomes(number)
    whole = [row for row in rows if row.slot == 0]
    if whole:
        newest = {row.slot: row.learnt for row in rows if row.slot > 0}  # in the order of turns
        rewards = [reward for reward in newest.values() if reward is not None]
        if rewards:
            journal.append(Replaced(number, sum(rewards), None, 0, whole[-1].turn + 1))


def replaced_between(journal: Journal, first: int, end: int) -> bool:
    """Whether a reward was replaced in a step from `first` on and before `end`."""
    question = "SELECT 1 FROM outcomes WHERE agent = ? AND seq >= ? AND seq < ? AND turn > 0 LIMIT 1"
    return bool(journal.log.database.read(question, (journal.agent, first, end)))
