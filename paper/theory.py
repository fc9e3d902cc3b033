"""The paper's lemmas and theorems as functions, with the constants hidden in O(·).

Solanki, Jain and Gujar, "Fairness and Privacy Guarantees in Federated Contextual Bandits"; the proofs are in
its appendix. Contexts have norm at most 1; logarithms are natural.

The printed proof of Theorem 1, step by step (C = 4L√β/γ, ℓ = ln(1 + T/d), g = the schedule's gap):

1. Good intervals, det Ψ_k ≤ ν det Ψ_{k-1}: the width grows by √(det Ψ_k/det Ψ_{k-1}) ≤ √ν. The paper writes
   ν, which is true but loose.
2. Widths at the rounds played: Lemma 1 and Cauchy-Schwarz give √(2 m T d ℓ). The paper drops the 2. (That
   would be right for widths taken after the update, as its V⁰ is; but then Lemma 2 does not apply, because V⁰
   depends on the action drawn. Taking V⁰ just before the action repairs this at the cost of the 2.)
3. Bad intervals: at most d ℓ/ln ν of them (the paper says "rounds"). In each, an agent's widths sum to no
   more than √(2 t_k ln(det ratio)) ≤ √(2 g d ℓ). The paper writes log_ν for 2 ln: too small for ν > √e.
4. Lemma 2 inside each bad interval: which intervals are bad is known only afterwards, so it must hold in all
   of them at once. The paper uses ln(4/δ) for one; a union over the p intervals makes it ln(4p/δ), and one
   martingale over all agents makes the paper's m√(2 t_k ·) a √(2 m t_k ·).
5. The sum over agents is bounded, while Definition 1 averages over them: `per_agent` divides by m.

`RegretBound.printed` is the expression inside the paper's O(·); `RegretBound.total` is the repaired bound.
"""

import math
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from paper.scores import Array


class EllipticalPotential(NamedTuple):
    """The three members of Lemma 1, in growing order."""

    potential: float  # Σ_t min{1, ‖x_t‖²_{U_t⁻¹}}
    determinant_bound: float  # 2 ln(det U_{n+1}/det U_1)
    trace_bound: float  # 2 d ln((tr U_1 + n L²)/(d det^{1/d} U_1))


def elliptical_potential_bound(observations: int, *, initial: Array, norm_bound: float = 1.0) -> float:
    """Compute the right side of Lemma 1 for vectors of norm at most `norm_bound` added to `initial`."""
    d = initial.shape[0]
    log_mean_det = float(np.linalg.slogdet(initial)[1]) / d
    mean_eigenvalue = (float(np.trace(initial)) + observations * norm_bound**2) / d
    return float(2 * d * (math.log(mean_eigenvalue) - log_mean_det))


def elliptical_potential(
    vectors: Array, *, initial: Array, norm_bound: float | None = None
) -> EllipticalPotential:
    """Compute all members of Lemma 1 for `vectors` (n, d) added one by one to `initial` (d, d)."""
    U = np.array(initial, dtype=float)
    longest = float(np.linalg.norm(vectors, axis=1).max(initial=0.0))
    norm_bound = longest if norm_bound is None else norm_bound
    start = float(np.linalg.slogdet(U)[1])
    potential = 0.0
    for x in vectors:
        potential += min(1.0, float(x @ np.linalg.solve(U, x)))
        U += np.outer(x, x)
    growth = 2 * (float(np.linalg.slogdet(U)[1]) - start)
    right = elliptical_potential_bound(len(vectors), initial=initial, norm_bound=norm_bound)
    return EllipticalPotential(potential, growth, right)


def martingale_bound(rounds: int, *, failure: float, width: float = 1.0) -> float:
    """Lemma 2: |Σ_t w_t(a_t) - Σ_t E_{a∼π_t} w_t(a)| stays below this with probability 1 - failure/2.

    `width` bounds every w; the paper's 1 needs a regulariser of at least 1 (w ≤ 1/√λ). The proof is
    Azuma-Hoeffding.
    """
    return width * math.sqrt(2 * rounds * math.log(4 / failure))


def instant_regret_bound(
    contexts: Array, *, policy: Array, gram: Array, radius: float, lipschitz: float, minimum_merit: float
) -> float:
    """Lemma 3: Σ_a |π* - π_t| ≤ (4 L √β/γ) E_{a∼π_t} ‖x_a‖_{V⁻¹}, for any θ_t and θ* inside the region.

    `lipschitz` (L) and `minimum_merit` (γ) are of the merit on the means that occur: the means of θ*, θ̂ and
    θ_t. Optimism plays no part in the proof. exp(cμ) has L/γ = c·exp(c·(highest - lowest mean)).
    """
    squares = (contexts * np.linalg.solve(gram, contexts.T).T).sum(axis=1)
    widths = np.sqrt(np.maximum(0.0, squares))
    return 4 * lipschitz * radius / minimum_merit * float(policy @ widths)


