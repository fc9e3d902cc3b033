"""Late rewards in Exp 9: rows with features, newcomers, and an action whose rewards never come.

Every reward takes the same number of rounds, so that as many decisions are made before the first one comes.
The rules are compared with that before uncertainty saturated, too: where long rows are better, or few
rewards are late, it was no worse.
"""

import math
from collections.abc import Iterator, Mapping
from itertools import product
from typing import Any

import numpy as np

from fedfairx import Prior
from fedfairx.evaluation import Estimate
from paper import figures
from paper.experiment import Picture, Results, Run, Size
from paper.scores import Claim, Table, below, estimate, judge, listed, number, outside
from paper.worlds import GREEDY, MERIT, PAPER, RULES, THOMPSON, Rule, World, least_seeds

BEFORE = "before"
LATE_RULES = {
    PAPER: RULES[PAPER],
    BEFORE: Rule("expected merit, before", "#0072B2", RULES[MERIT].name, marker="P"),
    GREEDY: RULES[GREEDY],
    THOMPSON: RULES[THOMPSON],
    MERIT: RULES[MERIT],
}
DELAYS = (0, 100, 500)  # rounds that every reward takes
HORIZON = 3_000
DIMENSION, ACTIONS, NEWCOMERS, ALIKE = 5, 20, 10, 7
POSITIVE, SIGNS, NEGATIVE, JOINING, SILENT = "positive", "signs", "negative", "joining", "silent"
_NAMED: Mapping[str, Any] = {"contexts": "one-hot", "noise_sd": 0.5}  # as rewards of 0 and 1 have, at most
KINDS: Mapping[str, tuple[str, Mapping[str, Any]]] = {
    POSITIVE: ("θ ≥ 0: long rows are better", {}),
    SIGNS: ("θ of any sign", {"theta": "sphere"}),
    NEGATIVE: ("θ < 0: long rows are worse", {"theta": (-1 / math.sqrt(DIMENSION),) * DIMENSION}),
    JOINING: (
        f"{ACTIONS - NEWCOMERS} named actions, {NEWCOMERS} more join",
        {**_NAMED, "arms": ACTIONS, "dimension": ACTIONS, "theta": "box", "newcomers": NEWCOMERS},
    ),
    SILENT: (  # the last is the weakest, by a hair, and so the silent one
        f"{ALIKE} named actions alike, one never answers",
        {**_NAMED, "arms": ALIKE, "dimension": ALIKE, "theta": (0.5,) * (ALIKE - 1) + (0.499,), "silent": 1},
    ),
}
LESS = 1.0  # times the regret before, where long rows are not better
NEWCOMER = 0.6  # the same, with newcomers
MORE = 1.25  # times the regret before, where long rows are better
MOST_SHARE = 2.0  # times the average share, of an action whose rewards never come


def key(kind: str, delay: int, rule: str) -> str:
    """The name of a run."""
    return f"{kind}, {delay} late: {rule}"


def when(delay: int) -> str:
    """A delay in words."""
    return f"{delay} rounds late" if delay else "at once"


def runs(size: Size) -> Iterator[Run]:
    """Every rule in every world, each agent alone."""
    for kind, delay, rule in product(KINDS, DELAYS, LATE_RULES):
        label, changes = KINDS[kind]
        world = World(label, {**changes, "delay": float(delay), "delays": "fixed"}, HORIZON)
        scenario = world.scenario(size, "alone")
        options = world.options(MERIT if rule == BEFORE else rule, size)
        if rule == BEFORE:
            # A mean for each coordinate is not learnt, and there was no intercept.
            prior = Prior(mean=(0.0,) * scenario.dimension, sd=scenario.merits[0].reward_scale)
            options |= {"prior": prior, "most_bonus": math.inf, "intercept": False}
        algorithm = LATE_RULES[rule].algorithm("alone")
        yield Run(key(kind, delay, rule), scenario, algorithm, options, least_seeds(size))


def ours_over(r: Results, kind: str, delay: int, rule: str) -> Estimate:
    """Fairness regret of expected merit over that of another rule."""
    return r.over(key(kind, delay, MERIT), key(kind, delay, rule))


def silent_share(r: Results, delay: int, rule: str) -> Estimate:
    """The mean share of the action whose rewards never come, over the average share."""
    return estimate(ALIKE * r[key(SILENT, delay, rule)].exposure[:, -1])


