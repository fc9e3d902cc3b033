"""Exp 5: mechanisms at equal (ε, δ), also at δ=1e-6; and what an agent may decide from."""

from __future__ import annotations

from collections.abc import Iterator
from typing import Any

from fedfairx.agent.schedules import Paper
from fedfairx.experiments import world as env
from fedfairx.experiments.experiment import FAIRNESS, Experiment, Outcomes, Picture, Run, Size
from fedfairx.experiments.report.figures import canvas, error_bar, log_ticks, power
from fedfairx.experiments.report.panels import Trend, draw_trends
from fedfairx.experiments.scores import Claim, Scores, Table, below, estimate, holds, ratio
from fedfairx.privacy import Bounds, mechanisms
from fedfairx.util.figure_style import COLOURS

DELTAS = (0.1, 1e-6)
EPSILONS = (0.1, 1.0, 2.0, 10.0)
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
    "gap-50": ("a release every 50 rounds", {"schedule": Paper(gap=50)}),
}


def runs(size: Size) -> tuple[Run, ...]:
    """Mechanisms by δ at ε=2; two rules by ε and δ; refinements at (2, 0.1)."""
    world = env.scenario(size)

    def private(key: str, **changes: Any) -> Run:
        return Run(key, world, "priv-fairx-linucb", env.private(**changes))

    by_mechanism = [
        private(f"{name}@{delta:g}", mechanism=name, delta=delta) for name in mechanisms() for delta in DELTAS
    ]
    by_rule = [
        private(f"{rule}@{epsilon:g},{delta:g}", decide_from=rule, epsilon=epsilon, delta=delta)
        for rule in RULES
        for delta in DELTAS
        for epsilon in EPSILONS
    ]
    refined = [private(key, **changes) for key, (_, changes) in REFINEMENTS.items()]
    plain = (
        Run("b0", world, "fairx-linucb", env.options()),
        Run("fed", world, "fed-fairx-linucb", env.options()),
    )
    return (*plain, *by_mechanism, *by_rule, *refined)


def score(outcomes: Outcomes, _: Size) -> Scores:
    """Cost over Fed of every mechanism, and of joining over B0."""
    final = {name: outcome.final() for name, outcome in outcomes.items()}
    cheap, plain = ratio(final["centred"], final["fed"]), ratio(final["blt@0.1"], final["fed"])
    joining = {
        (epsilon, delta): ratio(final[f"own+released@{epsilon:g},{delta:g}"], final["b0"])
        for delta in DELTAS
        for epsilon in EPSILONS
    }
    worst = max(joining, key=lambda pair: joining[pair].value)
    claims = (
        Claim(
            "privacy is cheap with calibrated noise (ours, not the paper's)",
            "the 95 % interval of Priv/Fed at (2, 0.1) with blt, centred at a public point, lies below "
            f"{CHEAP:g}",
            f"Priv/Fed = {cheap} (clipped around zero: {plain})",
            below(cheap, CHEAP),
        ),
        Claim(
            "joining hardly hurts (ours, not the paper's)",
            f"own+released is at most {HARMLESS:g} times B0 at every (ε, δ)",
            f"worst at (ε, δ) = ({worst[0]:g}, {power(worst[1])}): {joining[worst]}",
            holds(joining[worst].value <= HARMLESS),
        ),
    )
    by_mechanism = Table(
        "Mechanisms at ε = 2: fairness regret at T, over Fed's",
        ("mechanism", *(f"δ = {power(delta)}" for delta in DELTAS)),
        tuple(
            (
                name,
                *(
                    f"{estimate(final[f'{name}@{delta:g}'])}; "
                    f"{ratio(final[f'{name}@{delta:g}'], final['fed']).value:.2f} × Fed"
                    for delta in DELTAS
                ),
            )
            for name in mechanisms()
        ),
    )
    by_rule = Table(
        "What an agent decides from: fairness regret at T, over B0's",
        ("ε, δ", *RULES),
        tuple(
            (
                f"{epsilon:g}, {power(delta)}",
                *(str(ratio(final[f"{rule}@{epsilon:g},{delta:g}"], final["b0"])) for rule in RULES),
            )
            for delta in DELTAS
            for epsilon in EPSILONS
        ),
        "released: the guarantee covers interactive use. own+released: the paper's narrower guarantee "
        "(Definition 2).",
    )
    refined = Table(
        "Candidates for less cost at (2, 0.1), each over plain blt",
        ("candidate", "fairness regret at T", "over plain blt"),
        tuple(
            (text, str(estimate(final[key])), str(ratio(final[key], final["blt@0.1"])))
            for key, (text, _) in REFINEMENTS.items()
        ),
    )
    return Scores((), claims, (by_mechanism, by_rule, refined))


