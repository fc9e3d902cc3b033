"""Exp 10: partners who differ. Does joining still not hurt where members' θ are not the same?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fedfairx.experiments import world as env
from fedfairx.experiments.contents import Bar, Contents, Estimated, Grid, Hypothesis, below, over, regret
from fedfairx.experiments.experiment import OURS, Experiment, Picture, Run, Size, glossary
from fedfairx.experiments.outcomes import Outcomes
from fedfairx.experiments.report import figures
from fedfairx.experiments.scores import Estimate
from fedfairx.util.figure_style import COLOURS

DISTANCES = (0.0, 0.1, 0.3, 1.0)
LONGEST = 20_000  # rounds: what differs shows early
SEEDS = 10
EPSILON, DELTA = 2.0, 1e-6
NO_WORSE, NEAR_BEST = 1.02, 1.03
SELDOM = {"schedule": "geometric"}  # as the private ones have it
PRIVATE = {"epsilon": EPSILON, "delta": DELTA, "decide_from": "own+released"}
#: name → algorithm, options, label, colour
HOWS: dict[str, tuple[str, dict[str, Any], str, str]] = {
    "alone": ("fairx-bayes", {}, "alone", COLOURS["fairx-linucb"]),
    "alike": ("fed-fairx-bayes", SELDOM, "together, taken for alike", COLOURS["fed-fairx-linucb"]),
    "differ": (
        "fed-fairx-bayes",
        {**SELDOM, "partners": "differ"},
        "together, may differ",
        COLOURS["fed-fairx-bayes"],
    ),
    "private, alike": ("priv-fairx-bayes", PRIVATE, "private, taken for alike", COLOURS["blt"]),
    "private, differ": (
        "priv-fairx-bayes",
        {**PRIVATE, "partners": "differ"},
        "private, may differ",
        COLOURS["priv-fairx-bayes"],
    ),
}


def runs(size: Size) -> tuple[Run, ...]:
    """Alone, and together in four ways, where members' θ are so far from a common one."""
    least = SEEDS if size.full else 0
    world = env.scenario(replace(size, horizon=min(size.horizon, LONGEST)))
    return tuple(
        Run(f"{how}, {distance:g}", replace(world, distance=distance), algorithm, options, least)
        for distance in DISTANCES
        for how, (algorithm, options, _, _) in HOWS.items()
    )


def over_best(how: str, distance: float) -> Estimated:
    """Regret over that of the better of alone and taken for alike, by their means."""
    others = [f"{other}, {distance:g}" for other in ("alone", how.replace("differ", "alike"))]

    def measure(outcomes: Outcomes) -> Estimate:
        best = min(others, key=lambda run: float(outcomes[run].final().mean()))
        return over(f"{how}, {distance:g}", best)(outcomes)

    return measure


def contents(size: Size) -> Contents:
    """Regret over that alone, and over the better of alone and pooled, by distance."""
    tried = [(how, distance) for how in ("differ", "private, differ") for distance in DISTANCES]
    alone = {f"{how} at {d:g}": over(f"{how}, {d:g}", f"alone, {d:g}") for how, d in tried}
    best = {f"{how} at {d:g}": over_best(how, d) for how, d in tried}
    return Contents(
        claims=(
            Hypothesis(
                "joining hardly hurts at any distance that was tried (ours, not the paper's)",
                f"regret is at most {NO_WORSE:g} times that alone at every distance, with and without "
                "privacy",
                (Bar(alone, high=NO_WORSE),),
                "worst: {where}: {worst}",
            ),
            Hypothesis(
                "and is near the better of alone and pooled (ours, not the paper's)",
                f"regret is at most {NEAR_BEST:g} times the better of the two at every distance",
                (Bar(best, high=NEAR_BEST),),
                "worst: {where}: {worst}",
            ),
            below(
                "partners who are alike gain as before (ours, not the paper's)",
                "regret over that alone",
                0.5,
                alone["differ at 0"],
                note=" at distance 0, without privacy",
            ),
        ),
        tables=(
            Grid(
                "Fairness regret at T by distance",
                (
                    "distance of a member's θ from the common one",
                    *(label for _, _, label, _ in HOWS.values()),
                ),
                [(f"{d:g}", *(regret(f"{how}, {d:g}") for how in HOWS)) for d in DISTANCES],
                f"ten agents, geometric schedule, exact sums or (ε, δ) = ({EPSILON:g}, 10⁻⁶) and own ones; T "
                f"= {min(size.horizon, LONGEST)}",
            ),
        ),
    )


def plot(outcomes: Outcomes, _size: Size) -> Iterator[Picture]:
    """Regret against distance; the first place is no distance at all."""
    figure, (axes,) = figures.canvas(width=6.4, height=3.6)
    ends, places = [], range(len(DISTANCES))
    for how, (_, _, label, colour) in HOWS.items():
        values = [outcomes[f"{how}, {distance:g}"].final() for distance in DISTANCES]
        ends.append(figures.draw_points(axes, places, values, label, colour))
    figures.log_ticks(axes.yaxis)
    axes.set_xticks(places, [f"{distance:g}" for distance in DISTANCES])
    axes.set_xlabel("distance of each member's θ from a common one")
    axes.set_ylabel("fairness regret at T")
    figures.end_labels(axes, ends)
    yield Picture(
        "exp10-partners",
        "Exp 10, fairness regret at T against how far members' θ are apart. Taken for alike, as the paper "
        "does, partners who differ make everybody worse; where each learns from its own rewards how far the "
        "others speak of its own θ, joining helps where they agree and costs next to nothing where not.",
        figure,
    )


QUESTION = "Does joining still not hurt where members' θ are not the same?"
EXPERIMENT = Experiment(
    "exp10", "Partners who differ", QUESTION, runs, contents, plot, OURS, glossary("expected merit")
)
