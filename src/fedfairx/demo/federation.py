"""`fedfairx federate demo`: services of a federation on this machine, simulated traffic, and its display."""

from __future__ import annotations

import signal
import sys
import tempfile
import time
from collections.abc import Iterator, Sequence
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal

from fedfairx.cli.common import Output, add_verb, print_json
from fedfairx.errors import MissingLibrary
from fedfairx.util.formatting import text_table

if TYPE_CHECKING:
    from fedfairx.demo.launcher import Fleet
    from fedfairx.demo.traffic import Orders
    from fedfairx.federation.roster.terms import Terms


HEADINGS = ("agent", "decisions", "rewards", "releases", "lag", "privacy", "regret", "alone", "ratio")


def table(orders: Sequence[Orders], looks: Sequence[dict[str, Any]]) -> str:
    """The state of each organisation; a look is what its service tells, empty while it can't be reached."""
    rows = []
    for each, look in zip(orders, looks, strict=True):
        told = (look["sync"]["released"], _lag(look), _privacy(look)) if look else ("?", "?", "?")
        regrets = (f"{each.together:.1f}", f"{each.alone:.1f}")
        ratio = f"{each.together / each.alone:.2f}" if each.alone else ""
        rows.append((each.name, each.decisions, each.rewarded, *told, *regrets, ratio))
    return text_table(HEADINGS, rows)


def line(orders: Sequence[Orders], looks: Sequence[dict[str, Any]]) -> str:
    """The state of all together, where a table can't be drawn over itself."""
    together, alone = (sum(getattr(each, which) for each in orders) for which in ("together", "alone"))
    parts = [
        f"{sum(each.decisions for each in orders)} decisions",
        f"{sum(each.rewarded for each in orders)} rewards",
        f"{sum(look['sync']['released'] for look in looks if look)} releases",
        f"lag {max((_lag(look) for look in looks if look), default=0)}",
        *sorted({f"privacy {_privacy(look)}" for look in looks if look}),
        f"fairness regret {together / len(orders):.1f} together, {alone / len(orders):.1f} alone",
    ]
    return ", ".join(parts)


def _lag(look: dict[str, Any]) -> int:
    return max((peer["lag"] for peer in look["sync"]["peers"].values()), default=0)


def _privacy(look: dict[str, Any]) -> str:
    """What is spent of the budget."""
    said = look["privacy"]
    return f"{said['spent']} of {said['releases']} (ε={said['epsilon']:g})" if said["private"] else "exact"


def draw(curve: list[tuple[int, float, float]], epsilon: float | None, file: str) -> None:
    """Mean fairness regret over rounds, together and alone."""
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


HORIZON = 100_000  # rounds of a demonstration that goes on until it is stopped
LARGEST = 250  # orders at once
GROWTH = 10  # of what went before, a tenth at once: early orders are decided one by one
PATIENCE = {"flower": 60.0}  # seconds that compressed time waits for the others' releases; others: 5
FIGURE = "federation-demo.png"
TICK = 0.5  # seconds between two looks
PLAIN = 5.0  # seconds between two lines, where output goes into a file or a pipe


@dataclass(frozen=True, kw_only=True)
class Flags(Output):
    """Flags of `fedfairx federate demo`.

    agents: number of organisations.
    transport: nats needs nats-server, flower needs Flower's commands.
    flower: folder with flower-superlink and the other commands (default: on the path).
    rounds: orders of each; then it ends by itself, as fast as it can (default: it goes on until Ctrl-C).
    epsilon: share privately with this ε (default: sums are exact, NOT private).
    rate: orders of each per second.
    seed: seed of orders and luck.
    figure: figure of regret over rounds, at the end (default: federation-demo.png, and none with --json).
    data: a new folder to keep everything in (default: it is deleted).
    """

    agents: int = 3
    transport: Literal["sqlite", "nats", "flower"] = "sqlite"
    flower: str | None = field(default=None, metadata={"metavar": "BIN"})
    rounds: int | None = None
    epsilon: float | None = None
    rate: float = 20.0
    seed: int = 0
    figure: str | None = field(default=None, metadata={"metavar": "FILE"})
    data: str | None = field(default=None, metadata={"metavar": "DIR"})


