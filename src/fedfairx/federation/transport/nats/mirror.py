"""What a NATS stream holds, as far as one agent has heard: the latest of each, and whether any was missed."""

from __future__ import annotations

import threading
from typing import Any

from fedfairx.federation.transport.protocol import Watchers


class Mirror:
    """Messages by agent, with the stream's revisions, which number all of its messages together.

    Revisions can be compared as long as the stream only grows. One that was made again or put back from an
    older copy gives them a second time: `doubt` then has everything fetched.

    whole: up to this revision none was missed; -1 when nothing is known.
    doubts: how often all was in doubt.
    """

    def __init__(self) -> None:
        self.watchers = Watchers()
        self.whole = -1
        self.doubts = 0
        self._lock = threading.Lock()
        self._messages: dict[str, tuple[int, bytes]] = {}
        self._before: dict[str, bytes] = {}  # in doubt: shown until the stream was looked at
        self._heard = 0  # the last revision that the stream has told of
        self._ahead: set[int] = set()  # heard of, with a gap before them
        self._stream: Any = None  # when it was made

    def of(self, agent: str) -> tuple[int, bytes | None]:
        """The latest of an agent, and its revision; (0, None) of one that has sent nothing."""
        return self._messages.get(agent, (0, None))

    def latest(self) -> dict[str, bytes]:
        with self._lock:
            return self._before | {agent: message for agent, (_, message) in self._messages.items()}

    @property
    def highest(self) -> int:
        """The highest revision that is known: a stream that has only grown is at it, or beyond."""
        return max([self.whole, *(revision for revision, _ in self._messages.values())])

    def keep(self, agent: str, revision: int, message: bytes) -> None:
        """A message that the stream has; an older one than is held changes nothing."""
        with self._lock:
            if revision <= self._messages.get(agent, (0, b""))[0]:
                return
            self._messages[agent] = revision, message
        self.watchers.tell()

    def hear(self, agent: str, revision: int, message: bytes) -> bool:
        """A message as the stream tells of it; False: not for the first time, so that all is in doubt."""
        grown = revision > self._heard
        if not grown:
            self.doubt()
        self._heard = revision
        self.keep(agent, revision, message)
        self._ahead.add(revision)
        self._close_up()
        return grown

    def looked(self, revision: int, doubts: int) -> None:
        """All that the stream had at this revision was fetched since so many doubts."""
        if doubts != self.doubts:  # it went back meanwhile
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

    def doubt(self) -> None:
        """The stream may be another, or be at an earlier time: no revision of before counts any more."""
        before = self.latest()
        with self._lock:
            self._before, self._messages = before, {}
        self._ahead, self._heard, self.whole = set(), 0, -1
        self.doubts += 1

    def same_stream(self, made: object, *, last: int, known: int) -> bool:
        """Whether the stream, made then and now at revision `last`, has only grown since it was at `known`.

        If not, all is in doubt.
        """
        same = made == self._stream and last >= known
        if not same:
            self._stream = made
            self.doubt()
        return same
