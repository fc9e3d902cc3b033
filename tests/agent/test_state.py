"""A saved agent: exact to the bit, and anything else than a sound file is refused."""

from __future__ import annotations

import copy
import json
import math
import os
import pickle
import re
import sqlite3
import stat
from collections.abc import Callable
from pathlib import Path
from typing import Any

import joblib
import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

import fedfairx as ffx
from federation_helpers import bare, private_agent
from fedfairx.core.optimism.solver import WINNER, Solver
from fedfairx.errors import AlreadyObserved, InvalidInput, PrivacyError, StateError, UnknownDecision
from fedfairx.features import Schema
from fedfairx.privacy import Bounds
from fedfairx.storage import open_database
from fedfairx.storage.seals import seal_other
from instances import CUSTOM, merits

D = 3
RANKED = [1.0, 0.63, 0.5]


def live(agent: ffx.Agent, rounds: int, seed: int) -> None:
    """Decide, observe (not always, not at once), release and absorb."""
    rng = np.random.default_rng(seed)
    waiting = []
    for t in range(1, rounds + 1):
        waiting.append(agent.decide(rng.random((int(rng.integers(1, 7)), D))))
        if len(waiting) > 3:
            agent.observe(waiting.pop(int(rng.integers(4))), reward=float(rng.random()))
        if t % 5 == 0:
            agent.absorb({agent.name: agent.release()})


def same_future(one: ffx.Agent, other: ffx.Agent) -> None:
    """The same decisions and releases, to the bit, whatever comes."""
    rng = np.random.default_rng(5)
    assert bare(one) == bare(other)
    for t in range(30):
        x, reward = rng.random((int(rng.integers(1, 9)), D)), float(rng.random())
        ours, theirs = one.decide(x), other.decide(x)
        assert ours == theirs
        one.observe(ours, reward=reward)
        other.observe(theirs.id, reward=reward)
        if t % 7 == 0:
            released = one.release()
            assert released == other.release()
    for number in list(one._pending):
        one.observe(one._pending[number].id, reward=0.5)
        other.observe(other._pending[number].id, reward=0.5)
    assert bare(one) == bare(other)


def saved(agent: ffx.Agent, folder: Path) -> Path:
    agent.save(folder / "agent.db")
    return folder / "agent.db"


# --- exact to the bit --------------------------------------------------------------------------------------

FIRST = Schema({"size": (0, 1), "kind": ["bike", "van"]})
SECOND = Schema({"size": (0, 1), "kind": ["bike", "van", "walk"], "age": (0, 9)})
NAMES = ["ann", "ben", "cid", "dora"]
KINDS: dict[str, dict[str, Any]] = {
    "posterior": {
        "dimension": D,
        "prior": ffx.Prior(mean=(0.1, -0.2, 0.3, 0.2), sd=0.8),
        "minimum_share": 0.02,
    },
    "fixed": {"dimension": D, "prior": ffx.Prior(noise_sd=0.2, learn=False)},
    "optimism": {"dimension": D, "rule": "optimism", "confidence": ffx.Confidence(regulariser=0.3)},
    "thompson": {"dimension": D, "rule": "thompson"},
    "greedy": {"dimension": D, "rule": "greedy", "reward_range": (0.0, 2.0)},
    "slots": {"dimension": D, "slots": RANKED},
    "names": {"actions": NAMES},
    "names, slots": {"actions": NAMES, "slots": 2},
    "names, half-life": {"actions": NAMES, "half_life": 9},
    "time": {"dimension": D, "half_life": "30s", "slots": 2},
    "schema": {"schema": FIRST},
    "schema, half-life": {"schema": FIRST, "half_life": 20, "slots": RANKED},
    "partners": {"dimension": D, "partners": "differ"},
    "bounds": {"dimension": D, "bounds": Bounds(context_norm=0.9)},
}


