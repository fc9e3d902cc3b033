"""The oracle: a slow, literal NumPy transcription of the algorithm, held beside the paper line by line.

It imports nothing from fedfairx, so that an error there can't hide here. "Alg. 1 line n" is the n-th
numbered statement of the algorithm box of Solanki, Jain and Gujar, "Fairness and Privacy Guarantees in
Federated Contextual Bandits"; Alg. 2 is its PRIVATIZER. `# Differs from paper:` marks what had to be settled
because the paper is silent or contradicts itself.

Shapes: T rounds, m agents, K arms, d features; packed statistics have length q = d(d+3)/2: the upper triangle
of the Gram matrix row by row, then the moment.
"""

from __future__ import annotations

import functools
import math
from collections.abc import Callable, Sequence
from dataclasses import dataclass, field
from typing import Any

import numpy as np

# ---------------------------------------------------------------------------------------------------------
# Merit functions f: expected reward -> positive score. `log` is ln f and `log_slope` is (ln f)' = f'/f, so
# that a policy never needs f itself (e^{1000 μ} overflows; its logarithm does not).
# ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class Exponential:
    """f(μ) = exp(steepness · μ); the paper's experiments use steepness 10."""

    steepness: float

    def log(self, mu):
        return self.steepness * np.asarray(mu, dtype=float)

    def log_slope(self, mu):
        return np.full_like(np.asarray(mu, dtype=float), self.steepness)


@dataclass(frozen=True)
class Affine:
    """f(μ) = offset + slope · μ for μ in [low, high], constant outside, so that f >= γ > 0."""

    offset: float
    slope: float
    low: float = 0.0
    high: float = 1.0

    def log(self, mu):
        return np.log(self.offset + self.slope * np.clip(mu, self.low, self.high))

    def log_slope(self, mu):
        held = np.clip(mu, self.low, self.high)
        return np.where(held == mu, self.slope / (self.offset + self.slope * held), 0.0)


@dataclass(frozen=True)
class Power:
    """f(μ) = (offset + μ)^exponent for μ in [low, high], constant outside, so that f >= γ > 0."""

    exponent: float
    offset: float
    low: float = 0.0
    high: float = 1.0

    def log(self, mu):
        return self.exponent * np.log(self.offset + np.clip(mu, self.low, self.high))

    def log_slope(self, mu):
        held = np.clip(mu, self.low, self.high)
        return np.where(held == mu, self.exponent / (self.offset + held), 0.0)


@dataclass(frozen=True)
class Logistic:
    """f(μ) = floor + 1/(1 + exp(-steepness · (μ - midpoint)))."""

    steepness: float
    midpoint: float
    floor: float

    def log(self, mu):
        log_sigmoid = -np.logaddexp(0.0, -self.steepness * (np.asarray(mu, dtype=float) - self.midpoint))
        return np.logaddexp(math.log(self.floor), log_sigmoid) if self.floor > 0 else log_sigmoid

    def log_slope(self, mu):
        z = self.steepness * (np.asarray(mu, dtype=float) - self.midpoint)
        # f'/f = steepness · s(1-s)/(floor + s) with s the sigmoid, in logarithms
        log_s, log_rest = -np.logaddexp(0.0, -z), -np.logaddexp(0.0, z)
        return self.steepness * np.exp(log_s + log_rest - self.log(mu))


@dataclass(frozen=True)
class General:
    """Any f, positive on [low, high] and held constant outside, with its derivative, both vectorised."""

    function: Callable[[Any], Any]
    derivative: Callable[[Any], Any]
    low: float = -math.inf
    high: float = math.inf

    def log(self, mu):
        return np.log(self.function(np.clip(mu, self.low, self.high)))

    def log_slope(self, mu):
        held = np.clip(mu, self.low, self.high)
        return np.where(held == mu, self.derivative(held) / self.function(held), 0.0)


# ---------------------------------------------------------------------------------------------------------
# Policy and objective
# ---------------------------------------------------------------------------------------------------------


