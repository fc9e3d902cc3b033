"""The certificate proves what its statement in docs/explanation/algorithm.md says: no less, no more."""

from __future__ import annotations

import functools

import numpy as np
import pytest

import reference as ref
from fedfairx.core import merit as kinds
from fedfairx.core.optimism import certificate, problem
from fedfairx.core.optimism.problem import Region, Scratch
from fedfairx.lanes.rows import floats
from instances import Instance, brute_force, merit_rows, merits, realistic, region_of, scratch_of, solve, wild

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
    work = scratch_of(*x.shape)
    work.arms.array[problem.MEANS] = x @ theta
    work.arms.array[problem.POLICY] = ref.policy(theta, x, merit)
    gradient = ref.objective_gradient(theta, x, merit)
    work.lane[problem.OBJECTIVE] = ref.objective(theta, x, merit)
    work.lane[problem.NORM] = np.sqrt(gradient @ inverse @ gradient)
    work.lane[problem.DONE] = 1.0
    return region_of(instance), work


def proved(
    region: Region,
    work: Scratch,
    contexts: np.ndarray,
    merit: kinds.Merit,
    distance: float,
    *,
    coarsely: bool = False,
) -> bool:
    work.lane[problem.PROVED] = 0.0
    if coarsely:
        certificate.certify_coarsely(floats(contexts), region, merit_rows(merit), work, distance)
    else:
        certificate.half_widths(floats(contexts), region, work)
        certificate.certify(floats(contexts), region, merit_rows(merit), work, distance)
    return bool(work.lane[problem.PROVED] == distance)


@pytest.mark.long
@pytest.mark.parametrize("instances", [120, pytest.param(300, marks=pytest.mark.slow)])
def test_what_is_proved_of_the_whole_ball_brute_force_can_not_beat(instances: int) -> None:
    rng = np.random.default_rng(0)
    certified, others, coarse = 0, 0, 0
    for number in range(instances):
        instance = wild(rng) if number % 5 == 0 else realistic(rng, arms=12, dimension=6)
        if instance.contexts.size > 800:
            continue
        steepness = 10 ** rng.uniform(-1, 2)
        merit, x = ref.Exponential(steepness), instance.contexts
        best = -np.inf
        for theta in fixed_points(instance, steepness, 4):
            region, work = at(instance, steepness, theta)
            coarsely = proved(region, work, x, kinds.Exponential(steepness), WHOLE_BALL, coarsely=True)
            if not proved(region, work, x, kinds.Exponential(steepness), WHOLE_BALL):
                assert not coarsely
                others += 1
                continue
            certified += 1
            coarse += coarsely
            if best == -np.inf:
                best = brute_force(instance, merit, 200, number)
            assert best <= ref.objective(theta, x, merit) + 1e-9
    assert min(certified, others) >= 40  # or the test shows nothing
    assert 20 <= coarse < certified


@functools.cache
def small_instances() -> list[tuple[Instance, float, list[np.ndarray]]]:
    """With a steepness, and θ at fixed points."""
    rng, found = np.random.default_rng(1), []
    for _ in range(120):
        instance, steepness = realistic(rng, arms=8, dimension=4), 10 ** rng.uniform(0, 1.5)
        found.append((instance, steepness, fixed_points(instance, steepness, 3)))
    return found


@pytest.mark.long
@pytest.mark.parametrize("distance", [0.25, 0.7, 1.2])
def test_what_is_proved_within_a_distance_holds_there(distance: float) -> None:
    rng = np.random.default_rng(1)
    certified = 0
    for instance, steepness, thetas in small_instances():
        factor = np.linalg.cholesky(instance.gram).T
        for theta in thetas:
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
            assert (values <= work.lane[problem.OBJECTIVE] + 1e-9).all()
    assert certified >= 20


def test_half_widths_are_how_far_a_mean_can_move_against_the_policy() -> None:
    rng = np.random.default_rng(2)
    for _ in range(20):
        instance = realistic(rng)
        region, work = at(instance, 10.0, instance.estimate)
        certificate.half_widths(floats(instance.contexts), region, work)
        centred = instance.contexts - work.arms.array[problem.POLICY] @ instance.contexts
        squares = (centred * np.linalg.solve(instance.gram, centred.T).T).sum(axis=1)
        exact = instance.radius * np.sqrt(np.maximum(squares, 0.0))
        assert work.arms.array[problem.HALF_WIDTHS] == pytest.approx(exact, abs=1e-7)


def test_the_sharp_bound_is_a_frobenius_norm() -> None:
    rng = np.random.default_rng(3)
    for _ in range(20):
        instance = realistic(rng)
        region, work = at(instance, 10.0, instance.estimate)
        certificate.half_widths(floats(instance.contexts), region, work)
        share = work.arms.array[problem.SHARE] = rng.random(instance.contexts.shape[0])
        found = certificate.frobenius(floats(instance.contexts), region, work)
        centred = instance.contexts - work.arms.array[problem.POLICY] @ instance.contexts
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
            assert not proved(region, work, instance.contexts, ours, WHOLE_BALL, coarsely=True)
    for coarsely in (False, True):
        work.lane[problem.DONE] = 1.0
        assert proved(region, work, instance.contexts, kinds.Exponential(1.0), WHOLE_BALL, coarsely=coarsely)
        work.lane[problem.DONE] = 0.0
        assert not proved(
            region, work, instance.contexts, kinds.Exponential(1.0), WHOLE_BALL, coarsely=coarsely
        )


