"""The demo fills, and a backup restores."""

from __future__ import annotations

import re
import sqlite3
import subprocess
import sys
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedfairx.demo.couriers import Couriers
from fedfairx.demo.service import Traffic
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
    assert decisions > 0


class Desk:
    """The client and the server of a demonstration: it chooses the first courier and stops after 3 000."""

    def __init__(self) -> None:
        self.requests: list[dict[str, Any]] = []
        self.late: list[int] = []  # decisions made when a reward came, after its own

    @property
    def should_exit(self) -> bool:
        return len(self.requests) >= 3_000

    def decide(self, **request: Any) -> SimpleNamespace:
        self.requests.append(request)
        return SimpleNamespace(id=str(len(self.requests)), action=0)

    def observe(self, identity: str, *, reward: float) -> None:
        assert reward in (0.0, 1.0)
        self.late.append(len(self.requests) - int(identity))


def test_its_couriers_come_and_go_and_rewards_are_late_or_never_come() -> None:
    desk: Any = Desk()
    Traffic(Couriers(seed=0), desk, rate=1e9, seconds=None, server=desk).run()
    assert (min(desk.late), max(desk.late)) == (300, 900)
    due = 3_000 - 600  # rewards that should have come, were none lost; a tenth of a tenth is many sds
    assert len(desk.late) / due == pytest.approx(0.92, abs=0.03)
    groups = [{each["group"] for each in request["actions"]} for request in desk.requests]
    assert all(found == {"first"} for found in groups[:400])
    assert any("new" in found for found in groups[400:800])
    assert len({each["id"] for request in desk.requests for each in request["actions"]}) == 47


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
