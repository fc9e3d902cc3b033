"""The simulator beside the oracle: its worlds, transcribed number by number, and what it measures in them."""

from __future__ import annotations

from typing import Any

import numpy as np

import reference
from fedfairx.core.optimism.solver import Solver
from fedfairx.simulation import Recorded, Scenario, simulate
from fedfairx.simulation.kernel.random import normal, stream_key, uniform
from stored_optimum import optimum

EXACT = Solver(tolerance=1e-13, max_steps=500)


def draws(seed: int, stream: str, count: int, draw: Any = uniform) -> np.ndarray:
    """The first numbers of a stream."""
    key = np.uint64(stream_key(seed, stream))
    with np.errstate(over="ignore"):  # integers wrap around; uncompiled, NumPy would say so
        return np.array([draw(key, np.uint64(c)) for c in range(count)])


def chosen_arms(chances: np.ndarray, places: int) -> list[int]:
    """Each arm in turn is taken with probability (places left)/(arms left)."""
    taken: list[int] = []
    for arm, chance in enumerate(chances):
        if chance * (len(chances) - arm) < places - len(taken):
            taken.append(arm)
    return taken


def arms(scenario: Scenario, seed: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """For every round, contexts (m, K_t, d) and which of K arms they are (m, K_t)."""
    T, m, K, d = scenario.horizon, scenario.agents, scenario.arms, scenario.dimension
    there = scenario.arms_per_round()
    if scenario.contexts == "unit-ball":
        drawn = draws(seed, "contexts", T * m * K * d).reshape(T, m, K, d) / np.sqrt(d)
        first = [np.tile(np.arange(count), (m, 1)) for count in there]
        return [drawn[t, :, : there[t]] for t in range(T)], first
    chances = draws(seed, "contexts", T * m * (K + 1)).reshape(T, m, K + 1)
    if scenario.newcomers:
        chances[:, :, 1:] = 0.0  # the first arms are taken
    if isinstance(scenario.contexts, Recorded):
        records = scenario.contexts.contexts
    elif scenario.contexts == "one-hot":
        records = np.eye(K)[None]
    else:
        rng = np.random.default_rng(np.random.SeedSequence(seed, spawn_key=(0, 0)))
        records = rng.random((1, K, d)) / np.sqrt(d)
    contexts, numbers = [], []
    for t in range(T):
        picked = np.array([chosen_arms(chances[t, i, 1:], there[t]) for i in range(m)])
        records_now = [int(chances[t, i, 0] * len(records)) for i in range(m)]
        contexts.append(np.array([records[records_now[i], picked[i]] for i in range(m)]))
        numbers.append(picked)
    return contexts, numbers


def parameters(scenario: Scenario, seed: int) -> np.ndarray:
    """θ* (T, d) of every round."""
    T, d = scenario.horizon, scenario.dimension
    steps = scenario.drift * draws(seed, "drift", T * d, normal).reshape(T, d) if scenario.drift else None
    theta, walk = scenario.parameter(seed), np.zeros((T, d))
    for t in range(T):
        if steps is not None:
            theta = (theta + steps[t]) / np.linalg.norm(theta + steps[t])
        walk[t] = theta
    return walk


def held_against_reference(name: str, scenario: Scenario, merit: Any, *, ours: dict, theirs: dict) -> None:
    """Regret, synchronisations and exposure of a run are the oracle's."""
    seed, T, m = 5, scenario.horizon, scenario.agents
    result = simulate(scenario, algorithm=name, seeds=[seed], solver=EXACT, points=T, exposure=True, **ours)
    contexts, numbers = arms(scenario, seed)
    truth = parameters(scenario, seed)
    run = reference.reference_run(
        contexts,
        scenario.noise_sd * draws(seed, "rewards", T * m, normal).reshape(T, m),
        draws(seed, "actions", T * m).reshape(T, m),
        truth,
        name,
        solver=optimum,
        **{"merit": merit, "noise_sd": scenario.noise_sd, "scale": 0.5, **theirs},
    )
    _close(result.fairness_regret[0], run.fairness_regret.mean(axis=1).cumsum())
    _close(result.reward_regret[0], run.reward_regret.mean(axis=1).cumsum())
    assert result.syncs[0] == len(run.syncs)
    merits = merit if isinstance(merit, list) else [merit] * m
    shown, due, by_rank = (np.zeros((T, scenario.arms)) for _ in range(3))
    for t in range(T):
        for i in range(m):
            means = contexts[t][i] @ truth[t]
            policy, ranks = run.policies[t, i, : means.size], np.argsort(np.argsort(-means))
            names = numbers[t][i] if scenario.contexts in ("persistent", "one-hot") else ranks
            shown[t, names] += policy / m
            due[t, names] += reference.policy_of_means(means, merits[i]) / m
            by_rank[t, ranks] += policy / m
    _close(result.shown[0], shown.cumsum(axis=0))
    _close(result.entitled[0], due.cumsum(axis=0))
    _close(result.exposure[0], by_rank.mean(axis=0))


def _close(ours: np.ndarray, theirs: np.ndarray) -> None:
    np.testing.assert_allclose(ours, theirs, rtol=1e-6, atol=1e-9)
