"""The tables, by versions that only go forward.

`MIGRATIONS[v]` makes version v + 1 out of version v: statements, or a function. All that are due run in one
transaction with the new number, so that a database is always of one version. A published migration is never
edited: a change is another one at the end. `seq` numbers all steps of all agents in a database, whatever
table they are in.
"""

from __future__ import annotations

from collections.abc import Callable

from fedfairx.errors import StateError
from fedfairx.storage.database import Database
from fedfairx.storage.seal_migration import execute_all, seal_all

_FIRST = """
CREATE TABLE agents (
    agent INTEGER PRIMARY KEY, name TEXT NOT NULL UNIQUE, settings TEXT NOT NULL, secret BLOB
);
CREATE TABLE federations (id INTEGER PRIMARY KEY, settings TEXT NOT NULL, progress TEXT NOT NULL);
CREATE TABLE incarnations (
    life INTEGER PRIMARY KEY, agent INTEGER NOT NULL, origin TEXT NOT NULL UNIQUE, first INTEGER NOT NULL,
    time INTEGER NOT NULL
);
CREATE TABLE decisions (
    seq INTEGER PRIMARY KEY, agent INTEGER NOT NULL, time INTEGER NOT NULL,
    contexts BLOB NOT NULL, policy BLOB NOT NULL, theta BLOB NOT NULL,
    action INTEGER NOT NULL, drawn INTEGER NOT NULL, probability REAL NOT NULL,
    mode TEXT NOT NULL, names TEXT, groups TEXT, key TEXT, digest TEXT, extra TEXT, seal INTEGER NOT NULL
);
CREATE UNIQUE INDEX decisions_key ON decisions (agent, key) WHERE key IS NOT NULL;
CREATE TABLE outcomes (
    seq INTEGER PRIMARY KEY, agent INTEGER NOT NULL, decision INTEGER NOT NULL UNIQUE, time INTEGER NOT NULL,
    status TEXT NOT NULL, reward REAL, person TEXT, seal INTEGER NOT NULL
);
CREATE TABLE events (
    seq INTEGER PRIMARY KEY, agent INTEGER NOT NULL, time INTEGER NOT NULL,
    kind TEXT NOT NULL, body BLOB NOT NULL, seal INTEGER NOT NULL
);
CREATE TABLE snapshots (
    agent INTEGER NOT NULL, seq INTEGER NOT NULL, body BLOB NOT NULL, seal INTEGER NOT NULL,
    PRIMARY KEY (agent, seq)
);
CREATE TABLE ledgers (
    agent INTEGER NOT NULL, run INTEGER NOT NULL, body TEXT NOT NULL, place BLOB NOT NULL,
    PRIMARY KEY (agent, run)
);
CREATE TABLE ledger_positions (
    agent INTEGER NOT NULL, run INTEGER NOT NULL, frozen INTEGER NOT NULL,
    total BLOB NOT NULL, total_count INTEGER NOT NULL,
    leaf BLOB NOT NULL, leaf_count INTEGER NOT NULL, clipped INTEGER NOT NULL,
    PRIMARY KEY (agent, run)
);
CREATE TABLE ledger_records (
    agent INTEGER NOT NULL, run INTEGER NOT NULL, record TEXT NOT NULL, leaf INTEGER NOT NULL,
    PRIMARY KEY (agent, run, record)
);
CREATE TABLE ledger_releases (
    agent INTEGER NOT NULL, run INTEGER NOT NULL, number INTEGER NOT NULL,
    place BLOB NOT NULL, message BLOB, sent INTEGER NOT NULL DEFAULT 0,
    PRIMARY KEY (agent, run, number)
);
CREATE TABLE ledger_persons (
    agent INTEGER NOT NULL, run INTEGER NOT NULL, person TEXT NOT NULL, records INTEGER NOT NULL,
    PRIMARY KEY (agent, run, person)
);
CREATE TABLE api_keys (
    id TEXT PRIMARY KEY, name TEXT NOT NULL, hash TEXT NOT NULL UNIQUE, role TEXT NOT NULL,
    created INTEGER NOT NULL, revoked INTEGER
)
"""

_MEANINGS = "CREATE TABLE meanings (agent INTEGER PRIMARY KEY, body TEXT NOT NULL)"

_SEEN = """
CREATE TABLE seen_rosters (
    agent INTEGER NOT NULL, federation TEXT NOT NULL, version INTEGER NOT NULL, digest TEXT NOT NULL,
    PRIMARY KEY (agent, federation)
);
CREATE TABLE seen_releases (
    agent INTEGER NOT NULL, federation TEXT NOT NULL, sender TEXT NOT NULL,
    number INTEGER NOT NULL, digest TEXT NOT NULL,
    PRIMARY KEY (agent, federation, sender)
)
"""

MIGRATIONS: list[str | Callable[[Database], None]] = [_FIRST, _MEANINGS, _SEEN, seal_all]


def version_of(database: Database) -> int:
    """The version of the tables, 0 where there are none; a newer one than this is refused."""
    there = database.tables()
    version = 0
    if "fedfairx" in there:
        rows = database.execute("SELECT version FROM fedfairx")
        version = int(rows[0][0]) if len(rows) == 1 else -1
    elif "decisions" in there or "agents" in there:
        raise StateError(f"{database.place} has tables of these names that are not a durable agent's")
    if version < 0:
        raise StateError(f"{database.place} does not say which version it is")
    if version > len(MIGRATIONS):
        raise StateError(
            f"{database.place} has version {version}, and this fedfairx reads up to version "
            f"{len(MIGRATIONS)}: update it"
        )
    return version


def migrate(database: Database) -> None:
    """Make the tables, or bring older ones to this version; a newer one is refused as it is."""
    version = version_of(database)
    if version == len(MIGRATIONS):
        return
    database.begin()
    try:
        if version == 0:
            database.execute(database.types("CREATE TABLE fedfairx (version INTEGER NOT NULL)"))
            database.execute("INSERT INTO fedfairx VALUES (0)")
        for migration in MIGRATIONS[version:]:
            if isinstance(migration, str):
                execute_all(database, migration)
            else:
                migration(database)
        database.execute("UPDATE fedfairx SET version = ?", (len(MIGRATIONS),))
        database.commit()
    except BaseException:
        database.rollback()
        raise
