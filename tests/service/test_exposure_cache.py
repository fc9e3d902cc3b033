"""Exposure from the service's log: the library's table, bounded, over windows, one at a time."""

from __future__ import annotations

import asyncio
import threading
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.agent.agent import Agent
from fedfairx.core.statistics import unpack
from fedfairx.errors import StorageUnavailable
from fedfairx.federation.roster.terms import Terms
from fedfairx.privacy import Budget
from fedfairx.service import exposure_cache as exposing
from fedfairx.service.app import make_app
from fedfairx.service.counters import DecisionCounters
from fedfairx.service.factory import open_service
from fedfairx.service.served_agent import ServedAgent
from fedfairx.service.settings import place_of
from fedfairx.storage.queries import any_made, by_time, first_time, last_of, latest, number_at
from in_process_client import InProcessClient
from service_helpers import ACTIONS, asking, decide, settings_for


@contextmanager
def served(place: str, **given) -> Iterator[tuple[InProcessClient, ServedAgent]]:
    """A client of a service, and its agent."""
    service = open_service(settings_for(place, **given))
    with InProcessClient(make_app(service), base_url="http://127.0.0.1") as client:
        yield client, service.default


def rewarded(client, count: int, **more) -> None:
    for t in range(count):
        made = decide(client, actions=ACTIONS, **more)
        client.put(f"/v1/decisions/{made['decision_id']}/reward", json={"reward": float(t % 2)})


def test_it_is_the_table_of_the_library(place: str) -> None:
    with served(place) as (client, service):
        rewarded(client, 40)
        gone = decide(client, actions=ACTIONS)
        client.delete(f"/v1/decisions/{gone['decision_id']}")
        decide(client, actions=ACTIONS)  # its reward has not come
        found = client.get("/v1/exposure").json()
        log = [
            ffx.Logged(
                each.policy,
                None if each.status == "withdrawn" else each.action,
                each.contexts,
                each.names,
                each.groups,
                each.drawn,
                each.reward,
            )
            for each in service.journal.decisions()
        ]
        table = ffx.exposure(log, posterior=service.agent.posterior)
        assert found["matching"] == 3
        assert [row["name"] for row in found["actions"]] == ["ann", "ben", "cat"]
        assert [row["name"] for row in found["groups"]] == ["small", "large"]
        for written, row in zip(
            found["actions"] + found["groups"], table.actions + table.groups, strict=True
        ):
            assert written["shown_times"] == row.count
            assert written["entitled"]["low"] == pytest.approx(row.entitled.low)
            assert written["entitled"]["high"] == pytest.approx(row.entitled.high)
            assert written["shown"] == {
                "value": row.shown.value,
                "low": row.shown.low,
                "high": row.shown.high,
            }
            assert written["verdict"] == row.verdict == "too little data"
        assert (found["decisions"], found["withdrawn"], found["draws"]["decisions"]) == (41, 1, 42)
        assert found["draws"]["p_value"] == pytest.approx(table.draws.p_value)
        assert not found["bounded"]
        assert client.get("/v1/exposure", params={"since": "soon"}).status_code == 422


