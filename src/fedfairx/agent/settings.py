"""What an agent was made with, as files and databases store it: its name, its arms and its options."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from fedfairx.agent.options import Options
from fedfairx.core.confidence import Confidence
from fedfairx.core.merit import Affine, Custom, Exponential, Logistic, Merit, Power
from fedfairx.core.optimism.solver import FAIR, WINNER, Solver
from fedfairx.core.posterior import Prior
from fedfairx.core.rules import OPTIMISM
from fedfairx.errors import FedFairXError, InvalidInput, StateError
from fedfairx.privacy import NonPrivateSums, Privatizer
from fedfairx.util.canonical_json import digest_of
from fedfairx.util.files import write_atomically

FORMAT = "fedfairx-agent"
SCHEMA = 6
_MERITS: dict[str, type[Merit]] = {
    "exponential": Exponential,
    "affine": Affine,
    "power": Power,
    "logistic": Logistic,
}
CUSTOM = "custom"

Value = TypeVar("Value")


def read_value(values: Any, kind: type[Value], where: str) -> Value:
    """A dataclass from plain values. `StateError` names the field and its type, never its content."""
    import msgspec

    try:
        # By way of JSON: NaN and infinity become null there, and are refused.
        return msgspec.json.decode(msgspec.json.encode(values), type=kind)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise StateError(f"{where} can't be read: {error}") from None


def plain_value(value: Any) -> Any:
    """A dataclass as JSON has it."""
    import msgspec

    return msgspec.to_builtins(value)


# --- merit ------------------------------------------------------------------------------------------------


def describe_merit(merit: Merit) -> dict[str, Any]:
    """A merit as plain values; of a user's own function only what was declared of it."""
    for kind, known in _MERITS.items():
        if type(merit) is known:
            values = {field.name: getattr(merit, field.name) for field in dataclasses.fields(known)}  # type: ignore[arg-type]
            return {"kind": kind, **{name: _floats(value) for name, value in values.items()}}
    declared: dict[str, Any] = {}
    if isinstance(merit, Custom):
        names = ("minimum_merit", "lipschitz_constant", "reward_range")
        declared = {name: _floats(getattr(merit, name)) for name in names}
    return {"kind": CUSTOM, **declared}


def _floats(value: Any) -> Any:
    return [float(part) for part in value] if isinstance(value, tuple) else float(value)


def merit_from(values: Mapping[str, Any], given: Merit | None = None) -> Merit:
    """The merit that was described; a user's own function must be `given`."""
    kind = values.get("kind")
    if kind == CUSTOM:
        if given is None:
            raise StateError("this agent's merit is a function of your own: give it as merit=")
        if describe_merit(given) != values:
            raise StateError(
                "merit must be declared as when the agent was saved: minimum_merit, lipschitz_constant and "
                "reward_range"
            )
        return given
    if kind not in _MERITS:
        raise StateError(f"merit.kind must be one of {', '.join([*_MERITS, CUSTOM])}, got {kind!r}")
    stored = read_value(values, _MERITS[kind], "merit")
    if given is not None and given != stored:
        raise StateError(f"merit is in the file, and it is {stored}: leave merit out")
    return stored


# --- settings ---------------------------------------------------------------------------------------------


@dataclass(frozen=True)
class SolverSettings:
    """A `Solver` by the names of its parts."""

    rule: int
    tolerance: float
    max_steps: int
    rate: float
    floor: float

    def __post_init__(self) -> None:
        if not FAIR <= self.rule <= WINNER or self.max_steps < 1:
            raise ValueError("must be a solver's rule, and at least one step")


@dataclass(frozen=True)
class AgentSettings:
    """What an agent was made with; its privatizer has a state of its own."""

    name: str
    dimension: int
    actions: list[str] | None
    merit: dict[str, Any]
    reward_range: tuple[float, float] | None
    rule: str
    minimum_share: float
    prior: Prior | None
    confidence: Confidence | None
    solver: SolverSettings | None
    shift: float
    partners: str

    @classmethod
    def of(cls, name: str, dimension: int, actions: list[str] | None, options: Options) -> AgentSettings:
        """The settings of an agent whose options are filled in (`Options.for_agent`)."""
        merit, solver = options.merit, options.composed.solver
        assert merit is not None
        assert options.rule is not None
        return cls(
            name=name,
            dimension=dimension,
            actions=actions,
            merit=describe_merit(merit),
            reward_range=options.reward_range,
            rule=options.rule,
            minimum_share=float(options.minimum_share),
            prior=options.prior,
            confidence=options.confidence,
            solver=None if options.solver is None else SolverSettings(*solver),
            shift=float(options.shift),
            partners=options.partners,
        )

    def arms(self) -> dict[str, Any]:
        """The arguments of `Agent` that say what it chooses from."""
        return {"dimension": self.dimension} if self.actions is None else {"actions": self.actions}

    def options(self, merit: Merit | None = None) -> Options:
        """The options of such an agent; a merit of the user's own must be given."""
        optimism = self.rule == OPTIMISM
        try:
            return Options(
                rule=self.rule,
                merit=merit_from(self.merit, merit),
                reward_range=self.reward_range,
                minimum_share=self.minimum_share,
                prior=None if optimism else self.prior,
                confidence=self.confidence if optimism else None,
                solver=Solver(*dataclasses.astuple(self.solver)) if optimism and self.solver else None,
                shift=self.shift,
                partners=self.partners,
            )
        except InvalidInput as error:
            raise StateError(f"the stored settings don't make an agent: {error}") from None


@dataclass(frozen=True)
class IdPrefix:
    """The prefix of the ids from number `first` on."""

    first: int
    origin: str


@dataclass(frozen=True)
class SavedAgent:
    """What a file has beside settings and state."""

    next_number: int
    origins: list[IdPrefix]
    decide_from: str
    private: bool


def stored_privatizer(
    state: Mapping[str, Any] | None,
    dimension: int,
    *,
    private: bool,
    make: Callable[[dict[str, Any]], Privatizer] | None,
) -> Privatizer:
    """What `make` makes of a privatizer's stored state; exact sums need no maker."""
    if state is None:
        raise StateError("agent.privatizer must be an object, got null")
    if not private:
        make = partial(NonPrivateSums.from_state, dimension=dimension)
    if make is None:
        raise StateError(
            "this agent is private and its keys are not in the file: give privatizer=, a function that makes "
            "its privatizer from the stored state (see StreamPrivatizer.from_state)"
        )
    try:
        return make(dict(state))
    except FedFairXError:
        raise  # it says itself what is wrong: another key, other bounds, another mechanism
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise StateError(
            f"no privatizer could be made from the stored state: {type(error).__name__}"
        ) from error


# --- files ------------------------------------------------------------------------------------------------


def write(body: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write an agent's file, {"format", "schema", "digest", "agent": body}, whole or not at all.

    Only its owner may read it (mode 0600). The digest tells a damaged file from a sound one.
    """
    try:
        text = json.dumps({"format": FORMAT, "schema": SCHEMA, "digest": digest_of(body), "agent": body})
    except ValueError:
        raise StateError("this agent's state can't be saved: it holds NaN or infinity") from None
    write_atomically(path, text + "\n")


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The body that `write` wrote, once the file is known to be sound and of a schema that we read."""
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
        sound = isinstance(body, dict) and document.get("digest") == digest_of(body)
    except (ValueError, RecursionError):  # NaN and infinity are not JSON
        sound = False
    if not sound:
        raise StateError("the file is damaged or was changed by hand: its digest does not fit its content")
    return dict(document["agent"])
