"""The objective and its gradient at a point, and the climb from it."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

import reference as ref
from fedfairx.core import merit as kinds
from fedfairx.core.optimism import problem, solver
from fedfairx.core.optimism.problem import Region, Scratch
from fedfairx.lanes.rows import Rows, by_lane, floats
from fedfairx.lanes.vector_llvm import WIDTH
from instances import Instance, in_rows, merit_rows, merits, realistic, region_of, scratch_of

KINDS = ("exponential", "affine", "power", "logistic", "custom")


def at(instance: Instance, step: np.ndarray) -> tuple[Region, Scratch]:
    """A block of one lane at the point u with L⁻ᵀu = step."""
    arms, dimension = instance.contexts.shape
    work = scratch_of(arms, dimension)
    work.model.array[problem.HERE_STEP] = step
    work.model.array[problem.HERE_PULL] = instance.gram @ step
    return region_of(instance), work


def inside(rng: np.random.Generator, instance: Instance) -> np.ndarray:
    u = rng.normal(size=instance.estimate.size)
    u *= rng.random() / np.linalg.norm(u)
    return np.linalg.solve(np.linalg.cholesky(instance.gram).T, u)


@pytest.mark.long
@pytest.mark.parametrize("kind", KINDS)
def test_value_and_gradient_of_every_merit(kind: str) -> None:
    rng = np.random.default_rng(4)
    for _ in range(25):
        instance, (ours, theirs) = realistic(rng, arms=12, dimension=6), merits(rng)[kind]
        region, work = at(instance, inside(rng, instance))
        problem.evaluate(floats(instance.contexts), region, merit_rows(ours), work)
        theta = work.model.array[problem.THETA].copy()
        weights = work.arms.array[problem.WEIGHTS]
        assert work.lane[problem.OBJECTIVE] == pytest.approx(ref.objective(theta, instance.contexts, theirs))
        gradient = weights @ instance.contexts
        expected = ref.objective_gradient(theta, instance.contexts, theirs)
        assert gradient == pytest.approx(expected, rel=1e-5, abs=1e-6)
        # And the oracle's gradient is the derivative, where no mean lies on a kink.
        means = instance.contexts @ theta
        if min(np.abs(means[:, None] - np.array([0.0, 1.0])).min(), 1.0) > 1e-4:
            h = 1e-6
            for j in range(theta.size):
                shifted = np.eye(theta.size)[j] * h
                up = ref.objective(theta + shifted, instance.contexts, theirs)
                down = ref.objective(theta - shifted, instance.contexts, theirs)
                assert gradient[j] == pytest.approx((up - down) / (2 * h), rel=1e-4, abs=1e-6)


def climbed(instance: Instance, merit: kinds.Merit, tolerance: float, steps: int) -> tuple[Region, Scratch]:
    region, work = at(instance, np.zeros(instance.estimate.size))
    solver.ascend(floats(instance.contexts), region, merit_rows(merit), work, tolerance, steps)
    return region, work


@pytest.mark.long
def test_it_ends_at_a_fixed_point() -> None:
    rng = np.random.default_rng(1)
    for _ in range(20):
        instance = realistic(rng)
        region, work = climbed(instance, kinds.Exponential(10.0), 1e-11, 1000)
        u = work.model.array[problem.HERE_STEP].copy()
        assert work.lane[problem.DONE] == 1.0
        assert u @ instance.gram @ u == pytest.approx(1.0, abs=1e-9)
        solver.image(floats(instance.contexts), region, work)
        away = work.model.array[problem.STEP] - u
        assert np.sqrt(max(away @ instance.gram @ away, 0.0)) <= 1e-9


@pytest.mark.parametrize("kind", KINDS)
def test_it_never_ends_below_a_point_that_it_saw(kind: str) -> None:
    rng = np.random.default_rng(2)
    for _ in range(40):
        instance, (ours, theirs) = realistic(rng), merits(rng)[kind]
        instance = Instance(instance.contexts * 3, instance.gram, instance.estimate, instance.radius * 3)
        for steps in (1, 5, 100):
            _, work = climbed(instance, ours, 1e-8, steps)
            value, best = work.lane[problem.OBJECTIVE], work.lane[problem.BEST]
            assert value >= best - 1e-11 * (1 + abs(best))
            assert value == pytest.approx(
                ref.objective(work.model.array[problem.THETA], instance.contexts, theirs)
            )


def test_settle_goes_back_to_the_best_point_seen() -> None:
    instance = realistic(np.random.default_rng(3))
    region, work = climbed(instance, kinds.Exponential(10.0), 1e-10, 1000)
    best = work.model.array[problem.HERE_STEP].copy()
    value = work.lane[problem.OBJECTIVE]
    # As if it had arrived at θ̂ after it had seen the point above.
    work.model.array[problem.BEST_STEP], work.lane[problem.BEST] = best, value
    work.model.array[problem.HERE_STEP] = 0.0
    problem.evaluate(floats(instance.contexts), region, merit_rows(kinds.Exponential(10.0)), work)
    work.lane[problem.DONE] = 1.0
    solver.settle(floats(instance.contexts), region, merit_rows(kinds.Exponential(10.0)), work)
    assert (work.model.array[problem.HERE_STEP] == best).all()
    assert work.lane[problem.OBJECTIVE] == value
    assert work.lane[problem.DONE] == 0.0  # so that nothing is proved of it


@pytest.mark.parametrize("kind", KINDS)
def test_projected_gradient_stays_inside_and_never_ends_below_its_start(kind: str) -> None:
    rng = np.random.default_rng(5)
    for _ in range(25):
        instance, (ours, theirs) = realistic(rng), merits(rng)[kind]
        region, work = at(instance, np.zeros(instance.estimate.size))
        solver.ascend_pgd(
            floats(instance.contexts), region, merit_rows(ours), work, float(rng.choice([0.1, 1.0, 30.0])), 30
        )
        away = work.model.array[problem.THETA] - instance.estimate
        assert away @ instance.gram @ away <= instance.radius**2 * (1 + 1e-9)
        value = ref.objective(work.model.array[problem.THETA], instance.contexts, theirs)
        assert value >= ref.objective(instance.estimate, instance.contexts, theirs) - 1e-12


def block_of(instances: list[Instance], merit_list: list[Any]) -> tuple[Rows, Region, Rows, Scratch]:
    contexts = np.stack([each.contexts for each in instances], axis=2)
    region = Region(
        in_rows(np.stack([each.estimate for each in instances], axis=1)),
        in_rows(np.stack([np.linalg.inv(each.gram) for each in instances], axis=2)),
        in_rows(np.array([[each.radius for each in instances]])),
    )
    work = scratch_of(contexts.shape[0], contexts.shape[1], len(instances))
    return in_rows(contexts), region, merit_rows(*merit_list), work


@pytest.mark.long
def test_a_lane_climbs_to_the_same_bits_in_any_company_and_alone() -> None:
    rng = np.random.default_rng(6)
    instances = []
    while len(instances) < WIDTH + 3:
        each = realistic(rng, arms=6, dimension=3)
        if each.contexts.shape == (6, 3):
            instances.append(each)
    merit = kinds.Exponential(10.0)
    first = block_of(instances[:WIDTH], [merit] * WIDTH)
    solver.ascend(*first, 1e-6, 100)
    order = [int(l) for l in rng.permutation(WIDTH + 3)[:WIDTH]]
    second = block_of([instances[l] for l in order], [merit] * WIDTH)
    solver.ascend(*second, 1e-6, 100)
    for place, l in enumerate(order):
        alone = block_of([instances[l]], [merit])
        solver.ascend(*alone, 1e-6, 100)
        for other, lane in ((alone, 0), (first, l)):
            if lane < WIDTH:
                for part, row in (("model", problem.THETA), ("arms", problem.POLICY)):
                    here, there = (by_lane(getattr(each[3], part)).array[row] for each in (second, other))
                    assert (here[:, place] == there[:, lane]).all()
