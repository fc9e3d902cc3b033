"""The cost of privacy: a release at d=50, a synchronisation, a partner's new release, noise of a stream."""

from __future__ import annotations

import os
import tempfile
import time
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np

import fedfairx as ffx
from fedfairx.core.statistics import packed_size
from fedfairx.privacy import KeyedNoise, calibrate, mechanisms, new_key, private
from fedfairx.privacy.ledger.ledger import Ledger
from fedfairx.storage.open_log import open_log
from fedfairx.storage.privacy_ledger import StoredLedger
from measure import Contestant, Report, main, race

DIMENSION = 50
DISK = "two plain writes to the same disk"
RELEASES = 20_002  # the paper's schedule at T = 100 000, m = 10, d = 5


def agent_with(mechanism: str, *, ledger: Ledger | None = None) -> ffx.Agent:
    """A real agent: keyed noise, clipped records, a ledger."""
    privatizer = private(
        DIMENSION,
        epsilon=2.0,
        delta=1e-6,
        releases=RELEASES,
        noise=KeyedNoise(new_key(), agent="a", run="benchmark"),
        mechanism=mechanism,
        ledger=ledger,
    )
    return ffx.Agent(dimension=DIMENSION, privatizer=privatizer)


def releasing(agent: ffx.Agent, *, records: int = 3) -> Callable[[], float]:
    """Add records and make a release; time only the release, by the wall clock: it may wait for the disk."""
    contexts = np.random.default_rng(0).random((4, DIMENSION)) / np.sqrt(DIMENSION)

    def work() -> float:
        for _ in range(records):
            agent.observe(agent.decide(contexts), reward=0.5)
        start = time.perf_counter()
        agent.release()
        return time.perf_counter() - start

    return work


def syncing(path: Path) -> Callable[[], float]:
    """Two plain writes that reach the disk, the minimum of a durable release (freeze, record)."""
    block = bytes(8 * packed_size(DIMENSION))

    def work() -> float:
        start = time.perf_counter()
        with path.open("ab", buffering=0) as file:
            for _ in range(2):
                file.write(block)
                os.fdatasync(file.fileno())
        return time.perf_counter() - start

    return work


def releases(report: Report, *, turns: int) -> None:
    report.heading(f"One release at d={DIMENSION}, sized for {RELEASES:,}")
    with tempfile.TemporaryDirectory() as folder, closing(open_log(Path(folder) / "agent.db")) as log:
        agents = {name: agent_with(name) for name in mechanisms()}
        agents["blt, on disk"] = agent_with("blt", ledger=StoredLedger(log, 1, 1))
        field = {name: Contestant(releasing(agent)) for name, agent in agents.items()}
        times = race(field | {DISK: Contestant(syncing(Path(folder) / "plain"))}, turns=turns)
    for name in mechanisms():
        report.time(name, times[name], "ms", at_most=5.0)
    for name in ("blt, on disk", DISK):
        report.time(name, times[name], "ms")  # depends on the disk: the ratio shows our part
    report.ratio(f"blt, on disk ÷ {DISK}", times["blt, on disk"].over(times[DISK]))


def streams(report: Report, *, releases: int, turns: int) -> None:
    width = packed_size(5)
    report.heading(f"Noise of {releases:,} simulated releases at d=5, over drawing as many plain normals")
    generator = np.random.default_rng(0)

    def sampling(name: str) -> Contestant:
        mechanism = calibrate(name, epsilon=2.0, delta=0.1, releases=releases, sensitivity=2.0)
        mechanism.sample(generator, width)  # imports and makes tables before the clock starts

        def work() -> None:
            mechanism.sample(generator, width)

        return Contestant(work, releases)

    def plain() -> None:
        generator.standard_normal((releases, width))

    field = {"plain normals": Contestant(plain, releases)} | {name: sampling(name) for name in mechanisms()}
    times = race(field, turns=turns)
    for name in mechanisms():
        report.ratio(f"{name} ÷ plain normals", times[name].over(times["plain normals"]))


def synchronising(report: Report, *, turns: int, agents: int = 20, dimension: int = 15) -> None:
    report.heading(f"A private synchronisation of {agents} agents at d={dimension}, for each agent")
    differ = {"algorithm": "priv-fairx-bayes", "decide_from": "own+released", "partners": "differ"}
    field = {
        "release and absorb everybody's": synchronise(
            agents, dimension, turns, {"algorithm": "priv-fairx-linucb"}
        ),
        "the same, partners may differ": synchronise(agents, dimension, turns, differ),
    }
    times = race({name: Contestant(work, agents) for name, work in field.items()}, turns=turns)
    for name in field:
        report.time(name, times[name], "ms", at_most=1.0)


def synchronise(agents: int, dimension: int, turns: int, kind: dict[str, Any]) -> Callable[[], float]:
    """A reward for each agent, then a synchronisation; only this is timed, in CPU time."""
    federation = ffx.Federation(
        agents=agents,
        dimension=dimension,
        horizon=turns + 1,
        schedule="every-round",
        epsilon=2.0,
        **kind,
    )
    contexts = np.random.default_rng(0).random((4, dimension)) / np.sqrt(dimension)

    def work() -> float:
        for agent in federation.agents:
            agent.observe(agent.decide(contexts), reward=0.5)
        start = time.process_time()
        federation.synchronise()
        return time.process_time() - start

    work()  # imports and compiles before the clock starts
    return work


def hearing(report: Report, *, turns: int, members: int = 200) -> None:
    report.heading(f"One partner's new release among {members} members at d={DIMENSION}, exact sums")
    rng = np.random.default_rng(0)
    theta = rng.normal(size=DIMENSION) / np.sqrt(DIMENSION)
    partners = [ffx.Agent(DIMENSION, name=f"partner-{i}") for i in range(members - 1)]
    here = {kind: ffx.Agent(DIMENSION, name="here", partners=kind) for kind in ("alike", "differ")}

    def teach(agent: ffx.Agent, records: int) -> None:
        contexts = rng.random((records, DIMENSION)) / np.sqrt(DIMENSION)
        agent.learn(contexts, contexts @ theta + 0.1 * rng.normal(size=records))

    for agent in (*partners, *here.values()):
        teach(agent, 1_000)
    held = {agent.name: agent.release() for agent in partners}
    for agent in here.values():
        agent.absorb({**held, "here": agent.release()})

    def absorbing(agent: ffx.Agent) -> Callable[[], float]:
        def work() -> float:
            partner = partners[int(rng.integers(len(partners)))]
            teach(partner, 10)
            release = {partner.name: partner.release()}
            start = time.process_time()
            agent.absorb(release)
            return time.process_time() - start

        return work

    times = race({kind: Contestant(absorbing(agent)) for kind, agent in here.items()}, turns=turns)
    for kind in here:
        report.time(kind, times[kind], "ms")
    report.ratio("differ ÷ alike", times["differ"].over(times["alike"]), at_most=3.0)


def run(report: Report) -> None:
    quick = report.quick
    releases(report, turns=9 if quick else 41)
    synchronising(report, turns=9 if quick else 41)
    hearing(report, turns=9 if quick else 41, members=50 if quick else 200)
    streams(report, releases=2_000 if quick else RELEASES, turns=3 if quick else 11)


if __name__ == "__main__":
    main("release", run, __doc__)
