"""Databases that earlier versions have written: `storage/old_databases` says how."""

from __future__ import annotations

import json
import sqlite3
from pathlib import Path
from typing import Any

from fedfairx.storage import migrations, open_database
from fedfairx.storage.seal_migration import execute_all
from fedfairx.storage.sqlite import APPLICATION

FOLDER = Path(__file__).parents[1] / "storage" / "old_databases"
EXPECTED: dict[str, Any] = json.loads((FOLDER / "expected.json").read_text(encoding="utf-8"))
NAMES = [name for name in EXPECTED if name != "machine"]
EARLY = ["version1-early", "version2-early"]


def load(name: str, place: str) -> None:
    """Put a database at a place: as it was in SQLite; in PostgreSQL the same rows in the tables of then."""
    script = (FOLDER / f"{name}.sql").read_text(encoding="utf-8")
    file = sqlite3.connect(":memory:" if place.startswith("postgresql:") else place)
    file.execute(f"PRAGMA application_id = {APPLICATION}")
    file.executescript(script)
    if place.startswith("postgresql:"):
        database = open_database(place)
        database.begin()
        for table in database.tables() - {"holder"}:  # of this version
            database.execute(f"DROP TABLE {table}")
        execute_all(database, "CREATE TABLE fedfairx (version INTEGER NOT NULL)")
        for migration in migrations.MIGRATIONS[: int(name[len("version")])]:
            if isinstance(migration, str):
                execute_all(database, migration)
            else:
                migration(database)
        for (table,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'table'").fetchall():
            rows = file.execute(f"SELECT * FROM {table}").fetchall()
            marks = ", ".join("?" * len(rows[0])) if rows else ""
            database.execute_many(f"INSERT INTO {table} VALUES ({marks})", rows)
        database.commit()
        database.close()
    file.close()