class Life:
    """Two agents to which the same happens; the second one is copied now and then."""

    def __init__(self, kind: str, seed: int, folder: Path) -> None:
        self.rng = np.random.default_rng(seed)
        self.folder, self.copies, self.kind, self.given = folder, 0, kind, dict(KINDS[kind])
        self.agents = [self.made() for _ in range(2)]
        plain = {name: given for name, given in self.given.items() if name != "slots"}
        self.peer = ffx.Agent(**plain, name="peer", seed=1)
        self.waiting: list[tuple[ffx.Decision, list[int]]] = []  # and their slots without an outcome
        self.ids: dict[int, list[str]] = {}  # of a decision's two copies
        self.extended = False

    def made(self) -> ffx.Agent:
        if "bounds" in self.given:  # only a stored agent clips without noise
            with ffx.Agent.open(self.folder / "bounds.db", name="a", seed=7, **self.given) as agent:
                return ffx.Agent.load(self.folder / "bounds.db") if agent.observed == 0 else agent
        return ffx.Agent(**self.given, name="a", seed=7)

    def offered(self) -> dict[str, Any]:
        arms = int(self.rng.integers(3, 6))
        if self.agents[0].actions:
            chosen = self.rng.permutation(self.agents[0].actions)[: max(arms - 2, 2)]
            return {"actions": sorted(map(str, chosen))}
        if "schema" in self.given:
            row = [("kind", "bike"), ("age", 3.0)] if self.extended else [("kind", "bike")]
            return {"actions": [{"size": float(self.rng.random()), **dict(row)} for _ in range(arms)]}
        named = {"names": [f"x{arm}" for arm in range(arms)]} if self.rng.random() < 0.3 else {}
        return {"contexts": self.rng.random((arms, D)), **named}

    def decide(self) -> None:
        offered, one = self.offered(), self.rng.random() < 0.3
        made = [agent.decide(**offered, slots=1 if one else None) for agent in self.agents]
        assert made[0] == made[1]
        assert (made[0].names, made[0].theta.tobytes()) == (made[1].names, made[1].theta.tobytes())
        self.waiting.append((made[0], list(range(len(made[0].actions)))))
        self.ids[made[0].number] = [each.id for each in made]

    def observe(self) -> None:
        if not self.waiting:
            return
        place = int(self.rng.integers(len(self.waiting)))
        made, left = self.waiting[place]
        slots = [slot for slot in left if self.rng.random() < 0.6]
        outcomes: dict[int, float | None] = {made.actions[slot]: float(self.rng.random()) for slot in slots}
        if slots and self.rng.random() < 0.3:
            outcomes[made.actions[slots[0]]] = None
        for agent, identity in zip(self.agents, self.ids[made.number], strict=True):
            agent.observe(identity, rewards=outcomes)
        self.waiting[place] = made, [slot for slot in left if slot not in slots]
        if len(slots) == len(left):
            del self.waiting[place]

    def forget(self) -> None:
        if self.waiting:
            made, _ = self.waiting.pop(0)
            for agent, identity in zip(self.agents, self.ids[made.number], strict=True):
                agent.forget(identity)

    def learn(self) -> None:
        count = int(self.rng.integers(1, 5))
        rewards = self.rng.random(count)
        actions = self.agents[0].actions
        for agent in self.agents:
            agent.learn(
                [actions[0]] * count if actions else np.full((count, agent.dimension), 0.3), rewards.tolist()
            )

    def share(self) -> None:
        if self.agents[0].actions or "schema" in self.given:  # which could not grow any more
            return
        if self.rng.random() < 0.5:
            assert self.agents[0].release() == self.agents[1].release()
        self.peer.learn(self.rng.random((3, D)), self.rng.random(3).tolist())
        release = self.peer.release()
        if "bounds" in self.given:
            return
        for agent in self.agents:
            agent.absorb({"peer": release})
        assert self.agents[0].partners == self.agents[1].partners

    def grow(self) -> None:
        if self.agents[0].actions:
            name = f"new {len(self.agents[0].all_actions)}"
            for agent in self.agents:
                agent.add_actions(name)
                agent.retire_actions(agent.actions[0])
        elif "schema" in self.given:
            self.extended = True
            for agent in self.agents:
                agent.extend_schema(SECOND)

    def copy(self) -> None:
        """Copy the second agent in one of all ways, into memory or into a database."""
        self.copies += 1
        agent, path = self.agents[1], self.folder / f"{self.copies}.db"
        state = bare(agent)
        if agent.durable:
            if self.rng.random() < 0.5:
                agent.save(path)
                self.agents[1] = ffx.Agent.load(path)
            else:
                self.agents[1] = ffx.Agent.load(agent.journal.place)
            agent.verify()
            agent.close()
        else:
            way = int(self.rng.integers(5))
            if way < 2:
                agent.save(path)
                self.agents[1] = ffx.Agent.load(path) if way else ffx.Agent.open(path)
            elif way == 2:
                self.agents[1] = pickle.loads(pickle.dumps(agent))
            else:
                self.agents[1] = copy.deepcopy(agent) if way == 3 else copy.copy(agent)
        assert bare(self.agents[1]) == state

    def check(self) -> None:
        one, other = self.agents
        assert bare(one) == bare(other)
        for ours, theirs in zip(one._pending.values(), other._pending.values(), strict=True):
            assert (ours, ours.outcomes, ours.names) == (theirs, theirs.outcomes, theirs.names)
            assert [ours.status_of(slot) for slot in ours.outcomes] == [
                theirs.status_of(slot) for slot in theirs.outcomes
            ]
        if other.durable:
            other.verify()
            other.close()


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
@settings(max_examples=4, deadline=None)
@given(st.integers(0, 2**32 - 1))
def test_whatever_happens_a_copied_agent_is_as_one_that_was_not_copied(
    tmp_path_factory: pytest.TempPathFactory, kind: str, seed: int
) -> None:
    with pytest.MonkeyPatch.context() as patch:
        now = [10**15]
        patch.setattr("fedfairx.agent.log.wall_clock", lambda: now[0])
        patch.setattr("fedfairx.storage.transaction_log.time.time_ns", lambda: now[0] * 1000)
        life = Life(kind, seed, tmp_path_factory.mktemp("life"))
        steps: list[Callable[[], None]] = [life.observe, life.forget, life.learn, life.share, life.grow]
        chances = [0.3, 0.35, 0.4, 0.45, 0.5, 0.6]
        for _ in range(60):
            now[0] += 1_000_000
            draw = life.rng.random()
            chosen = next(
                (step for step, bound in zip([*steps, life.copy], chances, strict=True) if draw < bound),
                life.decide,
            )
            chosen()
        life.check()


