"""Metrics of the process: latencies, problems, storage, clock; `/v1/status` and the page say the same."""

from __future__ import annotations

import re
import sqlite3
import time
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedfairx.service import metrics, service, write_queue
from fedfairx.service.app import make_app
from fedfairx.service.factory import open_service
from fedfairx.service.metrics import Metrics
from fedfairx.service.pages.formatting import milliseconds, size
from fedfairx.storage import sqlite
from in_process_client import InProcessClient
from service_helpers import CONTEXTS, asking, decide, settings_for, until


def value(client: Any, name: str) -> float:
    """Of the process, or of its only agent."""
    pattern = rf'^fedfairx_{re.escape(name)}(?:{{agent="[^"]+"}})? (\S+)$'
    found = re.search(pattern, client.get("/metrics").text, re.MULTILINE)
    assert found is not None, name
    return float(found[1])


def test_quantiles_are_those_of_recent_requests(monkeypatch: pytest.MonkeyPatch) -> None:
    counted, rng = Metrics(), np.random.default_rng(0)
    for _ in range(metrics.RECENT):
        counted.request("decide", 201, 9.0)  # long ago
    seconds = rng.random(metrics.RECENT)
    for each in seconds:
        counted.request("decide", 201, float(each))
    counted.request("reward", 409, 0.25)
    counted.request("reward", 503, 0.5)
    decided, rewarded = counted.answered()
    assert (decided.operation, decided.requests, decided.refused, decided.failed) == ("decide", 2000, 0, 0)
    assert decided.median_seconds == np.quantile(seconds, 0.5, method="inverted_cdf")
    assert decided.slow_seconds == np.quantile(seconds, 0.95, method="inverted_cdf")
    assert (rewarded.requests, rewarded.refused, rewarded.failed) == (2, 1, 1)
    assert (rewarded.median_seconds, rewarded.slow_seconds) == (0.25, 0.5)


def test_a_service_verifies_its_log_by_itself(
    place: str, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    monkeypatch.setattr(service, "VERIFY_AFTER", 0.0)
    monkeypatch.setattr(service, "VERIFY_EVERY", 0.01)
    served = open_service(settings_for(place, name="shop"))
    with InProcessClient(make_app(served), base_url="http://127.0.0.1") as client:
        made = decide(client)["decision_id"]
        client.put(f"/v1/decisions/{made}/reward", json={"reward": 0.5})
        until(lambda: value(client, "verified_steps_total") >= 2)
        assert "fedfairx_damaged{" not in client.get("/metrics").text
        served.log.database.execute("UPDATE outcomes SET reward = 0.75")
        until(lambda: 'fedfairx_damaged{agent="shop"} 1' in client.get("/metrics").text)
        verified = value(client, "verified_steps_total")
        until(lambda: value(client, "verified_steps_total") > verified + 4)  # it goes on
        said = [record.getMessage() for record in caplog.records if "damaged" in record.getMessage()]
    assert len(said) == 1
    assert re.match(r"agent shop: its log is damaged: .* step 1 is not as it was written", said[0])


def test_status_and_page_say_how_it_runs(place: str) -> None:
    with asking(place) as client:
        for _ in range(3):
            decide(client)
        client.post("/v1/decisions", json={"contexts": []})
        status = client.get("/v1/status").json()
        first = status["operations"][0]
        assert (first["operation"], first["requests"], first["refused"], first["failed"]) == (
            "decide",
            4,
            1,
            0,
        )
        assert 0 < first["median_seconds"] <= first["slow_seconds"] < 5
        assert status["waiting"] == 0
        assert 0 <= time.time() - status["started"] < 60
        assert status["database_bytes"] > 10_000
        free = status["disk_free_bytes"]
        assert (free is None) == place.startswith("postgresql:")
        page = client.get("/").text
        assert "<dt>Running for</dt><dd>less than a minute</dd>" in page
        assert '<code>decide</code></th><td class="number">4</td><td class="number">1</td>' in page
        assert ("of its disk are free" in page) == (free is not None)
        assert value(client, "database_bytes") >= status["database_bytes"] > 0
        assert ("fedfairx_disk_free_bytes" in client.get("/metrics").text) == (free is not None)
        assert value(client, "start_time_seconds") == status["started"]


def test_the_size_is_that_of_the_files(tmp_path: Path) -> None:
    with asking(str(tmp_path / "agent.db")) as client:
        decide(client)
        found = client.get("/v1/status").json()["database_bytes"]
        files = [path for path in tmp_path.iterdir() if not path.name.endswith(".lock")]
        assert found == sum(path.stat().st_size for path in files)
        assert len(files) == 3


def test_problems_are_counted_by_kind(tmp_path: Path) -> None:
    with asking(str(tmp_path / "agent.db"), max_waiting=1) as client:
        assert value(client, 'problems_total{kind="busy"}') == 0
        client.post("/v1/decisions", json={"contexts": []})
        client.put("/v1/decisions/nobody-1/reward", json={"reward": 1.0})
        for kind, count in (("invalid", 1), ("unknown-decision", 1), ("internal", 0)):
            assert value(client, f'problems_total{{kind="{kind}"}}') == count


def test_failures_of_the_storage_are_counted(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_queue, "PAUSE", 0.0)
    monkeypatch.setattr(sqlite, "PATIENCE", 0.05)
    with asking(str(tmp_path / "agent.db")) as client:
        other = sqlite3.connect(tmp_path / "agent.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")
        assert client.post("/v1/decisions", json={"contexts": CONTEXTS}).status_code == 503
        assert value(client, 'problems_total{kind="unavailable"}') == 1
        assert value(client, "storage_failures_total") >= 1
        assert value(client, "ready") == 0
        other.close()


def test_the_age_of_the_oldest_pending_decision(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with asking(str(tmp_path / "agent.db")) as client:
        assert value(client, "oldest_pending_seconds") == 0
        first, second = decide(client), decide(client)
        log = client.app._app.state.service.log
        made = client.get(f"/v1/decisions/{first['decision_id']}").json()["time"]
        monkeypatch.setattr(metrics.time, "time", lambda: made + 100.0)
        assert value(client, "oldest_pending_seconds") == pytest.approx(100.0)
        for one in (first, second):
            client.put(f"/v1/decisions/{one['decision_id']}/reward", json={"reward": 1.0})
        assert value(client, "oldest_pending_seconds") == 0
        assert value(client, "clock_went_back_total") == 0
        log.clock = lambda: 0
        with pytest.warns(UserWarning, match="the clock went back"):
            decide(client)
        assert value(client, "clock_went_back_total") >= 1


@pytest.mark.parametrize(
    ("number", "text"),
    [(0, "0 bytes"), (999, "999 bytes"), (1_000, "1 kB"), (12_345_678, "12.3 MB"), (999_950, "1 MB")],
)
def test_sizes(number: int, text: str) -> None:
    assert size(number).replace("\u00a0", " ") == text


@pytest.mark.parametrize(("seconds", "text"), [(0.00125, "1.25 ms"), (0.9999, "1 s"), (3.14, "3.14 s")])
def test_times(seconds: float, text: str) -> None:
    assert milliseconds(seconds).replace("\u00a0", " ") == text
