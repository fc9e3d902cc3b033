"""When rewards came: the steps with which an agent learnt them."""

from __future__ import annotations

import numpy as np
from numpy.typing import NDArray

from fedfairx.storage.database import pages
from fedfairx.storage.journal import Journal
from fedfairx.storage.queries import learnt

_REWARDED = (
    "SELECT o.seq FROM outcomes o JOIN decisions d ON d.seq = o.decision WHERE o.agent = ? "
    "AND (o.slot > 0 OR d.slots IS NULL) AND o.turn = 0 AND o.reward IS NOT NULL AND o.seq > ? "
    "ORDER BY o.seq LIMIT ?"
)


def arrivals(journal: Journal, *, first: int) -> NDArray[np.int64]:
    """The numbers of the steps from `first` on with which rewards came, one for each that still counts.

    Rewards that were deleted, or undone by a rollback, no longer do.
    """
    amended = journal.amendments()
    rows = pages(journal.log.database.read, _REWARDED, (journal.agent,), after=first - 1)
    came = [number for (number,) in rows if not amended.is_undone(number)]
    for part in learnt(journal, first=first, end=journal.end("events")):
        came += [part.last] * len(part.rewards)
    return np.sort(np.array(came, dtype=np.int64))
