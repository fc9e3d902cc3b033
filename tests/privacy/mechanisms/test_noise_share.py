"""Shares of noise: how much each member adds, on which grid, and what the sum of rounded rows is."""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import replace
from functools import cache
from itertools import product
from typing import Any

import numpy as np
import pytest
from scipy import stats
from scipy.interpolate import BSpline

from fedfairx.core.statistics import pack
from fedfairx.errors import InvalidInput
from fedfairx.privacy import (
    Bounds,
    Budget,
    Centring,
    KeyedNoise,
    SimulatedNoise,
    StreamPrivatizer,
    epsilon_for,
)
from fedfairx.privacy.mechanisms.gaussian import mechanisms
from fedfairx.privacy.mechanisms.noise_share import NoiseShare, default_colluding
from fedfairx.privacy.statement import statement
from fedfairx.util.arrays import Array
from streams import KEY


def budget(*, members: int = 10, colluding: int | None = 2, **other: Any) -> Budget:
    share = NoiseShare.among(members, colluding=colluding)
    return Budget(**{"epsilon": 2.0, "releases": 12, "share": share, **other})


def share_of(made: Budget) -> NoiseShare:
    share = made.calibrate().share
    assert share is not None
    return share


# --- who shares -------------------------------------------------------------------------------------------


def test_a_fifth_may_collude_and_at_least_one() -> None:
    assert [default_colluding(m) for m in (3, 4, 5, 9, 10, 14, 15, 50)] == [1, 1, 1, 1, 2, 2, 3, 10]
    assert NoiseShare.among(10) == NoiseShare(members=10, colluding=2, honest=8)
    assert NoiseShare.among(3) == NoiseShare(members=3, colluding=1, honest=2)


def test_too_few_members_are_refused_with_the_reason() -> None:
    with pytest.raises(InvalidInput, match="members must be at least 3 for secure aggregation where 1 may"):
        NoiseShare.among(2)
    with pytest.raises(InvalidInput, match="members must be at least 6 for secure aggregation where 4 may"):
        NoiseShare.among(5, colluding=4)
    with pytest.raises(
        InvalidInput, match="members must be >= 10: of fewer, 2 that collude leave less noise"
    ):
        NoiseShare(members=9, colluding=2, honest=8)
    with pytest.raises(InvalidInput, match="honest must be >= 2"):
        NoiseShare(members=3, colluding=2, honest=1)
    with pytest.raises(InvalidInput, match="colluding must be >= 1"):
        NoiseShare(members=3, colluding=0, honest=3)
    with pytest.raises(InvalidInput, match="records must be >= 1"):
        NoiseShare(members=3, colluding=1, honest=2, records=0)
    assert NoiseShare(members=12, colluding=2, honest=8).times_mu(2) < 1  # members that joined later


def test_claims_against_more_colluders() -> None:
    """μ of what is left of a total when c′ members subtract their rows, from the noise that is in it."""
    made = budget()
    mechanism, share = made.calibrate(), share_of(made)
    for colluding in range(2, 10):
        left = mechanism.own_sd * math.sqrt(10 - colluding)
        mu = mechanism.sensitivity * mechanism.factor.column_norm / left
        assert share.times_mu(colluding) * mechanism.mu == pytest.approx(mu, rel=1e-12)
    assert share.times_mu(2) == 1.0
    assert share.times_mu(9) == share.worst_times_mu == math.sqrt(8)
    with pytest.raises(InvalidInput, match=r"colluding must be in 0\.\.9"):
        share.times_mu(10)
    guarantee = made.guarantee()
    assert [each.mu / guarantee.mu for each in guarantee.against] == pytest.approx(
        [1.0, math.sqrt(8 / 7), math.sqrt(8)]
    )
    for each in guarantee.against:
        assert each.epsilon == pytest.approx(epsilon_for(guarantee.delta, each.mu))
    assert guarantee.epsilon == pytest.approx(2.0)


