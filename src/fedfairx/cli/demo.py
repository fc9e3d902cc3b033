"""`fedfairx demo`: services of a small federation with simulated traffic, in the browser."""

from __future__ import annotations

import socket
from dataclasses import dataclass, field

from fedfairx.cli.common import Verb
from fedfairx.demo import federation
from fedfairx.privacy import Budget
from fedfairx.util.config import with_default

USUAL = 8000  # port of services
EARLIER = 1500  # orders of each organisation before the browser opens


@dataclass(frozen=True, kw_only=True)
class DemoVerb(Verb):
    """Watch simulated services learn to be fair, in your browser. Three organisations give each
    order to one of eight couriers nearby. Every 400 orders a courier leaves and another joins. Whether an
    order arrived in time is known 300 to 900 orders later, and of 8 % never. Each organisation has a service
    with web pages, and they share what they learn. The first 1 500 orders of each are placed at once.
    Everything runs on this machine and is deleted afterwards. Ctrl-C ends it. `fedfairx federate demo` has
    the same traffic and more flags.

        fedfairx demo
        fedfairx demo --epsilon 8 --rate 100
        fedfairx demo --no-browser --port 9000 --seconds 60 --data DIR

    no_browser: open no browser.
    port: port of the first service (default: 8000, or a free one if that is taken).
    rate: orders of each organisation per second.
    epsilon: share privately with this ε (default: sums are exact, NOT private).
    seconds: stop after this many seconds (default: it runs until Ctrl-C).
    data: a new folder to keep everything in (default: it is deleted).
    """

    no_browser: bool = False
    port: int | None = None
    rate: float = 10.0
    epsilon: float | None = with_default(Budget, "epsilon", None)
    seconds: float | None = None
    data: str | None = field(default=None, metadata={"metavar": "DIR"})

    def run(self) -> int:
        return federation.Demo(
            rate=self.rate,
            epsilon=self.epsilon,
            data=self.data,
            seconds=self.seconds,
            port=_usual_or_free() if self.port is None else self.port,
            earlier=EARLIER,
            browser=not self.no_browser,
            draws=False,
        ).run()


def _usual_or_free() -> int:
    """The usual port, or 0 for any if it is taken."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", USUAL))
        except OSError:
            return 0
    return USUAL
