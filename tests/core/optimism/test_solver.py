"""The optimistic parameter against brute force, and against what it must never do."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

import reference as ref
from fedfairx.core import merit as kinds
from fedfairx.core.agent_kernels import AgentMemory, decide_one, decision_workspace
from fedfairx.core.confidence import Confidence
from fedfairx.core.optimism.problem import POLICY, PROVED, THETA, Region
from fedfairx.core.optimism.solver import FAIR_PGD, WINNER, Solver, optimise
from fedfairx.lanes.rows import floats, vectors
from fedfairx.lanes.vector_llvm import WIDTH
from instances import Instance, brute_force, merit_rows, merits, realistic, scratch_of, solve, tame, wild

seeds = st.integers(0, 2**32 - 1)
PGD = Solver(rule=FAIR_PGD, max_steps=100, rate=1.0)
KINDS = ("exponential", "affine", "power", "logistic", "custom")


@pytest.mark.long
def test_not_worse_than_brute_force_for_the_exponential_merit() -> None:
    # 150 instances of the stated ranges; the solver may miss 1 in 1 000, so two misses in 150 at its bar
    # would have probability below 1.1 %. At these seeds there is none.
    rng = np.random.default_rng(20240611)
    misses = 0
    for number in range(150):
        instance, steepness = wild(rng), 10 ** rng.uniform(-1, 2)
        pair = (kinds.Exponential(steepness), ref.Exponential(steepness))
        answer = solve(instance, pair)
        best = brute_force(instance, pair[1], 1000, number)
        misses += best - answer.value > 1e-6
        assert answer.value >= answer.value_at_estimate - 1e-12 * (1 + abs(answer.value))
        assert answer.excess <= 1e-6
    assert misses <= 1


@pytest.mark.parametrize("kind", KINDS)
def test_realistic_decisions_of_every_merit_are_as_good_as_brute_force(kind: str) -> None:
    # 60 each, of the kind that an agent meets. Where a merit levels off, arm directions alone can miss the
    # best (measured: 0 in 300 for each), so one miss in 60 is let pass; at these seeds there is none.
    rng = np.random.default_rng(7)
    worst = []
    for number in range(60):
        instance, pair = realistic(rng), merits(rng)[kind]
        answer = solve(instance, pair)
        best = brute_force(instance, pair[1], 300, number)
        worst.append(best - answer.value)
    assert np.sort(worst)[-2] <= 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_misses_where_means_leave_the_range_of_a_merit_are_few(kind: str) -> None:
    # Measured: at most 6 in 300. At that rate more than 10 in 150 have probability below 1e-3.
    rng = np.random.default_rng(100)
    misses = 0
    for number in range(150):
        instance, pair = tame(rng), merits(rng)[kind]
        answer = solve(instance, pair)
        best = brute_force(instance, pair[1], 300, number)
        misses += best - answer.value > 1e-6
    assert misses <= (0 if kind == "exponential" else 10)


@pytest.mark.parametrize("kind", KINDS)
@pytest.mark.parametrize(
    "solver", [Solver(), PGD, Solver(max_steps=3)], ids=["fixed-point", "pgd", "3 steps"]
)
@given(seed=seeds)
@example(seed=622284710)  # one dimension, where two images in turn may be opposite
def test_never_below_the_objective_at_the_estimate_and_never_outside(
    kind: str, solver: Solver, seed: int
) -> None:
    rng = np.random.default_rng(seed)
    instance = wild(rng) if rng.random() < 0.5 else realistic(rng)
    answer = solve(instance, merits(rng)[kind], solver)
    assert answer.value >= answer.value_at_estimate - 1e-11 * (1 + abs(answer.value))
    assert answer.excess <= 1e-6


@pytest.mark.parametrize("kind", KINDS)
def test_the_policy_is_that_of_theta(kind: str) -> None:
    rng = np.random.default_rng(3)
    for _ in range(50):
        instance, pair = realistic(rng), merits(rng)[kind]
        answer = solve(instance, pair, uniform=0.999999)
        expected = ref.policy(answer.theta, instance.contexts, pair[1])
        assert np.abs(answer.policy - expected).max() <= 1e-12
        assert answer.action == ref.draw(answer.policy, 0.999999)


def test_one_start_is_not_enough_and_more_are_taken() -> None:
    # θ̂ favours the first arm; far along the second axis there is more. One start from θ̂ stays there.
    contexts = np.array([[1.0, 0.0], [0.0, 1.0]])
    instance = Instance(contexts, np.diag([100.0, 0.25]), np.array([1.0, 0.0]), 1.0)
    pair = (kinds.Exponential(10.0), ref.Exponential(10.0))
    single = solve(instance, pair, PGD)
    answer = solve(instance, pair)
    _, best = ref.optimistic_bruteforce(instance.estimate, instance.gram, 1.0, contexts, pair[1])
    assert answer.value >= best - 1e-9
    assert answer.value > single.value + 0.1


@given(seed=seeds)
def test_winner_takes_all_is_linucb(seed: int) -> None:
    instance = realistic(np.random.default_rng(seed))
    pair = (kinds.Exponential(10.0), ref.Exponential(10.0))
    answer = solve(instance, pair, Solver(rule=WINNER))
    theta, arm = ref.optimistic_arm(instance.estimate, instance.gram, instance.radius, instance.contexts)
    assert answer.policy[arm] == 1.0
    assert answer.policy.sum() == 1.0
    assert np.abs(answer.theta - theta).max() <= 1e-9


@pytest.mark.parametrize("arms", [1, 2, 50, 51, 100])
def test_minimum_share_stays_a_policy_however_many_arms(arms: int) -> None:
    rng = np.random.default_rng(arms)
    instance = Instance(rng.random((arms, 3)), np.eye(3), rng.random(3), 1.0)
    answer = solve(instance, (kinds.Exponential(1.0), ref.Exponential(1.0)), Solver(rule=WINNER, floor=0.02))
    assert answer.policy.min() >= min(0.02, 1 / arms) - 1e-15
    assert answer.policy.sum() == pytest.approx(1.0, abs=1e-12)


def test_pgd_is_the_papers_and_can_be_worse() -> None:
    rng = np.random.default_rng(11)
    gaps = []
    for _ in range(40):
        instance, pair = realistic(rng), (kinds.Exponential(30.0), ref.Exponential(30.0))
        gaps.append(solve(instance, pair).value - solve(instance, pair, PGD).value)
    assert min(gaps) >= -1e-9
    assert max(gaps) > 1e-4  # which is why it is not the default


@pytest.mark.parametrize("contexts", [np.zeros((4, 3)), np.ones((1, 3)), np.ones((6, 3)) * 0.5])
def test_nothing_to_choose_is_uniform(contexts: np.ndarray) -> None:
    instance = Instance(contexts, np.eye(3), np.array([0.3, -0.1, 0.2]), 1.0)
    answer = solve(instance, (kinds.Exponential(10.0), ref.Exponential(10.0)))
    assert np.abs(answer.policy - 1 / len(contexts)).max() <= 1e-15
    assert np.isfinite(answer.theta).all()


@pytest.mark.long
def test_starts_of_a_merit_with_kinks_are_not_given_up() -> None:
    # Wild affine instances whose best answer is found by a start that looks hopeless after a step or two.
    rng = np.random.default_rng(5)
    for number in range(39):
        instance, pair = wild(rng), merits(rng)["affine"]
        if number in (5, 17, 31, 38):
            best = brute_force(instance, pair[1], 300, number)
            assert best - solve(instance, pair).value <= 1e-6


@pytest.mark.long
def test_a_lane_decides_the_same_bits_beside_neighbours_of_other_merits() -> None:
    # Instances that one start does not settle, so that all the ways a neighbour might disturb are taken.
    rng = np.random.default_rng(8)
    arms, dimension = 6, 3
    contexts = rng.random((arms, dimension, WIDTH)) / np.sqrt(dimension)
    inverse = np.repeat(np.eye(dimension)[:, :, None], WIDTH, axis=2)
    region = Region(vectors(rng.random((dimension, WIDTH))), vectors(inverse), floats(np.array([1.5])))
    results = []
    for other in (kinds.Exponential(10.0), kinds.Logistic(8.0, 0.4, 0.1)):
        work = scratch_of(arms, dimension, WIDTH)
        rows = merit_rows(*(kinds.Exponential(10.0) if l % 2 == 0 else other for l in range(WIDTH)))
        optimise(vectors(contexts), region, rows, work, Solver())
        results.append((work.model.array[THETA, :, ::2].copy(), work.lane.array[PROVED, ::2].copy()))
    assert (results[0][0] == results[1][0]).all()
    assert (results[0][1] < 2.0).any()  # or the test shows nothing


@pytest.mark.parametrize("left_behind", [np.nan, np.inf, -np.inf, 1e300])
@pytest.mark.parametrize("merit", [kinds.Exponential(10.0), kinds.Logistic(8.0, 0.4, 0.1)])
def test_what_the_room_held_before_changes_no_bit(left_behind: float, merit: kinds.Merit) -> None:
    # A decision among more or fewer arms lays the same room out in another way.
    rng = np.random.default_rng(8)
    arms, dimension = 6, 3
    contexts = rng.random((arms, dimension, WIDTH)) / np.sqrt(dimension)
    inverse = np.repeat(np.eye(dimension)[:, :, None], WIDTH, axis=2)
    region = Region(vectors(rng.random((dimension, WIDTH))), vectors(inverse), floats(np.array([1.5])))
    alone = AgentMemory.start(dimension, merit=merit, confidence=Confidence(scale=1.5), solver=Solver())
    results = []
    for held in (0.0, left_behind):
        work = scratch_of(arms, dimension, WIDTH)
        for part in (work.arms, work.model, work.lane, work.square, work.spare):
            part.array.fill(held)
        optimise(vectors(contexts), region, merit_rows(*[merit] * WIDTH), work, Solver())
        assert (work.lane[PROVED] < 2.0).any()  # or no further starts were taken
        room, out = decision_workspace(arms, dimension), np.zeros(arms + 2 * dimension)
        room.fill(held)
        decide_one(contexts[:, :, 0].copy(), alone.memory, room, out, 0.5, *alone.variant)
        results.append((work.model.array[THETA].tobytes(), work.arms.array[POLICY].tobytes(), out.tobytes()))
    assert results[0] == results[1]
