"""Exp 10: partners who differ. Does joining still not hurt where members' θ are not the same?"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from typing import Any

from fedfairx.experiments import world as env
from fedfairx.experiments.experiment import (
    OURS,
    Experiment,
    Outcomes,
    Picture,
    Run,
    Size,
    glossary,
    over,
    regret,
)
from fedfairx.experiments.report import figures
from fedfairx.experiments.scores import Claim, Estimate, Scores, Table, claim_below, holds
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


def over_best(outcomes: Outcomes, how: str, distance: float) -> Estimate:
    """Regret over that of the better of alone and taken for alike, by their means."""
    others = [f"{other}, {distance:g}" for other in ("alone", how.replace("differ", "alike"))]
    best = min(others, key=lambda run: float(outcomes[run].final().mean()))
    return over(outcomes, f"{how}, {distance:g}", best)


def score(outcomes: Outcomes, size: Size) -> Scores:
    """Regret over that alone, and over the better of alone and pooled, by distance."""
    rows = tuple(
        (f"{distance:g}", *(regret(outcomes, f"{how}, {distance:g}") for how in HOWS))
        for distance in DISTANCES
    )
    columns = ("distance of a member's θ from the common one", *(label for _, _, label, _ in HOWS.values()))
    tried = [(how, distance) for how in ("differ", "private, differ") for distance in DISTANCES]
    alone = {(how, d): over(outcomes, f"{how}, {d:g}", f"alone, {d:g}") for how, d in tried}
    best = {(how, d): over_best(outcomes, how, d) for how, d in tried}
    worst, farthest = (max(found.items(), key=lambda item: item[1].value) for found in (alone, best))
    claims = (
        Claim(
            "joining hardly hurts at any distance that was tried (ours, not the paper's)",
            f"regret is at most {NO_WORSE:g} times that alone at every distance, with and without privacy",
            f"worst: {worst[0][0]} at {worst[0][1]:g}: {worst[1]}",
            holds(worst[1].value <= NO_WORSE),
        ),
        Claim(
            "and is near the better of alone and pooled (ours, not the paper's)",
            f"regret is at most {NEAR_BEST:g} times the better of the two at every distance",
            f"worst: {farthest[0][0]} at {farthest[0][1]:g}: {farthest[1]}",
            holds(farthest[1].value <= NEAR_BEST),
        ),
        claim_below(
            "partners who are alike gain as before (ours, not the paper's)",
            "regret over that alone",
            alone["differ", 0.0],
            0.5,
            note=" at distance 0, without privacy",
        ),
    )
    note = (
        f"ten agents, geometric schedule, exact sums or (ε, δ) = ({EPSILON:g}, 10⁻⁶) and own ones; T = "
        f"{min(size.horizon, LONGEST)}"
    )
    table = Table("Fairness regret at T by distance", columns, rows, note)
    return Scores(claims=claims, tables=(table,))


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
    "exp10",
    "Partners who differ",
    QUESTION,
    runs,
    score,
    plot,
    origin=OURS,
    words=glossary("expected merit"),
)