@pytest.mark.parametrize("kind", ["exponential", "affine", "power", "logistic", "custom"])
def test_every_merit(tmp_path: Path, kind: str) -> None:
    merit, _ = merits(np.random.default_rng(4))[kind]
    agent = ffx.Agent(D, merit=merit, seed=1)
    live(agent, 12, 0)
    own = CUSTOM if kind == "custom" else None
    same = copy.deepcopy(agent)
    again = ffx.Agent.load(saved(agent, tmp_path), merit=own)
    assert again.merit == same.merit == merit
    same_future(again, agent)
    with ffx.Agent.open(tmp_path / "agent.db", merit=own) as stored:
        assert stored.merit == merit
        stored.decide(np.eye(D))


@pytest.mark.parametrize(
    "solver", ["pgd", Solver(rule=WINNER, floor=0.02), Solver(tolerance=1e-9, max_steps=7)]
)
def test_every_solver(tmp_path: Path, solver: Any) -> None:
    agent = ffx.Agent(D, rule="optimism", solver=solver, seed=1, shift=2.5)
    live(agent, 12, 0)
    again = ffx.Agent.load(saved(agent, tmp_path))
    assert (again.options.solver, again.options.shift, again.name) == (agent.options.solver, 2.5, agent.name)
    same_future(again, agent)


