"""Exp 8: merit. How steep may it be, and may agents differ in it?"""

from collections.abc import Iterator

import numpy as np

from fedfairx import merit
from paper import figures
from paper import world as env
from paper.experiment import OURS, Experiment, Part, Picture, Results, Run, Size
from paper.figures import COLOURS
from paper.scores import Array, Table, below, ratio

STEEPNESSES = (3.0, 10.0, 30.0)
ALGORITHMS = {"b0": env.B0, "fed": env.FED, "priv": env.PRIV}
LABELS = {"b0": "B0", "fed": "Fed", "priv": "Priv"}
MIXED = tuple(merit.Exponential(STEEPNESSES[i % len(STEEPNESSES)]) for i in range(env.AGENTS))


def runs(size: Size) -> Iterator[Run]:
    """B0, Fed and Priv at each steepness of exp(c μ), and in a federation whose agents differ in it."""
    worlds = {f"{c:g}": env.scenario(size, merit=merit.Exponential(c)) for c in STEEPNESSES}
    worlds["mixed"] = env.scenario(size, merit=MIXED)
    for which, world in worlds.items():
        for name, algorithm in ALGORITHMS.items():
            yield env.run(f"{name}, {which}", world, algorithm)


def apart(r: Results, name: str) -> Array:
    """(seeds,) what the mixed federation's agents would have on average, each among its own kind."""
    shares = [sum(merit.steepness == c for merit in MIXED) / len(MIXED) for c in STEEPNESSES]
    finals = [r[f"{name}, {c:g}"].final() for c in STEEPNESSES]
    return np.asarray(sum(share * final for share, final in zip(shares, finals, strict=True)))


def report(r: Results, _: Size) -> Iterator[Part]:
    """Fed/B0 and Priv/B0 by steepness and in the mixed federation."""
    fed, priv = (ratio(r[f"{name}, mixed"].final(), apart(r, name)) for name in ("fed", "priv"))
    yield below(
        "agents with different merits can learn together",
        "Fed's regret in the mixed federation, over each agent's among its own kind,",
        fed,
        1.1,
        f"Fed {fed}, Priv {priv}",
    )
    yield Table(
        "Fairness regret at T by merit",
        ("steepness c of exp(c μ)", "B0", "Fed", "Priv (blt)", "Fed / B0", "Priv / B0"),
        [
            (
                which,
                *(r.regret(f"{name}, {which}") for name in ALGORITHMS),
                *(r.over(f"{name}, {which}", f"b0, {which}") for name in ("fed", "priv")),
            )
            for which in (*(f"{c:g}" for c in STEEPNESSES), "mixed")
        ],
    )

    figure, (steep, mixed) = figures.canvas(panels=2)
    trends = [
        figures.Trend(name + ", {:g}", LABELS[name], COLOURS[full]) for name, full in ALGORITHMS.items()
    ]
    figures.draw_trends(steep, r, STEEPNESSES, trends, xlabel="steepness c of the merit exp(c μ)")
    steep.set_title("(a) all agents alike")
    for i, (name, algorithm) in enumerate(ALGORITHMS.items()):
        colour = COLOURS[algorithm]
        figures.draw_bar(mixed, i - 0.19, apart(r, name), 0.34, colour, alpha=0.45)
        figures.draw_bar(mixed, i + 0.19, r[f"{name}, mixed"].final(), 0.34, colour, alpha=1.0)
    mixed.set_xticks(range(len(ALGORITHMS)), list(LABELS.values()))
    mixed.grid(visible=False, axis="x")
    figures.thousands(mixed.yaxis)
    mixed.set(ylabel="fairness regret at T", title="(b) pale: among their kind; full: mixed")
    yield Picture(
        "exp8-merit",
        "Exp 8. (a) fairness regret at T against the steepness of merit. (b) ten agents with steepness 3, "
        "10, 30, 3, … learning together, beside what they would have in federations of one steepness.",
        figure,
    )


QUESTION = "How does regret depend on the steepness of merit, and may agents differ in it?"
EXPERIMENT = Experiment("exp8", "Merit", QUESTION, runs, report, OURS, env.WORDS)
