"""What the death of a member costs the others with secure aggregation: days of data that are in no total.

One of five members dies before, at or after a round, in the second week of an epoch, and is removed by a new
roster 1, 7 or 30 days later. The others go on until the new epoch has its first total. What a member has
learnt until then and is in no total is lost to the others. Time is virtual: the members are those of
`tests/support/machine_helpers.py`, which carry out what the machine of secure aggregation decides.

A death is seen once the last sign of life is more than `NOTICED` seconds old. With `ignore_signs`, which is a
mistake, members make rows whether all others give signs of life or not. It shows what this condition saves.
"""

from __future__ import annotations

import sys
from collections.abc import Mapping
from dataclasses import replace
from pathlib import Path

import numpy as np

from fedfairx.federation.aggregation.machine import PATIENCE
from fedfairx.federation.exchange.alive import AHEAD, silence
from fedfairx.federation.roster.rounds import Rounds
from measure import Report, main

sys.path.insert(0, str(Path(__file__).resolve().parent.parent / "tests" / "support"))
from machine_helpers import Actor, World

DAY = 86_400.0
NAMES = ("a", "b", "c", "d", "e")
OPENER, SENDER = "b", "e"  # two that may die; a and b open
AGE = 7 * DAY  # of the epoch, at the round before the death
REMOVED = 1, 7, 30  # days after the death
SCHEDULES = {
    "default rounds": Rounds(begin=0),
    "hourly rounds": Rounds(begin=0, ratio=1, count=365 * 24),
}
NOTICED = silence(len(NAMES)) + AHEAD  # seconds after the last sign of life
STEP = 300.0  # seconds between the moments of death over which the mean is taken
AIM = 0.01  # days


class Members:
    """Members that learn all the time. `seconds`: for how long they have learnt each record."""

    def __init__(self, rounds: Rounds) -> None:
        self.world = World(NAMES)
        self.world.now = float(rounds.begin)
        self.world.start()
        self.seconds: dict[int, float] = {}
        self.begin(1, rounds)
        self.settle()

    def begin(self, number: int, rounds: Rounds) -> None:
        """Give all that are here a roster with them alone."""
        self.world.give(replace(self.world.draft(number, members=[*self.world.actors]), rounds=rounds))

    def wait(self, now: float) -> None:
        """Learn a record until then."""
        record = len(self.seconds) + 1
        self.seconds[record] = now - self.world.now
        for actor in self.world.actors.values():
            actor.learn(record)
        self.world.now = now

    def settle(self, alive: tuple[str, ...] = NAMES) -> None:
        """Let all act until nobody has anything new to say."""
        before: Mapping[str, bytes] | None = None
        while before != self.world.bus:
            before = dict(self.world.bus)
            self.world.turn(times=1, alive=alive)

    def lost(self) -> float:
        """Days of the data of the member that lost most, which are in no total that all know."""
        actors = [*self.world.actors.values()]
        known = [last_rounds(actor) for actor in actors]
        worst = 0.0
        for actor in actors:
            records = {*self.seconds}
            for epoch, run in enumerate(actor.disk.runs, 1):
                last = min(rounds.get(epoch, 0) for rounds in known)
                records -= frozenset().union(*run.leaves[:last])
            worst = max(worst, sum(self.seconds[each] for each in records))
        return worst / DAY


def last_rounds(actor: Actor) -> dict[int, int]:
    """The round of the last total that a member knows of each epoch."""
    past = {total.number: total.round for total in actor.state.record.past}
    return {**past, actor.epoch: actor.known}


def lost_days(
    rounds: Rounds,
    death: float,
    removed: float,
    *,
    name: str = OPENER,
    sent: bool = False,
    ignore_signs: bool = False,
) -> float:
    """Days of data that the death of a member costs each of the others.

    removed: days from the death to the new roster.
    sent: whether it first sends the row of a round that is due at its death.
    """
    members = Members(rounds)
    world, end = members.world, death + removed * DAY
    for moment in [each for each in rounds.times if each < death][-2:]:
        members.wait(moment)
        members.settle()
    members.wait(death)
    if sent:
        world.turn(name, times=1)
    del world.actors[name]
    others = tuple(world.actors)
    for moment in [each for each in rounds.times if death <= each < end]:
        members.wait(moment)
        members.settle(NAMES if ignore_signs or moment - death <= NOTICED else others)
    members.wait(end)
    following = replace(rounds, begin=int(end))
    members.begin(2, following)
    members.settle(others)
    members.wait(end + PATIENCE)
    members.settle(others)
    members.wait(following.times[0])
    members.settle(others)
    assert {actor.epoch for actor in world.actors.values()} == {2}
    return members.lost()


def around(rounds: Rounds) -> tuple[int, int]:
    """The times of two rounds, between which the epoch has the age `AGE`."""
    number = rounds.number(rounds.begin + AGE)
    return rounds.times[number - 1], rounds.times[number]


def mean_lost(rounds: Rounds, removed: float, count: int, *, ignore_signs: bool = False) -> float:
    """The mean of `lost_days` over `count` moments of death, evenly from one round to the next."""
    first, last = around(rounds)
    moments = first + (np.arange(count) + 0.5) * (last - first) / count
    return float(
        np.mean([lost_days(rounds, float(each), removed, ignore_signs=ignore_signs) for each in moments])
    )


def run(report: Report) -> None:
    for name, rounds in SCHEDULES.items():
        first, last = around(rounds)
        leaf = (last - first) / DAY
        count = 4 if report.quick else round((last - first) / STEP)
        for days in REMOVED[:1] if report.quick else REMOVED:
            report.heading(f"{name}, a leaf of {leaf:.3f} days, removed after {days} days: days lost")

            def add(text: str, value: float, at_most: float | None = None) -> None:
                report.add(text, value, "d", at_most=at_most)

            seen, unseen = last - NOTICED - 60.0, last - NOTICED / 2
            add("dies before a round, seen", lost_days(rounds, seen, days), AIM)
            add("dies before a round, not seen yet", lost_days(rounds, unseen, days), leaf + AIM)
            at = {who: lost_days(rounds, last, days, name=who, sent=True) for who in (OPENER, SENDER)}
            add("dies at a round, its row sent, an opener", at[OPENER], leaf + AIM)
            add("dies at a round, its row sent, no opener", at[SENDER], AIM)
            add("dies after a round", lost_days(rounds, first + 60.0, days), AIM)
            if not report.quick:  # few moments see no death in the last minutes before a round
                add(f"mean over {count} moments of death", mean_lost(rounds, days, count), AIM)
            add("signs ignored: mean over 4 moments of death", mean_lost(rounds, days, 4, ignore_signs=True))


if __name__ == "__main__":
    main("loss", run, __doc__)
