"""Random attacks on the machine of secure aggregation: rows stay where they may be, and openers open no more.

Convener, hub, one member and a stranger are hostile. They give each honest member any roster at any time,
forks of one number among them, show it any message of the past, hold back any other, change openers, sign two
rows of a round, forge those of others, end processes between two effects, restore honest members' databases
from backups, and in some schedules their vaults too. Members act one at a time.

Each schedule draws how often each of these happens, often never: what hides a mistake in one schedule is
missing in another (swarm testing: Groce et al., "Swarm testing", ISSTA 2012).
"""

from __future__ import annotations

import random
import re
from collections.abc import Callable
from functools import lru_cache
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

import machine_helpers
from fedfairx.federation.aggregation import machine, messages
from fedfairx.federation.aggregation.epoch import Epoch
from fedfairx.federation.aggregation.machine import Effect, Event, Phase, Publish, State
from fedfairx.federation.aggregation.shares import public_key_of
from fedfairx.federation.roster.signing_keys import SigningKey
from machine_helpers import EVERY, Actor, Crash, Disk, Hostile, World

HONEST, HOSTILE, STRANGER = ("a", "g", "h"), "m", "s"
STEPS = 120  # of a schedule


@pytest.fixture(autouse=True)
def remembered(monkeypatch: pytest.MonkeyPatch) -> None:
    """Signatures and public keys of the same bytes are the same, and take most of the time."""
    monkeypatch.setattr(SigningKey, "sign", lru_cache(4096)(SigningKey.sign))
    for module in (machine, machine_helpers):
        monkeypatch.setattr(module, "public_key_of", lru_cache(4096)(public_key_of))


class Attack:
    """A random schedule."""

    def __init__(self, rng: random.Random, *, mistake: str = "") -> None:
        self.rng = rng
        self.world = World((*HONEST, HOSTILE, STRANGER), mistake=mistake, strangers=(STRANGER,))
        self.hostile = [Hostile(self.world, name) for name in (HOSTILE, STRANGER)]
        self.copies = rng.random() < 0.25  # whether vaults are restored with their databases
        self.strangers = rng.random() < 0.25
        for hostile in self.hostile:
            hostile.fickle = rng.choice((0.0, 0.05, 0.5))
        self.world.start(*HONEST)
        self.records, self.number = 0, 0
        self.backups: list[tuple[str, Disk, bytes | None]] = []
        self.new_roster([*HONEST])

    def run(self, steps: int) -> World:
        base = {
            self.deliver: 30,
            self.tick: 20,
            self.replay: 6,
            self.help: 20,
            self.forge: 2,
            self.roster: 3,
            self.wait: 8,
            self.calm: 12,
            self.learn: 12,
            self.restart: 2,
            self.crash: 3,
            self.backup: 3,
            self.restore: 2,
        }
        weights = [weight * self.rng.choice((0.0, 0.3, 1.0, 1.0, 3.0)) for weight in base.values()]
        actions = [*base, self.calm]
        for number, action in enumerate(self.rng.choices(actions, [*weights, 2.0], k=steps)):
            try:
                action()
            except Crash:
                self.restart_dead()
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
        for hostile in self.hostile:
            hostile.help(self.rng)

    def forge(self) -> None:
        """A row under an honest member's name, of its epoch's next round."""
        actor = self.actor()
        part = actor.state.record.part
        if part is not None and part.last < part.epoch.rounds:
            self.hostile[0].forge_row(part.epoch, actor.name, part.last + 1)

    def roster(self) -> None:
        several = [name for name in HONEST if self.rng.random() < 0.95]
        self.new_roster(several or [*HONEST])
        if self.rng.random() < 0.5:  # and time to begin its epoch, which is rare otherwise
            self.calm()
            self.world.now += 7 * EVERY
            self.calm()

    def new_roster(self, names: list[str]) -> None:
        """A later one for these members, and sometimes another of its number for the rest."""
        self.number += self.rng.choice((1, 1, 2))
        running = [each for each in HONEST if self.world.actors[each].phase is not Phase.HALTED]
        for fork, group in (("", names), ("'", [each for each in HONEST if each not in names])):
            members = [*running, HOSTILE]
            if self.rng.random() < 0.2:
                members.remove(self.rng.choice([each for each in running if each not in group] or [HOSTILE]))
            if self.strangers and self.rng.random() < 0.5:
                members.append(STRANGER)
            if len(members) < 3:
                continue
            openers = tuple(self.rng.sample(members, 2))
            if group and (not fork or self.rng.random() < 0.5):
                self.world.give(self.world.draft(self.number, members, openers, fork=fork), *group)

    def wait(self) -> None:
        self.world.now += self.rng.choice((EVERY / 2, EVERY, 7 * EVERY))

    def calm(self) -> None:
        """Nobody is hindered for a while, most often until the next round."""
        if self.rng.random() < 0.7:
            self.world.now += EVERY
        for _ in range(3):
            self.help()
            self.world.turn(times=1)

    def learn(self) -> None:
        self.records += 1
        self.actor().learn(self.records)

    def restart(self) -> None:
        self.actor().boot()

    def crash(self) -> None:
        """The process will end before one of its next effects."""
        actor = self.actor()
        actor.dies_at = actor.steps + self.rng.randint(1, 8)

    def restart_dead(self) -> None:
        for actor in self.world.actors.values():
            if actor.steps == actor.dies_at:
                actor.dies_at = 0
                actor.boot()

    def backup(self) -> None:
        actor = self.actor()
        self.backups.append((actor.name, actor.backup(), actor.vault.read()))

    def restore(self) -> None:
        """An earlier database, most often of a moment ago; in some schedules with its vault."""
        latest = [(each.name, *saved) for each in self.world.actors.values() for saved in each.saved]
        places = latest if self.rng.random() < 0.6 else self.backups
        if places:
            name, disk, vault = self.rng.choice(places)
            if self.copies:
                self.world.copied.add(name)
            self.world.actors[name].restore(disk, vault if self.copies else None)


