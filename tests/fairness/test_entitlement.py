"""Entitlements against brute force over the region."""

from __future__ import annotations

import numpy as np
import pytest

from fedfairx.core.merit import Affine, Custom, Exponential, Logistic, Merit, Power
from fedfairx.core.merit_kernels import log_merit_values
from fedfairx.fairness.confidence_region import Ellipsoid, region
from fedfairx.fairness.decision_log import Block
from fedfairx.fairness.entitlement import _merit_range, entitled, entitled_units
from fedfairx.fairness.totals import Sets, Tally

MERITS: list[Merit] = [
    Exponential(4.0),
    Exponential(10.0),
    Exponential(1000.0),
    Affine(0.2, 1.0),
    Power(2.0, 0.2),
    Power(1000.0, 0.2),  # as steep as can be: no float holds its merits
    Logistic(8.0, 0.4),
    Custom(lambda mean: 1.0 + abs(mean), minimum_merit=1.0, lipschitz_constant=1.0),
]


def learnt(records: int, dimension: int, seed: int) -> Ellipsoid:
    rng = np.random.default_rng(seed)
    contexts = rng.random((records, dimension)) / np.sqrt(dimension)
    rewards = contexts @ np.linspace(0.2, 0.9, dimension) + rng.normal(0, 0.1, records)
    return region(contexts.T @ contexts, contexts.T @ rewards, noise_sd=0.1, error=0.05)


def tallied(found: Ellipsoid, merit: Merit, contexts: np.ndarray, codes: np.ndarray) -> Tally:
    n, arms, dimension = contexts.shape
    first, one = np.zeros((n, 1), dtype=np.int64), np.ones((n, 1))
    policy = np.full((n, arms), 1 / arms)
    block = Block(
        policy,
        one,
        first,
        first,
        codes,
        codes,
        contexts,
        np.nan * one,
        np.ones(n),
        np.arange(n),
        np.zeros(n, int),
        np.zeros(n, bool),
    )
    tally = Tally.empty(int(codes.max()) + 1, dimension)
    tally.count(block, codes, Sets.of(codes))
    tally.entitle(block, codes, Sets.of(codes), found, merit)
    return tally


def shares_over(found: Ellipsoid, merit: Merit, contexts: np.ndarray) -> np.ndarray:
    """Shares of all actions in all rounds at many θ of the region, most of them on its surface."""
    rng = np.random.default_rng(5)
    directions = rng.normal(size=(800, found.centre.size))
    directions /= np.linalg.norm(directions, axis=1, keepdims=True)
    directions[700:] *= rng.random((100, 1))
    root = np.diag(found.root) if found.root.ndim == 1 else found.root
    thetas = found.centre + found.radius * directions @ root.T
    logs = log_merit_values(merit, np.einsum("tkd,nd->ntk", contexts, thetas))
    values = np.exp(logs - logs.max(axis=2, keepdims=True))
    return np.asarray(values / values.sum(axis=2, keepdims=True))