def communication_bound(agents: int, *, dimension: int, horizon: int) -> int:
    """Bound the number of synchronisations of Alg. 1 lines 10-17 by ⌈2 m d² ln²(1 + T/d)⌉.

    It holds for all m, d, T ≥ 1. With B = m d² ln²(1 + T/d) there are ⌈log₂ g⌉ rounds of doubling below
    g = ⌈T/B⌉ and at most T/g ≤ B from then on; B grows with m and d, so B ≥ ln²(1 + T) ≥ log₂ T ≥ ⌈log₂ g⌉
    for T ≥ 4, and T = 1, 2, 3 need no more than 1, 2, 3.
    """
    return math.ceil(2 * agents * dimension**2 * math.log1p(horizon / dimension) ** 2)


def private_radius_printed(
    rounds: int,
    *,
    agents: int,
    dimension: int,
    noise_sd: float,
    alpha: float,
    norm_bound: float,
    eigenvalue_low: float,
    eigenvalue_high: float,
    moment_noise: float,
) -> float:
    """Compute √β = σ√(2 ln(2/α) + d ln(ρ̄/ρ + t/(dρ))) + m c √ρ̄ + m z, as printed.

    ρ, ρ̄ bound the eigenvalues of one agent's noise H_i, z bounds ‖h_i‖_{H_i⁻¹}, c bounds ‖θ*‖. The factor m
    is larger than necessary: see `private_radius`.
    """
    inside = eigenvalue_high / eigenvalue_low + rounds / (dimension * eigenvalue_low)
    spread = 2 * math.log(2 / alpha) + dimension * math.log(inside)
    bias = norm_bound * math.sqrt(eigenvalue_high) + moment_noise
    return noise_sd * math.sqrt(spread) + agents * bias


def private_radius(
    observations: float,
    *,
    dimension: int,
    noise_sd: float,
    alpha: float,
    norm_bound: float,
    eigenvalue_low: float,
    eigenvalue_high: float,
    moment_noise: float,
) -> float:
    """Compute √β = σ√(2 ln(2/α) + d ln(1 + N/(dρ_min))) + c √ρ_max + z, with no factor m.

    ρ_min, ρ_max and z are of the **sum** H of all agents' noise and shift; N counts the observations in V.
    θ̂ - θ* = V⁻¹(Xη + h - Hθ*) with V ≽ H, and V ≽ G + ρ_min I for the first term (Abbasi-Yadkori et al.
    2011). From the paper's per-agent ρ, ρ̄, z take mρ, mρ̄ and √m z, since hᵀH⁻¹h is jointly subadditive.
    """
    spread = 2 * math.log(2 / alpha) + dimension * math.log1p(observations / (dimension * eigenvalue_low))
    return noise_sd * math.sqrt(spread) + norm_bound * math.sqrt(eigenvalue_high) + moment_noise


class NoiseBounds(NamedTuple):
    """Bounds on the noise of a sum: its eigenvalues when it is shifted, and what its moment costs."""

    smallest: float  # ρ_min
    largest: float  # ρ_max
    vector_cost: float  # z


def noise_bounds(*, noise_sd: float, dimension: int, releases: int, failure: float) -> NoiseBounds:
    """Bounds that hold at every release at once, with probability 1 - failure (Shariff and Sheffet 2018).

    With Υ = sup ‖N_t‖ and a shift of 2Υ the noise acts as a regulariser between ρ_min = Υ and ρ_max = 3Υ, and
    the moment's noise costs z = sup ‖h_t‖/√ρ_min. The noisiest entry has sd `noise_sd`.
    """
    matrix = noise_sd * (2.0 * math.sqrt(dimension) + 2.0 * math.sqrt(math.log(2.0 * releases / failure)))
    vector = noise_sd * (math.sqrt(dimension) + math.sqrt(2.0 * math.log(releases / failure)))
    return NoiseBounds(matrix, 3.0 * matrix, vector / math.sqrt(matrix))


@dataclass(frozen=True)
class RegretBound:
    """A bound on the fairness regret, summed over agents and as Definition 1 averages it."""

    printed: float  # the expression inside the paper's O(·), for the sum over agents
    total: float  # the repaired bound with its constants, for the sum over agents
    agents: int
    horizon: int

    @property
    def per_agent(self) -> float:
        """The bound on FR of Definition 1, the mean over agents."""
        return self.total / self.agents

    @property
    def vacuous(self) -> bool:
        """Whether it exceeds the trivial bound: two policies differ by at most 2 in every round."""
        return self.per_agent >= 2 * self.horizon


