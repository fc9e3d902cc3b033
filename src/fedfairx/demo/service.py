"""`fedfairx demo`: a service with simulated traffic."""

from __future__ import annotations

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
    from fedfairx.demo.couriers import Couriers
    from fedfairx.service.server import Server


@dataclass(frozen=True, kw_only=True)
class Demo(Verb):
    """Watch a service with simulated traffic learn to be fair. Each order goes to one of eight
    couriers nearby. Every 400 orders a courier leaves and another joins. Whether an order arrived in time is
    known 300 to 900 orders later, and of 8 % never. Everything runs on this machine and is deleted
    afterwards.

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
            from fedfairx.demo.couriers import FEATURES, SHARED, Couriers
            from fedfairx.service.factory import open_service
            from fedfairx.service.server import serve

        def begun(server: Server) -> None:
            url = server.addresses()[0]
            print(
                f"a service with simulated traffic runs at {url} (Ctrl-C ends it); for instance", flush=True
            )
            print(f"  curl {url}/v1/model", flush=True)
            traffic = Traffic(Couriers(), Client(url), self.rate, self.seconds, server)
            threading.Thread(target=traffic.run, daemon=True).start()

        with tempfile.TemporaryDirectory(prefix="fedfairx-demo-") as folder, suppress(KeyboardInterrupt):
            given = {"data": self.data or folder, "name": "couriers", "features": FEATURES, "shared": SHARED}
            settings = load({**given, "port": self.port, "log_level": "warning"}, environment={})
            serve(open_service(settings), begun=begun)
        return 0


class Traffic:
    """Orders for which the service chooses a courier, and whose rewards come later."""

    def __init__(
        self, city: Couriers, client: Client, rate: float, seconds: float | None, server: Server
    ) -> None:
        self._city = city
        self._client = client
        self._rate = rate
        self._end = None if seconds is None else time.monotonic() + seconds
        self._server = server
        self._random = random.Random()
        self._orders = 0
        self._waiting: dict[int, list[tuple[str, float]]] = {}  # decisions and rewards that an order brings

    def run(self) -> None:
        from fedfairx.client import ServiceError

        while not self._server.should_exit:
            with suppress(ServiceError):  # the service may be stopping
                self._order()
                for identity, reward in self._waiting.pop(self._orders, []):
                    self._client.observe(identity, reward=reward)
            if self._end is not None and time.monotonic() > self._end:
                self._server.stop()
            time.sleep(self._random.expovariate(self._rate))

    def _order(self) -> None:
        order = self._city.order()
        self._orders += 1
        decision = self._client.decide(**order.request)
        if order.after is not None:
            due = self._waiting.setdefault(self._orders + order.after, [])
            due.append((decision.id, order.reward(decision.action)))
