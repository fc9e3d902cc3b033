"""Where a durable agent keeps everything: one database, one log, one writer. See `docs/durable.md`."""

from fedfairx.storage.database import Database, open_database
from fedfairx.storage.journal import Journal
from fedfairx.storage.keys import ApiKey, ApiKeys
from fedfairx.storage.log import Log
from fedfairx.storage.rows import DecisionNote, StoredDecision

__all__ = [
    "ApiKey",
    "ApiKeys",
    "Database",
    "DecisionNote",
    "Journal",
    "Log",
    "StoredDecision",
    "open_database",
]
