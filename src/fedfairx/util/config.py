"""Flags, environment variables, TOML keys and fields of requests from the typed fields of dataclasses.

A field's name, type and default are its own, `option` adds its scope, limits and choices, and its help is
what the class's docstring says of it. A value is checked by the same limits whichever way it comes.
"""

from __future__ import annotations

import dataclasses
import inspect
import math
import re
import tomllib
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, dataclass, fields
from enum import StrEnum
from functools import cache, cached_property
from numbers import Number
from pathlib import Path
from typing import Annotated, Any, Literal, NamedTuple, Union, get_args, get_origin, get_type_hints

from fedfairx.errors import InvalidInput

NAMED = "NAME[:KEY=VALUE,…]"
YES, NO = ("1", "true", "yes", "on"), ("0", "false", "no", "off")
NUMBERS = (int, float)
PLAIN = (bool, int, float, str)  # and tuples and `Literal`s


class Scope(StrEnum):
    """Whose an option is, in the order of the help."""

    AGENT = "what an agent is; fixed when it is made"
    AGREED = "how it decides and shares; fixed when it is made, in a federation by the terms"
    MEMBER = "each member's own choice in a federation; fixed when the agent is made"
    RUNNING = "how an agent is run and measured; may change later"
    PROCESS = "the process"


class Limits(NamedTuple):
    """Limits of a number, of a text's length, or of those in a list, and the least length of a list."""

    ge: float | None = None
    gt: float | None = None
    le: float | None = None
    lt: float | None = None
    min_length: int | None = None
    max_length: int | None = None
    min_items: int | None = None


MOST_AND_LEAST, LENGTHS = Limits._fields[:4], Limits._fields[4:6]
NONE = Limits()
LONGEST = 200  # characters of a name
NAME = Limits(min_length=1, max_length=LONGEST)
NUMBER = Limits(ge=-1e100, le=1e100)
POSITIVE = Limits(gt=0, le=1e100)
ABOVE_0 = Limits(gt=0)
SHARE = Limits(ge=0, le=1)
COUNT = Limits(ge=1, le=2**53)

Reader = Callable[[Any], Any]  # from text, or from a value of JSON or TOML, to an object
Part = tuple[Any, Limits]  # one of the types of a value in JSON and TOML
#: Readers of object types, and what they read; modules with settings of other types add theirs.
READERS: dict[Any, tuple[Reader, tuple[Part, ...]]] = {Path: (Path, ((str, NONE),))}


def option(default: Any, scope: Scope = Scope.PROCESS, limits: Limits = NONE, **shown: Any) -> Any:
    """A field of a dataclass with its scope and limits.

    shown: "choices", its names; "like", an example of its text; "unset", shown instead of the default;
        "metavar", shown instead of the type; "positional" for an argument that is no flag.
    """
    return dataclasses.field(default=default, metadata=details(scope, limits, **shown))


def details(scope: Scope = Scope.PROCESS, limits: Limits = NONE, **shown: Any) -> dict[str, Any]:
    """The metadata of an `option`, for a field that has no default."""
    return {"scope": scope, "limits": limits, **shown}


def with_default(kind: type, name: str, default: Any) -> Any:
    """A field of another dataclass, with another default."""
    (metadata,) = (item.metadata for item in fields(kind) if item.name == name)
    return option(default, **{key: value for key, value in metadata.items() if key != "unset"})


def check_fields(value: Any, kind: type) -> None:
    """Check a frozen dataclass by the descriptions of the fields of `kind`, its own type or one of its bases.

    Numbers of NumPy and whole ones are converted. Fields that hold objects are left out.
    """
    for name, each in plain_settings(kind).items():
        own = getattr(value, name)
        if own is not getattr(kind, name, MISSING):  # msgspec, which checks, takes long to import
            object.__setattr__(value, name, each.read(own))


