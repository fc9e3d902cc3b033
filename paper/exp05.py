"""Exp 5: mechanisms at equal (ε, δ), also at δ=1e-6; and what an agent may decide from."""

from collections.abc import Iterator
from itertools import product
from typing import Any

from fedfairx import schedules
from fedfairx.privacy import Bounds, mechanisms
from paper import figures
from paper import world as env
from paper.experiment import OURS, Experiment, Part, Picture, Results, Run, Size
from paper.figures import COLOURS, power
from paper.scores import Claim, Table, below, judge, worst

DELTAS = (0.1, 1e-6)
EPSILONS = (0.1, 1.0, 2.0, 10.0)
BUDGETS = {f"{epsilon:g},{delta:g}": (epsilon, delta) for delta, epsilon in product(DELTAS, EPSILONS)}
RULES = ("released", "own+released")
CHEAP = 1.4  # Priv/Fed that calibrated noise should not exceed at (2, 0.1)
HARMLESS = 1.02  # own+released over B0 that joining should never exceed
# What else might lower the cost at the same guarantee; each against plain blt.
REFINEMENTS: dict[str, tuple[str, dict[str, Any]]] = {
    "centred": (
        "records centred at the middle of their public box: sensitivity 0.5625",
        {"centring": "scenario"},
    ),
    "centred-own": (
        "the same, own+released (the paper's narrower guarantee)",
        {"centring": "scenario", "decide_from": "own+released"},
    ),
    "centred-1e-6": ("centred, at δ = 1e-6", {"centring": "scenario", "delta": 1e-6}),
    "own-fresh": ("own fresh data too (the paper's narrower guarantee)", {"decide_from": "released+local"}),
    "nonnegative": ("x ≥ 0 and y in [0, 1] known: sensitivity √3", {"bounds": Bounds(nonnegative=True)}),
    "gram-half": ("half the noise variance on the Gram matrix", {"bounds": Bounds(gram_share=0.5)}),
    "shift-2": ("shift of 2 sd, not the default", {"shift": 2.0}),
    "gap-50": ("a release every 50 rounds", {"schedule": schedules.Paper(gap=50)}),
}


def runs(size: Size) -> Iterator[Run]:
    """Mechanisms by δ at ε=2; two rules by ε and δ; refinements at (2, 0.1)."""
    world = env.scenario(size)
    yield env.run("b0", world, env.B0)
    yield env.run("fed", world, env.FED)
    for name, delta in product(mechanisms(), DELTAS):
        yield env.run(f"{name}@{delta:g}", world, env.PRIV, mechanism=name, delta=delta)
    for rule, (budget, (epsilon, delta)) in product(RULES, BUDGETS.items()):
        own = {} if rule == "released" else {"decide_from": rule}  # "released" is the algorithm's own
        yield env.run(f"{rule}@{budget}", world, env.PRIV, **own, epsilon=epsilon, delta=delta)
    for name, (_, options) in REFINEMENTS.items():
        yield env.run(name, world, env.PRIV, **options)


def report(r: Results, _: Size) -> Iterator[Part]:
    """Cost over Fed of every mechanism, and of joining over B0."""
    centred = r.over("centred", "fed")
    yield below(
        "privacy is cheap with calibrated noise",
        "Priv/Fed at (2, 0.1) with blt, centred at a public point,",
        centred,
        CHEAP,
        f"Priv/Fed = {centred} (clipped around zero: {r.over('blt@0.1', 'fed')})",
    )
    named = {budget: f"{epsilon:g}, {power(delta)}" for budget, (epsilon, delta) in BUDGETS.items()}
    joined = {text: r.over(f"own+released@{budget}", "b0") for budget, text in named.items()}
    where, most = worst(joined)
    yield Claim(
        "joining hardly hurts",
        f"own+released is at most {HARMLESS:g} times B0 at every (ε, δ)",
        f"worst at (ε, δ) = ({where}): {most}",
        judge(joined, high=HARMLESS),
    )
    yield Table(
        "Mechanisms at ε = 2: fairness regret at T, over Fed's",
        ("mechanism", *(f"δ = {power(delta)}" for delta in DELTAS)),
        [
            (name, *(f"{r.regret(run)}; {r.over(run, 'fed').value:.2f} × Fed" for run in of))
            for name, of in ((name, [f"{name}@{delta:g}" for delta in DELTAS]) for name in mechanisms())
        ],
    )
    yield Table(
        "What an agent decides from: fairness regret at T, over B0's",
        ("ε, δ", *RULES),
        [(text, *(r.over(f"{rule}@{budget}", "b0") for rule in RULES)) for budget, text in named.items()],
        "released: the guarantee covers interactive use. own+released: the paper's narrower guarantee "
        "(Definition 2).",
    )
    yield Table(
        "Candidates for less cost at (2, 0.1), each over plain blt",
        ("candidate", "fairness regret at T", "over plain blt"),
        [(text, r.regret(run), r.over(run, "blt@0.1")) for run, (text, _) in REFINEMENTS.items()],
    )

    figure, (axes,) = figures.canvas(width=5.6, height=3.4)
    for i, name in enumerate(mechanisms()):
        for delta, place in zip(DELTAS, (i - 0.12, i + 0.12), strict=True):
            colour = COLOURS[name]
            style = {"color": colour, "mfc": colour if delta == DELTAS[0] else "white", "marker": "o"}
            figures.mark(axes, place, [r.regret(f"{name}@{delta:g}")], ms=7, capsize=3, **style)
    axes.set_yscale("log")
    beside: dict[str, Any] = {"transform": axes.get_yaxis_transform(), "fontsize": 8, "va": "center"}
    for run, label, algorithm in (("b0", "B0 (alone)", env.B0), ("fed", "Fed (no privacy)", env.FED)):
        axes.axhline(r.mean(run), color=COLOURS[algorithm], lw=1.2, ls="--")
        axes.text(1.025, r.mean(run), label, color=COLOURS[algorithm], **beside)
    axes.set_xticks(range(len(mechanisms())), mechanisms())
    axes.set_xlim(-0.5, len(mechanisms()) - 0.5)
    axes.grid(visible=False, axis="x")
    figures.log_ticks(axes.yaxis)
    axes.set(
        ylabel="fairness regret at T",
        title=f"Priv at ε = 2; filled: δ = {power(DELTAS[0])}, open: δ = {power(DELTAS[1])}",
    )
    yield Picture(
        "exp5-mechanisms",
        "Exp 5, fairness regret at T of Priv by mechanism at equal (ε, δ); lines: learning alone, and "
        "together without privacy.",
        figure,
    )
    figure, panels = figures.canvas(panels=2)
    for axes, delta in zip(panels, DELTAS, strict=True):
        trends = [figures.Trend(f"{rule}@{{:g}},{delta:g}", rule, COLOURS[rule]) for rule in RULES]
        trends.append(figures.Trend("b0", "B0 (alone)", COLOURS[env.B0], marker=""))
        figures.draw_trends(axes, r, EPSILONS, trends, xlabel="privacy budget ε")
        axes.set_title(f"δ = {power(delta)}")
    panels[1].set_ylabel("")
    yield Picture(
        "exp5-rules",
        "Exp 5, what an agent decides from: everybody's releases alone, or its own exact data and the "
        "others' releases weighted by their worth, against learning alone.",
        figure,
    )


QUESTION = "How much of the cost of privacy is the mechanism's, and can joining hurt?"
TITLE = "Mechanisms and rules at equal (ε, δ)"
EXPERIMENT = Experiment("exp5", TITLE, QUESTION, runs, report, OURS, env.WORDS)
