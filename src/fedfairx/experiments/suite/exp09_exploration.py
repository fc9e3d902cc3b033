"""Exp 9: how to explore fairly. The paper's optimism, and what else there is, in many worlds."""

from __future__ import annotations

import math
from collections.abc import Iterator
from typing import Any

import numpy as np

from fedfairx.experiments import world as env
from fedfairx.experiments.experiment import FAIRNESS, REWARD, Experiment, Outcomes, Picture, Run, Size
from fedfairx.experiments.scores import (
    Claim,
    Estimate,
    Scores,
    Table,
    Verdict,
    below,
    estimate,
    judged,
    number,
    ratio,
)
from fedfairx.experiments.suite import exp09_figures, exp09_joining
from fedfairx.experiments.suite.exp09_worlds import (
    DECIDE_FROM,
    GREEDY,
    HOWS,
    MERIT,
    ONE_HOT,
    PAPER,
    RULES,
    SEEDS,
    WIDE,
    WORLDS,
    algorithm_of,
    key,
    least_seeds,
    rules_of,
    world_runs,
)

QUARTER = 0.25  # of optimism's regret, that expected merit should not exceed in the paper's world
POOLED = 0.36  # of the regret alone; perfect pooling of ten is 0.316
FIFTH = 0.2  # of optimism's regret, among arms that stay
SERVED, SERVED_FROM = 0.7, 500  # the weakest arm's share of what it is due, on the mean, from this round on
NEVER_BELOW, NEVER_FROM = 0.3, 5_000  # in no seed


def runs(size: Size) -> tuple[Run, ...]:
    """The paper's world at its size, every rule in every world, and joining."""
    return (*paper_runs(size), *world_runs(size), *exp09_joining.runs(size))


def paper_runs(size: Size) -> tuple[Run, ...]:
    """The paper's rule and expected merit; private from releases alone, centred."""
    private: dict[str, Any] = {"epsilon": env.EPSILON, "delta": env.DELTA, "decide_from": "released"}
    found = []
    for rule in (PAPER, MERIT):
        for how in HOWS:
            given = env.options() if rule == PAPER else {}
            given |= private if how == "priv" else {}
            world, named = env.scenario(size), algorithm_of(rule, how)
            found.append(Run(key("paper", rule, how), world, named, given, least_seeds(size)))
    return tuple(found)


def score(outcomes: Outcomes, size: Size) -> Scores:
    """Expected merit against optimism: in the paper's world, among arms that stay, where it might fail."""
    joined = exp09_joining.score(outcomes, size)
    claims = (*_paper_claims(outcomes, size), *_one_hot_claims(outcomes, size), _worst(outcomes, size))
    tables = (
        _paper_table(outcomes, size),
        *(_table(outcomes, how) for how in HOWS),
        _weakest_table(outcomes),
    )
    notes = (_beside_greedy(outcomes), *joined.notes)
    return Scores((), (*claims, *joined.claims), (*tables, *joined.tables), notes, headline(outcomes, size))


def headline(outcomes: Outcomes, size: Size) -> str:
    """What was found, in a few sentences."""
    parts = []
    for how in HOWS:
        found = ratio(outcomes[key("paper", MERIT, how)].final(), outcomes[key("paper", PAPER, how)].final())
        parts.append(f"{100 * found.value:.0f} % {HOWS[how]}")
    least = {}
    for rule in (PAPER, MERIT):
        outcome = outcomes[key(ONE_HOT, rule, "alone")]
        least[rule] = float(outcome.weakest[:, _after(outcome.rounds, SERVED_FROM)].mean(axis=0).min())
    return (
        "Showing each arm in proportion to its expected merit, and not, as the paper's rule does, to its "
        "merit under the most promising of the plausible parameters, leaves of the fairness regret after "
        f"{number(size.horizon)} rounds {', '.join(parts[:-1])} and {parts[-1]}. Of eight arms that "
        "stay, the weakest sinks to "
        f"{least[PAPER]:.2f} of its fair share under the paper's rule, and to {least[MERIT]:.2f} under ours "
        f"(the least after round {number(SERVED_FROM)}, means over seeds)."
    )