def test_decisions_that_wait_for_their_reward_still_wait(tmp_path: Path) -> None:
    agent = ffx.Agent(D, seed=0)
    first, second, third = agent.decide_many(np.random.default_rng(0).random((3, 4, D)))
    agent.observe(first, reward=0.5)
    again = ffx.Agent.load(saved(agent, tmp_path))
    assert again.pending == 2
    with pytest.raises(AlreadyObserved):
        again.observe(first, reward=0.5)
    with pytest.raises(UnknownDecision):
        again.observe(f"{agent._log.prefix}-4", reward=0.5)
    again.observe(third, reward=0.1)  # the object of before the save, or its id
    again.observe(pickle.loads(pickle.dumps(second)), reward=0.2)
    agent.observe(third, reward=0.1)
    agent.observe(second, reward=0.2)
    same_future(again, agent)


def decisions(agent: ffx.Agent) -> list[tuple[int, float]]:
    return [(each.action, each.probability) for each in (agent.decide(np.eye(D)) for _ in range(5))]


@pytest.mark.process
def test_joblib_writes_an_agent_and_sends_it_to_other_processes(tmp_path: Path) -> None:
    agent = ffx.Agent(D, seed=0)
    live(agent, 12, 0)
    joblib.dump(agent, tmp_path / "agent.joblib", compress=3)
    copies = [joblib.load(tmp_path / "agent.joblib"), agent]
    made = joblib.Parallel(n_jobs=2)(joblib.delayed(decisions)(each) for each in copies)
    assert made == [decisions(agent)] * 2


def test_copies_never_share_an_id() -> None:
    agent = ffx.Agent(D, seed=0)
    copies = [agent, copy.deepcopy(agent), copy.copy(agent), pickle.loads(pickle.dumps(agent))]
    assert len({each.decide(np.eye(D)).id for each in copies}) == 4


def test_a_member_of_a_federation_can_be_replaced_by_its_copy(tmp_path: Path) -> None:
    pair = [ffx.Federation(agents=2, dimension=D, horizon=60, seed=3) for _ in range(2)]
    rng = np.random.default_rng(0)
    for t in range(60):
        x, rewards = rng.random((2, 4, D)), rng.random(2)
        if t == 30:
            pair[0].agents[1] = ffx.Agent.load(saved(pair[0].agents[1], tmp_path))
        for i in range(2):
            made = [federation.agents[i].decide(x[i]) for federation in pair]
            assert made[0] == made[1]
            for federation, decision in zip(pair, made, strict=True):
                federation.agents[i].observe(decision, reward=rewards[i])
        assert pair[0].end_round() == pair[1].end_round()


def test_numbers_keep_their_last_bit() -> None:
    agent = ffx.Agent(1, seed=0, intercept=False)
    agent._model.learner.statistics[:] = [np.nextafter(1.0, 2.0), -0.0]
    agent._model.learner.fresh[:] = [5e-324, 1.7976931348623157e308]
    again = copy.deepcopy(agent)
    assert again._model.learner.statistics.tobytes() == agent._model.learner.statistics.tobytes()
    assert again._model.learner.fresh.tobytes() == agent._model.learner.fresh.tobytes()


def test_a_subclass_stays_one() -> None:
    assert type(copy.deepcopy(Own(D))) is Own
    assert type(pickle.loads(pickle.dumps(Own(D)))) is Own


class Own(ffx.Agent):
    pass


# --- opened ------------------------------------------------------------------------------------------------


