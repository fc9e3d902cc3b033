"""What an agent is and what it has learnt, as plain values; and a file of them.

    {"format": "fedfairx-agent", "schema": 6, "digest": SHA-256 of the agent part, "agent": {…}}

Python writes a float so that reading gives the same bits back. The digest tells a damaged file from a sound
one. A loaded agent goes on with the same decisions, bit for bit: the state holds the sums, V⁻¹ as the
rank-one updates left it, the generator's position, the decisions that wait for a reward, and the releases.
Only the noise of releases to come, and the prefix of ids to come, are drawn anew: a file can be loaded twice.

The file is as secret as the data: it holds exact sums and the contexts of waiting decisions. Only its owner
may read it (mode 0600). Keys and a user's own function are never in it.
"""

from __future__ import annotations

import hashlib
import json
import os
from typing import Any

import numpy as np

from fedfairx.agent import parts
from fedfairx.agent.deciding import Deciding
from fedfairx.agent.fields import Fields
from fedfairx.agent.model import Knowledge
from fedfairx.core.marginal_likelihood import next_refit
from fedfairx.core.merit import Merit
from fedfairx.core.partners import LEVELS
from fedfairx.core.rules import OPTIMISM
from fedfairx.core.statistics import packed_size
from fedfairx.errors import InvalidInput, MessageRefused, StateError
from fedfairx.privacy import Release
from fedfairx.util.files import write_atomically

FORMAT = "fedfairx-agent"
SCHEMA = 6


