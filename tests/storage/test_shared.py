"""Several processes with one PostgreSQL database: each is at the end of the log whenever it takes a step.

Here a process is a log of its own, with connections of its own: addresses that differ are different logs. The
oracle is one agent alone in a file, which takes the same steps in the same order.
"""

from __future__ import annotations

import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from functools import partial
from pathlib import Path
from typing import Any

import numpy as np
import psycopg
import pytest

import fedfairx as ffx
from fedfairx.agent import agent as agent_module
from fedfairx.agent import persistence, warm
from fedfairx.agent.core import Core
from fedfairx.decision import DecisionNote
from fedfairx.errors import (
    AlreadyObserved,
    BudgetExhausted,
    FedFairXError,
    InvalidInput,
    KeyTaken,
    OlderCopy,
    OutcomeUnknown,
    StateError,
    StorageUnavailable,
    UnknownDecision,
)
from fedfairx.features import Schema
from fedfairx.privacy import Budget
from fedfairx.storage import open_log, transaction_log
from fedfairx.storage import postgres as postgres_module
from fedfairx.storage.api_keys import open_keys
from fedfairx.storage.journal import Entry
from fedfairx.storage.open_log import open_database
from fedfairx.storage.schema import create_tables
from fedfairx.storage.sessions import StoredSessions
from fedfairx.storage.verification import check_logs, copy_database, open_for_reading
from service_helpers import until

START = 4_000_000_000  # seconds since 1970
PERSONS = ("ann", "ben", "cid")
KINDS: dict[str, dict[str, Any]] = {
    "contexts": {"dimension": 2},
    "optimism": {"dimension": 2, "rule": "optimism"},
    "thompson": {"dimension": 2, "rule": "thompson"},
    "half-life": {"dimension": 2, "half_life": 6.0},
    "half-life in time": {"dimension": 2, "half_life": "1h"},
    "actions": {"actions": ["a", "b", "c"]},
    "slots": {"dimension": 2, "slots": [1.0, 0.5]},
    "features": {"schema": Schema({"x": (0, 1), "y": (0, 1)})},
}
BUDGET = Budget(epsilon=2.0, delta=1e-3, releases=6)
PRIVATE: dict[str, dict[str, Any]] = {
    "own data": {"dimension": 2, "budget": BUDGET},
    "released data": {"dimension": 2, "budget": replace(BUDGET, decide_from="released")},
    "persons": {"dimension": 2, "budget": replace(BUDGET, person_records=2)},
    "slots": {"dimension": 2, "slots": [1.0, 0.5], "budget": BUDGET},
}


@pytest.fixture
def address(postgres: Any) -> Iterator[str]:
    lent = postgres.lend()
    yield lent
    postgres.take_back(lent)


def of_process(address: str, number: int) -> str:
    """The address as another process would have it: here it is another log."""
    return f"{address}&application_name=process{number}"


def caught_up(*agents: ffx.Agent) -> None:
    for agent in agents:
        with agent.transaction():
            pass


