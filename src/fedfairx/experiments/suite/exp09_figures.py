"""Exp 9's figures: the summary that opens the report, the rules by world, the weakest arm over time."""

from __future__ import annotations

from typing import TYPE_CHECKING

import numpy as np

from fedfairx.experiments import world as env
from fedfairx.experiments.experiment import Outcomes, Picture, Size
from fedfairx.experiments.report.figures import band, canvas, end_labels, few_rounds, log_ticks, thousands
from fedfairx.experiments.scores import half_width, number, ratio
from fedfairx.experiments.suite.exp09_worlds import HOWS, MERIT, ONE_HOT, PAPER, RULES, WORLDS, key, rules_of

if TYPE_CHECKING:
    from matplotlib.axes import Axes

SHORT_HOWS = {"alone": "alone", "fed": "together", "priv": "together,\nprivate"}
DUE = "share of exposure, over the fair share"
TOP = 2.0  # of an axis of shares; early on, when all are shown alike, the weakest is far beyond it


def summary(outcomes: Outcomes, size: Size) -> Picture:
    """Fairness regret of the two rules; the weakest arm's share over time."""
    figure, (regret, share) = canvas(size, panels=2, width=7.8, height=3.4)
    width = 0.38
    for i, rule in enumerate((PAPER, MERIT)):
        for place, how in enumerate(HOWS):
            values = outcomes[key("paper", rule, how)].final()
            x = place + (i - 0.5) * width
            half = float(np.nan_to_num(half_width(values)))
            label = RULES[rule].label.partition(",")[0] if place == 0 else None
            regret.bar(
                x,
                values.mean(),
                0.92 * width,
                yerr=half,
                color=RULES[rule].colour,
                label=label,
                error_kw={"lw": 0.9, "capsize": 2},
            )
            text = number(float(f"{values.mean():.3g}"))
            regret.annotate(
                text, (x, values.mean() + half), (0, 2), textcoords="offset points", ha="center", fontsize=8
            )
    regret.set_xticks(range(len(HOWS)), [SHORT_HOWS[how] for how in HOWS])
    regret.grid(visible=False, axis="x")
    regret.margins(y=0.12)
    regret.set_ylim(bottom=0)
    thousands(regret.yaxis)
    regret.set_ylabel(f"fairness regret after {number(size.horizon)} rounds")
    regret.set_title("(a) distance from fair shares, summed up")
    regret.legend(loc="upper right")
    _over_time(share, outcomes, (PAPER, MERIT))
    share.set_title("(b) the weakest of eight arms that stay")
    return Picture(
        "exp9-summary",
        "The paper's rule (optimism, with the radius fitted to the paper's curves) and exposure by expected "
        f"merit. (a) Fairness regret in the paper's world, m = {env.AGENTS} agents that learn alone, "
        f"together, or together with noise that makes it private (ε = {env.EPSILON:g}, δ = {env.DELTA:g}). "
        "(b) What the weakest arm is shown over what it is due, alone: mean over "
        f"{outcomes[key(ONE_HOT, MERIT, 'alone')].seeds.size} seeds with its 95 % band; 1 is fair, and "
        f"at first, when all are shown alike, it is far above {TOP:g}.",
        figure,
    )


def _over_time(axes: Axes, outcomes: Outcomes, rules: tuple[str, ...]) -> None:
    """What the weakest one-hot arm is shown over what it is due, since the last point."""
    ends = []
    for name in rules:
        outcome, rule = outcomes[key(ONE_HOT, name, "alone")], RULES[name]
        mean = outcome.weakest.mean(axis=0)
        axes.plot(outcome.rounds, mean, color=rule.colour)
        band(axes, outcome.rounds, outcome.weakest, rule.colour)
        ends.append((float(mean[-1]), rule.label.partition(",")[0], rule.colour))
    _finish(axes, ends)


def _finish(axes: Axes, ends: list[tuple[float, str, str]]) -> None:
    axes.axhline(1.0, color="#333333", lw=0.9, ls="--")
    axes.set_ylim(0, TOP)
    axes.margins(x=0)
    few_rounds(axes)
    thousands(axes.xaxis)
    axes.set_xlabel("round t")
    axes.set_ylabel(DUE)
    end_labels(axes, ends, gap=0.1)


def worlds(outcomes: Outcomes, size: Size) -> Picture:
    """Every rule's fairness regret over the paper's rule at half its radius, by world."""
    figure, panels = canvas(size, panels=len(HOWS), width=9.6, height=5.0)
    names = list(WORLDS)
    places = np.arange(len(names))[::-1]
    for axes, (how, text) in zip(panels, HOWS.items(), strict=True):
        rules = [rule for rule in rules_of(how) if rule != PAPER]
        for i, name in enumerate(rules):
            rule = RULES[name]
            found = [
                ratio(outcomes[key(world, name, how)].final(), outcomes[key(world, PAPER, how)].final())
                for world in names
            ]
            values = np.array([item.value for item in found])
            spread = np.nan_to_num([[v.value - v.low for v in found], [v.high - v.value for v in found]])
            axes.errorbar(
                values,
                places + 0.13 * ((len(rules) - 1) / 2 - i),
                xerr=spread,
                color=rule.colour,
                marker=rule.marker,
                ms=5,
                lw=0,
                elinewidth=1.1,
                label=rule.label,
            )
        axes.axvline(1.0, color=RULES[PAPER].colour, lw=1.1, ls="--")
        axes.set_xscale("log")
        axes.set_yticks(
            places, [WORLDS[world].label for world in names] if axes is panels[0] else [""] * len(names)
        )
        axes.set_ylim(-0.6, len(names) - 0.4)
        axes.set_title(text.replace("private (", "private\n("))
    low = min(axes.get_xlim()[0] for axes in panels)
    high = max(axes.get_xlim()[1] for axes in panels)
    for axes in panels:
        axes.set_xlim(low, high)
        log_ticks(axes.xaxis, low, high)
    panels[1].set_xlabel("fairness regret at T, over that of the paper's rule at radius × 0.5 (dashed)")
    handles, labels = panels[0].get_legend_handles_labels()
    figure.legend(handles, labels, loc="outside lower center", ncols=len(handles))
    return Picture(
        "exp9-worlds",
        "Exp 9, fairness regret of every rule over that of the paper's rule at half its radius (left of the "
        "dashed line is better), in twelve worlds; 95 % intervals, paired seeds. Sizes are in the tables.",
        figure,
    )


def weakest(outcomes: Outcomes, size: Size) -> Picture:
    """All rules among eight arms that stay: on the mean over seeds, and in the unluckiest seed."""
    figure, (mean, least) = canvas(size, panels=2, width=8.2, height=3.6)
    for axes, title, over in (
        (mean, "(a) mean over seeds", np.mean),
        (least, "(b) the unluckiest seed at each time", np.min),
    ):
        ends = []
        for name, rule in RULES.items():
            outcome = outcomes[key(ONE_HOT, name, "alone")]
            curve = over(outcome.weakest, axis=0)
            axes.plot(outcome.rounds, curve, color=rule.colour, lw=1.3)
            ends.append((float(curve[-1]), rule.label.replace(", ", ",\n"), rule.colour))
        axes.set_title(title)
        _finish(axes, ends if axes is least else [])
    least.set_ylabel("")
    return Picture(
        "exp9-weakest",
        "Exp 9, what the weakest of eight arms that stay, known by name alone, is shown over what it is due; "
        "each agent alone; 1 (dashed) is fair. At first all are shown alike, which is far more than "
        f"the weakest is due; above {TOP:g} the curves are cut.",
        figure,
    )
