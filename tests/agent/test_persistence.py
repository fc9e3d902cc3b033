"""An agent that is closed and opened: on SQLite and on a real PostgreSQL server alike."""

from __future__ import annotations

import json
import shutil
import threading
import warnings
from dataclasses import replace
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from federation_helpers import D, contexts
from fedfairx.agent import persistence
from fedfairx.errors import (
    AlreadyObserved,
    BudgetExhausted,
    ClockWarning,
    InvalidInput,
    KeyTaken,
    LedgerMismatch,
    OlderCopy,
    StateError,
    StorageUnavailable,
    UnknownDecision,
)
from fedfairx.privacy import Bounds, Centring, Release, refuse_old_copy
from fedfairx.storage import DecisionNote, Journal, open_database
from states import told

BUDGET = ffx.Budget(epsilon=4.0, delta=0.1, releases=10)


def live(agent: ffx.Agent, rounds: int, seed: int = 0, release_every: int = 5) -> list[str]:
    """Decide, observe (not always, not at once), learn, forget, release and absorb."""
    rng = np.random.default_rng(seed)
    waiting, ids = [], []
    for t in range(1, rounds + 1):
        waiting.append(agent.decide(contexts(rng, int(rng.integers(1, 7)))))
        ids.append(waiting[-1].id)
        if len(waiting) > 3:
            agent.observe(waiting.pop(int(rng.integers(4))), reward=float(rng.random()))
        if t % 7 == 0:
            agent.forget(waiting.pop())
            agent.learn(contexts(rng, 2), rng.random(2))
        if t % release_every == 0:
            agent.absorb({agent.name: agent.release()})
    return ids


# --- closed and opened ------------------------------------------------------------------------------------


def test_it_remembers_and_an_old_reward_goes_to_the_old_decision(place: str) -> None:
    rng = np.random.default_rng(0)
    with ffx.Agent.open(place, dimension=D, seed=1) as agent:
        old = [agent.decide(contexts(rng)) for _ in range(20)]
        agent.observe(old[3], reward=0.5)
        before = told(agent)
    with ffx.Agent.open(place) as agent:
        assert told(agent) == before
        assert (agent.pending, agent.observed) == (19, 1)
        new = [agent.decide(contexts(rng)) for _ in range(20)]
        assert not {made.id for made in old} & {made.id for made in new}
        for made in new:
            agent.observe(made.id, reward=0.5)
        agent.observe(old[15].id, reward=0.25)
        assert agent.journal.decision(old[15].id).reward == 0.25
        assert (agent.journal.decision(old[15].id).policy == old[15].policy).all()
        with pytest.raises(AlreadyObserved, match="has its reward already"):
            agent.observe(old[3].id, reward=0.5)
        with pytest.raises(UnknownDecision):
            agent.observe(ffx.Agent(D).decide(contexts(rng)), reward=0.5)


@pytest.mark.parametrize("rule", ["expected-merit", "greedy", "thompson", "optimism"])
def test_one_that_was_stopped_is_the_same_to_the_bit_as_one_that_never_was(
    tmp_path: Path, rule: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persistence, "SNAPSHOT_EVERY", 23)  # some steps come after the last one
    never = ffx.Agent(D, rule=rule, seed=4, name="a")
    place = tmp_path / "agent.db"
    ffx.Agent.open(place, dimension=D, rule=rule, seed=4, name="a").close()
    for life in range(5):
        with ffx.Agent.open(place) as agent:
            live(agent, 12, seed=life)
            live(never, 12, seed=life)
            x = contexts(np.random.default_rng(life))
            ours, theirs = agent.decide(x), never.decide(x)
            assert (ours.action, ours.values.tobytes()) == (theirs.action, theirs.values.tobytes())
            ours, theirs = told(agent), told(never)
            assert ours | {"pending": 0} == theirs | {"pending": 0}
            assert agent.privatizer.state() == never.privatizer.state()
            if life % 2:  # as a crash would leave it
                agent.journal.log.closing.clear()
    with ffx.Agent.open(place) as agent:
        assert told(agent) | {"pending": 0} == told(never) | {"pending": 0}
        agent.verify()


