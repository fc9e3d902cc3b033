"""Exp 4: what does a smaller privacy budget cost? (m=10, ε = 0.1…10, δ=0.1)"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np

from fedfairx.experiments import paper_data
from fedfairx.experiments import world as env
from fedfairx.experiments.contents import Bar, Compared, Contents, Grid, Hypothesis, over, regret, words
from fedfairx.experiments.experiment import PAPER, Experiment, Picture, Run, Size
from fedfairx.experiments.outcomes import METRICS, Outcomes
from fedfairx.experiments.report import figures
from fedfairx.experiments.scores import number
from fedfairx.util.figure_style import COLOURS

EPSILONS = (0.1, 1.0, 2.0, 10.0)
MECHANISMS = {"blt": "Priv (blt)", "paper-tree": "Priv, printed noise"}


def runs(size: Size) -> tuple[Run, ...]:
    """B0, and Priv at each ε with our default noise and with the noise that the paper prints."""
    world = env.scenario(size)
    private = (
        env.run(f"{mechanism}-{epsilon:g}", world, env.PRIV, epsilon=epsilon, mechanism=mechanism)
        for mechanism in MECHANISMS
        for epsilon in EPSILONS
    )
    return (env.run("b0", world, env.B0), *private)


def theirs() -> dict[float, float]:
    """The paper's Priv by ε; ε=2 is from its Exp 1."""
    x, y = paper_data.fairness("exp4", env.PRIV)
    _, over_rounds = paper_data.fairness("exp1", env.PRIV)
    values = dict(zip(x.tolist(), y.tolist(), strict=True))
    return dict(sorted({**values, 2.0: float(over_rounds[-1])}.items()))


def contents(_: Size) -> Contents:
    """Priv(ε)/Priv(2), and whether private learning still beats learning alone."""
    paper = theirs()
    alone = {f"ε={epsilon:g}": over(f"blt-{epsilon:g}", "b0") for epsilon in EPSILONS}
    measured = [(mechanism, metric) for metric in METRICS for mechanism in MECHANISMS]
    return Contents(
        ratios=tuple(
            Compared(
                f"Priv(ε={epsilon:g}) / Priv(ε=2)",
                paper[epsilon] / paper[2.0],
                over(f"blt-{epsilon:g}", "blt-2"),
            )
            for epsilon in (0.1, 1.0, 10.0)
        ),
        claims=(
            Hypothesis(
                "regret falls as the privacy budget grows",
                "mean regret at ε = 0.1, 1, 2, 10 is in falling order",
                (Bar({f"{b:g}": over(f"blt-{b:g}", f"blt-{a:g}") for a, b in pairwise(EPSILONS)}, high=1.0),),
                _levels,
            ),
            Hypothesis(
                "private learning performs reasonably for ε of 1 or more",
                "the 95 % intervals of Priv/B0 lie below 1 at ε = 1, 2 and 10",
                (Bar({name: alone[name] for name in list(alone)[1:]}, high=1.0, by="interval"),),
                words("; ".join(f"{name}: {{{i}}}" for i, name in enumerate(alone)), *alone.values()),
            ),
        ),
        tables=(
            Grid(
                "Fairness regret of Priv at T by ε",
                (
                    "ε",
                    "paper (T = 100 000)",
                    "blt",
                    "the paper's printed noise",
                    "reward regret, blt",
                    "reward regret, printed noise",
                ),
                [
                    (
                        f"{e:g}",
                        number(paper[e]),
                        *(regret(f"{name}-{e:g}", metric) for name, metric in measured),
                    )
                    for e in EPSILONS
                ],
                words("δ = 0.1; B0 without any sharing: {b0}", b0=regret("b0")),
            ),
        ),
    )


def _levels(outcomes: Outcomes) -> str:
    return ", ".join(f"ε={e:g}: {number(outcomes[f'blt-{e:g}'].final().mean())}" for e in EPSILONS)


def plot(outcomes: Outcomes, size: Size) -> Iterator[Picture]:
    """Regret at T against ε, with B0 as a level."""
    x, y = np.array(list(theirs().items())).T
    curve = (x, y) if size.comparable else None
    ours, printed = (
        figures.Trend(name + "-{:g}", label, COLOURS[name]) for name, label in MECHANISMS.items()
    )
    b0 = figures.Trend("b0", "B0 (alone)", COLOURS[env.B0], marker="")
    xlabel = "privacy budget ε (δ = 0.1)"
    figure, (axes,) = figures.canvas(width=5.4, height=3.4)
    figures.draw_trends(axes, outcomes, EPSILONS, [replace(ours, paper=curve), printed, b0], xlabel=xlabel)
    figures.title_trends(axes, size)
    yield Picture(
        "exp4-fairness",
        "Exp 4, fairness regret at T against ε: with calibrated noise (blt), with the noise that the paper "
        "prints, and what the paper plots.",
        figure,
    )
    yield figures.reward_trends(
        "exp4",
        outcomes,
        EPSILONS,
        [ours, b0],
        (env.PRIV, "b0"),
        "Exp 4, reward regret at T (appendix), with calibrated noise; the printed noise's is in the table. "
        "See Exp 1 for why two panels.",
        xlabel=xlabel,
        ticks=(0.1, 1, 10),
    )


QUESTION = "What does a smaller ε cost?"
EXPERIMENT = Experiment("exp4", "The privacy budget", QUESTION, runs, contents, plot, PAPER, env.WORDS)
