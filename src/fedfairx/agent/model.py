"""What an agent has learnt: its own records, and the statistics that its next decision uses.

    V = λI + shared + local,   b likewise,   θ̂ = V⁻¹ b           (Alg. 1 lines 5 and 27)

`shared` is the sum of the releases of all agents (`exchange`), `local` what this agent has observed since its
own last release. What a private agent's decisions use is its privatizer's `decide_from`:

    "released+local"   the line above: the paper's rule, and that of every agent that is not private
    "own+released"     its own exact statistics, and the peers' noisy ones weighted by their worth: the
                       default of private agents that have a posterior
    "released"         only `shared`: the strict mode, in which decisions use no exact data
"""

from __future__ import annotations

import math
from collections.abc import Mapping, Sequence
from functools import lru_cache
from typing import Any, NamedTuple

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedfairx.agent.actions import Actions
from fedfairx.agent.half_life import Aging
from fedfairx.agent.knowledge import Knowledge
from fedfairx.agent.options import Options
from fedfairx.agent.own_record import OwnRecord, OwnRecords
from fedfairx.agent.reward_limits import RewardLimits
from fedfairx.agent.uniforms import Uniforms
from fedfairx.agent.validation import FLOAT, TINY, as_contexts, check_definite
from fedfairx.core.agent_kernels import (
    LARGEST,
    AgentMemory,
    decide_among_names,
    decide_by_posterior,
    decide_one,
    decide_slate,
    decide_slate_by_optimism,
    decide_together,
    decision_workspace,
    draw_parameter,
    learn_named,
    learn_one,
)
from fedfairx.core.estimate import REFRESH_EVERY
from fedfairx.core.marginal_likelihood import next_refit
from fedfairx.core.own_record import BESIDE_FEATURES, CONTEXTS, RECORDS, REWARDS, likely_ratios
from fedfairx.core.posterior import Prior
from fedfairx.core.rules import OPTIMISM
from fedfairx.core.slates import ONE, Weights, slate_scratch
from fedfairx.core.statistics import diagonal_entries, embedded, packed_size, unpack
from fedfairx.decision import Decision
from fedfairx.errors import InvalidInput
from fedfairx.features import Schema
from fedfairx.lanes.rows import size_of, zeros
from fedfairx.privacy import NonPrivateSums
from fedfairx.util.arrays import Array, not_finite

MOST_WORKSPACES = 64  # that are kept, one for each number of arms
#: Tallies, places, workspace and ρ, and what compiled code takes instead where there are no own records.
Own = tuple[Any, Any, Any, Any]
NO_NAMES: Own = (None, None, None, None)


@lru_cache(maxsize=64)
def as_array(weights: Weights) -> Array:
    """The weights of slots as compiled code takes them."""
    return np.array(weights)


class Held(NamedTuple):
    """What an agent decided from before `AgentModel.adopt`."""

    memory: Array
    growth: float
    updates: int
    others: Array | None
    records: tuple[int, Array | None] | None  # see `OwnRecords.hold`


