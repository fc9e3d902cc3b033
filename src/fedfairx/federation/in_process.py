"""A federation inside one process: all agents in lock step, as in the paper."""

from __future__ import annotations

import warnings
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import replace
from os import PathLike
from typing import Any, Self, cast

import numpy as np

from fedfairx.agent.agent import Agent
from fedfairx.agent.algorithms import Algorithm
from fedfairx.agent.display import privacy_in_short
from fedfairx.agent.options import Calibrate, Options
from fedfairx.agent.schedules import Plan, Schedule, timetable
from fedfairx.core.confidence import Confidence
from fedfairx.core.merit import Merit
from fedfairx.core.optimism.solver import Solver
from fedfairx.core.posterior import Prior
from fedfairx.errors import require
from fedfairx.federation.exchange.envelope import PlainCodec
from fedfairx.federation.exchange.member import Member
from fedfairx.federation.in_process_store import FederationStore, budget_of, refuse_others, settings_from
from fedfairx.federation.transport import MemoryTransport
from fedfairx.privacy import (
    Bounds,
    Budget,
    Centring,
    Guarantee,
    KeyedNoise,
    Privatizer,
    SimulatedNoise,
    new_key,
)
from fedfairx.privacy.mechanisms.noise import NoiseSource
from fedfairx.util.formatting import counted, html_table

#: How far a federation has come.
_KEPT = ("round", "syncs", "_last_sync", "_runs", "_began", "_syncs_before")


class Lasting:
    """The lasting half of a `Federation`, which rounds and shares beside it."""

    options: Options
    plan: Plan
    agents: list[Agent]
    _names: list[str]
    _seed: int | None
    _kept: FederationStore | None = None  # where a durable one keeps its steps

    def _begin_run(self, plan: Plan) -> None:
        raise NotImplementedError

    def _renew_transport(self) -> None:
        raise NotImplementedError

    @classmethod
    def open(cls, place: str | PathLike[str], **settings: Any) -> Self:
        """A federation that lives in a file (SQLite) or a `postgresql://` database; see docs/durable.md.

        The first opening takes what `Federation` takes and keeps it; later ones need nothing but the place.
        Each call of an agent, and each end of a round, is on disk before it returns, or has changed nothing.
        """
        kept, make = FederationStore(place), cast(Callable[..., Self], cls)
        try:
            before = kept.made_before()
            if before is None:
                fed = make(**settings)
                merits = [agent.merit for agent in fed.agents]
                kept.make(fed.options, fed.plan, merits, fed._names, fed._seed)
                progress = fed._progress()
            else:
                stored, progress = settings_from(before[0]), before[1]
                refuse_others(stored, settings)
                fed = make(**stored)
            fed._kept, fed.agents = kept, kept.agents()
            if before is None:
                with fed._step():
                    pass
            else:
                fed._resume(progress)
            kept.log.restorers.append(lambda: fed._resume(kept.progress()))
            kept.log.restorers.append(fed._renew_transport)
        except BaseException:
            kept.log.close()
            raise
        return fed

    def close(self) -> None:
        """Let go of the database; a federation in memory has none."""
        if self._kept is not None:
            self._kept.log.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_exception: object) -> None:
        self.close()

    @contextmanager
    def _step(self) -> Iterator[None]:
        """One step: kept, whole or not at all, where the federation is durable."""
        if self._kept is None:
            yield
            return
        with self._kept.log.step():
            yield
            self._kept.keep(self._progress())

    def _progress(self) -> dict[str, Any]:
        options = {"epsilon": self.options.epsilon, "delta": self.options.delta}
        return {name: getattr(self, name) for name in _KEPT} | {"horizon": self.plan.horizon, **options}

    def _resume(self, progress: dict[str, Any]) -> None:
        self.options = replace(self.options, epsilon=progress["epsilon"], delta=progress["delta"])
        self._begin_run(replace(self.plan, horizon=progress["horizon"]))
        for name in _KEPT:
            setattr(self, name, progress[name])


MOST_AGENTS = 10  # with a row of their own in a notebook


