"""What an agent is made of, as plain values and back: merit, prior, region, solver."""

from __future__ import annotations

import dataclasses
from collections.abc import Callable
from typing import Any

from fedfairx.agent.decision import Decision
from fedfairx.agent.fields import Fields
from fedfairx.core.confidence import Confidence
from fedfairx.core.merit import Affine, Custom, Exponential, Logistic, Merit, Power
from fedfairx.core.optimism.solver import FAIR, WINNER, Solver
from fedfairx.core.posterior import Prior
from fedfairx.errors import FedFairXError, StateError
from fedfairx.privacy import NonPrivateSums, Privatizer

_MERITS: dict[str, type[Merit]] = {
    "exponential": Exponential,
    "affine": Affine,
    "power": Power,
    "logistic": Logistic,
}
_CUSTOM = "custom"


def describe_merit(merit: Merit) -> dict[str, Any]:
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


def merit_from(fields: Fields, given: Merit | None) -> Merit:
    kind = fields.text("kind")
    if kind == _CUSTOM:
        if given is None:
            raise StateError("this agent's merit is a function of your own: give it as merit=")
        if describe_merit(given) != fields.plain():
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


def describe_prior(prior: Prior, dimension: int) -> dict[str, Any]:
    return {
        "mean": prior.means(dimension).tolist() if isinstance(prior.mean, tuple) else float(prior.mean),
        "sd": float(prior.sd),
        "noise_sd": float(prior.noise_sd),
        "learn": prior.learn,
    }


def prior_from(fields: Fields, dimension: int) -> Prior:
    several = isinstance(fields.plain().get("mean"), list)
    return Prior(
        tuple(fields.numbers("mean", dimension).tolist()) if several else fields.number("mean"),
        fields.number("sd"),
        fields.number("noise_sd"),
        fields.flag("learn"),
    )


def describe_confidence(confidence: Confidence) -> dict[str, Any]:
    return {name: float(value) for name, value in dataclasses.asdict(confidence).items()}


def confidence_from(fields: Fields) -> Confidence:
    return Confidence(**{each.name: fields.number(each.name) for each in dataclasses.fields(Confidence)})


def describe_solver(solver: Solver) -> dict[str, Any]:
    return {
        "rule": int(solver.rule),
        "tolerance": float(solver.tolerance),
        "max_steps": int(solver.max_steps),
        "rate": float(solver.rate),
        "floor": float(solver.floor),
    }


def solver_from(fields: Fields) -> Solver:
    return Solver(
        fields.integer("rule", FAIR, WINNER),
        fields.number("tolerance"),
        fields.integer("max_steps", 1),
        fields.number("rate"),
        fields.number("floor"),
    )


def decision_from(fields: Fields, dimension: int, following: int) -> Decision:
    """A waiting decision, of a number below `following`; `dimension` is that of the agent then."""
    arms = fields.integer("arms", 1)
    made = Decision(
        fields.integer("number", 0, following - 1),
        fields.integer("action", 0, arms - 1),
        fields.numbers("values", arms + 2 * dimension),
        arms,
        fields.text("name") if "name" in fields.names() else None,
        fields.text("origin"),
        fields.integer("time"),
    )
    made.drawn = fields.integer("drawn", 0, arms - 1)
    return made


def privatizer_from(
    fields: Fields, dimension: int, make: Callable[[dict[str, Any]], Privatizer] | None
) -> Privatizer:
    """What `make` makes of the stored state; plain sums need no maker."""
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
