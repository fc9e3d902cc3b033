"""What can be asked of the decisions that are kept."""

from __future__ import annotations

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.errors import InvalidInput
from fedfairx.storage import DecisionNote, database, queries
from fedfairx.storage.api_keys import ApiKeys
from fedfairx.storage.queries import by_time, latest, length_and_head, matching

D = 2


@pytest.fixture
def agent(place: str, monkeypatch: pytest.MonkeyPatch):
    monkeypatch.setattr(database, "PAGE", 4)  # so that there are several
    monkeypatch.setattr("fedfairx.storage.database.PAGE", 4)
    agent = ffx.Agent.open(place, dimension=D, seed=0)
    log, start = agent.journal.log, agent.journal.log.now() // 1_000_000 + 10
    rng = np.random.default_rng(0)
    for second in range(10):
        log.clock = lambda when=second: (start + when) * 10**9
        note = DecisionNote(mode="control", baseline=0) if second == 7 else None
        made = agent.decide(rng.random((3, D)), names=["a", "b", "c"], note=note)
        if second % 3 == 0:
            agent.observe(made, reward=second / 10, person=None)
        elif second == 4:
            agent.forget(made)
    agent.start = start
    yield agent
    agent.close()


def test_they_are_given_in_order_and_in_part(agent: ffx.Agent) -> None:
    ask = agent.journal.decisions
    every = list(ask())
    assert [each.time - agent.start for each in every] == list(range(10))
    assert [each.seq for each in every] == sorted(each.seq for each in every)
    assert [each.id for each in ask(since=agent.start + 3, until=agent.start + 6)] == [
        each.id for each in every[3:6]
    ]
    assert [each.reward for each in ask(status="rewarded")] == [0.0, 0.3, 0.6, 0.9]
    assert [each.reward_time - agent.start for each in ask(status="rewarded")] == [0, 3, 6, 9]
    assert [each.id for each in ask(status="withdrawn")] == [every[4].id]
    assert len(list(ask(status="pending"))) == 5
    for action in range(3):
        assert [each.id for each in ask(action=action)] == [e.id for e in every if e.action == action]
    assert [each.id for each in ask(limit=6)] == [each.id for each in every[:6]]
    assert [each.id for each in ask(after_seq=every[5].seq, limit=2)] == [each.id for each in every[6:8]]
    assert [each.mode for each in ask(mode="live")] == ["live"] * 9
    assert agent.journal.counts() == {"pending": 5, "rewarded": 4, "withdrawn": 1, "expired": 0}
    with pytest.raises(InvalidInput, match="status must be one of pending, rewarded"):
        next(ask(status="lost"))


def test_the_latest_are_given_newest_first(agent: ffx.Agent) -> None:
    every = list(agent.journal.decisions())[::-1]
    for limit in range(1, 12):
        assert [each.id for each in latest(agent.journal, limit=limit)] == [e.id for e in every[:limit]]
        found = latest(agent.journal, limit=limit, before=every[3].seq)
        assert [each.id for each in found] == [each.id for each in every[4 : 4 + limit]]


def test_decisions_and_rewards_are_counted_by_time(agent: ffx.Agent) -> None:
    """Those before `since` are left out, and those after the last interval are counted in it."""
    found = by_time(agent.journal, since=agent.start + 1, width=2.0, count=3)
    assert found == ([2, 2, 5], [0, 1, 2])  # decisions of each second, and rewards of each third one


def test_an_action_is_found_in_every_slot(place: str) -> None:
    """In any slot, and not in a weight, in what was drawn, in a baseline, or in a part of another number."""
    rng, x = np.random.default_rng(0), np.eye(13, D) + 0.1
    with ffx.Agent.open(place, dimension=D, seed=0) as agent:
        for turn in range(60):
            weights = [[1.0], [0.5], [1.0, 0.25], [1.0, 1.0, 0.0], [1.0] * 12][turn % 5]
            rows = rng.permutation(13)[: len(weights)].tolist()
            baseline = rows if turn % 5 else rows[0]
            note = DecisionNote(mode=("live", "shadow", "control")[turn % 3], baseline=baseline)
            agent.decide(x, slots=weights, note=note if turn % 4 else None)
        every = list(agent.journal.decisions())
        shown = {each.id: [slot.action for slot in each.slots] or [each.action] for each in every}
        assert {len(actions) for actions in shown.values()} == {1, 2, 3, 12}
        assert any(slot.drawn != slot.action for each in every for slot in each.slots)
        for action in range(14):
            found = [each.id for each in agent.journal.decisions(action=action)]
            assert found == [each.id for each in every if action in shown[each.id]]
            assert found[:3] == [each.id for each in agent.journal.decisions(action=action, limit=3)]


