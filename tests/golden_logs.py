"""Logs that were written once, and what is read from them: `python tests/golden_logs.py` compares.

Each file of `golden_logs/` is the database of one agent, and `golden_logs.json` has digests of its rows, of
the state that replay ends in, and of what the agent does next. What is read is the same on every machine.
What is computed again may differ in the last bits, as in `golden.py`.

`--write` makes the logs that have no file, and stores the digests of all. A log that is there is never
written again: it stays as the source of its time wrote it.
"""

from __future__ import annotations

import argparse
import hashlib
import json
import lzma
import sqlite3
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import asdict
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import Any
from unittest.mock import patch

import numpy as np

import fedfairx as ffx
from fedfairx.agent.exchange import TOTAL
from fedfairx.decision import DecisionNote
from fedfairx.features import Schema
from fedfairx.federation.roster.rounds import Rounds
from fedfairx.federation.roster.terms import Terms
from fedfairx.privacy import Budget, Release, SimulatedNoise
from fedfairx.storage.records import StoredDecision
from fedfairx.storage.verification import check_logs, copy_database, open_for_reading
from golden import machine

FOLDER = Path(__file__).with_suffix("")
FILE = Path(__file__).with_suffix(".json")
START = 1_700_000_000  # seconds since 1970, of the first step
LATER = START + 1_000_000  # when a log is read
D = 3
RANKING = [1.0, 0.63, 0.5]
PERSONS = ("p1", "p2", "p3", "p4")
OPTIMISM: dict[str, Any] = {"rule": "optimism", "confidence": ffx.Confidence()}
Scenario = Callable[["Writer"], None]

# --- writing ----------------------------------------------------------------------------------------------


class Writer:
    """A durable agent whose log is written. Each call takes a minute of its clock."""

    def __init__(self, place: Path, seed: int) -> None:
        self.place, self.seed, self.now = place, seed, START
        self.rng = np.random.default_rng(seed)
        self.agent: ffx.Agent
        self.waiting: list[ffx.Decision] = []  # as they were returned
        self.rewarded: list[ffx.Decision] = []

    def open(self, **settings: Any) -> ffx.Agent:
        self.agent = ffx.Agent.open(self.place, name="golden", seed=self.seed, **settings)
        return self.agent

    def open_member(self, terms: Terms) -> ffx.Agent:
        self.agent = terms.open_agent("golden", self.place, seed=self.seed)
        return self.agent

    def reopen(self, **settings: Any) -> ffx.Agent:
        """Close the agent, which takes a snapshot, and open it under another prefix of ids."""
        self.agent.close()
        self.agent = ffx.Agent.open(self.place, **settings)
        return self.agent

    def contexts(self, *shape: int) -> np.ndarray:
        """On a grid, so that files are small."""
        return self.rng.integers(0, 9, (*shape, self.agent.dimension)) / 16

    def rewards(self, count: int) -> list[float]:
        return [float(each) for each in self.rng.integers(0, 11, count) / 10]

    def decide(self, contexts: Any = None, **how: Any) -> ffx.Decision:
        self.now += 60
        if contexts is None and "actions" not in how and not self.agent.actions:
            contexts = self.contexts(4)
        made = self.agent.decide(contexts, **how)
        self.waiting.append(made)
        return made

    def observe(self, which: int = 0, **how: Any) -> ffx.Decision:
        """Reward all slots of a decision that waits."""
        self.now += 60
        made = self.waiting.pop(which)
        rewards = self.rewards(len(made.actions))
        if len(rewards) == 1:
            self.agent.observe(made.id, reward=rewards[0], **how)
        else:
            self.agent.observe(made.id, rewards=rewards, **how)
        self.rewarded.append(made)
        return made

    def observe_some(self, rewards: dict[int, float | None], **how: Any) -> ffx.Decision:
        """Reward some slots of a new decision, which then waits for the others."""
        self.decide()
        made = self.waiting.pop()
        given = {made.actions[slot]: reward for slot, reward in rewards.items()}
        self.agent.observe(made.id, rewards=given, **how)
        return made

    def work(self, count: int, persons: tuple[str, ...] = (), **how: Any) -> None:
        """Decisions, most of them with a reward, which comes late."""
        for turn in range(count):
            self.decide(**how)
            if turn % 4 == 3:
                for _ in range(3):
                    whose = {"person": str(self.rng.choice(persons))} if persons else {}
                    self.observe(int(self.rng.integers(len(self.waiting))), **whose)

    def replace(self, which: int) -> None:
        """Replace the reward of a decision, or the first and last of its slots."""
        self.now += 60
        made = self.rewarded[which]
        if len(made.actions) == 1:
            self.agent.observe(made.id, reward=0.35, replace=True)
        else:
            first, *_, last = made.actions
            self.agent.observe(made.id, rewards={first: 0.35, last: 0.45}, replace=True)

    def forget(self, count: int) -> None:
        self.now += 60
        self.agent.forget_many([self.waiting.pop(0).id for _ in range(count)])

    def expire(self, reward: float | None = None, keep: int = 2) -> None:
        """Give up on all that wait but the last ones."""
        self.now += 3600
        self.agent.set_window(1800.0, reward)
        held = self.waiting[-keep:]
        self.agent.expire(now=held[0].time / 1e6 + 1800.0 - 1.0)
        del self.waiting[:-keep]

    def drop_waiting(self) -> None:
        """Leave alone what a rollback or a deletion has ended."""
        there = {each.id for each in self.agent.journal.decisions(status="pending")}
        self.waiting = [made for made in self.waiting if made.id in there]

    def roll_back(self, seconds: int) -> None:
        self.now += 60
        self.agent.roll_back(to=self.now - seconds)
        self.drop_waiting()

    def delete(self, person: str) -> None:
        self.now += 60
        self.agent.delete_person(person)
        self.drop_waiting()

    def learn(self, count: int, **how: Any) -> None:
        self.now += 60
        self.agent.learn(self.contexts(count), self.rewards(count), **how)


