"""What a federation costs: an envelope, the way to the others by each transport, fifty agents on one hub."""

from __future__ import annotations

import json
import multiprocessing
import shutil
import socket
import subprocess
import sys
import tempfile
import threading
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import cache
from pathlib import Path
from typing import Any

import numpy as np

from fedfairx.federation.envelope import Signed
from fedfairx.federation.keys import SigningKey, new_signing_key
from fedfairx.federation.member import Member
from fedfairx.federation.roster import Roster, convene
from fedfairx.federation.schedules import EveryRound
from fedfairx.federation.terms import Terms
from fedfairx.federation.transport import MemoryTransport, SqliteTransport, Transport
from fedfairx.privacy import KeyedNoise, Release, new_key
from measure import Contestant, Report, main, race

AGENTS, PROCESSES = 50, 5
LOOK = 0.1  # seconds between two looks of an agent of a crowd


def convened(names: Sequence[str], dimension: int) -> tuple[Roster, dict[str, SigningKey]]:
    terms = Terms(dimension=dimension, agents=len(names), horizon=5000, schedule=EveryRound(), epsilon=2.0)
    keys = {name: new_signing_key() for name in names}
    return convene(new_signing_key(), terms, {name: key.public for name, key in keys.items()}), keys


def member(roster: Roster, name: str, key: SigningKey, transport: Transport) -> Member:
    agent = roster.terms.agent(name, noise=KeyedNoise(new_key(), agent=name, run="benchmark"))
    return Member(agent, transport, Signed(roster, name, key))


def observe(each: Member, contexts: np.ndarray) -> None:
    each.agent.observe(each.agent.decide(contexts), reward=0.5)


# --- envelopes ---------------------------------------------------------------------------------------------


def envelopes(report: Report, *, turns: int) -> None:
    for dimension in (5, 50):
        report.heading(f"An envelope at d={dimension}")
        roster, keys = convened(["a", "b"], dimension)
        sender = member(roster, "a", keys["a"], MemoryTransport())
        observe(sender, np.full((2, dimension), 0.1))
        release = sender.agent.release()
        pen, ear = Signed(roster, "a", keys["a"]), Signed(roster, "b", keys["b"])
        message = pen.close(release)
        report.add("bytes of a release on its way", len(message), "B")

        def sign(pen: Signed = pen, release: Release = release) -> None:
            for _ in range(20):
                pen.close(release)

        def verify(ear: Signed = ear, message: bytes = message) -> None:
            for _ in range(20):
                ear.open("a", message)

        times = race({"sign": Contestant(sign, 20), "open": Contestant(verify, 20)}, turns=turns)
        report.time("sign it", times["sign"])
        report.time("verify it: signature, size, mechanism, plausible statistics", times["open"])


# --- the way to the others ---------------------------------------------------------------------------------


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
    """Seconds from the first one's `release` to the last other's `absorb`."""
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
    """An end of one transport for each name; None where there is no server."""
    if kind == "memory":
        shared = MemoryTransport()
        yield [shared for _ in names]
        return
    ends: list[Transport] = []
    server = hub(folder) if kind == "nats" else None
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


def hub(folder: Path) -> tuple[str, subprocess.Popen[bytes]] | None:
    binary = shutil.which("nats-server")
    if binary is None:
        return None
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        port = probe.getsockname()[1]
    command = [binary, "-a", "127.0.0.1", "-p", str(port), "-js", "-sd", str(folder / "store")]
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
    for _ in range(500):
        with socket.socket() as probe:
            if probe.connect_ex(("127.0.0.1", port)) == 0:
                break
        time.sleep(0.01)
    return f"nats://127.0.0.1:{port}", process


# --- fifty agents ------------------------------------------------------------------------------------------


def crowd(report: Report, *, seconds: int) -> None:
    report.heading(f"{AGENTS} agents at d=50 over nats, each with a release each second, for {seconds} s")
    names = [f"a{i}" for i in range(AGENTS)]
    roster, keys = convened(names, 50)
    with tempfile.TemporaryDirectory() as folder:
        base = Path(folder)
        server = hub(base)
        if server is None:
            report.note("there is no nats-server here: left out")
            return
        try:
            roster.write(base / "roster.json")
            for name, key in keys.items():
                key.write(base / f"{name}.key")
            command = [sys.executable, __file__, "--crowd", folder, server[0], str(seconds)]
            told = json.loads(subprocess.run(command, stdout=subprocess.PIPE, check=True).stdout)
        finally:
            server[1].kill()
            server[1].wait()
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
    """All of them, in a few processes; forked, since to import takes seconds."""
    warm(read_roster(folder), list(keys_in(folder))[:2])
    processes = multiprocessing.get_context("fork")
    together = processes.Barrier(PROCESSES)
    with processes.Pool(
        PROCESSES, initializer=globals().__setitem__, initargs=("TOGETHER", together)
    ) as pool:
        tasks = [(folder, url, part, seconds) for part in range(PROCESSES)]
        print(json.dumps(pool.starmap(crowd_part, tasks, chunksize=1)))


def warm(roster: Roster, keys: Sequence[tuple[str, SigningKey]]) -> None:
    """All that the crowd will call is compiled and loaded before it is forked."""
    transport = MemoryTransport()
    members = [member(roster, name, key, transport) for name, key in keys]
    for _ in range(2):
        for each in members:
            observe(each, np.full((4, roster.terms.dimension), 0.1))
            each.send(each.agent.release())
        for each in members:
            each.receive()


@cache
def read_roster(folder: str) -> Roster:
    """Once, before the forks: to calibrate its mechanism takes a while."""
    return Roster.read(Path(folder) / "roster.json")


def keys_in(folder: str) -> Iterator[tuple[str, SigningKey]]:
    for path in sorted(Path(folder).glob("*.key")):
        yield path.stem, SigningKey.read(path)


def crowd_part(folder: str, url: str, part: int, seconds: int) -> Any:
    """Some of the crowd. Each sends on time, whatever the others do, and looks every LOOK seconds."""
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
            all(peer.number == seconds for peer in each.peers.values()) and len(each.peers) == AGENTS - 1
            for each in members
        )
    TOGETHER.wait()  # type: ignore[name-defined]  # noqa: F821
    for each in members:
        each.transport.close()
    refused = sum(sum(each.refusals.values()) for each in members)
    return {"sent": sent, "taken": taken, "refused": refused, "whole": whole, "late": late, "used": used}


def run(report: Report) -> None:
    quick = report.quick
    envelopes(report, turns=5 if quick else 21)
    ways(report, releases=30 if quick else 300)
    crowd(report, seconds=5 if quick else 60)


if __name__ == "__main__":
    if sys.argv[1:2] == ["--crowd"]:
        crowd_of(sys.argv[2], sys.argv[3], int(sys.argv[4]))
    else:
        main("federation", run, __doc__)
