"""A member's connection to its transport: what members with and without secure aggregation share."""

from __future__ import annotations

import threading
from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable

from fedfairx.agent.agent import Agent
from fedfairx.errors import MessageRefused
from fedfairx.federation.exchange.alive import SignsOfLife
from fedfairx.federation.exchange.background import Wakeup, in_turn, repeat
from fedfairx.federation.exchange.envelope import Codec, SignedCodec
from fedfairx.federation.transport.protocol import Transport, alive_key


class Connection(ABC):
    """Connects `agent` to a `transport`, with messages by `seal`. Threads may share it.

    refusals: number of refused messages, by sender and reason.
    rejected: why the message that the transport holds now is refused, by its name there.
    away: why the transport is unavailable; None while it is not.
    signs: the signs of life of the peers.
    """

    def __init__(self, agent: Agent, transport: Transport, seal: Codec, clock: Callable[[], float]) -> None:
        self.agent, self.transport, self.clock = agent, transport, clock
        self.refusals: Counter[tuple[str, str]] = Counter()
        self.rejected: dict[str, str] = {}
        self.away: str | None = None
        self.signs = SignsOfLife()
        self._seal = seal
        self._lock = threading.RLock()
        self._wakeup = Wakeup()
        self._looked_at: dict[str, bytes] = {}  # the last message under each name

    @abstractmethod
    def exchange(self) -> bool:
        """Send and receive; False if the transport is unavailable."""

    def _refuse(self, name: str, reason: str, *, key: str = "") -> None:
        """Count a refused message of `name`, which the transport holds under `key`, by default the name."""
        self.refusals[name, reason] += 1
        self.rejected[key or name] = reason

    def _take_sign(self, name: str, message: bytes) -> None:
        """Take a sign of life of a peer."""
        assert isinstance(self._seal, SignedCodec)
        place = alive_key(name)
        self._looked_at[place] = message
        self.rejected.pop(place, None)
        try:
            self.signs.take(name, self._seal.open_sign_of_life(name, message), now=self.clock())
        except MessageRefused as error:
            self._refuse(name, error.reason, key=place)

    def show_life(self) -> None:
        """Renew this member's sign of life at the transport, if it is time to."""
        seal = self._seal
        if isinstance(seal, SignedCodec):
            sign, members = seal.close_sign_of_life, len(seal.roster.members)
            self.signs.renew(self.transport, self.agent.name, sign, now=self.clock(), members=members)

    @property
    def sign_of_life(self) -> bytes | None:
        """A sign of life of now; None among agents of one process."""
        seal = self._seal
        return seal.close_sign_of_life(self.clock()) if isinstance(seal, SignedCodec) else None

    def watch(self, *, every: float = 1.0, after: Callable[[], None] | None = None) -> Callable[[], None]:
        """Call `exchange` in a thread, on news and every `every` seconds; return a function that stops it.

        After each exchange it calls `after`, and rests so that it takes at most a fifth of a core.
        """

        def failed(why: str) -> None:
            self.away = why

        work = in_turn((self.exchange, self.show_life), failed, after)
        return repeat(work, self.transport, self._wakeup, every=every, name=self.agent.name)

    def wake(self) -> None:
        """Have the thread of `watch` exchange at once; return without waiting for it."""
        self._wakeup.skip_rest()

    def close(self) -> None:
        """Close the transport."""
        self.transport.close()
