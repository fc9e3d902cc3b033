"""Decisions with several slots: what they show, what is learnt of them, and that they survive everything."""

from __future__ import annotations

import re
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedfairx as ffx
import reference as ref
from fedfairx.core.optimism.solver import WINNER, Solver
from fedfairx.errors import AlreadyObserved, InvalidInput, UnknownDecision
from fedfairx.storage import DecisionNote

RULES = ("expected-merit", "greedy", "thompson", "optimism")
RANKED = [1.0, 0.63, 0.5]
STEPS = ["decide", "some", "all", "forget", "learn", "reopen"]


def contexts(seed: int, arms: int = 6, dimension: int = 3) -> np.ndarray:
    rows = np.random.default_rng(seed).normal(size=(arms, dimension))
    return rows / np.linalg.norm(rows, axis=1, keepdims=True)


def lived(agent: ffx.Agent, slots: Any, rounds: int = 30, seed: int = 0) -> None:
    """Some rounds of slates whose rewards come all, in part, late or never."""
    rng = np.random.default_rng(seed)
    for i in range(rounds):
        made = agent.decide(contexts(seed + i), slots=slots)
        values = rng.random(len(made.actions)).tolist()
        if i % 3 == 0:
            agent.observe(made, rewards=values)
        elif i % 3 == 1:
            agent.observe(made, rewards={made.actions[-1]: values[0]})
            agent.observe(made.id, rewards={made.actions[0]: None})


@pytest.mark.parametrize("rule", RULES)
def test_exposures_are_in_proportion_to_merit_as_far_as_slots_allow(rule: str) -> None:
    agent = ffx.Agent(3, rule=rule, seed=0)
    lived(agent, RANKED)
    rows = contexts(99)
    before = agent.state()
    told = agent.policy(rows, slots=RANKED)
    assert agent.state() == before
    made = agent.decide(rows, slots=RANKED)
    assert made.exposure.tolist() == told.tolist()
    assert made.exposure.sum() == pytest.approx(sum(RANKED), abs=1e-12)
    if rule in ("greedy", "thompson", "optimism"):  # merits of a parameter that the decision has
        merit = np.exp(agent.merit.steepness * (rows @ made.theta[:3]))  # type: ignore[attr-defined]
        assert made.exposure == pytest.approx(ref.fair_exposures(merit / merit.max(), RANKED), abs=1e-6)
    else:  # of one slot it is the policy, which is in proportion to expected merit
        share = agent.policy(rows)
        assert made.exposure == pytest.approx(ref.fair_exposures(share, RANKED), abs=1e-6)


@pytest.mark.parametrize("rule", RULES)
def test_one_slot_is_the_single_decision(rule: str) -> None:
    one, other = ffx.Agent(3, rule=rule, seed=4), ffx.Agent(3, rule=rule, seed=4, slots=1)
    for i in range(20):
        rows = contexts(i)
        left, right = one.decide(rows), other.decide(rows, slots=[1.0])
        assert left == right
        assert right.actions == [left.action]
        assert right.exposure.tolist() == left.policy.tolist()
        one.observe(left, reward=0.5)
        other.observe(right, rewards={left.action: 0.5} if i % 2 else [0.5])
    assert one.state() == other.state()


def test_a_floor_is_a_share_of_all_weights() -> None:
    rows, rewards = contexts(1, arms=50), np.linspace(0.0, 1.0, 50)
    with_floor, without = ffx.Agent(3, minimum_share=0.1, seed=0), ffx.Agent(3, seed=0)
    for agent in (with_floor, without):
        agent.learn(rows, rewards)
    expected = 0.1 * sum(RANKED) + (1.0 - 6 * 0.1) * without.policy(contexts(7), slots=RANKED)
    assert with_floor.decide(contexts(7), slots=RANKED).exposure == pytest.approx(expected, rel=1e-12)


def test_linucb_shows_the_largest_upper_bounds_in_order() -> None:
    agent = ffx.Agent(3, rule="optimism", solver=Solver(WINNER), seed=0)
    lived(agent, RANKED)
    rows = contexts(5)
    inverse = np.linalg.inv(agent.gram)
    bounds = rows @ agent.estimate + agent.radius * np.sqrt(np.einsum("ai,ij,aj->a", rows, inverse, rows))
    assert agent.decide(rows, slots=RANKED).actions == np.argsort(-bounds)[:3].tolist()


