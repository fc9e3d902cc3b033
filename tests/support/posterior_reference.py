"""The oracle for the rules of the posterior: as literal and slow as `reference`, and nothing from fedfairx.

    θ ~ N(mean, sd²I), y = x·θ + σε:   V = λI + Σxxᵀ, λ = σ²/sd², θ̂ = V⁻¹(Σxy + λ·mean), θ | data ~ N(θ̂,
    σ²V⁻¹)

Where the number n of own rewards y is a power of two, σ and sd are those under which they are likeliest: y ~
N(X·mean, σ²I + sd²XXᵀ), sd times a lognormal around the assumed one, and σ² as if two more rewards had been
seen. λ is a power of two. The mean of actions without features, or of an intercept, is learnt as well: the
best of m + δu, with δ ~ N(0, s²), integrated over where λ is compared; s² is the likeliest from sd₀² + σ₀²
on. It is learnt from all that decisions come from, also when others' sums come, by σ and λ of that moment.
Noisy sums are weighed in their eigenbasis: g → g²/(g + κ), κ = s²(1 + E‖θ‖²)/σ². Variances saturate at 8/c².
"""

from __future__ import annotations

import itertools
import math
from dataclasses import dataclass, field
from typing import Any

import numpy as np
from scipy.integrate import quad
from scipy.special import ndtr

import reference as ref


def log_expected_merit(mean: float, sd: float, merit: Any) -> float:
    """ln E f(μ), μ ~ N(mean, sd²), by adaptive quadrature between its bends, to nine digits."""
    if isinstance(merit, ref.Exponential):
        return merit.steepness * mean + (merit.steepness * sd) ** 2 / 2
    if sd == 0.0:
        return float(merit.log(mean))
    ends = sorted(
        {mean - 12 * sd, mean + 12 * sd, mean}
        | {
            bend
            for bend in (getattr(merit, name, mean) for name in ("low", "high", "midpoint"))
            if abs(bend - mean) < 12 * sd
        }
    )

    def integrand(value: float) -> float:
        density = math.exp(-(((value - mean) / sd) ** 2) / 2) / (sd * math.sqrt(2 * math.pi))
        return math.exp(merit.log(value)) * density

    parts = (quad(integrand, *part, epsabs=0.0, epsrel=1e-12)[0] for part in itertools.pairwise(ends))
    return math.log(sum(parts))


def most_variance(merit: Any) -> float:
    """What the variance of a mean never exceeds: 8/c², with half of a range for 5/c."""
    if isinstance(merit, ref.Exponential | ref.Logistic):
        return 8.0 / merit.steepness**2
    return 8.0 * ((merit.high - merit.low) / 10.0) ** 2


def policy_of_logs(logs: np.ndarray) -> np.ndarray:
    weights = np.exp(logs - logs.max())
    return weights / weights.sum()


def weighed(packed: np.ndarray, d: int, noise_sd: float, size: float, variance: float) -> np.ndarray:
    """What noisy packed statistics are worth, in the eigenbasis of their Gram matrix."""
    gram, moment = ref.unpack(packed, d)
    kappa = max(noise_sd**2 * (1 + size) / variance, noise_sd * (2 * math.sqrt(d) + 6))
    values, vectors = np.linalg.eigh(gram)
    values = values**3 / (values**2 + 4 * d * noise_sd**2)
    believed = (vectors * (values**2 / (values + kappa))) @ vectors.T
    return ref.pack(believed, (vectors * (values / (values + kappa))) @ vectors.T @ moment)


@dataclass
class Prior:
    mean: np.ndarray
    sd: float
    noise_sd: float
    learns: bool
    common: np.ndarray | None = None  # 1 in the coordinates whose mean is learnt

    def wide(self, fit: np.ndarray) -> np.ndarray:
        """s² of the mean where `fit` fits best: what fits, and of an intercept beside others anything."""
        far = 1.0 if self.common is None or self.common.all() else 1e15
        return np.maximum(fit**2, far**2 * (self.sd**2 + self.noise_sd**2))