def test_the_guarantee_prints_the_claims_side_by_side() -> None:
    guarantee = budget().guarantee()
    text, plain = str(guarantee), str(budget(share=None).guarantee())
    assert text.startswith("All 12 totals of all members' messages together are (ε=2, δ=1e-06)")
    assert "It holds against the hub and up to 2 of 10 members together" in text
    assert "each member adds noise of 1/8 of the variance" in text
    assert "Against c′ members in general: μ·√(8/(10 − c′))." in text
    worst = guarantee.against[-1]
    assert f"whoever breaks the encryption: ε={worst.epsilon:.6g}, μ={worst.mu:.6g}." in text
    assert "hub" not in plain
    strict = str(budget(decide_from="released").guarantee())
    assert "All honest members decide so, by their terms." in strict
    told = guarantee.to_dict()["share"]
    assert (told["honest"], told["colluding"], len(told["against"])) == (8, 2, 3)
    assert "share" not in budget(share=None).guarantee().to_dict()
    page = " ".join(statement(guarantee).split())
    assert f"breaks the encryption: ε={worst.epsilon:.6g}, μ={worst.mu:.6g}." in page
    assert "Against anyone who reads every message" not in page
    # With three members, two that collude are all the others: there is no claim in between.
    assert len(budget(members=3, colluding=1).guarantee().against) == 2


def test_the_digest_covers_what_members_agree_on() -> None:
    base = budget()
    share = NoiseShare.among(10, colluding=2)
    same = replace(base, share=replace(share, members=11))  # a member that joined
    digest = base.calibrate().digest()
    assert same.calibrate().digest() == digest
    others = (
        replace(share, honest=7),
        replace(share, colluding=1),
        replace(share, records=1000),
        None,
    )
    found = {replace(base, share=other).calibrate().digest() for other in others}
    assert len(found | {digest}) == 5
    stored = base.to_dict()
    assert Budget.from_dict(stored) == base
    assert "share" not in replace(base, share=None).to_dict()  # as it was stored before there were shares
    assert Budget.from_dict(replace(base, share=None).to_dict()) == replace(base, share=None)


# --- the grid ---------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", mechanisms())
@pytest.mark.parametrize("gram_share", [0.3, 1.0, 7.0])
def test_the_step_is_small_beside_what_is_new_in_a_row(name: str, gram_share: float) -> None:
    """The least sd of an entry given all earlier rows, by a Cholesky factorisation of their covariance."""
    made = budget(mechanism=name, bounds=Bounds(gram_share=gram_share), releases=20)
    mechanism, share = made.calibrate(), share_of(made)
    rows = mechanism.factor.correlate(np.eye(20))
    new = np.diag(np.linalg.cholesky(rows @ rows.T)).min() * mechanism.own_sd
    new *= made.summed_bounds.entry_scale(3).min()
    assert mechanism.own_sd == pytest.approx(mechanism.base_sd / math.sqrt(8))
    assert share.step * 2**10 <= new * (1 + 1e-12) < share.step * 2**11 * (1 + 1e-12)
    assert math.frexp(share.step)[0] == 0.5


@pytest.mark.parametrize("name", mechanisms())
def test_totals_stay_in_range(name: str) -> None:
    for members, bounds in ((10, Bounds(context_norm=3.0, reward=0.2)), (300, Bounds(reward=5.0))):
        made = budget(mechanism=name, members=members, colluding=None, bounds=bounds)
        mechanism, share = made.calibrate(), share_of(made)
        assert share.records is not None
        bound = bounds.context_norm * max(bounds.context_norm, bounds.reward)
        loudest = mechanism.sd(np.arange(1, 13)).max() * math.sqrt(2)
        room = 2**48 * share.step
        assert members * (share.records * bound + 12 * loudest) < room
        most = math.ceil((room / members - 12 * loudest) / bound) - 1
        assert members * (most * bound + 12 * loudest) < room <= members * ((most + 1) * bound + 12 * loudest)
        asked = NoiseShare.among(members, records=most)
        assert share_of(replace(made, share=asked)).records == most
        with pytest.raises(
            InvalidInput, match=rf"records must be in 1\.\.{most}, so that totals of {members} "
        ):
            replace(made, share=replace(asked, records=most + 1)).calibrate()


# --- rows -------------------------------------------------------------------------------------------------


def members_of(
    made: Budget, count: int, dimension: int, noise: Callable[[int], Any]
) -> list[StreamPrivatizer]:
    return [made.privatizer(dimension, noise=noise(i)) for i in range(count)]


