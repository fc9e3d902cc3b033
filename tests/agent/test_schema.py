"""An agent with a schema: it decides from rows by name, stores the schema, and grows with later versions."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import hypothesis
import numpy as np
import pandas as pd
import pytest
from hypothesis import strategies as st

import fedfairx as ffx
from fedfairx.agent import persistence
from fedfairx.errors import InvalidInput
from fedfairx.features import Schema
from fedfairx.privacy import Bounds, Budget
from fedfairx.storage.agents import read_feature_schema, store_feature_schema

FEATURES = {"price": (0, 10), "new": bool, "city": ["Rome", "Oslo"]}
FIRST = Schema(FEATURES, shared=["city"])
SECOND = Schema({**FEATURES, "city": ["Rome", "Oslo", "Bonn"]}, shared=["city"])
THIRD = Schema({**FEATURES, "city": ["Rome", "Oslo", "Bonn"], "stars": (1, 5)}, shared=["city"])
ROWS = {
    "ann": {"price": 2.0, "new": True},
    "ben": {"price": 7.5, "new": False},
    "cid": {"price": 4, "new": False},
}
RICHER = {name: row | {"stars": 1 + place} for place, (name, row) in enumerate(ROWS.items())}
ROME, BONN = {"city": "Rome"}, {"city": "Bonn"}


def taught(agent: ffx.Agent, rounds: int = 30) -> None:
    for turn in range(rounds):
        made = agent.decide(actions=ROWS, context=ROME if turn % 2 else {"city": "Oslo"})
        agent.observe(made, reward=(turn % 5) / 5)


def test_rows_by_name_are_contexts() -> None:
    prior = ffx.Prior(learn=False)  # the mean of an intercept is learnt only where it is known to be one
    named = ffx.Agent(schema=FIRST, seed=1, prior=prior)
    plain = ffx.Agent(FIRST.width, seed=1, prior=prior, intercept=False)
    rows = list(ROWS.values())
    contexts = FIRST.encode(rows, ROME).contexts
    for given in (
        {"actions": ROWS},
        {"actions": rows},
        {"contexts": rows},
        {"actions": pd.DataFrame(rows)},
        {"contexts": pd.DataFrame(rows)},
    ):
        assert named.policy(**given, context=ROME).tolist() == plain.policy(contexts).tolist()
        ours, theirs = named.decide(**given, context=ROME), plain.decide(contexts)
        assert ours == theirs
        named.observe(ours, reward=0.5)
        plain.observe(theirs, reward=0.5)
    assert named.decide(contexts) == plain.decide(contexts)
    assert named.decide(actions=ROWS, context=ROME, slots=2).names is not None
    assert named.decide(actions=rows, names=["a", "b", "c"], context=ROME).name in "abc"
    several = named.decide_many(
        [{"actions": ROWS, "context": ROME}, {"actions": ROWS, "context": BONN}, contexts]
    )
    assert [made.name in ROWS for made in several] == [True, True, False]
    whole = [row | ROME for row in rows]
    for agent, log in ((named, pd.DataFrame(whole)), (named, whole), (plain, contexts), (plain, contexts)):
        agent.learn(log, [0.1, 0.2, 0.3])
    assert named.estimate.tolist() == plain.estimate.tolist()
    assert (named.schema, plain.schema, named.dimension) == (FIRST, None, len(FIRST.columns))
    assert "features=['price', 'new', 'city']" in repr(named)
    assert "price, new, city" in named._repr_html_()


def test_what_was_clipped_or_unknown_is_counted() -> None:
    agent = ffx.Agent(schema=FIRST, seed=0)
    odd = [{"price": 99, "new": True}, {"price": -1, "new": False}]
    agent.policy(actions=odd, context=BONN)
    for refused in (
        lambda: agent.decide(actions=odd, context=BONN, slots=3),
        lambda: agent.decide_many([{"actions": odd, "context": BONN}], slots=3),
        lambda: agent.learn([odd[0] | BONN], [0.5, 0.5]),
    ):
        with pytest.raises(InvalidInput, match=r"slots|rewards"):
            refused()
    assert not agent.clipped_values + agent.unknown_values  # nothing was decided or learnt
    agent.decide(actions=odd, context=BONN)
    agent.decide_many([{"actions": odd, "context": ROME}])
    agent.learn([odd[0] | BONN, odd[0] | ROME], [0.5, 0.5])
    assert agent.clipped_values == {"price": 6}
    assert agent.unknown_values == {"city": 2}


@pytest.mark.parametrize(
    ("agent", "given", "text"),
    [
        (
            {"dimension": 2},
            {"actions": list(ROWS.values())},
            "contexts must be given: this agent has no schema",
        ),
        (
            {"dimension": 2},
            {"contexts": [[1.0, 0.0]], "context": ROME},
            "contexts must be given: this agent has",
        ),
        ({"actions": ["a"]}, {"context": ROME}, "context must be left out: actions have no features"),
        (
            {"schema": FIRST},
            {"actions": ROWS, "contexts": [[1.0]]},
            "contexts must be left out beside actions",
        ),
        (
            {"schema": FIRST},
            {"actions": {"a": {"price": 1}}, "context": ROME},
            "actions.a.new must be given, got none",
        ),
        ({"schema": FIRST}, {"contexts": [[1.0, 0.0]]}, "contexts must have shape"),
    ],
)
def test_what_is_refused(agent: dict[str, Any], given: dict[str, Any], text: str) -> None:
    made = ffx.Agent(**agent)
    for call in (made.decide, made.policy):
        with pytest.raises(InvalidInput) as refused:
            call(**given)
        assert str(refused.value).startswith(text)
    assert made.pending == 0


def test_what_makes_no_agent() -> None:
    for given, text in (
        ({"dimension": 3}, r"dimension must be left out or 12, as of schema"),
        ({"actions": []}, "actions must be"),
    ):
        with pytest.raises(InvalidInput, match=text):
            ffx.Agent(schema=Schema({"a": [str(k) for k in range(10)]}), **given)
    with pytest.raises(InvalidInput, match=r"schema must be a features.Schema, got schema='dict'"):
        ffx.Agent(schema=FEATURES)  # type: ignore[arg-type]
    assert ffx.Agent(12, schema=Schema({"a": [str(k) for k in range(10)]})).dimension == 12
    with pytest.raises(InvalidInput, match="schema must have been given when the agent was made"):
        ffx.Agent(3).extend_schema(FIRST)
    assert ffx.Agent(actions=["a", "b"]).decide(actions=["b"]).name == "b"  # names are actions too


# --- later versions ---------------------------------------------------------------------------------------


@hypothesis.given(
    rewards=st.lists(st.floats(0.0, 1.0), max_size=30), rule=st.sampled_from(["expected-merit", "greedy"])
)
def test_appended_columns_start_at_the_prior_and_change_no_prediction(
    rewards: list[float], rule: str
) -> None:
    agent = ffx.Agent(schema=FIRST, rule=rule, seed=0, prior=ffx.Prior(0.2, 0.5, 0.3, learn=False))
    waiting = agent.decide(actions=ROWS, context=ROME)
    for turn, reward in enumerate(rewards):
        agent.observe(agent.decide(actions=ROWS, context={"city": FEATURES["city"][turn % 2]}), reward=reward)
    estimate, policy = agent.estimate, agent.policy(actions=ROWS, context=ROME)
    agent.extend_schema(SECOND)
    assert agent.schema is not None
    assert agent.schema.columns[: FIRST.width] == FIRST.columns
    assert agent.estimate[: FIRST.width] == pytest.approx(estimate, abs=1e-12)
    assert agent.estimate[FIRST.width :] == pytest.approx(0.2)
    assert agent.gram[FIRST.width :, : FIRST.width].any() == np.False_
    assert agent.policy(actions=ROWS, context=ROME) == pytest.approx(policy, abs=1e-9)
    agent.extend_schema(SECOND)  # nothing new
    assert agent.schema.versions == 2
    agent.extend_schema(THIRD)
    zero = {name: row | {"stars": 3} for name, row in ROWS.items()}  # the middle, which is 0
    assert agent.policy(actions=zero, context=ROME) == pytest.approx(policy, abs=1e-9)
    agent.observe(waiting, reward=1.0)  # made by the first version
    assert agent.observed == len(rewards) + 1


def test_it_learns_as_if_the_columns_had_been_there_from_the_beginning() -> None:
    """Against an agent without a schema that gets zeros in their place; rewards come at the end."""
    prior = ffx.Prior(0.0, 0.5, 0.3, learn=False)
    agent = ffx.Agent(schema=FIRST, seed=0, prior=prior)
    last = FIRST.extend(SECOND).extend(THIRD)
    other = ffx.Agent(last.width, seed=0, prior=prior, intercept=False)
    waiting = []
    for version in (FIRST, SECOND, THIRD):
        agent.extend_schema(version)
        rows = RICHER if "stars" in version.names else ROWS
        for turn in range(20):
            assert agent.schema is not None
            contexts = np.zeros((3, last.width))
            contexts[:, : agent.dimension] = agent.schema.encode(rows, ROME if turn % 2 else BONN).contexts
            slots = 1 + turn % 2
            ours = agent.decide(actions=rows, context=ROME if turn % 2 else BONN, slots=slots)
            theirs = other.decide(contexts, slots=slots, names=list(rows))
            assert ours.exposure == pytest.approx(theirs.exposure, abs=1e-9)
            waiting.append((ours, theirs, turn / 20))
    for ours, theirs, reward in waiting[::2] + waiting[1::2]:
        agent.observe(ours, rewards=[reward] * len(ours.actions))
        other.observe(theirs, rewards=[reward] * len(theirs.actions))
    assert agent.estimate == pytest.approx(other.estimate, abs=1e-9)


@pytest.mark.parametrize(
    "rule",
    [
        "expected-merit",
        *(pytest.param(rule, marks=pytest.mark.slow_on_server) for rule in ("thompson", "optimism")),
    ],
)
def test_a_durable_agent_keeps_its_versions(place: str, rule: str) -> None:
    with ffx.Agent.open(place, schema=FIRST, rule=rule, seed=0) as agent:
        taught(agent)
        early = agent.decide(actions=ROWS, context=BONN, slots=2).id
        agent.learn([row | ROME for row in ROWS.values()], [0.1, 0.2, 0.3], weights=[1.0, 0.5, 0.5])
        assert agent.unknown_values == {"city": 1}
    assert read_feature_schema(place) == FIRST.to_dict()
    with ffx.Agent.open(place, schema=SECOND) as agent:
        taught(agent, 5)
        agent.observe(early, rewards=[0.5, 1.0])
        agent.extend_schema(THIRD)
        agent.observe(agent.decide(actions=RICHER, context=BONN), reward=1.0)
        late = agent.decide(actions=RICHER, context=BONN)
        state = agent.state()
        agent.verify()
    with ffx.Agent.open(place, schema=THIRD) as agent:
        assert agent.state() == state
        assert (agent.schema, agent.dimension) == (FIRST.extend(SECOND).extend(THIRD), len(late.theta))
        agent.observe(late.id, reward=0.0)
        agent.observe(early, rewards=[0.5, 0.25], replace=True)
        agent.verify()
        policy = agent.policy(actions=RICHER, context=BONN)
        widths = [made.contexts.shape[1] for made in agent.journal.decisions()]
        assert widths == [FIRST.width] * 31 + [SECOND.width] * 5 + [agent.dimension] * 2
    with ffx.Agent.open(place) as agent:
        assert agent.policy(actions=RICHER, context=BONN).tolist() == policy.tolist()
    assert read_feature_schema(place) == FIRST.extend(SECOND).extend(THIRD).to_dict()
    for other in (FIRST, SECOND, Schema({"price": (0, 10)}), Schema({"x": bool})):
        with pytest.raises(
            InvalidInput, match=r"schema must be what the agent has learnt from.*create another agent"
        ):
            ffx.Agent.open(place, schema=other)
    for given, text in (
        ({"dimension": 12}, "dimension must be the stored one"),
        ({"actions": ["a"]}, "features"),
    ):
        with pytest.raises(InvalidInput, match=text):
            ffx.Agent.open(place, **given)
    ffx.Agent.open(place).close()


def test_snapshots_hold_the_version_of_their_time(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persistence, "SNAPSHOT_EVERY", 7)
    with ffx.Agent.open(tmp_path / "a.db", schema=FIRST, seed=0) as agent:
        for version in (FIRST, SECOND, THIRD):
            agent.extend_schema(version)
            for turn in range(10):
                rows = RICHER if version is THIRD else ROWS
                made = agent.decide(actions=rows, context=BONN)
                if turn % 3:
                    agent.observe(made, reward=turn / 10)
        agent.verify()
        state = agent.state()
    with ffx.Agent.open(tmp_path / "a.db") as agent:
        assert agent.state() == state
        assert agent.pending == 12
        for made in list(agent._pending.values()):  # of all versions
            agent.observe(made, reward=0.5)
        agent.verify()


def test_what_fails_on_disk_has_not_happened(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    with ffx.Agent.open(tmp_path / "a.db", schema=FIRST, seed=0) as agent:
        made = agent.decide(actions=ROWS, context=ROME)
        with pytest.raises(KeyboardInterrupt), agent.transaction():
            agent.extend_schema(SECOND)
            raise KeyboardInterrupt
        assert agent.schema == FIRST
        agent.observe(made.id, reward=1.0)
        agent.verify()


def test_a_file_holds_it(tmp_path: Path) -> None:
    agent = ffx.Agent(schema=FIRST, seed=0)
    taught(agent)
    waiting = agent.decide(actions=ROWS, context=ROME)
    agent.extend_schema(SECOND)
    agent.save(tmp_path / "agent.db")
    again = ffx.Agent.load(tmp_path / "agent.db")
    assert again.schema == agent.schema == FIRST.extend(SECOND)
    again.observe(waiting.id, reward=1.0)
    agent.observe(waiting, reward=1.0)
    assert again.decide(actions=ROWS, context=BONN) == agent.decide(actions=ROWS, context=BONN)


# --- sharing and privacy ----------------------------------------------------------------------------------


def test_an_agent_that_shares_can_not_grow(tmp_path: Path) -> None:
    budget = Budget(epsilon=2.0, releases=5)
    sharing = ffx.Agent(schema=FIRST, name="a")
    sharing.release()
    private = ffx.Agent.open(tmp_path / "p.db", schema=FIRST, budget=budget)
    clipping = ffx.Agent.open(tmp_path / "c.db", schema=FIRST, bounds=Bounds())
    for agent in (sharing, private, clipping):
        with (
            agent,
            pytest.raises(InvalidInput, match=r"this agent shares its statistics.*create another agent"),
        ):
            agent.extend_schema(SECOND)
        assert agent.dimension == FIRST.width
    with pytest.raises(InvalidInput, match="shares its statistics"):
        ffx.Agent.open(tmp_path / "p.db", schema=SECOND)
    many = ffx.Agent(schema=FIRST, prior=ffx.Prior((0.0,) * FIRST.width))
    with pytest.raises(InvalidInput, match="its prior has a mean for each of its columns"):
        many.extend_schema(SECOND)


@pytest.mark.parametrize(
    ("schema", "given", "bounds"),
    [
        (FIRST, {}, Bounds()),
        (FIRST, {"reward_range": (-1.0, 2.0)}, Bounds(reward=2.0, gram_share=0.25)),
        (FIRST, {"reward_range": (0.0, 2.0)}, Bounds(reward=2.0, gram_share=0.25)),
        (
            Schema({"new": bool, "city": ["Rome"]}, shared=["city"]),  # no number: no entry is negative
            {"reward_range": (0.0, 2.0)},
            Bounds(reward=2.0, gram_share=0.25, nonnegative=True),
        ),
        (
            FIRST.extend(THIRD),
            {"reward_range": (0.0, 1.0)},
            Bounds(context_norm=(8 / 6) ** 0.5, gram_share=8 / 6),
        ),
    ],
)
def test_bounds_follow_from_the_schema(
    tmp_path: Path, schema: Schema, given: dict[str, Any], bounds: Bounds
) -> None:
    budget = Budget(epsilon=2.0, releases=5)
    with ffx.Agent.open(tmp_path / "a.db", schema=schema, budget=budget, **given) as agent:
        found = agent.privatizer.stream.bounds
        assert found.to_dict() == {
            key: pytest.approx(value) if isinstance(value, float) else value
            for key, value in bounds.to_dict().items()
        }
        largest = {"price": 10, "new": True, "stars": 5}
        row = {name: largest[name] for name in schema.own}
        for city in ("Rome", "Oslo", "Bonn"):
            for turn in range(5):
                made = agent.decide(actions=[row] * 2, context={"city": city})
                agent.observe(made, reward=turn / 5)
        assert np.hypot.reduce(made.context) == pytest.approx(found.context_norm)
        assert agent.privatizer.clipped == 0
    ffx.Agent.open(tmp_path / "a.db", budget=budget, **given).close()
    own = Budget(epsilon=2.0, releases=5, bounds=Bounds(reward=3.0))
    with pytest.raises(InvalidInput, match="budget must be the stored one"):
        ffx.Agent.open(tmp_path / "a.db", budget=own)


# --- a schema that comes later ---------------------------------------------------------------------------


def test_an_agent_without_a_schema_is_told_one_once(tmp_path: Path) -> None:
    place, two = tmp_path / "a.db", Schema({"a": (0, 1), "b": (0, 1)}, intercept=False)
    ffx.Agent.open(place, dimension=2, intercept=False).close()
    with pytest.raises(InvalidInput, match="schema must be left out: this agent has learnt from contexts"):
        ffx.Agent.open(place, schema=FIRST)
    with ffx.Agent.open(place, schema=two) as agent:
        agent.observe(agent.decide(actions=[{"a": 1, "b": 0}]), reward=1.0)
    three = Schema({"a": (0, 1), "b": (0, 1), "c": bool}, intercept=False)
    with ffx.Agent.open(place, schema=three) as agent:
        assert agent.schema == two.extend(three)
        agent.verify()
    with ffx.Agent.open(place) as agent:
        assert agent.schema == two.extend(three)
    noted = tmp_path / "b.db"
    with ffx.Agent.open(noted, dimension=2) as agent:
        assert store_feature_schema(agent.journal, {"features": [], "intercept": False})
        assert not store_feature_schema(agent.journal, {"features": [], "intercept": True})
    with pytest.raises(InvalidInput, match="schema must be left out"):
        ffx.Agent.open(noted, schema=two)


def test_a_shift_of_all_rewards_changes_shares_only_without_an_intercept() -> None:
    """Rewards 0.3 + 0.4 a - 0.2 b, or 3 more, and 300 of them; half the absolute change of shares."""
    probes = np.random.default_rng(1).random((50, 5, 2)).tolist()
    moved = {}
    for intercept in (True, False):
        schema, policies = Schema({"a": (0, 1), "b": (0, 1)}, intercept=intercept), []
        for shift in (0.0, 3.0):
            agent, rng = (
                ffx.Agent(schema=schema, reward_range=(shift, 1 + shift), seed=0),
                np.random.default_rng(0),
            )
            for _ in range(300):
                rows = rng.random((5, 2))
                made = agent.decide(rows_of(rows))
                mean = 0.3 + 0.4 * rows[made.action, 0] - 0.2 * rows[made.action, 1]
                agent.observe(made, reward=shift + float(np.clip(rng.normal(mean, 0.1), 0, 1)))
            policies.append(np.array([agent.policy(rows_of(probe)) for probe in probes]))
        moved[intercept] = 0.5 * np.abs(policies[0] - policies[1]).sum(axis=1).mean()
    assert moved[True] < 0.02
    assert moved[False] > 0.3


def rows_of(rows: Any) -> list[dict[str, float]]:
    return [{"a": float(a), "b": float(b)} for a, b in rows]


@pytest.mark.filterwarnings("ignore::fedfairx.errors.ClockWarning")
def test_an_extension_that_was_rolled_back_is_not_what_columns_mean(tmp_path: Path) -> None:
    place = tmp_path / "agent.db"
    with ffx.Agent.open(place, schema=FIRST) as agent:
        now = [4_000_000_000]  # seconds: ahead of the real clock, which `Agent.open` looks at first
        agent.journal.log.clock = lambda: now[0] * 10**9
        taught(agent, 3)
        now[0] += 10
        agent.extend_schema(SECOND)
        late = agent.decide(actions=ROWS, context=BONN)
        assert agent.roll_back(to=now[0]).withdrawn == 1
        assert agent.schema == FIRST
        agent.verify()
    assert read_feature_schema(place) == FIRST.to_dict()
    with ffx.Agent.open(place, schema=SECOND) as agent:
        assert agent.schema == FIRST.extend(SECOND)
        assert len(agent.decide(actions=ROWS, context=BONN).theta) == len(late.theta)
        agent.verify()
    assert read_feature_schema(place) == FIRST.extend(SECOND).to_dict()
