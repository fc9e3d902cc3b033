"""`fedfairx demo`: three services that learn together, with simulated traffic, in the browser."""

from __future__ import annotations

import os
import signal
import socket
import sys
import tempfile
import time
import webbrowser
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedfairx.agent.options import PLAIN, SECURE
from fedfairx.cli.common import Output
from fedfairx.errors import needs, require
from fedfairx.privacy import Budget
from fedfairx.util.config import with_default
from fedfairx.util.formatting import text_table

if TYPE_CHECKING:
    from fedfairx.demo.launcher import Fleet
    from fedfairx.demo.traffic import Orders
    from fedfairx.federation.roster.terms import Terms

NAMES = ("org1", "org2", "org3")
USUAL = 8000  # port of services
HORIZON = 100_000  # rounds of a demonstration without --rounds
SECURE_EPSILON = 2.0
SECURE_ROUNDS: Any = {"first": 20, "ratio": 1.1, "count": 60}  # the last one after an hour and a half
HEADINGS = ("agent", "orders", "rewards", "releases", "lag", "privacy", "regret", "alone", "ratio")
EARLIER = 1500  # orders of each organisation before the browser opens
LARGEST = 100  # most orders placed at once: fewer than the first reward is late
PATIENCE = {"flower": 60.0}  # seconds that --rounds waits for the peers' releases; other transports: 5
LAST_TOTAL = 30.0  # seconds that the end waits for a round, and for its total
TICK = 0.5  # seconds between two updates
SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")  # variables that say that a browser can be shown
BETWEEN_LINES = 5.0  # seconds between two lines, where output goes into a file or a pipe


@dataclass(frozen=True, kw_only=True)
class Demo(Output):
    """Watch simulated services learn to be fair, in your browser. Three organisations give each
    order to one of eight couriers nearby. Every 400 orders a courier leaves and another joins. Whether an
    order arrived in time is known 300 to 900 orders later, and of 8 % never. Each organisation has a service
    with web pages, and they share what they learn. The dispatcher of org1 wrongs one courier: an order
    drawn for this one is withdrawn and given to another. The first 1 500 orders of each are placed at once.
    For comparison, a twin of each service sees the same orders and learns alone. Everything runs on this
    machine and is deleted afterwards. Ctrl-C ends it.

        fedfairx demo
        fedfairx demo --epsilon 8 --rate 100
        fedfairx demo --no-browser --port 9000 --seconds 60 --data DIR
        fedfairx demo --secure --rounds 5000 --json

    no_browser: open no browser.
    port: port of the first service (default: 8000, or a free one if that is taken or with --rounds).
    rate: orders of each organisation per second.
    epsilon: share privately with this ε (default: sums are exact, NOT private; with --secure 2).
    secure: organisations only ever see the sum of their releases, every few seconds (secure aggregation).
    transport: nats needs nats-server, flower needs Flower's commands.
    flower: folder with flower-superlink and the other commands (default: on the path).
    seconds: stop after this many seconds (default: it runs until Ctrl-C).
    rounds: place this many orders of each as fast as possible, without a browser, and stop.
    seed: seed of the orders and their outcomes.
    data: a new folder to keep everything in (default: it is deleted).
    """

    no_browser: bool = False
    port: int | None = None
    rate: float = 10.0
    epsilon: float | None = with_default(Budget, "epsilon", None)
    secure: bool = False
    transport: Literal["sqlite", "nats", "flower"] = "sqlite"
    flower: str | None = field(default=None, metadata={"metavar": "BIN"})
    seconds: float | None = None
    rounds: int | None = None
    seed: int = 0
    data: str | None = field(default=None, metadata={"metavar": "DIR"})

    def run(self) -> int:
        require(self.rounds is None or self.rounds >= 1, "--rounds", "must be >= 1", self.rounds)
        require(self.rate > 0, "--rate", "must be > 0", self.rate)
        with needs("service,client"):
            import fedfairx.service.app  # noqa: F401
            from fedfairx.client import Client  # noqa: F401
        from fedfairx.demo.launcher import Fleet
        from fedfairx.demo.traffic import Orders

        show(f"starting {len(NAMES)} services; the first time, compiling takes a minute", self.json)
        with tempfile.TemporaryDirectory(prefix="fedfairx-demo-") as temporary:
            fleet = Fleet(
                Path(self.data or Path(temporary) / "federation"),
                NAMES,
                self.terms(),
                transport=self.transport,
                decide_from=None if self.claimed is None else "own+released",
                seed=self.seed,
                flower=self.flower,
                port=self._port(),
            )
            with _terminated_as_by_ctrl_c(), fleet:
                orders = [
                    Orders(name, fleet.urls[name], seed=self.seed, place=place, key=fleet.keys.get(name))
                    for place, name in enumerate(NAMES)
                ]
                display = Display(self, orders)
                display.welcome(fleet)
                with suppress(KeyboardInterrupt):
                    display.go()
                display.finish()
            lost = sum(each.lost(fleet.database(each.name)) for each in orders)
            return display.report(lost)

    @property
    def claimed(self) -> float | None:
        """ε, if sums are private."""
        return SECURE_EPSILON if self.epsilon is None and self.secure else self.epsilon

    def terms(self) -> Terms:
        from fedfairx.demo.couriers import SCHEMA
        from fedfairx.federation.roster.rounds import Rounds
        from fedfairx.federation.roster.terms import Terms

        rounds, aggregation = None, PLAIN
        if self.secure:
            rounds, aggregation = Rounds(begin=int(time.time()), **SECURE_ROUNDS), SECURE
        return Terms(
            schema=SCHEMA,
            agents=len(NAMES),
            horizon=self.rounds or HORIZON,
            rounds=rounds,
            algorithm="fed-fairx-bayes" if self.claimed is None else "priv-fairx-bayes",
            epsilon=self.claimed,
            aggregation=aggregation,
        )

    def _port(self) -> int:
        """The port that was given; the usual one to look at in a browser; 0 for any."""
        if self.port is not None:
            return self.port
        return 0 if self.rounds is not None else _usual_or_free()


