"""Flower for real: a SuperLink with TLS and node authentication, SuperNodes and services, by one command."""

from __future__ import annotations

import json
import os
import signal
import subprocess
import sys
import urllib.error
import urllib.request
from contextlib import suppress
from pathlib import Path
from ssl import create_default_context

import pytest

from fedfairx import Agent
from fedfairx.federation.setup.member_folder import MemberFolder
from fedfairx.federation.transport.flower.files import make_node
from flower_server import flower_commands
from nats_server import free_port, wait_until

pytestmark = pytest.mark.process

NAMES = ("org1", "org2")


def processes_of(base: Path) -> list[str]:
    """Command lines of this machine's processes that name the folder."""
    lines = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        try:
            lines.append(path.read_bytes().replace(b"\0", b" ").decode(errors="replace"))
        except OSError:  # it has ended just now
            continue
    return [line for line in lines if str(base) in line]


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


def test_the_demonstration_over_superlink_and_supernodes(tmp_path: Path) -> None:
    commands, base = flower_commands(), tmp_path / "federation"
    command = [sys.executable, "-m", "fedfairx", "federate", "demo", "--transport", "flower", "--json"]
    flags = ["--flower", str(commands), "--agents", "2", "--rounds", "2", "--data", str(base)]
    demo = subprocess.Popen([*command, *flags], stdout=subprocess.PIPE, text=True)
    registered = base / "hub" / "nodes" / "org2.registered"
    unknown = None
    try:
        wait_until(lambda: registered.exists() or demo.poll() is not None, seconds=300, what="a SuperLink")
        port = int(MemberFolder.read(base / "org1").hub[1].rpartition(":")[2])
        with pytest.raises((urllib.error.URLError, ConnectionError)):  # it speaks TLS and nothing else
            urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)
        with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
            urllib.request.urlopen(f"https://127.0.0.1:{port}/", timeout=5, context=create_default_context())
        unknown = stranger(base, commands, tmp_path / "stranger", port)
        said = json.loads(demo.communicate(timeout=300)[0])
        assert demo.returncode == 0
        assert (said["decisions"], said["rewards"]) == (4, 4)
        unknown.wait(60)
        assert "Failed to activate SuperNode" in (tmp_path / "stranger" / "log").read_text()
    finally:
        end(demo, unknown)
    held = {name: releases(base / name) for name in NAMES}
    assert said["releases"] == sum(held[name][name] for name in NAMES) >= 2
    assert held["org1"] == held["org2"]  # everybody has everybody's latest
    assert processes_of(tmp_path) == []


def releases(folder: Path) -> dict[str, int]:
    """The latest release of each that an agent has kept."""
    with Agent.open(folder / "data" / "agent.sqlite") as agent:
        return {name: release.number for name, release in agent.held.items()}


def end(demo: subprocess.Popen[str], unknown: subprocess.Popen[bytes] | None) -> None:
    if demo.poll() is None:
        demo.send_signal(signal.SIGINT)
        demo.wait(60)
    if unknown is not None:
        with suppress(ProcessLookupError):
            os.killpg(unknown.pid, signal.SIGKILL)
        unknown.wait()
