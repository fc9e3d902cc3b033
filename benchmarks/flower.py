"""The cost of Flower as a transport: a real SuperLink, SuperNodes with TLS and node authentication, services.

Flower must be on the path (`PATH=.venv-flower/bin:$PATH`, after `make flower`).
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from pathlib import Path

import numpy as np

from fedfairx.agent.schedules import EveryRound
from fedfairx.demo.couriers import SCHEMA
from fedfairx.demo.launcher import GAP, Fleet
from fedfairx.demo.traffic import Orders
from fedfairx.errors import InvalidInput
from fedfairx.federation.roster.terms import Terms
from measure import Report, main

NAMES = ("org1", "org2", "org3")
TICKS = os.sysconf("SC_CLK_TCK")


class Counter:
    """A proxy that counts the bytes that it passes on."""

    def __init__(self, port: int) -> None:
        self.bytes = 0
        self._to = port
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def _accept(self) -> None:
        while True:
            near, _ = self._listener.accept()
            try:
                far = socket.create_connection(("127.0.0.1", self._to))
            except OSError:
                near.close()
                continue
            for source, sink in ((near, far), (far, near)):
                threading.Thread(target=self._pass_on, args=(source, sink), daemon=True).start()

    def _pass_on(self, source: socket.socket, sink: socket.socket) -> None:
        try:
            while data := source.recv(65536):
                self.bytes += len(data)
                sink.sendall(data)
            sink.shutdown(socket.SHUT_WR)
        except OSError:
            source.close()
            sink.close()


def cpu_of(group: int) -> float:
    """CPU seconds of a process group, including ended processes."""
    total = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has just ended
            continue
        if int(fields[2]) == group:
            total += sum(int(field) for field in fields[11:15])
    return total / TICKS


def until(met: Callable[[], bool]) -> None:
    end = time.monotonic() + 300.0
    while not met():
        if time.monotonic() > end:
            raise TimeoutError("Flower has not carried a release in five minutes")
        time.sleep(0.05)


def run(report: Report) -> None:
    terms = Terms(schema=SCHEMA, agents=3, horizon=1000, schedule=EveryRound(), epsilon=2.0)
    with tempfile.TemporaryDirectory() as folder:
        try:
            fleet = Counted(Path(folder) / "federation", NAMES, terms, transport="flower")
        except InvalidInput as error:
            report.note(f"left out: {error}")
            return
        report.heading(
            f"Flower between {len(NAMES)} agents' services, d={SCHEMA.width}, rounds {GAP:g} s apart, here"
        )
        with fleet:
            measure(report, fleet, releases=4 if report.quick else 12)


class Counted(Fleet):
    """A fleet whose SuperNodes reach the SuperLink through a counting proxy."""

    def _start_flower(self, commands: Path, port: int) -> None:
        self.counter = Counter(port)
        self._proxy = self.counter.port
        super()._start_flower(commands, port)


def place_one(orders: Orders) -> None:
    """Place orders until one has a reward, which comes at once."""
    before = orders.rewarded
    while orders.rewarded == before:
        orders.place(1)
        orders.settle()


def measure(report: Report, fleet: Counted, *, releases: int) -> None:
    orders = {
        name: Orders(name, fleet.urls[name], seed=0, place=place, key=fleet.keys[name])
        for place, name in enumerate(NAMES)
    }
    first, *others = NAMES
    assert fleet.flower is not None
    nodes = [pid for part, pid in fleet.flower.processes.items() if part.startswith("supernode-")]

    def held(number: int) -> bool:
        looks = [orders[name].client.get("/v1/sync")["peers"][first]["release"] for name in others]
        return min(looks) >= number

    place_one(orders[first])
    until(lambda: held(1))
    carried, cpu = fleet.counter.bytes, sum(map(cpu_of, nodes))
    delays = []
    for number in range(2, releases + 2):
        start = time.perf_counter()
        place_one(orders[first])
        until(lambda number=number: held(number))  # type: ignore[misc]
        delays.append(time.perf_counter() - start)
    each = releases * len(NAMES)
    report.add("from a release until all others decide with it, median", float(np.median(delays)), "s")
    report.add("the longest", max(delays), "s")
    report.add(
        "bytes for each release and node, with TLS and polling", (fleet.counter.bytes - carried) / each, "B"
    )
    report.add("CPU for each release and node", (sum(map(cpu_of, nodes)) - cpu) / each, "s")


if __name__ == "__main__":
    main("flower", run, __doc__ or "")