class Federation(Lasting):
    """`agents` that decide and observe for themselves and share what their algorithm lets them share.

    Call `end_round()` after each round; it synchronises when the schedule says so. An agent may skip rounds.

    agents, dimension, horizon: how many agents, numbers that describe an arm, and rounds.
    algorithm: a name of `fedfairx.algorithms()`; it says the rule, what is shared, and whether privately.
    schedule: when agents share, instead of the algorithm's own: a name or a `Schedule`.
    merit: one for all agents, or a sequence of one for each.
    reward_range, prior, minimum_share, solver, shift, partners: as of `Agent`.
    confidence: as of `Agent`; by default algorithms of the paper have half the theorem's radius, as fitted to
        its curves.
    epsilon, delta: the privacy of each agent's messages, all together; for private algorithms.
    mechanism: how noise is laid over releases: a name that `fedfairx list` shows.
    bounds, centring: what records are clipped to, and the public point that they are measured from.
    decide_from: what a private agent's decisions may use: "own+released" (the default of algorithms with a
        posterior), "released" (the strict mode, whose claim covers decisions too) or "released+local".
    options: all of these but `merit` as one object, such as `Scenario.options` gives: what was simulated.
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
        algorithm: str | Algorithm = "fed-fairx-bayes",
        schedule: str | Schedule | None = None,
        merit: Merit | Sequence[Merit] | None = None,
        reward_range: tuple[float, float] | None = None,
        prior: Prior | None = None,
        minimum_share: float = 0.0,
        confidence: Confidence | None = None,
        solver: str | Solver | None = None,
        epsilon: float | None = None,
        delta: float = 1e-6,
        mechanism: str | Calibrate = "blt",
        bounds: Bounds | None = None,
        centring: Centring | None = None,
        decide_from: str | None = None,
        shift: float = 4.0,
        partners: str = "alike",
        options: Options | None = None,
        seed: int | None = None,
    ) -> None:
        self.options = Options.given(
            options,
            algorithm=algorithm,
            schedule=schedule,
            reward_range=reward_range,
            prior=prior,
            minimum_share=minimum_share,
            confidence=confidence,
            solver=solver,
            epsilon=epsilon,
            delta=delta,
            mechanism=mechanism,
            bounds=bounds,
            centring=centring,
            decide_from=decide_from,
            shift=shift,
            partners=partners,
        )
        self.algorithm = self.options.composed
        self.schedule = self.algorithm.schedule
        self.round = 0
        self.syncs = 0
        self._last_sync = 0
        self._runs = 0
        self._begin_run(Plan(horizon, agents, dimension))
        require(seed is None or seed >= 0, "seed", "must be >= 0", seed)
        self._seed = seed
        merits = list(merit) if isinstance(merit, Sequence) else [merit] * agents
        require(
            len(merits) == agents,
            "merit",
            f"must be one merit, or one for each of {agents} agents",
            len(merits),
        )
        self._names = [f"agent-{i:06d}" for i in range(agents)]
        privatizers = self._privatizers(self.options, self.plan, run=self._runs)
        children = np.random.SeedSequence(seed).spawn(agents)
        self.agents = [
            self.options.agent(dimension, merit=merits[i], seed=child, privatizer=made, name=name)
            for i, (child, made, name) in enumerate(zip(children, privatizers, self._names, strict=True))
        ]
        self._seal = PlainCodec()
        self._renew_transport()

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
        with self._step():
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
            with self._step():
                self._begin_run(plan)
            return
        options = replace(
            self.options,
            epsilon=self.options.epsilon if epsilon is None else epsilon,
            delta=self.options.delta if delta is None else delta,
        )
        privatizers: Sequence[Privatizer | Budget] = (
            self._privatizers(options, plan, run=self._runs + 1)
            if self._kept is None
            else [budget_of(options, plan)] * plan.agents
        )
        with self._step():
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
        with self._step():
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

    def _renew_transport(self) -> None:
        """Nothing has been sent: what was, before a step that failed, must not be met again."""
        self._transport = MemoryTransport()
        self._members: dict[str, Member] = {}


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