@pytest.mark.parametrize("together", [True, False])
def test_records_are_weighted_contexts(together: bool) -> None:
    agent = ffx.Agent(3, seed=0)
    gram, moment, rng = np.zeros((4, 4)), np.zeros(4), np.random.default_rng(0)
    for i in range(40):
        rows = contexts(i)
        made = agent.decide(rows, slots=RANKED)
        rows = np.column_stack([rows, np.ones(len(rows))])  # the intercept
        rewards = rng.random(3).tolist()
        for weight, action, reward in zip(RANKED, made.actions, rewards, strict=True):
            gram += np.outer(weight * rows[action], weight * rows[action])
            moment += weight * rows[action] * reward
        if together:
            agent.observe(made, rewards=rewards)
        else:
            for action, reward in reversed(list(zip(made.actions, rewards, strict=True))):
                agent.observe(made, rewards={action: reward})
    sums = agent.own_sums()
    assert sums is not None
    assert sums[:-4] == pytest.approx(gram[np.triu_indices(4)], rel=1e-12)
    assert sums[-4:] == pytest.approx(moment, rel=1e-12)
    assert agent.observed == 120


@pytest.mark.filterwarnings("ignore::fedfairx.errors.ScaleWarning")
@pytest.mark.parametrize("size", [None, 1e5, 1e9])
def test_all_at_once_learns_the_same_bits_as_one_by_one(size: float | None) -> None:
    """Also where contexts are so large and alike that rounding makes V⁻¹ indefinite in the middle."""
    settings = {"reward_range": (0.0, 1.0), "seed": 0}
    one, other = ffx.Agent(3, **settings), ffx.Agent(3, **settings)
    rng = np.random.default_rng(1)
    for i in range(60):  # sizes are learnt again several times meanwhile
        rows, rewards = contexts(i), rng.random(3).tolist()
        if size is not None:
            rows = size * rng.random((6, 1)) * np.ones((6, 3))
        left, right = one.decide(rows, slots=RANKED), other.decide(rows, slots=RANKED)
        one.observe(left, rewards=rewards)
        for action, reward in zip(right.actions, rewards, strict=True):
            other.observe(right, rewards={action: reward})
    assert one.state() == other.state()


def test_actions_without_features_learn_weights_too() -> None:
    agent = ffx.Agent(actions=["ann", "ben", "cid", "dora"], seed=0)
    made = agent.decide(slots=[1.0, 0.5])
    assert made.names
    agent.observe(made, rewards={made.names[1]: 1.0})
    agent.observe(made, rewards={made.names[0]: 0.0})
    assert [agent.record_of(name).rewards for name in made.names] == [1.0, 0.25]
    assert agent._model.records.mine[agent.names.index(made.names[1])].tolist() == [0.25, 0.5, 0.25]
    assert agent.pending == 0


def test_rewards_come_in_any_order_each_once() -> None:
    agent = ffx.Agent(3, seed=0)
    made = agent.decide(contexts(0), slots=3, names=list("abcdef"))
    assert made.names == [list("abcdef")[row] for row in made.actions]
    agent.observe(made, rewards={made.names[2]: 1.0})
    with pytest.raises(AlreadyObserved, match=str(made.actions[2])):
        agent.observe(made, rewards={made.actions[2]: 1.0})
    with pytest.raises(AlreadyObserved):  # and none of them is taken
        agent.observe(made, rewards=[0.5, 0.5, 0.5])
    assert (agent.observed, agent.pending) == (1, 1)
    agent.observe(made, rewards={made.actions[0]: None})
    agent.observe(made.id, rewards={made.actions[1]: 0.0})
    assert (agent.observed, agent.pending) == (2, 0)
    with pytest.raises(AlreadyObserved):
        agent.observe(made, rewards={made.actions[1]: 0.0})


