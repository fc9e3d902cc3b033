"""What an agent knows: its own records, the others' releases, and what the next decision comes from.

    V = λI + shared + local,   b likewise,   θ̂ = V⁻¹ b           (Alg. 1 lines 5 and 27)

`shared` is the sum of everybody's latest release, `local` what this agent has observed since its own last
one. What a private agent decides from is its privatizer's `decide_from`:

    "released+local"   the line above: the paper's rule, and every non-private agent's
    "released"         shared alone: the default of private agents, because un-noised data then drive nothing
    "own+released"     its own exact statistics, and the others' noisy ones weighted by their worth
"""

from __future__ import annotations

import math
import threading

import numpy as np

from fedfairx.arrays import Array
from fedfairx.core.confidence import Confidence
from fedfairx.core.estimate import REFRESH_EVERY
from fedfairx.core.memory import Single, learn_one
from fedfairx.core.merit import Exponential, Merit
from fedfairx.core.optimism.choose import Solver
from fedfairx.core.partners import ALIKE, DIFFER, PARTNERS
from fedfairx.core.posterior import Prior, next_refresh
from fedfairx.core.rules import OPTIMISM, RULES
from fedfairx.core.statistics import packed_size, unpack
from fedfairx.errors import require
from fedfairx.federation.checks import check_definite, usable
from fedfairx.federation.decision import Decision
from fedfairx.federation.partners import (
    ALIKE_TOLD,
    NOT_ABLE,
    NOTHING_OWN,
    Partners,
    partners_alike,
    partners_heard,
)
from fedfairx.federation.pool import Known, Pool, PosteriorPool, pool_for
from fedfairx.federation.solvers import solver as make_solver
from fedfairx.privacy import NonPrivateSums, Privatizer, Release


