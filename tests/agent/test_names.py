"""Names of actions and their own records: which there are, what they change, and that they are kept."""

from __future__ import annotations

import copy
import pickle
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.agent import own_record, persistence
from fedfairx.agent.own_record import OwnRecord
from fedfairx.agent.settings import plain_value
from fedfairx.errors import InvalidInput
from fedfairx.features import Schema
from fedfairx.privacy import Bounds, SimulatedNoise, private
from fedfairx.steps import NamesForgotten
from states import told

D, COURIERS = 2, [f"courier {number}" for number in range(6)]
BEYOND = np.array([0.3, -0.3, 0.2, -0.2, 0.1, -0.1])  # what they differ by
SCHEMA: dict[str, Any] = {"distance": (0, 10)}
LONGER = Schema(SCHEMA | {"rating": (0, 5)})


def offer(rng: np.random.Generator, near: int = 4) -> tuple[np.ndarray, list[str]]:
    here = rng.choice(len(COURIERS), near, replace=False)
    return rng.uniform(-0.7, 0.7, (near, D)), [COURIERS[k] for k in here]


def earn(rng: np.random.Generator, names: list[str]) -> list[float]:
    means = [0.5 + BEYOND[COURIERS.index(name)] for name in names]
    return [float(reward) for reward in rng.normal(means, 0.1)]


def live(agent: ffx.Agent, rounds: int, *, seed: int = 0, slots: Any = None) -> ffx.Agent:
    """Decisions with names, most of them rewarded, one by one and together, and a log of others'."""
    rng = np.random.default_rng(seed)
    for turn in range(rounds):
        if turn % 7 == 6:
            many = [offer(rng) for _ in range(3)]
            made = agent.decide_many(
                [rows for rows, _ in many], names=[names for _, names in many], slots=slots
            )
        else:
            rows, names = offer(rng)
            made = [agent.decide(rows, names=names, slots=slots)]
        for decision in made:
            rewards = earn(rng, decision.shown_names)
            if turn % 5:
                agent.observe(decision, **({"rewards": rewards} if slots else {"reward": rewards[0]}))
        if turn % 11 == 10:
            rows, names = offer(rng)
            agent.learn(rows, earn(rng, names), names=names, weights=[1.0, 0.5, 0.25, 1.0])
    return agent


# --- what they change -------------------------------------------------------------------------------------


def a_log(seed: int, count: int = 200) -> tuple[np.ndarray, np.ndarray, list[str]]:
    rng = np.random.default_rng(seed)
    who = rng.integers(len(COURIERS), size=count)
    xs = rng.uniform(-0.7, 0.7, (count, D))
    return xs, 0.5 + xs @ [0.3, -0.2] + BEYOND[who] + rng.normal(0, 0.1, count), [COURIERS[k] for k in who]


def test_people_with_the_same_features_are_told_apart() -> None:
    agent, other = (ffx.Agent(D, seed=0, own_record=own) for own in (True, False))
    for each in (agent, other):
        xs, ys, names = a_log(0)
        each.learn(xs, ys, names=names)
    alike = np.tile([[0.2, 0.1]], (len(COURIERS), 1))
    assert other.policy(alike, names=COURIERS) == pytest.approx(1 / 6)
    assert agent.policy(alike, names=COURIERS).argsort().tolist() == BEYOND.argsort().tolist()
    for name, beyond in zip(COURIERS, BEYOND, strict=True):
        record = agent.record_of(name)
        assert record is not None
        assert abs(record.effect - beyond) < 5 * record.sd
        assert record.weight > 0.8
        assert record.rewards == names.count(name) - 1  # from the second time on
    assert agent.record_of("somebody else") is None


@pytest.mark.parametrize("names_alone", [False, True])
@pytest.mark.parametrize("more", [3.0, -70.0])
def test_how_high_rewards_are_changes_no_share(more: float, names_alone: bool) -> None:
    policies = []
    for height in (0.0, more):
        agent = ffx.Agent(actions=COURIERS) if names_alone else ffx.Agent(D, actions=COURIERS)
        xs, ys, names = a_log(1, 50)
        agent.learn(names if names_alone else xs, ys + height, **({} if names_alone else {"names": names}))
        policies.append(agent.policy() if names_alone else agent.policy(xs[:6]))
    # Of names alone the first guess of the height counts as one reward or less.
    assert policies[1] == pytest.approx(policies[0], rel=0.02 if names_alone else 1e-6)
    assert policies[0].max() > 3 * policies[0].min()


