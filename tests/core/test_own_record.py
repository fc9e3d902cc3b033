"""Kernels of own records against the dense model of d + K numbers, of which they keep d and d + 2 a name."""

from __future__ import annotations

import math
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfairx.core import statistics
from fedfairx.core.agent_kernels import AgentMemory, decide_among_names, draw_parameter, learn_named
from fedfairx.core.marginal_likelihood import POINTS, SMALLEST
from fedfairx.core.merit import Exponential
from fedfairx.core.own_record import CONTEXTS, RATIOS, RECORDS, REWARDS, likely_ratios, subtract, whiten
from fedfairx.core.posterior import LikelySizes, NamesBelief, Posterior, Prior
from fedfairx.lanes.rows import floats
from own_record_reference import Belief, Records, Sizes, believe, known_mean, log_evidence, pairs
from posterior_reference import Prior as DensePrior

D, NAMES, STEEPNESS = 3, 5, 2.0
PLACES = np.array([2, 0, 1, 3, -1])  # of the names; the last has no tally
seeds = st.integers(0, 2**32 - 1)


def some(seed: int, count: int = 30) -> Records:
    """Of slots and of several weights, with a constant as the last column; the last name has no record."""
    rng = np.random.default_rng(seed)
    xs, who = rng.normal(size=(count, D)), rng.integers(NAMES - 1, size=count)
    xs[:, -1] = 1.0
    ys = 3.0 + xs @ rng.normal(size=D) + rng.normal(size=NAMES)[who] + rng.normal(size=count)
    return Records(xs, who, ys, NAMES, rng.choice([1.0, 0.6], count), rng.uniform(0.2, 1.0, count))


def a_prior() -> DensePrior:
    return DensePrior(np.zeros(D), 0.3, 0.5, True, np.eye(D)[-1])


class Learnt:
    """What an agent keeps of records that come one by one, whose sums have decayed before each of them."""

    def __init__(
        self, records: Records, sizes: Sizes, *, rule: str = "expected-merit", learn: bool = False
    ) -> None:
        sd = math.sqrt(sizes.variance / float(np.max(sizes.ridge)))
        prior = Prior(0.0, 0.3, 0.5) if learn else Prior(0.0, sd, math.sqrt(sizes.variance), learn=False)
        self.memory = AgentMemory.start(
            D, merit=Exponential(STEEPNESS), rule=rule, prior=prior, common=[D - 1] if learn else ()
        )
        self.ratio, self.tallies = sizes.rho, np.zeros((4, D + CONTEXTS))
        self.sums = np.zeros(statistics.packed_size(D))
        slots = np.ones(len(records.ys)) if records.slots is None else records.slots
        weights = np.ones(len(records.ys)) if records.weights is None else records.weights
        before = weights[0]
        for x, name, y, slot, weight in zip(records.xs, records.who, records.ys, slots, weights, strict=True):
            if weight != before:  # what came before is as if it had decayed, or grown, to this weight
                self.decay(before / weight)
                before = weight
            self.growth = self.learn(x, PLACES[name], y, slot)
        self.decay(before)

    def learn(self, x: np.ndarray, place: int, reward: float, slot: float = 1.0) -> float:
        values, own = np.append([7.0], x), (self.tallies, place, self.ratio)
        return float(learn_named(self.memory.memory, self.sums, values, 1, D, slot, reward, *own))

    def decay(self, factor: float) -> None:
        self.memory.decay(factor)
        self.sums *= factor
        self.tallies *= factor
        self.gather()

    def gather(self) -> None:
        """From plain sums, as an agent does where all of its sums have changed."""
        self.memory.statistics[:] = self.sums
        subtract(self.memory.statistics, self.tallies, self.ratio)
        self.memory.derive()

    def of(self, xs: np.ndarray, places: np.ndarray) -> tuple[np.ndarray, np.ndarray]:
        white, beside = np.full(xs.shape, np.nan), np.full((2, len(xs)), np.nan)
        whiten(floats(xs), floats(self.tallies), places, self.ratio, floats(white), floats(beside))
        inverse, theta = self.memory.inverse, self.memory.inverse @ self.memory.moment
        widths = np.einsum("ij,jk,ik->i", white, inverse, white)
        return white @ theta + beside[0], self.memory.noise_variance * (widths + beside[1])

    def decide(
        self, xs: np.ndarray, places: np.ndarray, *, uniform: float = 0.5, seed: float = 0.0
    ) -> tuple[int, np.ndarray, np.ndarray]:
        out, work = np.full(len(xs) + 2 * D, np.nan), np.full(len(xs) * (D + 2), np.nan)
        quadrature, own = self.memory.quadrature, (self.tallies, places, work, self.ratio, seed)
        action = decide_among_names(xs, self.memory.memory, out, uniform, quadrature, *own)
        return action, out[: len(xs)], out[len(xs) + D :]


