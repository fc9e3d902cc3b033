"""What leaves the log: old contexts, and the records of a person. What is rolled back stays in it."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.agent import persistence
from fedfairx.core.statistics import add_one, unpack
from fedfairx.errors import AlreadyObserved, InvalidInput, OlderCopy, ReplacementRefused, StateError
from fedfairx.privacy import Centring
from fedfairx.steps import Dropped
from fedfairx.storage import DecisionNote, Deletion
from fedfairx.storage.amendments import Amendments
from fedfairx.storage.open_log import open_for_reading
from fedfairx.storage.queries import latest, learnt, records
from fedfairx.storage.seals import DIGEST, PREVIOUS, SALT, seal_outcome
from fedfairx.storage.verification import LogCheck, check_logs
from states import told

D = 2
START = 4_000_000_000.0  # seconds: ahead of the real clock, which `Agent.open` looks at first
pytestmark = pytest.mark.filterwarnings("ignore::fedfairx.errors.ClockWarning")


class Clock:
    """The time of a log, which advances by a second with each step of a life."""

    def __init__(self, agent: ffx.Agent, now: float = START) -> None:
        self.now = now
        agent.journal.log.clock = lambda: int(self.now * 1e9)


def contexts(rng: np.random.Generator) -> Any:
    return rng.random((3, D)) / 2


def live(agent: ffx.Agent, clock: Clock, rounds: int, *, seed: int = 0, without: str = "") -> list[str]:
    """Each reward is of a person; those of `without` withdraw their decisions instead.

    Actions are the caller's own, so that lives with other rewards have the same records.
    """
    rng, ids = np.random.default_rng(seed), []
    for t in range(rounds):
        clock.now += 1.0
        note = DecisionNote(mode="shadow", baseline=int(rng.integers(3)), key=f"{seed}-{t}")
        rows: Any = agent.actions[:3] if agent.actions else contexts(rng)
        made = agent.decide(rows, note=note)
        ids.append(made.id)
        person, reward = f"p{rng.integers(5)}", float(rng.random())
        if t % 6 and person == without:
            agent.forget(made)
        elif t % 6:
            agent.observe(made, reward=reward, person=person)
        if t % 13 == 12 and not (agent.actions or agent._counts_persons):
            agent.learn(contexts(rng)[:2], rng.random(2))
    return ids


def check(place: str) -> LogCheck:
    with open_for_reading(place) as database:
        (found,) = check_logs(database)
    assert found.damage is None
    return found


def content(place: str) -> bytes:
    """All bytes of a SQLite database's files."""
    return b"".join(file.read_bytes() for file in sorted(Path(place).parent.glob(Path(place).name + "*")))


# --- by age -----------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        {},
        pytest.param({"half_life": "1m"}, marks=pytest.mark.slow_on_server),
        {"budget": ffx.Budget(epsilon=4.0, releases=9)},
    ],
)
def test_old_contexts_go_and_the_agent_goes_on(
    place: str, kind: Any, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persistence, "SNAPSHOT_EVERY", 25)
    monkeypatch.setattr(persistence, "CHUNK", 7)
    with ffx.Agent.open(place, dimension=D, seed=0, name="a", **kind) as agent:
        clock = Clock(agent)
        ids = live(agent, clock, 60)
        head, before = agent.journal.head(), told(agent)
        assert agent.drop_contexts(before=START + 31, rule="30s", limit=10) == 10
        assert agent.drop_contexts(before=START + 31, rule="30s") == 17  # 25 ended, and two that were learnt
        assert agent.drop_contexts(before=START + 31, rule="30s") == 0
        assert told(agent) == before
        assert agent.journal.head() != head  # the event is in the chain
        whole = [made.id for made in agent.journal.decisions()]
        assert whole == [*ids[:30:6], *ids[30:]]  # those that wait, and the newer half
        gone, kept = agent.journal.decision(ids[1]), agent.journal.decision(ids[0])
        assert (gone.gone, gone.status, gone.key) == (True, "rewarded", None)
        assert gone.reward is not None
        assert (kept.gone, kept.status, kept.contexts.shape) == (False, "pending", (3, D + 1))
        assert [made.id for made in latest(agent.journal, limit=35)] == whole[::-1]
        assert sum(len(rewards) for *_, rewards in records(agent.journal, D + 1, first=0, end=9999)) == 25
        assert sum(len(rewards) for *_, rewards in learnt(agent.journal, first=0, end=9999)) == 4
        agent.verify()
        with pytest.raises(AlreadyObserved):
            agent.observe(ids[1], reward=0.5)
        with pytest.raises(ReplacementRefused, match="was dropped or deleted"):
            agent.observe(ids[1], reward=0.5, replace=True)
        agent.observe(ids[0], reward=0.5)  # it waited
        assert agent.drop_contexts(before=START + 31) == 0  # a replay still needs it
        live(agent, clock, 60, seed=1)
        assert agent.drop_contexts(before=clock.now) > 30
        assert agent.journal.decision(ids[0]).gone
        before = told(agent)
        agent.verify()
        agent.journal.log.closing.clear()  # a crash
    found = check(place)
    assert (found.dropped, found.deleted) == (108, 0)
    assert "108 rows from before 2096-10-02T07:08:40 UTC dropped" in found.gone
    with ffx.Agent.open(place) as agent:
        assert told(agent) == before
        agent.verify()


