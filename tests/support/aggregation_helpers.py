"""A small group that adds up rows: keys, stores that can fail, participants, and a bus in memory."""

from __future__ import annotations

import hashlib
import random
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass, field

import numpy as np

from fedfairx.federation.aggregation.agreement import Agreement, opener_key
from fedfairx.federation.aggregation.epoch import Epoch
from fedfairx.federation.aggregation.messages import OpenerKey, parse
from fedfairx.federation.aggregation.participant import Participant
from fedfairx.federation.aggregation.records import MemoryRecords, Stores
from fedfairx.federation.aggregation.settlement import Settlement
from fedfairx.federation.aggregation.shares import Integers
from fedfairx.federation.roster.signing_keys import SigningKey, new_signing_key

FEDERATION, ROSTER = "ab" * 16, "cd" * 32


class Crash(Exception):
    """The process died here."""


@dataclass
class Crashes:
    """Counts the steps that are written or sent, and dies at the one that is `due`."""

    due: int | None = None
    after: bool = False  # after the step has had its effect, not before
    done: int = 0

    def step(self, effect: Callable[[], None]) -> None:
        self.done += 1
        dies = self.done == self.due
        if dies and not self.after:
            raise Crash
        effect()
        if dies:
            raise Crash


class Disk(MemoryRecords):
    """Records that survive the process, whose writes may be its end."""

    def __init__(self, crashes: Crashes) -> None:
        super().__init__()
        self.crashes = crashes

    def put(self, changes: Mapping[str, bytes | None]) -> None:
        self.crashes.step(lambda: super(Disk, self).put(changes))

    def backup(self) -> dict[str, bytes]:
        return dict(self)

    def restore(self, backup: Mapping[str, bytes]) -> None:
        self.clear()
        self.update(backup)


def any_total(_: Integers) -> bool:
    return True


def place_of(name: str, number: int) -> bytes:
    """A ledger's place."""
    return hashlib.sha256(f"{name} {number}".encode()).digest()


@dataclass
class Group:
    """Members of one epoch, and what the bus holds of it."""

    epoch: Epoch
    keys: dict[str, SigningKey]
    disks: dict[str, tuple[Disk, Disk]]
    settlement: Settlement | None = None
    before: Group | None = None
    plausible: Callable[[Integers], bool] = any_total
    random: Callable[[int], bytes] | None = None
    crashes: Crashes = field(default_factory=Crashes)
    members: dict[str, Participant] = field(default_factory=dict)
    leaving: dict[str, Agreement] = field(default_factory=dict)  # openers before that are no members now
    bus: dict[bytes, None] = field(default_factory=dict)  # all messages, in the order of their coming
    seen: dict[str, int] = field(default_factory=dict)

    def stores(self, name: str) -> Stores:
        return Stores(name, *self.disks[name])

    def agreement(self, name: str, **changes: Collection[str]) -> Agreement:
        return Agreement(self.epoch, self.stores(name), settlement=self.settlement, **changes)

    def participant(self, agreement: Agreement) -> Participant:
        """A participant as it is made by a process that starts."""
        chance = {} if self.random is None else {"random": self.random}
        return Participant(agreement, self.keys[agreement.name], plausible=self.plausible, **chance)

    def start(self, name: str) -> Participant:
        """Start or restart a member: it forgets all but what is on its disks, and reads the bus again."""
        agreement = self.agreement(name)
        agreement.accept(self.keys[name], confirmed=self.epoch.members)
        self.members[name], self.seen[name] = self.participant(agreement), 0
        return self.members[name]

    def start_all(self) -> Group:
        for name in self.epoch.members:
            self.start(name)
        if self.settlement is not None:
            for name in {*self.settlement.closings} - {*self.epoch.members}:
                self.leaving[name] = self.agreement(name)
                self.publish(self.leaving[name].accept(self.keys[name]))
        self.pump()
        return self

    def publish(self, message: bytes) -> None:
        self.bus[message] = None

    def pump(self, chance: random.Random | None = None, *, only: Collection[str] | None = None) -> None:
        """Deliver everything to everybody until there is nothing new."""
        while True:
            for member in self.members.values():
                for message in member.outbox():
                    if message not in self.bus:
                        self.crashes.step(lambda message=message: self.publish(message))  # type: ignore[misc]
            told, messages = False, [*self.bus]
            for name, member in self.members.items():
                new = messages[self.seen[name] :] if only is None or name in only else []
                if chance is not None:
                    chance.shuffle(new)
                for message in new:
                    member.receive(message)
                self.seen[name] += len(new)
                told = told or bool(new)
            if not told:
                return

    def send(self, number: int, rows: Mapping[str, Integers]) -> None:
        for name, row in rows.items():
            self.members[name].send(number, row, place=place_of(name, number))

    def round(self, number: int, rows: Mapping[str, Integers] | None = None) -> dict[str, Integers]:
        """Send rows, by default random ones, and deliver everything."""
        rows = rows or self.rows(number)
        self.send(number, rows)
        self.pump()
        return dict(rows)

    def rows(self, seed: int) -> dict[str, Integers]:
        rng = np.random.default_rng(seed)
        return {name: rng.integers(-(2**40), 2**40, self.epoch.entries) for name in self.epoch.members}

    def messages(self, number: int) -> dict[str, bytes]:
        """The rows of a round as they were sent, by name."""
        found = {}
        for message in self.bus:
            row = parse(message)
            if getattr(row, "shares", None) and row.number == number:  # type: ignore[union-attr]
                found[row.name] = message
        return found

    def close(self, *, missing: Collection[str] = ()) -> Settlement:
        for name, member in self.members.items():
            if name not in missing:
                member.close()
        self.pump()
        return next(iter(self.members.values())).settle(missing=missing)

    def follow(
        self,
        settlement: Settlement,
        *,
        leave: Collection[str] = (),
        join: Sequence[str] = (),
        openers: Sequence[str] | None = None,
        keys: Mapping[str, SigningKey] | None = None,
        number: int | None = None,
    ) -> Group:
        """The next epoch, in which nobody has accepted anything yet."""
        crashes = self.crashes
        names = sorted({*self.epoch.members, *join} - {*leave})
        keys = {
            **self.keys,
            **{name: new_signing_key() for name in join if name not in self.keys},
            **(keys or {}),
        }
        disks = {
            **self.disks,
            **{name: (Disk(crashes), Disk(crashes)) for name in join if name not in self.disks},
        }
        number = self.epoch.number + 1 if number is None else number
        opening = openers or names[: len(self.epoch.openers)]
        epoch = Epoch(
            federation=self.epoch.federation,
            roster=hashlib.sha256(f"{number} {names}".encode()).hexdigest(),
            number=number,
            members={name: keys[name].public for name in names},
            openers=opener_keys(number, opening, keys, disks),
            honest=self.epoch.honest,
            entries=self.epoch.entries,
            rounds=self.epoch.rounds,
            settlement=settlement.digest,
        )
        return Group(epoch, keys, disks, settlement, self, self.plausible, self.random, crashes)


