"""Participants over a bus that does what it likes, and processes that die at every step.

Whatever happens, a total that anybody takes is the exact sum of one row of each member, every opener opens a
round for one set of rows, and nobody stops with an error.
"""

from __future__ import annotations

import functools
import itertools
import random
from dataclasses import dataclass, field

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from aggregation_helpers import Crash, Crashes, Group, exact, group, people, place_of
from fedfairx.errors import LedgerMismatch, PrivacyError
from fedfairx.federation.aggregation import messages
from fedfairx.federation.aggregation.agreement import shown
from fedfairx.federation.aggregation.messages import Partial, Row, digest, parse, sign
from fedfairx.federation.aggregation.shares import Integers
from fedfairx.federation.aggregation.total import Total
from fedfairx.federation.roster.signing_keys import signed_by

EDGE = 2**56  # fifty of them fit into 64 bits


@pytest.fixture(autouse=True)
def _verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """All members are in this process, and most of its time would go into verifying the same signatures."""
    monkeypatch.setattr(messages, "signed_by", functools.cache(signed_by))


@pytest.mark.long
@settings(max_examples=8)
@given(
    m=st.sampled_from([3, 4, 7, 50]) | st.integers(3, 50),
    c=st.integers(1, 10),
    entries=st.sampled_from([1, 2, 8, 300]),
    values=st.lists(
        st.sampled_from([0, 1, -1, EDGE, -EDGE]) | st.integers(-EDGE, EDGE), min_size=1, max_size=40
    ),
    seed=st.integers(0, 2**32),
)
def test_sums_are_exact_in_any_order_of_arrival(
    m: int, c: int, entries: int, values: list[int], seed: int
) -> None:
    c = min(c, m - 2)
    chance = random.Random(seed)
    here = group(m, c, entries=entries)
    for name in here.epoch.members:
        here.start(name)
    here.pump(chance)
    rows = {
        name: np.array(
            [values[(entries * place + at) % len(values)] for at in range(entries)], dtype=np.int64
        )
        for place, name in enumerate(here.epoch.members)
    }
    names = [*rows]
    chance.shuffle(names)
    for name in names:
        here.send(2, {name: rows[name]})
        if chance.random() < 0.2:
            here.pump(chance)
    here.pump(chance)
    for member in here.members.values():
        assert member.total is not None
        assert member.total.values.tolist() == exact(rows)
        assert not member.refusals


def test_a_member_that_is_away_delays_totals_and_nothing_is_lost() -> None:
    here = group(4).start_all()
    here.round(1)
    away = {name: row for name, row in here.rows(2).items() if name != "org03"}
    here.send(2, away)
    here.pump()
    assert here.members["org00"].missing_rows(2) == ["org03"]
    for member in here.members.values():
        assert member.total is not None
        assert member.total.number == 1
    rows = here.round(3)  # cumulative: round 2 is superseded, and opens no more
    for member in here.members.values():
        assert member.total is not None
        assert (member.total.number, member.total.values.tolist()) == (3, exact(rows))


def test_an_opener_that_is_away_delays_totals() -> None:
    here = group(4).start_all()
    here.send(1, here.rows(1))
    here.pump(only=["org00", "org02", "org03"])
    assert here.members["org02"].total is None
    here.pump()
    assert here.members["org02"].total is not None


def test_a_row_that_can_not_be_opened_is_dropped_and_named() -> None:
    """Another row of the same sender can then be taken: nothing was opened."""
    here = group(4).start_all()
    bad = parse(here.members["org03"].send(1, here.rows(1)["org03"], place=b""))
    assert isinstance(bad, Row)
    good = next(iter(here.members["org03"].sender.messages(0)))
    spoilt = sign(Row(bad.epoch, bad.name, 1, (), (bytes(80), bad.shares[1])), here.keys["org03"])
    opener = here.members["org00"]
    opener.receive(spoilt)
    for name in ("org00", "org01", "org02"):
        opener.receive(here.members[name].send(1, here.rows(1)[name], place=b""))
    assert opener.refusals == {("org03", "share"): 1}
    assert opener.missing_rows(1) == ["org03"]
    opener.receive(spoilt)
    assert opener.missing_rows(1) == ["org03"]
    opener.receive(good)
    assert opener.opener is not None
    assert opener.opener.last == 1