def test_a_damaged_snapshot_is_done_without(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Two snapshots are kept ahead of what is dropped."""
    place = str(tmp_path / "agent.db")
    with ffx.Agent.open(place, dimension=D, seed=0) as agent:
        clock = Clock(agent)
        live(agent, clock, 20)
        assert agent.drop_contexts(before=clock.now) == 16
        snapshots = agent.journal.snapshot_numbers()
        assert len(snapshots) == 2
        before = told(agent)
        agent.journal.log.closing.clear()
    with sqlite3.connect(place) as file:
        file.execute("UPDATE snapshots SET body = 'x' WHERE seq = ?", (snapshots[1],))
    with ffx.Agent.open(place) as agent:
        assert told(agent) == before
        agent.journal.log.closing.clear()
    with sqlite3.connect(place) as file:
        file.execute("UPDATE snapshots SET body = 'x'")
    with pytest.raises(StateError, match="no sound snapshot"):
        ffx.Agent.open(place)


def test_space_is_used_again(tmp_path: Path) -> None:
    place, rng = str(tmp_path / "agent.db"), np.random.default_rng(0)
    with ffx.Agent.open(place, dimension=D, seed=0) as agent:
        clock, database = Clock(agent), agent.journal.log.database

        def fill() -> int:
            with agent.transaction():
                for _ in range(300):
                    agent.observe(agent.decide(rng.random((60, D)) / 2), reward=0.5)
            clock.now += 10
            return int(database.execute("PRAGMA page_count")[0][0])

        one, two = fill(), fill()
        assert agent.drop_contexts(before=START + 5) == 300
        assert database.execute("PRAGMA freelist_count")[0][0] > 0.7 * one
        assert fill() - two < 0.3 * one


def test_what_is_recent_can_still_be_changed(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """Of the snapshots at equal distances, the first after what is dropped stays."""
    monkeypatch.setattr(persistence, "SNAPSHOT_EVERY", 10)
    with ffx.Agent.open(place, dimension=D, seed=0) as agent:
        clock = Clock(agent)
        ids = live(agent, clock, 200)
        assert len(agent.journal.snapshot_numbers()) == 11
        agent.drop_contexts(before=START + 100)
        first = agent.journal.snapshot_numbers()[0]
        assert first < agent.journal.log.end * 0.7
        between = [made.id for made in agent.journal.decisions(status="rewarded") if made.seq < first - 1]
        with pytest.raises(ReplacementRefused, match="before contexts were dropped by age"):
            agent.observe(between[0], reward=2.0, replace=True)
        agent.observe(ids[151], reward=0.5, replace=True)
        assert agent.delete_person("p1").remaining > 0
        agent.roll_back(to=START + 150)
        with pytest.raises(InvalidInput, match="to must be later"):
            agent.roll_back(to=START + 50)
        agent.verify()
    check(place)


def test_old_snapshots_are_at_about_equal_distances(tmp_path: Path) -> None:
    with ffx.Agent.open(tmp_path / "agent.db", dimension=D, seed=0) as agent:
        for steps in range(1, 100):
            agent.decide(np.eye(D))
            agent._log.take_snapshot()
            numbers = agent.journal.snapshot_numbers()
            assert len(numbers) == min(steps + 1, 11)
            assert numbers[-2:] == [steps - 1, steps]
            assert np.diff(numbers).max() <= max(2.0, 2.5 * steps / 10)


def test_only_an_event_makes_a_row_without_content_sound(place: str) -> None:
    with ffx.Agent.open(place, dimension=D, seed=0) as agent:
        clock = Clock(agent)
        ids = live(agent, clock, 20)
        agent.drop_contexts(before=START + 11)
        database, number = agent.journal.log.database, int(ids[15].rpartition("-")[2])
        database.execute(
            "UPDATE decisions SET contexts = ?, policy = ?, theta = ? WHERE seq = ?", (b"", b"", b"", number)
        )
    with open_for_reading(place) as database:
        (found,) = check_logs(database)
    assert f"step {number} is not as it was written" in (found.damage or "")


@pytest.mark.parametrize(
    "change", ["propensity = 0.111", "key = 'k'", "names = '[]'", "policy = seal", "seal = 7"]
)
@pytest.mark.parametrize("which", [0, 1])  # one that waits, and one that was dropped
def test_no_other_change_is_hidden_by_a_drop(tmp_path: Path, which: int, change: str) -> None:
    place = str(tmp_path / "agent.db")
    with ffx.Agent.open(place, dimension=D, seed=0) as agent:
        ids = live(agent, Clock(agent), 10)
        agent.drop_contexts(before=START + 8)
        number = int(ids[which].rpartition("-")[2])
        agent.journal.log.database.execute(f"UPDATE decisions SET {change} WHERE seq = {number}")
        agent.journal.log.closing.clear()
    with open_for_reading(place) as database:
        (found,) = check_logs(database)
    assert f"step {number} is not as it was written" in (found.damage or "")


def test_content_that_was_removed_is_not_hidden_by_a_drop_of_others(tmp_path: Path) -> None:
    blank = "contexts = x'', policy = x'', theta = x'', action = 0, drawn = 0, propensity = 0, "
    blank += "mode = 'live', baseline = NULL, model_version = 0, key = NULL, seal = substr(seal, 1, 32)"
    with ffx.Agent.open(tmp_path / "agent.db", dimension=D, seed=0) as agent:
        ids = live(agent, Clock(agent), 10)
        agent.drop_contexts(before=START + 8)
        gone = agent.journal.decision(ids[1])
        assert gone is not None
        assert gone.gone
        number = int(ids[-1].rpartition("-")[2])
        agent.journal.log.database.execute(f"UPDATE decisions SET {blank} WHERE seq = {number}")
        with pytest.raises(StateError, match="is damaged"):
            agent.journal.decision(ids[-1])


def test_what_was_dropped_is_told_of_times_before_it_alone() -> None:
    said = Amendments(Dropped(3, until=int(START * 1e6)))
    for since in (None, 0.0, START - 1):
        assert "3 rows from before 2096-10-02T07:06:40 UTC dropped" in (said.gone(since) or "")
    assert said.gone(START) is None


def test_a_decision_that_waits_for_one_of_its_slots_keeps_its_contexts(place: str) -> None:
    with ffx.Agent.open(place, dimension=D, seed=0, slots=2) as agent:
        clock, rng = Clock(agent), np.random.default_rng(0)
        waits, ended = (agent.decide(contexts(rng)) for _ in range(2))
        agent.observe(waits, rewards={waits.actions[0]: 0.5})
        agent.observe(ended, rewards=[0.5, 0.25])
        clock.now += 100
        assert agent.drop_contexts(before=clock.now) == 1
        assert [agent.journal.decision(each.id).gone for each in (waits, ended)] == [False, True]
        agent.observe(waits, rewards={waits.actions[1]: 0.25})
        agent.verify()


def test_what_must_not_be_dropped(tmp_path: Path) -> None:
    with ffx.Agent.open(tmp_path / "agent.db", dimension=D) as agent:
        with pytest.raises(InvalidInput, match="outside of a transaction"), agent.transaction():
            agent.drop_contexts(before=START)
        for odd in (-1, 1e11):  # milliseconds are more
            with pytest.raises(InvalidInput, match="before must be a time in seconds since 1970"):
                agent.drop_contexts(before=odd)
        assert agent.drop_contexts(before=START) == 0
        assert agent.journal.log.end == 0
    for call in (
        lambda agent: agent.drop_contexts(before=START),
        lambda agent: agent.delete_person("ann"),
        lambda agent: agent.roll_back(to=START),
    ):
        with pytest.raises(InvalidInput, match="lives in memory"):
            call(ffx.Agent(D))


# --- a person's records -----------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        {"dimension": D},
        pytest.param({"dimension": D, "rule": "optimism"}, marks=pytest.mark.slow_on_server),
        {"dimension": D, "half_life": 5.0},
        pytest.param({"dimension": D, "half_life": "1m"}, marks=pytest.mark.slow_on_server),
        pytest.param(
            {"dimension": D, "bounds": ffx.privacy.Bounds(reward=0.5)}, marks=pytest.mark.slow_on_server
        ),
        {"actions": ["ann", "ben", "cid", "dan"]},
    ],
    ids=lambda kind: "-".join(map(str, kind)),
)
def test_it_is_as_if_the_records_had_never_come(
    kind: Any, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persistence, "SNAPSHOT_EVERY", 17)
    settings = {"seed": 3, "name": "a", **kind}
    with (
        ffx.Agent.open(place, **settings) as agent,
        ffx.Agent.open(tmp_path / "other.db", **settings) as other,
    ):
        clocks = Clock(agent), Clock(other)
        live(agent, clocks[0], 80)
        live(other, clocks[1], 80, without="p2")
        assert told(agent) != told(other)
        deleted = agent.delete_person("p2")
        assert deleted.rewards == deleted.decisions > 5
        assert (deleted.sent, deleted.remaining, deleted.shared, deleted.release) == (0, 0, 0, None)
        assert told(agent) == told(other)
        assert agent.privatizer.state() == other.privatizer.state()
        assert (agent.estimate == other.estimate).all()
        assert agent.delete_person("p2") == Deletion()  # there is nothing left
        for each, clock in zip((agent, other), clocks, strict=True):
            live(each, clock, 20, seed=1)
        assert told(agent)["learner"] == told(other)["learner"]
        agent.verify()
        before = told(agent)
        agent.journal.log.closing.clear()  # a crash
    found = check(place)
    assert found.deleted == 2 * deleted.rewards
    assert f"{found.deleted} rows deleted in 1 deletion" in found.gone
    with ffx.Agent.open(place) as agent:
        assert told(agent) == before
        agent.verify()


def test_no_byte_of_it_stays(tmp_path: Path) -> None:
    place = str(tmp_path / "agent.db")
    odd = 0.123456789012345
    with ffx.Agent.open(place, dimension=D, seed=0) as agent:
        clock = Clock(agent)
        live(agent, clock, 10)
        made = agent.decide([[odd, 0.5], [0.5, odd]], names=["xanthippe", "yorick"])
        agent.observe(made, reward=odd, person="a-person-of-note")
        live(agent, clock, 10, seed=1)
    traces = [b"a-person-of-note", b"xanthippe", np.float64(odd).tobytes(), np.float64(odd).tobytes()[::-1]]
    assert all(trace in content(place) for trace in traces)
    with ffx.Agent.open(place) as agent:
        said = str(agent.delete_person("a-person-of-note"))
        assert said.startswith("Deleted: 1 decision and 1 reward; 0 decisions waited")
    assert not any(trace in content(place) for trace in traces)


def test_a_guess_of_what_was_deleted_fits_no_digest(tmp_path: Path) -> None:
    """The salts go with the content: of decisions, also one that waits, of a reward and its replacement."""
    place = str(tmp_path / "agent.db")
    with ffx.Agent.open(place, dimension=D, seed=0) as agent:
        live(agent, Clock(agent), 20)
        made, waits = agent.decide(np.eye(D)), agent.decide(np.eye(D))
        agent.observe(made, reward=1.0, person="patient-4711")
        agent.observe(made, reward=0.0, replace=True)
        execute = agent.journal.log.database.execute
        guesses = agent.journal.outcomes(made.number)
        numbers = (made.number, waits.number)
        seals = [
            seal
            for (seal,) in execute("SELECT seal FROM decisions WHERE seq IN (?, ?) ORDER BY seq", numbers)
        ] + [row[-1] for row in guesses]
        salts = {seal[SALT] for seal in seals}
        assert [len(salt) for salt in salts] == 4 * [16]
        assert all(salt in content(place) for salt in salts)
        agent.delete_person("nobody", decisions=[waits])
        agent.delete_person("patient-4711")
        assert not any(salt in content(place) for salt in salts)  # while it is open, too
        for guess, (after,) in zip(
            guesses,
            execute("SELECT seal FROM outcomes WHERE decision = ? ORDER BY seq", (made.number,)),
            strict=True,
        ):
            assert after == guess[-1][:32]
            assert seal_outcome(after[PREVIOUS], guess[-1][SALT], guess)[DIGEST] == after[DIGEST]
            for salt in (b"", after[PREVIOUS], after[DIGEST]):
                assert seal_outcome(after[PREVIOUS], salt, guess)[DIGEST] != after[DIGEST]
    assert not any(salt in content(place) for salt in salts)
    assert check(place).deleted == 5  # with the outcome of the one that waited


def test_a_log_that_was_learnt_loses_its_salt_with_its_rows(place: str) -> None:
    with ffx.Agent.open(place, dimension=D, seed=0) as agent:
        live(agent, Clock(agent), 20)  # the 13th of which learns
        dropped = agent.drop_contexts(before=START + 15)
        question = "SELECT LENGTH(body), LENGTH(seal) FROM events WHERE kind = 'learn'"
        assert agent.journal.log.database.execute(question) == [(8, 32)]
        agent.verify()
    assert check(place).dropped == dropped


def test_a_row_without_content_that_has_a_salt_is_damaged(place: str) -> None:
    """Else the salt of one that was deleted could be put back, for guesses, unnoticed."""
    with ffx.Agent.open(place, dimension=D, seed=0) as agent:
        live(agent, Clock(agent), 10)
        agent.delete_person("p0")
        database = agent.journal.log.database
        ((seq, seal),) = database.execute("SELECT seq, seal FROM outcomes WHERE status = 'deleted' LIMIT 1")
        database.execute("UPDATE outcomes SET seal = ? WHERE seq = ?", (seal + bytes(16), seq))
    with open_for_reading(place) as reader:
        (found,) = check_logs(reader)
    assert f"step {seq} is not as it was written" in (found.damage or "")


def test_what_waits_is_withdrawn_and_what_others_have_stays(place: str, tmp_path: Path) -> None:
    settings = {"dimension": D, "seed": 0, "name": "a", "slots": 3}
    x = np.eye(4, D) / 2
    with (
        ffx.Agent.open(place, **settings) as agent,
        ffx.Agent.open(tmp_path / "other.db", **settings) as other,
    ):
        alone, both, waits, plain = (agent.decide(x) for _ in range(4))
        one = agent.decide(x, slots=1)
        ours = [other.decide(x) for _ in range(4)], other.decide(x, slots=1)
        agent.observe(alone, rewards=[0.1, 0.2, 0.3], person="ann")
        agent.observe(both, rewards={both.actions[0]: 0.4}, person="ann")
        agent.observe(both, rewards={both.actions[1]: 0.5}, person="ben")
        agent.observe(both, rewards={both.actions[2]: None}, person="ann")
        agent.observe(waits, rewards={waits.actions[1]: 0.6}, person="ann")
        agent.observe(plain, rewards=[0.7, 0.8, 0.9])
        (_, second, _, last), single = ours
        other.observe(second, rewards={second.actions[1]: 0.5})
        other.observe(last, rewards=[0.7, 0.8, 0.9])
        for each in (ours[0][0], second, ours[0][2], single):
            if each.number in other._pending:
                other.forget(each)
        deleted = agent.delete_person("ann", decisions=[one])
        assert (deleted.decisions, deleted.rewards, deleted.withdrawn, deleted.shared) == (3, 5, 2, 1)
        assert told(agent) == told(other)
        stored = [agent.journal.decision(each.id) for each in (alone, both, waits, plain, one)]
        assert [each.gone for each in stored] == [True, False, True, False, True]
        assert [each.status for each in stored] == ["deleted", "rewarded", "deleted", "rewarded", "withdrawn"]
        assert [(slot.reward, slot.person) for slot in stored[1].slots] == [
            (None, None),
            (0.5, "ben"),
            (None, None),
        ]
        assert stored[1].reward == 0.5
        with pytest.raises(AlreadyObserved, match="was deleted"):
            agent.observe(waits, rewards={waits.actions[0]: 0.1})
        agent.verify()
    assert check(place).rewards == 4


def test_a_slot_says_that_its_reward_was_deleted(tmp_path: Path) -> None:
    with ffx.Agent.open(tmp_path / "agent.db", dimension=D, slots=2) as agent:
        made = agent.decide(np.eye(3, D))
        for action, person in zip(made.actions, ("p1", "p2"), strict=True):
            agent.observe(made, rewards={action: 0.5}, person=person)
        assert agent.delete_person("p2").shared == 1
        with pytest.raises(AlreadyObserved, match=r"slot 2, was deleted"):
            agent.observe(made, rewards={made.actions[1]: 0.25}, replace=True)


@pytest.mark.parametrize(("reward", "status", "total"), [(None, "deleted", None), (0.25, "rewarded", 0.25)])
def test_a_sum_of_no_rewards_is_deleted(
    reward: float | None, status: str, total: float | None, place: str
) -> None:
    with ffx.Agent.open(place, dimension=D, slots=2) as agent:
        made = agent.decide(np.eye(3, D))
        for action, each, person in zip(made.actions, (0.5, reward), ("p1", "p2"), strict=True):
            agent.observe(made, rewards={action: each}, person=person)
        assert agent.delete_person("p1").shared == 1
        decision = agent.journal.decision(made.id)
        assert decision is not None
        assert (decision.status, decision.reward) == (status, total)
        agent.verify()
        assert agent.delete_person("p1").rewards == 0  # it is done
        agent.verify()
    assert check(place).damage is None


@pytest.mark.parametrize("slots", [1, 2])
@pytest.mark.parametrize("budget", [None, ffx.Budget(epsilon=4.0, releases=9, decide_from="released+local")])
def test_a_default_reward_is_deleted_with_its_decision(
    slots: int, budget: ffx.Budget | None, place: str
) -> None:
    rows, settings = None, {"actions": ["ann", "ben", "cid"], "slots": slots, "budget": budget}
    if budget is not None:
        rows, settings = np.eye(3), {**settings, "dimension": 3}
    with ffx.Agent.open(place, seed=0, window=10.0, default_reward=0.25, **settings) as agent:
        agent.observe(agent.decide(rows), rewards=[0.5] * slots)
        before, waits = agent.estimate, agent.decide(rows)
        agent.expire(now=9e9)
        assert (agent.estimate != before).any()
        deletion = agent.delete_person("p1", decisions=[waits])
        assert (deletion.decisions, deletion.rewards) == (1, slots)
        assert agent.estimate.tolist() == before.tolist()
        decision = agent.journal.decision(waits.id)
        assert decision is not None
        assert decision.status == "deleted"
        agent.verify()
    with ffx.Agent.open(place) as agent:
        assert agent.estimate.tolist() == before.tolist()


@pytest.mark.long
def test_in_a_private_agent_what_was_sent_stays(place: str, tmp_path: Path) -> None:
    """The open leaf holds a blank record in its place, and its own sums are without it."""
    for at, budget in enumerate(
        (
            ffx.Budget(epsilon=4.0, releases=9, person_records=3, decide_from="own+released"),
            ffx.Budget(epsilon=4.0, releases=9, centring=Centring.unit_box(D), decide_from="released+local"),
            ffx.Budget(epsilon=4.0, releases=9, decide_from="released"),
        )
    ):
        settings, start = {"dimension": D, "seed": 0, "name": f"a{at}", "budget": budget}, START + 100 * at
        with (
            ffx.Agent.open(place, **settings) as agent,
            ffx.Agent.open(tmp_path / "other.db", **settings) as other,
        ):
            for each in (agent, other):
                live(each, Clock(each, start), 24)
                each.release()
                live(each, Clock(each, start + 24), 30, seed=1, without="p1" if each is other else "")
            mine = [
                sum(made.person == "p1" for made in agent.journal.decisions(until=until))
                for until in (start + 24.5, None)
            ]
            assert 0 < mine[0] < mine[1]
            waiting = agent.privatizer.waiting
            deleted = agent.delete_person("p1")
            assert (deleted.rewards, deleted.sent, deleted.remaining) == (mine[1], mine[0], 0)
            assert "stay, under noise, in messages that were sent" in str(deleted)
            assert agent.privatizer.waiting == waiting == agent.unreleased
            inner, theirs = agent.privatizer.stream, other.privatizer.stream
            assert inner is not None
            assert theirs is not None
            blank = mine[1] - mine[0]
            if budget.person_records is None:
                leaf, expected = inner._position.leaf, theirs._position.leaf.copy()
                nothing = (np.zeros(D + 1), 0.0) if inner.centring is None else inner.centring.blank
                x, y, _ = inner._clip(*nothing)  # the intercept counts
                part = np.zeros_like(expected)
                add_one(part, np.ascontiguousarray(x), float(y))
                expected += blank * part
                assert leaf == pytest.approx(expected, abs=1e-12)
            if budget.decide_from == "own+released":
                both = [
                    made
                    for made in other.journal.decisions()
                    if made.reward is not None and made.person != "p1"
                ]
                own = sum(np.outer(made.context, made.context) for made in both)
                more = [rows for _, rows, _, _ in learnt(other.journal, first=0, end=9999)]
                own = own + sum(rows.T @ rows for rows in more)
                assert unpack(agent.own_sums())[0] == pytest.approx(own, abs=1e-9)
            agent.verify()
            before = told(agent)
            release = agent.release()
            assert release.count == other.release().count + blank
            agent.verify()
        with ffx.Agent.open(place, name=f"a{at}") as agent:
            assert agent.release(2) == release
            assert told(agent) != before
            agent.verify()


def test_a_decision_that_waited_at_a_snapshot_can_be_deleted(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Where features have names: its contexts are gone when the snapshot is read, and can't be lengthened."""
    monkeypatch.setattr(persistence, "SNAPSHOT_EVERY", 1)
    schema = ffx.features.Schema({"x": (0, 1)})
    with ffx.Agent.open(place, schema=schema, name="a") as agent:
        made = agent.decide([{"x": 0.0}, {"x": 1.0}])
        agent.observe(made, reward=1.0, person="ann")
        agent.extend_schema(ffx.features.Schema({"x": (0, 1), "y": (0, 1)}))
        assert agent.delete_person("ann").rewards == 1
        before = agent.state()
    with ffx.Agent.open(place) as agent:
        assert agent.state() == before
        agent.verify()


@pytest.mark.parametrize("again", [True, False])
def test_a_deleted_record_counts_the_same_after_a_restart(tmp_path: Path, again: bool) -> None:
    """Sizes are estimated again after the same reward, whether the agent was opened again or not."""
    found, budget = [], ffx.Budget(epsilon=2.0, releases=4)
    for opened_again in (False, again):
        place, rng = tmp_path / f"{len(found)}.db", np.random.default_rng(0)
        agent = ffx.Agent.open(place, dimension=D, name="a", seed=0, budget=budget)
        for _ in range(2):
            agent.observe(agent.decide(contexts(rng)), reward=1.0, person="ann")
        agent.delete_person("ann")
        if opened_again:
            agent.close()
            agent = ffx.Agent.open(place)
        agent.observe(agent.decide(contexts(rng)), reward=0.25)
        found.append(agent.state().learner)
        agent.close()
    assert found[0] == found[1]


def test_exact_sums_that_were_sent_are_replaced(place: str) -> None:
    """Under a new number: no number has two contents."""
    fed = ffx.Agent(D, name="peer", seed=1)
    fed.observe(fed.decide(np.eye(D)), reward=0.5)
    with ffx.Agent.open(place, dimension=D, seed=0, name="a") as agent:
        clock = Clock(agent)
        live(agent, clock, 12)
        sent = agent.release()
        agent.absorb({"peer": fed.release(), "a": sent})
        live(agent, clock, 12, seed=1)
        deleted = agent.delete_person("p2")
        assert 0 < deleted.sent < deleted.rewards
        assert deleted.release == agent.released == 2
        assert "until they take release 2" in str(deleted)
        assert agent.release(2).count == agent.observed
        agent.verify()
        agent.journal.log.closing.clear()
        before = told(agent)
    with ffx.Agent.open(place) as agent:
        assert told(agent) == before
        agent.verify()


def test_a_restored_copy_has_the_records_again(tmp_path: Path) -> None:
    place, copy = tmp_path / "agent.db", tmp_path / "copy.db"
    with ffx.Agent.open(place, dimension=D, seed=0) as agent:
        live(agent, Clock(agent), 20)
    shutil.copy(place, copy)
    with ffx.Agent.open(place) as agent:
        deleted = agent.delete_person("p1")
        after = told(agent)
    shutil.copy(copy, place)
    with pytest.raises(OlderCopy):
        ffx.Agent.open(place)
    with ffx.Agent.open(copy) as agent:
        assert agent.delete_person("p1") == deleted  # it must be deleted again
        assert told(agent) == after


# --- rollbacks --------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "kind",
    [
        {"dimension": D},
        pytest.param({"dimension": D, "half_life": 5.0}, marks=pytest.mark.slow_on_server),
        {"actions": ["ann", "ben", "cid", "dan"]},
    ],
    ids=lambda kind: "-".join(map(str, kind)),
)
def test_it_knows_what_it_knew_then(kind: Any, place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persistence, "SNAPSHOT_EVERY", 17)
    with ffx.Agent.open(place, seed=3, name="a", **kind) as agent:
        clock = Clock(agent)
        ids = live(agent, clock, 40)
        then, mark = told(agent), clock.now + 0.5
        more = live(agent, clock, 40, seed=1)
        agent.observe(ids[0], reward=0.5)  # a late one
        if agent.actions:
            agent.add_actions("eve")
        draws, end = told(agent)["random"], agent.journal.log.end
        undone = agent.roll_back(to=mark)
        assert (undone.decisions, undone.withdrawn, undone.release) == (40, 7, None)
        assert undone.rewards > 30
        now = told(agent)
        if agent.actions:
            assert agent.actions[-1] == "eve"
            assert agent.record_of("eve") == agent.record_of(agent.actions[-1])
            assert now["records"]["names"][:-1] == then["records"]["names"]
            assert {**now["records"], "names": None, "shown_at": None} == {
                **then["records"],
                "names": None,
                "shown_at": None,
            }
        else:
            for part in ("learner", "own", "local_count", "aged"):
                assert now[part] == then[part]
        assert now["random"] == draws  # no draw is used twice
        assert now["pending"] == [number for number in then["pending"] if number != then["pending"][0]]
        assert [made.id for made in agent.journal.decisions() if made.rolled_back] == more
        assert agent.journal.decision(more[1]).status == "rewarded"  # it stays readable
        kept = sum(len(rewards) for *_, rewards in records(agent.journal, agent.columns, first=0, end=end))
        assert kept == 33
        with pytest.raises(ReplacementRefused, match="was rolled back"):
            agent.observe(more[1], reward=0.5, replace=True)
        agent.verify()
        live(agent, clock, 10, seed=2)
        agent.journal.log.closing.clear()  # a crash
        before = told(agent)
    with ffx.Agent.open(place) as agent:
        assert told(agent) == before
        agent.verify()
    check(place)


