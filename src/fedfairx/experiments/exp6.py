"""Exp 6: starvation. Who is shown how often, by rank of merit?"""

from __future__ import annotations

from collections.abc import Iterator

import numpy as np

from fedfairx.core.statistics import Array
from fedfairx.experiments import environment as env
from fedfairx.experiments.experiment import Experiment, Outcomes, Picture, Run, Size
from fedfairx.experiments.figures import COLOURS, NAMES, canvas, end_labels, log_ticks, plain_log
from fedfairx.experiments.scores import Claim, Scores, Table, Verdict, estimate, half_width, judged, number
from fedfairx.simulation import Scenario

ALGORITHMS = ("linucb", "minimum-share", "fairx-linucb", "fed-fairx-linucb", "priv-fairx-linucb")
STEEPNESS = 10.0
SAMPLES = 20_000


def runs(size: Size) -> tuple[Run, ...]:
    """Winner takes all, a minimum share, and the fair algorithms; with exposure measured."""
    world = env.scenario(size)
    return tuple(
        Run(
            name,
            world,
            name,
            env.private(exposure=True) if name == "priv-fairx-linucb" else env.options(exposure=True),
        )
        for name in ALGORITHMS
    )


def fair_shares(scenario: Scenario, seeds: int) -> Array:
    """(seeds, K) mean share of each rank under the fair policy of the true θ*, by sampling contexts."""
    shares = []
    for seed in range(seeds):
        contexts = np.random.default_rng(seed).random((SAMPLES, scenario.arms, scenario.dimension))
        means = np.sort(contexts @ scenario.parameter(seed) / np.sqrt(scenario.dimension), axis=1)[:, ::-1]
        merit = np.exp(STEEPNESS * (means - means[:, :1]))
        shares.append((merit / merit.sum(axis=1, keepdims=True)).mean(axis=0))
    return np.array(shares)


def score(outcomes: Outcomes, size: Size) -> Scores:
    """The least shown rank's share against its fair share."""
    fair = fair_shares(env.scenario(size), size.seeds)
    share = {name: outcomes[name].exposure for name in ALGORITHMS}
    rows = tuple(
        (
            NAMES[name],
            str(estimate(share[name][:, 0])),
            str(estimate(share[name][:, -1])),
            f"{share[name][:, -1].mean() / fair[:, -1].mean():.2f}",
            number(float(outcomes[name].final().mean())),
        )
        for name in ALGORITHMS
    )
    table = Table(
        "Exposure by rank of merit",
        (
            "algorithm",
            "share of the best arm",
            "share of the last arm",
            "last arm, over its fair share",
            "fairness regret at T",
        ),
        rows,
        f"Fair shares: best {number(float(fair[:, 0].mean()))}, last {number(float(fair[:, -1].mean()))}.",
    )
    starved = float(share["linucb"][:, -1].mean() / fair[:, -1].mean())
    served = float(share["fed-fairx-linucb"][:, -1].mean() / fair[:, -1].mean())
    verdict: Verdict = "holds" if starved < 0.5 and served > 0.8 else "does not hold"
    claim = Claim(
        "winner-takes-all starves arms, fair exposure does not (ours, not the paper's)",
        "the last arm gets below half of its fair share from LinUCB, and above 0.8 of it from Fed",
        f"LinUCB {starved:.2f}, Fed {served:.2f} of the fair share",
        judged(verdict, size.full),
    )
    return Scores((), (claim,), (table,))


def plot(outcomes: Outcomes, size: Size) -> Iterator[Picture]:
    """Share by rank, and fairness regret."""
    figure, (shares, regret) = canvas(size, panels=2, width=7.6)
    fair = fair_shares(env.scenario(size), size.seeds).mean(axis=0)
    ranks = np.arange(1, fair.size + 1)
    shares.bar(ranks, fair, color="#DDDDDD", width=0.8)
    for name in ALGORITHMS:
        exposure = outcomes[name].exposure
        shares.plot(ranks, exposure.mean(axis=0), color=COLOURS[name], marker="o", ms=4, lw=1.4)
    shares.set_yscale("log")
    floor = 5e-4
    shares.set_ylim(floor, 1.3)
    plain_log(shares.yaxis, [0.001, 0.01, 0.1, 1])
    shares.set_xticks(ranks)
    shares.set_xlabel("rank of the arm's true mean in its round")
    shares.set_ylabel("mean share of exposure")
    ends = [
        (max(float(outcomes[name].exposure[:, -1].mean()), floor), NAMES[name], COLOURS[name])
        for name in ALGORITHMS
    ]
    shares.set_title("(a) who is shown; grey: the fair share")
    end_labels(shares, ends)
    finals = [outcomes[name].final() for name in ALGORITHMS]
    for i, (name, values) in enumerate(zip(ALGORITHMS, finals, strict=True)):
        half = float(np.nan_to_num(half_width(values)))
        regret.errorbar(values.mean(), i, xerr=half, marker="o", ms=7, color=COLOURS[name], capsize=3)
    regret.set_yticks(range(len(finals)), [NAMES[name] for name in ALGORITHMS])
    regret.set_xscale("log")
    low, high = 0.5 * min(float(v.mean()) for v in finals), 1.4 * max(float(v.mean()) for v in finals)
    regret.set_xlim(low, high)
    log_ticks(regret.xaxis, low, high)
    regret.set_ylim(-0.5, len(finals) - 0.5)
    regret.set_xlabel("fairness regret at T")
    regret.set_title("(b) what it costs in fairness")
    yield Picture(
        "exp6-starvation",
        "Exp 6, mean share of exposure by rank of merit. LinUCB gives all to the arm with the largest upper "
        "bound; the minimum-share policy adds a floor of 0.02 for each arm (after Patil et al. 2020), "
        "whatever its merit.",
        figure,
    )


EXPERIMENT = Experiment(
    name="exp6",
    title="Starvation",
    question="Who is starved of exposure by winner-takes-all, and does a minimum share mend it?",
    runs=runs,
    score=score,
    plot=plot,
)