def test_an_opener_without_its_vault_says_so_and_goes_on_as_a_member() -> None:
    here = group(4).start_all()
    here.round(1)
    here.disks["org00"][1].restore({})
    here.start("org00")
    here.pump()
    here.round(2)
    assert "no key of epoch 1" in here.members["org00"].trouble
    assert here.members["org00"].sender.last == 2
    for member in here.members.values():
        assert member.total is not None
        assert member.total.number == 1


def test_an_opener_that_has_closed_opens_nothing_more_and_that_is_no_trouble() -> None:
    here = group(4).start_all()
    here.send(1, here.rows(1))
    member = here.members["org00"]
    member.close()
    here.pump()
    assert member.missing_rows(1) == []
    assert (member.total, member.trouble) == (None, "")


def test_an_opener_waits_for_all_to_accept_and_that_is_no_trouble() -> None:
    """A process that starts again may get rows before it gets acceptances."""
    here = group(4).start_all()
    here.send(1, here.rows(1))
    here.pump(only=[])
    rows = here.messages(1).values()
    member = here.start("org00")
    for message in rows:
        member.receive(message)
    assert member.opener is not None
    assert member.missing_rows(1) == []
    assert (member.opener.last, member.trouble) == (0, "")
    here.pump()
    assert (member.opener.last, member.trouble) == (1, "")


def test_two_rows_of_a_round_are_noticed() -> None:
    here = group(4).start_all()
    disk = here.disks["org03"][0]
    backup = disk.backup()
    one = here.members["org03"].send(1, here.rows(1)["org03"], place=b"")
    disk.restore(backup)
    here.start("org03")
    here.pump()
    two = here.members["org03"].send(1, here.rows(2)["org03"], place=b"")
    opener = here.members["org00"]
    for message in (one, two, one):
        opener.receive(message)
    assert opener.refusals == {("org03", "two contents"): 1}


# --- a bus that does what it likes ------------------------------------------------------------------------


