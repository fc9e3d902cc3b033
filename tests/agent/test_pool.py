"""What an agent makes of releases: the plain sum, the lifted sum, and its own beside the others'."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest

import posterior_reference
from fedfairx.agent.pooling import Beliefs, Pool, lift, weigh
from fedfairx.core.confidence import Confidence
from fedfairx.core.statistics import pack, packed_size, unpack
from fedfairx.privacy import NonPrivate, Release, calibrate
from instances import worth

D = 3
BLT = calibrate("blt", epsilon=2.0, delta=1e-6, releases=10, sensitivity=2.0)


def release(seed: int, number: int, count: int) -> Release:
    rng = np.random.default_rng(seed)
    seen = rng.random((count, D))
    return Release(number, pack(seen.T @ seen, seen.T @ rng.random(count)), count, BLT.digest())


def pool(*, private: bool = True) -> Pool:
    return Pool(BLT if private else NonPrivate(), private, Confidence(), 4.0)


KNOWN = Beliefs(variance=0.01, size=1.0, ridge=1.0, mean=np.zeros(D), observed=0.0)
RELEASES = [release(seed, number, 50 * number) for seed, number in enumerate((1, 2, 3))]


def test_without_noise_it_is_the_sum() -> None:
    pooled = pool(private=False).all_alike(RELEASES, D, KNOWN)
    assert pooled.packed == pytest.approx(sum(each.packed for each in RELEASES))
    assert pooled.records == 300.0


def test_of_nothing_it_is_nothing() -> None:
    for private in (False, True):
        pooled = pool(private=private).all_alike([], D, KNOWN)
        assert (pooled.packed == np.zeros(packed_size(D))).all()
        assert pooled.records == 0.0


def test_noise_adds_up_over_releases_and_sets_the_shift() -> None:
    pooled = pool().all_alike(RELEASES, D, KNOWN)
    sd = math.sqrt(sum(float(BLT.sd(each.number)) ** 2 for each in RELEASES))
    lifted, _ = unpack(pooled.packed)
    plain, _ = unpack(np.asarray(sum(each.packed for each in RELEASES)))
    assert lifted == pytest.approx(plain + 4.0 * sd * np.eye(D))


@pytest.mark.parametrize("rows", [1, 9])
def test_a_total_has_the_noise_of_all_its_rows(rows: int) -> None:
    total = RELEASES[:1]
    sd = math.sqrt(rows) * float(BLT.sd(total[0].number))
    pooled = replace(pool(), rows=rows).all_alike(total, D, KNOWN)
    assert unpack(pooled.packed)[0] == pytest.approx(unpack(total[0].packed)[0] + 4.0 * sd * np.eye(D))
    filtered = replace(pool(), rows=rows, region=None).all_alike(total, D, KNOWN)
    expected = weigh(total[0].packed, noise_sd=sd, size=KNOWN.size, variance=KNOWN.variance)
    assert filtered.packed == pytest.approx(expected, rel=1e-12)


def test_lifting_and_weighing_leave_what_they_are_given() -> None:
    """Releases are kept, and pooled again with the next ones."""
    packed = RELEASES[0].packed.copy()
    lift(packed, 4.0)
    weigh(packed, noise_sd=1.0, size=1.0, variance=0.01)
    assert (packed == RELEASES[0].packed).all()


def test_alone_it_is_ones_own() -> None:
    own = release(9, 1, 200)
    pooled = pool().beside_own(own.packed, own.count, [], KNOWN)
    assert (pooled.packed == own.packed).all()
    assert pooled.records == 200.0


def test_beside_ones_own_the_others_count_by_one_weight() -> None:
    own = release(9, 1, 200)
    many = [release(seed, 1, 600) for seed in range(3)]
    pooled = pool().beside_own(own.packed, own.count, many, KNOWN)
    weight = (pooled.records - 200.0) / 1_800.0
    assert 0.0 < weight <= 1.0
    sd = math.sqrt(3.0) * float(BLT.sd(1))
    others = np.asarray(sum(each.packed for each in many))
    others[[0, 3, 5]] += 4.0 * sd  # the diagonal
    assert pooled.packed == pytest.approx(own.packed + weight * others)


def test_a_posterior_weighs_the_sum_beside_its_noise() -> None:
    posterior = Pool(BLT, True)
    pooled = posterior.all_alike(RELEASES, D, KNOWN)
    sd = math.sqrt(sum(float(BLT.sd(each.number)) ** 2 for each in RELEASES))
    total = np.asarray(sum(each.packed for each in RELEASES))
    wanted = posterior_reference.weighed(total, D, sd, KNOWN.size, KNOWN.variance)
    assert pooled.packed == pytest.approx(wanted)
    assert pooled.records == 300.0
    own = release(9, 1, 200)
    beside = posterior.beside_own(own.packed, own.count, RELEASES, KNOWN)
    assert beside.packed == pytest.approx(own.packed + wanted)
    assert beside.records == 500.0
    assert (posterior.beside_own(own.packed, own.count, [], KNOWN).packed == own.packed).all()
    assert (posterior.all_alike([], D, KNOWN).packed == 0.0).all()
    plain = Pool(NonPrivate(), False).all_alike(RELEASES, D, KNOWN)
    assert (plain.packed == total).all()


def test_a_weight_between_none_and_all_counts_as_such() -> None:
    """Few records, little noise and a large λ: there the best weight is neither 0 nor 1."""
    quiet = calibrate("blt", epsilon=18.0, delta=0.1, releases=10, sensitivity=2.0)
    confidence = Confidence(noise_sd=0.1, scale=0.5, regulariser=20.0)
    own = release(9, 2, 6)
    many = [release(seed, 2, 6) for seed in range(10)]
    sd = math.sqrt(10.0) * float(quiet.sd(2))
    weight = worth(
        own.packed,
        ratio=10.0,
        noise_sd=sd,
        radius=confidence.radius(66, D),
        regulariser=20.0,
        parameter_norm=confidence.parameter_norm,
    )
    assert 0.1 < weight < 0.9
    pooled = Pool(quiet, True, confidence, 0.0).beside_own(own.packed, own.count, many, KNOWN)
    assert pooled.records == pytest.approx(6 + 60 * weight)
    assert pooled.packed == pytest.approx(own.packed + weight * np.asarray(sum(e.packed for e in many)))
