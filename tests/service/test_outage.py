"""An outage of the storage in the log: its first error, a count each minute, and that it is over."""

from __future__ import annotations

import logging
import re
import sqlite3
from pathlib import Path

import pytest

from fedfairx.errors import StorageUnavailable
from fedfairx.service import outage, service, write_queue
from fedfairx.service.metrics import Metrics
from fedfairx.service.outage import Outage
from fedfairx.storage import sqlite
from servers import Postgres
from service_helpers import CONTEXTS, asking, decide, until


@pytest.fixture(autouse=True)
def all_levels(caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch) -> None:
    caplog.set_level(logging.INFO, "fedfairx.service")
    monkeypatch.setattr(service, "TICK", 0.01)
    monkeypatch.setattr(write_queue, "PAUSE", 0.02)


def about_the_storage(caplog: pytest.LogCaptureFixture) -> list[str]:
    return [record.getMessage() for record in caplog.records if "the storage" in record.getMessage()]


def test_a_server_that_is_away_is_two_lines(postgres: Postgres, caplog: pytest.LogCaptureFixture) -> None:
    with asking(postgres.schema()) as client:
        decide(client)
        postgres.stop()
        try:
            for _ in range(40):  # writes, reads and pages
                assert client.post("/v1/decisions", json={"contexts": CONTEXTS}).status_code == 503
                assert client.get("/v1/decisions").status_code == 503
                assert client.get("/decisions").status_code == 503
        finally:
            postgres.start()
        until(lambda: len(about_the_storage(caplog)) > 1)  # without a request
        decide(client)
        began, ended = about_the_storage(caplog)
    assert began.startswith("the storage is unavailable: ")
    found = re.fullmatch(r"the storage is back after (\d+) s, 120 requests refused", ended)
    assert found is not None, ended


def test_each_outage_is_told_and_counts_its_own(tmp_path: Path, caplog: pytest.LogCaptureFixture) -> None:
    with asking(str(tmp_path / "agent.db")) as client, pytest.MonkeyPatch.context() as patch:
        patch.setattr(sqlite, "PATIENCE", 0.05)
        for refused in (1, 2):
            other = sqlite3.connect(tmp_path / "agent.sqlite", isolation_level=None)
            other.execute("BEGIN IMMEDIATE")
            for _ in range(refused):
                assert client.post("/v1/decisions", json={"contexts": CONTEXTS}).status_code == 503
            other.close()
            until(lambda refused=refused: len(about_the_storage(caplog)) == 2 * refused)
            assert re.search(rf"back after \d+ s, {refused} requests refused$", about_the_storage(caplog)[-1])


def test_one_that_lasts_is_counted_each_minute(
    caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    metrics, now = Metrics(), [0.0]
    monkeypatch.setattr(outage.time, "monotonic", lambda: now[0])
    seen = Outage(metrics)
    metrics.problems["unavailable"] = 7  # earlier
    for second in range(240):
        now[0] = float(second)
        seen.fail(StorageUnavailable(f"cause {second // 100}"))
        metrics.problems["unavailable"] += 30
        seen.go_on()
    seen.end()
    assert about_the_storage(caplog) == [
        "the storage is unavailable: cause 0",
        "the storage has been unavailable for 60 s, 1830 requests refused: cause 0",
        "the storage has been unavailable for 120 s, 3630 requests refused: cause 1",
        "the storage has been unavailable for 180 s, 5430 requests refused: cause 1",
        "the storage is back after 239 s, 7200 requests refused",
    ]


def test_a_service_counts_one_that_lasts(
    tmp_path: Path, caplog: pytest.LogCaptureFixture, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By itself, without a request."""
    monkeypatch.setattr(outage, "MINUTE", 0.0)
    monkeypatch.setattr(sqlite, "PATIENCE", 0.01)
    with asking(str(tmp_path / "agent.db")) as client:
        other = sqlite3.connect(tmp_path / "agent.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert client.post("/v1/decisions", json={"contexts": CONTEXTS}).status_code == 503
        until(
            lambda: any(
                "has been unavailable for 0 s, 1 requests" in each for each in about_the_storage(caplog)
            )
        )
        other.close()
