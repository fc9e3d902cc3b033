"""Mechanisms by name: stated noise, honest μ, streams, digests."""

from __future__ import annotations

import math
import time
from dataclasses import replace

import numpy as np
import pytest

from fedfairx.errors import BudgetExhausted, InvalidInput
from fedfairx.privacy.accounting import delta_for, mu_for
from fedfairx.privacy.bounds import Bounds
from fedfairx.privacy.mechanisms.gaussian import Gaussian, NonPrivate, calibrate, mechanisms
from fedfairx.privacy.mechanisms.noise import SimulatedNoise

ALL = ["paper-tree", "tree", "blt"]
# (mechanism, τ, max sd, mean sd) in units of Δ/μ
UNIT_VECTORS = [
    ("tree", 20, 4.47, 3.17),
    ("tree", 200, 7.48, 5.33),
    ("tree", 2_000, 10.5, 7.64),
    ("tree", 20_000, 14.5, 10.1),
    ("blt", 20, 2.02, 1.86),
    ("blt", 200, 2.75, 2.58),
    ("blt", 2_000, 3.49, 3.32),
    ("blt", 20_000, 4.22, 4.05),
]
# (mechanism, ε, δ, max sd, mean sd) at Δ = 2, τ = 20 000
ABSOLUTE_VECTORS = [
    ("paper-tree", 2.0, 0.1, 179, 125),
    ("tree", 2.0, 0.1, 21, 15),
    ("blt", 2.0, 0.1, 6.2, 5.9),
    ("paper-tree", 1.0, 1e-5, 1462, 1021),
    ("tree", 1.0, 1e-5, 108, 76),
    ("blt", 1.0, 1e-5, 31.5, 30.2),
]
LOWER_BOUND_RMS = {20: 1.69, 200: 2.39, 2_000: 3.12, 20_000: 3.85}


def _make(name: str, releases: int, *, epsilon: float = 2.0, delta: float = 0.1) -> Gaussian:
    return calibrate(name, epsilon=epsilon, delta=delta, releases=releases, sensitivity=2.0)


def _sd(mechanism: Gaussian) -> np.ndarray:
    return mechanism.sd(np.arange(1, mechanism.releases + 1))


def _rounds_to(value: float, stated: float) -> bool:
    """`stated` is given to three digits; half a unit of the third, and rounding."""
    return abs(value - stated) <= 0.0055 * stated


def test_names() -> None:
    assert list(mechanisms()) == ALL


@pytest.mark.parametrize(("name", "releases", "largest", "mean"), UNIT_VECTORS)
def test_noise_meets_the_stated_vectors(name: str, releases: int, largest: float, mean: float) -> None:
    mechanism = _make(name, releases)
    sd = _sd(mechanism) * mechanism.mu / 2.0
    assert _rounds_to(sd.max(), largest)
    assert _rounds_to(sd.mean(), mean)
    assert np.sqrt(np.square(sd).mean()) > LOWER_BOUND_RMS[releases]


@pytest.mark.parametrize(("name", "epsilon", "delta", "largest", "mean"), ABSOLUTE_VECTORS)
def test_absolute_noise_meets_the_stated_vectors(name, epsilon, delta, largest, mean) -> None:
    sd = _sd(_make(name, 20_000, epsilon=epsilon, delta=delta))
    assert sd.max() == pytest.approx(largest, rel=0.02)
    assert sd.mean() == pytest.approx(mean, rel=0.02)


def test_the_noisiest_release_of_the_papers_setting_is_at_most_6_5() -> None:
    assert _sd(_make("blt", 20_002)).max() <= 6.5


@pytest.mark.parametrize("name", ["tree", "blt"])
@pytest.mark.parametrize("releases", [1, 2, 20, 1_000])
def test_exactly_what_was_asked_is_spent(name: str, releases: int) -> None:
    mechanism = _make(name, releases, epsilon=1.3, delta=1e-6)
    assert mechanism.mu == pytest.approx(mu_for(1.3, 1e-6), rel=1e-12)
    assert delta_for(1.3, mechanism.mu) == pytest.approx(1e-6, rel=1e-9)


