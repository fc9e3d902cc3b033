"""The settings of an agent as files and databases store them: its name, its actions and its options."""

from __future__ import annotations

import dataclasses
import json
import os
from collections.abc import Callable, Mapping
from dataclasses import dataclass
from functools import partial
from typing import Any, TypeVar

from fedfairx.agent.by_name import MERITS
from fedfairx.agent.options import Options
from fedfairx.core.confidence import Confidence
from fedfairx.core.merit import Custom, Merit
from fedfairx.core.optimism.solver import FAIR, WINNER, Solver
from fedfairx.core.posterior import Prior
from fedfairx.errors import FedFairXError, InvalidInput, StateError
from fedfairx.features import Schema
from fedfairx.privacy import NonPrivateSums, Privatizer
from fedfairx.util.canonical_json import digest_of
from fedfairx.util.files import write_atomically

FORMAT = "fedfairx-agent"
SCHEMA = 7  # of agents in databases
FILE_SCHEMA = 8
_MERITS: dict[str, type[Merit]] = {name: type(merit) for name, merit in MERITS.items()}
CUSTOM = "custom"

Value = TypeVar("Value")


def read_value(values: Any, kind: type[Value], where: str) -> Value:
    """Convert plain values to a dataclass. `StateError` names the field and its type, never its content."""
    import msgspec

    try:
        # Via JSON, where NaN and infinity become null and are refused.
        return msgspec.json.decode(msgspec.json.encode(values), type=kind)
    except (msgspec.MsgspecError, TypeError, ValueError, OverflowError, RecursionError) as error:
        raise StateError(f"{where} can't be read: {error}") from None


def plain_value(value: Any) -> Any:
    """Convert a dataclass to the values of its JSON."""
    import msgspec

    return msgspec.to_builtins(value)


# --- merit ------------------------------------------------------------------------------------------------


def describe_merit(merit: Merit) -> dict[str, Any]:
    """A merit as plain values; for a user's own function, only what was declared about it."""
    kind = next((kind for kind, merit_type in _MERITS.items() if type(merit) is merit_type), CUSTOM)
    if kind == CUSTOM and not isinstance(merit, Custom):
        return {"kind": kind}
    names = [item.name for item in dataclasses.fields(merit) if item.name != "function"]  # type: ignore[arg-type]
    return {"kind": kind, **{name: floats(getattr(merit, name)) for name in names}}


def floats(value: Any) -> Any:
    """A number or a tuple of numbers, as JSON has floats."""
    return [float(part) for part in value] if isinstance(value, tuple) else float(value)


def merit_from(values: Mapping[str, Any], merit: Merit | None = None) -> Merit:
    """The merit with this description; a user's own function must be given as `merit`."""
    kind = values.get("kind")
    if kind == CUSTOM:
        if merit is None:
            raise StateError("this agent's merit is a function of your own: give it as merit=")
        if describe_merit(merit) != values:
            raise StateError(
                "merit must be declared as when the agent was saved: minimum_merit, lipschitz_constant and "
                "reward_range"
            )
        return merit
    if kind not in _MERITS:
        raise StateError(f"merit.kind must be one of {', '.join([*_MERITS, CUSTOM])}, got {kind!r}")
    own = read_value(values, _MERITS[kind], "merit")
    if merit is not None and merit != own:
        raise StateError(f"merit is in the file, and it is {own}: leave merit out")
    return own


# --- settings ---------------------------------------------------------------------------------------------


def stored_schema(values: Mapping[str, Any]) -> Schema:
    """The schema that `Schema.to_dict` described."""
    try:
        return Schema.from_dict(values)
    except InvalidInput as error:
        raise StateError(f"the stored features don't make a schema: {error}") from None


@dataclass(frozen=True)
class SolverSettings:
    """A `Solver` as an object with named fields."""

    rule: int
    tolerance: float
    max_steps: int
    rate: float
    floor: float

    def __post_init__(self) -> None:
        if not FAIR <= self.rule <= WINNER or self.max_steps < 1:
            raise ValueError("must be a solver's rule, and at least one step")


@dataclass(frozen=True)
class StoredSettings:
    """The settings of an agent, without its privatizer, which has its own state."""

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
    slots: tuple[float, ...]
    half_life: float | str | None
    features: dict[str, Any] | None  # `Schema.to_dict`

    @classmethod
    def of(
        cls,
        name: str,
        dimension: int,
        actions: list[str] | None,
        options: Options,
        features: dict[str, Any] | None,
    ) -> StoredSettings:
        """The settings of an agent whose options are filled in (`Options.for_agent`)."""
        assert options.merit is not None
        values = {item.name: getattr(options, item.name, None) for item in dataclasses.fields(cls)}
        solver = None if options.solver is None else SolverSettings(*options.composed.solver)
        values |= {"name": name, "dimension": dimension, "actions": actions, "features": features}
        return cls(**values | {"merit": describe_merit(options.merit), "solver": solver})

    def arms(self) -> dict[str, Any]:
        """The arguments `dimension`, `actions` or `schema` of `Agent`."""
        if self.features is not None:
            return {"schema": stored_schema(self.features)}
        return {"dimension": self.dimension} if self.actions is None else {"actions": self.actions}

    def options(self, merit: Merit | None = None) -> Options:
        """The options of the agent; a user's own merit must be given."""
        values: Any = {name: value for name, value in vars(self).items() if hasattr(Options, name)}
        if self.solver is not None:
            values["solver"] = Solver(*dataclasses.astuple(self.solver))
        values["merit"] = merit_from(self.merit, merit)
        try:
            return Options(**values)
        except InvalidInput as error:
            raise StateError(f"the stored settings don't make an agent: {error}") from None


@dataclass(frozen=True)
class IdPrefix:
    """The prefix of the ids from number `first` on."""

    first: int
    origin: str


@dataclass(frozen=True)
class SavedAgent:
    """What a file holds beside settings and state."""

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
    """Make a privatizer from its stored state by `make`, which exact sums do not need."""
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
        raise  # its text says what is wrong: another key, other bounds, another mechanism
    except (KeyError, TypeError, ValueError, OverflowError) as error:
        raise StateError(
            f"no privatizer could be made from the stored state: {type(error).__name__}"
        ) from error


# --- files ------------------------------------------------------------------------------------------------


def write(body: dict[str, Any], path: str | os.PathLike[str]) -> None:
    """Write an agent's file, {"format", "schema", "digest", "agent": body}, atomically.

    Only its owner may read it (mode 0600). The digest reveals a damaged file.
    """
    try:
        text = json.dumps({"format": FORMAT, "schema": FILE_SCHEMA, "digest": digest_of(body), "agent": body})
    except ValueError:
        raise StateError("this agent's state can't be saved: it holds NaN or infinity") from None
    write_atomically(path, text + "\n")


def read(path: str | os.PathLike[str]) -> dict[str, Any]:
    """The body that `write` wrote, after checking the file's format, schema and digest."""
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
    if schema != FILE_SCHEMA:  # no earlier one was in a release
        which = "update it" if schema > FILE_SCHEMA else "an earlier version wrote the file"
        raise StateError(
            f"the file has schema {schema}, and this fedfairx reads schema {FILE_SCHEMA}: {which}"
        )
    body = document.get("agent")
    try:
        sound = isinstance(body, dict) and document.get("digest") == digest_of(body)
    except (ValueError, RecursionError):  # NaN and infinity are not JSON
        sound = False
    if not sound:
        raise StateError("the file is damaged or was changed by hand: its digest does not fit its content")
    return dict(document["agent"])
