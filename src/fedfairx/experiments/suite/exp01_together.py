"""Exp 1: does learning together beat learning alone, and what does privacy cost? (m=10, ε=2, δ=0.1)"""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np

from fedfairx.experiments import paper_data
from fedfairx.experiments import world as env
from fedfairx.experiments.experiment import FAIRNESS, REWARD, Experiment, Outcomes, Picture, Run, Size
from fedfairx.experiments.report.figures import Line, canvas, draw_lines, key, plain_log, share_height
from fedfairx.experiments.report.panels import paper_rounds, regret_table, reward_panels
from fedfairx.experiments.scores import Claim, Ratio, Scores, Table, below, number, ratio
from fedfairx.experiments.theory_bounds import bound_table, trivial
from fedfairx.util.figure_style import COLOURS, end_labels

PRINTED, FIGURE = "schedule as printed", "schedule as plotted"
ALGORITHMS = {"b0": "fairx-linucb", "fed": "fed-fairx-linucb", "priv": "priv-fairx-linucb"}
LABELS = {"b0": "B0", "fed": "Fed", "priv": "Priv"}
# Priv/Fed in the paper: 2129/1143.
NEAR_NON_PRIVATE = 1.9


def runs(size: Size) -> tuple[Run, ...]:
    """B0, Fed and Priv under the printed schedule, and Fed and Priv under the one that the figures show."""
    world = env.scenario(size)
    gap = env.figure_gap(size)
    # With gaps of thousands of rounds it matters that an agent uses its own fresh data, as the paper's does.
    plotted = {"schedule": gap, "decide_from": "released+local"}
    return (
        Run("b0", world, "fairx-linucb", env.options()),
        Run("fed", world, "fed-fairx-linucb", env.options()),
        Run("priv", world, "priv-fairx-linucb", env.private()),
        Run("fed-plotted", world, "fed-fairx-linucb", env.options(schedule=gap)),
        Run("priv-plotted", world, "priv-fairx-linucb", env.private(**plotted)),
        Run("priv-printed-noise", world, "priv-fairx-linucb", env.private(mechanism="paper-tree")),
    )


def score(outcomes: Outcomes, size: Size) -> Scores:
    """Fed/B0, Priv/B0 and Priv/Fed, under either schedule."""
    final = {name: outcome.final() for name, outcome in outcomes.items()}
    fed, priv = ratio(final["fed"], final["b0"]), ratio(final["priv"], final["b0"])
    cost = ratio(final["priv"], final["fed"])
    ideal = 1 / math.sqrt(env.AGENTS)
    ratios = (
        Ratio("Fed / B0", 1142.79 / 3988.82, fed, "the paper's Fed from Exp 3"),
        Ratio("Fed / B0", 0.5 * 1897.27 / 3988.82, fed, "half of the paper's Fed in Figure 1(a)"),
        Ratio("Priv / B0", 2129.16 / 3988.82, priv),
    )
    claims = (
        Claim(
            "Fed-FairX-LinUCB beats learning alone",
            "the 95 % interval of Fed/B0 lies below 1",
            f"Fed/B0 = {fed}; perfect pooling would give 1/√m = {ideal:.3f}, so Fed is at "
            f"{fed.value / ideal:.2f} times it",
            below(fed, 1.0),
        ),
        Claim(
            "Priv-FairX-LinUCB beats learning alone",
            "the 95 % interval of Priv/B0 lies below 1",
            f"Priv/B0 = {priv} with blt noise at (ε=2, δ=0.1)",
            below(priv, 1.0),
        ),
        Claim(
            "the private algorithm is near the non-private one",
            f"the 95 % interval of Priv/Fed lies below {NEAR_NON_PRIVATE:g} (the paper plots 2129/1143 = "
            "1.86)",
            f"Priv/Fed = {cost}",
            below(cost, NEAR_NON_PRIVATE),
        ),
    )
    return Scores(
        ratios, claims, (_table(outcomes, size), bound_table(outcomes, size)), _notes(outcomes, size)
    )


def _table(outcomes: Outcomes, size: Size) -> Table:
    theirs = {"b0": "3 989", "fed": "1 143 (Exp 3); 1 897 plotted", "priv": "2 129"}
    shown = "mean over agents and seeds [95 % interval]"
    columns = ("algorithm", "paper, fairness regret (T = 100 000)")
    rows = (
        (
            outcomes[name],
            (label, theirs.get(name.partition("-")[0], "") if name != "priv-printed-noise" else ""),
        )
        for name, label in (
            ("b0", "B0"),
            ("fed", f"Fed, {PRINTED}"),
            ("priv", f"Priv (blt), {PRINTED}"),
            ("fed-plotted", f"Fed, {FIGURE}"),
            ("priv-plotted", f"Priv (blt), {FIGURE}"),
            ("priv-printed-noise", f"Priv (the paper's printed noise), {PRINTED}"),
        )
    )
    return regret_table(f"Regret at T = {number(size.horizon)}", columns, rows, shown)


