"""The simulator against the floor, the private algorithms against the plain one, and other simulators.

The floor is the time that NumPy's Generator needs to draw the same random numbers.
"""

from __future__ import annotations

import time
from collections.abc import Callable
from typing import Any

import numpy as np

import fedfairx as ffx
from measure import Contestant, Report, Timed, main, race
from numpy_worlds import draw_numbers, floor_rounds, lock_step, loop
from peers import missing

ARMS, DIMENSION, AGENTS, SEEDS = 10, 5, 10, 8
FED: dict[str, Any] = {"algorithm": "fed-fairx-linucb"}
PRIVATE: dict[str, Any] = {"algorithm": "priv-fairx-linucb", "epsilon": 2.0, "delta": 0.1}
WORLDS = 256  # replications of the lock-step simulator


def ours(horizon: int, *, agents: int = AGENTS, seeds: int = SEEDS, **options: Any) -> Contestant:
    """One simulation on one core, counted in agent-rounds."""
    scenario = ffx.Scenario(agents=agents, arms=ARMS, dimension=DIMENSION, horizon=horizon)
    options.setdefault("algorithm", "fed-fairx-bayes")

    def work() -> None:
        ffx.simulate(scenario, seeds=seeds, **options)

    return Contestant(work, agents * horizon * seeds)


def floor(agent_rounds: int) -> Contestant:
    generator = np.random.default_rng(0)
    drawn = floor_rounds(agent_rounds, arms=ARMS, dimension=DIMENSION)
    return Contestant(lambda: draw_numbers(generator, agent_rounds, arms=ARMS, dimension=DIMENSION), drawn)


def pymab_simulator(backend: str, rounds: int) -> Contestant:
    """Disjoint LinUCB in pymab's own simulator, in Rust or in Python."""
    import pymab
    from pymab.policies import LinUCBPolicy

    environment = pymab.LinearContextualEnvironment(
        theta=np.random.default_rng(0).random((ARMS, DIMENSION)),
        context_provider=pymab.GaussianContextProvider(n_arms=ARMS, n_features=DIMENSION),
    )
    experiment = pymab.Experiment(
        environment=environment,
        policies={"linucb": LinUCBPolicy(n_arms=ARMS, n_features=DIMENSION)},
        config=pymab.ExperimentConfig(horizon=rounds, n_replicates=2, seed=0, backend=backend),
    )

    def work() -> None:
        experiment.run()

    return Contestant(work, 2 * rounds)


def others(report: Report) -> dict[str, Contestant]:
    """Simulators of plain LinUCB."""
    sizes = {"arms": ARMS, "dimension": DIMENSION}
    found = {
        "NumPy loop": Contestant(lambda: _drop(loop(0, 1_000, **sizes)), 1_000),
        "NumPy lock step": Contestant(lambda: _drop(lock_step(0, 100, worlds=WORLDS, **sizes)), 100 * WORLDS),
    }
    try:
        found["pymab, Rust"] = pymab_simulator("rust", 2_000)
        found["pymab, Python"] = pymab_simulator("python", 100)
    except ImportError:
        report.note(missing("pymab"))
    return found


def _drop(_: object) -> None:
    """Discard a contestant's result, which is not a time."""


def against_all(report: Report, *, horizon: int, turns: int) -> None:
    report.heading(
        f"Per agent-round: K={ARMS}, d={DIMENSION}, m={AGENTS}, T={horizon:,}, {SEEDS} seeds, one core"
    )
    field = {
        "floor": floor(AGENTS * horizon * SEEDS // 4),
        "bayes": ours(horizon),
        "fed": ours(horizon, **FED),
    }
    field["priv bayes"] = ours(horizon, **{**PRIVATE, "algorithm": "priv-fairx-bayes"})
    field["priv, centred"] = ours(horizon, **PRIVATE)
    field["priv, plain"] = ours(horizon, centring=None, **PRIVATE)
    field["linucb"] = ours(horizon, algorithm="linucb")
    rivals = others(report)
    field |= rivals
    _load(field)
    times = race(field, turns=turns)
    for name, timed in times.items():
        report.time(name, timed)
    fed = times["fed"]
    report.ratio("bayes ÷ floor", times["bayes"].over(times["floor"]), at_most=1.5)
    report.ratio("priv bayes ÷ bayes", times["priv bayes"].over(times["bayes"]), at_most=1.3)
    report.ratio("fed ÷ floor", fed.over(times["floor"]), at_most=4.0)
    for name, timed in times.items():
        if name.startswith("priv,"):
            report.ratio(f"{name} ÷ fed", timed.over(fed), at_most=1.3)
    for name in rivals:
        wanted = 1.0 if name == "NumPy lock step" else 20.0
        report.ratio(f"{name} ÷ fed", times[name].over(fed), at_least=wanted)


def _load(field: dict[str, Contestant]) -> None:
    """Load compiled code and imports before the clock starts."""
    tiny = ffx.Scenario(agents=2, arms=ARMS, dimension=DIMENSION, horizon=50)
    ffx.simulate(tiny, seeds=1)
    ffx.simulate(tiny, seeds=1, **FED)
    ffx.simulate(tiny, seeds=1, **PRIVATE)
    for name, contestant in field.items():
        if name.startswith(("NumPy", "pymab")):
            contestant.work()


def linearity(report: Report, *, horizon: int, turns: int) -> None:
    report.heading("Time per agent-round as a run grows, over that of the smallest (1 is linear)")
    kinds: dict[str, Callable[[int], Contestant]] = {
        "agents": lambda k: ours(horizon, agents=AGENTS * k),
        "rounds": lambda k: ours(horizon * k),
        "seeds": lambda k: ours(horizon, seeds=SEEDS * k),
    }
    field = {f"{kind} {k}": make(k) for kind, make in kinds.items() for k in (1, 2, 4)}
    times = race(field, turns=turns)
    for kind in kinds:
        for k in (2, 4):
            report.ratio(f"{kind} × {k}", times[f"{kind} {k}"].over(times[f"{kind} 1"]), at_most=1.15)


def two_workers(report: Report, *, horizon: int, turns: int) -> None:
    report.heading("Two workers against one, by the clock on the wall (0.5 is perfect; needs two idle cores)")
    field = {"one": ours(horizon), "two": ours(horizon, workers=2)}
    times: dict[str, Timed] = race(field, turns=turns, clock=time.perf_counter)
    report.ratio("two workers ÷ one", times["two"].over(times["one"]))


def run(report: Report) -> None:
    quick = report.quick
    against_all(report, horizon=4_000 if quick else 20_000, turns=3 if quick else 7)
    linearity(report, horizon=1_000 if quick else 4_000, turns=3 if quick else 7)
    two_workers(report, horizon=2_000 if quick else 20_000, turns=3 if quick else 5)


if __name__ == "__main__":
    main("simulate", run, __doc__)
