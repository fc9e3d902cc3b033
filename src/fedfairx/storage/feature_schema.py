"""Feature names and ranges, stored at the first start; later starts may not change them.

The agent itself never looks at it. But numbers in another order or of another scale would be learnt from as
if they were the same, so whoever feeds it must be told what was said first.
"""

from __future__ import annotations

import json
import os
from typing import Any

from fedfairx.storage.journal import Journal
from fedfairx.storage.open_log import open_log


def read_meaning(place: str | os.PathLike[str]) -> dict[str, Any] | None:
    """What was kept of the agent at a place that nobody has open; None where nothing was."""
    log = open_log(place)
    try:
        rows = log.database.read("SELECT body FROM meanings ORDER BY agent")
        return json.loads(rows[0][0]) if rows else None
    finally:
        log.close()


def keep_meaning(journal: Journal, meaning: dict[str, Any]) -> None:
    """Keep it, unless something is kept already."""
    with journal.log.step() as log:
        if not log.write("SELECT 1 FROM meanings WHERE agent = ?", (journal.agent,)):
            log.write("INSERT INTO meanings VALUES (?, ?)", (journal.agent, json.dumps(meaning)))
