"""How often likely verdicts are wrong, with a right model and with wrong ones.

Live agents with every default left alone decide and learn. A verdict is wrong if the share shown, or the mean
of the probabilities, is not on that side of 80 and 125 % of the share that the true expected rewards entitle
to. "Of the verdicts" is the part of all verdicts of all actions, groups and worlds that are wrong: at each
number of decisions, and at a time that depends on the verdicts, the first look at which anybody is likely
below or above. "Of the worlds, ever" is in how many anything was wrong at any look, for which no rate is
promised.

The right model: sizes of θ and noise, and the mean of named actions, are drawn from what the agent assumes.
The others are a population of other sizes; rewards 0 or 1; actions that differ from each other by what is in
no feature; a θ that changes to another one halfway; and the couriers of `fedfairx demo`, where products of
features matter and rewards are late.
"""

from __future__ import annotations

import warnings
from collections.abc import Iterator

import numpy as np

import fedfairx as ffx
from coverage import ARMS, NAMES, due, world
from fedfairx.demo.couriers import FEATURES, SHARED, Couriers
from measure import Report, main

LOOKS = (30, 60, 120, 250, 500, 1_000)  # decisions
LATE_LOOKS = (500, 1_000, 2_000, 3_500, 5_000)  # of couriers
WORLDS, CITIES, FEW = 100, 12, 4
GROUPS = ["even" if k % 2 == 0 else "odd" for k in range(ARMS)]
HIDDEN_SD = 0.1  # of what is in no feature
TOLERANCE = 0.2


class Log:
    """Decisions, and by kind and name what was shown, what the policy said, and what is truly due."""

    def __init__(self) -> None:
        self.decisions: list[ffx.Logged] = []
        self.sums: dict[tuple[str, str], np.ndarray] = {}

    def add(self, told: ffx.Logged, due: np.ndarray) -> None:
        self.decisions.append(told)
        numbers = np.stack([np.arange(due.size) == told.action, told.policy, due], axis=1)
        for kind, labels in (("action", told.names), ("group", told.groups)):
            for name, each in zip(labels or (), numbers, strict=True):
                self.sums.setdefault((kind, str(name)), np.zeros(3))
                self.sums[kind, str(name)] += each


Look = tuple[int, ffx.Agent, Log]


def of_linear(rng: np.random.Generator, *, named: bool, kind: str) -> Iterator[Look]:
    ranged = kind == "rewards 0 or 1"
    drawn = "assumed" if kind in ("right", "hidden", "changed") else "population"
    this = world(rng, LOOKS[-1], named=named, kind=drawn, ranged=ranged)
    hidden = rng.normal(0.0, HIDDEN_SD, ARMS) if kind == "hidden" else np.zeros(ARMS)
    other = world(rng, 1, named=named, kind="assumed", ranged=ranged).theta if kind == "changed" else None
    agent, log = this.agent, Log()
    for t in range(LOOKS[-1]):
        if other is not None and t == LOOKS[-1] // 2:
            this = this._replace(theta=other)
        contexts = None if this.contexts is None else this.contexts[t]
        decision, means = agent.decide(contexts), this.means(t) + hidden
        reward = this.reward(float(means[decision.action]))
        agent.observe(decision, reward=reward)
        rows = np.arange(ARMS) if contexts is None else contexts
        logged = ffx.Logged(decision.policy, decision.action, rows, NAMES, GROUPS, reward=reward)
        log.add(logged, due(means))
        if t + 1 in LOOKS:
            yield t + 1, agent, log


