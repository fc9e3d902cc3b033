"""What an agent knows, as one value: `AgentState`. Files and snapshots hold it as JSON.

Python writes a float so that reading gives the same bits back. An agent that is restored goes on with the
same decisions, bit for bit: the state holds the sums, V⁻¹ as the rank-one updates left it, the generator's
position, the decisions that wait for a reward, and the releases. Only the noise of releases to come, and the
prefix of ids to come, are drawn afresh: a file can be loaded twice.

A state is as secret as the data: it holds exact sums and the contexts of waiting decisions. Keys and a user's
own function are never in it.
"""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass
from typing import Any

import numpy as np

from fedfairx.agent.decision import Decision, shown
from fedfairx.agent.draws import Draws
from fedfairx.agent.exchange import Exchange
from fedfairx.agent.model import Model
from fedfairx.core.marginal_likelihood import next_refit
from fedfairx.core.partners import LEVELS
from fedfairx.core.statistics import packed_size
from fedfairx.errors import InvalidInput, MessageRefused, StateError
from fedfairx.privacy import Release
from fedfairx.util.arrays import Array

MOST = 2**53  # of a count: above it a JSON number is not exact everywhere


@dataclass(frozen=True)
class LearnerState:
    """The statistics that decisions come from, packed, and V⁻¹."""

    statistics: list[float]
    fresh: list[float]
    inverse: list[float]
    count: float
    ridge: float
    largest_reward: float
    noise_variance: float
    squares: float
    observed: int
    updates: int
    growth: float


@dataclass(frozen=True)
class Mark:
    """Sums of the first `count` records that are in no release yet."""

    count: int
    sums: list[float]


@dataclass(frozen=True)
class JudgedPartner:
    """How far a partner who may differ is believed."""

    name: str
    weights: list[float]
    power: float


@dataclass(frozen=True)
class Position:
    """Of the generator; two numbers of 128 bits, more than a JSON number may have elsewhere."""

    generator: str
    state: str
    increment: str


@dataclass(frozen=True)
class Waiting:
    """A decision that waits for its reward. `values` are policy, θ and chosen context."""

    number: int
    origin: str
    action: int
    drawn: int
    arms: int
    time: int
    values: list[float]
    name: str | None = None
    dimension: int | None = None  # then, if actions have been added since
    propensity: float | None = None  # where it is not the policy's share of the action


