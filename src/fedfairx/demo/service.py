"""`fedfairx demo`: a service with simulated traffic."""

from __future__ import annotations

import heapq
import random
import tempfile
import threading
import time
from contextlib import suppress
from dataclasses import dataclass, field
from typing import TYPE_CHECKING

from fedfairx.cli.common import Verb

if TYPE_CHECKING:
    from fedfairx.client import Client
    from fedfairx.service.server import Server

ANSWERED = 0.9  # fraction of decisions that get a reward


@dataclass(frozen=True, kw_only=True)
class Demo(Verb):
    """Start a service with simulated traffic, and watch it learn to be fair. Six suppliers bid for orders.
    Everything runs on this machine and is deleted afterwards.

        fedfairx demo
        fedfairx demo --port 8080 --rate 100

    port: port to listen on.
    rate: decisions per second.
    seconds: stop after this many seconds (default: never).
    data: keep the database in this folder (default: it is deleted).
    """

    port: int = 8000
    rate: float = 30.0
    seconds: float | None = None
    data: str | None = field(default=None, metadata={"metavar": "DIR"})

    def run(self) -> int:
        from fedfairx.errors import needs, require
        from fedfairx.service.settings import load

        require(self.rate > 0, "--rate", "must be > 0", self.rate)
        with needs("service,client"):
            from fedfairx.client import Client
            from fedfairx.demo.market import FEATURES
            from fedfairx.service.factory import open_service
            from fedfairx.service.server import serve

        def begun(server: Server) -> None:
            url = server.addresses()[0]
            print(
                f"a service with simulated traffic runs at {url} (Ctrl-C ends it); for instance", flush=True
            )
            print(f"  curl {url}/v1/model", flush=True)
            traffic = Traffic(Client(url), self.rate, self.seconds, server)
            threading.Thread(target=traffic.run, daemon=True).start()

        with tempfile.TemporaryDirectory(prefix="fedfairx-demo-") as folder, suppress(KeyboardInterrupt):
            given = {"data": self.data or folder, "features": FEATURES, "intercept": True, "port": self.port}
            settings = load({**given, "log_level": "warning"}, environment={})
            serve(open_service(settings), begun=begun)
        return 0


class Traffic:
    """Orders for which the service chooses a supplier, and whose rewards come later."""

    def __init__(self, client: Client, rate: float, seconds: float | None, server: Server) -> None:
        from fedfairx.demo.market import Market

        self._client = client
        self._rate = rate
        self._end = None if seconds is None else time.monotonic() + seconds
        self._server = server
        self._random = random.Random()
        self._market = Market()
        self._waiting: list[tuple[float, str, float]] = []  # a heap: due, decision, reward

    def run(self) -> None:
        from fedfairx.client import ServiceError

        while not self._server.should_exit:
            with suppress(ServiceError):  # the service may be stopping
                self._order()
                while self._waiting and self._waiting[0][0] < time.monotonic():
                    _, identity, reward = heapq.heappop(self._waiting)
                    self._client.observe(identity, reward=reward)
            if self._end is not None and time.monotonic() > self._end:
                self._server.stop()
            time.sleep(self._random.expovariate(self._rate))

    def _order(self) -> None:
        from fedfairx.demo.market import request, rewards

        offers = self._market.offers(1)
        decision = self._client.decide(**request(offers[0]))
        if self._random.random() < ANSWERED:
            due = time.monotonic() + self._random.uniform(0.0, 3.0)
            (reward,) = rewards(offers, [decision.action], self._market.luck(1))
            heapq.heappush(self._waiting, (due, decision.id, reward))
