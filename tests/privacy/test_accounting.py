"""μ ↔ (ε, δ): against the project's vectors, against 700 digits, and against dp-accounting."""

from __future__ import annotations

import math
from pathlib import Path

import mpmath
import pytest
from dp_accounting import dp_event
from dp_accounting.pld import PLDAccountant
from dp_accounting.pld.privacy_loss_distribution import from_gaussian_mechanism
from hypothesis import given
from hypothesis import strategies as st

from fedfairx.errors import InvalidInput
from fedfairx.privacy.accounting import delta_for, epsilon_for, mu_for
from fedfairx.privacy.bounds import Bounds
from fedfairx.privacy.mechanisms.gaussian import calibrate
from stored_oracle import stored

VECTORS = [
    (1.0, 1e-5, 0.268),
    (2.0, 1e-5, 0.502),
    (10.0, 1e-5, 2.000),
    (2.0, 0.1, 1.366),
    (1.0, 0.1, 0.921),
    (0.1, 0.1, 0.351),
]


def test_a_huge_epsilon_has_an_answer() -> None:
    """Where all of δ is rounding, as at 9.6e99."""
    found = [mu_for(epsilon, 1e-6) for epsilon in (1e9, 1e15, 1e16, 1e20, 9.6e99, 1e100)]
    assert found == sorted(found)
    assert all(math.isfinite(each) for each in found)


@pytest.mark.parametrize(("epsilon", "delta", "mu"), VECTORS)
def test_mu_meets_the_stated_vectors(epsilon: float, delta: float, mu: float) -> None:
    assert round(mu_for(epsilon, delta), 3) == mu


@stored(Path(__file__).with_name("delta.json"))
def _literal(epsilon: float, mu: float) -> float:
    """The formula as it is written, with enough digits for its cancellation."""
    with mpmath.workdps(700):
        e, m = mpmath.mpf(epsilon), mpmath.mpf(mu)

        def phi(z: mpmath.mpf) -> mpmath.mpf:
            return mpmath.erfc(-z / mpmath.sqrt(2)) / 2

        return float(phi(-e / m + m / 2) - mpmath.exp(e) * phi(-e / m - m / 2))


@pytest.mark.parametrize("epsilon", [0.0, 1e-6, 1e-3, 0.1, 1.0, 10.0, 100.0, 1000.0, 5000.0])
@pytest.mark.parametrize("mu", [1e-4, 0.01, 0.3, 0.999, 1.001, 5.0, 30.0, 70.0, 200.0])
def test_delta_is_exact_down_to_1e_300(epsilon: float, mu: float) -> None:
    exact = _literal(epsilon, mu)
    if exact < 1e-300:
        assert delta_for(epsilon, mu) < 1.01e-300
    else:
        assert abs(delta_for(epsilon, mu) / exact - 1) < 1e-9


@given(
    epsilon=st.floats(1e-4, 3000.0),
    log_delta=st.floats(math.log(1e-300), math.log(0.999)),
)
def test_the_three_functions_undo_each_other(epsilon: float, log_delta: float) -> None:
    delta = math.exp(log_delta)
    mu = mu_for(epsilon, delta)
    assert math.isclose(delta_for(epsilon, mu), delta, rel_tol=1e-9)
    # ε moves δ so little near ε = 0 that only the δ it gives back can be compared.
    assert math.isclose(delta_for(epsilon_for(delta, mu), mu), delta, rel_tol=1e-9)


@given(epsilon=st.floats(1e-3, 100.0), delta=st.floats(1e-12, 0.9))
def test_mu_grows_with_epsilon_and_delta(epsilon: float, delta: float) -> None:
    assert mu_for(1.1 * epsilon, delta) > mu_for(epsilon, delta)
    assert mu_for(epsilon, 1.1 * delta) > mu_for(epsilon, delta)


def test_epsilon_is_zero_where_zero_suffices() -> None:
    mu = 2.0 / (4.0 * math.log(2.0 / 0.1))
    assert round(delta_for(0.0, mu), 3) == 0.067  # "really (0, 0.067)-DP"
    assert epsilon_for(0.1, mu) == 0.0


def test_the_ends() -> None:
    assert delta_for(1.0, 0.0) == 0.0
    assert delta_for(1.0, math.inf) == 1.0
    assert epsilon_for(0.1, 0.0) == 0.0
    assert epsilon_for(0.1, math.inf) == math.inf


@pytest.mark.parametrize(
    ("function", "arguments", "text"),
    [
        (mu_for, (0.0, 0.1), "epsilon must be > 0 and finite, got epsilon=0.0"),
        (mu_for, (math.inf, 0.1), "epsilon must be > 0"),
        (mu_for, (math.nan, 0.1), "epsilon must be > 0"),
        (mu_for, (1.0, 1.5), "delta must be in (0, 1), got delta=1.5"),
        (mu_for, (1.0, 0.0), "delta must be in (0, 1)"),
        (epsilon_for, (1.0, 1.0), "delta must be in (0, 1)"),
        (epsilon_for, (0.1, -1.0), "mu must be >= 0"),
        (delta_for, (-1.0, 1.0), "epsilon must be >= 0"),
        (delta_for, (1.0, math.nan), "mu must be >= 0"),
    ],
)
def test_refusals_name_the_rule_and_the_value(function, arguments, text) -> None:
    with pytest.raises(InvalidInput) as caught:
        function(*arguments)
    assert text in str(caught.value)


@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
@pytest.mark.parametrize(("epsilon", "delta"), [(0.5, 1e-6), (2.0, 1e-5), (2.0, 0.1), (8.0, 1e-8)])
def test_dp_accounting_agrees_for_both_adjacencies(adjacency, epsilon, delta) -> None:
    """The adjacency enters through the sensitivity: the same claim needs other noise, and PLD confirms it."""
    bounds = Bounds(adjacency=adjacency)
    sd = bounds.sensitivity / mu_for(epsilon, delta)
    pld = from_gaussian_mechanism(
        standard_deviation=sd, sensitivity=bounds.sensitivity, value_discretization_interval=1e-3
    )
    # PLD rounds losses up by its discretisation, so it may only lie a little above.
    assert epsilon - 1e-9 <= pld.get_epsilon_for_delta(delta) <= epsilon + 2e-3


@pytest.mark.parametrize("mu", [0.1, 0.5, 1.0, 2.0, 4.0])
def test_dp_accounting_agrees_over_a_grid_of_epsilon(mu: float) -> None:
    pld = from_gaussian_mechanism(standard_deviation=1.0 / mu, value_discretization_interval=1e-3)
    for epsilon in (0.0, 0.25, 1.0, 2.0, 4.0):
        exact = delta_for(epsilon, mu)
        if exact > 1e-12:
            assert exact * (1 - 1e-6) <= pld.get_delta_for_epsilon(epsilon) <= exact + 1e-3 * (exact + 1e-4)


@pytest.mark.parametrize("releases", [1, 7, 64])
def test_dp_accounting_composes_the_tree_to_the_same_epsilon(releases: int) -> None:
    """A leaf lies in ℓ nodes, each a Gaussian mechanism: composing ℓ of them must give what was asked for."""
    mechanism = calibrate("tree", epsilon=2.0, delta=1e-5, releases=releases, sensitivity=2.0)
    accountant = PLDAccountant(value_discretization_interval=1e-3)
    node = dp_event.GaussianDpEvent(noise_multiplier=mechanism.base_sd / mechanism.sensitivity)
    accountant.compose(dp_event.SelfComposedDpEvent(node, releases.bit_length()))
    assert 2.0 - 1e-6 <= accountant.get_epsilon(1e-5) <= 2.0 + 1e-2
