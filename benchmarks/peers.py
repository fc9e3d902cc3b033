"""Other bandit libraries, each behind one small adapter: `step(i)` is one decision and its reward.

The input of a library (dictionaries, text lines) is made in advance, in its favour. Libraries whose arms have
no features get the first arm's features as the context: K times less than the others read.
"""

from __future__ import annotations

import random
from collections.abc import Callable
from importlib.metadata import PackageNotFoundError, version
from typing import Protocol

import numpy as np

from problem import Problem


class Policy(Protocol):
    """A bandit that decides and learns."""

    def step(self, i: int, /) -> int | None:
        """Decide on round i, and learn from its reward; return the arm if it is one."""
        ...


def _names(problem: Problem) -> list[str]:
    return [f"x{j}" for j in range(problem.dimension)]


class Gittins:
    """A contextual bandit engine in Rust: hashed features, per-candidate scores."""

    def __init__(self, problem: Problem) -> None:
        import gittins

        self._gittins = gittins
        self._state = gittins.create(bits=8, horizon=3600.0)
        names = _names(problem)
        self._candidates = [
            [(f"arm{a}", dict(zip(names, row, strict=True))) for a, row in enumerate(x.tolist())]
            for x in problem.contexts
        ]
        self._rewards = problem.rewards
        self._now = 0.0

    def step(self, i: int) -> int:
        self._now += 1e-3
        record = self._gittins.decide(self._state, {}, self._candidates[i], self._now, "agent")
        self._gittins.learn(self._state, record.decision_id, self._rewards[i][record.chosen], self._now)
        return int(record.chosen)


class PyMAB:
    """Disjoint LinUCB in Rust, one model per arm."""

    def __init__(self, problem: Problem) -> None:
        from pymab.policies import LinUCBPolicy

        self._policy = LinUCBPolicy(n_arms=problem.arms, n_features=problem.dimension)
        self._rng = np.random.default_rng(0)
        self._problem = problem

    def step(self, i: int) -> int:
        contexts = self._problem.contexts[i]
        action = self._policy.select_action(context=contexts, rng=self._rng)
        self._policy.update(action=action, reward=self._problem.rewards[i][action], context=contexts)
        return int(action)


class MABWiser:
    """Disjoint LinUCB in NumPy; one context for all arms."""

    def __init__(self, problem: Problem) -> None:
        from mabwiser.mab import MAB, LearningPolicy

        self._contexts = [x[:1] for x in problem.contexts]
        self._rewards = problem.rewards
        arms = list(range(problem.arms))
        self._mab = MAB(arms=arms, learning_policy=LearningPolicy.LinUCB(alpha=1.0))
        self._mab.fit(arms, self._rewards[0], np.concatenate(self._contexts[:1] * problem.arms))

    def step(self, i: int) -> int:
        action = self._mab.predict(self._contexts[i])
        self._mab.partial_fit([action], [self._rewards[i][action]], self._contexts[i])
        return int(action)


class River:
    """Disjoint LinUCB over Bayesian linear regressions; one context for all arms."""

    def __init__(self, problem: Problem) -> None:
        from river.bandit import LinUCBDisjoint

        names = _names(problem)
        self._contexts = [dict(zip(names, x[0].tolist(), strict=True)) for x in problem.contexts]
        self._rewards = problem.rewards
        self._arms = list(range(problem.arms))
        self._policy = LinUCBDisjoint(seed=0)
        for arm in self._arms:  # otherwise it stays with the first arm that pays; its burn_in fails in 0.26.1
            self._policy.update(arm, self._contexts[0], self._rewards[0][arm])

    def step(self, i: int) -> int:
        action = self._policy.pull(self._arms, self._contexts[i])
        self._policy.update(action, self._contexts[i], self._rewards[i][action])
        return int(action)


class VowpalWabbit:
    """Contextual bandit with action-dependent features, ε-greedy unless told otherwise."""

    def __init__(self, problem: Problem, explore: str = "--epsilon 0.1") -> None:
        from vowpalwabbit import Workspace

        self._workspace = Workspace(f"--cb_explore_adf {explore} --quiet")
        names = _names(problem)
        self._lines = [
            ["|a " + " ".join(f"{n}:{v}" for n, v in zip(names, row, strict=True)) for row in x.tolist()]
            for x in problem.contexts
        ]
        self._rewards = problem.rewards
        self._random = random.Random(0)

    def step(self, i: int) -> int:
        shares = self._workspace.predict(self._lines[i])
        action = self._random.choices(range(len(shares)), weights=shares)[0]
        lines = self._lines[i].copy()
        lines[action] = f"0:{-self._rewards[i][action]}:{shares[action]} {lines[action]}"
        self._workspace.learn(lines)
        return action


class MABWiserBatch:
    """`MABWiser` with many contexts in a call, as its documentation shows; rewards are 0 or 1."""

    def __init__(self, problem: Problem, batch: int) -> None:
        from mabwiser.mab import MAB, LearningPolicy

        arms = list(range(problem.arms))
        self._mab = MAB(arms=arms, learning_policy=LearningPolicy.LinUCB(alpha=1.0))
        self._contexts, self._rewards = _batches(problem, batch)
        self._mab.fit(arms, [0.0] * len(arms), self._contexts[0][: len(arms)])

    def step(self, i: int) -> None:
        contexts, rewards = self._contexts[i], self._rewards[i]
        actions = self._mab.predict(contexts)
        self._mab.partial_fit(actions, rewards[np.arange(len(actions)), actions], contexts)


class ContextualBandits:
    """Disjoint LinUCB in Cython, many contexts in a call; rewards are 0 or 1."""

    def __init__(self, problem: Problem, batch: int) -> None:
        from contextualbandits.online import LinUCB

        self._policy = LinUCB(nchoices=problem.arms, random_state=1, njobs=1)
        self._contexts, self._rewards = _batches(problem, batch)

    def step(self, i: int) -> None:
        contexts, rewards = self._contexts[i], self._rewards[i]
        actions = self._policy.predict(contexts)
        self._policy.partial_fit(contexts, actions, rewards[np.arange(len(actions)), actions])


def _batches(problem: Problem, batch: int) -> tuple[list[np.ndarray], list[np.ndarray]]:
    """One context for all arms in each round, and the rewards of all arms as 0 or 1, in batches."""
    contexts = np.stack([x[0] for x in problem.contexts])
    rewards = (np.array(problem.rewards) > 0.5).astype(float)
    ends = range(0, len(contexts), batch)
    return [contexts[end : end + batch] for end in ends], [rewards[end : end + batch] for end in ends]


#: Those that take many decisions in a call, by package name.
BATCHED: dict[str, Callable[[Problem, int], Policy]] = {
    "mabwiser": MABWiserBatch,
    "contextualbandits": ContextualBandits,
}

#: By package name.
PEERS: dict[str, Callable[[Problem], Policy]] = {
    "gittins": Gittins,
    "pymab": PyMAB,
    "vowpalwabbit": VowpalWabbit,
    "river": River,
    "mabwiser": MABWiser,
}


def versions() -> str:
    """The installed libraries with their versions."""
    found = []
    for name in PEERS | BATCHED:
        try:
            found.append(f"{name} {version(name)}")
        except PackageNotFoundError:
            continue
    return ", ".join(found) or "no other library is installed"


def missing(name: str) -> str:
    """The message for a missing library."""
    return f"{name}: not installed: pip install {name}"
