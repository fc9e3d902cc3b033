"""The queue: whole groups, refused steps among them, limits, and an orderly end."""

from __future__ import annotations

import asyncio
import math
import threading
from collections.abc import Callable, Coroutine, Iterator
from contextlib import AbstractContextManager, contextmanager
from pathlib import Path
from typing import Any

import pytest

import fedfairx as ffx
from fedfairx.errors import StateError, StorageUnavailable, UnknownDecision
from fedfairx.service import write_queue
from fedfairx.service.factory import open_service
from fedfairx.service.metrics import Metrics
from fedfairx.service.problems import ProblemError
from fedfairx.service.server import Server, serve
from fedfairx.service.write_queue import PAUSE, WriteQueue
from fedfairx.storage.database import Busy
from service_helpers import settings_for

CONTEXTS = [[0.1, 0.2], [0.2, 0.1]]


class Watched:
    """An agent and its log, whose transactions are seen, can be held up and can fail."""

    def __init__(self) -> None:
        self.agent = ffx.Agent(2, seed=0)
        self.journal = self.database = self
        self.groups: list[int] = []
        self.begun = threading.Event()  # a transaction has
        self.gate = threading.Event()
        self.gate.set()
        self.fail = False
        self.busy = 0  # times that another process is writing
        self.snapshot_soon = False
        self.free = True  # whether a transaction can begin at once
        self.held = 0  # times that one has begun so, and was let go of
        self.threads: list[bool] = []  # whether a step ran in the event loop's thread

    @property
    def transaction(self) -> AbstractContextManager[None]:
        return self._transact()

    @contextmanager
    def _transact(self) -> Iterator[None]:
        self.groups.append(0)
        yield
        self.begun.set()
        self.gate.wait(10)
        if self.fail:
            raise StorageUnavailable("the disk is full")
        if self.busy:
            self.busy -= 1
            raise Busy("another process is writing")

    def take_at_once(self) -> bool:
        self.held += self.free
        return self.free

    def let_go(self) -> None:
        self.held -= 1

    def long_after(self) -> bool:
        return self.snapshot_soon

    def decide(self) -> Any:
        self.groups[-1] += 1
        self.threads.append(threading.current_thread() is threading.main_thread())
        return self.agent.decide(CONTEXTS)


def run(work: Callable[[WriteQueue, Watched], Coroutine[Any, Any, None]], limit: int = 100) -> Watched:
    async def whole() -> Watched:
        watched = Watched()
        queue = WriteQueue(watched, Metrics(), limit=limit)  # type: ignore[arg-type]
        queue.requests = {"this one"}
        await work(queue, watched)
        watched.gate.set()
        await queue.close()
        return watched

    return asyncio.run(whole())


def decide(watched: Any) -> Any:
    return watched.decide()


def unknown(_watched: Any) -> None:
    raise UnknownDecision("no such decision")


def test_what_waits_is_written_together() -> None:
    async def work(queue: WriteQueue, watched: Watched) -> None:
        made = await asyncio.gather(*[queue.do(watched, decide) for _ in range(20)])
        assert len({one.id for one in made}) == 20

    assert run(work).groups == [20]


def test_more_than_a_group_holds_are_several_groups(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_queue, "MOST", 3)

    async def work(queue: WriteQueue, watched: Watched) -> None:
        async with asyncio.timeout(10):
            assert len(await asyncio.gather(*(queue.do(watched, decide) for _ in range(8)))) == 8

    assert run(work).groups == [3, 3, 2]


def test_agents_take_turns(monkeypatch: pytest.MonkeyPatch) -> None:
    """A group ends when one agent has taken long and another waits; each agent's steps keep their order."""
    monkeypatch.setattr(write_queue, "TURN", -1.0, raising=False)  # every step takes longer
    order: list[str] = []

    async def work(queue: WriteQueue, watched: Watched) -> None:
        def put(owner: list[str], what: str) -> Coroutine[Any, Any, str]:
            def step(_: object) -> str:
                watched.groups[-1] += 1
                order.append(what)
                return what

            return queue.do(owner, step, last=lambda _: order.append(f"end of {owner[0]}"))

        slow, quick = ["slow"], ["quick"]
        whats = [(slow, f"s{number}") for number in range(4)] + [(quick, f"q{number}") for number in range(2)]
        async with asyncio.timeout(10):
            outcomes = await asyncio.gather(*(put(*each) for each in whats))
        assert outcomes == [what for _, what in whats]
        assert (queue.metrics.groups, queue.metrics.grouped) == (5, 6)

    assert run(work).groups == [1, 1, 1, 1, 2]  # at the end nobody else waits
    steps = [what for what in order if not what.startswith("end")]
    assert steps == ["s0", "q0", "s1", "q1", "s2", "s3"]
    assert order[1::2][:4] == ["end of slow", "end of quick"] * 2