def likeliest(
    xs: np.ndarray, ys: np.ndarray, prior: Prior, weights: np.ndarray | None = None
) -> tuple[float, float]:
    """(σ², λ) by the marginal likelihood of rewards ys (n,) at contexts xs (n, d): no sums, no factor.

    A record of weight w has w times the logarithm of its density: that of √w x and √w y.
    """
    n, y = float(len(ys)), ys - xs @ prior.mean
    if weights is not None:
        n, xs, y = float(weights.sum()), np.sqrt(weights)[:, None] * xs, np.sqrt(weights) * y
    values, vectors = np.linalg.eigh(xs @ xs.T)
    ridge = 2.0 ** np.arange(-20, 21)
    spread = 1 + np.maximum(values, 0.0) / ridge[:, None]  # I + XXᵀ/λ in its eigenbasis, for each λ
    delta, along, unlikely = np.zeros(41), np.zeros(len(y)), np.zeros(41)
    if prior.common is not None:
        along = xs @ prior.common @ vectors
        steep, pull = (along**2 / spread).sum(axis=1), (along * (y @ vectors) / spread).sum(axis=1)
        wide = prior.wide(pull / steep)
        left = ((y @ vectors - (pull / steep)[:, None] * along) ** 2 / spread).sum(axis=1)
        delta = pull / (steep + (2 * prior.noise_sd**2 + left) / (2 + n) / wide)
    rest = ((y @ vectors - delta[:, None] * along) ** 2 / spread).sum(axis=1)
    variance = (2 * prior.noise_sd**2 + rest) / (2 + n)
    if prior.common is not None:
        unlikely = (delta**2 / wide + np.log(1 + steep * wide / variance)) / 2
    sd = np.sqrt(variance / ridge)
    likely = -np.log(spread).sum(axis=1) / 2 - (2 + n) / 2 * np.log(variance) - np.log(sd / prior.sd) ** 2 / 2
    named = prior.common is not None and prior.common.all()
    if n < 2 * (xs.shape[1] - 8) and not named:  # rows of which little is known
        constant = np.zeros(len(y)) if prior.common is None else xs @ prior.common
        level = (y @ constant) ** 2 / max(constant @ constant, 1e-300)
        times = max(1.0, (y @ y - level) / (n * (prior.sd**2 + prior.noise_sd**2)))
        wider = np.log(sd / (0.7 * prior.sd)) - np.log(times) / 2
        unlikely = unlikely + 1e9 * np.maximum(wider, 0.0)
    best = int(np.argmax(likely - unlikely))
    return float(variance[best]), float(ridge[best])


def likeliest_shift(
    gram: np.ndarray, moment: np.ndarray, prior: Prior, variance: float, ridge: float
) -> float:
    """δ by the sums of records, for this σ² and λ: generalised least squares, with a prior of N(0, s²)."""
    if not gram.any():
        return 0.0
    z, b = gram @ prior.common, moment - gram @ prior.mean
    solved = np.linalg.solve(gram + ridge * np.eye(len(z)), np.column_stack([z, b]))
    steep, pull = prior.common @ z - z @ solved[:, 0], prior.common @ b - z @ solved[:, 1]
    return float(pull / (steep + variance / prior.wide(pull / steep)))


def quantiles(xs: np.ndarray, ys: np.ndarray, prior: Prior, levels: list[float]) -> np.ndarray:
    """(levels, d) quantiles of each coordinate of θ where σ, sd and δ are not known: by sums over grids.

    2σ₀²/σ² ~ χ² with two degrees of freedom, ln sd ~ N(ln sd₀, 1), δ ~ N(0, s²) with the s² of `likeliest`.
    """
    n, d = xs.shape
    common = np.zeros(d) if prior.common is None else prior.common
    y, one = ys - xs @ prior.mean, xs @ common
    middle, spread = 2 * math.log(max(prior.noise_sd, float(np.std(y)))), 5.0
    log_variance = np.linspace(middle - spread, middle + spread, 240)
    parts = []  # weight, means (d,) and sds (d,) of normals
    for power in range(-20, 21):
        ridge = 2.0**power
        inner = np.linalg.inv(np.eye(n) + xs @ xs.T / ridge)  # rewards are N(0, σ² times its inverse)
        volume = np.linalg.slogdet(inner)[1] / 2
        deltas, wide = np.zeros(1), 1.0
        if prior.common is not None:
            steep, pull = one @ inner @ one, one @ inner @ y
            wide = float(prior.wide(pull / steep))
            deltas = np.linspace(-6, 6, 121) * math.sqrt(wide)
        left = y[:, None] - np.outer(one, deltas)
        squares = np.einsum("ik,ij,jk->k", left, inner, left)
        inverse = np.linalg.inv(xs.T @ xs + ridge * np.eye(d))
        means = (inverse @ (xs.T @ ys + ridge * prior.mean))[:, None] + np.outer(
            ridge * inverse @ common, deltas
        )
        for size in log_variance:
            variance = math.exp(size)
            log_sd = 0.5 * (size - math.log(ridge)) - math.log(prior.sd)
            logs = volume - n / 2 * size - squares / (2 * variance) - deltas**2 / (2 * wide)
            logs += -math.log(wide) / 2 - size - prior.noise_sd**2 / variance - log_sd**2 / 2
            sds = np.sqrt(variance * np.diag(inverse))
            parts.append((logs, means, np.broadcast_to(sds[:, None], means.shape)))
    logs, means, sds = (np.concatenate(each, axis=-1) for each in zip(*parts, strict=True))
    weights = np.exp(logs - logs.max())
    kept = weights > 1e-9 * weights.sum()
    weights, means, sds = weights[kept] / weights[kept].sum(), means[:, kept], sds[:, kept]
    low = np.tile((means - 12 * sds).min(axis=1), (len(levels), 1))
    high = np.tile((means + 12 * sds).max(axis=1), (len(levels), 1))
    for _ in range(40):
        half = (low + high) / 2
        below = ndtr((half[:, :, None] - means) / sds) @ weights < np.array(levels)[:, None]
        low, high = np.where(below, half, low), np.where(below, high, half)
    return (low + high) / 2


