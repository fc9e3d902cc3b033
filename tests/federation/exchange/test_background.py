"""A thread that works when there is something to do, and rests in between."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from fedfairx.federation.exchange.background import SHARE, Wakeup, repeat
from fedfairx.federation.transport import MemoryTransport


class Resting(Wakeup):
    """Notes how long a rest should be, and has it last for ever, unless somebody hurries."""

    def __init__(self) -> None:
        super().__init__()
        self.rests: list[float] = []

    def rest(self, seconds: float) -> None:
        self.rests.append(seconds)
        super().rest(60.0)


def rest_after(work: Callable[[], None], *, every: float = 60.0) -> float:
    """The rest that follows this work."""
    wakeup, done = Resting(), threading.Event()

    def once() -> None:
        if not done.is_set():
            work()
        done.set()

    stop = repeat(once, MemoryTransport(), wakeup, every=every, name="test")
    assert done.wait(60)
    stop()
    return wakeup.rests[0]


def computing(seconds: float) -> Callable[[], None]:
    """Work that takes so much of a core, however long that is on this machine."""

    def work() -> None:
        ends = time.thread_time() + seconds
        while time.thread_time() < ends:
            pass

    return work


def test_news_of_many_are_taken_together_and_a_hurry_is_not_waited_for() -> None:
    wakeup, done, transport = Resting(), threading.Semaphore(0), MemoryTransport()
    stop = repeat(done.release, transport, wakeup, every=60.0, name="test")
    try:
        assert done.acquire(timeout=10)
        transport.publish("a", b"1", replacing=None)
        assert not done.acquire(timeout=0.1)  # it rests
        wakeup.skip_rest()
        assert done.acquire(timeout=10)
    finally:
        stop()
    assert len(wakeup.rests) == 2


def test_it_takes_no_more_than_its_share_of_a_core() -> None:
    took = 0.02
    assert rest_after(computing(took)) >= (SHARE - 1) * took


def test_waiting_is_no_work() -> None:
    """For the hub, for a lock or for its turn on a busy machine: as if it had taken no time."""
    waited = 0.02
    assert rest_after(lambda: threading.Event().wait(waited) and None) < waited


def test_it_never_rests_longer_than_between_two_looks() -> None:
    assert rest_after(computing(0.02), every=0.01) == 0.01