def test_a_saved_agent_is_opened_and_its_log_begins_there(tmp_path: Path) -> None:
    agent = ffx.Agent(D, seed=0, slots=2)
    rng = np.random.default_rng(0)
    made = [agent.decide(rng.random((4, D))) for _ in range(4)]
    agent.observe(made[0], rewards=[0.5, 1.0])
    agent.observe(made[1], rewards={made[1].actions[1]: 0.25})
    path = saved(agent, tmp_path)
    with ffx.Agent.open(path, window=1000.0) as stored:
        assert stored.journal.counts() == {"pending": 3, "rewarded": 0, "withdrawn": 0, "expired": 0}
        assert list(stored.journal.decisions()) == []  # of other actions nothing is known
        assert stored.expire() == 0  # it waits from now on
        stored.observe(made[1].id, rewards={made[1].actions[0]: 0.5})
        agent.observe(made[1], rewards={made[1].actions[0]: 0.5})
        found = stored.journal.decision(made[1].id)
        assert (found.gone, found.status, found.reward) == (True, "rewarded", 0.75)
        with pytest.raises(UnknownDecision):
            stored.observe(made[0].id, rewards=[0.5, 1.0])  # the log knows nothing of it
        offered = rng.random((4, D))
        assert stored.decide(offered) == agent.decide(offered)
        assert [each.policy.size for each in stored.journal.decisions()] == [4]
    with ffx.Agent.open(path) as stored:
        stored.verify()
        assert bare(stored) == bare(agent)
        assert stored.pending == 3
        assert stored.drop_contexts(before=2e9) == 1  # the one that was rewarded
        stored.verify()
        stored.forget(made[2].id)
        assert ffx.Agent.load(path).pending == 2


def test_a_durable_agent_is_saved_without_its_log(tmp_path: Path) -> None:
    with ffx.Agent.open(tmp_path / "own.db", dimension=D, seed=0) as agent:
        live(agent, 30, 0)
        path = saved(agent, tmp_path)
        again = ffx.Agent.load(path)
        assert bare(again) == bare(agent) == bare(ffx.Agent.load(tmp_path / "own.db"))
        same_future(again, agent)
    with ffx.Agent.open(path) as stored:
        assert stored.journal.counts()["rewarded"] == 0


def test_one_of_several_agents_is_loaded_by_name(tmp_path: Path) -> None:
    path = tmp_path / "agents.db"
    with ffx.Agent.open(path, name="north", dimension=D), ffx.Agent.open(path, name="south", dimension=2):
        assert ffx.Agent.load(path, name="south").dimension == 2
        with pytest.raises(InvalidInput, match=r"name must be given: .* holds 2 agents, 'north', 'south'"):
            ffx.Agent.load(path)
        with pytest.raises(InvalidInput, match=r"name must be that of an agent in .*, got name='west'"):
            ffx.Agent.load(path, name="west")


# --- the file ----------------------------------------------------------------------------------------------


def test_the_file_is_for_its_owner_alone_and_beside_it_is_nothing(tmp_path: Path) -> None:
    agent = ffx.Agent(D, merit=CUSTOM, seed=0)
    path = saved(agent, tmp_path)
    agent.save(path)
    ffx.Agent.load(path, merit=CUSTOM)
    assert stat.S_IMODE(path.stat().st_mode) == 0o600
    assert [entry.name for entry in tmp_path.iterdir()] == ["agent.db"]
    assert str(CUSTOM.address()).encode() not in path.read_bytes()


@pytest.mark.parametrize("moment", ["write", "fsync", "replace"])
def test_a_crash_while_saving_leaves_the_old_file(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, moment: str
) -> None:
    agent = ffx.Agent(D, seed=0)
    path = saved(agent, tmp_path)
    before = path.read_bytes()
    live(agent, 5, 0)

    def crash(*_: Any, **__: Any) -> None:
        raise OSError("no space left")

    monkeypatch.setattr(os, {"write": "fdopen", "fsync": "fsync", "replace": "replace"}[moment], crash)
    with pytest.raises(OSError, match="no space left"):
        agent.save(path)
    monkeypatch.undo()
    assert path.read_bytes() == before
    assert [entry.name for entry in tmp_path.iterdir()] == ["agent.db"]


def test_the_file_is_durable_before_it_is_renamed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    steps: list[str] = []
    for name in ("fsync", "replace"):
        real = getattr(os, name)
        monkeypatch.setattr(os, name, lambda *a, _n=name, _r=real: (steps.append(_n), _r(*a))[1])
    ffx.Agent(D, seed=0).save(tmp_path / "agent.db")
    assert steps == ["fsync", "replace", "fsync"]  # the file, the name, the folder