@dataclass
class Believer:
    """One agent."""

    d: int
    prior: Prior
    ridge: float = 0.0
    variance: float = 0.0
    delta: float = 0.0  # by which the prior's mean is higher
    records: list[tuple[np.ndarray, float]] = field(default_factory=list)  # own ones that count
    shared: np.ndarray = field(default_factory=lambda: np.zeros(0))  # what others and earlier selves gave
    fresh: np.ndarray = field(default_factory=lambda: np.zeros(0))  # own records since then, where they count
    own: np.ndarray = field(default_factory=lambda: np.zeros(0))  # all own records, exact

    def __post_init__(self) -> None:
        q = self.d * (self.d + 3) // 2
        self.shared, self.fresh, self.own = np.zeros(q), np.zeros(q), np.zeros(q)
        self.ridge = max(self.prior.noise_sd / self.prior.sd, 1e-3) ** 2
        self.variance = self.ridge * self.prior.sd**2

    @property
    def mean(self) -> np.ndarray:
        return self.prior.mean + (0.0 if self.prior.common is None else self.delta * self.prior.common)

    def posterior(self) -> tuple[np.ndarray, np.ndarray, np.ndarray]:
        """V, b + λ·mean, θ̂."""
        gram, moment = ref.unpack(self.shared + self.fresh, self.d)
        V, b = gram + self.ridge * np.eye(self.d), moment + self.ridge * self.mean
        return V, b, np.linalg.solve(V, b)

    def policy(
        self, x: np.ndarray, merit: Any, rule: str, normals: np.ndarray | None
    ) -> tuple[np.ndarray, np.ndarray]:
        """(policy, θ)."""
        V, _, theta = self.posterior()
        if rule == "thompson":
            theta = theta + math.sqrt(self.variance) * np.linalg.cholesky(np.linalg.inv(V)) @ normals
        means = x @ theta
        if rule in ("thompson", "greedy"):
            return ref.policy_of_means(means, merit), theta
        squares, most = self.variance * np.einsum("ai,ij,aj->a", x, np.linalg.inv(V), x), most_variance(merit)
        widths = np.sqrt(squares * most / (squares + most))
        logs = np.array([log_expected_merit(m, s, merit) for m, s in zip(means, widths, strict=True)])
        return policy_of_logs(logs), theta

    def learn(self, x: np.ndarray, y: float, decide_from: str) -> None:
        record = ref.pack(np.outer(x, x), x * y)
        self.own += record
        if decide_from == "released":
            return
        self.records.append((x, y))
        self.fresh += record
        n = len(self.records)
        if n & (n - 1) == 0 and self.prior.learns:
            xs, ys = (np.array(part) for part in zip(*self.records, strict=True))
            self.variance, self.ridge = likeliest(xs, ys, self.prior)
            self.learn_mean()

    def learn_mean(self) -> None:
        if self.prior.common is not None:
            sums = ref.unpack(self.shared + self.fresh, self.d)
            self.delta = likeliest_shift(*sums, self.prior, self.variance, self.ridge)

    def absorb(self, releases: list[np.ndarray], me: int, decide_from: str, noise_sd: list[float]) -> None:
        V, _, theta = self.posterior()
        size = float(theta @ theta + self.variance * np.trace(np.linalg.inv(V)))
        beside = decide_from == "own+released"
        taken = [k for k in range(len(releases)) if not (beside and k == me)]
        new = sum((releases[k] for k in taken), np.zeros_like(self.shared))
        sd = math.sqrt(sum(noise_sd[k] ** 2 for k in taken))
        if sd > 0:
            new = weighed(new, self.d, sd, size, self.variance)
        if beside:
            new = new + self.own
        if len(releases) > 1 or sd > 0:  # a federation of one without noise hears nothing new
            self.shared, self.fresh = new, np.zeros_like(new)
            if decide_from != "released":
                self.learn_mean()


