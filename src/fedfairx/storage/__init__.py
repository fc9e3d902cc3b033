"""The database of a durable agent: one log, one writer. See `docs/explanation/durability.md`."""

from fedfairx.decision import DecisionNote
from fedfairx.storage.database import Database
from fedfairx.storage.erasure import Deletion, Rollback
from fedfairx.storage.journal import Journal
from fedfairx.storage.open_log import open_database
from fedfairx.storage.records import StoredDecision
from fedfairx.storage.transaction_log import Log

__all__ = [
    "Database",
    "DecisionNote",
    "Deletion",
    "Journal",
    "Log",
    "Rollback",
    "StoredDecision",
    "open_database",
]