def test_one_can_return_to_before_a_rollback(place: str) -> None:
    with ffx.Agent.open(place, dimension=D, seed=3) as agent:
        clock = Clock(agent)
        states, marks = [], []
        for seed in range(3):
            live(agent, clock, 15, seed=seed)
            states.append(told(agent)["learner"])
            marks.append(clock.now + 0.5)
        clock.now += 1
        agent.roll_back(to=marks[0])
        assert told(agent)["learner"] == states[0]
        marks.append(clock.now + 0.5)
        clock.now += 1
        live(agent, clock, 5, seed=4)
        agent.roll_back(to=marks[1])  # a time that the first one had undone
        assert told(agent)["learner"] == states[1]
        clock.now += 1
        agent.roll_back(to=marks[3])  # after the first rollback
        assert told(agent)["learner"] == states[0]
        agent.verify()
        assert agent.roll_back(to=clock.now + 9).decisions == 0
    check(place)


def test_numbers_of_releases_do_not_go_back(place: str) -> None:
    with ffx.Agent.open(place, dimension=D, seed=3, name="a") as agent:
        clock = Clock(agent)
        live(agent, clock, 10)
        first = agent.release()
        mark = clock.now + 0.5
        live(agent, clock, 10, seed=1)
        agent.release()
        agent.release()
        undone = agent.roll_back(to=mark)
        assert undone.release == agent.released == 4
        assert (agent.release(4).packed == first.packed).all()
        assert "as a new run" in str(undone)
        agent.verify()
        agent.journal.log.closing.clear()
    with ffx.Agent.open(place) as agent:
        assert agent.released == 4
        agent.verify()


