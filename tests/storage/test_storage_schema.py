"""The tables of a new database, and the databases that are refused because of theirs."""

from __future__ import annotations

import os
import re
import signal
import sqlite3
from collections.abc import Callable
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from elsewhere import elsewhere
from fedfairx.errors import KeyTaken, StateError
from fedfairx.storage import DecisionNote, open_database, schema
from fedfairx.storage.agents import read_agent, update_settings
from fedfairx.storage.api_keys import open_keys
from fedfairx.storage.open_log import open_for_reading, open_log
from fedfairx.storage.replacement import replaced_between
from fedfairx.storage.schema import VERSION, create_tables
from fedfairx.storage.seals import DECISION, EVENT, OUTCOME
from servers import Postgres

X = np.eye(2)
#: The indexes beside those of keys. SQLite must use each of them in a query of ours.
INDEXES = {"decisions_key", "events_amending", "events_learnt", "outcomes_person", "outcomes_replaced"}
TYPES = {"bigint": "INTEGER", "bytea": "BLOB", "double precision": "REAL", "text": "TEXT"}


@pytest.fixture(params=["sqlite", "postgresql"])
def empty_place(request: pytest.FixtureRequest, tmp_path: Path) -> str:
    """A place without tables."""
    if request.param == "sqlite":
        return str(tmp_path / "agent.db")
    server: Postgres = request.getfixturevalue("postgres")
    return server.schema()


def execute(place: str, *statements: str) -> None:
    database = open_database(place)
    for statement in statements:
        database.execute(statement)
    database.close()


def content_of(place: str) -> dict[str, Any]:
    """All rows of all tables, and the bytes of a file."""
    database = open_database(place)
    tables = sorted(database.tables() - {"holder"})
    content: dict[str, Any] = {table: database.execute(f"SELECT * FROM {table}") for table in tables}
    database.close()
    return content if place.startswith("postgresql:") else content | {"file": Path(place).read_bytes()}


# --- a new database ---------------------------------------------------------------------------------------


def sqlite_columns(place: str) -> dict[str, list[tuple[str, str, bool]]]:
    database = open_database(place)
    columns = {
        table: [
            (name, kind, bool(not_null or key))
            for _, name, kind, not_null, _, key in database.execute(f"PRAGMA table_info({table})")
        ]
        for table in database.tables()
    }
    database.close()
    return columns


def test_other_tables_need_another_version() -> None:
    """If this fails, `schema.sql` has changed: give it the next `VERSION`, and write both here."""
    statements = " ".join(re.sub("--.*", "", schema.SQL).split())
    assert (VERSION, sha256(statements.encode()).hexdigest()[:16]) == (10, "5254e1cbf4ae47aa")


def test_columns_are_those_that_are_sealed(tmp_path: Path) -> None:
    ffx.Agent.open(tmp_path / "agent.db", dimension=2).close()
    columns = sqlite_columns(str(tmp_path / "agent.db"))
    for table, sealed in {"decisions": DECISION, "outcomes": OUTCOME, "events": EVENT}.items():
        assert {name for name, *_ in columns[table]} == {*sealed.split(", "), "seal"}


def test_both_kinds_of_databases_have_the_same_tables(tmp_path: Path, postgres: Postgres) -> None:
    server = postgres.schema()
    for place in (str(tmp_path / "agent.db"), server):
        open_log(place).close()
    database = open_database(server)
    columns: dict[str, list[tuple[str, str, bool]]] = {}
    for table, name, kind, null in database.execute(
        "SELECT table_name, column_name, data_type, is_nullable FROM information_schema.columns "
        "WHERE table_schema = current_schema() AND table_name <> 'holder' ORDER BY ordinal_position"
    ):
        columns.setdefault(table, []).append((name, TYPES[kind], null == "NO"))
    indexes = database.execute("SELECT indexname FROM pg_indexes WHERE schemaname = current_schema()")
    database.close()
    assert columns == sqlite_columns(str(tmp_path / "agent.db"))
    assert {name for (name,) in indexes if not name.endswith(("_pkey", "_key")) or name in INDEXES} == INDEXES


def test_each_index_serves_a_query(tmp_path: Path) -> None:
    statements: list[str] = []
    with ffx.Agent.open(tmp_path / "agent.db", dimension=2) as agent:
        database: Any = agent.journal.log.database
        database.read("SELECT 1")  # which connects
        for connection in (database._writer, database._reader):
            connection.set_trace_callback(statements.append)
        made = [agent.decide(X, note=DecisionNote(key=str(k))) for k in range(3)]
        with pytest.raises(KeyTaken):
            agent.decide(X, note=DecisionNote(key="0"))
        agent.learn(X, [0.5, 0.25])
        for each in made:
            agent.observe(each, reward=0.5, person="p")
        agent.observe(made[0], reward=0.25, replace=True)
        assert replaced_between(agent.journal, 0, 100)
        agent.delete_person("p")
        agent.drop_contexts(before=1e10)
        agent.verify()
    file = sqlite3.connect(tmp_path / "agent.db")
    queries = {text for text in statements if text.startswith("SELECT")}
    plans = [row[3] for text in queries for row in file.execute(f"EXPLAIN QUERY PLAN {text}")]
    there = {
        name for (name,) in file.execute("SELECT name FROM sqlite_master WHERE type = 'index' AND sql <> ''")
    }
    file.close()
    assert there == INDEXES
    assert set(re.findall(r"INDEX (\w+)", " ".join(plans))) >= INDEXES


def test_creating_is_repeated_without_harm(empty_place: str) -> None:
    for _ in range(2):
        open_log(empty_place).close()
        assert content_of(empty_place)["fedfairx"] == [(VERSION,)]