def test_a_decision_is_forgotten_with_the_slots_that_wait() -> None:
    agent = ffx.Agent(3, seed=0)
    made = agent.decide(contexts(0), slots=3)
    agent.observe(made, rewards={made.actions[0]: 1.0})
    agent.forget(made)
    assert (agent.observed, agent.pending) == (1, 0)


@pytest.mark.parametrize(
    ("slots", "value"),
    [
        (0, 0),
        (-1, -1),
        (10**12, 10**12),
        ([], []),
        ([0.5, 0.6], [0.5, 0.6]),
        ([1.0, -0.1], "-0.1"),
        ([1.1, 0.5], "1.1"),
        ([0.0, 0.0], "0.0"),
        ([float("nan")], "nan"),
        ("ab", "str"),
        ("10", "str"),
        (True, "bool"),
        (2.5, "float"),
    ],
)
def test_bad_slots_are_refused_by_name(slots: Any, value: object) -> None:
    agent = ffx.Agent(3, seed=0)
    before = agent.state()
    for call in (agent.decide, agent.policy):
        with pytest.raises(InvalidInput, match=f"^slots .*{re.escape(str(value))}"):
            call(contexts(0), slots=slots)  # type: ignore[operator]
    with pytest.raises(InvalidInput, match=r"^slots "):
        ffx.Agent(3, slots=slots)
    assert agent.state() == before


def test_more_slots_than_arms_are_refused() -> None:
    agent = ffx.Agent(3, seed=0)
    before = agent.state()
    with pytest.raises(InvalidInput, match=r"^slots .*6 actions.*7"):
        agent.decide(contexts(0), slots=7)
    with pytest.raises(InvalidInput, match=r"^slots "):
        agent.decide_many([contexts(0), contexts(1, arms=2)], slots=3)
    assert agent.state() == before


def test_what_is_of_one_slot_says_what_to_use_instead() -> None:
    agent = ffx.Agent(3, seed=0)
    made = agent.decide(contexts(0), slots=3)
    for name, instead in (("action", "actions"), ("policy", "exposure"), ("probability", "exposure")):
        with pytest.raises(InvalidInput, match=f"^{name} .*3.*{instead}$"):
            getattr(made, name)
    with pytest.raises(InvalidInput, match=r"^reward .*rewards"):
        agent.observe(made, reward=1.0)
    with pytest.raises(InvalidInput, match=r"^reward must be a number.*rewards"):
        agent.observe(made)
    assert "0." not in repr(made)


@pytest.mark.parametrize("rewards", [[1.0], [1.0] * 4, {17: 1.0}, {"ann": 1.0}, "abc", 3.0, {True: 1.0}])
def test_rewards_that_fit_no_slot_are_refused(rewards: Any) -> None:
    agent = ffx.Agent(3, seed=0)
    made = agent.decide(contexts(0), slots=[1.0, 1.0, 1.0])
    before = agent.state()
    with pytest.raises(InvalidInput, match=r"^rewards "):
        agent.observe(made, rewards=rewards)
    assert agent.state() == before


def test_a_bad_reward_among_good_ones_changes_nothing() -> None:
    agent = ffx.Agent(3, reward_range=(0.0, 1.0), seed=0)
    made = agent.decide(contexts(0), slots=3)
    before = agent.state()
    for bad in (2.0, float("nan"), "x"):
        with pytest.raises(InvalidInput, match=r"^reward "):
            agent.observe(made, rewards=[0.5, 0.5, bad])  # type: ignore[list-item]
    assert agent.state() == before
    with pytest.raises(UnknownDecision):
        agent.observe("nobody-0", rewards=[1.0])


def test_a_person_whose_records_nobody_bounds_is_refused() -> None:
    agent = ffx.Agent(3, seed=0)
    for i in range(12):  # also where sizes are not learnt meanwhile, and all slots are learnt in one call
        made, rewards = agent.decide(contexts(i), slots=3), [0.5, 0.25, 0.75]
        before = agent.state()
        with pytest.raises(InvalidInput, match=r"^person must be left out"):
            agent.observe(made, rewards=rewards, person="ann")
        assert agent.state() == before
        agent.observe(made, rewards=rewards)


