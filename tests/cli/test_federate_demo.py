"""The demonstration runs by itself, with real services, and nothing that they acknowledged is lost."""

from __future__ import annotations

import json
import re
import signal
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path
from subprocess import PIPE
from typing import Any

import numpy as np
import pytest

import forked_demo
from fedfairx.cli.main import main
from fedfairx.demo import market
from fedfairx.demo.launcher import Fleet
from fedfairx.service.settings import load, schema_of
from nats_server import require_nats

pytestmark = pytest.mark.process

COMMAND = ["-m", "fedfairx", "federate", "demo"]


def demo(capsys: pytest.CaptureFixture[str], *flags: str) -> tuple[int, Any]:
    """In this process; its services are processes of their own."""
    code = main(["federate", "demo", "--json", *flags])
    return code, json.loads(capsys.readouterr().out)


@pytest.mark.slow
def test_five_learn_faster_than_each_alone(capsys: pytest.CaptureFixture[str]) -> None:
    """By the theory 0.45 times the regret; by this seed 0.447.

    Nothing differs from run to run but the order in which releases arrive: by less than a thousandth.
    """
    code, said = demo(capsys, "--agents", "5", "--rounds", "20000")
    assert (code, said["rewards"]) == (0, 100_000)
    assert said["fairness_regret"]["federated"] <= 0.55 * said["fairness_regret"]["alone"]


@pytest.mark.usefixtures("forked_fleet")
def test_the_same_seed_gives_the_same_and_a_loss_is_noticed(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    """A reward that was acknowledged is taken out of a database: the exit code is not 0."""
    require_nats()
    monkeypatch.chdir(tmp_path)
    figure = tmp_path / "figure.svg"
    flags = ("--agents", "2", "--rounds", "60", "--transport", "nats", "--epsilon", "8")
    code, said = demo(capsys, *flags, "--data", "kept", "--figure", str(figure))
    assert code == 0
    assert (tmp_path / "kept" / "org1" / "data" / "agent.sqlite").exists()
    assert said.keys() == {"decisions", "rewards", "releases", "fairness_regret"}
    assert said["fairness_regret"].keys() == {"federated", "alone"}
    assert (said["decisions"], said["rewards"]) == (120, 120)
    assert said["releases"] > 4
    assert said["fairness_regret"]["federated"] > 0
    assert said["fairness_regret"]["alone"] > 0
    assert figure.stat().st_size > 1_000
    stop = Fleet.stop

    def stop_and_forget(fleet: Fleet) -> None:
        stop(fleet)
        with sqlite3.connect(fleet.database("org2")) as database:
            database.execute("DELETE FROM outcomes WHERE seq = (SELECT max(seq) FROM outcomes)")

    monkeypatch.setattr(Fleet, "stop", stop_and_forget)
    code, again = demo(capsys, *flags)
    assert code == 1
    first, second = said.pop("fairness_regret"), again.pop("fairness_regret")
    assert (again, second["alone"]) == (said, first["alone"])
    assert second["federated"] == pytest.approx(first["federated"], rel=0.05)  # by their order


@pytest.mark.parametrize(
    ("command", "how"),
    [
        pytest.param(COMMAND, signal.SIGINT, marks=pytest.mark.slow, id="ctrl-c"),  # the same handler
        pytest.param([str(Path(forked_demo.__file__))], signal.SIGTERM, id="terminated"),
    ],
)
def test_into_a_pipe_it_says_a_line_now_and_then_and_the_table_at_the_end(
    tmp_path: Path, command: list[str], how: signal.Signals
) -> None:
    figure = tmp_path / "figure.png"
    with subprocess.Popen(
        [sys.executable, *command, "--agents", "2", "--epsilon", "8", "--figure", str(figure)],
        stderr=PIPE,
        stdout=PIPE,
        text=True,
        preexec_fn=lambda: signal.signal(signal.SIGINT, signal.SIG_DFL),  # background jobs ignore it
    ) as done:
        assert done.stderr is not None
        said: list[str] = []
        for row in done.stderr:
            said.append(row)
            if "fairness regret" in row:
                done.send_signal(how)
        rest, code = "" if done.stdout is None else done.stdout.read(), done.wait()
    assert code == 0
    text = "".join(said)
    assert "\x1b" not in text
    assert len(re.findall(r"http://127.0.0.1:[0-9]+/federation", text)) == 2
    now = next(row for row in said if "fairness regret" in row)
    for part in ("decisions", "rewards", "releases", "lag ", "(ε=8)", "together", "alone"):
        assert part in now
    assert [row.split()[0] for row in said[-5:]] == ["agent", "-----", "org1", "org2", "the"]  # figure
    assert "fairness regret of each" in rest
    assert figure.stat().st_size > 1_000
    for port in re.findall(r"http://127.0.0.1:([0-9]+)/federation", text):  # no service is left behind
        with socket.socket() as one:
            assert one.connect_ex(("127.0.0.1", int(port))) != 0


def test_twins_see_what_services_see() -> None:
    offers = market.Market(3).offers(5)
    schema = schema_of(load({"features": market.FEATURES, "intercept": True}, environment={}))
    for each in offers:
        made = schema.encode([action["features"] for action in market.request(each)["actions"]])
        assert not made.clipped
        np.testing.assert_allclose(market.contexts(each), made.contexts, rtol=1e-15)


def test_regret_is_that_of_the_fair_policy() -> None:
    offers = market.Market(4).offers(3)
    merits = np.exp(10.0 * market.worth(offers))
    fair = merits / merits.sum(axis=1, keepdims=True)
    assert market.unfairness(offers, fair) == 0.0
    other = np.zeros_like(fair)
    other[:, 0] = 1.0
    assert market.unfairness(offers, other) == pytest.approx(2.0 * (3.0 - fair[:, 0].sum()))
    assert set(market.rewards(offers, [0, 0, 0], market.Market(4).luck(3))) <= {0.0, 1.0}
