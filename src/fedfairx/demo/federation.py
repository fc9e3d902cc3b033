"""`fedfairx federate demo`: services of a federation on this machine, simulated traffic, and its display."""

from __future__ import annotations

import os
import signal
import sys
import tempfile
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from math import inf
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedfairx.agent.options import PLAIN, SECURE, Options
from fedfairx.cli.common import Output
from fedfairx.errors import MissingLibrary, needs, require
from fedfairx.privacy import Budget
from fedfairx.util.config import with_default
from fedfairx.util.formatting import text_table

if TYPE_CHECKING:
    from fedfairx.demo.launcher import Fleet
    from fedfairx.demo.traffic import Orders
    from fedfairx.federation.roster.terms import Terms

HEADINGS = ("agent", "decisions", "rewards", "releases", "lag", "privacy", "regret", "alone", "ratio")
HORIZON = 100_000  # rounds of a demonstration without --rounds
LARGEST = 100  # most orders placed at once: fewer than the first reward is late
PATIENCE = {"flower": 60.0}  # seconds that --rounds waits for the peers' releases; other transports: 5
SECURE_EPSILON = 2.0
SECURE_ROUNDS: Any = {"first": 20, "ratio": 1.1, "count": 60}  # the last one after an hour and a half
LAST_TOTAL = 30.0  # seconds that the end waits for a round, and for its total
FIGURE = "federation-demo.png"
TICK = 0.5  # seconds between two updates
SCREENS = ("DISPLAY", "WAYLAND_DISPLAY", "BROWSER")  # variables that say that a browser can be shown
BETWEEN_LINES = 5.0  # seconds between two lines, where output goes into a file or a pipe