def test_no_rewards_change_nothing() -> None:
    agent = ffx.Agent(3, seed=0)
    for slots in (1, 3):
        agent.observe(agent.decide(contexts(0), slots=slots), rewards={})
    assert (agent.observed, agent.pending) == (0, 2)


def test_an_action_is_named_once() -> None:
    agent = ffx.Agent(3, seed=0)
    made = agent.decide(contexts(0), slots=3, names=list("abcdef"))
    assert made.names
    with pytest.raises(InvalidInput, match=r"^rewards must name each action once"):
        agent.observe(made, rewards={made.actions[0]: 1.0, made.names[0]: 0.5})
    same = agent.decide(contexts(0), slots=3, names=["a"] * 6)
    with pytest.raises(InvalidInput, match=r"^rewards must be by row"):
        agent.observe(same, rewards={"a": 1.0})
    agent.observe(same, rewards={same.actions[1]: 1.0})


def test_an_error_never_tells_a_reward() -> None:
    agent = ffx.Agent(3, seed=0)
    made = agent.decide(contexts(0), slots=2)
    for wrong in ({0.123: made.actions[0]}, {(0.123,): 1.0}):  # the wrong way round
        with pytest.raises(InvalidInput, match=r"^rewards ") as refused:
            agent.observe(made, rewards=wrong)
        assert "0.123" not in str(refused.value)


def test_one_reward_for_each_of_several_decisions_is_for_single_slots() -> None:
    agent = ffx.Agent(3, seed=0)
    one, several = agent.decide(contexts(0)), agent.decide(contexts(0), slots=2)
    with pytest.raises(InvalidInput, match=r"^reward .*rewards"):
        agent.observe_many([one, several], [1.0, 1.0])
    assert (agent.observed, agent.pending) == (0, 2)


def test_many_are_the_same_as_one_by_one() -> None:
    one, other = ffx.Agent(3, seed=0), ffx.Agent(3, seed=0)
    rows = [contexts(i) for i in range(5)]
    many = one.decide_many(rows, slots=RANKED)
    assert many == [other.decide(each, slots=RANKED) for each in rows]


def test_a_log_is_learnt_with_the_weights_of_its_slots() -> None:
    shown, learnt = ffx.Agent(3, seed=0), ffx.Agent(3, seed=0)
    rows, weights, rewards = [], [], []
    for i in range(10):
        made = shown.decide(contexts(i), slots=RANKED)
        shown.observe(made, rewards=[0.1, 0.2, 0.3])
        rows += [contexts(i)[action] for action in made.actions]
        weights += RANKED
        rewards += [0.1, 0.2, 0.3]
    learnt.learn(np.array(rows), rewards, weights=weights)
    one, other = shown.own_sums(), learnt.own_sums()
    assert one is not None
    assert other is not None
    assert one.tolist() == other.tolist()
    for bad in ([0.5], [2.0] * 30, ["x"] * 30):
        with pytest.raises(InvalidInput, match=r"^weights "):
            learnt.learn(np.array(rows), rewards, weights=bad)  # type: ignore[arg-type]


@pytest.mark.parametrize("features", [True, False])
def test_saved_in_the_middle_of_a_slate_it_goes_on(tmp_path: Path, features: bool) -> None:
    names = ["ann", "ben", "cid", "dora"]
    agent = ffx.Agent(3, seed=0, slots=RANKED) if features else ffx.Agent(actions=names, seed=0, slots=RANKED)
    offered = contexts(0) if features else None
    made = agent.decide(offered)
    agent.observe(made, rewards={made.actions[1]: 1.0})
    agent.save(tmp_path / "agent.db")
    again = ffx.Agent.load(tmp_path / "agent.db")
    assert again.state() == agent.state()
    assert again.options.slots == tuple(RANKED)
    for one in (agent, again):
        one.observe(made.id, rewards={made.actions[0]: 0.5, made.actions[2]: None})
        assert one.pending == 0
    assert again.decide(offered) == agent.decide(offered)


