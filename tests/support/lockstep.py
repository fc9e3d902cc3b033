"""The library beside the oracle: the same contexts, reward noise, uniforms and release noise, round by round.

`python -m lockstep` runs a short one of every algorithm and exits non-zero where they part. It is how the
uncompiled source is held to the oracle (NUMBA_DISABLE_JIT=1).
"""

from __future__ import annotations

import sys
import tempfile
from dataclasses import dataclass, field
from typing import Any

import numpy as np

import fedfairx as ffx
import reference as ref
from fedfairx.agent.pooling import sum_sd
from fedfairx.agent.schedules import Determinant, Doubling
from fedfairx.core import regret
from fedfairx.core.optimism.solver import Solver
from fedfairx.core.statistics import diagonal_entries
from fedfairx.lanes.decorators import COMPILING
from fedfairx.lanes.rows import floats
from fedfairx.privacy import Bounds
from instances import CUSTOM, expose
from simulated import held_against_reference
from stored_optimum import optimum

TIGHT = Solver(tolerance=1e-13, max_steps=2000)
WIDE = Bounds(context_norm=1.0, reward=10.0)  # nothing in these problems is ever clipped


def uniforms(seed: int, agents: int, rounds: int) -> np.ndarray:
    """The (T, m) uniforms that a federation's agents draw from their seed."""
    children = np.random.SeedSequence(seed).spawn(agents)
    return np.stack(
        [np.random.Generator(np.random.PCG64(child)).random(rounds) for child in children], axis=1
    )


@dataclass
class Lockstep:
    """One run of the library and of the oracle on it."""

    library: ref.Run
    oracle: ref.Run
    federation: ffx.Federation
    released: list[np.ndarray] = field(default_factory=list)

    def worst(self) -> dict[str, float]:
        """The largest difference of everything that both record, relative where it is above 1."""
        differences = {}
        names = ("policies", "thetas", "rewards", "estimates", "grams", "moments", "radii")
        for name in (*names, "fairness_regret", "reward_regret"):
            ours, theirs = getattr(self.library, name), getattr(self.oracle, name)
            differences[name] = float((np.abs(ours - theirs) / np.maximum(1.0, np.abs(theirs))).max())
        return differences

    def check(self, tolerance: float = 1e-9) -> None:
        assert self.library.syncs == self.oracle.syncs
        assert (self.library.actions == self.oracle.actions).all()
        assert max(self.worst().values()) <= tolerance, self.worst()


def true_regrets(
    x: np.ndarray, policy: np.ndarray, theta_star: np.ndarray, merit: Any
) -> tuple[float, float]:
    """A round's fairness and reward regret by the library's own stages."""
    means = x @ theta_star
    fair, _ = expose(merit, means)
    unfair, lost = regret.regrets(floats(fair), floats(policy.copy()), floats(means), 0.0, 0.0)
    return float(unfair), float(lost)


def run(
    algorithm: str,
    *,
    rounds: int,
    agents: int,
    arms: int,
    dimension: int,
    seed: int = 0,
    merits: list[tuple[Any, Any]] | None = None,
    confidence: ffx.Confidence | None = None,
    **options: Any,
) -> Lockstep:
    """Run the library, then the oracle with the noise that the library's releases had."""
    contexts, noise, _, theta_star = ref.random_problem(rounds, agents, arms, dimension, seed=seed)
    pairs = merits or [(ffx.merit.Exponential(10.0), ref.Exponential(10.0))] * agents
    confidence = confidence or ffx.Confidence()
    federation = ffx.Federation(
        agents=agents,
        dimension=dimension,
        horizon=rounds,
        algorithm=algorithm,
        merit=[ours for ours, _ in pairs],
        confidence=confidence,
        solver=TIGHT,
        seed=seed,
        **options,
    )
    library, release_noise = _library(federation, contexts, noise, theta_star)
    schedule = federation.schedule
    oracle = ref.reference_run(
        contexts,
        noise,
        uniforms(seed, agents, rounds),
        theta_star,
        algorithm,
        merit=[theirs for _, theirs in pairs],
        regulariser=confidence.regulariser,
        noise_sd=confidence.noise_sd,
        alpha=confidence.failure,
        norm_bound=confidence.parameter_norm,
        scale=confidence.scale,
        release_noise=np.array(release_noise) if federation.algorithm.private else None,
        decide_from=federation.agents[0].decide_from,
        threshold=schedule.threshold if isinstance(schedule, Determinant) else 1.0,
        max_syncs=schedule.cap if isinstance(schedule, Determinant) else None,
        start=schedule.start if isinstance(schedule, Doubling) else 100,
        solver=optimum,
    )
    return Lockstep(library, oracle, federation)