@pytest.mark.parametrize("private", [False, True])
def test_slots_count_with_their_weights(place: str, private: bool, monkeypatch: pytest.MonkeyPatch) -> None:
    settings, rng = settings_for(place, dimension=2), np.random.default_rng(0)
    more: dict[str, Any] = {}
    if private:
        more = {"budget": Budget(epsilon=2.0, delta=1e-6, releases=10), "slots": [1.0, 0.6, 0.3]}
    contexts, names = np.array([[0.9, 0.1], [0.5, 0.5], [0.1, 0.9], [0.2, 0.2]]), ["ann", "ben", "cat", "dan"]
    log, records = [], []
    with Agent.open(place_of(settings), dimension=2, **more) as agent:
        cache = exposing.ExposureCache(agent, settings)
        entered = np.column_stack([contexts, np.full(4, agent.constant)])
        for t in range(60):
            slots = [1.0, 0.6, 0.3] if private else ([1.0, 0.6, 0.3], 2, 1)[t % 3]
            made = agent.decide(contexts, names=names, slots=slots)
            rewards: list[float | None] = [float(rng.random()) for _ in made.actions]
            if t % 10 == 9 and t % 7:
                rewards[-1] = None  # nobody saw the last one
            if t % 7:
                agent.observe(made, rewards=rewards)
            elif t:
                rewards[1:] = [None] * len(rewards[1:])  # the others wait, and are shown
                agent.observe(made, rewards={made.actions[0]: rewards[0]})
            else:
                agent.forget(made)
                rewards = [None] * len(rewards)
            seen = [
                None if t == 0 or (t % 7 and reward is None) else action
                for action, reward in zip(made.actions, rewards, strict=True)
            ]
            log.append(
                ffx.Logged(
                    made.exposure, seen, entered, names, None, made.actions, rewards, slots=made.weights
                )
            )
            records += [
                (weight * entered[action], reward, weight, names[action])
                for weight, action, reward in zip(made.weights, made.actions, rewards, strict=True)
                if reward is not None
            ]
        gram, moment = looked_at(cache, monkeypatch)  # with a column for each name, by when it came again
        columns = {name: np.eye(7)[3 + place] for place, name in enumerate(agent.names)}
        rows = [(np.pad(x, (0, 4)) + weight * columns[name], y) for x, y, weight, name in records]
        assert gram == pytest.approx(sum(np.outer(x, x) for x, _ in rows), rel=1e-9)
        assert moment == pytest.approx(sum(x * y for x, y in rows), rel=1e-9)
        looked = asyncio.run(cache.look())
        posterior = exposing.by_own_rewards(agent, cache._sums())
        table = ffx.exposure(log, merit=agent.merit, sums=(gram, moment), posterior=posterior)
        assert looked.table.actions == table.actions
        assert all(row.estimate is not None for row in table.actions)
        assert looked.table.draws == table.draws
        assert (looked.withdrawn, looked.table.decisions) == (len(log) - table.decisions, table.decisions)


EXACT: dict[str, dict[str, str]] = {
    "alone": {},
    "alike": {"partners": "alike"},
    "differ": {"partners": "differ"},
}
PRIVATE = ("own+released", "released+local", "released")


def looked_at(
    cache: exposing.ExposureCache, monkeypatch: pytest.MonkeyPatch
) -> tuple[np.ndarray, np.ndarray]:
    """The sums that a table is made with."""
    given: list[tuple[np.ndarray, np.ndarray]] = []
    real = exposing.exposure

    def noting(*args: Any, **more: Any) -> ffx.Exposure:
        given.append(more["sums"])
        return real(*args, **more)

    with monkeypatch.context() as patch:
        patch.setattr(exposing, "exposure", noting)
        patch.setattr(exposing, "FRESH", 0.0)
        patch.setattr(exposing, "COST", 0.0)
        asyncio.run(cache.look())
    return given[0]


