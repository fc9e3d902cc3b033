"""A thread that works when there is something to do, and rests in between."""

from __future__ import annotations

import threading
import time

from fedfairx.federation.transport import MemoryTransport
from fedfairx.federation.watching import Bell, repeat


def test_news_of_many_are_taken_together_and_a_hurry_is_not_waited_for() -> None:
    bell, done, transport = Bell(), threading.Semaphore(0), MemoryTransport()
    times = []

    def work() -> None:
        times.append(time.monotonic())
        done.release()

    stop = repeat(work, transport, bell, every=60.0, rest=60.0, name="test")
    try:
        assert done.acquire(timeout=10)
        transport.publish("a", b"1", replacing=None)
        assert not done.acquire(timeout=0.1)  # it rests
        bell.hurry()
        assert done.acquire(timeout=10)
    finally:
        stop()
    assert len(times) == 2


def test_it_rests_longer_after_long_work_but_not_for_ever() -> None:
    bell, times = Bell(), []

    def work() -> None:
        times.append(time.monotonic())
        time.sleep(0.05)
        bell.ring()

    stop = repeat(work, MemoryTransport(), bell, every=0.5, rest=0.0, name="test")
    time.sleep(1.0)
    stop()
    assert 2 <= len(times) <= 5  # a fifth of a second each at least
