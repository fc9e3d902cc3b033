"""What an agent knows: its own records, the others' releases, and what the next decision comes from.

    V = λI + shared + local,   b likewise,   θ̂ = V⁻¹ b           (Alg. 1 lines 5 and 27)

`shared` is the sum of everybody's latest release, `local` what this agent has observed since its own last
one. What a private agent decides from is its privatizer's `decide_from`:

    "released+local"   the line above: the paper's rule, and every non-private agent's
    "own+released"     its own exact statistics, and the others' noisy ones weighted by their worth: the
                       default of private agents that have a posterior
    "released"         shared alone: the strict mode, in which un-noised data drive nothing
"""

from __future__ import annotations

import math
import threading
from collections.abc import Sequence

import numpy as np

from fedfairx.agent.actions import Actions
from fedfairx.agent.decision import Decision
from fedfairx.agent.partners import ALIKE_TOLD, NOT_ABLE, Partners, partners_alike, partners_judged
from fedfairx.agent.pooling import Known, Pool, PosteriorPool, pool_for
from fedfairx.agent.reward_limits import RewardLimits, as_reward_range
from fedfairx.agent.solvers import solver as make_solver
from fedfairx.agent.validation import check_definite
from fedfairx.core.agent_kernels import Single, learn_arm, learn_one
from fedfairx.core.confidence import Confidence
from fedfairx.core.estimate import REFRESH_EVERY
from fedfairx.core.marginal_likelihood import next_refit
from fedfairx.core.merit import Exponential, Merit, Range
from fedfairx.core.optimism.solver import Solver
from fedfairx.core.partners import ALIKE, DIFFER, PARTNERS
from fedfairx.core.posterior import Prior
from fedfairx.core.rules import OPTIMISM, RULES
from fedfairx.core.statistics import diagonal_entries, embedded, packed_size, unpack
from fedfairx.errors import require
from fedfairx.privacy import NonPrivateSums, Privatizer, Release
from fedfairx.util.arrays import Array