def peer(name: str, number: int, *, budget: Budget | None = None, seed: int = 0) -> Release:
    """The release of this number of another agent."""
    made = None if budget is None else budget.privatizer(D, noise=SimulatedNoise(seed))
    agent, rng = ffx.Agent(D, name=name, privatizer=made, seed=seed), np.random.default_rng(seed)
    counts = budget is not None and budget.person_records is not None
    for _ in range(number):
        persons = [f"s{each}" for each in range(12)] if counts else None
        agent.learn(rng.integers(0, 9, (12, D)) / 16, rng.integers(0, 11, 12) / 10, persons=persons)
        release = agent.release()
    return release


def total_of(own: Release, seed: int) -> Release:
    """A total of this row and another one, as openers would find it."""
    other = np.round(np.random.default_rng(seed).normal(size=own.packed.size) * 100.0)
    return Release(own.number, own.packed + other, own.count + 7, own.mechanism)


def secure_terms(**more: Any) -> Terms:
    return Terms(
        dimension=D,
        agents=4,
        horizon=2000,
        epsilon=2.0,
        delta=1e-6,
        aggregation="secure",
        rounds=Rounds(begin=START, first=10, ratio=1, count=12),
        **more,
    )


# --- the logs ---------------------------------------------------------------------------------------------


def merit_one(log: Writer) -> None:
    agent = log.open(dimension=D, reward_range=(0, 1))
    for turn in range(6):
        note = DecisionNote(key=f"order {turn}", groups=["n", "s", None, "n"], extra="e", model_version=turn)
        log.decide(names=["a", "b", "c", "d"], note=note)
    log.work(24)
    log.forget(2)
    agent = log.reopen()
    log.learn(10)
    log.waiting += agent.decide_many(log.contexts(5, 4))
    log.waiting += agent.decide_many([log.contexts(2), log.contexts(5)], names=[["x", "y"], None])
    agent.observe_many([each.id for each in log.waiting[-5:]], log.rewards(5))
    del log.waiting[-5:]
    log.expire()
    log.replace(2)
    log.reopen()
    log.work(14)
    log.replace(-1)
    log.work(6)