def opener_keys(
    number: int,
    openers: Sequence[str],
    keys: Mapping[str, SigningKey],
    disks: Mapping[str, tuple[Disk, Disk]],
) -> dict[str, bytes]:
    found = {}
    for name in openers:
        message = parse(opener_key(FEDERATION, number, key=keys[name], stores=Stores(name, *disks[name])))
        assert isinstance(message, OpenerKey)
        found[name] = message.key
    return found


def people(m: int, crashes: Crashes) -> tuple[dict[str, SigningKey], dict[str, tuple[Disk, Disk]]]:
    """Signing keys and empty disks."""
    names = [f"org{number:02}" for number in range(m)]
    return {name: new_signing_key() for name in names}, {
        name: (Disk(crashes), Disk(crashes)) for name in names
    }


def group(
    m: int = 4,
    c: int = 1,
    *,
    entries: int = 3,
    rounds: int = 9,
    honest: int | None = None,
    plausible: Callable[[Integers], bool] = any_total,
    crashes: Crashes | None = None,
    random: Callable[[int], bytes] | None = None,
    of: tuple[dict[str, SigningKey], dict[str, tuple[Disk, Disk]]] | None = None,
) -> Group:
    """A first epoch that all members have yet to accept. The first c + 1 names are openers."""
    crashes = crashes or Crashes()
    keys, disks = of or people(m, crashes)
    names = [*keys]
    epoch = Epoch(
        federation=FEDERATION,
        roster=ROSTER,
        number=1,
        members={name: keys[name].public for name in names},
        openers=opener_keys(1, names[: c + 1], keys, disks),
        honest=m - c if honest is None else honest,
        entries=entries,
        rounds=rounds,
    )
    return Group(epoch, keys, disks, plausible=plausible, random=random, crashes=crashes)


def exact(rows: Mapping[str, Integers]) -> list[int]:
    """The sum of rows, by Python's integers."""
    return [sum(int(row[place]) for row in rows.values()) for place in range(len(next(iter(rows.values()))))]
