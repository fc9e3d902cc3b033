"""What an agent knows, as one value: `AgentState`. Files and snapshots hold it as JSON.

Python writes a float so that reading it gives the same bits. A restored agent continues with the same
decisions, bit for bit: the state holds the sums, V⁻¹ as the rank-one updates left it, the generator's
position, the pending decisions, and the releases. Only the noise of future releases and the prefix of future
ids are drawn again, because a file can be loaded twice.

A state is as secret as the data: it holds exact sums and the contexts of pending decisions. It never holds
keys or a user's own function.
"""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedfairx.agent.actions import unit_vectors
from fedfairx.agent.decision import Decision, shown
from fedfairx.agent.draws import Draws, Position
from fedfairx.agent.exchange import Base, Exchange
from fedfairx.agent.model import Model
from fedfairx.agent.settings import stored_schema
from fedfairx.agent.slots import Slate
from fedfairx.core.marginal_likelihood import Sizes, next_refit
from fedfairx.core.partners import LEVELS
from fedfairx.core.statistics import packed_size
from fedfairx.errors import InvalidInput, MessageRefused, StateError
from fedfairx.features import Schema
from fedfairx.privacy import Release
from fedfairx.util.arrays import Array

SIZES = ("count", "ridge", "growth", "noise_variance", "squares", "observed", "updates")  # never negative
MOST = 2**53  # the largest count: above it not every reader of JSON is exact


@dataclass(frozen=True)
class LearnerState:
    """The packed statistics that decisions come from, and V⁻¹."""

    statistics: list[float]
    fresh: list[float]
    inverse: list[float]
    count: float
    ridge: float
    largest_reward: float
    noise_variance: float
    mean: float
    squares: float
    observed: int | float
    updates: int
    growth: float


@dataclass(frozen=True)
class Mark:
    """Sums of the first `count` records that are in no release yet."""

    count: int
    sums: list[float]


@dataclass(frozen=True)
class JudgedPartner:
    """How far a partner that may differ is believed."""

    name: str
    weights: list[float]
    trust: float
    power: float


@dataclass(frozen=True)
class Aged:
    """What there is to know beside decayed sums: see `half_life.Aging` and `Exchange.arrived`."""

    at: int
    refit_at: int
    arrived: dict[str, int]


@dataclass(frozen=True)
class ClosedEpochs:
    """What is known from closed epochs: see `exchange.Base`."""

    release: str
    noise_sd: float
    run: int


@dataclass(frozen=True)
class WaitingSlate:
    """The slots of a pending decision."""

    weights: list[float]
    shown: list[int]
    names: list[str] | None
    waiting: list[int]
    total: float | None
    status: str = "withdrawn"
    drawn: list[int] | None = None  # if a baseline is shown instead


@dataclass(frozen=True)
class Waiting:
    """A pending decision. `values` are policy, θ and chosen context."""

    number: int
    origin: str
    action: int
    drawn: int
    arms: int
    time: int
    values: list[float]
    name: str | None = None
    dimension: int | None = None  # when it was made, if actions have been added since
    propensity: float | None = None  # if it is not the policy's share of the action
    slate: WaitingSlate | None = None  # if there are several slots


@dataclass(frozen=True)
class AgentState:
    """Everything that an agent has learnt and holds, exact to the bit; agents of equal state decide alike.

    pending: decisions, or, in a snapshot, the numbers of decisions in the log.
    privatizer: the state of the privatizer, or None if it is in the database itself.
    """

    learner: LearnerState
    actions: list[str] | None
    retired: list[str] | None
    own: list[float]
    released_count: int
    local_count: int
    marks: list[Mark]
    judged: list[JudgedPartner]
    latest: dict[str, str]
    random: Position
    pending: list[Waiting | int]
    privatizer: dict[str, Any] | None
    aged: Aged | None = None  # if there is a half-life
    features: dict[str, Any] | None = None  # `Schema.to_dict`, if there is a schema
    base: ClosedEpochs | None = None  # with secure aggregation, after the first epoch


