"""Exp 7: communication. What does each release buy?"""

from __future__ import annotations

from collections.abc import Iterator
from typing import TYPE_CHECKING

import numpy as np

from fedfairx.experiments import environment as env
from fedfairx.experiments.experiment import FAIRNESS, Experiment, Outcomes, Picture, Run, Size
from fedfairx.experiments.report.figures import COLOURS, canvas, end_labels, log_ticks, plain_log
from fedfairx.experiments.scores import Claim, Scores, Table, Verdict, estimate, half_width, judged, number
from fedfairx.federation.schedules import SCHEDULES, Paper, Schedule

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SAME_AS = {"determinant": "b1", "doubling": "b2"}  # Exp 2 has them under these names
SAME_PLACE = 0.12  # decades below which two names would overlap
KINDS = {"fed": "fed-fairx-linucb", "priv": "priv-fairx-linucb"}


def schedules(size: Size) -> dict[str, Schedule]:
    """Every schedule of the package, and two more gaps of the paper's."""
    named = {name: schedule for name, schedule in SCHEDULES.items() if name != "never"}
    return {**named, "figure-gap": env.figure_gap(size), "gap 50": Paper(gap=50), "gap 500": Paper(gap=500)}


def runs(size: Size) -> tuple[Run, ...]:
    """Fed and Priv under every schedule; own fresh data used, or long gaps would only show their lack."""
    world = env.scenario(size)
    found = [Run("never", world, "fairx-linucb", env.options())]
    for name, schedule in schedules(size).items():
        # The default schedules are given by leaving them out, so that other experiments' results are found.
        given = {} if name == "paper" else {"schedule": schedule}
        found.append(Run(f"fed, {name}", world, "fed-fairx-linucb", env.options(**given)))
        private = env.private(decide_from="released+local", **given)
        found.append(Run(f"priv, {name}", world, SAME_AS.get(name, "priv-fairx-linucb"), private))
    return tuple(found)


def score(outcomes: Outcomes, size: Size) -> Scores:
    """Regret by number of releases; how few releases come within a tenth of the best."""
    releases = {key: float(outcome.syncs.mean()) for key, outcome in outcomes.items()}
    final = {key: float(outcome.final().mean()) for key, outcome in outcomes.items()}
    rows: list[tuple[str, ...]] = [
        (
            "never (B0)",
            "0",
            str(estimate(outcomes["never"].final())),
            str(estimate(outcomes["never"].final())),
        )
    ]
    for name in sorted(schedules(size), key=lambda name: releases[f"fed, {name}"]):
        pair = [outcomes[f"{kind}, {name}"] for kind in KINDS]
        counts = " / ".join(dict.fromkeys(number(float(outcome.syncs.mean())) for outcome in pair))
        rows.append((name, counts, *(str(estimate(outcome.final())) for outcome in pair)))
    near = {
        kind: min(
            releases[key]
            for key in final
            if key.startswith(kind)
            and final[key] <= 1.1 * min(v for k, v in final.items() if k.startswith(kind))
        )
        for kind in KINDS
    }
    verdict: Verdict = "holds" if near["fed"] <= 0.1 * releases["fed, paper"] else "does not hold"
    claim = Claim(
        "far fewer releases do as well (ours, not the paper's)",
        "a schedule with a tenth of the printed schedule's releases is within a tenth of Fed's least regret",
        f"within a tenth of the least regret: Fed with {number(near['fed'])} releases, Priv with "
        f"{number(near['priv'])}; the printed schedule makes {number(releases['fed, paper'])}",
        judged(verdict, size.full),
    )
    table = Table(
        "Fairness regret at T by schedule", ("schedule", "releases", "Fed", "Priv (blt)"), tuple(rows)
    )
    notes = ("The determinant schedule reads the data; with it Priv is NOT private end to end.",)
    return Scores((), (claim,), (table,), notes)


def plot(outcomes: Outcomes, size: Size) -> Iterator[Picture]:
    """Regret against releases; the schedules are named above the panels."""
    figure, panels = canvas(size, panels=2, width=7.8, height=3.9)
    finals = [float(outcome.final().mean()) for outcome in outcomes.values()]
    low, high = 0.6 * min(finals), 1.6 * max(finals)
    titles = ("(a) Fed", "(b) Priv, ε = 2, δ = 0.1; open: leaks")
    for axes, (kind, algorithm), title in zip(panels, KINDS.items(), titles, strict=True):
        _draw(axes, {name: outcomes[f"{kind}, {name}"] for name in schedules(size)}, COLOURS[algorithm], kind)
        alone = float(outcomes["never"].final().mean())
        axes.axhline(alone, color=COLOURS["fairx-linucb"], lw=1.1, ls="--")
        axes.set_ylim(low, high)
        log_ticks(axes.yaxis, low, high)
        axes.set_xlabel(f"releases of each agent\n{title}")
        if kind == "priv":
            end_labels(axes, [(alone, "never\n(B0)", COLOURS["fairx-linucb"])])
    panels[0].set_ylabel("fairness regret at T")
    yield Picture(
        "exp7-communication",
        "Exp 7, fairness regret at T against the number of releases, for every schedule; dashed: learning "
        "alone. The open mark is not private end to end, because its timing depends on the data.",
        figure,
    )


def _draw(axes: Axes, outcomes: Outcomes, colour: str, kind: str) -> None:
    ordered = sorted(outcomes, key=lambda name: float(outcomes[name].syncs.mean()))
    places: dict[float, str] = {}
    for name in ordered:
        releases, values = float(outcomes[name].syncs.mean()), outcomes[name].final(FAIRNESS)
        half = float(np.nan_to_num(half_width(values)))
        leaky = name == "determinant" and kind == "priv"
        axes.errorbar(
            releases,
            values.mean(),
            yerr=half,
            marker="o",
            ms=5,
            capsize=2,
            color=colour,
            mfc="w" if leaky else colour,
        )
        near = [place for place in places if abs(np.log10(releases / place)) < SAME_PLACE]
        if near:
            places[near[0]] += f", {name}"
        else:
            places[releases] = name
    axes.set_xscale("log")
    axes.set_yscale("log")
    plain_log(axes.xaxis, [10.0**k for k in range(6)])
    axes.margins(x=0.08)
    names = axes.secondary_xaxis("top")
    apart: list[tuple[float, str]] = []
    for x, label in sorted(places.items()):  # names of places too near to be told apart share one label
        if apart and x < 1.6 * apart[-1][0]:
            apart[-1] = (apart[-1][0], f"{apart[-1][1]}, {label}")
        else:
            apart.append((x, label))
    names.set_xticks([x for x, _ in apart], [label for _, label in apart], rotation=55, ha="left", fontsize=8)
    names.minorticks_off()
    names.spines["top"].set_visible(False)
    names.tick_params(length=3)


EXPERIMENT = Experiment(
    name="exp7",
    title="Communication",
    question="How many releases does the gain of learning together need?",
    runs=runs,
    score=score,
    plot=plot,
)
