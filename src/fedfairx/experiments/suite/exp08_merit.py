"""Exp 8: merit. How steep may it be, and may agents differ in it?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedfairx.core.merit import Exponential
from fedfairx.experiments import world as env
from fedfairx.experiments.experiment import FAIRNESS, Experiment, Outcomes, Picture, Run, Size
from fedfairx.experiments.report.figures import canvas, error_bar
from fedfairx.experiments.report.panels import Trend, draw_trends
from fedfairx.experiments.scores import Claim, Scores, Table, below, estimate, ratio
from fedfairx.util.arrays import Array
from fedfairx.util.figure_style import COLOURS, NAMES, thousands

STEEPNESSES = (3.0, 10.0, 30.0)
ALGORITHMS = {"b0": "fairx-linucb", "fed": "fed-fairx-linucb", "priv": "priv-fairx-linucb"}
MIXED = tuple(Exponential(STEEPNESSES[i % len(STEEPNESSES)]) for i in range(env.AGENTS))


def runs(size: Size) -> tuple[Run, ...]:
    """B0, Fed and Priv at each steepness of exp(c μ), and in a federation whose agents differ in it."""
    worlds = {f"{c:g}": env.scenario(size, merit=Exponential(c)) for c in STEEPNESSES}
    worlds["mixed"] = env.scenario(size, merit=MIXED)
    return tuple(
        Run(f"{name}, {which}", world, algorithm, env.private() if name == "priv" else env.options())
        for which, world in worlds.items()
        for name, algorithm in ALGORITHMS.items()
    )


def apart(outcomes: Outcomes, name: str) -> Array:
    """(seeds,) what the mixed federation's agents would have on average, each among its own kind."""
    shares = [sum(merit.steepness == c for merit in MIXED) / len(MIXED) for c in STEEPNESSES]
    finals = [outcomes[f"{name}, {c:g}"].final() for c in STEEPNESSES]
    return np.asarray(sum(share * final for share, final in zip(shares, finals, strict=True)))


def score(outcomes: Outcomes, _: Size) -> Scores:
    """Fed/B0 and Priv/B0 by steepness and in the mixed federation."""
    final = {key: outcome.final() for key, outcome in outcomes.items()}
    rows = tuple(
        (
            which,
            *(str(estimate(final[f"{name}, {which}"])) for name in ALGORITHMS),
            *(str(ratio(final[f"{name}, {which}"], final[f"b0, {which}"])) for name in ("fed", "priv")),
        )
        for which in (*(f"{c:g}" for c in STEEPNESSES), "mixed")
    )
    columns = ("steepness c of exp(c μ)", "B0", "Fed", "Priv (blt)", "Fed / B0", "Priv / B0")
    mixing = {name: ratio(final[f"{name}, mixed"], apart(outcomes, name)) for name in ("fed", "priv")}
    claim = Claim(
        "agents with different merits can learn together (ours, not the paper's)",
        "the 95 % interval of Fed's regret in the mixed federation, over each agent's among its own kind, "
        "lies below 1.1",
        f"Fed {mixing['fed']}, Priv {mixing['priv']}",
        below(mixing["fed"], 1.1),
    )
    return Scores((), (claim,), (Table("Fairness regret at T by merit", columns, rows),))


def plot(outcomes: Outcomes, size: Size) -> Iterator[Picture]:
    """Regret against steepness; the mixed federation beside federations of one kind."""
    figure, (steep, mixed) = canvas(size, panels=2)
    trends = [
        Trend(
            STEEPNESSES,
            [outcomes[f"{name}, {c:g}"].final() for c in STEEPNESSES],
            "B0" if name == "b0" else NAMES[algorithm],
            COLOURS[algorithm],
        )
        for name, algorithm in ALGORITHMS.items()
    ]
    draw_trends(steep, trends, xlabel="steepness c of the merit exp(c μ)", metric=FAIRNESS)
    steep.set_title("(a) all agents alike")
    for i, (name, algorithm) in enumerate(ALGORITHMS.items()):
        pair = apart(outcomes, name), outcomes[f"{name}, mixed"].final()
        for j, values in enumerate(pair):
            mixed.bar(
                i + (j - 0.5) * 0.38,
                values.mean(),
                0.34,
                yerr=error_bar(values),
                color=COLOURS[algorithm],
                alpha=0.45 if j == 0 else 1.0,
                error_kw={"lw": 0.9, "capsize": 2},
            )
    mixed.set_xticks(range(len(ALGORITHMS)), ["B0", "Fed", "Priv"])
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
EXPERIMENT = Experiment("exp8", "Merit", QUESTION, runs, score, plot)
