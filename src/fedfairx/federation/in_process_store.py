"""A federation that can be closed and opened: all its agents in one database, its rounds too.

Every step of an agent is a transaction; the end of a round is one, with all that is released and absorbed
in it. So a crash never leaves a synchronisation half made.
"""

from __future__ import annotations

import json
import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from fedfairx.agent import parts
from fedfairx.agent.agent import Agent
from fedfairx.agent.fields import Fields
from fedfairx.agent.options import Options
from fedfairx.agent.persistence import AgentStore, make_agent
from fedfairx.agent.schedules import Plan
from fedfairx.core.merit import Custom, Merit
from fedfairx.errors import InvalidInput, StateError, require
from fedfairx.privacy import Bounds, Budget, Centring
from fedfairx.storage.open_log import open_log
from fedfairx.storage.rollback_marker import leave_mark
from fedfairx.storage.transaction_log import Log

_PLAIN = ("reward_range", "minimum_share", "epsilon", "delta", "decide_from", "shift", "partners")
_SAVE = "UPDATE federations SET progress = ? WHERE id = 1"


class FederationStore:
    """A federation's part of a log: what it was made with, and how far it has come."""

    def __init__(self, place: str | os.PathLike[str]) -> None:
        self.log: Log = open_log(place)

    def made_before(self) -> tuple[dict[str, Any], dict[str, Any]] | None:
        """Settings and progress, if there is a federation already."""
        execute = self.log.database.execute
        rows = execute("SELECT settings, progress FROM federations")
        if not rows and execute("SELECT 1 FROM agents"):
            raise StateError(f"{self.log.database.place} holds an agent: open it with Agent.open")
        return (json.loads(rows[0][0]), json.loads(rows[0][1])) if rows else None

    def make(
        self,
        options: Options,
        plan: Plan,
        merits: Sequence[Merit | None],
        names: Sequence[str],
        seed: int | None,
    ) -> None:
        """Keep a new federation and its agents, all of it in one transaction."""
        require(
            seed is None or not options.private, "seed", "must be left out: noise is under a key here", seed
        )
        settings = _describe(options, plan, merits)
        composed, budget = options.composed, None
        if options.private:
            budget = budget_of(options, plan)
        children = np.random.SeedSequence(seed).spawn(plan.agents)
        with self.log.step() as log:
            log.write("INSERT INTO federations VALUES (1, ?, ?)", (json.dumps(settings), "{}"))
            for merit, name, child in zip(merits, names, children, strict=True):
                given = {
                    "dimension": plan.dimension,
                    "rule": composed.rule,
                    "merit": merit,
                    "reward_range": options.reward_range,
                    "seed": child,
                    "prior": options.prior,
                    "minimum_share": options.minimum_share,
                    "confidence": options.region if options.optimistic else None,
                    "solver": composed.solver if options.optimistic else None,
                    "shift": options.shift,
                    "partners": options.partners,
                    "name": name,
                }
                make_agent(Agent, log, given, budget)

    def agents(self) -> list[Agent]:
        """Its agents, as the log leaves them."""
        rows = self.log.database.execute("SELECT agent, settings, secret FROM agents ORDER BY agent")
        kept = [AgentStore(self.log, int(n), json.loads(settings), secret) for n, settings, secret in rows]
        agents = [each.agent(Agent, {}, None) for each in kept]
        leave_mark(self.log)
        return agents

    def keep(self, progress: dict[str, Any]) -> None:
        """Inside a step: how far it has come."""
        self.log.write_last("federation", _SAVE, (json.dumps(progress),))

    def progress(self) -> dict[str, Any]:
        """As it is on disk."""
        text = self.log.database.execute("SELECT progress FROM federations")[0][0]
        kept: dict[str, Any] = json.loads(text)
        return kept


def budget_of(options: Options, plan: Plan) -> Budget:
    """What each agent may spend over a plan."""
    composed, mechanism = options.composed, options.mechanism
    assert isinstance(mechanism, str)
    return Budget(
        epsilon=float(options.epsilon or 0.0),
        delta=options.delta,
        releases=max(composed.schedule.max_releases(plan), 1),
        mechanism=mechanism,
        bounds=options.record_bounds,
        centring=options.centring,
        decide_from=composed.decide_from,  # type: ignore[arg-type]
        public_schedule=composed.schedule.public,
    )


def _describe(options: Options, plan: Plan, merits: Sequence[Merit | None]) -> dict[str, Any]:
    for name, value in (
        ("algorithm", options.algorithm),
        ("schedule", options.schedule),
        ("mechanism", options.mechanism),
    ):
        require(value is None or isinstance(value, str), name, "must be a name, to be kept", value)
    require(
        not any(isinstance(each, Custom) for each in merits), "merit", "must be no Custom, to be kept", "one"
    )
    prior, region, solver = options.prior, options.confidence, options.solver
    return {
        "agents": plan.agents,
        "dimension": plan.dimension,
        "horizon": plan.horizon,
        "algorithm": options.algorithm,
        "schedule": options.schedule,
        "mechanism": options.mechanism,
        **{name: getattr(options, name) for name in _PLAIN},
        "prior": None if prior is None else parts.describe_prior(prior, plan.dimension),
        "confidence": None if region is None else parts.describe_confidence(region),
        "solver": solver if solver is None or isinstance(solver, str) else parts.describe_solver(solver),
        "bounds": None if options.bounds is None else options.bounds.to_dict(),
        "centring": None if options.centring is None else options.centring.to_dict(),
        "merit": [None if each is None else parts.describe_merit(each) for each in merits],
    }


def settings_from(stored: dict[str, Any]) -> dict[str, Any]:
    """The arguments of `Federation` that `_describe` described."""
    fields, dimension = Fields(stored, "federation"), stored["dimension"]
    made = {
        name: stored[name]
        for name in ("agents", "dimension", "horizon", "algorithm", "schedule", "mechanism")
    }
    made |= {name: stored[name] for name in _PLAIN}
    made["reward_range"] = fields.pair("reward_range")
    prior, region, solver = stored["prior"], stored["confidence"], stored["solver"]
    made["prior"] = None if prior is None else parts.prior_from(fields.part("prior"), dimension)
    made["confidence"] = None if region is None else parts.confidence_from(fields.part("confidence"))
    made["solver"] = parts.solver_from(fields.part("solver")) if isinstance(solver, dict) else solver
    made["bounds"] = None if stored["bounds"] is None else Bounds(**stored["bounds"])
    point = stored["centring"]
    made["centring"] = None if point is None else Centring(**{**point, "context": tuple(point["context"])})
    merits = [
        None if each is None else parts.merit_from(Fields(each, "merit"), None) for each in stored["merit"]
    ]
    made["merit"] = None if merits == [None] * len(merits) else merits
    return made


def refuse_others(stored: dict[str, Any], given: dict[str, Any]) -> None:
    """What the caller names must be what is kept."""
    for name, value in given.items():
        kept = stored.get(name)
        if name == "merit":
            many = value if isinstance(value, Sequence) else [value] * stored["agents"]
            kept = list(kept or [None] * stored["agents"])
            same = [None if each is None else each for each in many] == kept
        else:
            same = name == "seed" or value == kept
        if not same:
            raise InvalidInput(f"{name} must be the one that is kept, {name}={kept!r}, got {name}={value!r}")