def test_a_private_agent_and_a_member_do_not_go_back(tmp_path: Path) -> None:
    budget = ffx.Budget(epsilon=4.0, releases=9)
    with (
        ffx.Agent.open(tmp_path / "a.db", dimension=D, budget=budget) as agent,
        pytest.raises(InvalidInput, match="a private agent can't go back"),
    ):
        agent.roll_back(to=START)
    with ffx.Agent.open(tmp_path / "b.db", dimension=D) as agent:
        agent.bound = "north"
        with pytest.raises(InvalidInput, match="member of federation north"):
            agent.roll_back(to=START)
        agent.bound = None
        for odd in (-1.0, 1e11, float("nan"), "now"):
            with pytest.raises(InvalidInput, match="to must be seconds since 1970"):
                agent.roll_back(to=odd)


# --- kill -9 ----------------------------------------------------------------------------------------------


STEPS: dict[str, Any] = {
    "drop": lambda agent: agent.drop_contexts(before=START + 30),
    "delete": lambda agent: agent.delete_person("p2"),
    "roll back": lambda agent: agent.roll_back(to=START + 30.5),
}


@pytest.mark.process
@pytest.mark.parametrize("step", STEPS)
def test_killed_between_two_writes_it_is_whole(
    step: str, place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Before and after each commit, until none is left: what is on disk is sound, and can be finished."""
    monkeypatch.setattr(persistence, "CHUNK", 9)
    with ffx.Agent.open(place, dimension=D, seed=0, name="a") as agent:
        live(agent, Clock(agent), 40)
        agent.journal.log.closing.clear()
        before = told(agent)
    kills = 0
    while _killed(place, STEPS[step], kills):
        kills += 1
        check(place)
        with ffx.Agent.open(place) as agent:
            Clock(agent, START + 100)
            agent.verify()
            known = told(agent)
            assert step != "drop" or known == before
            agent.journal.log.closing.clear()
    assert kills > 1
    with ffx.Agent.open(place) as agent:
        Clock(agent, START + 100)
        after = told(agent)
        STEPS[step](agent)  # there is nothing left to do
        assert {**told(agent), "pending": []} == {**after, "pending": []}
        agent.verify()
    found = check(place)
    assert (found.dropped > 20) == (step == "drop")
    assert (found.deleted > 5) == (step == "delete")


def _killed(place: str, step: Any, writes: int) -> bool:
    """Whether a process that takes a step is killed: 0 is before its first commit, 1 after it."""
    child = os.fork()
    if child == 0:
        try:
            with ffx.Agent.open(place) as agent:
                Clock(agent, START + 100)
                database, left = agent.journal.log.database, [writes]
                commit = database.commit

                def count() -> None:
                    left[0] -= 1
                    if left[0] < 0:
                        os.kill(os.getpid(), signal.SIGKILL)

                def counted() -> None:
                    count()
                    commit()
                    count()

                database.commit = counted  # type: ignore[method-assign]
                step(agent)
                database.commit = commit  # type: ignore[method-assign]
                agent.journal.log.closing.clear()
            os._exit(0)
        finally:
            os._exit(1)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    assert code in (0, -signal.SIGKILL)
    return code != 0