def chords(x: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """The upper bounds on χ and φ that docs/explanation/algorithm.md states."""
    half = np.exp(x / 2)
    return (1 + half) ** 2 / 4, (5 + 6 * half + half**2) / 24


def test_the_bounds_on_chi_and_phi_are_bounds() -> None:
    x = np.linspace(0.01, 100.0, 10_000)
    chi, phi = chords(x)
    assert (chi >= np.expm1(x) / x).all()
    assert (phi >= (np.expm1(x) - x) / x**2).all()


def coarse_sides(instance: Instance, work: Scratch, c: float, r: float) -> dict[str, float]:
    """`sides` of the coarse form, with what all arms share for R, χ and φ."""
    policy = work.arms.array[problem.POLICY]
    gap = np.abs(work.arms.array[problem.MEANS] - work.lane[problem.OBJECTIVE])
    longest = np.abs(np.linalg.inv(instance.gram)).sum(axis=1).max()
    squares = longest * ((instance.contexts - policy @ instance.contexts) ** 2).sum(axis=1)
    squares *= instance.radius**2
    chi, phi = chords(c * np.sqrt(squares.max()) * r)
    spread = policy @ squares
    return {
        "chi": c * chi * spread,
        "phi": c**2 * phi * (policy @ (squares * gap)),
        "third": c**3 * r * phi * spread * np.sqrt(spread * (policy @ gap**2)),
    }


def sides(instance: Instance, work: Scratch, c: float, r: float) -> dict[str, float]:
    """The left side of the statement in docs/explanation/algorithm.md, in NumPy; `at` has filled `work`."""
    policy, beta = work.arms.array[problem.POLICY], instance.radius**2
    gap = np.abs(work.arms.array[problem.MEANS] - work.lane[problem.OBJECTIVE])
    z = np.linalg.solve(np.linalg.cholesky(instance.gram), instance.contexts.T).T
    y = z - policy @ z
    width = instance.radius * np.linalg.norm(y, axis=1)
    chi, phi = chords(c * width * r)
    return {
        "chi": c * beta * np.trace((y.T * (policy * chi)) @ y),
        "phi": c * beta * np.trace((y.T * (policy * c * phi * gap)) @ y),
        "third": c**3 * r * (policy @ (width * gap)) * (policy @ (width**2 * phi)),
        "frobenius": c * beta * np.linalg.norm((y.T * (policy * (chi + c * phi * gap))) @ y),
    }


@pytest.mark.parametrize("coarsely", [False, True])
def test_it_proves_exactly_what_its_statement_says(coarsely: bool) -> None:
    # The norm n is free here, so that the right side ½√βn can be put 1 % above and below the left side.
    # A term that were halved or left out would have to be below 2 % not to show.
    rng = np.random.default_rng(4)
    shows = {"chi": 0, "phi": 0, "third": 0}
    for number in range(200):
        instance = realistic(rng, arms=12, dimension=6)
        c, r = 10 ** rng.uniform(0, 1.5), float(rng.choice([0.5, 1.0, 1.4, WHOLE_BALL]))
        region, work = at(instance, c, instance.estimate)
        left = (coarse_sides if coarsely else sides)(instance, work, c, r)
        total = left.get("frobenius", left["chi"] + left["phi"]) + left["third"]
        if not 1e-9 < total < 1e100:  # a single arm, or a region far too large: no question
            continue
        for name in shows:
            shows[name] += left[name] > 0.05 * (left["chi"] + left["phi"] + left["third"])
        for share, expected in ((0.99, False), (1.01, True)):
            work.lane[problem.NORM] = 2 * share * total / instance.radius
            found = proved(region, work, instance.contexts, kinds.Exponential(c), r, coarsely=coarsely)
            assert found == expected, (number, c, r, share)
    assert min(shows.values()) >= 30, shows  # or the test shows nothing


def test_beyond_what_a_float_can_hold_nothing_is_proved() -> None:
    # Two arms at ±1 move by c·R = c against each other; e^{x/2} is computed for x/2 up to 300 only.
    instance = Instance(np.array([[1.0], [-1.0]]), np.eye(1), np.zeros(1), 1.0)
    for steepness, expected in ((299.0, True), (301.0, False)):
        region, work = at(instance, steepness, np.zeros(1))
        work.lane[problem.NORM] = 1e300
        for coarsely in (False, True):
            merit = kinds.Exponential(steepness)
            found = proved(region, work, instance.contexts, merit, WHOLE_BALL, coarsely=coarsely)
            assert found == expected


def test_a_steep_merit_does_not_end_at_its_first_local_maximum() -> None:
    # From θ̂ = 0 the two arms at 0.6 win; the best is the other way, where the arm at -1 has more.
    instance = Instance(np.array([[-1.0], [0.6], [0.6]]), np.eye(1), np.zeros(1), 1.2)
    for steepness in (100.0, 400.0, 1e4):
        answer = solve(instance, (kinds.Exponential(steepness), ref.Exponential(steepness)))
        assert answer.value == pytest.approx(1.2, abs=1e-9)
