"""A local copy of a NATS stream: the latest message of each agent, and whether any was missed."""

from __future__ import annotations

import threading
from typing import Any

from fedfairx.federation.transport.protocol import Watchers


class Mirror:
    """Messages by agent, with the stream's revisions, which number all of its messages together.

    Revisions can be compared as long as the stream only grows. A stream that was created again, or restored
    from an older copy, reuses them: `doubt` then has everything fetched.

    whole: no message up to this revision was missed; -1 when nothing is known.
    doubts: number of calls of `doubt`.
    """

    def __init__(self, watchers: Watchers | None = None) -> None:
        self.watchers = Watchers() if watchers is None else watchers
        self.whole = -1
        self.doubts = 0
        self._lock = threading.Lock()
        self._messages: dict[str, tuple[int, bytes]] = {}
        self._before: dict[str, bytes] = {}  # messages in doubt, shown until the stream was fetched
        self._heard = 0  # the last revision received
        self._ahead: set[int] = set()  # received, with a gap before them
        self._stream: Any = None  # its creation time

    def of(self, agent: str) -> tuple[int, bytes | None]:
        """Revision and latest message of an agent; (0, None) if it has sent nothing."""
        return self._messages.get(agent, (0, None))

    def latest(self) -> dict[str, bytes]:
        with self._lock:
            return self._before | {agent: message for agent, (_, message) in self._messages.items()}

    @property
    def highest(self) -> int:
        """The highest revision known; a stream that has only grown is at it or beyond."""
        return max([self.whole, *(revision for revision, _ in self._messages.values())])

    def keep(self, agent: str, revision: int, message: bytes) -> None:
        """Store a message of the stream, unless a newer one is held."""
        with self._lock:
            if revision <= self._messages.get(agent, (0, b""))[0]:
                return
            self._messages[agent] = revision, message
        self.watchers.tell()

    def receive(self, agent: str, revision: int, message: bytes) -> bool:
        """Store a republished message; False if its revision is not new, which puts everything in doubt."""
        grown = revision > self._heard
        if not grown:
            self.doubt()
        self._heard = revision
        self.keep(agent, revision, message)
        self._ahead.add(revision)
        self._close_up()
        return grown

    def fetched(self, revision: int, doubts: int) -> None:
        """Note that everything up to this revision was fetched, if `doubts` is still the number of doubts."""
        if doubts != self.doubts:  # the stream went back meanwhile
            return
        with self._lock:
            self._before = {}
        self.whole = max(self.whole, revision)
        self._close_up()
        self.watchers.tell()

    def _close_up(self) -> None:
        if self.whole >= 0:
            while self.whole + 1 in self._ahead:
                self.whole += 1
        self._ahead = {revision for revision in self._ahead if revision > self.whole}

    def doubt(self, since: int = -1) -> None:
        """Forget all revisions after `since`: the stream may be another one, or restored to that time."""
        before = self.latest()
        with self._lock:
            messages = {name: entry for name, entry in self._messages.items() if entry[0] <= since}
            self._before, self._messages = before, messages
        self._ahead, self._heard, self.whole = set(), max(since, 0), min(since, self.whole)
        self.doubts += 1

    def same_stream(self, created: object, *, last: int, highest: int) -> bool:
        """Whether the stream, made at `created` and now at revision `last`, has only grown since `highest`.

        If not, everything is put in doubt.
        """
        same = created == self._stream and last >= highest
        if not same:
            self._stream = created
            self.doubt()
        return same
