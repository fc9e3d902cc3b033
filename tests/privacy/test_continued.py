"""A second run after the first: the messages add up, the noise is what is said, the costs add."""

from __future__ import annotations

import math

import numpy as np
import pytest

from fedfairx.core.statistics import pack
from fedfairx.errors import BudgetExhausted, InvalidInput
from fedfairx.privacy import ContinuedPrivatizer, SimulatedNoise, StreamPrivatizer, private


def _private(seed: int, epsilon: float = 2.0, releases: int = 3, dimension: int = 2) -> StreamPrivatizer:
    made = private(
        dimension, epsilon=epsilon, releases=releases, noise=SimulatedNoise(seed), decide_from="released"
    )
    assert isinstance(made, StreamPrivatizer)
    return made


def test_messages_go_on_and_add_up() -> None:
    x = np.array([0.6, 0.8])
    one = pack(np.outer(x, x), x)
    before = _private(0, epsilon=1e6)
    for _ in range(3):
        before.add(x, 1.0)
        last = before.release()
    both = ContinuedPrivatizer(_private(1, epsilon=1e6), before=before)
    assert both.dimension == 2
    assert both.release(3) == last
    both.add(x, 1.0, "r")
    release = both.release()
    assert (release.number, release.count, release.mechanism) == (4, 4, both.mechanism.digest())
    assert release.packed == pytest.approx(4 * one, abs=0.1)
    assert both.release(4) == release
    assert bytes.fromhex(both.state()["last"]) == last.to_bytes()
    both.release()
    both.release()
    with pytest.raises(BudgetExhausted):
        both.release()


def test_the_stated_noise_is_that_of_the_sum() -> None:
    """900 entries: an empirical sd is within 10 % but for a chance of 3e-5 (seeds fixed)."""
    found = []
    for seed in range(300):
        before = _private(2 * seed)
        before.release()
        both = ContinuedPrivatizer(_private(2 * seed + 1), before=before)
        both.release()
        found.append(both.release().packed[[1, 3, 4]])  # off the diagonal: the stated sd itself
    assert both.mechanism.sd(3) == pytest.approx(np.std(found), rel=0.1)
    first, second = both.mechanism.before, both.mechanism.after
    assert both.mechanism.sd([1, 2]).tolist() == [first.sd(1), math.hypot(first.sd(1), second.sd(1))]


def test_the_costs_add_as_squares() -> None:
    before = _private(0, epsilon=2.0)
    before.release()
    both = ContinuedPrivatizer(_private(1, epsilon=1.0, releases=5), before=before)
    mu = math.hypot(before.mechanism.mu, both.inner.guarantee.mu)
    assert both.mechanism.mu == both.guarantee.mu == pytest.approx(mu)
    assert (both.mechanism.releases, both.guarantee.releases, both.guarantee.spent) == (6, 6, 1)
    assert "All 6 messages together" in str(both.guarantee)
    assert both.mechanism.digest() != both.inner.mechanism.digest()
    assert both.mechanism.name == "blt"
    assert both.owner is None


def test_a_new_run_has_the_same_dimension() -> None:
    before = _private(0)
    before.release()
    with pytest.raises(InvalidInput, match="inner must have dimension 2"):
        ContinuedPrivatizer(_private(1, dimension=3), before=before)
