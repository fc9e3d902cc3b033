"""The cost of a federation: an envelope, delivery (also compared with a bare message), secure aggregation
beside the plain exchange, in memory and over NATS with TLS, fifty agents.
"""

from __future__ import annotations

import asyncio
import json
import multiprocessing
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
import urllib.request
from collections.abc import Callable, Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager
from functools import cache, partial
from pathlib import Path
from typing import Any

import numpy as np

from fedfairx.agent.schedules import EveryRound
from fedfairx.federation.aggregation.records import MemoryStore
from fedfairx.federation.exchange.envelope import SignedCodec
from fedfairx.federation.exchange.member import Member
from fedfairx.federation.exchange.secure_member import SecureMember
from fedfairx.federation.roster.roster import Roster, create_roster
from fedfairx.federation.roster.rounds import Rounds
from fedfairx.federation.roster.signing_keys import SigningKey, new_signing_key
from fedfairx.federation.roster.terms import Terms
from fedfairx.federation.setup.create import create_federation
from fedfairx.federation.setup.member_folder import MemberFolder
from fedfairx.federation.transport import MemoryTransport, SqliteTransport, Transport
from fedfairx.federation.transport.protocol import PARTIAL, aggregation_key, row_key
from fedfairx.privacy import KeyedNoise, Release, new_key
from measure import Contestant, Report, main, race

MEMBERS, DIMENSION = 10, 20  # when compared with bare messages
AGENTS, PROCESSES = 50, 5
SIZES = ((10, 20), (10, 50), (50, 20), (50, 50))  # members and dimension, with secure aggregation
REWARDS = 64  # of each member before the first round: with fewer, members are also judged by each other
WARM_UP = 2  # rounds that are not counted
LOOK = 0.1  # seconds between two receives of one of fifty agents


def convened(names: Sequence[str], dimension: int) -> tuple[Roster, dict[str, SigningKey]]:
    terms = Terms(dimension=dimension, agents=len(names), horizon=5000, schedule=EveryRound(), epsilon=2.0)
    keys = {name: new_signing_key() for name in names}
    return create_roster(new_signing_key(), terms, {name: key.public for name, key in keys.items()}), keys


def member(roster: Roster, name: str, key: SigningKey, transport: Transport, **agent: str) -> Member:
    noise = KeyedNoise(new_key(), agent=name, run="benchmark")
    return Member(roster.terms.agent(name, noise=noise, **agent), transport, SignedCodec(roster, name, key))


def observe(each: Member | SecureMember, contexts: np.ndarray, times: int = 1) -> None:
    for _ in range(times):
        each.agent.observe(each.agent.decide(contexts), reward=0.5)


# --- envelopes ---------------------------------------------------------------------------------------------


def envelopes(report: Report, *, turns: int) -> None:
    for dimension in (5, 50):
        report.heading(f"An envelope at d={dimension}")
        roster, keys = convened(["a", "b"], dimension)
        sender = member(roster, "a", keys["a"], MemoryTransport())
        observe(sender, np.full((2, dimension), 0.1))
        release = sender.agent.release()
        pen, ear = SignedCodec(roster, "a", keys["a"]), SignedCodec(roster, "b", keys["b"])
        message = pen.close(release)
        report.add("bytes of a release on its way", len(message), "B")

        def sign(pen: SignedCodec = pen, release: Release = release) -> None:
            for _ in range(20):
                pen.close(release)

        def verify(ear: SignedCodec = ear, message: bytes = message) -> None:
            for _ in range(20):
                ear.open("a", message)

        times = race({"sign": Contestant(sign, 20), "open": Contestant(verify, 20)}, turns=turns)
        report.time("sign it", times["sign"])
        report.time("verify it: signature, size, mechanism, plausible statistics", times["open"])


# --- delivery -----------------------------------------------------------------------------------------------