def theorem1_bound(
    horizon: int,
    *,
    agents: int,
    dimension: int,
    radius: float,
    lipschitz: float,
    minimum_merit: float,
    regulariser: float = 1.0,
    failure: float = 0.1,
    determinant_ratio: float = math.e,
    gap: int | None = None,
) -> RegretBound:
    """Theorem 1 for Fed-FairX-LinUCB; `total` holds with probability 1 - failure - P(θ* leaves a region).

    `radius` is √β at the horizon (it must not fall over time), `regulariser` the λ_total inside V: the
    paper's proof has λ_total = m, for which the logarithm is its ln(1 + T/d); with 1 it is ln(1 + mT/d).
    `determinant_ratio` is the proof's free ν > 1. `gap` is the longest stretch without a synchronisation of
    a schedule that doubles up to it and then keeps it; None is the paper's own. Step 3 needs decisions from
    shared and fresh local statistics together; from the shared ones alone it does not follow.
    """
    size = 4 * lipschitz * radius / minimum_merit
    printed = _printed(horizon, agents, dimension, math.log1p(horizon / dimension), determinant_ratio)
    total = _total(horizon, agents, dimension, regulariser, failure, determinant_ratio, gap)
    return RegretBound(size * printed, size * total, agents, horizon)


def theorem2_bound(
    horizon: int,
    *,
    agents: int,
    dimension: int,
    radius: float,
    lipschitz: float,
    minimum_merit: float,
    eigenvalue_low: float,
    eigenvalue_high: float,
    failure: float = 0.1,
    determinant_ratio: float = math.e,
    gap: int | None = None,
) -> RegretBound:
    """Theorem 2 for Priv-FairX-LinUCB, with ρ ≤ ρ̄ the eigenvalues of one agent's noise and √β private.

    Where the aggregate is shifted once, with eigenvalues ρ_min to ρ_max, give ρ_min/m and ρ_max/m.
    The paper only says that Theorem 1's proof carries over. Two of its steps don't. (a) The noise of
    successive synchronisations differs, so Ψ_k ≽ Ψ_{k-1} fails; `total` compares with the noise-free
    G + mρI ≼ V instead, which grows, and whose logarithm ln(1 + T/(dρ)) is not larger than the printed
    ln(ρ̄/ρ + T/(dρ)). (b) The schedule's gap has ln²(1 + T/d) in it, not this logarithm, so the printed
    m T d ln(·) needs the latter to be the smaller one; `total` uses the real gap.
    """
    size = 4 * lipschitz * radius / minimum_merit
    log = math.log(eigenvalue_high / eigenvalue_low + horizon / (dimension * eigenvalue_low))
    printed = _printed(horizon, agents, dimension, log, determinant_ratio)
    total = _total(horizon, agents, dimension, agents * eigenvalue_low, failure, determinant_ratio, gap)
    return RegretBound(size * printed, size * total, agents, horizon)


def _printed(T: int, m: int, d: int, log: float, nu: float) -> float:
    return nu * math.sqrt(m * T * d * log + m**2 * d**3 * log**3)


def _total(T: int, m: int, d: int, regulariser: float, failure: float, nu: float, gap: int | None) -> float:
    """Compute the repaired bound over C; step numbers are those of this module's docstring."""
    if gap is None:
        gap = math.ceil(T / (m * d**2 * math.log1p(T / d) ** 2))  # Alg. 1 line 12
    gap = min(gap, T)
    log = math.log1p(m * T / (d * regulariser))
    # Lemma 1 speaks of min{1, w²}. Widths reach 1/√λ, so w² ≤ loose·min{1, w²} and w ≤ √loose.
    loose = max(1.0, 1 / regulariser)
    intervals = math.ceil(math.log2(gap)) + T // gap + 2
    bad = min(math.floor(d * log / math.log(nu)), intervals)  # step 3
    widths = math.sqrt(2 * loose * m * T * d * log)  # step 2
    drift = martingale_bound(m * T, failure=failure, width=math.sqrt(loose))
    bad_widths = m * math.sqrt(2 * loose * gap * d * log)  # step 3
    bad_drift = martingale_bound(m * gap, failure=failure / intervals, width=math.sqrt(loose))  # step 4
    return math.sqrt(nu) * (widths + drift) + bad * (bad_widths + bad_drift)  # step 1