@dataclass(frozen=True, kw_only=True)
class Demo(Output):
    """Run a federation of services on this machine, with simulated traffic, and watch it learn. Organisations
    give orders to couriers, as in `fedfairx demo`. Each has its own service, with web pages, and a twin that
    sees the same orders and learns alone. Without --rounds it runs until Ctrl-C.

        fedfairx federate demo
        fedfairx federate demo --agents 5 --rounds 20000 --json
        fedfairx federate demo --transport nats --epsilon 8
        fedfairx federate demo --aggregation secure --rounds 5000
        fedfairx federate demo --transport flower --flower flower/bin --rate 1

    agents: number of organisations.
    transport: nats needs nats-server, flower needs Flower's commands.
    flower: folder with flower-superlink and the other commands (default: on the path).
    rounds: orders of each organisation, placed as fast as possible (default: it runs until Ctrl-C).
    epsilon: share privately with this ε (default: sums are exact, NOT private; with secure aggregation 2).
    aggregation: secure if organisations only ever see the sum of their releases, every few seconds.
    colluding: with secure aggregation, how many organisations may collude (default: a fifth, at least one).
    rate: orders of each organisation per second.
    seed: seed of the orders and their outcomes.
    figure: draw regret over rounds into this file (default: federation-demo.png; none with --json).
    data: a new folder to keep everything in (default: it is deleted).
    """

    agents: int = 3
    transport: Literal["sqlite", "nats", "flower"] = "sqlite"
    flower: str | None = field(default=None, metadata={"metavar": "BIN"})
    rounds: int | None = None
    epsilon: float | None = with_default(Budget, "epsilon", None)
    aggregation: str = with_default(Options, "aggregation", PLAIN)
    colluding: int | None = with_default(Options, "colluding", None)
    rate: float = 20.0
    seed: int = 0
    figure: str | None = field(default=None, metadata={"metavar": "FILE"})
    data: str | None = field(default=None, metadata={"metavar": "DIR"})
    # What `fedfairx demo` sets:
    port: int = 0  # of the first service
    seconds: float | None = None
    earlier: int = 0  # orders of each that are placed at once
    browser: bool = False  # whether to open one then
    draws: bool = True  # whether there is a figure without --figure

    def run(self) -> int:
        require(self.agents >= 2, "--agents", "must be >= 2", self.agents)
        require(self.rounds is None or self.rounds >= 1, "--rounds", "must be >= 1", self.rounds)
        require(self.rate > 0, "--rate", "must be > 0", self.rate)
        with needs("service,client"):
            import fedfairx.service.app  # noqa: F401
            from fedfairx.client import Client  # noqa: F401
        from fedfairx.demo.launcher import Fleet
        from fedfairx.demo.traffic import Orders

        show(f"starting {self.agents} services; the first time, compiling takes a minute", self.json)
        names = [f"org{number}" for number in range(1, self.agents + 1)]
        with tempfile.TemporaryDirectory(prefix="fedfairx-federation-") as temporary:
            fleet = Fleet(
                Path(self.data or Path(temporary) / "federation"),
                names,
                self.terms(),
                transport=self.transport,
                decide_from=None if self.claimed is None else "own+released",
                seed=self.seed,
                flower=self.flower,
                port=self.port,
            )
            with _terminated_as_by_ctrl_c(), fleet:
                orders = [
                    Orders(name, fleet.urls[name], seed=self.seed, place=place, key=fleet.keys.get(name))
                    for place, name in enumerate(names)
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
        return SECURE_EPSILON if self.epsilon is None and self.aggregation == SECURE else self.epsilon

    def terms(self) -> Terms:
        from fedfairx.demo.couriers import SCHEMA
        from fedfairx.federation.roster.rounds import Rounds
        from fedfairx.federation.roster.terms import Terms

        secure = self.aggregation == SECURE
        return Terms(
            schema=SCHEMA,
            agents=self.agents,
            horizon=self.rounds or HORIZON,
            rounds=Rounds(begin=int(time.time()), **SECURE_ROUNDS) if secure else None,
            algorithm="fed-fairx-bayes" if self.claimed is None else "priv-fairx-bayes",
            epsilon=self.claimed,
            aggregation=self.aggregation,
            colluding=self.colluding,
        )


@contextmanager
def _terminated_as_by_ctrl_c() -> Iterator[None]:
    """Handle SIGTERM like Ctrl-C, so that the services, which are other processes, are stopped too."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


class Display:
    """Traffic to all services at once, and its display."""

    def __init__(self, args: Demo, orders: list[Orders]) -> None:
        self._args = args
        self._orders = orders
        self._looks: list[dict[str, Any]] = [{} for _ in orders]  # as `Orders.look` returns them
        self._curve: list[tuple[int, float, float]] = []  # rounds, mean regret together and alone
        self._drawn = 0  # lines of the table on the screen
        self._printed = time.monotonic()  # when the last line was printed, where there is no screen

    def welcome(self, fleet: Fleet) -> None:
        epsilon = self._args.claimed
        kind = "exact sums, NOT private" if epsilon is None else f"private, ε={epsilon:g}"
        kind += ", secure aggregation" if self._args.aggregation == SECURE else ""
        self._print(f"{len(self._orders)} services share what they learn by {self._args.transport} ({kind}):")
        for each in self._orders:
            key = fleet.keys.get(each.name)
            login = "" if key is None else f"  (any user, password {key})"
            self._print(f"  {each.name}  {each.url}/  {each.url}/federation{login}")
        self._print(f"in {fleet.folder}; Ctrl-C ends it")
        if self._args.earlier:
            self._print(f"placing the first {self._args.earlier} orders of each")

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
                done = max(each.decisions for each in self._orders)
                self._curve.append((done, self._mean("together"), self._mean("alone")))
                if began - shown > TICK:
                    shown = began
                    self._show()
                if not at_once:
                    time.sleep(max(0.0, TICK - (time.monotonic() - began)))

    def _batches(self) -> Iterator[tuple[int, bool]]:
        """How many orders to place next, and whether as fast as possible."""
        rounds, done = self._args.rounds, 0
        first = self._args.earlier if rounds is None else rounds
        while done < first:
            count = min(LARGEST, first - done)
            yield count, True
            done += count
        while rounds is None:
            yield max(1, round(TICK * self._args.rate)), False

    def _open(self) -> None:
        """Open the first service's pages, where there is a screen."""
        import webbrowser

        screen = sys.platform in ("darwin", "win32") or any(map(os.environ.get, SCREENS))
        if self._args.browser and screen:  # without a screen, a browser may take the terminal
            webbrowser.open(f"{self._orders[0].url}/")

    def _look(self, pool: ThreadPoolExecutor) -> list[dict[str, Any]]:
        """The state of all services; with --rounds, once each holds its peers' latest releases.

        --rounds places weeks of orders in a minute: milliseconds of a transport would count as days.
        """
        quick = self._args.rounds is not None and self._args.aggregation == PLAIN
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
            if self._args.aggregation == SECURE:
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
        self._draw()
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
            "decisions": sum(each.decisions for each in self._orders),
            "rewards": sum(each.rewarded for each in self._orders),
            "releases": sum(look["sync"]["released"] for look in self._looks if look),
        } | self._opened()

    def _opened(self) -> dict[str, int]:
        """With secure aggregation, the last round whose total all have."""
        if self._args.aggregation == PLAIN:
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
            rows.append((each.name, each.decisions, each.rewarded, *state, *regrets))
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

    def _draw(self) -> None:
        file = self._args.figure or (FIGURE if self._args.draws and not self._args.json else None)
        if file is None or not self._curve:
            return
        try:
            draw(self._curve, self._args.claimed, file)
            self._print(f"the figure is {file}")
        except MissingLibrary as error:
            if self._args.figure:
                raise
            self._print(f"no figure: {error}")


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


def draw(curve: list[tuple[int, float, float]], epsilon: float | None, file: str) -> None:
    """Draw mean fairness regret over rounds, together and alone."""
    from fedfairx.util.figure_style import COLOURS, end_labels, few_rounds, styled, thousands

    rounds, together, alone = zip(*curve, strict=True)
    name = "fed-fairx-bayes" if epsilon is None else "priv-fairx-bayes"
    with styled():
        from matplotlib.figure import Figure

        figure = Figure(figsize=(5.4, 3.3), layout="constrained")
        axes = figure.subplots()
        curves = ((together, "together", COLOURS[name]), (alone, "alone", COLOURS["fairx-bayes"]))
        for values, _, colour in curves:
            axes.plot(rounds, values, color=colour)
        axes.set_title("fairness regret, mean of the organisations")
        axes.set_xlabel("orders of each")
        thousands(axes.xaxis)
        thousands(axes.yaxis)
        axes.margins(x=0)
        few_rounds(axes)
        end_labels(axes, [(values[-1], label, colour) for values, label, colour in curves])
        figure.savefig(file)