@given(st.randoms(use_true_random=False))
def test_whatever_is_done_rows_stay_where_they_may_be(rng: random.Random) -> None:
    Attack(rng).run(60)


@pytest.mark.slow
@pytest.mark.parametrize("first", range(0, 5_000, 250))
def test_five_thousand_schedules_find_nothing(first: int) -> None:
    for seed in range(first, first + 250):
        Attack(random.Random(seed)).run(STEPS)


def test_attacks_reach_several_epochs_with_opened_rows() -> None:
    """Or they would prove nothing."""
    worlds = [Attack(random.Random(seed)).run(300) for seed in range(10)]
    assert sum(len({opened.epoch for _, opened in world.opened}) >= 2 for world in worlds) >= 3


# --- what the search finds ---------------------------------------------------------------------------------


def _publishes_first(state: State, event: Event, now: float) -> tuple[State, list[Effect]]:
    after, effects = machine.step(state, event, now)
    return after, sorted(effects, key=lambda each: not (isinstance(each, Publish) and ".row." in each.place))


Mistake = tuple[Any, str, Any, str]
#: Checks that are taken out: where, what is there instead, and what then happens.
MISTAKES: dict[str, Mistake] = {
    "nobody compares the vault with the database": (
        machine,
        "vault_trouble",
        lambda *_: "",
        "a record in two epochs|two rows of a round|a round opened twice|two histories",
    ),
    "an opener asks its database alone what it has opened": (
        State,
        "opened",
        property(lambda state: state.record.part and state.record.part.opened),
        "a round opened twice|two histories",
    ),
    "openers compare no histories": (
        messages.RowMessage,
        "lists",
        lambda *_: True,
        "two histories",
    ),
    "who is in an epoch counts as having accepted it": (
        machine._Turn,
        "accepting",
        lambda _, epoch: [*epoch.members],
        "not all have accepted",
    ),
    "nobody has to be confirmed": (Epoch, "unconfirmed", lambda *_: "", "among strangers"),
    "rows leave before they are stored": (
        machine_helpers,
        "step",
        _publishes_first,
        "two rows of a round|a record in two epochs",
    ),
    "no signature is checked": (messages, "_is_signed", lambda *_: True, "never sent|not all have accepted"),
}


def schedules_until(wrong: Callable[[int], object], most: int) -> tuple[int, str]:
    """The number of schedules until one shows what is wrong, and what that is; 0 if none of them does."""
    for seed in range(most):
        try:
            wrong(seed)
        except AssertionError as error:
            return seed + 1, str(error).partition("\n")[0]
    return 0, ""


@pytest.mark.long
@pytest.mark.parametrize("mistake", MISTAKES)
def test_the_search_finds_a_check_that_was_taken_out(mistake: str, monkeypatch: pytest.MonkeyPatch) -> None:
    where, name, instead, says = MISTAKES[mistake]
    monkeypatch.setattr(where, name, instead)
    count, found = schedules_until(lambda seed: Attack(random.Random(seed)).run(STEPS), 200)
    assert count, "nothing was found"
    assert re.search(says, found), found


@pytest.mark.parametrize("mistake", ["a frozen leaf moves", "a leaf is copied"])
def test_the_search_finds_a_record_in_two_epochs(mistake: str) -> None:
    count, found = schedules_until(lambda seed: Attack(random.Random(seed), mistake=mistake).run(STEPS), 20)
    assert count
    assert "a record in two epochs" in found


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