@pytest.mark.parametrize("releases", [1, 2, 3, 20, 16_384, 20_000])
def test_the_papers_noise_is_printed_and_its_mu_is_honest(releases: int) -> None:
    mechanism = _make("paper-tree", releases)
    n = 1 + math.ceil(math.log2(releases))
    levels = 1 + math.floor(math.log2(releases))
    assert mechanism.base_sd**2 == pytest.approx(16 * n * (1 + 1) ** 2 * math.log(2 / 0.1) ** 2 / 2.0**2)
    assert mechanism.mu == pytest.approx(math.sqrt(levels / n) * 2.0 / (4 * math.log(2 / 0.1)))
    if (
        levels == n
    ):  # a power of two: the tree is full, and it is (0, 0.067)-DP, 8 times less than (2, 0.1) allows
        assert round(delta_for(0.0, mechanism.mu), 3) == 0.067
        assert mu_for(2.0, 0.1) / mechanism.mu == pytest.approx(8.2, abs=0.05)


def test_the_papers_noise_is_refused_where_it_does_not_keep_its_claim() -> None:
    with pytest.raises(InvalidInput, match="too large for the paper's noise"):
        _make("paper-tree", 1_000, epsilon=1_000.0)


@pytest.mark.parametrize("name", ALL)
def test_stated_sd_is_the_empirical_sd(name: str) -> None:
    """20 000 columns: an empirical sd is within 3 % but for a chance of 1e-8 each (seed fixed)."""
    mechanism = _make(name, 37)
    sample = mechanism.sample(np.random.default_rng(0), 20_000)
    assert sample.shape == (37, 20_000)
    np.testing.assert_allclose(sample.std(axis=1), _sd(mechanism), rtol=0.03)
    assert mechanism.sd(5).shape == ()


@pytest.mark.parametrize("name", ALL)
def test_stream_and_sample_share_their_law(name: str) -> None:
    """The same base noise through both gives the same releases, with the entry scale on the stream's."""
    mechanism = _make(name, 50)
    scale = Bounds(gram_share=0.5).entry_scale(3)
    base = np.random.default_rng(3).normal(size=(50, scale.size))
    stream = mechanism.stream(lambda number, count: base[number - 1, :count], entry_scale=scale)
    streamed = np.array([stream.next() for _ in range(50)])
    whole = mechanism.factor.correlate(base.copy()) * mechanism.base_sd * scale
    np.testing.assert_allclose(streamed, whole, rtol=1e-9, atol=1e-9)


@pytest.mark.parametrize("name", ALL)
def test_covariance_between_releases_is_that_of_b(name: str) -> None:
    """cov(N_s, N_t) = σ²⟨B_s, B_t⟩, from 40 000 streams of 8 releases (5 sd of the estimate, seed fixed)."""
    mechanism = _make(name, 8)
    sample = mechanism.sample(np.random.default_rng(5), 40_000) / mechanism.base_sd
    b = mechanism.factor.correlate(np.eye(8))
    np.testing.assert_allclose(
        sample @ sample.T / 40_000, b @ b.T, atol=5 * (b @ b.T).max() * math.sqrt(2 / 40_000)
    )


@pytest.mark.parametrize("name", ALL)
def test_each_release_asks_for_its_own_base_noise_once(name: str) -> None:
    asked: list[int] = []

    def draw(number: int, count: int) -> np.ndarray:
        asked.append(number)
        return np.zeros(count)

    stream = _make(name, 12).stream(draw, entry_scale=np.ones(2))
    for _ in range(12):
        stream.next()
    assert asked == list(range(1, 13))


@pytest.mark.parametrize("name", ALL)
def test_a_draw_that_fails_skips_nothing(name: str) -> None:
    failing = [True]

    def draw(number: int, count: int) -> np.ndarray:
        if number == 3 and failing:
            raise OSError(failing.pop())
        return SimulatedNoise(1)(number, count)

    stream = _make(name, 8).stream(draw, entry_scale=np.ones(2))
    whole = _make(name, 8).stream(SimulatedNoise(1), entry_scale=np.ones(2))
    stream.advance(2)
    with pytest.raises(OSError, match="True"):
        stream.next()
    whole.advance(2)
    assert stream.number == 2
    assert [stream.next().tobytes() for _ in range(6)] == [whole.next().tobytes() for _ in range(6)]


