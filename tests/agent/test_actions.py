"""Actions without features: names that are judged by their own records, and by the optimistic rule as unit
vectors."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedfairx as ffx
from federation_helpers import bare
from fedfairx.agent import persistence
from fedfairx.agent.actions import Actions
from fedfairx.agent.own_record import OwnRecord
from fedfairx.decision import DecisionNote
from fedfairx.errors import AlreadyObserved, InvalidInput, MessageRefused
from fedfairx.federation.exchange.envelope import PlainCodec
from fedfairx.federation.exchange.member import Member
from fedfairx.federation.transport import MemoryTransport
from fedfairx.privacy import Bounds, SimulatedNoise, private
from own_record_reference import Records, Sizes, believe
from posterior_reference import Prior as DensePrior

NAMES = ("ann", "ben", "cid")
RULES = ("expected-merit", "greedy", "thompson", "optimism")
WILD = ["=1+1", "a/b", "..", "Ω 数 🦊", " ", "x" * 5000, "\0", 'quo"te', "a,b", "<b>"]


def unit(names: Any, known: tuple[str, ...]) -> np.ndarray:
    return np.eye(len(known))[[known.index(name) for name in names]]


# --- what it decides --------------------------------------------------------------------------------------

offers = st.lists(st.sampled_from(NAMES), min_size=1, unique=True)
rounds = st.lists(st.tuples(st.none() | offers, st.floats(0.0, 1.0)), max_size=30)


@given(rounds=rounds, seed=st.integers(0, 99))
def test_by_the_optimistic_rule_it_is_an_agent_with_unit_vectors(rounds: list[Any], seed: int) -> None:
    named = ffx.Agent(actions=NAMES, rule="optimism", seed=seed)
    plain = ffx.Agent(len(NAMES), rule="optimism", seed=seed, intercept=False)
    for offered, reward in rounds:
        x = unit(offered or NAMES, NAMES)
        assert named.policy(offered) == pytest.approx(plain.policy(x), abs=1e-6)
        ours, theirs = named.decide(offered), plain.decide(x)
        assert ours.policy == pytest.approx(theirs.policy, abs=1e-6)
        if ours.action != theirs.action:  # a draw at the very edge of two shares, which rounding moves
            edges = np.cumsum(theirs.policy)
            assert np.abs(np.cumsum(ours.policy) - edges).max() < 1e-6
            return
        assert ours.name == (offered or list(NAMES))[ours.action]
        assert (ours.context == theirs.context).all()
        named.observe(ours, reward=reward)
        plain.observe(theirs, reward=reward)
    assert named.columns == 3
    assert named.estimate == pytest.approx(plain.estimate, abs=1e-9)
    assert named.gram == pytest.approx(plain.gram, rel=1e-9)
    assert named.own_sums() == pytest.approx(plain.own_sums(), abs=1e-12)
    assert (named.observed, named.noise_sd) == (plain.observed, pytest.approx(plain.noise_sd))


@pytest.mark.parametrize("rule", ["expected-merit", "greedy"])
@given(rounds=rounds, seed=st.integers(0, 99))
def test_by_other_rules_it_is_the_dense_model_of_a_constant_and_names(
    rule: str, rounds: list[Any], seed: int
) -> None:
    prior, steepness = ffx.Prior(0.4, 0.3, 0.5, learn=False), 5.0
    merit = ffx.merit.Exponential(steepness)
    agent = ffx.Agent(actions=NAMES, rule=rule, seed=seed, prior=prior, merit=merit)
    assert (agent.dimension, agent.columns) == (0, 1)
    known = DensePrior(np.array([prior.mean]), prior.sd, prior.noise_sd, True)
    sizes = Sizes(prior.noise_sd**2, prior.ridge, prior.ridge)
    who, ys = [], []
    for offered, reward in rounds:
        near = [NAMES.index(name) for name in offered or NAMES]
        records = Records(np.ones((len(ys), 1)), np.array(who, dtype=int), np.array(ys), len(NAMES))
        belief = believe(records, known, sizes)
        means, variances = belief.of(np.ones((len(near), 1)), np.array(near))
        spread = variances / (1.0 + variances * steepness**2 / 8.0) if rule == "expected-merit" else 0.0
        logs = steepness * means + steepness**2 * spread / 2
        decision = agent.decide(offered)
        assert decision.policy == pytest.approx(np.exp(logs) / np.exp(logs).sum(), rel=1e-9)
        assert (decision.context.tolist(), decision.name) == ([1.0], NAMES[near[decision.action]])
        for number, name in enumerate(NAMES):
            assert agent.record_of(name).effect == pytest.approx(belief.mean[1 + number], abs=1e-9)
            assert agent.record_of(name).sd == pytest.approx(
                math.sqrt(belief.variance * belief.spread[1 + number, 1 + number])
            )
        assert agent.estimate == pytest.approx(belief.mean[:1])
        agent.observe(decision, reward=reward)
        who.append(near[decision.action])
        ys.append(reward)


@given(data=st.data(), rule=st.sampled_from(RULES), seed=st.integers(0, 99))
def test_added_and_retired_ones_are_as_if_there_from_the_beginning(
    data: st.DataObject, rule: str, seed: int
) -> None:
    """Policies depend on what is offered and on what each offered action has earned, and on nothing else."""
    every = ("ann", "ben", "cid", "dora", "eve")
    grown = ffx.Agent(actions=every[:2], rule=rule, seed=seed)
    whole = ffx.Agent(actions=every, rule=rule, seed=seed)
    active, known = set(every[:2]), set(every[:2])
    for _ in range(data.draw(st.integers(0, 12))):
        what = data.draw(st.sampled_from(["learn", "add", "retire", "decide"]))
        if what == "add" and active < set(every):
            name = data.draw(st.sampled_from(sorted(set(every) - active)))
            grown.add_actions(name)
            active.add(name)
            known.add(name)
        elif what == "retire" and len(active) > 1:
            name = data.draw(st.sampled_from(sorted(active)))
            grown.retire_actions(name)
            active.discard(name)
        elif what == "learn":
            name, reward = data.draw(st.sampled_from(sorted(known))), data.draw(st.floats(0.0, 1.0))
            grown.learn([name], [reward])
            whole.learn([name], [reward])
        else:
            grown.forget(grown.decide())
    assert set(grown.actions) == active
    assert set(grown.actions) | set(grown._model.actions.retired) == known
    if rule == "thompson":
        return  # its draws depend on the order in which they were added
    if rule == "optimism" and known != set(every):
        return  # its radius depends on how many there are
    order = grown.actions
    assert grown.policy() == pytest.approx(whole.policy(order), abs=1e-6 if rule == "optimism" else 1e-12)


def test_a_new_action_leaves_what_is_known_of_the_others() -> None:
    agent = ffx.Agent(actions=NAMES, seed=0, prior=ffx.Prior(0.5, 0.5, 0.1, learn=False))
    agent.learn(["ann"] * 30 + ["ben"] * 10, [0.9] * 30 + [0.1] * 10)
    before, estimate, records = agent.policy(["ann", "ben"]), agent.estimate, agent.record_of("ann")
    agent.add_actions("dora", "eve")
    assert (agent.dimension, agent.columns) == (0, 1)
    assert agent.policy(["ann", "ben"]).tolist() == before.tolist()
    assert agent.estimate.tolist() == estimate.tolist()
    assert agent.record_of("ann") == records
    assert agent.record_of("eve") == agent.record_of("cid") == OwnRecord(0.0, 0.0, 0.5, 0.0)
    assert agent.policy(["cid", "eve"]) == pytest.approx([0.5, 0.5])  # of both nothing is known


def test_the_draws_go_on_where_they_were() -> None:
    """Adding takes no uniform and repeats none."""
    grown, whole = (ffx.Agent(actions=NAMES, seed=3) for _ in range(2))
    for t in range(200):
        if t in (5, 100):
            grown.add_actions(f"new {t}")
        assert grown.decide(NAMES).action == whole.decide(NAMES).action


# --- names and errors -------------------------------------------------------------------------------------


def test_names_are_what_is_given_and_taken() -> None:
    agent = ffx.Agent(actions=NAMES, seed=0)
    made = agent.decide(["cid"])
    assert (made.name, made.action, made.policy.tolist()) == ("cid", 0, [1.0])
    assert agent.decide().name in NAMES
    assert [made.policy.size for made in agent.decide_many([["ann", "ben"], None, ["cid"]])] == [2, 3, 1]
    assert agent.actions == NAMES
    assert ffx.Agent(2).actions == ()
    assert "actions=['ann', 'ben', 'cid']" in repr(agent)
    assert "ann, ben, cid" in agent._repr_html_()
    agent.observe(made.id, reward=1.0)
    with pytest.raises(AlreadyObserved):
        agent.observe(made, reward=1.0)


@pytest.mark.parametrize("given", [[], "ann", b"ann", ["ann", "ann"], ["ann", ""], ["ann", 1], 3, ["\ud800"]])
def test_what_is_no_list_of_names(given: Any) -> None:
    with pytest.raises(InvalidInput, match=r"^actions(\[0\])? must"):
        ffx.Agent(actions=given)
    agent = ffx.Agent(actions=NAMES, seed=0)
    before = bare(agent)
    with pytest.raises(InvalidInput, match=r"^actions(\[0\])? must"):
        agent.decide(given)
    with pytest.raises(InvalidInput, match=r"^contexts\[1\]\.actions(\[0\])? must"):
        agent.decide_many([NAMES, given])
    assert bare(agent) == before


def test_what_is_refused_changes_nothing() -> None:
    agent = ffx.Agent(actions=NAMES, seed=0)
    agent.retire_actions("ben")
    before = bare(agent)
    for refused, words in (
        (
            lambda: agent.decide(["dora"]),
            "actions[0] must be one that this agent has and has not retired, got 'dora'",
        ),
        (lambda: agent.decide(["ben"]), "has and has not retired, got 'ben'"),
        (lambda: agent.decide([]), "must be at least one, got actions=0"),
        (lambda: agent.decide([[1.0, 0.0, 0.0]]), "must be a list of names"),
        (lambda: agent.decide(np.eye(3)), "must be a list of names"),
        (lambda: agent.policy([[1.0, 0.0, 0.0]]), "must be a list of names"),
        (lambda: agent.decide(names=["x"]), "names must be left out"),
        (lambda: agent.learn(["ann", "dora"], [1.0, 1.0]), "has, got 'dora'"),
        (lambda: agent.learn(["ann"], [1.0, 1.0]), "as many as the 1 records"),
        (lambda: agent.learn(np.eye(3), [1.0] * 3), "must be a list of names"),
        (lambda: agent.add_actions("ann"), "must be new or retired, got actions='ann'"),
        (lambda: agent.add_actions("dora", "ann"), "must be new or retired"),
        (lambda: agent.add_actions("dora", "dora"), "different names"),
        (lambda: agent.add_actions(""), "not empty"),
        (lambda: agent.add_actions("\udc00"), "UTF-8"),
        (lambda: agent.retire_actions("ben"), "has not retired, got 'ben'"),
        (lambda: agent.retire_actions("ann", "dora"), "actions[1] must be one that"),
        (lambda: agent.retire_actions("ann", "cid"), "must leave one"),
    ):
        with pytest.raises(InvalidInput, match=r"^(actions|names|rewards)(\[\d\])? ") as caught:
            refused()
        assert words in str(caught.value)
        assert bare(agent) == before
    assert agent.actions == ("ann", "cid")


def test_what_an_agent_can_not_be() -> None:
    with pytest.raises(InvalidInput, match=r"^dimension must be an integer.*or give actions"):
        ffx.Agent()
    with pytest.raises(InvalidInput, match=r"^prior must have one mean"):
        ffx.Agent(actions=NAMES, prior=ffx.Prior((0.1, 0.2, 0.3)))
    with pytest.raises(InvalidInput, match=r"^own_record must be True where actions have no features"):
        ffx.Agent(actions=NAMES, own_record=False)
    ffx.Agent(actions=NAMES, own_record=False, rule="optimism")
    plain = ffx.Agent(2)
    for refused in (
        lambda: plain.decide(),
        lambda: plain.decide(["ann"]),
        lambda: plain.learn(["ann"], [1.0]),
    ):
        with pytest.raises(InvalidInput, match=r"^contexts(\[0\])? must"):
            refused()
    for refused in (lambda: plain.add_actions("ann"), lambda: plain.retire_actions("ann")):
        with pytest.raises(InvalidInput, match="its actions come with decisions"):
            refused()


def test_a_retired_one_comes_back_with_what_it_has_earned() -> None:
    agent = ffx.Agent(actions=NAMES, seed=0, prior=ffx.Prior(0.5, 0.3, 0.1, learn=False))
    waiting = agent.decide(["ben"])
    agent.retire_actions("ben")
    assert agent.decide().name in ("ann", "cid")
    assert agent.policy().size == 2
    agent.observe(waiting, reward=1.0)  # it was shown, so it is learnt
    agent.learn(["ben"] * 20, [1.0] * 20)
    assert agent.record_of("ben").effect > agent.record_of("ann").effect
    agent.add_actions("ben")
    assert agent.actions == agent.names == NAMES
    assert agent.policy().argmax() == 1


def test_wild_names_are_kept_as_they_are(place: str) -> None:
    with ffx.Agent.open(place, actions=WILD, seed=0) as agent:
        for name in WILD:
            agent.observe(agent.decide([name]), reward=0.5)
    with ffx.Agent.open(place) as agent:
        assert agent.actions == tuple(WILD)
        assert [each.name for each in agent.journal.decisions()] == WILD
        agent.verify()


def test_coordinates_stay() -> None:
    actions = Actions(["a", "b"])
    actions.retire(["a"])
    actions.add(["c"])
    actions.add(["a"])
    assert (actions.names, actions.retired) == (("a", "b", "c"), ())
    assert actions.offered()[0].tolist() == [0, 1, 2]
    assert "a" in actions
    assert len(actions) == 3


# --- kept -------------------------------------------------------------------------------------------------


def lived(agent: ffx.Agent, seed: int = 0) -> ffx.Agent:
    """Some of everything, with decisions that wait from before and after the actions changed."""
    rng = np.random.default_rng(seed)
    new = f"new {len(agent._model.actions)}"
    for turn in range(30):
        made = agent.decide(None if turn % 3 else [str(name) for name in rng.permutation(agent.actions)])
        if turn % 4:
            agent.observe(made, reward=float(rng.random()))
        if turn == 10:
            agent.add_actions(new)
        if turn == 15:
            agent.learn([new, "ann"], rng.random(2))
        if turn == 20:
            agent.retire_actions(agent.actions[1])
    return agent


@pytest.mark.parametrize("rule", RULES)
def test_it_is_saved_and_loaded(tmp_path: Path, rule: str) -> None:
    agent = lived(ffx.Agent(actions=NAMES, rule=rule, seed=1))
    agent.save(tmp_path / "agent.db")
    again = ffx.Agent.load(tmp_path / "agent.db")
    assert bare(again) == bare(agent)
    assert (again.actions, again._model.actions.retired) == (agent.actions, agent._model.actions.retired)
    assert again.pending == 8
    for identity in [made.id for made in agent._pending.values()]:
        agent.observe(identity, reward=0.5)
        again.observe(identity, reward=0.5)
    lived(agent, 5)
    lived(again, 5)
    assert bare(again) == bare(agent)


@pytest.mark.parametrize("rule", RULES)
def test_one_that_was_stopped_is_the_same_as_one_that_never_was(
    tmp_path: Path, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persistence, "SNAPSHOT_EVERY", 23)
    never = ffx.Agent(actions=NAMES, rule=rule, seed=4, name="a")
    place = tmp_path / "agent.db"
    ffx.Agent.open(place, actions=NAMES, rule=rule, seed=4, name="a").close()
    for life in range(4):
        with ffx.Agent.open(place) as agent:
            lived(agent, life)
            lived(never, life)
            assert agent.policy() == pytest.approx(never.policy(), abs=0)
            if life % 2:  # as a crash would leave it
                agent.journal.log.closing.clear()
    with ffx.Agent.open(place) as agent:
        assert agent.policy().tolist() == never.policy().tolist()
        assert (agent.actions, agent._model.actions.retired) == (never.actions, never._model.actions.retired)
        assert agent.estimate.tolist() == never.estimate.tolist()
        agent.verify()


def test_a_restart_keeps_names_and_what_waits(place: str) -> None:
    with ffx.Agent.open(place, actions=NAMES, seed=1) as agent:
        old = agent.decide()
        agent.add_actions("dora")
        agent.retire_actions("ben")
        agent.decide(["dora"], note=DecisionNote(groups=["new"]))
    with ffx.Agent.open(place, actions=NAMES) as agent:  # the first ones may be named again
        assert agent.actions == ("ann", "cid", "dora")
        agent.add_actions("eve", "ben")
        agent.observe(old.id, reward=1.0)
        assert agent.record_of(old.name).effect > agent.record_of("eve").effect
        stored = agent.journal.decision(old.id)
        assert (stored.name, stored.contexts.tolist()) == (old.name, [[1.0]] * 3)
        agent.verify()
    with ffx.Agent.open(place, actions=["dora", "ben"]) as agent:
        assert agent.actions == ("ann", "ben", "cid", "dora", "eve")
        assert agent.pending == 1
        agent.verify()
    with pytest.raises(InvalidInput, match=r"must be ones that it has, got actions=\['zoe'\]"):
        ffx.Agent.open(place, actions=["ann", "zoe"])
    with pytest.raises(InvalidInput, match="dimension must be left out: its actions have names alone"):
        ffx.Agent.open(place, dimension=3)


def test_actions_are_not_for_a_database_of_features(tmp_path: Path) -> None:
    place = tmp_path / "agent.db"
    with pytest.raises(InvalidInput, match=r"^dimension, schema or actions must be given"):
        ffx.Agent.open(place)
    ffx.Agent.open(place, dimension=3).close()
    with pytest.raises(InvalidInput, match=r"^actions must be left out: this agent's actions have features"):
        ffx.Agent.open(place, actions=NAMES)


def test_what_fails_on_disk_has_not_happened(tmp_path: Path) -> None:
    with ffx.Agent.open(tmp_path / "agent.db", actions=NAMES, rule="thompson", seed=1) as agent:
        agent.observe(agent.decide(), reward=1.0)
        policy = agent.policy()

        class Stop(Exception):
            pass

        with pytest.raises(Stop), agent.transaction():
            agent.add_actions("dora")
            agent.retire_actions("ann")
            agent.decide()
            raise Stop
        assert agent.actions == agent.names == NAMES
        assert agent.policy().tolist() == policy.tolist()
        agent.verify()


@pytest.mark.parametrize("count", [250, pytest.param(1000, marks=pytest.mark.slow)])
def test_a_thousand_actions(tmp_path: Path, count: int) -> None:
    names = [f"action {k}" for k in range(count)]
    with ffx.Agent.open(tmp_path / "agent.db", actions=names, seed=0) as agent:
        for _ in range(3):
            made = agent.decide()
            agent.observe(made, reward=1.0)
        assert made.policy.sum() == pytest.approx(1.0)
        size = len(agent.journal.log.database.read("SELECT contexts FROM decisions LIMIT 1")[0][0])
        assert size == 8 * count  # a number for each action, and not for each pair of them
        agent.add_actions("one more")
        assert agent.decide().policy.size == count + 1
    with ffx.Agent.open(tmp_path / "agent.db") as agent:
        assert len(agent.actions) == count + 1


# --- shared -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize("decide_from", ["released", "own+released", "released+local"])
def test_a_private_agent_is_told_to_make_the_name_a_feature(decide_from: Any, tmp_path: Path) -> None:
    noisy = private(
        1, epsilon=4.0, releases=10, noise=SimulatedNoise(7), intercept=True, decide_from=decide_from
    )
    budget = ffx.Budget(epsilon=4.0, delta=0.1, releases=10)
    for refused in (
        lambda: ffx.Agent(actions=NAMES, privatizer=noisy),
        lambda: ffx.Agent.open(tmp_path / "agent.db", actions=NAMES, budget=budget),
        lambda: ffx.Federation(agents=2, actions=NAMES, horizon=9, algorithm="priv-fairx-bayes", epsilon=4.0),
    ):
        with pytest.raises(InvalidInput, match=r"^actions must have features .*Schema\(\{'name': \["):
            refused()
    schema = ffx.features.Schema({"name": list(NAMES)})
    with ffx.Agent.open(tmp_path / "other.db", schema=schema, budget=budget) as agent:  # as it is told
        agent.observe(agent.decide([{"name": name} for name in NAMES]), reward=1.0)
        assert agent.release().tallies == {}


def learnt(name: str, records: dict[str, float], actions: Any = NAMES, **more: Any) -> ffx.Agent:
    agent = ffx.Agent(actions=actions, seed=0, name=name, **more)
    agent.learn(list(records) * 200, list(records.values()) * 200)
    return agent


def test_agents_with_the_same_actions_learn_together() -> None:
    a, b = learnt("a", {"ann": 1.0, "ben": 0.0}), ffx.Agent(actions=NAMES, seed=0, name="b")
    b.absorb({"a": a.release(), "b": b.release()})
    assert b.policy(["ann", "ben"])[0] > 0.9
    b.add_actions("dora")
    assert b.policy(["ann", "dora", "ben"]).argmax() == 0


def test_agents_with_other_actions_learn_together_too() -> None:
    """Whose records are whose is known by name; the height of rewards is common."""
    a = learnt("a", {"dora": 0.0, "ann": 1.0}, ["dora", "ann"])
    b, both = ffx.Agent(actions=NAMES, name="b", seed=0), ffx.Agent(actions=[*NAMES, "dora"], seed=0)
    b.absorb({"a": a.release()})
    both.learn(["dora", "ann"] * 200, [0.0, 1.0] * 200)
    assert b.record_of("ann").rewards == 200
    assert b.record_of("dora").effect < 0 < b.record_of("ann").effect
    assert b.policy().argmax() == 0
    assert b.actions == NAMES
    with pytest.raises(InvalidInput, match="has and has not retired, got 'dora'"):
        b.decide(["dora"])
    b.add_actions("dora")  # what partners know of it is there
    assert b.policy().argmin() == 3


@pytest.mark.parametrize("others", [("ann", "ben", "dora"), ("ben", "ann", "cid"), NAMES[:2], None])
def test_by_the_optimistic_rule_agents_with_other_actions_are_refused(others: Any) -> None:
    a = ffx.Agent(actions=NAMES, name="a", rule="optimism")
    size: dict[str, Any] = {"actions": others} if others else {"dimension": 3, "intercept": False}
    b = ffx.Agent(**size, name="b", rule="optimism")
    for here, there in ((a, b), (b, a)):
        with pytest.raises(MessageRefused, match=r"or for other actions|must have . numbers"):
            here.absorb({there.name: there.release()})
        assert list(here.held) in ([], [here.name])


def test_by_the_optimistic_rule_members_with_the_same_actions_hear_each_other_and_no_others() -> None:
    transport, seal = MemoryTransport(), PlainCodec()
    names = {"a": NAMES, "b": NAMES, "c": NAMES[::-1]}
    members = {
        name: Member(ffx.Agent(actions=actions, seed=0, name=name, rule="optimism"), transport, seal)
        for name, actions in names.items()
    }
    for member in members.values():
        member.agent.learn(["ann"] * 50, [1.0] * 50)
        member.send(member.agent.release())
    for member in members.values():
        member.exchange()
    assert set(members["a"].agent.held) == set(members["b"].agent.held) == {"a", "b"}
    assert members["a"].refusals == {("c", "mechanism"): 1}
    assert set(members["c"].agent.held) == {"c"}


def test_members_send_each_other_tallies_by_name() -> None:
    transport, seal = MemoryTransport(), PlainCodec()
    members = {
        name: Member(ffx.Agent(actions=NAMES, seed=0, name=name), transport, seal) for name in ("a", "b")
    }
    members["a"].agent.learn(["ann"] * 50, [1.0] * 50)
    for member in members.values():
        member.send(member.agent.release())
    for member in members.values():
        member.exchange()
    assert members["b"].agent.held["a"].tallies["ann"].tolist() == [50.0, 50.0, 50.0]
    assert members["b"].agent.record_of("ann").rewards == 50


@pytest.mark.parametrize("rule", ["expected-merit", "optimism"])
def test_one_that_has_released_keeps_its_size(place: str, rule: str) -> None:
    """By the optimistic rule; by others names are not what the size depends on."""
    with ffx.Agent.open(place, actions=NAMES, name="a", rule=rule) as agent:
        agent.learn(["ann"], [1.0])
        sent = agent.release()
        if rule == "optimism":
            with pytest.raises(InvalidInput, match="whose size is fixed"):
                agent.add_actions("dora")
        else:
            agent.add_actions("dora")
        agent.absorb({"a": sent})
        agent.retire_actions("ann")
    with ffx.Agent.open(place) as agent:
        assert agent.held["a"] == sent
        agent.verify()


def test_exact_sums_are_clipped_and_tallies_with_them(tmp_path: Path) -> None:
    with ffx.Agent.open(tmp_path / "a.db", actions=NAMES, bounds=Bounds(reward=0.5), name="a") as agent:
        agent.learn(["ann", "cid"], [1.0, 0.25])
        assert agent.privatizer.clipped == 1
        assert agent.release().packed.tolist() == [2.0, 0.75]
        assert {name: row.tolist() for name, row in agent.release(1).tallies.items()} == {
            "ann": [1.0, 0.5, 1.0],
            "cid": [1.0, 0.25, 1.0],
        }
        agent.verify()


def test_a_reward_is_replaced_as_if_the_right_one_had_come(tmp_path: Path) -> None:
    def lived_with(place: Path, reward: float) -> tuple[ffx.Agent, str]:
        agent = ffx.Agent.open(place, actions=NAMES, seed=0, name="a")
        wrong = agent.decide(["ben"])
        agent.observe(wrong, reward=reward)
        agent.add_actions("dora")
        agent.learn(["dora", "ann"], [0.5, 0.25])
        agent.retire_actions("ben")
        return agent, wrong.id

    replaced, identity = lived_with(tmp_path / "a.db", 1.0)
    right, _ = lived_with(tmp_path / "b.db", 0.125)
    with replaced, right:
        replaced.observe(identity, reward=0.125, replace=True)
        assert replaced.estimate.tolist() == right.estimate.tolist()
        assert replaced.record_of("ben") == right.record_of("ben")
        assert (replaced.actions, replaced.all_actions) == (right.actions, right.all_actions)
        assert replaced.policy().tolist() == right.policy().tolist()
        replaced.verify()