@dataclass
class Parts:
    """The parts of an agent that change; an `AgentState` is their value."""

    model: Model
    exchange: Exchange
    draws: Draws
    pending: dict[int, Decision]  # by number, in order

    def learn(self, made: Decision, value: float, slot: int = 0) -> None:
        """Learn the reward of a slot. A privatizer with noise must have got the record already."""
        if self.model.learn(made, value, slot):
            self.exchange.judge_again()

    def change_actions(self, how: str, names: Sequence[str]) -> None:
        """Add or retire actions without features."""
        self.model.change_actions(how, names)
        self._resize_draws()

    def extend_schema(self, schema: Schema) -> None:
        """Take a later version of the schema."""
        self.model.extend_schema(schema)
        for made in self.pending.values():
            made.grow(schema.width)
        self._resize_draws()

    def _resize_draws(self) -> None:
        if self.draws.each != self.model.uniforms_each:
            self.draws.resize(self.model.uniforms_each)

    def shown(self, number: int, row: Any, origin: str = "", weight: float = 1.0) -> Decision:
        """A decision that was made elsewhere, for a context or the coordinate of an action."""
        actions = self.model.actions
        if actions is None:
            return shown(number, row, origin, weight=weight)
        context = unit_vectors(np.array([int(row)]), self.model.dimension)[0]
        return shown(number, context, origin, actions.names[int(row)], weight)

    def state(self, *, whole: bool = True) -> AgentState:
        """The value of all parts; unless `whole`, without what a database holds anyway.

        That includes marks: they are for interrupted releases, and in a database a release is a transaction.
        """
        model, exchange = self.model, self.exchange
        learner, actions = model.learner, model.actions
        return AgentState(
            learner=LearnerState(
                statistics=learner.statistics.tolist(),
                fresh=learner.fresh.tolist(),
                inverse=learner.inverse.ravel().tolist(),
                count=learner.count,
                ridge=learner.ridge,
                largest_reward=model.limits.high,
                noise_variance=learner.noise_variance,
                mean=learner.sizes.mean,
                squares=learner.squares,
                observed=learner.observed,
                updates=model.updates,
                growth=float(model.growth),
            ),
            actions=None if actions is None else list(actions.names),
            retired=None if actions is None else list(actions.retired),
            own=model.own.tolist(),
            released_count=model.released_count,
            local_count=model.local_count,
            marks=[Mark(count, mark.tolist()) for count, mark in model.marks.items() if whole],
            judged=[
                JudgedPartner(name, weights.tolist(), exchange.trust[name], exchange.powers[name])
                for name, weights in exchange.weights.items()
            ],
            latest={name: release.to_bytes().hex() for name, release in exchange.latest.items()},
            random=self.draws.position,
            pending=[
                _waiting(made, model.dimension) if whole else number for number, made in self.pending.items()
            ],
            privatizer=exchange.privatizer.state() if whole or model.sums is not None else None,
            aged=None
            if model.aging is None
            else Aged(model.aging.at, model.refit_at, dict(exchange.arrived)),
            features=None if model.schema is None else model.schema.to_dict(),
            base=None
            if exchange.base is None
            else ClosedEpochs(
                exchange.base.release.to_bytes().hex(), exchange.base.noise_sd, exchange.base.run
            ),
        )

    def restore(self, state: AgentState) -> None:
        """Put a state in place, except `pending` and `privatizer`, which the caller restores."""
        model, exchange, stored = self.model, self.exchange, state.learner
        numbers = {f"learner.{name}": getattr(stored, name) for name in SIZES}
        numbers |= {"released_count": state.released_count, "local_count": state.local_count}
        for name, value in numbers.items():
            if value < 0 or (isinstance(value, int) and value > MOST):
                raise StateError(f"{name} must be >= 0, and a count at most {MOST}")
        if state.actions is not None:  # there may have been fewer, or more, than the agent has now
            try:
                model.begin_actions(state.actions, state.retired or [])
            except InvalidInput as error:
                raise StateError(f"actions can't be restored: {error}") from None
        if state.features is not None:  # it may have had fewer columns than now
            model.begin_schema(stored_schema(state.features))
        size, dimension, learner = packed_size(model.dimension), model.dimension, model.learner
        learner.statistics[:] = _numbers(stored.statistics, size, "learner.statistics")
        learner.fresh[:] = _numbers(stored.fresh, size, "learner.fresh")
        inverse = _numbers(stored.inverse, dimension**2, "learner.inverse")
        learner.inverse[:] = inverse.reshape(dimension, dimension)
        learner.set_count(stored.count)
        sizes = Sizes(stored.noise_variance, stored.ridge, stored.mean)
        learner.restore(sizes, stored.squares, stored.observed)
        model.limits.set_largest(stored.largest_reward)
        model.updates = stored.updates
        model.growth = stored.growth
        model.own[:] = _numbers(state.own, size, "own")
        model.released_count = state.released_count
        model.local_count = state.local_count
        model.refit_at = next_refit(model.observed)
        model.marks = {mark.count: _numbers(mark.sums, size, "marks") for mark in state.marks}
        exchange.weights = {
            each.name: _numbers(each.weights, LEVELS, "judged.weights") for each in state.judged
        }
        exchange.trust = {each.name: each.trust for each in state.judged}
        exchange.powers = {each.name: each.power for each in state.judged}
        exchange.latest = {name: _release(text) for name, text in state.latest.items()}
        base = state.base
        exchange.set_base(None if base is None else Base(_release(base.release), base.noise_sd, base.run))
        self._restore_ages(state.aged)
        self.draws.restore(state.random, model.uniforms_each)

    def _restore_ages(self, aged: Aged | None) -> None:
        model, exchange = self.model, self.exchange
        if (aged is None) != (model.aging is None):
            raise StateError("aged must be there if there is a half-life, and only then")
        if aged is not None and model.aging is not None:
            held = aged.arrived.keys() == exchange.latest.keys()
            if not (held and all(0 <= since <= aged.at <= MOST for since in (0, *aged.arrived.values()))):
                raise StateError("aged.arrived must be of all releases held, from 0 to aged.at")
            model.aging.at, model.refit_at, exchange.arrived = aged.at, aged.refit_at, dict(aged.arrived)