def policy_of_means(mu, merit):
    """π(a) = f(μ_a)/Σ f(μ_a') along the last axis. Alg. 1 line 7."""
    log_f = merit.log(mu)
    weight = np.exp(log_f - log_f.max(axis=-1, keepdims=True))
    return weight / weight.sum(axis=-1, keepdims=True)


def policy(theta, contexts, merit):
    """The fair policy if θ were the truth: (K,) from theta (d,) and contexts (K, d). Alg. 1 line 7."""
    return policy_of_means(np.asarray(contexts) @ np.asarray(theta), merit)


def objective(theta, contexts, merit):
    """g(θ) = Σ_a π(a) θ·x_a, what Alg. 1 line 6 maximises."""
    mu = np.asarray(contexts) @ np.asarray(theta)
    return float(policy_of_means(mu, merit) @ mu)


def objective_gradient(theta, contexts, merit):
    """∇g(θ) = Σ_a π(a) (1 + (f'/f)(μ_a) (μ_a - g)) x_a."""
    contexts = np.asarray(contexts)
    _, per_arm = _value_and_slopes(contexts @ np.asarray(theta), merit)
    return per_arm @ contexts


def _value_and_slopes(mu, merit):
    """g and ∂g/∂μ_a along the last axis of mu (..., K)."""
    p = policy_of_means(mu, merit)
    g = (p * mu).sum(axis=-1)
    return g, p * (1.0 + merit.log_slope(mu) * (mu - g[..., None]))


# ---------------------------------------------------------------------------------------------------------
# Optimism: argmax of g over {θ : ‖θ - θ̂‖_V <= √β}. Alg. 1 line 6.
# With V = LLᵀ and θ = θ̂ + √β L^{-T} u, ‖u‖ <= 1, arm a has mean μ̂_a + √β z_a·u where z_a = L^{-1} x_a.
# ---------------------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class _Ball:
    """The problem in the coordinates u of the unit ball."""

    theta_hat: np.ndarray
    back: np.ndarray  # √β L^{-T}
    means: np.ndarray  # μ̂ (K,)
    reach: np.ndarray  # √β z_a as rows (K, d)
    merit: Any

    def theta(self, u):
        return self.theta_hat + self.back @ u

    def value(self, u):
        mu = self.means + u @ self.reach.T
        return (policy_of_means(mu, self.merit) * mu).sum(axis=-1)

    def value_and_gradient(self, u):
        g, slopes = _value_and_slopes(self.means + u @ self.reach.T, self.merit)
        return g, slopes @ self.reach

    def arm_directions(self):
        """z_a/‖z_a‖: where arm a alone is largest in the region. Arms at zero have none."""
        length = np.linalg.norm(self.reach, axis=1)
        return self.reach[length > 0] / length[length > 0, None]


def _ball(theta_hat, V, radius, contexts, merit):
    theta_hat, contexts = np.asarray(theta_hat, dtype=float), np.asarray(contexts, dtype=float)
    factor = np.linalg.cholesky(np.asarray(V, dtype=float))
    back = radius * np.linalg.inv(factor).T
    reach = radius * np.linalg.solve(factor, contexts.T).T
    return _Ball(theta_hat, back, contexts @ theta_hat, reach, merit)


def _length(v):
    return np.sqrt((v * v).sum(axis=-1, keepdims=True))


def _unit(v):
    return v / np.maximum(_length(v), 1e-300)


def _into_ball(v):
    return v / np.maximum(1.0, _length(v))


