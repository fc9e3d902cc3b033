"""The certificate never lies: where it says best, brute force finds nothing better."""

from __future__ import annotations

import numpy as np
import pytest

import reference as ref
from fedfairx.core import certificate, problem
from fedfairx.core import merit as kinds
from fedfairx.core.problem import Region, Scratch
from instances import Instance, merits, realistic, wild

WHOLE_BALL = 2.0


def at_the_oracles_point(instance: Instance, steepness: float) -> tuple[Region, Scratch, np.ndarray]:
    """A block of one lane at the fixed point that the oracle finds, filled by NumPy alone."""
    x, V = instance.contexts, instance.gram
    merit = ref.Exponential(steepness)
    theta, value = ref.optimistic_multistart(instance.estimate, V, instance.radius, x, merit)
    arms, dimension = x.shape
    inverse = np.linalg.inv(V)
    work = problem.scratch(arms, dimension, 1)
    policy = ref.policy(theta, x, merit)
    work.arms[problem.MEANS, :, 0], work.arms[problem.POLICY, :, 0] = x @ theta, policy
    gradient = ref.objective_gradient(theta, x, merit)
    work.lane[problem.OBJECTIVE, 0] = value
    work.lane[problem.NORM, 0] = np.sqrt(gradient @ inverse @ gradient)
    work.lane[problem.DONE, 0] = 1.0
    region = Region(instance.estimate[:, None].copy(), inverse, np.array([instance.radius]))
    return region, work, theta


def proved(region: Region, work: Scratch, contexts: np.ndarray, merit: kinds.Merit, distance: float) -> bool:
    work.lane[problem.PROVED, 0] = 0.0
    certificate.half_widths(contexts, region, work)
    certificate.certify(region, kinds.table([merit]), work, distance)
    return bool(work.lane[problem.PROVED, 0] == distance)


def test_what_is_proved_of_the_whole_ball_brute_force_can_not_beat() -> None:
    rng = np.random.default_rng(0)
    certified = 0
    for number in range(250):
        instance = wild(rng) if number % 5 == 0 else realistic(rng, arms=12, dimension=6)
        if instance.contexts.size > 1000:
            continue
        steepness = 10 ** rng.uniform(-1, 1.5)
        region, work, theta = at_the_oracles_point(instance, steepness)
        if not proved(region, work, instance.contexts, kinds.Exponential(steepness), WHOLE_BALL):
            continue
        certified += 1
        merit = ref.Exponential(steepness)
        _, best = ref.optimistic_bruteforce(
            instance.estimate, instance.gram, instance.radius, instance.contexts, merit, 200, number
        )
        assert best <= ref.objective(theta, instance.contexts, merit) + 1e-9
    assert certified >= 40  # or the test shows nothing


@pytest.mark.parametrize("distance", [0.25, 0.7, 1.2])
def test_what_is_proved_within_a_distance_holds_there(distance: float) -> None:
    rng = np.random.default_rng(1)
    certified = 0
    for _ in range(120):
        instance = realistic(rng, arms=8, dimension=4)
        steepness = 10 ** rng.uniform(0, 1.5)
        region, work, theta = at_the_oracles_point(instance, steepness)
        if not proved(region, work, instance.contexts, kinds.Exponential(steepness), distance):
            continue
        certified += 1
        factor = np.linalg.cholesky(instance.gram).T
        u = factor @ (theta - instance.estimate) / instance.radius
        others = u + distance * rng.random((500, 1)) * ref._unit(rng.normal(size=(500, u.size)))
        others = others[np.linalg.norm(others, axis=1) <= 1.0]
        value = ref.objective(theta, instance.contexts, ref.Exponential(steepness))
        for other in others:
            there = instance.estimate + instance.radius * np.linalg.solve(factor, other)
            assert ref.objective(there, instance.contexts, ref.Exponential(steepness)) <= value + 1e-9
    assert certified >= 20


def test_half_widths_are_how_far_a_mean_can_move_against_the_policy() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        instance = realistic(rng)
        region, work, _ = at_the_oracles_point(instance, 10.0)
        certificate.half_widths(instance.contexts, region, work)
        centred = instance.contexts - work.arms[problem.POLICY, :, 0] @ instance.contexts
        squares = (centred * np.linalg.solve(instance.gram, centred.T).T).sum(axis=1)
        exact = instance.radius * np.sqrt(np.maximum(squares, 0.0))
        assert work.arms[problem.WIDTH, :, 0] == pytest.approx(exact, abs=1e-7)
        certificate.coarse_half_widths(instance.contexts, region, work)
        assert (work.arms[problem.WIDTH, :, 0] >= exact - 1e-9).all()


def test_only_what_has_arrived_and_only_the_exponential_is_proved() -> None:
    instance = Instance(np.array([[0.1], [0.2]]), np.array([[1e6]]), np.array([0.5]), 1.0)
    region, work, _ = at_the_oracles_point(instance, 1.0)
    assert proved(region, work, instance.contexts, kinds.Exponential(1.0), WHOLE_BALL)
    for kind, (ours, _) in merits(np.random.default_rng(0)).items():
        if kind != "exponential":
            assert not proved(region, work, instance.contexts, ours, WHOLE_BALL)
    work.lane[problem.DONE, 0] = 0.0
    assert not proved(region, work, instance.contexts, kinds.Exponential(1.0), WHOLE_BALL)
