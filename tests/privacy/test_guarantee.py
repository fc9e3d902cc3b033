"""The sentence that someone signs for."""

from __future__ import annotations

import json
import math

import pytest

from fedfairx.errors import InvalidInput
from fedfairx.privacy import Budget, SimulatedNoise, private
from fedfairx.privacy.bounds import Bounds, Unbounded
from fedfairx.privacy.guarantee import Guarantee, claim, require_decide_from
from fedfairx.privacy.mechanisms.gaussian import calibrate


def _claim(*, name: str = "blt", epsilon: float = 2.0, delta: float = 1e-6, **other) -> Guarantee:
    bounds = other.pop("bounds", Bounds())
    mechanism = calibrate(name, epsilon=epsilon, delta=delta, releases=100, sensitivity=bounds.sensitivity)
    return claim(mechanism, bounds=bounds, **other)


def test_it_states_all_that_matters() -> None:
    guarantee = _claim(spent=7)
    text = str(guarantee)
    for part in (
        "All 100 messages together",
        "ε=2",
        "δ=1e-06",
        "μ=",
        "replacing one record",
        "‖x‖ ≤ 1",
        "|y| ≤ 1",
    ):
        assert part in text
    assert "7 made, 93 left" in text
    assert "Warning" not in text
    assert (guarantee.epsilon, guarantee.delta, guarantee.remaining) == (2.0, 1e-6, 93)
    assert guarantee.is_private


@pytest.mark.parametrize(
    ("decide_from", "part"),
    [
        ("released", "decisions use released statistics alone"),
        ("released+local", "the agent's own fresh data without noise, is not covered"),
        ("own+released", "all of the agent's own data without noise, is not covered"),
    ],
)
def test_each_rule_prints_its_own_scope(decide_from, part) -> None:
    guarantee = _claim(decide_from=decide_from)
    assert part in str(guarantee)
    narrower = decide_from != "released"
    assert ("narrower" in str(guarantee)) == narrower
    assert ("the other records stay as recorded" in str(guarantee)) == narrower
    assert ('decide_from="released" is the strict mode, which covers that too' in str(guarantee)) == narrower


def test_the_default_is_the_narrower_claim() -> None:
    assert _claim().decide_from == "own+released"
    assert Budget(epsilon=2.0, delta=1e-6, releases=3).decide_from == "own+released"
    made = private(2, epsilon=2.0, delta=1e-6, releases=3, noise=SimulatedNoise(0))
    assert made.guarantee.decide_from == "own+released"


def test_a_large_delta_draws_a_warning() -> None:
    assert "a fraction 0.1 of the records" in str(_claim(delta=0.1))
    assert _claim(delta=1e-3).warnings == ()


def test_add_remove_says_so() -> None:
    assert "blanking one record" in str(_claim(bounds=Bounds(adjacency="add-remove")))


def test_epsilon_is_that_of_the_noise_really_added() -> None:
    """The paper's noise at (2, 0.1) is (0, 0.1)-DP, and the claim may not be larger than that."""
    assert _claim(name="paper-tree", delta=0.1).epsilon == 0.0
    assert 0 < _claim(name="paper-tree").epsilon < 2.0
    assert _claim().epsilon == 2.0


def test_what_is_not_private_says_so_with_every_reason() -> None:
    trigger = _claim(public_schedule=False)
    assert str(trigger) == "NOT PRIVATE: when it releases depends on data."
    both = _claim(public_schedule=False, bounds=Unbounded())
    assert str(both) == "NOT PRIVATE: records are not bounded; when it releases depends on data."
    assert trigger.mu == trigger.epsilon == math.inf
    assert not trigger.is_private
    free = _claim(bounds=Unbounded())
    assert str(free) == "NOT PRIVATE: records are not bounded."
    assert free.mu == math.inf


def test_simulated_noise_is_called_so() -> None:
    guarantee = _claim(simulated=True, delta=0.1)
    assert str(guarantee).startswith("SIMULATED: the noise is seeded, so nothing is private here.")
    assert "ε=2" in str(guarantee)
    assert "Warning" in str(guarantee)
    assert not guarantee.is_private


def test_to_dict_is_json() -> None:
    as_dict = json.loads(json.dumps(_claim().to_dict(), allow_nan=False))
    assert as_dict["epsilon"] == 2.0
    assert as_dict["is_private"] is True
    void = json.loads(json.dumps(_claim(public_schedule=False).to_dict(), allow_nan=False))
    assert void["mu"] is None
    assert void["reasons"] == ["when it releases depends on data"]


def test_an_unknown_rule_is_refused() -> None:
    with pytest.raises(
        InvalidInput, match="decide_from must be one of own\\+released, released, released\\+local"
    ):
        require_decide_from("local")