def posterior_run(
    contexts: np.ndarray,
    noise: np.ndarray,
    uniforms: np.ndarray,
    theta_star: np.ndarray,
    rule: str,
    *,
    merits: list[Any],
    prior: Prior,
    sync_rounds: Any = (),
    release_noise: Any = None,
    noise_sd: Any = None,
    decide_from: str = "released+local",
    normals: np.ndarray | None = None,
) -> ref.Run:
    """Lock step on given contexts (T, m, K, d), reward noise, uniforms (T, m), Thompson's normals (T, m, d).

    release_noise (k, agent) → (q,) is added to the agent's exact sums at the k-th synchronisation, and
    noise_sd(k) is the sd of its entries: what the agents know of it.
    """
    T, m, K, d = contexts.shape
    agents = [Believer(d, prior) for _ in range(m)]
    shape = (T, m)
    run = ref.Run(
        policies=np.zeros((*shape, K)),
        actions=np.zeros(shape, dtype=int),
        rewards=np.zeros(shape),
        thetas=np.zeros((*shape, d)),
        estimates=np.zeros((*shape, d)),
        grams=np.zeros((*shape, d, d)),
        moments=np.zeros((*shape, d)),
        radii=np.zeros(shape),
        fairness_regret=np.zeros(shape),
        reward_regret=np.zeros(shape),
    )
    rounds = {int(t) for t in sync_rounds}
    for t in range(T):
        for i, agent in enumerate(agents):
            x, now = contexts[t, i], (t, i)
            run.grams[now], run.moments[now], run.estimates[now] = agent.posterior()
            run.radii[now] = math.sqrt(agent.variance)
            z = None if normals is None else normals[now]
            pi, run.thetas[now] = agent.policy(x, merits[i], rule, z)
            a = ref.draw(pi, uniforms[now])
            mu = x @ theta_star
            y = float(mu[a] + noise[now])
            agent.learn(x[a], y, decide_from)
            fair = ref.policy(theta_star, x, merits[i])
            run.policies[now], run.actions[now], run.rewards[now] = pi, a, y
            run.fairness_regret[now], run.reward_regret[now] = np.abs(fair - pi).sum(), (fair - pi) @ mu
        if t + 1 in rounds:
            k = len(run.syncs)
            exact = [agent.own.copy() for agent in agents]
            released = [e if release_noise is None else e + release_noise(k, i) for i, e in enumerate(exact)]
            sds = [0.0 if noise_sd is None else float(noise_sd(k))] * m
            for i, agent in enumerate(agents):
                agent.absorb(released, i, decide_from, sds)
            run.syncs.append(t + 1)
    return run


# --- half-life ----------------------------------------------------------------------------------------------


def weights_of(clock: Any, half_life: float, steps: int = 64) -> np.ndarray:
    """The weights of records after the last of them; `clock` (n,) is their number, or their time.

    Before a record comes, the weights of those before it fall by 2^(-passed/half_life), if what has passed
    since they last fell is a step or more.
    """
    weights, fell = np.zeros(0), 0.0
    for now in clock:
        if (now - fell) * steps >= half_life:
            weights, fell = weights * 0.5 ** ((now - fell) / half_life), now
        weights = np.append(weights, 1.0)
    return weights


def weighted_posterior(
    xs: np.ndarray, ys: np.ndarray, weights: np.ndarray, ridge: float, mean: float = 0.0
) -> tuple[np.ndarray, np.ndarray]:
    """V and θ̂ of records with weights."""
    V = ridge * np.eye(xs.shape[1]) + sum(w * np.outer(x, x) for w, x in zip(weights, xs, strict=True))
    b = ridge * mean + sum(w * x * y for w, x, y in zip(weights, xs, ys, strict=True))
    return V, np.linalg.solve(V, b)
