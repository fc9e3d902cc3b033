"""Signs of life: when each peer of a member last showed that it runs.

Releases are rare, so a member also renews a signed time at the transport (`envelope.py`), whether it has
records or not. A sign of life counts from the time in it or from when it came here, whichever is earlier. So
a hub that shows an old one again can't make a peer that has stopped look alive, nor can a clock that is
ahead. A clock that is behind makes its owner look silent for as long.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fedfairx.errors import MessageRefused
from fedfairx.federation.transport.protocol import Conflict, Transport, alive_key

ATTEMPTS = 3  # attempts at a name that another writer uses at the same moment

RENEWED = 30.0  # seconds between two signs of life of a member
SILENT = 300.0  # seconds without one, after which a peer counts as silent
AHEAD = 300.0  # seconds by which a peer's clock may be ahead of ours


class SignsOfLife:
    """The last sign of life of each peer, in seconds since 1970.

    last: by name.
    ours: our own last one that the transport has stored; None before the first.
    """

    def __init__(self) -> None:
        self.last: dict[str, float] = {}
        self.ours: float | None = None
        self._began = 0.0  # when ours was stored for the first time
        self._held: bytes | None = None  # our last one in the transport, as far as we know

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

    def renew(self, transport: Transport, name: str, sign: Callable[[float], bytes], *, now: float) -> None:
        """Renew our own at the transport if it is older than `RENEWED`; `sign` makes one of a time."""
        if self.ours is not None and 0.0 <= now - self.ours < RENEWED:
            return
        message = sign(now)
        for _ in range(ATTEMPTS):
            try:
                transport.publish(alive_key(name), message, replacing=self._held)
            except Conflict as taken:  # an earlier process has left it, or a second instance renews it, too
                self._held = taken.held
            else:
                self._held = message
                self.stored(now)
                return

    def age(self, name: str, now: float) -> float:
        """Seconds since the last sign of life of `name`, or since our first one if it never gave one."""
        since = self.last.get(name, self._began or now)
        return max(now - since, 0.0)

    def silent(self, names: Iterable[str]) -> list[str]:
        """Those whose last sign of life is more than `SILENT` seconds older than our own.

        While ours do not come through, the others may well run.
        """
        return [] if self.ours is None else [name for name in names if self.age(name, self.ours) > SILENT]