def _ascend(ball, u, iterations, tolerance=1e-7):
    """Monotone projected-gradient ascent of every row of u at once: (u, g), no row worse than it came.

    The first trial is the longest step of all, u <- ∇g/‖∇g‖ (projection of u + s∇g as s -> ∞); a row whose
    objective does not grow enough (Armijo) retries with a quarter of the step.
    """
    u = u.copy()
    g, gradient = ball.value_and_gradient(u)
    step = np.full(u.shape[0], np.inf)
    live = np.arange(u.shape[0])  # rows that still move
    for _ in range(iterations):
        old, direction = u[live], _unit(gradient[live])
        rows = np.arange(live.size)  # rows of `live` without an accepted step yet
        for _ in range(30):
            at = live[rows]
            far = np.isinf(step[at])
            trial = _into_ball(old[rows] + np.where(far, 0.0, step[at])[:, None] * direction[rows])
            trial[far] = direction[rows[far]]
            trial_g, trial_gradient = ball.value_and_gradient(trial)
            good = trial_g >= g[at] + 1e-4 * (gradient[at] * (trial - old[rows])).sum(axis=1)
            done = at[good]
            u[done], g[done], gradient[done] = trial[good], trial_g[good], trial_gradient[good]
            step[at] = np.where(good, 4 * step[at], np.where(far, 1.0, step[at] / 4))
            rows = rows[~good]
            if rows.size == 0:
                break
        step[step > 64] = np.inf
        live = live[_length(u[live] - old)[:, 0] > tolerance]
        if live.size == 0:
            break
    return u, g


def _refine(ball, u, tolerance=1e-13, iterations=5000):
    """Run the fixed point u = ∇g/‖∇g‖ to `tolerance`, past what comparing objectives can resolve (√1e-16).

    The residual ‖∇g/‖∇g‖ - u‖ steers the damping instead of g. An optimum inside the ball stays as it is.
    """
    if np.linalg.norm(u) < 1 - 1e-6:
        return u
    best, best_residual, damping = u, np.inf, 1.0
    start = float(ball.value(u))
    for _ in range(iterations):
        target = _unit(ball.value_and_gradient(u)[1])
        residual = float(np.linalg.norm(target - u))
        if residual < best_residual:
            best, best_residual = u, residual
        elif residual > 2 * best_residual and best_residual > 1e-12:
            u, damping, best_residual = best, damping / 2, np.inf  # it swings over the optimum: shorter steps
            if damping < 1e-6:
                break
            continue
        if residual <= tolerance:
            break
        u = target if damping == 1.0 else _unit(u + damping * (target - u))
    return best if ball.value(best) >= start - 1e-12 * max(1.0, abs(start)) else u


def _starts(ball):
    """θ̂ and every arm's own direction, which is enough for exponential merit. Where merit levels off, the
    best θ may lift several arms at once or press others down, so more is tried."""
    arms = ball.arm_directions()
    starts = [np.zeros((1, ball.theta_hat.size)), arms]
    if not isinstance(ball.merit, Exponential):
        scattered = np.random.default_rng(0).standard_normal((100, ball.theta_hat.size))
        starts += [-arms, _unit(ball.reach - ball.reach.mean(axis=0)), _unit(scattered)]
    return np.vstack(starts)


def optimistic_multistart(theta_hat, V, radius, contexts, merit):
    """(θ, g): the best of the fixed points u = ∇g/‖∇g‖ reached from `_starts`, run to 1e-13."""
    ball = _ball(theta_hat, V, radius, contexts, merit)
    u, g = _ascend(ball, _starts(ball), iterations=100, tolerance=1e-4)
    best, best_g = u[0], g[0]
    tried: list[np.ndarray] = []
    for k in np.argsort(-g, kind="stable"):
        if g[k] < g.max() - 1e-6 * max(1.0, abs(g.max())):
            break
        if any(np.linalg.norm(u[k] - other) < 1e-3 for other in tried):
            continue
        tried.append(u[k])
        refined = _refine(ball, u[k])
        refined_g = float(ball.value(refined))
        if len(tried) == 1 or refined_g > best_g:
            best, best_g = refined, refined_g
    return ball.theta(best), float(best_g)