def plot(outcomes: Outcomes, size: Size) -> Iterator[Picture]:
    """Mechanisms as bars by δ; rules as trends in ε by δ."""
    figure, (axes,) = canvas(size, width=5.6, height=3.4)
    for i, name in enumerate(mechanisms()):
        for delta, place, fill in zip(DELTAS, (i - 0.12, i + 0.12), (COLOURS[name], "white"), strict=True):
            values = outcomes[f"{name}@{delta:g}"].final()
            axes.errorbar(
                place,
                values.mean(),
                yerr=error_bar(values),
                marker="o",
                ms=7,
                mfc=fill,
                color=COLOURS[name],
                capsize=3,
            )
    axes.set_yscale("log")
    for name, label in (("b0", "B0 (alone)"), ("fed", "Fed (no privacy)")):
        level = float(outcomes[name].final().mean())
        colour = COLOURS["fairx-linucb" if name == "b0" else "fed-fairx-linucb"]
        axes.axhline(level, color=colour, lw=1.2, ls="--")
        axes.text(
            1.025, level, label, transform=axes.get_yaxis_transform(), color=colour, fontsize=8, va="center"
        )
    axes.set_xticks(range(len(mechanisms())), mechanisms())
    axes.set_xlim(-0.5, len(mechanisms()) - 0.5)
    axes.grid(visible=False, axis="x")
    log_ticks(axes.yaxis, *axes.get_ylim())
    axes.set_ylabel("fairness regret at T")
    axes.set_title(f"Priv at ε = 2; filled: δ = {power(DELTAS[0])}, open: δ = {power(DELTAS[1])}")
    yield Picture(
        "exp5-mechanisms",
        "Exp 5, fairness regret at T of Priv by mechanism at equal (ε, δ); lines: learning alone, and "
        "together without privacy.",
        figure,
    )

    figure, panels = canvas(size, panels=2)
    for axes, delta in zip(panels, DELTAS, strict=True):
        trends = [
            Trend(
                EPSILONS,
                [outcomes[f"{rule}@{epsilon:g},{delta:g}"].final() for epsilon in EPSILONS],
                rule,
                COLOURS[rule],
            )
            for rule in RULES
        ]
        alone = [outcomes["b0"].final()] * len(EPSILONS)
        trends.append(Trend(EPSILONS, alone, "B0 (alone)", COLOURS["fairx-linucb"], marker=""))
        draw_trends(axes, trends, xlabel="privacy budget ε", metric=FAIRNESS)
        axes.set_title(f"δ = {power(delta)}")
    panels[1].set_ylabel("")
    yield Picture(
        "exp5-rules",
        "Exp 5, what an agent decides from: everybody's releases alone, or its own exact data and the "
        "others' releases weighted by their worth, against learning alone.",
        figure,
    )


QUESTION = "How much of the cost of privacy is the mechanism's, and can joining hurt?"
EXPERIMENT = Experiment("exp5", "Mechanisms and rules at equal (ε, δ)", QUESTION, runs, score, plot)