@pytest.mark.parametrize("features", [True, False])
def test_a_baseline_of_slots_is_shown_and_learnt_from(features: bool, tmp_path: Path) -> None:
    names = ["ann", "ben", "cid", "dora"]
    given: dict[str, Any] = {"dimension": 3} if features else {"actions": names}
    offered = contexts(0, arms=4) if features else None
    rows = np.ones((4, 1)) if offered is None else np.column_stack([offered, np.ones(4)])
    agent, twin, learner = (ffx.Agent(**given, seed=0) for _ in range(3))
    for mode, baseline in (("shadow", [3, 0, 1]), ("control", np.array([2, 0, 3])), ("live", [0, 1, 2])):
        note = DecisionNote(mode=mode, baseline=baseline)
        made, drawn = agent.decide(offered, slots=RANKED, note=note), twin.decide(offered, slots=RANKED)
        shown = drawn.actions if mode == "live" else list(baseline)
        assert (made.actions, made.drawn_actions, made.drawn) == (shown, drawn.actions, drawn.actions[0])
        assert made.exposure.tolist() == drawn.exposure.tolist()
        assert [made.chosen(slot).tolist() for slot in range(3)] == rows[shown].tolist()
        assert made.names == ([] if features else [names[row] for row in shown])
        agent.save(tmp_path / "agent.db")
        again = ffx.Agent.load(tmp_path / "agent.db")
        assert again._pending[made.number].drawn_actions == drawn.actions
        for one in (agent, again):
            one.observe(made.id, rewards=[0.5, 1.0, 0.25])
        learner.learn(
            rows[shown] if features else [names[row] for row in shown], [0.5, 1.0, 0.25], weights=RANKED
        )
        assert agent.gram.tolist() == again.gram.tolist()
        assert agent.gram == pytest.approx(learner.gram)
        assert agent.estimate == pytest.approx(learner.estimate)
        twin = ffx.Agent.load(tmp_path / "agent.db")
        twin.observe(made.id, rewards=[0.5, 1.0, 0.25])


def test_the_propensity_of_a_slot() -> None:
    """Expected weights: of a baseline that is always, sometimes or never taken."""
    baseline, weights = [3, 0, 1], (1.0, 0.63, 0.5)
    for share in (0.0, 0.25):
        note = DecisionNote(mode="control", baseline=baseline, control_share=share)
        found = [note.propensity(action, 0.4, weights) for action in (3, 0, 1, 2)]
        assert found == pytest.approx([(1 - share) * 0.4 + share * kept for kept in (1.0, 0.63, 0.5, 0.0)])
    shadow = DecisionNote(mode="shadow", baseline=baseline)
    assert [shadow.propensity(action, 0.4, weights) for action in (3, 0, 1)] == [1.0, 0.63, 0.5]
    assert DecisionNote().propensity(2, 0.4, weights) == 0.4


@pytest.mark.parametrize(
    "baseline", [1, [1], [0, 1, 1], [0, 1, 6], [0, 1, -1], [0, 1, True], "012", [0, 1, 2, 3]]
)
def test_a_baseline_that_fits_no_slots_is_refused(baseline: Any) -> None:
    agent = ffx.Agent(3, seed=0)
    before = agent.state()
    with pytest.raises(InvalidInput, match="baseline must be a list of 3 different rows, one for each slot"):
        agent.decide(contexts(0), slots=RANKED, note=DecisionNote(baseline=baseline))
    with pytest.raises(InvalidInput, match="baseline must be a row of the contexts, 0 to 5"):
        agent.decide(contexts(0), note=DecisionNote(baseline=[0]))
    good = DecisionNote(baseline=2)
    with pytest.raises(InvalidInput, match="baseline must be a row of the contexts, 0 to 5"):
        agent.decide_many([contexts(0), contexts(1)], notes=[good, DecisionNote(baseline=6)])
    assert agent.state() == before


def notes(slots: int) -> st.SearchStrategy[DecisionNote | None]:
    """Nothing, or a baseline for this many slots among six arms."""
    rows = st.permutations(range(6)).map(lambda order: order[0] if slots == 1 else list(order[:slots]))
    modes = st.sampled_from(["live", "control", "shadow"])
    return st.none() | st.builds(DecisionNote, mode=modes, baseline=rows)


