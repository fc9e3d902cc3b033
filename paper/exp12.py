"""Exp 12: secure aggregation. What does joining privately save if members only see the sum of releases?"""

from collections.abc import Callable, Iterator
from typing import Any, NamedTuple

from fedfairx import Scenario
from fedfairx.evaluation import Estimate
from paper import figures
from paper import world as env
from paper.experiment import OURS, Experiment, Part, Picture, Results, Run, Size, glossary
from paper.figures import COLOURS
from paper.scores import Claim, Table, judge, number, worst

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
EPSILON, DELTA = 2.0, 1e-6
MEMBERS = {3: (1,), 10: (1, 2, 5), 30: (1, 6, 15)}  # and how many of them may collude; a fifth is the default
M, C = 10, 2
DISTANCES = (0.1, 0.3, 1.0)
SHORT, SEEDS = 10_000, 10
OWN, STRICT = "own+released", "released"
PLAIN, SECURE = "plain", "secure"
#: name → decide_from, aggregation, label, colour, marker
HOWS = {
    f"{OWN}, {SECURE}": (OWN, SECURE, "own data too, secure", COLOURS["fed-fairx-bayes"], "o"),
    f"{OWN}, {PLAIN}": (OWN, PLAIN, "own data too", COLOURS["priv-fairx-bayes"], "s"),
    f"{STRICT}, {SECURE}": (STRICT, SECURE, "strict, secure", COLOURS["fed-fairx-linucb"], "o"),
    f"{STRICT}, {PLAIN}": (STRICT, PLAIN, "strict", COLOURS["priv-fairx-linucb"], "s"),
}
BEST, STRICT_SECURE = f"{OWN}, {SECURE}", f"{STRICT}, {SECURE}"
ALONE, TOGETHER = "alone", "federated"
GAIN, LONG_GAIN, STRICT_GAIN, NO_WORSE, NO_WORSE_APART = 0.70, 0.55, 0.75, 1.02, 1.1
ALL_OF_IT = "python -m paper reproduce exp12 --seeds 10"  # the whole grid; `reproduce` has a part of it


class Place(NamedTuple):
    """One place of the grid."""

    horizon: int
    members: int = M
    epsilon: float = EPSILON
    colluding: int = C
    distance: float = 0.0

    def world(self, size: Size) -> Scenario:
        """The scenario of it."""
        return env.scenario(size, horizon=self.horizon, agents=self.members, distance=self.distance)

    def key(self, how: str) -> str:
        """The name of a run."""
        place = f"T = {self.horizon}, m = {self.members}, distance {self.distance:g}"
        if how in (ALONE, TOGETHER):
            return f"{how}, {place}"
        secure = f", c = {self.colluding}" if how.startswith((BEST, STRICT_SECURE)) else ""
        return f"{how}, {place}, ε = {self.epsilon:g}{secure}"

    def __str__(self) -> str:
        place = f"(ε, δ) = ({self.epsilon:g}, 10⁻⁶), m = {self.members}, c = {self.colluding}, T = "
        return place + number(self.horizon) + (f", distance {self.distance:g}" if self.distance else "")


def lengths(size: Size) -> tuple[int, int]:
    """The short and the long horizon."""
    return min(SHORT, size.horizon), size.horizon


def whole(size: Size) -> bool:
    """Whether the whole grid is run."""
    return size.full and size.seeds >= SEEDS


def by_epsilon(size: Size, horizon: int) -> tuple[Place, ...]:
    """Ten members, of whom two may collude, at every ε; at the long horizon one ε unless all are run."""
    every = whole(size) or horizon == lengths(size)[0]
    return tuple(Place(horizon, epsilon=epsilon) for epsilon in (EPSILONS if every else (EPSILON,)))


