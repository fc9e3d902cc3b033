"""Feature names and ranges, stored at the first start; later starts may not change them.

The agent itself never looks at them. But numbers in another order or of another scale would be learnt from as
if they were the same, so whoever feeds it must be told what was said first.
"""

from __future__ import annotations

import json
import os
from typing import Any

from fedfairx.storage.journal import Journal
from fedfairx.storage.open_log import open_log


def read_feature_schema(place: str | os.PathLike[str], *, agent: str | None = None) -> dict[str, Any] | None:
    """The schema of the agent of this name, or of the first, at a place that nobody has open."""
    log = open_log(place)
    try:
        rows = log.database.read(
            "SELECT f.body FROM feature_schemas f JOIN agents a ON a.agent = f.agent "
            "WHERE a.name = ? OR ? = 0 ORDER BY f.agent LIMIT 1",
            (agent or "", int(agent is not None)),
        )
        return json.loads(rows[0][0]) if rows else None
    finally:
        log.close()


def store_feature_schema(journal: Journal, schema: dict[str, Any]) -> None:
    """Store it, unless one is stored already."""
    with journal.log.step() as log:
        if not log.write("SELECT 1 FROM feature_schemas WHERE agent = ?", (journal.agent,)):
            log.write("INSERT INTO feature_schemas VALUES (?, ?)", (journal.agent, json.dumps(schema)))
