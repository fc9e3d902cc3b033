"""Doing something in a thread, whenever a transport has news, and now and then without."""

from __future__ import annotations

import threading
from collections.abc import Callable

from fedfairx.federation.transport.protocol import Transport

__all__ = ["repeat"]


def repeat(
    work: Callable[[], None],
    transport: Transport,
    news: threading.Event,
    *,
    every: float,
    rest: float,
    name: str,
) -> Callable[[], None]:
    """Do `work` at once, when `news` is set, which the transport does too, and every so many seconds.

    Gives a function that ends it, and returns when it has ended.
    """
    ended = threading.Event()
    unwatch = transport.watch(news.set)

    def live() -> None:
        while not ended.is_set():
            news.clear()
            work()
            ended.wait(rest)
            news.wait(every)

    thread = threading.Thread(target=live, name=f"fedfairx-{name}", daemon=True)
    thread.start()

    def stop() -> None:
        ended.set()
        unwatch()
        news.set()
        thread.join()

    return stop