def merit_set(log: Writer) -> None:
    log.open(dimension=D, slots=3)
    log.work(16, PERSONS)
    made = log.observe_some({1: 0.5}, person="p1")
    log.work(4, slots=[1.0, 0.5])
    log.replace(3)
    log.reopen()
    log.agent.observe(made.id, rewards={made.actions[0]: None})
    log.observe_some({2: 0.25})
    log.agent.forget(made.id)
    log.work(8, slots=1)
    log.replace(-1)
    log.observe_some({0: 0.75, 1: None})


def merit_ranking(log: Writer) -> None:
    log.open(dimension=D, slots=RANKING, reward_range=(0, 1))
    log.work(10)
    for mode in ("shadow", "control", "live"):
        for first in range(3):
            note = DecisionNote(mode=mode, baseline=[first, 3, (first + 1) % 3], control_share=0.25)
            log.decide(note=note)
            log.observe(-1)
    log.agent.learn(log.contexts(8), log.rewards(8), weights=[1.0, 0.63, 0.5, 1.0] * 2)
    log.reopen()
    log.work(8)
    log.observe_some({0: 0.5})
    log.decide(note=DecisionNote(mode="shadow", baseline=[0, 1, 2]))
    log.decide()
    log.expire(0.1)
    log.reopen()
    log.work(8)
    log.observe_some({1: 0.5})


def greedy_one(log: Writer) -> None:
    log.open(dimension=D, rule="greedy", minimum_share=0.05)
    for turn in range(24):
        mode = ("live", "shadow", "control")[turn % 3]
        log.decide(note=DecisionNote(mode=mode, baseline=turn % 4, control_share=0.2))
        if turn % 5 < 3:
            log.observe()
    log.reopen(schema=Schema({"a": (0, 1), "b": (0, 1), "c": (0, 1)}, intercept=False))
    log.work(12)
    log.reopen()
    log.work(20)
    log.roll_back(1500)
    log.work(10)
    log.expire(0.2)
    log.decide(note=DecisionNote(mode="shadow", baseline=2))
    log.work(6)


def greedy_ranking(log: Writer) -> None:
    log.open(dimension=D, rule="greedy", slots=RANKING)
    log.work(14, PERSONS)
    both = log.observe_some({0: 0.5}, person="p2")
    log.agent.observe(both.id, rewards={both.actions[1]: 0.5, both.actions[2]: 0.6}, person="p3")
    log.reopen()
    log.work(8, PERSONS)
    log.delete("p2")
    log.work(8, PERSONS)
    log.reopen()
    log.work(4, PERSONS)
    log.delete("p3")
    log.work(6)


def thompson_one(log: Writer) -> None:
    log.open(dimension=D, rule="thompson")
    log.work(30, PERSONS)
    log.learn(6)
    log.reopen()
    log.work(16)
    log.agent.drop_contexts(before=log.now - 1800, rule="1800s", limit=9)
    log.reopen()
    log.work(16, PERSONS)
    log.replace(-2)
    log.agent.drop_contexts(before=log.now - 1600, rule="1600s")
    log.work(8)
    log.delete("p1")
    log.work(6)


def thompson_set(log: Writer) -> None:
    log.open(dimension=D, rule="thompson", slots=3, half_life=40)
    log.work(12)
    log.reopen()
    log.work(12)
    log.observe_some({2: 0.5})
    log.roll_back(700)
    log.reopen()
    log.work(8)
    log.replace(-1)
    log.roll_back(240)
    log.work(6)
    log.forget(1)


def optimism_one(log: Writer) -> None:
    log.open(dimension=D, **OPTIMISM)
    log.work(20)
    log.replace(3)
    log.agent.release()
    log.agent.absorb({"south": peer("south", 1, seed=1)})
    log.reopen()
    log.work(16)
    log.agent.release()
    log.agent.absorb({"south": peer("south", 2, seed=1), "west": peer("west", 1, seed=2)})
    log.work(10)
    log.reopen()
    log.agent.drop_peers(["south"])
    log.work(10)
    log.replace(-1)
    log.work(4)