@pytest.mark.parametrize("centred", [False, True])
def test_rows_add_up_exactly_and_open_to_statistics(centred: bool) -> None:
    point = Centring.unit_box(3) if centred else None
    made = budget(members=4, colluding=1, centring=point)
    members = members_of(made, 4, 3, lambda i: SimulatedNoise(7, agent=i))
    step, rng = share_of(made).step, np.random.default_rng(0)
    mechanism, size = made.calibrate(), 14 if centred else 9
    streams = [
        mechanism.stream(
            SimulatedNoise(7, agent=i), entry_scale=made.summed_bounds.entry_scale(4 if centred else 3)
        )
        for i in range(4)
    ]
    truth, count = np.zeros(9), 0
    for k in range(1, 4):
        for member in members[:-1]:  # the last has no news and sends all the same
            x, y = rng.random(3) / math.sqrt(3), float(rng.random())
            member.add(x, y)
            truth, count = truth + pack(np.outer(x, x), x * y), count + 1
        rows = [member.release() for member in members]
        assert all(row.packed.shape == (size,) for row in rows)
        whole = [np.rint(row.packed / step).astype(np.int64) for row in rows]
        for row, steps in zip(rows, whole, strict=True):
            assert (row.packed == steps * step).all()
        total = sum(row.packed for row in rows)
        assert (total == sum(whole) * step).all()
        assert sum(row.count for row in rows) == count == 3 * k
        noise = sum(stream.next() for stream in streams)
        opened = members[0].opened(total, count)
        without = members[0].opened(total - noise, count)
        np.testing.assert_allclose(without, truth, atol=60 * step if centred else 2.1 * step)
        assert np.abs(opened - truth).max() > 100 * step
    with pytest.raises(InvalidInput, match=f"total must be {size} numbers"):
        members[0].opened(total[1:], count)


def test_records_beyond_the_agreed_number_stay_local() -> None:
    share = NoiseShare.among(3, records=5)
    made = Budget(epsilon=2.0, releases=4, share=share)
    one, two = (made.privatizer(2, noise=SimulatedNoise(0)) for _ in range(2))
    rng = np.random.default_rng(1)
    records = [(rng.random(2), float(rng.random())) for _ in range(8)]
    for i, (x, y) in enumerate(records):
        one.add(x, y, record=i)
        if i < 5:
            two.add(x, y, record=i)
        if i == 2:
            assert one.release() == two.release()
    assert (one.waiting, two.waiting) == (5, 2)
    mine, theirs = one.release(), two.release()
    assert mine == theirs
    assert mine.count == 5
    assert one.waiting == 0
    one.add(*records[0], record="later")
    assert one.waiting == 1
    assert one.release().count == 5


def test_a_share_without_a_grid_is_refused() -> None:
    made = replace(Budget(epsilon=2.0, releases=4).calibrate(), share=NoiseShare.among(3))
    with pytest.raises(InvalidInput, match="mechanism must be calibrated by a Budget"):
        StreamPrivatizer(2, mechanism=made, noise=SimulatedNoise(0))


@pytest.mark.long
def test_a_total_without_colluders_carries_the_central_noise() -> None:
    """Of five members one colludes: the variance of what the other four leave is σ², within 4.8 %.

    17 600 independent normals after B⁻¹. The interval fails once in 10⁵ runs, if the noise is right; the
    shares are rounded, which adds 10⁻⁷ of the variance.
    """
    runs, releases, dimension = 20, 20, 8
    made = budget(members=5, colluding=1, releases=releases)
    mechanism, scale = made.calibrate(), made.summed_bounds.entry_scale(dimension)
    left, all_of_them = [], []
    for run in range(runs):
        members = members_of(
            made, 5, dimension, lambda i, run=run: KeyedNoise(KEY, agent=f"agent {i}", run=f"run {run}")
        )
        rows = np.array([[member.release().packed for _ in range(releases)] for member in members])
        left.append(mechanism.factor.decorrelate(rows[1:].sum(axis=0)) / scale)
        all_of_them.append(mechanism.factor.decorrelate(rows.sum(axis=0)) / scale)
    for values, variance in ((left, mechanism.base_sd**2), (all_of_them, mechanism.base_sd**2 * 5 / 4)):
        samples = np.array(values)
        low, high = stats.chi2.ppf([5e-6, 1 - 5e-6], samples.size) / samples.size
        assert high - low < 0.1
        assert low < np.mean(samples**2) / variance < high


# --- the rounding law -------------------------------------------------------------------------------------


@cache
def cell(sd: float, k: float) -> float:
    """P[Q(sd·z) = k], from both tails."""
    low, high = (k - 0.5) / sd, (k + 0.5) / sd
    return float(
        stats.norm.cdf(high) - stats.norm.cdf(low) if k <= 0 else stats.norm.sf(low) - stats.norm.sf(high)
    )


def sum_of_rounded(n: int, sd: float, shifts: Array, values: Array) -> Array:
    """P[Σ Q(xᵢ + sd·zᵢ) = value], by convolutions."""
    reach = np.arange(-60, 61)
    law = np.array([1.0])
    for i in range(n):
        law = np.convolve(law, [cell(sd, float(k - shifts[i])) for k in reach])
    return law[values + 60 * n]


