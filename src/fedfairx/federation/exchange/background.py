"""Doing something in a thread, whenever a transport has news, and now and then without."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable

from fedfairx.federation.transport.protocol import Transport

SHARE = 5  # a thread takes one part in so many of a core at most: decisions are what the machine is for


class Wakeup:
    """What a thread waits for: `ring` when there may be something to do, `hurry` when it should not rest."""

    def __init__(self) -> None:
        self._rung = threading.Event()
        self._hurried = threading.Event()

    def ring(self) -> None:
        self._rung.set()

    def hurry(self) -> None:
        self._rung.set()
        self._hurried.set()

    def clear(self) -> None:
        self._rung.clear()
        self._hurried.clear()

    def rest(self, seconds: float) -> None:
        self._hurried.wait(seconds)

    def wait(self, seconds: float) -> None:
        self._rung.wait(seconds)


def repeat(
    work: Callable[[], None], transport: Transport, bell: Wakeup, *, every: float, name: str
) -> Callable[[], None]:
    """Do `work` at once, when the bell rings, as it does when the transport has news, and every so often.

    After it the thread rests, in proportion to the CPU time that it took, so that it keeps to its share and
    news of many agents is taken together; never longer than `every`. Time that it waited, for the hub or on a
    busy machine for its turn, does not count: it took nothing from anybody.

    Gives a function that ends it, and returns when it has ended.
    """
    ended = threading.Event()
    unwatch = transport.watch(bell.ring)

    def live() -> None:
        while not ended.is_set():
            bell.clear()
            began = time.thread_time()
            work()
            took = time.thread_time() - began
            bell.rest(min((SHARE - 1) * took, every))
            bell.wait(every)

    thread = threading.Thread(target=live, name=f"fedfairx-{name}", daemon=True)
    thread.start()

    def stop() -> None:
        ended.set()
        unwatch()
        bell.hurry()
        thread.join()

    return stop
