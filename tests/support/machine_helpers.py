"""Members as the machine of secure aggregation has them, without agents, threads or transports.

A member's disk has its record, and runs of a ledger whose leaves are sets of record ids. What it does is
carried out one effect at a time, and each of them may be its last.
"""

from __future__ import annotations

import hashlib
import random
from collections import deque
from collections.abc import Collection, Mapping
from dataclasses import dataclass, field

import msgspec
import numpy as np

from fedfairx.federation.aggregation.epoch import Draft, Epoch
from fedfairx.federation.aggregation.machine import (
    AddPast,
    BeginEpoch,
    Came,
    Effect,
    Event,
    Keep,
    MakeRow,
    MemberIdentity,
    Phase,
    Publish,
    Refuse,
    RosterTaken,
    RowMade,
    State,
    Store,
    Tick,
    start,
    step,
)
from fedfairx.federation.aggregation.messages import (
    Acceptance,
    OpenerKey,
    PastTotal,
    RowMessage,
    digest,
    key_place,
    parse,
    row_and_share,
    sign,
    with_share,
)
from fedfairx.federation.aggregation.records import MemoryStore, Opened, Record, Vault, record_in, vault_in
from fedfairx.federation.aggregation.rows import make_row
from fedfairx.federation.aggregation.shares import Integers, public_key_of
from fedfairx.federation.roster.rounds import Rounds
from fedfairx.federation.roster.signing_keys import SigningKey, new_signing_key
from fedfairx.federation.transport.protocol import ACCEPTED, OPENER, PARTIAL, ROW

FEDERATION = "ab" * 16
BEGIN, EVERY, ROUNDS = 1000, 100, 50  # when rounds begin, seconds between two, and their number
ENTRIES = 2  # of a row: the sum of its records' ids, and their number


class Crash(Exception):
    """The process died here."""


@dataclass
class Run:
    """A run of a ledger."""

    leaves: list[frozenset[int]] = field(default_factory=list)
    open: set[int] = field(default_factory=set)


@dataclass
class Disk:
    """A member's database: its record, and the runs of its ledger. `mistake`: of those that tests insert."""

    record: bytes | None = None
    runs: list[Run] = field(default_factory=lambda: [Run()])
    mistake: str = ""

    def copy(self) -> Disk:
        runs = [Run([*run.leaves], {*run.open}) for run in self.runs]
        return Disk(self.record, runs, self.mistake)

    def begin_epoch(self, *, first: bool) -> None:
        before = self.runs[-1]
        if first and not before.leaves:
            return
        run, before.open = Run(open=before.open), set()
        if self.mistake == "a frozen leaf moves":
            run.open |= set().union(*before.leaves)
        self.runs.append(run)

    def freeze(self, number: int) -> frozenset[int]:
        run = self.runs[-1]
        while len(run.leaves) < number:
            run.leaves.append(frozenset(run.open))
            if self.mistake != "a leaf is copied":
                run.open = set()
        return frozenset().union(*run.leaves[:number])


@dataclass(frozen=True)
class SentRow:
    """A row that has left a member: its epoch, and the records in it."""

    name: str
    epoch: bytes
    number: int
    records: frozenset[int]
    row: RowMessage