@pytest.mark.parametrize("rule", ["expected-merit", "greedy"])
def test_names_in_another_order_have_the_same_shares(rule: str) -> None:
    xs, ys, names = a_log(2, 50)
    one, other = ffx.Agent(D, actions=COURIERS, rule=rule), ffx.Agent(D, actions=COURIERS[::-1], rule=rule)
    for agent in (one, other):
        agent.learn(xs, ys, names=names)
    policy, order = one.policy(xs[:6], names=COURIERS), np.random.default_rng(0).permutation(6)
    assert one.policy(xs[order], names=[COURIERS[k] for k in order]) == pytest.approx(
        policy[order], rel=1e-12
    )
    assert other.policy(xs[:6], names=COURIERS) == pytest.approx(policy, rel=1e-9)
    assert other.policy(xs[:6]) == pytest.approx(one.policy(xs[:6], names=COURIERS[::-1]), rel=1e-9)


def test_slots_and_rewards_at_once_are_one_by_one() -> None:
    """To the bit: a slate whose rewards come together is learnt in one call."""
    one, other = (ffx.Agent(D, seed=0, slots=(1.0, 0.5)) for _ in range(2))
    rng = np.random.default_rng(3)
    for _ in range(40):
        rows, names = offer(rng)
        rewards = [float(v * r) for v, r in zip((1.0, 0.5), rng.random(2), strict=True)]
        ours, theirs = one.decide(rows, names=names), other.decide(rows, names=names)
        assert ours.shown == theirs.shown
        one.observe(ours, rewards=rewards)
        for slot, action in enumerate(theirs.shown):
            other.observe(theirs, rewards={action: rewards[slot]})
    assert told(one)["records"] == told(other)["records"]
    assert one.estimate.tolist() == other.estimate.tolist()


def test_one_name_twice_in_a_decision_has_one_draw() -> None:
    agent = live(ffx.Agent(D, seed=0, rule="thompson"), 60)
    row = np.tile([[0.1, 0.2]], (4, 1))
    for _ in range(5):
        policy = agent.policy(row, names=[COURIERS[0], "new", COURIERS[0], "newer"])
        assert policy[0] == policy[2]
        assert len({*policy}) == 3
        agent.forget(agent.decide(row, names=[COURIERS[0], "new", COURIERS[0], "newer"]))


# --- whose there are --------------------------------------------------------------------------------------


@pytest.mark.parametrize("rule", ["expected-merit", "greedy"])
@pytest.mark.parametrize("batched", [False, True])
def test_names_that_do_not_come_again_change_no_share_to_the_bit(rule: str, batched: bool) -> None:
    named, plain = (ffx.Agent(D, seed=0, rule=rule) for _ in range(2))
    rng = np.random.default_rng(4)
    for turn in range(70):
        rows = rng.uniform(-0.7, 0.7, (3, 4, D))
        labels = [[f"{turn} {number} {k}" for k in range(4)] for number in range(3)]
        if batched:
            ours, theirs = named.decide_many(rows, names=labels), plain.decide_many(rows)
        else:
            ours = [named.decide(each, names=names) for each, names in zip(rows, labels, strict=True)]
            theirs = [plain.decide(each) for each in rows]
        for one, other in zip(ours, theirs, strict=True):
            assert one.policy.tolist() == other.policy.tolist()
            reward = float(rng.random())
            named.observe(one, reward=reward)
            plain.observe(other, reward=reward)
        rewards = rng.random(4)
        named.learn(rows[0], rewards, names=[f"{turn} learnt {k}" for k in range(4)])
        plain.learn(rows[0], rewards)
    assert named.names == ()
    assert not named._model.records.mine.any()
    assert named.estimate.tolist() == plain.estimate.tolist()
    assert named.posterior.mean.tolist() == plain.posterior.mean.tolist()


