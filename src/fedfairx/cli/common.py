"""What all commands share: flags and help from a dataclass, named objects with parameters, printing."""

from __future__ import annotations

import argparse
import inspect
import io
import json
import os
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import dataclass, field
from pathlib import Path
from typing import TYPE_CHECKING, Any, NoReturn, Self, TypeVar

from fedfairx.errors import InvalidInput
from fedfairx.util.config import Setting, settings_of
from fedfairx.util.files import write_atomically
from fedfairx.util.places import meant

if TYPE_CHECKING:
    from matplotlib.figure import Figure

Thing = TypeVar("Thing")
FIGURES = (".png", ".svg", ".pdf")


class VerbParser(argparse.ArgumentParser):
    """The parser of a command. It adds its flags on first use, so that unused commands cost nothing.

    An error is one line, with the name that a misspelt one is close to.
    """

    fill: Callable[[argparse.ArgumentParser], None] | None = None

    def filled(self) -> VerbParser:
        """The parser with its flags."""
        if self.fill is not None:
            fill, self.fill = self.fill, None
            fill(self)
        return self

    def parse_known_args(self, args: Any = None, namespace: Any = None) -> Any:
        namespace, unknown = super(VerbParser, self.filled()).parse_known_args(args, namespace)
        if unknown:
            flag = next((each.partition("=")[0] for each in unknown if each.startswith("-")), None)
            if flag is None:
                self.error(f"{self.prog} takes no argument {unknown[0]}")
            self.error(f"{self.prog} has no flag {flag}{meant(flag, self._option_string_actions)}")
        return namespace, unknown

    def _check_value(self, action: argparse.Action, value: Any) -> None:
        """Only commands have choices here: those of flags are checked by `Setting.read`."""
        if action.choices is not None and value not in action.choices:
            self.error(f"{self.prog} has no command {value}{meant(value, action.choices)}")

    def error(self, message: str) -> NoReturn:
        end = "" if message.endswith("?") else "."
        self.exit(2, f"fedfairx: {message}{end} See `{self.prog} --help`\n")


def print_help(parser: argparse.ArgumentParser) -> int:
    """What a command does of which a part is left out."""
    parser.print_help()
    return 0


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

    options: Mapping[str, Any] = field(default_factory=dict)  # values of the flags of `others`

    @classmethod
    def others(cls) -> tuple[Setting, ...]:
        """Flags that other classes describe."""
        return ()

    @classmethod
    def add_to(cls, verbs: Any, name: str) -> str:
        """Add this command to the subparsers of another one; return its first sentence."""
        summary, example, *_ = inspect.cleandoc(cls.__doc__ or "").split("\n\n")
        summary = " ".join(summary.split())
        first = summary.partition(". ")[0].rstrip(".")
        parser: VerbParser = verbs.add_parser(
            name,
            help=first,
            description=textwrap.fill(summary, 100),
            epilog=f"example:\n{textwrap.indent(textwrap.dedent(example), '  ')}",
            formatter_class=_Help,
        )
        parser.set_defaults(run=lambda args: cls.read(args).run())
        parser.fill = cls.fill
        return first

    @classmethod
    def fill(cls, parser: argparse.ArgumentParser) -> None:
        """Add the flags."""
        for each in (*settings_of(cls, switches=True), *cls.others()):
            each.add_to(parser)

    @classmethod
    def read(cls, args: argparse.Namespace) -> Self:
        """The command with the flags that were given."""
        return cls(**given(args, settings_of(cls, switches=True)), options=given(args, cls.others()))

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
    from fedfairx.util.figure_style import styled

    drawn = io.BytesIO()
    with styled():
        figure.savefig(drawn, format=path.suffix[1:])
    write_file(path, drawn.getvalue())


def write_file(path: Path, content: str | bytes) -> None:
    """Create or replace an output file; on failure the old one stays."""
    try:
        write_atomically(path, content, partial=path.with_name(f".{path.name}.{os.getpid()}.partial"))
    except OSError as error:
        raise InvalidInput(f"{path} could not be written ({error.strerror or error})") from None


def given(args: argparse.Namespace, settings: Iterable[Setting]) -> dict[str, Any]:
    """The values of the flags that were given, by name."""
    values = ((each, each.given(args)) for each in settings)
    return {
        each.name: each.read(value, each.dest if each.positional else each.flags[0], text=True)
        for each, value in values
        if value is not None
    }


def as_json(values: object) -> str:
    return json.dumps(values, indent=2, ensure_ascii=False, allow_nan=False)