def of_couriers(seed: int) -> Iterator[Look]:
    schema = ffx.features.Schema(FEATURES, shared=list(SHARED))
    city, agent, log = Couriers(seed), ffx.Agent(schema=schema, seed=seed), Log()
    waiting: dict[int, list[tuple[ffx.Decision, int, float]]] = {}
    for t in range(LATE_LOOKS[-1]):
        for decision, place, reward in waiting.pop(t, []):
            agent.observe(decision, reward=reward)
            log.decisions[place].reward = reward
        order = city.order()
        decision = agent.decide(order.rows, context=order.context)
        contexts = schema.encode(order.rows, order.context).contexts
        names, groups = zip(*((each.name, each.group) for each in order.near), strict=True)
        log.add(ffx.Logged(decision.policy, decision.action, contexts, names, groups), order.entitled)
        if order.after is not None:
            late = waiting.setdefault(t + order.after, [])
            late.append((decision, t, order.reward(decision.action)))
        if t + 1 in LATE_LOOKS:
            yield t + 1, agent, log


def judged(agent: ffx.Agent, log: Log) -> tuple[int, int, bool]:
    """Verdicts, how many of them are wrong, and whether anybody is called below or above."""
    table = ffx.exposure(log.decisions, merit=agent.merit, posterior=agent.posterior)
    verdicts = wrong = 0
    found = False
    for kind, rows in (("action", table.actions), ("group", table.groups)):
        for each in rows:
            assert each.likely is not None
            words = each.likely.verdict
            ratios = log.sums[kind, each.name][:2] / log.sums[kind, each.name][2]
            right = {
                "likely below": ratios.max() < 1 - TOLERANCE,
                "likely above": ratios.min() > 1 / (1 - TOLERANCE),
                "in line": ratios.min() >= 1 - TOLERANCE and ratios.max() <= 1 / (1 - TOLERANCE),
            }
            if words in right:
                verdicts += 1
                wrong += not right[words]
                found |= words != "in line"
    return verdicts, wrong, found


def over_worlds(report: Report, text: str, worlds: Iterator[Iterator[Look]]) -> None:
    at: dict[int, list[tuple[int, int]]] = {}
    first, ever = [], []
    for looks in worlds:
        stopped = False
        any_wrong = False
        for n, agent, log in looks:
            verdicts, wrong, found = judged(agent, log)
            at.setdefault(n, []).append((verdicts, wrong))
            any_wrong |= wrong > 0
            if found and not stopped:
                first.append((verdicts, wrong))
                stopped = True
        ever.append(any_wrong)
    moments = [*((f"after {n}", each) for n, each in at.items()), ("at the first below or above", first)]
    for when, pairs in moments:
        verdicts, wrong = np.array(pairs, dtype=float).reshape(-1, 2).T
        if not verdicts.sum():
            continue
        rate = wrong.sum() / verdicts.sum()
        error = 2.0 * float(np.sqrt(np.square(wrong - rate * verdicts).sum())) / verdicts.sum()
        report.add(f"{text}, {when}: verdicts in a world", float(verdicts.mean()), "")
        report.add(f"{text}, {when}: wrong, of the verdicts", rate, "", low=rate - error, high=rate + error)
    report.add(f"{text}: wrong, of the worlds, ever", float(np.mean(ever)), "")


def run(report: Report) -> None:
    warnings.simplefilter("ignore", ffx.errors.ScaleWarning)  # some assumed worlds have large rewards
    count = FEW if report.quick else WORLDS
    report.heading(f"Likely verdicts of {ARMS} actions and 2 groups, {count} worlds each")
    for kind in ("right", "population", "rewards 0 or 1", "hidden", "changed"):
        for named in (True, False):
            if kind == "hidden" and named:
                continue  # every difference between named actions is in the model
            seeds = (np.random.default_rng([seed, named, *kind.encode()]) for seed in range(count))
            worlds = (of_linear(rng, named=named, kind=kind) for rng in seeds)
            over_worlds(report, f"{kind}, {'named' if named else 'rows'}", worlds)
    cities = 1 if report.quick else CITIES
    report.heading(f"Likely verdicts of couriers, {cities} cities")
    over_worlds(report, "couriers", (of_couriers(seed) for seed in range(cities)))


if __name__ == "__main__":
    main("verdicts", run, __doc__)
