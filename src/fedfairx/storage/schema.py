"""The tables of a database and their version: `schema.sql`."""

from __future__ import annotations

import re
from importlib.resources import files

from fedfairx.errors import StateError
from fedfairx.storage.database import Database, damaged

#: Not 1: development versions before the first release have written versions 1 to 9, with other tables.
VERSION = 10

SQL = (files("fedfairx.storage") / "schema.sql").read_text(encoding="utf-8")


def create_tables(database: Database) -> None:
    """Create the tables in one transaction, if there are none; else refuse what `has_tables` refuses."""
    if has_tables(database):
        return
    database.begin()
    try:
        if not has_tables(database):  # else another process was faster
            for statement in re.sub("--.*", "", SQL).split(";"):
                if statement.strip():
                    database.execute(database.types(statement))
            database.execute("INSERT INTO fedfairx VALUES (?)", (VERSION,))
        database.commit()
    except BaseException:
        database.rollback()
        raise


def has_tables(database: Database) -> bool:
    """Whether the tables are there; `StateError` if they are of another version, or somebody else's."""
    there = database.tables()
    if "fedfairx" not in there:
        foreign = sorted(there.intersection(re.findall(r"CREATE TABLE (\w+)", SQL)))
        if foreign:
            raise StateError(
                f"{database.place} is no durable agent's, and has tables of the same names: "
                f"{', '.join(foreign)}; name another one"
            )
        return False
    rows = database.execute("SELECT version FROM fedfairx")
    version = rows[0][0] if len(rows) == 1 else None
    if not isinstance(version, int) or version < 1:
        raise damaged(database.place, "it does not say which version it is")
    if version < VERSION:
        raise StateError(
            f"{database.place} has version {version}, written before the first release of fedfairx, and this "
            f"fedfairx reads version {VERSION}; open it with the fedfairx that wrote it and export its "
            "decisions there (GET /v1/export), or begin a new database"
        )
    if version > VERSION:
        raise StateError(
            f"{database.place} has version {version}, and this fedfairx reads version {VERSION}; update "
            "fedfairx, or restore a backup that is older"
        )
    return True