def _library(
    federation: ffx.Federation, contexts: np.ndarray, noise: np.ndarray, theta_star: np.ndarray
) -> tuple[ref.Run, list[list[np.ndarray]]]:
    T, m, K, d = contexts.shape
    flat = np.zeros((T, m))
    run = ref.Run(
        np.zeros((T, m, K)),
        flat.astype(int),
        flat.copy(),
        np.zeros((T, m, d)),
        np.zeros((T, m, d)),
        np.zeros((T, m, d, d)),
        np.zeros((T, m, d)),
        flat.copy(),
        flat.copy(),
        flat.copy(),
    )
    exact = np.zeros((m, d * (d + 3) // 2))
    release_noise: list[list[np.ndarray]] = []
    for t in range(T):
        for i, agent in enumerate(federation.agents):
            x, now = contexts[t, i], (t, i)
            run.estimates[now], run.grams[now] = agent.estimate, agent.gram
            run.moments[now], run.radii[now] = agent.moment, agent.radius
            decision = agent.decide(x)
            y = float(x[decision.action] @ theta_star + noise[now])
            agent.observe(decision, reward=y)
            run.policies[now], run.actions[now] = decision.policy, decision.action
            run.rewards[now], run.thetas[now] = y, decision.theta
            chosen = x[decision.action]
            exact[i] += ref.pack(np.outer(chosen, chosen), chosen * y)
            run.fairness_regret[now], run.reward_regret[now] = true_regrets(
                x, decision.policy, theta_star, agent.merit
            )
        if federation.end_round():
            run.syncs.append(t + 1)
            release_noise.append(_noise_of(federation, exact))
    return run, release_noise


def _noise_of(federation: ffx.Federation, exact: np.ndarray) -> list[np.ndarray]:
    """What the latest releases hold beyond the exact sums; the shift is spread over them, on the diagonal."""
    agents = federation.agents
    latest = [agent.held[agent.name] for agent in agents]
    shift = (
        agents[0].options.shift * sum_sd(agents[0].privatizer.mechanism, latest) if agents[0].private else 0.0
    )
    noise = [release.packed - sums for release, sums in zip(latest, exact, strict=True)]
    for each in noise:
        each[diagonal_entries(agents[0].dimension)] += shift / len(agents)
    return noise


#: (algorithm, options) that together show every algorithm and every way of deciding that the oracle knows.
CASES: list[tuple[str, dict[str, Any]]] = [
    ("fairx-linucb", {}),
    ("fed-fairx-linucb", {}),
    ("priv-fairx-linucb", {"epsilon": 2.0, "delta": 0.1, "bounds": WIDE}),
    (
        "priv-fairx-linucb",
        {"epsilon": 8.0, "mechanism": "tree", "bounds": WIDE, "decide_from": "released+local", "shift": 0.0},
    ),
    ("b1", {"epsilon": 4.0, "delta": 0.1, "bounds": WIDE, "schedule": Determinant(threshold=8.0, cap=40)}),
    ("b2", {"epsilon": 4.0, "delta": 0.1, "bounds": WIDE, "schedule": Doubling(start=3)}),
    ("linucb", {}),
]


#: Merits that level off nowhere in these problems, one for each of four agents.
MIXED: list[tuple[Any, Any]] = [
    (ffx.merit.Exponential(3.0), ref.Exponential(3.0)),
    (ffx.merit.Affine(3.0, 1.0, (-2.5, 4.0)), ref.Affine(3.0, 1.0, -2.5, 4.0)),
    (ffx.merit.Power(2.0, 3.0, (-2.5, 4.0)), ref.Power(2.0, 3.0, -2.5, 4.0)),
    (ffx.merit.Logistic(4.0, 0.5, 0.2), ref.Logistic(4.0, 0.5, 0.2)),
]


def main() -> None:
    for algorithm, options in CASES:
        done = run(algorithm, rounds=10, agents=2, arms=3, dimension=2, seed=4, **options)
        done.check()
        print(algorithm, f"{max(done.worst().values()):.1e}", done.library.syncs)
    done = run("fed-fairx-linucb", rounds=6, agents=4, arms=3, dimension=2, merits=MIXED)
    done.check()
    print("four merits", f"{max(done.worst().values()):.1e}")
    rest()
    simulated_worlds()
    print("uncompiled:", not COMPILING)


def rest() -> None:
    """What the oracle doesn't know: a custom merit, the paper's solver, weighted releases, a saved agent."""
    rng = np.random.default_rng(0)
    options = {"epsilon": 4.0, "delta": 0.1, "decide_from": "own+released"}
    agents = [
        ffx.Agent(2, rule="optimism", merit=CUSTOM, seed=1),
        ffx.Agent(2, rule="optimism", solver="pgd", seed=1),
        ffx.Agent(2, merit=CUSTOM, seed=1),
        *ffx.Federation(
            agents=2, dimension=2, horizon=4, algorithm="priv-fairx-linucb", seed=1, **options
        ).agents,
    ]
    for agent in agents:
        for _ in range(3):
            decision = agent.decide(rng.random((4, 2)) / 2)
            assert abs(decision.policy.sum() - 1.0) <= 1e-12
            agent.observe(decision, reward=0.5)
        agent.absorb({agent.name: agent.release()})
    with tempfile.TemporaryDirectory() as folder:
        agents[1].save(f"{folder}/agent.db")
        again = ffx.Agent.load(f"{folder}/agent.db")
    contexts = rng.random((4, 2))
    assert again.decide(contexts) == agents[1].decide(contexts)


def simulated_worlds() -> None:
    """The simulator in worlds whose arms are drawn anew, stay, or come from records."""
    records = ffx.Recorded(np.random.default_rng(0).random((5, 3, 2)), scale="unit-ball")
    for contexts, dimension in (("unit-ball", 2), ("persistent", 2), ("one-hot", 3), (records, 2)):
        scenario = ffx.Scenario(
            agents=2, arms=3, dimension=dimension, horizon=6, contexts=contexts, presence=0.6
        )
        held_against_reference(
            "fed-fairx-linucb",
            scenario,
            ref.Exponential(10.0),
            ours={"confidence": ffx.Confidence(scale=0.02)},  # so that one-hot arms have one best θ
            theirs={"scale": 0.02},
        )


if __name__ == "__main__":
    sys.exit(main())