def ways(report: Report, *, releases: int) -> None:
    names, dimension = [f"a{i}" for i in range(5)], 5
    report.heading(
        f"From a release until all {len(names) - 1} others decide with it, d={dimension}, on one machine"
    )
    for kind in ("memory", "sqlite", "nats"):
        roster, keys = convened(names, dimension)
        with tempfile.TemporaryDirectory() as folder, transports(kind, Path(folder), roster, names) as ends:
            if ends is None:
                report.note("there is no nats-server here: nats is left out")
                continue
            members = [member(roster, name, keys[name], end) for name, end in zip(names, ends, strict=True)]
            delays = np.array([_delay(members, number) for number in range(1, releases + 1)][2:])
        report.add(f"{kind}, median", 1e3 * float(np.median(delays)), "ms")
        report.add(f"{kind}, 99 of 100", 1e3 * float(np.quantile(delays, 0.99)), "ms")


def _delay(members: Sequence[Member], number: int) -> float:
    """Seconds from the first member's `release` to the last `absorb` of the others."""
    first, *others = members
    observe(first, np.full((2, first.agent.dimension), 0.1))
    news = threading.Event()
    stops = [each.transport.watch(news.set) for each in others]
    start = time.perf_counter()
    first.send(first.agent.release())
    behind = list(others)
    while behind:
        news.wait(0.5)
        news.clear()
        for each in behind:
            each.receive()
        behind = [each for each in behind if each.agent.held[first.agent.name].number < number]
    done = time.perf_counter() - start
    for stop in stops:
        stop()
    return done


@contextmanager
def transports(
    kind: str, folder: Path, roster: Roster, names: Sequence[str]
) -> Iterator[list[Transport] | None]:
    """One endpoint of a transport for each name; None if there is no server."""
    if kind == "memory":
        shared = MemoryTransport()
        yield [shared for _ in names]
        return
    ends: list[Transport] = []
    server = hub(folder, roster) if kind == "nats" else None
    if kind == "nats" and server is None:
        yield None
        return
    try:
        for name in names:
            if server is None:
                ends.append(SqliteTransport(folder / "transport.sqlite", poll=0.005))
            else:
                from fedfairx.federation.transport.nats import NatsTransport

                ends.append(NatsTransport(server[0], federation=roster.federation, agent=name))
        yield ends
    finally:
        for end in ends:
            end.close()
        if server is not None:
            server[1].kill()
            server[1].wait()


def hub(folder: Path, roster: Roster) -> tuple[str, subprocess.Popen[bytes]] | None:
    binary = shutil.which("nats-server")
    if binary is None:
        return None
    port = free_port()
    command = [binary, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder / "store")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    await_port(port)
    from fedfairx.federation.transport.nats import make_bucket

    url = f"nats://127.0.0.1:{port}"
    make_bucket(url, federation=roster.federation)
    return url, process


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def await_port(port: int) -> None:
    """Wait until a server listens."""
    for _ in range(500):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.01)


# --- against a bare message --------------------------------------------------------------------------------


def reach(report: Report, *, turns: int) -> None:
    """Each member in turn sends a release, and then as many bytes by a bare publish."""
    names = [f"a{i}" for i in range(MEMBERS)]
    roster, keys = convened(names, DIMENSION)
    for rate in (10, 50):
        for partners in ("alike", "differ"):
            report.heading(
                f"{MEMBERS} members, a process each, d={DIMENSION}, partners={partners!r}, {rate} releases a "
                "second in all"
            )
            told = at_hub("--reach", roster, keys, partners, turns, 1.0 / rate)
            if told is None:
                report.note("there is no nats-server here: left out")
                return
            ours, bare = (1e3 * last_of(told, kind) for kind in ("release", "bare"))
            for name, delays in (
                (f"from a release until all {MEMBERS - 1} others decide with it", ours),
                (f"from a bare publish until all {MEMBERS - 1} others have received it", bare),
            ):
                report.add(f"{name}: median", float(np.median(delays)), "ms")
                report.add("  99 of 100", float(np.quantile(delays, 0.99)), "ms")
            report.ratio("ours ÷ bare, turn by turn", ours / bare, at_most=10.0)
            report.add("99 of 100 of ours ÷ 99 of 100 of bare", _ninety_nine(ours) / _ninety_nine(bare), "×")
            busy = 1e3 * max(each["thread"] for each in told)
            report.add("CPU of an exchanging thread in each second, the busiest", busy, "ms", at_most=200.0)
            report.add("refused", sum(each["refused"] for each in told), "", at_most=0)


def _ninety_nine(delays: np.ndarray) -> float:
    return float(np.quantile(delays, 0.99))