def optimism_set(log: Writer) -> None:
    log.open(dimension=D, slots=3, **OPTIMISM)
    log.work(14)
    log.agent.learn(log.contexts(6), log.rewards(6), weights=[1.0, 0.5] * 3)
    log.reopen()
    log.work(10, PERSONS)
    log.agent.drop_contexts(before=log.now - 900)
    log.work(8, PERSONS)
    log.reopen()
    log.work(6, PERSONS)
    log.delete("p4")
    log.work(5)


def half_life_rewards(log: Writer) -> None:
    log.open(dimension=D, half_life=100, reward_range=(0, 1))
    log.work(30)
    log.agent.release()
    log.agent.absorb({"south": peer("south", 1, seed=3)})
    log.learn(20)
    log.reopen()
    log.work(16)
    log.agent.absorb({"south": peer("south", 2, seed=3)})
    log.agent.release()
    log.work(16, PERSONS)
    log.reopen()
    log.work(8, PERSONS)
    log.delete("p1")  # and releases its sums without these
    log.work(4)
    log.replace(-1)
    log.work(6)


def half_life_time(log: Writer) -> None:
    log.open(dimension=D, half_life="2h", rule="greedy")
    log.work(20)
    log.now += 5000
    log.agent.release()
    log.work(10)
    log.now += 3000
    log.agent.absorb({"south": peer("south", 1, seed=4)})
    log.reopen()
    log.work(14)
    log.now += 2000
    log.agent.absorb({"west": peer("west", 1, seed=5)})
    log.agent.drop_peers(["south"])
    log.work(8)
    log.roll_back(1200)
    log.reopen()
    log.now += 9000
    log.work(12)
    log.replace(-1)
    log.expire(0.3)
    log.work(4)


def actions_one(log: Writer) -> None:
    agent = log.open(actions=["ann", "ben", "cid"], reward_range=(0, 1))
    log.work(20)
    agent.add_actions("dora", "eve")
    log.work(12)
    agent.retire_actions("ben")
    log.now += 60
    agent.learn(["ann", "ben", "dora", "eve"], log.rewards(4))
    agent = log.reopen()
    log.work(12)
    log.work(4, contexts=["ann", "eve"])
    agent.add_actions("ben", "finn")
    log.work(12)
    log.roll_back(1800)
    agent = log.reopen()
    log.work(8)
    agent.retire_actions("cid")
    log.replace(-1)
    log.waiting += agent.decide_many([["ann", "finn"], ["ben", "dora", "eve"]])
    log.work(6)


def actions_set(log: Writer) -> None:
    agent = log.open(actions=["ann", "ben", "cid", "dora"], rule="thompson", slots=2)
    log.work(16, PERSONS)
    agent.add_actions("eve")
    log.work(8, PERSONS, slots=RANKING)
    agent = log.reopen()
    agent.learn(["eve", "ann"], [0.5, 0.25], weights=[0.5, 1.0])
    log.work(12, PERSONS)
    made = log.decide()
    assert made.names is not None
    agent.observe(made.id, rewards={made.names[1]: 0.5}, person="p2")
    log.delete("p2")
    agent.retire_actions("ann", "ben")
    log.work(8, PERSONS)
    log.replace(-1)
    log.decide(note=DecisionNote(mode="control", baseline=[2, 0], control_share=0.5))
    log.work(6)


def schema_one(log: Writer) -> None:
    features = {"price": (0, 10), "new": bool, "city": ["Rome", "Oslo"]}
    rows: dict[str, dict[str, Any]] = {
        "ann": {"price": 2.0, "new": True},
        "ben": {"price": 7.5, "new": False},
        "cid": {"price": 4, "new": False},
    }
    agent = log.open(schema=Schema(features, shared=["city"]))
    log.work(16, actions=rows, context={"city": "Rome"})
    log.work(4, actions=rows, context={"city": "Oslo"}, slots=2)
    log.waiting += agent.decide_many([{"actions": rows, "context": {"city": "Rome"}}] * 2)
    agent.extend_schema(Schema({**features, "city": ["Rome", "Oslo", "Bonn"]}, shared=["city"]))
    log.work(8, actions=rows, context={"city": "Bonn"})
    agent = log.reopen()
    for _ in range(4):
        log.observe()
    longer = {**features, "city": ["Rome", "Oslo", "Bonn"], "stars": (1, 5)}
    agent.extend_schema(Schema(longer, shared=["city"]))
    richer = {name: row | {"stars": 1 + place} for place, (name, row) in enumerate(rows.items())}
    agent.learn([row | {"city": "Oslo"} for row in richer.values()], log.rewards(3))
    log.work(12, actions=richer, context={"city": "Rome"})
    log.replace(1)
    log.reopen()
    log.observe()
    log.replace(-1)
    log.work(5, actions=richer, context={"city": "Bonn"}, slots=2)


