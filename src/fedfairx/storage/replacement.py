"""Rewards in the log that are put in the place of others: what must be known first, and how it is written.

All of it is done inside a step, after `Log.settle`: questions see what the step's transaction holds.
"""

from __future__ import annotations

import json
from dataclasses import dataclass

from fedfairx.storage.journal import Event, Journal, Made, Outcome
from fedfairx.storage.records import seal_outcome
from fedfairx.storage.transaction_log import event_content

_REPLACE = "UPDATE outcomes SET reward = ?, seal = ? WHERE seq = ? AND agent = ?"


@dataclass(frozen=True, slots=True)
class Booked:
    """A decision that has its reward, and whose record it is."""

    made: Made
    outcome: Outcome
    person: str | None


def booked(journal: Journal, decision: int) -> Booked | None:
    """The reward of a decision and all that it was learnt with; None where none was given."""
    rows = journal.log.database.execute(
        "SELECT seq, decision, status, reward, seal, person FROM outcomes "
        "WHERE decision = ? AND agent = ? AND status = 'rewarded'",
        (decision, journal.agent),
    )
    if not rows:
        return None
    *row, person = rows[0]
    (made,) = journal.made([decision])
    return Booked(made, journal.outcome(tuple(row)), person)


def sealed_by(journal: Journal, outcome: Outcome) -> Event | None:
    """The first step after a reward that put it out of reach: a release that holds it, or another run."""
    rows = journal.log.database.execute(
        "SELECT seq, kind, body FROM events WHERE agent = ? AND seq > ? AND kind IN ('release', 'run') "
        "ORDER BY seq LIMIT 1",
        (journal.agent, outcome.seq),
    )
    return Event(rows[0][0], rows[0][1], event_content(bytes(rows[0][2]))) if rows else None


def turn_of(journal: Journal, outcome: Outcome, person: str) -> tuple[int, int]:
    """Which of how many of a person's rewards in this run it is."""
    ask, agent = journal.log.database.execute, journal.agent
    (begun,) = ask("SELECT MAX(seq) FROM events WHERE agent = ? AND kind = 'run'", (agent,))[0]
    count = "SELECT COUNT(*) FROM outcomes WHERE agent = ? AND person = ? AND seq > ?"
    whose = (agent, person, -1 if begun is None else begun)
    return ask(f"{count} AND seq <= ?", (*whose, outcome.seq))[0][0], ask(count, whose)[0][0]


def replace(journal: Journal, outcome: Outcome, reward: float) -> None:
    """Put another reward into the place of the one that is kept, and forget states that it is part of.

    An event keeps what was there before and when it was replaced; going on from the log, it does nothing.
    """
    log, kept = journal.log, None if reward != reward else reward
    sealed = seal_outcome(outcome.seq, outcome.decision, outcome.status, kept)
    log.write(_REPLACE, (kept, sealed, outcome.seq, journal.agent))
    log.write("DELETE FROM snapshots WHERE agent = ? AND seq > ?", (journal.agent, outcome.seq))
    before = None if outcome.reward != outcome.reward else outcome.reward
    journal.happened("replace", json.dumps({"decision": outcome.decision, "reward": before}).encode())


def replaced_between(journal: Journal, first: int, end: int) -> bool:
    """Whether, among the steps from `first` on and before `end`, a reward was replaced."""
    return bool(
        journal.log.database.read(
            "SELECT 1 FROM events WHERE agent = ? AND seq >= ? AND seq < ? AND kind = 'replace' LIMIT 1",
            (journal.agent, first, end),
        )
    )
