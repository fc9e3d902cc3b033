"""Flags and TOML keys from dataclasses, so that neither can drift from what they set.

Name, type, default and choices are a field's own; its help is what the class's docstring says of it.
"""

from __future__ import annotations

import argparse
import inspect
import re
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, fields
from functools import partial
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from fedfairx.agent.schedules import Schedule
from fedfairx.commands.common import as_merit, as_schedule
from fedfairx.core.merit import Merit
from fedfairx.errors import InvalidInput

NAMED = "NAME[:KEY=VALUE,…]"


@dataclass(frozen=True)
class Setting:
    """One field of one dataclass: `--flag` on the command line, `name` in `[table]` of a TOML file."""

    table: str
    name: str
    flags: tuple[str, ...]
    kind: str  # what it takes, for people
    read: Callable[[str], Any]  # from text, and what is no text in a file is taken as it is …
    plain: tuple[type, ...]  # … where it is one of these
    help: str
    several: bool = False

    @property
    def dest(self) -> str:
        return f"{self.table}.{self.name}"

    def add_to(self, parser: Any) -> None:
        parser.add_argument(
            *self.flags,
            dest=self.dest,
            type=str if self.kind == NAMED else _for_argparse(self.read),  # a name is read with our own words
            metavar=self.kind,
            help=self.help.replace("%", "%%"),
            action="append" if self.several else "store",
        )

    def taken(self, value: object) -> Any:
        """What a flag or a TOML file gives, as the field takes it."""
        items: list[Any] = value if isinstance(value, list) else [value]
        if self.several and items and all(isinstance(item, str) for item in items):
            return [self.read(item) for item in items]
        if str not in self.plain and isinstance(value, str) and self.kind in (NAMED, "NUMBER,…"):
            return self.read(value)
        if tuple in self.plain and isinstance(value, list) and all(_is(item, (float,)) for item in items):
            return tuple(float(item) for item in items)
        if not _is(value, self.plain):
            given = type(value).__name__
            raise InvalidInput(f"[{self.table}] {self.name} has the wrong type: {given}, not {self.kind}")
        return value


def settings_of(
    kind: type,
    table: str,
    *,
    prefix: str = "",
    short: Sequence[str] = (),
    defaults: Mapping[str, object] | None = None,
    leave_out: Sequence[str] = (),
) -> tuple[Setting, ...]:
    """Every field of a dataclass as a setting of `[table]`, its flag after `prefix`.

    short: those whose flag also goes without the prefix.
    defaults: where they are others than the fields' own; a text says where they come from.
    """
    hints, said = get_type_hints(kind), explained(kind)
    found = []
    for item in fields(kind):
        if item.name in leave_out:
            continue
        name = item.name.replace("_", "-")
        flags = (f"--{prefix}{name}", *([f"--{name}"] if item.name in short else []))
        shape, read, plain, several = _taken(hints[item.name])
        choices = item.metadata.get("choices") or _literals(hints[item.name])
        default = (defaults or {}).get(item.name, _default(item))
        text = said[item.name] + (f"; choices: {', '.join(choices)}" if choices else "")
        text += f" (default: {_shown(default)})"
        found.append(Setting(table, item.name, flags, shape, read, plain, text, several))
    return tuple(found)


def explained(kind: type) -> dict[str, str]:
    """The first sentence that the docstring of a class has on each of its fields."""
    found: dict[str, str] = {}
    names: list[str] = []
    for line in (inspect.getdoc(kind) or "").splitlines():
        head = re.match(r"([a-z_]+(?:, [a-z_]+)*): (.+)", line)
        if head:
            names = head[1].split(", ")
            found.update(dict.fromkeys(names, head[2]))
        elif line.startswith("    ") and names:
            found.update({name: f"{found[name]} {line.strip()}" for name in names})
        else:
            names = []
    return {name: text.partition(". ")[0].rstrip(".") for name, text in found.items()}


def _taken(hint: Any) -> tuple[str, Callable[[str], Any], tuple[type, ...], bool]:
    """(what it is for people, how text is read, what a file may hold as it is, whether several may come)."""
    union = get_origin(hint) in (Union, types.UnionType)
    parts = [part for part in (get_args(hint) if union else (hint,)) if part is not type(None)]
    if Merit in parts:
        return NAMED, as_merit, (), True
    if Schedule in parts:
        return NAMED, as_schedule, (), False
    if any(get_origin(part) is tuple for part in parts):
        plain = (tuple, *(part for part in (float, str) if part in parts))
        return "NUMBER,…", partial(_numbers, single=float in parts, named=str in parts), plain, False
    if bool in parts:
        return "yes|no", _yes_or_no, (bool,), False
    for number in (int, float):
        if number in parts:
            return number.__name__.upper(), number, (number,), False
    return "NAME", str, (str,), False


def _numbers(text: str, *, single: bool, named: bool) -> Any:
    """ "0.1,0.2" or "0.1:0.2" → (0.1, 0.2); "0.1" → 0.1 where one will do; a name where that will."""
    try:
        numbers = tuple(float(part) for part in text.replace(":", ",").split(","))
    except ValueError:
        if named:
            return text
        raise
    return numbers[0] if single and len(numbers) == 1 else numbers


def _yes_or_no(text: str) -> bool:
    if text not in ("yes", "no"):
        raise ValueError(text)
    return text == "yes"


def _for_argparse(read: Callable[[str], Any]) -> Callable[[str], Any]:
    """Its word on a number that is none, with what was given, and not with the name of our function."""

    def reading(text: str) -> Any:
        try:
            return read(text)
        except ValueError:
            raise argparse.ArgumentTypeError(f"can't be {text!r}") from None

    return reading


def _is(value: object, plain: tuple[type, ...]) -> bool:
    if isinstance(value, bool):
        return bool in plain
    return isinstance(value, plain) or (float in plain and isinstance(value, int))


def _literals(hint: Any) -> tuple[str, ...]:
    return get_args(hint) if get_origin(hint) is Literal else ()


def _default(item: Field[Any]) -> object:
    if "unset" in item.metadata:
        return item.metadata["unset"]
    if item.default_factory is not MISSING:
        return item.default_factory()
    return "none" if item.default is MISSING else item.default


def _shown(value: object) -> str:
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    return "none" if value is None else str(value)
