"""Exp 9's second half: does it ever hurt to join a private federation, and from when on does it pay?"""

from __future__ import annotations

import numpy as np

from fedfairx.experiments import world as env
from fedfairx.experiments.experiment import Outcome, Outcomes, Picture, Run, Size
from fedfairx.experiments.report.figures import canvas, end_labels, plain_log, power
from fedfairx.experiments.scores import (
    Claim,
    Estimate,
    Scores,
    Table,
    Verdict,
    below,
    half_width,
    judged,
    number,
    ratio,
)
from fedfairx.experiments.suite.exp09_worlds import least_seeds
from fedfairx.util.arrays import Array

EPSILONS = (0.1, 1.0, 2.0, 10.0)
DELTAS = (0.1, 1e-6)
SHORT = 10_000
CROWDS = (2, env.AGENTS, 40)
CROWD_DELTA = 1e-6
HARMLESS = 1.02  # times learning alone, which joining should never exceed
_COLOURS = dict(zip(EPSILONS, ("#D55E00", "#E69F00", "#56B4E9", "#0072B2"), strict=True))
_CROWD_COLOURS = dict(zip(CROWDS, ("#AA3377", "#009E73", "#0072B2"), strict=True))


def horizons(size: Size) -> tuple[int, ...]:
    """A short federation and a long one; of a reduced size, only one."""
    return tuple(sorted({min(size.horizon, SHORT), size.horizon}))


def alone_key(horizon: int, agents: int = env.AGENTS) -> str:
    return f"{agents} alone for {horizon}"


def joined_key(horizon: int, epsilon: float, delta: float, agents: int = env.AGENTS) -> str:
    return f"{agents} joined for {horizon}, ε={epsilon:g}, δ={delta:g}"


def runs(size: Size) -> tuple[Run, ...]:
    """Expected merit alone, and with own+released for every budget; short federations of three sizes."""
    found = []
    short = horizons(size)[0]
    settings = [(horizon, env.AGENTS) for horizon in horizons(size)]
    settings += [(short, agents) for agents in CROWDS if agents != env.AGENTS]
    for horizon, agents in settings:
        world = env.scenario(size, horizon=horizon, agents=agents)
        # A large federation has as many agents to average over as a small one has seeds.
        least = least_seeds(size) if agents * horizon <= env.AGENTS * SHORT else 0
        found.append(Run(alone_key(horizon, agents), world, "fairx-bayes", {}, least))
        for delta in DELTAS if agents == env.AGENTS else (CROWD_DELTA,):
            for epsilon in EPSILONS:
                private = {"epsilon": epsilon, "delta": delta, "decide_from": "own+released"}
                name = joined_key(horizon, epsilon, delta, agents)
                found.append(Run(name, world, "priv-fairx-bayes", private, least))
    return tuple(found)


def score(outcomes: Outcomes, size: Size) -> Scores:
    """The ratio to learning alone for every T, ε and δ; the worst decides."""
    ratios = {
        (horizon, delta, epsilon): _ratio(outcomes, horizon, epsilon, delta)
        for horizon in horizons(size)
        for delta in DELTAS
        for epsilon in EPSILONS
    }
    worst = max(ratios, key=lambda which: ratios[which].value)
    found = {below(item, HARMLESS) for item in ratios.values()}
    verdicts: tuple[Verdict, ...] = ("does not hold", "undecided", "holds")
    verdict = next(item for item in verdicts if item in found)
    claim = Claim(
        "joining hardly hurts, also at (0.1, 10⁻⁶) (expected merit; ours, not the paper's)",
        f"own+released over learning alone: its 95 % interval lies below {HARMLESS:g} for every T, ε and δ",
        f"worst at T = {number(worst[0])}, (ε, δ) = ({worst[2]:g}, {power(worst[1])}): "
        f"{_precise(ratios[worst])}",
        judged(verdict, size.full),
    )
    rows = tuple(
        (
            f"{epsilon:g}, {power(delta)}",
            *(_precise(ratios[horizon, delta, epsilon]) for horizon in horizons(size)),
        )
        for delta in DELTAS
        for epsilon in EPSILONS
    )
    table = Table(
        "Joining a private federation of ten: fairness regret at T over that of learning alone",
        ("ε, δ", *(f"T = {_with_seeds(outcomes, horizon)}" for horizon in horizons(size))),
        rows,
        "Expected merit, own+released: one's own exact data and the others' releases by their worth.",
    )
    return Scores((), (claim,), (table,), (_pays(outcomes, size),))


def _ratio(outcomes: Outcomes, horizon: int, epsilon: float, delta: float) -> Estimate:
    joined = outcomes[joined_key(horizon, epsilon, delta)]
    return ratio(joined.final(), outcomes[alone_key(horizon)].final())


