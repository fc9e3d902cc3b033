"""What a federation costs by its number of members, over a real nats-server with TLS and the permissions of
`federate init`: bytes and CPU of a member in a round, messages while nothing happens, and one reconnection.

All members are in one process, each with the thread and the connection of a service and without a database,
so the figures of CPU hold for this machine alone. With FEDFAIRX_BEFORE=PATH, the `src` folder of another
checkout, each figure is also measured with that version.
"""

from __future__ import annotations

import asyncio
import json
import os
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Sequence
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np

from fedfairx.agent.schedules import EveryRound
from fedfairx.errors import TransportUnavailable
from fedfairx.federation.roster.rounds import Rounds
from fedfairx.federation.roster.terms import Terms
from fedfairx.federation.setup.create import create_federation
from fedfairx.federation.setup.member_folder import MemberFolder
from fedfairx.privacy import KeyedNoise, new_key
from measure import Report, main

KINDS = ("plain", "secure")
SIZES = (5, 20, 50, 100, 200)  # the last one takes ten minutes on two cores
ROUNDS = 3
FITTED = 20  # members from which on exponents are fitted: below, constant parts prevail
DIMENSION = 5
REWARDS = 64  # of each member before the first round: with fewer, members are also judged by each other
WARM_UP = 1  # rounds that are not counted
IDLE = 60.0  # seconds in which nothing happens
SETTLED = 40.0  # seconds before that
ROUND_TRIP = 0.02  # seconds between the member that reconnects and the hub
PATIENCE = 1200.0  # seconds for a round of all members
FIGURES = {
    "to hub": ("bytes to the hub, per member and round", "B"),
    "from hub": ("bytes from the hub, per member and round", "B"),
    "cpu": ("CPU per member and round", "ms"),
    "idle": ("idle: messages a minute, in total", ""),
    "idle bytes": ("idle: bytes a minute, in total", "B"),
    "idle cpu": ("idle: CPU per member and minute", "ms"),
    "again": ("one reconnection: messages", ""),
    "again time": (f"one reconnection at {1e3 * ROUND_TRIP:.0f} ms round trip: time", "ms"),
    "start": ("one start: messages until everything is here", ""),
    "start time": (f"one start at {1e3 * ROUND_TRIP:.0f} ms round trip: time", "ms"),
}


class Hub:
    """A real nats-server in a federation's folder, which counts what passes."""

    def __init__(self, folder: Path, port: int) -> None:
        self._monitor = free_port()
        command = ["nats-server", "-c", "nats-server.conf", "-a", "127.0.0.1", "-m", str(self._monitor)]
        quiet = subprocess.DEVNULL
        self._process = subprocess.Popen(command, cwd=folder, stdout=quiet, stderr=quiet)
        until(lambda: listens(port), 10.0)
        command = [sys.executable, "-m", "fedfairx", "federate", "bucket", str(folder)]
        subprocess.run(command, check=True, stdout=quiet)

    def passed(self) -> np.ndarray:
        """Bytes received and sent, and messages of both."""
        with urllib.request.urlopen(f"http://127.0.0.1:{self._monitor}/varz") as answer:
            now = json.load(answer)
        return np.array([now["in_bytes"], now["out_bytes"], now["in_msgs"] + now["out_msgs"]])

    def close(self) -> None:
        self._process.kill()
        self._process.wait()


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def listens(port: int) -> bool:
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def until(true: Callable[[], bool], seconds: float) -> float:
    """Wait until it is true; the seconds that it took."""
    start = time.monotonic()
    while not true():
        if time.monotonic() - start > seconds:
            raise TimeoutError(f"not within {seconds:g} s")
        time.sleep(0.002)
    return time.monotonic() - start


