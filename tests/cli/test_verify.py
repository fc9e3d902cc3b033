"""`fedfairx verify`: what it says of sound and of damaged databases, and that it writes nothing."""

from __future__ import annotations

import hashlib
import json
import os
import shutil
import sqlite3
import stat
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.cli.main import main
from fedfairx.storage import open_database

X = np.eye(3)


def verify(capsys: pytest.CaptureFixture[str], *argv: str, code: int = 0) -> Any:
    assert main(["verify", *argv, "--json"]) == code
    return json.loads(capsys.readouterr().out)


def live(place: str, *, budget: ffx.Budget | None = None) -> None:
    with ffx.Agent.open(place, dimension=3, seed=0, name="north", budget=budget) as agent:
        made = [agent.decide(X) for _ in range(5)]
        for each in made[:3]:
            agent.observe(each, reward=0.5)
        agent.observe(made[0], reward=0.75, replace=True)
        agent.release()


def files(folder: Path) -> dict[str, str]:
    found = [each for each in folder.iterdir() if each.is_file()]
    return {each.name: hashlib.sha256(each.read_bytes()).hexdigest() for each in found}


@pytest.mark.parametrize("private", [False, True])
def test_a_sound_log(place: str, private: bool, capsys: pytest.CaptureFixture[str]) -> None:
    live(place, budget=ffx.Budget(epsilon=4.0, delta=1e-3, releases=4) if private else None)
    (found,) = verify(capsys, "--data", place)
    counts = {"decisions": 5, "rewards": 3, "dropped": 0, "deleted": 0, "gone": None}
    assert found == {"agent": "north", "head": found["head"], "damage": None, **counts}
    assert len(bytes.fromhex(found["head"])) == 16
    assert verify(capsys, "--data", place, "--agent", "north", "--replay") == [found]
    assert main(["verify", "--data", place]) == 0
    table = capsys.readouterr().out
    assert found["head"] in table
    assert "sound" in table
    with ffx.Agent.open(place) as agent:
        agent.decide(X)
        (more,) = verify(capsys, "--data", place)  # while it is open
        assert (more["decisions"], more["head"] == found["head"]) == (6, False)


