"""Rewards that were booked wrongly: once replaced, it is as if the right ones had come in the first place."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from federation_helpers import D, contexts
from fedfairx.agent import persistence
from fedfairx.errors import (
    AlreadyObserved,
    InvalidInput,
    ReplacementRefused,
    StorageUnavailable,
    UnknownDecision,
)
from fedfairx.privacy import Bounds, Centring
from fedfairx.steps import Ended
from fedfairx.storage import DecisionNote
from states import told

BUDGET = ffx.Budget(epsilon=4.0, delta=0.1, releases=10)
WRONG, RIGHT = 0.875, 0.25


def live(agent: ffx.Agent, rewards: dict[int, float], rounds: int = 60, seed: int = 0) -> list[str]:
    """Actions are the caller's own, so that lives with other rewards have the same records."""
    rng, ids = np.random.default_rng(seed), []
    named = agent.actions
    for t in range(rounds):
        note = DecisionNote(mode="shadow", baseline=int(rng.integers(3)))
        rows: Any = named[:3] if named else contexts(rng, 3)
        made = agent.decide(rows, note=note)
        ids.append(made.id)
        reward = float(rng.random())
        if t % 5:
            agent.observe(made, reward=rewards.get(t, reward))
        if t % 13 == 12 and not named:
            agent.learn(contexts(rng, 2), rng.random(2))
    return ids


def leaf(agent: ffx.Agent) -> Any:
    """The open leaf of a private agent."""
    inner = agent.privatizer.stream
    assert inner is not None
    return inner._position


ON_A_SERVER = ("expected-merit", "actions", "own+released")  # the others have the same tables
SETTINGS: dict[str, dict[str, Any]] = {
    "expected-merit": {"dimension": D},
    "optimism": {"dimension": D, "rule": "optimism"},
    "clipped": {"dimension": D, "bounds": Bounds(reward=0.5)},
    "actions": {"actions": ["ann", "ben", "cid", "dan"]},
    "released": {"dimension": D, "budget": BUDGET},
    "own+released": {
        "dimension": D,
        "budget": ffx.Budget(epsilon=4.0, releases=9, decide_from="own+released"),
    },
    "centred": {
        "dimension": D,
        "budget": ffx.Budget(
            epsilon=4.0,
            releases=9,
            bounds=Bounds(),
            centring=Centring.unit_box(D),
            decide_from="released+local",
        ),
    },
}


