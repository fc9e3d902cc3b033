"""Exp 4: what does a smaller privacy budget cost? (m=10, ε = 0.1…10, δ=0.1)"""

from __future__ import annotations

from collections.abc import Iterator
from dataclasses import replace
from itertools import pairwise

import numpy as np

from fedfairx.experiments import paper_data
from fedfairx.experiments import world as env
from fedfairx.experiments.experiment import (
    METRICS,
    PAPER,
    Experiment,
    Outcomes,
    Picture,
    Run,
    Size,
    over,
    regret,
)
from fedfairx.experiments.report import figures
from fedfairx.experiments.scores import Claim, Ratio, Scores, Table, Verdict, below, holds, number
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


def score(outcomes: Outcomes, _: Size) -> Scores:
    """Priv(ε)/Priv(2), and whether private learning still beats learning alone."""
    paper = theirs()
    ratios = tuple(
        Ratio(
            f"Priv(ε={epsilon:g}) / Priv(ε=2)",
            paper[epsilon] / paper[2.0],
            over(outcomes, f"blt-{epsilon:g}", "blt-2"),
        )
        for epsilon in (0.1, 1.0, 10.0)
    )
    steps = [over(outcomes, f"blt-{high:g}", f"blt-{low:g}") for low, high in pairwise(EPSILONS)]
    alone = {epsilon: over(outcomes, f"blt-{epsilon:g}", "b0") for epsilon in EPSILONS}
    reasonable = [below(alone[epsilon], 1.0) for epsilon in EPSILONS if epsilon >= 1]
    fine: Verdict = "undecided" if "undecided" in reasonable else holds(set(reasonable) == {"holds"})
    claims = (
        Claim(
            "regret falls as the privacy budget grows",
            "mean regret at ε = 0.1, 1, 2, 10 is in falling order",
            ", ".join(f"ε={e:g}: {number(outcomes[f'blt-{e:g}'].final().mean())}" for e in EPSILONS),
            holds(all(step.value < 1 for step in steps)),
        ),
        Claim(
            "private learning performs reasonably for ε of 1 or more",
            "the 95 % intervals of Priv/B0 lie below 1 at ε = 1, 2 and 10",
            "; ".join(f"ε={epsilon:g}: {alone[epsilon]}" for epsilon in EPSILONS),
            fine,
        ),
    )
    measured = [(mechanism, metric) for metric in METRICS for mechanism in MECHANISMS]
    table = Table(
        "Fairness regret of Priv at T by ε",
        (
            "ε",
            "paper (T = 100 000)",
            "blt",
            "the paper's printed noise",
            "reward regret, blt",
            "reward regret, printed noise",
        ),
        tuple(
            (
                f"{e:g}",
                number(paper[e]),
                *(regret(outcomes, f"{name}-{e:g}", metric) for name, metric in measured),
            )
            for e in EPSILONS
        ),
        f"δ = 0.1; B0 without any sharing: {regret(outcomes, 'b0')}",
    )
    return Scores(ratios, claims, (table,))


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
EXPERIMENT = Experiment(
    "exp4",
    "The privacy budget",
    QUESTION,
    runs,
    score,
    plot,
    origin=PAPER,
    words=env.WORDS,
)
