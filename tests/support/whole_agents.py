"""Whole agents, as they are used: every number of every message is compared with what it must be.

Agents that `Options` make take records by `observe` and `learn`, some leaves one, some 50. Agents of the same
key live at two places, on a cloned machine, and under names that differ late or by case. One is interrupted
while it makes a release; others are stored in a database and opened again; one begins shortly before its last
release. The test knows records, keys and places, so it knows each message:

    release = grid(truth + noise),  noise = B·(draws of the key for each release and place)

with the truth clipped and summed here, and B applied to all draws at once (`Factor.correlate`), not by the
agents' stream. These checks are exact: they do not fail by chance. With secure aggregation a release is a
row, with a share of the noise and on a coarser grid; `whole_federation.py` adds rows up.
"""

from __future__ import annotations

import hashlib
import tempfile
import warnings
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field, replace
from pathlib import Path

import numpy as np

from fedfairx.agent.agent import Agent
from fedfairx.audit.exact_checks import canaries
from fedfairx.audit.subject import CheckResult
from fedfairx.errors import FedFairXError, StorageUnavailable
from fedfairx.privacy.ledger.ledger import MemoryLedger, Position
from fedfairx.privacy.mechanisms.noise import KeyedNoise
from fedfairx.privacy.release import Release
from fedfairx.storage.agents import read_agents
from fedfairx.util.arrays import Array
from whole_config import WholeConfig

LONG = "a name of 200 letters " + 178 * "x"
_LONGEST = 512  # releases of the first agent
_SHORT = 24  # of the others
_STORED = 6
_LAST = 16  # releases at the end of a longer stream
_MANY = 50  # records of a large leaf
_ENTRIES = 8  # of the last releases, to keep a long stream's draws in memory
_ROUNDING = 1e-6  # of a grid step: a sum this near to a tie may be rounded either way


@dataclass
class Findings:
    """What is wrong with the messages, and the draws behind them."""

    compared: int = 0
    numbers: int = 0
    counts: int = 0
    changed: int = 0
    unexplained: int = 0
    keys: int = 0
    refused: int = 0
    draws: list[Array] = field(default_factory=list)

    @contextmanager
    def watching(self) -> Iterator[None]:
        """Count an agent that can't go on: a right one always can."""
        try:
            yield
        except StorageUnavailable:
            raise  # a full disk is not its fault
        except FedFairXError:
            self.refused += 1


class InterruptedLedger(MemoryLedger):
    """A ledger that fails to record a release, once, when `full` is set.

    Guarantees:
    - As `MemoryLedger`.
    """

    full = False

    def record(self, number: int, message: bytes) -> None:
        if self.full:
            self.full = False
            raise StorageUnavailable("the disk is full")
        super().record(number, message)


