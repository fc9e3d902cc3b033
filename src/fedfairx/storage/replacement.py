"""Rewards in the log that replace earlier ones: what must be known first, and how they are written.

All of it is done inside a step, after `Log.settle`: questions see what the step's transaction holds.
"""

from __future__ import annotations

from dataclasses import dataclass

from fedfairx.storage.journal import Event, Journal, Made, Outcome
from fedfairx.storage.seals import EVENT


@dataclass(frozen=True, slots=True)
class Booked:
    """A decision that has its reward, the number of times that was replaced, and whose record it is."""

    made: Made
    outcome: Outcome
    turn: int
    person: str | None


def booked(journal: Journal, decision: int) -> Booked | None:
    """The reward of a decision and all that it was learnt with; None where none was given."""
    rows = journal.outcomes(decision)
    if not rows or rows[0][5] != "rewarded":
        return None
    (made,) = journal.made([decision])
    *_, reward, status, person, _, turn, _ = rows[-1]
    learnt = float("nan") if reward is None else reward
    return Booked(made, Outcome(rows[0][0], decision, status, learnt), turn, person)


def sealed_by(journal: Journal, outcome: Outcome) -> Event | None:
    """The first step after a reward that put it out of reach: a release that holds it, or another run."""
    rows = journal.log.database.execute(
        f"SELECT {EVENT}, seal FROM events WHERE agent = ? AND seq > ? AND kind IN ('release', 'run') "
        "ORDER BY seq LIMIT 1",
        (journal.agent, outcome.seq),
    )
    return journal.event(rows[0]) if rows else None


def turn_of(journal: Journal, outcome: Outcome, person: str) -> tuple[int, int]:
    """Which of how many of a person's rewards in this run it is."""
    ask, agent = journal.log.database.execute, journal.agent
    (begun,) = ask("SELECT MAX(seq) FROM events WHERE agent = ? AND kind = 'run'", (agent,))[0]
    count = "SELECT COUNT(*) FROM outcomes WHERE agent = ? AND person = ? AND turn = 0 AND seq > ?"
    whose = (agent, person, -1 if begun is None else begun)
    return ask(f"{count} AND seq <= ?", (*whose, outcome.seq))[0][0], ask(count, whose)[0][0]


def replace(journal: Journal, found: Booked, reward: float) -> None:
    """Keep another reward for a decision, and forget states that the earlier one is part of.

    Both rows stay. Going on from the log, the newest reward is learnt in the place of the first.
    """
    seq, decision = found.outcome.seq, found.outcome.decision
    journal.log.write("DELETE FROM snapshots WHERE agent = ? AND seq > ?", (journal.agent, seq))
    journal.append_outcome(decision, "rewarded", reward, found.person, turn=found.turn + 1)


def replaced_between(journal: Journal, first: int, end: int) -> bool:
    """Whether, among the steps from `first` on and before `end`, a reward was replaced."""
    return bool(
        journal.log.database.read(
            "SELECT 1 FROM outcomes WHERE agent = ? AND seq >= ? AND seq < ? AND turn > 0 LIMIT 1",
            (journal.agent, first, end),
        )
    )