def _waiting(made: Decision, dimension: int) -> Waiting:
    size = made.context.size
    return Waiting(
        number=made.number,
        origin=made.origin,
        action=int(made._action),
        drawn=int(made.drawn),
        arms=made._arms,
        time=made.time,
        values=made._values.tolist(),
        name=made.name,
        dimension=None if size == dimension else size,
        propensity=made._propensity,
        slate=None if made.slate is None else _waiting_slate(made.slate),
    )


def _waiting_slate(slate: Slate) -> WaitingSlate:
    waiting = sorted(slate.waiting)
    total = slate.total if slate.total is not None and math.isfinite(slate.total) else None
    drawn = None if slate.drawn is slate.shown else slate.drawn
    return WaitingSlate(list(slate.weights), slate.shown, slate.names, waiting, total, slate.status, drawn)


def _slate(stored: WaitingSlate, arms: int) -> Slate:
    slots = len(stored.shown)
    fits = 1 <= slots <= arms and len(set(stored.shown)) == slots and bool(stored.waiting)
    fits = fits and set(stored.shown) <= set(range(arms)) and set(stored.waiting) <= set(range(slots))
    drawn = stored.drawn or stored.shown
    fits = fits and len(drawn) == len(set(drawn)) == slots and set(drawn) <= set(range(arms))
    named = stored.names is None or len(stored.names) == slots
    if not (fits and named and len(stored.weights) == slots):
        raise StateError("pending holds a decision whose slots can't be")
    names = None if stored.names is None else list(stored.names)
    shown, waiting = list(stored.shown), stored.waiting
    return Slate(
        tuple(stored.weights), shown, names, waiting, stored.total, stored.status, drawn=stored.drawn
    )


def waiting_decision(stored: Waiting, dimension: int, following: int) -> Decision:
    """The decision, whose number must be below `following`; `dimension` is that of the agent now."""
    then, arms = stored.dimension or dimension, stored.arms
    fits = 1 <= then <= dimension and arms >= 1 and 0 <= stored.number < following
    if not (fits and 0 <= stored.action < arms and 0 <= stored.drawn < arms):
        raise StateError("pending holds a decision that this agent can't have made")
    slate = None if stored.slate is None else _slate(stored.slate, arms)
    size = arms + then * (2 if slate is None else 1 + len(slate.shown))
    values = _numbers(stored.values, size, "pending.values")
    named = stored.name, stored.origin, stored.time, stored.propensity
    made = Decision(stored.number, stored.action, values, arms, *named, slate)
    made.drawn = stored.drawn
    return made


def _numbers(values: list[float], size: int, name: str) -> Array:
    if len(values) != size:
        raise StateError(f"{name} must be {size} finite numbers, got a list of {len(values)}")
    return np.array(values, dtype=np.float64)


def _release(text: str) -> Release:
    try:
        return Release.from_bytes(bytes.fromhex(text))
    except (ValueError, MessageRefused) as error:
        kind = str(error) if isinstance(error, MessageRefused) else "not hexadecimal"
        raise StateError(f"latest must hold releases: {kind}") from None