def partners_differ(log: Writer) -> None:
    log.open(dimension=D, partners="differ", reward_range=(0, 1))
    log.work(20, PERSONS)
    log.agent.release()
    log.agent.absorb({"south": peer("south", 1, seed=6), "west": peer("west", 2, seed=7)})
    log.work(24, PERSONS)
    log.agent.absorb({"south": peer("south", 3, seed=6)})
    log.reopen()
    log.work(16, PERSONS)
    log.agent.drop_peers(["west", "nobody"])
    log.agent.release()
    log.work(10)
    log.agent.absorb({"west": peer("west", 3, seed=7)})
    log.delete("p3")
    log.reopen()
    log.work(16)
    log.replace(-1)
    log.agent.release()
    log.decide()
    log.roll_back(300)
    log.work(6)


def private_one(log: Writer) -> None:
    budget = Budget(epsilon=2.0, releases=8, person_records=6)
    agent = log.open(dimension=D, budget=budget, reward_range=(0, 1))
    log.work(20, tuple(f"p{n}" for n in range(12)))
    agent.release()
    agent.absorb({"south": peer("south", 1, budget=budget, seed=8)})
    agent = log.reopen()
    log.work(12, tuple(f"p{n}" for n in range(12)))
    log.replace(-1)
    log.delete("p5")
    agent.observe(log.waiting.pop().id, reward=float("nan"), person="p30")
    agent.observe(log.waiting.pop().id, reward=7.0, person="p31")
    agent.release()
    log.work(8, tuple(f"p{n}" for n in range(20, 30)))
    agent.begin_run(Budget(epsilon=1.0, releases=5, person_records=6))
    log.work(8, tuple(f"q{n}" for n in range(8)))
    agent = log.reopen()
    agent.release()
    agent.learn(log.contexts(4), log.rewards(4), persons=["q1", "q2", "q3", "q4"])
    log.work(8, tuple(f"q{n}" for n in range(10, 18)))
    log.replace(-1)
    log.work(3)


def private_released(log: Writer) -> None:
    budget = Budget(epsilon=4.0, releases=12, decide_from="released", mechanism="tree")
    agent = log.open(dimension=D, budget=budget, rule="thompson")
    for number in (1, 2, 3):
        log.work(12, PERSONS)
        agent.release()
        agent.absorb({"south": peer("south", number, budget=budget, seed=9)})
    agent = log.reopen()
    log.work(10, PERSONS)
    agent.drop_contexts(before=log.now - 1500)
    log.delete("p1")
    agent.release()
    log.work(8)
    agent.begin_run(Budget(epsilon=4.0, releases=3, decide_from="released", mechanism="tree"))
    log.expire(0.5)
    agent = log.reopen()
    log.work(8)
    agent.release()
    agent.drop_peers(["south"])
    log.work(5)


def private_ranking(log: Writer) -> None:
    agent = log.open(dimension=D, budget=Budget(epsilon=3.0, releases=6), slots=RANKING, **OPTIMISM)
    log.work(12)
    log.replace(-1)
    agent.release()
    half = log.observe_some({0: 0.5})
    agent = log.reopen()
    log.work(8, PERSONS)
    agent.release()
    agent.observe(half.id, rewards={half.actions[1]: 0.5})
    log.decide()
    log.decide()
    log.expire(0.4)
    log.delete("p2")
    agent = log.reopen()
    log.work(8, slots=RANKING[:2])
    agent.release()
    log.forget(1)
    log.observe_some({2: 0.5, 0: None})


