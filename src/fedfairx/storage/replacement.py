"""Rewards that replace earlier ones: the state they need, and how they are written.

All functions but the last are called inside a step, after `Log.settle`: they see the open transaction.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedfairx.errors import AlreadyObserved
from fedfairx.storage.journal import Event, Journal, Made, Outcome
from fedfairx.storage.seals import EVENT


@dataclass(frozen=True, slots=True)
class Booked:
    """A rewarded decision or one of its slots, how often its reward was replaced, and whose record it is."""

    made: Made
    outcome: Outcome
    turn: int
    person: str | None


def booked(journal: Journal, made: Made, slot: int = 0) -> Booked | None:
    """The reward of a decision, or of a slot from 1 on, as it was learnt; None if it has no outcome.

    `AlreadyObserved` if it has ended without a reward.
    """
    rows = journal.outcomes(made.seq, slot)
    if not rows:
        return None
    *_, reward, status, person, _, turn, _ = rows[-1]
    if status != "rewarded":
        what = f"decision {journal.id_of(made.seq)}" + (f", slot {slot}," if slot else "")
        raise AlreadyObserved(f"{what} {'was forgotten' if status == 'withdrawn' else 'has expired'}")
    learnt = float("nan") if reward is None else reward
    return Booked(made, Outcome(rows[0][0], rows[0][3], made.seq, status, learnt, slot), turn, person)


def sealed_by(journal: Journal, outcome: Outcome) -> Event | None:
    """The first step after a reward that makes it final: a release that contains it, a new run or epoch."""
    rows = journal.log.database.execute(
        f"SELECT {EVENT}, seal FROM events WHERE agent = ? AND seq > ? "
        "AND kind IN ('release', 'run', 'epoch') ORDER BY seq LIMIT 1",
        (journal.agent, outcome.seq),
    )
    return journal.event(rows[0]) if rows else None


def turn_of(journal: Journal, outcome: Outcome, person: str) -> tuple[int, int]:
    """The position of a reward among its person's rewards in this run, and the number of those."""
    ask, agent = journal.log.database.execute, journal.agent
    (begun,) = ask("SELECT MAX(seq) FROM events WHERE agent = ? AND kind = 'run'", (agent,))[0]
    count = (
        "SELECT COUNT(*) FROM outcomes WHERE agent = ? AND person = ? AND turn = 0 AND status = 'rewarded' "
        "AND seq > ?"
    )
    whose = (agent, person, -1 if begun is None else begun)
    return ask(f"{count} AND seq <= ?", (*whose, outcome.seq))[0][0], ask(count, whose)[0][0]


def replace(journal: Journal, found: Booked, reward: float) -> None:
    """Write a new reward for a decision or a slot, and delete snapshots that contain the earlier one.

    Both rows stay. On replay, the newest reward is learnt in the place of the first.
    """
    ended, turn = found.outcome, found.turn + 1
    journal.log.write("DELETE FROM snapshots WHERE agent = ? AND seq > ?", (journal.agent, ended.seq))
    journal.append_outcome(ended.decision, "rewarded", reward, found.person, slot=ended.slot, turn=turn)


def sum_again(journal: Journal, decision: int) -> None:
    """Write the sum of a decision's rewards again, if all of its slots have ended."""
    journal.log.settle()
    rows = journal.outcomes(decision)
    if rows:
        rewards = [each.reward for each in journal.slot_outcomes(decision, before=rows[0][0])]
        total = sum(reward for reward in rewards if reward is not None)
        journal.append_outcome(decision, "rewarded", total, turn=rows[-1][8] + 1)


def replaced_between(journal: Journal, first: int, end: int) -> bool:
    """Whether a reward was replaced in a step from `first` on and before `end`."""
    question = "SELECT 1 FROM outcomes WHERE agent = ? AND seq >= ? AND seq < ? AND turn > 0 LIMIT 1"
    return bool(journal.log.database.read(question, (journal.agent, first, end)))
