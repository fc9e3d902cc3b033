"""The agent: decide, observe, release, absorb. What it knows, and how, is `knowledge`."""

from __future__ import annotations

import secrets
import warnings
from collections.abc import Callable, Iterable, Mapping, Sequence
from os import PathLike
from typing import Any, Self

import numpy as np
from numpy.typing import ArrayLike

from fedfairx.arrays import Array
from fedfairx.core.believing import decide_by_posterior, draw_parameter
from fedfairx.core.confidence import Confidence
from fedfairx.core.memory import LARGEST
from fedfairx.core.merit import Merit
from fedfairx.core.optimism.choose import Solver
from fedfairx.core.posterior import Prior
from fedfairx.core.rules import OPTIMISM
from fedfairx.core.single import decide_one, room_for
from fedfairx.errors import AlreadyObserved, InvalidInput, require
from fedfairx.federation import state
from fedfairx.federation.checks import (
    as_contexts,
    as_names,
    as_persons,
    as_reward,
    as_rewards,
    as_sound_contexts,
    check_next_run,
    check_parts,
    latest_of,
    not_finite,
)
from fedfairx.federation.clipping import ClippingWatch
from fedfairx.federation.decision import Decision, known, shown
from fedfairx.federation.describe import line_of_agent, table_of_agent
from fedfairx.federation.knowledge import Knowledge
from fedfairx.federation.scale import LOOKS, ScaleWatch
from fedfairx.privacy import ContinuedPrivatizer, Privatizer, Release, carry_over
from fedfairx.privacy.continued import takes_persons

DRAWN_AHEAD = 64  # uniforms at a time