@cache
def plain_settings(kind: type) -> dict[str, Setting]:
    """The fields of a dataclass that hold no objects, explained or not, by name."""
    texts = {item.name: "" for item in fields(kind)}
    return {each.name: each for each in settings_of(kind, texts=texts) if each.is_plain}


@dataclass(frozen=True)
class Setting:
    """One field: `--flag`, `PREFIX_NAME` in the environment, `name` in a TOML table or a request."""

    name: str
    scope: Scope
    kinds: tuple[Any, ...]  # the types that the field may have, but for None
    optional: bool
    parts: tuple[Part, ...]
    items: Any  # the type of a tuple's items; None where the field holds no tuple
    reader: Reader | None  # where the field holds an object
    help: str
    example: str  # of its text
    choices: Sequence[str]
    default: str  # as the help shows it; "" where the setting must be given
    metavar: str
    flags: tuple[str, ...]
    table: str
    positional: bool
    switch: bool

    @property
    def dest(self) -> str:
        return f"{self.table}.{self.name}" if self.table else self.name

    @cached_property
    def plain(self) -> Any:
        """The type of its values in JSON and TOML, as msgspec reads it."""
        return Union[tuple(_limited(*part) for part in self.parts)]  # noqa: UP007

    @property
    def is_plain(self) -> bool:
        """Whether the field holds what JSON can hold, and no object."""
        return all(map(_is_plain, self.kinds))

    @property
    def rule(self) -> str:
        """The rule that a value must obey, for error messages."""
        return f"must be {' or '.join(_rule(*part) for part in self.parts)}"

    @property
    def description(self) -> str:
        """Its help for requests, whose values are text only in part."""
        text = any(kind is str for kind, _ in self.parts)
        return f"{self.help}{self.example if text else ''} (default: {self.default})."

    def add_to(self, parser: Any) -> None:
        """Add the flag to an `argparse` parser as text, which `read` converts."""
        text = self.help + self.example
        text += f"; choices: {', '.join(self.choices)}" if self.choices else ""
        text += f" (default: {self.default})" if self.default and not self.switch else ""
        keywords: dict[str, Any] = {"help": text.replace("%", "%%")}
        if self.switch:
            parser.add_argument(*self.flags, dest=self.dest, action="store_true", default=None, **keywords)
        elif self.positional:
            nargs = "*" if self.items is not None else "?" if self.default else None
            parser.add_argument(self.dest, nargs=nargs, metavar=self.metavar, **keywords)
        else:
            several = self.items is not None and self.items not in NUMBERS
            keywords |= {"metavar": self.metavar, "action": "append" if several else "store"}
            if self.kinds == (bool,) and not self.optional:  # the flag alone is a yes
                keywords |= {"nargs": "?", "const": "yes"}
            parser.add_argument(*self.flags, dest=self.dest, required=not self.default, **keywords)

    def given(self, args: Any) -> Any:
        """The flag's text, None if it is absent; repeated values are joined by commas."""
        value = getattr(args, self.dest)
        if isinstance(value, list) and self.items not in READERS:
            value = ",".join(value)
        return None if value == [] else value

    def read(self, value: Any, source: str = "", *, text: bool = False) -> Any:
        """Check a value and convert it to the field's type; errors name `source`.

        text: the value is a flag's or a variable's, where numbers are written, or an object of a program.
        """
        from msgspec import ValidationError

        where = f" ({source})" if source else ""
        try:
            return self._read(value, text)
        except InvalidInput as error:
            named = "" if self.name in str(error) else f"{self.name}: "
            raise InvalidInput(f"{named}{error}{where}") from None
        except (TypeError, ValueError, OverflowError, ValidationError):
            rule = f"{self.rule}{self.example if text else ''}"
            raise InvalidInput(f"{self.name} {rule}, got {self.name}={value!r}{where}") from None

    def _read(self, value: Any, text: bool) -> Any:
        from msgspec import convert

        from_program = text and not isinstance(value, str)
        text = text and not from_program
        if self.optional and (value is None or (text and not value)):
            return None
        if self.reader is not None:
            if isinstance(value, list) and self.items in READERS:
                objects = tuple(map(self.reader, value))
                return objects[0] if len(objects) == 1 and self.items in self.kinds else objects
            result = self.reader(value)  # first: its errors say more
            if not from_program and (not text or any(kind is str for kind, _ in self.parts)):
                convert(value, self.plain)
            return result
        if text and bool in self.kinds and value.lower() in (*YES, *NO):
            return value.lower() in YES
        if text and self.items is not None:
            value = self._split(value)
            if not value and any(get_args(kind)[-1:] == (...,) for kind in self.kinds):
                return ()  # an empty variable is none
        result = convert(_without_numpy(value), self.plain, strict=not text)
        for number in result if isinstance(result, tuple) else (result,):
            if isinstance(number, float) and not math.isfinite(number):
                raise ValueError(number)
        return result

    def _split(self, text: str) -> str | list[str]:
        """ "0.1,0.2" or "0.1:0.2" as a list; "0.1" as it is where one number will do, and so is a name."""
        numbers = self.items in NUMBERS
        parts = [part.strip() for part in re.split("[,:]" if numbers else ",", text) if part.strip()]
        if float in self.kinds and len(parts) == 1:
            return parts[0]
        return text if str in self.kinds and not re.match(r"[-+.\d]", text) else parts


