"""One decision and its reward through the Python API, compared with NumPy and other libraries.

All get the same rounds (K = 10 actions, d = 5 features). Ours computes a fair policy, by expected merit or,
as in the paper, by an optimistic problem; the others take the action with the largest score. Then several
slots: sets of 3 of 10 actions and of 10 of 1 000, compared with one slot and with sets written in NumPy.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import fedfairx as ffx
from measure import Contestant, Report, main, race
from peers import BATCHED, PEERS, Policy, missing, versions
from problem import Problem, problem

ARMS, DIMENSION = 10, 5
Makers = dict[str, Callable[[Problem], Policy]]
SLOW = {"vowpalwabbit", "river", "mabwiser"}  # a hundred µs and more per round
STEEPNESS, VARIANCE = 10.0, 0.01  # of the merit; of the rewards' noise, which NumPy's sets take for known
CHUNK = 100  # decisions in a turn, the same in every turn, since their costs differ


class Ours:
    """`Agent.decide` and `Agent.observe`."""

    def __init__(self, problem: Problem, **options: Any) -> None:
        self._agent = ffx.Agent(problem.dimension, merit=ffx.merit.Exponential(STEEPNESS), seed=0, **options)
        self._contexts, self._rewards = problem.contexts, problem.rewards

    def step(self, i: int) -> int:
        decision = self._agent.decide(self._contexts[i])
        self._agent.observe(decision, reward=self._rewards[i][decision.action])
        return decision.action


class OurBatch:
    """The same with many decisions in a call, and rewards 0 or 1."""

    def __init__(self, problem: Problem, batch: int) -> None:
        self._agent = ffx.Agent(problem.dimension, merit=ffx.merit.Exponential(STEEPNESS), seed=0)
        rewards = np.array(problem.rewards) > 0.5
        ends = range(0, len(rewards), batch)
        self._contexts = [np.stack(problem.contexts[end : end + batch]) for end in ends]
        self._rewards = [rewards[end : end + batch].tolist() for end in ends]

    def step(self, i: int) -> None:
        made = self._agent.decide_many(self._contexts[i])
        given = zip(made, self._rewards[i], strict=True)
        self._agent.observe_many(made, [rewards[decision.action] for decision, rewards in given])


class OurSet:
    """The same with several slots."""

    def __init__(self, problem: Problem, slots: int) -> None:
        self._agent = ffx.Agent(problem.dimension, merit=ffx.merit.Exponential(STEEPNESS), seed=0)
        self._contexts, self._rewards, self._slots = problem.contexts, problem.rewards, slots

    def step(self, i: int) -> None:
        decision = self._agent.decide(self._contexts[i], slots=self._slots)
        rewards = self._rewards[i]
        self._agent.observe(decision, rewards=[rewards[action] for action in decision.actions])


class NumpySet:
    """Sets by expected merit written by hand: inclusion probabilities by pooling, then systematic sampling.

    That is exact for sets, as our swaps are, and takes one sum and one search. It learns as `NumpyLinUCB`.
    """

    def __init__(self, problem: Problem, slots: int) -> None:
        self.inverse = np.eye(problem.dimension)
        self.moment = np.zeros(problem.dimension)
        self._slots, self._rng = slots, np.random.default_rng(0)
        self._contexts, self._rewards = problem.contexts, problem.rewards

    def step(self, i: int) -> None:
        contexts = self._contexts[i]
        variances = ((contexts @ self.inverse) * contexts).sum(axis=1)
        logits = STEEPNESS * (
            contexts @ (self.inverse @ self.moment) + 0.5 * STEEPNESS * VARIANCE * variances
        )
        ends = np.cumsum(self.exposures(np.exp(logits - logits.max())))
        ends[-1] = self._slots  # which rounding must not miss
        for action in np.searchsorted(ends, self._rng.random() + np.arange(self._slots)).tolist():
            x = contexts[action]
            product = self.inverse @ x
            self.inverse -= np.outer(product, product) / (1.0 + x @ product)
            self.moment += self._rewards[i][action] * x

    def exposures(self, merits: np.ndarray) -> np.ndarray:
        """Those due for slots of weight 1: actions above 1 are capped, best first, and the others share."""
        left, total = self._slots, merits.sum()
        found = merits * (left / total)
        if found.max() > 1.0:
            for arm in np.argsort(-merits)[: self._slots].tolist():
                if merits[arm] * left <= total:
                    break
                left, total = left - 1, total - merits[arm]
                found[arm] = 1.0
            below = found < 1.0
            found[below] = merits[below] * (left / total)
        return found


class NumpyLinUCB:
    """Shared LinUCB written by hand: V⁻¹ by Sherman and Morrison, no Python loop over actions."""

    def __init__(self, problem: Problem) -> None:
        self.inverse = np.eye(problem.dimension)
        self.moment = np.zeros(problem.dimension)
        self.alpha = 1.0
        self._contexts, self._rewards = problem.contexts, problem.rewards

    def step(self, i: int) -> int:
        contexts = self._contexts[i]
        theta = self.inverse @ self.moment
        widths = np.sqrt(((contexts @ self.inverse) * contexts).sum(axis=1))
        action = int(np.argmax(contexts @ theta + self.alpha * widths))
        x = contexts[action]
        product = self.inverse @ x
        self.inverse -= np.outer(product, product) / (1.0 + x @ product)
        self.moment += self._rewards[i][action] * x
        return action


def optimism(problem: Problem, scale: float = 1.0) -> Ours:
    """The paper's rule."""
    return Ours(problem, rule="optimism", confidence=ffx.Confidence(scale=scale))


def half_radius(problem: Problem) -> Ours:
    """The paper's rule with the simulator's default radius, half the theorem's."""
    return optimism(problem, 0.5)


