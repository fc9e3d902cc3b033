"""Tables of every earlier version are brought to this one, whole or not at all."""

from __future__ import annotations

import os
import signal
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.errors import StateError
from fedfairx.storage import ApiKeys, migrations, open_database, seal_migration
from fedfairx.storage.agents import ServedRow, read_feature_schema, read_served
from fedfairx.storage.seen import SeenTables
from golden import machine
from old_databases import EARLY, EXPECTED, NAMES, load

pytestmark = pytest.mark.usefixtures("migrated")

LAST = len(migrations.MIGRATIONS)
ON_A_SERVER = ("version1-plain", "version2-private", "version3-plain", "version4-private")
SOME = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
#: Replaying gives the same bits on the same kind of machine, in compiled code.
SAME_BITS = EXPECTED["machine"] == machine() and os.environ.get("NUMBA_DISABLE_JIT", "0") == "0"


def version_of(place: str) -> int:
    database = open_database(place)
    try:
        return int(database.execute("SELECT version FROM fedfairx")[0][0])
    finally:
        database.close()


def content_of(place: str) -> dict[str, list[Any]]:
    """All rows of all tables."""
    database = open_database(place)
    try:
        tables = sorted(database.tables() - {"holder"})
        return {table: sorted(map(repr, database.execute(f"SELECT * FROM {table}"))) for table in tables}
    finally:
        database.close()


def kept(agent: ffx.Agent) -> list[list[Any]]:
    return [
        [
            *(made.id, made.seq, made.time, made.action, made.drawn, made.mode, made.status, made.names),
            *(made.groups, made.key, made.digest, made.reward, made.reward_time, made.person),
            *(made.policy.tolist(), made.theta.tolist(), made.contexts.tolist()),
        ]
        for made in agent.journal.decisions()
    ]


@pytest.mark.parametrize(
    "name",
    [pytest.param(name, marks=[] if name in ON_A_SERVER else pytest.mark.slow_on_server) for name in NAMES],
)
def test_an_agent_of_every_earlier_version_goes_on(place: str, name: str) -> None:
    """What was kept is as it was, what is decided next is what that version would have decided."""
    load(name, place)
    expected = EXPECTED[name]
    with ffx.Agent.open(place) as agent:
        assert kept(agent) == expected["kept"]
        if SAME_BITS:
            agent.verify()
        found = []
        for k in range(5):
            made = agent.decide(SOME)
            agent.observe(made, reward=k / 8)
            found.append([made.number, made.action, made.policy.tolist(), made.theta.tolist()])
        counts = [agent.observed, agent.pending, agent.released]
        estimate, gram = agent.estimate.tolist(), agent.gram.tolist()
        if SAME_BITS:
            agent.verify()
    assert counts == expected["counts"]
    if SAME_BITS:
        assert (found, estimate, gram) == (expected["next"], expected["estimate"], expected["gram"])
    else:
        assert estimate == pytest.approx(expected["estimate"])
    assert version_of(place) == LAST
    ffx.Agent.open(place).close()


def test_what_the_service_had_noted_gets_columns(place: str) -> None:
    load("version3-plain", place)
    with ffx.Agent.open(place) as agent:
        found = {made.key: made for made in agent.journal.decisions() if made.key is not None}
        shadow, control, live = (found[f"k-{k}"] for k in (1, 2, 3))
        assert (shadow.action, shadow.propensity, shadow.baseline) == (1, 1.0, 1)
        assert (control.action, control.baseline, control.control_share) == (2, 2, 0.25)
        assert control.propensity == 0.75 * control.policy[2] + 0.25
        share = 0.75 * live.policy[live.action] + (0.25 if live.action == 0 else 0.0)
        assert (live.baseline, live.propensity) == (0, share)
        assert {made.model_version for made in found.values()} == {7}
        plain = next(agent.journal.decisions())
        assert (plain.propensity, plain.model_version) == (plain.policy[plain.action], 0)
        texts = [made.extra for made in agent.journal.decisions()]
        assert [text for text in texts if text is not None] == ["a text of my own"]


def test_a_replaced_reward_gets_its_history_back(place: str) -> None:
    load("version3-plain", place)
    with ffx.Agent.open(place) as agent:
        rows = agent.journal.log.database.execute(
            "SELECT decision, turn, reward FROM outcomes WHERE decision IN (1, 2) ORDER BY decision, turn"
        )
        assert rows == [(1, 0, 0.25), (1, 1, 0.9), (1, 2, 0.8), (2, 0, 0.5), (2, 1, 0.1)]
        made = next(each for each in agent.journal.decisions() if each.seq == 1)
        agent.observe(made.id, reward=0.8, replace=True)  # the same again
        assert agent.journal.log.database.execute("SELECT MAX(turn) FROM outcomes") == [(2,)]


def test_other_tables_are_carried_over(place: str) -> None:
    load("version3-plain", place)
    schema = {"features": [["a", [0.0, 1.0]], ["b", [0.0, 1.0]]], "intercept": False}
    assert read_feature_schema(place, agent="plain") == schema
    assert read_feature_schema(place, agent="another") is None
    with ffx.Agent.open(place) as agent:
        assert [key.name for key in ApiKeys(agent.journal.log).all()] == ["shop"]
        seen = SeenTables(agent.journal, "north")
        assert (seen.roster(), seen.releases()) == ((3, "abc"), {"peer": (1, "def")})