class Actor:
    """An honest member: its disk, its vault, and its process."""

    def __init__(self, world: World, name: str, key: SigningKey) -> None:
        self.world, self.name, self.key = world, name, key
        self.disk, self.vault = Disk(mistake=world.mistake), MemoryStore()
        self.outbox: dict[str, bytes] = {}
        self.refused: list[tuple[str, str]] = []
        self.past: list[PastTotal] = []
        self.draft: Draft | None = None
        self.steps, self.dies_at = 0, 0  # effects so far, and the one before which the process dies
        self.saved: deque[tuple[Disk, bytes | None]] = deque(maxlen=6)  # after the latest effects that stored
        self.confirmed = dict(world.known)
        self._restarted = 0
        self.boot()

    # --- the process ---------------------------------------------------------------------------------

    def boot(self) -> None:
        """Start the process from what is stored."""
        self._restarted += 1
        self.outbox = {}
        stored = record_in(MemoryStore(self.disk.record)), vault_in(self.vault)
        identity = MemberIdentity(FEDERATION, self.name, self.key, self.world.plausible)
        state, effects = start(identity, *stored, random=self.random("vault"))
        self.do(state, effects)
        if self.draft is not None:
            self.feed(RosterTaken(self.draft, self.random("secret")))

    def random(self, what: str) -> bytes:
        return hashlib.sha256(repr((self.name, self._restarted, self.steps, what)).encode()).digest()

    def feed(self, event: Event) -> None:
        self.do(*step(self.state, event, self.world.now))

    def do(self, state: State, effects: list[Effect]) -> None:
        due = 0
        for effect in effects:
            self.count()
            match effect:
                case Store(record, change):
                    if isinstance(change, BeginEpoch):
                        self.disk.begin_epoch(first=change.first)
                    if isinstance(change, AddPast):
                        self.past.append(change.total)
                    self.disk.record = msgspec.msgpack.encode(record)
                    self.saved.append((self.backup(), self.vault.read()))
                case Keep(vault):
                    self.vault.write(msgspec.msgpack.encode(vault))
                case Publish(place, message):
                    self.outbox[place] = message
                    self.world.publish(self, place, message)
                case MakeRow(number):
                    due = number
                case Refuse(_, sender, reason):
                    self.refused.append((sender, reason))
        self.state = state
        if due:
            self.count()
            records = self.disk.freeze(due)
            values = np.array([sum(records), len(records)], dtype=np.int64)
            self.feed(RowMade(due, values, self.random("place"), self.random("row")))

    def count(self) -> None:
        self.steps += 1
        if self.steps == self.dies_at:
            raise Crash

    # --- what happens to it --------------------------------------------------------------------------

    def take_roster(self, draft: Draft) -> None:
        if self.draft is None or draft.number > self.draft.number:
            self.draft = draft
            self.feed(RosterTaken(draft, self.random("secret")))

    def tick(self, alive: Collection[str] | None = None) -> None:
        names = self.world.publics if alive is None else alive
        self.feed(Tick(self.confirmed, frozenset(names)))

    def receive(self, messages: Mapping[str, bytes]) -> None:
        mine = {
            place: message
            for place, message in messages.items()
            if place.partition(".")[0] != self.name
            and (f".{ROW}." not in place or place.endswith(f".{self.name}"))
        }
        if mine:
            self.feed(Came(mine))

    def learn(self, record: int) -> None:
        self.disk.runs[-1].open.add(record)

    # --- what tests look at --------------------------------------------------------------------------

    @property
    def record(self) -> Record:
        return record_in(MemoryStore(self.disk.record))

    @property
    def vault_content(self) -> Vault:
        vault = vault_in(self.vault)
        assert vault is not None
        return vault

    @property
    def phase(self) -> Phase:
        return self.state.phase

    @property
    def epoch(self) -> int:
        part = self.state.record.part
        return 0 if part is None else part.epoch.number

    @property
    def known(self) -> int:
        part = self.state.record.part
        return 0 if part is None else part.total_round

    def backup(self) -> Disk:
        return self.disk.copy()

    def restore(self, disk: Disk, vault: bytes | None = None) -> None:
        """Go back to an earlier database, and to an earlier vault if it is given."""
        self.disk = disk.copy()
        if vault is not None:
            self.vault.write(vault)
        self.boot()


