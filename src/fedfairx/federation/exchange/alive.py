"""Signs of life: when each peer of a member last showed that it runs.

Releases are rare, so a member also renews a signed time at the transport (`envelope.py`), whether it has
records or not. A sign goes to everybody. So the more members there are, the more seldom each renews its own:
a member gets about one in `SPACING` seconds, and the hub passes on as many messages a second as there are
members. A member that has stopped is noticed that much later (`silence`).

A sign of life counts from the time in it or from when it came here, whichever is earlier. So
a hub that shows an old one again can't make a peer that has stopped look alive, nor can a clock that is
ahead. A clock that is behind makes its owner look silent for as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from math import floor
from zlib import crc32

from fedfairx.errors import MessageRefused
from fedfairx.federation.transport.protocol import Conflict, Transport, alive_key

ATTEMPTS = 3  # attempts at a name that another writer uses at the same moment

RENEWED = 30.0  # seconds between two signs of life of a member, at least
SPACING = 1.0  # seconds between two signs of different members, at least on average
SILENT = 300.0  # seconds without a sign, after which a peer counts as silent, among few members
AHEAD = 300.0  # seconds by which a peer's clock may be ahead of ours


def renewal(members: int) -> float:
    """Seconds between two signs of life of one of so many members."""
    return max(RENEWED, SPACING * members)


def silence(members: int) -> float:
    """Seconds without a sign of life, after which one of so many members counts as silent."""
    return SILENT - RENEWED + renewal(members)


class SignsOfLife:
    """The last sign of life of each peer, in seconds since 1970.

    members: number of members of the federation, as of our last own sign.
    last: by name.
    ours: our own last one that the transport has stored; None before the first.
    """

    def __init__(self) -> None:
        self.members = 0
        self.last: dict[str, float] = {}
        self.ours: float | None = None
        self._began = 0.0  # when ours was stored for the first time
        self._last_message: bytes | None = None  # our last one in the transport, as far as we know

    def take(self, name: str, signed: int, *, now: float) -> None:
        """Take a verified sign of life of `name`; an old one changes nothing."""
        if signed > now + AHEAD:
            rule = f"must be at most {AHEAD:.0f} s ahead of ours, got {signed - now:.0f} s"
            raise MessageRefused(f"the clock of {name!r} {rule}", reason="clock")
        self.saw(name, min(float(signed), now))

    def saw(self, name: str, moment: float) -> None:
        """Note that `name` has sent something at this time."""
        self.last[name] = max(moment, self.last.get(name, 0.0))

    def stored(self, moment: float) -> None:
        """Note that the transport has stored our sign of life of this time."""
        if self.ours is None:
            self._began = moment
        self.ours = moment

    def renew(
        self,
        transport: Transport,
        name: str,
        sign: Callable[[float], bytes],
        *,
        now: float,
        members: int,
    ) -> None:
        """Renew our own at the transport if it is time to; `sign` makes one of a time."""
        self.members = members
        if self.ours is not None and self._turn(name, now) == self._turn(name, self.ours):
            return
        message = sign(now)
        for _ in range(ATTEMPTS):
            try:
                transport.publish(alive_key(name), message, replacing=self._last_message)
            except Conflict as conflict:  # an earlier process has left it, or a second one renews it, too
                self._last_message = conflict.held
            else:
                self._last_message = message
                self.stored(now)
                return

    def _turn(self, name: str, moment: float) -> int:
        """The number of a renewal. Members that have started at once renew at different times."""
        return floor(moment / renewal(self.members) + crc32(name.encode()) / 2**32)

    def age(self, name: str, now: float) -> float:
        """Seconds since the last sign of life of `name`, or since our first one if it never gave one."""
        since = self.last.get(name, self._began or now)
        return max(now - since, 0.0)

    def silent(self, names: Iterable[str]) -> list[str]:
        """Those whose last sign of life is more than `silence` older than our own.

        While ours do not come through, the others may well run.
        """
        if self.ours is None:
            return []
        longest = silence(self.members)
        return [name for name in names if self.age(name, self.ours) > longest]
