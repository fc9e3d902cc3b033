"""People who differ beyond their features: what it gains to judge them by their own records as well.

Live agents with every default, which get features and names, over the same agents with `own_record=False`:
the ratio of the sums of fairness regret over seeds, in the same worlds with the same luck. In brackets is a
90 % interval by the bootstrap over seeds: the true ratio is above its upper end in 1 of 20 runs.

An action is a person near an order. Its expected reward, as a part of the range of rewards, is the sum of the
effects of features, some of the person and some of the offer, and of what is in no feature, whose sd over
people is τ. In further worlds people come and go, change or never return, rewards are of other kinds and
heights, and agents have other options.

With FEDFAIRX_BEFORE=PATH, the `src` folder of another checkout, agents of names alone and agents with
`own_record=False` are compared with that version.
"""

from __future__ import annotations

import json
import os
import sys
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from functools import cache
from typing import Any

import numpy as np

from first_shares import STEEPNESS, newcomers
from measure import Report, main, play_in

SEEDS, FEW = 20, 2  # at full size and in a quick run
RESAMPLES, LEVEL = 10_000, 0.9
LEAST = 0.02  # expected rewards lie between it and 1 less it, in parts of the range
STAY = 64  # orders for which somebody who passes is there
DELAYS, TAUS = (1, 200), (0.05, 0.15)  # of names alone, with newcomers
Who = Callable[["World", int, np.random.Generator], np.ndarray]


@dataclass(frozen=True)
class Rewards:
    """Rewards by their expected part of a range, and by luck: a normal and a uniform number."""

    of: Callable[[float, float, float], float]
    low: float = 0.0
    high: float = 1.0
    told: bool = False  # whether agents are given the range


def normal(sd: float) -> Callable[[float, float, float], float]:
    return lambda mean, z, _: mean + sd * z


REWARDS = {
    "0 or 1": Rewards(lambda mean, _, u: float(u < mean)),
    "small noise": Rewards(normal(0.05)),
    "around 50": Rewards(normal(0.2), 50.0, 51.0),
    "in (-70, -3)": Rewards(
        lambda mean, _, u: mean + min(mean, 1.0 - mean) * (2.0 * u - 1.0), -70.0, -3.0, told=True
    ),
    "stars": Rewards(  # 1 to 5: how many of four uniform numbers, digits of one, are below the mean
        lambda mean, _, u: sum(u * 1000.0**k % 1.0 < mean for k in range(4)) / 4.0,
        1.0,
        5.0,
        told=True,
    ),
}


# --- who is near an order, by number ------------------------------------------------------------------------