def _without_numpy(value: Any) -> Any:
    """A number, an array or a sequence of numbers as Python has them."""
    if isinstance(value, Number) or hasattr(value, "__array__"):
        return value.tolist() if hasattr(value, "tolist") else value
    if isinstance(value, Sequence) and not isinstance(value, str | bytes):
        return [_without_numpy(each) for each in value]
    return value


def settings_of(
    kind: type,
    table: str = "",
    *,
    prefix: str = "",
    short: Sequence[str] = (),
    defaults: Mapping[str, object] | None = None,
    only: Sequence[str] = (),
    leave_out: Sequence[str] = (),
    switches: bool = False,
    texts: Mapping[str, str] | None = None,
) -> tuple[Setting, ...]:
    """Make a setting of `[table]` from every field of a dataclass, with `prefix` before its flag.

    short: fields whose flag also goes without the prefix.
    defaults: shown instead of the fields' own.
    only: names of fields, instead of all.
    switches: whether a bool is a flag without a value.
    texts: help for fields that the class's docstring does not explain.
    """
    hints, settings = get_type_hints(kind), []
    texts = {**(texts or {}), **explained(kind)}
    for item in fields(kind):
        if item.name in leave_out or item.name not in (only or texts):
            continue
        hint, metadata = hints[item.name], item.metadata
        kinds = tuple(each for each in _parts(hint) if each is not type(None))
        choices = metadata.get("choices", ())
        if choices and kinds == (str,):  # and nothing but names
            kinds = (Literal[tuple(choices)],)
        items = next((get_args(each)[0] for each in kinds if get_origin(each) is tuple), None)
        limits = metadata.get("limits", NONE)
        readers = (READERS[each] for each in (*kinds, items) if each in READERS)
        reader, parts = next(readers, (None, tuple((each, limits) for each in kinds if _is_plain(each))))
        help, _, stated = texts[item.name].partition(" (default: ")
        default = (defaults or {}).get(item.name, metadata.get("unset", item.default))
        if default is MISSING and item.default_factory is not MISSING:
            default = item.default_factory()
        literals = (get_args(each) for each in kinds if get_origin(each) is Literal)
        choices = choices or next(literals, ())
        flag = item.name.replace("_", "-")
        settings.append(
            Setting(
                name=item.name,
                scope=metadata.get("scope", Scope.PROCESS),
                kinds=kinds,
                optional=type(None) in _parts(hint),
                parts=parts,
                items=items,
                reader=reader,
                help=help,
                example=f"; for instance {metadata['like']}" if "like" in metadata else "",
                choices=choices,
                default=stated.removesuffix(")") or ("" if default is MISSING else shown(default)),
                metavar=metadata.get("metavar") or _metavar(kinds, items, reader, choices),
                flags=(f"--{prefix}{flag}", *([f"--{flag}"] if item.name in short else [])),
                table=table,
                positional=metadata.get("positional", False),
                switch=switches and hint is bool,
            )
        )
    return tuple(settings)


