"""What Flower costs as a transport: a real SuperLink, SuperNodes with TLS and node authentication, services.

Flower must be on the path (`PATH=.venv-flower/bin:$PATH`, after `make flower`).
"""

from __future__ import annotations

import os
import socket
import tempfile
import threading
import time
from collections.abc import Callable
from contextlib import ExitStack
from pathlib import Path

import numpy as np

from fedfairx.client import Client
from fedfairx.commands.federate_flower import key_of, serve
from fedfairx.errors import InvalidInput
from fedfairx.federation.founding import found
from fedfairx.federation.schedules import EveryRound
from fedfairx.federation.terms import Terms
from fedfairx.federation.transport.flower.running import Flower, find_commands
from fedfairx.storage.guest import open_keys
from measure import Report, main

NAMES, DIMENSION, GAP = ("org1", "org2", "org3"), 5, 1.0
TICKS = os.sysconf("SC_CLK_TCK")


class Counter:
    """A proxy that knows nothing of what it passes on but how much it is."""

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


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def cpu_of(group: int) -> float:
    """CPU seconds of a process group, of those in it that have ended too."""
    total = 0
    for path in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = path.read_text().rpartition(")")[2].split()
        except OSError:  # it has ended just now
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
    try:
        commands = find_commands()
    except InvalidInput as error:
        report.note(f"left out: {error}")
        return
    report.heading(
        f"Flower between {len(NAMES)} agents' services, d={DIMENSION}, rounds {GAP:g} s apart, one machine"
    )
    with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
        base, port = Path(folder) / "federation", free_port()
        terms = Terms(dimension=DIMENSION, agents=3, horizon=1000, schedule=EveryRound(), epsilon=2.0)
        found(base, terms, dict.fromkeys(NAMES), hosts=["127.0.0.1"], port=port, transport="flower")
        clients, services = {}, {}
        for name in NAMES:
            url, key = serve(stack, base / name), key_of(base / name)
            services[name] = url, key
            with open_keys(base / name / "data" / "agent.sqlite") as keys:
                clients[name] = stack.enter_context(Client(url, key=keys.add("benchmark", "writer")))
        counter, began = Counter(port), time.perf_counter()
        flower = Flower(base, services, commands=commands, port=port, gap=GAP, door=counter.port)
        stack.enter_context(flower)
        report.add("until all of it is started", time.perf_counter() - began, "s")
        measure(report, clients, flower, counter, releases=4 if report.quick else 12)


def measure(
    report: Report, clients: dict[str, Client], flower: Flower, counter: Counter, *, releases: int
) -> None:
    first, *others = NAMES
    contexts = np.full((2, DIMENSION), 0.1).tolist()

    def held(number: int) -> bool:
        return all(clients[name].get("/v1/sync")["peers"][first]["release"] >= number for name in others)

    def release() -> None:
        clients[first].observe(clients[first].decide(contexts), reward=0.5)

    release()
    until(lambda: held(1))
    nodes = [pid for part, pid in flower.processes.items() if part.startswith("supernode-")]
    carried, cpu, began = counter.bytes, sum(map(cpu_of, nodes)), time.perf_counter()
    delays = []
    for number in range(2, releases + 2):
        start = time.perf_counter()
        release()
        until(lambda number=number: held(number))  # type: ignore[misc]
        delays.append(time.perf_counter() - start)
    seconds = time.perf_counter() - began
    report.add("from a release until all others decide with it, median", float(np.median(delays)), "s")
    report.add("longest", max(delays), "s")
    report.add("releases, one after the other", releases, "")
    report.add("bytes for each release and node, with TLS and polling",
               (counter.bytes - carried) / releases / len(NAMES), "B")  # fmt: skip
    used = sum(map(cpu_of, nodes)) - cpu
    report.add("CPU for each release and node", used / releases / len(NAMES), "s")
    report.add("all of it took", seconds, "s")


if __name__ == "__main__":
    main("flower", run, __doc__ or "")