def last_of(told: Sequence[dict[str, Any]], kind: str) -> np.ndarray:
    """Seconds per turn until the last of the others had it."""
    sent = {turn: when for each in told for turn, when in each[f"{kind} sent"]}
    come: dict[int, list[float]] = {turn: [] for turn in sent}
    for each in told:
        for turn, when in each[f"{kind} come"]:
            come[turn].append(when - sent[turn])
    assert all(len(delays) == MEMBERS - 1 for delays in come.values()), f"a {kind} is missing"
    return np.array([max(come[turn]) for turn in sorted(come)[2 * MEMBERS :]])  # after the warm-up


def at_hub(what: str, roster: Roster, keys: dict[str, SigningKey], *more: object) -> Any:
    """Run function `what` of this file with a new hub and return its output; None if there is no server."""
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        server = hub(base, roster)
        if server is None:
            return None
        try:
            roster.write(base / "roster.json")
            for name, key in keys.items():
                key.write(base / f"{name}.key")
            command = [sys.executable, __file__, what, folder, server[0], *map(str, more)]
            return json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        finally:
            server[1].kill()
            server[1].wait()


def reach_of(folder: str, url: str, partners: str, turns: int, gap: float) -> None:
    """Run each member in its own process, forked, since importing takes seconds."""
    warm(read_roster(folder), list(keys_in(folder))[:3], partners=partners, decide_from="own+released")
    forked("reach_part", MEMBERS, folder, url, partners, turns, gap)


def reach_part(part: int, folder: str, url: str, partners: str, turns: int, gap: float) -> Any:
    """Run one member as a service does: a thread exchanges, and a release wakes it."""
    from fedfairx.federation.transport.nats import NatsTransport

    roster = read_roster(folder)
    names = [name for name, _ in keys_in(folder)]
    name, key = list(keys_in(folder))[part]
    end = NatsTransport(url, federation=roster.federation, agent=name)
    each = member(roster, name, key, end, partners=partners, decide_from="own+released")
    rng = np.random.default_rng(part)
    contexts = rng.random((5, DIMENSION)) / np.sqrt(DIMENSION)
    for _ in range(30):
        observe(each, contexts)
    told: dict[str, Any] = {f"{kind} {when}": [] for kind in ("release", "bare") for when in ("sent", "come")}
    held: dict[str, int] = {}

    def after() -> None:
        """Release number k of member i belongs to turn (k - 1) MEMBERS + i."""
        now = time.monotonic()
        for sender, release in each.agent.held.items():
            for number in range(held.get(sender, 0) + 1, release.number + 1):
                if sender != name:
                    told["release come"].append(((number - 1) * MEMBERS + names.index(sender), now))
            held[sender] = release.number

    bare = Bare(url, lambda turn: told["bare come"].append((turn, time.monotonic())))
    end.latest()
    stop = each.watch(after=after)
    (thread,) = (one for one in threading.enumerate() if one.name == f"fedfairx-{name}")
    TOGETHER.wait()  # type: ignore[name-defined]  # noqa: F821
    start = time.monotonic() + 0.5
    for turn in range(part, turns, MEMBERS):
        at = start + gap * (2 * turn - part + 0.2 * rng.random())  # all releases, then all bare messages
        time.sleep(max(0.0, at - time.monotonic()))
        observe(each, contexts)
        told["release sent"].append((turn, time.monotonic()))
        each.agent.release()
        each.wake()
        time.sleep(max(0.0, at + gap * MEMBERS - time.monotonic()))
        told["bare sent"].append((turn, time.monotonic()))
        bare.publish(turn, len(each.message or b""))
    used = time.clock_gettime(time.pthread_getcpuclockid(thread.ident or 0)) / (gap * turns)
    time.sleep(max(0.0, start + 2 * gap * turns + 1.0 - time.monotonic()))
    TOGETHER.wait()  # type: ignore[name-defined]  # noqa: F821
    stop()
    end.close()
    told["bare come"] = [(turn, when) for turn, when in told["bare come"] if turn % MEMBERS != part]
    return told | {"thread": used, "refused": sum(each.refusals.values())}