def test_a_key_from_before_is_for_all_agents(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with monkeypatch.context() as patch:
        patch.setattr(migrations, "MIGRATIONS", migrations.MIGRATIONS[:4])
        with ffx.Agent.open(place, dimension=2, name="mine") as agent:
            made = agent.decide(SOME)
            with agent.journal.log.step() as log:
                log.write("INSERT INTO api_keys VALUES ('a1', 'shop', 'hash', 'reader', 1000000, NULL)")
        assert version_of(place) == 4
    with ffx.Agent.open(place) as agent:
        assert agent.pending == 1
        agent.observe(made.id, reward=0.5)
        keys = ApiKeys(agent.journal.log)
        limited = keys.add("editor", "reader", ["news"])
        assert [(key.name, key.agents) for key in keys.all()] == [("shop", None), ("editor", {"news"})]
        found = keys.find(limited)
        assert found is not None
        assert found.agents == {"news"}
        assert read_served(agent.journal.log) == {"mine": ServedRow()}


def test_fresh_tables_are_those_that_a_migration_makes(tmp_path: Path) -> None:
    shapes = []
    load("version1-plain", str(tmp_path / "old.db"))
    for name in ("old.db", "new.db"):
        ffx.Agent.open(tmp_path / name, dimension=2 if name == "new.db" else None).close()
        with sqlite3.connect(tmp_path / name) as file:
            shapes.append(set(file.execute("SELECT type, name, tbl_name, sql FROM sqlite_master")))
    assert shapes[0] == shapes[1]


@pytest.mark.parametrize(
    ("change", "step"),
    [
        ("UPDATE decisions SET action = 1 - action WHERE seq = 2", 2),
        ("UPDATE outcomes SET reward = 7.0 WHERE decision = 3", 9),
        ("UPDATE events SET kind = 'other' WHERE kind = 'release'", None),
        ("UPDATE decisions SET contexts = policy WHERE seq = 0", 0),
    ],
)
def test_a_damaged_row_stops_it_and_nothing_has_changed(place: str, change: str, step: int | None) -> None:
    load("version1-plain", place)
    database = open_database(place)
    database.execute(change)
    database.close()
    before = content_of(place)
    with pytest.raises(StateError, match=f"step {'[0-9]+' if step is None else step} is not as it was"):
        ffx.Agent.open(place)
    assert content_of(place) == before
    assert version_of(place) == 1


def test_a_damaged_snapshot_is_done_without(place: str) -> None:
    load("version3-plain", place)
    database = open_database(place)
    database.execute("UPDATE snapshots SET seal = 1 WHERE seq > 0")
    database.close()
    with ffx.Agent.open(place) as agent:
        assert kept(agent) == EXPECTED["version3-plain"]["kept"]
        if SAME_BITS:
            agent.verify()


@pytest.mark.parametrize("name", EARLY)
def test_an_agent_that_only_an_earlier_version_can_open_stays_as_it_is(place: str, name: str) -> None:
    load(name, place)
    before = content_of(place)
    with pytest.raises(StateError, match="of another version of fedfairx, from before the first release"):
        ffx.Agent.open(place)
    assert content_of(place) == before


def test_a_failure_in_the_middle_leaves_the_old_version(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    load("version2-plain", place)
    before = content_of(place)
    for following in ("CREATE TABLE extra (id INTEGER); nonsense", _interrupt):
        monkeypatch.setattr(migrations, "MIGRATIONS", [*migrations.MIGRATIONS[:LAST], following])
        with pytest.raises((StateError, KeyboardInterrupt)):
            ffx.Agent.open(place)
        assert content_of(place) == before
    monkeypatch.setattr(
        migrations, "MIGRATIONS", [*migrations.MIGRATIONS[:LAST], "CREATE TABLE extra (x TEXT)"]
    )
    with ffx.Agent.open(place) as agent:
        assert kept(agent) == EXPECTED["version2-plain"]["kept"]
    assert version_of(place) == LAST + 1


def _interrupt(_: object) -> None:
    raise KeyboardInterrupt


@pytest.mark.process
def test_killed_in_the_middle_it_is_of_the_old_version(place: str) -> None:
    load("version3-plain", place)
    before = content_of(place)
    run = seal_migration._Sealing.run

    def killed(sealing: Any) -> None:
        run(sealing)
        os.kill(os.getpid(), signal.SIGKILL)

    child = os.fork()
    if child == 0:
        seal_migration._Sealing.run = killed  # type: ignore[method-assign]
        try:
            ffx.Agent.open(place)
        finally:
            os._exit(1)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
    assert content_of(place) == before
    with ffx.Agent.open(place) as agent:
        assert kept(agent) == EXPECTED["version3-plain"]["kept"]


def test_a_newer_version_is_refused_as_it_is(place: str) -> None:
    ffx.Agent.open(place, dimension=2).close()
    database = open_database(place)
    database.execute("UPDATE fedfairx SET version = 99")
    database.close()
    said = (
        f"has version 99, and this fedfairx reads up to version {LAST}; update fedfairx, or restore a backup"
    )
    with pytest.raises(StateError, match=said):
        ffx.Agent.open(place)
    assert version_of(place) == 99
