"""Exp 3: how does regret fall with the number of agents? (m = 10…40, ε=2, δ=0.1)"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedfairx.experiments import paper_data
from fedfairx.experiments import world as env
from fedfairx.experiments.experiment import FAIRNESS, REWARD, Experiment, Outcomes, Picture, Run, Size
from fedfairx.experiments.report.figures import canvas
from fedfairx.experiments.report.panels import (
    Trend,
    draw_trends,
    paper_trends,
    regret_table,
    reward_panels,
    title_trends,
)
from fedfairx.experiments.scores import Claim, Ratio, Scores, Verdict, below, number, ratio
from fedfairx.util.figure_style import COLOURS

AGENTS = (10, 20, 30, 40)
ALGORITHMS = {"fed": "fed-fairx-linucb", "priv": "priv-fairx-linucb"}
LABELS = {"fed": "Fed", "priv": "Priv"}


def runs(size: Size) -> tuple[Run, ...]:
    """Fed and Priv for each m, on the printed schedule, whose gap depends on m."""
    return tuple(
        Run(
            f"{name}-{agents}",
            env.scenario(size, agents=agents),
            algorithm,
            env.options() if name == "fed" else env.private(),
        )
        for agents in AGENTS
        for name, algorithm in ALGORITHMS.items()
    )


def slope(outcomes: Outcomes, name: str) -> float:
    """b of regret ∝ m^b, by least squares on logarithms."""
    means = [float(outcomes[f"{name}-{agents}"].final().mean()) for agents in AGENTS]
    return float(np.polyfit(np.log(AGENTS), np.log(means), 1)[0])


def score(outcomes: Outcomes, _: Size) -> Scores:
    """Regret at m=40 over that at m=10, and the exponent of m."""
    last, first = AGENTS[-1], AGENTS[0]
    found = {
        name: ratio(outcomes[f"{name}-{last}"].final(), outcomes[f"{name}-{first}"].final())
        for name in LABELS
    }
    theirs = {name: paper_data.curve("exp3", FAIRNESS, ALGORITHMS[name])[1] for name in LABELS}
    ratios = tuple(
        Ratio(f"{LABELS[name]}(m=40) / {LABELS[name]}(m=10)", float(y[-1] / y[0]), found[name])
        for name, y in reversed(theirs.items())
    )
    slopes = {name: slope(outcomes, name) for name in LABELS}
    paper_slopes = {name: float(np.polyfit(np.log(AGENTS), np.log(y), 1)[0]) for name, y in theirs.items()}
    verdicts = [below(found[name], 1.0) for name in LABELS]
    verdict: Verdict = verdicts[0] if len(set(verdicts)) == 1 else "undecided"
    claims = (
        Claim(
            "regret falls with the number of agents",
            "the 95 % intervals of regret(m=40)/regret(m=10) lie below 1, for Fed and for Priv",
            "; ".join(
                f"{LABELS[name]}: {found[name]}, growing as m^{slopes[name]:.2f} (paper "
                f"m^{paper_slopes[name]:.2f}; perfect pooling m^-0.5)"
                for name in LABELS
            ),
            verdict,
        ),
    )
    rows = (
        (outcomes[f"{name}-{agents}"], (LABELS[name], str(agents), number(float(paper))))
        for name in LABELS
        for agents, paper in zip(AGENTS, theirs[name], strict=True)
    )
    columns = ("algorithm", "agents m", "paper (T = 100 000)")
    return Scores(ratios, claims, (regret_table("Regret at T by number of agents", columns, rows),))


def plot(outcomes: Outcomes, size: Size) -> Iterator[Picture]:
    """Regret at T against m, with the line of perfect pooling."""

    def trends(metric: str, *, dashed: bool) -> list[Trend]:
        return [
            Trend(
                AGENTS,
                [outcomes[f"{name}-{agents}"].final(metric) for agents in AGENTS],
                LABELS[name],
                COLOURS[algorithm],
                paper_data.curve("exp3", metric, algorithm) if dashed else None,
            )
            for name, algorithm in ALGORITHMS.items()
        ]

    figure, (axes,) = canvas(size, width=5.2, height=3.4)
    start = float(outcomes[f"fed-{AGENTS[0]}"].final().mean())
    axes.plot(AGENTS, start * np.sqrt(AGENTS[0] / np.array(AGENTS)), color="#999999", lw=0.9, ls="-.")
    pooled = start * np.sqrt(AGENTS[0] / AGENTS[-1]), "∝ 1/√m", "#888888"
    shown = trends(FAIRNESS, dashed=size.comparable)
    draw_trends(axes, shown, xlabel="agents m", metric=FAIRNESS, extra=[pooled])
    title_trends(axes, size)
    yield Picture(
        "exp3-fairness",
        "Exp 3, fairness regret at T against the number of agents; grey: perfect pooling from m = 10.",
        figure,
    )

    figure, ours, printed = reward_panels(size)
    draw_trends(ours, trends(REWARD, dashed=False), xlabel="agents m", metric=REWARD, log_y=False)
    paper_trends(printed, "exp3", tuple(ALGORITHMS.values()), xlabel="agents m", ticks=AGENTS)
    yield Picture(
        "exp3-reward", "Exp 3, reward regret at T (appendix); see Exp 1 for why two panels.", figure
    )


QUESTION = "How does regret fall as more agents join?"
EXPERIMENT = Experiment("exp3", "The number of agents", QUESTION, runs, score, plot, paper=True)
