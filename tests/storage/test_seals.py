"""Rows that were changed, removed, inserted or moved are noticed whenever they are read."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import fields
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.agent.agent import Agent
from fedfairx.errors import StateError
from fedfairx.storage import DecisionNote, open_database
from fedfairx.storage.open_log import open_for_reading
from fedfairx.storage.queries import first_time, latest, learnt, records
from fedfairx.storage.records import StoredDecision
from fedfairx.storage.seals import DECISION, EVENT, OUTCOME
from fedfairx.storage.verification import check_logs

D = 2
X = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
FULL = DecisionNote("k", "d", ["f", None, "m"], "control", 1, 0.25, 3, "extra")


def filled(place: str) -> None:
    """Seven decisions, one with all that can be noted; steps: 0-6, rewards from 7 on, then events."""
    with ffx.Agent.open(place, dimension=D, seed=0, name="a") as agent:
        made = [agent.decide(X, names=["x", "y", "z"], note=FULL), *(agent.decide(X) for _ in range(6))]
        for k, each in enumerate(made[:4]):
            agent.observe(each, reward=k / 4)
        agent.observe(made[1], reward=0.9, replace=True)
        agent.forget(made[5])
        agent.learn(X, [0.1, 0.2, 0.3])
        agent.release()


def test_a_group_is_stored_as_its_steps_are_one_by_one(place: str) -> None:
    """On PostgreSQL a group is written in another way."""

    def take(agent: Agent) -> None:
        notes = [FULL._replace(key=key) for key in ("k", "l")]
        made = [agent.decide(X, names=["x", "y", "z"], note=note) for note in notes]
        made += [agent.decide(X) for _ in range(6)]
        for each, reward in zip(made, (0.25, 1, -0.0, 1e-300), strict=False):
            agent.observe(each, reward=reward, person="ann" if reward == 1 else None)
        agent.forget(made[4])
        agent.forget(made[5])

    def stored(agent: Agent) -> list[list[str]]:
        names = [each.name for each in fields(StoredDecision)]
        names = [name for name in names if name not in ("id", "seq", "time", "reward_time")]
        return [[repr(getattr(each, name)) for name in names] for each in agent.journal.decisions()]

    with (
        Agent.open(place, dimension=D, seed=0, name="one") as one,
        Agent.open(place, dimension=D, seed=0, name="group") as group,
    ):
        take(one)
        with group.transaction():
            take(group)
        assert stored(one) == stored(group)
    with open_for_reading(place) as database:
        assert [each.damage for each in check_logs(database)] == [None, None]


def change(place: str, *statements: str) -> None:
    database = open_database(place)
    for statement in statements:
        database.execute(statement)
    database.close()


def damage(place: str) -> str:
    with open_for_reading(place) as database:
        (found,) = check_logs(database)
    return found.damage or ""


OTHER = {"BLOB": "X'00'", "TEXT": "'?'", "INTEGER": "7", "REAL": "0.111"}
KINDS = {
    **dict.fromkeys(("contexts", "policy", "theta", "body"), "BLOB"),
    **dict.fromkeys(("propensity", "control_share", "reward"), "REAL"),
    **dict.fromkeys(
        ("mode", "names", "groups", "key", "digest", "extra", "slots", "status", "person", "kind"), "TEXT"
    ),
}


@pytest.mark.parametrize(
    ("table", "column"),
    [
        (table, column)
        for table, names in (("decisions", DECISION), ("outcomes", OUTCOME), ("events", EVENT))
        for column in names.split(", ")
        if column not in ("seq", "agent")
    ],
)
def test_no_column_can_be_changed_unnoticed(tmp_path: Path, table: str, column: str) -> None:
    place = str(tmp_path / "agent.db")
    filled(place)
    assert damage(place) == ""
    step = {"decisions": 0, "outcomes": 7, "events": 13}[table]
    change(place, f"UPDATE {table} SET {column} = {OTHER[KINDS.get(column, 'INTEGER')]} WHERE seq = {step}")
    assert f"step {step} is not as it was written" in damage(place)


@pytest.mark.parametrize(
    ("statement", "said"),
    [
        ("DELETE FROM decisions WHERE seq = 6", "what came before step 7 was removed or inserted"),
        ("DELETE FROM outcomes WHERE seq = 8", "what came before step 9 was removed or inserted"),
        ("DELETE FROM events WHERE kind = 'learn'", "what came before step 16 was removed or inserted"),
        ("DELETE FROM events WHERE kind = 'release'", "steps before step 17 are missing"),
        ("UPDATE decisions SET seq = 1000 - seq WHERE seq IN (5, 6)", "is not as it was written"),
        ("UPDATE id_prefixes SET prefix = 'abcdefghijklmnop'", "step 0 is not as it was written"),
        ("UPDATE agents SET settings = '{}'", "the settings of agent 'a' are not as they were written"),
        ("UPDATE snapshots SET body = seal WHERE seq > 0", "the snapshot before step 17 is not as it was"),
    ],
)
def test_what_is_removed_or_moved_is_noticed(place: str, statement: str, said: str) -> None:
    filled(place)
    assert damage(place) == ""
    change(place, statement)
    assert said in damage(place)


def test_a_row_of_another_log_does_not_fit(place: str) -> None:
    filled(place)
    copy = DECISION.replace("seq, ", "").replace("key, ", "NULL, ")
    change(place, f"INSERT INTO decisions SELECT 100, {copy}, seal FROM decisions WHERE seq = 6")
    assert "step 100 is not as it was written" in damage(place)
    change(place, "DELETE FROM decisions WHERE seq = 100", "DELETE FROM agents")
    with open_for_reading(place) as database, pytest.raises(StateError, match="step 0 is of no agent"):
        check_logs(database)


READS: dict[str, tuple[str, Callable[[Agent], Any]]] = {
    "decisions": ("decisions", lambda agent: list(agent.journal.decisions())),
    "by id": ("decisions", lambda agent: agent.journal.decision(agent.journal.id_of(1))),
    "by key": ("decisions", lambda agent: agent.journal.by_key("k")),
    "latest": ("decisions", lambda agent: latest(agent.journal, limit=9)),
    "first": ("decisions", lambda agent: first_time(agent.journal)),
    "outcome": ("outcomes", lambda agent: list(agent.journal.decisions())),
    "replacement": ("outcomes WHERE turn > 0", lambda agent: list(agent.journal.decisions())),
    "records": ("outcomes", lambda agent: list(records(agent.journal, agent.columns, first=0, end=99))),
    "learnt": ("events", lambda agent: list(learnt(agent.journal, first=0, end=99))),
    "replay": ("outcomes", lambda agent: list(agent.journal.entries())),
    "verify": ("outcomes", lambda agent: agent.verify()),
    "replace": ("outcomes", lambda agent: agent.observe(agent.journal.id_of(1), reward=0.3, replace=True)),
}


@pytest.mark.parametrize("read", READS)
def test_every_read_looks_at_the_seal(place: str, read: str) -> None:
    filled(place)
    table, ask = READS[read]
    changes = {"decisions": "propensity = 0.111", "outcomes": "reward = 0.111", "events": "time = 1"}
    table, _, where = table.partition(" ")
    with ffx.Agent.open(place) as agent:
        database = agent.journal.log.database
        database.begin()
        database.execute(f"UPDATE {table} SET {changes[table]} {where}")
        database.commit()
        with pytest.raises(StateError, match=r"is damaged: step \d+ is not as it was written"):
            ask(agent)
        agent.journal.log.closing.clear()


def test_numbers_that_a_database_does_not_keep(place: str) -> None:
    """SQLite makes 0.0 of -0.0, and has no NaN, which a private agent takes and learns as 0."""
    budget = ffx.Budget(epsilon=4.0, delta=1e-3, releases=4)
    with ffx.Agent.open(place, dimension=D, seed=0, budget=budget) as agent:
        agent.observe(agent.decide(X), reward=-0.0)
        agent.observe(agent.decide(X, note=DecisionNote(control_share=-0.0)), reward=1e300)
        kept = [made.reward for made in agent.journal.decisions()]
        assert kept == [0.0, 1e300]
        assert math.copysign(1.0, kept[0]) == 1.0
        agent.verify()
    assert damage(place) == ""


def test_after_a_failure_the_chain_goes_on(place: str) -> None:
    with ffx.Agent.open(place, dimension=D, seed=0, name="a") as agent:
        agent.decide(X)
        with pytest.raises(KeyError), agent.transaction():
            agent.observe(agent.decide(X), reward=0.5)
            raise KeyError
        agent.observe(agent.decide(X), reward=0.5)
        agent.verify()
    assert damage(place) == ""
