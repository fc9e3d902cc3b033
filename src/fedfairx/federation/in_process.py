"""A federation inside one process: all agents in lock step, as in the paper."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Any, Unpack

import numpy as np

from fedfairx.agent.actions import as_arms
from fedfairx.agent.agent import Agent
from fedfairx.agent.exchange import TOTAL, privacy_in_short
from fedfairx.agent.options import Keywords, Options, bounds_of
from fedfairx.agent.schedules import Plan, timetable
from fedfairx.core.merit import Merit
from fedfairx.errors import require
from fedfairx.features import Schema
from fedfairx.federation.exchange.envelope import PlainCodec
from fedfairx.federation.exchange.member import Member
from fedfairx.federation.transport import MemoryTransport
from fedfairx.privacy import Guarantee, KeyedNoise, Privatizer, SimulatedNoise, new_key
from fedfairx.privacy.mechanisms.noise import NoiseSource
from fedfairx.privacy.release import total_of
from fedfairx.util.formatting import counted, html_table

MOST_AGENTS = 10  # that a notebook shows in rows


class Federation:
    """Agents in one process that decide and learn on their own, and share what their algorithm shares.

    Call `end_round()` after each round; it synchronises when the schedule says so. An agent may skip rounds.

    agents: how many there are.
    dimension: how many numbers describe an action.
    schema, actions: instead of a dimension, as for `Agent`.
    horizon: how many rounds they share in.
    options: how agents decide, learn and share, as one object, such as `Scenario.options` of a simulation. Or
        give its fields as keywords; `Options` explains all.
    algorithm: the rule, what is shared, and whether privately: a name of `fedfairx.algorithms()`.
    epsilon, delta: for private algorithms.
    merit: one merit for all agents, or a sequence of one for each.
    seed: makes a repeatable simulation; see below.

    >>> fed = Federation(agents=2, dimension=2, horizon=10, seed=0)
    >>> for agent in fed.agents:
    ...     agent.observe(agent.decide([[1.0, 0.0], [0.0, 1.0]]), reward=1.0)
    >>> fed.end_round()
    True
    >>> fed
    Federation('fed-fairx-bayes', agents=2, dimension=2, round 1 of 10, 1 sync)

    With a `seed` everything is repeatable, including the privacy noise, and the guarantee says that it is a
    simulation; without one the noise comes from a new secret key. After `horizon` rounds nothing is shared
    any more, and a warning says so once; `new_run` continues sharing.
    """

    def __init__(
        self,
        *,
        agents: int,
        dimension: int | None = None,
        schema: Schema | None = None,
        actions: Sequence[str] | None = None,
        horizon: int,
        options: Options | None = None,
        seed: int | None = None,
        **keywords: Unpack[Keywords],
    ) -> None:
        merit = keywords.get("merit")
        merits: list[Merit] | None = None
        if isinstance(merit, Sequence):
            merits = list(merit)
            del keywords["merit"]
        dimension, arms = as_arms(dimension, actions, schema)
        featureless = schema is None and not dimension
        self.options = _of_arms(Options.given(options, **keywords), schema, featureless=featureless)
        self.algorithm = self.options.composed
        self.schedule = self.algorithm.schedule
        self.round = 0
        self.syncs = 0
        self._last_sync = 0
        self._runs = 0
        one_hot = len(arms) if arms is not None and featureless and self.options.optimistic else 0
        self._begin_run(Plan(horizon, agents, dimension or one_hot or 1))
        typed = seed is None or (isinstance(seed, int) and seed >= 0)
        require(typed, "seed", "must be an integer >= 0", seed)
        self._seed = seed
        text = f"must be one merit, or one for each of {agents} agents"
        require(merits is None or len(merits) == agents, "merit", text, len(merits or ()))
        self._names = [f"agent-{i:06d}" for i in range(agents)]
        privatizers = self._privatizers(self.options, self.plan, run=self._runs)
        children = np.random.SeedSequence(seed).spawn(agents)
        each = [self.options] * agents
        if merits is not None:
            each = [replace(self.options, merit=own) for own in merits]
        which: dict[str, Any] = {"schema": schema, "actions": actions}
        if schema is None and dimension:
            which["dimension"] = dimension
        self.agents = [
            Agent(**which, options=own, seed=child, privatizer=privatizer, name=name)
            for own, child, privatizer, name in zip(each, children, privatizers, self._names, strict=True)
        ]
        self._seal = PlainCodec()
        self._transport = MemoryTransport()
        self._members: dict[str, Member] = {}

    def __repr__(self) -> str:
        plan = self.plan
        return (
            f"Federation({self.algorithm.name!r}, agents={plan.agents}, dimension={plan.dimension}, "
            f"round {self.round} of {self._began + plan.horizon}, {counted(self.syncs, 'sync')})"
        )

    def _repr_html_(self) -> str:
        """The federation for a notebook, with a row for each of the first agents."""
        shown, more = self.agents[:MOST_AGENTS], len(self.agents) - MOST_AGENTS
        rows = [
            ("algorithm", self.algorithm.name),
            ("round", f"{self.round} of {self._began + self.plan.horizon}"),
            ("synchronisations", self.syncs),
            ("privacy", privacy_in_short(self.privacy)),
        ]
        each: list[tuple[object, ...]] = [(agent.name, agent.observed, agent.pending) for agent in shown]
        if more > 0:
            each.append((f"… and {more} more", "", ""))
        return html_table((), rows, caption=f"Federation of {len(self.agents)} agents") + html_table(
            ("agent", "rewards observed", "decisions pending"), each
        )

    def _begin_run(self, plan: Plan) -> None:
        self._timetable = timetable(self.schedule, plan)
        self.plan = plan
        self._runs += 1
        self._began, self._syncs_before = self.round, self.syncs
        self._warned = False

    def _privatizers(self, options: Options, plan: Plan, *, run: int) -> list[Privatizer]:
        key, seed = new_key(), self._seed

        def noise(i: int) -> NoiseSource:
            if seed is None:
                return KeyedNoise(key, agent=self._names[i], run=f"local-{run}")
            return SimulatedNoise(seed, agent=i + (run - 1) * plan.agents)

        return options.privatizers(plan, noise)

    @property
    def privacy(self) -> Guarantee:
        """The privacy guarantee of each agent's messages, and what is spent of it; the same for all."""
        return self.agents[0].privatizer.guarantee

    def end_round(self) -> bool:
        """Close the round; True when it ended with a synchronisation (Alg. 1 lines 10 to 24)."""
        self.round += 1
        due = self._timetable.is_due(
            self.round - self._began,
            since=self.round - self._last_sync,
            growths=(agent.growth for agent in self.agents),
            releases=self.syncs - self._syncs_before,
        )
        if due:
            self.synchronise()
        else:
            self._warn_past_the_end()
        return due

    def _warn_past_the_end(self) -> None:
        shares = self._timetable.most > 0
        if shares and not self._warned and self.round - self._began > self.plan.horizon:
            self._warned = True
            warnings.warn(
                f"the horizon of {self.plan.horizon} rounds is past: agents continue alone and share nothing "
                "any more; new_run(horizon) shares again, also what was learnt meanwhile, at its own cost",
                stacklevel=3,
            )

    def new_run(self, horizon: int, *, epsilon: float | None = None, delta: float | None = None) -> None:
        """Share again, over another `horizon` rounds; agents keep all that they have learnt.

        The first synchronisation of the new run includes what was observed since the last one. A private run
        has its own budget, by default the same as the last one, and the costs add up: `privacy` then covers
        all messages, past and future, with μ = √(μ₁² + μ₂²). A refused call changes nothing.
        """
        plan = replace(self.plan, horizon=horizon)
        if not self.algorithm.private:
            text = f"is for private algorithms, and {self.algorithm.name} is not private"
            for name, value in (("epsilon", epsilon), ("delta", delta)):
                require(value is None, name, text, value, "leave it out")
            self._begin_run(plan)
            return
        options = replace(
            self.options,
            epsilon=self.options.epsilon if epsilon is None else epsilon,
            delta=self.options.delta if delta is None else delta,
        )
        privatizers = self._privatizers(options, plan, run=self._runs + 1)
        if any(agent.released > self.syncs for agent in self.agents):  # a synchronisation failed half way
            self.synchronise()
        for agent, privatizer in zip(self.agents, privatizers, strict=True):
            agent.begin_run(privatizer)
        self.options = options
        self._begin_run(plan)

    def synchronise(self) -> None:
        """Let every agent release, and absorb the releases of all; with secure aggregation, only their sum.

        It can be called again after a failure half way: an agent that has released repeats its release, at no
        cost, and newer observations are in the next one.
        """
        number = self.syncs + 1
        if self.options.secure:
            total = total_of([agent.release(max(number, agent.released)) for agent in self.agents])
            for agent in self.agents:
                agent.absorb({TOTAL: total})
        else:
            members = [self._member(agent) for agent in self.agents]
            for member in members:
                member.send(member.agent.release(max(number, member.agent.released)))
            for member in members:
                member.receive(strict=True)
        self.syncs = number
        self._last_sync = self.round

    def _member(self, agent: Agent) -> Member:
        """The member of an agent; a saved copy may have replaced an agent in `agents`."""
        member = self._members.get(agent.name)
        if member is None or member.agent is not agent:
            member = self._members[agent.name] = Member(agent, self._transport, self._seal)
        return member


def _of_arms(options: Options, schema: Schema | None, *, featureless: bool) -> Options:
    """The options for agents with this schema, or whose actions have names alone."""
    if featureless:
        options.for_agent(featureless=True)  # refuses what it can't be
    elif schema is None:
        return replace(options, intercept=options.has_intercept)
    options = replace(options, intercept=False)
    if schema is None:
        return options
    if not options.private or options.bounds is not None or options.centring is not None:
        return options
    return replace(options, bounds=bounds_of(schema, options.reward_range))
