"""Versions of the tables, and the migrations from each to the next.

`MIGRATIONS[v]` makes version v + 1 out of version v: the statements of a file in `schema/`, or a function.
All that are due run in one transaction with the new version number, so that a database always has exactly one
version. A published migration is never edited: a change is another migration at the end. `seq` numbers all
steps of all agents in a database, across tables.
"""

from __future__ import annotations

from collections.abc import Callable

from fedfairx.errors import StateError
from fedfairx.storage.database import Database, damaged
from fedfairx.storage.seal_migration import execute_all, seal_all, statements

MIGRATIONS: list[str | Callable[[Database], None]] = [
    *map(statements, ("1.sql", "2.sql", "3.sql")),
    seal_all,
    statements("5.sql"),
    statements("6.sql"),
    statements("7.sql"),
]

#: What each table holds, for the reference.
TABLES = {
    "agents": "each agent: its name, its settings, and the noise key of a private one",
    "aggregation": "secure aggregation: what this member has sent, opened and accepted",
    "api_keys": "API keys of a service, as hashes, with their roles and agents",
    "decisions": "each decision: contexts, policy, θ, the action taken and its propensity",
    "events": "every other step of an agent: logs that it learnt, releases, messages, deletions, rollbacks",
    "feature_schemas": "the named features of each agent",
    "federations": "unused",
    "fedfairx": "the version of these tables",
    "id_prefixes": "the prefixes of decision ids, one for each opening",
    "ledger_persons": "private agents: how many records of each person have entered",
    "ledger_positions": "private agents: the sums so far, and those of the open leaf",
    "ledger_records": "private agents: which leaf a record with an id is in",
    "ledger_releases": "private agents: every release, and whether it was sent",
    "ledgers": "private agents: the parameters of each run",
    "outcomes": "each reward, withdrawal and expiry; a replacing reward has a higher `turn`",
    "seen_releases": "members: the latest release that was accepted from each peer",
    "seen_rosters": "members: the latest roster that was accepted",
    "served_agents": "the agents that requests have made in a service",
    "snapshots": "states of agents, from which opening replays the rest of the log",
}


def version_of(database: Database) -> int:
    """The version of the tables, 0 if there are none; refuse a version newer than this fedfairx knows."""
    there = database.tables()
    version = 0
    if "fedfairx" in there:
        rows = database.execute("SELECT version FROM fedfairx")
        version = int(rows[0][0]) if len(rows) == 1 else -1
    elif "decisions" in there or "agents" in there:
        raise StateError(
            f"{database.place} has tables of these names that are not a durable agent's; name another one"
        )
    if version < 0:
        raise damaged(database.place, "it does not say which version it is")
    if version > len(MIGRATIONS):
        raise StateError(
            f"{database.place} has version {version}, and this fedfairx reads up to version "
            f"{len(MIGRATIONS)}; update fedfairx, or restore a backup that is older"
        )
    return version


def migrate(database: Database) -> None:
    """Create the tables, or migrate older ones to this version; a newer version is refused unchanged."""
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