def test_a_link_is_followed(tmp_path: Path) -> None:
    (tmp_path / "real").mkdir()
    target, link = tmp_path / "real" / "agent.db", tmp_path / "link.db"
    ffx.Agent(D, seed=0).save(target)
    link.symlink_to(target)
    ffx.Agent(D, seed=1).save(link)
    assert link.is_symlink()
    assert ffx.Agent.load(target).decide(np.eye(D)) == ffx.Agent(D, seed=1).decide(np.eye(D))


# --- what is not replaced ----------------------------------------------------------------------------------


def refused(agent: ffx.Agent, path: Path, text: str = "") -> None:
    before = path.read_bytes() if path.exists() else None
    rule = "path must be a new file, or one that save wrote and no agent was opened in"
    with pytest.raises(InvalidInput, match=rule + ".*" + re.escape(text)):
        agent.save(path)
    assert (path.read_bytes() if path.exists() else None) == before


def test_only_a_saved_agent_is_replaced(tmp_path: Path) -> None:
    agent, path = ffx.Agent(D, seed=0), tmp_path / "agent.db"
    for content in (b"", b"{}", b"SQLite format 3\0" + bytes(200)):
        path.write_bytes(content)
        refused(agent, path)
    path.unlink()
    with sqlite3.connect(path) as connection:
        connection.execute("CREATE TABLE orders (id INTEGER)")
    connection.close()
    refused(agent, path)
    path.unlink()
    agent.save(path)
    agent.save(path)
    with ffx.Agent.open(path) as stored:
        stored.decide(np.eye(D))
        refused(agent, path, "; beside it is agent.db-wal")
        refused(stored, path, "; beside it is agent.db-wal")  # the database that one has open
        stored.decide(np.eye(D))
    refused(agent, path)  # it has a log now
    copied = sqlite3.connect(path)
    copied.execute("VACUUM INTO ?", (str(tmp_path / "copy.db"),))
    copied.close()
    refused(agent, tmp_path / "copy.db")
    (tmp_path / "left.db-wal").write_bytes(b"of a database that was removed")
    refused(agent, tmp_path / "left.db", "; beside it is left.db-wal")
    with pytest.raises(InvalidInput, match="path must be a file; open makes an agent on a server"):
        agent.save("postgresql://host/agents")


# --- what is refused ---------------------------------------------------------------------------------------


