"""What the verbs share: flags from the fields of a dataclass, named things with parameters, printing."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from typing import Any, TypeVar

from fedfairx.agent.schedules import Schedule, schedule
from fedfairx.core import merit
from fedfairx.core.merit import Merit
from fedfairx.errors import InvalidInput
from fedfairx.util.config import READERS, Setting, settings_of
from fedfairx.util.formatting import text_table

Thing = TypeVar("Thing")
Flags = TypeVar("Flags")
Fill = Callable[[argparse.ArgumentParser], None]


class VerbParser(argparse.ArgumentParser):
    """The parser of a verb, which makes its flags when it is first used: the other verbs cost nothing."""

    fill: Fill | None = None

    def filled(self) -> VerbParser:
        """The parser with its flags."""
        if self.fill is not None:
            fill, self.fill = self.fill, None
            fill(self)
        return self

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        return super(VerbParser, self.filled()).parse_known_args(args, namespace)


class _Help(argparse.RawDescriptionHelpFormatter):
    """Examples as they are written, and no name broken at a hyphen."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


@dataclass(frozen=True, kw_only=True)
class Output:
    """How a verb answers.

    json: print the answer as JSON on standard output.
    """

    json: bool = False


def add_parser(
    verbs: Any, name: str, run: Callable[[argparse.Namespace], int], fill: Fill, *, summary: str, example: str
) -> None:
    """Add a verb whose flags `fill` adds. The first sentence of the summary is shown in the list of verbs."""
    shown = textwrap.indent(textwrap.dedent(example).strip(), "  ")
    parser: VerbParser = verbs.add_parser(
        name,
        help=summary.partition(". ")[0].rstrip("."),
        description=textwrap.fill(summary, 100),
        epilog=f"example:\n{shown}",
        formatter_class=_Help,
    )
    parser.set_defaults(run=run)
    parser.fill = fill


def add_verb(
    verbs: Any, name: str, run: Callable[[Flags], int], kind: type[Flags], *, summary: str, example: str
) -> None:
    """Add a verb whose flags are the fields of a dataclass, an instance of which `run` is called with."""

    def fill(parser: argparse.ArgumentParser) -> None:
        for each in flags_of(kind):
            each.add_to(parser)

    def perform(args: argparse.Namespace) -> int:
        return run(kind(**given(args, flags_of(kind))))

    add_parser(verbs, name, perform, fill, summary=summary, example=example)


def flags_of(kind: type) -> tuple[Setting, ...]:
    return settings_of(kind, switches=True)


def given(args: argparse.Namespace, settings: Iterable[Setting]) -> dict[str, Any]:
    """The values of flags that were given, by the names of their settings."""
    values = ((each, each.given(args)) for each in settings)
    return {
        each.name: each.read(value, each.dest if each.positional else each.flags[0])
        for each, value in values
        if value is not None
    }


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns under each other, numbers as they come."""
    print(text_table(columns, rows))


def split(text: object) -> tuple[str, dict[str, float]]:
    """ "paper:gap=50" → ("paper", {"gap": 50.0})."""
    name, _, rest = _text(text).partition(":")
    values: dict[str, float] = {}
    for part in filter(None, rest.split(",")):
        key, sign, value = part.partition("=")
        try:
            values[key.strip()] = float(value)
        except ValueError:
            sign = ""
        if not sign:
            raise InvalidInput(f"{name} takes parameters as name=number, got {part!r}")
    return name.strip(), values


def as_schedule(text: object) -> Schedule:
    """A schedule by name, with parameters: "paper:gap=50", "doubling:start=10"."""
    name, values = split(text)
    return _with(schedule(name), name, values)


def as_merit(text: object) -> Merit:
    """A merit by name, with parameters: "doubling:0.1", "exponential:steepness=10", "affine:offset=0.1"."""
    kinds: dict[str, Merit] = {
        "exponential": merit.Exponential(),
        "affine": merit.Affine(),
        "power": merit.Power(),
        "logistic": merit.Logistic(),
    }
    text = _text(text)
    kind, _, rest = text.partition(":")
    if kind.strip() == "doubling":
        try:
            return merit.Exponential.doubling(float(rest))
        except ValueError:
            raise InvalidInput(f'merit must be like "doubling:0.1", got merit={text!r}') from None
    name, values = split(text)
    if name not in kinds:
        raise InvalidInput(f"merit must be one of doubling, {', '.join(kinds)}, got merit={name!r}")
    return _with(kinds[name], name, values)


READERS.update({Merit: as_merit, Schedule: as_schedule})


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f'a name must be text such as "affine:slope=2", got {type(value).__name__}')
    return value


def _with(thing: Thing, name: str, values: Mapping[str, float]) -> Thing:
    fields = getattr(thing, "__dataclass_fields__", {})
    for key in values:
        if key not in fields:
            known = ", ".join(fields) or "none"
            raise InvalidInput(f"{name} has no parameter {key!r}; it has: {known}")
    integers = {key: "int" in str(fields[key].type) for key in values}
    given: dict[str, Any] = {
        key: _whole(key, value) if integers[key] else value for key, value in values.items()
    }
    changed: Thing = replace(thing, **given) if given else thing  # type: ignore[type-var]
    return changed


def _whole(key: str, value: float) -> int:
    if value != int(value):
        raise InvalidInput(f"{key} must be an integer, got {key}={value:g}")
    return int(value)
