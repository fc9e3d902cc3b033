"""What changes in an agent, and the only way it changes: `Core.apply` takes a step, now or from a log.

There is no lock, no clock and no I/O here. `check` refuses a step and changes nothing; `apply` takes a step
that was checked, all of it or, where messages of others don't make a positive definite V, nothing: whether
they do is seen only once they are added up. Both read a private agent's ledger, which is written before the
step that needs it.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable
from typing import Any

from fedfairx import steps
from fedfairx.agent.exchange import Base, Exchange
from fedfairx.agent.model import AgentModel
from fedfairx.agent.settings import stored_schema
from fedfairx.agent.state import (
    MOST,
    AgentState,
    Ages,
    ClosedEpochs,
    JudgedPartner,
    LearnerState,
    as_numbers,
    as_release,
)
from fedfairx.agent.uniforms import Uniforms
from fedfairx.core.marginal_likelihood import Sizes, next_refit
from fedfairx.core.partners import LEVELS
from fedfairx.core.slates import ONE
from fedfairx.core.statistics import packed_size
from fedfairx.decision import DELETED, Decision
from fedfairx.errors import AlreadyObserved, InvalidInput, StateError, require
from fedfairx.privacy import Privatizer
from fedfairx.steps import Step

SIZES = ("count", "ridge", "growth", "noise_variance", "squares", "observed", "updates")  # never negative


class Core:
    """The parts of an agent that change; an `AgentState` is their value."""

    def __init__(self, model: AgentModel, exchange: Exchange, draws: Uniforms) -> None:
        self.model = model
        self.exchange = exchange
        self.draws = draws
        self.runs: Callable[[int], Privatizer]  # by number: of the agent's log
        self.pending: dict[int, Decision] = {}  # by number, in order

    # --- steps ---------------------------------------------------------------------------------------

    def check(self, step: Step) -> None:
        """Refuse a step that this agent can't take; nothing has changed."""
        check = _CHECKS.get(type(step))
        if check is not None:
            check(self, step)

    def apply(self, step: Step) -> None:
        """Take a step that was checked, or that was taken before and is replayed."""
        _CHANGES[type(step)](self, step)

    def apply_undone(self, step: Step) -> None:
        """Take what is left of a step that a rollback has undone: nothing is learnt from it."""
        if isinstance(step, _KEPT):
            self.apply(step)
        elif isinstance(step, steps.Ended):
            rewards, number = step.rewards, step.decision
            if rewards and self.pending[number].end(rewards, step.status):
                del self.pending[number]
        elif isinstance(step, steps.Released) and self.model.sums is not None:
            self.model.sums.spent = step.number  # a number is not used twice

    def decided(self, decision: Decision) -> bool:
        """A decision was drawn, and waits; whether names must be forgotten now."""
        self.pending[decision.number] = decision
        self.draws.advance()
        return decision.shown_names is not None and self.model.show(decision)

    def _check_ended(self, step: steps.Ended) -> None:
        decision = self.pending[step.decision]
        for slot in step.rewards if decision.outcomes else ():
            if slot in decision.outcomes:
                action = decision.shown[slot]
                raise AlreadyObserved(f"decision {decision.id} has an outcome for action {action} already")

    def ended(self, step: steps.Ended) -> None:
        """Slots of a decision got their outcomes. A privatizer with noise has got the records already."""
        number, rewards = step.decision, step.rewards
        if not rewards:  # the sum of what has come
            return
        decision = self.pending[number]
        one, model = decision.weights is ONE, self.model
        if one or not model.learn_together(decision, rewards):
            for slot, reward in rewards.items():
                if reward is not None:
                    if model.learn(decision, slot, reward):
                        self.exchange.judge_again()
                elif step.status == DELETED and model.sums is None:
                    model.count_blank()  # its messages count a blank record in its place
        if one or decision.end(rewards, step.status):
            del self.pending[number]

    def _learnt(self, step: steps.Learnt) -> None:
        count = len(step.rows)
        weights = [1.0] * count if step.weights is None else step.weights.tolist()
        names: list[Any] = [None] * count if step.names is None else [[name] for name in step.names]
        for row, weight, name, reward in zip(step.rows, weights, names, step.rewards, strict=True):
            shown = Decision(0, [0], row, 0, (weight,), name)  # as of a decision that was made elsewhere
            self.model.show(shown)
            if self.model.learn(shown, 0, reward):
                self.exchange.judge_again()

    def _check_actions(self, step: steps.ActionsChanged) -> None:
        actions = self.model.actions
        if actions is None:
            raise InvalidInput(
                "actions must be named when the agent is made: its actions come with decisions"
            )
        actions.changed(step.how, step.names)

    def _actions_changed(self, step: steps.ActionsChanged) -> None:
        self.model.change_actions(step.how, step.names)
        self._resize_draws()

    def _names_forgotten(self, step: steps.NamesForgotten) -> None:
        self.model.forget_names(step.names)

    def _check_schema(self, step: steps.SchemaExtended) -> None:
        model, prior = self.model, self.model.options.prior
        if model.schema is None:
            raise InvalidInput("schema must have been given when the agent was made; create another agent")
        model.schema.extend(step.schema)
        one = prior is None or not isinstance(prior.mean, tuple)
        text = "must be the one that it has: its prior has a mean for each of its columns"
        require(one, "schema", text, str(step.schema), "create another agent")

    def _schema_extended(self, step: steps.SchemaExtended) -> None:
        self.model.extend_schema(step.schema)
        for decision in self.pending.values():
            decision.grow(step.schema.width)
        self._resize_draws()

    def _resize_draws(self) -> None:
        if self.draws.each != self.model.uniforms_each:
            self.draws.resize(self.model.uniforms_each)

    def _aged(self, _step: steps.Aged) -> None:
        self.model.age()

    def _released(self, step: steps.Released) -> None:
        self.exchange.hold_own(step.number, step.release, step.records)

    def _absorbed(self, step: steps.Absorbed) -> None:
        self.exchange.absorb(step.releases)

    def _peers_dropped(self, step: steps.PeersDropped) -> None:
        self.exchange.drop(step.names)

    def _total_added(self, step: steps.TotalAdded) -> None:
        self.exchange.add_total(step.total, step.members)

    def _run_begun(self, step: steps.RunBegun) -> None:
        self.exchange.begin_run(self.runs(step.run))

    def _epoch_begun(self, step: steps.EpochBegun) -> None:
        self.exchange.begin_epoch(self.runs(step.run), step.run)

    # --- its value -----------------------------------------------------------------------------------

    def state(self) -> AgentState:
        """The value of all parts."""
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
            judged=[
                JudgedPartner(name, weights.tolist(), exchange.trust[name], exchange.powers[name])
                for name, weights in exchange.weights.items()
            ],
            latest={name: release.to_bytes().hex() for name, release in exchange.latest.items()},
            random=self.draws.position,
            pending=list(self.pending),
            privatizer=None if model.sums is None else model.sums.state(),
            aged=None
            if model.aging is None
            else Ages(model.aging.at, model.refit_at, dict(exchange.arrived)),
            features=None if model.schema is None else model.schema.to_dict(),
            base=None
            if exchange.base is None
            else ClosedEpochs(
                exchange.base.release.to_bytes().hex(), exchange.base.noise_sd, exchange.base.run
            ),
            records=None if model.records is None else model.records.state(),
            others=None if model.others is None else model.others.tolist(),
        )

    def restore(self, state: AgentState, privatizer: Privatizer, pending: Iterable[Decision]) -> None:
        """Put a state in place, with the privatizer and the pending decisions that belong to it."""
        self.exchange.set_privatizer(privatizer)
        self._restore(state)
        self.pending.clear()
        for decision in pending:
            if self.model.schema is not None:
                decision.grow(self.model.dimension)  # those from before a later version are shorter
            self.pending[decision.number] = decision

    def _restore(self, state: AgentState) -> None:
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
        learner.statistics[:] = as_numbers(stored.statistics, size, "learner.statistics")
        learner.fresh[:] = as_numbers(stored.fresh, size, "learner.fresh")
        inverse = as_numbers(stored.inverse, dimension**2, "learner.inverse")
        learner.inverse[:] = inverse.reshape(dimension, dimension)
        learner.set_count(stored.count)
        sizes = Sizes(stored.noise_variance, stored.ridge, stored.mean)
        learner.restore(sizes, stored.squares, stored.observed)
        if (state.records is None) != (model.records is None):
            raise StateError("records must be there if names have own records, and only then")
        if model.records is not None and state.records is not None:
            model.records.restore(state.records, dimension)
        model.others = None if state.others is None else as_numbers(state.others, size, "others")
        model.updates = stored.updates
        model.growth = stored.growth
        model.own[:] = as_numbers(state.own, size, "own")
        model.look_at_rewards()  # what it would warn of, it warns of again
        model.limits.set_largest(stored.largest_reward)
        model.released_count = state.released_count
        model.local_count = state.local_count
        model.refit_at = next_refit(model.observed)
        model.marks = {}
        exchange.weights = {
            each.name: as_numbers(each.weights, LEVELS, "judged.weights") for each in state.judged
        }
        exchange.trust = {each.name: each.trust for each in state.judged}
        exchange.powers = {each.name: each.power for each in state.judged}
        exchange.latest = {name: as_release(text) for name, text in state.latest.items()}
        base = state.base
        exchange.set_base(None if base is None else Base(as_release(base.release), base.noise_sd, base.run))
        self._restore_ages(state.aged)
        self.draws.restore(state.random, model.uniforms_each)

    def _restore_ages(self, aged: Ages | None) -> None:
        model, exchange = self.model, self.exchange
        if (aged is None) != (model.aging is None):
            raise StateError("aged must be there if there is a half-life, and only then")
        if aged is not None and model.aging is not None:
            complete = aged.arrived.keys() == exchange.latest.keys()
            if not (complete and all(0 <= since <= aged.at <= MOST for since in (0, *aged.arrived.values()))):
                raise StateError("aged.arrived must be of all releases held, from 0 to aged.at")
            model.aging.at, model.refit_at, exchange.arrived = aged.at, aged.refit_at, dict(aged.arrived)


