"""Whom to listen to: each partner by itself, held against the rule written out densely."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from fedfairx.core import listening
from fedfairx.core.partners import DIFFERENCES, EVIDENCE, SAME
from fedfairx.core.statistics import pack, unpack
from fedfairx.lanes.rows import floats, size_of

SD, NOISE = 0.5, 0.1
RIDGE = NOISE**2 / SD**2
BEFOREHAND = np.log([SAME] + [(1 - SAME) / (DIFFERENCES.size - 1)] * (DIFFERENCES.size - 1))
seeds = st.integers(0, 2**32 - 1)


def statistics(rng: np.random.Generator, count: int, theta: np.ndarray) -> np.ndarray:
    contexts = rng.random((count, theta.size)) / np.sqrt(theta.size)
    return pack(contexts.T @ contexts, contexts.T @ (contexts @ theta + NOISE * rng.normal(size=count)))


def ear(own: np.ndarray, releases: list[np.ndarray], noise_sd: float = 0.0) -> Any:
    d, count = unpack(own)[1].size, len(releases)
    made = listening.ear_in(floats(np.zeros(size_of(listening.ear_in, d, count))), d, count)
    made.own.array[:], made.noise_sd.array[:] = own, noise_sd
    for j, packed in enumerate(releases):
        made.releases.array[j] = packed
    return made


def listened(own: np.ndarray, releases: list[np.ndarray], noise_sd: float = 0.0) -> tuple[float, Any]:
    made = ear(own, releases, noise_sd)
    return listening.listen(made, 1.0, RIDGE, NOISE**2), made


def log_densities(own: np.ndarray, others: np.ndarray) -> np.ndarray:
    """ln p of one's own θ̂ for every q, by dense matrices; one's own Gram must have an inverse."""
    (gram, moment), (theirs, told), d = unpack(own), unpack(others), unpack(own)[1].size
    ahead = np.linalg.inv(theirs + RIDGE * np.eye(d))
    values = []
    for q in DIFFERENCES:
        spread = np.linalg.inv(gram) + (1 - q**2) * ahead + q**2 / RIDGE * np.eye(d)
        error = np.linalg.solve(gram, moment) - np.sqrt(1 - q**2) * ahead @ told
        values.append(
            -0.5 * np.linalg.slogdet(spread)[1] - 0.5 * error @ np.linalg.solve(spread, error) / NOISE**2
        )
    return np.array(values) - 0.5 * np.linalg.slogdet(gram)[1]


def by_the_rule(own: np.ndarray, releases: list[np.ndarray]) -> tuple[float, np.ndarray]:
    """q and who is heard, as the head of `listening` has it."""
    each = np.array([log_densities(own, one) for one in releases])
    below = each - each.max(axis=1, keepdims=True)
    level = int(np.maximum(below, -EVIDENCE).sum(axis=0).argmax())

    def those(k: int) -> tuple[np.ndarray, np.ndarray]:
        heard = below[:, : k + 1].max(axis=1) >= -EVIDENCE
        total = sum((one for one, used in zip(releases, heard, strict=True) if used), np.zeros(own.size))
        return heard, BEFOREHAND + log_densities(own, total)

    (heard, together), (fewer, alike) = those(level), those(0)
    left_out = int(heard.sum() - fewer.sum())
    if fewer.any() and alike.max() > together.max() + 2 * EVIDENCE + left_out:
        heard, together = fewer, alike
    return float(DIFFERENCES[np.flatnonzero(together >= together.max() - EVIDENCE)[-1]]), heard


@settings(max_examples=80, deadline=None)
@given(seeds, st.integers(1, 4), st.integers(1, 6), st.integers(8, 300))
def test_it_is_the_rule_as_written(seed: int, dimension: int, partners: int, count: int) -> None:
    rng = np.random.default_rng(seed)
    theta = SD * rng.normal(size=dimension)
    own = statistics(rng, count, theta)
    distances = rng.choice([0.0, 0.1, 0.3, 1.0], size=partners)
    releases = [statistics(rng, 200, theta + far * rng.normal(size=dimension)) for far in distances]
    difference, made = listened(own, releases)
    expected, heard = by_the_rule(own, releases)
    assert (made.heard.array > 0).tolist() == heard.tolist()
    assert difference == expected


@settings(max_examples=40, deadline=None)
@given(seeds, st.permutations(range(5)))
def test_the_order_of_partners_does_not_matter(seed: int, order: list[int]) -> None:
    rng = np.random.default_rng(seed)
    theta = SD * rng.normal(size=3)
    own = statistics(rng, 60, theta)
    releases = [statistics(rng, 80, theta + far * rng.normal(size=3)) for far in (0, 0, 0.1, 0.3, 1)]
    difference, made = listened(own, releases)
    again, turned = listened(own, [releases[j] for j in order])
    assert again == difference
    assert turned.heard.array.tolist() == made.heard.array[order].tolist()
    assert turned.told.array == pytest.approx(made.told.array, rel=1e-9, abs=1e-9)


@settings(max_examples=40, deadline=None)
@given(seeds, st.integers(1, 4), st.floats(0.1, 1e6), st.floats(-1e4, 1e4), st.integers(1, 7))
def test_what_hostile_partners_can_do_is_bounded(
    seed: int, dimension: int, size: float, pull: float, hostile: int
) -> None:
    """Whatever they send, and however many: one's own rewards stay within 7.3 in ln p of one's own prior."""
    rng = np.random.default_rng(seed)
    own = statistics(rng, 40, SD * rng.normal(size=dimension))
    directions = rng.normal(size=(hostile, dimension, dimension))
    sent = [pack(size * a @ a.T, pull * rng.normal(size=dimension)) for a in directions]
    _, made = listened(own, sent)
    gram, moment = unpack(made.told.array)
    believed = log_densities_of_prior(own, gram + RIDGE * np.eye(dimension), moment)
    alone = log_densities_of_prior(own, RIDGE * np.eye(dimension), np.zeros(dimension))
    most = EVIDENCE + np.log(SAME / (1 - SAME) * (DIFFERENCES.size - 1))
    assert most == pytest.approx(7.28, abs=0.01)
    assert believed >= alone - most - 1e-6 * abs(alone)


def log_densities_of_prior(own: np.ndarray, precision: np.ndarray, moment: np.ndarray) -> float:
    """ln p of one's own θ̂ under N(precision⁻¹ moment, σ² precision⁻¹)."""
    gram, told = unpack(own)
    spread = np.linalg.inv(gram) + np.linalg.inv(precision)
    error = np.linalg.solve(gram, told) - np.linalg.solve(precision, moment)
    return float(
        -0.5 * np.linalg.slogdet(spread)[1] - 0.5 * error @ np.linalg.solve(spread, error) / NOISE**2
    )


