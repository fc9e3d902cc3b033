"""Centring at a public point: the sums come out right, the sensitivity is kept, the noise is what it says."""

from __future__ import annotations

import json
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from scipy.optimize import minimize

from fedfairx.agent.options import Options
from fedfairx.audit.subject import AuditedConfig, Record
from fedfairx.core.statistics import pack, packed_size
from fedfairx.errors import InvalidInput, LedgerMismatch
from fedfairx.privacy import (
    Bounds,
    Centring,
    KeyedNoise,
    MemoryLedger,
    SimulatedNoise,
    StreamPrivatizer,
    calibrate,
    private,
)
from stored_ledger import stored_ledger

seeds = st.integers(0, 2**32 - 1)


def centred(dimension: int, epsilon: float = 1e4) -> StreamPrivatizer:
    return private(
        dimension,
        epsilon=epsilon,
        delta=1e-6,
        releases=4,
        noise=SimulatedNoise(0),
        centring=Centring.unit_box(dimension),
    )


def records(seed: int, dimension: int, count: int) -> tuple[np.ndarray, np.ndarray]:
    rng = np.random.default_rng(seed)
    return rng.random((count, dimension)) / np.sqrt(dimension), rng.random(count)


@given(seeds, st.integers(1, 6), st.integers(0, 20))
def test_leave_undoes_enter_for_sums_of_records(seed: int, dimension: int, count: int) -> None:
    centring = Centring.unit_box(dimension)
    contexts, rewards = records(seed, dimension, count)
    inner = np.zeros(packed_size(dimension + 1))
    for x, y in zip(contexts, rewards, strict=True):
        u, v, moved = centring.enter(x, y)
        assert not moved
        inner += pack(np.outer(u, u), u * v)
    expected = pack(contexts.T @ contexts, contexts.T @ rewards)
    assert centring.leave(inner, count) == pytest.approx(expected, abs=1e-12)


@given(seeds, st.integers(1, 6), st.floats(0.1, 1e6))
def test_what_enters_keeps_the_inner_bounds(seed: int, dimension: int, size: float) -> None:
    centring = Centring.unit_box(dimension)
    rng = np.random.default_rng(seed)
    x, y, _ = centring.enter(size * rng.normal(size=dimension), size * rng.normal())
    inner = centring.inner_bounds()
    assert np.linalg.norm(x) <= inner.context_norm * (1 + 1e-9)
    assert abs(y) <= inner.reward
    assert not inner.clip(x, y)[2]


def test_numbers_that_are_none_do_not_stop_it() -> None:
    x, y, moved = Centring.unit_box(2).enter(np.array([np.nan, np.inf]), np.nan)
    assert np.isfinite(x).all()
    assert np.isfinite(y)
    assert moved


def test_the_sensitivity_is_that_of_the_radii() -> None:
    centring = Centring.unit_box(5)
    assert centring.inner_bounds().sensitivity == pytest.approx(0.25 + 0.0625 + 0.25)
    assert Bounds().sensitivity == 2.0


def changes(bounds: Bounds, some: list[Record], others: list[Record]) -> np.ndarray:
    """How much the sums change when one of `some` is replaced by one of `others`: all pairs."""
    packed = [np.array([pack(np.outer(x, x), x * y) for x, y in each]) for each in (some, others)]
    scale = bounds.entry_scale(some[0][0].size)
    return np.linalg.norm((packed[0][:, None] - packed[1]) / scale, axis=-1)


def test_no_two_records_differ_by_more_than_the_sensitivity() -> None:
    centring = Centring.unit_box(3)
    bounds, rng = centring.inner_bounds(), np.random.default_rng(1)
    made = [centring.enter(rng.normal(size=3), rng.normal())[:2] for _ in range(200)]
    largest = float(changes(bounds, made, made).max())
    assert 0.7 * bounds.sensitivity < largest <= bounds.sensitivity * (1 + 1e-12)


def largest_change(subject: AuditedConfig, blank: list[Record], searches: int = 4) -> float:
    """How much a record changes the sums in place of `blank`, at most: by several local searches."""
    (point, level), size, rng = subject.middle, subject.dimension, np.random.default_rng(5)
    before = subject.sums([blank])[0]

    def objective(free: np.ndarray) -> float:
        moved = np.append(free[:-1], np.zeros(len(point) - size))  # an intercept stays as it is
        record = point + moved, level + float(free[-1])
        return -float(np.linalg.norm((subject.sums([[record]])[0] - before) / subject.scale))

    options = {"xtol": 1e-4, "ftol": 1e-7, "maxfev": 400}
    starts = [2.0 * rng.normal(size=size + 1) for _ in range(searches)]
    return max(-float(minimize(objective, start, method="Powell", options=options).fun) for start in starts)