def optimistic_bruteforce(theta_hat, V, radius, contexts, merit, starts=1000, seed=0):
    """(θ, g): the best of `starts` random points of the region (7 in 10 on its boundary), of θ̂ and of every
    arm's direction and its opposite, each polished; the 40 best of them polished to the end.

    A lower bound on the maximum. With a merit held to a range the maximum may lie on a kink, which gradients
    only approach (1e-3 short has been seen, where many means leave the range)."""
    ball = _ball(theta_hat, V, radius, contexts, merit)
    d = ball.theta_hat.size
    rng = np.random.default_rng(seed)
    scattered = _unit(rng.standard_normal((starts, d)))
    inner = rng.random(starts) < 0.3
    scattered[inner] *= rng.random(inner.sum())[:, None] ** (1 / d)
    arms = ball.arm_directions()
    u, g = _ascend(ball, np.vstack([np.zeros((1, d)), arms, -arms, scattered]), iterations=12)
    top = np.argsort(-g, kind="stable")[:40]
    u, g = _ascend(ball, u[top], iterations=400, tolerance=1e-10)
    best = int(np.argmax(g))
    return ball.theta(u[best]), float(g[best])


def optimistic_arm(theta_hat, V, radius, contexts):
    """(θ, arm) of LinUCB: the largest upper confidence bound θ̂·x + √β‖x‖_{V⁻¹}, lowest index on ties."""
    pulled = np.linalg.solve(V, np.asarray(contexts).T).T
    width = np.sqrt(np.maximum(0.0, (contexts * pulled).sum(axis=1)))
    arm = int(np.argmax(contexts @ theta_hat + radius * width))
    theta = theta_hat + (radius / width[arm] if width[arm] > 0 else 0.0) * pulled[arm]
    return theta, arm


# ---------------------------------------------------------------------------------------------------------
# Radius, schedules, statistics
# ---------------------------------------------------------------------------------------------------------


def radius(observations, *, dimension, regulariser=1.0, noise_sd=0.1, alpha=0.1, norm_bound=1.0, scale=1.0):
    """√β = s·(σ√(2 ln(1/α) + d ln(1 + N/(dλ))) + √λ·c), N counting the observations inside V."""
    spread = 2 * math.log(1 / alpha) + dimension * math.log(1 + observations / (dimension * regulariser))
    return scale * (noise_sd * math.sqrt(spread) + math.sqrt(regulariser) * norm_bound)


def paper_gap(horizon, agents, dimension):
    """g = ⌈T/(m d² ln²(1 + T/d))⌉. Alg. 1 line 12."""
    return math.ceil(horizon / (agents * dimension**2 * math.log(1 + horizon / dimension) ** 2))


def periodic_rounds(horizon, *, gap, double_until):
    """Sync at τ, then τ <- 2τ if t < double_until, else τ <- τ + gap. Alg. 1 lines 10-17."""
    rounds, tau = [], 1
    for t in range(1, horizon + 1):
        if t == tau:
            rounds.append(t)
            tau = 2 * tau if t < double_until else tau + gap
    return rounds


def paper_rounds(horizon, agents, dimension):
    """Synchronisation rounds of the printed rule."""
    gap = paper_gap(horizon, agents, dimension)
    return periodic_rounds(horizon, gap=gap, double_until=gap)


def figure_gap_rounds(horizon):
    """The schedule that the paper's plotted curves show: doubling to 2 048, then every 4 330 rounds."""
    return periodic_rounds(horizon, gap=4330, double_until=2048)


def doubling_rounds(horizon, start=100):
    """B2: start, 2·start, 4·start, ..."""
    return [start * 2**k for k in range(horizon.bit_length() + 1) if start * 2**k <= horizon]


_triangle = functools.cache(np.triu_indices)


def pack(gram, moment):
    return np.concatenate([gram[_triangle(moment.size)], moment])


def unpack(packed, dimension):
    gram = np.zeros((dimension, dimension))
    rows, cols = _triangle(dimension)
    gram[rows, cols] = gram[cols, rows] = packed[: rows.size]
    return gram, packed[rows.size :].copy()


def floor_eigenvalues(matrix, floor):
    """The symmetric matrix with every eigenvalue below `floor` raised to it; untouched if there is none."""
    values, vectors = np.linalg.eigh(matrix)
    if values[0] >= floor:
        return matrix
    raised = (vectors * np.maximum(values, floor)) @ vectors.T
    return (raised + raised.T) / 2


