"""Random attacks on the machine of secure aggregation: no record is ever in rows of two epochs.

Convener, hub and one member are hostile. They give each honest member any roster at any time, forks of one
number among them, show it any message of the past, hold back any other, change openers, and restore honest
members' databases from backups. Members act one at a time.
"""

from __future__ import annotations

import random

import pytest
from hypothesis import given
from hypothesis import strategies as st

from machine_helpers import EVERY, Actor, Disk, Hostile, World

HONEST, HOSTILE = ("a", "g", "h"), "m"


class Attack:
    """A random schedule."""

    def __init__(self, rng: random.Random, *, mistake: str = "") -> None:
        self.rng, self.world = rng, World((*HONEST, HOSTILE), mistake=mistake)
        self.hostile = Hostile(self.world, HOSTILE)
        self.world.start(*HONEST)
        self.records, self.number = 0, 0
        self.backups: list[tuple[str, Disk]] = []
        self.new_roster([*HONEST])

    def run(self, steps: int) -> World:
        actions = {
            self.deliver: 30,
            self.tick: 20,
            self.replay: 6,
            self.help: 20,
            self.roster: 3,
            self.wait: 8,
            self.calm: 4,
            self.learn: 8,
            self.restart: 2,
            self.backup: 1,
            self.restore: 0.1,
        }
        for number, action in enumerate(self.rng.choices([*actions], [*actions.values()], k=steps)):
            action()
            if number % 10 == 0:
                self.world.check()
        self.world.check()
        return self.world

    def actor(self) -> Actor:
        return self.world.actors[self.rng.choice(HONEST)]

    def deliver(self) -> None:
        shown = {place: each for place, each in self.world.bus.items() if self.rng.random() < 0.9}
        self.actor().receive(shown)

    def tick(self) -> None:
        self.actor().tick()

    def replay(self) -> None:
        history = self.world.history
        self.actor().receive(dict(self.rng.sample(history, min(3, len(history)))))

    def help(self) -> None:
        self.hostile.help(self.rng)

    def roster(self) -> None:
        several = [name for name in HONEST if self.rng.random() < 0.95]
        self.new_roster(several or [*HONEST])

    def new_roster(self, names: list[str]) -> None:
        """A later one for these members, and sometimes another of its number for the rest."""
        self.number += self.rng.choice((1, 1, 2))
        for fork, group in (("", names), ("'", [each for each in HONEST if each not in names])):
            members = [*HONEST, HOSTILE]
            if self.rng.random() < 0.2:
                members.remove(self.rng.choice([each for each in HONEST if each not in group] or [HOSTILE]))
            openers = tuple(self.rng.sample(members, 2))
            if group and (not fork or self.rng.random() < 0.5):
                self.world.give(self.world.draft(self.number, members, openers, fork=fork), *group)

    def wait(self) -> None:
        self.world.now += self.rng.choice((EVERY / 2, EVERY, 7 * EVERY))

    def calm(self) -> None:
        """Nobody is hindered for a while."""
        for _ in range(3):
            self.help()
            self.world.turn(times=1)

    def learn(self) -> None:
        self.records += 1
        self.actor().learn(self.records)

    def restart(self) -> None:
        self.actor().boot()

    def backup(self) -> None:
        actor = self.actor()
        self.backups.append((actor.name, actor.backup()))

    def restore(self) -> None:
        if self.backups:
            name, disk = self.rng.choice(self.backups)
            self.world.actors[name].restore(disk)


@given(st.randoms(use_true_random=False))
def test_whatever_is_done_a_record_is_in_rows_of_one_epoch(rng: random.Random) -> None:
    Attack(rng).run(60)


def test_attacks_reach_several_epochs_with_opened_rows() -> None:
    """Or they would prove nothing."""
    worlds = [Attack(random.Random(seed)).run(300) for seed in range(10)]
    assert sum(len({opened.epoch for _, opened in world.opened}) >= 2 for world in worlds) >= 3


