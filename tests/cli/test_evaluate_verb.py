"""`fedfairx evaluate`: tables, JSON and figures from a database, and what it refuses."""

from __future__ import annotations

import json
import random
from pathlib import Path

import pytest

from fedfairx import Agent
from fedfairx.cli.main import main

SKILL = {"ann": 0.4, "ben": 0.6, "cid": 0.7}


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    """The data folder of a service."""
    draws = random.Random(0)
    opened = Agent.open(
        tmp_path / "agent.sqlite", name="north", actions=list(SKILL), minimum_share=0.1, seed=1
    )
    with opened as agent, agent.transaction():
        for _ in range(300):
            decision = agent.decide()
            agent.observe(decision, reward=float(draws.random() < SKILL[str(decision.name)]))
    return tmp_path


def test_a_table_of_all_policies(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    changed = "merit=doubling:0.2,minimum_share=0.05"
    assert main(["evaluate", "--data", str(folder), "--merit", "doubling:0.1", "--against", changed]) == 0
    printed = capsys.readouterr().out
    for name in ("the log", "merit=doubling:0.1 ", changed, "SNIPS", "300 decisions"):
        assert name in printed


def test_by_default_the_same_settings_uniform_and_greedy(
    folder: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main(["evaluate", "--data", str(folder / "agent.sqlite"), "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    names = [each["name"] for each in found["policies"]]
    assert names == ["the log", "the same settings", "uniform", "greedy"]
    assert found["policies"][1]["largest"] == pytest.approx(1.0)  # its floor and all else are the log's


def test_an_export_has_no_settings(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = tmp_path / "export.jsonl"
    row = {"policy": [0.5, 0.5], "reward": 1.0}
    file.write_text("".join(json.dumps(row | {"action": step % 2}) + "\n" for step in range(50)))
    assert main(["evaluate", "--data", str(file)]) == 0
    assert "default settings" in capsys.readouterr().out


def test_a_half_life_in_time_is_left_out_by_default(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    opened = Agent.open(tmp_path / "agent.sqlite", actions=list(SKILL), half_life="30d", seed=1)
    with opened as agent, agent.transaction():
        for _ in range(50):
            agent.observe(agent.decide(), reward=1.0)
    assert main(["evaluate", "--data", str(tmp_path)]) == 0
    assert "the same settings, no half-life of 30d" in capsys.readouterr().out
    assert main(["evaluate", "--data", str(tmp_path), "--half-life", "2d"]) == 2
    assert "half_life must be a number of rewards" in capsys.readouterr().err


@pytest.mark.long
def test_a_figure(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "--data", str(folder), "--plot", str(folder / "figure.png")]) == 0
    assert (folder / "figure.png").read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("flags", "word"),
    [
        (["--against", "merit"], "a policy must be"),
        (["--against", "steepness=3"], "a policy must be"),
        (["--minimum-share", "2"], "minimum_share"),
        (["--against", "rule=best"], "rule"),
        (["--plot", "figure.txt"], "plot"),
        (["--agent", "south"], "agent"),
        (["--reward-range", "0.2,0.5"], "reward_range"),
    ],
)
def test_what_it_refuses(
    folder: Path, capsys: pytest.CaptureFixture[str], flags: list[str], word: str
) -> None:
    assert main(["evaluate", "--data", str(folder), *flags]) == 2
    assert word in capsys.readouterr().err


def test_a_place_without_a_log(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["evaluate", "--data", str(tmp_path / "nothing")]) == 2
    assert "nothing" in capsys.readouterr().err
    assert main(["evaluate", "--data", str(tmp_path)]) == 2
    assert list(tmp_path.iterdir()) == []
    for ending in ("jsonl", "csv", "parquet"):
        assert main(["evaluate", "--data", str(tmp_path / f"nothing.{ending}")]) == 2
        assert "must be a database, a service's data folder or an export that" in capsys.readouterr().err