@pytest.mark.long
@given(
    st.lists(st.sampled_from(["decide", "some", "all", "forget", "learn", "reopen"]), max_size=25), st.data()
)
def test_a_durable_agent_goes_on_as_one_in_memory(
    tmp_path_factory: pytest.TempPathFactory, steps: list[str], data: st.DataObject
) -> None:
    place = tmp_path_factory.mktemp("agent") / "agent.db"
    plain, kept = ffx.Agent(3, seed=0), ffx.Agent.open(place, dimension=3, seed=0)
    waiting: list[tuple[ffx.Decision, ffx.Decision, list[int]]] = []
    for at, step in enumerate(steps):
        if step == "decide":
            slots = data.draw(st.sampled_from([1, 2, RANKED]))
            note = data.draw(notes(slots if isinstance(slots, int) else len(slots)))
            made = [agent.decide(contexts(at), slots=slots, note=note) for agent in (plain, kept)]
            assert made[0].actions == made[1].actions
            assert made[0].exposure.tolist() == made[1].exposure.tolist()
            waiting.append((made[0], made[1], made[0].actions))
        elif step == "learn":
            for agent in (plain, kept):
                agent.learn(contexts(at), [0.5] * 6, weights=[0.5] * 6)
        elif step == "reopen":
            kept.close()
            kept = ffx.Agent.open(place)
        elif waiting:
            one, other, left = waiting.pop(data.draw(st.integers(0, len(waiting) - 1)))
            if step == "forget":
                plain.forget(one)
                kept.forget(other.id)
                continue
            some = left if step == "all" else left[:1]
            rewards = {action: data.draw(st.sampled_from([None, 0.0, 1.0])) for action in some}
            plain.observe(one, rewards=rewards)
            kept.observe(other.id, rewards=rewards)
            if len(left) > len(some):
                waiting.append((one, other, left[len(some) :]))
    kept.verify()
    assert kept.pending == plain.pending == len(waiting)
    assert kept.state().learner == plain.state().learner
    kept.close()


def test_slots_of_an_agent_that_is_kept_can_not_be_changed(tmp_path: Path) -> None:
    with ffx.Agent.open(tmp_path / "agent.db", dimension=3, slots=3) as agent:
        assert len(agent.decide(contexts(0)).actions) == 3
    with ffx.Agent.open(tmp_path / "agent.db") as agent:
        assert len(agent.decide(contexts(0)).actions) == 3
    with pytest.raises(InvalidInput, match=r"^slots "):
        ffx.Agent.open(tmp_path / "agent.db", slots=2)


def test_expired_slots_earn_the_default(tmp_path: Path) -> None:
    with ffx.Agent.open(tmp_path / "agent.db", dimension=3, window=10.0, default_reward=0.0) as agent:
        made, unseen = agent.decide(contexts(0), slots=3), agent.decide(contexts(0), slots=2)
        agent.observe(made, rewards={made.actions[0]: 1.0})
        assert agent.expire(now=unseen.time / 1e6 + 11.0) == 2
        assert (agent.observed, agent.pending) == (5, 0)
        assert [each.status for each in agent.journal.decisions()] == ["rewarded", "expired"]
        with pytest.raises(InvalidInput, match="reward is of one slot"):
            agent.observe(made.id, reward=0.5, replace=True)
        with pytest.raises(AlreadyObserved, match=r"slot 2, has expired"):
            agent.observe(made.id, rewards={made.actions[1]: 0.5}, replace=True)
        agent.verify()


def test_slots_that_all_expire_end_as_expired(tmp_path: Path) -> None:
    with ffx.Agent.open(tmp_path / "agent.db", dimension=3, window=10.0, default_reward=0.5) as agent:
        made, other = agent.decide(contexts(0), slots=2), agent.decide(contexts(0), slots=2)
        agent.observe(other, rewards={other.actions[1]: 1.0})
        agent.expire(now=other.time / 1e6 + 11.0)
        stored = [agent.journal.decision(one.id) for one in (made, other)]
        assert [(one.status, one.reward) for one in stored if one] == [("expired", 1.0), ("rewarded", 1.5)]


