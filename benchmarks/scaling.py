"""How the cost of deciding and of observing grows with the number of arms K and of features d."""

from __future__ import annotations

import time
from collections.abc import Callable

import numpy as np

import fedfairx as ffx
from decide import NumpyLinUCB, Ours, optimism, steps, warm
from fedfairx.core.optimism.solver import FAIR_PGD, Solver
from measure import Contestant, Report, main, race
from problem import Problem, problem

SIZES = ((10, 5), (40, 5), (160, 5), (10, 20), (10, 80), (100, 50))
SHORT, LONG = 10, 30  # solver steps: the difference of two runs is the cost of the steps


def agent_for(rounds: Problem, *, solver: str | Solver = "fixed-point") -> ffx.Agent:
    """An agent that has learnt from these rounds."""
    agent = ffx.Agent(dimension=rounds.dimension, seed=0, rule="optimism", solver=solver)
    for contexts, rewards in zip(rounds.contexts, rounds.rewards, strict=True):
        decision = agent.decide(contexts)
        agent.observe(decision, reward=rewards[decision.action])
    return agent


def deciding(agent: ffx.Agent, contexts: list[np.ndarray]) -> Callable[[], None]:
    """Decisions without rewards."""

    def work() -> None:
        for decision in [agent.decide(rows) for rows in contexts]:
            agent.forget(decision)

    return work


def per_step(report: Report, *, turns: int) -> None:
    report.heading("One solver step: its growth over K=10, d=5, as a share of the growth of K·d + d²")
    field: dict[str, Contestant] = {}
    for arms, dimension in SIZES:
        rounds = problem(100, arms=arms, dimension=dimension)
        contexts = rounds.contexts[:10]
        for count in (SHORT, LONG):
            agent = agent_for(rounds, solver=Solver(rule=FAIR_PGD, max_steps=count))
            field[f"{arms} {dimension} {count}"] = Contestant(deciding(agent, contexts), len(contexts))
        field[f"{arms} {dimension} whole"] = Contestant(deciding(agent_for(rounds), contexts), len(contexts))
    times = race(field, turns=turns)

    def step(arms: int, dimension: int) -> np.ndarray:
        long, short = (times[f"{arms} {dimension} {count}"].seconds for count in (LONG, SHORT))
        return np.asarray((long - short) / (LONG - SHORT))

    first = SIZES[0]
    for arms, dimension in SIZES[1:]:
        allowed = (arms * dimension + dimension**2) / (first[0] * first[1] + first[1] ** 2)
        growth = float(np.median(step(arms, dimension)) / np.median(step(*first)))
        report.add(
            f"K={arms}, d={dimension}",
            growth / allowed,
            "×",
            at_most=1.0,
            note=f"{growth:.1f} of {allowed:.1f}",
        )
    report.heading(
        "A whole decision by the default solver (steps, certificate, further starts), the same share"
    )
    whole = {size: times[f"{size[0]} {size[1]} whole"] for size in SIZES}
    for arms, dimension in SIZES[1:]:
        allowed = (arms * dimension + dimension**2) / (first[0] * first[1] + first[1] ** 2)
        report.ratio(f"K={arms}, d={dimension}", whole[arms, dimension].over(whole[first]) / allowed)


def large(report: Report, *, turns: int, late: int) -> None:
    report.heading("One decide + observe, K=100, d=50")
    rounds = problem(late, arms=100, dimension=50)
    field: dict[str, Contestant] = {}
    for name, policy, lived in (
        ("ours, after 100 observations", Ours(rounds), 100),
        (f"ours, after {late:,}", Ours(rounds), late),
        ("optimism, after 100 observations", optimism(rounds), 100),
        (f"optimism, after {late:,}", optimism(rounds), late),
        ("NumPy loop", NumpyLinUCB(rounds), 100),
    ):
        warm(policy, lived, seconds=20.0)
        field[name] = Contestant(steps(policy, 10), 10)
    times = race(field, turns=turns)
    for name, timed in times.items():
        wanted = {"ours": {"at_most": 100.0}, "opti": {"at_most": 1000.0}}.get(name[:4], {})
        report.time(name, timed, **wanted)
    for name in list(times)[:-1]:
        report.ratio(f"{name} ÷ NumPy loop", times[name].over(times["NumPy loop"]))


def observing(report: Report, *, turns: int) -> None:
    report.heading("One observe: its growth with d doubled (4 is d², 8 would be d³)")
    sizes = (20, 40, 80, 160)
    agents = {}
    for dimension in sizes:
        rounds = problem(200, arms=2, dimension=dimension)
        agents[dimension] = (agent_for(rounds), rounds.contexts[:50])

    def work(dimension: int) -> Callable[[], float]:
        agent, contexts = agents[dimension]

        def observe() -> float:
            decisions = [agent.decide(rows) for rows in contexts]
            start = time.process_time()
            for decision in decisions:
                agent.observe(decision, reward=0.5)
            return time.process_time() - start

        return observe

    times = race({str(d): Contestant(work(d), 50) for d in sizes}, turns=turns)
    for dimension in sizes[1:]:
        ratio = times[str(dimension)].over(times[str(dimension // 2)])
        report.ratio(f"d={dimension} ÷ d={dimension // 2}", ratio, at_most=5.0)


def run(report: Report) -> None:
    turns = 7 if report.quick else 25
    per_step(report, turns=turns)
    observing(report, turns=turns)
    large(report, turns=turns, late=500 if report.quick else 10_000)


if __name__ == "__main__":
    main("scaling", run, __doc__)