def rounded_sum(n: int, sd: float, shift: float, values: Array) -> Array:
    """P[Q(Σ(xᵢ + sd·zᵢ) + n - 1 uniforms) = value]: the density of a normal plus n uniforms, a spline."""
    spline = BSpline.basis_element(np.arange(n + 1) - n / 2, extrapolate=False)
    nodes, weights = np.polynomial.legendre.leggauss(40)
    law = np.zeros(len(values))
    for piece in range(n):
        v = piece - n / 2 + 0.5 + nodes / 2
        density = stats.norm.pdf(values[:, None] - shift - v[None, :], scale=math.sqrt(n) * sd)
        law += density @ (weights / 2 * spline(v))
    return law


def proved(n: int, sd: float, rows: int = 1, inverse_norm: float = 1.0) -> float:
    """The bound of docs/explanation/noise-shares.md on the relative error."""
    exponent = -2 * math.pi**2 * (1 - 1 / n) * sd**2 + (n - 1) * (1 + math.log(1.773) * rows)
    return math.exp(exponent + n * rows * inverse_norm**2 / (8 * sd**2))


@pytest.mark.parametrize("n", [2, 3, 5])
def test_a_sum_of_rounded_shares_is_a_rounded_sum(n: int) -> None:
    rng = np.random.default_rng(n)
    gaps = []
    for sd in (0.5, 0.7, 1.0, 1.4):
        shifts = rng.random(n)
        shift = float(shifts.sum())
        values = np.arange(-int(4 * sd * n**0.5) - 1, int(4 * sd * n**0.5) + 4)  # also far from the mean
        exact, law = sum_of_rounded(n, sd, shifts, values), rounded_sum(n, sd, shift, values)
        assert law.sum() == pytest.approx(1.0, abs=1e-3)
        gaps.append(float(np.abs(exact / law - 1).max()))
        assert gaps[-1] <= proved(n, sd)
    assert gaps[0] > 0.01  # a coarse grid shows
    assert gaps[2] < 6 * n * math.exp(-2 * math.pi**2 * (1 - 1 / n))  # of this order
    assert gaps[3] < 1e-7  # and it falls as fast as is said
    assert proved(n, 2.0**10) == 0.0


def test_two_rows_of_two_members_are_rounded_sums_together() -> None:
    """Rows of one stream depend on each other: B = (1, 0; ½, 1). The joint law, by quadrature."""
    slope = 0.5
    nodes, weights = np.polynomial.legendre.leggauss(30)

    def cells(sd: float, x: Array, reach: int) -> Array:
        """P[both rows of a member round to (j, k)]."""
        index = np.arange(-reach, reach + 1)
        first = index[:, None] + nodes[None, :] / 2 - x[0]  # noise of row 1
        density = stats.norm.pdf(first, scale=sd) * weights / 2
        offset = slope * first[:, :, None] + x[1]
        top = stats.norm.cdf((index + 0.5 - offset) / sd)
        return np.asarray(np.einsum("jn,jnk->jk", density, top - stats.norm.cdf((index - 0.5 - offset) / sd)))

    inverse = np.linalg.inv(np.array([[1.0, 0.0], [slope, 1.0]]))
    for sd, most in ((0.6, None), (1.3, 1e-6)):
        shifts, reach = np.array([[0.2, 0.4], [0.1, 0.7]]), 25
        one, two = (cells(sd, x, reach) for x in shifts)
        gap = 0.0
        for t in product(range(-2, 4), repeat=2):
            exact = sum(
                one[j + reach, k + reach] * two[t[0] - j + reach, t[1] - k + reach]
                for j, k in product(range(-reach + 4, reach - 3), repeat=2)
            )
            law = 0.0
            for left, right in product((-1, 0), repeat=2):
                v, w = left + 0.5 + nodes / 2, right + 0.5 + nodes / 2
                a = t[0] - shifts[:, 0].sum() - v[:, None]
                b = t[1] - shifts[:, 1].sum() - w[None, :]
                wide = math.sqrt(2) * sd
                density = stats.norm.pdf(a, scale=wide) * stats.norm.pdf(b - slope * a, scale=wide)
                law += np.einsum(
                    "i,j,ij->", weights / 2 * (1 - np.abs(v)), weights / 2 * (1 - np.abs(w)), density
                )
            gap = max(gap, abs(exact / float(law) - 1))
        assert gap <= proved(2, sd, rows=2, inverse_norm=float(np.linalg.norm(inverse, 2)))
        assert gap > 1e-3 if most is None else gap < most