def write(body: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write a state; either all of it is there afterwards, or what was there before."""
    try:
        text = json.dumps({"format": FORMAT, "schema": SCHEMA, "digest": _digest(body), "agent": body})
    except ValueError:
        raise StateError("this agent's state can't be saved: it holds NaN or infinity") from None
    write_atomically(path, text + "\n")


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The state that `write` wrote, once the file is known to be sound and of a schema we read."""
    with open(path, "rb") as file:
        content = file.read()
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


def _digest(body: object) -> str:
    text = json.dumps(body, sort_keys=True, separators=(",", ":"), allow_nan=False)
    return hashlib.sha256(text.encode()).hexdigest()


# --- what an agent is -------------------------------------------------------------------------------------


def describe_settings(agent: Knowledge) -> dict[str, Any]:
    """What an agent was made with; its privatizer has a state of its own."""
    return {
        "name": agent.name,
        "dimension": agent.dimension,
        "actions": None if agent._actions is None else list(agent._actions.names),
        "merit": parts.describe_merit(agent.merit),
        "reward_range": None if agent.reward_range is None else list(agent.reward_range),
        "rule": agent.rule,
        "minimum_share": agent.minimum_share,
        "prior": parts.describe_prior(agent.prior, agent.dimension),
        "confidence": parts.describe_confidence(agent.confidence),
        "solver": parts.describe_solver(agent.solver),
        "shift": float(agent.shift),
        "partners": agent.partners_are,
    }


def settings_from(fields: Fields, merit: Merit | None) -> dict[str, Any]:
    """Arguments that make such an agent again, but for its privatizer."""
    dimension, rule = fields.integer("dimension", 1), fields.text("rule")
    optimistic = rule == OPTIMISM
    try:
        prior = parts.prior_from(fields.part("prior"), dimension)
        solver = parts.solver_from(fields.part("solver"))
        region = parts.confidence_from(fields.part("confidence"))
        actions = fields.texts("actions")
        return {
            "dimension": dimension if actions is None else None,
            "actions": actions,
            "rule": rule,
            "merit": parts.merit_from(fields.part("merit"), merit),
            "reward_range": fields.pair("reward_range"),
            "seed": 0,
            "prior": None if optimistic else prior,
            "minimum_share": fields.number("minimum_share"),
            "confidence": region if optimistic else None,
            "solver": solver if optimistic else None,
            "shift": fields.number("shift"),
            "partners": fields.text("partners"),
            "name": fields.text("name"),
        }
    except InvalidInput as error:
        raise StateError(f"the file's settings don't make an agent: {error}") from None


# --- what it has learnt -----------------------------------------------------------------------------------


def describe_knowledge(agent: Knowledge) -> dict[str, Any]:
    """What an agent has learnt and holds of others."""
    learner = agent._learner
    return {
        "learner": {
            "statistics": learner.statistics.tolist(),
            "fresh": learner.fresh.tolist(),
            "inverse": learner.inverse.ravel().tolist(),
            "count": learner.count,
            "ridge": learner.ridge,
            "largest_reward": agent._limits.high,
            "noise_variance": learner.noise_variance,
            "squares": learner.squares,
            "observed": learner.observed,
            "updates": agent._updates,
            "growth": float(agent._growth),
        },
        "actions": None if agent._actions is None else list(agent._actions.names),
        "retired": None if agent._actions is None else list(agent._actions.retired),
        "own": agent._own.tolist(),
        "released_count": agent._released_count,
        "local_count": agent._local_count,
        "marks": [{"count": count, "sums": mark.tolist()} for count, mark in agent._marks.items()],
        "judged": [
            {"name": name, "weights": weights.tolist(), "power": agent._powers[name]}
            for name, weights in agent._weights.items()
        ],
        "latest": {name: release.to_bytes().hex() for name, release in agent._latest.items()},
    }


def restore_knowledge(agent: Knowledge, fields: Fields) -> None:
    """What `describe_knowledge` described, into an agent of the same settings."""
    actions = fields.texts("actions")
    if actions is not None:  # there may have been fewer, or more, than the agent has now
        try:
            agent._begin_actions(actions, fields.texts("retired") or [])
        except InvalidInput as error:
            raise StateError(f"agent.actions can't be: {error}") from None
    dimension, size = agent.dimension, packed_size(agent.dimension)
    learner = fields.part("learner")
    agent._learner.statistics[:] = learner.numbers("statistics", size)
    agent._learner.fresh[:] = learner.numbers("fresh", size)
    agent._learner.inverse[:] = learner.numbers("inverse", dimension**2).reshape(dimension, dimension)
    agent._learner.set_count(learner.number("count", 0.0))
    agent._learner.restore(
        ridge=learner.number("ridge", 0.0),
        variance=learner.number("noise_variance", 0.0),
        squares=learner.number("squares", 0.0),
        observed=learner.integer("observed"),
    )
    agent._limits.set_largest(learner.number("largest_reward"))
    agent._updates = learner.integer("updates")
    agent._growth = learner.number("growth", 0.0)
    agent._own[:] = fields.numbers("own", size)
    agent._released_count = fields.integer("released_count")
    agent._local_count = fields.integer("local_count")
    agent._refit_at = next_refit(agent.observed)
    agent._marks = {each.integer("count"): each.numbers("sums", size) for each in fields.parts("marks")}
    judged = list(fields.parts("judged"))
    agent._weights = {each.text("name"): each.numbers("weights", LEVELS) for each in judged}
    agent._powers = {each.text("name"): each.number("power", 0.0) for each in judged}
    latest = fields.part("latest")
    agent._latest = {}
    for name in latest.names():
        try:
            agent._latest[name] = Release.from_bytes(latest.octets(name))
        except MessageRefused as error:
            raise StateError(f"agent.latest holds something else than releases: {error}") from None


# --- chance -----------------------------------------------------------------------------------------------


def describe_random(generator: np.random.Generator, ahead: int) -> dict[str, Any]:
    """The generator's position, as if the last `ahead` numbers had not been drawn."""
    position: Any = np.random.PCG64()
    position.state = generator.bit_generator.state
    position.advance(-ahead)
    state = position.state
    return {
        "generator": state["bit_generator"],
        "state": hex(state["state"]["state"]),  # 128 bits: more than a JSON number may have elsewhere
        "increment": hex(state["state"]["inc"]),
    }


def restore_random(generator: np.random.Generator, fields: Fields) -> None:
    """Put a generator where `describe_random` found one."""
    if fields.text("generator") != "PCG64":
        raise StateError("agent.random.generator must be PCG64")
    position = {"state": fields.hexadecimal("state"), "inc": fields.hexadecimal("increment")}
    generator.bit_generator.state = {
        "bit_generator": "PCG64",
        "state": position,
        "has_uint32": 0,
        "uinteger": 0,
    }


# --- all of it --------------------------------------------------------------------------------------------


def describe_progress(agent: Deciding) -> dict[str, Any]:
    """What an agent has learnt, and where chance stands."""
    return {
        **describe_knowledge(agent),
        "random": describe_random(agent._generator, len(agent._uniforms)),
    }


def restore_progress(agent: Deciding, fields: Fields) -> None:
    """What `describe_progress` described, into an agent of the same settings."""
    restore_knowledge(agent, fields)
    restore_random(agent._generator, fields.part("random"))
    agent._draw_ahead()