class Bare:
    """Send and receive bare messages with NATS' own client."""

    def __init__(self, url: str, come: Callable[[int], None]) -> None:
        import nats

        self._loop = asyncio.new_event_loop()
        threading.Thread(target=self._loop.run_forever, daemon=True).start()

        async def told(message: Any) -> None:
            come(int.from_bytes(message.data[:8], "little"))

        async def connect() -> Any:
            client = await nats.connect(url)
            await client.subscribe("bare", cb=told)
            await client.flush()
            return client

        self._client = asyncio.run_coroutine_threadsafe(connect(), self._loop).result()

    def publish(self, turn: int, size: int) -> None:
        async def work() -> None:
            await self._client.publish("bare", turn.to_bytes(8, "little").ljust(size, b"."))
            await self._client.flush()

        asyncio.run_coroutine_threadsafe(work(), self._loop).result()


# --- fifty agents ------------------------------------------------------------------------------------------


def crowd(report: Report, *, seconds: int) -> None:
    report.heading(f"{AGENTS} agents at d=50 over nats, each with a release each second, for {seconds} s")
    names = [f"a{i}" for i in range(AGENTS)]
    told = at_hub("--crowd", *convened(names, 50), seconds)
    if told is None:
        report.note("there is no nats-server here: left out")
        return
    sent = {tuple(key): when for each in told for key, when in each["sent"]}
    delays = np.array([when - sent[who, k] for each in told for who, k, when in each["taken"]])
    wanted = AGENTS * seconds
    report.add("releases published", len(sent), "", at_least=wanted)
    share = 100.0 * len(delays) / (len(sent) * (AGENTS - 1))
    report.add("taken by each of the others, not replaced by a later one before", share, "%")
    report.add("from release to the others' decisions, median", 1e3 * float(np.median(delays)), "ms")
    report.add("99 of 100", 1e3 * float(np.quantile(delays, 0.99)), "ms", at_most=1000.0)
    report.add("the last release, behind its time", max(each["late"] for each in told), "s", at_most=1.0)
    used = sum(each["used"] for each in told)
    report.add("CPU of an agent in each second", 1e3 * used / (AGENTS * seconds), "ms")
    report.add("refused", sum(each["refused"] for each in told), "", at_most=0)
    report.add(
        "agents that end with everybody's last release",
        sum(each["whole"] for each in told),
        "",
        at_least=AGENTS,
    )


def crowd_of(folder: str, url: str, seconds: int) -> None:
    """Run all agents in a few processes, forked, since importing takes seconds."""
    warm(read_roster(folder), list(keys_in(folder))[:2])
    forked("crowd_part", PROCESSES, folder, url, seconds)


def forked(part: str, count: int, *arguments: object) -> None:
    """Print the results of a function of this file for each part, each in its own process."""
    processes = multiprocessing.get_context("fork")
    together = processes.Barrier(count)
    with processes.Pool(count, initializer=globals().__setitem__, initargs=("TOGETHER", together)) as pool:
        tasks = [(number, *arguments) for number in range(count)]
        print(json.dumps(pool.starmap(globals()[part], tasks, chunksize=1)))


def warm(roster: Roster, keys: Sequence[tuple[str, SigningKey]], **agent: str) -> None:
    """Compile and load everything before forking."""
    transport = MemoryTransport()
    members = [member(roster, name, key, transport, **agent) for name, key in keys]
    for _ in range(2):
        for each in members:
            observe(each, np.full((4, roster.terms.dimension), 0.1))
            each.send(each.agent.release())
        for each in members:
            each.receive()


@cache
def read_roster(folder: str) -> Roster:
    """Read the roster once, before forking: calibrating its mechanism is slow."""
    return Roster.read(Path(folder) / "roster.json")


def keys_in(folder: str) -> Iterator[tuple[str, SigningKey]]:
    for path in sorted(Path(folder).glob("*.key")):
        yield path.stem, SigningKey.read(path)


