"""A small federation with secure aggregation: its members at one transport, and a clock that tests set."""

from __future__ import annotations

import random
from collections.abc import Collection, Iterable, Sequence
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import fedfairx as ffx
from fedfairx.agent.exchange import OTHERS, TOTAL
from fedfairx.errors import TransportUnavailable
from fedfairx.federation.aggregation.records import FileStore, MemoryStore, Part, ValueStore
from fedfairx.federation.aggregation.shares import as_integers, from_bytes
from fedfairx.federation.exchange.envelope import SignedCodec
from fedfairx.federation.exchange.secure_member import SecureMember
from fedfairx.federation.roster.roster import Roster, create_roster
from fedfairx.federation.roster.signing_keys import SigningKey, new_signing_key
from fedfairx.federation.transport import MemoryTransport, Transport
from fedfairx.privacy import Release, SimulatedNoise
from fedfairx.privacy.release import total_of
from member_helpers import BEGIN, secure_terms

NAMES = ("org1", "org2", "org3", "org4")


class Flaky(MemoryTransport):
    """A transport that fails before or after a message is stored, and shows messages of the past."""

    def __init__(self, seed: int) -> None:
        super().__init__()
        self.random, self.trouble = random.Random(seed), 0.3
        self.past: dict[str, list[bytes]] = {}

    def publish(self, agent: str, message: bytes, *, replacing: bytes | None) -> None:
        self._fail()
        super().publish(agent, message, replacing=replacing)
        self.past.setdefault(agent, []).append(message)
        self._fail()

    def latest(self) -> dict[str, bytes]:
        self._fail()
        shown = super().latest()
        for key in shown:
            if self.random.random() < self.trouble:
                shown[key] = self.random.choice(self.past[key])
        return {key: shown[key] for key in shown if self.random.random() >= self.trouble / 4}

    def _fail(self) -> None:
        if self.random.random() < self.trouble / 4:
            raise TransportUnavailable("away")


@dataclass
class SecureWorld:
    """A roster, all private keys, one transport and one clock."""

    roster: Roster
    keys: dict[str, SigningKey]
    transport: Transport
    convener: SigningKey | None = None
    now: float = BEGIN
    folder: Path | None = None  # where durable members live
    database: str = ""  # that all of them share, instead of one each in the folder
    vaults: dict[str, ValueStore] = field(default_factory=dict)
    confirmed: Collection[str] | None = None
    members: dict[str, SecureMember] = field(default_factory=dict)

    def agent(self, name: str) -> ffx.Agent:
        if self.folder is not None:
            place = self.database or self.folder / f"{name}.db"
            return self.roster.terms.open_agent(name, place, members=len(self.roster.members))
        number = sorted(self.keys).index(name)
        return self.roster.terms.agent(
            name, noise=SimulatedNoise(7, agent=number), members=len(self.roster.members), seed=number
        )

    def start(self, name: str, agent: ffx.Agent | None = None) -> SecureMember:
        """Start or restart a member; what is in its folder, or its vault, stays."""
        self.members[name] = SecureMember(
            agent or self.agent(name),
            self.transport,
            self.seal(name),
            self.keys[name],
            confirmed=self.confirmed_keys,
            vault=self.vault(name),
            clock=lambda: self.now,
        )
        return self.members[name]

    def stop(self, name: str) -> None:
        """End the process of a member."""
        self.members[name].close_vault()
        self.members[name].agent.close()

    def seal(self, name: str) -> SignedCodec:
        return SignedCodec(self.roster, name, self.keys[name])

    def confirmed_keys(self) -> dict[str, str]:
        """The keys of the members that operators have confirmed; by default all."""
        names = self.keys if self.confirmed is None else self.confirmed
        return {name: self.keys[name].public for name in names}

    def vault(self, name: str) -> ValueStore:
        if self.folder is None:
            return self.vaults.setdefault(name, MemoryStore())
        return FileStore(self.folder / f"{name}.vault")

    def amend(
        self,
        *,
        add: Iterable[str] = (),
        remove: Collection[str] = (),
        openers: Sequence[str] = (),
        away: Collection[str] = (),
    ) -> Roster:
        """Sign the next roster, whose rounds begin now, and give it to all members but those away."""
        assert self.convener is not None
        self.keys |= {name: new_signing_key() for name in add if name not in self.keys}
        staying = [name for name in self.roster.members if name not in remove]
        members = {name: self.keys[name].public for name in (*staying, *add)}
        self.roster = self.roster.amended(self.convener, members, openers=openers, begin=int(self.now))
        for name in remove:
            self.members.pop(name, None)
        for name, member in self.members.items():
            if name not in away:
                self.follow(name, member)
        return self.roster

    def follow(self, name: str, member: SecureMember) -> None:
        """Give a member the roster."""
        member.follow(self.seal(name))

    def start_all(self, names: Iterable[str] | None = None) -> SecureWorld:
        for name in names or self.keys:
            self.start(name)
        return self

    def turn(self, *, times: int = 4, without: Collection[str] = ()) -> None:
        """Let all members but some exchange, as often as it takes."""
        for _ in range(times):
            for name, member in self.members.items():
                if name not in without:
                    member.exchange()
                    with suppress(TransportUnavailable):
                        member.show_life()

    def round(self, number: int, *, without: Collection[str] = ()) -> None:
        """The time of a round comes."""
        assert self.roster.rounds is not None
        self.now = float(self.roster.rounds.times[number - 1])
        self.turn(without=without)

    def rows(self, number: int) -> list[Release]:
        """What each member's ledger has for its row of a round."""
        return [member.agent.past_release(number) for member in self.members.values()]

    def check_total(self, number: int) -> None:
        """Every member holds the sum of all rows of this round, exactly."""
        assert {member.progress.opened for member in self.members.values()} == {number}
        assert self.check_opened() == len(self.members)

    def check_opened(self) -> int:
        """Every member's total is the sum of all rows of its round, exactly; how many members have one."""
        having = [
            member
            for member in self.members.values()
            if member.progress.opened and part_of(member).epoch.members.keys() == self.members.keys()
        ]
        for member in having:
            number = member.progress.opened
            total = total_of(self.rows(number))
            opened = part_of(member).total
            assert opened is not None
            values = as_integers(from_bytes(opened.values))
            assert np.array_equal(values[:-1] * member._share.step, total.packed)
            assert values[-1] == total.count
            held, own = member.agent.held, member.agent.past_release(number)
            name, packed, count = TOTAL, total.packed, total.count
            if OTHERS in held:
                name, packed, count = OTHERS, total.packed - own.packed, total.count - own.count
            packed, base = member._stream.opened(packed, count), member.agent._exchange.base
            if base is not None:
                packed, count = base.release.packed + packed, base.release.count + count
            assert (held[name].number, held[name].count) == (number, count)
            assert np.array_equal(held[name].packed, packed)
        return len(having)


def part_of(member: SecureMember) -> Part:
    """The part of a member in its epoch."""
    state = member._state
    assert state is not None
    assert state.record.part is not None
    return state.record.part


def secure_world(
    names: tuple[str, ...] = NAMES,
    *,
    transport: Transport | None = None,
    folder: Path | None = None,
    database: str = "",
    **changes: Any,
) -> SecureWorld:
    keys = {name: new_signing_key() for name in names}
    terms = secure_terms(**({"agents": len(names)} | changes))
    members = {name: key.public for name, key in keys.items()}
    convener = new_signing_key()
    roster = create_roster(convener, terms, members)
    return SecureWorld(
        roster, keys, transport or MemoryTransport(), convener, folder=folder, database=database
    )