def extremes(shares: np.ndarray, codes: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
    """Least and largest mean share of every code."""
    rounds = [(codes == code).any(axis=1).sum() for code in range(codes.max() + 1)]
    means = [shares[:, codes == code].sum(axis=1) / n for code, n in enumerate(rounds)]
    return np.min(means, axis=1), np.max(means, axis=1)


@pytest.mark.long
@pytest.mark.parametrize("merit", MERITS, ids=lambda merit: type(merit).__name__)
@pytest.mark.parametrize("records", [12, 200, 5_000])
@pytest.mark.parametrize("dimension", [1, 2, 4])
def test_no_theta_of_the_region_entitles_to_less_or_more(merit: Merit, records: int, dimension: int) -> None:
    rng = np.random.default_rng(records)
    contexts = rng.random((30, 5, dimension)) / np.sqrt(dimension)
    contexts[:, 0, 0] += 0.3
    found = learnt(records, dimension, seed=records + dimension)
    shares = shares_over(found, merit, contexts)
    for codes in (np.arange(5), np.array([0, 0, 1, -1, 2])):  # actions, and groups that not all are in
        numbers = np.broadcast_to(codes, (30, 5)).copy()
        low, high = tallied(found, merit, contexts, numbers).interval(found.radius)
        least, most = extremes(shares, numbers)
        assert (low <= least + 1e-12).all()
        assert (high >= most - 1e-12).all()


def test_with_data_the_interval_is_nearly_as_narrow_as_can_be() -> None:
    rng = np.random.default_rng(0)
    own = np.array([[0.5, 0.1], [0.1, 0.5], [0.4, 0.4], [0.2, 0.3], [0.3, 0.6]])
    contexts = own + 0.05 * rng.random((200, 5, 2))
    codes = np.broadcast_to(np.arange(5), (200, 5)).copy()
    for records, factor in ((20_000, 1.6), (1_000_000, 1.15)):
        found = learnt(records, 2, seed=1)
        low, high = tallied(found, Exponential(10.0), contexts, codes).interval(found.radius)
        least, most = extremes(shares_over(found, Exponential(10.0), contexts), codes)
        assert ((high - low) < factor * (most - least)).all()
    alone = entitled(found, Exponential(10.0), contexts, None)  # round by round, without the linear bound
    assert ((alone.high - alone.low).mean(axis=0) > 0.999 * (high - low)).all()
    assert ((alone.high - alone.low).mean(axis=0) > 1.5 * (high - low)).any()


def test_the_second_derivative_is_bounded() -> None:
    """|q″| ≤ ρ² min(9/64, 5q/4) for any policy, any set and any moves within a range of length ρ."""
    rng = np.random.default_rng(3)
    q = np.linspace(0, 1, 100_001)
    assert (q * (1 - q) * (0.25 + abs(1 - 2 * q))).max() == pytest.approx(9 / 64, abs=1e-9)
    for _ in range(3_000):
        arms = int(rng.integers(2, 7))
        policy, inside = rng.dirichlet(np.full(arms, rng.choice([0.1, 1.0]))), rng.random(arms) < 0.5
        moves = rng.choice([0.0, 1.0], arms) if rng.random() < 0.5 else rng.random(arms)
        mean = policy @ moves
        variance = policy @ (moves - mean) ** 2
        second = (policy * ((moves - mean) ** 2 - variance))[inside].sum()
        rho, share = np.ptp(moves), policy[inside].sum()
        assert abs(second) <= rho**2 * min(9 / 64, 1.25 * share) + 1e-12


@pytest.mark.parametrize("units", [False, True])
@pytest.mark.parametrize("half_width", [0.2, 0.5, 1.0])
def test_what_the_linear_bound_leaves_out_is_bounded_for_rare_actions_too(
    units: bool, half_width: float
) -> None:
    """The share of the second of two actions at every θ of the region, against its tangent at the centre.

    Where merit is steep a rare action may be far less rare elsewhere in the region.
    """
    steepness, centre, root = 10.0, np.array([0.0, -1.0]), np.array([1e-9, 1.0])
    found = Ellipsoid(centre, root if units else np.diag(root), half_width)
    if units:
        bounds = entitled_units(found, Exponential(steepness), np.array([[0, 1]]), None, None)
    else:
        bounds = entitled(found, Exponential(steepness), np.eye(2)[None], None)
    share = 1.0 / (1.0 + np.exp(-steepness * -1.0))
    assert bounds.share[0, 1] == pytest.approx(share)
    moves = half_width * np.linspace(-1.0, 1.0, 201)
    shares = 1.0 / (1.0 + np.exp(-steepness * (moves - 1.0)))
    tangent = share + steepness * share * (1.0 - share) * moves
    assert np.abs(shares - tangent).max() <= bounds.bend[0, 1]


def test_a_merit_of_ones_own_is_bounded_on_both_sides() -> None:
    merit = Custom(lambda mean: 1.0 + abs(mean), minimum_merit=1.0, lipschitz_constant=1.0)
    least, most = _merit_range(merit, np.array([[0.5, -0.2]]), np.array([[0.3, 0.4]]))
    assert np.exp(least) == pytest.approx(np.array([[1.2, 1.0]]))  # of means from 0.2 to 0.8, and -0.6 to 0.2
    assert np.exp(most) == pytest.approx(np.array([[1.8, 1.6]]))


def test_an_action_that_nothing_is_known_of_may_be_entitled_to_anything() -> None:
    found = region(np.diag([100.0, 0.0]), np.array([40.0, 0.0]), noise_sd=0.5, error=0.05)
    contexts = np.tile(np.array([[1.0, 0.0], [0.9, 0.0], [0.0, 1.0]]), (4, 1, 1))
    codes = np.broadcast_to(np.arange(3), (4, 3)).copy()
    low, high = tallied(found, Exponential(), contexts, codes).interval(found.radius)
    assert low.tolist() == [0.0, 0.0, 0.0]
    assert high[2] == 1.0


def test_one_set_of_all_actions_is_entitled_to_all() -> None:
    contexts = np.random.default_rng(0).random((10, 3, 2))
    found = learnt(500, 2, seed=0)
    low, high = tallied(found, Exponential(), contexts, np.zeros((10, 3), dtype=np.int64)).interval(
        found.radius
    )
    assert low[0] == pytest.approx(1.0)
    assert high[0] == 1.0