def crowd_part(part: int, folder: str, url: str, seconds: int) -> Any:
    """Run some of the agents. Each sends on time, whatever the others do, and receives every LOOK seconds."""
    from fedfairx.federation.transport.nats import NatsTransport

    roster = read_roster(folder)
    members = []
    for name, key in list(keys_in(folder))[part::PROCESSES]:
        end = NatsTransport(url, federation=roster.federation, agent=name, deadline=30.0)
        members.append(member(roster, name, key, end))
    contexts = np.random.default_rng(0).random((4, 50)) / np.sqrt(50)
    sent: list[tuple[tuple[str, int], float]] = []
    taken: list[tuple[str, int, float]] = []
    looked = dict.fromkeys(members, 0.0)

    def look_around(until: float) -> None:
        while (now := time.time()) < until:
            each = min(looked, key=looked.__getitem__)
            time.sleep(max(0.0, min(until, looked[each] + LOOK) - now))
            looked[each] = time.time()
            for sender in each.receive():
                taken.append((sender, each.agent.held[sender].number, time.time()))

    for each in members:
        each.exchange()
    TOGETHER.wait()  # type: ignore[name-defined]  # noqa: F821
    start, used = time.time() + part / AGENTS, time.process_time()
    with ThreadPoolExecutor(len(members)) as posts:
        for second in range(seconds):
            for place, each in enumerate(members):
                look_around(start + second + place / len(members))
                observe(each, contexts)
                sent.append(((each.agent.name, second + 1), time.time()))
                posts.submit(each.send, each.agent.release())
        used, late = time.process_time() - used, time.time() - start - seconds
    ends, whole = time.time() + 60.0, 0
    while time.time() < ends and whole < len(members):
        time.sleep(0.1)
        for each in members:
            each.exchange()
        whole = sum(
            all(peer.release == seconds for peer in each.peers.values()) and len(each.peers) == AGENTS - 1
            for each in members
        )
    TOGETHER.wait()  # type: ignore[name-defined]  # noqa: F821
    for each in members:
        each.transport.close()
    refused = sum(sum(each.refusals.values()) for each in members)
    return {"sent": sent, "taken": taken, "refused": refused, "whole": whole, "late": late, "used": used}


# --- secure aggregation -------------------------------------------------------------------------------------


def secure(report: Report, *, rounds: int) -> None:
    """A round of all members by turns: everybody's releases seen, or only their sum."""
    for count, dimension in SIZES:
        names = [f"a{i:02d}" for i in range(count)]
        plain, sums = PlainRounds(names, dimension), SecureRounds(names, dimension, rounds=rounds + 2)
        colluding = sums.roster.terms.options.colluding
        report.heading(
            f"A round of {count} members, of whom {colluding} may collude, d={dimension}, in memory"
        )
        for each in (plain, sums):  # accept the roster, load code
            for _ in range(2):
                each.round()
        used: dict[object, list[float]] = {plain: [], sums: []}
        for _ in range(rounds):
            for each, times in used.items():
                began = time.process_time()
                each.round()  # type: ignore[attr-defined]
                times.append((time.process_time() - began) / count)
        first, second = (np.array(used[each]) for each in (plain, sums))
        report.add("plain: CPU of a member", 1e3 * float(np.median(first)), "ms")
        report.add("secure: CPU of a member", 1e3 * float(np.median(second)), "ms")
        report.ratio("secure ÷ plain", second / first)
        report.add("plain: bytes of a member", plain.sent, "B")
        report.add("secure: bytes of a member", sums.sent(), "B")
        report.add("secure: bytes of an opener's part of the sum", sums.sent(PARTIAL), "B")
        report.add(
            "secure: CPU of all members from the last row to everybody's total", 1e3 * sums.delay(), "ms"
        )


class PlainRounds:
    """Members that see each other's releases."""

    def __init__(self, names: Sequence[str], dimension: int) -> None:
        roster, keys = convened(names, dimension)
        transport = MemoryTransport()
        self.members = [member(roster, name, keys[name], transport) for name in names]
        self.contexts = np.full((2, dimension), 0.1)
        for each in self.members:
            observe(each, self.contexts, REWARDS)

    def round(self) -> None:
        for each in self.members:
            observe(each, self.contexts)
            each.send(each.agent.release())
        for each in self.members:
            each.receive()

    @property
    def sent(self) -> int:
        return len(self.members[0].message or b"")


