"""Exp 4: what does a smaller privacy budget cost? (m=10, ε = 0.1…10, δ=0.1)"""

from collections.abc import Iterator
from itertools import pairwise

import numpy as np

from paper import figures
from paper import world as env
from paper.experiment import METRICS, PAPER, Experiment, Part, Picture, Results, Run, Size
from paper.figures import COLOURS
from paper.scores import Claim, Ratio, Table, judge, listed, number

EPSILONS = (0.1, 1.0, 2.0, 10.0)
MECHANISMS = {"blt": "Priv (blt)", "paper-tree": "Priv, printed noise"}


def runs(size: Size) -> Iterator[Run]:
    """B0, and Priv at each ε with our default noise and with the noise that the paper prints."""
    world = env.scenario(size)
    yield env.run("b0", world, env.B0)
    for name in MECHANISMS:
        for epsilon in EPSILONS:
            yield env.run(f"{name}-{epsilon:g}", world, env.PRIV, epsilon=epsilon, mechanism=name)


def theirs() -> dict[float, float]:
    """The paper's Priv by ε; ε=2 is from its Exp 1."""
    x, y = env.curve("exp4", env.PRIV)
    values = dict(zip(x.tolist(), y.tolist(), strict=True))
    return dict(sorted({**values, 2.0: float(env.curve("exp1", env.PRIV)[1][-1])}.items()))


def report(r: Results, size: Size) -> Iterator[Part]:
    """Priv(ε)/Priv(2), and whether private learning still beats learning alone."""
    paper = theirs()
    for epsilon in (0.1, 1.0, 10.0):
        ours = r.over(f"blt-{epsilon:g}", "blt-2")
        yield Ratio(f"Priv(ε={epsilon:g}) / Priv(ε=2)", paper[epsilon] / paper[2.0], ours)
    yield Claim(
        "regret falls as the privacy budget grows",
        "mean regret at ε = 0.1, 1, 2, 10 is in falling order",
        ", ".join(f"ε={e:g}: {number(r.mean(f'blt-{e:g}'))}" for e in EPSILONS),
        judge({f"{b:g}": r.over(f"blt-{b:g}", f"blt-{a:g}") for a, b in pairwise(EPSILONS)}, high=1.0),
    )
    alone = {f"ε={epsilon:g}": r.over(f"blt-{epsilon:g}", "b0") for epsilon in EPSILONS}
    yield Claim(
        "private learning performs reasonably for ε of 1 or more",
        "the 95 % intervals of Priv/B0 lie below 1 at ε = 1, 2 and 10",
        listed(alone),
        judge(dict(list(alone.items())[1:]), high=1.0, by="interval"),
    )
    measured = [(mechanism, metric) for metric in METRICS for mechanism in MECHANISMS]
    columns = ("ε", "paper (T = 100 000)", "blt", "the paper's printed noise")
    yield Table(
        "Fairness regret of Priv at T by ε",
        (*columns, "reward regret, blt", "reward regret, printed noise"),
        [
            (f"{e:g}", paper[e], *(r.regret(f"{name}-{e:g}", metric) for name, metric in measured))
            for e in EPSILONS
        ],
        f"δ = 0.1; B0 without any sharing: {r.regret('b0')}",
    )

    x, y = np.array(list(paper.items())).T
    priv, printed = (
        figures.Trend(name + "-{:g}", label, COLOURS[name]) for name, label in MECHANISMS.items()
    )
    b0 = figures.Trend("b0", "B0 (alone)", COLOURS[env.B0], marker="")
    xlabel = "privacy budget ε (δ = 0.1)"
    figure, (axes,) = figures.canvas(width=5.4, height=3.4)
    beside = priv._replace(paper=(x, y) if size.comparable else None)
    figures.draw_trends(axes, r, EPSILONS, [beside, printed, b0], xlabel=xlabel)
    figures.title_trends(axes, size)
    yield Picture(
        "exp4-fairness",
        "Exp 4, fairness regret at T against ε: with calibrated noise (blt), with the noise that the paper "
        "prints, and what the paper plots.",
        figure,
    )
    caption = (
        "Exp 4, reward regret at T (appendix), with calibrated noise; the printed noise's is in the table. "
        "See Exp 1 for why two panels."
    )
    series, ticks = (env.PRIV, "b0"), (0.1, 1, 10)
    yield figures.reward_trends("exp4", r, EPSILONS, [priv, b0], series, caption, xlabel=xlabel, ticks=ticks)


QUESTION = "What does a smaller ε cost?"
EXPERIMENT = Experiment("exp4", "The privacy budget", QUESTION, runs, report, PAPER, env.WORDS)