class Watched:
    """An agent, the sums of the records that it was given, and the messages that it made."""

    def __init__(
        self, subject: WholeConfig, findings: Findings, agent: Agent, noise: KeyedNoise, earlier: int = 0
    ) -> None:
        self.subject, self.findings, self.noise = subject, findings, noise
        self.earlier = earlier  # number of releases before it was watched
        self.sums: list[Array] = []
        self.truths: list[Array] = []
        self.sent: dict[int, Release] = {}
        self._truth = np.zeros(subject.size)
        self._records = 0
        self.follow(agent)

    def follow(self, agent: Agent) -> None:
        """Watch this agent from now on: a new one, or the same one opened again."""
        self.agent = agent
        stream = agent.privatizer.stream
        assert stream is not None
        self.stream = stream
        if self.subject.centring is not None and not self.subject.rows:
            stream.centring = self.subject.centring

    def give(self, contexts: Array, rewards: Array) -> None:
        """Give records to the agent: many as a log, few as decisions and their rewards."""
        slots, agent = len(self.subject.bounds.slots), self.agent
        if slots == 1 and len(rewards) >= _MANY:
            agent.learn(contexts, rewards.tolist())
        else:
            for context, reward in zip(contexts, rewards.tolist(), strict=True):
                decision = agent.decide(np.tile(context, (slots, 1)))
                agent.observe(decision, rewards=[reward] * slots)
        self._truth = self._truth + self.subject.truth(contexts, rewards).sum(axis=0)
        self._records += slots * len(rewards)

    def release(self, *, interrupted: bool = False) -> None:
        """Release, ask for it again, and check the count; if interrupted, records come before a new try."""
        truth, records, ledger = self._truth, self._records, self.stream.ledger
        if interrupted and isinstance(ledger, InterruptedLedger):
            ledger.full = True
            with suppress(StorageUnavailable):
                self.agent.release()
            self.give(*self.subject.random_records(np.random.default_rng(0), 2))
        message = self.agent.release()
        self._note(message, truth, records)
        self.ask_again(message.number)

    def note_made(self) -> None:
        """Note the rows that a member of a federation has made since the last call."""
        for number in range(len(self.sums) + 1, self.agent.released + 1):
            self._note(self.agent.past_release(number), self._truth, self._records)

    def _note(self, message: Release, truth: Array, records: int) -> None:
        packed, rest = self.subject.noisy_sums(message)
        self.findings.unexplained += rest > 1e-9
        self.findings.counts += message.count != records
        self.sums.append(packed)
        self.truths.append(truth)
        self.sent[message.number] = message

    def ask_again(self, *numbers: int) -> None:
        """Request releases that were made before."""
        for number in numbers:
            self.findings.changed += self.agent.release(number) != self.sent[number]

    def compare(self) -> None:
        """Compare every number of the releases with grid(truth + noise)."""
        subject, count = self.subject, len(self.sums)
        last, size = self.earlier + count, subject.size
        entries = np.arange(size)
        if self.earlier:
            entries = np.unique(np.linspace(0, size - 1, _ENTRIES).astype(np.int64))
        draws = np.empty((last, entries.size))
        for number in range(1, last + 1):
            draw = self.noise(number, size, self.stream.ledger.place(number))
            draws[number - 1] = draw[entries]
            if number > self.earlier:
                self.findings.draws.append(draw)
        noise = subject.mechanism.factor.correlate(draws)[self.earlier :]
        noise = noise * (subject.own_sd * subject.scale[entries])
        truths, sums = np.array(self.truths)[:, entries], np.array(self.sums)[:, entries]
        steps, expected = np.ldexp(sums, -subject.grid), np.ldexp(truths + noise, -subject.grid)
        # Records are summed here in another order.
        rounding = np.ldexp(2.0**-52 * max(self._records, 1) * np.abs(truths).max(initial=1.0), -subject.grid)
        near = np.abs(steps - expected) <= 0.5 + _ROUNDING + rounding
        self.findings.numbers += int((~near | (steps != np.rint(steps))).sum())
        self.findings.compared += near.size


def whole_agents(subject: WholeConfig, *, seed: int) -> tuple[tuple[CheckResult, ...], list[Array]]:
    """Run the agents, and return the checks and all draws of their noise."""
    findings = Findings()
    with warnings.catch_warnings(), tempfile.TemporaryDirectory(prefix="fedfairx-audit-") as folder:
        warnings.simplefilter("ignore")  # many records are meant to be clipped
        _in_memory(subject, findings, seed=seed)
        if isinstance(subject.options.mechanism, str):  # a mechanism of one's own can't be stored
            with findings.watching():
                _stored(subject, findings, Path(folder), seed=seed)
    named = {
        f"agents: numbers other than grid(truth + noise), of {findings.compared}": findings.numbers,
        "agents: counts other than the number of records": findings.counts,
        "agents: releases that differ when requested again": findings.changed,
        "agents: messages not from the noisy sums": findings.unexplained,
        "agents: stored keys that are short or alike": findings.keys,
        "agents: that could not go on": findings.refused,
    }
    return tuple(
        CheckResult(name, float(wrong), "= 0", wrong == 0) for name, wrong in named.items()
    ), findings.draws