def _metavar(kinds: tuple[Any, ...], items: Any, reader: Reader | None, choices: Sequence[str]) -> str:
    if reader is not None:
        return "FILE" if reader is Path else NAMED
    if items is not None:
        return "NUMBER,…" if items in NUMBERS else "NAME,…"
    names = {bool: "yes|no", int: "INT", float: "FLOAT"}
    return "NAME" if choices else next((names[each] for each in kinds if each in names), "TEXT")


def explained(kind: type) -> dict[str, str]:
    """First sentence about each field in the docstring of a class or one of its bases."""
    texts: dict[str, str] = {}
    for each in reversed(kind.__mro__[:-1]):
        names: list[str] = []
        for line in inspect.cleandoc(each.__doc__ or "").splitlines():
            head = re.match(r"([a-z_]+(?:, [a-z_]+)*): (.+)", line)
            if head:
                names = head[1].split(", ")
                texts.update(dict.fromkeys(names, head[2]))
            elif line.startswith("    ") and names:
                texts.update({name: f"{texts[name]} {line.strip()}" for name in names})
            else:
                names = []
    return {name: text.partition(". ")[0].rstrip(".") for name, text in texts.items()}


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


def _parts(hint: Any) -> tuple[Any, ...]:
    return get_args(hint) if get_origin(hint) in (Union, types.UnionType) else (hint,)


def _is_plain(kind: Any) -> bool:
    return kind in PLAIN or get_origin(kind) in (tuple, Literal)


def ends(kind: Any, limits: Limits) -> dict[str, Any]:
    """The limits of a type, as keywords of `msgspec.Meta`."""
    if get_origin(kind) in (tuple, list):
        return {} if limits.min_items is None else {"min_length": limits.min_items}
    names = {int: MOST_AND_LEAST, float: MOST_AND_LEAST, str: LENGTHS}.get(kind, ())
    return {name: getattr(limits, name) for name in names if getattr(limits, name) is not None}


def _limited(kind: Any, limits: Limits) -> Any:
    """A type with its limits, as msgspec has them."""
    from msgspec import Meta  # not above: it takes long to import

    origin, most = get_origin(kind), ends(kind, limits)
    if origin in (tuple, list):
        items = (each if each is ... else _limited(each, limits) for each in get_args(kind))
        kind = origin[tuple(items)]
    return Annotated[kind, Meta(**most)] if most else kind


def _rule(kind: Any, limits: Limits) -> str:
    """Describe the values of a type."""
    if get_origin(kind) is Literal:
        return f"one of {', '.join(get_args(kind))}"
    if get_origin(kind) in (tuple, list):
        items = get_args(kind)
        some = get_origin(kind) is list or items[-1] is ...
        rule = _rule(items[0], limits)
        return f"a list of {rule}" if some else f"{len(items)} values, each {rule}"
    names = {bool: "yes or no", int: "a whole number", float: "a finite number", str: "text"}
    bounds = {"ge": ">=", "gt": ">", "le": "<=", "lt": "<"} if kind in NUMBERS else {}
    ends = ((sign, getattr(limits, name)) for name, sign in bounds.items())
    text = " and ".join(f"{sign} {shown(end)}" for sign, end in ends if end is not None)
    if kind is str and limits.max_length is not None:
        text = f"of {limits.min_length or 0} to {limits.max_length} characters"
    return f"{names.get(kind, 'an object')} {text}".strip()