def test_partners_who_are_alike_are_added_up_to_the_bit() -> None:
    """100 times nine partners: in 95 and more all are heard wholly, where one in 20 may be doubted."""
    rng, pooled = np.random.default_rng(5), 0
    for _ in range(100):
        theta = SD * rng.normal(size=4)
        releases = [statistics(rng, 100, theta) for _ in range(9)]
        difference, made = listened(statistics(rng, 100, theta), releases)
        if difference == 0.0 and made.heard.array.all():
            total = np.zeros(releases[0].size)
            for each in releases:
                total += each
            assert made.told.array.tolist() == total.tolist()
            pooled += 1
    assert pooled >= 90


def test_one_bad_partner_among_good_ones_is_left_out_and_the_others_are_not() -> None:
    """And told is what the good ones say; in a sum with them it would spoil them all."""
    rng, out, kept = np.random.default_rng(6), 0, 0
    for _ in range(100):
        theta = SD * rng.normal(size=4)
        good = [statistics(rng, 100, theta) for _ in range(8)]
        _, made = listened(statistics(rng, 50, theta), [*good, statistics(rng, 100, -theta)])
        out += made.heard.array[8] == 0.0
        kept += made.heard.array[:8].sum() / 8
    assert out >= 95
    assert kept >= 98


def test_partners_who_are_off_by_the_same_are_not_believed_more_for_being_many() -> None:
    """Of 1 or 30 partners at one place off one's own, what is believed has about the same information."""
    rng, kept = np.random.default_rng(7), {}
    theta, shift = SD * rng.normal(size=3), 0.04 * np.array([1.0, -1.0, 1.0])
    own = statistics(rng, 1000, theta)
    for count in (1, 30):
        _, made = listened(own, [statistics(rng, 2000, theta + shift) for _ in range(count)])
        assert made.heard.array.all()
        kept[count] = np.trace(unpack(made.told.array)[0])
    assert 0.0 < kept[30] < 1.5 * kept[1]


def test_few_who_are_alike_are_found_among_many_who_are_not() -> None:
    rng = np.random.default_rng(8)
    theta = SD * rng.normal(size=4)
    alike = [statistics(rng, 300, theta) for _ in range(2)]
    strangers = [statistics(rng, 300, theta + rng.normal(size=4)) for _ in range(7)]
    difference, made = listened(statistics(rng, 300, theta), [*alike, *strangers])
    assert made.heard.array.tolist() == [1, 1, 0, 0, 0, 0, 0, 0, 0]
    assert difference == 0.0


def test_noise_is_allowed_for() -> None:
    """A noisy partner is not taken for a bad one: what its noise could have made contradicts nothing."""
    rng, heard = np.random.default_rng(9), 0
    for _ in range(50):
        theta = SD * rng.normal(size=3)
        own = statistics(rng, 200, theta)
        noisy = [statistics(rng, 500, theta) + 5.0 * rng.normal(size=own.size) for _ in range(4)]
        _, made = listened(own, noisy, noise_sd=5.0)
        heard += made.heard.array.sum()
    assert heard >= 0.97 * 200


def test_nobody_to_listen_to() -> None:
    own = statistics(np.random.default_rng(0), 9, np.ones(2))
    difference, made = listened(own, [])
    assert (difference, made.told.array.tolist()) == (0.0, [0.0] * own.size)
