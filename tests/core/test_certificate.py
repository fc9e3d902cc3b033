"""The certificate never lies: where it says best, brute force finds nothing better."""

from __future__ import annotations

import numpy as np
import pytest

import reference as ref
from fedfairx.core import certificate, problem
from fedfairx.core import merit as kinds
from fedfairx.core.merit_table import table
from fedfairx.core.problem import Region, Scratch
from instances import Instance, merits, realistic, wild

WHOLE_BALL = 2.0


def fixed_points(instance: Instance, steepness: float, starts: int) -> list[np.ndarray]:
    """θ at the fixed points that the oracle reaches from θ̂ and from some arms: often not the best one."""
    ball = ref._ball(
        instance.estimate, instance.gram, instance.radius, instance.contexts, ref.Exponential(steepness)
    )
    begin = np.vstack([np.zeros((1, instance.estimate.size)), ball.arm_directions()[: starts - 1]])
    u, _ = ref._ascend(ball, begin, iterations=100, tolerance=1e-4)
    return [ball.theta(ref._refine(ball, each)) for each in u]


def at(instance: Instance, steepness: float, theta: np.ndarray) -> tuple[Region, Scratch]:
    """A block of one lane at this θ, filled by NumPy alone."""
    x, merit = instance.contexts, ref.Exponential(steepness)
    inverse = np.linalg.inv(instance.gram)
    work = problem.scratch(*x.shape, None)
    work.arms[problem.MEANS, :, 0] = x @ theta
    work.arms[problem.POLICY, :, 0] = ref.policy(theta, x, merit)
    gradient = ref.objective_gradient(theta, x, merit)
    work.lane[problem.OBJECTIVE, 0] = ref.objective(theta, x, merit)
    work.lane[problem.NORM, 0] = np.sqrt(gradient @ inverse @ gradient)
    work.lane[problem.DONE, 0] = 1.0
    return Region(instance.estimate[:, None].copy(), inverse, np.array([instance.radius])), work


def proved(
    region: Region,
    work: Scratch,
    contexts: np.ndarray,
    merit: kinds.Merit,
    distance: float,
    *,
    sharp: bool = True,
) -> bool:
    work.lane[problem.PROVED, 0] = 0.0
    certificate.half_widths(contexts, region, work)
    certificate.certify(contexts, region, table([merit]), work, distance, sharp)
    return bool(work.lane[problem.PROVED, 0] == distance)


def test_what_is_proved_of_the_whole_ball_brute_force_can_not_beat() -> None:
    rng = np.random.default_rng(0)
    certified, others, loosely = 0, 0, 0
    for number in range(300):
        instance = wild(rng) if number % 5 == 0 else realistic(rng, arms=12, dimension=6)
        if instance.contexts.size > 800:
            continue
        steepness = 10 ** rng.uniform(-1, 2)
        merit, x = ref.Exponential(steepness), instance.contexts
        best = -np.inf
        for theta in fixed_points(instance, steepness, 4):
            region, work = at(instance, steepness, theta)
            if not proved(region, work, x, kinds.Exponential(steepness), WHOLE_BALL):
                others += 1
                continue
            certified += 1
            loosely += proved(region, work, x, kinds.Exponential(steepness), WHOLE_BALL, sharp=False)
            if best == -np.inf:
                _, best = ref.optimistic_bruteforce(
                    instance.estimate, instance.gram, instance.radius, x, merit, 200, number
                )
            assert best <= ref.objective(theta, x, merit) + 1e-9
    assert min(certified, others) >= 40  # or the test shows nothing
    assert 0 < loosely < certified  # the sharp form proves what the loose one does, and more


@pytest.mark.parametrize("distance", [0.25, 0.7, 1.2])
def test_what_is_proved_within_a_distance_holds_there(distance: float) -> None:
    rng = np.random.default_rng(1)
    certified = 0
    for _ in range(120):
        instance = realistic(rng, arms=8, dimension=4)
        steepness = 10 ** rng.uniform(0, 1.5)
        factor = np.linalg.cholesky(instance.gram).T
        for theta in fixed_points(instance, steepness, 3):
            region, work = at(instance, steepness, theta)
            if not proved(region, work, instance.contexts, kinds.Exponential(steepness), distance):
                continue
            certified += 1
            u = factor @ (theta - instance.estimate) / instance.radius
            near = u + distance * rng.random((300, 1)) * ref._unit(rng.normal(size=(300, u.size)))
            near = near[np.linalg.norm(near, axis=1) <= 1.0]
            means = (
                instance.estimate + instance.radius * np.linalg.solve(factor, near.T).T
            ) @ instance.contexts.T
            values = (ref.policy_of_means(means, ref.Exponential(steepness)) * means).sum(axis=1)
            assert (values <= work.lane[problem.OBJECTIVE, 0] + 1e-9).all()
    assert certified >= 20


def test_half_widths_are_how_far_a_mean_can_move_against_the_policy() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        instance = realistic(rng)
        region, work = at(instance, 10.0, instance.estimate)
        certificate.half_widths(instance.contexts, region, work)
        centred = instance.contexts - work.arms[problem.POLICY, :, 0] @ instance.contexts
        squares = (centred * np.linalg.solve(instance.gram, centred.T).T).sum(axis=1)
        exact = instance.radius * np.sqrt(np.maximum(squares, 0.0))
        assert work.arms[problem.WIDTHS, :, 0] == pytest.approx(exact, abs=1e-7)
        certificate.coarse_half_widths(instance.contexts, region, work)
        assert (work.arms[problem.WIDTHS, :, 0] >= exact - 1e-9).all()


def test_the_sharp_bound_is_a_frobenius_norm() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        instance = realistic(rng)
        region, work = at(instance, 10.0, instance.estimate)
        certificate.half_widths(instance.contexts, region, work)
        share = work.arms[problem.SHARE, :, 0] = rng.random(instance.contexts.shape[0])
        found = certificate.frobenius(instance.contexts, region, work)
        centred = instance.contexts - work.arms[problem.POLICY, :, 0] @ instance.contexts
        z = np.linalg.solve(np.linalg.cholesky(instance.gram), centred.T)
        expected = instance.radius**2 * np.linalg.norm((z * share) @ z.T)
        assert found == pytest.approx(expected, rel=1e-6)


def test_only_what_has_arrived_and_only_the_exponential_is_proved() -> None:
    instance = Instance(np.array([[0.1], [0.2]]), np.array([[1e6]]), np.array([0.5]), 1.0)
    region, work = at(instance, 1.0, fixed_points(instance, 1.0, 1)[0])
    assert proved(region, work, instance.contexts, kinds.Exponential(1.0), WHOLE_BALL)
    for kind, (ours, _) in merits(np.random.default_rng(0)).items():
        if kind != "exponential":
            assert not proved(region, work, instance.contexts, ours, WHOLE_BALL)
    work.lane[problem.DONE, 0] = 0.0
    assert not proved(region, work, instance.contexts, kinds.Exponential(1.0), WHOLE_BALL)