class Knowledge:
    """The knowing half of an agent: `Agent` decides by it, and says what it learns."""

    name: str  # under which its own releases are held

    def __init__(
        self,
        dimension: int | None,
        *,
        actions: Sequence[str] | None,
        rule: str,
        merit: Merit | None,
        reward_range: Range | None,
        prior: Prior | None,
        minimum_share: float,
        confidence: Confidence | None,
        privatizer: Privatizer | None,
        solver: str | Solver | None,
        shift: float,
        partners: str,
    ) -> None:
        require(rule in RULES, "rule", f"must be one of {', '.join(RULES)}", rule)
        fits = confidence is None or rule == OPTIMISM
        require(fits, "confidence", f"is for rule='{OPTIMISM}'; rule={rule!r} takes a prior", confidence)
        require(prior is None or rule != OPTIMISM, "prior", "is not for rule='optimism'", prior)
        ok = isinstance(minimum_share, int | float) and 0 <= minimum_share < 1
        require(ok, "minimum_share", "must be in [0, 1)", minimum_share)
        self._actions = None if actions is None else Actions(actions)
        if self._actions is not None:
            require(dimension is None, "dimension", "must be left out beside actions", dimension)
            require(len(self._actions) > 0, "actions", "must be at least one", 0)
            dimension = len(self._actions)
        ok = isinstance(dimension, int | np.integer) and not isinstance(dimension, bool) and dimension >= 1
        require(ok, "dimension", "must be an integer >= 1", dimension, "or give actions")
        assert dimension is not None
        self.reward_range = as_reward_range(reward_range)
        if merit is None:
            merit = Exponential.for_range(*(self.reward_range or (0.0, 1.0)))
        require(isinstance(merit, Merit), "merit", "must be a merit function of fedfairx.merit", merit)
        require(math.isfinite(shift) and shift >= 0, "shift", "must be finite and >= 0", shift)
        self.dimension = int(dimension)
        self.merit: Merit = merit
        self.confidence = Confidence() if confidence is None else confidence
        self.privatizer: Privatizer = NonPrivateSums(self.dimension) if privatizer is None else privatizer
        same = self.privatizer.dimension == self.dimension
        require(same, "privatizer", f"must have dimension {self.dimension}", self.privatizer.dimension)
        self.decide_from: str = self.privatizer.guarantee.decide_from
        self._plain = self.privatizer if type(self.privatizer) is NonPrivateSums else None
        self.private = not isinstance(self.privatizer, NonPrivateSums)
        self.solver = make_solver("fixed-point" if solver is None else solver)
        require(
            solver is None or rule == OPTIMISM, "solver", "is for rule='optimism'", solver, "leave it out"
        )
        require(partners in PARTNERS, "partners", f"must be one of {', '.join(PARTNERS)}", partners)
        posterior = partners == ALIKE or rule != OPTIMISM
        require(
            posterior,
            "partners",
            f"must be {ALIKE!r} for rule='{OPTIMISM}', which has no posterior",
            partners,
        )
        self.partners_are = partners  # as told; `partners` is who they are
        self.shift = shift  # in standard deviations of the aggregate's noise; private agents only
        self.rule = rule
        self.default_prior = Prior.for_merit(
            merit, reward_range=self.reward_range, arms_of_their_own=self._actions is not None
        )
        self.prior = self.default_prior if prior is None else prior
        one = self._actions is None or not isinstance(self.prior.mean, tuple)
        require(one, "prior", "must have one mean for all actions, since more can be added", "a tuple")
        self._limits = RewardLimits(self.confidence if rule == OPTIMISM else self.prior, self.reward_range)
        self.minimum_share = float(minimum_share)
        self._pool = self._new_pool()
        self._learner = self._new_learner()
        self._latest: dict[str, Release] = {}
        # Of partners who may differ, by name: see `core.partners`.
        self._weights: dict[str, Array] = {}
        self._powers: dict[str, float] = {}
        self._own = np.zeros(packed_size(self.dimension))  # what was released, exact; zeros if never kept
        self._released_count = 0
        self._local_count = 0
        self._marks: dict[int, Array] = {}  # `fresh` when a release was asked for, by the count then
        self._updates = 0  # rank-one updates since V⁻¹ was derived from the sums
        self._refit_at = next_refit(0)  # own observations at which σ and the prior's sd are learnt again
        self._growth = 0.0
        self._lock = threading.RLock()

    def _new_learner(self) -> Single:
        return Single.start(
            self.dimension,
            rule=self.rule,
            merit=self.merit,
            confidence=self.confidence,
            solver=self.solver,
            prior=self.prior,
            learning=self.decide_from != "released",  # un-noised rewards must drive nothing there
            minimum_share=self.minimum_share,
        )

    # --- what the next decision will use -------------------------------------------------------------

    @property
    def gram(self) -> Array:
        """V = λI + Gram (d, d), as the next decision will use it."""
        with self._lock:
            gram, _ = unpack(self._learner.statistics)
            return gram + self._learner.ridge * np.eye(self.dimension)

    @property
    def moment(self) -> Array:
        """b (d,), and what the prior's mean adds to it."""
        with self._lock:
            return self._learner.moment

    @property
    def estimate(self) -> Array:
        """θ̂ = V⁻¹ b (d,)."""
        with self._lock:
            return np.asarray(self._learner.inverse @ self.moment)

    @property
    def radius(self) -> float:
        """√β, the half-width of the confidence region in the norm of V.

        Of the rules that have a posterior σ: one standard deviation of it in that norm.
        """
        return self._learner.radius

    @property
    def noise_sd(self) -> float:
        """σ of the rewards as this agent has it: assumed, or learnt from its own rewards."""
        if self.rule == OPTIMISM:
            return self.confidence.noise_sd
        return math.sqrt(self._learner.noise_variance)

    @property
    def growth(self) -> float:
        """log(det V / det V at the last absorb): what the baseline B1 watches."""
        return self._growth

    @property
    def observed(self) -> int:
        """Rewards that it has taken, those of `learn` too."""
        return self._released_count + self._local_count

    def own_sums(self) -> Array | None:
        """Packed exact sums of all its own records; None of an agent that decides from releases alone."""
        with self._lock:
            if isinstance(self.privatizer, NonPrivateSums) and not self.privatizer.clipped:
                return self.privatizer.total
            return None if self.decide_from == "released" else self._own + self._learner.fresh

    @property
    def held(self) -> dict[str, Release]:
        """The latest release of every agent that it has one of, its own too, by name."""
        with self._lock:
            return dict(self._latest)

    @property
    def partners(self) -> Partners:
        """Whose releases it holds, how far each is believed now, and why: a table, by name."""
        with self._lock:
            others = self._others(self._latest)
            if self.partners_are != DIFFER:
                return partners_alike(others, ALIKE_TOLD)
            if self.decide_from == "released":
                return partners_alike(others, NOT_ABLE)
            return partners_judged(others, self._weights, self._powers)

    # --- how it comes to be known --------------------------------------------------------------------

    def _learn(self, made: Decision, value: float) -> None:
        """Take in the reward of a decision, which the privatizer has unless it is a plain sum."""
        self._local_count += 1
        if self.decide_from == "released":
            return
        plain, memory = self._plain, self._learner.memory
        if self._actions is not None:
            arm = self._actions.number(str(made.name))
            growth = learn_arm(memory, self.dimension, arm, self._limits.clipped(value))
            if plain is not None:
                plain.add_arm(arm, value)
        elif plain is None:
            growth = learn_one(memory, made.chosen(), self._limits.clipped(value))
        else:  # one call instead of two: half the time of a reward is that of calling compiled code
            growth = plain.add_and_learn(memory, made._values, made._arms + self.dimension, value)
        self._updates += 1
        if growth >= 0.0:
            self._growth += growth
        if self.observed >= self._refit_at:
            self._refit()
        elif self._updates >= REFRESH_EVERY or growth < 0.0:  # V can't shrink: rounding made V⁻¹ indefinite
            self._derive()

    def _mark_local(self) -> None:
        """A release is asked for: if it is interrupted, this is what it may hold once it is finished."""
        frozen = self._held_local()  # by one that was asked for before, if at all
        self._marks = {count: mark for count, mark in self._marks.items() if count == frozen}
        self._marks[self._local_count] = self._learner.fresh.copy()

    def _held_local(self) -> int:
        return self._local_count - int(getattr(self.privatizer, "waiting", 0))

    def _fold_local(self, held: int) -> None:
        """Of what was fresh, what is released now: `held` records. `own+released` keeps it as its own.

        All of it, unless the privatizer has finished a release that was interrupted before the rest came.
        """
        if held not in self._marks:  # nobody knows what they were: all of it stays until all is released
            return
        released, fresh = self._marks[held], self._learner.fresh
        if self.decide_from != "released":
            self._own += released
        fresh -= released
        self._released_count += held
        self._local_count -= held
        self._marks.clear()

    def _share(self, latest: dict[str, Release]) -> None:
        """Derive what decisions come from, from the latest releases (Alg. 1 lines 22 and 27)."""
        before = self._latest
        known = {
            name: weights
            for name, weights in self._weights.items()
            if name in latest and latest[name].number == before[name].number
        }
        self._pool_releases(latest, known)

    def _pool_releases(self, latest: dict[str, Release], weights: dict[str, Array]) -> None:
        """Statistics from these releases; of partners who may differ, these `weights` are known already."""
        known, own, pool = self._known(), self.own_sums(), self._pool
        others, judged = self._others(latest), None
        if own is not None and others and self.partners_are == DIFFER and isinstance(pool, PosteriorPool):
            judged = pool.judged(own, others, known, weights)
            theirs = sum(each.count for each in others.values())
            shared, count = own + judged.told, float(self.observed + theirs)
        elif own is not None and self.decide_from == "own+released":
            shared, count = pool.beside_own(own, self.observed, list(others.values()), known)
        else:
            releases = [latest[name] for name in sorted(latest)]
            shared, count = pool.all_alike(releases, self.dimension, known)
            if self.decide_from != "released":
                shared, count = shared + self._learner.fresh, count + self._local_count
        changed = not np.array_equal(shared, self._learner.statistics)
        if changed:  # otherwise there is nothing new to derive
            check_definite(shared, self._learner.ridge)
        self._latest = latest
        self._weights, self._powers = ({}, {}) if judged is None else (judged.weights, judged.powers)
        self._growth = 0.0
        self._learner.set_count(count)
        if changed:
            self._learner.statistics[:] = shared
            self._derive()

    def _known(self) -> Known:
        learner = self._learner
        return Known(learner.noise_variance, learner.size_of_parameter(), learner.ridge, learner.mean)

    def _others(self, latest: dict[str, Release]) -> dict[str, Release]:
        return {name: latest[name] for name in sorted(latest) if name != self.name}

    def _begin_actions(self, names: Sequence[str], retired: Sequence[str]) -> None:
        """Know nothing of these actions, to be put where a saved state was."""
        self._actions = Actions(names, retired)
        self.dimension = len(names)
        self._learner = self._new_learner()
        self._own = np.zeros(packed_size(self.dimension))

    def _add_actions(self, names: Sequence[str]) -> None:
        """A coordinate for each new action; what is known of the others stays."""
        assert self._actions is not None
        self._actions.add(names)
        if len(self._actions) > self.dimension:
            smaller = self._learner
            self.dimension = len(self._actions)
            self._learner = self._new_learner()
            self._learner.take_over(smaller)
            self._own = embedded(self._own, self.dimension)
            assert isinstance(self.privatizer, NonPrivateSums)
            self.privatizer.resize(self.dimension)
            self._derive()

    def _refit(self) -> None:
        """Own rewards have doubled: see what size they have, and learn σ and the prior's sd from them."""
        self._refit_at = next_refit(self.observed)
        own, learner = self.own_sums(), self._learner
        assert own is not None  # who decides from releases alone does not get here
        if learner.learns_sizes:
            learner.learn_sizes(own)
            self._derive()
        if self._weights:
            self._pool_releases(self._latest, {})  # partners are judged by more of our own now
        lengths = float(own[diagonal_entries(self.dimension)].sum())
        self._limits.look(self.observed, learner.squares, lengths)

    def _derive(self) -> None:
        self._learner.derive()
        self._updates = 0

    def _new_pool(self) -> Pool:
        mechanism, region = self.privatizer.mechanism, self.confidence if self.rule == OPTIMISM else None
        return pool_for(mechanism, private=self.private, region=region, shift=self.shift)
