"""The tour of docs/tutorial/first-service.md runs as printed, the demo fills, the backup restores."""

from __future__ import annotations

import json
import os
import re
import shutil
import sqlite3
import subprocess
import sys
from collections.abc import Iterator
from pathlib import Path

import pytest

from fedfairx.errors import OlderCopy
from servers import missing
from service_helpers import Running, asking, decide

pytestmark = pytest.mark.process

DOCS = Path(__file__).resolve().parents[2] / "docs" / "tutorial" / "first-service.md"
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
BLOCKS = FENCE.findall(DOCS.read_text(encoding="utf-8"))


@pytest.fixture
def url(tmp_path: Path) -> Iterator[str]:
    running = Running(str(tmp_path / "data" / "agent.db"), "--dimension", "3")
    yield running.url
    running.stop()


def test_the_tour_fits_the_quick_start() -> None:
    assert "fedfairx serve --data DIR --dimension 3 --port 8000\n" in DOCS.read_text(encoding="utf-8")


def test_the_tour_runs_as_printed(url: str, tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        missing("curl")
    tour = "".join(body for language, body in BLOCKS if language == "sh")
    done = subprocess.run(
        ["bash", "-euo", "pipefail", "-c", tour],
        cwd=tmp_path,
        env=os.environ | {"URL": url},
        capture_output=True,
        text=True,
        timeout=60,
    )
    assert done.returncode == 0, done.stdout + done.stderr
    (shown,) = [body for language, body in BLOCKS if language == "json"]
    assert json.loads((tmp_path / "decision.json").read_text()).keys() == json.loads(shown).keys()
    assert '"status":"rewarded"' in done.stdout
    assert "NOT PRIVATE" in done.stdout
    for count in ("rewards", "withdrawn"):
        assert re.search(rf'fedfairx_{count}_total{{agent="[^"]+"}} 2\n', done.stdout)
    assert "decision_id,seq,time" in done.stdout


def test_the_tour_of_actions_without_features_runs_as_printed(tmp_path: Path) -> None:
    if shutil.which("curl") is None:
        missing("curl")
    assert "fedfairx serve --data DIR --actions ann,ben,cid --port 8000\n" in DOCS.read_text(encoding="utf-8")
    running = Running(str(tmp_path / "data" / "agent.db"), "--actions", "ann,ben,cid")
    tour = "".join(body for language, body in BLOCKS if language == "bash")
    try:
        done = subprocess.run(
            ["bash", "-euo", "pipefail", "-c", tour],
            cwd=tmp_path,
            env=os.environ | {"URL": running.url},
            capture_output=True,
            text=True,
            timeout=60,
        )
    finally:
        running.stop()
    assert done.returncode == 0, done.stdout + done.stderr
    assert '"action_ids":["ann","cid"]' in done.stdout
    assert '{"id":"ben","status":"retired"},{"id":"cid","status":"active"}' in done.stdout
    assert '{"id":"dora","status":"active"}' in done.stdout


def test_the_python_example_runs(url: str, capsys: pytest.CaptureFixture[str]) -> None:
    (block,) = [body for language, body in BLOCKS if language == "python"]
    exec(compile(block.replace("http://127.0.0.1:8000", url), "example", "exec"), {})
    assert capsys.readouterr().out.strip().endswith(" 1")


def test_the_demo_fills(tmp_path: Path) -> None:
    command = [sys.executable, "-m", "fedfairx", "demo", "--port", "0", "--rate", "100", "--seconds", "3"]
    done = subprocess.run([*command, "--data", str(tmp_path)], capture_output=True, text=True, timeout=120)
    assert done.returncode == 0, done.stderr
    assert re.search(r"curl http://127.0.0.1:\d+/v1/model", done.stdout)
    assert not done.stderr
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