@pytest.mark.long
@pytest.mark.parametrize("intercept", [False, True])
def test_blanking_a_record_changes_no_more_than_is_claimed(intercept: bool) -> None:
    """Through the real privatizer. A record of zeros is not blank: it is one far from the public point."""
    box = Centring.unit_box(2)
    bounds = box.inner_bounds(adjacency="add-remove")
    options = Options(
        algorithm="priv-fairx-bayes",
        epsilon=2.0,
        delta=0.1,
        mechanism="tree",
        bounds=Bounds(adjacency="add-remove"),
        centring=box,
        intercept=intercept,
    )
    subject = AuditedConfig(options=options, dimension=2, releases=1)
    assert subject.bounds == bounds
    assert bounds.sensitivity == pytest.approx(0.3563, abs=1e-4)
    nothing = largest_change(subject, [])
    assert bounds.sensitivity * (1 - 1e-3) < nothing < bounds.sensitivity + subject.step
    assert largest_change(subject, [subject.middle]) < bounds.sensitivity + subject.step
    far = subject.middle[0] - np.append(box.context, [0.0] * intercept)  # a context of zeros
    assert largest_change(subject, [(far, 0.0)], searches=1) > 1.5 * bounds.sensitivity


def test_the_guarantee_says_what_blank_means() -> None:
    settings_of = {"epsilon": 2.0, "releases": 2, "noise": SimulatedNoise(0)}
    bounds = Bounds(adjacency="add-remove")
    plain = private(2, bounds=bounds, **settings_of)
    around = private(2, bounds=bounds, centring=Centring.unit_box(2), **settings_of)
    assert "blanking one record (x, y), which then adds nothing and still counts as one, " in str(
        plain.guarantee
    )
    assert "which then adds nothing or lies at (x₀, y₀), and still counts as one" in str(around.guarantee)


def test_a_release_is_the_records_statistics_with_little_noise_at_a_huge_budget() -> None:
    privatizer = centred(3)
    contexts, rewards = records(7, 3, 200)
    for x, y in zip(contexts, rewards, strict=True):
        privatizer.add(x, y)
    release = privatizer.release()
    assert release.count == 200
    assert release.packed == pytest.approx(pack(contexts.T @ contexts, contexts.T @ rewards), abs=0.5)
    assert privatizer.spent == 1


def test_the_guarantee_speaks_of_the_radii_and_records_that_moved_are_counted() -> None:
    privatizer = centred(3, epsilon=2.0)
    privatizer.add(np.array([5.0, 5.0, 5.0]), 9.0)
    assert privatizer.clipped == 1
    assert privatizer.guarantee.context_norm == 0.5
    assert privatizer.guarantee.reward == 0.5
    assert privatizer.guarantee.epsilon == pytest.approx(2.0)


def test_a_wrong_dimension_is_refused() -> None:
    with pytest.raises(InvalidInput, match="centring must have dimension 4"):
        private(4, epsilon=1.0, releases=1, noise=SimulatedNoise(0), centring=Centring.unit_box(3))


def test_the_ledger_remembers_the_public_point() -> None:
    box, ledger = Centring.unit_box(2), MemoryLedger()
    moved = replace(box, context=(0.1, 0.2))
    settings_of = {"epsilon": 1.0, "releases": 2, "noise": SimulatedNoise(0), "ledger": ledger}
    private(2, centring=box, **settings_of)
    private(2, centring=box, **settings_of)
    for other in (moved, replace(box, reward=0.4), None):
        with pytest.raises(LedgerMismatch, match="public_point"):
            private(2, centring=other, **settings_of)


def test_the_mechanism_s_digest_names_the_centring() -> None:
    """Points and radii of the same sensitivity make other noise: who has others must be refused."""
    box = Centring.unit_box(2)
    others = (
        replace(box, context=(0.1, 0.2)),
        replace(box, reward=0.4),
        replace(box, context_radius=box.constant, constant=box.context_radius),
    )
    assert {each.inner_bounds().sensitivity for each in others} == {box.inner_bounds().sensitivity}
    options = {"epsilon": 1.0, "releases": 2, "noise": SimulatedNoise(0)}
    made = [private(2, centring=each, **options) for each in (box, *others)]
    digests = {each.mechanism.digest() for each in made}
    assert len(digests) == 4
    assert {each.release().mechanism for each in made} == digests
    assert private(2, centring=Centring.unit_box(2), **options).mechanism.digest() in digests
    bounds = box.inner_bounds()
    untold = calibrate("blt", epsilon=1.0, delta=1e-6, releases=2, sensitivity=bounds.sensitivity)
    parts = {"mechanism": untold, "bounds": bounds, "centring": box, "noise": SimulatedNoise(0)}
    assert StreamPrivatizer(2, **parts).mechanism.digest() in digests
    plain = Bounds(context_norm=bounds.context_norm, reward=box.reward_radius)
    assert private(2, bounds=plain, **options).mechanism.digest() not in digests


