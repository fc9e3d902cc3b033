"""Exp 7: communication. What does each release buy?"""

from __future__ import annotations

from collections.abc import Callable, Iterator

from fedfairx.agent.schedules import SCHEDULES, Paper, Schedule
from fedfairx.experiments import world as env
from fedfairx.experiments.contents import Bar, Contents, Grid, Hypothesis, Rows, regret, shown, syncs, words
from fedfairx.experiments.experiment import OURS, Experiment, Picture, Run, Size
from fedfairx.experiments.outcomes import Outcomes
from fedfairx.experiments.report import figures
from fedfairx.experiments.scores import number
from fedfairx.util.figure_style import COLOURS

SAME_AS = {"determinant": "b1", "doubling": "b2"}  # Exp 2 has them under these names
KINDS = {"fed": env.FED, "priv": env.PRIV}
LABELS = {"fed": "Fed", "priv": "Priv, ε = 2, δ = 0.1"}


def schedules(size: Size) -> dict[str, Schedule]:
    """Every schedule of the package, and two more gaps of the paper's."""
    named = {name: schedule for name, schedule in SCHEDULES.items() if name != "never"}
    return {**named, "figure-gap": env.figure_gap(size), "gap 50": Paper(gap=50), "gap 500": Paper(gap=500)}


def runs(size: Size) -> tuple[Run, ...]:
    """Fed and Priv under every schedule, with own fresh data: else long gaps would only show its lack."""
    world = env.scenario(size)
    all_runs = [env.run("never", world, env.B0)]
    for name, schedule in schedules(size).items():
        # The default schedules are given by leaving them out, so that other experiments' results are found.
        options = {} if name == "paper" else {"schedule": schedule}
        private = SAME_AS.get(name, env.PRIV)
        all_runs.append(env.run(f"fed, {name}", world, env.FED, **options))
        all_runs.append(env.run(f"priv, {name}", world, private, decide_from="released+local", **options))
    return tuple(all_runs)


def by_releases(outcomes: Outcomes, size: Size) -> dict[str, str]:
    """The schedules in the order of releases, with the releases of Fed and of Priv, if different."""
    mean = {key: float(outcome.syncs.mean()) for key, outcome in outcomes.items()}
    ordered = sorted(schedules(size), key=lambda name: mean[f"fed, {name}"])
    return {
        name: " / ".join(dict.fromkeys(number(mean[f"{kind}, {name}"]) for kind in KINDS)) for name in ordered
    }


def near_best(kind: str) -> Callable[[Outcomes], float]:
    """The fewest releases that come within a tenth of the least regret."""

    def measure(outcomes: Outcomes) -> float:
        tried = [
            (float(outcome.final().mean()), float(outcome.syncs.mean()))
            for key, outcome in outcomes.items()
            if key.startswith(kind)
        ]
        least = min(regret for regret, _ in tried)
        return min(releases for regret, releases in tried if regret <= 1.1 * least)

    return measure


def contents(size: Size) -> Contents:
    """Regret by number of releases; how few releases come within a tenth of the best."""
    fed, priv = (near_best(kind) for kind in KINDS)
    printed = syncs("fed, paper")
    alone = regret("never")

    def rows(outcomes: Outcomes) -> Rows:
        for name, releases in by_releases(outcomes, size).items():
            yield name, releases, *(regret(f"{kind}, {name}") for kind in KINDS)

    return Contents(
        claims=(
            Hypothesis(
                "far fewer releases do as well (ours, not the paper's)",
                "a schedule with a tenth of the printed schedule's releases is within a tenth of Fed's least "
                "regret",
                (Bar({"": lambda outcomes: fed(outcomes) / printed(outcomes)}, high=0.1),),
                words(
                    "within a tenth of the least regret: Fed with {fed} releases, Priv with {priv}; the "
                    "printed schedule makes {printed}",
                    fed=shown(fed),
                    priv=shown(priv),
                    printed=shown(printed),
                ),
            ),
        ),
        tables=(
            Grid(
                "Fairness regret at T by schedule",
                ("schedule", "releases", "Fed", "Priv (blt)"),
                lambda outcomes: [("never (B0)", "0", alone, alone), *rows(outcomes)],
            ),
        ),
        notes=("The determinant schedule reads the data; with it Priv is NOT private end to end.",),
    )


def plot(outcomes: Outcomes, size: Size) -> Iterator[Picture]:
    """A row for each schedule, in the order of releases: Fed's regret and Priv's."""
    ordered = by_releases(outcomes, size)
    figure, (axes,) = figures.canvas(width=6.4, height=0.3 * len(ordered) + 1.3)
    for row, name in enumerate(ordered):
        for kind, algorithm in KINDS.items():
            values, private = outcomes[f"{kind}, {name}"].final(), (kind, name) != ("priv", "determinant")
            style = {"marker": "o", "ms": 5.5, "capsize": 2, "label": LABELS[kind] if row == 0 else None}
            figures.draw_mark(axes, row, values, COLOURS[algorithm], filled=private, across=True, **style)
    alone = float(outcomes["never"].final().mean())
    axes.axvline(alone, color=COLOURS[env.B0], lw=1.1, ls="--", label="B0: never")
    finals = [float(outcome.final().mean()) for outcome in outcomes.values()]
    figures.log_ticks(axes.xaxis, (0.8 * min(finals), 1.25 * max(finals)))
    labels = [f"{name}: {releases} releases" for name, releases in ordered.items()]
    axes.set_yticks(range(len(ordered)), labels)
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


QUESTION = "How many releases does the gain of learning together need?"
EXPERIMENT = Experiment("exp7", "Communication", QUESTION, runs, contents, plot, OURS, env.WORDS)