def test_a_decision_is_whole_and_its_repr_tells_no_data(agent: ffx.Agent) -> None:
    made = next(agent.journal.decisions(status="pending"))
    waiting = agent._pending[made.seq]
    assert made.id == waiting.id
    assert made.policy.tolist() == waiting.policy.tolist()
    assert made.theta.tolist() == waiting.theta.tolist()
    assert made.contexts[made.action].tolist() == waiting.context.tolist()
    assert (made.propensity, made.name, made.drawn) == (waiting.probability, waiting.name, waiting.action)
    assert "contexts" not in repr(made)
    assert str(made.contexts[0, 0])[:6] not in repr(made)
    assert agent.journal.decision("nobody-0") is None
    assert agent.journal.decision(f"{agent._log.prefix}-1") is None  # a reward's number


def test_keys_of_callers(agent: ffx.Agent) -> None:
    keys = ApiKeys(agent.journal.log)
    one, two = keys.add("shop", "decide"), keys.add("owner", "admin")
    assert keys.find(one).name == "shop"
    assert keys.find(two).role == "admin"
    identity, secret = one.split(".")
    for wrong in (
        "",
        ".",
        identity,
        f"{identity}.",
        f"{identity}.{two.split('.')[1]}",
        f".{secret}",
        "a\0.b",
    ):
        assert keys.find(wrong) is None
    keys.revoke(identity)
    assert keys.find(one) is None
    assert {(key.name, key.revoked is None) for key in keys.all()} == {("shop", False), ("owner", True)}
    with pytest.raises(InvalidInput, match="must be the id of one that is in force"):
        keys.revoke(identity)
    rows = agent.journal.log.database.read("SELECT * FROM api_keys")
    assert secret not in str(rows)


def test_decisions_are_found_by_what_they_showed(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """By name, group and status, in either direction, page by page; as a look at each of them says."""
    monkeypatch.setattr(queries, "PAGE", 7)
    names, groups = ["a", "b", 'c"%_\\', "d"], ["g", None, "h", "g"]
    with ffx.Agent.open(place, dimension=D, seed=0) as agent:
        rng = np.random.default_rng(0)
        for t in range(60):
            note = DecisionNote(groups=groups)
            made = agent.decide(rng.random((4, D)), names=names, note=note, slots=2 if t % 4 == 0 else 1)
            if t % 3 == 0:
                agent.forget(made)
        agent.observe(agent.decide(rng.random((2, D))), reward=1.0)  # without names
        every = list(agent.journal.decisions())
        shown = {
            each.id: [slot.action for slot in each.slots] or [each.action] for each in every if each.names
        }
        for name in (None, *names, "nobody"):
            for group in (None, "g", "h"):
                for status in (None, "withdrawn"):
                    right = [
                        each.id
                        for each in every
                        if status in (None, each.status)
                        and (
                            (name is None and group is None)
                            or any(
                                name in (None, names[row]) and group in (None, groups[row])
                                for row in shown.get(each.id, ())
                            )
                        )
                    ]
                    for newest in (False, True):
                        found, at = list[str](), None
                        while True:
                            where = {"before" if newest else "after": at} if at is not None else {}
                            some, at = matching(
                                agent.journal,
                                name=name,
                                group=group,
                                status=status,
                                newest=newest,
                                limit=3,
                                **where,
                            )
                            found += [each.id for each in some]
                            assert len(some) <= 3
                            if at is None:
                                break
                        assert found == (right[::-1] if newest else right)


def test_a_search_ends_after_many_decisions_and_goes_on(agent: ffx.Agent, monkeypatch) -> None:
    monkeypatch.setattr(queries, "PAGE", 2)
    monkeypatch.setattr(queries, "SEARCHED", 4)
    some, at = matching(agent.journal, name="nobody", limit=5)
    assert (some, at) == ([], [each.seq for each in agent.journal.decisions()][3])


def test_the_length_and_the_head_are_those_of_the_check(place: str) -> None:
    with ffx.Agent.open(place, dimension=D, seed=0) as agent:
        for _ in range(5):
            agent.observe(agent.decide(np.ones((2, D)) / 2), reward=1.0)
        agent.forget(agent.decide(np.ones((2, D)) / 2))
        end = agent.journal.end()
        assert length_and_head(agent.journal, before=0) == (0, "")
        assert length_and_head(agent.journal, before=end) == (12, agent.journal.head().hex())
        before = agent.journal.head(before=end - 1).hex()
        assert length_and_head(agent.journal, before=end - 1) == (11, before)