@pytest.mark.parametrize("name", ALL)
def test_the_stream_ends_with_its_budget(name: str) -> None:
    stream = _make(name, 3).stream(SimulatedNoise(0), entry_scale=np.ones(2))
    stream.advance(3)
    with pytest.raises(BudgetExhausted, match="release 4"):
        stream.next()
    assert stream.number == 3


@pytest.mark.parametrize("name", ALL)
@pytest.mark.parametrize("before", [0, 1, 6, 7, 8, 100])
def test_a_stream_that_skipped_goes_on_with_the_same_bits(name: str, before: int) -> None:
    mechanism, scale = _make(name, 130), np.ones(4)
    stream = mechanism.stream(SimulatedNoise(1), entry_scale=scale)
    for _ in range(before):
        stream.next()
    skipped = mechanism.stream(SimulatedNoise(1), entry_scale=scale)
    skipped.advance(before)
    for _ in range(20):
        bits = stream.next().tobytes()
        assert skipped.next().tobytes() == bits


def test_the_digest_names_the_mechanism() -> None:
    base = {"epsilon": 2.0, "delta": 0.1, "releases": 100, "sensitivity": 2.0}
    digests = {calibrate(name, **base).digest() for name in ALL}
    for change in ({"epsilon": 2.1}, {"delta": 0.2}, {"releases": 101}, {"sensitivity": 2.5}):
        digests.add(calibrate("blt", **(base | change)).digest())
    exact = calibrate("blt", **base)
    digests.add(replace(exact, base_sd=exact.base_sd / 100).digest())
    assert len(digests) == 8
    # The root finder's last bits may differ between machines.
    assert replace(exact, base_sd=exact.base_sd * (1 + 1e-13)).digest() == exact.digest()
    assert calibrate("blt", **base).digest() in digests
    # Pinned: agents of different machines and versions compare it.
    assert _make("tree", 8).digest() == PINNED


PINNED = "9a38908c6fb26705fc711f396320b9679c6d4c6e933b77d758b683cfb9356f74"


def test_sd_refuses_numbers_outside() -> None:
    for number in (0, 11, [3, 12]):
        with pytest.raises(InvalidInput, match=r"number must be in 1\.\.10"):
            _make("blt", 10).sd(number)


@pytest.mark.parametrize(
    ("change", "text"),
    [
        ({"name": "laplace"}, "mechanism must be one of paper-tree, tree, blt"),
        ({"releases": 0}, "releases must be >= 1"),
        ({"sensitivity": 0.0}, "sensitivity must be > 0"),
        ({"epsilon": -1.0}, "epsilon must be > 0"),
        ({"delta": 1.0}, "delta must be in"),
    ],
)
def test_calibrate_refuses(change: dict[str, object], text: str) -> None:
    arguments = {"name": "blt", "epsilon": 1.0, "delta": 1e-6, "releases": 5, "sensitivity": 2.0} | change
    with pytest.raises(InvalidInput, match=text):
        calibrate(**arguments)


def test_non_private_is_a_word() -> None:
    none = NonPrivate()
    assert none.mu == math.inf
    assert none.sd([1, 2, 3]).tolist() == [0.0, 0.0, 0.0]


@pytest.mark.parametrize("name", ALL)
def test_stating_20_000_sds_is_quick(name: str) -> None:
    mechanism = _make(name, 20_000)
    numbers = np.arange(1, 20_001)
    best = min(_timed(mechanism, numbers) for _ in range(5))
    assert best < 0.05


def _timed(mechanism: Gaussian, numbers: np.ndarray) -> float:
    began = time.perf_counter()
    mechanism.sd(numbers)
    return time.perf_counter() - began
