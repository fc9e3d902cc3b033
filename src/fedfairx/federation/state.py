"""An agent as a file: JSON, exact to the bit, without pickle.

    {"format": "fedfairx-agent", "schema": 3, "digest": SHA-256 of the agent part, "agent": {…}}

Python writes a float so that reading gives the same bits back. The digest tells a damaged file from a sound
one. A loaded agent goes on with the same decisions, bit for bit: the file holds the sums, V⁻¹ as the
rank-one updates left it, the generator's position, the decisions that wait for a reward, and the releases.
Only the noise of releases to come is drawn anew: a file can be loaded twice.

The file is as secret as the data: it holds exact sums and the contexts of waiting decisions. Only its owner
may read it (mode 0600). Keys and a user's own function are never in it.
"""

from __future__ import annotations

import dataclasses
import hashlib
import json
import os
from collections.abc import Callable
from typing import TYPE_CHECKING, Any, TypeVar

import numpy as np

from fedfairx.core.confidence import Confidence
from fedfairx.core.merit import Affine, Custom, Exponential, Logistic, Merit, Power
from fedfairx.core.optimism.choose import FAIR, WINNER, Solver
from fedfairx.core.posterior import Prior
from fedfairx.core.rules import OPTIMISM
from fedfairx.core.statistics import packed_size
from fedfairx.errors import FedFairXError, InvalidInput, MessageRefused, StateError
from fedfairx.federation.atomic import write_atomically
from fedfairx.federation.decision import Decision
from fedfairx.federation.fields import Fields
from fedfairx.privacy import NonPrivateSums, Privatizer, Release

if TYPE_CHECKING:
    from fedfairx.federation.agent import Agent

    AgentType = TypeVar("AgentType", bound=Agent)

FORMAT = "fedfairx-agent"
SCHEMA = 3

_MERITS: dict[str, type[Merit]] = {
    "exponential": Exponential,
    "affine": Affine,
    "power": Power,
    "logistic": Logistic,
}
_CUSTOM = "custom"


def save(agent: Agent, path: str | os.PathLike[str]) -> None:
    """Write the agent's state; either all of it is there afterwards, or what was there before."""
    body = describe(agent)
    try:
        text = json.dumps({"format": FORMAT, "schema": SCHEMA, "digest": _digest(body), "agent": body})
    except ValueError:
        raise StateError("this agent's state can't be saved: it holds NaN or infinity") from None
    write_atomically(path, text + "\n")


def load(
    cls: type[AgentType],
    path: str | os.PathLike[str],
    *,
    merit: Merit | None,
    privatizer: Callable[[dict[str, Any]], Privatizer] | None,
) -> AgentType:
    """The agent that `save` wrote; `StateError` says what is wrong with a file that it can't be made from."""
    with open(path, "rb") as file:
        body = _open_envelope(file.read())
    return _rebuild(cls, Fields(body, "agent"), merit, privatizer)


def describe(agent: Agent) -> dict[str, Any]:
    """All that an agent needs to go on, as plain values."""
    learner, solver = agent._learner, agent.solver
    position: Any = np.random.PCG64()
    position.state = agent._generator.bit_generator.state
    position.advance(-len(agent._uniforms))  # as if none of those drawn ahead had been drawn
    generator = position.state
    return {
        "name": agent.name,
        "dimension": agent.dimension,
        "merit": _describe_merit(agent.merit),
        "rule": agent.rule,
        "minimum_share": agent.minimum_share,
        "prior": {
            "mean": agent.prior.means(agent.dimension).tolist(),
            "sd": float(agent.prior.sd),
            "noise_sd": float(agent.prior.noise_sd),
            "learn_noise": agent.prior.learn_noise,
        },
        "confidence": {name: float(value) for name, value in dataclasses.asdict(agent.confidence).items()},
        "solver": {
            "rule": int(solver.rule),
            "tolerance": float(solver.tolerance),
            "max_steps": int(solver.max_steps),
            "rate": float(solver.rate),
            "floor": float(solver.floor),
        },
        "shift": float(agent.shift),
        "random": {
            "generator": generator["bit_generator"],
            "state": hex(generator["state"]["state"]),  # 128 bits: more than a JSON number may have elsewhere
            "increment": hex(generator["state"]["inc"]),
        },
        "learner": {
            "statistics": learner.statistics.tolist(),
            "fresh": learner.fresh.tolist(),
            "inverse": learner.inverse.ravel().tolist(),
            "count": learner.count,
            "ridge": learner.ridge,
            "surprise": learner.surprise,
            "observed": learner.observed,
            "updates": agent._updates,
            "growth": float(agent._growth),
        },
        "own": agent._own.tolist(),
        "released_count": agent._released_count,
        "local_count": agent._local_count,
        "next_id": agent._next_id,
        "pending": [
            {"id": d.id, "action": int(d.action), "arms": d.policy.size, "values": d._values.tolist()}
            | ({} if d.name is None else {"name": d.name})
            for d in agent._pending.values()
        ],
        "latest": {name: release.to_bytes().hex() for name, release in agent._latest.items()},
        "decide_from": agent.decide_from,
        "private": agent.private,
        "privatizer": agent.privatizer.state(),
    }


