"""Compiled entry points of one live agent: its memory, learning a reward, and deciding by each rule."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import NamedTuple

import numpy as np

from fedfairx.core.confidence import Confidence
from fedfairx.core.estimate import derive, estimate
from fedfairx.core.expected_merit import put_log_merits
from fedfairx.core.learner import (
    CENTRE,
    COUNT,
    GROWTH,
    LEARNING,
    LEARNING_MEAN,
    MEAN_VARIANCE,
    NOISE_VARIANCE,
    OBSERVED,
    PRIOR_VARIANCE,
    REWARD,
    RIDGE,
    SQUARES,
    Learner,
    learn,
    learner,
    radius_of,
    start,
)
from fedfairx.core.marginal_likelihood import ASSUMED_WEIGHT, POINTS, Sizes, learnt_mean, learnt_sizes
from fedfairx.core.merit import Exponential, Merit
from fedfairx.core.merit_kernels import log_merits, quadrature_for, table
from fedfairx.core.optimism.problem import (
    MEANS,
    POLICY,
    THETA,
    WEIGHTS,
    Region,
    Scratch,
    scratch,
    scratch_size,
)
from fedfairx.core.optimism.solver import Solver, Variant, choose
from fedfairx.core.own_record import draw_own, whiten, whiten_record
from fedfairx.core.policy import at_least, draw, normalize
from fedfairx.core.posterior import (
    LikelySizes,
    Prior,
    posterior_mean,
    sample,
    squared_width,
)
from fedfairx.core.rules import EXPECTED_MERIT, OPTIMISM, RULES, THOMPSON
from fedfairx.core.slates import fill_slots, give_to_best, raise_to_least, share_out, slate_scratch
from fedfairx.core.statistics import add, dimension_of, embedded
from fedfairx.lanes.decorators import compiled, layout, releasing, stage
from fedfairx.lanes.rows import Rows, by_lane, cut, flat, floats, size_of, zeros
from fedfairx.lanes.vector import fma, from_bits
from fedfairx.util.arrays import Array, Coordinates

LARGEST = 1e100  # absolute value of a context's entry or a reward, beyond which sums of products may overflow
# An agent's settings: how it decides.
RULE, LEAST_SHARE, SOLVER_RULE, TOLERANCE, MAX_STEPS, RATE, FLOOR = range(7)
SETTINGS = 7


class MemoryLayout(NamedTuple):
    """The parts of a live agent's memory."""

    learner: Learner
    settings: Rows  # (SETTINGS,)
    fresh: Rows  # (q,) packed sums of what it learnt since they were last emptied


