"""A small federation with a roster: keys, terms, agents and their members."""

from __future__ import annotations

from dataclasses import dataclass
from typing import Any

import numpy as np

import fedfairx as ffx
from fedfairx.agent.schedules import EveryRound
from fedfairx.federation.exchange.envelope import SignedCodec
from fedfairx.federation.exchange.member import Member
from fedfairx.federation.roster.roster import Roster, create_roster
from fedfairx.federation.roster.rounds import Rounds
from fedfairx.federation.roster.signing_keys import SigningKey, new_signing_key
from fedfairx.federation.roster.terms import Terms
from fedfairx.federation.transport import MemoryTransport, Transport
from fedfairx.privacy import Release, SimulatedNoise

D = 3
NAMES = ("org1", "org2", "org3")
BEGIN = 1_000_000  # when the rounds of secure aggregation begin


def terms(**changes: Any) -> Terms:
    options: dict[str, Any] = {
        "dimension": D,
        "agents": 3,
        "horizon": 2000,
        "schedule": EveryRound(),
        "epsilon": 2.0,
        "delta": 1e-6,
    }
    return Terms(**(options | changes))


def secure_terms(**changes: Any) -> Terms:
    """Terms with secure aggregation, among four and with a round every ten seconds."""
    options = {"aggregation": "secure", "agents": 4, "schedule": None}
    return terms(**(options | {"rounds": Rounds(begin=BEGIN, first=10, ratio=1, count=12)} | changes))


@dataclass
class World:
    """A roster, all private keys, and one transport."""

    roster: Roster
    convener: SigningKey
    keys: dict[str, SigningKey]
    transport: Transport

    def seal(self, name: str) -> SignedCodec:
        return SignedCodec(self.roster, name, self.keys[name])

    def agent(self, name: str, *, seed: int | None = None) -> ffx.Agent:
        number = sorted(self.keys).index(name) if seed is None else seed
        return self.roster.terms.agent(name, noise=SimulatedNoise(7, agent=number), seed=number)

    def member(self, name: str, agent: ffx.Agent | None = None, **options: Any) -> Member:
        return Member(agent or self.agent(name), self.transport, self.seal(name), **options)

    def put(self, name: str, message: bytes) -> None:
        """As somebody who can write anything into the transport would."""
        held = self.transport.latest().get(name)
        self.transport.publish(name, message, replacing=held)


def world(transport: Transport | None = None, names: tuple[str, ...] = NAMES, **changes: Any) -> World:
    convener, keys = new_signing_key(), {name: new_signing_key() for name in names}
    roster = create_roster(convener, terms(**changes), {name: key.public for name, key in keys.items()})
    return World(roster, convener, keys, transport or MemoryTransport())


def work(agent: ffx.Agent, rounds: int = 5, seed: int = 0) -> None:
    """Rounds of random contexts and rewards."""
    rng = np.random.default_rng(seed)
    for _ in range(rounds):
        made = agent.decide(rng.random((4, agent.dimension)) / np.sqrt(agent.dimension))
        agent.observe(made, rewards=rng.random(len(made.actions)).tolist())


def released(member: Member, rounds: int = 5, seed: int = 0) -> Release:
    """Some rounds, and a release of them that is sent."""
    work(member.agent, rounds, seed)
    release = member.agent.release()
    assert member.send(release)
    return release