class World:
    """The steps of some processes, and of one agent alone.

    Where contexts are dropped, what can be replaced or deleted afterwards depends on where snapshots were
    taken, so that there is no one alone to compare with.
    A private agent that decides from what it has released has noise in its decisions, and noise of its own.
    """

    def __init__(
        self, address: str, folder: Path | None, kind: dict[str, Any], seed: int, processes: int
    ) -> None:
        self.address, self.kind = address, kind
        self.random = np.random.default_rng(seed)
        self.now = START
        self.alone: ffx.Agent | None = None
        if folder is not None:
            self.alone = ffx.Agent.open(folder / "alone.db", name="a", seed=5, **kind)
            self.alone.journal.log.clock = self.clock
        self.shared = [self.opened(number, seed=5) for number in range(processes)]
        self.ids: list[tuple[str, str]] = []  # of each decision, as they have it and as the one alone has it
        self.schema = kind.get("schema")
        self.actions = list(kind.get("actions", ()))
        self.done: dict[str, int] = {}

    def clock(self) -> int:
        return self.now * 1_000_000_000

    def opened(self, number: int, **more: Any) -> ffx.Agent:
        agent = ffx.Agent.open(of_process(self.address, number), name="a", shared=True, **self.kind, **more)
        agent.journal.log.clock = self.clock
        return agent

    def both(self, agent: ffx.Agent, call: Any) -> Any:
        """Call with an agent and the index of its ids, in one of the processes and alone; refuse alike."""
        self.now += 1
        results: list[Any] = []
        for each, index in ((agent, 0), (self.alone, 1)) if self.alone is not None else ((agent, 0),):
            try:
                results.append(call(each, index))
            except FedFairXError as error:
                results.append(type(error))
        if self.alone is None:
            return None if isinstance(results[0], type) else results * 2
        if isinstance(results[0], type) or isinstance(results[1], type):
            assert results[0] is results[1]
            return None
        return results

    def decided(self, made: Any) -> None:
        for here, there in zip(*made, strict=True) if made is not None else ():
            assert here.actions == there.actions
            assert here.exposure.tobytes() == there.exposure.tobytes()
            assert here.propensity == there.propensity
            self.ids.append((here.id, there.id))

    def arms(self) -> Any:
        if self.actions:
            return None
        rows = self.random.random((3, 2))
        if self.schema is None:
            return rows / 2
        return [dict.fromkeys(self.schema.names, 0.5) | {"x": x, "y": y} for x, y in rows]

    def some(self, count: int) -> list[int]:
        late = self.random.integers(0, max(len(self.ids), 1), count)  # waiting or not
        return list(dict.fromkeys(min(len(self.ids) - 1, int(each)) for each in late))

    def step(self) -> None:
        names = [name[3:] for name in dir(self) if name.startswith("do_")]
        name = names[self.random.integers(len(names))]
        agent = self.shared[self.random.integers(len(self.shared))]
        self.done[name] = self.done.get(name, 0) + 1
        getattr(self, f"do_{name}")(agent)

    def reward_of(self) -> Any:
        reward = float(self.random.random())
        return {0: reward} if "slots" in self.kind else reward

    def do_decide(self, agent: ffx.Agent) -> None:
        arms = self.arms()
        self.decided(self.both(agent, lambda each, _: [each.decide(arms)]))

    do_decide_again = do_decide_once_more = do_decide

    def do_decide_many(self, agent: ffx.Agent) -> None:
        if not self.actions and self.schema is None:
            blocks = self.random.random((4, 3, 2)) / 2
            self.decided(self.both(agent, lambda each, _: each.decide_many(blocks)))

    def do_observe(self, agent: ffx.Agent) -> None:
        person, several = PERSONS[self.random.integers(3)], "slots" in self.kind
        for place in self.some(1) if self.ids else ():
            for slot in (0, 1) if several else (0,):
                reward = float(self.random.random())
                given: Any = {"reward": reward}
                if several:
                    given = {"rewards": [reward, None] if slot == 0 else [None, reward]}
                self.both(agent, lambda each, i: each.observe(self.ids[place][i], person=person, **given))  # noqa: B023

    do_observe_again = do_observe

    def do_observe_latest(self, agent: ffx.Agent) -> None:
        if self.ids and "slots" not in self.kind:
            reward, person = float(self.random.random()), PERSONS[self.random.integers(3)]
            self.both(agent, lambda each, i: each.observe(self.ids[-1][i], reward=reward, person=person))

    do_observe_the_latest = do_observe_latest

    def do_observe_many(self, agent: ffx.Agent) -> None:
        if self.ids and "slots" not in self.kind:
            places, replaces = self.some(3), bool(self.random.integers(2))
            rewards = self.random.random(len(places)).tolist()
            self.both(
                agent,
                lambda each, i: each.observe_many(
                    [self.ids[place][i] for place in places], rewards, replace=replaces
                ),
            )

    def do_replace(self, agent: ffx.Agent) -> None:
        for place in self.some(1) if self.ids else ():
            reward = float(self.random.random())
            given: Any = {"rewards": [reward, 0.5]} if "slots" in self.kind else {"reward": reward}
            self.both(agent, lambda each, i: each.observe(self.ids[place][i], replace=True, **given))  # noqa: B023

    def do_forget(self, agent: ffx.Agent) -> None:
        for place in self.some(1) if self.ids else ():
            self.both(agent, lambda each, i: each.forget(self.ids[place][i]))  # noqa: B023

    def do_learn(self, agent: ffx.Agent) -> None:
        rewards = self.random.random(2).tolist()
        if self.actions:
            names = [self.actions[i] for i in self.random.integers(0, len(self.actions), 2)]
            self.both(agent, lambda each, _: each.learn(names, rewards))
        else:
            rows = self.arms()[:2]
            self.both(agent, lambda each, _: each.learn(rows, rewards))

    def do_change_actions(self, agent: ffx.Agent) -> None:
        if self.actions:
            name = f"new {len(self.actions)}"
            self.actions.append(name)
            self.both(agent, lambda each, _: each.add_actions(name))
            old = self.actions[self.random.integers(len(self.actions))]
            self.both(agent, lambda each, _: each.retire_actions(old))

    def do_extend(self, agent: ffx.Agent) -> None:
        if self.schema is not None and len(self.schema.names) < 5:
            features: Any = dict.fromkeys(self.schema.names, (0, 1))
            self.schema = Schema({**features, f"z{len(features)}": (0, 1)})
            self.kind = self.kind | {"schema": self.schema}
            self.both(agent, lambda each, _: each.extend_schema(self.schema))

    def do_delete(self, agent: ffx.Agent) -> None:
        if self.random.integers(3) == 0:
            person = PERSONS[self.random.integers(3)]
            self.both(agent, lambda each, _: each.delete_person(person))

    def do_roll_back(self, agent: ffx.Agent) -> None:
        if self.random.integers(3) == 0:
            to = self.now - int(self.random.integers(1, 10)) + 0.5
            self.both(agent, lambda each, _: each.roll_back(to=to))

    def do_drop(self, agent: ffx.Agent) -> None:
        before = self.now - int(self.random.integers(1, 40)) + 0.5
        if self.alone is None and "budget" not in self.kind:
            self.both(agent, lambda each, _: each.drop_contexts(before=before))

    def do_expire(self, agent: ffx.Agent) -> None:
        for each in (agent, self.alone or agent):
            each.set_window(30, None if "budget" in self.kind else 0.25)
        self.both(agent, lambda each, _: each.expire())

    def do_group(self, agent: ffx.Agent) -> None:
        """Several steps, of which one is refused."""
        one, two = self.arms(), self.arms()

        def group(each: ffx.Agent, _: int) -> list[Any]:
            with each.transaction():
                first = each.decide(one)
                with suppress(UnknownDecision):
                    each.observe("no-1", reward=0.5)
                each.forget(first)
                return [each.decide(two)]

        self.decided(self.both(agent, group))

    def do_fail(self, agent: ffx.Agent) -> None:
        """Steps that are undone."""
        self.now += 1
        with suppress(ZeroDivisionError), agent.transaction():
            several = "slots" in self.kind
            agent.observe(
                agent.decide(self.arms()),
                person="ann",
                **{"rewards": [1.0, 0.0]} if several else {"reward": 1.0},
            )
            if "budget" in self.kind:
                with suppress(BudgetExhausted):
                    agent.release()
            raise ZeroDivisionError

    def do_reopen(self, agent: ffx.Agent) -> None:
        place = self.shared.index(agent)
        agent.close()
        self.shared[place] = self.opened(place)

    def do_release(self, agent: ffx.Agent) -> None:
        if self.schema is None and not self.actions and self.random.integers(5) == 0:
            self.both(agent, lambda each, _: each.release().number)

    def do_release_again(self, agent: ffx.Agent) -> None:
        if "budget" in self.kind:
            self.both(agent, lambda each, _: each.release().number)

    def do_begin_run(self, agent: ffx.Agent) -> None:
        if "budget" in self.kind and self.random.integers(4) == 0:
            self.both(agent, lambda each, _: each.begin_run(self.kind["budget"]))

    def state_of(self, agent: ffx.Agent) -> Any:
        """All that it knows; decisions that wait by their places, since numbers may have gaps."""
        index = 1 if agent is self.alone else 0
        places = {pair[index]: place for place, pair in enumerate(self.ids)}
        waiting = [places[agent.journal.id_of(number)] for number in agent.state().pending]
        state = replace(agent.state(), pending=waiting)
        return replace(state, latest={}) if "budget" in self.kind else state

    def check(self) -> None:
        caught_up(*self.shared)
        first = self.shared[0].state()
        for agent in self.shared:
            assert agent.state() == first
        if self.alone is not None:
            assert self.state_of(self.shared[0]) == self.state_of(self.alone)

    def close(self) -> None:
        for agent in (*self.shared, *([] if self.alone is None else [self.alone])):
            agent.close()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.filterwarnings("ignore::fedfairx.errors.ClockWarning")  # each log has the time of the test later
