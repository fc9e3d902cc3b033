"""Flower for real: a SuperLink with TLS and node authentication, SuperNodes, services; by one command."""

from __future__ import annotations

import os
import re
import signal
import ssl
import subprocess
import sys
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from pathlib import Path
from typing import Any

import pytest

import fedfairx as ffx
from fedfairx.federation.founding import found
from fedfairx.federation.place import Place
from fedfairx.federation.transport.flower.files import make_node
from fedfairx.storage.guest import open_keys
from flower_server import flower_commands
from member_helpers import terms
from nats_server import free_port, wait_until

NAMES = ("org1", "org2", "org3")
CONTEXTS = [[0.1, 0.2, 0.3], [0.3, 0.2, 0.1]]


@contextmanager
def flower(base: Path, commands: Path) -> Iterator[dict[str, str]]:
    """`fedfairx federate flower`; the services' addresses. In the end nothing of it is left running."""
    command = [sys.executable, "-m", "fedfairx", "federate", "flower", str(base)]
    process = subprocess.Popen(
        [*command, "--flower", str(commands), "--gap", "1"], stdout=subprocess.PIPE, text=True
    )
    try:
        assert process.stdout is not None
        said = [process.stdout.readline() for _ in range(len(NAMES) + 1)]
        assert said[-1].startswith("Flower carries"), said
        yield dict(re.findall(r"(\S+): (http://\S+)", "".join(said)))
        assert process.poll() is None
    finally:
        process.send_signal(signal.SIGTERM)
        assert process.wait(60) == 0


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


def test_a_release_gets_to_the_others_by_superlink_and_supernodes(tmp_path: Path) -> None:
    commands, base, port = flower_commands(), tmp_path / "federation", free_port()
    found(base, terms(), dict.fromkeys(NAMES), hosts=["127.0.0.1"], port=port, transport="flower")
    keys = {}
    for name in NAMES:
        (base / name / "data").mkdir()
        with open_keys(base / name / "data" / "agent.sqlite") as kept:
            keys[name] = kept.add("test", "writer")
    with flower(base, commands) as urls, ExitStack() as stack:
        clients = {name: stack.enter_context(ffx.Client(urls[name], key=keys[name])) for name in NAMES}
        unknown = stranger(base, commands, tmp_path / "stranger", port)
        try:
            with pytest.raises((urllib.error.URLError, ConnectionError)):  # it speaks TLS and nothing else
                urllib.request.urlopen(f"http://127.0.0.1:{port}/", timeout=5)
            with pytest.raises(urllib.error.URLError, match="CERTIFICATE_VERIFY_FAILED"):
                context = ssl.create_default_context()
                urllib.request.urlopen(f"https://127.0.0.1:{port}/", timeout=5, context=context)
            for name, reward in zip(NAMES, (0.9, 0.1), strict=False):  # org3 has nothing to tell
                for _ in range(3):
                    clients[name].observe(clients[name].decide(CONTEXTS), reward=reward)

            def sync(name: str) -> Any:
                return clients[name].get("/v1/sync")

            def held() -> bool:
                numbers = {
                    (me, of): peer["release"] for me in NAMES for of, peer in sync(me)["peers"].items()
                }
                expected = {"org1": 3, "org2": 3, "org3": 0}
                return all(number == expected[of] for (_, of), number in numbers.items())

            wait_until(held, seconds=90, what="everybody has everybody's latest release")
            wait_until(lambda: not any(sync(name)["waiting"] for name in NAMES), seconds=60, what="receipts")
            assert [sync(name)["refusals"] for name in NAMES] == [{}, {}, {}]
            assert [sync(name)["trouble"] for name in NAMES] == [None] * 3
            wait_until(lambda: unknown.poll() is not None, seconds=30, what="the stranger is refused")
        finally:
            with suppress(ProcessLookupError):
                os.killpg(unknown.pid, signal.SIGKILL)
            unknown.wait()
        assert "Failed to activate SuperNode" in (tmp_path / "stranger" / "log").read_text()
        assert Place.read(base / "org1").superlink == f"127.0.0.1:{port}"
    ends = time.monotonic() + 10
    while processes_of(tmp_path):
        assert time.monotonic() < ends, processes_of(tmp_path)
        time.sleep(0.1)
