"""Whom each library chooses how often, and what that earns.

Each of ten workers has the same features in every round. A library chooses one of them and sees the reward.
Those that have a softmax run with it too, as steep as the merit. mabwiser and river's LinUCB need rewards
before their first decision and get one of each worker.
"""

from __future__ import annotations

from collections.abc import Callable
from functools import partial

import numpy as np

from decide import ARMS, DIMENSION, STEEPNESS, NumpyLinUCB, Ours
from measure import Report, main
from peers import PEERS, Policy, VowpalWabbit, missing, versions
from problem import Problem


class KnownMerit:
    """Draw in proportion to true merit: what luck alone leaves of the gap."""

    def __init__(self, problem: Problem, fair: np.ndarray) -> None:
        self._draws = np.random.default_rng(0).choice(problem.arms, len(problem.contexts), p=fair)

    def step(self, i: int) -> int:
        return int(self._draws[i])


class MABWiserSoftmax:
    """Softmax over mean rewards, without a context."""

    def __init__(self, problem: Problem) -> None:
        from mabwiser.mab import MAB, LearningPolicy

        arms = list(range(problem.arms))
        self._mab = MAB(arms=arms, learning_policy=LearningPolicy.Softmax(tau=1 / STEEPNESS))
        self._mab.fit(arms, problem.rewards[0])
        self._rewards = problem.rewards

    def step(self, i: int) -> int:
        action = self._mab.predict()
        self._mab.partial_fit([action], [self._rewards[i][action]])
        return int(action)


class PyMABSoftmax:
    """Softmax over mean rewards, without a context."""

    def __init__(self, problem: Problem) -> None:
        from pymab.policies import SoftmaxPolicy

        self._policy = SoftmaxPolicy(n_arms=problem.arms, temperature=1 / STEEPNESS)
        self._rng = np.random.default_rng(0)
        self._rewards = problem.rewards

    def step(self, i: int) -> int:
        action = self._policy.select_action(rng=self._rng)
        self._policy.update(action=action, reward=self._rewards[i][action])
        return int(action)


class RiverGreedy:
    """ε-greedy over mean rewards, without a context."""

    def __init__(self, problem: Problem) -> None:
        from river.bandit import EpsilonGreedy

        self._policy = EpsilonGreedy(epsilon=0.1, burn_in=1, seed=0)
        self._arms, self._rewards = list(range(problem.arms)), problem.rewards

    def step(self, i: int) -> int:
        action = self._policy.pull(self._arms)
        self._policy.update(action, self._rewards[i][action])
        return int(action)


SETTINGS: dict[str, Callable[[Problem], Policy]] = {
    "ours": Ours,
    "LinUCB in NumPy": NumpyLinUCB,
    **PEERS,
    "vowpalwabbit, squarecb": partial(VowpalWabbit, explore="--squarecb"),
    "vowpalwabbit, softmax": partial(VowpalWabbit, explore=f"--softmax --lambda {STEEPNESS:g}"),
    "river, ε-greedy": RiverGreedy,
    "mabwiser, softmax": MABWiserSoftmax,
    "pymab, softmax": PyMABSoftmax,
}


def workers(rounds: int, seed: int) -> tuple[Problem, np.ndarray]:
    """Ten workers in the world of `problem`, the same in every round, and their expected rewards."""
    rng = np.random.default_rng([seed, 2])
    truth = rng.random(DIMENSION)
    truth /= np.linalg.norm(truth)
    contexts = rng.random((ARMS, DIMENSION)) / np.sqrt(DIMENSION)
    expected = contexts @ truth
    rewards = expected + 0.1 * rng.standard_normal((rounds, ARMS))
    return Problem([contexts] * rounds, rewards.tolist()), expected


def run(report: Report) -> None:
    rounds, seeds = (500, 2) if report.quick else (5_000, 10)
    report.note(versions())
    report.note(f"{ARMS} workers, d={DIMENSION}, {rounds:,} decisions, means and quartiles of {seeds} worlds")
    worlds = [workers(rounds, seed) for seed in range(seeds)]
    found: dict[str, list[tuple[float, float, float]]] = {}
    for problem, expected in worlds:
        merit = np.exp(STEEPNESS * expected)
        fair = merit / merit.sum()
        for name, make in {"true merit": partial(KnownMerit, fair=fair), **SETTINGS}.items():
            try:
                policy = make(problem)
            except ImportError:
                if not any(name in note for note in report.notes):
                    report.note(missing(name))
                continue
            chosen = np.bincount([policy.step(i) or 0 for i in range(rounds)], minlength=ARMS) / rounds
            found.setdefault(name, []).append(
                (
                    0.5 * float(np.abs(chosen - fair).sum()),
                    float((chosen / fair).min()),
                    float(chosen @ expected / expected.max()),
                )
            )
    titles = (
        "Decisions that went to others than merit says, of all decisions",
        "Least share of any worker ÷ its share by merit",
        "Expected reward ÷ that of always choosing the best",
    )
    for place, title in enumerate(titles):
        report.heading(title)
        for name, values in found.items():
            column = np.array([value[place] for value in values])
            low, high = np.quantile(column, (0.25, 0.75))
            report.add(name, float(column.mean()), "", low=float(low), high=float(high))


if __name__ == "__main__":
    main("shares", run, __doc__)