def test_a_name_counts_from_its_second_time_on() -> None:
    agent, rng = ffx.Agent(D, seed=0), np.random.default_rng(5)

    def show(name: str, reward: float | None = 0.9) -> None:
        decision = agent.decide(rng.uniform(-0.7, 0.7, (1, D)), names=[name])
        if reward is not None:
            agent.observe(decision, reward=reward)

    show("ann")
    assert (agent.names, agent.record_of("ann")) == ((), None)
    agent.forget(agent.decide(np.zeros((2, D)), names=["ben", "ben"]))  # near, and shown once
    show("ann")
    assert agent.names == ("ann",)
    assert agent.record_of("ann").rewards == 1.0
    show("ann", None)
    assert agent.record_of("ann").rewards == 1.0
    agent.learn(np.zeros((2, D)), [0.5, 0.6], names=["ben", "cid"])
    assert agent.names == ("ann", "ben")
    assert agent.record_of("ben").rewards == 1.0


def test_declared_ones_have_a_record_at_once() -> None:
    agent = ffx.Agent(D, actions=["ann", "ben"], seed=0)
    assert agent.names == agent.actions == ("ann", "ben")
    first = agent.record_of("ann")
    assert first == OwnRecord(0.0, 0.0, first.sd, 0.0)
    agent.observe(agent.decide([[0.5, 0.1]], names=["ann"]), reward=0.9)
    assert agent.record_of("ann").rewards == 1.0
    agent.add_actions("cid")
    assert agent.names == ("ann", "ben", "cid")
    agent.retire_actions("ann")
    agent.learn([[0.5, 0.1]], [0.9], names=["ann"])  # it was shown before
    assert agent.record_of("ann").rewards == 2.0
    decision = agent.decide([[0.0, 0.1], [0.1, 0.0]])  # in the order in which they are offered
    assert decision.name == ("ben", "cid")[decision.action]
    for refused, words in (
        (
            lambda: agent.decide([[0.0, 0.1]]),
            r"^names must be given: the rows are 1, and 2 actions are offered",
        ),
        (lambda: agent.decide([[0.0, 0.1]], names=["ann"]), "has not retired, got 'ann'"),
        (lambda: agent.decide([[0.0, 0.1]], names=["dora"]), "has not retired, got 'dora'"),
        (lambda: agent.policy([[0.0, 0.1]], names=["dora"]), "has not retired, got 'dora'"),
        (lambda: agent.decide_many([[[0.0, 0.1]]], names=[["dora"]]), "has not retired, got 'dora'"),
        (lambda: agent.learn([[0.0, 0.1]], [0.5], names=["dora"]), "this agent has, got 'dora'"),
        (lambda: agent.learn([[0.0, 0.1]], [0.5], names=["ben", "cid"]), "must be 1 strings"),
    ):
        before = told(agent)
        with pytest.raises(InvalidInput, match=words):
            refused()
        assert told(agent) == before


def test_declared_ones_with_a_schema() -> None:
    agent = ffx.Agent(schema=Schema(SCHEMA), actions=["ann", "ben"], seed=0)
    for reward in (0.9, 0.1) * 30:
        name = "ann" if reward > 0.5 else "ben"
        agent.observe(agent.decide({name: {"distance": 3}}), reward=reward)
    assert agent.record_of("ann").rewards == 30
    policy = agent.policy({"ann": {"distance": 3}, "ben": {"distance": 3}})
    assert policy[0] > 0.9
    assert agent.names == ("ann", "ben")


@pytest.mark.parametrize("none", ["off", "optimism", "strict"])
def test_an_agent_without_own_records_is_one_without_names_to_the_bit(none: str) -> None:
    def an_agent() -> ffx.Agent:
        how: Any = {"noise": SimulatedNoise(0), "intercept": True, "decide_from": "released"}
        options: Any = {"own_record": False} if none == "off" else {"rule": "optimism"}
        if none == "strict":
            options = {"privatizer": private(D, epsilon=4.0, releases=9, **how)}
        return ffx.Agent(D, seed=0, name="a", **options)

    named, plain = an_agent(), an_agent()
    rng = np.random.default_rng(6)
    for _ in range(40):
        rows, names = offer(rng)
        one, other = named.decide(rows, names=names), plain.decide(rows)
        assert one.policy.tolist() == other.policy.tolist()
        reward = earn(rng, [one.name])[0]
        named.observe(one, reward=reward)
        plain.observe(other, reward=reward)
    assert (named.names, named.record_of(COURIERS[0])) == ((), None)
    assert told(named) == told(plain)
    assert named.posterior.names is None


