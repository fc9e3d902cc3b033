"""Exp 7: communication. What does each release buy?"""

from __future__ import annotations

from collections.abc import Iterator

from fedfairx.agent.schedules import SCHEDULES, Paper, Schedule
from fedfairx.experiments import world as env
from fedfairx.experiments.experiment import FAIRNESS, Experiment, Outcomes, Picture, Run, Size
from fedfairx.experiments.report.figures import canvas, error_bar, log_ticks
from fedfairx.experiments.scores import Claim, Scores, Table, estimate, holds, number
from fedfairx.util.figure_style import COLOURS

SAME_AS = {"determinant": "b1", "doubling": "b2"}  # Exp 2 has them under these names
KINDS = {"fed": "fed-fairx-linucb", "priv": "priv-fairx-linucb"}
LABELS = {"fed": "Fed", "priv": "Priv, ε = 2, δ = 0.1"}


def schedules(size: Size) -> dict[str, Schedule]:
    """Every schedule of the package, and two more gaps of the paper's."""
    named = {name: schedule for name, schedule in SCHEDULES.items() if name != "never"}
    return {**named, "figure-gap": env.figure_gap(size), "gap 50": Paper(gap=50), "gap 500": Paper(gap=500)}


def runs(size: Size) -> tuple[Run, ...]:
    """Fed and Priv under every schedule, with own fresh data: else long gaps would only show its lack."""
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
    alone = str(estimate(outcomes["never"].final()))
    rows: list[tuple[str, ...]] = [("never (B0)", "0", alone, alone)]
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
    claim = Claim(
        "far fewer releases do as well (ours, not the paper's)",
        "a schedule with a tenth of the printed schedule's releases is within a tenth of Fed's least regret",
        f"within a tenth of the least regret: Fed with {number(near['fed'])} releases, Priv with "
        f"{number(near['priv'])}; the printed schedule makes {number(releases['fed, paper'])}",
        holds(near["fed"] <= 0.1 * releases["fed, paper"]),
    )
    table = Table(
        "Fairness regret at T by schedule", ("schedule", "releases", "Fed", "Priv (blt)"), tuple(rows)
    )
    notes = ("The determinant schedule reads the data; with it Priv is NOT private end to end.",)
    return Scores((), (claim,), (table,), notes)


def plot(outcomes: Outcomes, size: Size) -> Iterator[Picture]:
    """A row for each schedule, in the order of releases: Fed's regret and Priv's."""
    ordered = sorted(schedules(size), key=lambda name: float(outcomes[f"fed, {name}"].syncs.mean()))
    figure, (axes,) = canvas(size, width=6.4, height=0.3 * len(ordered) + 1.3)
    for row, name in enumerate(ordered):
        for kind, algorithm in KINDS.items():
            values = outcomes[f"{kind}, {name}"].final(FAIRNESS)
            leaky = name == "determinant" and kind == "priv"
            axes.errorbar(
                values.mean(),
                row,
                xerr=error_bar(values),
                marker="o",
                ms=5.5,
                capsize=2,
                color=COLOURS[algorithm],
                mfc="w" if leaky else COLOURS[algorithm],
                label=LABELS[kind] if row == 0 else None,
            )
    alone = float(outcomes["never"].final().mean())
    axes.axvline(alone, color=COLOURS["fairx-linucb"], lw=1.1, ls="--", label="B0: never")
    axes.set_xscale("log")
    finals = [float(outcome.final().mean()) for outcome in outcomes.values()]
    axes.set_xlim(0.8 * min(finals), 1.25 * max(finals))
    log_ticks(axes.xaxis, *axes.get_xlim())
    axes.set_yticks(range(len(ordered)), [_row_label(outcomes, name) for name in ordered])
    axes.set_ylim(len(ordered) - 0.5, -0.5)  # few releases above
    axes.tick_params(axis="y", length=0)
    axes.set_xlabel("fairness regret at T")
    axes.legend(loc="lower center", bbox_to_anchor=(0.4, 1.0), ncols=3, handlelength=1.4)
    yield Picture(
        "exp7-communication",
        "Exp 7, fairness regret at T by schedule, with the releases that each agent makes; dashed: learning "
        "alone. The open mark is not private end to end, because its timing depends on the data.",
        figure,
    )


def _row_label(outcomes: Outcomes, name: str) -> str:
    counts = (number(float(outcomes[f"{kind}, {name}"].syncs.mean())) for kind in KINDS)
    return f"{name}: {' / '.join(dict.fromkeys(counts))} releases"


QUESTION = "How many releases does the gain of learning together need?"
EXPERIMENT = Experiment("exp7", "Communication", QUESTION, runs, score, plot)