def test_the_more_wait_the_rarer_are_snapshots(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Each lists all that wait: if one came every 10 steps, 300 decisions would make lists of 4 650."""
    monkeypatch.setattr(persistence, "SNAPSHOT_EVERY", 10)
    lengths: list[int] = []
    write = Journal.write_snapshot

    def watched(journal: Journal, body: dict[str, Any]) -> None:
        lengths.append(len(body["pending"]))
        write(journal, body)

    monkeypatch.setattr(Journal, "write_snapshot", watched)
    x = contexts(np.random.default_rng(0))
    with ffx.Agent.open(tmp_path / "agent.db", dimension=D, seed=0) as agent:
        made = [agent.decide(x) for _ in range(300)]
        assert sum(lengths) <= 2 * 300
        agent.journal.log.closing.clear()  # a crash
    with ffx.Agent.open(tmp_path / "agent.db") as agent:
        assert agent.pending == 300
        agent.observe_many([one.id for one in made], [0.5] * 300)
        lengths.clear()
        for _ in range(10):
            agent.observe(agent.decide(x), reward=0.5)
        assert len(lengths) == 2  # few wait: they come every 10 steps
        agent.verify()


@pytest.mark.parametrize(
    "together", [1, *(pytest.param(each, marks=pytest.mark.slow_on_server) for each in (127, 128)), 300]
)
def test_any_number_of_steps_is_one_transaction(place: str, together: int) -> None:
    x = contexts(np.random.default_rng(0))
    with ffx.Agent.open(place, dimension=D, seed=0) as agent:
        with agent.transaction():
            made = [agent.decide(x).id for _ in range(together)]
            agent.observe_many(made[::2], [0.5] * len(made[::2]))
            agent.verify()  # also what is not written yet
        agent.journal.log.closing.clear()  # a crash
    with ffx.Agent.open(place) as agent:
        assert [each.id for each in agent.journal.decisions()] == made
        assert [each.id for each in agent.journal.decisions(status="rewarded")] == made[::2]
        agent.verify()


@pytest.mark.parametrize(
    "decide_from",
    ["released", pytest.param("released+local", marks=pytest.mark.slow_on_server), "own+released"],
)
def test_a_private_one_is_opened_with_its_budget_and_its_messages(place: str, decide_from: Any) -> None:
    budget = ffx.Budget(epsilon=4.0, delta=0.1, releases=10, decide_from=decide_from)
    with ffx.Agent.open(place, dimension=D, seed=1, name="a", budget=budget) as agent:
        live(agent, 25)
        before, claimed = told(agent), agent.privatizer.guarantee
        sent = [agent.release(number) for number in range(1, 6)]
        agent.journal.log.closing.clear()  # a crash
    with ffx.Agent.open(place, budget=budget) as agent:
        assert told(agent) == before
        assert agent.privatizer.guarantee == claimed
        assert (claimed.epsilon, claimed.spent, claimed.is_private) == (pytest.approx(4.0), 5, True)
        assert [agent.release(number) for number in range(1, 6)] == sent
        agent.verify()
        live(agent, 25, seed=1)
        with pytest.raises(BudgetExhausted):
            agent.release()
        before = told(agent)
        agent.begin_run(ffx.Budget(epsilon=1.0, delta=0.1, releases=2, decide_from=decide_from))
        agent.absorb({"a": agent.release()})
        assert agent.released == 11
        before, claimed = told(agent), agent.privatizer.guarantee
        agent.verify()
    with ffx.Agent.open(place) as agent:
        assert told(agent) == before
        assert agent.privatizer.guarantee == claimed
        assert claimed.runs == 2


def test_a_budget_has_all_its_parts(place: str) -> None:
    budget = ffx.Budget(
        epsilon=2.0,
        releases=3,
        bounds=Bounds(adjacency="add-remove"),
        centring=Centring.unit_box(D),
        person_records=2,
    )
    rng = np.random.default_rng(0)
    with ffx.Agent.open(place, dimension=D, budget=budget, name="a") as agent:
        for _ in range(3):
            agent.observe(agent.decide(contexts(rng)), reward=0.5, person="Ada")
        with pytest.raises(InvalidInput, match="person must be given"):
            agent.observe(agent.decide(contexts(rng)), reward=0.5)
        assert agent.privatizer.dropped == 1
    with ffx.Agent.open(place, budget=budget) as agent:
        assert agent.privatizer.guarantee.person_records == 2
        agent.observe(agent.decide(contexts(rng)), reward=0.5, person="Ada")
        assert agent.privatizer.dropped == 1  # of this life
        assert agent.release().count == 4


def test_without_its_key_a_private_agent_makes_no_noise(tmp_path: Path) -> None:
    place = tmp_path / "agent.db"
    with ffx.Agent.open(place, dimension=D, budget=BUDGET, name="a") as agent:
        agent.release()
        agent.journal.log.write("UPDATE agents SET secret = NULL")
        agent.journal.log.database.commit()
    with pytest.raises(StateError, match="has no noise key"):
        ffx.Agent.open(place)


def test_the_key_is_in_no_text_that_is_shown(place: str) -> None:
    with ffx.Agent.open(place, dimension=D, budget=BUDGET, name="a") as agent:
        secret = bytes(agent.journal.log.database.execute("SELECT secret FROM agents")[0][0])
        assert len(secret) == 32
        assert secret.hex() not in repr(agent) + repr(agent._repr_html_()) + json.dumps(told(agent))


# --- settings ---------------------------------------------------------------------------------------------


def test_settings_are_in_the_database_and_others_are_refused(place: str) -> None:
    with pytest.raises(InvalidInput, match="dimension, schema or actions must be given"):
        ffx.Agent.open(place)
    merit = ffx.merit.Logistic()
    with ffx.Agent.open(place, dimension=D, rule="greedy", merit=merit, minimum_share=0.1, name="a"):
        pass
    with ffx.Agent.open(place, dimension=D, merit=merit, name="a") as agent:
        assert (agent.rule, agent.merit, agent.options.minimum_share, agent.name) == (
            "greedy",
            merit,
            0.1,
            "a",
        )
    for name, value in [
        ("dimension", 4),
        ("rule", "thompson"),
        ("minimum_share", 0.2),
        ("merit", ffx.merit.Power()),
        ("prior", ffx.Prior(sd=2.0)),
        ("budget", BUDGET),
        ("bounds", Bounds()),
        ("options", ffx.Options(rule="greedy", merit=merit)),  # without the minimum share
    ]:
        with pytest.raises(InvalidInput, match=" must be the stored one"):
            ffx.Agent.open(place, **{name: value})
    same = ffx.Options(rule="greedy", merit=merit, minimum_share=0.1)
    with ffx.Agent.open(place, options=same) as agent:
        assert agent.options.minimum_share == 0.1


# --- several agents ---------------------------------------------------------------------------------------


def test_several_agents_live_in_one_database(place: str) -> None:
    alone = {name: ffx.Agent(D, seed=seed, name=name) for seed, name in enumerate("ab")}
    for name, agent in alone.items():
        live(agent, 20, seed=ord(name))
    with ffx.Agent.open(place, name="a", dimension=D, seed=0) as first:
        with ffx.Agent.open(place, name="b", dimension=D, seed=1) as second:
            assert first.journal.log is second.journal.log
            ids = [*live(first, 20, seed=ord("a")), *live(second, 20, seed=ord("b"))]
            assert len(set(ids)) == len(ids)
            with pytest.raises(StorageUnavailable, match=r"'b' .* is open already"):
                ffx.Agent.open(place, name="b")
            with pytest.raises(UnknownDecision):
                second.observe(ids[0], reward=0.5)
        live(first, 5, seed=9)  # the other one is closed
    live(alone["a"], 5, seed=9)
    with pytest.raises(InvalidInput, match=r"^name must be given: .* holds 2 agents, 'a', 'b'"):
        ffx.Agent.open(place)
    with pytest.raises(InvalidInput, match=r"^dimension, schema or actions must .* there is no agent 'c'"):
        ffx.Agent.open(place, name="c")
    for name, agent in alone.items():
        with ffx.Agent.open(place, name=name) as again:
            again.verify()
            one, other = told(again), told(agent)
            assert len(one.pop("pending")) == len(other.pop("pending"))
            assert one == other


def test_one_of_several_is_closed_and_opened_again(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    """It replays nothing, goes on with its ids, and what was closed writes nothing more."""
    rng = np.random.default_rng(0)
    with ffx.Agent.open(place, name="a", dimension=D) as other:
        first = ffx.Agent.open(place, name="b", dimension=D)
        made = first.decide(contexts(rng))
        first.close()
        snapshots = len(list(first.journal.snapshots()))
        with pytest.raises(StorageUnavailable, match="this agent is closed"):
            first.decide(contexts(rng))
        with pytest.raises(StorageUnavailable, match="this agent is closed"):
            first.decide_many(np.ones((2, 2, D)))
        with pytest.raises(StorageUnavailable, match="this agent is closed"):
            first.observe(made, reward=0.5)
        monkeypatch.setattr(persistence.AgentStore, "_replay", None)
        other.observe(other.decide(contexts(rng)), reward=0.5)
        again = ffx.Agent.open(place, name="b")
        assert again._log.prefix == first._log.prefix
        assert again.pending == 1
        again.close()
        assert len(list(first.journal.snapshots())) == snapshots  # nothing was new
        with ffx.Agent.open(place, name="b") as again:
            again.observe(made.id, reward=0.5)
            assert again.decide(contexts(rng)).number > made.number
            assert other.pending == 0
    monkeypatch.undo()
    with ffx.Agent.open(place, name="b") as again:
        assert again._log.prefix != first._log.prefix  # the database was closed meanwhile
        assert (again.observed, again.pending) == (1, 1)
        again.verify()


def test_one_is_opened_while_another_is_in_a_transaction(place: str) -> None:
    """Opening waits for its end: it must see all of it, or nothing."""
    rng = np.random.default_rng(0)
    ffx.Agent.open(place, name="b", dimension=D).close()
    with ffx.Agent.open(place, name="a", dimension=D) as other:
        opened: list[ffx.Agent] = []
        opening = threading.Thread(target=lambda: opened.append(ffx.Agent.open(place, name="b")))
        with other.transaction():
            other.decide(contexts(rng))
            opening.start()
            opening.join(0.2)
            assert not opened
            other.decide(contexts(rng))
        opening.join()
        opened[0].close()
        assert other.pending == 2


def test_a_step_that_fails_puts_every_agent_of_the_database_back(tmp_path: Path) -> None:
    place = tmp_path / "agents.db"
    with (
        ffx.Agent.open(place, name="a", dimension=D, seed=0) as first,
        ffx.Agent.open(place, name="b", dimension=D, budget=BUDGET, seed=1) as second,
    ):
        before = told(first), told(second)
        with pytest.raises(RuntimeError), first.transaction():
            first.decide(np.eye(D))
            second.observe(second.decide(np.eye(D)), reward=0.5)
            raise RuntimeError
        assert (told(first), told(second)) == before
        second.observe(second.decide(np.eye(D)), reward=0.5)
        assert second.release().count == 1


# --- ids and keys -----------------------------------------------------------------------------------------


def test_a_key_makes_one_decision(place: str) -> None:
    x = np.eye(D)
    with ffx.Agent.open(place, dimension=D, seed=0) as agent:
        note = DecisionNote(key="k1", digest="abc", groups=["f", None, "m"], extra="{}")
        made = agent.decide(x, names=["ant", "bee", "cat"], note=note)
        with pytest.raises(KeyTaken) as taken:
            agent.decide(x, note=note)
        assert taken.value.decision == made.id
        with agent.transaction():
            other = agent.decide(x, note=DecisionNote(key="k2"))
            with pytest.raises(KeyTaken):
                agent.decide(x, note=DecisionNote(key="k2"))
        assert agent.pending == 2
    with ffx.Agent.open(place) as agent:
        with pytest.raises(KeyTaken):
            agent.decide(x, note=note)
        kept = agent.journal.by_key("k1")
        assert kept is not None
        assert (kept.id, kept.digest, kept.extra) == (made.id, "abc", "{}")
        assert (kept.names, kept.groups) == (["ant", "bee", "cat"], ["f", None, "m"])
        assert kept.name == made.name
        assert agent.journal.by_key("k2").id == other.id
        assert agent.journal.by_key("k3") is None
        assert agent._pending[made.number].name == made.name


def test_a_baseline_is_what_is_learnt_from(place: str) -> None:
    x = np.eye(D)
    with ffx.Agent.open(place, dimension=D, seed=0) as agent, pytest.raises(InvalidInput, match="baseline"):
        agent.decide(x, note=DecisionNote(baseline=3))
    with ffx.Agent.open(place) as agent:
        plain = ffx.Agent(D, seed=0)
        for _ in range(8):
            drawn = plain.decide(x)
            made = agent.decide(x, note=DecisionNote(mode="shadow", baseline=2))
            assert (made.action, made.drawn, made.context.tolist()) == (2, drawn.action, [0.0, 0.0, 1.0, 1.0])
            assert made.policy.tolist() == drawn.policy.tolist()
            assert made.probability == 1.0  # whatever its share by the policy
        kept = agent.journal.decision(made.id)
        assert (kept.action, kept.drawn, kept.mode, kept.baseline) == (2, made.drawn, "shadow", 2)
        assert (kept.propensity, agent._pending[made.number].probability) == (1.0, 1.0)
        waiting = [decision.id for decision in agent._pending.values()]
    with ffx.Agent.open(place) as agent:
        assert agent._pending[made.number].drawn == made.drawn
        agent.observe_many(waiting, [1.0] * 8)
        assert agent.gram[2, 2] - agent.gram[0, 0] == pytest.approx(8.0)
        assert list(agent.journal.decisions(mode="live")) == []


# --- expiry and time --------------------------------------------------------------------------------------


@pytest.mark.filterwarnings("ignore::fedfairx.errors.ClockWarning")  # this test is ahead of the clock
@pytest.mark.parametrize("default", [None, 0.25])
def test_pending_decisions_expire(place: str, default: float | None) -> None:
    x = contexts(np.random.default_rng(0))
    with ffx.Agent.open(place, dimension=D, seed=0, window=10.0, default_reward=default) as agent:
        log = agent.journal.log
        start = log.now() // 1_000_000 + 1000
        made = []
        for second in (0, 5, 9, 20):
            log.clock = lambda when=second: (start + when) * 10**9
            made.append(agent.decide(x))
        agent.observe(made[1], reward=1.0)
        assert agent.expire(now=start + 9.5) == 0
        assert agent.expire() == 2
        assert (agent.pending, agent.observed) == (1, 1 if default is None else 3)
        for number in (0, 2):
            kept = agent.journal.decision(made[number].id)
            assert (kept.status, kept.reward) == ("expired", default)
            with pytest.raises(AlreadyObserved, match="has expired"):
                agent.observe(made[number], reward=1.0)
        assert agent.journal.counts() == {"pending": 1, "rewarded": 1, "withdrawn": 0, "expired": 2}
        before = told(agent)
    with ffx.Agent.open(place) as agent:
        assert told(agent) == before
        agent.verify()
        with pytest.raises(InvalidInput, match="window must be given when the agent is opened"):
            agent.expire()


def test_times_never_go_back(place: str) -> None:
    x = contexts(np.random.default_rng(0))
    with ffx.Agent.open(place, dimension=D) as agent:
        log = agent.journal.log
        now = log.now() * 1000 + 10**12
        log.clock = lambda: now
        first = agent.decide(x)
        log.clock = lambda: now - 5 * 10**9
        with pytest.warns(ClockWarning, match="the clock went back"):
            second = agent.decide(x)
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            agent.observe(second, reward=0.5)
        assert log.clock_went_back == 2
        assert log.now() == now // 1000
        assert second.time == first.time
    with pytest.warns(ClockWarning):
        again = ffx.Agent.open(place)
    with again as agent:
        assert agent.decide(x).time == first.time


@pytest.mark.filterwarnings("ignore::fedfairx.errors.ClockWarning")
def test_a_clock_warning_made_an_error_changes_nothing(place: str) -> None:
    x = contexts(np.random.default_rng(0))
    with ffx.Agent.open(place, dimension=D) as agent:
        agent.decide(x)
        before, log = told(agent), agent.journal.log
        log.clock = lambda: 10**9
        with warnings.catch_warnings():
            warnings.simplefilter("error")
            with pytest.raises(ClockWarning):
                agent.decide(x)
        assert told(agent) == before


# --- together ---------------------------------------------------------------------------------------------


def test_steps_together_are_kept_together(place: str) -> None:
    x = contexts(np.random.default_rng(0))
    with ffx.Agent.open(place, dimension=D, seed=0, budget=BUDGET, name="a") as agent:
        commits = []
        commit = agent.journal.log.database.commit
        agent.journal.log.database.commit = lambda: (commits.append(1), commit())
        with agent.transaction():
            made = [agent.decide(x) for _ in range(10)]
            for each in made[:5]:
                agent.observe(each, reward=0.5)
            with pytest.raises(AlreadyObserved):  # refused, and the others stay
                agent.observe(made[0], reward=0.5)
            with pytest.raises(InvalidInput):
                agent.decide(x[:, :2])
            assert agent.journal.counts()["pending"] == 0  # nobody else sees it yet
        assert len(commits) == 1
        assert agent.journal.counts() == {"pending": 5, "rewarded": 5, "withdrawn": 0, "expired": 0}
        before = told(agent)
        for error in (KeyError("the caller's own"), StorageUnavailable("no space")):
            with pytest.raises(type(error)), agent.transaction():
                agent.decide(x)
                agent.observe(made[7], reward=0.5)
                agent.release()
                raise error
            assert told(agent) == before
            assert (agent.pending, agent.privatizer.spent) == (5, 0)
        later = agent.decide(x)
        agent.observe(later, reward=0.5)
        agent.observe(made[7], reward=0.5)
    with ffx.Agent.open(place) as agent:
        assert agent.observed == 7


def test_a_failure_that_somebody_caught_is_told_at_the_end(place: str) -> None:
    x = contexts(np.random.default_rng(0))
    with ffx.Agent.open(place, dimension=D, seed=0) as agent:
        with pytest.raises(StorageUnavailable, match="one of these steps failed"), agent.transaction():
            agent.decide(x)
            try:
                with agent.transaction():
                    agent.decide(x)
                    raise KeyError("caught")
            except KeyError:
                pass
        assert agent.pending == 0
        with pytest.raises(StorageUnavailable, match="an earlier step"), agent.transaction():
            try:
                with agent.transaction():
                    raise KeyError("caught")
            except KeyError:
                agent.decide(x)


def test_ids_of_a_group_that_failed_are_not_given_again(place: str) -> None:
    x = contexts(np.random.default_rng(0))
    with ffx.Agent.open(place, dimension=D, seed=0) as agent:
        with pytest.raises(KeyError), agent.transaction():
            lost = agent.decide(x).id
            raise KeyError
        assert agent.decide(x).id != lost
        with pytest.raises(UnknownDecision):
            agent.observe(lost, reward=1.0)


def test_in_memory_together_is_only_a_lock() -> None:
    agent = ffx.Agent(D, seed=0)
    with agent.transaction():
        made = agent.decide(np.eye(D))
    agent.observe(made, reward=1.0)
    agent.close()
    with pytest.raises(InvalidInput, match="lives in memory"):
        _ = agent.journal


# --- copies -----------------------------------------------------------------------------------------------


def test_an_older_copy_is_noticed_by_its_mark(tmp_path: Path) -> None:
    place = tmp_path / "agent.db"
    rng = np.random.default_rng(0)
    with ffx.Agent.open(place, dimension=D, budget=BUDGET, name="a") as agent:
        agent.observe(agent.decide(contexts(rng)), reward=0.5)
    shutil.copy(place, tmp_path / "backup")
    with ffx.Agent.open(place) as agent:
        agent.release()
        agent.journal.log.closing.clear()  # a crash right after the release
    shutil.copy(tmp_path / "backup", place)
    with pytest.raises(OlderCopy, match="is an older copy: it ends at step 2, and it was at step 3"):
        ffx.Agent.open(place)
    Path(f"{place}.lock").unlink()  # as the message says, if this is meant
    ffx.Agent.open(place).close()


def test_peers_notice_an_older_copy_wherever_it_is(place: str) -> None:
    rng = np.random.default_rng(0)
    with ffx.Agent.open(place, dimension=D, name="a") as agent:
        agent.observe(agent.decide(contexts(rng)), reward=0.5)
        first = agent.release()
        agent.absorb({"a": first})
        later = Release(first.number + 1, first.packed.copy(), first.count, first.mechanism)
        with pytest.raises(OlderCopy, match="has number 2, and its own last is 1"):
            agent.absorb({"a": later})
        assert agent.released == 1


def test_a_copy_gives_other_ids(tmp_path: Path) -> None:
    place, x = tmp_path / "agent.db", np.eye(D)
    ffx.Agent.open(place, dimension=D, seed=0).close()
    shutil.copy(place, tmp_path / "copy.db")
    with ffx.Agent.open(place) as one, ffx.Agent.open(tmp_path / "copy.db") as other:
        ours, theirs = one.decide(x), other.decide(x)
        assert ours == theirs
        assert ours.id != theirs.id
        with pytest.raises(UnknownDecision):
            one.observe(theirs.id, reward=0.5)


def test_a_snapshot_after_a_failure_hides_no_later_step(place: str) -> None:
    """A step that failed has had numbers that the next opening gives anew."""
    with ffx.Agent.open(place, dimension=D, seed=0) as agent:
        agent.decide(np.eye(D))  # without a step there would be no snapshot
        with pytest.raises(KeyError), agent.transaction():
            agent.decide_many([np.eye(D)] * 5)
            raise KeyError
    with ffx.Agent.open(place) as agent:
        made = agent.decide(np.eye(D))
        agent.observe(made, reward=1.0)
        agent.journal.log.closing.clear()
    with ffx.Agent.open(place) as agent:
        assert (agent.observed, agent.pending) == (1, 1)
        agent.verify()


def test_peers_are_asked_on_opening(place: str) -> None:
    with ffx.Agent.open(place, dimension=D, budget=BUDGET, name="a") as agent:
        sent = agent.release()
    ffx.Agent.open(place, confirm=refuse_old_copy([sent])).close()
    ahead = Release(2, sent.packed.copy(), sent.count, sent.mechanism)
    with pytest.raises(LedgerMismatch, match="ends at release 1, and peers hold release 2"):
        ffx.Agent.open(place, confirm=refuse_old_copy([ahead]))
    ffx.Agent.open(place).close()  # it was let go of
    with ffx.Agent.open(place, dimension=D, name="b"):  # also where another agent holds the log open
        with pytest.raises(LedgerMismatch):
            ffx.Agent.open(place, name="a", confirm=refuse_old_copy([ahead]))
        with pytest.raises(InvalidInput, match="default_reward must be at most"):
            ffx.Agent.open(place, name="c", dimension=D, window=1.0, default_reward=1e9)
        counted = replace(BUDGET, person_records=2)
        with pytest.raises(InvalidInput, match="default_reward must be left out with person_records"):
            ffx.Agent.open(place, name="c", dimension=D, window=1.0, default_reward=0.0, budget=counted)
        ffx.Agent.open(place, name="a").close()
        ffx.Agent.open(place, name="c", dimension=2).close()  # nothing of it was stored


def test_who_was_parted_from_stays_away(place: str) -> None:
    """Also when the log is done again, and its later releases can still be taken."""
    other = ffx.Agent(D, seed=3, name="other")
    live(other, 12)
    with ffx.Agent.open(place, dimension=D, name="a", seed=1) as agent:
        live(agent, 12)
        before = told(agent)["learner"]["statistics"]
        agent.absorb({"other": other.release()})
        agent.drop_peers(["other", "a", "unheard-of"])
        assert agent.held.keys() == {"a"}
        np.testing.assert_allclose(told(agent)["learner"]["statistics"], before, rtol=1e-12)
        agent.verify()
    with ffx.Agent.open(place) as agent:
        assert agent.held.keys() == {"a"}
        agent.absorb({"other": other.release()})
        agent.verify()
        assert agent.held.keys() == {"a", "other"}


NOTES = [
    None,
    DecisionNote(model_version=3),
    DecisionNote(mode="live", control_share=0.25, model_version=2),
    DecisionNote("key", "digest", ["f", None, "m"], model_version=1, extra="extra"),
]


@pytest.mark.parametrize("names", [None, ["x", "y", "é"]])
@pytest.mark.parametrize("rule", ["expected-merit", "greedy", "thompson", "optimism"])
def test_many_decisions_are_stored_like_single_ones(
    rule: str, names: list[str] | None, tmp_path: Path
) -> None:
    """Also under rules that can't draw them together."""
    x, found = np.random.default_rng(0).random((len(NOTES), 3, D)) / D, []
    for together in (True, False):
        place = tmp_path / f"{together}.db"
        with ffx.Agent.open(place, dimension=D, seed=0, name="a", rule=rule) as agent:
            agent.observe(agent.decide(x[0]), reward=1.0)
            called = [names] * len(NOTES)
            if together:
                made = agent.decide_many(x, names=called, notes=NOTES)
            else:
                pairs = zip(x, NOTES, strict=True)
                made = [agent.decide(each, names=names, note=note) for each, note in pairs]
            assert agent.pending == len(NOTES)
            agent.observe(made[1].id, reward=0.5)
        stored = list(open_database(place).read("SELECT * FROM decisions ORDER BY seq"))
        found.append([(*row[:2], *row[3:-1]) for row in stored])  # all but time and seal, which depends on it
        with ffx.Agent.open(place) as agent:
            agent.verify()
            assert agent.pending == len(NOTES) - 1
    assert found[0] == found[1]


@pytest.mark.parametrize("note", [None, DecisionNote(model_version=3)])
def test_of_many_decisions_each_is_stored_with_its_own_names(
    note: DecisionNote | None, tmp_path: Path
) -> None:
    same = ["c", "d"]
    names = [["a", "b"], None, None, same, same, ["e", "f"], None]
    with ffx.Agent.open(tmp_path / "agent.db", dimension=D, seed=0) as agent:
        x = np.ones((len(names), 2, D)) / D
        made = agent.decide_many(x, names=names, notes=[note] * len(names))
        stored = [agent.journal.decision(one.id) for one in made]
        assert [one.names for one in stored if one is not None] == names
        agent.verify()


def test_many_decisions_bring_a_snapshot(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(persistence, "SNAPSHOT_EVERY", 10)
    with ffx.Agent.open(tmp_path / "agent.db", dimension=D, seed=0) as agent:
        for taken in ([0], [0, 10], [0, 10]):
            agent.decide_many(np.ones((5, 2, D)) / D)
            assert agent.journal.snapshot_numbers() == taken


def test_as_many_names_and_notes_as_decisions() -> None:
    agent = ffx.Agent(D, seed=0)
    for what in ("names", "notes"):
        with pytest.raises(InvalidInput, match=f"{what} must be as many as the 2 decisions, got {what}=1"):
            agent.decide_many(np.ones((2, 2, D)) / D, **{what: [None]})
    assert agent.pending == 0


def test_two_of_many_decisions_have_the_same_key(place: str) -> None:
    with ffx.Agent.open(place, dimension=D, seed=0) as agent:
        x, note = np.ones((2, 2, D)) / D, DecisionNote("key")
        with pytest.raises(InvalidInput, match="notes"):
            agent.decide_many(x, notes=[note, note])
        agent.decide_many(x, notes=[note, None])
        with pytest.raises(KeyTaken):
            agent.decide_many(x, notes=[None, note])
        assert agent.pending == 2