def _paper_claims(outcomes: Outcomes, size: Size) -> tuple[Claim, ...]:
    final = {name: outcome.final() for name, outcome in outcomes.items()}

    def over(name: str, other: str) -> Estimate:
        return ratio(final[name], final[other])

    alone = over(key("paper", MERIT, "alone"), key("paper", PAPER, "alone"))
    fed = over(key("paper", MERIT, "fed"), key("paper", PAPER, "fed"))
    pooled = over(key("paper", MERIT, "fed"), key("paper", MERIT, "alone"))
    statement = (
        "expected merit has at most a quarter of optimism's fairness regret, {} (ours, not the paper's)"
    )
    return (
        Claim(
            statement.format("alone"),
            f"the 95 % interval of fairx-bayes over fairx-linucb lies below {QUARTER:g}",
            f"{alone}",
            judged(below(alone, QUARTER), size.full),
        ),
        Claim(
            statement.format("together"),
            f"the 95 % interval of fed-fairx-bayes over fed-fairx-linucb lies below {QUARTER:g}",
            f"{fed}",
            judged(below(fed, QUARTER), size.full),
        ),
        Claim(
            "expected merit gains from learning together as optimism does (ours, not the paper's)",
            f"the 95 % interval of fed-fairx-bayes over fairx-bayes lies below {POOLED:g}",
            f"{pooled}; perfect pooling would give 1/√m = {1 / math.sqrt(env.AGENTS):.3f}",
            judged(below(pooled, POOLED), size.full),
        ),
    )


def _one_hot_claims(outcomes: Outcomes, size: Size) -> tuple[Claim, ...]:
    merit = outcomes[key(ONE_HOT, MERIT, "alone")]
    against = {
        rule: ratio(merit.final(), outcomes[key(ONE_HOT, rule, "alone")].final()) for rule in (WIDE, PAPER)
    }
    hardest = max(against.values(), key=lambda found: found.high)
    served = merit.weakest[:, _after(merit.rounds, SERVED_FROM)].mean(axis=0)
    lows = merit.weakest[:, _after(merit.rounds, NEVER_FROM)].min(axis=1)
    theirs = outcomes[key(ONE_HOT, PAPER, "alone")]
    their_lows = theirs.weakest[:, _after(theirs.rounds, NEVER_FROM)].min(axis=1)
    fair: Verdict = "holds" if served.min() >= SERVED and lows.min() >= NEVER_BELOW else "does not hold"
    return (
        Claim(
            "of eight arms that stay, a fifth of optimism's fairness regret (ours, not the paper's)",
            f"the 95 % interval of it over the paper's rule lies below {FIFTH:g} at either radius",
            f"radius × 1: {against[WIDE]}, radius × 0.5: {against[PAPER]}",
            judged(below(hardest, FIFTH), size.full),
        ),
        Claim(
            "the weakest of eight arms that stay is not starved (ours, not the paper's)",
            f"of its fair share, at least {SERVED:g} at every point after round {number(SERVED_FROM)}, "
            f"mean over seeds, and at least {NEVER_BELOW:g} in every seed after round {number(NEVER_FROM)}",
            f"least on the mean {served.min():.2f}, least of a seed {lows.min():.2f}; below {NEVER_BELOW:g} "
            f"in {(lows < NEVER_BELOW).sum()} of {lows.size} seeds (the paper's rule, radius × 0.5: "
            f"{(their_lows < NEVER_BELOW).sum()}, least {their_lows.min():.2f})",
            judged(fair, size.full),
        ),
    )


def _after(rounds: Any, first: int) -> Any:
    """The points after a round; of a run that was shorter, the last."""
    found = rounds > first
    found[-1] = True
    return found


def _worst(outcomes: Outcomes, size: Size) -> Claim:
    """Where expected merit does worst against the paper's rule at half its radius."""
    found = {
        f"{world.label}, {HOWS[how]}": ratio(
            outcomes[key(name, MERIT, how)].final(), outcomes[key(name, PAPER, how)].final()
        )
        for name, world in WORLDS.items()
        for how in HOWS
    }
    worse = [f"{where}: {item}" for where, item in found.items() if item.low > 1]
    worst = max(found, key=lambda where: found[where].value)
    verdict: Verdict = "does not hold" if worse else "holds"
    return Claim(
        "in no world is expected merit worse than the paper's rule (ours, not the paper's)",
        f"nowhere in Exp 9's {len(WORLDS)} worlds, alone, together or private, does the 95 % interval of its "
        "fairness regret over the paper's rule's (radius × 0.5) lie above 1",
        f"worse in: {'; '.join(worse)}" if worse else f"worst: {worst}: {found[worst]}",
        judged(verdict, size.full),
    )


