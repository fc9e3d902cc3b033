"""What a NATS stream holds, as far as one agent has heard: the latest of each, and whether any was missed."""

from __future__ import annotations

import threading
from typing import Any

from fedfairx.federation.transport.watchers import Watchers

__all__ = ["Mirror"]


class Mirror:
    """Messages by agent, with the stream's revisions, which number all of its messages together.

    whole: up to this revision none was missed; -1 when nothing is known.
    """

    def __init__(self) -> None:
        self.watchers = Watchers()
        self.whole = -1
        self._lock = threading.Lock()
        self._messages: dict[str, tuple[int, bytes]] = {}
        self._ahead: set[int] = set()  # heard of, with a gap before them
        self._stream: Any = None  # when it was made

    def of(self, agent: str) -> tuple[int, bytes | None]:
        """The latest of an agent, and its revision; (0, None) of one that has sent nothing."""
        return self._messages.get(agent, (0, None))

    def latest(self) -> dict[str, bytes]:
        with self._lock:
            return {agent: message for agent, (_, message) in self._messages.items()}

    def keep(self, agent: str, revision: int, message: bytes) -> None:
        """A message that the stream has; an older one than is held changes nothing."""
        with self._lock:
            if revision <= self._messages.get(agent, (0, b""))[0]:
                return
            self._messages[agent] = revision, message
        self.watchers.tell()

    def hear(self, agent: str, revision: int, message: bytes) -> None:
        """A message as the stream tells of it, in the order of revisions unless the connection was lost."""
        self.keep(agent, revision, message)
        self._ahead.add(revision)
        self._close_up()

    def looked(self, revision: int) -> None:
        """All that the stream had at this revision was fetched."""
        self.whole = max(self.whole, revision)
        self._close_up()

    def _close_up(self) -> None:
        if self.whole >= 0:
            while self.whole + 1 in self._ahead:
                self.whole += 1
        self._ahead = {revision for revision in self._ahead if revision > self.whole}

    def of_stream(self, made: object) -> None:
        """A stream that was made at another time has other messages, and its revisions begin anew."""
        if made != self._stream:
            with self._lock:
                self._stream, self._messages, self._ahead, self.whole = made, {}, set(), -1
