"""A federation inside one process: all agents in lock step, as in the paper."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from typing import Unpack

import numpy as np

from fedfairx.agent.agent import Agent
from fedfairx.agent.exchange import privacy_in_short
from fedfairx.agent.options import Keywords, Options
from fedfairx.agent.schedules import Plan, timetable
from fedfairx.core.merit import Merit
from fedfairx.errors import require
from fedfairx.federation.exchange.envelope import PlainCodec
from fedfairx.federation.exchange.member import Member
from fedfairx.federation.transport import MemoryTransport
from fedfairx.privacy import Guarantee, KeyedNoise, Privatizer, SimulatedNoise, new_key
from fedfairx.privacy.mechanisms.noise import NoiseSource
from fedfairx.util.formatting import counted, html_table

MOST_AGENTS = 10  # with a row of their own in a notebook


class Federation:
    """`agents` that decide and observe for themselves and share what their algorithm lets them share.

    Call `end_round()` after each round; it synchronises when the schedule says so. An agent may skip rounds.

    agents, dimension, horizon: how many agents, numbers that describe an arm, and rounds.
    options: how they decide, learn and share, as one object, such as `Scenario.options` gives: what was
        simulated. Or give fields of `Options` as keywords: `algorithm`, a name of `fedfairx.algorithms()`
        that says the rule, what is shared, and whether privately; `epsilon` and `delta` for private ones;
        `schedule`, `reward_range`, `prior`, `minimum_share`, `partners`, `bounds`, and the others there.
    merit: one for all agents, or a sequence of one for each.
    seed: makes a simulation of it; see below.

    >>> fed = Federation(agents=2, dimension=2, horizon=10, seed=0)
    >>> for agent in fed.agents:
    ...     agent.observe(agent.decide([[1.0, 0.0], [0.0, 1.0]]), reward=1.0)
    >>> fed.end_round()
    True
    >>> fed
    Federation('fed-fairx-bayes', agents=2, dimension=2, round 1 of 10, 1 sync)

    With a `seed` everything is repeatable, the privacy noise too, and the guarantee says that it is a
    simulation; without one the noise is keyed by a fresh secret key. After `horizon` rounds nothing is shared
    any more, and a warning says so once; `new_run` goes on.
    """

    def __init__(
        self,
        *,
        agents: int,
        dimension: int,
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
        self.options = Options.given(options, **keywords)
        self.algorithm = self.options.composed
        self.schedule = self.algorithm.schedule
        self.round = 0
        self.syncs = 0
        self._last_sync = 0
        self._runs = 0
        self._begin_run(Plan(horizon, agents, dimension))
        require(seed is None or seed >= 0, "seed", "must be >= 0", seed)
        self._seed = seed
        text = f"must be one merit, or one for each of {agents} agents"
        require(merits is None or len(merits) == agents, "merit", text, len(merits or ()))
        self._names = [f"agent-{i:06d}" for i in range(agents)]
        privatizers = self._privatizers(self.options, self.plan, run=self._runs)
        children = np.random.SeedSequence(seed).spawn(agents)
        each = [self.options] * agents
        if merits is not None:
            each = [replace(self.options, merit=own) for own in merits]
        self.agents = [
            Agent(dimension, options=own, seed=child, privatizer=made, name=name)
            for own, child, made, name in zip(each, children, privatizers, self._names, strict=True)
        ]
        self._seal = PlainCodec()
        self._transport = MemoryTransport()
        self._members: dict[str, Member] = {}

    def __repr__(self) -> str:
        return line_of_federation(self)

    def _repr_html_(self) -> str:
        return table_of_federation(self)

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
        """What is claimed for each agent's messages, and what is spent of it. All agents have the same."""
        return self.agents[0].privatizer.guarantee

    def end_round(self) -> bool:
        """Close the round; True when it ended with a synchronisation (Alg. 1 lines 10 to 24)."""
        self.round += 1
        due = self._sync_due()
        if due:
            self.synchronise()
        if not due:
            self._warn_past_the_end()
        return due

    def _sync_due(self) -> bool:
        return self._timetable.is_due(
            self.round - self._began,
            since=self.round - self._last_sync,
            growths=(agent.growth for agent in self.agents),
            made=self.syncs - self._syncs_before,
        )

    def _warn_past_the_end(self) -> None:
        shares = self._timetable.most > 0
        if shares and not self._warned and self.round - self._began > self.plan.horizon:
            self._warned = True
            warnings.warn(
                f"the horizon of {self.plan.horizon} rounds is past: agents go on by themselves and share "
                "nothing any more; new_run(horizon) shares again, this too, at a cost of its own",
                stacklevel=3,
            )

    def new_run(self, horizon: int, *, epsilon: float | None = None, delta: float | None = None) -> None:
        """Share again, over another `horizon` rounds; all that was learnt stays.

        What was observed since the last synchronisation is in the first of the new run. A private run has a
        budget of its own, the last one's unless given, and its cost adds: `privacy` then speaks of all
        messages so far and to come, with μ = √(μ₁² + μ₂²). When it is refused, nothing has changed.
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
        if any(agent.released > self.syncs for agent in self.agents):  # one of them failed half way
            self.synchronise()
        for agent, privatizer in zip(self.agents, privatizers, strict=True):
            agent.begin_run(privatizer)
        self.options = options
        self._begin_run(plan)

    def synchronise(self) -> None:
        """Everybody releases; everybody absorbs everybody's release.

        After a failure half way it can be called again: whoever has released gives the same release, at no
        cost, and what came since is in the next one.
        """
        number = self.syncs + 1
        members = [self._member(agent) for agent in self.agents]
        for member in members:
            member.send(member.agent.release(max(number, member.agent.released)))
        for member in members:
            member.receive(strict=True)
        self.syncs = number
        self._last_sync = self.round

    def _member(self, agent: Agent) -> Member:
        """An agent's end of the transport; a saved copy may have taken an agent's place in `agents`."""
        member = self._members.get(agent.name)
        if member is None or member.agent is not agent:
            member = self._members[agent.name] = Member(agent, self._transport, self._seal)
        return member


def line_of_federation(federation: Federation) -> str:
    """`Federation('b2', agents=3, dimension=5, round 20 of 100, 2 syncs)`."""
    plan = federation.plan
    return (
        f"Federation({federation.algorithm.name!r}, agents={plan.agents}, dimension={plan.dimension}, "
        f"round {federation.round} of {_end(federation)}, {counted(federation.syncs, 'sync')})"
    )


def table_of_federation(federation: Federation) -> str:
    """The same for a notebook: what is shared, and a row for each of the first agents."""
    plan, shown = federation.plan, federation.agents[:MOST_AGENTS]
    rows = [
        ("algorithm", federation.algorithm.name),
        ("round", f"{federation.round} of {_end(federation)}"),
        ("synchronisations", federation.syncs),
        ("privacy", privacy_in_short(federation.privacy)),
    ]
    each: list[tuple[object, ...]] = [(agent.name, agent.observed, agent.pending) for agent in shown]
    if plan.agents > len(shown):
        each.append((f"… and {plan.agents - len(shown)} more", "", ""))
    return html_table((), rows, caption=f"Federation of {plan.agents} agents") + html_table(
        ("agent", "rewards observed", "decisions pending"), each
    )


def _end(federation: Federation) -> int:
    """The round after which nothing is shared any more."""
    return federation._began + federation.plan.horizon
