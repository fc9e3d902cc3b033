"""`fedfairx demo`: a service with simulated traffic, to look at."""

from __future__ import annotations

import argparse
import heapq
import random
import tempfile
import threading
import time
from contextlib import suppress
from typing import TYPE_CHECKING, Any

from fedfairx.cli.common import add_verb

if TYPE_CHECKING:
    from fedfairx.client import Client
    from fedfairx.service.server import Server

ANSWERED = 0.9  # of decisions get a reward at all


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "demo",
        run,
        summary="start a service with simulated traffic, and watch it learn to be fair",
        details="Six suppliers bid for orders. Everything happens on this machine and is gone afterwards.",
        example="fedfairx demo\nfedfairx demo --port 8080 --rate 100",
    )
    parser.add_argument("--port", type=int, default=8000, help="port to listen on (default: 8000)")
    parser.add_argument("--rate", type=float, default=30.0, help="decisions per second (default: 30)")
    parser.add_argument("--seconds", type=float, help="stop by itself after so long (default: never)")
    parser.add_argument("--data", metavar="DIR", help="keep what happens in this folder (default: nothing)")


def run(args: argparse.Namespace) -> int:
    from fedfairx.errors import needs, require
    from fedfairx.service.settings import load

    require(args.rate > 0, "--rate", "must be > 0", args.rate)
    with needs("service,client"):
        from fedfairx.client import Client
        from fedfairx.demo.market import FEATURES
        from fedfairx.service.app import make_app
        from fedfairx.service.factory import open_service
        from fedfairx.service.server import serve

    def begun(server: Server) -> None:
        url = server.addresses()[0]
        print(f"a service with simulated traffic is at {url} (Ctrl-C ends it); for instance", flush=True)
        print(f"  curl {url}/v1/model", flush=True)
        traffic = Traffic(Client(url), args.rate, args.seconds, server)
        threading.Thread(target=traffic.run, daemon=True).start()

    with tempfile.TemporaryDirectory(prefix="fedfairx-demo-") as folder, suppress(KeyboardInterrupt):
        given = {"data": args.data or folder, "features": FEATURES, "intercept": True, "port": args.port}
        settings = load({**given, "log_level": "warning"}, environment={})
        serve(make_app(open_service(settings)), settings, begun=begun)
    return 0


class Traffic:
    """Orders come, a supplier is chosen, and some time later it shows how well it did."""

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
            with suppress(ServiceError):  # it may be about to end
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
