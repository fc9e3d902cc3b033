"""A time in which the storage is unavailable, in the log: its first error, a count each minute, its end."""

from __future__ import annotations

import logging
import time

from fedfairx.errors import StorageUnavailable
from fedfairx.service.metrics import Metrics

MINUTE = 60.0  # seconds
LOG = logging.getLogger("fedfairx.service")


class Outage:
    """Whether the storage is unavailable, and since when. Only the event loop uses it."""

    def __init__(self, metrics: Metrics) -> None:
        self._metrics = metrics
        self._refused = 0  # requests, before it began
        self._said = 0.0
        self.error: StorageUnavailable | None = None  # the latest; None while the storage works
        self.since = 0.0  # by the monotonic clock

    def fail(self, error: StorageUnavailable) -> None:
        """The storage has failed."""
        if self.error is None:
            self.since = self._said = time.monotonic()
            self._refused = self._metrics.problems["unavailable"]
            LOG.warning("the storage is unavailable: %s", error)
        self.error = error

    def go_on(self) -> None:
        """The storage is still unavailable."""
        now = time.monotonic()
        if now >= self._said + MINUTE:
            self._said = now
            LOG.warning("the storage has been unavailable for %s: %s", self._length(), self.error)

    def end(self) -> None:
        """The storage works again."""
        self.error = None
        LOG.warning("the storage is back after %s", self._length())

    def _length(self) -> str:
        refused = self._metrics.problems["unavailable"] - self._refused
        return f"{time.monotonic() - self.since:.0f} s, {refused} requests refused"