def _nothing(_core: Core, _step: Any) -> None:
    """The step changes how earlier ones are read, and no agent by itself."""


#: What each step changes.
_CHANGES: dict[type, Callable[[Core, Any], object]] = {
    steps.Decided: lambda core, step: core.decided(step.decision),
    steps.Ended: Core.ended,
    steps.Replaced: _nothing,
    steps.Learnt: Core._learnt,
    steps.Aged: Core._aged,
    steps.Released: Core._released,
    steps.Absorbed: Core._absorbed,
    steps.PeersDropped: Core._peers_dropped,
    steps.TotalAdded: Core._total_added,
    steps.RunBegun: Core._run_begun,
    steps.EpochBegun: Core._epoch_begun,
    steps.ActionsChanged: Core._actions_changed,
    steps.NamesForgotten: Core._names_forgotten,
    steps.SchemaExtended: Core._schema_extended,
    steps.Dropped: _nothing,
    steps.Deleted: _nothing,
    steps.RolledBack: _nothing,
}
#: What is refused beforehand. The other steps are made by the agent itself, or refused as they are taken,
#: before anything has changed.
_CHECKS: dict[type, Callable[[Core, Any], None]] = {
    steps.Ended: Core._check_ended,
    steps.ActionsChanged: Core._check_actions,
    steps.SchemaExtended: Core._check_schema,
}
#: Steps that stay although a rollback has undone them.
_KEPT = (steps.Decided, steps.ActionsChanged, steps.NamesForgotten, steps.PeersDropped)