class SecureRounds:
    """Members that see only the sum of their rows."""

    def __init__(self, names: Sequence[str], dimension: int, *, rounds: int) -> None:
        self.clock, self.transport, self.number = 0.0, MemoryTransport(), 0
        times = Rounds(begin=0, first=1, ratio=1, count=rounds + 1)
        keys = {name: new_signing_key() for name in names}
        terms = Terms(
            dimension=dimension,
            agents=len(names),
            horizon=5000,
            epsilon=2.0,
            aggregation="secure",
            rounds=times,
        )
        publics = {name: key.public for name, key in keys.items()}
        self.roster = create_roster(new_signing_key(), terms, publics)
        self.members = [
            SecureMember(
                terms.agent(name, noise=KeyedNoise(new_key(), agent=name, run="benchmark")),
                self.transport,
                SignedCodec(self.roster, name, key),
                key,
                confirmed=lambda: publics,
                vault=MemoryStore(),
                clock=lambda: self.clock,
            )
            for name, key in keys.items()
        ]
        self.contexts = np.full((2, dimension), 0.1)
        for each in self.members:
            observe(each, self.contexts, REWARDS)

    def round(self) -> None:
        self.begin()
        self.exchange(self.members)
        self.finish()

    def begin(self) -> None:
        self.number += 1
        self.clock = float(self.number)
        for each in self.members:
            observe(each, self.contexts)

    def exchange(self, members: Sequence[SecureMember]) -> None:
        for each in members:
            each.exchange()
            each.show_life()

    def finish(self) -> None:
        while any(each.progress.opened < self.number for each in self.members):
            self.exchange(self.members)

    def delay(self) -> float:
        """CPU seconds from the last member's row until all have the total."""
        self.begin()
        self.exchange(self.members[:-1])
        began = time.process_time()
        self.exchange(self.members[-1:])
        self.finish()
        return time.process_time() - began

    def sent(self, kind: str = "") -> int:
        """Bytes of a member's message of this kind; by default of its row for all openers."""
        held, name = self.transport.latest(), self.members[0].agent.name
        if kind:
            return len(held[aggregation_key(name, kind)])
        return sum(len(held[row_key(name, opener)]) for opener in self.roster.openers)


# --- rounds over NATS with TLS ------------------------------------------------------------------------------


def rounds(report: Report, *, sizes: Sequence[tuple[int, int]] = SIZES, turns: int) -> None:
    """A round of all members by turns, over one hub for each kind: everybody's releases, or only their sum.

    All members but one send, and are heard by all. Then the last one does.
    """
    for count, dimension in sizes:
        names = [f"a{i:02d}" for i in range(count)]
        report.heading(
            f"A round of {count} members over nats with TLS, d={dimension}: {PROCESSES} processes, "
            f"{count // PROCESSES} members in each, databases on disk"
        )
        with tempfile.TemporaryDirectory() as folder, ExitStack() as stack:
            monitors = {}
            for kind in ("plain", "secure"):
                base = Path(folder) / kind
                port, monitors[kind] = free_port(), free_port()
                terms = round_terms(kind, count, dimension, turns=turns)
                create_federation(base, terms, dict.fromkeys(names), port=port, confirm=kind == "secure")
                process = tls_hub(base / "hub", port, monitors[kind])
                if process is None:
                    report.note("there is no nats-server here: left out")
                    return
                stack.callback(process.wait)
                stack.callback(process.kill)
            command = [sys.executable, __file__, "--rounds", folder, *map(str, monitors.values()), str(turns)]
            told = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        tell_rounds(report, told, count)


def tell_rounds(report: Report, told: Sequence[dict[str, Any]], count: int) -> None:
    delays, used = {}, {}
    for kind in ("plain", "secure"):
        (sent,) = (each[kind]["sent"] for each in told if each[kind]["sent"])
        done = np.max([each[kind]["done"] for each in told], axis=0)
        delays[kind] = 1e3 * (done - np.array(sent))[WARM_UP:]
        used[kind] = 1e3 * np.sum([each[kind]["used"] for each in told], axis=0)[WARM_UP:] / count
        report.add(f"{kind}: last message to all having everything", float(np.median(delays[kind])), "ms")
    report.ratio("  secure ÷ plain", delays["secure"] / delays["plain"])
    for kind, times in used.items():
        report.add(f"{kind}: CPU of a member", float(np.median(times)), "ms")
    report.ratio("  secure ÷ plain", used["secure"] / used["plain"])
    for kind in ("plain", "secure"):
        (passed,) = (np.array(each[kind]["passed"]) for each in told if each[kind]["passed"])
        come, gone = np.median(np.diff(passed, axis=0)[WARM_UP:], axis=0) / count
        report.add(f"{kind}: bytes that the hub gets from a member", float(come), "B")
        report.add(f"{kind}: bytes that the hub sends to a member", float(gone), "B")