def secure_own(log: Writer) -> None:
    terms = secure_terms(decide_from="own+released")
    agent = log.open_member(terms)
    for epoch in (1, 2, 3):
        log.work(12)
        first = agent.release()
        agent.absorb({TOTAL: total_of(first, epoch)})
        log.work(8)
        log.replace(-1)
        own = agent.release()
        if epoch == 1:
            agent.add_total(total_of(first, 20), members=4)
        agent.absorb({TOTAL: total_of(own, 10 + epoch)})
        log.work(4)
        agent = log.reopen() if epoch == 2 else agent
        agent.begin_epoch(terms.budget(members=4 + epoch))
        agent.add_total(total_of(own, 30 + epoch), members=5)
    log.work(8)
    agent.absorb({TOTAL: total_of(agent.release(), 40)})
    log.work(5)


def secure_released(log: Writer) -> None:
    terms = secure_terms(decide_from="released", slots=3)
    agent = log.open_member(terms)
    agent.release()
    for epoch in (1, 2):
        log.work(8)
        own = agent.release()
        agent.absorb({TOTAL: total_of(own, epoch)})
        log.observe_some({1: 0.5})
        agent.begin_epoch(terms.budget())
        log.work(4, PERSONS)
        agent = log.reopen()
        agent.add_total(total_of(own, 50 + epoch), members=4)
        log.delete("p1")
    log.work(4)
    agent.absorb({TOTAL: total_of(agent.release(), 60)})
    log.forget(1)
    log.work(6)


SCENARIOS: dict[str, Scenario] = {
    scenario.__name__: scenario
    for scenario in (
        merit_one,
        merit_set,
        merit_ranking,
        greedy_one,
        greedy_ranking,
        thompson_one,
        thompson_set,
        optimism_one,
        optimism_set,
        half_life_rewards,
        half_life_time,
        actions_one,
        actions_set,
        schema_one,
        partners_differ,
        private_one,
        private_released,
        private_ranking,
        secure_own,
        secure_released,
    )
}


def path_of(name: str) -> Path:
    return FOLDER / f"{name}.sqlite.xz"


def write_log(name: str) -> None:
    """Store a database as it is while its agent is open: with steps after the last snapshot."""
    with TemporaryDirectory() as folder:
        place, copy = Path(folder) / "agent.db", Path(folder) / "copy.db"
        log = Writer(place, seed=list(SCENARIOS).index(name))
        with patch("time.time_ns", lambda: log.now * 1_000_000_000):
            SCENARIOS[name](log)
            with open_for_reading(place) as database:
                copy_database(database, copy)
            log.agent.close()
        with sqlite3.connect(copy) as connection:
            connection.execute("PRAGMA journal_mode = DELETE")
            connection.execute("VACUUM")
        connection.close()
        FOLDER.mkdir(exist_ok=True)
        path_of(name).write_bytes(lzma.compress(copy.read_bytes(), preset=9 | lzma.PRESET_EXTREME))


# --- reading ----------------------------------------------------------------------------------------------


def digest(value: object) -> str:
    return hashlib.sha256(json.dumps(value, sort_keys=True).encode()).hexdigest()[:32]


@contextmanager
def unpacked(name: str) -> Iterator[Path]:
    """A copy of a log: opening an agent writes to it."""
    with TemporaryDirectory() as folder, patch("time.time_ns", return_value=LATER * 1_000_000_000):
        place = Path(folder) / "agent.db"
        place.write_bytes(lzma.decompress(path_of(name).read_bytes()))
        yield place


def stored_row(each: StoredDecision) -> dict[str, Any]:
    names = (
        "id status reward reward_time person seq time action drawn propensity mode baseline control_share "
        "model_version names groups key digest extra rolled_back"
    )
    arrays = {name: getattr(each, name).tolist() for name in ("policy", "theta", "contexts")}
    slots = [asdict(slot) for slot in each.slots]
    return {name: getattr(each, name) for name in names.split()} | arrays | {"slots": slots}


