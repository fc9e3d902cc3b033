"""Where the further starts are taken."""

from __future__ import annotations

import numpy as np

from fedfairx.core.problem import Region
from fedfairx.core.restarts import find_starts, keep_largest
from instances import Instance, realistic


def starts(
    instance: Instance, best: float, *, here: np.ndarray | None = None, distance: float = 0.0
) -> tuple[int, np.ndarray, np.ndarray]:
    arms, dimension = instance.contexts.shape
    region = Region(
        instance.estimate[:, None].copy(), np.linalg.inv(instance.gram), np.array([instance.radius])
    )
    pulls, steps = np.zeros((dimension, arms)), np.zeros((dimension, arms))
    here = np.zeros(dimension) if here is None else here
    count = find_starts(instance.contexts, region, best, here, distance, pulls, steps, np.zeros(arms))
    return count, pulls[:, :count], steps[:, :count]


def test_every_arm_that_could_lead_to_more_is_a_start_at_its_own_direction() -> None:
    rng = np.random.default_rng(0)
    for _ in range(30):
        instance = realistic(rng)
        width = np.sqrt(
            (instance.contexts * np.linalg.solve(instance.gram, instance.contexts.T).T).sum(axis=1)
        )
        upper = instance.contexts @ instance.estimate + instance.radius * width
        best = float(np.median(upper)) + 1e-6
        count, pulls, steps = starts(instance, best)
        chosen = np.nonzero(upper > best)[0]
        assert count == chosen.size
        for place, arm in enumerate(chosen):
            # (pull, step) = (Lu, L⁻ᵀu) of the unit vector u along z_a.
            assert np.allclose(pulls[:, place], instance.contexts[arm] / width[arm], rtol=1e-9)
            assert np.isclose(pulls[:, place] @ steps[:, place], 1.0, rtol=1e-9)


def test_an_arm_at_zero_has_no_direction() -> None:
    instance = Instance(np.zeros((3, 2)), np.eye(2), np.array([1.0, 1.0]), 1.0)
    assert starts(instance, -1.0)[0] == 0


def test_an_arm_near_the_point_in_hand_is_no_start() -> None:
    rng = np.random.default_rng(4)
    for _ in range(30):
        instance = realistic(rng)
        _, pulls, steps = starts(instance, -np.inf)
        here = steps[:, 0].copy()
        for distance in (0.3, 1.0, 1.6):
            apart = np.sqrt(np.maximum(2.0 - 2.0 * (pulls.T @ here), 0.0)) > distance
            count, kept, _ = starts(instance, -np.inf, here=here, distance=distance)
            assert count == apart.sum()
            assert np.allclose(kept, pulls[:, apart])


def test_the_starts_of_the_largest_upper_bounds_are_kept() -> None:
    rng = np.random.default_rng(5)
    for count in (1, 3, 16, 40):
        bounds, pulls = rng.normal(size=count), rng.normal(size=(2, count))
        steps, wanted = 2.0 * pulls, np.sort(bounds)[-16:]
        kept = keep_largest(count, 16, pulls, steps, bounds)
        assert kept == min(count, 16)
        assert np.allclose(np.sort(bounds[:kept]), wanted)
        assert np.allclose(steps[:, :kept], 2.0 * pulls[:, :kept])
