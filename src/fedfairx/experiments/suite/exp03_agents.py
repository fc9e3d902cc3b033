"""Exp 3: how does regret fall with the number of agents? (m = 10…40, ε=2, δ=0.1)"""

from __future__ import annotations

from collections.abc import Callable, Iterator
from typing import Any

import numpy as np

from fedfairx.experiments import paper_data
from fedfairx.experiments import world as env
from fedfairx.experiments.contents import Bar, Compared, Contents, Hypothesis, over, regret_grid, words
from fedfairx.experiments.experiment import PAPER, Experiment, Picture, Run, Size
from fedfairx.experiments.outcomes import Outcomes
from fedfairx.experiments.report import figures
from fedfairx.experiments.scores import number

AGENTS = (10, 20, 30, 40)
ALGORITHMS = {"fed": env.FED, "priv": env.PRIV}


def runs(size: Size) -> tuple[Run, ...]:
    """Fed and Priv for each m, on the printed schedule, whose gap depends on m."""
    return tuple(
        env.run(f"{name}-{agents}", env.scenario(size, agents=agents), algorithm)
        for agents in AGENTS
        for name, algorithm in ALGORITHMS.items()
    )


def slope(regrets: Any) -> float:
    """b of regret ∝ m^b, by least squares on logarithms."""
    return float(np.polyfit(np.log(AGENTS), np.log(regrets), 1)[0])


def contents(_: Size) -> Contents:
    """Regret at m=40 over that at m=10, and the exponent of m."""
    falls = {name: over(f"{name}-{AGENTS[-1]}", f"{name}-{AGENTS[0]}") for name in ALGORITHMS}
    theirs = {name: paper_data.fairness("exp3", series)[1] for name, series in ALGORITHMS.items()}
    text = "; ".join(
        f"{name.title()}: {{{name}}}, growing as m^{{{name}_slope:.2f}} (paper m^{slope(theirs[name]):.2f}; "
        "perfect pooling m^-0.5)"
        for name in ALGORITHMS
    )
    return Contents(
        ratios=tuple(
            Compared(f"{name.title()}(m=40) / {name.title()}(m=10)", float(y[-1] / y[0]), falls[name])
            for name, y in reversed(theirs.items())
        ),
        claims=(
            Hypothesis(
                "regret falls with the number of agents",
                "the 95 % intervals of regret(m=40)/regret(m=10) lie below 1, for Fed and for Priv",
                (Bar(falls, high=1.0, by="interval"),),
                words(text, **falls, **{f"{name}_slope": _slope(name) for name in ALGORITHMS}),
            ),
        ),
        tables=(
            regret_grid(
                "Regret at T by number of agents",
                ("algorithm", "agents m", "paper (T = 100 000)"),
                [
                    (f"{name}-{agents}", name.title(), str(agents), number(float(paper)))
                    for name, y in theirs.items()
                    for agents, paper in zip(AGENTS, y, strict=True)
                ],
            ),
        ),
    )


def _slope(name: str) -> Callable[[Outcomes], float]:
    return lambda outcomes: slope([outcomes[f"{name}-{m}"].final().mean() for m in AGENTS])


def plot(outcomes: Outcomes, size: Size) -> Iterator[Picture]:
    """Regret at T against m, with the line of perfect pooling."""
    figure, (axes,) = figures.canvas(width=5.2, height=3.4)
    start = float(outcomes[f"fed-{AGENTS[0]}"].final().mean())
    pooled = start * np.sqrt(AGENTS[0] / np.array(AGENTS))
    axes.plot(AGENTS, pooled, color="#999999", lw=0.9, ls="-.")
    trends = []
    for name, series in ALGORITHMS.items():
        theirs = paper_data.fairness("exp3", series) if size.comparable else None
        trends.append(figures.Trend(name + "-{:g}", *figures.series_style(series), theirs))
    end = float(pooled[-1]), "∝ 1/√m", "#888888"
    figures.draw_trends(axes, outcomes, AGENTS, trends, xlabel="agents m", extra=[end])
    figures.title_trends(axes, size)
    yield Picture(
        "exp3-fairness",
        "Exp 3, fairness regret at T against the number of agents; grey: perfect pooling from m = 10.",
        figure,
    )
    yield figures.reward_trends(
        "exp3",
        outcomes,
        AGENTS,
        [figures.Trend(name + "-{:g}", *figures.series_style(series)) for name, series in ALGORITHMS.items()],
        tuple(ALGORITHMS.values()),
        "Exp 3, reward regret at T (appendix); see Exp 1 for why two panels.",
        xlabel="agents m",
        ticks=AGENTS,
    )


QUESTION = "How does regret fall as more agents join?"
EXPERIMENT = Experiment("exp3", "The number of agents", QUESTION, runs, contents, plot, PAPER, env.WORDS)
