"""Exp 12: secure aggregation. What does joining privately save if members only see the sum of releases?"""

from __future__ import annotations

from collections.abc import Iterator, Mapping
from dataclasses import dataclass
from typing import Any

from fedfairx.agent.options import PLAIN, SECURE
from fedfairx.experiments import world as env
from fedfairx.experiments.contents import Bar, Contents, Estimated, Grid, Hypothesis, over, regret, words
from fedfairx.experiments.experiment import OURS, Experiment, Picture, Run, Size, glossary
from fedfairx.experiments.outcomes import Outcomes
from fedfairx.experiments.report import figures
from fedfairx.experiments.scores import number
from fedfairx.privacy.mechanisms.noise_share import default_colluding
from fedfairx.simulation import Scenario
from fedfairx.util.figure_style import COLOURS

EPSILONS = (0.5, 1.0, 2.0, 4.0, 8.0)
EPSILON, DELTA = 2.0, 1e-6
MEMBERS = {3: (1,), 10: (1, 2, 5), 30: (1, 6, 15)}  # and how many of them may collude; a fifth is the default
M, C = 10, 2
DISTANCES = (0.1, 0.3, 1.0)
SHORT, SEEDS = 10_000, 10
OWN, STRICT = "own+released", "released"
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
ALL_OF_IT = "fedfairx reproduce exp12 --seeds 10"  # the whole grid; `reproduce` has a part of it


@dataclass(frozen=True)
class Place:
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
        for colluding in (numbers if whole(size) or members <= M else (default_colluding(members),))
        for epsilon in (EPSILONS if whole(size) else (EPSILON,))
    )


def settings(size: Size) -> tuple[Place, ...]:
    """All places of the grid in which partners are alike."""
    places = [each for horizon in lengths(size) for each in by_epsilon(size, horizon)]
    return tuple(dict.fromkeys([*places, *by_members(size)]))


def apart(size: Size) -> tuple[Place, ...]:
    """Members whose θ differ."""
    return tuple(Place(lengths(size)[0], distance=distance) for distance in DISTANCES)


def runs(size: Size) -> tuple[Run, ...]:
    """Alone, federated without privacy, and privately in four ways; where partners differ, in one."""
    by_key = dict[str, Run]()

    def add(each: Place, how: str, algorithm: str, options: Mapping[str, Any]) -> None:
        key, least = each.key(how), SEEDS if size.full and each.horizon == SHORT else 0
        by_key[key] = Run(key, each.world(size), algorithm, dict(options), least)

    for each in settings(size):
        add(each, ALONE, "fairx-bayes", {})
        add(each, TOGETHER, "fed-fairx-bayes", {})
        for how, (decide_from, aggregation, *_) in HOWS.items():
            add(each, how, "priv-fairx-bayes", _private(each, decide_from, aggregation))
    for each in apart(size):
        add(each, ALONE, "fairx-bayes", {})
        add(each, BEST, "priv-fairx-bayes", {**_private(each, OWN, SECURE), "partners": "differ"})
    return tuple(by_key.values())


def _private(each: Place, decide_from: str, aggregation: str) -> dict[str, Any]:
    colluding = {"colluding": each.colluding} if aggregation == SECURE else {}
    budget = {"epsilon": each.epsilon, "delta": DELTA}
    return {**budget, "decide_from": decide_from, "aggregation": aggregation, **colluding}


def over_other(each: Place, how: str, other: str = ALONE) -> Estimated:
    """Fairness regret at T over that alone, or federated."""
    return over(each.key(how), each.key(other))


def contents(size: Size) -> Contents:
    """Regret over that alone and over that of exact sums."""
    short, long = (Place(horizon) for horizon in lengths(size))
    return Contents(
        claims=(
            *(
                Hypothesis(
                    f"with secure aggregation {what} (ours, not the paper's)",
                    f"{HOWS[how][2]}: mean fairness regret is at most {limit:g} times that alone at "
                    f"{_place(each)}",
                    (Bar({"": over_other(each, how)}, high=limit),),
                )
                for what, how, each, limit in (
                    ("joining privately saves a third", BEST, short, GAIN),
                    ("it saves nearly half in the long run", BEST, long, LONG_GAIN),
                    ("the strict mode pays in the long run", STRICT_SECURE, long, STRICT_GAIN),
                )
            ),
            *(
                Hypothesis(
                    f"{statement} (ours, not the paper's)",
                    f"own data too: mean fairness regret is at most {limit:g} times that alone, in all that "
                    "was tried",
                    (Bar({_place(each): over_other(each, BEST) for each in tried}, high=limit),),
                    "worst of {count}: {worst} at {where}",
                )
                for statement, tried, limit in (
                    ("joining never hurts", settings(size), NO_WORSE),
                    ("nor where partners differ, who are judged as one", apart(size), NO_WORSE_APART),
                )
            ),
        ),
        tables=(
            *(_by_epsilon(size, horizon) for horizon in dict.fromkeys(lengths(size))),
            _by_members(size),
            Grid(
                "Fairness regret over that alone, where members' θ differ",
                ("distance of a member's θ from the common one", "secure, partners may differ"),
                [(f"{each.distance:g}", over_other(each, BEST)) for each in apart(size)],
            ),
        ),
        notes=() if whole(size) else (f"A part of the grid; `{ALL_OF_IT}` runs all of it.",),
    )