def add_demo(parts: Any) -> None:
    add_verb(
        parts,
        "demo",
        run,
        Flags,
        summary="Run a federation of services on this machine, with simulated traffic, and watch it learn. "
        "Organisations order from the same six suppliers. Each has a service of its own, with pages, and a "
        "twin that sees the same orders and learns alone. Without --rounds it goes on until Ctrl-C.",
        example="""
            fedfairx federate demo
            fedfairx federate demo --agents 5 --rounds 20000 --json
            fedfairx federate demo --transport nats --epsilon 8
            fedfairx federate demo --transport flower --flower flower/bin --rate 1""",
    )


def run(args: Flags) -> int:
    from fedfairx.errors import needs, require

    require(args.agents >= 2, "--agents", "must be >= 2", args.agents)
    require(args.rounds is None or args.rounds >= 1, "--rounds", "must be >= 1", args.rounds)
    require(args.rate > 0, "--rate", "must be > 0", args.rate)
    with needs("service,client"):
        import fedfairx.service.app  # noqa: F401
        from fedfairx.client import Client  # noqa: F401
    from fedfairx.demo.launcher import Fleet
    from fedfairx.demo.traffic import Orders

    names = [f"org{number}" for number in range(1, args.agents + 1)]
    with tempfile.TemporaryDirectory(prefix="fedfairx-federation-") as temporary:
        folder = Path(args.data or Path(temporary) / "federation")
        fleet = Fleet(
            folder,
            names,
            _terms(args),
            transport=args.transport,
            decide_from=None if args.epsilon is None else "own+released",
            seed=args.seed,
            flower=args.flower,
        )
        with _terminated_as_by_ctrl_c(), fleet:
            orders = [
                Orders(name, fleet.urls[name], seed=args.seed, place=place, key=fleet.keys.get(name))
                for place, name in enumerate(fleet.names)
            ]
            demo = Demo(args, orders)
            demo.welcome(fleet)
            with suppress(KeyboardInterrupt):
                demo.go()
            demo.finish()
        lost = sum(each.lost(fleet.database(each.name)) for each in orders)
        return demo.report(lost)


@contextmanager
def _terminated_as_by_ctrl_c() -> Iterator[None]:
    """Let SIGTERM stop it in order too: the services are processes of their own, and would stay."""
    before = signal.signal(signal.SIGTERM, signal.default_int_handler)
    try:
        yield
    finally:
        signal.signal(signal.SIGTERM, before)


def _terms(args: Flags) -> Terms:
    from fedfairx.demo.market import DIMENSION
    from fedfairx.federation.roster.terms import Terms

    return Terms(
        dimension=DIMENSION,
        agents=args.agents,
        horizon=args.rounds or HORIZON,
        algorithm="fed-fairx-bayes" if args.epsilon is None else "priv-fairx-bayes",
        epsilon=args.epsilon,
    )