def contestants(report: Report) -> Makers:
    """Return the installed libraries; name the missing ones."""
    rounds = problem(1, arms=ARMS, dimension=DIMENSION)
    found: Makers = {
        "ours": Ours,
        "ours, optimism": optimism,
        "ours, optimism, half radius": half_radius,
        "NumPy loop": NumpyLinUCB,
    }
    for name, make in PEERS.items():
        try:
            make(rounds)
        except ImportError:
            report.note(missing(name))
        else:
            found[name] = make
    return found


def steps(policy: Policy, count: int) -> Callable[[], None]:
    """Run rounds 0 to `count` once."""

    def work() -> None:
        for i in range(count):
            policy.step(i)

    return work


def warm(policy: Policy, rounds: int, *, seconds: float) -> float:
    """Run a policy for some rounds, or as many as fit the time; return its seconds per round."""
    policy.step(0)  # compiles or loads compiled code before the clock starts
    start, done = time.process_time(), 0
    while done < rounds and (done < 3 or time.process_time() - start < seconds):
        policy.step(done)
        done += 1
    return (time.process_time() - start) / done


def steady(report: Report, makers: Makers, *, warm_up: int, turns: int) -> None:
    report.heading(f"One decide + observe, K={ARMS}, d={DIMENSION}, after {warm_up:,} observations")
    rounds = problem(warm_up, arms=ARMS, dimension=DIMENSION)
    field: dict[str, Contestant] = {}
    for name, make in makers.items():
        policy = make(rounds)
        pace = warm(policy, warm_up, seconds=3.0)
        count = CHUNK if pace < 50e-6 else max(2, min(CHUNK, int(5e-3 / pace)))  # short turns if slow
        field[name] = Contestant(steps(policy, count), count)
    times = race(field, turns=turns)
    for name, timed in times.items():
        report.time(name, timed)
    for name in times:
        if not name.startswith("ours"):
            wanted = 0.35 if name == "NumPy loop" else 1.0
            report.ratio(f"ours ÷ {name}", times["ours"].over(times[name]), at_most=wanted)
            report.ratio(f"ours, optimism ÷ {name}", times["ours, optimism"].over(times[name]), at_most=1.0)
    half = times["ours, optimism, half radius"]
    report.ratio("ours, optimism, half radius ÷ NumPy loop", half.over(times["NumPy loop"]))


def from_the_start(report: Report, makers: Makers, *, count: int, turns: int) -> None:
    report.heading(f"The mean of the first {count:,} rounds, a new agent each time")
    rounds = problem(count, arms=ARMS, dimension=DIMENSION, seed=1)

    def life(make: Callable[[Problem], Policy]) -> Callable[[], float]:
        def work() -> float:
            policy = make(rounds)
            start = time.process_time()
            steps(policy, count)()
            return time.process_time() - start

        return work

    field = {name: Contestant(life(make), count) for name, make in makers.items() if name not in SLOW}
    times = race(field, turns=turns)
    for name, timed in times.items():
        report.time(name, timed)
    for name in times:
        if not name.startswith("ours"):
            report.ratio(f"ours ÷ {name}", times["ours"].over(times[name]))


def batches(report: Report, *, size: int, turns: int) -> None:
    report.heading(f"Batches of {size:,} decisions, then all their rewards: one decision and its reward")
    rounds = problem(10 * size, arms=ARMS, dimension=DIMENSION)
    policies: dict[str, Policy] = {"ours": OurBatch(rounds, size)}
    for name, make in BATCHED.items():
        try:
            policies[name] = make(rounds, size)
        except ImportError:
            report.note(missing(name))
    for policy in policies.values():
        for i in range(10):
            policy.step(i)
    field = {name: Contestant(lambda each=policy: each.step(0), size) for name, policy in policies.items()}  # type: ignore[misc]
    times = race(field, turns=turns)
    for name, timed in times.items():
        report.time(name, timed)
    for name in list(times)[1:]:
        report.ratio(f"ours ÷ {name}", times["ours"].over(times[name]))


def several_slots(
    report: Report, arms: int, dimension: int, slots: int, *, at_most: float, turns: int
) -> None:
    report.heading(f"Sets of {slots} of {arms:,} actions, d={dimension}: decide + observe with all rewards")
    rounds = problem(CHUNK, arms=arms, dimension=dimension)
    policies: dict[str, Policy] = {
        "one slot": Ours(rounds),
        f"{slots} slots": OurSet(rounds, slots),
        f"{slots} slots, NumPy": NumpySet(rounds, slots),
    }
    for policy in policies.values():
        for _ in range(10):
            warm(policy, CHUNK, seconds=1.0)
    times = race(
        {name: Contestant(steps(policy, CHUNK), CHUNK) for name, policy in policies.items()}, turns=turns
    )
    for name, timed in times.items():
        report.time(name, timed)
    ours = times[f"{slots} slots"]
    report.ratio(f"{slots} slots ÷ one slot", ours.over(times["one slot"]), at_most=at_most)
    report.ratio(f"{slots} slots ÷ NumPy", ours.over(times[f"{slots} slots, NumPy"]), at_most=1.0)


def run(report: Report) -> None:
    report.note(versions())
    makers = contestants(report)
    steady(report, makers, warm_up=1_000 if report.quick else 10_000, turns=10 if report.quick else 60)
    from_the_start(report, makers, count=200 if report.quick else 1_000, turns=3 if report.quick else 9)
    batches(report, size=1_000, turns=3 if report.quick else 20)
    turns = 10 if report.quick else 100
    several_slots(report, ARMS, DIMENSION, 3, at_most=2.0, turns=turns)
    several_slots(report, 1_000, 20, 10, at_most=1.5, turns=turns)


if __name__ == "__main__":
    main("decide", run, __doc__)