def likely(seed: int) -> Sizes:
    return Sizes(*2.0 ** np.random.default_rng(seed).uniform(-3, 3, 3))


def candidates(seed: int) -> tuple[np.ndarray, np.ndarray]:
    """Rows, two of which are of one name, and their names' numbers."""
    return np.random.default_rng([seed, 1]).normal(size=(NAMES + 1, D)), np.array([0, 1, 2, 3, 4, 1])


@given(seeds)
def test_means_and_variances_are_those_of_the_dense_model(seed: int) -> None:
    records, sizes = some(seed), likely(seed)
    learnt, (rows, who) = Learnt(records, sizes), candidates(seed)
    means, variances = believe(records, known_mean(a_prior()), sizes).of(rows, who)
    found = learnt.of(rows, PLACES[who])
    assert found[0] == pytest.approx(means, abs=1e-9)
    assert found[1] == pytest.approx(variances, rel=1e-9)


@given(seeds)
def test_one_step_of_rank_one_is_all_that_a_record_changes(seed: int) -> None:
    """Whitened sums and V⁻¹ as they are followed are those of the plain sums, and log det V grows by what
    is said."""
    records, sizes = some(seed), likely(seed)
    learnt = Learnt(replace(records, weights=None), sizes)
    before = np.linalg.slogdet(learnt.memory.inverse)[1]
    growth = learnt.learn(np.array([0.4, -2.0, 1.0]), 2, 1.5, 0.6)
    followed, inverse = learnt.memory.statistics.copy(), learnt.memory.inverse.copy()
    learnt.gather()
    assert followed == pytest.approx(learnt.memory.statistics, abs=1e-9)
    assert inverse == pytest.approx(learnt.memory.inverse, abs=1e-9)
    assert growth == pytest.approx(before - np.linalg.slogdet(inverse)[1], abs=1e-9)


def test_published_sums_and_those_of_rewards_have_the_row_as_it_is() -> None:
    records = some(1)
    learnt = Learnt(replace(records, weights=None), Sizes(0.5, 2.0, 3.0))
    assert records.slots is not None
    rows = records.slots[:, None] * records.xs
    raw = statistics.pack(rows.T @ rows, rows.T @ records.ys)
    assert learnt.sums == pytest.approx(raw, rel=1e-12)
    assert learnt.memory.fresh == pytest.approx(raw, rel=1e-12)
    assert learnt.memory.squares == pytest.approx(records.ys @ records.ys)
    assert learnt.memory.observed == learnt.memory.count == 30
    for name, place in enumerate(PLACES[:4]):
        his, tally = records.who == name, learnt.tallies[place]
        assert tally[RECORDS] == pytest.approx((records.slots[his] ** 2).sum())
        assert tally[REWARDS] == pytest.approx((records.slots[his] * records.ys[his]).sum())
        expected = (records.slots[his] ** 2) @ records.xs[his]
        assert tally[CONTEXTS:] == pytest.approx(expected, abs=1e-12)