def _in_memory(subject: WholeConfig, findings: Findings, *, seed: int) -> None:
    """Watch agents in memory."""
    # Name, place and data: "A" is the same key at two places, and on a cloned machine with other data.
    runs = [("A", 1, 1), ("A", 2, 1), ("A", 1, 2), ("a", 1, 1), (f"{LONG}1", 1, 1), (f"{LONG}2", 1, 1)]
    for index, (name, place, data) in enumerate(runs):
        noise = subject.keyed(f"{seed}, agents", agent=name)
        ledger = InterruptedLedger(random=np.random.default_rng([seed, place]).bytes)
        generator = np.random.default_rng([seed, data])
        with findings.watching():
            watched = Watched(subject, findings, subject.agent(noise, ledger), noise)
            if data == 2:
                _give_canaries(watched)
            releases = min(subject.releases, _SHORT if index else _LONGEST)
            for number in range(1, releases + 1):
                _fill(watched, generator, large=number in (1, releases // 2 + 1, releases))
                watched.release(interrupted=number == 1)
            watched.compare()
            if index == 0 and subject.releases > releases:
                _last_releases(subject, findings, noise, generator)


def _give_canaries(watched: Watched) -> None:
    """Give the records that a faulty clip may get wrong, but for contexts that agents refuse."""
    subject = watched.subject
    finite = [record for record in canaries(subject) if np.isfinite(record[0]).all()]
    contexts = np.array([subject.given(context) for context, _ in finite])
    watched.give(contexts, np.array([reward for _, reward in finite]))


def _fill(watched: Watched, generator: np.random.Generator, *, large: bool) -> None:
    count = _MANY if large else int(generator.integers(0, 4))
    watched.give(*watched.subject.random_records(generator, count))


def _last_releases(
    subject: WholeConfig, findings: Findings, noise: KeyedNoise, generator: np.random.Generator
) -> None:
    """Watch the last releases of a long stream: the ledger of an agent shortly before them is made up."""
    earlier = subject.releases - min(_LAST, subject.releases - _LONGEST)
    ledger, zeros = MemoryLedger(), np.zeros(subject.size)
    subject.agent(noise, ledger)  # binds it
    ledger.restore(
        Position(earlier, zeros, 0, zeros.copy(), 0, 0),
        [hashlib.sha256(f"place {number}".encode()).digest() for number in range(1, earlier + 1)],
    )
    watched = Watched(subject, findings, subject.agent(noise, ledger), noise, earlier)
    for _ in range(earlier, subject.releases):
        _fill(watched, generator, large=False)
        watched.release()
    watched.compare()


def _stored(subject: WholeConfig, findings: Findings, folder: Path, *, seed: int) -> None:
    """Watch two agents in a database, which are closed and opened again halfway."""
    place = folder / "agents.db"
    releases = min(subject.releases, _STORED)
    generator = np.random.default_rng([seed, 3])
    options = replace(subject.options, bounds=None)  # the budget has them
    agents = [
        Agent.open(place, name=name, dimension=subject.dimension, options=options, budget=subject.budget)
        for name in ("A", "a")
    ]
    secrets = {row.secret for row in read_agents(agents[0].journal.log)}
    findings.keys = len(agents) - sum(secret is not None and len(secret) >= 32 for secret in secrets)
    both = [Watched(subject, findings, agent, _noise_of(agent)) for agent in agents]
    half = (releases + 1) // 2
    with _closing(both):
        for watched in both:
            _release(watched, generator, half)
            _fill(watched, generator, large=True)  # records in the open leaf
    for watched in both:
        watched.follow(Agent.open(place, name=watched.agent.name))
        watched.noise = _noise_of(watched.agent)
    with _closing(both):
        for watched in both:
            watched.ask_again(*watched.sent)
            _release(watched, generator, releases - half)
            watched.compare()


@contextmanager
def _closing(all_watched: list[Watched]) -> Iterator[None]:
    try:
        yield
    finally:
        for watched in all_watched:
            watched.agent.close()


def _release(watched: Watched, generator: np.random.Generator, count: int) -> None:
    with watched.agent.transaction():  # one write to disk
        for number in range(count):
            _fill(watched, generator, large=number == 0)
            watched.release()


def _noise_of(agent: Agent) -> KeyedNoise:
    stream = agent.privatizer.stream
    assert stream is not None
    assert isinstance(stream.noise, KeyedNoise)
    return stream.noise
