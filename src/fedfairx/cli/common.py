"""What all commands share: flags and help from a dataclass, named objects with parameters, printing."""

from __future__ import annotations

import argparse
import inspect
import json
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TYPE_CHECKING, Any, Self, TypeVar

from fedfairx.agent.schedules import Schedule, schedule
from fedfairx.core.merit import Affine, Exponential, Logistic, Merit, Power
from fedfairx.core.slates import Weights, read_slots
from fedfairx.errors import InvalidInput
from fedfairx.util.config import READERS, Setting, settings_of

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Thing = TypeVar("Thing")
FIGURES = (".png", ".svg", ".pdf")
MERITS: dict[str, Merit] = {
    type(each).__name__.lower(): each for each in (Exponential(), Affine(), Power(), Logistic())
}


def slots_of(text: str) -> Weights:
    """The weights of slots from the flag: their number, or weights with commas between."""
    try:
        return read_slots(text)
    except InvalidInput as error:
        raise InvalidInput(f"--{error}") from None


class VerbParser(argparse.ArgumentParser):
    """The parser of a command. It adds its flags on first use, so that unused commands cost nothing."""

    fill: Callable[[argparse.ArgumentParser], None] | None = None

    def filled(self) -> VerbParser:
        """The parser with its flags."""
        if self.fill is not None:
            fill, self.fill = self.fill, None
            fill(self)
        return self

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        return super(VerbParser, self.filled()).parse_known_args(args, namespace)


class _Help(argparse.RawDescriptionHelpFormatter):
    """Keep examples as written, and break no name at a hyphen."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


@dataclass(frozen=True, kw_only=True)
class Verb:
    """A command. Its fields are its flags, and its docstring is its help.

    The docstring has a summary, whose first sentence is shown in the list of commands; then examples,
    indented; then a line for each field. A field without such a line is not a flag.
    """

    @classmethod
    def add_to(cls, verbs: Any, name: str) -> None:
        """Add this command to the subparsers of another one."""
        summary, example, *_ = inspect.cleandoc(cls.__doc__ or "").split("\n\n")
        summary = " ".join(summary.split())
        parser: VerbParser = verbs.add_parser(
            name,
            help=summary.partition(". ")[0].rstrip("."),
            description=textwrap.fill(summary, 100),
            epilog=f"example:\n{textwrap.indent(textwrap.dedent(example), '  ')}",
            formatter_class=_Help,
        )
        parser.set_defaults(run=lambda args: cls.read(args).run())
        parser.fill = cls.fill

    @classmethod
    def fill(cls, parser: argparse.ArgumentParser) -> None:
        """Add the flags."""
        for each in settings_of(cls, switches=True):
            each.add_to(parser)

    @classmethod
    def read(cls, args: argparse.Namespace) -> Self:
        """The command with the flags that were given."""
        return cls(**given(args, settings_of(cls, switches=True)))

    def run(self) -> int:
        """Run the command; return its exit code."""
        raise NotImplementedError


@dataclass(frozen=True, kw_only=True)
class Output(Verb):
    """A command with an answer that programs can read.

    json: print the answer as JSON on standard output.
    """

    json: bool = False

    def answer(self, values: object, text: str) -> None:
        """Print the answer, as JSON or as text."""
        print(as_json(values) if self.json else text)


def check_output(name: str, path: Path | None, endings: Sequence[str]) -> None:
    """Refuse an output file that could not be written, before any work is done."""
    if path is None:
        return
    if path.suffix not in endings:
        raise InvalidInput(f"{name} must end in {', '.join(endings)}, got {name}={str(path)!r}")
    if not path.parent.is_dir():
        raise InvalidInput(f"{name} must lie in a folder that exists, got {name}={str(path)!r}")
    if path.is_dir():
        raise InvalidInput(f"{name} must be a file, got the folder {name}={str(path)!r}")


def write_figure(figure: Figure, path: Path) -> None:
    """Write a figure in the format that the file's name ends in."""
    from fedfairx.experiments.report.figures import drawn
    from fedfairx.experiments.sweep.partial_files import write_whole
    from fedfairx.util.figure_style import styled

    with styled():
        write_whole(path, drawn(figure, path.suffix[1:]))


def given(args: argparse.Namespace, settings: Iterable[Setting]) -> dict[str, Any]:
    """The values of the flags that were given, by name."""
    values = ((each, each.given(args)) for each in settings)
    return {
        each.name: each.read(value, each.dest if each.positional else each.flags[0])
        for each, value in values
        if value is not None
    }


def as_json(values: object) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False)


def split(text: object) -> tuple[str, dict[str, float]]:
    """ "paper:gap=50" → ("paper", {"gap": 50.0})."""
    name, _, rest = _text(text).partition(":")
    values: dict[str, float] = {}
    for part in filter(None, rest.split(",")):
        key, _, value = part.partition("=")
        try:
            values[key.strip()] = float(value)
        except ValueError:
            raise InvalidInput(f"{name} takes parameters as name=number, got {part!r}") from None
    return name.strip(), values


def as_schedule(text: object) -> Schedule:
    """A schedule by name, with parameters: "paper:gap=50", "doubling:start=10"."""
    name, values = split(text)
    return _with(schedule(name), name, values)


def as_merit(text: object) -> Merit:
    """A merit by name, with parameters: "doubling:0.1", "exponential:steepness=10", "affine:offset=0.1"."""
    kind, _, rest = _text(text).partition(":")
    if kind.strip() == "doubling":
        try:
            return Exponential.doubling(float(rest))
        except ValueError:
            raise InvalidInput(f'merit must be like "doubling:0.1", got merit={text!r}') from None
    name, values = split(text)
    if name not in MERITS:
        raise InvalidInput(f"merit must be one of doubling, {', '.join(MERITS)}, got merit={name!r}")
    return _with(MERITS[name], name, values)


READERS.update({Merit: as_merit, Schedule: as_schedule})


def _text(value: object) -> str:
    if not isinstance(value, str):
        raise InvalidInput(f'a name must be text such as "affine:slope=2", got {type(value).__name__}')
    return value


def _with(thing: Thing, name: str, values: Mapping[str, float]) -> Thing:
    fields = getattr(thing, "__dataclass_fields__", {})
    given: dict[str, Any] = {}
    for key, value in values.items():
        if key not in fields:
            raise InvalidInput(f"{name} has no parameter {key!r}; it has: {', '.join(fields) or 'none'}")
        whole = "int" in str(fields[key].type)
        if whole and not value.is_integer():
            raise InvalidInput(f"{key} must be an integer, got {key}={value:g}")
        given[key] = int(value) if whole else value
    changed: Thing = replace(thing, **given) if given else thing  # type: ignore[type-var]
    return changed