def draw(probabilities, uniform):
    """Inverse CDF: the smallest a with cumsum(π)[a] > u."""
    above = np.nonzero(np.cumsum(probabilities) > uniform)[0]
    return int(above[0]) if above.size else len(probabilities) - 1


# ---------------------------------------------------------------------------------------------------------
# The run
# ---------------------------------------------------------------------------------------------------------


@dataclass
class Run:
    """Everything that happened, per round and agent."""

    policies: np.ndarray  # (T, m, K)
    actions: np.ndarray  # (T, m)
    rewards: np.ndarray  # (T, m)
    thetas: np.ndarray  # (T, m, d) the optimistic θ_t
    estimates: np.ndarray  # (T, m, d) θ̂_t
    grams: np.ndarray  # (T, m, d, d) V_t
    moments: np.ndarray  # (T, m, d) b_t
    radii: np.ndarray  # (T, m) √β_t
    fairness_regret: np.ndarray  # (T, m) of this round: Σ_a |π* - π_t|
    reward_regret: np.ndarray  # (T, m) of this round: Σ_a (π* - π_t) μ, signed
    syncs: list[int] = field(default_factory=list)  # rounds, from 1


ALGORITHMS = ("fairx-linucb", "fed-fairx-linucb", "priv-fairx-linucb", "b1", "b2", "linucb")


def _planned_rounds(algorithm, T, m, d, start):
    """The rounds known beforehand; None where data decide (B1)."""
    if algorithm in ("fairx-linucb", "linucb"):
        return []
    if algorithm in ("fed-fairx-linucb", "priv-fairx-linucb"):
        return paper_rounds(T, m, d)
    if algorithm == "b2":
        return doubling_rounds(T, start)
    if algorithm == "b1":
        return None
    raise ValueError(f"unknown algorithm {algorithm!r}")