@pytest.mark.parametrize("content", [b"", b"{}", b"\x80\x04\x95pickled" * 100, bytes(8192)])
def test_foreign_files(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "agent.db"
    path.write_bytes(content)
    with pytest.raises(StateError, match=r"agent\.db"):
        ffx.Agent.load(path)
    with pytest.raises(StateError, match="there is no file"):
        ffx.Agent.load(tmp_path / "none.db")


def test_a_database_without_an_agent(tmp_path: Path) -> None:
    open_database(tmp_path / "empty.db").close()
    with pytest.raises(StateError, match="holds no agent"):
        ffx.Agent.load(tmp_path / "empty.db")


def test_damage_is_noticed_or_does_no_harm(tmp_path: Path) -> None:
    """Much of a page of SQLite is not used."""
    agent = ffx.Agent(1, seed=0, slots=2)
    for reward in (0.75, None, None):
        made = agent.decide([[0.5], [0.25], [1.0]])
        agent.observe(made, rewards={made.actions[0]: reward})
    path = saved(agent, tmp_path)
    content, state = path.read_bytes(), bare(agent)
    used = [place for place in range(len(content)) if content[place]]
    rng = np.random.default_rng(0)
    noticed = 0
    for place in rng.choice(used, 200, replace=False):
        damaged = bytearray(content)
        damaged[place] ^= 1 << int(rng.integers(7))
        path.write_bytes(bytes(damaged))
        try:
            again = ffx.Agent.load(path)
        except StateError:
            noticed += 1
        else:
            assert bare(again) == state
            assert [*again._pending.values()] == [*agent._pending.values()]
    assert noticed > 40
    for length in range(0, len(content), 4096):
        path.write_bytes(content[:length])
        with pytest.raises(StateError):
            ffx.Agent.load(path)


def rewritten(path: Path, *keys: Any, value: Any, table: str = "snapshots") -> None:
    """Change a part of the stored state, or of the settings, under a seal that fits."""
    column = {"snapshots": "body", "agents": "settings"}[table]
    with sqlite3.connect(path) as connection:
        *row, _ = connection.execute(f"SELECT * FROM {table}").fetchone()
        at = 3 if table == "snapshots" else 2
        body = json.loads(row[at])
        part: Any = body
        for key in keys[:-1]:
            part = part[key]
        if value is ...:
            del part[keys[-1]]
        else:
            part[keys[-1]] = value
        text = json.dumps(body)
        row[at] = text.encode() if table == "snapshots" else text
        seal = seal_other(*(row if table == "snapshots" else row[:3]))
        connection.execute(f"UPDATE {table} SET {column} = ?, seal = ?", (row[at], seal))
    connection.close()


@pytest.mark.parametrize(
    ("keys", "value", "named"),
    [
        (("learner", "count"), 10**400, "snapshot"),
        (("learner", "updates"), 10**30, "learner.updates"),
        (("privatizer", "total", 0), "x", "can't be read, ValueError"),
        (("learner",), [], "learner"),
        (("learner", "statistics"), [1.0], "learner.statistics"),
        (("learner", "statistics", 0), None, "learner.statistics"),
        (("learner", "inverse"), [0.0] * 8, "learner.inverse"),
        (("learner", "count"), -1.0, "learner.count"),
        (("own",), [1.0], "own"),
        (("random", "state"), "zz", "random"),
        (("random", "state"), hex(2**128), "random"),
        (("random", "generator"), "MT19937", "random.generator"),
        (("pending",), {}, "Expected `array`, got `object`"),
        (("pending", 0), 5, "decisions that wait for a reward are missing"),
        (("latest", "agent"), "00ff", "latest"),
        (("latest", "agent"), "xy", "latest"),
        (("privatizer", "total"), ..., "KeyError"),
        (("privatizer",), None, "privatizer"),
        (("privatizer", "schema"), 3, "exact sums"),
        (("aged",), {"at": 1, "refit_at": 2, "arrived": {}}, "aged"),
    ],
)
def test_a_file_that_says_something_impossible(
    tmp_path: Path, keys: tuple[Any, ...], value: Any, named: str
) -> None:
    agent = ffx.Agent(D, seed=0)
    live(agent, 12, 0)
    path = saved(agent, tmp_path)
    rewritten(path, *keys, value=value)
    with pytest.raises(StateError, match=named):
        ffx.Agent.load(path)


@pytest.mark.parametrize(
    ("keys", "value", "named"),
    [
        (("schema",), 99, "holds an agent of schema 99, and this fedfairx reads schema"),
        (("dimension",), ..., "dimension"),
        (("dimension",), "3", "dimension"),
        (("shift",), 10**400, "settings"),
        (("name",), 5, "name"),
        (("rule",), "best", "rule"),
        (("prior", "sd"), 0.0, "sd"),
        (("merit", "kind"), "linear", "merit.kind"),
        (("merit", "steepness"), -1.0, "steepness"),
        (("partners",), "sometimes", "partners"),
        (("minimum_share",), 1.5, "minimum_share"),
    ],
)
def test_settings_that_can_not_be(tmp_path: Path, keys: tuple[Any, ...], value: Any, named: str) -> None:
    path = saved(ffx.Agent(D, seed=0), tmp_path)
    rewritten(path, *keys, value=value, table="agents")
    with pytest.raises(StateError, match=named):
        ffx.Agent.load(path)


@pytest.mark.parametrize(("what", "value"), [("rule", -1), ("rule", 99), ("max_steps", 0)])
def test_a_file_whose_solver_can_not_be(tmp_path: Path, what: str, value: int) -> None:
    path = saved(ffx.Agent(D, rule="optimism", solver="pgd"), tmp_path)
    rewritten(path, "solver", what, value=value, table="agents")
    with pytest.raises(StateError, match="must be a solver's rule, and at least one step"):
        ffx.Agent.load(path)


def test_a_file_of_another_version(tmp_path: Path) -> None:
    path = saved(ffx.Agent(D), tmp_path)
    with sqlite3.connect(path) as connection:
        connection.execute("UPDATE fedfairx SET version = 99")
    connection.close()
    with pytest.raises(StateError, match="has version 99, and this fedfairx reads version 10; update"):
        ffx.Agent.load(path)


def test_errors_show_no_number_of_the_state(tmp_path: Path) -> None:
    agent = ffx.Agent(D, seed=0)
    live(agent, 12, 0)
    path, secret = saved(agent, tmp_path), agent.state().learner.statistics[0]
    rewritten(path, "learner", "statistics", 0, value=f"{secret}")
    with pytest.raises(StateError) as error:
        ffx.Agent.load(path)
    assert f"{secret}"[:6] not in str(error.value)


def test_a_function_of_ones_own_must_be_given(tmp_path: Path) -> None:
    path = saved(ffx.Agent(D, merit=CUSTOM), tmp_path)
    with pytest.raises(StateError, match="merit is a function of your own: give it as merit="):
        ffx.Agent.load(path)
    other = ffx.merit.Custom(math.exp, minimum_merit=0.1, lipschitz_constant=3.0)
    with pytest.raises(StateError, match="merit must be declared as when the agent was saved"):
        ffx.Agent.load(path, merit=other)
    path = saved(ffx.Agent(D, merit=ffx.merit.Exponential(4.0)), tmp_path)
    assert ffx.Agent.load(path, merit=ffx.merit.Exponential(4.0)).merit == ffx.merit.Exponential(4.0)
    with pytest.raises(StateError, match=r"merit is in the file, and it is Exponential\(steepness=4,"):
        ffx.Agent.load(path, merit=ffx.merit.Exponential(5.0))


COPIES: list[Callable[[ffx.Agent], object]] = [pickle.dumps, copy.copy, copy.deepcopy]


def test_a_private_agent_is_not_saved_loaded_or_copied(tmp_path: Path) -> None:
    agent, path = private_agent(), tmp_path / "private.db"
    text = r"agent 'agent' is private, and can't be saved or copied: .*; Agent\.open\(path, budget=…\) keeps"
    for way in (*COPIES, lambda agent: agent.save(tmp_path / "agent.db")):
        with pytest.raises(PrivacyError, match=text):
            way(agent)
    with ffx.Agent.open(path, name="a", dimension=D, budget=ffx.Budget(epsilon=1.0, releases=3)) as stored:
        for way in (*COPIES, lambda agent: agent.save(tmp_path / "agent.db")):
            with pytest.raises(PrivacyError, match="agent 'a' is private, and can't be saved or copied"):
                way(stored)
        with pytest.raises(PrivacyError, match=r"can't be loaded: .* where it is, with Agent\.open\('"):
            ffx.Agent.load(path)
    assert not (tmp_path / "agent.db").exists()


@pytest.mark.parametrize("way", COPIES)
def test_a_durable_agent_is_not_copied(tmp_path: Path, way: Callable[[ffx.Agent], object]) -> None:
    with ffx.Agent.open(tmp_path / "a.db", name="a", dimension=D) as agent:
        text = r"agent 'a' is in .*a\.db, and can't be copied or pickled: open it there \(Agent\.open\), or"
        with pytest.raises(InvalidInput, match=text):
            way(agent)


def test_a_broken_agent_is_not_saved(tmp_path: Path) -> None:
    agent = ffx.Agent(D, seed=0)
    agent._model.learner.statistics[0] = math.nan
    with pytest.raises(StateError, match="it holds NaN or infinity"):
        agent.save(tmp_path / "agent.db")
    assert not any(tmp_path.iterdir())
