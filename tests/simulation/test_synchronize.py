"""Synchronising in the simulator is what an agent's own code makes of the same releases."""

from __future__ import annotations

from dataclasses import replace

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.agent import pooling
from fedfairx.agent.exchange import OTHERS, TOTAL
from fedfairx.agent.options import Options
from fedfairx.agent.pooling import Beliefs, Pool
from fedfairx.agent.schedules import Doubling
from fedfairx.core.confidence import Confidence
from fedfairx.core.learner import CENTRE, COUNT, NOISE_VARIANCE, RIDGE
from fedfairx.core.statistics import packed_size, unpack
from fedfairx.lanes.rows import vectors
from fedfairx.lanes.vector_llvm import WIDTH
from fedfairx.privacy import Release
from fedfairx.simulation import Scenario, simulate
from fedfairx.simulation.kernel.loop import run
from fedfairx.simulation.kernel.random import generator
from fedfairx.simulation.kernel.state import decision_scratch
from fedfairx.simulation.kernel.synchronize import lift_totals
from simulation_helpers import lanes, options_for, records, setting_for

AGENTS, DIMENSION = 11, 3  # two seeds are 22 lanes: a seed lies across two blocks
CONFIDENCE = Confidence(noise_sd=0.1, scale=0.5)
COLUMNS = DIMENSION + 1  # with the intercept
KNOWN = Beliefs(1.0, 1.0, 1.0, np.zeros(DIMENSION), 0.0)


@pytest.mark.parametrize("decide_from", ["released", "own+released"])
def test_an_agent_would_hold_the_same(decide_from: str) -> None:
    weights = weights_beside_agents(decide_from, CONFIDENCE, rounds=200, epsilon=2.0)
    if weights:
        assert min(weights) == 0.0 < max(weights)  # or a forgotten weight would not show


def test_an_agent_would_hold_the_same_by_halves() -> None:
    """Weights are mostly 0 or 1; few records, little noise and a large λ make them lie between."""
    confidence = replace(CONFIDENCE, regulariser=20.0)
    weights = weights_beside_agents("own+released", confidence, rounds=6, epsilon=60.0)
    assert sum(0.1 <= weight <= 0.9 for weight in weights) >= 5