def test_any_steps_of_processes_are_those_of_one(
    address: str, tmp_path: Path, kind: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All end in one state to the bit, which is that of one agent alone; decisions are those it makes."""
    monkeypatch.setattr(persistence, "SNAPSHOT_EVERY", 7)
    world = World(address, tmp_path, KINDS[kind], seed, processes=2 + seed % 2)
    run(world)
    with ffx.Agent.open(tmp_path / "alone.db") as alone, ffx.Agent.open(address) as agent:
        agent.verify()
        logged = {each.id: each for each in agent.journal.decisions()}
        theirs = {each.id: each for each in alone.journal.decisions()}
    pairs = [pair for pair in world.ids if pair[0] in logged]
    assert {two for _, two in pairs} == theirs.keys() & {two for _, two in world.ids}
    for one, two in pairs:  # as it was computed from the state before, by the one alone
        assert logged[one].propensity == theirs[two].propensity
        assert logged[one].policy.tobytes() == theirs[two].policy.tobytes()


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.filterwarnings("ignore::fedfairx.errors.ClockWarning")
def test_processes_agree_where_contexts_are_dropped(
    address: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persistence, "SNAPSHOT_EVERY", 7)
    kind = ("contexts", "actions", "slots")[seed]
    run(World(address, None, KINDS[kind], seed, processes=3))
    with ffx.Agent.open(address) as agent:
        agent.verify()


def run(world: World) -> None:
    with ExitStack() as closing:
        closing.callback(world.close)
        for number in range(120):
            world.step()
            if number % 7 == 0:
                world.check()
        world.check()
        world.shared[-1].verify()
        world.check()
        with open_for_reading(world.address) as database:
            (found,) = check_logs(database)
        assert found.damage is None


# --- private agents ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("seed", range(3))
@pytest.mark.parametrize("kind", PRIVATE)
@pytest.mark.filterwarnings("ignore::fedfairx.errors.ClockWarning", "ignore:.*get into no message")
def test_any_steps_of_processes_are_those_of_one_private_agent(
    address: str, tmp_path: Path, kind: str, seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """All end in one state to the bit, with one ledger: each record in one leaf, each number one content."""
    monkeypatch.setattr(persistence, "SNAPSHOT_EVERY", 7)
    given = PRIVATE[kind]
    noisy = given["budget"].decide_from == "released"
    run(World(address, None if noisy else tmp_path, given, seed, processes=2 + seed % 2))
    with ffx.Agent.open(address) as agent:
        agent.verify()
        check_ledger(agent, given["budget"])
        if not noisy:
            with ffx.Agent.open(tmp_path / "alone.db") as alone:
                for question in LEDGERS:  # exact sums to the bit, and records and persons in their leaves
                    here, there = (each.journal.log.database.execute(question) for each in (agent, alone))
                    assert here == there


def check_ledger(agent: ffx.Agent, budget: Budget) -> None:
    """No noise twice, and no budget overspent."""
    ask = agent.journal.log.database.execute
    made = ask("SELECT run, number, place, message FROM ledger_releases ORDER BY run, number")
    places = [bytes(place) for *_, place, _ in made]
    assert len(set(places)) == len(places)  # the noise is drawn for these
    assert all(message is not None for *_, message in made)
    runs = {run: [number for each, number, *_ in made if each == run] for run, *_ in made}
    for numbers in runs.values():
        assert numbers == list(range(1, len(numbers) + 1))
        assert len(numbers) <= budget.releases
    assert agent.released == len(made)


LEDGERS = (
    "SELECT * FROM ledger_positions ORDER BY run",
    "SELECT run, leaf, COUNT(*) FROM ledger_records GROUP BY run, leaf ORDER BY run, leaf",
    "SELECT run, person, records FROM ledger_persons ORDER BY run, person",
    "SELECT run, number, sent FROM ledger_releases ORDER BY run, number",
)


def test_threads_that_contend_for_releases_get_each_number_once(address: str) -> None:
    budget = replace(BUDGET, releases=20)
    ffx.Agent.open(address, dimension=2, name="a", seed=3, budget=budget).close()
    agents = [ffx.Agent.open(of_process(address, number), shared=True) for number in range(3)]
    made, refused = list[ffx.privacy.Release](), list[Exception]()

    def work(agent: ffx.Agent) -> None:
        for number in range(8):
            agent.observe(agent.decide(np.eye(2) / 2), reward=number % 2)
            try:
                made.append(agent.release())
            except BudgetExhausted as error:
                refused.append(error)

    threads = [threading.Thread(target=work, args=(agent,)) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    caught_up(*agents)
    assert sorted(each.number for each in made) == list(range(1, 21))
    assert len(refused) == 4
    assert agents[0].state() == agents[1].state() == agents[2].state()
    for each in made:
        assert {agent.past_release(each.number) for agent in agents} == {each}
    agents[0].verify()
    for agent in agents:
        agent.close()
    with ffx.Agent.open(address) as agent:
        check_ledger(agent, budget)


@pytest.mark.parametrize("stored", [True, False])
def test_a_release_whose_commit_is_lost_has_one_content(
    address: str, monkeypatch: pytest.MonkeyPatch, stored: bool
) -> None:
    """Whether it was stored or not: nobody has seen another one of this number."""
    one = ffx.Agent.open(of_process(address, 1), dimension=2, budget=BUDGET, shared=True)
    with one, ffx.Agent.open(of_process(address, 2), shared=True) as two:
        two.observe(one.decide(np.eye(2) / 2).id, reward=1.0)
        with cut(one, monkeypatch, stored=stored), pytest.raises(OutcomeUnknown):
            one.release()
        assert two.release().number == (2 if stored else 1)
        caught_up(one)
        assert one.state() == two.state()
        for number in range(1, two.released + 1):
            assert one.past_release(number) == two.past_release(number)
        two.verify()


def test_a_release_of_another_can_be_read_at_once(address: str) -> None:
    one = ffx.Agent.open(of_process(address, 1), dimension=2, budget=BUDGET, shared=True)
    with one, ffx.Agent.open(of_process(address, 2), shared=True) as two:
        one.observe(one.decide(np.eye(2) / 2), reward=1.0)
        made = two.release()
        assert one.past_release(1) == made
        assert one.privatizer.guarantee.spent == 1


def test_a_reader_of_the_ledger_leaves_no_old_position(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """One that has read it before another process wrote, and goes on afterwards."""
    one = ffx.Agent.open(of_process(address, 1), dimension=2, budget=BUDGET, shared=True)
    with one, ffx.Agent.open(of_process(address, 2), shared=True) as two:
        stream = one.privatizer.stream
        assert stream is not None
        stream.read_again()
        real = stream.ledger.position

        def read() -> Any:
            here = real()
            monkeypatch.setattr(stream.ledger, "position", real)
            two.observe(two.decide(np.eye(2) / 2), reward=1.0)
            one.observe(one.decide(np.eye(2) / 2), reward=1.0)
            return here

        monkeypatch.setattr(stream.ledger, "position", read)
        assert one.privatizer.waiting == 0
        one.observe(one.decide(np.eye(2) / 2), reward=1.0)
        assert one.privatizer.waiting == 3


# --- what is told to others -------------------------------------------------------------------------------


@pytest.fixture
def pair(address: str) -> Iterator[tuple[ffx.Agent, ffx.Agent]]:
    one = ffx.Agent.open(of_process(address, 1), actions=["a", "b"], shared=True, seed=1)
    with one, ffx.Agent.open(of_process(address, 2), shared=True) as two:
        yield one, two


def test_a_decision_of_one_gets_its_reward_from_another(pair: tuple[ffx.Agent, ffx.Agent]) -> None:
    one, two = pair
    first, second = one.decide(), two.decide()
    assert first.id != second.id
    two.observe(first.id, reward=1.0)
    one.observe(second, reward=0.0)  # the object that the other made
    for agent, decision in ((one, first), (two, second), (two, first)):
        with pytest.raises(AlreadyObserved):
            agent.observe(decision, reward=1.0)
    assert one.observed == two.observed == 2


def test_a_key_is_taken_for_all(pair: tuple[ffx.Agent, ffx.Agent]) -> None:
    one, two = pair
    made = one.decide(note=DecisionNote(key="k"))
    with pytest.raises(KeyTaken) as refusal:
        two.decide(note=DecisionNote(key="k"))
    assert refusal.value.args == (made.id,) or made.id in str(refusal.value)
    stored = two.journal.by_key("k")
    assert stored is not None
    assert stored.id == made.id
    assert two.pending == 1


def test_ids_from_before_another_was_opened_stay_valid(address: str) -> None:
    with ffx.Agent.open(of_process(address, 1), actions=["a", "b"], shared=True) as one:
        before = one.decide()
        with ffx.Agent.open(of_process(address, 2), shared=True) as two:
            after = one.decide()
            assert before.id.split("-")[0] != after.id.split("-")[0]
            two.observe_many([before.id, after.id], [1.0, 0.0])
        assert one.decide().id.split("-")[0] == after.id.split("-")[0]


def test_a_closed_agent_follows_when_it_is_opened_again(address: str) -> None:
    """Its log stays open with another agent: its last digest must not be the old one, nor its snapshot."""
    places = [of_process(address, number) for number in (1, 2)]
    with (
        ffx.Agent.open(places[0], name="other", actions=["a", "b"], shared=True),
        ffx.Agent.open(places[1], name="it", actions=["a", "b"], shared=True) as two,
    ):
        with ffx.Agent.open(places[0], name="it", shared=True) as one:
            one.decide()
            two.decide()  # closing takes a snapshot, which must have this one
        two.decide()
        with ffx.Agent.open(places[0], name="it", shared=True) as one:
            one.decide()
            caught_up(two)
            assert one.state() == two.state()
            assert one.pending == 4
    with ffx.Agent.open(address, name="it") as agent:
        agent.verify()


def test_threads_that_contend_lose_nothing(address: str) -> None:
    ffx.Agent.open(address, dimension=2, name="a", seed=3).close()
    x, made = np.eye(2), list[str]()
    agents = [ffx.Agent.open(of_process(address, number), shared=True) for number in range(3)]

    def work(agent: ffx.Agent) -> None:
        for number in range(40):
            decision = agent.decide(x)
            made.append(decision.id)
            agents[number % 3].observe(decision.id, reward=number % 2)

    threads = [threading.Thread(target=work, args=(agent,)) for agent in agents]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    caught_up(*agents)
    assert [agent.observed for agent in agents] == [120] * 3
    assert len(set(made)) == 120
    assert agents[0].state() == agents[1].state() == agents[2].state()
    agents[0].verify()
    for agent in agents:
        agent.close()


def test_a_single_call_takes_two_round_trips(
    pair: tuple[ffx.Agent, ffx.Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """To begin with all that is asked, and to end with the row: the write lock is held that long."""
    one, two = pair
    first, database = one.decide(), one.journal.log.database

    def another(*_given: Any) -> Any:
        raise AssertionError

    with monkeypatch.context() as patched:
        for name in ("execute", "execute_many", "commit", "rollback", "check_last_row"):
            patched.setattr(database, name, another)
        one.forget(first)
        one.decide()
    caught_up(two)
    assert one.state() == two.state()


def test_they_create_the_tables_once(postgres: Any, monkeypatch: pytest.MonkeyPatch) -> None:
    address, errors = postgres.schema(), list[Exception]()
    waiting, real = threading.Barrier(4), postgres_module.PostgresDatabase.begin

    def begin(self: Any) -> None:
        waiting.wait(30)  # by now all of them have seen that there are no tables
        real(self)

    monkeypatch.setattr(postgres_module.PostgresDatabase, "begin", begin)

    def create(number: int) -> None:
        try:
            database = open_database(of_process(address, number), access="shared")
            create_tables(database)
            database.close()
        except Exception as error:
            errors.append(error)

    threads = [threading.Thread(target=create, args=(number,)) for number in range(4)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    assert not errors


@pytest.mark.parametrize("kind", ["contexts", "optimism", "actions", "slots"])
def test_it_compiles_before_it_holds_up_others(
    address: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Compiling in a transaction took longer than the server lets a process stand still in one."""
    inside, real = list[bool](), warm.warm

    def compiled(agent: ffx.Agent) -> None:
        inside.append(any(log.in_transaction for log in list(open_log._LOGS.values()) if not log.closed))
        real(agent)

    monkeypatch.setattr(warm, "warm", compiled)
    place = of_process(address, 1)
    with ffx.Agent.open(place, shared=True, **KINDS[kind]) as agent:
        assert warm.is_warm(agent)
    with ffx.Agent.open(place, shared=True):
        assert inside == [False, False]


# --- who may have it --------------------------------------------------------------------------------------


def test_shared_and_alone_refuse_each_other(address: str) -> None:
    with ffx.Agent.open(of_process(address, 1), actions=["a", "b"], shared=True):
        with pytest.raises(StorageUnavailable, match=r"is shared by processes that run now.*shared=True"):
            ffx.Agent.open(of_process(address, 2))
        with pytest.raises(StorageUnavailable, match="is open in this process already, and shared"):
            ffx.Agent.open(of_process(address, 1))
        ffx.Agent.open(of_process(address, 2), shared=True).close()  # a refusal leaves no lock
    with ffx.Agent.open(of_process(address, 1)):
        with pytest.raises(StorageUnavailable, match=r"is locked by process \d+ on .* does not share it"):
            ffx.Agent.open(of_process(address, 2), shared=True)
        with pytest.raises(StorageUnavailable, match="is open in this process already, and not shared"):
            ffx.Agent.open(of_process(address, 1), shared=True)


def test_a_file_is_for_one_process(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="shared must be left out: a SQLite file is for one process"):
        ffx.Agent.open(tmp_path / "agent.db", actions=["a", "b"], shared=True)
    assert not list(tmp_path.iterdir())


# --- faults -----------------------------------------------------------------------------------------------


def test_a_process_that_stops_in_a_transaction_is_thrown_out(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    limits = "SET idle_in_transaction_session_timeout = '300ms'; SET lock_timeout = '20s'"
    monkeypatch.setattr(postgres_module, "_LIMITS", limits)
    one = ffx.Agent.open(of_process(address, 1), actions=["a", "b"], shared=True)
    with one, ffx.Agent.open(of_process(address, 2), shared=True) as two:
        with pytest.raises(StorageUnavailable), one.transaction():
            lost = one.decide()
            made = two.decide()  # waits until the server has ended the other's session
        assert lost.id == made.id  # nobody has got the lost one
        two.observe(made.id, reward=1.0)
        caught_up(one)
        assert one.state() == two.state()
        assert one.observed == 1
        one.verify()


def test_a_process_that_stops_in_a_statement_is_thrown_out(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server has no limit for that: it waits for the rest of what it gets."""
    monkeypatch.setattr(postgres_module, "_LIMITS", "SET lock_timeout = '600ms'")
    monkeypatch.setattr(postgres_module, "_IDLE", 0.3)
    one = ffx.Agent.open(of_process(address, 1), actions=["a", "b"], shared=True)
    with one, ffx.Agent.open(of_process(address, 2), shared=True) as two:
        writer: Any = one.journal.log.database
        with pytest.raises(StorageUnavailable), one.transaction():
            one.decide()
            with suppress(psycopg.Error), writer._writer.cursor().copy("COPY aggregation FROM STDIN"):
                with pytest.raises(StorageUnavailable, match="lock timeout"):
                    two.decide()
                made = two.decide()
        caught_up(one)
        assert one.state() == two.state()
        assert one.pending == 1
        one.observe(made.id, reward=1.0)
        one.verify()


def test_a_transaction_that_goes_on_may_take_long(
    postgres: Any, address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Who waits ends the session of nobody whose process is not waited for."""
    monkeypatch.setattr(postgres_module, "_LIMITS", "SET lock_timeout = '100ms'")
    monkeypatch.setattr(postgres_module, "_IDLE", 0.05)
    one = ffx.Agent.open(of_process(address, 1), actions=["a", "b"], shared=True)
    with one, ffx.Agent.open(of_process(address, 2), shared=True) as two:
        slow = threading.Thread(target=one.journal.log.database.execute, args=("SELECT pg_sleep(2)",))
        sleeps = "SELECT 1 FROM pg_stat_activity WHERE wait_event = 'PgSleep'"
        with one.transaction():
            one.decide()
            slow.start()
            until(lambda: postgres.ask(sleeps))
            with pytest.raises(StorageUnavailable, match="lock timeout"):
                two.decide()
            slow.join()
        assert one.pending == 1


def test_a_process_that_computes_for_long_does_not_stand_still(
    address: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The server ends a session that asks nothing, and a long replay would fail each time."""
    limits = "SET idle_in_transaction_session_timeout = '300ms'; SET lock_timeout = '20s'"
    monkeypatch.setattr(postgres_module, "_LIMITS", limits)
    monkeypatch.setattr(transaction_log, "ASK_EVERY", 0.05)
    monkeypatch.setattr(agent_module, "WORK", 1_000)  # one record in a step
    real = Core.apply

    def slow(core: Core, step: Any) -> None:
        time.sleep(0.1)
        real(core, step)

    one = ffx.Agent.open(of_process(address, 1), dimension=2, shared=True)
    with one, ffx.Agent.open(of_process(address, 2), shared=True) as two:
        with monkeypatch.context() as patched:
            patched.setattr(Core, "apply", slow)
            one.learn(np.ones((6, 2)), np.arange(6) / 6)
            caught_up(two)
            with ffx.Agent.open(of_process(address, 3), shared=True) as three:
                assert three.observed == 6
        assert one.state() == two.state()
        with ffx.Agent(2) as other:
            other.learn(np.ones((6, 2)), np.arange(6) / 6)
            assert other.estimate.tolist() == one.estimate.tolist()


def test_who_waits_too_long_changes_nothing(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    one = ffx.Agent.open(of_process(address, 1), actions=["a", "b"], shared=True)
    monkeypatch.setattr(postgres_module, "_LIMITS", "SET lock_timeout = '50ms'")
    with one, ffx.Agent.open(of_process(address, 2), shared=True) as two:
        with one.transaction():
            one.decide()
            with pytest.raises(StorageUnavailable, match="lock timeout"):
                two.decide()
            assert two.pending == 0
        two.decide()
        assert two.pending == 2


def test_time_with_the_write_lock_is_counted(postgres: Any, pair: tuple[ffx.Agent, ffx.Agent]) -> None:
    """What one waits for is what another has it for."""
    one, two = (agent.journal.log.database for agent in pair)
    before, waiting = two.waited, threading.Thread(target=pair[1].decide)
    queue = "SELECT 1 FROM pg_locks WHERE locktype = 'advisory' AND NOT granted"
    with pair[0].transaction():
        pair[0].decide()
        waiting.start()
        until(lambda: postgres.ask(queue))
        began, held = time.monotonic(), one.held
        until(lambda: time.monotonic() > began + 0.05)
    waiting.join()
    assert two.waited - before > 0.05
    assert one.held - held > 0.05
    held, began = one.held, time.monotonic()
    until(lambda: time.monotonic() > began + 0.01)
    assert one.held == held  # the other one had it last


def test_a_commit_whose_answer_is_lost_is_looked_up(
    pair: tuple[ffx.Agent, ffx.Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    one, two = pair
    with cut(one, monkeypatch, stored=True), pytest.raises(OutcomeUnknown):
        one.decide(note=DecisionNote(key="k"))
    with pytest.raises(KeyTaken):  # the client sends it again
        one.decide(note=DecisionNote(key="k"))
    with cut(one, monkeypatch, stored=False), pytest.raises(OutcomeUnknown):
        one.decide(note=DecisionNote(key="l"))
    one.decide(note=DecisionNote(key="l"))
    assert one.pending == 2
    caught_up(two)
    assert one.state() == two.state()


@contextmanager
def cut(agent: ffx.Agent, monkeypatch: pytest.MonkeyPatch, *, stored: bool) -> Iterator[None]:
    """Lose the connection at the next commit: after it, if it is to be `stored`, else before it."""
    database: Any = agent.journal.log.database
    real = {name: getattr(database, name) for name in ("commit", "insert")}

    def at(name: str, *given: Any, **more: Any) -> None:
        if stored:
            real[name](*given, **more)
        database._writer.close()
        for each in real:
            monkeypatch.setattr(database, each, real[each])
        raise database._unknown()

    for name in real:
        monkeypatch.setattr(database, name, partial(at, name))
    yield


def test_a_server_that_ends_during_a_commit_leaves_it_unknown(
    postgres: Any, pair: tuple[ffx.Agent, ffx.Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of one row, and of several: the session ends between them and the commit."""
    import psycopg

    one, two = pair
    database: Any = one.journal.log.database
    end = "SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name = 'process1'"

    def kill() -> None:
        with psycopg.connect(postgres.address, autocommit=True) as connection:
            connection.execute(end)

    for name, steps in (("_insert_last", 1), ("commit", 2)):
        real = getattr(database, name)

        def killed(*given: Any, real: Any = real) -> None:
            kill()
            real(*given)

        with monkeypatch.context() as patched:
            patched.setattr(database, name, killed)
            said = "during a commit: whether it was stored is not known"
            with pytest.raises(OutcomeUnknown, match=said), one.transaction():
                for _ in range(steps):
                    one.decide()
        caught_up(one, two)
        assert one.state() == two.state()
        assert one.pending == 0


def cut_off(postgres: Any, *numbers: int) -> None:
    """End the connections of these processes."""
    names = ", ".join(f"'process{number}'" for number in numbers)
    postgres.ask(
        f"SELECT pg_terminate_backend(pid) FROM pg_stat_activity WHERE application_name IN ({names})"
    )
    open_still = f"SELECT 1 FROM pg_stat_activity WHERE application_name IN ({names})"
    until(lambda: not postgres.ask(open_still))


def test_a_lost_connection_is_made_again(postgres: Any, pair: tuple[ffx.Agent, ffx.Agent]) -> None:
    one, two = pair
    one.decide()
    cut_off(postgres, 1, 2)
    for agent in pair:
        with suppress(StorageUnavailable):  # it notices
            agent.decide()
    one.decide()
    two.decide()
    caught_up(one)
    assert one.state() == two.state()


@pytest.mark.parametrize("query", range(4))
def test_a_connection_that_is_lost_while_it_catches_up(
    pair: tuple[ffx.Agent, ffx.Agent], monkeypatch: pytest.MonkeyPatch, query: int
) -> None:
    """It applies nothing twice, and its next row follows the others' last one."""
    one, two = pair
    one.decide()
    two.observe(two.decide().id, reward=1.0)
    database, asked = one.journal.log.database, list[str]()
    real = database.execute

    def execute(statement: str, values: Any = ()) -> Any:
        asked.append(statement)
        if len(asked) == query + 1:
            raise StorageUnavailable("cut")
        return real(statement, values)

    monkeypatch.setattr(database, "execute", execute)
    with pytest.raises(StorageUnavailable, match="cut"):
        one.decide()
    one.decide()
    caught_up(two)
    assert one.state() == two.state()
    assert one.observed == 1
    assert one.pending == 2
    two.verify()


def test_an_older_copy_ends_it(postgres: Any, address: str) -> None:
    one = ffx.Agent.open(of_process(address, 1), actions=["a", "b"], shared=True)
    two = ffx.Agent.open(of_process(address, 2), shared=True)
    two.decide()
    caught_up(one)  # it has read the step, and not written it
    with psycopg.connect(address, autocommit=True) as connection:
        connection.execute("DELETE FROM decisions")
    for agent in (one, two):
        for _ in range(2):
            with pytest.raises(OlderCopy, match="not all is there that this process has written or read"):
                agent.decide()
    for agent in (one, two):
        with suppress(OlderCopy):
            agent.close()


def test_two_may_mark_an_older_copy_at_once(postgres: Any, address: str) -> None:
    """The copy of a private agent, so that it stays closed."""
    agent = ffx.Agent.open(of_process(address, 1), name="a", shared=True, **PRIVATE["own data"])
    agent.decide(np.ones((2, 2)) / 2)
    waiting = "SELECT pid FROM pg_stat_activity WHERE wait_event_type = 'Lock'"
    with psycopg.connect(address) as other, ThreadPoolExecutor(1) as pool:
        other.execute("DELETE FROM decisions")
        other.commit()
        other.execute(postgres_module._TAKE)
        other.execute("CREATE TABLE older_copy (mark TEXT)")
        noticed = pool.submit(agent.journal.log.database.check_last_row)
        until(lambda: postgres.ask(waiting))
        other.commit()
        assert isinstance(noticed.exception(), OlderCopy)
    with suppress(OlderCopy):
        agent.close()
    with pytest.raises(OlderCopy):
        ffx.Agent.open(of_process(address, 2), shared=True)


def test_a_step_uses_the_time_of_the_server(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """The clocks of two machines may differ."""
    with ffx.Agent.open(of_process(address, 1), actions=["a", "b"], shared=True) as one:
        first = one.decide()
        monkeypatch.setattr("time.time_ns", lambda: 10**18)  # of another machine, in 2001
        with ffx.Agent.open(of_process(address, 2), shared=True) as two:
            second = two.decide()
    assert first.time < second.time < first.time + 60_000_000


def test_a_snapshot_of_one_serves_all(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persistence, "SNAPSHOT_EVERY", 10)
    one = ffx.Agent.open(of_process(address, 1), actions=["a", "b"], shared=True)
    with one, ffx.Agent.open(of_process(address, 2), shared=True) as two:
        for _ in range(30):
            two.forget(one.decide().id)
        taken = one.journal.snapshot_numbers()
        assert len(taken) <= 7
        assert taken[-1] >= 50


@pytest.fixture
def replayed(monkeypatch: pytest.MonkeyPatch) -> list[int]:
    """The numbers of the steps that are replayed from now on."""
    numbers, replay = list[int](), persistence.AgentStore._replay

    def note(store: persistence.AgentStore, entry: Entry, *, undone: bool) -> None:
        numbers.append(entry.number)
        replay(store, entry, undone=undone)

    monkeypatch.setattr(persistence.AgentStore, "_replay", note)
    return numbers


@pytest.mark.parametrize("replaced", [False, True])
def test_one_that_stood_still_begins_with_a_snapshot(
    address: str, monkeypatch: pytest.MonkeyPatch, replayed: list[int], replaced: bool
) -> None:
    """Others wait while it catches up."""
    monkeypatch.setattr(persistence, "SNAPSHOT_EVERY", 10)
    one = ffx.Agent.open(of_process(address, 1), actions=["a", "b"], shared=True)
    with one, ffx.Agent.open(of_process(address, 2), shared=True) as two:
        before = two.journal.rewritten
        for _ in range(30):
            decision = one.decide()
            one.observe(decision, reward=1.0)
        if replaced:
            one.observe(decision, reward=0.0, replace=True)
        replayed.clear()
        caught_up(two)
        assert len(replayed) <= 10
        assert two.state() == one.state()
        assert two.journal.rewritten > before  # it has not read whether a reward was replaced


@pytest.mark.parametrize("how", ["replaced", "deleted", "rolled back"])
def test_what_one_has_replayed_the_others_need_not(
    address: str, monkeypatch: pytest.MonkeyPatch, replayed: list[int], how: str
) -> None:
    """They may be next to have the write lock, before it could take a snapshot."""
    monkeypatch.setattr(persistence, "SNAPSHOT_EVERY", 10)
    monkeypatch.setattr(persistence.AgentStore, "_after_commit", lambda _: None)
    one = ffx.Agent.open(of_process(address, 1), actions=["a", "b"], shared=True)
    with one, ffx.Agent.open(of_process(address, 2), shared=True) as two:
        first = one.decide()
        one.observe(first, reward=1.0, person="bob")
        for _ in range(15):
            one.observe(one.decide(), reward=1.0)
        caught_up(two)
        match how:
            case "replaced":
                one.observe(first, reward=0.0, replace=True)
            case "deleted":
                one.delete_person("bob")
            case _:
                one.roll_back(to=first.time / 1e6)
        assert len(replayed) > 30
        replayed.clear()
        caught_up(two)
        assert not replayed
        assert two.state() == one.state()
        two.verify()


def test_it_catches_up_with_what_was_dropped_meanwhile(address: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persistence, "SNAPSHOT_EVERY", 10)
    one = ffx.Agent.open(of_process(address, 1), dimension=2, shared=True)
    with one, ffx.Agent.open(of_process(address, 2), shared=True) as two:
        for _ in range(30):
            two.observe(two.decide(np.eye(2)), reward=1.0)
        last = two.decide(np.eye(2))
        assert two.drop_contexts(before=last.time / 1e6) > 20
        caught_up(one)
        assert one.observed == 30
        assert one.state() == two.state()


def test_one_alone_ends_if_others_shared_the_database_meanwhile(postgres: Any, address: str) -> None:
    """While it had no connection: they may have written, and have drawn prefixes of ids."""
    alone = ffx.Agent.open(of_process(address, 1), actions=["a", "b"])
    alone.decide()
    cut_off(postgres, 1)
    ffx.Agent.open(of_process(address, 2), shared=True).close()
    with suppress(StorageUnavailable):  # it notices
        alone.decide()
    with pytest.raises(OlderCopy, match="while this process had lost its connection"):
        alone.decide()
    with suppress(OlderCopy):
        alone.close()
    with ffx.Agent.open(of_process(address, 2), shared=True) as two:
        two.verify()
        assert two.pending == 1


def test_one_that_shares_ends_if_another_was_alone_meanwhile(postgres: Any, address: str) -> None:
    one = ffx.Agent.open(of_process(address, 1), actions=["a", "b"], shared=True)
    one.decide()
    cut_off(postgres, 1)
    with ffx.Agent.open(of_process(address, 2)) as alone:
        alone.decide()
    with ffx.Agent.open(of_process(address, 3), shared=True) as three:
        three.decide()
        with suppress(StorageUnavailable):  # it notices
            one.decide()
        with pytest.raises(OlderCopy, match="while this process had lost its connection"):
            one.decide()
        with suppress(OlderCopy):
            one.close()


@pytest.mark.parametrize("shared", [False, True])
def test_making_a_key_meanwhile_ends_nobody(postgres: Any, address: str, shared: bool) -> None:
    """The command takes no database from a process that has just lost its connection."""
    with ffx.Agent.open(of_process(address, 1), actions=["a", "b"], shared=shared) as agent:
        agent.decide()
        cut_off(postgres, 1)
        with open_keys(of_process(address, 2)) as keys:
            keys.add("shop", "writer")
        with suppress(StorageUnavailable):  # it notices
            agent.decide()
        agent.decide()


def test_an_amendment_that_failed_is_not_taken_for_another(
    pair: tuple[ffx.Agent, ffx.Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """The number of its step is free for another process."""
    one, two = pair
    times = []
    for _ in range(4):
        one.observe(one.decide(), reward=1.0)
        times.append(one.journal.log.time / 1e6)
    caught_up(two)
    database: Any = one.journal.log.database

    def away(**_: Any) -> None:
        raise StorageUnavailable("away")

    with monkeypatch.context() as patched, pytest.raises(StorageUnavailable, match="away"), one.transaction():
        one.roll_back(to=times[0])
        patched.setattr(database, "commit", away)
        patched.setattr(database, "begin", away)
    two.roll_back(to=times[2])
    caught_up(one)
    assert two.observed == one.observed == 2
    assert one.state() == two.state()
    for agent in pair:
        assert [each.rolled_back for each in agent.journal.decisions()] == [False, False, False, True]


# --- verifying --------------------------------------------------------------------------------------------


def test_verifying_holds_up_nobody(
    pair: tuple[ffx.Agent, ffx.Agent], monkeypatch: pytest.MonkeyPatch
) -> None:
    """Others decide and learn while it replays, which it does as of one moment."""
    one, two = pair
    two.observe(one.decide(), reward=1.0)
    real, whole = persistence.AgentStore.restore, list[bool]()

    def restore(self: Any, **given: Any) -> None:
        whole.append(given.get("whole", False))
        two.observe(two.decide(), reward=0.0)  # it would wait for the write lock, and give up
        real(self, **given)

    with monkeypatch.context() as patched:
        patched.setattr(persistence.AgentStore, "restore", restore)
        one.verify()
    assert whole == [True]
    caught_up(one)
    assert one.observed == 2
    one.verify()


def test_verifying_finds_another_state(pair: tuple[ffx.Agent, ffx.Agent]) -> None:
    one, two = pair
    two.observe(one.decide(), reward=1.0)
    caught_up(one)
    one._model.updates += 1
    with pytest.raises(StateError, match="replayed, its log ends in another state"):
        one.verify()
    two.verify()


def test_a_copy_has_no_tables_of_processes(
    address: str, pair: tuple[ffx.Agent, ffx.Agent], tmp_path: Path
) -> None:
    one, _ = pair
    StoredSessions(one.journal.log)
    one.decide()
    with open_for_reading(address) as database:
        copy_database(database, tmp_path / "copy.db")
    with ffx.Agent.open(tmp_path / "copy.db") as copy:
        assert copy.pending == 1
        copy.verify()