class World:
    """Honest members, a bus that keeps everything, and a clock.

    strangers: names whose keys no operator has confirmed.
    """

    def __init__(
        self,
        names: Collection[str] = ("a", "b", "c"),
        *,
        mistake: str = "",
        strangers: Collection[str] = (),
    ) -> None:
        self.now, self.mistake, self.strangers = float(BEGIN), mistake, strangers
        self.keys = {name: new_signing_key() for name in names}
        self.publics = {name: key.public for name, key in self.keys.items()}
        self.bus: dict[str, bytes] = {}
        self.history: list[tuple[str, bytes]] = []
        self.sent: dict[bytes, SentRow] = {}
        self.copied: set[str] = set()  # members whose vault was restored, too: they may send anything
        self.accepted: dict[str, set[bytes]] = {}  # epochs by who has accepted them
        self.epochs: dict[bytes, Epoch] = {}  # of all rows
        self.opened: list[tuple[str, Opened]] = []
        self.hidden: set[str] = set()  # places that the bus shows to nobody
        self.actors: dict[str, Actor] = {}
        self.hostile: dict[str, Hostile] = {}

    @property
    def known(self) -> dict[str, str]:
        """The keys that operators have confirmed, by name."""
        return {name: public for name, public in self.publics.items() if name not in self.strangers}

    @staticmethod
    def plausible(values: Integers, members: int) -> bool:
        return bool(values[-1] >= 0) and members < 1000

    def start(self, *names: str) -> World:
        for name in names or self.keys:
            self.actors[name] = Actor(self, name, self.keys[name])
        return self

    def draft(
        self,
        number: int = 1,
        members: Collection[str] | None = None,
        openers: tuple[str, ...] = (),
        *,
        honest: int = 2,
        fork: str = "",
    ) -> Draft:
        names = [*(self.keys if members is None else members)]
        return Draft(
            FEDERATION,
            f"roster {number}{fork}",
            number,
            {name: self.publics[name] for name in names},
            tuple(sorted(openers or names[:2])),
            honest,
            ENTRIES,
            Rounds(begin=int(self.now), first=EVERY, ratio=1, count=ROUNDS),
        )

    def give(self, draft: Draft, *names: str) -> Draft:
        for name in names or draft.members:
            if name in self.actors:
                self.actors[name].take_roster(draft)
        return draft

    def publish(self, actor: Actor, place: str, message: bytes) -> None:
        if place not in self.hidden:
            self.bus[place] = message
        self.history.append((place, message))
        if place.endswith(f".{ACCEPTED}"):
            signed_ones = msgspec.msgpack.decode(message, type=list[bytes])
            self.accepted.setdefault(actor.name, set()).update(parse(each).epoch for each in signed_ones)
        if f".{ROW}." in place:
            signed, _ = row_and_share(message)
            row = parse(signed)
            assert isinstance(row, RowMessage)
            sent_in = actor.record.part
            assert sent_in is not None
            self.epochs[sent_in.epoch.digest] = sent_in.epoch
            records = frozenset[int]().union(*actor.disk.runs[-1].leaves[: row.number])
            self.sent.setdefault(digest(signed), SentRow(actor.name, row.epoch, row.number, records, row))
        if place.endswith(f".{PARTIAL}"):
            part = actor.record.part
            assert part is not None
            assert part.opened is not None
            if not self.opened or self.opened[-1][1].partial != part.opened.partial:
                self.opened.append((actor.name, part.opened))

    def records_in(self, *, opened: bool = False) -> dict[int, set[bytes]]:
        """The epochs of the rows that each record is in: of all rows that were sent, or were opened."""
        rows = [*self.sent.values()]
        if opened:
            rows = [
                self.sent[each] for _, one in self.opened for each in one.rows.values() if each in self.sent
            ]
        epochs: dict[int, set[bytes]] = {}
        for row in rows:
            for record in row.records:
                epochs.setdefault(record, set()).add(row.epoch)
        return epochs

    def check(self) -> None:
        """Rows of honest members are where they may be, and honest openers open no more than they may.

        Of a member whose vault was copied, openers take one history in each epoch: nothing else is promised.
        """
        rows = [row for row in self.sent.values() if row.name not in self.copied]
        epochs = {(record, row.epoch) for row in rows for record in row.records}
        assert len({record for record, _ in epochs}) == len(epochs), "a record in two epochs"
        assert len({(row.name, row.epoch, row.number) for row in rows}) == len(rows), "two rows of a round"
        for each in {row.epoch for row in rows}:
            epoch, known = self.epochs[each], {*self.known}
            for other in epoch.members.keys() & self.actors.keys():
                assert each in self.accepted.get(other, ()), "a row in an epoch that not all have accepted"
            few = len(known & epoch.members.keys()) < epoch.honest + epoch.colluding
            assert not few, "a row among strangers"
            assert known >= epoch.openers.keys(), "a row among strangers"
        last: dict[tuple[str, bytes], Opened] = {}
        for opener, opened in self.opened:
            for name in opened.rows.keys() & self.actors.keys():
                assert opened.rows[name] in self.sent, "a row that its member never sent"
            before = last.get((opener, opened.epoch))
            if before is not None and before.partial != opened.partial and opener not in self.copied:
                assert opened.number > before.number, "a round opened twice"
                for name, row in opened.rows.items():
                    if row in self.sent:
                        listed = self.sent[row].row.earlier  # of the rounds before this one
                        since = opened.number - before.number
                        assert since <= len(listed), "two histories"
                        assert listed[-since] == before.rows[name], "two histories"
            last[opener, opened.epoch] = opened

    def turn(self, *names: str, times: int = 4, alive: Collection[str] | None = None) -> None:
        """Let members act, one at a time."""
        for _ in range(times):
            for name in names or [*self.actors]:
                self.actors[name].receive(self.bus)
                self.actors[name].tick(alive)

    def round(self, *names: str, alive: Collection[str] | None = None) -> None:
        self.now += EVERY
        self.turn(*names, alive=alive)


