"""A background thread that works whenever the transport has news, and at intervals."""

from __future__ import annotations

import threading
import time
from collections.abc import Callable, Sequence

from fedfairx.errors import FedFairXError
from fedfairx.federation.transport.protocol import Transport

SHARE = 5  # the thread uses at most 1/SHARE of a core, which decisions need


class Wakeup:
    """An event for the thread: `ring` when there may be work, `skip_rest` to skip the rest period."""

    def __init__(self) -> None:
        self._rung = threading.Event()
        self._hurried = threading.Event()

    def ring(self) -> None:
        self._rung.set()

    def skip_rest(self) -> None:
        self._rung.set()
        self._hurried.set()

    def clear(self) -> None:
        self._rung.clear()
        self._hurried.clear()

    def rest(self, seconds: float) -> None:
        self._hurried.wait(seconds)

    def wait(self, seconds: float) -> None:
        self._rung.wait(seconds)


def in_turn(
    tasks: Sequence[Callable[[], object]], failed: Callable[[str], None], after: Callable[[], None] | None
) -> Callable[[], None]:
    """Work for `repeat`: these tasks, and then `after`.

    A task that fails tells `failed` why, and is tried again at the next turn: an operator may have acted.
    """

    def work() -> None:
        for task in tasks:
            try:
                task()
            except FedFairXError as error:  # including an agent whose storage is unavailable
                failed(str(error))
        if after is not None:
            after()

    return work


def repeat(
    work: Callable[[], None], transport: Transport, wakeup: Wakeup, *, every: float, name: str
) -> Callable[[], None]:
    """Do `work` at once, whenever `wakeup` rings, as on news of the transport, and every `every` seconds.

    After each turn the thread rests in proportion to the CPU time that it took, at most `every` seconds, so
    that it keeps to its share and takes news of many peers together. Time spent waiting does not count.

    Returns a function that stops the thread and waits for its end.
    """
    ended = threading.Event()
    unwatch = transport.watch(wakeup.ring)

    def live() -> None:
        while not ended.is_set():
            wakeup.clear()
            began = time.thread_time()
            work()
            took = time.thread_time() - began
            wakeup.rest(min((SHARE - 1) * took, every))
            wakeup.wait(every)

    thread = threading.Thread(target=live, name=f"fedfairx-{name}", daemon=True)
    thread.start()

    def stop() -> None:
        ended.set()
        unwatch()
        wakeup.skip_rest()
        thread.join()

    return stop
