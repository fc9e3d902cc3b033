"""Flower for real: a SuperLink with TLS and node authentication, SuperNodes and services, by one command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import threading
import urllib.error
import urllib.request
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from ssl import create_default_context

import pytest

from fedfairx import Agent
from fedfairx.cli.main import main
from fedfairx.demo import launcher
from fedfairx.federation.setup.member_folder import MemberFolder
from fedfairx.federation.transport.flower.files import make_node
from flower_server import flower_commands, forked_commands
from nats_server import free_port, wait_until

pytestmark = pytest.mark.process

NAMES = ("org1", "org2", "org3")


def processes_of(base: Path) -> list[str]:
    """Command lines of this machine's processes that name the folder or run in it, this one's apart."""
    lines = []
    for process in Path("/proc").glob("[0-9]*"):
        try:
            line = (process / "cmdline").read_bytes().replace(b"\0", b" ").decode(errors="replace")
            if str(base) in line or (process / "cwd").readlink().is_relative_to(base):
                lines.append(line)
        except OSError:  # it has ended just now
            continue
    return lines


def stranger(base: Path, commands: Path, folder: Path, port: int) -> subprocess.Popen[bytes]:
    """A SuperNode whose key nobody has registered, with the authority's certificate, which is no secret."""
    folder.mkdir()
    make_node(folder, folder / "node.pub")
    flags = {
        "--root-certificates": base / "hub" / "authority.crt",
        "--superlink": f"127.0.0.1:{port}",
        "--port": free_port(),
        "--auth-supernode-private-key": folder / "node.key",
    }
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1", "FLWR_HOME": str(folder)}
    with (folder / "log").open("wb") as log:
        return subprocess.Popen(
            [str(commands / "flower-supernode"), *(str(part) for pair in flags.items() for part in pair)],
            env={**os.environ, **quiet, "PATH": f"{commands}{os.pathsep}{os.environ['PATH']}"},
            stdout=log,
            stderr=log,
            start_new_session=True,
        )


@pytest.fixture(params=["forked", pytest.param("started", marks=pytest.mark.slow)])
def commands(request: pytest.FixtureRequest, monkeypatch: pytest.MonkeyPatch) -> Iterator[Path]:
    """The folder of Flower's commands; services and Flower's parts are forked, or started as by users."""
    if request.param == "started":
        yield flower_commands()
        return
    request.getfixturevalue("forked_fleet")
    monkeypatch.setattr(launcher, "GAP", 0.1)
    monkeypatch.setenv("FLWR_SUPEREXEC_TASK_POLL_INTERVAL", "0.05")
    with forked_commands() as folder:
        yield folder


@contextmanager
def meanwhile(observe: Callable[[threading.Event], None]) -> Iterator[None]:
    """Observe something from another thread; the event is set when it has ended."""
    ended = threading.Event()
    with ThreadPoolExecutor(1) as pool:
        observed = pool.submit(observe, ended)
        try:
            yield
        finally:
            ended.set()
        observed.result()


def test_the_demonstration_over_superlink_and_supernodes(
    commands: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base, refused = tmp_path / "federation", tmp_path / "stranger"
    registered = base / "hub" / "nodes" / "org2.registered"

    def others_are_refused(ended: threading.Event) -> None:
        wait_until(lambda: registered.exists() or ended.is_set(), seconds=300, what="a SuperLink")
        port = int(MemberFolder.read(base / "org1").hub[1].rpartition(":")[2])
        with pytest.raises((urllib.error.URLError, ConnectionError)):  # it speaks TLS and nothing else
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            urllib.request.urlopen(f"https://127.0.0.1:{port}/", timeout=5, context=create_default_context())
        with stranger(base, commands, refused, port) as unknown:
            try:
                unknown.wait(60)
            finally:
                with suppress(ProcessLookupError):
                    os.killpg(unknown.pid, signal.SIGKILL)

    flags = ["--flower", str(commands), "--rounds", "2", "--data", str(base), "--json"]
    with meanwhile(others_are_refused):
        assert main(["demo", "--transport", "flower", *flags]) == 0
    said = json.loads(capsys.readouterr().out)
    assert said["orders"] == 6
    assert 1 <= said["rewards"] <= 6  # some never come
    assert "Failed to activate SuperNode" in (refused / "log").read_text()
    held = {name: releases(base / name) for name in NAMES}
    assert said["releases"] == sum(held[name][name] for name in NAMES) >= 3
    assert held["org1"] == held["org2"] == held["org3"]  # everybody has everybody's latest
    wait_until(lambda: processes_of(tmp_path) == [], what="the end of all processes")


def releases(folder: Path) -> dict[str, int]:
    """The latest release of each that an agent has kept."""
    with Agent.open(folder / "data" / "agent.sqlite") as agent:
        return {name: release.number for name, release in agent.held.items()}
