"""Every verb: its help, its answers, its errors in one line, its exit codes."""

from __future__ import annotations

import json
import os
import re
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

from fedfairx.cli.main import VERBS as GROUPS
from fedfairx.cli.main import main
from fedfairx.errors import InvalidInput
from fedfairx.privacy import Bounds
from fedfairx.simulation import Scenario, simulate

VERBS = ("list", "simulate", "privacy", "audit", "verify", "warm")
SMALL = ("--agents", "2", "--arms", "3", "--dimension", "2", "--horizon", "40", "--seeds", "2")


def refused(capsys: pytest.CaptureFixture[str], *argv: str) -> str:
    """One clear line on standard error, nothing on standard output, exit 2."""
    assert main(argv) == 2
    captured = capsys.readouterr()
    assert captured.out == ""
    lines = captured.err.strip().splitlines()
    assert len(lines) == 1
    assert lines[0].startswith("fedfairx: ")
    return lines[0]


@pytest.mark.parametrize("verb", VERBS)
def test_every_verb_has_help_with_an_example(verb: str, capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit) as stopped:
        main([verb, "--help"])
    assert stopped.value.code == 0
    assert f"example:\n  fedfairx {verb}" in capsys.readouterr().out


def test_without_a_verb_all_are_listed_in_one_line_each(capsys: pytest.CaptureFixture[str]):
    assert main([]) == 0
    lines = capsys.readouterr().out.splitlines()
    with pytest.raises(SystemExit):
        main(["--help"])
    assert capsys.readouterr().out.splitlines() == lines
    for group, verbs in GROUPS.items():
        start = lines.index(f"{group}:") + 1
        assert [line.split()[0] for line in lines[start : start + len(verbs)]] == list(verbs)
        assert all(len(line.split()) > 3 for line in lines[start : start + len(verbs)])
    assert max(map(len, lines)) <= 80
    assert main(["federate"]) == 0
    assert "usage: fedfairx federate" in capsys.readouterr().out


@pytest.mark.parametrize(
    ("argv", "says"),
    [
        (["dmeo"], "fedfairx has no command dmeo: did you mean demo? See `fedfairx --help`"),
        (["--verison"], "fedfairx has no flag --verison: did you mean --version? See `fedfairx --help`"),
        (["xyz"], "fedfairx has no command xyz. See `fedfairx --help`"),
        (["demo", "--prot", "8"], "fedfairx demo has no flag --prot: did you mean --port? See"),
        (["serve", "--prot=8"], "fedfairx serve has no flag --prot: did you mean --port? See"),
        (["federate", "chekc"], "fedfairx federate has no command chekc: did you mean check? See"),
        (["federate", "check", "--josn"], "fedfairx federate check has no flag --josn: did you mean"),
        (["warm", "soup"], "fedfairx warm takes no argument soup. See `fedfairx warm --help`"),
        (["federate", "init"], "the following arguments are required: --agents, --out. See"),
    ],
)
def test_a_misspelt_name_is_told_the_one_it_is_close_to(
    argv: list[str], says: str, capsys: pytest.CaptureFixture[str]
):
    with pytest.raises(SystemExit) as stopped:
        main(argv)
    out, err = capsys.readouterr()
    assert (stopped.value.code, out, len(err.splitlines())) == (2, "", 1)
    assert err.startswith(f"fedfairx: {says}")


def test_version(capsys: pytest.CaptureFixture[str]):
    with pytest.raises(SystemExit):
        main(["--version"])
    assert re.fullmatch(r"fedfairx \S+\n", capsys.readouterr().out)


@pytest.mark.process
def test_help_needs_none_of_the_heavy_libraries():
    code = (
        "import sys, fedfairx.cli.main as c; c.parser(); "
        "sys.exit(any(m in sys.modules for m in ('pandas','pyarrow','matplotlib')))"
    )
    assert subprocess.run([sys.executable, "-c", code], check=False).returncode == 0


