"""The command: answers, exit codes, and what it refuses."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from paper.__main__ import main


@pytest.mark.long
def test_reproduce(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    out = tmp_path / "out"
    small = ("reproduce", "exp6", "--horizon", "60", "--seeds", "2", "--out", str(out))
    assert main([*small, "--workers", "2"]) == 0
    first = capsys.readouterr()
    assert "[8/8]" in first.err
    assert "exp6  winner-takes-all starves actions" in first.out
    assert (out / "report.html").is_file()
    assert main([*small, "--quiet"]) == 0
    quiet = capsys.readouterr()
    assert quiet.err == ""
    assert quiet.out.startswith(str(out / "report.html"))


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("exp0",), "experiment must be one of exp1"),
        (("exp1", "--horizon", "-1"), "horizon must be an integer >= 1, got horizon=-1"),
        (("exp1", "--seeds", "0"), "seeds must be an integer >= 1"),
        (("exp1", "--engine", "spark"), "engine must be one of"),
        (("exp1", "--workers", "0"), "workers must be >= 1"),
        (("exp1", "--out", "/proc/nowhere"), "out must be a folder that can be written"),
        (("exp1", "--plugin", "/nonexistent.py"), "plugin must be a Python file"),
    ],
)
def test_reproduce_refuses(
    arguments, message, tmp_path: Path, monkeypatch, capsys: pytest.CaptureFixture[str]
):
    monkeypatch.chdir(tmp_path)
    assert main(["reproduce", *arguments, "--quiet"]) == 2
    assert message in capsys.readouterr().err


FAILING = """
from fedfairx import Scenario
from paper import Experiment, Run
small = Scenario(agents=2, arms=3, dimension=2, horizon=20)
def runs(size):
    return (Run("good", small, "fairx-linucb"), Run("bad", small, "priv-fairx-linucb", {"epsilon": -1.0}))
EXPERIMENT = Experiment("failing", "F", "?", runs, lambda results, size: ())
"""


def test_a_failed_run_exits_1_and_keeps_the_rest(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    plugin = tmp_path / "failing.py"
    plugin.write_text(FAILING)
    arguments = ["reproduce", "failing", "--plugin", str(plugin), "--seeds", "1", "--quiet"]
    assert main([*arguments, "--out", str(tmp_path / "out")]) == 1
    err = capsys.readouterr().err
    assert "failing bad, 1 seed failed: InvalidInput: epsilon" in err
    assert "the same command tries these again" in err
    assert len(list((tmp_path / "out" / "results").glob("*.npz"))) == 1


def test_the_experiments_are_listed(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    assert main(["list"]) == 0
    names = [line.split()[0] for line in capsys.readouterr().out.splitlines()]
    assert names == [*(f"exp{i}" for i in range(1, 13)), "flights", "star"]
    (tmp_path / "failing.py").write_text(FAILING)
    assert main(["list", "--plugin", str(tmp_path / "failing.py")]) == 0
    assert "failing" in capsys.readouterr().out


@pytest.mark.long
def test_calibrate_writes_what_it_found(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    small = ["--arms", "5", "--noise-sd", "0.1", "--horizon", "1500"]
    assert main(["calibrate", *small, "--out", str(tmp_path / "c.json")]) == 0
    stored = json.loads((tmp_path / "c.json").read_text())
    assert [(each["arms"], each["noise_sd"]) for each in stored["trials"]] == [(5, 0.1)]
    assert f"chosen: {stored['result']}" in capsys.readouterr().out