def _place(each: Place) -> str:
    distance = f", distance {each.distance:g}" if each.distance else ""
    return (
        f"(ε, δ) = ({each.epsilon:g}, 10⁻⁶), m = {each.members}, c = {each.colluding}, "
        f"T = {number(each.horizon)}{distance}"
    )


def _by_epsilon(size: Size, horizon: int) -> Grid:
    labels = [label for _, _, label, _, _ in HOWS.values()]
    base = Place(horizon)
    return Grid(
        f"Fairness regret at T = {number(horizon)} over that alone, and over that of exact sums, by ε",
        ("ε", *labels, *(f"{label}, over exact sums" for label in labels)),
        [
            (
                f"{each.epsilon:g}",
                *(over_other(each, how) for how in HOWS),
                *(words("{.value:.2f}", over_other(each, how, TOGETHER)) for how in HOWS),
            )
            for each in by_epsilon(size, horizon)
        ],
        words(
            f"{M} members, of whom {C} may collude; δ = 10⁻⁶; alone {{}}, exact sums {{}}",
            *(regret(base.key(other)) for other in (ALONE, TOGETHER)),
        ),
    )


def _by_members(size: Size) -> Grid:
    labels = (label for _, _, label, _, _ in HOWS.values())
    return Grid(
        "Fairness regret over that alone, by members and how many may collude",
        ("T", "members", "may collude", "ε", "noise falls by", *labels),
        [
            (
                number(each.horizon),
                str(each.members),
                str(each.colluding),
                f"{each.epsilon:g}",
                f"{(each.members - each.colluding) ** 0.5:.2f}",
                *(over_other(each, how) for how in HOWS),
            )
            for each in by_members(size)
        ],
        "The columns without secure aggregation don't depend on c.",
    )


def plot(outcomes: Outcomes, size: Size) -> Iterator[Picture]:
    """Regret over that alone against ε and against the number of members."""
    figure, panels = figures.canvas(panels=2, width=8.6, height=3.7)
    short = lengths(size)[0]
    of_each_size = [each for each in by_members(size) if (each.horizon, each.epsilon) == (short, EPSILON)]
    usual = [each for each in of_each_size if each.colluding == default_colluding(each.members)]
    for how, (_, aggregation, label, colour, marker) in HOWS.items():
        style: dict[str, Any] = {
            "color": colour,
            "marker": marker,
            "ls": "-" if aggregation == SECURE else ":",
            "ms": 4,
        }
        for axes, places, x in (
            (panels[0], by_epsilon(size, short), EPSILONS),
            (panels[1], usual, tuple(MEMBERS)),
        ):
            estimates = [over_other(each, how)(outcomes) for each in places]
            values, sides = figures.error_bars(estimates)
            axes.errorbar(x, values, yerr=sides, capsize=2.5, lw=1.2, label=label, **style)
    for axes, ticks, letter in ((panels[0], EPSILONS, "a"), (panels[1], tuple(MEMBERS), "b")):
        figures.level(axes)
        figures.plain_log(axes.xaxis, ticks)
        figures.plain_log(axes.yaxis, [0.1, 0.3, 0.5, 1, 2, 5, 10])
        what = f"m = {M}, c = {C}" if letter == "a" else f"ε = {EPSILON:g}, c a fifth"
        axes.set_title(f"({letter}) T = {number(short)}, {what}")
    panels[0].set_xlabel("ε (δ = 10⁻⁶)")
    panels[1].set_xlabel("members")
    panels[0].set_ylabel("fairness regret, over that alone")
    figures.legend_below(figure, panels[0])
    yield Picture(
        "exp12-secure",
        "Exp 12, fairness regret at T over that of deciding alone (dashed: 1), with and without secure "
        "aggregation; geometric means over seeds with 95 % intervals. Members that see only the sum of their "
        "releases add a share of the noise each.",
        figure,
    )


QUESTION = "What does joining privately save if members only see the sum of their releases?"
EXPERIMENT = Experiment(
    "exp12", "Secure aggregation", QUESTION, runs, contents, plot, OURS, glossary("expected merit")
)