def _precise(found: Estimate) -> str:
    return f"{found.value:.3f} [{found.low:.3f}, {found.high:.3f}]"


def _with_seeds(outcomes: Outcomes, horizon: int) -> str:
    return f"{number(horizon)} ({outcomes[alone_key(horizon)].seeds.size} seeds)"


def over_time(joined: Outcome, alone: Outcome) -> Array:
    """(seeds, points): regret so far, over that of learning alone."""
    return np.asarray(joined.fairness_regret / alone.fairness_regret)


def _pays(outcomes: Outcomes, size: Size) -> str:
    """From which round on the whole interval lies below learning alone, for each ε; and how it begins."""
    horizon = size.horizon
    alone = outcomes[alone_key(horizon)]
    found, early = [], []
    for epsilon in EPSILONS:
        curve = over_time(outcomes[joined_key(horizon, epsilon, CROWD_DELTA)], alone)
        gains = curve.mean(axis=0) + np.nan_to_num(half_width(curve)) < 1
        # For good: a lucky moment at the start does not count.
        late = np.flatnonzero(~gains)
        first = 0 if late.size == 0 else late[-1] + 1
        when = f"round {number(alone.rounds[first])}" if first < alone.rounds.size else "not by then"
        found.append(f"ε = {epsilon:g}: {when}")
        early.append(f"{curve[:, 0].mean():.2f}")
    return (
        "From when on private sharing among ten pays, by the 95 % interval of the regret so far (δ = "
        f"{power(CROWD_DELTA)}, planned for T = {number(horizon)}): {', '.join(found)}. "
        f"The first releases are nearly all noise: at round {number(alone.rounds[0])} the regret so far is "
        f"{', '.join(early)} times that of learning alone."
    )


def plot(outcomes: Outcomes, size: Size) -> Picture:
    """The ratio to learning alone over time by ε, and at the short horizon by ε and number of agents."""
    short, long = horizons(size)[0], size.horizon
    figure, (time, crowd) = canvas(size, panels=2, width=7.6)
    ends = []
    alone = outcomes[alone_key(long)]
    for epsilon in EPSILONS:
        curve = over_time(outcomes[joined_key(long, epsilon, CROWD_DELTA)], alone)
        mean, half = curve.mean(axis=0), np.nan_to_num(half_width(curve))
        time.plot(alone.rounds, mean, color=_COLOURS[epsilon])
        time.fill_between(alone.rounds, mean - half, mean + half, color=_COLOURS[epsilon], alpha=0.18, lw=0)
        ends.append((float(mean[-1]), f"ε = {epsilon:g}", _COLOURS[epsilon]))
    time.set_xscale("log")
    time.set_xlim(alone.rounds[0], long)
    plain_log(time.xaxis, [10.0**k for k in range(2, 6) if alone.rounds[0] <= 10**k <= long])
    time.set_xlabel("round t")
    time.set_ylabel("fairness regret so far, over learning alone")
    time.set_title(f"(a) ten agents, δ = {power(CROWD_DELTA)}")
    labels = []
    seeds = [str(outcomes[alone_key(short, agents)].seeds.size) for agents in CROWDS]
    for agents in CROWDS:
        base = outcomes[alone_key(short, agents)].final()
        found = [
            ratio(outcomes[joined_key(short, epsilon, CROWD_DELTA, agents)].final(), base)
            for epsilon in EPSILONS
        ]
        values = [item.value for item in found]
        spread = [[v.value - v.low for v in found], [v.high - v.value for v in found]]
        colour = _CROWD_COLOURS[agents]
        crowd.errorbar(
            EPSILONS, values, yerr=np.nan_to_num(spread), color=colour, marker="o", ms=4.5, capsize=2.5
        )
        labels.append((values[-1], f"{agents} agents", colour))
    crowd.set_xscale("log")
    plain_log(crowd.xaxis, EPSILONS)
    crowd.set_xlabel("privacy budget ε")
    crowd.set_title(f"(b) T = {number(short)}, δ = {power(CROWD_DELTA)}")
    for axes, names in ((time, ends), (crowd, labels)):
        axes.set_ylim(0, 1.3)
        axes.axhline(1.0, color="#333333", lw=0.9, ls="--")
        end_labels(axes, names)
    return Picture(
        "exp9-joining",
        "Exp 9, when private sharing pays: fairness regret of joining (expected merit, own+released) over "
        f"that of learning alone (dashed: 1). (a) over time, by ε, {alone.seeds.size} seeds. (b) by ε and "
        f"the number of agents in a short federation; {', '.join(seeds)} seeds.",
        figure,
    )