class AgentModel:
    """An agent's statistics and V⁻¹. `sums` is the privatizer of an agent that releases exact sums.

    dimension: how many coordinates θ has, an intercept among them.
    actions: the names that were declared.
    featureless: whether they have no features: an intercept is all that they have beside own records. The
        optimistic rule, which has no own records, has a coordinate for each instead.
    constant: what `enter` appends to the contexts of arrays; 0 if they have no intercept.
    point: the public point that `enter` takes contexts around, if records are centred; `centre` is the
        intercept where rewards are the public one.
    """

    def __init__(
        self,
        dimension: int,
        options: Options,
        actions: Actions | None,
        schema: Schema | None = None,
        *,
        decide_from: str,
        sums: NonPrivateSums | None,
        featureless: bool = False,
        constant: float = 0.0,
        centre: float = 0.0,
        point: Array | None = None,
    ) -> None:
        self.dimension = dimension
        self.featureless = featureless
        self.constant, self.centre, self.point = constant, centre, point
        self.options = options
        self.actions = actions
        self.schema = schema
        self.decide_from = decide_from
        self.sums = sums
        self.optimism = options.rule == OPTIMISM
        self._workspaces: dict[tuple[int, int], tuple[Array, NDArray[np.int64]]] = {}
        self._entered: dict[tuple[int, ...], tuple[Array, Array]] = {}  # by shape, as `enter` uses it again
        self._work = np.empty(0)
        self._weights = ONE, as_array(ONE)  # of the last decision with several slots
        self._begin()
        expects = options.confidence if self.optimism else options.prior
        assert expects is not None
        self.limits = RewardLimits(expects, options.reward_range)
        self.released_count = 0
        self.local_count = 0
        self.marks: dict[int, Array] = {}  # copies of `fresh` at requests for a release, by `local_count`
        self.updates = 0  # rank-one updates since V⁻¹ was derived from the sums
        self.aging = None if options.half_life is None else Aging(options.half_life)  # type: ignore[arg-type]
        self.refit_at = next_refit(0)  # own observations at which σ and the prior's sd are estimated again
        self.growth = 0.0  # of log det V since the last absorb, for the baseline B1

    def _begin(self) -> None:
        """Start without any observation."""
        options = self.options
        assert options.merit is not None
        self.learner = AgentMemory.start(
            self.dimension,
            rule=str(options.rule),
            merit=options.merit,
            confidence=options.confidence,
            solver=None if options.solver is None else options.composed.solver,
            prior=options.prior,
            learning=self.decide_from != "released",  # where decisions must not use exact rewards
            common=self.common(),
            centre=self.centre,
            minimum_share=options.minimum_share,
        )
        self.own = np.zeros(packed_size(self.dimension))  # exact sums of released records; zeros if not kept
        self.others: Array | None = (
            None  # (q,) sums of partners' records in the statistics; None if there are none
        )
        self._workspaces.clear()
        self.records: OwnRecords | None = None
        if self._has_own_records:
            ratio = self.learner.noise_variance / self.own_sd**2
            declared, clips = self.actions is not None, self.sums is not None and self.sums.bounds is not None
            self.records = OwnRecords(self.dimension, declared=declared, ratio=ratio, clips=clips)
            self.records.add([] if self.actions is None else self.actions.names)

    @property
    def _has_own_records(self) -> bool:
        """Whether names have own records: exact ones, so that none is in a message with noise."""
        exact = self.sums is not None or self.decide_from == "own+released"
        return self.options.own_record and not self.optimism and exact

    @property
    def own_sd(self) -> float:
        """First guess of τ, the standard deviation of what names differ by beside features."""
        prior = self.options.prior
        assert prior is not None
        return prior.sd if self.featureless else BESIDE_FEATURES * prior.noise_sd

    def common(self) -> list[int]:
        """The coordinate whose mean is learnt, that of the constant column, if there is one."""
        if self.constant:
            return [self.dimension - 1]
        constant = None if self.schema is None else self.schema.constant
        return [] if constant is None else [constant]

    @property
    def given(self) -> int:
        """How many numbers describe an action to a caller: all coordinates but an array's intercept."""
        return 0 if self.featureless else self.dimension - bool(self.constant)

    def enter(self, contexts: ArrayLike, *, again: bool = False) -> Array:
        """Contexts (K, d) of a caller as the model has them, with the intercept; it checks their shape.

        again: the result may be the same array as at the last call with contexts of this shape.
        """
        if not self.constant:
            return as_contexts(contexts, self.dimension)
        if again and type(contexts) is np.ndarray and contexts.dtype is FLOAT:  # the usual case
            entered = self._entered.get(contexts.shape)
            if entered is not None:
                rows, numbers = entered
                numbers[...] = contexts if self.point is None else contexts - self.point
                return rows
        rows = as_contexts(contexts, self.dimension, constant=self.constant, point=self.point)
        if again and len(self._entered) < MOST_WORKSPACES:
            self._entered[len(rows), self.given] = rows, rows[:, : self.given]
        return rows

    def rows_of(self, names: Sequence[str]) -> Array:
        """Contexts (K, d) of actions without features."""
        if not self.optimism:
            return np.full((len(names), self.dimension), self.constant)
        assert self.actions is not None
        rows = np.zeros((len(names), self.dimension))
        rows[np.arange(len(names)), self.actions.coordinates(names)] = 1.0
        return rows

    # --- what the next decision uses -----------------------------------------------------------------

    @property
    def uniforms_each(self) -> int:
        """Number of uniforms that a decision uses: of Thompson's rule, also for θ and as a seed for names."""
        if self.options.rule != "thompson":
            return 1
        return 1 + self.dimension + (self.records is not None)

    @property
    def gram(self) -> Array:
        gram, _ = unpack(self.learner.statistics)
        return gram + self.learner.ridge * np.eye(self.dimension)

    @property
    def noise_sd(self) -> float:
        if self.options.confidence is not None:
            return self.options.confidence.noise_sd
        return math.sqrt(self.learner.noise_variance)

    @property
    def default_prior(self) -> Prior:
        """The prior that fits the merit, where none is given."""
        options, own, limits = self.options, self.featureless, self.options.reward_range
        assert options.merit is not None
        constant = not own and bool(self.common())
        return Prior.for_merit(options.merit, reward_range=limits, arms_of_their_own=own, intercept=constant)

    @property
    def prior(self) -> Prior:
        """The prior and the σ of the next decision; for "optimism", which has none, the default one."""
        assumed, learner = self.options.prior, self.learner
        if assumed is None:
            return self.default_prior
        mean, noise_sd = assumed.mean, math.sqrt(learner.noise_variance)
        if learner.learns_mean:
            mean = learner.sizes.mean if self.featureless else tuple(learner.mean.tolist())
        return Prior(mean, math.sqrt(learner.noise_variance / learner.ridge), noise_sd, assumed.learn)

    @property
    def observed(self) -> int:
        return self.released_count + self.local_count

    @property
    def knowledge(self) -> Knowledge:
        """What the next decision rests on.

        Σ‖x‖² says what others' sums add to its own: noise and doubt about partners make it smaller. Without
        own ones records count as if of norm 1.
        """
        learner, own, entries = self.learner, self.own_sums(), diagonal_entries(self.dimension)
        count = 0.0 if own is None else float(learner.observed)
        mine, all_records = (0.0 if own is None else own[entries].sum()), learner.statistics[entries].sum()
        each = mine / count if mine > 0.0 and count else 1.0
        return Knowledge(count, max(0.0, float(all_records - mine) / each), self.dimension)

    def own_sums(self) -> Array | None:
        """Packed exact sums of all its own records; None where decisions come from releases alone."""
        if self.sums is not None and not self.sums.clipped:
            return self.sums.total
        return None if self.decide_from == "released" else self.own + self.learner.fresh

    @property
    def own_variance(self) -> float:
        """τ², the variance of what names differ by beside features; 0 where no decision uses own records."""
        records = self.records
        return self.learner.noise_variance / records.ratio if records is not None and records.known else 0.0

    def record_of(self, name: str) -> OwnRecord | None:
        """What is known of a name beside features; None if it has no own record."""
        records, learner = self.records, self.learner
        place = None if records is None else records.places.get(name)
        if records is None or place is None:
            return None
        row = records.used[place]
        share = 1.0 / (row[RECORDS] + records.ratio)
        theta, sums = learner.inverse @ learner.moment, row[CONTEXTS:]
        variance = share + share**2 * float(sums @ learner.inverse @ sums)
        return OwnRecord(
            float(row[RECORDS]),
            float(share * (row[REWARDS] - sums @ theta)),
            math.sqrt(learner.noise_variance * variance),
            float(share * row[RECORDS]),
        )

    def _own(self, names: Sequence[str], arms: int) -> Own:
        """Tallies, places of names, workspace and ρ, as compiled code takes them."""
        records = self.records
        if records is None or not records.known:
            return NO_NAMES
        size = arms * (self.dimension + CONTEXTS)
        if self._work.size < size:
            self._work = np.empty(2 * size)
        return records.used, records.places_of(names), self._work, records.ratio

    def draw(
        self,
        rows: Array,
        weights: Weights,
        draws: Uniforms,
        names: Sequence[str] | None,
        memory: Array | None = None,
    ) -> tuple[list[int], Array]:
        """The action in each slot for the next uniforms, which stay unused, and the values of a `Decision`.

        rows: contexts (K, d).
        names: of the actions, if they have any.
        memory: the learner's, or a copy that may be overwritten.
        """
        arms, dimension, learner, seed = len(rows), self.dimension, self.learner, 0.0
        if memory is None:
            memory = learner.memory
        if draws.each > 1:
            draw_parameter(memory, draws.normals(dimension), np.empty(dimension * dimension + 1))
            seed = draws.last
        if weights is not ONE:
            return self._draw_slate(rows, weights, memory, draws.ahead[-1], names, seed)
        values, uniform = np.empty(arms + 2 * dimension), draws.ahead[-1]
        if self.optimism:
            work, _ = self._workspaces.get((arms, 0)) or self._scratch(arms)
            action: int = decide_one(rows, memory, work, values, uniform, *learner.variant)
        else:
            own = NO_NAMES if names is None else self._own(names, arms)
            if own is NO_NAMES:
                action = decide_by_posterior(rows, memory, values, uniform, learner.quadrature)
            else:
                action = decide_among_names(rows, memory, values, uniform, learner.quadrature, *own, seed)
        if action < 0:
            raise not_finite("contexts", rows, LARGEST)
        return [action], values

    def _draw_slate(
        self,
        rows: Array,
        weights: Weights,
        memory: Array,
        uniform: float,
        names: Sequence[str] | None,
        seed: float,
    ) -> tuple[list[int], Array]:
        """`draw` for several slots, or one of another weight than 1."""
        arms, slots, learner = len(rows), len(weights), self.learner
        v = self._weights[1] if weights is self._weights[0] else self._as_array(weights)
        if slots > arms:
            text = f"slots must be at most as many as the {arms} actions, got slots={slots}"
            raise InvalidInput(f"{text}; where there are few actions, give decide(slots=…) fewer")
        values = np.empty(arms + (1 + slots) * self.dimension)
        work, shown = self._workspaces.get((arms, slots)) or self._scratch(arms, slots)
        if self.optimism:
            problem, _ = self._workspaces.get((arms, 0)) or self._scratch(arms)
            more = work, values, uniform, *learner.variant
            status: int = decide_slate_by_optimism(rows, memory, v, problem, *more)
        else:
            own = NO_NAMES if names is None else self._own(names, arms)
            status = decide_slate(rows, memory, v, work, values, uniform, learner.quadrature, *own, seed)
        if status < 0:
            raise not_finite("contexts", rows, LARGEST)
        drawn: list[int] = shown.tolist()
        return drawn, values

    def can_draw_together(self, blocks: object, weights: Weights) -> bool:
        """Whether `draw_together` can draw these: one slot, by a posterior, among as many actions each."""
        plain = not self.optimism and self.uniforms_each == 1
        return weights is ONE and plain and isinstance(blocks, np.ndarray)

    def draw_together(
        self, contexts: Array, uniforms: Array, names: Sequence[Sequence[str] | None]
    ) -> tuple[list[int], Array]:
        """`draw` for B decisions among sound contexts (B, K, d): their actions, and values (B, K + 2 d)."""
        count, arms, dimension = contexts.shape
        values = np.empty((count, arms + 2 * dimension))
        actions, learner = np.empty(count, dtype=np.int64), self.learner
        own = self._own_of_each(names, arms)
        decide_together(contexts, learner.memory, values, uniforms, actions, learner.quadrature, *own)
        drawn: list[int] = actions.tolist()
        return drawn, values

    def _own_of_each(self, names: Sequence[Sequence[str] | None], arms: int) -> Own:
        """`_own` of several decisions among equally many actions, with places (B, K)."""
        records, given = self.records, next((each for each in names if each is not None), None)
        tallies, _, work, ratio = NO_NAMES if given is None else self._own(given, arms)
        if records is None or tallies is None:
            return NO_NAMES
        places = np.full((len(names), arms), -1, dtype=np.int64)
        for row, each in zip(places, names, strict=True):
            if each is not None:
                row[:] = records.places_of(each)
        return tallies, places, work, ratio

    def _as_array(self, weights: Weights) -> Array:
        """The weights of slots as compiled code takes them; those of the last decision are in `_weights`."""
        self._weights = weights, as_array(weights)
        return self._weights[1]

    def _scratch(self, arms: int, slots: int = 0) -> tuple[Array, NDArray[np.int64]]:
        """Scratch memory of the optimistic problem, or of `slots` slots, with the actions in them."""
        if len(self._workspaces) > MOST_WORKSPACES:  # or a K that never repeats would fill the memory
            self._workspaces.clear()
        if slots:
            memory = zeros(size_of(slate_scratch, slots, arms))
        else:
            memory = decision_workspace(arms, self.dimension)
        workspace = self._workspaces[arms, slots] = memory, memory[:slots].view(np.int64)
        return workspace

    # --- learning ------------------------------------------------------------------------------------

    def learn(self, decision: Decision, slot: int, reward: float) -> bool:
        """Learn the reward of a slot; True if σ and sd were estimated again, and peers must be judged."""
        self.local_count += 1
        if self.decide_from == "released":
            return False
        if self.aging is not None:
            self.age()
        sums, memory, weight, values = self.sums, self.learner.memory, decision.weights[slot], decision.values
        at = values.size - self.dimension * (len(decision.weights) - slot)  # contexts of slots come last
        own = None
        if self.records is not None and decision.shown_names is not None:
            own = self._own_of(decision.shown_names[slot], weight, values, at, reward)
        if sums is None:
            learnt = self.limits.clipped(reward)
            record = memory, None, values, at, self.dimension, weight, learnt
            growth: float = learn_one(*record) if own is None else learn_named(*record, *own)
        else:  # one call instead of two: calling compiled code is half the time of a reward
            growth = sums.add_and_learn(memory, values, at, weight, reward, own)
        self.updates += 1
        if growth >= 0.0:
            self.growth += growth
        if self.released_count + self.local_count >= self.refit_at:
            self._refit()
            return True
        if self.updates >= REFRESH_EVERY or growth < 0.0:  # V can't shrink: rounding made V⁻¹ indefinite
            self._derive()
        return False

    def _own_of(
        self, name: str, weight: float, values: Array, at: int, reward: float
    ) -> tuple[Array, int, float] | None:
        """Tallies, place and ρ for learning a record of this name, which goes to other tallies too."""
        records, sums = self.records, self.sums
        assert records is not None
        place = records.places.get(name, -1)
        if place < 0:
            return None
        records.known = records.known or weight > 0.0
        context = values[at : at + self.dimension]
        if records.used is not records.mine:
            learnt = self.limits.clipped(reward) if sums is None else reward
            records.add_record(records.mine[place], weight, context, learnt)
        if sums is not None and sums.bounds is not None:
            context, reward, _ = sums.bounds.clip(context, reward)
            records.add_record(records.sent[place], weight, context, reward)
        return records.used, place, records.ratio

    def learn_together(self, decision: Decision, rewards: Mapping[int, float | None]) -> bool:
        """`learn` for all slots in one call, to the same bits; False if that can't be, and nothing is done.

        It can where rewards of all slots come at once, and no sizes are learnt meanwhile.
        """
        sums, count = self.sums, len(decision.weights)
        if sums is None or sums.bounds is not None or self.aging is not None:
            return False
        observed = self.local_count + count
        quiet = self.released_count + observed < self.refit_at and self.updates + count < REFRESH_EVERY
        if not quiet or len(rewards) < count or count == 1 or None in rewards.values():
            return False
        learnt = np.fromiter(rewards.values(), FLOAT, count)  # in the order of slots
        values, weights = decision.values, self._weights[1]
        if decision.weights is not self._weights[0]:
            weights = self._as_array(decision.weights)
        at = values.size - self.dimension * count
        tallies, places, ratio = None, None, None
        if self.records is not None and decision.shown_names is not None:
            own = [
                self._own_of(name, weight, values, at + slot * self.dimension, reward)
                for slot, (name, weight, reward) in enumerate(
                    zip(decision.shown_names, decision.weights, learnt, strict=True)
                )
            ]
            tallies, ratio = self.records.used, self.records.ratio
            places = np.array([-1 if each is None else each[1] for each in own], dtype=np.int64)
        self.growth, self.updates = sums.add_and_learn_slate(
            self.learner.memory,
            values,
            at,
            weights,
            learnt,
            self.growth,
            self.updates,
            tallies,
            places,
            ratio,
        )
        self.local_count = observed
        return True

    def count_blank(self) -> None:
        """Count a record of which nothing is learnt; sizes are estimated again after the next doubling."""
        self.local_count += 1
        self.refit_at = max(self.refit_at, next_refit(self.observed))  # as it is restored

    def _refit(self) -> None:
        """Estimate σ, the prior's sd and plausible rewards again, after own rewards have doubled.

        Where they decay, it is also done when as many have come as counted the last time.
        """
        own, learner = self.own_sums(), self.learner
        self.refit_at = next_refit(self.observed)
        if self.aging is not None:
            self.refit_at = min(self.refit_at, self.observed + math.ceil(learner.observed))
        assert own is not None  # an agent that decides from releases alone learns no rewards
        if learner.learns_sizes:
            self._learn_sizes(own)
            self.gather()
            learner.learn_mean()
        self.look_at_rewards()

    def _learn_sizes(self, own: Array) -> None:
        """Learn σ and the prior's sd and, if names have records, τ, by plain sums (q,) of all own records."""
        learner, records = self.learner, self.records
        if records is None:
            learner.learn_sizes(own)
            return
        most = -math.inf
        for ratio, white, names in likely_ratios(own, records.mine, self.own_sd**2):
            likely = learner.likely_sizes(white, names)[2]
            if likely > most:
                most, records.ratio, best, beside = likely, ratio, white, names
        if most > -math.inf:
            learner.learn_sizes(best, beside)
        else:
            learner.learn_sizes(own)
            records.ratio = learner.noise_variance / self.own_sd**2

    def look_at_rewards(self) -> None:
        """Compare the size of the rewards so far with what is expected, and adapt the limits to it."""
        own = self.own_sums()
        if own is not None:
            squares, spread = own[diagonal_entries(self.dimension)], self.learner.squares
            for column in self.common():  # how high rewards are is not how far they differ
                mean = own[column - self.dimension] / max(squares[column], TINY)
                spread = max(spread - float(mean**2 * squares[column]), 0.0)
                squares[column] = 0.0
            self.limits.look(self.learner.observed, self.learner.squares, spread, float(squares.sum()))

    def age(self) -> bool:
        """Decay all sums to now, if enough of the half-life has passed; whether it has."""
        factor = 1.0 if self.aging is None else self.aging.advance(self.observed)
        if factor == 1.0:
            return False
        self.learner.decay(factor)
        self.own *= factor
        for mark in self.marks.values():
            mark *= factor
        if self.sums is not None:
            self.sums.decay(factor)
        if self.others is not None:
            self.others *= factor
        if self.records is not None:
            self.records.decay(factor)
        self.gather()
        return True

    def _derive(self) -> None:
        self.learner.derive()
        self.updates = 0

    def gather(self) -> None:
        """Derive V⁻¹ and, where names have records, what it comes from, from the plain sums."""
        if self.records is not None:
            own = self.own_sums()
            assert own is not None
            plain = own if self.others is None else own + self.others
            self.learner.statistics[:] = self.records.whitened(plain, used=True)
        self._derive()

    def adopt(self, shared: Array, count: float, others: Array | None = None) -> None:
        """Use these statistics of `count` records from now on; `MessageRefused` unless V is definite.

        others: what of the plain sums behind them is partners'.
        """
        changed = not np.array_equal(shared, self.learner.statistics)
        if changed:
            check_definite(shared, self.learner.ridge)
        self.growth = 0.0
        self.others = others
        self.learner.set_count(count)
        if changed:
            self.learner.statistics[:] = shared
            self._derive()
            self.learner.learn_mean()

    def take_back(self, before: Held) -> None:
        """Undo `adopt`."""
        self.learner.memory[:] = before.memory
        self.growth, self.updates, self.others = before.growth, before.updates, before.others
        if self.records is not None and before.records is not None:
            self.records.take_back(before.records)

    def hold(self) -> Held:
        """What `take_back` needs."""
        records = None if self.records is None else self.records.hold()
        return Held(self.learner.memory.copy(), self.growth, self.updates, self.others, records)

    # --- records that are in no release yet ----------------------------------------------------------

    def mark_local(self, records: int) -> None:
        """Note what a release made now may hold; the first `records` are in an interrupted one."""
        self.marks = {count: mark for count, mark in self.marks.items() if count == records}
        self.marks[self.local_count] = self.learner.fresh.copy()

    def fold_local(self, records: int) -> None:
        """Move the first `records`, which are in a release now, from the local sums to the agent's own.

        These are all local records, unless the privatizer has finished a release that was interrupted before
        the last of them came.
        """
        if records not in self.marks:  # their sums are unknown: all stay until all are released
            return
        released, fresh = self.marks[records], self.learner.fresh
        if self.decide_from != "released":
            self.own += released
        fresh -= released
        self.released_count += records
        self.local_count -= records
        self.marks.clear()

    # --- declared actions ----------------------------------------------------------------------------

    def begin_actions(self, names: Sequence[str], retired: Sequence[str]) -> None:
        """Start with these actions and no observation, before a stored state is restored."""
        self.actions = Actions(names, retired)
        if self.featureless and self.optimism:
            self.dimension = len(names)
        self._begin()

    def change_actions(self, how: str, names: Sequence[str]) -> None:
        """Add or retire actions; what is known about the others stays."""
        assert self.actions is not None
        self.actions = self.actions.changed(how, names)
        if self.records is not None:
            self.records.add(self.actions.names)
        elif self.featureless and len(self.actions) > self.dimension:
            self._grow(len(self.actions))

    def show(self, decision: Decision) -> bool:
        """Note which names a decision shows; whether there are too many with records now."""
        if self.records is None or decision.shown_names is None:
            return False
        return self.records.show(decision.shown_names, decision.number)

    def forget_names(self, names: Sequence[str]) -> None:
        """Forget the own records of these names."""
        if self.records is not None:
            self.records.forget(names)
            self.gather()

    def _grow(self, dimension: int) -> None:
        """Add coordinates, about which nothing is known."""
        smaller, own, records = self.learner, self.own, self.records
        others = None if self.others is None else embedded(self.others, dimension)
        self.dimension = dimension
        self._begin()
        self.learner.take_over(smaller)
        self.own, self.others, self.records = embedded(own, dimension), others, records
        if records is not None:
            records.grow(dimension)
        assert self.sums is not None  # a private agent's releases have a fixed size
        self.sums.resize(dimension)
        self.gather()

    # --- described features --------------------------------------------------------------------------

    def begin_schema(self, schema: Schema) -> None:
        """Start with these features and no observation, before a stored state is restored."""
        self.schema = schema
        self.dimension = schema.width
        self._begin()

    def extend_schema(self, schema: Schema) -> None:
        """Take a later version of the schema; what is known about earlier columns stays."""
        self.schema = schema
        self._grow(schema.width)