@dataclass
class Storm:
    """A random schedule: the bus drops, delays, reorders, repeats, changes and splits; processes restart.

    Senders are also restored from backups or run twice. Everything that anybody ever publishes is on the bus,
    and the bus delivers single messages to single members, or does not.
    """

    seed: int
    here: Group = field(init=False)
    contents: dict[bytes, tuple[str, Integers]] = field(default_factory=dict)  # rows by their digest
    partials: dict[tuple[str, int], bytes] = field(default_factory=dict)
    honest: set[str] = field(default_factory=set)  # never restored
    totals: list[Total] = field(default_factory=list)

    def __post_init__(self) -> None:
        self.chance = random.Random(self.seed)
        m = self.chance.choice([3, 4, 5])
        self.here = group(m, self.chance.randint(1, m - 2), rounds=12).start_all()
        self.honest = {*self.here.epoch.members}
        self.clock = 1
        self.backups = {name: disks[0].backup() for name, disks in self.here.disks.items()}
        self.other = group(m, 1).start_all()
        self.other.round(1)

    def run(self, steps: int) -> None:
        actions = (
            [self.send] * 4 + [self.deliver] * 12 + [self.tick, self.restart, self.junk, self.restore_opener]
        )
        actions += [self.back_up, self.restore_sender] if self.chance.random() < 0.5 else []
        for _ in range(steps):
            self.chance.choice(actions)()
            self.look()

    def any(self) -> str:
        return self.chance.choice([*self.here.members])

    def tick(self) -> None:
        self.clock = min(self.clock + 1, self.here.epoch.rounds)

    def send(self) -> None:
        name = self.any()
        member = self.here.members[name]
        stopped = self.here.stores(name).sent(self.here.epoch.digest).stopped
        if member.sender.last < self.clock and not stopped:
            row = np.array([self.chance.randint(-EDGE, EDGE) for _ in range(3)], dtype=np.int64)
            try:
                message = member.send(self.clock, row, place=place_of(name, self.clock))
            except (LedgerMismatch, PrivacyError):
                assert name not in self.honest or not member.agreement.complete
                return
            self.contents[digest(message)] = name, row

    def deliver(self) -> None:
        messages = [*self.here.bus]
        for _ in range(self.chance.randint(1, 4)):
            self.here.members[self.any()].receive(self.chance.choice(messages))

    def junk(self) -> None:
        message = bytearray(self.chance.choice([*self.here.bus, *self.other.bus]))
        if self.chance.random() < 0.7:
            message[self.chance.randrange(len(message))] ^= 1 << self.chance.randrange(8)
        self.here.members[self.any()].receive(bytes(message))

    def restart(self, name: str = "") -> None:
        name = name or self.any()
        member = self.here.start(name)
        for message in [*self.here.bus]:
            if "accept" in type(parse(message)).__name__.lower():
                member.receive(message)

    def back_up(self) -> None:
        name = self.any()
        self.backups[name] = self.here.disks[name][0].backup()

    def restore_sender(self) -> None:
        """The database comes from a backup; the vault does not."""
        name = self.any()
        self.here.disks[name][0].restore(self.backups[name])
        self.honest.discard(name)
        self.restart(name)

    def restore_opener(self) -> None:
        """An opener loses the state in one of its two places."""
        name = self.chance.choice([*self.here.epoch.openers])
        disk = self.chance.choice(self.here.disks[name])
        disk.pop(f"{name}/{self.here.epoch.digest.hex()}/opener", None)
        self.restart(name)

    def look(self) -> None:
        """Publish what members have, and check all that can be seen."""
        for member in self.here.members.values():
            for message in member.outbox():
                self.here.publish(message)
                partial = parse(message)
                if isinstance(partial, Partial):
                    held = self.partials.setdefault((partial.name, partial.number), message)
                    assert held == message  # one set of rows, one sum
            if member.total is not None and member.total not in self.totals:
                self.totals.append(member.total)
                self.check(member.total)

    def check(self, total: Total) -> None:
        rows = dict(zip(self.here.epoch.members, total.rows, strict=True))
        for name, seen in rows.items():
            assert self.contents[seen][0] == name
        summed = {name: self.contents[seen][1] for name, seen in rows.items()}
        assert total.values.tolist() == exact(summed)
        for other in self.totals:
            assert other.number != total.number or other.rows == total.rows

    def check_lives(self) -> None:
        """All rows of a sender that an opener has opened are of one life of that sender."""
        sent = {digest(m): row for m in self.here.bus if isinstance(row := parse(m), Row)}
        for opener in self.here.epoch.openers:
            opened = sorted(number for name, number in self.partials if name == opener)
            for before, after in itertools.pairwise(opened):
                one, two = (parse(self.partials[opener, number]) for number in (before, after))
                assert isinstance(one, Partial)
                assert isinstance(two, Partial)
                for first, second in zip(one.rows, two.rows, strict=True):
                    assert sent[second].lists(before, first)

    def end(self) -> None:
        """Close the epoch while the bus goes on as before, then deliver everything, and open the next."""
        here = self.here
        for name in self.chance.sample([*here.members], len(here.members)):
            for _ in range(self.chance.randint(0, 12)):
                self.chance.choice([self.send, self.deliver, self.deliver, self.restart])()
                self.look()
            here.members[name].close()
            self.look()
        here.pump()
        self.look()
        settlement = next(iter(here.members.values())).settle()
        assert {member.settle().digest for member in here.members.values()} == {settlement.digest}
        there = here.follow(settlement).start_all()
        for member in here.members.values():
            member.complete(settlement)
        here.pump()
        self.look()
        opened = max((number for _, number in self.partials), default=0)
        assert opened == settlement.last  # nothing is opened beyond it
        for name, member in here.members.items():
            assert shown(here.stores(name), here.epoch) == min(opened, member.sender.last)
            assert member.totals.number == opened  # the last round was completed
        rows = there.round(1)
        for member in there.members.values():
            assert member.total is not None
            assert member.total.values.tolist() == exact(rows)