def claims(r: Results) -> Iterator[Claim]:
    """Ours against the rule before, by world; the silent action; where another rule is better."""
    ratios = {
        (kind, delay, rule): ours_over(r, kind, delay, rule)
        for kind, delay, rule in product(KINDS, DELAYS, LATE_RULES)
        if rule != MERIT
    }
    for kinds, limit, statement in (
        ((SIGNS, NEGATIVE), LESS, "where long rows are not better, less regret than"),
        ((JOINING,), NEWCOMER, "with newcomers, much less regret than"),
        ((POSITIVE,), MORE, "where long rows are better, not much more regret than"),
    ):
        late = [(kind, delay) for kind, delay in product(kinds, DELAYS) if delay]
        named = {f"{KINDS[kind][0]}, {when(delay)}": ratios[kind, delay, BEFORE] for kind, delay in late}
        name = f"late rewards: {statement} before saturation"
        yield below(name, "its regret over that before", named, limit, note=" in each world")
    shares = {when(delay): silent_share(r, delay, MERIT) for delay in DELAYS}
    before = ", ".join(str(silent_share(r, delay, BEFORE)) for delay in DELAYS)
    yield below(
        "an action whose rewards never come is not favoured",
        "its share over the average share",
        shares,
        MOST_SHARE,
        f"{listed(shares)} (before: {before})",
        note=" at every delay",
    )
    every = {
        f"{KINDS[kind][0]}, {when(delay)}, over {LATE_RULES[rule].label}": each
        for (kind, delay, rule), each in ratios.items()
    }
    worse = {name: each for name, each in every.items() if outside(each, high=1.0)}
    yield Claim(
        "late rewards: in no world has another rule less regret than expected merit",
        f"nowhere in the {len(KINDS) * len(DELAYS)} worlds does the 95 % interval of its fairness regret "
        "over that of another rule lie above 1",
        f"worse in: {listed(worse)}" if worse else "worse in no world",
        judge(every, high=1.0, by="doubt"),
    )


def tables(r: Results) -> Iterator[Table]:
    """Regret by world and delay, and the silent action's share."""
    usual = key(POSITIVE, 0, MERIT)
    labels = tuple(rule.label for rule in LATE_RULES.values())
    yield Table(
        f"Late rewards: fairness regret [95 % interval] at T = {number(r[usual].rounds[-1])}, each agent "
        f"alone, {r.seeds(usual)} seeds",
        ("world", "rewards", *labels),
        [
            (label, when(delay), *(r.regret(key(kind, delay, rule)) for rule in LATE_RULES))
            for (kind, (label, _)), delay in product(KINDS.items(), DELAYS)
        ],
        "Every reward takes the same number of rounds. “Before” is expected merit with a prior of mean 0 "
        "and sd 5/c and without saturation (κ = ∞). Ten actions join at even intervals.",
    )
    yield Table(
        "Late rewards: the share of the action whose rewards never come, over the average share",
        ("rewards of the others", *labels),
        [(when(delay), *(silent_share(r, delay, rule) for rule in LATE_RULES)) for delay in DELAYS],
    )


def picture(r: Results) -> Picture:
    """Regret of every rule over that of expected merit by world; the silent action's share over time."""
    figure, (worlds, share) = figures.canvas(panels=2, width=9.6, height=5.0)
    rows = [(kind, delay) for kind in KINDS if kind != SILENT for delay in DELAYS]
    gaps = np.repeat(np.arange(len(rows) // len(DELAYS)), len(DELAYS)) * 0.6
    places = -(np.arange(len(rows)) + gaps)
    others = {name: rule for name, rule in LATE_RULES.items() if name != MERIT}
    ratios = {name: [r.over(key(*row, name), key(*row, MERIT)) for row in rows] for name in others}
    figures.draw_ratios(worlds, places, ratios, others, 0.16)
    worlds.axvline(1.0, color=RULES[MERIT].colour, lw=1.1, ls="--", label="expected merit")
    worlds.set_yticks(
        places, [when(delay) if delay else f"{KINDS[kind][0]}; at once" for kind, delay in rows]
    )
    worlds.set_ylim(places[-1] - 0.7, places[0] + 0.7)
    figures.plain_log(worlds.xaxis, (0.5, 0.7, 1, 1.5, 2, 3, 5, 10))
    worlds.set(
        xlabel="fairness regret at T, over expected merit's",
        title="(a) left of the dashed line: better than ours",
    )
    for name, rule in LATE_RULES.items():
        outcome = r[key(SILENT, DELAYS[1], name)]
        figures.draw_curve(share, outcome.rounds, outcome.weakest, rule.label, rule.colour)
    share.set_ylim(0, ALIKE + 0.2)
    figures.level(share)
    figures.round_axis(share)
    share.set(ylabel="share of exposure, over the fair share", title=f"(b) one of {ALIKE} that never answers")
    figures.legend_below(figure, worlds)
    run = r[key(POSITIVE, 0, MERIT)]
    return Picture(
        "exp9-late",
        f"Exp 9, late rewards, T = {number(run.rounds[-1])}, {run.seeds.size} paired seeds, each agent "
        "alone; every reward takes the same number of rounds. (a) Fairness regret of other rules over that "
        "of expected merit, with 95 % intervals. “Before” is expected merit without saturation, with a prior "
        f"of mean 0 and sd 5/c. (b) What one of {ALIKE} equally good actions is shown over what it is due "
        f"where its rewards never come and those of the others come {DELAYS[1]} rounds late, in the same "
        "colours: means with 95 % bands; 1 (dashed) is fair.",
        figure,
    )
