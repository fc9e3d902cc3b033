"""Where the further starts are taken."""

from __future__ import annotations

import numpy as np
import pytest

from fedfairx.core import merit as kinds
from fedfairx.core.optimism import problem
from fedfairx.core.optimism.solver import begin_starts, find_starts, starts_of, take_decision
from fedfairx.lanes.rows import floats
from fedfairx.lanes.vector_llvm import WIDTH
from instances import Instance, merit_rows, realistic, region_of, scratch_of


def starts(
    instance: Instance, best: float, *, here: np.ndarray | None = None, distance: float = 0.0
) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
    """The arms that are worth a start, and the (pull, step) of those that get one, best bounds first."""
    shape = instance.contexts.shape
    block, merit = scratch_of(*shape), merit_rows(kinds.Exponential(1.0))
    block.model.array[problem.HERE_STEP] = 0.0 if here is None else here
    found = starts_of(block, *shape)
    take_decision(floats(instance.contexts), region_of(instance), merit, block, 0, found)
    find_starts(found, best, distance)
    worth = np.nonzero(np.isfinite(found.bounds.array))[0]
    count = begin_starts(found, best)
    assert (found.work.lane.array[problem.DONE, :count] == 0.0).all()
    assert (found.work.lane.array[problem.DONE, count:] == 1.0).all()
    model = found.work.model.array
    return worth, model[problem.HERE_PULL, :, :count], model[problem.HERE_STEP, :, :count]


def upper_bounds(instance: Instance) -> tuple[np.ndarray, np.ndarray]:
    x = instance.contexts
    width = np.sqrt((x * np.linalg.solve(instance.gram, x.T).T).sum(axis=1))
    return x @ instance.estimate + instance.radius * width, width


@pytest.mark.long
def test_every_arm_that_could_lead_to_more_is_worth_a_start() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        instance = realistic(rng)
        upper, _ = upper_bounds(instance)
        best = float(np.median(upper)) + 1e-6
        assert (starts(instance, best)[0] == np.nonzero(upper > best)[0]).all()


def test_starts_are_the_arms_of_the_largest_upper_bounds_each_at_its_own_direction() -> None:
    rng = np.random.default_rng(1)
    most = 0
    for _ in range(60):
        instance = realistic(rng)
        upper, width = upper_bounds(instance)
        worth, pulls, steps = starts(instance, float(np.quantile(upper, 0.2)) + 1e-9)
        chosen = worth[np.argsort(-upper[worth])][:WIDTH]
        most = max(most, worth.size)
        assert pulls.shape[1] == chosen.size
        for place, arm in enumerate(chosen):
            # (pull, step) = (Lu, L⁻ᵀu) of the unit vector u along z_a.
            assert np.allclose(pulls[:, place], instance.contexts[arm] / width[arm], rtol=1e-9)
            assert np.isclose(pulls[:, place] @ steps[:, place], 1.0, rtol=1e-9)
    assert most > WIDTH


def test_an_arm_at_zero_has_no_direction() -> None:
    instance = Instance(np.zeros((3, 2)), np.eye(2), np.array([1.0, 1.0]), 1.0)
    assert starts(instance, -1.0)[0].size == 0


def test_an_arm_near_the_point_in_hand_is_no_start() -> None:
    rng = np.random.default_rng(4)
    for _ in range(30):
        instance = realistic(rng)
        _, width = upper_bounds(instance)
        here = np.linalg.solve(instance.gram, instance.contexts[0]) / width[0]
        for distance in (0.3, 1.0, 1.6):
            along = instance.contexts @ here / width
            apart = np.sqrt(np.maximum(2.0 - 2.0 * along, 0.0)) > distance
            worth, _, _ = starts(instance, -1e9, here=here, distance=distance)
            assert (worth == np.nonzero(apart)[0]).all()