@dataclass(frozen=True)
class AgentState:
    """All that an agent has learnt and holds, exact to the bit; two agents of equal state decide alike.

    `pending` are whole decisions, or, in a snapshot, the numbers of decisions that the log has.
    `privatizer` is the state of the privatizer, or None where it is in the database itself.
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


@dataclass
class Parts:
    """The parts of an agent that change: what an `AgentState` is the value of."""

    model: Model
    exchange: Exchange
    draws: Draws
    pending: dict[int, Decision]  # by number, in order

    def learn(self, made: Decision, value: float) -> None:
        """Take in the reward of a decision, which the privatizer has unless its sums are exact."""
        if self.model.learn(made, value):
            self.exchange.judge_again()

    def change_actions(self, how: str, names: Sequence[str]) -> None:
        """Add or retire actions without features."""
        self.model.change_actions(how, names)
        if self.draws.each != self.model.uniforms_each:
            self.draws.resize(self.model.uniforms_each)

    def shown(self, number: int, row: Any, origin: str = "") -> Decision:
        """A decision that somebody else made: a context, or the coordinate of an action."""
        actions = self.model.actions
        if actions is None:
            return shown(number, row, origin)
        context = np.zeros(self.model.dimension)
        context[int(row)] = 1.0
        return shown(number, context, origin, actions.names[int(row)])

    def state(self, *, whole: bool = True) -> AgentState:
        """The value of all of it; without what a database has anyway, unless it is to be the `whole`.

        Marks are for releases that were interrupted, and in a database each is one transaction.
        """
        model, exchange = self.model, self.exchange
        learner, actions = model.learner, model.actions
        position, increment = self.draws.position
        return AgentState(
            learner=LearnerState(
                statistics=learner.statistics.tolist(),
                fresh=learner.fresh.tolist(),
                inverse=learner.inverse.ravel().tolist(),
                count=learner.count,
                ridge=learner.ridge,
                largest_reward=model.limits.high,
                noise_variance=learner.noise_variance,
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
                JudgedPartner(name, weights.tolist(), exchange.powers[name])
                for name, weights in exchange.weights.items()
            ],
            latest={name: release.to_bytes().hex() for name, release in exchange.latest.items()},
            random=Position("PCG64", hex(position), hex(increment)),
            pending=[
                _waiting(made, model.dimension) if whole else number for number, made in self.pending.items()
            ],
            privatizer=exchange.privatizer.state() if whole or model.sums is not None else None,
        )

    def restore(self, state: AgentState) -> None:
        """Put a state there; but for `pending` and `privatizer`, which the caller has."""
        model, exchange, learnt = self.model, self.exchange, state.learner
        counts = {"released_count": state.released_count, "local_count": state.local_count}
        counts |= {"learner.observed": learnt.observed, "learner.updates": learnt.updates}
        sizes = {
            "learner.count": learnt.count,
            "learner.ridge": learnt.ridge,
            "learner.growth": learnt.growth,
        }
        sizes |= {"learner.noise_variance": learnt.noise_variance, "learner.squares": learnt.squares}
        for name, value in {**counts, **sizes}.items():
            if value < 0 or (name in counts and value > MOST):
                raise StateError(f"{name} must be >= 0, and a count at most {MOST}")
        if state.actions is not None:  # there may have been fewer, or more, than the agent has now
            try:
                model.begin_actions(state.actions, state.retired or [])
            except InvalidInput as error:
                raise StateError(f"actions can't be restored: {error}") from None
        size, dimension, learner = packed_size(model.dimension), model.dimension, model.learner
        stored = state.learner
        learner.statistics[:] = _numbers(stored.statistics, size, "learner.statistics")
        learner.fresh[:] = _numbers(stored.fresh, size, "learner.fresh")
        inverse = _numbers(stored.inverse, dimension**2, "learner.inverse")
        learner.inverse[:] = inverse.reshape(dimension, dimension)
        learner.set_count(stored.count)
        learner.restore(
            ridge=stored.ridge,
            variance=stored.noise_variance,
            squares=stored.squares,
            observed=stored.observed,
        )
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
        exchange.powers = {each.name: each.power for each in state.judged}
        exchange.latest = {name: _release(text) for name, text in state.latest.items()}
        self.draws.restore(_position(state.random), model.uniforms_each)


def _waiting(made: Decision, dimension: int) -> Waiting:
    size = made.context.size
    return Waiting(
        number=made.number,
        origin=made.origin,
        action=int(made.action),
        drawn=int(made.drawn),
        arms=made._arms,
        time=made.time,
        values=made._values.tolist(),
        name=made.name,
        dimension=None if size == dimension else size,
        propensity=made._propensity,
    )


def waiting_decision(stored: Waiting, dimension: int, following: int) -> Decision:
    """The decision, of a number below `following`; `dimension` is the agent's now."""
    then, arms = stored.dimension or dimension, stored.arms
    fits = 1 <= then <= dimension and arms >= 1 and 0 <= stored.number < following
    if not (fits and 0 <= stored.action < arms and 0 <= stored.drawn < arms):
        raise StateError("pending holds a decision that this agent can't have made")
    values = _numbers(stored.values, arms + 2 * then, "pending.values")
    named = stored.name, stored.origin, stored.time, stored.propensity
    made = Decision(stored.number, stored.action, values, arms, *named)
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
        kind = str(error) if isinstance(error, MessageRefused) else "hexadecimal digits are wanted"
        raise StateError(f"latest holds something else than releases: {kind}") from None


def _position(stored: Position) -> tuple[int, int]:
    if stored.generator != "PCG64":
        raise StateError("random.generator must be PCG64")
    try:
        return int(stored.state, 16), int(stored.increment, 16)
    except ValueError:
        raise StateError("random must be hexadecimal numbers") from None