def test_list(capsys: pytest.CaptureFixture[str]):
    assert main(["list", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert set(found) == {"algorithms", "mechanisms", "schedules", "merits"}
    assert {"fairx-linucb", "b1", "linucb"} <= set(found["algorithms"])
    assert main(["list", "schedules"]) == 0
    assert "figure-gap" in capsys.readouterr().out


# --- simulate ----------------------------------------------------------------------------------------


@pytest.mark.parametrize("scale", [None, "unit-ball"])
def test_simulate_in_recorded_contexts(tmp_path: Path, capsys: pytest.CaptureFixture[str], scale: str | None):
    from fedfairx.simulation import Recorded, Scenario, simulate

    path = tmp_path / "recorded.npy"
    np.save(path, np.random.default_rng(0).random((9, 3, 2)))
    text = str(path) if scale is None else f"{path}:scale={scale}"
    flags = ("--agents", "2", "--horizon", "40", "--seeds", "1", "--contexts", text)
    assert main(["simulate", *flags, "--json"]) == 0  # arms and dimension are the file's
    found = json.loads(capsys.readouterr().out)
    recorded = Recorded.load(path, scale=scale)
    scenario = Scenario(agents=2, arms=3, dimension=2, horizon=40, contexts=recorded)
    np.testing.assert_array_equal(found["fairness_regret"], simulate(scenario, seeds=1).fairness_regret)
    assert found["scenario"]["contexts"] == repr(recorded)
    assert main(["simulate", *flags, "--arms", "4"]) == 2
    assert "arms must be that of the recorded contexts, 3" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("contexts", "message"),
    [
        ("none.npy", "path must be a file that can be read"),
        ("none.txt", "path must end in .npy"),
        ("nonsense", "contexts must be one of unit-ball"),
        ("one-hot", "dimension must be the number of actions, 3"),
    ],
)
def test_simulate_says_what_contexts_may_be(contexts: str, message: str, capsys: pytest.CaptureFixture[str]):
    assert main(["simulate", *SMALL, "--contexts", contexts]) == 2
    assert message in capsys.readouterr().err


@pytest.mark.long
def test_simulate_is_the_library(capsys: pytest.CaptureFixture[str]):
    from fedfairx.agent.schedules import Paper
    from fedfairx.core.confidence import Confidence
    from fedfairx.simulation import Scenario, simulate

    flags = (
        "--algorithm",
        "priv-fairx-linucb",
        "--epsilon",
        "2",
        "--schedule",
        "paper:gap=3",
        "--scale",
        "0.7",
    )
    assert main(["simulate", *SMALL, *flags, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    expected = simulate(
        Scenario(agents=2, arms=3, dimension=2, horizon=40),
        algorithm="priv-fairx-linucb",
        seeds=2,
        epsilon=2.0,
        schedule=Paper(gap=3),
        confidence=Confidence(scale=0.7),
    )
    np.testing.assert_array_equal(found["fairness_regret"], expected.fairness_regret)


@pytest.mark.long
def test_flags_override_the_file(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    config = tmp_path / "mine.toml"
    config.write_text(
        '[scenario]\nagents = 2\narms = 3\ndimension = 2\nhorizon = 500\nmerit = ["exponential:steepness=3", '
        '"logistic"]\n[run]\nalgorithm = "fairx-linucb"\nseeds = 1\n[confidence]\nscale = 0.4\n'
    )
    out, figure = tmp_path / "r.csv", tmp_path / "r.png"
    arguments = [
        "simulate",
        "--config",
        str(config),
        "--horizon",
        "30",
        "--out",
        str(out),
        "--plot",
        str(figure),
    ]
    assert main(arguments) == 0
    assert "fairx-linucb, T=30" in capsys.readouterr().out
    assert out.read_text().splitlines()[0].startswith("algorithm,seed,round,fairness_regret")
    assert figure.read_bytes().startswith(b"\x89PNG")


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (
            ("--horizon", "-5"),
            "horizon must be a whole number >= 1 and <= 9007199254740992, got horizon='-5'",
        ),
        (("--algorithm", "nope"), "algorithm must be one of"),
        (("--algorithm", "priv-fairx-linucb", "--epsilon", "0"), "epsilon"),
        (("--schedule", "paper:gap"), "parameters as name=number"),
        (("--schedule", "paper:step=2"), "paper has no parameter 'step'; it has: gap"),
        (("--schedule", "doubling:start=1.5"), "start must be a whole number"),
        (("--merit", "nope"), "merit must be one of"),
        (("--config", "/nonexistent.toml"), "config must be a file"),
        (("--out", "curves.txt"), "out must end in"),
    ],
)
def test_simulate_refuses(arguments, message, capsys: pytest.CaptureFixture[str]):
    assert message in refused(capsys, "simulate", *SMALL, *arguments)


def test_simulate_has_no_slots(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    """Neither as a flag, nor in a file, nor in the library, which says what to do instead."""
    with pytest.raises(SystemExit) as stopped:
        main(["simulate", *SMALL, "--slots", "3"])
    assert stopped.value.code == 2
    assert "--slots" in capsys.readouterr().err
    file = tmp_path / "run.toml"
    file.write_text("[run]\nslots = 3\n")
    assert "slots" in refused(capsys, "simulate", "--config", str(file))
    told = r"^slots must be left out: .*agents \(`Agent`\) can show several, got slots=\(1.0, 1.0, 1.0\)"
    with pytest.raises(InvalidInput, match=told):
        simulate(Scenario(horizon=5), slots=3)


@pytest.mark.parametrize(
    ("flag", "file", "message"),
    [
        ("--out", "missing/r.csv", "out must lie in a folder that exists"),
        ("--plot", "missing/r.png", "plot must lie in a folder that exists"),
        ("--out", "r.txt", "out must end in .csv, .parquet"),
        ("--plot", "r.txt", "plot must end in .png, .svg, .pdf"),
        ("--out", "folder.csv", "out must be a file, got the folder"),
    ],
)
def test_simulate_refuses_files_before_it_simulates(
    flag, file, message, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
):
    (tmp_path / "folder.csv").mkdir()
    monkeypatch.setattr("fedfairx.cli.simulate.perform", lambda _: pytest.fail("simulated"))
    assert message in refused(capsys, "simulate", *SMALL, flag, str(tmp_path / file))


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("[scenario]\nagent = 2\n", "[scenario] has no 'agent'"),
        ("[other]\nx = 1\n", "must hold tables scenario, run, confidence"),
        ("agents = 2\n", "must hold tables"),
        ("[scenario\n", "config must be TOML"),
        ('[confidence]\nscale = "wide"\n', "scale must be a finite number"),
    ],
)
def test_a_bad_file(tmp_path: Path, text, message, capsys: pytest.CaptureFixture[str]):
    config = tmp_path / "bad.toml"
    config.write_text(text)
    assert message in refused(capsys, "simulate", "--config", str(config), "--horizon", "20")


# --- privacy, audit ----------------------------------------------------------------------------------


def test_privacy_as_json(capsys: pytest.CaptureFixture[str]):
    assert main(["privacy", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["releases"] == 45  # as a federation has by default
    assert main(["privacy", "--epsilon", "2", "--delta", "0.1", "--schedule", "paper", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["releases"] == 20_002
    assert found["mu"] == pytest.approx(1.366, abs=1e-3)
    assert (found["epsilon"], found["delta"], found["adjacency"]) == (2.0, 0.1, "replace")
    noise = {item["name"]: item["noise_sd"] for item in found["mechanisms"]}
    assert set(noise) == {"paper-tree", "tree", "blt"}
    assert noise["paper-tree"]["max"] == pytest.approx(179 * (1 + 0.25**2 / 2), abs=1)  # with the intercept
    assert noise["blt"]["max"] <= 6.5
    for item in found["mechanisms"]:
        assert set(item["noise_sd"]) == {"first", "middle", "last", "max"}
        assert item["noise_sd"]["max"] == max(item["noise_sd"].values())
        assert item["shift"] > item["practical"]["shift"] > 0
        assert item["radius"] > item["practical"]["radius"] > 0
    assert "delta=0.1 permits" in found["warnings"][0]


def test_privacy_centred(capsys: pytest.CaptureFixture[str]):
    flags = ["--epsilon", "2", "--delta", "0.1", "--schedule", "paper", "--centred", "--json"]
    assert main(["privacy", *flags]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["sensitivity"] == pytest.approx(0.5625)
    noise = {item["name"]: item["noise_sd"] for item in found["mechanisms"]}
    assert noise["blt"]["max"] == pytest.approx(6.18 * 0.5625 / 2.0, abs=0.01)
    assert main(["privacy", "--centred"]) == 0
    assert "Centred:" in capsys.readouterr().out
    assert main(["privacy", "--record-norm", "1.2", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["sensitivity"] == pytest.approx(1.44 + 0.25**2)
    for flag, value in (("--reward", "2"), ("--context-norm", "2"), ("--record-norm", "1")):
        message = refused(capsys, "privacy", "--centred", flag, value)
        assert f"{flag} must be left out with --centred" in message


def test_privacy_of_several_slots(capsys: pytest.CaptureFixture[str]):
    """A decision with all its slots is the unit, so that Δ and with it the noise grow with their weights."""

    def found(*more: str) -> dict:
        assert main(["privacy", "--epsilon", "2", "--json", *more]) == 0
        return json.loads(capsys.readouterr().out)

    one, ranked, three = found(), found("--slots", "1,0.63,0.5"), found("--slots", "3")
    assert (one["slots"], ranked["slots"], three["slots"]) == ([1.0], [1.0, 0.63, 0.5], [1.0, 1.0, 1.0])
    assert three["sensitivity"] == pytest.approx(3.0 * one["sensitivity"])
    assert ranked["sensitivity"] == pytest.approx(Bounds(slots=(1.0, 0.63, 0.5), constant=0.25).sensitivity)
    assert one["sensitivity"] < ranked["sensitivity"] < three["sensitivity"]
    assert one["gain"] is not None
    assert ranked["gain"] is three["gain"] is None  # that was simulated for one slot
    assert main(["privacy", "--epsilon", "2", "--slots", "1,0.63,0.5"]) == 0
    assert "decision with all 3 slots" in capsys.readouterr().out


@pytest.mark.parametrize("verb", ["privacy", "audit"])
@pytest.mark.parametrize("slots", ["0", "0.5,1", "2,1", "1,-0.5", "three", ""])
def test_slots_that_are_none(verb: str, slots: str, capsys: pytest.CaptureFixture[str]):
    assert "slots must be" in refused(capsys, verb, "--slots", slots)


def test_privacy_as_a_statement(capsys: pytest.CaptureFixture[str]):
    page = ["privacy", "--statement", "--horizon", "2000", "--person-records", "3"]
    assert main([*page, "--centred", "--adjacency", "add-remove"]) == 0
    out = " ".join(capsys.readouterr().out.split())
    assert "(ε=2, δ=1e-06)-differentially private" in out
    assert "‖x - x₀‖ ≤ 0.5" in out
    assert "at most 3 records of one enter" in out
    assert "over 2000 rounds" in out
    assert main([*page, "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["person"]["records"] == 3
    assert main([*page, "--schedule", "determinant"]) == 1
    assert "There is nothing to sign" in capsys.readouterr().out
    assert "decide_from must be one of" in refused(capsys, *page, "--decide-from", "x")


def test_privacy_as_a_table(capsys: pytest.CaptureFixture[str]):
    assert main(["privacy", "--schedule", "determinant"]) == 0
    out = capsys.readouterr().out
    assert "blt *" in out
    assert "NOT private end to end" in out


def test_privacy_tells_what_joining_gains(capsys: pytest.CaptureFixture[str]):
    small = "warning: the expected gain over deciding alone is less than a tenth"
    assert main(["privacy", "--epsilon", "8", "--agents", "30", "--schedule", "geometric"]) == 0
    out = capsys.readouterr().out
    assert "Expected gain over deciding alone: " in out
    assert "less regret at 30 members, ε = 8, 100 000 decisions each (simulated: 10 actions" in out
    assert small not in out
    assert main(["privacy", "--epsilon", "1", "--agents", "3", "--horizon", "1000"]) == 0
    assert small in capsys.readouterr().out
    strict = ["privacy", "--horizon", "10000", "--schedule", "geometric", "--decide-from", "released"]
    assert main(strict) == 0
    out = capsys.readouterr().out
    assert "Expected gain over deciding alone: none; " in out
    assert "times the regret at 10 members, ε = 2, 10 000 decisions each" in out
    assert small in out
    assert main([*strict, "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert found["decide_from"] == found["gain"]["decide_from"] == "released"
    assert found["gain"]["gain"] == pytest.approx(1 - found["gain"]["ratio"])
    assert found["gain"]["ratio"] > 2
    assert any("less than a tenth" in warning for warning in found["warnings"])
    assert main(["privacy", "--decide-from", "released+local", "--horizon", "10000", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["gain"] is None
    assert "decide_from must be one of" in refused(capsys, "privacy", "--decide-from", "x")


def test_privacy_shows_the_noise_with_and_without_secure_aggregation(capsys: pytest.CaptureFixture[str]):
    def found(*more: str) -> dict:
        assert main(["privacy", "--schedule", "geometric", "--horizon", "10000", "--json", *more]) == 0
        return json.loads(capsys.readouterr().out)

    plain, secure = found(), found("--aggregation", "secure")
    both = plain["aggregation"]
    assert both["total_sd"] == secure["aggregation"]["total_sd"]
    one = {item["name"]: item["noise_sd"]["max"] for item in plain["mechanisms"]}["blt"]
    assert both["total_sd"]["plain"] == pytest.approx(10**0.5 * one)
    assert both["total_sd"]["secure"] == pytest.approx((10 / 8) ** 0.5 * one)
    assert both["times_less"] == pytest.approx(8**0.5)
    share = {item["name"]: item["noise_sd"]["max"] for item in secure["mechanisms"]}["blt"]
    assert share == pytest.approx(one / 8**0.5)
    assert secure["gain"]["ratio"] < plain["gain"]["ratio"]
    three = found("--agents", "3", "--aggregation", "secure")["aggregation"]
    assert three["times_less"] == pytest.approx(2**0.5)
    assert "secure" not in found("--agents", "2")["aggregation"]["total_sd"]  # too few
    assert main(["privacy", "--schedule", "geometric", "--aggregation", "secure", "--colluding", "3"]) == 0
    out = capsys.readouterr().out
    assert "2.65 times less (3 of 10 may collude, each adds 1/7 of the variance)" in out
    assert "the hub and up to 3 of 10 members together" in out
    assert "ε = 2 with secure aggregation, of whom 3 may collude" in out
    assert main(["privacy", "--aggregation", "secure", "--statement", "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["share"]["honest"] == 8
    for arguments, message in (
        (("--agents", "2", "--aggregation", "secure"), "members must be at least 3"),
        (("--colluding", "2"), "colluding is for aggregation='secure'"),
        (("--aggregation", "secure", "--schedule", "determinant"), "aggregation must be 'plain' for priv"),
        (("--aggregation", "secure", "--decide-from", "released+local"), "decide_from must be released or"),
    ):
        assert message in refused(capsys, "privacy", *arguments)


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("--epsilon", "0"), "epsilon"),
        (("--delta", "1.5"), "delta must be a finite number > 0 and < 1"),
        (("--mechanism", "x"), "mechanism must be one of"),
        (("--horizon", "0"), "horizon must be an integer >= 1"),
        (("--adjacency", "x"), "adjacency"),
        (("--schedule", "x"), "schedule must be one of"),
    ],
)
@pytest.mark.parametrize("verb", ["privacy", "audit"])
def test_privacy_and_audit_refuse(verb, arguments, message, capsys: pytest.CaptureFixture[str]):
    assert message in refused(capsys, verb, *arguments)


def test_privacy_refuses_a_chance_that_is_none(capsys: pytest.CaptureFixture[str]):
    assert "alpha must be in (0, 1)" in refused(capsys, "privacy", "--alpha", "2")


@pytest.fixture
def _small_audit(monkeypatch: pytest.MonkeyPatch) -> None:
    """Fewer draws than an audit takes: what the command says of it is the same."""
    monkeypatch.setattr("fedfairx.audit.noise_tests._SAMPLES", 2_000)


@pytest.mark.long
@pytest.mark.usefixtures("_small_audit")
def test_audit(tmp_path: Path, capsys: pytest.CaptureFixture[str]):
    figure = tmp_path / "audit.png"
    arguments = ["audit", "--releases", "4", "--dimension", "2", "--runs", "400"]
    assert main([*arguments, "--plot", str(figure), "--json"]) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True
    assert figure.exists()
    assert main([*arguments, "--centred"]) == 0
    assert main(arguments) == 0
    assert re.search(r"claimed μ \S+, found at least \S+", capsys.readouterr().out)


@pytest.mark.long
@pytest.mark.usefixtures("_small_audit")
def test_audit_of_several_slots(capsys: pytest.CaptureFixture[str]):
    arguments = ["audit", "--releases", "4", "--dimension", "2", "--runs", "400", "--slots", "3", "--json"]
    assert main(arguments) == 0
    assert json.loads(capsys.readouterr().out)["ok"] is True


@pytest.mark.long
@pytest.mark.usefixtures("_small_audit")
def test_audit_of_secure_aggregation(capsys: pytest.CaptureFixture[str]):
    arguments = ["audit", "--releases", "3", "--dimension", "2", "--runs", "100", "--aggregation", "secure"]
    assert main([*arguments, "--agents", "4", "--json"]) == 0
    found = json.loads(capsys.readouterr().out)
    assert (found["share"]["members"], found["share"]["colluding"]) == (4, 1)
    assert "draws: variance of agents' sum" in {check["name"] for check in found["checks"]}
    assert "members must be at least 5" in refused(capsys, *arguments, "--agents", "4", "--colluding", "3")
    assert "colluding is for aggregation='secure'" in refused(capsys, "audit", "--colluding", "1")


@pytest.mark.long
@pytest.mark.parametrize(
    "releases", ["90", *(pytest.param(each, marks=pytest.mark.slow) for each in ("95", "100", "105", "110"))]
)
def test_audit_lets_a_right_mechanism_pass(releases: str, capsys: pytest.CaptureFixture[str]):
    """By chance the noise of these was too small in one look; that is not what it is called false for."""
    assert main(["audit", "--releases", releases, "--runs", "100"]) == 0
    assert "nothing contradicts the claim" in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.usefixtures("_small_audit")
def test_audit_exits_1_when_the_schedule_looks_at_the_data(capsys: pytest.CaptureFixture[str]):
    arguments = ["--schedule", "determinant", "--horizon", "8", "--dimension", "2", "--runs", "100"]
    assert main(["audit", *arguments]) == 1
    assert "fixed before the first record: 0 (= 1) FAILED" in capsys.readouterr().out


@pytest.mark.long
@pytest.mark.usefixtures("_small_audit")
def test_audit_exits_1_when_the_claim_is_false(monkeypatch, capsys: pytest.CaptureFixture[str]):
    monkeypatch.setattr("fedfairx.audit.audit.AuditReport.failed", ("something",))
    assert main(["audit", "--releases", "2", "--dimension", "2", "--runs", "200"]) == 1
    assert "FALSE" in capsys.readouterr().out


@pytest.mark.process
def test_a_reader_that_leaves_early_is_no_error():
    shell = f"{sys.executable} -m fedfairx list | head -1"
    done = subprocess.run(["bash", "-c", shell], check=False, capture_output=True, text=True, env=os.environ)
    assert done.stderr == ""
    assert done.stdout.strip() == "algorithms"


def test_warm_says_how_long_each_took(capsys: pytest.CaptureFixture[str]):
    assert main(["warm"]) == 0
    lines = capsys.readouterr().out.splitlines()
    assert [line.partition(":")[0] for line in lines] == [
        "decisions by expected-merit",
        "a simulation of fed-fairx-bayes",
    ]
    assert main(["warm", "--json"]) == 0
    assert list(json.loads(capsys.readouterr().out)) == [line.partition(":")[0] for line in lines]
