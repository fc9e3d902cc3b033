"""The tables of the durable ledger, and the triggers that keep them append-only, whoever writes."""

from __future__ import annotations

from fedfairx.privacy.table_ledger import Tables

__all__ = ["APPLICATION", "SAVE", "SCHEMA", "TABLES"]

APPLICATION = 0x46465802  # "FFX", and the version of the tables

_TABLES = """
CREATE TABLE parameters (id INTEGER PRIMARY KEY CHECK (id = 1), body TEXT NOT NULL, place BLOB NOT NULL);
CREATE TABLE records (record TEXT PRIMARY KEY, leaf INTEGER NOT NULL) WITHOUT ROWID;
CREATE TABLE position (
    id INTEGER PRIMARY KEY CHECK (id = 1),
    frozen INTEGER NOT NULL, total BLOB NOT NULL, total_count INTEGER NOT NULL,
    leaf BLOB NOT NULL, leaf_count INTEGER NOT NULL, clipped INTEGER NOT NULL
);
CREATE TABLE releases (
    number INTEGER PRIMARY KEY, place BLOB NOT NULL, message BLOB, sent INTEGER NOT NULL DEFAULT 0
);
"""

# (name, event, when it is refused). REPLACE removes rows without asking a DELETE trigger, so a row that is
# there is guarded on INSERT too.
_RULES = [
    (
        "one_content",
        "UPDATE ON releases",
        "OLD.number != NEW.number OR OLD.place != NEW.place OR OLD.sent > NEW.sent "
        "OR (OLD.message IS NOT NULL AND OLD.message IS NOT NEW.message)",
    ),
    ("one_release", "INSERT ON releases", "EXISTS (SELECT 1 FROM releases WHERE number = NEW.number)"),
    ("releases_stay", "DELETE ON releases", "1"),
    ("one_leaf", "UPDATE ON records", "1"),
    ("one_record", "INSERT ON records", "EXISTS (SELECT 1 FROM records WHERE record = NEW.record)"),
    ("records_stay", "DELETE ON records", "1"),
    ("one_run", "UPDATE ON parameters", "1"),
    ("one_parameters", "INSERT ON parameters", "EXISTS (SELECT 1 FROM parameters)"),
    ("parameters_stay", "DELETE ON parameters", "1"),
    ("onwards", "UPDATE ON position", "NEW.frozen < OLD.frozen"),
    ("onwards_too", "INSERT ON position", "EXISTS (SELECT 1 FROM position WHERE frozen > NEW.frozen)"),
    ("position_stays", "DELETE ON position", "1"),
]

SCHEMA = _TABLES + "".join(
    f"CREATE TRIGGER {name} BEFORE {event} WHEN {broken} "
    f"BEGIN SELECT RAISE(ABORT, 'the ledger is append-only: {name}'); END;\n"
    for name, event, broken in _RULES
)

TABLES = Tables("parameters", "records", "releases", "position")
SAVE = "INSERT OR REPLACE INTO position VALUES (1, ?, ?, ?, ?, ?, ?)"