def test_own_records_are_the_default_where_there_is_a_posterior_of_exact_data() -> None:
    noise = SimulatedNoise(0)
    for options in ({}, {"rule": "greedy"}, {"rule": "thompson"}, {"partners": "differ"}, {"half_life": 9}):
        assert ffx.Agent(D, **options)._model.records is not None
    for decide_from, there in (("own+released", True), ("released+local", False), ("released", False)):
        how: Any = {"noise": noise, "decide_from": decide_from, "intercept": True}
        noisy = private(D, epsilon=4.0, releases=9, **how)
        assert (ffx.Agent(D, privatizer=noisy)._model.records is not None) == there


@pytest.fixture
def few(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(own_record, "MOST_NAMES", 5)
    monkeypatch.setattr(own_record, "FORGOTTEN", 2)


def show(agent: ffx.Agent, name: str) -> None:
    agent.observe(agent.decide([[0.1, len(name) / 9]], names=[name]), reward=0.5 + len(name) / 20)


@pytest.mark.usefixtures("few")
def test_names_that_were_not_shown_for_longest_are_forgotten_in_a_stored_step(place: str) -> None:
    with ffx.Agent.open(place, dimension=D, seed=0, name="a") as agent:
        for name in ("a", "bb", "ccc", "dddd", "eeeee"):
            show(agent, name)
            show(agent, name)
        show(agent, "a")
        for number in range(9):
            show(agent, f"once {number}")
        assert list(agent._model.records.once) == [f"once {number}" for number in range(4, 9)]
        assert agent.names == ("a", "bb", "ccc", "dddd", "eeeee")
        sums, kept = agent.own_sums(), agent.record_of("a")
        show(agent, "once 8")
        assert agent.names == ("a", "dddd", "eeeee", "once 8")
        assert agent.record_of("bb") is None
        assert agent.record_of("a").rewards == kept.rewards == 2.0
        assert agent.own_sums()[0] == pytest.approx(sums[0] + 0.01)  # features keep the records
        plain, tallies = agent._model.own_sums(), [*agent._model.records.by_name().values()]
        whole = np.array(tallies)
        shares = 1.0 / (whole[:, 0] + agent._model.records.ratio)
        gram = agent.gram - agent._model.learner.ridge * np.eye(D + 1)
        expected = ffx.core.statistics.unpack(plain)[0] - (whole[:, 2:].T * shares) @ whole[:, 2:]
        assert gram == pytest.approx(expected, abs=1e-12)
        show(agent, "bb")
        assert agent.record_of("bb") is None  # as a name that never was there
        show(agent, "bb")
        assert agent.record_of("bb").rewards == 1.0
        state = told(agent)
        events = [each.step for each in agent.journal.entries() if isinstance(each.step, NamesForgotten)]
        assert [list(step.names) for step in events] == [["bb", "ccc"]]
        agent.verify()
        agent.journal.log.closing.clear()  # a crash
    with ffx.Agent.open(place) as agent:
        assert told(agent) == state
        agent.verify()


# --- kept -------------------------------------------------------------------------------------------------

KINDS: dict[str, Any] = {
    "expected": {},
    "thompson": {"rule": "thompson"},
    "half-life": {"half_life": 20},
    "declared": {"actions": COURIERS},
    "slots": {"slots": (1.0, 0.5)},
    "bounds": {"bounds": Bounds(reward=0.5)},
}


@pytest.mark.parametrize("kind", KINDS)
def test_a_stored_agent_is_one_in_memory_to_the_bit(
    place: str, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Opened again after each life, half of them after a crash, from a snapshot or none; and verified."""
    monkeypatch.setattr(persistence, "SNAPSHOT_EVERY", 37)
    more = KINDS[kind]
    slots = more.get("slots")
    never = None if kind == "bounds" else ffx.Agent(D, seed=1, name="a", **more)
    ffx.Agent.open(place, dimension=D, seed=1, name="a", **more).close()
    state: Any = None
    for life in range(4):
        with ffx.Agent.open(place) as agent:
            assert state in (None, told(agent))
            live(agent, 25, seed=life, slots=slots)
            if never is not None:
                live(never, 25, seed=life, slots=slots)
                assert told(agent)["records"] == told(never)["records"]
                assert agent.estimate.tolist() == never.estimate.tolist()
            state = told(agent)
            agent.verify()
            if life % 2:
                agent.journal.log.closing.clear()
    assert len(state["records"]["names"]) == len(COURIERS)


@pytest.mark.parametrize("kind", [kind for kind in KINDS if kind != "bounds"])
def test_a_copy_goes_on_as_the_agent_does(tmp_path: Path, kind: str) -> None:
    more = KINDS[kind]
    agent = live(ffx.Agent(D, seed=2, name="a", **more), 30, slots=more.get("slots"))
    agent.save(tmp_path / "agent.db")
    for again in (ffx.Agent.load(tmp_path / "agent.db"), pickle.loads(pickle.dumps(agent)), copy.copy(agent)):
        assert told(again) == told(agent)
    live(agent, 20, seed=9, slots=more.get("slots"))
    live(again, 20, seed=9, slots=more.get("slots"))
    assert plain_value(again.state())["records"] == plain_value(agent.state())["records"]
    assert again.estimate.tolist() == agent.estimate.tolist()


@pytest.mark.parametrize("declared", [False, True])
def test_a_reward_is_replaced_as_if_the_right_one_had_come(tmp_path: Path, declared: bool) -> None:
    arms: Any = {"actions": COURIERS} if declared else {}

    def lived(place: Path, reward: float) -> tuple[ffx.Agent, str]:
        agent = ffx.Agent.open(place, dimension=D, seed=0, name="a", **arms)
        live(agent, 15)
        wrong = agent.decide([[0.2, 0.3]], names=[COURIERS[1]])
        agent.observe(wrong, reward=reward)
        xs, ys, names = a_log(8, 20)
        agent.learn(xs, ys, names=names)
        return agent, wrong.id

    replaced, identity = lived(tmp_path / "a.db", 0.9)
    right, _ = lived(tmp_path / "b.db", 0.125)
    with replaced, right:
        assert replaced.record_of(COURIERS[1]) != right.record_of(COURIERS[1])
        replaced.observe(identity, reward=0.125, replace=True)
        assert told(replaced)["records"] == told(right)["records"]
        assert replaced.estimate.tolist() == right.estimate.tolist()
        replaced.verify()


@pytest.mark.parametrize("declared", [False, True])
def test_a_deleted_person_s_records_leave_tallies(tmp_path: Path, declared: bool) -> None:
    """The rest is what it would be if the decisions had been withdrawn, and had shown no names."""
    arms: Any = {"actions": COURIERS} if declared else {}

    def lived(place: Path, *, withdrawn: bool) -> ffx.Agent:
        agent, rng = ffx.Agent.open(place, dimension=D, seed=0, name="a", **arms), np.random.default_rng(11)
        for turn in range(60):
            gone = withdrawn and turn % 3 == 1
            name = None if gone and not declared else [COURIERS[turn % 4]]
            decision = agent.decide(rng.uniform(-0.7, 0.7, (1, D)), names=name)
            reward = float(rng.random())
            if gone:
                agent.forget(decision)
            else:
                agent.observe(decision, reward=reward, person=f"p{turn % 3}")
        return agent

    one, two = lived(tmp_path / "a.db", withdrawn=False), lived(tmp_path / "b.db", withdrawn=True)
    with one as deleted, two as other:
        assert deleted.record_of(COURIERS[1]).rewards == 14 + declared
        deleted.delete_person("p1")
        assert deleted.record_of(COURIERS[1]).rewards == 9 + declared
        for name in ("names", "once", "ratio", "mine"):
            assert told(deleted)["records"][name] == told(other)["records"][name]
        assert deleted.estimate.tolist() == other.estimate.tolist()
        deleted.verify()


def test_records_count_less_by_age() -> None:
    agent = ffx.Agent(D, actions=["ann", "ben"], half_life=10, seed=0)
    for _ in range(20):
        agent.learn([[0.1, 0.2]], [0.5], names=["ann"])
    weights = 0.5 ** (np.arange(20) / 10)
    assert agent.record_of("ann").rewards == pytest.approx(weights.sum(), rel=0.05)
    before = agent.record_of("ann").rewards
    for _ in range(10):
        agent.learn([[0.1, 0.2]], [0.5], names=["ben"])
    assert agent.record_of("ann").rewards == pytest.approx(before / 2, rel=1e-9)
    assert agent.record_of("ben").rewards > agent.record_of("ann").rewards


def test_what_decays_is_what_whole_sums_would_say() -> None:
    """V⁻¹ is that of decayed sums less those of decayed tallies, as if it were derived anew."""
    agent = live(ffx.Agent(D, half_life=7, seed=3), 50)
    model = agent._model
    followed = agent.estimate
    model.gather()
    assert agent.estimate == pytest.approx(followed, abs=1e-9)


@pytest.mark.parametrize("declared", [False, True])
def test_a_schema_is_extended_and_records_stay(place: str, declared: bool) -> None:
    arms: Any = {"actions": ["ann", "ben"]} if declared else {}
    near = {"ann": {"distance": 3}, "ben": {"distance": 3}}
    with ffx.Agent.open(place, schema=Schema(SCHEMA), seed=0, name="a", **arms) as agent:
        for turn in range(40):
            name = ("ann", "ben")[turn % 2]
            agent.observe(agent.decide({name: {"distance": turn % 10}}), reward=0.8 - 0.4 * (turn % 2))
        waiting = agent.decide({"ann": {"distance": 3}})
        before, policy = agent.record_of("ann"), agent.policy(near)
        agent.extend_schema(LONGER)
        assert agent.record_of("ann").effect == pytest.approx(before.effect)
        features = {name: row | {"rating": 0} for name, row in near.items()}
        agent.policy(features)
        agent.observe(waiting.id, reward=0.8)
        agent.observe(agent.decide(features), reward=0.5)
        assert agent.record_of("ann").rewards >= before.rewards + 1
        state = told(agent)
        agent.verify()
        agent.journal.log.closing.clear()  # a crash
    assert policy[0] > 0.6
    with ffx.Agent.open(place) as agent:
        assert told(agent) == state


def test_declared_ones_come_and_go_beside_a_schema(place: str) -> None:
    with ffx.Agent.open(place, schema=Schema(SCHEMA), actions=["ann", "ben"], seed=0, name="a") as agent:
        old = agent.decide({"ann": {"distance": 3}})
        agent.add_actions("cid")
        agent.retire_actions("ann")
        agent.observe(old.id, reward=0.9)
        with pytest.raises(InvalidInput, match="has not retired, got 'ann'"):
            agent.decide({"ann": {"distance": 3}})
        agent.observe(agent.decide({"cid": {"distance": 3}}), reward=0.4)
        agent.verify()
    with ffx.Agent.open(place) as agent:
        assert (agent.actions, agent.all_actions) == (("ben", "cid"), ("ann", "ben", "cid"))
        assert [agent.record_of(name).rewards for name in agent.names] == [1.0, 0.0, 1.0]
        agent.add_actions("ann")
        assert agent.actions == ("ann", "ben", "cid")
        agent.verify()


def test_a_wide_range_of_rewards_makes_no_wide_guess() -> None:
    """Terms with exact sums state a range that only limits rewards; the prior says how large they are."""
    prior = ffx.Agent(2, seed=0).prior
    wide = ffx.Agent(2, reward_range=(-700.0, 700.0), prior=prior, merit=ffx.merit.Exponential(10.0), seed=0)
    assert wide._model.own_sd == ffx.Agent(2, seed=0)._model.own_sd