def reference_run(
    contexts,
    noise,
    uniforms,
    theta_star,
    algorithm="fed-fairx-linucb",
    *,
    merit: Any = None,
    regulariser=1.0,
    noise_sd=0.1,
    alpha=0.1,
    norm_bound=1.0,
    scale=1.0,
    release_noise=None,
    shift=0.0,
    decide_from="released+local",
    bounds: tuple[float, float] | None = None,
    sync_rounds: Sequence[int] | None = None,
    threshold=1.0,
    start=100,
    max_syncs: int | None = None,
    solver: Callable[..., tuple[np.ndarray, float]] = optimistic_multistart,
) -> Run:
    """Run an algorithm in lock step on given contexts (T, m, K, d), reward noise (T, m) and uniforms (T, m).

    contexts: or T arrays (m, K_t, d), where arms come and go; policies then end in zeros.
    theta_star: (d,), or (T, d) where it moves.
    merit: one for all agents or a list of m; default Exponential(10).
    release_noise: None, an array (syncs, m, q), or a function (k, agent) -> (q,): noise added to agent's
        cumulative packed statistics at the k-th synchronisation (from 0). None means not private: then there
        is no shift and no eigenvalue floor.
    decide_from: "released+local" (the paper's V = U + S_i) or "released" (U alone).
    bounds: (L, B): every record is clipped to ‖x‖ <= L, |y| <= B before it enters the statistics.
    sync_rounds: overrides the algorithm's own schedule. threshold: B1's D. start: B2's first round.
    max_syncs: after so many synchronisations there are no more.
    """
    contexts = [np.asarray(each, dtype=float) for each in contexts]
    T, (m, _, d), K = len(contexts), contexts[0].shape, max(each.shape[1] for each in contexts)
    truth = np.broadcast_to(theta_star, (T, d))
    merit = Exponential(10.0) if merit is None else merit
    merits = list(merit) if isinstance(merit, (list, tuple)) else [merit] * m
    planned = _planned_rounds(algorithm, T, m, d, start) if sync_rounds is None else list(sync_rounds)
    private = release_noise is not None
    eye = np.eye(d)

    # Alg. 1 line 2. Differs from paper: S, U start at zero and V carries the one regulariser λ_total·I; the
    # box (λI everywhere), the text (mλI) and the proof (mI) disagree, and λ must not enter the privatizer.
    S, s = np.zeros((m, d, d)), np.zeros((m, d))  # since the last sync, per agent
    total_S, total_s = np.zeros((m, d, d)), np.zeros((m, d))  # since the start: what the tree has been fed
    base = regulariser * eye  # λ_total I + U (+ shift, floored)
    u = np.zeros(d)
    shared_count, local_count = 0, 0  # observations inside U and inside one S
    last_sync, last_log_det = 0, np.full(m, np.linalg.slogdet(base)[1])

    run = Run(
        policies=np.zeros((T, m, K)),
        actions=np.zeros((T, m), dtype=int),
        rewards=np.zeros((T, m)),
        thetas=np.zeros((T, m, d)),
        estimates=np.zeros((T, m, d)),
        grams=np.zeros((T, m, d, d)),
        moments=np.zeros((T, m, d)),
        radii=np.zeros((T, m)),
        fairness_regret=np.zeros((T, m)),
        reward_regret=np.zeros((T, m)),
    )

    for t in range(1, T + 1):  # Alg. 1 line 3
        for i in range(m):  # Alg. 1 line 4
            x, theta_star = contexts[t - 1][i], truth[t - 1]
            # Alg. 1 line 5: V, b (as line 27 left them), θ̂ = V⁻¹b, and the region ‖θ - θ̂‖_V <= √β
            if decide_from == "released+local":
                V, b, count = base + S[i], u + s[i], shared_count + local_count
            elif decide_from == "released":
                V, b, count = base, u, shared_count
            else:
                raise ValueError(f"unknown decide_from {decide_from!r}")
            theta_hat = np.linalg.solve(V, b)
            root_beta = radius(
                count,
                dimension=d,
                regulariser=regulariser,
                noise_sd=noise_sd,
                alpha=alpha,
                norm_bound=norm_bound,
                scale=scale,
            )
            if algorithm == "linucb":  # winner takes all: what the paper starts from
                theta, arm = optimistic_arm(theta_hat, V, root_beta, x)
                pi = np.zeros(len(x))
                pi[arm] = 1.0
            else:
                theta = solver(theta_hat, V, root_beta, x, merits[i])[0]  # Alg. 1 line 6
                pi = policy(theta, x, merits[i])  # Alg. 1 line 7
            # Alg. 1 line 8
            a = draw(pi, uniforms[t - 1, i])
            mu = x @ theta_star
            y = float(mu[a] + noise[t - 1, i])
            # Alg. 1 line 9
            record, label = x[a], y
            if bounds is not None:
                record = record * min(1.0, bounds[0] / max(np.linalg.norm(record), 1e-300))
                label = min(max(label, -bounds[1]), bounds[1])
            S[i] += np.outer(record, record)
            s[i] += record * label

            fair = policy(theta_star, x, merits[i])
            now = (t - 1, i)
            run.policies[now][: len(x)] = pi
            run.actions[now], run.rewards[now], run.thetas[now] = a, y, theta
            run.estimates[now], run.grams[now], run.moments[now], run.radii[now] = theta_hat, V, b, root_beta
            run.fairness_regret[now] = np.abs(fair - pi).sum()  # Definition 1
            run.reward_regret[now] = (fair - pi) @ mu
        local_count += 1

        # Alg. 1 lines 10-17. Differs from paper: the test stands after the agent loop, not inside it, so that
        # no agent syncs before the others have acted, and what is sent includes round t.
        if planned is not None:
            sync = t in planned
        else:  # B1, Dubey & Pentland 2020: log(det V_new/det V_last-sync)·Δt > D at any agent
            log_det = np.array([np.linalg.slogdet(base + S[j])[1] for j in range(m)])
            sync = bool(np.any((log_det - last_log_det) * (t - last_sync) > threshold))
        if max_syncs is not None and len(run.syncs) >= max_syncs:
            sync = False

        if sync:  # Alg. 1 line 18
            U, u = np.zeros((d, d)), np.zeros(d)
            for j in range(m):
                # Alg. 1 lines 19-21, with Alg. 2 lines 11-15: the tree takes what is new and returns the
                # noisy sum since the start
                total_S[j] += S[j]
                total_s[j] += s[j]
                released = pack(total_S[j], total_s[j])
                if private:
                    k = len(run.syncs)
                    released = released + (
                        release_noise(k, j) if callable(release_noise) else release_noise[k, j]
                    )
                U_hat, u_hat = unpack(released, d)
                U, u = U + U_hat, u + u_hat  # Alg. 1 line 22: the sum replaces what was shared
            S[:], s[:] = 0.0, 0.0  # Alg. 1 line 22
            base = regulariser * eye + U
            if private:
                # Differs from paper: it is silent on a noisy Gram matrix that is not positive definite. One
                # shift on the aggregate, then an eigenvalue floor at λ_total (post-processing).
                base = floor_eigenvalues(base + shift * eye, regulariser)
            shared_count, local_count = m * t, 0
            last_sync, last_log_det = t, np.full(m, np.linalg.slogdet(base)[1])
            run.syncs.append(t)
        # Alg. 1 lines 25-27 (nothing shared is new; V = U + S, b = u + s) happen at the next line 5.
    return run