def _notes(outcomes: Outcomes, size: Size) -> tuple[str, ...]:
    loud = float(outcomes["priv-printed-noise"].final().mean())
    alone = float(outcomes["b0"].final().mean())
    where = "" if size.full else f" (at T = {number(size.horizon)})"
    return (
        f"With the noise that the paper prints, Priv has a fairness regret of {number(loud)}, "
        f"{loud / alone:.1f} times B0's{where}. The paper's plotted Priv (2 129) can't have used that noise.",
        "The paper's plotted Fed curve of Figure 1(a) is identical to its appendix's reward regret curve; "
        "the diamond is its value of Exp 3, at 60 % of the curve's end.",
    )


def plot(outcomes: Outcomes, size: Size) -> Iterator[Picture]:
    """Fairness regret under both schedules; reward regret beside the paper's; growth."""
    yield _fairness(outcomes, size)
    yield _reward(outcomes, size)
    yield _theory(outcomes, size)


def _fairness(outcomes: Outcomes, size: Size) -> Picture:
    figure, panels = canvas(size, panels=2)
    series = {"b0": "b0", "fed": "fed-fairx-linucb", "priv": "priv-fairx-linucb"}
    theirs = {name: paper_data.curve("exp1", FAIRNESS, full) for name, full in series.items()}
    ends = []
    for axes, title, names in (
        (panels[0], f"(a) {PRINTED}", ("b0", "fed", "priv")),
        (panels[1], f"(b) {FIGURE}", ("b0", "fed-plotted", "priv-plotted")),
    ):
        shown = {name: paper_data.up_to(curve, size.horizon) for name, curve in theirs.items()}
        ends.append(draw_lines(axes, _lines(outcomes, names, shown)))
        if size.comparable:
            colour = COLOURS["fed-fairx-linucb"]
            axes.plot([size.horizon], [1142.79], "D", color=colour, ms=4, clip_on=False, mfc="w")
        syncs = number(float(outcomes[names[1]].syncs.mean()))
        axes.set_title(f"{title}: {syncs} syncs")
    share_height(panels, ends)
    key(panels[0], paper=True, seeds=size.seeds)
    caption = (
        "Exp 1, fairness regret of ten agents, mean over agents. Dashed: the paper's curves as plotted; "
        "the diamond is its Fed of Exp 3, in the same setting."
    )
    return Picture("exp1-fairness", caption, figure)


def _lines(outcomes: Outcomes, names: tuple[str, ...], theirs: dict[str, paper_data.Curve]) -> list[Line]:
    shorts = [name.partition("-")[0] for name in names]
    return [
        Line(outcomes[name], LABELS[short], COLOURS[ALGORITHMS[short]], theirs.get(short))
        for name, short in zip(names, shorts, strict=True)
    ]


def _reward(outcomes: Outcomes, size: Size) -> Picture:
    figure, ours, printed = reward_panels(size)
    end_labels(ours, draw_lines(ours, _lines(outcomes, ("b0", "fed", "priv"), {}), REWARD))
    key(ours, paper=False, seeds=size.seeds, where="lower left")
    paper_rounds(printed, "exp1", ("b0", "fed-fairx-linucb", "priv-fairx-linucb"), size)
    caption = (
        "Exp 1, reward regret (appendix). Ours is signed and against the fair policy (Wang et al. 2021), so "
        "an optimistic policy, which favours good arms more than their merit, can be below zero. What the "
        "paper plots is about twice its fairness regret at every point and is not this quantity; hence two "
        "panels."
    )
    return Picture("exp1-reward", caption, figure)


def _theory(outcomes: Outcomes, size: Size) -> Picture:
    figure, (axes,) = canvas(size, width=5.2, height=3.4)
    ends = []
    for name, algorithm in ALGORITHMS.items():
        outcome = outcomes[name]
        mean = outcome.fairness_regret.mean(axis=0)
        axes.plot(outcome.rounds, mean, color=COLOURS[algorithm])
        ends.append((float(mean[-1]), LABELS[name], COLOURS[algorithm]))
    rounds = outcomes["b0"].rounds
    guide = 0.5 * float(outcomes["fed"].final().mean())
    axes.plot(rounds, guide * np.sqrt(rounds / rounds[-1]), color="#999999", lw=0.9, ls="--")
    axes.plot(rounds, trivial(rounds), color="#333333", lw=0.9, ls="-.")
    axes.set_xscale("log")
    axes.set_yscale("log")
    plain_log(axes.xaxis, [10.0**k for k in range(1, 6) if rounds[0] <= 10.0**k <= rounds[-1] * 1.01])
    plain_log(axes.yaxis, [10.0**k for k in range(-1, 6)])
    axes.set_xlim(rounds[0], rounds[-1])
    axes.set_xlabel("round t")
    axes.set_ylabel("cumulative fairness regret")
    ends += [(float(trivial(rounds)[-1]), "2t: no policy is worse", "#333333"), (guide, "∝ √t", "#888888")]
    end_labels(axes, ends)
    axes.set_title("growth: the theorem's order is √t")
    caption = (
        "Exp 1, growth of fairness regret on logarithmic axes, beside the order √t of Theorems 1 and 2. The "
        "bounds themselves lie above the line 2t, which every policy keeps (see the table)."
    )
    return Picture("exp1-growth", caption, figure)


QUESTION = "Does sharing statistics lower fairness regret, and how much of the gain does privacy cost?"
EXPERIMENT = Experiment("exp1", "Learning alone and together", QUESTION, runs, score, plot, paper=True)