@layout
def memory_layout(memory: Rows, dimension: int) -> MemoryLayout:
    """Lay out an agent's memory."""
    state, rest = learner(memory, dimension)
    settings, rest = cut(rest, SETTINGS)
    fresh, rest = cut(rest, dimension * (dimension + 3) // 2)
    return MemoryLayout(state, settings, fresh)


@stage
def all_sound(contexts: Rows) -> bool:
    """Whether every number is finite and at most `LARGEST` in size."""
    for a in range(contexts.shape[0]):
        for j in range(contexts.shape[1]):
            if not abs(contexts[a, j]) <= LARGEST:
                return False
    return True


@stage
def draw_at_least(policy: Rows, least_share: float, uniform: float) -> int:
    """Raise every arm to its least share and draw an arm from policy (K,)."""
    if least_share > 0.0:
        at_least(policy, least_share)
    return draw(policy, uniform)


@stage
def answer(contexts: Rows, policy: Rows, theta: Rows, least_share: float, out: Rows, uniform: float) -> int:
    """Raise every arm to its least share and draw an arm from policy (K,).

    `out` gets the policy (K numbers), θ (d) and the chosen context (d).
    """
    arms, dimension = contexts.shape
    action = draw_at_least(policy, least_share, uniform)
    for a in range(arms):  # a no-op where the policy is in `out` already
        out[a] = policy[a]
    for j in range(dimension):
        out[arms + j] = theta[j]
        out[arms + dimension + j] = contexts[action, j]
    return action


@stage
def _learn(
    memory: Rows,
    sums: Array | None,
    context: Rows,
    first: int,
    dimension: int,
    weight: float,
    reward: float,
    tallies: Array | None,
    place: int | None,
    ratio: float | None,
) -> float:
    """Learn one observation: x is `weight` times the context that begins at `first`. Returns
    log(1 + xᵀV⁻¹x), the growth of log det V; below 0, V⁻¹ must be derived from the sums.

    sums: packed (q,), to which the record is added as it is, or None. What V⁻¹ gets is whitened, if the name
    has a tally.
    """
    parts = memory_layout(memory, dimension)
    state = parts.learner
    numbers = state.numbers
    for j in range(dimension):
        state.chosen[j] = weight * context[first + j]
    add(parts.fresh, state.chosen, reward)
    if sums is not None:
        add(floats(sums), state.chosen, reward)
    squares = fma(reward, reward, numbers[SQUARES])
    numbers[REWARD] = reward
    # Numba leaves out what is under `is not None` of None.
    if tallies is not None and place is not None and ratio is not None:  # noqa: SIM102
        if place >= 0:
            numbers[REWARD] = whiten_record(floats(tallies), place, ratio, weight, state.chosen, reward)
    learn(state)
    numbers[SQUARES] = squares
    numbers[COUNT] += 1.0
    numbers[OBSERVED] += 1.0
    return math.log(numbers[GROWTH]) if numbers[GROWTH] > 0.0 else -math.inf


@compiled
def learn_one(
    memory: Array, sums: Array | None, values: Array, at: int, dimension: int, weight: float, reward: float
) -> float:
    """Learn the record of the context that begins at values[at], and add it to sums (q,): see `_learn`."""
    return _learn(floats(memory), sums, floats(values), at, dimension, weight, reward, None, None, None)


@compiled
def learn_named(
    memory: Array,
    sums: Array | None,
    values: Array,
    at: int,
    dimension: int,
    weight: float,
    reward: float,
    tallies: Array,
    place: int,
    ratio: float,
) -> float:
    """`learn_one` for a name with an own record, at this place of tallies (n, d + 2); ratio ρ."""
    return _learn(floats(memory), sums, floats(values), at, dimension, weight, reward, tallies, place, ratio)


@compiled
def learn_slate(
    memory: Array,
    sums: Array,
    values: Array,
    at: int,
    weights: Array,
    rewards: Array,
    growth: float,
    updates: int,
    tallies: Array | None,
    places: Coordinates | None,
    ratio: float | None,
) -> tuple[float, int]:
    """`learn_one` for all m slots of a decision, whose contexts begin at values[at].

    Returns `growth` with what log det V has grown by, slot by slot, and the number of `updates` since V⁻¹ was
    derived from the sums, which is done at once where it must.
    """
    slots, rows = weights.shape[0], floats(memory)
    dimension = (values.shape[0] - at) // slots
    state, _ = learner(rows, dimension)
    for slot in range(slots):
        first, reward, place = at + slot * dimension, rewards[slot], 0
        if places is not None:
            place = places[slot]
        grown = _learn(
            rows,
            sums,
            floats(values),
            first,
            dimension,
            weights[slot],
            reward,
            tallies,
            place,
            ratio,
        )
        updates += 1
        if grown >= 0.0:
            growth += grown
        elif grown < 0.0:
            derive(state.statistics, state.numbers[RIDGE], state.inverse)
            updates = 0
    return growth, updates


@compiled
def _radius(memory: Array, dimension: int) -> float:
    state, _ = learner(floats(memory), dimension)
    return radius_of(by_lane(state.numbers), 0, state.numbers[COUNT], dimension)


@releasing
def _learnt_sizes(memory: Array, own: Array, workspace: Array, grid: Array) -> tuple[float, float, float]:
    dimension = workspace.shape[0]
    state, _ = learner(floats(memory), dimension)
    return learnt_sizes(state, floats(own), floats(workspace), floats(grid), None)


@releasing
def _learnt_sizes_beside(
    memory: Array, own: Array, workspace: Array, grid: Array, names: Array
) -> tuple[float, float, float]:
    dimension = workspace.shape[0]
    state, _ = learner(floats(memory), dimension)
    return learnt_sizes(state, floats(own), floats(workspace), floats(grid), floats(names))


@compiled
def _learnt_mean(memory: Array, dimension: int) -> float:
    state, _ = learner(floats(memory), dimension)
    return learnt_mean(state, state.inverse)


@compiled
def _derive(memory: Array, dimension: int) -> None:
    state, _ = learner(floats(memory), dimension)
    derive(state.statistics, state.numbers[RIDGE], state.inverse)


@dataclass(frozen=True)
class AgentMemory:
    """The memory of one live agent, with named views into it."""

    memory: Array
    statistics: Array  # (q,) packed sums that decisions come from
    fresh: Array  # (q,) packed sums of what was learnt since the owner last emptied it
    inverse: Array  # (d, d)
    dimension: int
    quadrature: bool | None  # None where the merit is exponential: see `expectation`
    variant: Variant  # of optimism's solver
    _state: Learner

    @classmethod
    def start(
        cls,
        dimension: int,
        *,
        merit: Merit,
        rule: str = OPTIMISM,
        confidence: Confidence | None = None,
        solver: Solver | None = None,
        prior: Prior | None = None,
        learning: bool = True,
        common: Sequence[int] = (),
        centre: float = 0.0,
        minimum_share: float = 0.0,
    ) -> AgentMemory:
        """Memory before any observation. Optimism uses `confidence` and `solver`, other rules `prior`.

        `learning`, `common` and `centre` are as for `learner.start`.
        """
        memory = zeros(size_of(memory_layout, dimension))
        start(
            memory,
            dimension,
            merits=table([merit]),
            rule=rule,
            confidence=confidence or Confidence(),
            priors=[prior or Prior.for_merit(merit)],
            learning=learning,
            common=common,
            centre=centre,
        )
        parts, solver = memory_layout(floats(memory), dimension), solver or Solver()
        state = parts.learner
        parts.settings.array[:] = RULES.index(rule), minimum_share, *solver
        views = state.statistics.array, parts.fresh.array, state.inverse.array
        return cls(memory, *views, dimension, quadrature_for([merit]), solver.variant, state)

    def take_over(self, smaller: AgentMemory) -> None:
        """Copy the sums of an agent with fewer coordinates; V⁻¹ must be derived afterwards."""
        learns_mean = self._state.numbers[LEARNING_MEAN]  # an intercept may be appended
        self._state.numbers.array[:] = smaller._state.numbers.array
        self._state.numbers[LEARNING_MEAN] = learns_mean
        if self.learns_mean:
            self._set_mean(smaller.sizes.mean)
        self.statistics[:] = embedded(smaller.statistics, self.dimension)
        self.fresh[:] = embedded(smaller.fresh, self.dimension)

    @property
    def count(self) -> float:
        """Observations inside V, which the radius depends on."""
        return float(self._state.numbers[COUNT])

    def set_count(self, value: float) -> None:
        """Set the number of observations inside V."""
        self._state.numbers[COUNT] = value

    @property
    def observed(self) -> int | float:
        """Number of the agent's own rewards; where they decay, the sum of their weights."""
        count = float(self._state.numbers[OBSERVED])
        return int(count) if count.is_integer() else count

    @property
    def squares(self) -> float:
        """Sum of the squares of its own rewards."""
        return float(self._state.numbers[SQUARES])

    def restore(self, sizes: Sizes, squares: float, observed: float) -> None:
        """Set what own rewards have taught, the sum of their squares, and their number."""
        numbers = self._state.numbers
        numbers[RIDGE], numbers[SQUARES], numbers[OBSERVED] = sizes.ridge, squares, observed
        if self.believes:
            self._set_sizes(sizes)

    @property
    def sizes(self) -> Sizes:
        """σ², λ and the prior's mean, assumed or learnt."""
        place = int(self._state.common.array.argmax())
        return Sizes(self.noise_variance, self.ridge, float(self.mean[place]))

    def _set_sizes(self, sizes: Sizes) -> None:
        numbers, variance, ridge = self._state.numbers, sizes.variance, sizes.ridge
        numbers[NOISE_VARIANCE], numbers[RIDGE], numbers[PRIOR_VARIANCE] = variance, ridge, variance / ridge
        if self.learns_mean:
            self._set_mean(sizes.mean)

    def _set_mean(self, mean: float) -> None:
        self.mean[self._state.common.array > 0.0] = mean

    @property
    def believes(self) -> bool:
        """Whether decisions come from a posterior, which optimism does not have."""
        return bool(self._state.numbers[PRIOR_VARIANCE] > 0.0)

    @property
    def learns_sizes(self) -> bool:
        """Whether σ and the prior's sd are learnt."""
        return bool(self._state.numbers[LEARNING] > 0.0)

    @property
    def learns_mean(self) -> bool:
        """Whether the prior's mean is learnt too."""
        return bool(self._state.numbers[LEARNING_MEAN] > 0.0)

    def learn_sizes(self, own: Array, names: Array | None = None) -> None:
        """Learn σ and the prior's sd, as `likely_sizes` says; V⁻¹ must be derived afterwards."""
        variance, ridge, _, _ = self.likely_sizes(own, names)
        self._set_sizes(Sizes(variance, ridge, self.sizes.mean))

    def likely_sizes(self, own: Array, names: Array | None = None) -> tuple[float, float, float, Array]:
        """The likeliest σ² and λ by own records, packed (q,), their ln p, and (POINTS, 3) ln p, σ² and λ.

        names: as for `learnt_sizes`.
        """
        workspace, grid = np.empty((self.dimension, self.dimension + 1)), np.empty((POINTS, 3))
        if names is None:
            return *_learnt_sizes(self.memory, own, workspace, grid), grid
        return *_learnt_sizes_beside(self.memory, own, workspace, grid, names), grid

    def learn_mean(self) -> None:
        """Learn the prior's mean, if that is to be done, from what decisions come from; V⁻¹ is that of it."""
        if self.learns_mean:
            self._set_mean(_learnt_mean(self.memory, self.dimension))

    @property
    def mean_variance(self) -> float:
        """The least variance of the prior's mean around its first guess."""
        return float(self._state.numbers[MEAN_VARIANCE])

    @property
    def ridge(self) -> float:
        """λ inside V."""
        return float(self._state.numbers[RIDGE])

    @property
    def mean(self) -> Array:
        """The prior's mean (d,)."""
        values: Array = self._state.mean.array
        return values

    @property
    def moment(self) -> Array:
        """b + λ·mean: V⁻¹ times it is θ̂."""
        pulled: Array = self.statistics[-self.dimension :] + self.ridge * self._state.mean.array
        return pulled

    @property
    def noise_variance(self) -> float:
        """σ² of the posterior."""
        return float(self._state.numbers[NOISE_VARIANCE])

    def size_of_parameter(self) -> float:
        """E‖θ‖² under the posterior, of an intercept around where rewards are centred."""
        centre = self._state.numbers[CENTRE] * self._state.common.array
        estimate = self.inverse @ self.moment - centre
        return float(estimate @ estimate + self.noise_variance * np.trace(self.inverse))

    @property
    def radius(self) -> float:
        """√β of the next decision; for a posterior σ, its standard deviation in the norm of V."""
        if self.believes:
            return math.sqrt(self.noise_variance)
        return float(_radius(self.memory, self.dimension))

    def decay(self, factor: float) -> None:
        """Multiply all sums by this factor; V⁻¹ must be derived afterwards."""
        for sums in (self.statistics, self.fresh):
            sums *= factor
        numbers = self._state.numbers
        numbers[SQUARES], numbers[OBSERVED] = numbers[SQUARES] * factor, numbers[OBSERVED] * factor

    def derive(self) -> None:
        """Derive V⁻¹ from the sums."""
        _derive(self.memory, self.dimension)


def likely_sizes(
    own: Array,
    squares: float,
    observed: float,
    prior: Prior,
    *,
    common: Sequence[int] = (),
    centre: float = 0.0,
    names: Array | None = None,
) -> tuple[LikelySizes, float]:
    """What σ and the prior's sd may be, by packed sums (q,) of own records; and ln p of all together.

    squares: the sum of their squared rewards; observed: their number; prior, common: as for `learner.start`;
    names: as for `marginal_likelihood.learnt_sizes`.
    """
    dimension = dimension_of(own)
    rule = RULES[EXPECTED_MERIT]
    memory = AgentMemory.start(
        dimension, merit=Exponential(), rule=rule, prior=prior, common=common, centre=centre
    )
    memory.restore(memory.sizes, squares, observed)
    likely, variance, ridge = memory.likely_sizes(own, names)[3].T
    weights, wide = np.exp(likely - likely.max()), memory.mean_variance
    total = float(likely.max() + np.log(weights.sum()))
    sizes = LikelySizes(weights / weights.sum(), variance, ridge, ASSUMED_WEIGHT + observed, wide)
    return sizes, total


@stage
def _believe(
    contexts: Rows,
    parts: MemoryLayout,
    quadrature: bool | None,
    policy: Rows,
    tallies: Array | None,
    places: Coordinates | None,
    work: Array | None,
    ratio: float | None,
    seed: float,
) -> None:
    """policy (K,) ← log merits by the posterior; for Thompson sampling by the drawn θ, which is in the place
    of θ̂. `quadrature` is that of `put_log_merits`; tallies and the rest are as for `decide_among_names`."""
    state, rule = parts.learner, parts.settings[RULE]
    if rule != THOMPSON:
        posterior_mean(state.inverse, state.statistics, state.mean, state.numbers[RIDGE], state.estimate)
    theta, inverse, variance = state.estimate, state.inverse, state.numbers[NOISE_VARIANCE]
    merit, expecting, product = state.merit, rule == EXPECTED_MERIT, state.product
    if tallies is None:
        put_log_merits(
            contexts, theta, inverse, variance, merit, expecting, quadrature, product, policy, None
        )
    if tallies is not None and places is not None and work is not None and ratio is not None:
        arms, dimension = contexts.shape
        white, rest = cut(floats(work), arms, dimension)
        beside, rest = cut(rest, 2, arms)
        whiten(contexts, floats(tallies), places, ratio, white, beside)
        if rule == THOMPSON:
            draw_own(beside, places, variance, seed)
        put_log_merits(white, theta, inverse, variance, merit, expecting, quadrature, product, policy, beside)


@compiled
def decide_by_posterior(
    contexts: Array, memory: Array, out: Array, uniform: float, quadrature: bool | None
) -> int:
    """Draw an arm; -1 when a context is not finite or beyond `LARGEST`. `out` is filled as by `answer`.

    For Thompson sampling `draw_parameter` must have put its parameter in the place of θ̂.
    """
    x = floats(contexts)
    if not all_sound(x):
        return -1
    parts = memory_layout(floats(memory), x.shape[1])
    policy, _ = cut(floats(out), x.shape[0])
    _believe(x, parts, quadrature, policy, None, None, None, None, 0.0)
    normalize(policy)
    return answer(x, policy, parts.learner.estimate, parts.settings[LEAST_SHARE], floats(out), uniform)


@compiled
def decide_among_names(
    contexts: Array,
    memory: Array,
    out: Array,
    uniform: float,
    quadrature: bool | None,
    tallies: Array,
    places: Coordinates,
    work: Array,
    ratio: float,
    seed: float,
) -> int:
    """`decide_by_posterior` for arms with names, of which some have own records.

    tallies: (n, d + 2) of own records, at these places (K,); below 0 for a name without one. `ratio` is ρ,
        `seed` a uniform for `draw_own`, and work (K (d + 2),) is overwritten.
    """
    x = floats(contexts)
    if not all_sound(x):
        return -1
    parts = memory_layout(floats(memory), x.shape[1])
    policy, _ = cut(floats(out), x.shape[0])
    _believe(x, parts, quadrature, policy, tallies, places, work, ratio, seed)
    normalize(policy)
    return answer(x, policy, parts.learner.estimate, parts.settings[LEAST_SHARE], floats(out), uniform)


@compiled
def decide_together(
    contexts: Array,
    memory: Array,
    out: Array,
    uniforms: Array,
    actions: Coordinates,
    quadrature: bool | None,
    tallies: Array | None,
    places: Coordinates | None,
    work: Array | None,
    ratio: float | None,
) -> None:
    """`decide_by_posterior` for contexts (B, K, d) that are sound, with a row of `out` and an action each.

    places (B, K) where there are tallies.
    """
    count, arms, dimension = contexts.shape
    parts = memory_layout(floats(memory), dimension)
    for b in range(count):
        x, row = floats(contexts[b]), floats(out[b])
        policy, _ = cut(row, arms)
        if tallies is None:
            _believe(x, parts, quadrature, policy, None, None, None, None, 0.0)
        if tallies is not None and places is not None:
            _believe(x, parts, quadrature, policy, tallies, places[b], work, ratio, 0.0)
        normalize(policy)
        estimate, least = parts.learner.estimate, parts.settings[LEAST_SHARE]
        actions[b] = answer(x, policy, estimate, least, row, uniforms[b])


class SlateAnswer(NamedTuple):
    """A decision of m slots: exposures (K,), θ (d,), and contexts (m, d) of the shown arms."""

    exposure: Rows
    theta: Rows
    contexts: Rows


@layout
def slate_answer(out: Rows, arms: int, dimension: int, slots: int) -> SlateAnswer:
    """Lay out the answer."""
    exposure, rest = cut(out, arms)
    theta, rest = cut(rest, dimension)
    contexts, rest = cut(rest, slots, dimension)
    return SlateAnswer(exposure, theta, contexts)


@stage
def _show(x: Rows, theta: Rows, answer: SlateAnswer, shown: Rows) -> None:
    """Copy θ and the contexts of the shown arms."""
    for j in range(theta.shape[0]):
        answer.theta[j] = theta[j]
    for p in range(shown.shape[0]):
        for j in range(theta.shape[0]):
            answer.contexts[p, j] = x[int(shown[p]), j]
    _as_integers(shown)


@stage
def _as_integers(numbers: Rows) -> None:
    """Replace floats by integers of the same bytes, which Python reads faster than it converts floats."""
    for p in range(numbers.shape[0]):
        numbers[p] = from_bits(np.uint64(numbers[p]))


@compiled
def decide_slate(
    contexts: Array,
    memory: Array,
    weights: Array,
    workspace: Array,
    out: Array,
    uniform: float,
    quadrature: bool | None,
    tallies: Array | None,
    places: Coordinates | None,
    work: Array | None,
    ratio: float | None,
    seed: float,
) -> int:
    """`decide_by_posterior` for slots of these weights (m,); `out` is a `slate_answer`."""
    x, v = floats(contexts), floats(weights)
    if not all_sound(x):
        return -1
    arms, dimension = x.shape
    parts = memory_layout(floats(memory), dimension)
    slate = slate_answer(floats(out), arms, dimension, v.shape[0])
    slots = slate_scratch(floats(workspace), v.shape[0], arms)
    _believe(x, parts, quadrature, slate.exposure, tallies, places, work, ratio, seed)
    share_out(slate.exposure, v, parts.settings[LEAST_SHARE], slots)
    fill_slots(slate.exposure, v, uniform, slots)
    _show(x, parts.learner.estimate, slate, slots.shown)
    return 0


@compiled
def draw_parameter(memory: Array, normals: Array, workspace: Array) -> None:
    """Replace θ̂ by a draw from the posterior. normals (d,), workspace (d·d,)."""
    dimension = normals.shape[0]
    state, _ = learner(floats(memory), dimension)
    posterior_mean(state.inverse, state.statistics, state.mean, state.numbers[RIDGE], state.estimate)
    factor, _ = cut(floats(workspace), dimension, dimension)
    sample(state.inverse, state.numbers[NOISE_VARIANCE], flat(floats(normals)), factor, state.estimate)


@stage
def _optimise(
    x: Rows,
    parts: MemoryLayout,
    work: Scratch,
    fair: bool | None,
    pgd: bool | None,
    winner: bool | None,
) -> Solver:
    """Alg. 1 lines 5 to 7: put the policy, θ and the means into `work`; return the solver's settings."""
    state, settings = parts.learner, parts.settings
    solver = Solver(
        int(settings[SOLVER_RULE]),
        settings[TOLERANCE],
        int(settings[MAX_STEPS]),
        settings[RATE],
        settings[FLOOR],
    )
    estimate(state.inverse, state.statistics, state.estimate)
    state.radius[0] = radius_of(by_lane(state.numbers), 0, state.numbers[COUNT], x.shape[1])
    region = Region(state.estimate, state.inverse, state.radius)
    choose(x, region, state.merit, work, solver, fair, pgd, winner)
    return solver


@releasing
def decide_one(
    contexts: Array,
    memory: Array,
    workspace: Array,
    out: Array,
    uniform: float,
    fair: bool | None,
    pgd: bool | None,
    winner: bool | None,
) -> int:
    """Alg. 1 lines 5 to 8: draw an arm; -1 when a context is not finite or beyond `LARGEST`.

    `out` gets the policy (K numbers), θ (d) and the chosen context (d). `fair`, `pgd` and `winner` are the
    solver's `variant`.
    """
    x = floats(contexts)
    if not all_sound(x):
        return -1
    arms, dimension = x.shape
    parts = memory_layout(floats(memory), dimension)
    work = scratch(floats(workspace), arms, dimension)
    _optimise(x, parts, work, fair, pgd, winner)
    return answer(x, work.arms[POLICY], work.model[THETA], parts.settings[LEAST_SHARE], floats(out), uniform)


@releasing
def decide_slate_by_optimism(
    contexts: Array,
    memory: Array,
    weights: Array,
    workspace: Array,
    slate_workspace: Array,
    out: Array,
    uniform: float,
    fair: bool | None,
    pgd: bool | None,
    winner: bool | None,
) -> int:
    """`decide_one` for slots of these weights (m,): by the merits at the optimistic θ, or to the arms of the
    largest upper bounds. `out` is a `slate_answer`."""
    x, v = floats(contexts), floats(weights)
    if not all_sound(x):
        return -1
    arms, dimension = x.shape
    parts = memory_layout(floats(memory), dimension)
    state = parts.learner
    work = scratch(floats(workspace), arms, dimension)
    slots = slate_scratch(floats(slate_workspace), v.shape[0], arms)
    slate = slate_answer(floats(out), arms, dimension, v.shape[0])
    solver = _optimise(x, parts, work, fair, pgd, winner)
    if winner is None:
        log_merits(state.merit, work.arms[MEANS], slate.exposure, work.arms[WEIGHTS])
        share_out(slate.exposure, v, parts.settings[LEAST_SHARE], slots)
    else:
        for a in range(arms):
            width = math.sqrt(max(squared_width(x, a, state.inverse, state.product), 0.0))
            slate.exposure[a] = work.arms[MEANS][a] + state.radius[0] * width
        give_to_best(slate.exposure, v, solver.floor, slots)
        raise_to_least(slate.exposure, v, parts.settings[LEAST_SHARE])
    fill_slots(slate.exposure, v, uniform, slots)
    _show(x, work.model[THETA], slate, slots.shown)
    return 0


def decision_workspace(arms: int, dimension: int) -> Array:
    """Allocate the workspace of a decision among `arms` arms."""
    workspace: Array = zeros(scratch_size(arms, dimension, lanes=1))
    return workspace