def interrupt(_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.parametrize("how", ["a statement fails", "interrupted"])
def test_a_failure_in_the_middle_creates_nothing(
    empty_place: str, how: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    database = open_database(empty_place)
    with monkeypatch.context() as patch:
        if how == "interrupted":
            patch.setattr(type(database), "commit", interrupt)
        else:
            patch.setattr(schema, "SQL", schema.SQL + "nonsense;")
        with pytest.raises((StateError, KeyboardInterrupt)):
            create_tables(database)
    assert database.tables() <= {"holder"}
    create_tables(database)
    assert database.execute("SELECT version FROM fedfairx") == [(VERSION,)]
    database.close()


@pytest.mark.process
def test_killed_in_the_middle_it_has_created_nothing(empty_place: str) -> None:
    child = os.fork()
    if child == 0:
        try:
            database: Any = open_database(empty_place)
            database.commit = lambda: os.kill(os.getpid(), signal.SIGKILL)
            create_tables(database)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    database = open_database(empty_place)
    assert database.tables() <= {"holder"}
    database.close()
    ffx.Agent.open(empty_place, dimension=2).close()


@pytest.mark.process
def test_of_two_that_create_it_at_once_one_is_refused(empty_place: str) -> None:
    with elsewhere(lambda: open_log(empty_place)) as opens:
        database: Any = open_database(empty_place)
        commit, answers = database.commit, []

        def slow_commit() -> None:
            answers.append(opens())
            commit()

        database.commit = slow_commit
        create_tables(database)
        database.close()
    assert re.match(f"InUse: .* is locked by process {os.getpid()} on ", answers[0])
    assert content_of(empty_place)["fedfairx"] == [(VERSION,)]


# --- refusals ---------------------------------------------------------------------------------------------


def enter(context: Any) -> None:
    with context:
        pass


OPENINGS: list[Callable[[str], object]] = [
    ffx.Agent.open,
    lambda place: enter(open_for_reading(place)),
    lambda place: enter(open_keys(place)),
]
OLDER = (
    f"has version {{}}, written before the first release of fedfairx, and this fedfairx reads version "
    f"{VERSION}; open it with the fedfairx that wrote it and export its decisions there (GET "
    "/v1/export), or begin a new database"
)
NEWER = (
    f"has version {{}}, and this fedfairx reads version {VERSION}; update fedfairx, or restore a backup that "
    "is older"
)


@pytest.mark.parametrize("version", [*range(1, VERSION), VERSION + 1, 99])
def test_another_version_is_refused_as_it_is(place: str, version: int) -> None:
    with ffx.Agent.open(place, dimension=2) as agent:
        agent.decide(X)
    execute(place, f"UPDATE fedfairx SET version = {version}")
    before = content_of(place)
    for opening in OPENINGS:
        with pytest.raises(StateError) as refused:
            opening(place)
        name = place if "file" in before else "postgresql://"
        assert str(refused.value).startswith(name)
        assert str(refused.value).endswith((OLDER if version < VERSION else NEWER).format(version))
    assert content_of(place) == before
    execute(place, f"UPDATE fedfairx SET version = {VERSION}")
    with ffx.Agent.open(place) as agent:
        assert agent.pending == 1


@pytest.mark.parametrize(
    "change",
    [
        "DELETE FROM fedfairx",
        f"INSERT INTO fedfairx VALUES ({VERSION})",
        "UPDATE fedfairx SET version = 0",
        "UPDATE fedfairx SET version = -1",
    ],
)
def test_without_one_version_it_is_damaged(place: str, change: str) -> None:
    open_log(place).close()
    execute(place, change)
    for opening in OPENINGS:
        with pytest.raises(StateError, match="is damaged: it does not say which version it is; restore"):
            opening(place)


def test_a_version_that_is_no_number_is_damage(tmp_path: Path) -> None:
    place = str(tmp_path / "agent.db")
    open_log(place).close()
    execute(place, "UPDATE fedfairx SET version = 'eight'")  # SQLite's columns take any type
    with pytest.raises(StateError, match="it does not say which version it is"):
        open_log(place)


@pytest.mark.parametrize("tables", [["decisions"], ["agents", "customers"], ["api_keys", "snapshots"]])
def test_tables_of_others_are_refused_as_they_are(empty_place: str, tables: list[str]) -> None:
    execute(empty_place, *(f"CREATE TABLE {table} (x TEXT)" for table in tables))
    before = content_of(empty_place)
    named = ", ".join(table for table in tables if table != "customers")
    for opening in OPENINGS:
        with pytest.raises(StateError, match=f"has tables of the same names: {named}; name another one$"):
            opening(empty_place)
    assert content_of(empty_place) == before


def test_tables_of_other_names_are_let_be(empty_place: str) -> None:
    execute(empty_place, "CREATE TABLE customers (x TEXT)", "INSERT INTO customers VALUES ('a')")
    ffx.Agent.open(empty_place, dimension=2).close()
    assert content_of(empty_place)["customers"] == [("a",)]


def test_a_database_without_tables_holds_no_agent(empty_place: str) -> None:
    open_database(empty_place).close()
    with pytest.raises(StateError, match="holds no agent"), open_for_reading(empty_place):
        pass


@pytest.mark.parametrize("number", [7, 9, None])
def test_an_agent_of_another_schema_is_refused_as_it_is(place: str, number: int | None) -> None:
    with ffx.Agent.open(place, dimension=2) as agent:
        journal = agent.journal
        stored = read_agent(journal.log, journal.agent).settings
        with journal.log.transaction as log:
            update_settings(log, journal.agent, stored | {"schema": number})
    before = content_of(place)
    said = f"holds an agent of schema {number}, and this fedfairx reads schema 8; open it with the version"
    with pytest.raises(StateError, match=said):
        ffx.Agent.open(place)
    assert content_of(place) == before