def by_members(size: Size) -> tuple[Place, ...]:
    """Federations of three sizes, of whom several numbers may collude."""
    short, long = lengths(size)
    return tuple(
        Place(horizon, members=members, epsilon=epsilon, colluding=colluding)
        for horizon in ((short, long) if whole(size) else (short,))
        for members, numbers in MEMBERS.items()
        for colluding in (numbers if whole(size) or members <= M else (max(1, members // 5),))
        for epsilon in (EPSILONS if whole(size) else (EPSILON,))
    )


def settings(size: Size) -> tuple[Place, ...]:
    """All places of the grid in which partners are alike."""
    places = [each for horizon in lengths(size) for each in by_epsilon(size, horizon)]
    return tuple(dict.fromkeys([*places, *by_members(size)]))


def apart(size: Size) -> tuple[Place, ...]:
    """Members whose θ differ."""
    return tuple(Place(lengths(size)[0], distance=distance) for distance in DISTANCES)


def runs(size: Size) -> Iterator[Run]:
    """Alone, federated without privacy, and privately in four ways; where partners differ, in one."""
    by_key = dict[str, Run]()

    def add(each: Place, how: str, algorithm: str, **options: Any) -> None:
        least = SEEDS if size.full and each.horizon == SHORT else 0
        by_key[each.key(how)] = Run(each.key(how), each.world(size), algorithm, options, least)

    def add_private(each: Place, how: str, **options: Any) -> None:
        decide_from, aggregation, *_ = HOWS[how]
        secure = {"aggregation": SECURE, "colluding": each.colluding} if aggregation == SECURE else {}
        private = {"epsilon": each.epsilon, "delta": DELTA, "decide_from": decide_from}
        add(each, how, "priv-fairx-bayes", **private, **secure, **options)

    for each in settings(size):
        add(each, ALONE, "fairx-bayes")
        add(each, TOGETHER, "fed-fairx-bayes")
        for how in HOWS:
            add_private(each, how)
    for each in apart(size):
        add(each, ALONE, "fairx-bayes")
        add_private(each, BEST, partners="differ")
    yield from by_key.values()


def report(r: Results, size: Size) -> Iterator[Part]:
    """Regret over that alone and over that of exact sums."""

    def over(each: Place, how: str, other: str = ALONE) -> Estimate:
        return r.over(each.key(how), each.key(other))

    short, long = (Place(horizon) for horizon in lengths(size))
    for what, how, each, limit in (
        ("joining privately saves a third", BEST, short, GAIN),
        ("it saves nearly half in the long run", BEST, long, LONG_GAIN),
        ("the strict mode pays in the long run", STRICT_SECURE, long, STRICT_GAIN),
    ):
        yield Claim(
            f"with secure aggregation {what}",
            f"{HOWS[how][2]}: mean fairness regret is at most {limit:g} times that alone at {each}",
            str(over(each, how)),
            judge(over(each, how), high=limit),
        )
    for statement, places, limit in (
        ("joining never hurts", settings(size), NO_WORSE),
        ("nor where partners differ, who are judged as one", apart(size), NO_WORSE_APART),
    ):
        tried = {str(each): over(each, BEST) for each in places}
        where, most = worst(tried)
        criterion = (
            f"own data too: mean fairness regret is at most {limit:g} times that alone, in all that was tried"
        )
        found = f"worst of {len(tried)}: {most} at {where}"
        yield Claim(statement, criterion, found, judge(tried, high=limit))
    yield from _tables(r, size, over)
    if not whole(size):
        yield f"A part of the grid; `{ALL_OF_IT}` runs all of it."
    yield _figure(size, over)


def _tables(r: Results, size: Size, over: Callable[..., Estimate]) -> Iterator[Table]:
    labels = [label for _, _, label, _, _ in HOWS.values()]
    for horizon in dict.fromkeys(lengths(size)):
        alone, exact = (r.regret(Place(horizon).key(other)) for other in (ALONE, TOGETHER))
        rows = []
        for each in by_epsilon(size, horizon):
            exactly = [f"{over(each, how, TOGETHER).value:.2f}" for how in HOWS]
            rows.append((f"{each.epsilon:g}", *(over(each, how) for how in HOWS), *exactly))
        yield Table(
            f"Fairness regret at T = {number(horizon)} over that alone, and over that of exact sums, by ε",
            ("ε", *labels, *(f"{label}, over exact sums" for label in labels)),
            rows,
            f"{M} members, of whom {C} may collude; δ = 10⁻⁶; alone {alone}, exact sums {exact}",
        )
    rows = []
    for each in by_members(size):
        falls = f"{(each.members - each.colluding) ** 0.5:.2f}"
        place = each.horizon, each.members, each.colluding, f"{each.epsilon:g}", falls
        rows.append((*place, *(over(each, how) for how in HOWS)))
    yield Table(
        "Fairness regret over that alone, by members and how many may collude",
        ("T", "members", "may collude", "ε", "noise falls by", *labels),
        rows,
        "The columns without secure aggregation don't depend on c.",
    )
    yield Table(
        "Fairness regret over that alone, where members' θ differ",
        ("distance of a member's θ from the common one", "secure, partners may differ"),
        [(f"{each.distance:g}", over(each, BEST)) for each in apart(size)],
    )


def _figure(size: Size, over: Callable[..., Estimate]) -> Picture:
    figure, panels = figures.canvas(panels=2, width=8.6, height=3.7)
    first = lengths(size)[0]
    of_each_size = [each for each in by_members(size) if (each.horizon, each.epsilon) == (first, EPSILON)]
    usual = [each for each in of_each_size if each.colluding == max(1, each.members // 5)]
    ticks = (EPSILONS, tuple(MEMBERS))
    for how, (_, aggregation, label, colour, marker) in HOWS.items():
        style = {"color": colour, "marker": marker, "ls": "-" if aggregation == SECURE else ":", "ms": 4}
        for axes, shown, x in zip(panels, (by_epsilon(size, first), usual), ticks, strict=True):
            estimates = [over(each, how) for each in shown]
            figures.mark(axes, x, estimates, capsize=2.5, lw=1.2, label=label, **style)
    whats = (
        f"(a) T = {number(first)}, m = {M}, c = {C}",
        f"(b) T = {number(first)}, ε = {EPSILON:g}, c a fifth",
    )
    for axes, x, title, xlabel in zip(panels, ticks, whats, ("ε (δ = 10⁻⁶)", "members"), strict=True):
        figures.level(axes)
        figures.plain_log(axes.xaxis, x)
        figures.plain_log(axes.yaxis, [0.1, 0.3, 0.5, 1, 2, 5, 10])
        axes.set(title=title, xlabel=xlabel)
    panels[0].set_ylabel("fairness regret, over that alone")
    figures.legend_below(figure, panels[0])
    return Picture(
        "exp12-secure",
        "Exp 12, fairness regret at T over that of deciding alone (dashed: 1), with and without secure "
        "aggregation; geometric means over seeds with 95 % intervals. Members that see only the sum of their "
        "releases add a share of the noise each.",
        figure,
    )


QUESTION = "What does joining privately save if members only see the sum of their releases?"
WORDS = glossary("expected merit")
EXPERIMENT = Experiment("exp12", "Secure aggregation", QUESTION, runs, report, OURS, WORDS)