def test_steps_that_were_put_off_can_fail(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_queue, "TURN", -1.0, raising=False)

    def wrong(_: object) -> None:
        raise ZeroDivisionError

    async def work(queue: WriteQueue, watched: Watched) -> None:
        steps = (queue.do(watched, decide), queue.do([], wrong), queue.do(watched, unknown))
        outcomes = await asyncio.gather(*steps, queue.do(watched, decide), return_exceptions=True)
        kinds = [type(one).__name__ for one in outcomes]
        assert kinds == ["Decision", "ZeroDivisionError", "UnknownDecision", "Decision"]
        watched.fail = True
        two = (queue.do(watched, decide), queue.do([], lambda _: None))
        outcomes = await asyncio.gather(*two, return_exceptions=True)
        assert all(isinstance(one, StorageUnavailable) for one in outcomes)

    run(work)


def test_what_comes_while_it_writes_is_the_next_group() -> None:
    async def work(queue: WriteQueue, watched: Watched) -> None:
        watched.gate.clear()
        first = asyncio.create_task(queue.do(watched, decide))
        await asyncio.to_thread(watched.begun.wait, 10)
        others = [asyncio.create_task(queue.do(watched, decide)) for _ in range(5)]
        await asyncio.sleep(0)  # they are in the queue
        assert not first.done()  # nothing is acknowledged before it is on disk
        watched.gate.set()
        await asyncio.gather(first, *others)

    assert run(work).groups == [1, 5]


def test_a_short_step_of_the_only_request_changes_no_thread() -> None:
    """The first does, since nobody knows the disk yet."""

    async def work(queue: WriteQueue, watched: Watched) -> None:
        for _ in range(3):
            await queue.do(watched, decide, short=True)
        assert watched.threads == [False, True, True]

    assert run(work).groups == [1, 1, 1]