@pytest.mark.parametrize("mistake", ["a frozen leaf moves", "a leaf is copied"])
def test_attacks_notice_a_mistake(mistake: str) -> None:
    noticed = []
    for seed in range(6):
        try:
            Attack(random.Random(seed), mistake=mistake).run(300)
        except AssertionError as error:
            noticed.append("a record in two epochs" in str(error))
    assert all(noticed)
    assert len(noticed) >= 3


# --- the attack that worked on epochs that shared leaves ---------------------------------------------------


def closed_in(world: World, number: int) -> None:
    """Honest members make rows in five rounds; from the fourth on, openers do not get those of `a`."""
    for each in range(1, number + 1):
        for place, name in enumerate(HONEST):
            world.actors[name].learn(10 * each + place)
        if each > 3:
            world.hidden |= {"a.row.h", "a.row.m"}
        world.now += EVERY
        hostile_rows(world)
        world.turn()


def hostile_rows(world: World) -> None:
    Hostile.of(world, HOSTILE).help(random.Random(0))


def begun(names: tuple[str, ...] = (*HONEST, HOSTILE)) -> World:
    world = World(names).start(*HONEST)
    world.give(world.draft(openers=("h", HOSTILE)))
    for _ in range(3):
        hostile_rows(world)
        world.turn()
    assert {actor.epoch for actor in world.actors.values()} == {1}
    return world


@pytest.mark.parametrize("rosters", [1, 2], ids=["honest convener", "hostile convener"])
def test_an_opener_that_is_kept_in_the_old_epoch_shows_nothing_that_is_sent_in_the_next(rosters: int) -> None:
    """Hub and one opener show the honest opener the old rows when all others have begun the next epoch."""
    world = begun()
    closed_in(world, 5)
    late = dict(world.history)  # all rows of round 5, that of `a` among them
    world.hidden = set()
    opener = world.actors["h"]
    for number in range(2, 2 + rosters):
        world.give(world.draft(number, openers=("g", HOSTILE)))
        for _ in range(4):
            hostile_rows(world)
            world.turn("a", "g")
            opener.tick()  # it accepts, and is not shown that the others have
            opener.receive({place: each for place, each in world.bus.items() if place.endswith(".opener")})
        world.now += 600.0
        world.turn("a", "g")
        assert {name: world.actors[name].epoch for name in HONEST} == {"a": number, "g": number, "h": 1}
        for place, name in enumerate(HONEST):
            world.actors[name].learn(1000 * number + place)
        world.now += EVERY
        hostile_rows(world)
        world.turn("a", "g")
    opener.receive(late)
    opener.tick()
    opened = [each.number for name, each in world.opened if name == "h"]
    assert opened[-1] == 5  # it has opened the old round, which is right in its epoch
    world.check()
    assert {len(epochs) for epochs in world.records_in(opened=True).values()} == {1}
    sent = {record for row in world.sent.values() if row.name == "a" for record in row.records}
    assert {40, 50, 1000 * (1 + rosters)} <= sent  # bound to the old epoch, and to the last


def test_records_are_opened_in_one_of_32_epochs() -> None:
    world = begun()
    for place, name in enumerate(HONEST):
        world.actors[name].learn(1 + place)
    for number in range(2, 34):
        world.now += EVERY
        hostile_rows(world)
        world.turn()
        world.give(world.draft(number, openers=("h", HOSTILE)))
        for _ in range(3):
            hostile_rows(world)
            world.turn()
        world.now += 600.0  # the hostile opener opens nothing
        world.turn()
        assert {actor.epoch for actor in world.actors.values()} == {number}
    assert len({opened.epoch for _, opened in world.opened}) >= 30
    assert {record: len(epochs) for record, epochs in world.records_in(opened=True).items()} == {
        1: 1,
        2: 1,
        3: 1,
    }