@pytest.mark.parametrize("durable", [False, True])
def test_rewards_of_several_decisions(durable: bool, tmp_path: Path) -> None:
    """All or none, whatever slots they have."""
    agent = ffx.Agent.open(tmp_path / "agent.db", dimension=3, seed=0) if durable else ffx.Agent(3, seed=0)
    twin = ffx.Agent(3, seed=0)
    one, ranked, row = (agent.decide(contexts(0), slots=slots) for slots in (1, RANKED, 2))
    for slots in (1, RANKED, 2):
        twin.decide(contexts(0), slots=slots)
    right = [0.5, [1.0, None, 0.0], {row.actions[1]: 1.0}]
    for place, wrong in ((0, [0.5, 0.5]), (1, 0.5), (1, [0.5]), (2, {99: 1.0}), (2, [1e9, 0.0]), (0, "much")):
        given = [wrong if number == place else value for number, value in enumerate(right)]
        with pytest.raises(InvalidInput):
            agent.observe_many([one, ranked, row], given)  # type: ignore[arg-type]
    assert (agent.observed, agent.pending) == (0, 3)
    agent.observe_many([one, ranked, row], right)  # type: ignore[arg-type]
    assert (agent.observed, agent.pending) == (4, 1)
    with pytest.raises(AlreadyObserved, match="has an outcome for action"):
        agent.observe_many([row], [[0.0, 0.0]])
    agent.observe_many([row.id], [{row.actions[0]: np.float64(0.25)}])
    rows = [one.context, *(ranked.chosen(slot) for slot in (0, 2)), row.chosen(1), row.chosen(0)]
    twin.learn(rows, [0.5, 1.0, 0.0, 1.0, 0.25], weights=[1.0, 1.0, 0.5, 1.0, 1.0])
    np.testing.assert_allclose(agent.estimate, twin.estimate, rtol=1e-12)
    agent.close()


def test_a_range_without_zero_is_refused_where_weights_multiply_rewards() -> None:
    """Ratings from 1 to 5 in slots of weights 1 and 0.5: an expected 3 was learnt as 3.66."""
    text = r"reward_range must contain 0 .*got reward_range=\(1.0, 5.0\); give rewards less 1, and .*\(0, 4\)"
    with pytest.raises(InvalidInput, match=text):
        ffx.Agent(actions=["a", "b", "c"], slots=[1.0, 0.5], reward_range=(1, 5))
    with pytest.raises(InvalidInput, match=r"give rewards less -1, and reward_range=\(-4, 0\)"):
        ffx.Options(slots=(0.5,), reward_range=(-5, -1))
    rated = ffx.Agent(actions=["a", "b", "c"], slots=2, reward_range=(1, 5), seed=0)
    for refused in (
        lambda: rated.decide(slots=[1.0, 0.5]),
        lambda: rated.decide_many([None, None], slots=[1.0, 0.5]),
        lambda: rated.policy(slots=[1.0, 0.5]),
        lambda: rated.learn(["a", "b"], [3.0, 2.0], weights=[1.0, 0.5]),
    ):
        with pytest.raises(InvalidInput, match="reward_range must contain 0"):
            refused()
    rated.observe(rated.decide(slots=2), rewards=[3.0, 2.0])
    rated.learn(["a"], [3.0], weights=[1.0])
    assert rated.observed == 3
    ffx.Options(slots=(1.0, 0.5), reward_range=(-1, 1))


def test_rewards_less_their_least_are_learnt_in_weighted_slots() -> None:
    """Each of three has an expected rating of 3, which a visitor who does not look makes the least, 1."""
    weights, rng = np.array([1.0, 0.5]), np.random.default_rng(0)
    agent = ffx.Agent(actions=["a", "b", "c"], slots=weights, reward_range=(0, 4), seed=0)
    for _ in range(3000):
        made, looks = agent.decide(), rng.random(2) < weights
        agent.observe(made, rewards=np.where(looks, rng.integers(1, 6, 2) - 1.0, 0.0).tolist())
    means = [agent.estimate[0] + agent.record_of(name).effect for name in agent.names]
    assert np.array(means) + 1.0 == pytest.approx([3.0, 3.0, 3.0], abs=0.15)  # 3 sds of one are 0.14
