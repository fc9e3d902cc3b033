"""The agents in a database: their names, settings and noise keys."""

from __future__ import annotations

import json
from typing import Any, NamedTuple

from fedfairx.errors import StateError
from fedfairx.storage.seals import seal_other
from fedfairx.storage.transaction_log import Log


class AgentRow(NamedTuple):
    """An agent as the database has it. Its repr shows no key."""

    number: int
    name: str
    settings: dict[str, Any]
    secret: bytes | None

    def __repr__(self) -> str:
        return f"AgentRow(number={self.number}, name={self.name!r})"


def read_agents(log: Log) -> list[AgentRow]:
    """All agents, the oldest first; `StateError` for one that is not as it was written."""
    numbers = log.database.execute("SELECT agent FROM agents ORDER BY agent")
    return [read_agent(log, number) for (number,) in numbers]


def read_agent(log: Log, agent: int) -> AgentRow:
    """The agent of a number; `StateError` if it is not as it was written."""
    ((name, settings, secret, seal),) = log.database.execute(
        "SELECT name, settings, secret, seal FROM agents WHERE agent = ?", (agent,)
    )
    if seal_other(agent, name, settings) != seal:
        raise StateError(
            f"{log.database.place} is damaged: the settings of agent {name!r} are not as they were written; "
            "restore a backup"
        )
    return AgentRow(agent, name, json.loads(settings), secret)


def add_agent(log: Log, name: str, settings: dict[str, Any], secret: bytes | None) -> int:
    """Inside a step: keep a new agent, and give its number."""
    (number,) = log.write("SELECT COALESCE(MAX(agent), 0) + 1 FROM agents")[0]
    row = (number, name, json.dumps(settings), secret)
    log.write("INSERT INTO agents VALUES (?, ?, ?, ?, ?)", (*row, seal_other(*row[:3])))
    return int(number)


def update_settings(log: Log, agent: int, settings: dict[str, Any]) -> None:
    """Inside a step: keep other settings of an agent."""
    ((name,),) = log.write("SELECT name FROM agents WHERE agent = ?", (agent,))
    text = json.dumps(settings)
    log.write(
        "UPDATE agents SET settings = ?, seal = ? WHERE agent = ?",
        (text, seal_other(agent, name, text), agent),
    )