class Line:
    """A line to the hub that takes half of `ROUND_TRIP` each way, and can be cut."""

    def __init__(self, target: int) -> None:
        self.port, self._target = free_port(), target
        self.cut = False
        self._ends: set[asyncio.StreamWriter] = set()
        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()
        server = asyncio.start_server(self._connect, "127.0.0.1", self.port)
        asyncio.run_coroutine_threadsafe(server, self._loop).result()

    async def _connect(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        if self.cut:
            writer.transport.abort()
            return
        there = await asyncio.open_connection("127.0.0.1", self._target)
        self._ends |= {writer, there[1]}
        await asyncio.gather(self._pass(reader, there[1]), self._pass(there[0], writer))

    async def _pass(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter) -> None:
        try:
            while data := await reader.read(2**16):
                self._loop.call_later(ROUND_TRIP / 2, self._write, writer, data)
        except OSError:
            pass
        writer.transport.abort()

    def _write(self, writer: asyncio.StreamWriter, data: bytes) -> None:
        if not writer.is_closing():
            writer.write(data)

    def break_off(self) -> None:
        def work() -> None:
            self.cut = True
            for each in self._ends:
                each.transport.abort()
            self._ends.clear()

        self._loop.call_soon_threadsafe(work)


class Crowd:
    """All members of a federation, in this process; the first one is behind a `Line`."""

    def __init__(self, base: Path, kind: str, count: int, rounds: int) -> None:
        self.names = [f"a{number:03d}" for number in range(count)]
        port = free_port()
        secure = kind == "secure"
        create_federation(
            base, terms_of(kind, count, rounds), dict.fromkeys(self.names), port=port, confirm=secure
        )
        self.base, self.hub, self.line = base, Hub(base / "hub", port), Line(port)
        settings = base / self.names[0] / "fedfairx.toml"
        settings.write_text(settings.read_text().replace(f":{port}", f":{self.line.port}"))
        self.secure, self.now = secure, 0.0
        self.shift = dict.fromkeys(self.names, 0.0)  # seconds that a member's clock is ahead
        self.contexts = np.full((2, DIMENSION), 0.1)
        self.members = {name: self._member(base / name) for name in self.names}
        self.behind, self.number = set(self.names), 0
        self.stops = [
            each.watch(after=partial(self._note, name, each)) for name, each in self.members.items()
        ]

    def _member(self, folder: Path) -> Any:
        place = MemberFolder.read(folder)
        noise = KeyedNoise(new_key(), agent=place.name, run="benchmark")
        agent = place.roster.terms.agent(place.name, noise=noise)
        for _ in range(REWARDS):
            agent.observe(agent.decide(self.contexts), reward=0.5)
        each: Any = place.member(agent)
        each.clock = lambda: self.now + self.shift[place.name]
        return each

    def _note(self, name: str, each: Any) -> None:
        if name in self.behind and self._has(each):
            self.behind.discard(name)

    def _has(self, each: Any) -> bool:
        """Whether a member has everybody's release of this round, or its total."""
        if self.secure:
            return bool(each.progress.opened >= self.number)
        held = each.agent.held
        return len(held) == len(self.names) and all(one.number >= self.number for one in held.values())

    def rounds(self, count: int) -> dict[str, float]:
        """Cost of some rounds, of each and for each member."""
        for _ in range(WARM_UP):
            self.round()
        before, used = self.hub.passed(), time.process_time()
        for _ in range(count):
            self.round()
        used, passed = time.process_time() - used, self.hub.passed() - before
        shared = count * len(self.names)
        return {"to hub": passed[0] / shared, "from hub": passed[1] / shared, "cpu": 1e3 * used / shared}

    def round(self) -> None:
        self.number += 1
        self.behind, self.now = set(self.names), float(self.number)
        for each in self.members.values():
            each.agent.observe(each.agent.decide(self.contexts), reward=0.5)
            if not self.secure:
                each.agent.release()
            each.wake()
        until(lambda: not self.behind, PATIENCE)

    def begin(self) -> None:
        """Wait until all have seen each other's signs of life."""
        others = len(self.names) - 1
        until(lambda: all(len(each.signs.last) >= others for each in self.members.values()), PATIENCE)

    def idle(self) -> dict[str, float]:
        """Cost of `IDLE` seconds. Members' clocks differ, as if they had not started all at once."""
        start, rng = time.monotonic() - self.now, np.random.default_rng(0)
        for name in self.names:
            self.shift[name] = rng.uniform(0.0, max(30.0, len(self.names)))
        ended = threading.Event()

        def run() -> None:
            while not ended.wait(0.1):
                self.now = time.monotonic() - start

        thread = threading.Thread(target=run)
        thread.start()
        time.sleep(SETTLED)
        before, used = self.hub.passed(), time.process_time()
        time.sleep(IDLE)
        used, passed = time.process_time() - used, self.hub.passed() - before
        ended.set()
        thread.join()
        minutes = IDLE / 60.0
        return {
            "idle": passed[2] / minutes,
            "idle bytes": (passed[0] + passed[1]) / minutes,
            "idle cpu": 1e3 * used / minutes / len(self.names),
        }

    def reconnect(self) -> tuple[float, float]:
        """Cut the line while the last member sends something; messages and seconds until the first has it."""
        first, last = (self.members[name].transport for name in (self.names[0], self.names[-1]))
        key, message = f"{self.names[-1]}.alive", os.urandom(100)
        known = (reached(first) or {}).get(key)
        self.line.break_off()
        until(lambda: not reached(first), 30.0)
        until(lambda: published(last, key, message), 30.0)
        before, self.line.cut = self.hub.passed(), False
        # The last member may replace the message by its own sign of life meanwhile.
        seconds = until(lambda: (reached(first) or {}).get(key) not in (None, known), 60.0)
        time.sleep(0.5)
        return float((self.hub.passed() - before)[2]), seconds

    def restart(self) -> tuple[float, float]:
        """Connect a second time as the first member; messages and seconds until everything is here."""
        other = self.members[self.names[1]].transport
        until(lambda: bool(reached(other)), 30.0)
        whole, before = len(reached(other) or {}), self.hub.passed()
        end = MemberFolder.read(self.base / self.names[0]).transport()
        seconds = until(lambda: len(reached(end) or {}) >= whole, 60.0)
        time.sleep(0.5)
        passed = float((self.hub.passed() - before)[2])
        end.close()
        return passed, seconds

    def close(self) -> None:
        for stop in self.stops:
            stop()
        for each in self.members.values():
            each.close()
        self.hub.close()


def reached(transport: Any) -> dict[str, bytes] | None:
    try:
        found: dict[str, bytes] = transport.latest()
    except TransportUnavailable:
        return None
    return found


def published(transport: Any, key: str, message: bytes) -> bool:
    try:
        transport.publish(key, message, replacing=transport.latest().get(key))
    except TransportUnavailable:  # this machine may be too busy to answer in time
        return False
    return True


def terms_of(kind: str, count: int, rounds: int) -> Terms:
    shared: dict[str, Any] = {"dimension": DIMENSION, "agents": count, "horizon": 5000, "epsilon": 2.0}
    if kind == "plain":
        return Terms(schedule=EveryRound(), **shared)
    times = Rounds(begin=0, first=1, ratio=1, count=rounds + WARM_UP)
    return Terms(aggregation="secure", rounds=times, **shared)


def measure(kind: str, count: int, rounds: int) -> dict[str, float]:
    """All figures of one federation."""
    threading.stack_size(2**19)
    with tempfile.TemporaryDirectory() as folder:
        crowd = Crowd(Path(folder) / "federation", kind, count, rounds)
        try:
            crowd.begin()
            told = crowd.rounds(rounds)
            if kind == "plain":
                told |= crowd.idle()
                told["again"], told["again time"] = crowd.reconnect()
                told["start"], told["start time"] = crowd.restart()
                told["again time"] *= 1e3
                told["start time"] *= 1e3
        finally:
            crowd.close()
    return {name: float(value) for name, value in told.items()}


def measure_in(source: str | None, kind: str, count: int, rounds: int) -> dict[str, float]:
    """`measure` in a process of its own, with the package of another source folder if one is given."""
    environment = os.environ if source is None else {**os.environ, "PYTHONPATH": source}
    command = [sys.executable, __file__, "--measure", kind, str(count), str(rounds)]
    done = subprocess.run(command, env=environment, check=True, stdout=subprocess.PIPE, text=True)
    told: dict[str, float] = json.loads(done.stdout)
    return told


def exponent(sizes: Sequence[int], values: Sequence[float]) -> float:
    """The slope of a straight line through the logarithms."""
    return float(np.polyfit(np.log(sizes), np.log(values), 1)[0])


def run(report: Report) -> None:
    if shutil.which("nats-server") is None:
        report.note("there is no nats-server here: nothing was measured")
        return
    before = os.environ.get("FEDFAIRX_BEFORE")
    sources = {"": None} | ({} if before is None else {"before: ": before})
    for kind in KINDS:
        found: dict[str, dict[int, float]] = {}
        for count in SIZES[:2] if report.quick else SIZES:
            report.heading(f"{count} members, {kind}, d={DIMENSION}, {ROUNDS} rounds")
            for name, source in sources.items():
                for key, value in measure_in(source, kind, count, ROUNDS).items():
                    text, unit = FIGURES[key]
                    report.add(name + text, value, unit)
                    found.setdefault(name + text, {})[count] = value
        report.heading(f"{kind}: exponents of the number of members, from {FITTED} on")
        for text, values in found.items():
            large = {count: value for count, value in values.items() if count >= FITTED}
            if len(large) > 1:
                report.add(text, exponent([*large], [*large.values()]), "")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--measure"]:
        print(json.dumps(measure(sys.argv[2], *map(int, sys.argv[3:]))))
    else:
        main("members", run, __doc__)