class Hostile:
    """A member that signs whatever helps an attacker; the bus and the convener do what it wants."""

    def __init__(self, world: World, name: str) -> None:
        self.world, self.name, self.key = world, name, world.keys[name]
        self.rows: dict[bytes, dict[int, bytes]] = {}  # digests, by epoch and round
        self.fickle = 0.05  # how often it sends another row of a round

    @classmethod
    def of(cls, world: World, name: str) -> Hostile:
        """The one of this name in the world."""
        return world.hostile.setdefault(name, cls(world, name))

    def say(self, kind: str, message: bytes) -> None:
        place = f"{self.name}.{kind}"
        self.world.bus[place] = message
        self.world.history.append((place, message))

    def secret(self, number: int, variant: int = 0) -> bytes:
        return hashlib.sha256(f"{self.name} {number} {variant}".encode()).digest()

    def show_key(self, number: int, variant: int = 0) -> None:
        public = public_key_of(self.secret(number, variant))
        self.say(OPENER, sign(OpenerKey(key_place(FEDERATION, number), self.name, public), self.key))

    def accept(self, *epochs: Epoch) -> None:
        signed = [sign(Acceptance(each.digest, self.name), self.key) for each in epochs]
        self.say(ACCEPTED, msgspec.msgpack.encode(signed))

    def send_row(self, epoch: Epoch, number: int, value: int = 0, *, again: bool = False) -> None:
        """A row that lists all earlier ones; `again` one of a round that may have had another."""
        digests = self.rows.setdefault(epoch.digest, {})
        if number <= max(digests, default=0) and not again:
            return
        made = make_row(
            epoch,
            self.name,
            self.key,
            number,
            np.array([value, 0], dtype=np.int64),
            earlier=tuple(digests.get(each) for each in range(1, number)),
            place=bytes(32),
            random=hashlib.sha256(repr((epoch.digest, number)).encode()).digest(),
        )
        digests[number] = digest(made.signed)
        for opener, share in made.shares.items():
            self.say(f"{ROW}.{opener}", with_share(made.signed, share))

    def forge_row(self, epoch: Epoch, name: str, number: int) -> None:
        """A row under the name of another member."""
        made = make_row(
            epoch,
            name,
            self.key,
            number,
            np.array([7, 1], dtype=np.int64),
            earlier=(None,) * (number - 1),
            place=bytes(32),
            random=bytes(32),
        )
        for opener, share in made.shares.items():
            self.world.history.append((f"{name}.{ROW}.{opener}", with_share(made.signed, share)))
            self.world.bus[f"{name}.{ROW}.{opener}"] = with_share(made.signed, share)

    def help(self, rng: random.Random) -> None:
        """Do what makes honest members go on: keys, acceptances, rows."""
        actors = [*self.world.actors.values()]
        for number in {actor.draft.number for actor in actors if actor.draft is not None}:
            self.show_key(number, int(rng.random() < 0.05))
        epochs = [actor.state.next for actor in actors]
        epochs += [part.epoch for part in (actor.state.record.part for actor in actors) if part is not None]
        self.accept(*(each for each in epochs if each is not None))
        for actor in actors:
            part = actor.state.record.part
            if part is not None and self.name in part.epoch.members:
                number, again = part.rounds.number(self.world.now) or 1, rng.random() < self.fickle
                self.send_row(part.epoch, number, value=rng.randrange(3) if again else 0, again=again)