def _digest(body: object) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


def _open_envelope(content: bytes) -> dict[str, Any]:
    """The agent part of a file's content, once the file is known to be sound and of a schema we read."""
    try:
        document = json.loads(content)
    except (ValueError, RecursionError):
        raise StateError("the file is not JSON: damaged, cut short, or not an agent's state") from None
    if not isinstance(document, dict) or document.get("format") != FORMAT:
        raise StateError(f"the file is JSON but not an agent's state: format must be {FORMAT!r}")
    schema = document.get("schema")
    if not isinstance(schema, int) or isinstance(schema, bool) or schema < 1:
        raise StateError("the file has no schema number")
    if schema != SCHEMA:  # no earlier one was in a release
        which = "update it" if schema > SCHEMA else "an earlier version wrote the file"
        raise StateError(f"the file has schema {schema}, and this fedfairx reads schema {SCHEMA}: {which}")
    body = document.get("agent")
    try:
        sound = isinstance(body, dict) and document.get("digest") == _digest(body)
    except (ValueError, RecursionError):  # NaN and infinity are no JSON
        sound = False
    if not sound:
        raise StateError("the file is damaged or was changed by hand: its digest does not fit its content")
    return dict(document["agent"])


def _rebuild(
    cls: type[AgentType],
    fields: Fields,
    merit: Merit | None,
    make_privatizer: Callable[[dict[str, Any]], Privatizer] | None,
) -> AgentType:
    dimension = fields.integer("dimension", 1)
    fields.numbers("own", packed_size(dimension))  # before anything of that size is made
    solver, confidence = fields.part("solver"), fields.part("confidence")
    names = [field.name for field in dataclasses.fields(Confidence)]
    solver_rule, optimistic = solver.integer("rule", FAIR, WINNER), fields.text("rule") == OPTIMISM
    try:
        prior = _rebuild_prior(fields.part("prior"), dimension)
        solved = Solver(
            solver_rule,
            solver.number("tolerance"),
            solver.integer("max_steps", 1),
            solver.number("rate"),
            solver.number("floor"),
        )
        radius = Confidence(**{name: confidence.number(name) for name in names})
        agent = cls(
            dimension,
            rule=fields.text("rule"),
            merit=_rebuild_merit(fields.part("merit"), merit),
            seed=0,
            prior=None if optimistic else prior,
            minimum_share=fields.number("minimum_share"),
            confidence=radius if optimistic else None,
            privatizer=_rebuild_privatizer(fields, dimension, make_privatizer),
            solver=solved if optimistic else None,
            shift=fields.number("shift"),
            name=fields.text("name"),
        )
    except InvalidInput as error:
        raise StateError(f"the file's settings don't make an agent: {error}") from None
    if agent.decide_from != fields.text("decide_from") or agent.private != fields.flag("private"):
        raise StateError(
            f"privatizer must decide from {fields.text('decide_from')!r}, as when the agent was saved, "
            f"got {agent.decide_from!r}"
        )
    _restore(agent, fields)
    return agent


def _rebuild_prior(fields: Fields, dimension: int) -> Prior:
    return Prior(
        tuple(fields.numbers("mean", dimension).tolist()),
        fields.number("sd"),
        fields.number("noise_sd"),
        fields.flag("learn_noise"),
    )


