"""The settings of an agent as databases store them: its name, its actions and its options."""

from __future__ import annotations

import dataclasses
from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any, TypeVar

from fedfairx.agent.by_name import MERITS
from fedfairx.agent.options import Options
from fedfairx.core.confidence import Confidence
from fedfairx.core.merit import Custom, Merit
from fedfairx.core.optimism.solver import FAIR, WINNER, Solver
from fedfairx.core.posterior import Prior
from fedfairx.errors import InvalidInput, StateError
from fedfairx.features import Schema

SCHEMA = 8  # of agents in databases
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
    intercept: bool = False  # of arrays; agents from before there was one have none
    own_record: bool = True

    @property
    def featureless(self) -> bool:
        """Whether actions have names alone."""
        return self.actions is not None and self.features is None and self.dimension == 0

    @property
    def columns(self) -> int:
        """How many coordinates θ has."""
        if self.featureless and not self.intercept:  # the paper's rule has one for each name
            return len(self.actions or ())
        return self.dimension + self.intercept

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
        arms: dict[str, Any] = {} if self.actions is None else {"actions": self.actions}
        if self.features is not None:
            return arms | {"schema": stored_schema(self.features)}
        return arms if self.featureless else arms | {"dimension": self.dimension}

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