def round_terms(kind: str, count: int, dimension: int, *, turns: int) -> Terms:
    if kind == "plain":
        return Terms(dimension=dimension, agents=count, horizon=5000, schedule=EveryRound(), epsilon=2.0)
    times = Rounds(begin=0, first=1, ratio=1, count=turns + WARM_UP)
    return Terms(
        dimension=dimension, agents=count, horizon=5000, epsilon=2.0, aggregation="secure", rounds=times
    )


def tls_hub(folder: Path, port: int, monitor: int) -> subprocess.Popen[bytes] | None:
    """The hub of a federation's folder, which counts bytes at `monitor`; None if there is no server."""
    binary = shutil.which("nats-server")
    if binary is None:
        return None
    command = [binary, "-c", "nats-server.conf", "-a", "127.0.0.1", "-m", str(monitor)]
    quiet = {"stdout": subprocess.DEVNULL, "stderr": subprocess.DEVNULL}
    process = subprocess.Popen(command, cwd=folder, **quiet)  # type: ignore[call-overload]
    await_port(port)
    from fedfairx.federation.transport.nats import make_bucket

    place = MemberFolder.read(folder)
    rows = place.roster.terms.secure
    make_bucket(place.servers, federation=place.roster.federation, tls=place.tls, rows=rows)
    return process  # type: ignore[no-any-return]


def rounds_of(folder: str, *more: object) -> None:
    """Run all members in a few processes, forked, since importing takes seconds."""
    for kind in ("plain", "secure"):
        terms = MemberFolder.read(Path(folder) / kind / "a00").roster.terms
        _ = terms.limits  # calibrated once for all
        warm_agent = terms.agent("warm", noise=KeyedNoise(new_key(), agent="warm", run="benchmark"))
        warm_agent.observe(warm_agent.decide(np.full((2, terms.dimension), 0.1)), reward=0.5)
        warm_agent.release()
    forked("rounds_part", PROCESSES, folder, *more)


def rounds_part(part: int, folder: str, plain: int, secure: int, turns: int) -> Any:
    """Run some of the members of both kinds, each with the thread of a service."""
    monitors = {"plain": plain, "secure": secure}
    kinds = {kind: RoundsPart(Path(folder) / kind, part) for kind in monitors}
    told: dict[str, Any] = {}
    for kind in kinds:
        told[kind] = {"sent": [], "done": [], "used": [], "passed": []}
    for number in range(1, turns + WARM_UP + 1):
        order = [*kinds] if number % 2 else [*reversed(kinds)]
        for kind in order:
            if part == 0:
                told[kind]["passed"].append(bytes_at(monitors[kind]))
            TOGETHER.wait()  # type: ignore[name-defined]  # noqa: F821
            began = time.process_time()
            kinds[kind].most_send(number)
            TOGETHER.wait()  # type: ignore[name-defined]  # noqa: F821
            told[kind]["done"].append(kinds[kind].last_sends(number))
            TOGETHER.wait()  # type: ignore[name-defined]  # noqa: F821
            told[kind]["used"].append(time.process_time() - began)
    for kind, members in kinds.items():
        if part == 0:
            told[kind]["passed"].append(bytes_at(monitors[kind]))
        told[kind]["sent"] = [*members.sent.values()]
    TOGETHER.wait()  # type: ignore[name-defined]  # noqa: F821
    for members in kinds.values():
        members.close()
    return told


def bytes_at(monitor: int) -> tuple[int, int]:
    """The bytes of all messages that a hub has received and sent."""
    with urllib.request.urlopen(f"http://127.0.0.1:{monitor}/varz") as answer:
        now = json.load(answer)
    return now["in_bytes"], now["out_bytes"]


