"""Flags, environment variables and TOML keys from the typed fields of dataclasses.

A field's name, type, limits (`msgspec.Meta`), choices and default are its own; its help is what the class's
docstring says of it. Metadata of a field: "choices" are names that the class itself checks, "unset" is shown
instead of the default, "metavar" instead of the type, and "positional" makes an argument of it.
"""

from __future__ import annotations

import inspect
import math
import re
import tomllib
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from pathlib import Path
from typing import Annotated, Any, Literal, Union, get_args, get_origin, get_type_hints

from fedfairx.errors import InvalidInput

NAMED = "NAME[:KEY=VALUE,…]"
YES, NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
NUMBERS = (int, float)
PLAIN = (bool, int, float, str)  # and tuples and `Literal`s: what msgspec reads
Reader = Callable[[Any], Any]  # from text, or from a value of a TOML file, to an object
#: Readers of object types; modules with settings of other types add theirs.
READERS: dict[Any, Reader] = {Path: Path}


@dataclass(frozen=True)
class Setting:
    """One field: `--flag` on the command line, `PREFIX_NAME` in the environment, `name` in a TOML table."""

    name: str
    hint: Any
    kinds: list[Any]  # the types that the field may have, but for None, without their limits
    items: Any  # the type of a tuple's items; None where the field holds no tuple
    reader: Reader | None  # where the field holds an object
    help: str
    default: str  # as the help shows it; "" where the setting must be given
    metavar: str
    flags: tuple[str, ...]
    table: str
    positional: bool
    switch: bool

    @property
    def dest(self) -> str:
        return f"{self.table}.{self.name}" if self.table else self.name

    @property
    def rule(self) -> str:
        """The rule that a value must obey, for error messages."""
        return f"must be {' or '.join(_rule(part) for part in _parts(self.hint)) or 'text'}"

    def add_to(self, parser: Any) -> None:
        """Add the flag to an `argparse` parser as text, which `read` converts."""
        tail = f" (default: {self.default})" if self.default and not self.switch else ""
        told: dict[str, Any] = {"help": f"{self.help}{tail}".replace("%", "%%")}
        if self.switch:
            parser.add_argument(*self.flags, dest=self.dest, action="store_true", default=None, **told)
        elif self.positional:
            nargs = "*" if self.items is not None else "?" if self.default else None
            parser.add_argument(self.dest, nargs=nargs, metavar=self.metavar, **told)
        else:
            several = self.items is not None and self.items not in NUMBERS
            told |= {"metavar": self.metavar, "action": "append" if several else "store"}
            if self.hint is bool:  # the flag alone is a yes
                told |= {"nargs": "?", "const": "yes"}
            parser.add_argument(*self.flags, dest=self.dest, required=not self.default, **told)

    def given(self, args: Any) -> Any:
        """The flag's text, None if it is absent; repeated values are joined by commas."""
        value = getattr(args, self.dest)
        if isinstance(value, list) and self.items not in READERS:
            value = ",".join(value)
        return None if value == [] else value

    def read(self, value: Any, source: str) -> Any:
        """Convert text or a TOML value to the field's type; errors name `source`."""
        from msgspec import ValidationError  # not above: it is needed for the flags of one verb alone

        try:
            return self._read(value)
        except InvalidInput as error:
            raise InvalidInput(f"{error} ({source})") from None
        except (TypeError, ValueError, ValidationError):
            got = f"got {self.name}={value!r}"
            raise InvalidInput(f"{self.name} {self.rule}, {got} ({source})") from None

    def _read(self, value: Any) -> Any:
        from msgspec import convert

        if value in (None, "") and type(None) in get_args(self.hint):
            return None
        if self.reader is not None:
            if not isinstance(value, list) or self.items not in READERS:
                return self.reader(value)
            found = tuple(map(self.reader, value))
            return found[0] if len(found) == 1 and self.items in self.kinds else found
        text = isinstance(value, str)
        if bool in self.kinds and text and value.lower() in (*YES, *NO):
            return value.lower() in YES
        if self.items is not None and text:
            value = self._split(value)
        plain = [
            part for part in _parts(self.hint) if _bare(part) in PLAIN or get_origin(part) in (tuple, Literal)
        ]
        found = convert(value, Union[tuple(plain)], strict=not text)  # noqa: UP007
        for number in found if isinstance(found, tuple) else (found,):
            if isinstance(number, float) and not math.isfinite(number):
                raise ValueError(number)
        return found

    def _split(self, text: str) -> str | list[str]:
        """ "0.1,0.2" or "0.1:0.2" as a list; "0.1" as it is where one number will do, and so is a name."""
        numbers = self.items in NUMBERS
        parts = [part.strip() for part in re.split("[,:]" if numbers else ",", text) if part.strip()]
        if float in self.kinds and len(parts) == 1:
            return parts[0]
        return text if str in self.kinds and not re.match(r"[-+.\d]", text) else parts