def test_the_server_says_which_requests_are_under_way(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun: list[Server] = []

    async def begin(server: Server) -> None:
        begun.append(server)

    monkeypatch.setattr(Server, "serve", begin)
    service = open_service(settings_for(str(tmp_path / "agent.db")))
    serve(service)
    assert service.write_queue.requests is begun[0].server_state.tasks
    asyncio.run(service.close())


@pytest.mark.parametrize("why", ["others", "unknown", "long", "last", "busy", "slow", "snapshot"])
def test_other_steps_run_in_the_thread(why: str, monkeypatch: pytest.MonkeyPatch) -> None:
    async def work(queue: WriteQueue, watched: Watched) -> None:
        await queue.do(watched, decide, short=True)
        watched.free, watched.snapshot_soon = why != "busy", why == "snapshot"
        if why == "slow":
            monkeypatch.setattr(write_queue, "SHORT", 0.0)
        last = (lambda _: None) if why == "last" else None
        if why in ("others", "unknown"):
            queue.requests = {"this one", "another"} if why == "others" else None
        await queue.do(watched, decide, last=last, short=why != "long")
        assert watched.threads == [False, False]

    run(work)


def test_a_step_that_fails_in_the_event_loop() -> None:
    async def work(queue: WriteQueue, watched: Watched) -> None:
        await queue.do(watched, decide, short=True)
        with pytest.raises(UnknownDecision):
            await queue.do(watched, unknown, short=True)
        assert (queue.metrics.storage_failures, queue.available) == (0, True)
        with pytest.raises(ZeroDivisionError):
            await queue.do(watched, lambda _: 1 / 0, short=True)
        assert (queue.metrics.storage_failures, queue.available) == (1, True)
        watched.fail = True
        with pytest.raises(StorageUnavailable):
            await queue.do(watched, decide, short=True)
        assert watched.threads == [False, True]
        assert watched.held == 0
        assert (queue.metrics.storage_failures, queue.available) == (2, False)
        assert queue.outage.error is not None
        watched.fail, queue.failed, queue._took = False, -math.inf, 0.0
        await queue.do(watched, decide, short=True)
        assert watched.threads == [False, True, True]
        assert queue.outage.error is None

    run(work)


def test_while_another_process_writes_a_step_waits_in_the_thread() -> None:
    async def work(queue: WriteQueue, watched: Watched) -> None:
        await queue.do(watched, decide, short=True)
        watched.busy = 1
        await queue.do(watched, decide, short=True)
        assert watched.threads == [False, True, False]
        assert watched.held == 0
        assert (queue.metrics.storage_failures, queue.available) == (0, True)

    run(work)


def test_a_refused_step_does_the_others_no_harm() -> None:
    async def work(queue: WriteQueue, watched: Watched) -> None:
        first, second, third = await asyncio.gather(
            queue.do(watched, decide),
            queue.do(watched, unknown),
            queue.do(watched, decide),
            return_exceptions=True,
        )
        assert isinstance(second, UnknownDecision)
        assert first.id != third.id

    run(work)


def test_a_failed_commit_refuses_the_whole_group_and_others_for_a_moment() -> None:
    async def work(queue: WriteQueue, watched: Watched) -> None:
        watched.fail = True
        outcomes = await asyncio.gather(
            *[queue.do(watched, decide) for _ in range(3)], return_exceptions=True
        )
        assert all(isinstance(one, StorageUnavailable) for one in outcomes)
        assert not queue.available
        with pytest.raises(ProblemError):
            await queue.do(watched, decide)
        watched.fail = False
        queue.failed -= PAUSE
        assert queue.available
        await queue.do(watched, decide)

    assert run(work).groups == [3, 1]


def test_a_mistake_with_one_agent_fails_no_other() -> None:
    """But a storage that is unavailable fails all, and at once."""

    def wrong(error: Exception) -> None:
        raise error

    async def work(queue: WriteQueue, watched: Watched) -> None:
        ended: list[str] = []
        outcomes = await asyncio.gather(
            queue.do(watched, decide, last=lambda _: ended.append("watched")),
            queue.do(ZeroDivisionError(), wrong, last=lambda _: ended.append("wrong")),
            queue.do(watched, unknown),
            queue.do(StateError("damaged"), wrong),
            queue.do(watched, decide),
            return_exceptions=True,
        )
        kinds = [type(one).__name__ for one in outcomes]
        assert kinds == ["Decision", "ZeroDivisionError", "UnknownDecision", "StateError", "Decision"]
        assert ended == ["watched"]
        assert queue.available
        with pytest.raises(StateError):  # also when no other waits
            await queue.do(StateError("damaged"), wrong)
        assert queue.available
        outcomes = await asyncio.gather(
            queue.do(watched, decide), queue.do(StorageUnavailable("full"), wrong), return_exceptions=True
        )
        assert all(isinstance(one, StorageUnavailable) for one in outcomes)
        assert not queue.available

    watched = run(work)
    assert sorted(watched.groups) == [0, 0, 0, 1, 1, 2]


def test_a_probe_does_not_outlive_a_failure(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(write_queue, "PROBED", 1e9)

    async def work(queue: WriteQueue, watched: Watched) -> None:
        watched.write = lambda _statement: []  # type: ignore[attr-defined]
        assert await queue.ready()
        watched.fail = True
        with pytest.raises(StorageUnavailable):
            await queue.do(watched, decide)
        assert not await queue.ready()

    run(work)


def test_a_mistake_of_ours_leaves_nobody_waiting() -> None:
    def wrong(_: Any) -> None:
        raise ZeroDivisionError

    async def work(queue: WriteQueue, watched: Watched) -> None:
        outcomes = await asyncio.gather(
            queue.do(watched, decide), queue.do(watched, wrong), return_exceptions=True
        )
        assert all(isinstance(one, ZeroDivisionError) for one in outcomes)

    run(work)


def test_too_many_that_wait() -> None:
    async def work(queue: WriteQueue, watched: Watched) -> None:
        outcomes = await asyncio.gather(
            *[queue.do(watched, decide) for _ in range(9)], return_exceptions=True
        )
        busy = [one for one in outcomes if isinstance(one, ProblemError)]
        assert len(busy) == 5
        assert all(one.kind == "busy" for one in busy)

    run(work, limit=4)


def test_one_who_has_gone_is_not_missed() -> None:
    async def work(queue: WriteQueue, watched: Watched) -> None:
        watched.gate.clear()
        gone, there = (
            asyncio.create_task(queue.do(watched, decide)),
            asyncio.create_task(queue.do(watched, decide)),
        )
        await asyncio.to_thread(watched.begun.wait, 10)
        gone.cancel()
        watched.gate.set()
        assert (await there).action in (0, 1)

    run(work)


def test_closing_finishes_what_waits() -> None:
    async def work(queue: WriteQueue, watched: Watched) -> None:
        waiting = [asyncio.create_task(queue.do(watched, decide)) for _ in range(3)]
        await asyncio.sleep(0)
        closing = asyncio.create_task(queue.close())
        await asyncio.gather(closing, *waiting)
        with pytest.raises(ProblemError, match="unavailable"):
            await queue.do(watched, decide)

    assert run(work).groups == [3]