def shown(made: ffx.Decision) -> dict[str, Any]:
    """What a decision shows, whoever made it."""
    one = len(made.weights) == 1
    return {
        "actions": made.actions,
        "names": made.names,
        "weights": list(made.weights),
        "exposure": made.exposure.tolist(),
        "theta": made.theta.tolist(),
        "context": made.context.tolist(),
        "drawn": made.drawn if one else None,
        "propensity": made.probability if one else None,
    }


def waiting_row(made: ffx.Decision) -> dict[str, Any]:
    return shown(made) | {"id": made.id, "number": made.number, "time": made.time}


def state_of(agent: ffx.Agent) -> dict[str, str]:
    """A digest of each part of the state but the decisions that wait."""
    return {name: digest(part) for name, part in asdict(agent.state()).items() if name != "pending"}


def read_rows(name: str) -> dict[str, Any]:
    """What is read from a log, the same on every machine."""
    with unpacked(name) as place:
        with open_for_reading(place) as database:
            (check,) = check_logs(database)
        with ffx.Agent.open(place) as agent:
            return {
                "check": asdict(check),
                "decisions": digest([stored_row(each) for each in agent.journal.decisions()]),
                "waiting": digest([waiting_row(made) for made in agent._pending.values()]),
            }


def compute(name: str) -> dict[str, Any]:
    """What is computed from a log: states, and what the agent does next."""
    with unpacked(name) as place, ffx.Agent.open(place) as agent:
        opened = state_of(agent)
        agent.verify()
        following = next_decision(agent)
        rewarded = reward_waiting(agent) | state_of(agent)
    with unpacked(name) as place:
        connection = sqlite3.connect(place)
        connection.execute("DELETE FROM snapshots WHERE seq > (SELECT MIN(seq) FROM snapshots)")
        connection.commit()
        connection.close()
        with ffx.Agent.open(place) as agent:
            replayed = state_of(agent)
    return {"opened": opened, "replayed": replayed, "next": following, "rewarded": rewarded}


def next_decision(agent: ffx.Agent) -> str:
    """The decision that follows, for which no reward comes."""
    contexts = None if agent.actions else np.random.default_rng(0).integers(0, 9, (4, agent.dimension)) / 16
    made = agent.decide(contexts)
    agent.forget(made)
    return digest(shown(made))


def reward_waiting(agent: ffx.Agent) -> dict[str, Any]:
    """Reward all decisions that wait, or those of their slots that do; what became of them."""
    before = list(agent.journal.decisions(status="pending"))
    for each in before:
        if each.slots:
            waiting = [slot.action for slot in each.slots if slot.status == "pending"]
            agent.observe(each.id, rewards=dict.fromkeys(waiting, 0.625), person=each.seq)
        else:
            agent.observe(each.id, reward=0.625, person=each.seq)
    after = [agent.journal.decision(each.id) for each in before]
    rows = [stored_row(each) for each in after if each is not None]
    return {"waited": digest(rows), "waiting": agent.pending}


def differences(stored: Any, found: Any, where: str) -> list[str]:
    """The places where two nested dicts differ."""
    if not (isinstance(stored, dict) and isinstance(found, dict)):
        return [] if stored == found else [where]
    names = sorted(stored.keys() | found.keys())
    return [
        line for name in names for line in differences(stored.get(name), found.get(name), f"{where}: {name}")
    ]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="make missing logs, and store what is read now")
    write = parser.parse_args().write
    for name in SCENARIOS:
        if write and not path_of(name).exists():
            write_log(name)
    found = {
        "machine": machine(),
        "rows": {name: read_rows(name) for name in SCENARIOS},
        "computed": {name: compute(name) for name in SCENARIOS},
    }
    if write:
        FILE.write_text(json.dumps(found, indent=1) + "\n", encoding="utf-8")
        return 0
    stored = json.loads(FILE.read_text(encoding="utf-8"))
    lines = [line for part in found for line in differences(stored[part], found[part], part)]
    print("\n".join(lines) or "every bit is the same")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
