"""The demonstration opens a browser, and its pages are full."""

from __future__ import annotations

import os
import re
import socket
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from fedfairx.cli import demo

pytestmark = pytest.mark.process


def test_the_demo_opens_a_browser_and_fills(tmp_path: Path) -> None:
    """The browser is a program that asks for pages and writes down the address."""
    program, opened = tmp_path / "browser", tmp_path / "opened"
    fetch = (
        "import sys, urllib.request as r; u = sys.argv[1]; "
        "print(u, *(r.urlopen(u + page).status for page in ('', 'exposure', 'federation')))"
    )
    program.write_text(f'#!/bin/sh\nexec "{sys.executable}" -c "{fetch}" "$1" >> "{opened}"\n')
    program.chmod(0o755)
    command = [sys.executable, "-m", "fedfairx", "demo", "--rate", "40", "--seconds", "3"]
    done = subprocess.run(
        [*command, "--data", "kept"],
        capture_output=True,
        text=True,
        timeout=300,
        cwd=tmp_path,
        env={**os.environ, "BROWSER": f"{program} %s"},
    )
    assert done.returncode == 0, done.stderr
    (url,) = re.findall(r"org1  (http://127.0.0.1:\d+/)  ", done.stderr)
    assert opened.read_text() == f"{url} 200 200 200\n"
    assert "fairness regret of each" in done.stdout
    assert {each.name for each in tmp_path.iterdir()} == {"browser", "opened", "kept"}
    for name in ("org1", "org2", "org3"):
        with sqlite3.connect(tmp_path / "kept" / name / "data" / "agent.sqlite") as database:
            query = "SELECT COUNT(*) FROM decisions WHERE groups IS NOT NULL"
            ((decisions,),) = database.execute(query).fetchall()
        assert decisions > demo.EARLIER


def test_it_takes_another_port_than_one_that_is_taken(monkeypatch: pytest.MonkeyPatch) -> None:
    with socket.create_server(("127.0.0.1", 0)) as taken:
        monkeypatch.setattr(demo, "USUAL", taken.getsockname()[1])
        assert demo._usual_or_free() == 0
    assert demo._usual_or_free() == demo.USUAL
