"""A federation inside one process: all agents in lock step, as in the paper."""

from __future__ import annotations

import warnings
from collections.abc import Sequence
from dataclasses import replace
from functools import partial

import numpy as np

from fedfairx.core.confidence import Confidence
from fedfairx.core.merit import Merit
from fedfairx.core.optimism.choose import Solver
from fedfairx.core.posterior import Prior
from fedfairx.core.rules import OPTIMISM
from fedfairx.errors import require
from fedfairx.federation.agent import Agent
from fedfairx.federation.algorithms import Algorithm
from fedfairx.federation.algorithms import algorithm as find_algorithm
from fedfairx.federation.describe import line_of_federation, table_of_federation
from fedfairx.federation.schedules import Determinant, Plan, Schedule
from fedfairx.federation.schedules import schedule as find_schedule
from fedfairx.privacy import (
    Bounds,
    Centring,
    Guarantee,
    KeyedNoise,
    NonPrivateSums,
    Privatizer,
    SimulatedNoise,
    new_key,
    private,
)


class Federation:
    """`agents` that decide and observe for themselves and share what their algorithm lets them share.

    Call `end_round()` after each round; it synchronises when the schedule says so. An agent may skip rounds.

    agents, dimension, horizon: how many agents, numbers that describe an arm, and rounds.
    algorithm: a name of `fedfairx.algorithms()`; it says the rule, what is shared, and whether privately.
    schedule: when agents share, instead of the algorithm's own: a name or a `Schedule`.
    merit: one for all agents, or a sequence of one for each.
    prior, minimum_share, confidence, solver, shift: as of `Agent`.
    epsilon, delta: the privacy of each agent's messages, all together; for private algorithms.
    mechanism: how noise is laid over releases: a name that `fedfairx list` shows.
    bounds, centring: what records are clipped to, and the public point that they are measured from.
    decide_from: "released", "own+released" or "released+local": what a private agent's decisions may use.
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
        prior: Prior | None = None,
        minimum_share: float = 0.0,
        confidence: Confidence | None = None,
        solver: str | Solver | None = None,
        epsilon: float | None = None,
        delta: float = 1e-6,
        mechanism: str = "blt",
        bounds: Bounds | None = None,
        centring: Centring | None = None,
        decide_from: str | None = None,
        shift: float = 4.0,
        seed: int | None = None,
    ) -> None:
        self.algorithm = find_algorithm(algorithm)
        if solver is not None:
            optimistic = self.algorithm.rule == OPTIMISM
            require(optimistic, "solver", "is for algorithms that are optimistic", solver, "leave it out")
            self.algorithm = self.algorithm.with_solver(solver)
        self.plan = Plan(horizon, agents, dimension)
        self.schedule = find_schedule(schedule) if schedule is not None else self.algorithm.schedule
        self.round = 0
        self.syncs = 0
        self._last_sync = 0
        self._runs = 0
        self._begin_run(self.plan)
        require(seed is None or seed >= 0, "seed", "must be >= 0", seed)
        self._seeds = np.random.SeedSequence(seed)
        merits = list(merit) if isinstance(merit, Sequence) else [merit] * agents
        require(
            len(merits) == agents,
            "merit",
            f"must be one merit, or one for each of {agents} agents",
            len(merits),
        )
        self._names = [f"agent-{i:06d}" for i in range(agents)]
        self._privatizers = partial(
            self._make_privatizers,
            mechanism=mechanism,
            bounds=bounds,
            centring=centring,
            decide_from=decide_from,
            seed=seed,
        )
        self._budget = epsilon, delta
        privatizers = self._privatizers(epsilon, delta, plan=self.plan, run=self._runs)
        self.agents = [
            Agent(
                dimension,
                rule=self.algorithm.rule,
                merit=merits[i],
                seed=child,
                prior=prior,
                minimum_share=minimum_share,
                confidence=confidence,
                privatizer=privatizers[i],
                solver=self.algorithm.solver if self.algorithm.rule == OPTIMISM else None,
                shift=shift,
                name=self._names[i],
            )
            for i, child in enumerate(self._seeds.spawn(agents))
        ]

    def __repr__(self) -> str:
        return line_of_federation(self)

    def _repr_html_(self) -> str:
        return table_of_federation(self)

    def _begin_run(self, plan: Plan) -> None:
        self._due = frozenset(self.round + int(t) for t in self.schedule.rounds(plan))
        self.plan = plan
        self._runs += 1
        self._began, self._syncs_before = self.round, self.syncs
        self._warned = False

    def _make_privatizers(
        self,
        epsilon: float | None,
        delta: float,
        *,
        plan: Plan,
        run: int,
        mechanism: str,
        bounds: Bounds | None,
        centring: Centring | None,
        decide_from: str | None,
        seed: int | None,
    ) -> Sequence[Privatizer]:
        count, dimension = plan.agents, plan.dimension
        if not self.algorithm.private:
            text = f"is for private algorithms, and {self.algorithm.name} is not private"
            require(epsilon is None, "epsilon", text, epsilon, "leave it out")
            require(decide_from is None, "decide_from", text, decide_from, "leave it out")
            return [NonPrivateSums(dimension) for _ in range(count)]
        if epsilon is None:
            require(False, "epsilon", f"must be given for {self.algorithm.name}", epsilon)
            raise AssertionError
        decide_from = decide_from or self.algorithm.decide_from
        local_trigger = isinstance(self.schedule, Determinant)
        if local_trigger:  # its trigger reads local data anyway, so deciding from them costs nothing more
            require(
                decide_from == "released+local", "decide_from", 'must be "released+local" for B1', decide_from
            )
        key = new_key()
        return [
            private(
                dimension,
                epsilon=epsilon,
                delta=delta,
                releases=max(self.schedule.max_releases(plan), 1),
                noise=KeyedNoise(key, agent=self._names[i], run=f"local-{run}")
                if seed is None
                else SimulatedNoise(seed, agent=i + (run - 1) * count),
                mechanism=mechanism,
                bounds=bounds,
                centring=centring,
                decide_from=decide_from,  # type: ignore[arg-type]
                public_schedule=self.schedule.public,
            )
            for i in range(count)
        ]

    @property
    def privacy(self) -> Guarantee:
        """What is claimed for each agent's messages, and what is spent of it. All agents have the same."""
        return self.agents[0].privatizer.guarantee

    def end_round(self) -> bool:
        """Close the round; True when it ended with a synchronisation (Alg. 1 lines 10 to 24)."""
        self.round += 1
        if not self._sync_due():
            self._warn_past_the_end()
            return False
        self.synchronise()
        return True

    def _sync_due(self) -> bool:
        if isinstance(self.schedule, Determinant):
            since = self.round - self._last_sync
            grown = any(agent.growth * since > self.schedule.threshold for agent in self.agents)
            left = self.syncs - self._syncs_before < self.schedule.cap
            return grown and left and self.round - self._began <= self.plan.horizon
        return self.round in self._due

    def _warn_past_the_end(self) -> None:
        shares = bool(self._due) or isinstance(self.schedule, Determinant)
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
        last_epsilon, last_delta = self._budget
        budget = (last_epsilon if epsilon is None else epsilon, last_delta if delta is None else delta)
        privatizers = self._privatizers(*budget, plan=plan, run=self._runs + 1)
        if any(agent.released > self.syncs for agent in self.agents):  # one of them failed half way
            self.synchronise()
        for agent, privatizer in zip(self.agents, privatizers, strict=True):
            agent.begin_run(privatizer)
        self._budget = budget
        self._begin_run(plan)

    def synchronise(self) -> None:
        """Everybody releases; everybody absorbs everybody's release.

        After a failure half way it can be called again: whoever has released gives the same release, at no
        cost, and what came since is in the next one.
        """
        releases = {agent.name: agent.release(max(self.syncs + 1, agent.released)) for agent in self.agents}
        for agent in self.agents:
            agent.absorb(releases)
        self.syncs += 1
        self._last_sync = self.round
