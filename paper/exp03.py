"""Exp 3: how does regret fall with the number of agents? (m = 10…40, ε=2, δ=0.1)"""

from collections.abc import Iterator
from typing import Any

import numpy as np

from paper import figures
from paper import world as env
from paper.experiment import PAPER, Experiment, Part, Picture, Results, Run, Size
from paper.scores import Claim, Ratio, judge, number

AGENTS = (10, 20, 30, 40)
ALGORITHMS = {"fed": env.FED, "priv": env.PRIV}


def runs(size: Size) -> Iterator[Run]:
    """Fed and Priv for each m, on the printed schedule, whose gap depends on m."""
    for agents in AGENTS:
        for name, algorithm in ALGORITHMS.items():
            yield env.run(f"{name}-{agents}", env.scenario(size, agents=agents), algorithm)


def slope(regrets: Any) -> float:
    """b of regret ∝ m^b, by least squares on logarithms."""
    return float(np.polyfit(np.log(AGENTS), np.log(regrets), 1)[0])


def report(r: Results, size: Size) -> Iterator[Part]:
    """Regret at m=40 over that at m=10, the exponent of m, and the line of perfect pooling."""
    falls = {name: r.over(f"{name}-{AGENTS[-1]}", f"{name}-{AGENTS[0]}") for name in ALGORITHMS}
    theirs = {name: env.curve("exp3", series)[1] for name, series in ALGORITHMS.items()}
    for name, y in reversed(theirs.items()):
        yield Ratio(f"{name.title()}(m=40) / {name.title()}(m=10)", float(y[-1] / y[0]), falls[name])
    found = "; ".join(
        f"{name.title()}: {falls[name]}, growing as m^{slope([r.mean(f'{name}-{m}') for m in AGENTS]):.2f} "
        f"(paper m^{slope(theirs[name]):.2f}; perfect pooling m^-0.5)"
        for name in ALGORITHMS
    )
    criterion = "the 95 % intervals of regret(m=40)/regret(m=10) lie below 1, for Fed and for Priv"
    verdict = judge(falls, high=1.0, by="interval")
    yield Claim("regret falls with the number of agents", criterion, found, verdict)
    rows = [
        (f"{name}-{agents}", name.title(), str(agents), number(float(paper)))
        for name, y in theirs.items()
        for agents, paper in zip(AGENTS, y, strict=True)
    ]
    columns = ("algorithm", "agents m", "paper (T = 100 000)")
    yield r.table("Regret at T by number of agents", columns, rows)

    figure, (axes,) = figures.canvas(width=5.2, height=3.4)
    pooled = r.mean(f"fed-{AGENTS[0]}") * np.sqrt(AGENTS[0] / np.array(AGENTS))
    axes.plot(AGENTS, pooled, color="#999999", lw=0.9, ls="-.")
    trends = [figures.Trend(name + "-{:g}", *figures.series_style(each)) for name, each in ALGORITHMS.items()]
    beside = [
        trend._replace(paper=env.curve("exp3", series)) if size.comparable else trend
        for trend, series in zip(trends, ALGORITHMS.values(), strict=True)
    ]
    end = float(pooled[-1]), "∝ 1/√m", "#888888"
    figures.draw_trends(axes, r, AGENTS, beside, xlabel="agents m", extra=[end])
    figures.title_trends(axes, size)
    caption = "Exp 3, fairness regret at T against the number of agents; grey: perfect pooling from m = 10."
    yield Picture("exp3-fairness", caption, figure)
    caption = "Exp 3, reward regret at T (appendix); see Exp 1 for why two panels."
    series = tuple(ALGORITHMS.values())
    yield figures.reward_trends("exp3", r, AGENTS, trends, series, caption, xlabel="agents m", ticks=AGENTS)


QUESTION = "How does regret fall as more agents join?"
EXPERIMENT = Experiment("exp3", "The number of agents", QUESTION, runs, report, PAPER, env.WORDS)
