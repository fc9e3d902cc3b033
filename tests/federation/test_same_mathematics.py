"""The same mathematics over any transport: decisions, bit for bit, as in one process."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.agent.schedules import Geometric, Paper
from fedfairx.federation.exchange.envelope import SignedCodec
from fedfairx.federation.exchange.member import Member
from fedfairx.federation.roster.roster import Roster, create_roster
from fedfairx.federation.roster.signing_keys import new_signing_key
from fedfairx.federation.roster.terms import Terms
from fedfairx.federation.transport import SqliteTransport, Transport
from fedfairx.privacy import SimulatedNoise
from nats_server import nats_server, wait_until

AGENTS, D, ROUNDS, SEED = 3, 3, 120, 4
NAMES = [f"agent-{i:06d}" for i in range(AGENTS)]
WORLDS: dict[str, dict[str, Any]] = {
    "private": {"algorithm": "priv-fairx-bayes", "schedule": Geometric(ratio=1.5, start=5), "epsilon": 4.0},
    "exact": {"algorithm": "fed-fairx-bayes", "schedule": Paper(gap=11)},
    "paper": {"algorithm": "priv-fairx-linucb", "schedule": Paper(gap=20), "epsilon": 4.0},
}


def play(agents: list[ffx.Agent], end_round: Any) -> list[tuple[int, bytes]]:
    """All decisions with their policies, every bit of them."""
    rng, made = np.random.default_rng(0), []
    for t in range(1, ROUNDS + 1):
        for agent in agents:
            decision = agent.decide(rng.random((4, D)) / 2)
            agent.observe(decision, reward=float(rng.random()))
            made.append((int(decision.action), decision.policy.tobytes()))
        end_round(t)
    return made


def in_one_process(name: str) -> list[tuple[int, bytes]]:
    partners = "alike" if name == "paper" else "differ"  # as members are, where they can be
    more = WORLDS[name] | {"partners": partners}
    federation = ffx.Federation(agents=AGENTS, dimension=D, horizon=ROUNDS, seed=SEED, **more)
    made = play(federation.agents, lambda _: federation.end_round())
    assert federation.syncs > 3
    return made


def over(transports: list[Transport], roster: Roster, keys: dict[str, Any]) -> list[tuple[int, bytes]]:
    """Agents of a roster in lock step: each its own member, envelope and end of the transport."""
    terms = roster.terms
    seeds = np.random.SeedSequence(SEED).spawn(AGENTS)
    members = [
        Member(
            terms.agent(name, noise=SimulatedNoise(SEED, agent=i), seed=seeds[i]),
            transports[i],
            SignedCodec(roster, name, keys[name]),
        )
        for i, name in enumerate(NAMES)
    ]
    due = set(terms.times.rounds(terms.plan).tolist())

    def end_round(t: int) -> None:
        if t not in due:
            return
        for member in members:
            assert member.send(member.agent.release())
        number = members[0].agent.released
        for member in members:
            others = set(NAMES) - {member.agent.name}

            def all_there(member: Member = member, others: set[str] = others) -> bool:
                opened = member.transport.latest()
                return all(
                    name in opened and member._seal.open(name, opened[name]).number == number
                    for name in others
                )

            wait_until(all_there)
            assert set(member.receive()) == others

    made = play([member.agent for member in members], end_round)
    assert not any(member.refusals for member in members)
    return made


def roster_of(name: str) -> tuple[Roster, dict[str, Any]]:
    terms = Terms(dimension=D, agents=AGENTS, horizon=ROUNDS, **WORLDS[name])
    keys = {each: new_signing_key() for each in NAMES}
    return create_roster(new_signing_key(), terms, {each: key.public for each, key in keys.items()}), keys


@pytest.mark.parametrize("name", WORLDS)
def test_over_sqlite(name: str, tmp_path: Path) -> None:
    transports = [SqliteTransport(tmp_path / "transport.sqlite") for _ in NAMES]
    assert over(list(transports), *roster_of(name)) == in_one_process(name)
    for transport in transports:
        transport.close()


@pytest.mark.process
@pytest.mark.parametrize("name", ["private", "exact"])
def test_over_nats(name: str, tmp_path: Path) -> None:
    roster, keys = roster_of(name)
    with nats_server(tmp_path, federation=roster.federation) as server:
        from fedfairx.federation.transport.nats import NatsTransport

        transports = [NatsTransport(server.url, federation=roster.federation, agent=each) for each in NAMES]
        assert over(list(transports), roster, keys) == in_one_process(name)
        for transport in transports:
            transport.close()
