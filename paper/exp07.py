"""Exp 7: communication. What does each release buy?"""

from collections.abc import Iterator

from fedfairx import schedules
from paper import figures
from paper import world as env
from paper.experiment import OURS, Experiment, Part, Picture, Results, Run, Size
from paper.figures import COLOURS
from paper.scores import Claim, Table, judge, number

SAME_AS = {"determinant": "b1", "doubling": "b2"}  # Exp 2 has them under these names
KINDS = {"fed": env.FED, "priv": env.PRIV}
LABELS = {"fed": "Fed", "priv": "Priv, ε = 2, δ = 0.1"}


def tried(size: Size) -> dict[str, schedules.Schedule]:
    """Every schedule of fedfairx, and two more gaps of the paper's."""
    return {
        "paper": schedules.Paper(),
        "figure-gap": env.figure_gap(size),
        "doubling": schedules.Doubling(),
        "geometric": schedules.Geometric(),
        "determinant": schedules.Determinant(),
        "every-round": schedules.EveryRound(),
        "gap 50": schedules.Paper(gap=50),
        "gap 500": schedules.Paper(gap=500),
    }


def runs(size: Size) -> Iterator[Run]:
    """Fed and Priv under every schedule, with own fresh data: else long gaps would only show its lack."""
    world = env.scenario(size)
    yield env.run("never", world, env.B0)
    for name, schedule in tried(size).items():
        # A schedule that is the algorithm's own is left out, so that other experiments' results are found.
        private = SAME_AS.get(name, env.PRIV)
        fed = {} if name == "paper" else {"schedule": schedule}
        own = {} if name in ("paper", *SAME_AS) else {"schedule": schedule}
        yield env.run(f"fed, {name}", world, env.FED, **fed)
        yield env.run(f"priv, {name}", world, private, decide_from="released+local", **own)


def near_best(r: Results, kind: str) -> float:
    """The fewest releases that come within a tenth of the least regret."""
    tried = [(r.mean(run), r.syncs(run)) for run in r if run.startswith(kind)]
    least = min(regret for regret, _ in tried)
    return min(releases for regret, releases in tried if regret <= 1.1 * least)


def report(r: Results, size: Size) -> Iterator[Part]:
    """Regret by number of releases; how few releases come within a tenth of the best."""
    fed, priv, printed = near_best(r, "fed"), near_best(r, "priv"), r.syncs("fed, paper")
    yield Claim(
        "far fewer releases do as well",
        "a schedule with a tenth of the printed schedule's releases is within a tenth of Fed's least regret",
        f"within a tenth of the least regret: Fed with {number(fed)} releases, Priv with {number(priv)}; the "
        f"printed schedule makes {number(printed)}",
        judge(fed / printed, high=0.1),
    )
    releases = {  # of Fed and of Priv, if different
        name: " / ".join(dict.fromkeys(number(r.syncs(f"{kind}, {name}")) for kind in KINDS))
        for name in sorted(tried(size), key=lambda name: r.syncs(f"fed, {name}"))
    }
    alone = r.regret("never")
    rows = [
        (name, count, *(r.regret(f"{kind}, {name}") for kind in KINDS)) for name, count in releases.items()
    ]
    columns = ("schedule", "releases", "Fed", "Priv (blt)")
    yield Table("Fairness regret at T by schedule", columns, [("never (B0)", "0", alone, alone), *rows])
    yield "The determinant schedule reads the data; with it Priv is NOT private end to end."

    figure, (axes,) = figures.canvas(width=6.4, height=0.3 * len(releases) + 1.3)
    for row, name in enumerate(releases):
        for kind, algorithm in KINDS.items():
            colour, private = COLOURS[algorithm], (kind, name) != ("priv", "determinant")
            style = {"color": colour, "mfc": colour if private else "white", "marker": "o", "ms": 5.5}
            label = LABELS[kind] if row == 0 else None
            marked = [r.regret(f"{kind}, {name}")]
            figures.mark(axes, row, marked, across=True, capsize=2, label=label, **style)
    axes.axvline(alone.value, color=COLOURS[env.B0], lw=1.1, ls="--", label="B0: never")
    finals = [r.mean(run) for run in r]
    figures.log_ticks(axes.xaxis, (0.8 * min(finals), 1.25 * max(finals)))
    axes.set_yticks(range(len(releases)), [f"{name}: {count} releases" for name, count in releases.items()])
    axes.set_ylim(len(releases) - 0.5, -0.5)  # few releases above
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
EXPERIMENT = Experiment("exp7", "Communication", QUESTION, runs, report, OURS, env.WORDS)