@contextmanager
def _terminated_as_by_ctrl_c() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C, so that the services, which are other processes, are stopped too."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _usual_or_free() -> int:
    """The usual port, or 0 for any if it is taken."""
    with socket.socket() as listener:
        listener.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            listener.bind(("127.0.0.1", USUAL))
        except OSError:
            return 0
    return USUAL


class Display:
    """Traffic to all services at once, and its display."""

    def __init__(self, args: Demo, orders: list[Orders]) -> None:
        self._args = args
        self._orders = orders
        self._looks: list[dict[str, Any]] = [{} for _ in orders]  # as `Orders.look` returns them
        self._drawn = 0  # lines of the table on the screen
        self._printed = time.monotonic()  # when the last line was printed, where there is no screen

    def welcome(self, fleet: Fleet) -> None:
        epsilon = self._args.claimed
        kind = "exact sums, NOT private" if epsilon is None else f"private, ε={epsilon:g}"
        kind += ", secure aggregation" if self._args.secure else ""
        self._print(f"{len(self._orders)} services share what they learn by {self._args.transport} ({kind}):")
        for each in self._orders:
            key = fleet.keys.get(each.name)
            login = "" if key is None else f"  (any user, password {key})"
            self._print(f"  {each.name}  {each.url}/  {each.url}/federation{login}")
        self._print(f"in {fleet.folder}; Ctrl-C ends it")
        for each in self._orders:
            if each.wronged is not None:
                self._print(
                    f"{each.name} withdraws what is drawn for {each.wronged}: see {each.url}/exposure"
                )
        if self._args.rounds is None:
            self._print(f"placing the first {EARLIER} orders of each")

    def go(self) -> None:
        """Place orders until all are placed, or until Ctrl-C."""
        args, ends = self._args, None
        with ThreadPoolExecutor(len(self._orders)) as pool:
            shown = 0.0
            for count, at_once in self._batches():
                began = time.monotonic()
                if not at_once and ends is None:
                    ends = inf if args.seconds is None else began + args.seconds
                    self._open()
                if ends is not None and began > ends:
                    return
                list(pool.map(lambda each: each.place(count), self._orders))  # noqa: B023
                self._looks = self._look(pool)
                if began - shown > TICK:
                    shown = began
                    self._show()
                if not at_once:
                    time.sleep(max(0.0, TICK - (time.monotonic() - began)))

    def _batches(self) -> Iterator[tuple[int, bool]]:
        """How many orders to place next, and whether as fast as possible."""
        rounds, done = self._args.rounds, 0
        first = EARLIER if rounds is None else rounds
        while done < first:
            count = min(LARGEST, first - done)
            yield count, True
            done += count
        while rounds is None:
            yield max(1, round(TICK * self._args.rate)), False

    def _open(self) -> None:
        """Open the first service's pages, where there is a screen."""
        screen = sys.platform in ("darwin", "win32") or any(map(os.environ.get, SCREENS))
        if screen and not self._args.no_browser:  # without a screen, a browser may take the terminal
            webbrowser.open(f"{self._orders[0].url}/")

    def _look(self, pool: ThreadPoolExecutor) -> list[dict[str, Any]]:
        """The state of all services; with --rounds, once each holds its peers' latest releases.

        --rounds places weeks of orders in a minute: milliseconds of a transport would count as days.
        """
        quick = self._args.rounds is not None and not self._args.secure
        patience = PATIENCE.get(self._args.transport, 5.0) if quick else 0.0
        ends = time.monotonic() + patience
        while True:
            looks = list(pool.map(lambda each: each.look(), self._orders))
            if _level(looks) or time.monotonic() >= ends:
                return looks
            time.sleep(0.01)

    def finish(self) -> None:
        """Send the last rewards, and show the final state."""
        for each in self._orders:
            each.settle()
        with ThreadPoolExecutor(len(self._orders)) as pool:
            self._looks = self._look(pool)
            if self._args.secure:
                self._await_total(pool)
        if sys.stderr.isatty():
            self._show()
        else:
            self._print(self._table())

    def _await_total(self, pool: ThreadPoolExecutor) -> None:
        """Wait for the total of the next round, which has all rewards, unless that is long to come."""
        last = max((look["sync"]["aggregation"]["round"] for look in self._looks if look), default=0)
        ends = time.monotonic() + LAST_TOTAL
        while time.monotonic() < ends:
            self._looks = self._look(pool)
            if all(look and look["sync"]["aggregation"]["opened"] > last for look in self._looks):
                return
            coming = [look["sync"]["aggregation"]["next_time"] for look in self._looks if look]
            if not coming or None in coming or min(coming) > time.time() + LAST_TOTAL:
                return
            time.sleep(TICK)

    def report(self, lost: int) -> int:
        """Print the result; return 1 if something acknowledged is missing."""
        together, alone = self._mean("together"), self._mean("alone")
        totals = self._totals()
        ratio = f", ratio {together / alone:.2f}" if alone else ""
        counts = ", ".join(f"{number} {name}" for name, number in totals.items())
        self._args.answer(
            totals | {"fairness_regret": {"federated": together, "alone": alone}},
            f"fairness regret of each: {together:.1f} together, {alone:.1f} alone{ratio}; {counts}",
        )
        if lost:
            print(f"{lost} acknowledged decisions or rewards are missing in the databases", file=sys.stderr)
        return 1 if lost else 0

    def _mean(self, which: str) -> float:
        return float(sum(getattr(each, which) for each in self._orders) / len(self._orders))

    def _totals(self) -> dict[str, Any]:
        return {
            "orders": sum(each.placed for each in self._orders),
            "rewards": sum(each.rewarded for each in self._orders),
            "releases": sum(look["sync"]["released"] for look in self._looks if look),
        } | self._opened()

    def _opened(self) -> dict[str, int]:
        """With secure aggregation, the last round whose total all have."""
        if not self._args.secure:
            return {}
        return {
            "opened": min((look["sync"]["aggregation"]["opened"] for look in self._looks if look), default=0)
        }

    def _show(self) -> None:
        """Redraw the table on a terminal; elsewhere print a line every `BETWEEN_LINES` seconds."""
        if self._args.json:
            return
        if not sys.stderr.isatty():
            if time.monotonic() - self._printed > BETWEEN_LINES:
                self._printed = time.monotonic()
                self._print(self._line())
            return
        if self._drawn:
            sys.stderr.write(f"\x1b[{self._drawn}A\x1b[J")
        text = self._table()
        self._print(text)
        self._drawn = text.count("\n") + 1

    def _print(self, text: str) -> None:
        show(text, self._args.json)

    def _table(self) -> str:
        """The state of each organisation."""
        rows = []
        for each, look in zip(self._orders, self._looks, strict=True):
            state = (look["sync"]["released"], _lag(look), _privacy(look)) if look else ("?", "?", "?")
            ratio = f"{each.together / each.alone:.2f}" if each.alone else ""
            regrets = (f"{each.together:.1f}", f"{each.alone:.1f}", ratio)
            rows.append((each.name, each.placed, each.rewarded, *state, *regrets))
        return text_table(HEADINGS, rows)

    def _line(self) -> str:
        """The state of all organisations together."""
        looks = [look for look in self._looks if look]
        parts = [
            *(f"{number} {name}" for name, number in self._totals().items()),
            f"lag {max(map(_lag, looks), default=0)}",
            *sorted({f"privacy {_privacy(look)}" for look in looks}),
            f"fairness regret {self._mean('together'):.1f} together, {self._mean('alone'):.1f} alone",
        ]
        return ", ".join(parts)


def show(text: str, json: bool) -> None:
    """Print on standard error, unless the answer is JSON."""
    if not json:
        print(text, file=sys.stderr, flush=True)


def _lag(look: dict[str, Any]) -> int:
    """The most releases that a peer is behind; with secure aggregation, the rounds without a total."""
    releases, secure = int(look["sync"]["released"]), look["sync"]["aggregation"]
    if secure is not None:
        return int(secure["round"]) - int(secure["opened"])
    return max([0, *(releases - int(peer["release"]) for peer in look["sync"]["peers"].values())])


def _privacy(look: dict[str, Any]) -> str:
    """The spent part of the budget."""
    state = look["privacy"]
    return (
        f"{state['spent']} of {state['releases']} (ε={state['epsilon']:g})" if state["private"] else "exact"
    )


def _level(looks: list[dict[str, Any]]) -> bool:
    """Whether every member holds its peers' latest releases."""
    if not all(looks):
        return False
    releases = {look["sync"]["name"]: look["sync"]["released"] for look in looks}
    return all(
        not look["sync"]["waiting"]
        and all(peer["release"] == releases[name] for name, peer in look["sync"]["peers"].items())
        for look in looks
    )
