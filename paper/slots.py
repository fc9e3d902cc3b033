"""Live agents that show several actions at once, as Exp 11 plays them, and what actions are due.

`decided` shows what an agent decides. `one_after_the_other` draws actions for one slot after the next, in
proportion to the same expected merits, without those that are placed; most people would write that.
"""

import math
from collections.abc import Callable, Sequence

import numpy as np
from numpy.typing import NDArray

from fedfairx import Agent, Scenario, merit
from paper.experiment import Outcome, Run
from paper.offers import ACTIONS, REWARDS, generator
from paper.scores import Array

POINTS = 100
STEP, FIRST, BEYOND = 0.4, -3.2, 40.0  # of the rule that integrates over u, where time is exp(u - exp(-u))
CHUNK = 20  # rounds, so that arrays stay small

#: Takes an agent, contexts (K, d), weights (m,), the rewards of all actions in all slots (T, m, K) and
#: uniforms (T, K); returns the expected weight of every action in every round (T, K).
Showing = Callable[[Agent, Array, Array, Array, Array], Array]


def decided(run: Run, seeds: Sequence[int]) -> Outcome:
    """An agent that decides by its rule."""

    def show(agent: Agent, contexts: Array, weights: Array, rewards: Array, _uniforms: Array) -> Array:
        exposures, slots = np.empty(rewards.shape[::2]), np.arange(weights.size)
        for t, offered in enumerate(rewards):
            decision = agent.decide(contexts)
            agent.observe(decision, rewards=offered[slots, decision.actions].tolist())
            exposures[t] = decision.exposure
        return exposures

    return _played(run, seeds, show)


def one_after_the_other(run: Run, seeds: Sequence[int]) -> Outcome:
    """Arms drawn one after the other, by the agent's expected merits, which learns from them."""

    def show(agent: Agent, contexts: Array, weights: Array, rewards: Array, uniforms: Array) -> Array:
        merits, slots = np.empty(rewards.shape[::2]), np.arange(weights.size)
        for t, offered in enumerate(rewards):
            merits[t] = agent.policy(contexts, slots=1)
            shown = race(merits[t], uniforms[t])[: weights.size]
            agent.learn(contexts[shown], offered[slots, shown], weights=weights)
        return np.concatenate(
            [expected_weights(merits[t : t + CHUNK], weights) for t in range(0, len(merits), CHUNK)]
        )

    return _played(run, seeds, show)


def race(merits: Array, uniforms: Array) -> NDArray[np.int64]:
    """(…, K) actions in the order in which they are drawn: who has merit f comes after a time of rate f."""
    return np.argsort(np.log1p(-uniforms) / -merits, axis=-1)


def _played(run: Run, seeds: Sequence[int], show: Showing) -> Outcome:
    """Regret per unit of attention, and who was shown, of one agent for each seed."""
    world = run.scenario
    options = world.options(algorithm=run.algorithm, **run.options)
    weights = np.array(options.slots)
    rounds = np.unique(np.ceil(np.linspace(0, world.horizon, POINTS + 1)[1:]).astype(np.int64))
    fairness, reward, shares, weakest = (list[Array]() for _ in range(4))
    for seed in seeds:
        contexts, means = world.features(seed), true_means(world, seed)
        noise = generator(seed, REWARDS).normal(0.0, world.noise_sd, (world.horizon, weights.size, 1))
        uniforms = generator(seed, ACTIONS).random((world.horizon, world.arms))
        agent = Agent(world.dimension, options=options, seed=seed)
        exposures = show(agent, contexts, weights, weights[:, None] * means + noise, uniforms)
        exposures, due = exposures / weights.sum(), due_shares(world, weights, seed)
        fairness.append(np.abs(exposures - due).sum(axis=1).cumsum()[rounds - 1])
        reward.append(((due - exposures) @ means).cumsum()[rounds - 1])
        shares.append(exposures.mean(axis=0)[_by_rank(means)])
        last = means.argmin()
        shown = np.diff(exposures[:, last].cumsum()[rounds - 1], prepend=0.0)
        weakest.append(shown / (due[last] * np.diff(rounds, prepend=0)))
    return Outcome(
        np.array(seeds),
        rounds,
        np.array(fairness),
        np.array(reward),
        exposure=np.array(shares),
        weakest=np.array(weakest),
    )