def _restore(agent: Agent, fields: Fields) -> None:
    """What the agent has learnt, drawn and made, into a fresh agent of the same settings."""
    dimension, size = agent.dimension, packed_size(agent.dimension)
    learner = fields.part("learner")
    agent._learner.statistics[:] = learner.numbers("statistics", size)
    agent._learner.fresh[:] = learner.numbers("fresh", size)
    agent._learner.inverse[:] = learner.numbers("inverse", dimension**2).reshape(dimension, dimension)
    agent._learner.set_count(learner.number("count", 0.0))
    agent._learner.set_noise(
        ridge=learner.number("ridge", 0.0),
        surprise=learner.number("surprise", 0.0),
        observed=learner.integer("observed"),
    )
    agent._updates = learner.integer("updates")
    agent._updates_due = agent._updates_until_derived()
    agent._growth = learner.number("growth", 0.0)
    agent._own[:] = fields.numbers("own", size)
    agent._released_count = fields.integer("released_count")
    agent._local_count = fields.integer("local_count")
    random = fields.part("random")
    if random.text("generator") != "PCG64":
        raise StateError("agent.random.generator must be PCG64")
    position = {"state": random.hexadecimal("state"), "inc": random.hexadecimal("increment")}
    agent._generator.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": position,
        "has_uint32": 0,
        "uinteger": 0,
    }
    agent._draw_ahead()
    agent._next_id = fields.integer("next_id")
    for each in fields.parts("pending"):
        arms = each.integer("arms", 1)
        identity, action = each.integer("id", 0, agent._next_id - 1), each.integer("action", 0, arms - 1)
        values = each.numbers("values", arms + 2 * dimension)
        name = each.text("name") if "name" in each.names() else None
        agent._pending[identity] = Decision(identity, action, values, arms, name)
    latest = fields.part("latest")
    for name in latest.names():
        try:
            agent._latest[name] = Release.from_bytes(latest.octets(name))
        except MessageRefused as error:
            raise StateError(f"agent.latest holds something else than releases: {error}") from None


def _describe_merit(merit: Merit) -> dict[str, Any]:
    for kind, known in _MERITS.items():
        if type(merit) is known:
            values = {field.name: getattr(merit, field.name) for field in dataclasses.fields(known)}  # type: ignore[arg-type]
            return {"kind": kind, **{name: _plain(value) for name, value in values.items()}}
    declared: dict[str, Any] = {}
    if isinstance(merit, Custom):
        names = ("minimum_merit", "lipschitz_constant", "reward_range")
        declared = {name: _plain(getattr(merit, name)) for name in names}
    return {"kind": _CUSTOM, **declared}


def _plain(value: Any) -> Any:
    return [float(part) for part in value] if isinstance(value, tuple) else float(value)


def _rebuild_merit(fields: Fields, given: Merit | None) -> Merit:
    kind = fields.text("kind")
    if kind == _CUSTOM:
        if given is None:
            raise StateError("this agent's merit is a function of your own: give it as merit=")
        if _describe_merit(given) != fields.plain():
            raise StateError(
                "merit must be declared as when the agent was saved: minimum_merit, lipschitz_constant and "
                "reward_range"
            )
        return given
    if kind not in _MERITS:
        raise StateError(f"agent.merit.kind must be one of {', '.join([*_MERITS, _CUSTOM])}, got {kind!r}")
    known = _MERITS[kind]
    values: dict[str, Any] = {}
    for field in dataclasses.fields(known):  # type: ignore[arg-type]
        pair = field.name == "reward_range"
        values[field.name] = (
            tuple(fields.numbers(field.name, 2).tolist()) if pair else fields.number(field.name)
        )
    stored = known(**values)
    if given is not None and given != stored:
        raise StateError(f"merit is in the file, and it is {stored}: leave merit out")
    return stored


def _rebuild_privatizer(
    fields: Fields, dimension: int, make: Callable[[dict[str, Any]], Privatizer] | None
) -> Privatizer:
    stored = fields.part("privatizer").plain()
    if not fields.flag("private"):
        make = lambda state: NonPrivateSums.from_state(state, dimension=dimension)  # noqa: E731
    if make is None:
        raise StateError(
            "this agent is private and its keys are not in the file: give privatizer=, a function that makes "
            "its privatizer from the stored state (see StreamPrivatizer.from_state)"
        )
    try:
        return make(stored)
    except FedFairXError:
        raise  # it says itself what is wrong: another key, other bounds, another mechanism
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise StateError(
            f"no privatizer could be made from the stored state: {type(error).__name__}"
        ) from error