def weights_beside_agents(
    decide_from: str, confidence: Confidence, *, rounds: int, epsilon: float
) -> list[float]:
    """Hold every lane to what an agent would hold after the second synchronisation, which ends `rounds`."""
    scenario = Scenario(agents=AGENTS, arms=4, dimension=DIMENSION, horizon=2 * rounds)
    options = options_for(
        "priv-fairx-linucb",
        schedule=Doubling(start=rounds // 2),
        confidence=confidence,
        epsilon=epsilon,
        decide_from=decide_from,
    )
    setting = setting_for(scenario, options, (0, 1))
    run(0, rounds, *setting)
    sharing, privacy = setting.sharing, setting.privacy
    lane_states = [lanes(setting, block).learner for block in range(setting.lane_states.shape[0])]
    assert setting.tally.syncs.tolist() == [2, 2]
    mechanism = options.budget(sharing.most).calibrate()
    pool = Pool(mechanism, True, confidence, 4.0)
    weights: list[float] = []
    for seed in range(2):
        seed_lanes = range(seed * AGENTS, (seed + 1) * AGENTS)
        noise = privacy.noise[:, 1]
        own = {lane: sharing.own[lane // WIDTH, :, lane % WIDTH] for lane in seed_lanes}
        if decide_from == "released":  # one noise for the sum; here it is the first agent's
            sent = {lane: own[lane] + (noise[seed] if lane == seed_lanes[0] else 0.0) for lane in seed_lanes}
        else:
            sent = {lane: own[lane] + noise[lane] for lane in seed_lanes}
        releases = {lane: Release(2, packed, rounds, mechanism.digest()) for lane, packed in sent.items()}
        for lane in seed_lanes:
            block, l = lane // WIDTH, lane % WIDTH
            if decide_from == "released":
                held = pool.all_alike(list(releases.values()), DIMENSION, KNOWN)
            else:
                exact = np.ascontiguousarray(privacy.exact[block, :, l])
                others = [each for k, each in releases.items() if k != lane]
                held = pool.beside_own(exact, rounds, others, KNOWN)
                weights.append((held.records - rounds) / (rounds * (AGENTS - 1)))
            assert lane_states[block].statistics.array[:, l] == pytest.approx(held.packed, rel=1e-9, abs=1e-9)
            assert lane_states[block].numbers[COUNT][l] == pytest.approx(held.records)
    return weights


@pytest.mark.parametrize("rounds", [5, 60, 70])
@pytest.mark.parametrize("distance", [0.0, 0.5])
def test_agents_whose_partners_differ_learn_what_live_ones_learn(distance: float, rounds: int) -> None:
    """The same records, round by round, give a live federation the same sums, to 1e-9.

    Up to 63 own rewards peers are also judged by each other.
    """
    scenario = Scenario(agents=5, arms=4, dimension=DIMENSION, horizon=rounds, distance=distance)
    options = Options(algorithm="fed-fairx-bayes", partners="differ", schedule=Doubling(start=4))
    setting = setting_for(scenario, options)
    contexts, rewards = records(setting, rounds)
    fed = ffx.Federation(agents=5, dimension=DIMENSION, horizon=rounds, options=options, seed=0)
    for t in range(rounds):
        for i, agent in enumerate(fed.agents):
            agent.learn(contexts[t, i][None], [rewards[t, i]])
        fed.end_round()
    held = lanes(setting).learner
    believed = []
    for i, agent in enumerate(fed.agents):
        ridge = held.numbers[RIDGE][i]
        gram, moment = unpack(np.ascontiguousarray(held.statistics.array[:, i]))
        assert agent.gram == pytest.approx(gram + ridge * np.eye(COLUMNS), rel=1e-9, abs=1e-9)
        moment += ridge * held.mean.array[:, i]
        assert agent.moment == pytest.approx(moment, rel=1e-9, abs=1e-9)
        believed.append(float(np.trace(gram)))
    # Who share one θ count most of all records; of partners far apart everybody believes little.
    everything = float((contexts**2).sum())
    if rounds >= 60:
        assert min(believed) > 0.5 * everything if distance == 0 else max(believed) < 0.3 * everything


@pytest.mark.parametrize("distance", [0.0, 1.0])
def test_private_agents_whose_partners_differ_hold_what_live_ones_would(distance: float) -> None:
    """After the first synchronisation, in round 30; two seeds, one of which lies across two blocks."""
    scenario = Scenario(agents=AGENTS, arms=4, dimension=DIMENSION, horizon=60, distance=distance)
    options = options_for(
        "priv-fairx-bayes",
        schedule=Doubling(start=30),
        epsilon=300.0,
        decide_from="own+released",
        partners="differ",
    )
    before, setting = (setting_for(scenario, options, (0, 1)) for _ in range(2))
    run(0, 29, *before)
    run(0, 30, *setting)
    sharing, privacy = setting.sharing, setting.privacy
    mechanism = options.budget(sharing.most).calibrate()
    pool, believed = Pool(mechanism, True), []
    for lane in range(2 * AGENTS):
        block, l = lane // WIDTH, lane % WIDTH
        state, was = lanes(setting, block).learner, lanes(before, block).learner
        exact = np.ascontiguousarray(privacy.exact[block, :, l])
        gram, moment = unpack(exact)
        ridge, variance = state.numbers[RIDGE][l], state.numbers[NOISE_VARIANCE][l]
        assert (ridge, variance) == (was.numbers[RIDGE][l], was.numbers[NOISE_VARIANCE][l])  # of round 16
        inverse, mean = np.linalg.inv(gram + ridge * np.eye(COLUMNS)), was.mean.array[:, l].copy()
        estimate = inverse @ (moment + ridge * mean)
        estimate[DIMENSION] -= state.numbers[CENTRE][l]  # of the intercept, how far from the public point
        size = float(estimate @ estimate + variance * np.trace(inverse))
        seed = lane // AGENTS
        others = {
            str(k): Release(
                1, sharing.own[k // WIDTH, :, k % WIDTH] + privacy.noise[k, 0], 30, mechanism.digest()
            )
            for k in range(seed * AGENTS, (seed + 1) * AGENTS)
            if k != lane
        }
        judged = pool.judged(exact, others, Beliefs(variance, size, ridge, mean, 30.0), {})
        assert state.statistics.array[:, l] == pytest.approx(exact + judged.statistics, rel=1e-7, abs=1e-9)
        believed.append(np.mean(list(judged.powers.values())))
    assert (np.mean(believed) > 0.3) == (distance == 0)


class Given:
    """Base noise that was drawn before."""

    is_private, fingerprint, owner = False, "given", None

    def __init__(self, base: np.ndarray) -> None:
        self.base = base

    def __call__(self, number: int, count: int, place: bytes, /) -> np.ndarray:  # noqa: ARG002
        return self.base[number - 1, :count]


@pytest.mark.parametrize("centred", [False, True])
@pytest.mark.parametrize(
    ("decide_from", "partners"),
    [("released", "alike"), ("own+released", "alike"), ("own+released", "differ")],
)
def test_with_secure_aggregation_agents_hold_what_live_ones_hold(
    decide_from: str, partners: str, centred: bool
) -> None:
    """The same records and base noise, round by round: sums agree but for the rows' rounding.

    The simulator rounds the noise alone, a live agent its whole row, so each row may differ by a step.
    """
    scenario = Scenario(agents=5, arms=4, dimension=DIMENSION, horizon=60, noise_sd=0.02)  # none is clipped
    options = options_for(
        "priv-fairx-bayes",
        schedule=Doubling(start=15),
        epsilon=50.0,
        decide_from=decide_from,
        partners=partners,
        aggregation="secure",
        centring=scenario.centring if centred else None,
    )
    setting = setting_for(scenario, options)
    contexts, rewards = records(setting, 60)
    fed = ffx.Federation(agents=5, dimension=DIMENSION, horizon=60, options=options, seed=0)
    for i, agent in enumerate(fed.agents):
        stream = agent.privatizer.stream
        size = packed_size(COLUMNS)
        stream.noise = Given(generator(0, "privacy", i).standard_normal((3, size)))
    for t in range(60):
        for i, agent in enumerate(fed.agents):
            agent.learn(contexts[t, i][None], [rewards[t, i]])
        fed.end_round()
    assert fed.syncs == 3
    assert {name for agent in fed.agents for name in agent._exchange.latest} == {
        *(agent.name for agent in fed.agents),
        TOTAL if decide_from == "released" else OTHERS,
    }
    held = lanes(setting).learner
    step = fed.agents[0].privatizer.mechanism.share.step
    for i, agent in enumerate(fed.agents):
        ridge = held.numbers[RIDGE][i]
        gram, moment = unpack(np.ascontiguousarray(held.statistics.array[:, i]))
        times = (12 if centred else 1) * (5 if partners == "differ" else 1)  # weights follow the sums
        close = {"rel": 1e-9, "abs": 5 * step * times}
        assert agent.gram == pytest.approx(gram + ridge * np.eye(COLUMNS), **close)
        assert agent.moment == pytest.approx(moment + ridge * held.mean.array[:, i], **close)
        assert agent.gram.trace() > 1000 * step


@pytest.mark.long
def test_with_secure_aggregation_partners_far_apart_do_not_hurt() -> None:
    """The others are judged as one: beside learning alone, at a large ε, where they tell most."""
    ratios = {}
    for distance in (0.0, 0.1, 0.5):
        world = Scenario(agents=6, arms=6, dimension=3, horizon=1500, distance=distance)
        private = {"algorithm": "priv-fairx-bayes", "epsilon": 16.0, "aggregation": "secure"}
        alone, alike, differ = (
            float(simulate(world, seeds=12, **how).fairness_regret[:, -1].mean())
            for how in ({"algorithm": "fairx-bayes"}, private, {**private, "partners": "differ"})
        )
        ratios[distance] = alike / alone, differ / alone
    assert ratios[0.0][1] < 0.75
    assert ratios[0.1][1] < 1.05
    assert ratios[0.5][1] < 1.05 < 3.0 < ratios[0.5][0]


def test_sums_are_lifted_each_by_its_own_release_and_only_where_seeds_synchronise() -> None:
    """More seeds than a block has lanes, at different releases, some of them not due."""
    scenario = Scenario(agents=2, arms=4, dimension=DIMENSION, horizon=500)
    seeds = WIDTH + 5
    setting = setting_for(scenario, options_for("priv-fairx-linucb"), tuple(range(seeds)))
    sharing, privacy, syncs = setting.sharing, setting.privacy, setting.tally.syncs
    rng = np.random.default_rng(1)
    before = rng.normal(size=sharing.totals.shape) * privacy.shift[0]
    sharing.totals[:] = before
    sharing.counts[:] = np.where(np.arange(seeds) % 3 == 0, -1.0, 10.0)
    syncs[:] = rng.integers(0, privacy.shift.size, seeds)
    work = decision_scratch(vectors(setting.workspace.memory), 1, 4, DIMENSION).work
    lift_totals(sharing, privacy, syncs, work)
    floored = 0
    for seed in range(seeds):
        expected, shift = before[seed], privacy.shift[syncs[seed]]
        if sharing.counts[seed] >= 0.0:
            expected = pooling.lift(before[seed], shift)
            floored += bool(np.linalg.eigvalsh(unpack(before[seed])[0]).min() < -shift)
        assert sharing.totals[seed].tolist() == expected.tolist()
    assert 3 <= floored < seeds - seeds // 3  # or a floor that is missing, or that all get, would not show


class OddOne(Scenario):
    """One agent's θ is the opposite of all the others'."""

    def parameters(self, seed: int) -> np.ndarray:
        found = np.tile(self.parameter(seed), (self.agents, 1))
        found[0] *= -1.0
        return found


@pytest.mark.long
def test_one_odd_partner_does_not_spoil_the_others() -> None:
    """Five of six share θ: they gain nearly as if the sixth were not there. Added up, it makes all worse."""
    world = OddOne(agents=6, arms=6, dimension=3, horizon=1500)
    alone, alike, differ = (
        float(simulate(world, algorithm=algorithm, seeds=4, **more).fairness_regret[:, -1].mean())
        for algorithm, more in (
            ("fairx-bayes", {}),
            ("fed-fairx-bayes", {}),
            ("fed-fairx-bayes", {"partners": "differ"}),
        )
    )
    assert differ < 0.65 * alone
    assert alike > 3.0 * alone


@pytest.mark.long
def test_partners_far_apart_do_not_hurt_and_those_alike_help() -> None:
    """Beside learning alone; without it, partners a whole unit apart make everybody several times worse."""
    means = {}
    for distance in (0.0, 1.0):
        world = Scenario(agents=6, arms=6, dimension=3, horizon=1500, distance=distance)
        means[distance] = {
            name: float(simulate(world, algorithm=algorithm, seeds=4, **more).fairness_regret[:, -1].mean())
            for name, algorithm, more in (
                ("alone", "fairx-bayes", {}),
                ("alike", "fed-fairx-bayes", {}),
                ("differ", "fed-fairx-bayes", {"partners": "differ"}),
            )
        }
    assert means[0.0]["differ"] < 0.6 * means[0.0]["alone"]
    assert means[0.0]["differ"] < 1.25 * means[0.0]["alike"]
    assert means[1.0]["differ"] < 1.15 * means[1.0]["alone"]
    assert means[1.0]["alike"] > 3.0 * means[1.0]["alone"]
