"""The agent: decide, observe, release, absorb.

    V = λI + shared + local,   b likewise,   θ̂ = V⁻¹ b           (Alg. 1 lines 5 and 27)

`shared` is the sum of everybody's latest release, `local` what this agent has observed since its own last
one. What a private agent decides from is its privatizer's `decide_from`:

    "released+local"   the line above: the paper's rule, and every non-private agent's
    "released"         shared alone: the default of private agents, because un-noised data then drive nothing
    "own+released"     its own exact statistics, and the others' noisy ones weighted by their worth
"""

from __future__ import annotations

import math
import secrets
import threading
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fedfairx.core.believing import decide_by_posterior, draw_parameter
from fedfairx.core.confidence import Confidence
from fedfairx.core.estimate import REFRESH_EVERY
from fedfairx.core.memory import LARGEST, Single, learn_one
from fedfairx.core.merit import Exponential, Merit
from fedfairx.core.optimism import Solver
from fedfairx.core.posterior import Prior, next_refresh
from fedfairx.core.rules import OPTIMISM, RULES
from fedfairx.core.single import decide_one, room_for
from fedfairx.core.statistics import Array, packed_size, unpack
from fedfairx.errors import AlreadyObserved, require
from fedfairx.federation import state
from fedfairx.federation.aggregate import RIDGES, noise_spread
from fedfairx.federation.checks import as_contexts, as_reward, check_definite, latest_of, not_finite
from fedfairx.federation.clipping import ClippingWatch
from fedfairx.federation.decision import Decision, known
from fedfairx.federation.pool import Known, OptimismPool, Pool, PosteriorPool
from fedfairx.federation.solvers import solver as make_solver
from fedfairx.privacy import NonPrivateSums, Privatizer, Release

DRAWN_AHEAD = 64  # uniforms at a time