class Agent(Knowledge):
    """Chooses arms in proportion to their merit, and learns from rewards, alone or with others.

    dimension: d, how many numbers describe an arm.
    rule: where shares come from: "expected-merit", "greedy" (the merit of the expected reward), "thompson"
        (of a drawn parameter), or "optimism" (the paper's).
    merit: what a reward is worth, one of `fedfairx.merit`; steeper ones give the best arms more.
        `Exponential()` by default.
    seed: of the draws; without one they differ from run to run.
    prior: what is believed before the first reward (`Prior`), by every rule but "optimism".
    minimum_share: that every arm gets in any case, in [0, 1).
    confidence: the region that "optimism" chooses from (`Confidence`).
    privatizer: what stands between this agent's records and its messages, as `fedfairx.privacy.private`
        makes it; without one `release` gives exact sums, which are NOT private.
    solver: "fixed-point", "pgd" or a `Solver`, for "optimism".
    shift: what makes private sums definite, in sds of their noise, for "optimism"; docs/privacy.md has it.
    name: what others know its releases by, and must differ from theirs; by default it is random.

    >>> agent = Agent(2, seed=0)
    >>> decision = agent.decide([[1.0, 0.0], [0.0, 1.0]])
    >>> decision.policy.tolist()
    [0.5, 0.5]
    >>> agent.observe(decision, reward=1.0)
    >>> agent.observed, agent.pending
    (1, 0)

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
        solver: str | Solver | None = None,
        shift: float = 4.0,
        name: str | None = None,
    ) -> None:
        check_parts(merit=merit, prior=prior, confidence=confidence, privatizer=privatizer, name=name)
        require(not isinstance(seed, int) or seed >= 0, "seed", "must be >= 0", seed)
        super().__init__(
            dimension,
            rule=rule,
            merit=merit,
            prior=prior,
            minimum_share=minimum_share,
            confidence=confidence,
            privatizer=privatizer,
            solver=solver,
            shift=shift,
        )
        owner: str | None = getattr(self.privatizer, "owner", None)
        fits = name is None or owner in (None, name)
        require(fits, "name", f"must be the one that its noise was made for, {owner!r}", name)
        self.name: str = name or owner or f"agent-{secrets.token_hex(4)}"
        self._generator = np.random.Generator(np.random.PCG64(seed))
        self._uniforms: list[float] = []  # drawn ahead; the last is the next: a refused call takes none
        self._uniforms_each = 1 + self.dimension if rule == "thompson" else 1  # that a decision takes
        self._draw_ahead()
        self._rooms: dict[int, Array] = {}
        self._pending: dict[int, Decision] = {}
        self._next_id = 0
        self._watch = ClippingWatch(self.privatizer)
        expected = self.confidence.parameter_norm if rule == OPTIMISM else 2 * self.prior.sd
        self._scale = ScaleWatch(expected)

    def __repr__(self) -> str:
        return line_of_agent(self)

    def _repr_html_(self) -> str:
        return table_of_agent(self)

    @property
    def pending(self) -> int:
        """Decisions whose reward has not come."""
        return len(self._pending)

    @property
    def observed(self) -> int:
        """Rewards that it has taken, those of `learn` too."""
        return self._released_count + self._local_count

    # --- deciding ------------------------------------------------------------------------------------

    def decide(self, contexts: ArrayLike, *, names: Sequence[str] | None = None) -> Decision:
        """Draw an arm for a (K, d) array of contexts; K may change from call to call.

        With `names`, one for each arm, `decision.name` is that of the drawn one.
        """
        rows = as_contexts(contexts, self.dimension)
        arms, dimension = rows.shape
        called = None if names is None else as_names(names, arms)
        values = np.empty(arms + 2 * dimension)
        with self._lock:
            uniforms, identity = self._uniforms, self._next_id
            action = self._answer(rows, self._learner.memory, values)
            if identity < LOOKS:
                self._scale.look(rows)  # before anything changes, since the warning may be an error
            del uniforms[-self._uniforms_each :]
            if not uniforms:
                self._draw_ahead()
            name = None if called is None else called[action]
            decision = self._pending[identity] = Decision(identity, action, values, arms, name)
            self._next_id = identity + 1
            return decision

    def policy(self, contexts: ArrayLike) -> Array:
        """(K,) the probability of every arm if `decide` were called now; nothing is drawn or changed.

        By Thompson's rule it is the policy of the parameter that the next decision will draw.
        """
        rows = as_contexts(contexts, self.dimension)
        arms, dimension = rows.shape
        values = np.empty(arms + 2 * dimension)
        with self._lock:
            self._answer(rows, self._learner.memory.copy(), values)
        return values[:arms]

    def decide_many(self, contexts: Sequence[ArrayLike] | Array) -> list[Decision]:
        """Independent decisions from one state of knowledge: a (B, K, d) array, or B arrays (K_b, d).

        The same decisions as B calls of `decide`, and none of them if one of the arrays is refused.
        """
        blocks = [as_sound_contexts(block, self.dimension) for block in contexts]
        with self._lock:
            for rows in blocks if self._next_id < LOOKS else ():
                self._scale.look(rows)
            return [self.decide(rows) for rows in blocks]

    # --- observing -----------------------------------------------------------------------------------

    def observe(self, decision: Decision | int, *, reward: float, person: str | int | None = None) -> None:
        """Take the reward of a decision: at once or later, in any order, each once.

        A private agent takes any number, since a refusal would show in the public count: the privatizer clips
        it, and what one can't compute with (NaN, infinity) it learns from as 0. `person` says whose record it
        is, for a privatizer that bounds a person's records (`PersonBound`).
        """
        with self._lock:
            self._take(decision, reward, person)
            if self._plain is None:
                self._watch.look()  # last, since the owner may have made the warning an error

    def _take(self, decision: Decision | int, reward: float, person: str | int | None = None) -> None:
        pending, plain = self._pending, self._plain
        identity = known(decision, pending, self._next_id)
        value = reward if type(reward) is float and abs(reward) <= LARGEST else self._reward(reward)
        made = pending[identity]
        if person is not None:
            takes_persons(self.privatizer).add(made.chosen(), value, identity, person)
        elif plain is None:
            self.privatizer.add(made.chosen(), value, identity)
        del pending[identity]
        self._learn(made, value)

    def observe_many(
        self,
        decisions: Iterable[Decision | int],
        rewards: Iterable[float],
        persons: Iterable[str | int] | None = None,
    ) -> None:
        """`observe` for several; when one of them is refused, none has been taken."""
        with self._lock:
            identities = [known(decision, self._pending, self._next_id) for decision in decisions]
            values = [self._reward(reward) for reward in rewards]
            same = len(identities) == len(values)
            require(same, "rewards", f"must be as many as the {len(identities)} decisions", len(values))
            if len(set(identities)) != len(identities):
                raise AlreadyObserved("a decision occurs twice among these decisions")
            whose = as_persons(persons, len(identities))
            for identity, value, person in zip(identities, values, whose, strict=True):
                self._take(identity, value, person)
            if self._plain is None:
                self._watch.look(len(values))

    def learn(
        self, contexts: ArrayLike, rewards: Iterable[float], *, persons: Iterable[str | int] | None = None
    ) -> None:
        """Start from a log: contexts (n, d) of arms that somebody has shown, and their rewards (n,).

        Each is a record as if this agent had shown the arm: the privatizer bounds it and it will be released.
        When one of them is refused, none has been taken.
        """
        rows = as_sound_contexts(contexts, self.dimension)
        values = as_rewards(rewards, len(rows), clipped=self.private)
        whose = as_persons(persons, len(rows))
        if persons is not None:
            takes_persons(self.privatizer)
        with self._lock:
            if self._next_id < LOOKS:
                self._scale.look(rows)
            for row, value, person in zip(rows, values, whose, strict=True):
                made = self._pending[self._next_id] = shown(self._next_id, row)
                try:
                    self._take(made, value, person)
                finally:  # where it is refused, no decision of ours must seem to wait
                    self._pending.pop(made.id, None)
                self._next_id += 1
            if self._plain is None:
                self._watch.look(len(rows))

    def forget(self, decision: Decision | int) -> None:
        """Give up on a reward that will never come."""
        with self._lock:
            del self._pending[known(decision, self._pending, self._next_id)]

    # --- sharing -------------------------------------------------------------------------------------

    @property
    def released(self) -> int:
        """The number of its own latest release; 0 before the first."""
        own = self._latest.get(self.name)
        return 0 if own is None else own.number

    def release(self, number: int | None = None) -> Release:
        """Close the open leaf and give what may leave this agent: its cumulative statistics, privatized.

        What was observed until now is in the release, exactly once; what comes next is in the next one. After
        a release that was interrupted the next call gives that one, which lacks what came since. A past
        `number` is given again, and costs nothing.
        """
        with self._lock:
            self._mark_local()
            release = self.privatizer.release(number)
            if release.number > self.released:
                self._latest[self.name] = release
                self._fold_local()
            return release

    def begin_run(self, privatizer: Privatizer) -> None:
        """Go on under a new budget when the old one is spent; all that was learnt and shared stays.

        Records since the last release go into the first of the new run, if it clips as the old one did. If
        not, or where a person's records are bounded (`PersonBound`), the old run makes a last release of
        them; if it has none left, they get into no message, and a warning says how many.
        """
        with self._lock:
            if not self.private:
                raise InvalidInput("privatizer must be left out: this agent is not private and has no budget")
            old = self.privatizer
            check_next_run(privatizer, before=old.guarantee, dimension=self.dimension, name=self.name)
            left = int(getattr(old, "waiting", 0))
            if not carry_over(old, privatizer) and left:
                if old.guarantee.remaining > 0:
                    self.release()
                else:
                    warnings.warn(
                        f"{left} records since the last release get into no message: the old run has no "
                        "release left for them, and the new one clips otherwise or counts persons anew",
                        stacklevel=2,
                    )
            # If nothing was sent yet, there is nothing to go on from.
            sent = old.guarantee.spent > 0
            self.privatizer = ContinuedPrivatizer(privatizer, before=old) if sent else privatizer
            self._pool = self._new_pool()
            self._watch = ClippingWatch(self.privatizer)

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

        Only the noise of a private agent's releases to come is new, so that two lives of one file never share
        it.

        A merit of your own (`Custom`) is not in the file: give it as `merit`. Nor are keys: a private agent
        needs `privatizer`, which makes its privatizer from the stored state of the old one.
        """
        return state.load(cls, path, merit=merit, privatizer=privatizer)

    # --- inside --------------------------------------------------------------------------------------

    def _answer(self, rows: Array, memory: Array, values: Array) -> int:
        """The action for the next uniforms, which stay; `values` gets what a `Decision` holds."""
        arms, dimension = rows.shape
        uniform = self._uniforms[-1]
        if self.rule == OPTIMISM:
            action: int = decide_one(rows, memory, self._room(arms), values, uniform)
        else:
            if self._uniforms_each > 1:
                draw_parameter(memory, self._normals(), np.empty(dimension * dimension + 1))
            action = decide_by_posterior(rows, memory, values, uniform, self._learner.quadrature)
        if action < 0:
            raise not_finite(rows)
        return action

    def _room(self, arms: int) -> Array:
        room = self._rooms.get(arms)
        if room is None:
            if len(self._rooms) > 64:  # a caller whose K never repeats must not fill the memory
                self._rooms.clear()
            room = self._rooms[arms] = room_for(arms, self.dimension)
        return room

    def _reward(self, reward: float) -> float:
        return as_reward(reward, clipped=self.private)

    def _draw_ahead(self) -> None:  # one call costs as much as all
        self._uniforms = self._generator.random(DRAWN_AHEAD * self._uniforms_each)[::-1].tolist()

    def _normals(self) -> Array:
        """Standard normals (d, 1) for Thompson's draw, from the uniforms after the one that draws the
        action.
        """
        from scipy.special import ndtri

        ahead = self._uniforms[-self._uniforms_each : -1][::-1]
        return np.asarray(ndtri(np.array(ahead)))[:, None]
