"""A small federation with secure aggregation: its members at one transport, and a clock that tests set."""

from __future__ import annotations

from collections.abc import Collection, Iterable
from contextlib import suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import numpy as np

import fedfairx as ffx
from fedfairx.agent.exchange import OTHERS, TOTAL
from fedfairx.errors import TransportUnavailable
from fedfairx.federation.aggregation.records import FileRecords, MemoryRecords, Records
from fedfairx.federation.exchange.envelope import SignedCodec
from fedfairx.federation.exchange.secure_member import SecureMember
from fedfairx.federation.roster.roster import Roster, create_roster
from fedfairx.federation.roster.signing_keys import SigningKey, new_signing_key
from fedfairx.federation.transport import MemoryTransport, Transport
from fedfairx.privacy import Release, SimulatedNoise
from fedfairx.privacy.release import total_of
from member_helpers import BEGIN, secure_terms

NAMES = ("org1", "org2", "org3", "org4")


@dataclass
class SecureWorld:
    """A roster, all private keys, one transport and one clock."""

    roster: Roster
    keys: dict[str, SigningKey]
    transport: Transport
    now: float = BEGIN
    folder: Path | None = None  # where durable members live
    database: str = ""  # that all of them share, instead of one each in the folder
    vaults: dict[str, Records] = field(default_factory=dict)
    confirmed: Collection[str] | None = None
    members: dict[str, SecureMember] = field(default_factory=dict)

    def agent(self, name: str) -> ffx.Agent:
        if self.folder is not None:
            return self.roster.terms.open_agent(name, self.database or self.folder / f"{name}.db")
        number = sorted(self.keys).index(name)
        return self.roster.terms.agent(name, noise=SimulatedNoise(7, agent=number), seed=number)

    def start(self, name: str, agent: ffx.Agent | None = None) -> SecureMember:
        """Start or restart a member; what is in its folder, or its vault, stays."""
        vault: Records | None = None
        if name in self.roster.openers:
            vault = self.vaults.setdefault(name, MemoryRecords())
            if self.folder is not None:
                vault = FileRecords(self.folder / f"{name}.vault")
        self.members[name] = SecureMember(
            agent or self.agent(name),
            self.transport,
            SignedCodec(self.roster, name, self.keys[name]),
            self.keys[name],
            confirmed=lambda: self.roster.members if self.confirmed is None else self.confirmed,
            vault=vault,
            clock=lambda: self.now,
        )
        return self.members[name]

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
        assert self.roster.terms.rounds is not None
        self.now = float(self.roster.terms.rounds.times[number - 1])
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
        having = [member for member in self.members.values() if member.progress.opened]
        for member in having:
            number = member.progress.opened
            total = total_of(self.rows(number))
            assert member._participant is not None
            opened = member._participant.total
            assert opened is not None
            steps = opened.values[:-1] * member._share.step
            assert np.array_equal(steps, total.packed)
            assert opened.values[-1] == total.count
            held, own = member.agent.held, member.agent.past_release(number)
            name, packed, count = TOTAL, total.packed, total.count
            if OTHERS in held:
                name, packed, count = OTHERS, total.packed - own.packed, total.count - own.count
            assert (held[name].number, held[name].count) == (number, count)
            assert np.array_equal(held[name].packed, member._stream.opened(packed, count))
        return len(having)


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
    roster = create_roster(new_signing_key(), terms, members)
    return SecureWorld(roster, keys, transport or MemoryTransport(), folder=folder, database=database)