class Knowledge:
    """The knowing half of an agent: `Agent` decides by it, and says what it learns."""

    name: str  # under which its own releases are held

    def __init__(
        self,
        dimension: int,
        *,
        rule: str,
        merit: Merit | None,
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
        ok = isinstance(dimension, int | np.integer) and not isinstance(dimension, bool) and dimension >= 1
        require(ok, "dimension", "must be an integer >= 1", dimension)
        merit = Exponential() if merit is None else merit
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
        self.prior = Prior() if prior is None else prior
        self.minimum_share = float(minimum_share)
        self._pool = self._new_pool()
        self._learner = Single.start(
            self.dimension,
            rule=rule,
            merit=merit,
            confidence=self.confidence,
            solver=self.solver,
            prior=self.prior,
            learning=self.decide_from != "released",  # un-noised rewards must drive nothing there
            minimum_share=self.minimum_share,
        )
        self._latest: dict[str, Release] = {}
        self._own = np.zeros(packed_size(self.dimension))  # own+released: what was released, exact
        self._released_count = 0
        self._local_count = 0
        self._marks: dict[int, Array] = {}  # `fresh` when a release was asked for, by the count then
        self._updates = 0  # rank-one updates since V⁻¹ was derived from the sums
        self._updates_due = self._updates_until_derived()
        self._growth = 0.0
        self._lock = threading.RLock()

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
    def own_sums(self) -> tuple[Array, Array] | None:
        """(Σxxᵀ, Σxy) over all of its own rewards, exact; None where it keeps no such sums.

        Those are the private agents that decide from "released" and "released+local".
        """
        with self._lock:
            if isinstance(self.privatizer, NonPrivateSums):
                return unpack(self.privatizer.total)
            if self.decide_from == "own+released":
                return unpack(self._own + self._learner.fresh)
            return None

    @property
    def held(self) -> dict[str, Release]:
        """The latest release of every agent that it has one of, its own too, by name."""
        with self._lock:
            return dict(self._latest)

    @property
    def partners(self) -> Partners:
        """Whose releases it holds, how far each is believed now, and why: a table, by name."""
        with self._lock:
            others, beside = self._others(self._latest), self._beside(self._latest)
            if self.partners_are != DIFFER or not isinstance(self._pool, PosteriorPool):
                return partners_alike(others, ALIKE_TOLD)
            if beside is None or not others:
                return partners_alike(others, NOT_ABLE if self.private else NOTHING_OWN)
            heard = self._pool.listen(beside[0], list(others.values()), self._known())
            return partners_heard(others, heard)

    # --- how it comes to be known --------------------------------------------------------------------

    def _learn(self, made: Decision, value: float) -> None:
        """Take in the reward of a decision, which the privatizer has unless it is a plain sum."""
        self._local_count += 1
        if self.decide_from == "released":
            return
        plain, memory = self._plain, self._learner.memory
        if plain is None:
            growth = learn_one(memory, made.chosen(), value if usable(value) else 0.0)
        else:  # one call instead of two: half the time of a reward is that of calling compiled code
            growth = plain.add_and_learn(memory, made._values, made._arms + self.dimension, value)
        self._updates += 1
        if growth >= 0.0:
            self._growth += growth
        if self._updates >= self._updates_due or growth < 0.0:  # V can't shrink: rounding made V⁻¹ indefinite
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
        if self.decide_from == "own+released":
            self._own += released
        fresh -= released
        self._released_count += held
        self._local_count -= held
        self._marks.clear()

    def _share(self, latest: dict[str, Release]) -> None:
        """Derive what decisions come from, from the latest releases (Alg. 1 lines 22 and 27)."""
        known, beside = self._known(), self._beside(latest)
        if beside is None:
            releases = [latest[name] for name in sorted(latest)]
            pooled = self._pool.all_alike(releases, self.dimension, known)
        else:
            pooled = self._pool.beside_own(*beside, list(self._others(latest).values()), known)
        shared, count = pooled.packed, pooled.count
        if self.decide_from != "released":
            shared = shared + self._learner.fresh
            count += self._local_count
        changed = not np.array_equal(shared, self._learner.statistics)
        if changed:  # otherwise there is nothing new to derive
            check_definite(shared, self._learner.ridge)
        self._latest = latest
        self._growth = 0.0
        self._learner.set_count(count)
        if changed:
            self._learner.statistics[:] = shared
            self._derive()

    def _known(self) -> Known:
        """λ as it will be when V⁻¹ is derived: that of σ as it is now, for the rules of the posterior."""
        learner = self._learner
        variance, optimism = learner.noise_variance, self.rule == OPTIMISM
        ridge = learner.ridge if optimism else variance / self.prior.sd**2
        return Known(variance, learner.size_of_parameter(), ridge, learner.mean)

    def _others(self, latest: dict[str, Release]) -> dict[str, Release]:
        return {name: latest[name] for name in sorted(latest) if name != self.name}

    def _beside(self, latest: dict[str, Release]) -> tuple[Array, int] | None:
        """One's own exact statistics and their count, where others' stand beside them."""
        if self.decide_from == "own+released":
            return self._own, self._released_count
        if self.partners_are == DIFFER and not self.private and self.name in latest:
            return latest[self.name].packed, latest[self.name].count
        return None

    def _derive(self) -> None:
        self._learner.derive()
        self._updates = 0
        self._updates_due = self._updates_until_derived()

    def _updates_until_derived(self) -> int:
        """Rounding must not gather; and λ follows the noise learnt where own observations double."""
        if self.rule == OPTIMISM:
            return REFRESH_EVERY
        observed = self._learner.observed
        return min(REFRESH_EVERY, self._updates + next_refresh(observed) - observed)

    def _new_pool(self) -> Pool:
        mechanism, region = self.privatizer.mechanism, self.confidence if self.rule == OPTIMISM else None
        differ = self.partners_are == DIFFER
        return pool_for(mechanism, private=self.private, region=region, shift=self.shift, differ=differ)
