"""The agents in a database: names, settings, noise keys, feature schemas, what a service keeps of them."""

from __future__ import annotations

import json
import os
from typing import Any, NamedTuple

from fedfairx.steps import SchemaExtended
from fedfairx.storage.database import damaged
from fedfairx.storage.journal import Journal
from fedfairx.storage.open_log import open_log
from fedfairx.storage.seals import EVENT, seal_other
from fedfairx.storage.transaction_log import Log


class AgentRow(NamedTuple):
    """A stored agent. Its repr shows no key."""

    number: int
    name: str
    settings: dict[str, Any]
    secret: bytes | None

    def __repr__(self) -> str:
        return f"AgentRow(number={self.number}, name={self.name!r})"


def read_agents(log: Log) -> list[AgentRow]:
    """All agents, the oldest first; `StateError` for a damaged one."""
    numbers = log.database.execute("SELECT agent FROM agents ORDER BY agent")
    return [read_agent(log, number) for (number,) in numbers]


def number_of(log: Log, name: str) -> int | None:
    """The number of the agent of this name; None if there is none."""
    rows = log.database.execute("SELECT agent FROM agents WHERE name = ?", (name,))
    return int(rows[0][0]) if rows else None


def read_agent(log: Log, agent: int) -> AgentRow:
    """The agent of this number; `StateError` if it is damaged."""
    ((name, settings, secret, seal),) = log.database.execute(
        "SELECT name, settings, secret, seal FROM agents WHERE agent = ?", (agent,)
    )
    if seal_other(agent, name, settings) != seal:
        raise damaged(log.database.place, f"the settings of agent {name!r} are not as they were written")
    return AgentRow(agent, name, json.loads(settings), secret)


def add_agent(log: Log, name: str, settings: dict[str, Any], secret: bytes | None) -> int:
    """Inside a transaction: store a new agent, and return its number."""
    (number,) = log.write("SELECT COALESCE(MAX(agent), 0) + 1 FROM agents")[0]
    row = (number, name, json.dumps(settings), secret)
    log.write("INSERT INTO agents VALUES (?, ?, ?, ?, ?)", (*row, seal_other(*row[:3])))
    return int(number)


def update_settings(log: Log, agent: int, settings: dict[str, Any]) -> None:
    """Inside a transaction: store changed settings of an agent."""
    ((name,),) = log.write("SELECT name FROM agents WHERE agent = ?", (agent,))
    text = json.dumps(settings)
    log.write(
        "UPDATE agents SET settings = ?, seal = ? WHERE agent = ?",
        (text, seal_other(agent, name, text), agent),
    )


def read_feature_schema(place: str | os.PathLike[str], *, agent: str | None = None) -> dict[str, Any] | None:
    """What the columns of contexts mean now to the agent of this name, or to the first agent.

    That is `Schema.to_dict`, or what a service notes of an agent without a schema: no features, and whether
    there is an intercept. None if nothing was stored.
    """
    log = open_log(place)
    try:
        read = log.database.read
        rows = read(
            "SELECT agent, settings FROM agents WHERE name = ? OR ? = 0 ORDER BY agent LIMIT 1",
            (agent or "", int(agent is not None)),
        )
        if not rows:
            return None
        number, settings = rows[0]
        journal = Journal(log, number)
        amended = journal.amendments()
        extensions = f"SELECT {EVENT}, seal FROM events WHERE agent = ? AND kind = ? ORDER BY seq DESC"
        for row in read(extensions, (number, SchemaExtended.kind)):
            event = journal.event(row)
            if isinstance(event, SchemaExtended) and not amended.is_undone(row[0]):
                return event.schema.to_dict()
        first: dict[str, Any] | None = json.loads(settings).get("features")
        notes = [] if first else read("SELECT body FROM feature_schemas WHERE agent = ?", (number,))
        return json.loads(notes[0][0]) if notes else first
    finally:
        log.close()


def store_feature_schema(journal: Journal, schema: dict[str, Any]) -> bool:
    """Store what the columns of contexts mean, unless that is stored already; return whether it was not.

    It is for agents that were made without a schema, in whose settings it is otherwise. They would learn from
    numbers in another order or of another scale as if they were the same, so later settings are compared with
    the first ones.
    """
    with journal.log.transaction as log:
        new = not log.write("SELECT 1 FROM feature_schemas WHERE agent = ?", (journal.agent,))
        if new:
            log.write("INSERT INTO feature_schemas VALUES (?, ?)", (journal.agent, json.dumps(schema)))
        return new


def adopted_schema(journal: Journal) -> dict[str, Any] | None:
    """The schema that an agent without one in its settings got later; None if features have no names."""
    rows = journal.log.database.execute("SELECT body FROM feature_schemas WHERE agent = ?", (journal.agent,))
    schema: dict[str, Any] | None = json.loads(rows[0][0]) if rows else None
    return schema if schema and schema["features"] else None


class ServedRow(NamedTuple):
    """What a service keeps of an agent.

    settings: as a request gave them; None for an agent that was made otherwise.
    archived: when it was, in seconds since 1970.
    exists: whether the agent itself is in the database; a request may have been cut off before.
    """

    settings: dict[str, Any] | None = None
    archived: float | None = None
    exists: bool = True


def read_served(log: Log) -> dict[str, ServedRow]:
    """All agents by name, the oldest first; at the end those that are not made yet."""
    read = log.database.read
    names = [name for (name,) in read("SELECT name FROM agents ORDER BY agent")]
    rows = {
        name: ServedRow(
            None if settings is None else json.loads(settings), None if archived is None else archived / 1e6
        )
        for name, settings, archived in read(
            "SELECT name, settings, archived FROM served_agents ORDER BY created, name"
        )
    }
    served = {name: rows.get(name, ServedRow()) for name in names}
    return served | {name: row._replace(exists=False) for name, row in rows.items() if name not in served}


def store_served(log: Log, name: str, settings: dict[str, Any] | None, *, archived: bool = False) -> None:
    """Inside a transaction: store what a service keeps of an agent."""
    text, now = None if settings is None else json.dumps(settings), log.now()
    log.write(
        "INSERT INTO served_agents VALUES (?, ?, ?, ?) ON CONFLICT (name) DO UPDATE SET "
        "settings = excluded.settings, archived = excluded.archived",
        (name, text, now, now if archived else None),
    )


def forget_served(log: Log, name: str) -> None:
    """Inside a transaction: forget an agent that could not be made."""
    log.write("DELETE FROM served_agents WHERE name = ?", (name,))
