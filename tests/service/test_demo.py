"""The demo fills, and a backup restores."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from fedfairx.errors import OlderCopy
from service_helpers import asking, decide

pytestmark = pytest.mark.process


def test_the_demo_fills(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fedfairx", "demo", "--port", "0", "--rate", "100", "--seconds", "1"]
    done = subprocess.run([*command, "--data", str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert re.search(r"curl http://127.0.0.1:\d+/v1/model", done.stdout)
    (line,) = done.stderr.splitlines()
    assert "everybody on this machine is an admin" in line
    with sqlite3.connect(tmp_path / "agent.sqlite") as database:
        (decisions,) = database.execute("SELECT COUNT(*) FROM decisions WHERE groups IS NOT NULL").fetchone()
        (rewards,) = database.execute("SELECT COUNT(*) FROM outcomes").fetchone()
    assert decisions > 0
    assert rewards > 0


def test_a_backup_while_it_runs_and_a_restore(tmp_path: Path) -> None:
    """As docs/howto/run-a-service.md tells it."""
    file, backup = tmp_path / "agent.sqlite", tmp_path / "backup.sqlite"
    with asking(str(tmp_path / "agent.db")) as client:
        old = decide(client)["decision_id"]
        with sqlite3.connect(file) as copier:
            copier.execute(f"VACUUM INTO '{backup}'")
        late = decide(client)["decision_id"]
    backup.replace(file)
    for end in ("-wal", "-shm"):
        Path(f"{file}{end}").unlink(missing_ok=True)
    with pytest.raises(OlderCopy, match="older copy"), asking(str(tmp_path / "agent.db")):
        pass
    Path(f"{file}.lock").unlink()
    with asking(str(tmp_path / "agent.db")) as client:
        assert client.put(f"/v1/decisions/{old}/reward", json={"reward": 1.0}).status_code == 204
        assert client.put(f"/v1/decisions/{late}/reward", json={"reward": 1.0}).status_code == 404
        assert decide(client)["decision_id"] not in (old, late)