def all_there(world: World, t: int, rng: np.random.Generator) -> np.ndarray:
    """Eight of the first people, and of one more every `every` orders."""
    there = world.people + (t // world.every if world.every else 0)
    return rng.choice(there, world.near, replace=False)


def in_shifts(world: World, t: int, rng: np.random.Generator) -> np.ndarray:
    """Half of them are away for the first third, the others for the second."""
    half, third = world.people // 2, 3 * t // world.orders
    first, end = ((half, world.people), (0, half), (0, world.people))[third]
    return rng.choice(np.arange(first, end), world.near, replace=False)


def passing(world: World, t: int, rng: np.random.Generator) -> np.ndarray:
    """Twice as many as are near an order, each of whom is there for `STAY` orders and never again."""
    there = 2 * world.near
    return t * there // STAY + rng.choice(there, world.near, replace=False)


def one_off(world: World, t: int, _: np.random.Generator) -> np.ndarray:
    """Nobody comes twice."""
    return world.near * t + np.arange(world.near)


def half_one_off(world: World, t: int, rng: np.random.Generator) -> np.ndarray:
    half = world.near // 2
    others = world.people + half * t + np.arange(half)
    return np.concatenate([rng.choice(world.people, world.near - half, replace=False), others])


def always_one(world: World, _t: int, _rng: np.random.Generator) -> np.ndarray:
    """One person with several offers."""
    return np.zeros(world.near, dtype=int)


@dataclass(frozen=True)
class World:
    """Who comes, what describes them, how far they differ, and how rewards come."""

    orders: int = 1_500
    people: int = 30
    near: int = 8
    personal: int = 3  # features of a person
    offered: int = 2  # features of a person near an order
    effect: float = 0.3  # sd of a feature's effect, in parts of the range of rewards
    differ: float = 0.1  # τ: sd of what is in no feature, in the same parts
    outliers: float | None = None  # the part of people who differ, by ± τ; None: all do, normally
    changed: float = 0.0  # the part of people who are others from the middle on
    who: Who = all_there
    every: int = 0  # orders until one more person comes; 0 for never
    delay: int = 0
    rewards: str = "0 or 1"
    slots: int = 1
    options: tuple[tuple[str, Any], ...] = ()

    @property
    def names(self) -> list[str]:
        """Of all who ever come."""
        most = self.people + (self.orders // self.every if self.every else 0)
        if self.who in (one_off, half_one_off, passing):
            most = max(most, self.people + self.near * (self.orders + 2))
        return [f"person-{k:05d}" for k in range(most)]

    def play(self, seed: int) -> Iterator[tuple[np.ndarray, np.ndarray, np.ndarray, np.ndarray]]:
        """Orders: who is near (K,), their features (K, d), expected and actual parts of the range (K,)."""
        rng = np.random.default_rng([seed, 56])
        most, features = len(self.names), self.personal + self.offered
        own = rng.uniform(-1.0, 1.0, (most, self.personal))
        effects = self.effect * rng.standard_normal(features)
        beyond, others = (self._beyond(rng, most) for _ in range(2))
        changed = rng.random(most) < self.changed
        for t in range(self.orders):
            if 2 * t == self.orders:
                beyond = np.where(changed, others, beyond)
            near = self.who(self, t, rng)
            offers = rng.uniform(-1.0, 1.0, (self.near, self.offered))
            contexts = np.hstack([own[near], offers]) / np.sqrt(max(features, 1))
            means = np.clip(0.5 + contexts @ effects + beyond[near], LEAST, 1.0 - LEAST)
            luck = zip(means, rng.standard_normal(self.near), rng.random(self.near), strict=True)
            parts = [REWARDS[self.rewards].of(float(mean), float(z), float(u)) for mean, z, u in luck]
            yield near, contexts, means, np.array(parts)

    def _beyond(self, rng: np.random.Generator, most: int) -> np.ndarray:
        normals = rng.standard_normal(most)
        if self.outliers is None:
            return self.differ * normals
        return self.differ * np.sign(normals) * (rng.random(most) < self.outliers)


# --- contestants: an agent, and how it decides about people with these numbers and features -----------------

Decide = Callable[[np.ndarray, np.ndarray], Any]


def with_names(world: World, **options: Any) -> tuple[Any, Decide]:
    import fedfairx as ffx

    names, agent = world.names, ffx.Agent(world.personal + world.offered, **options)
    return agent, lambda near, contexts: agent.decide(contexts, names=[names[k] for k in near])


def features_alone(world: World, **options: Any) -> tuple[Any, Decide]:
    """As an earlier version, which has no own records."""
    return with_names(world, **options)


def without(world: World, **options: Any) -> tuple[Any, Decide]:
    return with_names(world, own_record=False, **options)


def declared(world: World, **options: Any) -> tuple[Any, Decide]:
    """All names are given before the first decision."""
    return with_names(world, actions=world.names, **options)


def names_alone(world: World, **options: Any) -> tuple[Any, Decide]:
    import fedfairx as ffx

    names, agent = world.names, ffx.Agent(actions=world.names, **options)
    return agent, lambda near, _: agent.decide([names[k] for k in near])


def as_category(world: World, **options: Any) -> tuple[Any, Decide]:
    """The name is one more feature, and there are no own records."""
    import fedfairx as ffx

    names, numbers = world.names, [f"number-{j}" for j in range(world.personal + world.offered)]
    schema = ffx.features.Schema({**dict.fromkeys(numbers, (-1, 1)), "person": names})
    agent = ffx.Agent(schema=schema, own_record=False, **options)
    scale = np.sqrt(len(numbers))

    def decide(near: np.ndarray, contexts: np.ndarray) -> Any:
        rows = zip(near, (scale * contexts).tolist(), strict=True)
        return agent.decide([dict(zip(numbers, row, strict=True)) | {"person": names[k]} for k, row in rows])

    return agent, decide


def entitled(means: np.ndarray, slots: int) -> np.ndarray:
    """The exposures that these means, in parts of the range, entitle to."""
    from fedfairx.core.slates import exposures_of

    return np.asarray(exposures_of(STEEPNESS * means[None], np.ones((1, slots)))[0])


def regret(world: World, contestant: Callable[..., tuple[Any, Decide]], seed: int) -> float:
    kind, options = REWARDS[world.rewards], dict(world.options)
    if kind.told:
        options["reward_range"] = (kind.low, kind.high)
    if world.slots > 1:
        options["slots"] = world.slots
    agent, decide = contestant(world, seed=seed, **options)
    made: list[tuple[Any, Any]] = []
    total = 0.0
    for t, (near, contexts, means, parts) in enumerate(world.play(seed)):
        decision = decide(near, contexts)
        total += float(np.abs(np.asarray(decision.exposure) - entitled(means, world.slots)).sum())
        rewards = kind.low + (kind.high - kind.low) * parts[list(decision.actions)]
        made.append((decision, rewards.tolist()))
        if t >= world.delay:
            earlier, values = made[t - world.delay]
            known = {"reward": values[0]} if world.slots == 1 else {"rewards": values}
            agent.observe(earlier, **known)
    return total


@cache
def regrets(world: World, contestant: Callable[..., tuple[Any, Decide]], seeds: int) -> np.ndarray:
    """(seeds,)"""
    return np.array([regret(world, contestant, seed) for seed in range(seeds)])


# --- what is compared ---------------------------------------------------------------------------------------

SAME = {"differ": 0.0}  # nobody differs beyond features
SLIGHT = {"differ": 0.05}
LATE = {"delay": 200, "every": 60}
MORE_PEOPLE = {"people": 200, "personal": 1, "offered": 1}
#: What the ratio should be at most, by world: those that were wanted from the beginning.
WANTED: dict[str, tuple[World, float]] = {
    "τ = 0": (World(**SAME), 1.08),
    "τ = 0, late, newcomers": (World(**SAME, **LATE), 1.05),
    "τ = 0.05": (World(**SLIGHT), 1.03),
    "τ = 0.05, late, newcomers": (World(**SLIGHT, **LATE), 1.03),
    "τ = 0.1": (World(), 0.87),
    "τ = 0.1, late, newcomers": (World(**LATE), 0.95),
    "τ = 0.1, 6 000 orders": (World(orders=6_000), 0.65),
    "2 000 names that come once": (World(who=one_off, orders=250), 1.02),
    "12 000 names that come once": (World(who=one_off), 1.02),
}
#: Against the rule.
FURTHER: dict[str, tuple[World, float]] = {}


def against(text: str, limit: float, limit_if_same: float | None = None, **kind: Any) -> None:
    """A further world, with people who differ and, with another limit, with people who do not."""
    FURTHER[f"{text}, τ = {kind.get('differ', World.differ)}"] = World(**kind), limit
    if limit_if_same is not None:
        FURTHER[f"{text}, τ = 0"] = World(**{**kind, **SAME}), limit_if_same


against("normal rewards, noise 0.05", 0.87, 1.08, rewards="small noise")
against("rewards in (-70, -3)", 0.87, 1.08, rewards="in (-70, -3)")
against("rewards around 50", 0.87, 1.08, rewards="around 50")
against("five stars", 0.87, 1.08, rewards="stars")
against("200 people, two features", 1.0, 1.08, **MORE_PEOPLE)
against("features say nearly everything", 1.08, effect=0.6, differ=0.02)
against("features say everything", 1.08, effect=0.6, differ=0.0)
against("features say nothing", 0.87, effect=0.0)
against("one in ten is 0.3 better or worse", 0.95, differ=0.3, outliers=0.1)
against("one person, eight offers", 1.02, who=always_one)
against("half of the names come once", 1.0, 1.08, who=half_one_off)
against(f"everybody leaves after {STAY} orders", 1.0, 1.08, who=passing)
against("in shifts", 1.0, 1.08, who=in_shifts)
against("half of the people change in the middle", 1.0, changed=0.5)
against("they change, half-life 500", 1.0, changed=0.5, options=(("half_life", 500),))
against("half-life 500", 1.0, 1.08, options=(("half_life", 500),))
against("thompson", 1.0, 1.08, options=(("rule", "thompson"),))
against("greedy", 1.0, 1.08, options=(("rule", "greedy"),))
against("three slots of eight", 0.87, 1.08, slots=3)
#: Names alone, compared with an earlier version.
NAMED = {
    "30 people": World(effect=0.0),
    "30 people, late": World(effect=0.0, delay=200),
    "five stars": World(effect=0.0, rewards="stars"),
    "three slots of eight": World(effect=0.0, slots=3),
}


def compare(report: Report, text: str, mine: np.ndarray, theirs: np.ndarray, limit: float) -> None:
    """The ratio of sums over seeds, with bounds by the bootstrap."""
    drawn = np.random.default_rng(0).integers(mine.size, size=(RESAMPLES, mine.size))
    ratios = mine[drawn].sum(axis=1) / theirs[drawn].sum(axis=1)
    low, high = (float(np.quantile(ratios, end)) for end in (0.5 - LEVEL / 2, 0.5 + LEVEL / 2))
    means = f"{mine.mean():.0f} ÷ {theirs.mean():.0f}"
    report.add(text, float(mine.sum() / theirs.sum()), "×", low=low, high=high, at_most=limit, note=means)


def play_named(seeds: int) -> dict[str, list[float]]:
    """Regrets of agents of names alone, over seeds."""
    import fedfairx as ffx

    found = {text: regrets(world, names_alone, seeds).tolist() for text, world in NAMED.items()}
    for delay in DELAYS:
        for tau in TAUS:
            each = [dict(newcomers(ffx.Agent, tau, delay, seed))["regret"] for seed in range(seeds)]
            found[f"newcomers, rates N(0.5, {tau}²), rewards {delay} late"] = each
    return found


def play_before(seeds: int) -> dict[str, list[float]]:
    """The same of another version, which has no own records beside features."""
    plain = {text: regrets(world, features_alone, seeds).tolist() for text, world in without_it().items()}
    return play_named(seeds) | plain


def without_it() -> dict[str, World]:
    """Where `own_record=False` is compared with the version before."""
    return {text: WANTED[text][0] for text in ("τ = 0", "τ = 0.1, late, newcomers")}


def run(report: Report) -> None:
    seeds = FEW if report.quick else SEEDS
    for title, worlds in (("Wanted", WANTED), ("Against the rule", FURTHER)):
        report.heading(f"{title}: regret ÷ that with own_record=False, {seeds} seeds")
        for text, (world, limit) in worlds.items():
            off = regrets(world, without, seeds)
            compare(report, text, regrets(world, with_names, seeds), off, limit)
    report.heading(f"Other ways to the same end: regret ÷ theirs, {seeds} seeds")
    for tau in (0.05, 0.1):
        world = World(differ=tau)
        mine = regrets(world, with_names, seeds)
        compare(report, f"τ = {tau}: ÷ the name as a category", mine, regrets(world, as_category, seeds), 1.0)
        compare(report, f"τ = {tau}: ÷ names declared at first", mine, regrets(world, declared, seeds), 1.03)
    mine, alone = (regrets(World(effect=0.0), each, seeds) for each in (with_names, names_alone))
    compare(report, "features say nothing: ÷ names alone", mine, alone, 1.15)
    report.heading(f"Names alone, {seeds} seeds")
    found, source = play_named(seeds), os.environ.get("FEDFAIRX_BEFORE")
    before = None if source is None else play_in(source, __file__, "--before", str(seeds))
    for text, now in found.items():
        report.add(f"{text}: regret", float(np.mean(now)), "")
        if before is not None:
            compare(report, "  ÷ before", np.array(now), np.array(before[text]), 1.03)
    if before is not None:
        report.heading(f"own_record=False, {seeds} seeds")
        for text, world in without_it().items():
            compare(report, f"{text}: ÷ before", regrets(world, without, seeds), np.array(before[text]), 1.01)


if __name__ == "__main__":
    if "--before" in sys.argv:
        print(json.dumps(play_before(int(sys.argv[2]))))
    else:
        main("own_record", run, __doc__)
