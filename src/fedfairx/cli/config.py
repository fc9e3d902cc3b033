"""Flags and TOML keys from dataclasses, so that neither can drift from what they set.

Name, type, default and choices are a field's own; its help is what the class's docstring says of it.
"""

from __future__ import annotations

import argparse
import inspect
import re
import tomllib
import types
from collections.abc import Callable, Mapping, Sequence
from dataclasses import MISSING, Field, dataclass, field, fields, replace
from functools import partial
from pathlib import Path
from typing import Any, Literal, Union, get_args, get_origin, get_type_hints

from fedfairx.agent.options import SCALE, Options
from fedfairx.agent.schedules import Schedule
from fedfairx.cli.common import as_merit, as_schedule
from fedfairx.core.confidence import Confidence
from fedfairx.core.merit import Merit
from fedfairx.core.posterior import Prior
from fedfairx.errors import InvalidInput
from fedfairx.privacy import Bounds, Centring
from fedfairx.simulation import Recorded, Scenario
from fedfairx.simulation.scenario import CONTEXTS

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


_LAWS = "where the scenario's laws put them"
ABOUT = {
    "scenario": "the simulated world",
    "run": "how agents decide, learn and share, and how that is run",
    "prior": "what is believed beforehand, by the rules of the posterior",
    "confidence": "the region of the paper's algorithms, which are optimistic",
    "bounds": "what private records are clipped to; with a public point, only the adjacency and the share",
    "centring": "a public point of your own, that private records are clipped around",
}


@dataclass(frozen=True)
class Running:
    """How a simulation is run, and what is measured beside it.

    seeds: how many runs there are; their seeds count from 0.
    workers: threads that they are divided over, with the same results.
    points: rounds at which regret is noted, evenly over the horizon.
    exposure: whether it is also measured who is shown, and what the weakest arm gets of its due.
    baselines: whether the same agents are simulated alone, and with exact sums pooled every round.
    centring: the public point that private records are clipped around, the middle of the scenario's box or
        zero.
    """

    seeds: int = 5
    workers: int = 1
    points: int = 100
    exposure: bool = False
    baselines: bool = True
    centring: str = field(default="scenario", metadata={"choices": ("scenario", "none")})


def tables() -> dict[str, tuple[Setting, ...]]:
    """Every setting, by its table of the TOML file."""

    parts = ("merit", "prior", "confidence", "bounds", "centring")
    region = {"noise_sd": "the scenario's", "scale": SCALE}
    box = {item.name: "as of the scenario's box" for item in fields(Centring)}
    laws = {"context_norm": _LAWS, "reward": _LAWS}
    return {
        "scenario": settings_of(Scenario, "scenario"),
        "run": settings_of(Options, "run", leave_out=parts) + settings_of(Running, "run"),
        "confidence": settings_of(
            Confidence,
            "confidence",
            prefix="confidence-",
            short=("regulariser", "failure", "parameter_norm", "scale"),
            defaults=region,
        ),
        "prior": settings_of(Prior, "prior", prefix="prior-"),
        "bounds": settings_of(Bounds, "bounds", prefix="bounds-", defaults=laws),
        "centring": settings_of(Centring, "centring", prefix="centring-", defaults=box),
    }


def settings(args: argparse.Namespace) -> dict[str, dict[str, Any]]:
    """What is set, by table: in the file, and by flags over it."""
    known = {name: {each.name: each for each in table} for name, table in tables().items()}
    found: dict[str, dict[str, Any]] = {name: {} for name in known}
    if args.config is not None:
        for name, values in _read(args.config).items():
            if name not in known or not isinstance(values, dict):
                raise InvalidInput(f"{args.config} must hold tables {', '.join(known)}, got {name!r}")
            for key, value in values.items():
                if key not in known[name]:
                    has = ", ".join(known[name])
                    raise InvalidInput(f"{args.config}: [{name}] has no {key!r}; it has {has}")
                found[name][key] = known[name][key].taken(value)
    for name, table in known.items():
        given = {each.name: getattr(args, each.dest) for each in table.values()}
        found[name].update(
            {key: table[key].taken(value) for key, value in given.items() if value is not None}
        )
    return found


def _read(path: Path) -> dict[str, Any]:
    try:
        return tomllib.loads(path.read_text(encoding="utf-8"))
    except OSError as error:
        raise InvalidInput(f"config must be a file that can be read, got {path} ({error.strerror})") from None
    except (tomllib.TOMLDecodeError, UnicodeDecodeError) as error:
        raise InvalidInput(f"{path} is not TOML: {error}") from None


def prepare(found: dict[str, dict[str, Any]]) -> tuple[Scenario, Options, Running]:
    """What tables of settings mean."""

    world, given = dict(found["scenario"]), dict(found["run"])
    if "merit" in world:
        world["merit"] = world["merit"][0] if len(world["merit"]) == 1 else tuple(world["merit"])
    _read_contexts(world)
    scenario = Scenario(**world)
    running = Running(**{item.name: given.pop(item.name) for item in fields(Running) if item.name in given})
    if found["prior"]:
        given["prior"] = Prior(**found["prior"])
    if found["confidence"]:  # with the rest as it would be without
        given["confidence"] = Confidence(
            **{"noise_sd": scenario.noise_sd, "scale": SCALE, **found["confidence"]}
        )
    if found["bounds"]:
        given["bounds"] = replace(scenario.bounds, **found["bounds"])
    point = _centring(scenario, running, found["centring"])
    return scenario, scenario.options(centring=point, **given), running


def _centring(scenario: Scenario, running: Running, point: dict[str, Any]) -> Any:

    known = ("scenario", "none")
    if running.centring not in known:
        text = f"centring must be one of {', '.join(known)}, got centring={running.centring!r}"
        raise InvalidInput(f"{text}; [centring] or --centring-context and the like give a point")
    if not point:
        return "scenario" if running.centring == "scenario" else None
    base = scenario.centring
    if base is not None:
        return replace(base, **point)
    missing = [item.name for item in fields(Centring) if item.name not in point]
    if missing:
        raise InvalidInput(f"[centring] must have {missing[0]}, for this scenario has no box to take it from")
    return Centring(**point)


def _read_contexts(values: dict[str, Any]) -> None:
    """Where `contexts` names a file: what it holds, with its number of arms and its dimension."""

    text = values.get("contexts", CONTEXTS[0])
    if text in CONTEXTS or not Path(text).suffix:
        return  # a scenario knows what to say
    path, _, scale = text.partition(":scale=")
    recorded = Recorded.load(path, scale=scale or None)
    _, arms, dimension = recorded.shape
    values.update({"arms": arms, "dimension": dimension, **values, "contexts": recorded})