def test_whole_numbers_are_the_same_point() -> None:
    whole = Centring(context=(1, 0), context_radius=1, reward=0, reward_radius=1, constant=1)
    exact = Centring(context=(1.0, 0.0), context_radius=1.0, reward=0.0, reward_radius=1.0, constant=1.0)
    assert json.dumps(whole.to_dict()) == json.dumps(exact.to_dict())


def test_a_durable_ledger_keeps_the_bytes_that_are_sent_and_the_count_of_clipped(tmp_path: Path) -> None:
    noise = {"noise": KeyedNoise(bytes(32), agent="a", run="r")}
    options = {"epsilon": 2.0, "releases": 4, "centring": Centring.unit_box(2), **noise}
    with stored_ledger(tmp_path / "l") as ledger:
        privatizer = private(2, ledger=ledger, **options)
        privatizer.add(np.array([5.0, 5.0]), 9.0)
        release = privatizer.release()
        assert ledger.message(1) == release.to_bytes()
    with stored_ledger(tmp_path / "l") as ledger:
        again = private(2, ledger=ledger, **options)
        assert again.release(1) == release
        assert again.clipped == 1


def test_whole_records_are_shrunk_towards_the_point() -> None:
    box = Centring.unit_box(3)
    ball = replace(box, record_radius=0.4)
    x, y, moved = ball.enter(np.array(box.context) + np.array([0.3, 0.0, 0.0]), 0.9, gram_share=2.0)
    assert moved
    assert (x[0] / y, x[-1]) == pytest.approx((0.75, 0.25))  # κ stays, so that the number of records fits
    assert x[0] ** 2 + 2.0 * y**2 == pytest.approx(0.16)
    assert not ball.enter(np.array(box.context), 0.6)[2]
    bounds = ball.inner_bounds(gram_share=2.0)
    assert bounds.sensitivity == pytest.approx(0.16 + 0.25**2)
    assert Centring(**{**ball.to_dict(), "context": tuple(ball.context)}) == ball
    assert "record_radius" not in box.to_dict()  # as before there was one
    with pytest.raises(InvalidInput, match="record_radius must be a finite number > 0"):
        replace(box, record_radius=-1.0)


@pytest.mark.parametrize("adjacency", ["replace", "add-remove"])
@pytest.mark.parametrize("gram_share", [0.4, 1.0, 3.0])
def test_no_pair_of_shrunk_centred_records_exceeds_the_sensitivity(adjacency: str, gram_share: float) -> None:
    """Also not where a record is blanked, in either way."""
    point = replace(Centring.unit_box(2), record_radius=0.35)
    bounds = point.inner_bounds(adjacency=adjacency, gram_share=gram_share)
    assert (
        bounds.sensitivity
        < replace(point, record_radius=None)
        .inner_bounds(adjacency=adjacency, gram_share=gram_share)
        .sensitivity
    )
    rng, blank = np.random.default_rng(2), point.enter(*point.blank)[:2]
    made = [point.enter(rng.normal(size=2), rng.normal(), gram_share)[:2] for _ in range(300)]
    others = made if adjacency == "replace" else [blank, (np.zeros(3), 0.0)]
    largest = float(changes(bounds, made, others).max())
    assert 0.8 * bounds.sensitivity < largest <= bounds.sensitivity * (1 + 1e-9)


def test_the_guarantee_names_what_whole_records_are_shrunk_to() -> None:
    given = {"epsilon": 2.0, "releases": 4, "noise": SimulatedNoise(0)}
    text = str(private(2, bounds=Bounds(record_norm=1.2, gram_share=0.5), **given).guarantee)
    assert "‖x‖ ≤ 1 and |y| ≤ 1 and ‖x‖² + 0.5·y² ≤ 1.44 (records are clipped to that)" in text
    made = private(2, centring=replace(Centring.unit_box(2), record_radius=0.5), **given)
    assert "|y - y₀| ≤ 0.5 and ‖x - x₀‖² + (y - y₀)² ≤ 0.25, (x₀, y₀) a public point" in str(made.guarantee)
    assert made.guarantee.to_dict()["record_norm"] == 0.5
    assert "record_norm" not in private(2, **given).guarantee.to_dict()
    assert made.mechanism.sensitivity == pytest.approx(0.3125)


def test_releases_hold_the_sums_of_shrunk_records() -> None:
    point = replace(Centring.unit_box(3), record_radius=0.3)
    made = private(3, epsilon=1e5, releases=2, noise=SimulatedNoise(0), centring=point)
    contexts, rewards = records(4, 3, 50)
    expected = np.zeros(packed_size(3))
    for x, y in zip(contexts, rewards, strict=True):
        made.add(x, y)
        inner, above, _ = point.enter(x, y)
        near = np.array(point.context) + inner[:-1]
        expected += pack(np.outer(near, near), near * (point.reward + above))
    assert made.release().packed == pytest.approx(expected, abs=0.05)
    assert 0 < made.clipped < 50