@pytest.mark.parametrize("kind", [*EXACT, *PRIVATE])
def test_merit_is_known_from_its_own_rewards_alone(
    kind: str, place: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    more: dict[str, Any] = EXACT.get(kind, {})
    if kind in PRIVATE:
        more = {"budget": Budget(epsilon=2.0, delta=1e-6, releases=10, decide_from=kind)}
    settings, rng = settings_for(place, dimension=2), np.random.default_rng(0)
    learnt, values = rng.random((7, 2)), rng.random(7)
    with Agent.open(place_of(settings), dimension=2, window=0.5, default_reward=0.25, **more) as agent:
        agent.learn(learnt, values)
    service = open_service(settings).default
    with service.agent as mine, Agent.open(tmp_path / "partner.sqlite", dimension=2, **more) as theirs:
        assert mine.decide_from == (kind if kind in PRIVATE else "released+local")
        for _ in range(3):
            for agent in (mine, theirs):
                with agent.transaction():
                    made = [agent.decide(rng.random((3, 2))) for _ in range(12)]
                    for each in made[:9]:
                        agent.observe(each, reward=float(rng.random()))
                    agent.forget(made[9])
            mine.set_window(1e-6, 0.25)
            assert mine.expire() >= 2
            mine.decide(rng.random((3, 2)))  # waits for its reward
            if kind != "alone":
                sent = {agent.name: agent.release() for agent in (mine, theirs)}
                mine.absorb(sent)
            gram, moment = looked_at(service.exposures, monkeypatch)
            own = [(each.contexts[each.action], each.reward) for each in mine.journal.decisions()]
            entered = np.column_stack([learnt, np.full(7, mine.constant)])
            records = [*zip(entered, values, strict=True), *(pair for pair in own if pair[1] is not None)]
            assert gram == pytest.approx(sum(np.outer(x, x) for x, _ in records), rel=1e-12)
            assert moment == pytest.approx(sum(x * y for x, y in records), rel=1e-12)


def test_a_log_that_could_not_be_read_to_its_end_is_read_again(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    settings = settings_for(place, dimension=3, epsilon=2.0)
    with served(place, dimension=3, epsilon=2.0) as (client, _):
        rewarded(client, 5)
    service = open_service(settings).default
    with service.agent:
        whole = exposing.records

        def broken(*args: Any, **more: Any) -> Iterator[Any]:
            yield from whole(*args, **more)
            raise StorageUnavailable("gone for now")

        with monkeypatch.context() as patch, pytest.raises(StorageUnavailable):
            patch.setattr(exposing, "records", broken)
            asyncio.run(service.exposures.look())
        gram, _ = looked_at(service.exposures, monkeypatch)
        names = service.agent.names
        columns = np.vstack([np.eye(len(names)), np.zeros(len(names))])  # -1: it came once
        own = [
            [*each.contexts[each.action], *columns[names.index(each.name) if each.name in names else -1]]
            for each in service.journal.decisions()
        ]
        assert gram == pytest.approx(sum(np.outer(x, x) for x in own))


@pytest.mark.long
@pytest.mark.parametrize("partners", ["alike", "differ"])
def test_entitlements_hold_where_partners_differ(partners: str, tmp_path: Path) -> None:
    """A run misses with probability 0.025 at most, so more than 2 of 8 do in 1 of 1 000 cases."""
    actions = np.array([[0.9, 0.1], [0.5, 0.5], [0.1, 0.9]])
    thetas = np.array([[0.3, 0.5], [0.5, 0.3], [0.6, 0.3]])  # its own first
    merits = np.exp(10.0 * actions @ thetas[0])
    missed = 0
    for seed in range(8):
        settings, rng = (
            settings_for(str(tmp_path / str(seed) / "agent"), dimension=2, noise_sd=0.1),
            np.random.default_rng(seed),
        )
        Path(settings.data).mkdir()
        Agent.open(place_of(settings), dimension=2, partners=partners, seed=seed).close()
        service = open_service(settings).default
        agents = [service.agent, ffx.Agent(2, seed=seed), ffx.Agent(2, seed=seed + 100)]
        for _ in range(3):
            with service.agent.transaction():
                for agent, theta in zip(agents * 80, [*thetas] * 80, strict=True):
                    made = agent.decide(actions)
                    agent.observe(made, reward=float(actions[made.action] @ theta + 0.1 * rng.normal()))
            sent = {agent.name: agent.release() for agent in agents}
            for agent in agents:
                agent.absorb(sent)
        rows = asyncio.run(service.exposures.look()).table.actions
        shares = merits / merits.sum()
        missed += any(not row.entitled.low <= shares[int(row.name[-1])] <= row.entitled.high for row in rows)
        service.agent.close()
    assert missed <= 2


def test_a_window_counts_what_was_made_in_it(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(exposing, "FRESH", 0.0)
    monkeypatch.setattr(exposing, "COST", 0.0)
    with asking(place) as client:
        rewarded(client, 3)
        middle = time.time()
        rewarded(client, 5)
        ask = client.get
        assert ask("/v1/exposure", params={"since": middle}).json()["decisions"] == 5
        assert ask("/v1/exposure", params={"until": middle}).json()["decisions"] == 3
        assert ask("/v1/exposure", params={"since": middle, "until": middle}).json()["decisions"] == 0
        empty = ask("/v1/exposure", params={"since": time.time() + 100}).json()
        assert (empty["decisions"], empty["actions"], empty["first"]) == (0, [], None)


def test_the_noise_of_rewards_is_half_of_their_range() -> None:
    assert exposing._half_range(ffx.Agent(2)) == 0.5
    assert exposing._half_range(ffx.Agent(2, reward_range=(1.0, 5.0))) == 2.0
    for stated, half in (({}, 0.5), ({"reward_range": (1.0, 5.0)}, 2.0)):  # of a federation
        terms = Terms(dimension=2, agents=2, horizon=10, algorithm="fed-fairx-bayes", **stated)
        member = terms.agent("org1", seed=0)
        assert member.options.reward_range is not None
        assert exposing._half_range(member) == half


def test_each_window_has_a_table_of_its_own(tmp_path: Path) -> None:
    """While they are fresh, too: a table is not that of another beginning or end."""
    with served(str(tmp_path / "agent.sqlite")) as (client, _):
        rewarded(client, 3)
        middle = time.time()
        rewarded(client, 5)

        def decisions(**window: float) -> int:
            return int(client.get("/v1/exposure", params=window).json()["decisions"])

        for _ in range(2):
            assert [decisions(), decisions(since=middle), decisions(until=middle)] == [8, 5, 3]
            assert [decisions(since=middle, until=middle), decisions(until=time.time() + 1)] == [0, 8]


def test_a_clock_that_goes_back_keeps_no_old_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    wall, passed = time.time(), 100.0
    clocks = SimpleNamespace(time=lambda: wall, monotonic=lambda: passed)
    with ffx.Agent.open(tmp_path / "agent.db", dimension=3) as agent:
        cache = exposing.ExposureCache(agent, settings_for(str(tmp_path / "agent.sqlite")))
        monkeypatch.setattr(exposing, "time", clocks)

        def decisions() -> int:
            return asyncio.run(cache.look()).table.decisions

        agent.decide(np.eye(3))
        assert decisions() == 1
        agent.decide(np.eye(3))
        passed += exposing.FRESH
        assert decisions() == 1  # it is still fresh
        wall, passed = wall - 3_600.0, passed + 1.0
        assert decisions() == 2


def test_of_too_many_decisions_the_latest_are_looked_at(place: str) -> None:
    with asking(place, exposure_decisions=10) as client:
        rewarded(client, 10)
        assert client.get("/v1/exposure").json()["bounded"] is False
    with asking(place, exposure_decisions=10) as client:
        rewarded(client, 3)
        found = client.get("/v1/exposure").json()
        assert (found["decisions"], found["bounded"]) == (10, True)


def test_steps_that_are_no_decisions_are_not_too_many(tmp_path: Path) -> None:
    with ffx.Agent.open(tmp_path / "agent.db", dimension=3) as agent:
        agent.learn(np.eye(3), [0.0, 0.5, 1.0])
        settings = settings_for(str(tmp_path / "agent.sqlite"), exposure_decisions=4)
        for many in (4, 5):
            while agent.pending < many:
                agent.decide(np.eye(3))
            looked = asyncio.run(exposing.ExposureCache(agent, settings).look())
            assert (looked.table.decisions, looked.bounded) == (4, many > 4)


def test_in_shadow_mode_it_is_a_table_of_the_callers_own_choices(place: str) -> None:
    with asking(place, mode="shadow") as client:
        rewarded(client, 30, baseline="ben")
        found = client.get("/v1/exposure").json()
        assert {row["name"]: row["shown_times"] for row in found["actions"]} == {
            "ann": 0,
            "ben": 30,
            "cat": 0,
        }
        assert found["baseline"] == 30
        assert found["draws"]["verdict"] == "as the policy said"


def test_many_who_look_make_one_table(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    made = []
    real = exposing.exposure
    monkeypatch.setattr(exposing, "exposure", lambda *args, **more: made.append(1) or real(*args, **more))
    with served(str(tmp_path / "agent.sqlite")) as (client, service):
        rewarded(client, 3)

        async def look() -> None:
            await asyncio.gather(*(service.exposures.look() for _ in range(20)))

        client.portal.call(look)
        assert len(made) == 1


def test_glances(place: str) -> None:
    with served(place) as (client, service):
        journal = service.journal
        assert latest(journal, limit=5) == []
        assert first_time(journal) is None
        assert number_at(journal, time.time()) == 0
        before = time.time() - 1
        rewarded(client, 12)
        decide(client)
        every = [each.seq for each in journal.decisions()]
        assert [each.seq for each in latest(journal, limit=5)] == every[::-1][:5]
        assert [each.seq for each in latest(journal, limit=50, before=every[4])] == every[:4][::-1]
        end = number_at(journal, None)
        assert end == every[-1] + 1
        for each in journal.decisions():
            assert number_at(journal, each.time - 1e-7) <= each.seq
        assert number_at(journal, time.time() + 100) == end
        assert last_of(journal, 3, first=0, end=end) == every[-3]
        assert last_of(journal, 100, first=0, end=end) == 0
        assert any_made(journal, first=every[3], end=every[3] + 1)
        assert not any_made(journal, first=every[3] + 1, end=every[4])
        made, rewards = by_time(journal, since=before, width=3_600.0, count=2)
        assert (sum(made), sum(rewards)) == (13, 12)


def test_counts_are_brought_up_to_date(place: str) -> None:
    with served(place) as (client, service):
        journal, counting, since = service.journal, DecisionCounters(), time.time() - 10
        for _ in range(3):
            rewarded(client, 4)
            gone = decide(client)
            client.delete(f"/v1/decisions/{gone['decision_id']}")
            decide(client)
            rewarded(client, 1)
            assert counting.by_status(journal) == journal.counts()
            time.sleep(0.01)
            for width in (0.01, 5.0):
                count = int((time.time() - since) / width) + 1
                now = counting.by_time(journal, since=since, width=width, count=count)
                assert now == by_time(journal, since=since, width=width, count=count)
        assert counting.by_status(journal) == {"pending": 3, "rewarded": 15, "withdrawn": 3, "expired": 0}


def test_the_last_interval_is_counted_again(tmp_path: Path) -> None:
    """It is not over: what was made since the last look is in it, and in those that have begun since."""
    with ffx.Agent.open(tmp_path / "agent.db", dimension=3) as agent:
        journal, counting = agent.journal, DecisionCounters()
        since = journal.log.now() // 1_000_000
        for step in range(6):
            journal.log.clock = lambda step=step: int((since + 4.0 * step) * 1e9)
            agent.observe(agent.decide(np.eye(3)), reward=0.5)
            agent.decide(np.eye(3))
            count = int(4.0 * step / 10.0) + 1  # intervals of ten seconds
            found = counting.by_time(journal, since=since, width=10.0, count=count)
            assert found == by_time(journal, since=since, width=10.0, count=count)
            assert sum(found[0]) == 2 * (step + 1)
        assert counting.by_time(journal, since=since, width=10.0, count=2) == by_time(
            journal, since=since, width=10.0, count=2
        )


def test_threads_that_count_at_once_count_once() -> None:
    """The second waits until the first has written down how far it has counted."""
    both, asked = threading.Barrier(2), []

    class Slow:
        """A journal whose steps are counted while another thread asks."""

        def counted(self, until: int) -> tuple[int, dict[str, int], int]:
            asked.append(until)
            with suppress(threading.BrokenBarrierError):
                both.wait(0.2)  # never both, if one waits for the other
            return 10 - until, {}, 10

    counting = DecisionCounters()
    with ThreadPoolExecutor(2) as threads:
        found = list(threads.map(counting.by_status, [Slow(), Slow()]))
    assert [each["pending"] for each in found] == [10, 10]
    assert asked == [0, 10]


@pytest.mark.filterwarnings("ignore::fedfairx.errors.ScaleWarning")
def test_contexts_so_long_that_sums_are_singular(tmp_path: Path) -> None:
    """As of times in seconds since 1970: pages still come, and know nothing of entitlements."""
    with served(str(tmp_path / "agent.db"), dimension=2) as (client, _):
        for _ in range(2):
            made = decide(client, contexts=[[1e9, 1e9], [1e9, 1e9]])
            client.put(f"/v1/decisions/{made['decision_id']}/reward", json={"reward": 1.0})
        assert "Contexts are longer than 10" in client.get("/").text
        found = client.get("/v1/exposure").json()
        assert (found["decisions"], found["actions"][0]["entitled"]["value"]) == (2, None)


def test_own_rewards_are_believed_as_the_agent_believes_them() -> None:
    agent = ffx.Agent(actions=["ann", "ben", "cid"], seed=0)
    agent.learn(["ann", "ben"] * 40, [0.5, 0.7] * 40)
    own = agent.own_records()
    assert own is not None
    sums = exposing.OwnSums(*unpack(own[0]), *own[1:])
    exact, names = exposing.by_own_rewards(agent, sums), ["ann", "ben", "cid"]
    assert np.array_equal(exact.mean, agent.posterior.mean)
    assert np.array_equal(exact.own_mean(names), agent.posterior.own_mean(names))
    fewer = exposing.by_own_rewards(agent, sums._replace(names=sums.names[:2], tallies=sums.tallies[:2]))
    assert fewer.own_mean(names) == pytest.approx(exact.own_mean(names))  # before an action was added


def test_a_table_that_takes_long_is_the_last_one_until_then(
    place: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Nobody waits for it once there is one; after records were deleted, nobody gets the last one."""
    monkeypatch.setattr(exposing, "FRESH", -1.0)
    monkeypatch.setattr(exposing, "COST", 0.0)
    monkeypatch.setattr(exposing, "PATIENCE", 0.05)
    with Agent.open(place, dimension=2) as agent:
        agent.decide(np.eye(2))
        cache = exposing.ExposureCache(agent, settings_for(place, dimension=2))
        make, going_on = cache._make, threading.Event()
        going_on.set()

        def slowly(*window: Any) -> exposing.ExposureSnapshot:
            found = make(*window)
            assert going_on.wait(30)
            return found

        monkeypatch.setattr(cache, "_make", slowly)

        async def seen() -> list[int]:
            found = [(await cache.look()).table.decisions]
            going_on.clear()
            agent.decide(np.eye(2))
            found.append((await cache.look()).table.decisions)  # still made
            cache.start_over()
            waiting = asyncio.create_task(cache.look())
            done, _ = await asyncio.wait([waiting], timeout=0.1)
            found.append(len(done))
            going_on.set()
            found.append((await waiting).table.decisions)
            return found

        assert asyncio.run(seen()) == [1, 1, 0, 2]


@pytest.fixture
def slow(monkeypatch: pytest.MonkeyPatch) -> dict[bool, threading.Event]:
    """Tables of few decisions and of all, each of which is computed once its event is set."""
    monkeypatch.setattr(exposing, "PATIENCE", 0.05)
    monkeypatch.setattr(exposing, "FEW", (3, 1 << 19))
    make, events = exposing.ExposureCache._make, {True: threading.Event(), False: threading.Event()}

    def slowly(self: exposing.ExposureCache, *asked: Any) -> exposing.ExposureSnapshot:
        assert events[asked[-1]].wait(30)
        return make(self, *asked)

    monkeypatch.setattr(exposing.ExposureCache, "_make", slowly)
    return events


def test_nobody_waits_for_the_first_table(place: str, slow: dict[bool, threading.Event]) -> None:
    """Until it is there, pages have that of the latest decisions, and before that none."""
    with Agent.open(place, dimension=2) as agent:
        for _ in range(8):
            agent.decide(np.eye(2))
        cache = exposing.ExposureCache(agent, settings_for(place, dimension=2))

        async def seen() -> list[Any]:
            found: list[Any] = [await cache.glance()]
            slow[True].set()
            while (looked := await cache.glance()) is None:
                pass
            found.append((looked.table.decisions, looked.partial, looked.bounded))
            waiting = asyncio.create_task(cache.look())  # which is of all, always
            done, _ = await asyncio.wait([waiting], timeout=0.1)
            again = await cache.glance()
            assert again is not None
            found += [len(done), again.table.decisions]
            slow[False].set()
            whole = await waiting
            assert await cache.glance() is whole
            found.append((whole.table.decisions, whole.partial))
            return found

        assert asyncio.run(seen()) == [None, (3, True, False), 0, 3, (8, False)]


@pytest.mark.parametrize(("decisions", "arms", "count"), [(3, 2, 3), (4, 2, 3), (4, 4, 2), (4, 9, 1)])
def test_a_first_table_is_of_few_shares(
    place: str, monkeypatch: pytest.MonkeyPatch, decisions: int, arms: int, count: int
) -> None:
    """Where nothing is left out, it is the table; steps that are no decisions do not count."""
    monkeypatch.setattr(exposing, "FEW", (3, 8))
    with Agent.open(place, dimension=arms) as agent:
        agent.learn(np.eye(arms), np.zeros(arms))
        for _ in range(decisions):
            agent.decide(np.eye(arms))
        looked = exposing.ExposureCache(agent, settings_for(place, dimension=arms))._make(None, None, True)
        assert (looked.table.decisions, looked.partial) == (count, count < decisions)


def test_a_short_log_has_one_table(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    made, real = [], exposing.exposure
    monkeypatch.setattr(exposing, "exposure", lambda *args, **more: made.append(1) or real(*args, **more))
    with Agent.open(place, dimension=2) as agent:
        agent.decide(np.eye(2))
        cache = exposing.ExposureCache(agent, settings_for(place, dimension=2))

        async def seen() -> list[int]:
            return [(await read()).table.decisions for read in (cache.glance, cache.look, cache.glance)]

        assert asyncio.run(seen()) == [1, 1, 1]
        assert len(made) == 1


def test_an_error_of_a_first_table_is_not_hidden(place: str, monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*_: Any) -> None:
        raise StorageUnavailable("gone")

    with Agent.open(place, dimension=2) as agent:
        cache = exposing.ExposureCache(agent, settings_for(place, dimension=2))
        monkeypatch.setattr(cache, "_make", fails)
        with pytest.raises(StorageUnavailable):
            asyncio.run(cache.glance())