def true_means(world: Scenario, seed: int) -> Array:
    """(K,) the expected rewards of a seed's actions, which stay."""
    return np.asarray(world.features(seed) @ world.parameter(seed))


def _by_rank(means: Array) -> NDArray[np.int64]:
    return np.argsort(-means)


def due_shares(world: Scenario, weights: Array, seed: int) -> Array:
    """(K,) the share of all attention that each action is due by its true merit, as far as slots allow."""
    assert isinstance(world.merit, merit.Exponential)
    means = true_means(world, seed)
    merits = np.exp(world.merit.steepness * (means - means.max()))
    return np.asarray(fair_exposures(merits, weights) / weights.sum())


def ranked_due(world: Scenario, weights: Array, seeds: Sequence[int]) -> Array:
    """(seeds, K) shares that are due by rank of the true mean, the best first."""
    return np.array([due_shares(world, weights, seed)[_by_rank(true_means(world, seed))] for seed in seeds])


def fair_exposures(merits: Array, weights: Array) -> Array:
    """(K,) exposures in proportion to merits (K,) as far as slots of these weights (m,) allow.

    In order of merit, actions whose weight per merit does not rise are pooled (`fedfairx.core.slates`).
    """
    order = np.argsort(-merits)
    padded = np.zeros(merits.size)
    padded[: weights.size] = weights
    blocks: list[tuple[float, float, int]] = []  # merit, weight, number of actions
    for arm, weight in zip(order, padded, strict=True):
        merit, size = float(merits[arm]), 1
        while blocks and blocks[-1][1] * merit >= weight * blocks[-1][0]:
            more, extra, count = blocks.pop()
            merit, weight, size = merit + more, weight + extra, size + count
        blocks.append((merit, weight, size))
    exposures = np.empty(merits.size)
    exposures[order] = np.repeat([w / f for f, w, _ in blocks], [size for _, _, size in blocks])
    return np.asarray(exposures * merits)


def expected_weights(merits: Array, weights: Array) -> Array:
    """(n, K) the expected weight of every action in `one_after_the_other`, for merits (n, K) that sum to 1.

    In a `race`, times are independent and exponential, and who comes as the j-th gets slot j. That is an
    integral over its time of the probability that j - 1 others were earlier, which a product over the others
    gives.
    """
    others = np.sort(merits, axis=1)[:, : merits.shape[1] - weights.size + 1].sum(axis=1)
    u = np.arange(FIRST, math.log(BEYOND / others.min()), STEP)  # as many are hardly ever all late for long
    times = np.exp(u - np.exp(-u))
    arms, slots = merits.shape[1], weights.size
    late = np.exp(-merits[:, :, None] * times)  # (n, K, points): has not arrived
    earlier = np.zeros((slots, *late.shape))  # of every action: that so many others have
    earlier[0] = 1.0
    for other in range(arms):
        here = np.repeat(late[:, other : other + 1], arms, axis=1)
        here[:, other] = 1.0  # it is no other of its own
        for j in range(slots - 1, 0, -1):
            earlier[j] = earlier[j] * here + earlier[j - 1] * (1.0 - here)
        earlier[0] *= here
    density = merits[:, :, None] * late * (STEP * times * (1.0 + np.exp(-u)))
    return np.asarray(np.einsum("j,jnkp,nkp->nk", weights, earlier, density))


def attention(slots: int) -> tuple[float, ...]:
    """The weights 1/log₂(1 + j) of ranked slots."""
    return tuple(1.0 / math.log2(1 + place) for place in range(1, slots + 1))
