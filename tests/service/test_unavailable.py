"""The storage goes away and comes back, or a backup does: 503 meanwhile, nothing half done, no restart."""

from __future__ import annotations

import shutil
import sqlite3
import subprocess
import time
from collections.abc import Callable, Iterator
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fedfairx.errors import OlderCopy
from fedfairx.service import write_queue
from fedfairx.storage import sqlite
from fedfairx.storage.postgres import PostgresDatabase
from servers import Postgres, missing
from service_helpers import CONTEXTS, asking, decide, metrics_of, until


@pytest.fixture(autouse=True)
def time_passes(monkeypatch: pytest.MonkeyPatch) -> Callable[[], None]:
    """Ends the pause after a failure, which lasts until then; a lock is waited for only briefly."""
    monkeypatch.setattr(write_queue, "PAUSE", 600.0)
    monkeypatch.setattr(sqlite, "PATIENCE", 0.2)
    return lambda: monkeypatch.setattr(write_queue, "PAUSE", 0.0)


def check_unavailable(client: Any, identity: str, time_passes: Callable[[], None]) -> None:
    for answer in (
        client.post("/v1/decisions", json={"contexts": CONTEXTS}, headers={"idempotency-key": "again"}),
        client.put(f"/v1/decisions/{identity}/reward", json={"reward": 1.0}),
        client.get("/readyz"),
    ):
        assert answer.status_code == 503
        assert answer.headers["retry-after"] == "1"
        assert answer.json()["type"].endswith(":unavailable")
    assert client.get("/healthz").status_code == 200  # the process is well
    time_passes()  # others may be tried again, but nothing has been written yet
    assert "\nfedfairx_ready 0\n" in metrics_of(client)


def check_recovered(client: Any, identity: str) -> None:
    until(lambda: client.get("/readyz").status_code == 200)
    made = decide(client, key="again")
    assert decide(client, key="again") == made
    assert client.put(f"/v1/decisions/{identity}/reward", json={"reward": 1.0}).status_code == 204
    model = client.get("/v1/model").json()
    assert (model["pending"], model["observed"]) == (1, 1)


@pytest.mark.long
def test_a_locked_database(tmp_path: Path, time_passes: Callable[[], None]) -> None:
    with asking(str(tmp_path / "agent.db")) as client:
        identity = decide(client)["decision_id"]
        other = sqlite3.connect(tmp_path / "agent.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        # Whoever waits for the first try is answered after SQLite's own patience; the others at once.
        check_unavailable(client, identity, time_passes)
        assert "Nothing can be written" in client.get("/").text  # it can be read
        other.execute("ROLLBACK")
        other.close()
        check_recovered(client, identity)
        assert "Nothing can be written" not in client.get("/").text


@pytest.fixture
def small_disk(tmp_path: Path) -> Iterator[Path]:
    """A file system of its own, of eight megabytes."""
    folder = tmp_path / "disk"
    folder.mkdir()
    mount = ["mount", "-t", "tmpfs", "-o", "size=8m", "tmpfs", str(folder)]
    if shutil.which("mount") is None or subprocess.run(mount, capture_output=True).returncode:
        missing("a file system that may be mounted")
    yield folder
    subprocess.run(["umount", str(folder)], check=True)


@pytest.mark.process
def test_a_full_disk(
    small_disk: Path, monkeypatch: pytest.MonkeyPatch, time_passes: Callable[[], None]
) -> None:
    """Nobody writes but whoever asks whether it is ready: pages and metrics say the same."""
    monkeypatch.setattr(write_queue, "PROBED", 0.0)

    def ready(client: Any) -> tuple[bool, bool, bool]:
        return (
            client.get("/readyz").status_code == 200,
            "\nfedfairx_ready 1\n" in metrics_of(client),
            "Nothing can be written" not in client.get("/").text,
        )

    with asking(str(small_disk / "agent.db")) as client:
        identity = decide(client)["decision_id"]
        assert ready(client) == (True, True, True)
        with (small_disk / "rest").open("wb", buffering=0) as rest, suppress(OSError):
            while True:
                rest.write(bytes(4096))
        until(lambda: client.get("/readyz").status_code == 503)  # a few may fit into what is allocated
        assert client.post("/v1/decisions", json={"contexts": CONTEXTS}).status_code == 503
        assert client.put("/v1/decisions/nobody-1/reward", json={"reward": 1.0}).status_code in (404, 503)
        time_passes()
        assert client.put("/v1/decisions/nobody-1/reward", json={"reward": 1.0}).status_code == 404
        assert ready(client) == (False, False, False)  # one who was refused has written nothing
        (small_disk / "rest").unlink()
        check_recovered(client, identity)
        assert ready(client) == (True, True, True)


def test_who_asks_often_writes_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Everybody may ask whether it is ready."""
    monkeypatch.setattr(write_queue, "PROBED", 60.0)
    with asking(str(tmp_path / "agent.db")) as client:
        for _ in range(20):
            assert client.get("/readyz").status_code == 200
        assert "\nfedfairx_commits_total 1\n" in metrics_of(client)


def test_a_disk_that_does_not_answer(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_queue, "PATIENCE", 0.05)
    with asking(str(tmp_path / "agent.db")) as client:
        other = sqlite3.connect(tmp_path / "agent.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        answer = client.get("/readyz")
        assert answer.status_code == 503
        assert answer.json()["type"].endswith(":unavailable")
        other.close()


def test_a_server_that_is_stopped(postgres: Postgres, time_passes: Callable[[], None]) -> None:
    with asking(postgres.schema()) as client:
        identity = decide(client)["decision_id"]
        postgres.stop()
        try:
            check_unavailable(client, identity, time_passes)
        finally:
            postgres.start()
        check_recovered(client, identity)


@pytest.mark.long
def test_after_a_failure_others_are_refused_at_once(tmp_path: Path) -> None:
    with asking(str(tmp_path / "agent.db")) as client:
        other = sqlite3.connect(tmp_path / "agent.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert client.post("/v1/decisions", json={"contexts": CONTEXTS}).status_code == 503
        began = time.monotonic()
        for _ in range(10):
            assert client.post("/v1/decisions", json={"contexts": CONTEXTS}).status_code == 503
        assert time.monotonic() - began < 1.0
        other.close()


@pytest.mark.process
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


def test_a_lost_commit_is_said_to_be_unknown(
    postgres: Postgres, monkeypatch: pytest.MonkeyPatch, time_passes: Callable[[], None]
) -> None:
    """And not that nothing was changed: the decision is there."""
    with asking(postgres.schema()) as client:
        real = PostgresDatabase.insert
        request: Any = {"json": {"contexts": CONTEXTS}, "headers": {"idempotency-key": "k"}}

        def cut(database: Any, *given: Any, **more: Any) -> None:
            real(database, *given, **more)
            database._writer.close()
            monkeypatch.setattr(PostgresDatabase, "insert", real)
            raise database._unknown()

        monkeypatch.setattr(PostgresDatabase, "insert", cut)
        answer = client.post("/v1/decisions", **request)
        assert answer.status_code == 503
        assert "Whether it was stored is not known" in answer.json()["detail"]
        assert "changed" not in answer.json()["detail"]
        assert "the same Idempotency-Key" in answer.json()["detail"]
        time_passes()
        until(lambda: client.post("/v1/decisions", **request).status_code == 201)
        assert client.get("/v1/model").json()["pending"] == 1