@pytest.mark.long
@pytest.mark.parametrize(
    "kind",
    [
        pytest.param(kind, marks=[] if kind in ON_A_SERVER else pytest.mark.slow_on_server)
        for kind in SETTINGS
    ],
)
def test_it_is_as_if_the_right_reward_had_come(
    kind: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """To the bit, with snapshots before and after the reward, and across a restart."""
    monkeypatch.setattr(persistence, "SNAPSHOT_EVERY", 17)
    settings = {"seed": 3, "name": "a", **SETTINGS[kind]}
    with (
        ffx.Agent.open(place, **settings) as agent,
        ffx.Agent.open(tmp_path / "right.db", **settings) as right,
    ):
        ids = live(agent, {11: WRONG, 41: 5.0})
        live(right, {11: RIGHT, 41: RIGHT})
        assert agent.decide_from == "released" or told(agent) != told(right)
        before = agent.journal.log.end
        agent.observe(ids[11], reward=RIGHT, replace=True)
        agent.observe(ids[41], reward=RIGHT, replace=True)
        assert agent.journal.log.end == before + 2  # an event each
        assert told(agent) == told(right)
        assert (agent.estimate == right.estimate).all()
        assert agent.noise_sd == right.noise_sd
        assert (agent.observed, agent.pending) == (right.observed, right.pending)
        ours, theirs = agent.own_sums(), right.own_sums()
        assert (ours is None and theirs is None) or (ours == theirs).all()
        if agent.private:
            assert leaf(agent).leaf == pytest.approx(leaf(right).leaf, abs=1e-12)
            assert (leaf(agent).leaf_count, leaf(agent).clipped) == (
                leaf(right).leaf_count,
                leaf(right).clipped,
            )
        else:
            assert agent.privatizer.state() == right.privatizer.state()
        assert [agent.journal.decision(ids[t]).reward for t in (11, 41)] == [RIGHT, RIGHT]
        agent.verify()
        held = leaf(agent).leaf if agent.private else agent.privatizer.total
        agent.journal.log.closing.clear()  # a crash
        after = told(agent)
    with ffx.Agent.open(place) as agent:
        assert told(agent) == after
        assert ((leaf(agent).leaf if agent.private else agent.privatizer.total) == held).all()
        agent.verify()
        live(agent, {}, rounds=5)  # it goes on
        agent.release()


RANKED = [1.0, 0.5, 0.25]
PRIVATE = ffx.Budget(epsilon=4.0, releases=9, person_records=30, decide_from="own+released")


def live_with_slots(agent: ffx.Agent, right: dict[tuple[int, int], float], rounds: int = 40) -> list[str]:
    """Lists are the caller's own; rewards come together, one by one, in part or never, some are withdrawn."""
    rng, ids = np.random.default_rng(0), []
    for t in range(rounds):
        note = DecisionNote(mode="shadow", baseline=rng.permutation(4)[:3])
        rows: Any = agent.actions or contexts(rng, 4)
        made = agent.decide(rows, slots=RANKED, note=note)
        ids.append(made.id)
        values = {row: right.get((t, slot), float(rng.random())) for slot, row in enumerate(made.actions)}
        person = {"person": f"p{t % 2}"} if agent.private else {}
        first, *others = made.actions
        if t % 4 == 0:
            agent.observe(made, rewards=values, **person)
        elif t % 4 < 3:
            agent.observe(made, rewards={others[1]: values[others[1]], others[0]: None}, **person)
            if t % 4 == 2:
                agent.observe(made, rewards={first: values[first]}, **person)
    return ids


@pytest.mark.long
@pytest.mark.parametrize(
    "settings",
    [
        {"dimension": D},
        pytest.param({"dimension": D, "bounds": Bounds(reward=0.5)}, marks=pytest.mark.slow_on_server),
        pytest.param({"actions": ["ann", "ben", "cid", "dan"]}, marks=pytest.mark.slow_on_server),
        {"dimension": D, "budget": PRIVATE, "slots": RANKED},
    ],
    ids=["features", "clipped", "actions", "private"],
)
def test_it_is_as_if_the_right_rewards_of_slots_had_come(
    settings: dict[str, Any], place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Of decisions that have ended and of one that has not, across snapshots and a restart."""
    monkeypatch.setattr(persistence, "SNAPSHOT_EVERY", 17)
    told_right = {(8, 0): RIGHT, (8, 2): 0.5, (10, 0): RIGHT, (21, 2): RIGHT}
    settings = {"seed": 3, "name": "a", **settings}
    with (
        ffx.Agent.open(place, **settings) as agent,
        ffx.Agent.open(tmp_path / "right.db", **settings) as right,
    ):
        ids, others = (
            live_with_slots(agent, dict.fromkeys(told_right, WRONG)),
            live_with_slots(right, told_right),
        )
        assert told(agent) != told(right)

        def shown(t: int) -> list[int]:
            return [slot.action for slot in agent.journal.decision(ids[t]).slots]

        new = {
            t: {shown(t)[slot]: value for (at, slot), value in told_right.items() if at == t}
            for t in (8, 10, 21)
        }
        agent.observe(ids[8], rewards=new[8], replace=True)
        agent.observe_many([ids[10], ids[21]], [new[10], new[21]], replace=True)
        assert told(agent) == told(right)
        assert (agent.estimate == right.estimate).all()
        assert (agent.observed, agent.pending) == (right.observed, right.pending)
        if agent.private:
            assert leaf(agent).leaf == pytest.approx(leaf(right).leaf, abs=1e-12)
            assert leaf(agent).leaf_count == leaf(right).leaf_count
        end = agent.journal.log.end
        agent.observe(ids[8], rewards=new[8], replace=True)  # the same again
        assert agent.journal.log.end == end
        for t in range(40):
            mine, other = agent.journal.decision(ids[t]), right.journal.decision(others[t])
            assert (mine.status, mine.reward) == (other.status, other.reward)
            rewards = [[slot.reward for slot in each.slots] for each in (mine, other)]
            assert rewards[0] == rewards[1]
        agent.verify()
        agent.journal.log.closing.clear()  # a crash
        after = told(agent)
    with ffx.Agent.open(place) as agent:
        assert told(agent) == after
        agent.verify()
        waiting = agent._pending[int(ids[21].rpartition("-")[2])]
        person = {"person": "p1"} if agent.private else {}
        agent.observe(ids[21], rewards={waiting.actions[0]: 1.0}, **person)  # its sum has the right reward
        assert agent.journal.decision(ids[21]).reward == RIGHT + 1.0
        agent.release()
        with pytest.raises(ReplacementRefused):
            agent.observe(ids[8], rewards={shown_first(agent, ids[8]): WRONG}, replace=True)


def shown_first(agent: ffx.Agent, identity: str) -> int:
    return agent.journal.decision(identity).action


def test_of_several_slots_some_wait_and_some_have_ended(tmp_path: Path) -> None:
    with ffx.Agent.open(tmp_path / "agent.db", dimension=D, seed=0) as agent:
        made, one = (
            agent.decide(contexts(np.random.default_rng(0), 4), slots=slots) for slots in (RANKED, 1)
        )
        first, second, third = made.actions
        agent.observe(made, rewards={first: WRONG, second: None})
        before, end = told(agent), agent.journal.log.end
        for given, why in (
            ({first: RIGHT, second: RIGHT}, AlreadyObserved),  # it was withdrawn
            ({first: None}, InvalidInput),
            ({first: RIGHT, third: "much"}, InvalidInput),
            ({first: RIGHT, 99: 1.0}, InvalidInput),
            (RIGHT, InvalidInput),
        ):
            with pytest.raises(why):
                agent.observe_many([one, made], [0.5, given], replace=True)
        with pytest.raises(InvalidInput, match="reward is of one slot"):
            agent.observe(made, reward=1.0, replace=True)
        assert (told(agent), agent.journal.log.end) == (before, end)
        agent.observe(made, rewards={first: RIGHT, third: 0.5}, replace=True)  # one is replaced, one is new
        kept = agent.journal.decision(made.id)
        assert (kept.status, kept.reward, agent.pending) == ("rewarded", RIGHT + 0.5, 1)
        assert [(slot.status, slot.reward) for slot in kept.slots] == [
            ("rewarded", RIGHT),
            ("withdrawn", None),
            ("rewarded", 0.5),
        ]
        agent.observe(made.id, rewards={third: 1.0}, replace=True)
        assert agent.journal.decision(made.id).reward == RIGHT + 1.0
        agent.observe(one, rewards=[0.5], replace=True)
        agent.observe(one.id, rewards={one.actions[0]: 0.25}, replace=True)
        assert agent.journal.decision(one.id).reward == 0.25
        agent.verify()
    with ffx.Agent.open(tmp_path / "agent.db") as agent:
        assert (agent.observed, agent.pending) == (3, 0)


def test_one_that_waits_is_taken_and_the_same_again_changes_nothing(place: str) -> None:
    with ffx.Agent.open(place, dimension=D, seed=0) as agent:
        ids = live(agent, {}, rounds=7)
        agent.observe(ids[5], reward=0.5, replace=True)
        before, end = told(agent), agent.journal.log.end
        for _ in range(2):
            agent.observe(ids[5], reward=0.5, replace=True)
        assert (told(agent), agent.journal.log.end) == (before, end)
        assert [each for each in agent.journal.entries() if hasattr(each.step, "kind")] == []


def test_what_was_there_before_is_kept(place: str) -> None:
    with ffx.Agent.open(place, dimension=D, seed=0) as agent:
        made = agent.decide(contexts(np.random.default_rng(0)))
        agent.observe(made, reward=WRONG)
        agent.observe(made, reward=RIGHT, replace=True)
        agent.observe(made, reward=0.125, replace=True)
        question = "SELECT decision, turn, reward, time FROM outcomes ORDER BY seq"
        rows = agent.journal.log.database.execute(question)
        assert [row[:3] for row in rows] == [
            (made.number, turn, reward) for turn, reward in enumerate((WRONG, RIGHT, 0.125))
        ]
        assert 0 < rows[0][3] <= rows[1][3] <= rows[2][3]
        kept = agent.journal.decision(made.id)
        assert (kept.reward, kept.reward_time) == (0.125, rows[0][3] / 1e6)
        ended = [each.step for each in agent.journal.entries() if isinstance(each.step, Ended)]
        assert ended == [Ended(made.number, {0: 0.125})]
        assert agent.journal.counts()["rewarded"] == 1


def test_several_are_replaced_together_or_not_at_all(place: str, tmp_path: Path) -> None:
    settings = {"dimension": D, "seed": 0, "name": "a"}
    with (
        ffx.Agent.open(place, **settings) as agent,
        ffx.Agent.open(tmp_path / "right.db", **settings) as right,
    ):
        ids = live(agent, {2: WRONG, 3: WRONG, 4: WRONG}, rounds=12)
        other = live(right, {2: RIGHT, 3: 0.5, 4: WRONG}, rounds=12)
        agent.forget(ids[0])
        right.forget(other[0])
        before = told(agent)
        some = [ids[2], ids[3], ids[5]]
        for odd, why in (
            (ids[0], AlreadyObserved),
            ("nobody-1", UnknownDecision),
            (ids[2], AlreadyObserved),
        ):
            with pytest.raises(why):
                agent.observe_many([*some, odd], [RIGHT] * 4, replace=True)
        with pytest.raises(InvalidInput, match="as many as the 3"):
            agent.observe_many(some, [RIGHT] * 2, replace=True)
        with pytest.raises(InvalidInput, match="at most"):
            agent.observe_many(some, [RIGHT, 1e100, RIGHT], replace=True)
        assert told(agent) == before
        agent.observe_many(some, [RIGHT, 0.5, 0.75], replace=True)  # ids[5] waited
        right.observe(other[5], reward=0.75)
        assert told(agent) == told(right)


@pytest.mark.parametrize("kind", ["expected-merit", "own+released"])
def test_steps_of_the_same_transaction_see_it(kind: str, place: str, tmp_path: Path) -> None:
    """Among them a reward that is not on disk yet, and a release, which must hold what a restart would."""
    settings = {"seed": 3, "name": "a", **SETTINGS[kind]}
    with (
        ffx.Agent.open(place, **settings) as agent,
        ffx.Agent.open(tmp_path / "right.db", **settings) as right,
    ):
        with agent.transaction():
            ids = live(agent, {1: WRONG, 7: WRONG}, rounds=10)
            agent.observe_many([ids[1], ids[7]], [RIGHT, RIGHT], replace=True)
            more = live(agent, {}, rounds=10, seed=1)
            with pytest.raises(AlreadyObserved):
                agent.observe(more[1], reward=0.5)
            release = agent.release()
        live(right, {1: RIGHT, 7: RIGHT}, rounds=10)
        live(right, {}, rounds=10, seed=1)
        if not agent.private:
            assert (release.packed == right.release().packed).all()
            assert told(agent)["learner"] == told(right)["learner"]
        before = told(agent)
        agent.verify()
        agent.journal.log.closing.clear()  # a crash
    with ffx.Agent.open(place) as agent:
        assert told(agent) == before
        assert agent.release(1) == release


def test_a_commit_that_fails_leaves_the_old_reward(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    with ffx.Agent.open(place, **SETTINGS["own+released"], name="a", seed=0) as agent:
        ids = live(agent, {2: WRONG}, rounds=12)
        before, held = told(agent), leaf(agent).leaf
        database = agent.journal.log.database

        def full() -> None:
            raise StorageUnavailable("no room")

        with monkeypatch.context() as patch, pytest.raises(StorageUnavailable):
            patch.setattr(database, "commit", full)
            agent.observe(ids[2], reward=RIGHT, replace=True)
        assert told(agent) == before
        assert (leaf(agent).leaf == held).all()
        assert agent.journal.decision(ids[2]).reward == WRONG
        agent.observe(ids[2], reward=RIGHT, replace=True)
        assert told(agent) != before
        agent.verify()


# --- what is refused --------------------------------------------------------------------------------------


@pytest.mark.parametrize("kind", ["expected-merit", "own+released"])
def test_what_is_in_a_release_stays(kind: str, place: str) -> None:
    with ffx.Agent.open(place, seed=0, name="a", **SETTINGS[kind]) as agent:
        ids = live(agent, {}, rounds=9)
        agent.release()
        later = live(agent, {}, rounds=9, seed=1)
        before = told(agent)
        with pytest.raises(ReplacementRefused, match=f"{ids[2]} is in release 1 already .* let a new agent"):
            agent.observe(ids[2], reward=RIGHT, replace=True)
        with pytest.raises(ReplacementRefused):
            agent.observe_many([later[2], ids[2]], [RIGHT, RIGHT], replace=True)
        assert told(agent) == before
        old = agent.journal.decision(ids[2]).reward
        agent.observe(ids[2], reward=old, replace=True)  # it is the same
        agent.observe(later[2], reward=RIGHT, replace=True)
        agent.observe(ids[5], reward=RIGHT, replace=True)  # it waited: it is in no release
        released = agent.release()
        agent.absorb({"a": released})
        with pytest.raises(ReplacementRefused, match="is in release 2"):
            agent.observe(later[2], reward=0.0, replace=True)
        agent.verify()


def test_a_federated_one_is_offered_a_new_run(tmp_path: Path) -> None:
    with ffx.Agent.open(tmp_path / "agent.db", dimension=D, seed=0, name="a") as agent:
        ids = live(agent, {}, rounds=9)
        other = ffx.Agent(D, name="b")
        agent.absorb({"a": agent.release(), "b": other.release()})
        with pytest.raises(ReplacementRefused, match="create a new run of the federation"):
            agent.observe(ids[2], reward=RIGHT, replace=True)


def test_what_came_from_others_is_taken_in_again(tmp_path: Path) -> None:
    """Partners are judged by one's own rewards, the right ones."""
    other = ffx.Agent(D, name="b")
    rng = np.random.default_rng(5)
    other.learn(contexts(rng, 40), rng.random(40))
    agents, sent = {}, other.release()
    for name, reward in (("wrong", WRONG), ("right", RIGHT)):
        agent = ffx.Agent.open(tmp_path / name, dimension=D, seed=0, name="a", partners="differ")
        ids = live(agent, {2: reward}, rounds=30)
        agent.absorb({"b": sent})
        ids += live(agent, {2: reward}, rounds=30, seed=1)
        agents[name] = agent
        if name == "wrong":
            agent.observe_many([ids[2], ids[32]], [RIGHT, RIGHT], replace=True)
    assert told(agents["wrong"]) == told(agents["right"])
    for agent in agents.values():
        agent.close()


def test_another_run_has_begun(tmp_path: Path) -> None:
    with ffx.Agent.open(tmp_path / "agent.db", dimension=D, seed=0, name="a", budget=BUDGET) as agent:
        ids = live(agent, {}, rounds=9)
        agent.begin_run(BUDGET)
        agent.observe(ids[2], reward=RIGHT, replace=True)  # in no release: it went over to the new run
        later = live(agent, {}, rounds=9, seed=1)
        agent.observe(later[2], reward=RIGHT, replace=True)
        agent.release()
        agent.begin_run(BUDGET)
        for each in (ids[2], later[2]):
            with pytest.raises(ReplacementRefused, match="can't be replaced"):
                agent.observe(each, reward=RIGHT / 2, replace=True)
        last = live(agent, {}, rounds=9, seed=2)  # after a run that has released
        total = leaf(agent).leaf.copy()
        x, old = agent.journal.decision(last[2]), agent.journal.decision(last[2]).reward
        agent.observe(last[2], reward=RIGHT, replace=True)
        moved = leaf(agent).leaf - total
        assert moved[-D - 1 :] == pytest.approx(x.contexts[x.action] * (RIGHT - old))
        assert (moved[: -D - 1] == 0).all()


def test_what_has_no_reward_gets_none_so(place: str) -> None:
    with ffx.Agent.open(place, dimension=D, seed=0, window=1e-6, default_reward=0.5) as agent:
        x = contexts(np.random.default_rng(0))
        gone = agent.decide(x)
        agent.forget(gone)
        late = agent.decide(x)
        agent.expire()
        before = told(agent)
        with pytest.raises(AlreadyObserved, match="was forgotten"):
            agent.observe(gone.id, reward=RIGHT, replace=True)
        with pytest.raises(AlreadyObserved, match="has expired"):
            agent.observe(late, reward=RIGHT, replace=True)
        with pytest.raises(UnknownDecision):
            agent.observe("nobody-1", reward=RIGHT, replace=True)
        assert told(agent) == before


def test_an_agent_in_memory_keeps_no_log() -> None:
    agent = ffx.Agent(D, seed=0)
    made = agent.decide(contexts(np.random.default_rng(0)))
    for _ in range(2):
        with pytest.raises(InvalidInput, match="replace must be left out: an agent in memory keeps no log"):
            agent.observe(made, reward=RIGHT, replace=True)
        if made.number in agent._pending:
            agent.observe(made, reward=WRONG)
    assert agent.observed == 1


# --- private ----------------------------------------------------------------------------------------------


def test_a_private_one_takes_any_number_for_any_other(place: str) -> None:
    with ffx.Agent.open(place, **SETTINGS["own+released"], name="a", seed=0) as agent:
        ids = live(agent, {2: float("nan"), 3: 1e300}, rounds=9)
        assert leaf(agent).clipped == 2
        agent.observe(ids[2], reward=float("nan"), replace=True)
        assert [each for each in agent.journal.entries() if hasattr(each.step, "kind")] == []
        agent.observe(ids[2], reward=RIGHT, replace=True)
        agent.observe(ids[3], reward=-0.5, replace=True)
        assert leaf(agent).clipped == 0
        stored = list(agent.journal.decisions(status="rewarded"))
        total = sum(each.contexts[each.action] * each.reward for each in stored)
        assert leaf(agent).leaf[-D - 1 :] == pytest.approx(total)
        agent.observe(ids[3], reward=float("inf"), replace=True)
        assert leaf(agent).clipped == 1
        agent.verify()


def test_of_a_person_no_more_records_enter_than_may(place: str) -> None:
    budget = ffx.Budget(epsilon=2.0, releases=3, person_records=2)
    with ffx.Agent.open(place, dimension=D, budget=budget, name="a", seed=0) as agent:
        x = contexts(np.random.default_rng(0))
        made = [agent.decide(x) for _ in range(4)]
        for each in made[:3]:
            agent.observe(each, reward=0.5, person="Ada")
        held = leaf(agent).leaf.copy()
        agent.observe(made[2].id, reward=1.0, replace=True)  # beyond the limit: blank, and stays so
        assert (leaf(agent).leaf == held).all()
        assert agent.journal.decision(made[2].id).reward == 1.0
        agent.observe(made[1].id, reward=1.0, person="Ada", replace=True)
        assert leaf(agent).leaf[-D - 1 :] == pytest.approx(held[-D - 1 :] + 0.5 * made[1].context)
        with pytest.raises(InvalidInput, match="person must be the one whose record it is"):
            agent.observe(made[1].id, reward=0.25, person="Bob", replace=True)
        agent.observe(made[3], reward=0.5, person="Bob", replace=True)
        agent.learn(x[:1], [0.5], persons=["Bob"])
        agent.observe(made[3].id, reward=0.25, replace=True)  # both of his have entered
        agent.learn(x[:1], [0.5], persons=["Bob"])
        held = leaf(agent).leaf
        with pytest.raises(ReplacementRefused, match="which of them have entered is not kept"):
            agent.observe(made[3].id, reward=0.5, replace=True)
        assert (leaf(agent).leaf == held).all()
        agent.verify()
    with ffx.Agent.open(place) as agent:
        assert (leaf(agent).leaf == held).all()
        assert agent.privatizer.persons.of("Ada") == 3


def test_a_replaced_reward_is_of_the_kind_that_the_first_one_was(tmp_path: Path) -> None:
    with ffx.Agent.open(tmp_path / "agent.db", dimension=2, slots=2) as agent:
        decision = agent.decide(np.eye(3, 2))
        for again in (False, True):
            with pytest.raises(InvalidInput, match="reward"):
                agent.observe(decision, reward=[1.0, 0.0], replace=again)  # type: ignore[arg-type]
        assert agent.pending == 1