class Agent:
    """Chooses arms in proportion to their merit, and learns from rewards, alone or with others.

    `name` is what others know its releases by, and must differ from theirs; by default it is random.
    Threads may share an agent: a lock makes each call whole. Whose turn is next is then the threads' affair,
    and a seed repeats a run only if the order of calls is repeated. A `ClippingWarning` says when a private
    agent's bounds move more than 1 % of its records.
    """

    def __init__(
        self,
        dimension: int,
        *,
        rule: str = "expected-merit",
        merit: Merit | None = None,
        seed: int | np.random.SeedSequence | None = None,
        prior: Prior | None = None,
        minimum_share: float = 0.0,
        confidence: Confidence | None = None,
        privatizer: Privatizer | None = None,
        solver: str | Solver = "fixed-point",
        shift: float = 4.0,
        ridge: str = "fixed",
        name: str | None = None,
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
        require(ridge in RIDGES, "ridge", f"must be one of {', '.join(RIDGES)}", ridge)
        require(not isinstance(seed, int) or seed >= 0, "seed", "must be >= 0", seed)
        self.dimension = int(dimension)
        self.merit: Merit = merit
        self.confidence = Confidence() if confidence is None else confidence
        self.privatizer: Privatizer = NonPrivateSums(self.dimension) if privatizer is None else privatizer
        same = self.privatizer.dimension == self.dimension
        require(same, "privatizer", f"must have dimension {self.dimension}", self.privatizer.dimension)
        self.decide_from: str = self.privatizer.guarantee.decide_from
        self._plain = self.privatizer if type(self.privatizer) is NonPrivateSums else None
        self.private = not isinstance(self.privatizer, NonPrivateSums)
        self.solver = make_solver(solver)
        self.shift = shift  # in standard deviations of the aggregate's noise; private agents only
        self.ridge = ridge  # whether that is added in any case, or what the spectrum is topped up to
        self.rule = rule
        self.prior = Prior() if prior is None else prior
        self.minimum_share = float(minimum_share)
        mechanism = self.privatizer.mechanism
        self._pool: Pool = PosteriorPool(mechanism, self.private)
        if rule == OPTIMISM:
            self._pool = OptimismPool(mechanism, self.private, self.confidence, shift, ridge)
        self.name = f"agent-{secrets.token_hex(4)}" if name is None else name
        self._generator = np.random.Generator(np.random.PCG64(seed))
        self._uniforms: list[float] = []  # drawn ahead; the last is the next: a refused call takes none
        self._uniforms_each = 1 + self.dimension if rule == "thompson" else 1  # that a decision takes
        self._draw_ahead()
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
        self._rooms: dict[int, Array] = {}
        self._pending: dict[int, Decision] = {}
        self._next_id = 0
        self._latest: dict[str, Release] = {}
        self._own = np.zeros(packed_size(self.dimension))  # own+released: what was released, exact
        self._released_count = 0
        self._local_count = 0
        self._updates = 0  # rank-one updates since V⁻¹ was derived from the sums
        self._updates_due = self._updates_until_derived()
        self._growth = 0.0
        self._watch = ClippingWatch(self.privatizer)
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
    def pending(self) -> int:
        """Decisions whose reward has not come."""
        return len(self._pending)

    @property
    def growth(self) -> float:
        """log(det V / det V at the last absorb): what the baseline B1 watches."""
        return self._growth

    # --- deciding ------------------------------------------------------------------------------------

    def decide(self, contexts: ArrayLike) -> Decision:
        """Draw an arm for a (K, d) array of contexts; K may change from call to call."""
        rows = as_contexts(contexts, self.dimension)
        arms, dimension = rows.shape
        values = np.empty(arms + 2 * dimension)
        with self._lock:
            memory, uniforms = self._learner.memory, self._uniforms
            if self.rule == OPTIMISM:
                action = decide_one(rows, memory, self._room(arms), values, uniforms[-1])
            else:
                if self._uniforms_each > 1:
                    draw_parameter(memory, self._normals(), np.empty(dimension * dimension + 1))
                action = decide_by_posterior(rows, memory, values, uniforms[-1])
            if action < 0:
                raise not_finite(rows)
            del uniforms[-self._uniforms_each :]
            if not uniforms:
                self._draw_ahead()
            identity = self._next_id
            decision = self._pending[identity] = Decision(identity, action, values, arms)
            self._next_id = identity + 1
            return decision

    def decide_many(self, contexts: Sequence[ArrayLike] | Array) -> list[Decision]:
        """Independent decisions from one state of knowledge: a (B, K, d) array, or B arrays (K_b, d).

        The same decisions as B calls of `decide`, and none of them if one of the arrays is refused.
        """
        blocks = [as_contexts(block, self.dimension) for block in contexts]
        for rows in blocks:
            if not (np.abs(rows) <= LARGEST).all():
                raise not_finite(rows)
        with self._lock:
            return [self.decide(rows) for rows in blocks]

    # --- observing -----------------------------------------------------------------------------------

    def observe(self, decision: Decision | int, *, reward: float) -> None:
        """Take the reward of a decision: at once or later, in any order, each once."""
        with self._lock:
            self._take(decision, reward)
            if self._plain is None:
                self._watch.look()  # last, since the owner may have made the warning an error

    def _take(self, decision: Decision | int, reward: float) -> None:
        pending, plain = self._pending, self._plain
        identity = known(decision, pending, self._next_id)
        value = reward if type(reward) is float and abs(reward) <= LARGEST else as_reward(reward)
        made = pending[identity]
        if plain is None:
            self.privatizer.add(made.chosen(), value, identity)
        del pending[identity]
        self._local_count += 1
        if self.decide_from == "released":
            return
        if plain is None:
            growth = learn_one(self._learner.memory, made.chosen(), value)
        else:  # one call instead of two: half the time of a reward is that of calling compiled code
            growth = plain.add_and_learn(
                self._learner.memory, made._values, made._arms + self.dimension, value
            )
        self._updates += 1
        if growth >= 0.0:
            self._growth += growth
        if self._updates >= self._updates_due or growth < 0.0:  # V can't shrink: rounding made V⁻¹ indefinite
            self._derive()

    def observe_many(self, decisions: Iterable[Decision | int], rewards: Iterable[float]) -> None:
        """`observe` for several; when one of them is refused, none has been taken."""
        with self._lock:
            identities = [known(decision, self._pending, self._next_id) for decision in decisions]
            values = [as_reward(reward) for reward in rewards]
            same = len(identities) == len(values)
            require(same, "rewards", f"must be as many as the {len(identities)} decisions", len(values))
            if len(set(identities)) != len(identities):
                raise AlreadyObserved("a decision occurs twice among these decisions")
            for identity, value in zip(identities, values, strict=True):
                self._take(identity, value)
            if self._plain is None:
                self._watch.look(len(values))

    def forget(self, decision: Decision | int) -> None:
        """Give up on a reward that will never come."""
        with self._lock:
            del self._pending[known(decision, self._pending, self._next_id)]

    # --- sharing -------------------------------------------------------------------------------------

    def release(self) -> Release:
        """Close the open leaf and give what may leave this agent: its cumulative statistics, privatized.

        What was observed until now is in the release, exactly once; what comes next is in the next one.
        """
        with self._lock:
            release = self.privatizer.release()
            self._latest[self.name] = release
            self._fold_local()
            return release

    def absorb(self, releases: Mapping[str, Release]) -> None:
        """Take the latest releases of other agents (by name); what is older than what is held is ignored.

        A release is cumulative: it replaces its sender's earlier one and is never added to it. Under its own
        name an agent takes its own latest release alone. When one is refused, none has been taken.
        """
        with self._lock:
            mechanism = self.privatizer.mechanism.digest()
            latest = latest_of(
                self._latest, releases, own=self.name, dimension=self.dimension, mechanism=mechanism
            )
            self._share(latest)

    # --- keeping -------------------------------------------------------------------------------------

    def save(self, path: str | PathLike[str]) -> None:
        """Write all that this agent needs to go on, exact to the bit, as JSON; see `federation.state`."""
        with self._lock:
            state.save(self, path)

    @classmethod
    def load(
        cls,
        path: str | PathLike[str],
        *,
        merit: Merit | None = None,
        privatizer: Callable[[dict[str, Any]], Privatizer] | None = None,
    ) -> Self:
        """The agent that `save` wrote: it goes on with the same decisions, bit for bit.

        A merit of your own (`Custom`) is not in the file: give it as `merit`. Nor are keys: a private agent
        needs `privatizer`, which makes its privatizer from the stored state of the old one.
        """
        return state.load(cls, path, merit=merit, privatizer=privatizer)

    # --- inside --------------------------------------------------------------------------------------

    def _room(self, arms: int) -> Array:
        room = self._rooms.get(arms)
        if room is None:
            if len(self._rooms) > 64:  # a caller whose K never repeats must not fill the memory
                self._rooms.clear()
            room = self._rooms[arms] = room_for(arms, self.dimension)
        return room

    def _draw_ahead(self) -> None:  # one call costs as much as all
        self._uniforms = self._generator.random(DRAWN_AHEAD * self._uniforms_each)[::-1].tolist()

    def _normals(self) -> Array:
        """Standard normals (d, 1) for Thompson's draw, from the uniforms after the one that draws the
        action.
        """
        from scipy.special import ndtri

        ahead = self._uniforms[-self._uniforms_each : -1][::-1]
        return np.asarray(ndtri(np.array(ahead)))[:, None]

    def _fold_local(self) -> None:
        """What was fresh is released now; `own+released` keeps it as its own."""
        if self.decide_from == "own+released":
            self._own += self._learner.fresh
        self._learner.fresh[:] = 0.0
        self._released_count += self._local_count
        self._local_count = 0

    def _share(self, latest: dict[str, Release]) -> None:
        """Derive what decisions come from, from the latest releases (Alg. 1 lines 22 and 27)."""
        known = Known(self._learner.noise_variance, self._learner.size_of_parameter())
        if self.decide_from == "own+released":
            others = [latest[name] for name in sorted(latest) if name != self.name]
            pooled = self._pool.beside_own(self._own, self._released_count, others, known)
        else:
            releases = [latest[name] for name in sorted(latest)]
            pooled = self._pool.all_alike(releases, self.dimension, known)
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
            if self.confidence.noise_share > 0:
                spread = noise_spread(self._learner.inverse, pooled.noise_sd, self.confidence.parameter_norm)
                self._learner.set_spread(self.confidence.noise_share * spread)

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