def settings_of(
    kind: type,
    table: str = "",
    *,
    prefix: str = "",
    short: Sequence[str] = (),
    defaults: Mapping[str, object] | None = None,
    leave_out: Sequence[str] = (),
    switches: bool = False,
) -> tuple[Setting, ...]:
    """Make a setting of `[table]` from every field of a dataclass, with `prefix` before its flag.

    short: fields whose flag also goes without the prefix.
    defaults: shown instead of the fields' own.
    switches: whether a bool is a flag without a value.
    """
    hints, said, found = get_type_hints(kind, include_extras=True), explained(kind), []
    for item in fields(kind):
        if item.name in leave_out or item.name not in said:
            continue
        hint, metadata = hints[item.name], item.metadata
        kinds = [_bare(part) for part in _parts(hint)]
        items = next((_bare(get_args(each)[0]) for each in kinds if get_origin(each) is tuple), None)
        reader = next((READERS[each] for each in (*kinds, items) if each in READERS), None)
        literals = (get_args(each) for each in kinds if get_origin(each) is Literal)
        choices = metadata.get("choices") or next(literals, ())
        help, _, stated = said[item.name].partition(" (default: ")
        default = (defaults or {}).get(item.name, metadata.get("unset", item.default))
        if default is MISSING and item.default_factory is not MISSING:
            default = item.default_factory()
        flag = item.name.replace("_", "-")
        found.append(
            Setting(
                name=item.name,
                hint=hint,
                kinds=kinds,
                items=items,
                reader=reader,
                help=help + (f"; choices: {', '.join(choices)}" if choices else ""),
                default=stated.removesuffix(")") or ("" if default is MISSING else shown(default)),
                metavar=metadata.get("metavar") or _metavar(kinds, items, reader, choices),
                flags=(f"--{prefix}{flag}", *([f"--{flag}"] if item.name in short else [])),
                table=table,
                positional=metadata.get("positional", False),
                switch=switches and hint is bool,
            )
        )
    return tuple(found)


def _metavar(kinds: list[Any], items: Any, reader: Reader | None, choices: Sequence[str]) -> str:
    if reader is not None:
        return "FILE" if reader is Path else NAMED
    if items is not None:
        return "NUMBER,…" if items in NUMBERS else "NAME,…"
    names = {bool: "yes|no", int: "INT", float: "FLOAT"}
    return "NAME" if choices else next((names[each] for each in kinds if each in names), "TEXT")


def explained(kind: type) -> dict[str, str]:
    """First sentence about each field in the docstring of a class or one of its bases."""
    found: dict[str, str] = {}
    for each in reversed(kind.__mro__[:-1]):
        names: list[str] = []
        for line in inspect.cleandoc(each.__doc__ or "").splitlines():
            head = re.match(r"([a-z_]+(?:, [a-z_]+)*): (.+)", line)
            if head:
                names = head[1].split(", ")
                found.update(dict.fromkeys(names, head[2]))
            elif line.startswith("    ") and names:
                found.update({name: f"{found[name]} {line.strip()}" for name in names})
            else:
                names = []
    return {name: text.partition(". ")[0].rstrip(".") for name, text in found.items()}


def shown(value: object) -> str:
    """Format a default as a user would write it; "none" for None."""
    if isinstance(value, bool):
        return "yes" if value else "no"
    if isinstance(value, float):
        return f"{value:g}"
    if isinstance(value, tuple):
        value = ",".join(map(str, value))
    return "none" if value in (None, "") else str(value)


def read_toml(path: Path) -> dict[str, Any]:
    """Read a TOML file."""
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"config must be a file that can be read, got {path} ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"config must be TOML, got {path}: {error}") from None


def _parts(hint: Any) -> list[Any]:
    union = get_origin(hint) in (Union, types.UnionType)
    parts = get_args(hint) if union else (hint,)
    return [part for part in parts if part is not type(None)]


def _bare(hint: Any) -> Any:
    return get_args(hint)[0] if get_origin(hint) is Annotated else hint


def _rule(part: Any) -> str:
    """Describe the values of a type."""
    kind: Any = _bare(part)
    limits: Any = next(iter(getattr(part, "__metadata__", ())), None)
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    if get_origin(kind) is tuple:
        items = get_args(kind)
        return f"{'a list' if items[-1] is ... else len(items)} of {_rule(items[0])}"
    names = {bool: "yes or no", int: "a whole number", float: "a finite number", str: "text"}
    bounds = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"}
    text = " and ".join(
        f"{sign} {getattr(limits, name):.15g}"
        for name, sign in bounds.items()
        if getattr(limits, name, None) is not None
    )
    if getattr(limits, "max_length", None) is not None:
        text = f"of {limits.min_length} to {limits.max_length} characters"
    return f"{names.get(kind, getattr(kind, '__name__', 'text'))} {text}".strip()