@pytest.mark.long
def test_whatever_the_bus_does_totals_are_sums() -> None:
    opened = 0
    for seed in range(24):
        storm = Storm(seed)
        storm.run(120)
        storm.check_lives()
        for name in storm.honest:
            assert not storm.here.members[name].sender.halted
        if storm.honest == {*storm.here.epoch.members}:
            storm.end()
            storm.check_lives()
        opened += len(storm.totals)
    assert opened > 40  # the schedules do open rounds


# --- processes that die -----------------------------------------------------------------------------------

ROUNDS = 2


@dataclass
class Lives:
    """Two epochs of three members, from founding to a total in the second.

    `crashes` kills everybody at a step that is written or sent. Then all processes begin again from their
    disks; the bus keeps what it has. In the first epoch org01 lags behind at the closing, and completes the
    last round after it.
    """

    crashes: Crashes

    def __post_init__(self) -> None:
        self.people = people(3, self.crashes)
        self.buses: tuple[dict[bytes, None], dict[bytes, None]] = {}, {}
        self.rows: list[dict[str, Integers]] = []
        while True:
            try:
                self.first, self.second = self.live()
                return
            except Crash:
                continue

    def live(self) -> tuple[Group, Group]:
        """Make every step that was not made before."""
        here = group(3, 1, crashes=self.crashes, of=self.people)
        self.rows = self.rows or [here.rows(number) for number in range(ROUNDS + 1)]
        here.bus = self.buses[0]
        here.start_all()
        for number in range(1, ROUNDS + 1):
            for name, row in self.rows[number - 1].items():
                sent = here.stores(name).sent(here.epoch.digest)
                if len(sent.digests) < number and not sent.stopped:
                    here.members[name].send(number, row, place=place_of(name, number))
            here.pump(only=None if number < ROUNDS else ["org00", "org02"])
        for member in here.members.values():
            member.close()
        here.pump()
        settlement = here.members["org02"].settle()
        there = here.follow(settlement)
        there.bus = self.buses[1]
        there.start_all()
        for member in here.members.values():
            member.complete(settlement)
        here.pump()
        there.round(1, self.rows[ROUNDS])
        return here, there

    def check(self) -> None:
        for name in self.first.epoch.members:
            first, second = self.first.members[name].total, self.second.members[name].total
            assert first is not None
            assert second is not None
            assert (first.number, first.values.tolist()) == (ROUNDS, exact(self.rows[ROUNDS - 1]))
            assert (second.number, second.values.tolist()) == (1, exact(self.rows[ROUNDS]))
            assert shown(self.first.stores(name), self.first.epoch) == ROUNDS
        for bus in self.buses:  # whoever sends or opens a round does it once
            made = [(type(p), p.name, p.number) for m in bus if isinstance(p := parse(m), Row | Partial)]
            assert len(made) == len({*made})


@pytest.mark.long
def test_a_crash_at_every_step_that_is_written_or_sent() -> None:
    """The outcome is that of a life without a crash, whichever step is the first that is not made.

    A death after a step leaves the same disks and bus as a death before the next one.
    """
    whole = Lives(Crashes())
    whole.check()
    assert whole.crashes.done > 40
    for due in range(1, whole.crashes.done + 1):
        Lives(Crashes(due=due)).check()
