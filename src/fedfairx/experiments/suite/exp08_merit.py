"""Exp 8: merit. How steep may it be, and may agents differ in it?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedfairx.core.merit import Exponential
from fedfairx.experiments import world as env
from fedfairx.experiments.contents import Contents, Estimated, Grid, below, over, regret, words
from fedfairx.experiments.experiment import OURS, Experiment, Picture, Run, Size
from fedfairx.experiments.outcomes import Outcomes
from fedfairx.experiments.report import figures
from fedfairx.experiments.scores import ratio
from fedfairx.util.arrays import Array
from fedfairx.util.figure_style import COLOURS, thousands

STEEPNESSES = (3.0, 10.0, 30.0)
ALGORITHMS = {"b0": env.B0, "fed": env.FED, "priv": env.PRIV}
LABELS = {"b0": "B0", "fed": "Fed", "priv": "Priv"}
MIXED = tuple(Exponential(STEEPNESSES[i % len(STEEPNESSES)]) for i in range(env.AGENTS))


def runs(size: Size) -> tuple[Run, ...]:
    """B0, Fed and Priv at each steepness of exp(c μ), and in a federation whose agents differ in it."""
    worlds = {f"{c:g}": env.scenario(size, merit=Exponential(c)) for c in STEEPNESSES}
    worlds["mixed"] = env.scenario(size, merit=MIXED)
    return tuple(
        env.run(f"{name}, {which}", world, algorithm)
        for which, world in worlds.items()
        for name, algorithm in ALGORITHMS.items()
    )


def apart(outcomes: Outcomes, name: str) -> Array:
    """(seeds,) what the mixed federation's agents would have on average, each among its own kind."""
    shares = [sum(merit.steepness == c for merit in MIXED) / len(MIXED) for c in STEEPNESSES]
    finals = [outcomes[f"{name}, {c:g}"].final() for c in STEEPNESSES]
    return np.asarray(sum(share * final for share, final in zip(shares, finals, strict=True)))


def contents(_: Size) -> Contents:
    """Fed/B0 and Priv/B0 by steepness and in the mixed federation."""

    def mixed(name: str) -> Estimated:
        return lambda outcomes: ratio(outcomes[f"{name}, mixed"].final(), apart(outcomes, name))

    return Contents(
        claims=(
            below(
                "agents with different merits can learn together (ours, not the paper's)",
                "Fed's regret in the mixed federation, over each agent's among its own kind,",
                1.1,
                mixed("fed"),
                found=words("Fed {fed}, Priv {priv}", fed=mixed("fed"), priv=mixed("priv")),
            ),
        ),
        tables=(
            Grid(
                "Fairness regret at T by merit",
                ("steepness c of exp(c μ)", "B0", "Fed", "Priv (blt)", "Fed / B0", "Priv / B0"),
                [
                    (
                        which,
                        *(regret(f"{name}, {which}") for name in ALGORITHMS),
                        *(over(f"{name}, {which}", f"b0, {which}") for name in ("fed", "priv")),
                    )
                    for which in (*(f"{c:g}" for c in STEEPNESSES), "mixed")
                ],
            ),
        ),
    )


def plot(outcomes: Outcomes, _: Size) -> Iterator[Picture]:
    """Regret against steepness; the mixed federation beside federations of one kind."""
    figure, (steep, mixed) = figures.canvas(panels=2)
    trends = [
        figures.Trend(name + ", {:g}", LABELS[name], COLOURS[full]) for name, full in ALGORITHMS.items()
    ]
    figures.draw_trends(steep, outcomes, STEEPNESSES, trends, xlabel="steepness c of the merit exp(c μ)")
    steep.set_title("(a) all agents alike")
    for i, (name, algorithm) in enumerate(ALGORITHMS.items()):
        colour = COLOURS[algorithm]
        figures.draw_bar(mixed, i - 0.19, apart(outcomes, name), 0.34, colour, alpha=0.45)
        figures.draw_bar(mixed, i + 0.19, outcomes[f"{name}, mixed"].final(), 0.34, colour, alpha=1.0)
    mixed.set_xticks(range(len(ALGORITHMS)), list(LABELS.values()))
    mixed.grid(visible=False, axis="x")
    thousands(mixed.yaxis)
    mixed.set_ylabel("fairness regret at T")
    mixed.set_title("(b) pale: among their kind; full: mixed")
    yield Picture(
        "exp8-merit",
        "Exp 8. (a) fairness regret at T against the steepness of merit. (b) ten agents with steepness 3, "
        "10, 30, 3, … learning together, beside what they would have in federations of one steepness.",
        figure,
    )


QUESTION = "How does regret depend on the steepness of merit, and may agents differ in it?"
EXPERIMENT = Experiment("exp8", "Merit", QUESTION, runs, contents, plot, OURS, env.WORDS)