@pytest.mark.parametrize("seed", [0, 1])
def test_the_evidence_of_the_sizes_is_that_of_the_dense_model(seed: int) -> None:
    """ln p, up to a constant, and σ², at every λ and every ρ."""
    records, tau, prior = some(seed), 0.2, a_prior()
    learnt = Learnt(records, Sizes(0.25, 2.0, 1.0), learn=True)
    assert learnt.memory.observed == pytest.approx(records.count)
    ridges = SMALLEST * 2.0 ** np.arange(POINTS)
    logs, variances = log_evidence(records, prior, tau, ridges, RATIOS)
    found = np.empty((2, POINTS, len(RATIOS)))
    for j, (ratio, white, names) in enumerate(likely_ratios(learnt.sums, learnt.tallies, tau**2)):
        assert ratio == RATIOS[j]
        best = learnt.memory.likely_sizes(white, names)
        found[0, :, j], found[1, :, j], ridge = best[3].T
        assert ridge.tolist() == ridges.tolist()
        assert best[2] == pytest.approx(found[0, :, j].max())  # three columns are not so many as to be wary
    assert found[0] - found[0].max() == pytest.approx(logs - logs.max(), abs=1e-6)
    assert found[1] == pytest.approx(variances, rel=1e-6)


def test_with_the_likeliest_sizes_the_mean_is_learnt_as_by_the_dense_model() -> None:
    records, prior, ratio = some(3), a_prior(), 2.0
    learnt = Learnt(records, Sizes(0.25, 2.0, ratio), learn=True)
    for case, white, names in likely_ratios(learnt.sums, learnt.tallies, 0.2**2):
        if case == ratio:
            learnt.memory.learn_sizes(white, names)
    learnt.gather()
    learnt.memory.learn_mean()
    sizes = Sizes(learnt.memory.noise_variance, learnt.memory.ridge, ratio)
    rows, who = candidates(3)
    means, variances = believe(records, prior, sizes).of(rows, who)
    found = learnt.of(rows, PLACES[who])
    assert found[0] == pytest.approx(means, abs=1e-8)
    assert found[1] == pytest.approx(variances, rel=1e-8)


def test_without_a_record_of_a_name_nothing_is_said_of_the_sizes() -> None:
    learnt = Learnt(some(1), Sizes(0.5, 2.0, 3.0))
    assert list(likely_ratios(learnt.sums, np.zeros((4, D + CONTEXTS)), 0.04)) == []
    white = learnt.sums.copy()
    assert subtract(white, np.zeros((4, D + CONTEXTS)), 3.0) == (0.0, 0.0)
    assert white.tolist() == learnt.sums.tolist()


@pytest.mark.parametrize("rule", ["expected-merit", "greedy"])
def test_a_decision_is_by_these_means_and_variances(rule: str) -> None:
    records, sizes = some(4), Sizes(0.2, 2.0, 3.0)
    learnt, (rows, who) = Learnt(records, sizes, rule=rule), candidates(4)
    means, variances = believe(records, known_mean(a_prior()), sizes).of(rows, who)
    spread = variances / (1.0 + variances * STEEPNESS**2 / 8.0) if rule == "expected-merit" else 0.0
    logs = STEEPNESS * means + STEEPNESS**2 * spread / 2
    expected = np.exp(logs - logs.max()) / np.exp(logs - logs.max()).sum()
    for uniform in (0.1, 0.5, 0.9):
        action, policy, context = learnt.decide(rows, PLACES[who], uniform=uniform, seed=uniform)
        assert policy == pytest.approx(expected, rel=1e-9)
        assert action == int(np.searchsorted(np.cumsum(policy), uniform, side="right"))
        assert context.tolist() == rows[action].tolist()  # as it was given, to be learnt from


def covariance(belief: Belief, rows: np.ndarray, who: np.ndarray) -> np.ndarray:
    whole = pairs(rows, who, NAMES)
    return belief.variance * whole @ belief.spread @ whole.T


def drawn(learnt: Learnt, rows: np.ndarray, places: np.ndarray, count: int) -> np.ndarray:
    """(count, K - 1) differences of the expected rewards under Thompson's draws from the first one's."""
    rng, found = np.random.default_rng(7), []
    for _ in range(count):
        draw_parameter(learnt.memory.memory, rng.normal(size=(D, 1)), np.empty(D * D + 1))
        _, policy, _ = learnt.decide(rows, places, seed=rng.random())
        logs = np.log(policy) / STEEPNESS
        found.append(logs[1:] - logs[0])
    return np.array(found)


