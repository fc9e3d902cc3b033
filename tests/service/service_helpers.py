"""A service to ask: in this process, or in one of its own that can be killed."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
import time
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import httpx
from starlette.testclient import TestClient

from fedfairx.service.app import make_app
from fedfairx.service.opening import open_service
from fedfairx.service.settings import Settings, load

CONTEXTS = [[0.1, 0.2, 0.3], [0.3, 0.2, 0.1], [0.2, 0.2, 0.2]]
ACTIONS = [
    {"id": "ann", "features": [0.1, 0.2, 0.3], "group": "small"},
    {"id": "ben", "features": [0.3, 0.2, 0.1], "group": "large"},
    {"id": "cat", "features": [0.2, 0.2, 0.2]},
]


def settings_for(place: str, **given: Any) -> Settings:
    """Settings of a service that lives in `place`: a folder, or a PostgreSQL address."""
    where = {"database": place} if place.startswith("postgresql:") else {"data": str(Path(place).parent)}
    if "features" not in given and "dimension" not in given:
        given = {"dimension": 3, **given}
    return load({**where, **given}, environment={})


@contextmanager
def asking(place: str, **given: Any) -> Iterator[TestClient]:
    """A client of a service in this process."""
    app = make_app(open_service(settings_for(place, **given)))
    with TestClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


def decide(client: Any, **more: Any) -> dict[str, Any]:
    """A decision among `CONTEXTS`."""
    headers = {"idempotency-key": more.pop("key")} if "key" in more else {}
    body = {"contexts": CONTEXTS, **more} if "actions" not in more else more
    answer = client.post("/v1/decisions", json=body, headers=headers)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


class Running:
    """`fedfairx serve` in a process of its own."""

    def __init__(self, place: str, *flags: str) -> None:
        where = ["--database", place] if place.startswith("postgresql:") else ["--data", str(Path(place).parent)]
        self._command = [sys.executable, "-m", "fedfairx", "serve", "--port", "0", *where, *flags]
        self.said = ""
        self.start()

    def start(self) -> None:
        """Start it, and wait until it listens."""
        self.process = subprocess.Popen(self._command, stderr=subprocess.PIPE, text=True, env=dict(os.environ))
        assert self.process.stderr is not None
        for line in self.process.stderr:
            self.said += line
            found = re.search(r"serves on (http://\S+)", line)
            if found:
                self.url = found[1]
                return
        raise AssertionError(f"it did not start: {self.said}")

    def kill(self) -> None:
        """As the power going off would, for the process."""
        self._end(signal.SIGKILL)

    def stop(self) -> int:
        """As its owner would."""
        return self._end(signal.SIGTERM)

    def _end(self, how: int) -> int:
        self.process.send_signal(how)
        assert self.process.stderr is not None
        self.said += self.process.stderr.read()
        return self.process.wait(timeout=30)


def until(true: Any, *, seconds: float = 10.0) -> None:
    """Wait until something holds."""
    end = time.monotonic() + seconds
    while not true():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(0.02)


def reached(url: str) -> bool:
    try:
        return httpx.get(f"{url}/readyz").status_code == 200
    except httpx.TransportError:
        return False