def random_problem(T, m, K, d, *, noise_sd=0.1, seed=0):
    """(contexts, noise, uniforms, theta_star) of the paper's kind: x uniform on [0,1]^d/√d, ‖θ*‖ = 1."""
    rng = np.random.default_rng(seed)
    theta_star = rng.random(d)
    theta_star /= np.linalg.norm(theta_star)
    contexts = rng.random((T, m, K, d)) / math.sqrt(d)
    return contexts, noise_sd * rng.standard_normal((T, m)), rng.random((T, m)), theta_star


# ---------------------------------------------------------------------------------------------------------
# Several slots
# ---------------------------------------------------------------------------------------------------------


def fair_exposures(merit, weights):
    """Exposures that slots of these weights can give, in proportion to merit as far as they can, by linear
    programs: raise the smallest e_a / f_a as far as possible, fix the arms that can't be raised, and go on
    with the others. P (K, m) is the probability of every arm in every slot. For small K.
    """
    from scipy.optimize import linprog

    arms, slots = len(merit), len(weights)
    size = arms * slots

    def row(a):  # e_a as a linear function of P and t
        found = np.zeros(size + 1)
        found[a * slots : (a + 1) * slots] = weights
        return found

    filled = np.zeros((slots, size + 1))  # every slot holds one arm
    once = np.zeros((arms, size + 1))  # no arm is in more than one slot
    for a in range(arms):
        for j in range(slots):
            filled[j, a * slots + j] = once[a, a * slots + j] = 1.0
    rates: dict[int, float] = {}

    def best(objective, rate=None):
        above = [-row(a) + (merit[a] * np.eye(size + 1)[size]) for a in range(arms) if a not in rates]
        equal = [*filled, *(row(a) for a in rates)]
        limits = [(0.0, 1.0)] * size + [(0.0, None) if rate is None else (rate, rate)]
        found = linprog(
            -objective,
            A_ub=np.array([*above, *once]),
            b_ub=np.concatenate([np.zeros(len(above)), np.ones(arms)]),
            A_eq=np.array(equal),
            b_eq=np.concatenate([np.ones(slots), [rates[a] * merit[a] for a in rates]]),
            bounds=limits,
            method="highs",
        )
        assert found.status == 0, found.message
        return -found.fun

    while len(rates) < arms:
        rate = best(np.eye(size + 1)[size]) * (1.0 - 1e-11)
        free = [a for a in range(arms) if a not in rates]
        tight = [a for a in free if best(row(a), rate) <= rate * merit[a] * (1.0 + 1e-7) + 1e-12]
        rates |= dict.fromkeys(tight, rate)
    return np.array([rates[a] * merit[a] for a in range(arms)])