def test_thompson_draws_w_and_u_together() -> None:
    """8 000 draws: 5 means within 5 standard errors, and 15 covariances within 6 of normal ones: 1 in 10⁶."""
    records, sizes, count = some(5), Sizes(0.2, 2.0, 1.0), 8_000
    learnt, (rows, who) = Learnt(records, sizes, rule="thompson"), candidates(5)
    belief = believe(records, known_mean(a_prior()), sizes)
    from_first = np.eye(NAMES + 1)[1:] - np.eye(NAMES + 1)[0]
    mean = from_first @ belief.of(rows, who)[0]
    whole = from_first @ covariance(belief, rows, who) @ from_first.T
    found = drawn(learnt, rows, PLACES[who], count)
    sds = np.sqrt(np.diagonal(whole))
    assert (np.abs(found.mean(axis=0) - mean) < 5 * sds / math.sqrt(count)).all()
    errors = np.sqrt((np.outer(sds, sds) ** 2 + whole**2) / count)
    assert (np.abs(np.cov(found.T) - whole) < 6 * errors).all()


def test_one_name_has_one_draw_in_a_decision() -> None:
    """Which other names there are, and in which order, changes no draw of u."""
    learnt = Learnt(some(6), Sizes(0.2, 2.0, 0.1), rule="thompson")
    row = np.tile([[0.3, -0.8, 1.0]], (4, 1))
    draw_parameter(learnt.memory.memory, np.array([[0.4], [-1.0], [1.5]]), np.empty(D * D + 1))
    for seed in (0.0, 0.25, 0.7):
        policy = learnt.decide(row, np.array([1, 3, 1, -2]), seed=seed)[1]
        assert policy[0] == policy[2]
        assert len({*policy}) == 3
        other = learnt.decide(row[:3], np.array([3, -2, 1]), seed=seed)[1]
        assert other / other.sum() == pytest.approx(policy[[1, 3, 0]] / policy[[1, 3, 0]].sum(), rel=1e-12)


def test_a_belief_about_names_is_a_mixture_of_dense_models() -> None:
    """Its means, and 20 000 draws: means within 5 standard errors and variances within 7 of normal ones."""
    records, prior, count = some(8), known_mean(a_prior()), 20_000
    cases, chances = [Sizes(0.2, 2.0, 0.5), Sizes(0.3, 1.0, 4.0)], np.array([0.3, 0.7])
    learnt = Learnt(records, cases[0])
    gram, moment = statistics.unpack(learnt.sums)
    labels = [f"name {number}" for number in range(NAMES)]
    names = NamesBelief(
        dict(zip(labels[:4], PLACES.tolist(), strict=False)),
        learnt.tallies,
        chances,
        np.array([case.rho for case in cases]),
        tuple(
            LikelySizes.fixed(sd=math.sqrt(case.variance / case.ridge), noise_sd=math.sqrt(case.variance))
            for case in cases
        ),
    )
    posterior = Posterior(gram, moment, np.zeros(D), names.sizes[0], np.zeros(D), None, names)
    beliefs = [believe(records, prior, case) for case in cases]
    mean = sum(chance * belief.mean for chance, belief in zip(chances, beliefs, strict=True))
    assert posterior.mean == pytest.approx(mean[:D], abs=1e-9)
    assert posterior.own_mean(labels) == pytest.approx(mean[D:], abs=1e-9)
    rng, (rows, who) = np.random.default_rng(0), candidates(8)
    each = posterior.draws(rng.random(count), np.ones(count), rng.normal(size=(1 + D, count)))
    own = posterior.own_draws(labels, each, rng.normal(size=(NAMES, count)))
    values = rows @ each.thetas + own[who]
    moments = [belief.of(rows, who) for belief in beliefs]
    expected = sum(chance * m for chance, (m, _) in zip(chances, moments, strict=True))
    spread = sum(chance * (v + (m - expected) ** 2) for chance, (m, v) in zip(chances, moments, strict=True))
    assert (np.abs(values.mean(axis=1) - expected) < 5 * np.sqrt(spread / count)).all()
    assert (np.abs(values.var(axis=1) - spread) < 7 * spread * math.sqrt(2 / count)).all()