def _beside_greedy(outcomes: Outcomes) -> str:
    """Where expected merit and its mere point estimate differ beyond chance."""
    found = []
    for name, world in WORLDS.items():
        for how in ("alone", "fed"):
            item = ratio(outcomes[key(name, MERIT, how)].final(), outcomes[key(name, GREEDY, how)].final())
            if item.high < 1 or item.low > 1:
                found.append(f"{world.label}, {HOWS[how]}: {item}")
    return (
        "Greedy takes the estimate for the truth. Where contexts and the fair policy itself explore, that "
        "does as well as expected merit; the 95 % interval of expected merit's regret over greedy's excludes "
        f"1 in: {'; '.join(found) or 'no world'}."
    )


def _paper_table(outcomes: Outcomes, size: Size) -> Table:
    rows = []
    for rule in (PAPER, MERIT):
        for how, text in HOWS.items():
            outcome = outcomes[key("paper", rule, how)]
            rows.append(
                (
                    RULES[rule].label,
                    text,
                    str(estimate(outcome.final(FAIRNESS))),
                    str(estimate(outcome.final(REWARD))),
                )
            )
    seeds = outcomes[key("paper", MERIT, "alone")].seeds.size
    return Table(
        f"The paper's world at T = {number(size.horizon)}, m = {env.AGENTS}, {seeds} seeds",
        ("rule", "agents learn", "fairness regret", "reward regret"),
        tuple(rows),
        "Private from the releases alone, records centred at the middle of their public box. Reward regret "
        "is against the fair policy: optimism earns more than its fair share by favouring good arms.",
    )


def _table(outcomes: Outcomes, how: str) -> Table:
    """Fairness regret of every rule in every world, and reward regret behind it."""
    rules = rules_of(how)
    rows = []
    for name, world in WORLDS.items():
        cells, rounds = [], outcomes[key(name, MERIT, how)].rounds[-1]
        for rule in rules:
            outcome = outcomes[key(name, rule, how)]
            cells.append(f"{estimate(outcome.final())}; {number(float(outcome.final(REWARD).mean()))}")
        rows.append((world.label, f"{number(rounds)} × {1 if how == 'alone' else world.agents}", *cells))
    note = ""
    if how == "priv":
        note = "; ".join(f"{RULES[rule].label}: {DECIDE_FROM[rule]}" for rule in rules) + "."
    seeds = outcomes[key(ONE_HOT, MERIT, how)].seeds.size
    return Table(
        f"Fairness regret [95 % interval]; reward regret. Agents learn {HOWS[how]}; {seeds} seeds",
        ("world", "T × m", *(RULES[rule].label for rule in rules)),
        tuple(rows),
        note,
    )


def _weakest_table(outcomes: Outcomes) -> Table:
    rows = []
    for name, world in WORLDS.items():
        cells = []
        for rule in RULES:
            values = outcomes[key(name, rule, "alone")].weakest
            halves = np.array_split(values, 2, axis=1) if values.shape[1] > 1 else [values, values]
            cells.append(" → ".join(f"{np.nanmean(half):.2f}" for half in halves))
        rows.append((world.label, *cells))
    return Table(
        "What the weakest arm is shown over what it is due, alone: first half → second half of the rounds",
        ("world", *(rule.label for rule in RULES.values())),
        tuple(rows),
        "Where contexts are drawn anew, the weakest is the arm that is last in its round.",
    )


def plot(outcomes: Outcomes, size: Size) -> Iterator[Picture]:
    """The summary, which the report shows first; rules by world; the weakest arm; joining."""
    yield exp09_figures.summary(outcomes, size)
    yield exp09_figures.worlds(outcomes, size)
    yield exp09_figures.weakest(outcomes, size)
    yield exp09_joining.plot(outcomes, size)


EXPERIMENT = Experiment(
    name="exp9",
    title="How to explore fairly",
    question=(
        "What does optimism cost in fairness, and which rule of exploring costs least? Every rule in "
        f"{len(WORLDS)} worlds, {SEEDS} seeds each at full size; and when joining a private federation pays."
    ),
    runs=runs,
    score=score,
    plot=plot,
)