def test_a_name_with_invisible_characters(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = str(tmp_path / "agent.db")
    ffx.Agent.open(place, dimension=3, name="north\u202e").close()
    assert main(["verify", "--data", place]) == 0
    assert "\nnorth\\u202e  0 " in capsys.readouterr().out
    assert verify(capsys, "--data", place)[0]["agent"] == "north\u202e"  # JSON has the name itself


def test_it_writes_nothing(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    folder = tmp_path / "data"
    folder.mkdir()
    live(str(folder / "agent.sqlite"))
    (folder / "agent.sqlite.lock").unlink()
    before = files(folder)
    folder.chmod(stat.S_IRUSR | stat.S_IXUSR)
    try:
        verify(capsys, "--data", str(folder), "--replay")
    finally:
        folder.chmod(stat.S_IRWXU)
    assert files(folder) == before


def test_a_copy_of_what_was_killed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Its last steps are in the write-ahead log beside it."""
    place = tmp_path / "agent.db"
    with ffx.Agent.open(place, dimension=3, seed=0) as agent:
        agent.observe(agent.decide(X), reward=0.5)
        (tmp_path / "copy").mkdir()
        for each in tmp_path.glob("agent.db-wal"), tmp_path.glob("agent.db"):
            for file in each:
                shutil.copy(file, tmp_path / "copy" / file.name)
    (found,) = verify(capsys, "--data", str(tmp_path / "copy" / "agent.db"), "--replay")
    assert (found["decisions"], found["rewards"], found["damage"]) == (1, 1, None)


def test_rewards_of_slots_are_counted_once(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "agent.db"
    with ffx.Agent.open(place, dimension=3, seed=0) as agent:
        agent.observe(agent.decide(X, slots=2), rewards=[0.5, 1.0])
        agent.observe(agent.decide(X, slots=2), rewards=[None, 1.0])
        made = agent.decide(X, slots=3)
        agent.observe(made, rewards={made.actions[1]: 0.0})
        agent.observe(agent.decide(X), reward=0.5)
    (found,) = verify(capsys, "--data", str(place), "--replay")
    assert (found["decisions"], found["rewards"], found["damage"]) == (4, 5, None)


def test_a_damaged_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    place = tmp_path / "agent.db"
    live(str(place))
    with sqlite3.connect(place) as file:
        file.execute("UPDATE outcomes SET reward = 0.6 WHERE decision = 2")
    (found,) = verify(capsys, "--data", str(place), "--replay", code=1)
    assert "step 7 is not as it was written" in found["damage"]
    assert (found["decisions"], found["rewards"]) == (5, 2)
    assert main(["verify", "--data", str(place)]) == 1
    assert "step 7 is not as it was written" in capsys.readouterr().out


def test_a_state_that_does_not_come_of_the_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """All seals are right, but a snapshot was made by something else: only doing it again tells."""
    from fedfairx.storage.seals import seal_other

    place = tmp_path / "agent.db"
    live(str(place))
    with sqlite3.connect(place) as file:
        agent, seq, head, body = file.execute(
            "SELECT agent, seq, head, body FROM snapshots ORDER BY seq DESC LIMIT 1"
        ).fetchone()
        state = json.loads(body)
        state["pending"].pop()
        other = json.dumps(state).encode()
        file.execute(
            "UPDATE snapshots SET body = ?, seal = ? WHERE seq = ?",
            (other, seal_other(agent, seq, head, other), seq),
        )
    assert verify(capsys, "--data", str(place))[0]["damage"] is None
    (found,) = verify(capsys, "--data", str(place), "--replay", code=1)
    assert found["damage"].startswith(f"{place} is damaged: replayed, its log ends in another state; restore")


def shared(place: str) -> None:
    """A private agent with three releases of one run and one of the next."""
    budget = ffx.Budget(epsilon=4.0, delta=1e-3, releases=3)
    with ffx.Agent.open(place, dimension=3, seed=0, name="north", budget=budget) as agent:
        for run in (3, 1):
            for _ in range(run):
                agent.observe(agent.decide(X), reward=0.5)
                agent.release()
            if run == 3:
                agent.begin_run(budget)


CUT = [f"DELETE FROM {table} WHERE seq >= 6" for table in ("decisions", "outcomes", "events", "snapshots")]


@pytest.mark.parametrize(
    ("statements", "said"),
    [
        (CUT, "its privacy ledger has 3 releases of run 1, and its log 2"),
        (
            [each.replace(">= 6", ">= 10") for each in CUT],
            "its privacy ledger has 1 release of run 2, and its log 0",
        ),
        (
            ["DELETE FROM ledger_releases WHERE run = 2"],
            "its privacy ledger has 0 releases of run 2, and its log 1",
        ),
    ],
)
def test_a_log_that_is_shorter_than_its_ledger(
    place: str, statements: list[str], said: str, capsys: pytest.CaptureFixture[str]
) -> None:
    """It was cut with its snapshots, so that its chain is whole."""
    shared(place)
    (found,) = verify(capsys, "--data", place, "--replay")
    assert found["damage"] is None
    database = open_database(place)
    for statement in statements:
        database.execute(statement)
    database.close()
    (found,) = verify(capsys, "--data", place, code=1)
    assert said in found["damage"]


def test_what_it_refuses(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    for name, version in (("old.db", 8), ("later.db", 11)):
        live(str(tmp_path / name))
        with closing(sqlite3.connect(tmp_path / name, isolation_level=None)) as file:
            file.execute("UPDATE fedfairx SET version = ?", (version,))
    before = files(tmp_path)
    live(str(tmp_path / "new.db"))
    (tmp_path / "empty").mkdir()
    (tmp_path / "text").write_text("no database")
    for argv, said in (
        (["--data", str(tmp_path / "old.db")], "old.db has version 8, written before the first release"),
        (
            ["--data", str(tmp_path / "later.db")],
            "later.db has version 11, and this fedfairx reads version 10",
        ),
        (["--data", str(tmp_path / "new.db"), "--agent", "east"], "agent must be one that there is, 'north'"),
        (["--data", str(tmp_path / "empty")], "there is no file"),
        (["--data", str(tmp_path / "text")], "file is not a database"),
    ):
        assert main(["verify", *argv]) == 2
        assert said in capsys.readouterr().err
    assert files(tmp_path).items() >= before.items()
    assert os.listdir(tmp_path / "empty") == []