class RoundsPart:
    """Some members of a federation, in this process. `sent`: when the last member began to send, by round."""

    def __init__(self, base: Path, part: int) -> None:
        names = [*MemberFolder.read(base / "a00").roster.members]
        self.last, self.names = names[-1], names
        self.clocks = dict.fromkeys(names[part::PROCESSES], 0.0)
        self.sent: dict[float, float] = {}
        self.done: dict[str, float] = {}
        self.changed = threading.Condition()
        self.members = {name: self._member(base / name) for name in self.clocks}
        self.contexts = np.full((2, next(iter(self.members.values())).agent.dimension), 0.1)
        for each in self.members.values():
            observe(each, self.contexts, REWARDS)
        self.stops = [
            each.watch(every=60.0, after=partial(self._note, name)) for name, each in self.members.items()
        ]

    def _member(self, folder: Path) -> Member | SecureMember:
        place = MemberFolder.read(folder)
        each = place.member(place.roster.terms.open_agent(place.name, folder / "agent.sqlite"))
        each.clock = lambda: self.clocks[place.name]
        if place.name == self.last:
            real, own = each.transport.publish, {place.name}
            own |= {row_key(place.name, opener) for opener in place.roster.openers}

            def publish(agent: str, message: bytes, *, replacing: bytes | None) -> None:
                if agent in own:
                    self.sent.setdefault(self.clocks[place.name], time.monotonic())
                real(agent, message, replacing=replacing)

            each.transport.publish = publish  # type: ignore[method-assign]
        return each

    def _note(self, name: str) -> None:
        with self.changed:
            self.done[name] = time.monotonic()
            self.changed.notify()

    def most_send(self, number: int) -> None:
        """All but the last member send, and these have received each other's messages."""
        here = [name for name in self.members if name != self.last]
        self._send(number, here)
        self._await(here, lambda name: self._has(name, number, [*{*self.names} - {self.last}]))

    def last_sends(self, number: int) -> float:
        """The last member sends; when all members here had everything."""
        self._send(number, [name for name in self.members if name == self.last])
        return max(self._await([*self.members], lambda name: self._has(name, number, self.names)))

    def _send(self, number: int, names: Sequence[str]) -> None:
        for name in names:
            each = self.members[name]
            observe(each, self.contexts)
            self.clocks[name] = float(number)
            if isinstance(each, Member):
                each.agent.release()
            each.wake()

    def _has(self, name: str, number: int, senders: Sequence[str]) -> bool:
        each = self.members[name]
        if isinstance(each, SecureMember):
            # An opener waits for the last member's row. The others do not see rows.
            rows = each.progress.sent == number and each.progress.rows in ((), (self.last,))
            return each.progress.opened >= number if self.last in senders else rows
        held = each.agent.held
        return all(other in held and held[other].number >= number for other in senders)

    def _await(self, names: Sequence[str], has: Callable[[str], bool]) -> list[float]:
        """Wait until all of these members have it; when each of them had."""
        times: dict[str, float] = {}
        with self.changed:
            while True:
                times |= {name: self.done[name] for name in names if name not in times and has(name)}
                if len(times) == len(names):
                    return [*times.values()]
                if not self.changed.wait(60.0):
                    raise TimeoutError(f"{[*{*names} - {*times}]} wait: {self._why()}")

    def _why(self) -> list[object]:
        return [(each.away, getattr(each, "progress", None)) for each in self.members.values()]

    def close(self) -> None:
        for stop in self.stops:
            stop()
        for each in self.members.values():
            each.transport.close()
            each.agent.close()


def run(report: Report) -> None:
    quick = report.quick
    envelopes(report, turns=5 if quick else 21)
    ways(report, releases=30 if quick else 300)
    reach(report, turns=50 if quick else 500)
    secure(report, rounds=3 if quick else 20)
    rounds(report, sizes=SIZES[:1] if quick else SIZES, turns=3 if quick else 10)
    crowd(report, seconds=5 if quick else 60)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--crowd"]:
        crowd_of(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    elif sys.argv[1:2] == ["--reach"]:
        reach_of(sys.argv[2], sys.argv[3], sys.argv[4], int(sys.argv[5]), float(sys.argv[6]))
    elif sys.argv[1:2] == ["--rounds"]:
        rounds_of(sys.argv[2], *map(int, sys.argv[3:]))
    else:
        main("federation", run, __doc__)