class Demo:
    """Traffic to all services at once, and its display."""

    def __init__(self, args: Flags, orders: list[Orders]) -> None:
        self._args = args
        self._orders = orders
        self._looks: list[dict[str, Any]] = [{} for _ in orders]
        self._curve: list[tuple[int, float, float]] = []  # rounds, mean regret together and alone
        self._drawn = 0  # lines of the table on the screen
        self._told = time.monotonic()  # when the last line was, where there is no screen

    def welcome(self, fleet: Fleet) -> None:
        kind = (
            "exact sums, NOT private" if self._args.epsilon is None else f"private, ε={self._args.epsilon:g}"
        )
        self._say(f"{len(self._orders)} services share what they learn by {self._args.transport} ({kind}):")
        for each in self._orders:
            key = fleet.keys.get(each.name)
            told = "" if key is None else f"  (any user, password {key})"
            self._say(f"  {each.name}  {each.url}/  {each.url}/federation{told}")
        self._say(f"in {fleet.folder}; Ctrl-C ends it")

    def go(self) -> None:
        with ThreadPoolExecutor(len(self._orders)) as pool:
            shown = 0.0
            for count in self._batches():
                began = time.monotonic()
                list(pool.map(lambda each: each.place(count), self._orders))  # noqa: B023
                self._looks = self._look(pool)
                done = max(each.decisions for each in self._orders)
                self._curve.append((done, self._mean("together"), self._mean("alone")))
                if began - shown > TICK:
                    shown = began
                    self._show()
                if self._args.rounds is None:
                    time.sleep(max(0.0, TICK - (time.monotonic() - began)))

    def _batches(self) -> Iterator[int]:
        rounds, done = self._args.rounds, 0
        if rounds is None:
            while True:
                yield max(1, round(TICK * self._args.rate))
        while done < rounds:
            count = min(max(1, done // GROWTH), LARGEST, rounds - done)
            yield count
            done += count

    def _look(self, pool: ThreadPoolExecutor) -> list[dict[str, Any]]:
        """The state of all services; with --rounds, once each holds its peers' latest releases.

        Orders of weeks are placed in a minute then, so that milliseconds of a transport would count for days.
        """
        patience = 0.0 if self._args.rounds is None else PATIENCE.get(self._args.transport, 5.0)
        ends = time.monotonic() + patience
        while True:
            looks = list(pool.map(lambda each: each.look(), self._orders))
            if _level(looks) or time.monotonic() >= ends:
                return looks
            time.sleep(0.01)

    def finish(self) -> None:
        for each in self._orders:
            each.settle()
        with ThreadPoolExecutor(len(self._orders)) as pool:
            self._looks = self._look(pool)
        if sys.stderr.isatty():
            self._show()
        else:
            self._say(table(self._orders, self._looks))

    def _mean(self, which: str) -> float:
        return float(sum(getattr(each, which) for each in self._orders) / len(self._orders))

    def _show(self) -> None:
        """Draw the table over itself on a terminal; elsewhere print a line now and then."""
        if self._args.json:
            return
        if not sys.stderr.isatty():
            if time.monotonic() - self._told > PLAIN:
                self._told = time.monotonic()
                self._say(line(self._orders, self._looks))
            return
        if self._drawn:
            sys.stderr.write(f"\x1b[{self._drawn}A\x1b[J")
        text = table(self._orders, self._looks)
        self._say(text)
        self._drawn = text.count("\n") + 1

    def _say(self, text: str) -> None:
        if not self._args.json:
            print(text, file=sys.stderr, flush=True)

    def report(self, lost: int) -> int:
        """Print the result; return 1 if something acknowledged is missing."""
        together, alone = self._mean("together"), self._mean("alone")
        result = {
            "decisions": sum(each.decisions for each in self._orders),
            "rewards": sum(each.rewarded for each in self._orders),
            "releases": sum(look["sync"]["released"] for look in self._looks if look),
            "fairness_regret": {"federated": together, "alone": alone},
        }
        self._draw()
        if self._args.json:
            print_json(result)
        else:
            share = f", {together / alone:.2f} times" if alone else ""
            print(
                f"fairness regret of each: {together:.1f} together, {alone:.1f} alone{share}; "
                f"{result['decisions']} decisions, {result['rewards']} rewards, {result['releases']} releases"
            )
        if lost:
            print(f"{lost} acknowledged decisions or rewards are in no database", file=sys.stderr)
        return 1 if lost else 0

    def _draw(self) -> None:
        file = self._args.figure or (None if self._args.json else FIGURE)
        if file is None or not self._curve:
            return
        try:
            draw(self._curve, self._args.epsilon, file)
            self._say(f"the figure is {file}")
        except MissingLibrary as error:
            if self._args.figure:
                raise
            self._say(f"no figure: {error}")


def _level(looks: list[dict[str, Any]]) -> bool:
    """Whether every member holds its peers' latest releases."""
    if not all(looks):
        return False
    made = {look["sync"]["name"]: look["sync"]["released"] for look in looks}
    return all(
        not look["sync"]["waiting"]
        and all(peer["release"] == made[name] for name, peer in look["sync"]["peers"].items())
        for look in looks
    )
