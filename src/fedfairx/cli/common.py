"""What the verbs share: named things with parameters, printing, common arguments."""

from __future__ import annotations

import argparse
import json
import textwrap
from collections.abc import Callable, Iterable, Mapping, Sequence
from dataclasses import replace
from typing import TYPE_CHECKING, Any, TypeVar

from fedfairx.errors import InvalidInput
from fedfairx.util.formatting import text_table

if TYPE_CHECKING:
    from fedfairx.agent.schedules import Schedule
    from fedfairx.core.merit import Merit

Thing = TypeVar("Thing")
Run = Callable[[argparse.Namespace], int]


class _Help(argparse.RawDescriptionHelpFormatter):
    """Examples as they are written, and no name broken at a hyphen."""

    def _split_lines(self, text: str, width: int) -> list[str]:
        return textwrap.wrap(" ".join(text.split()), width, break_on_hyphens=False)


def add_verb(
    verbs: Any, name: str, run: Run, *, summary: str, example: str, details: str = ""
) -> argparse.ArgumentParser:
    """A verb with a summary and an example in its help."""
    shown = textwrap.indent(textwrap.dedent(example).strip(), "  ")
    parser: argparse.ArgumentParser = verbs.add_parser(
        name,
        help=summary,
        description=textwrap.fill(f"{summary[0].upper()}{summary[1:]}. {details}".strip(), 100),
        epilog=f"example:\n{shown}",
        formatter_class=_Help,
    )
    parser.set_defaults(run=run)
    return parser


def add_json(parser: argparse.ArgumentParser) -> None:
    parser.add_argument("--json", action="store_true", help="print the answer as JSON on standard output")


def print_json(value: object) -> None:
    print(json.dumps(value, indent=2, ensure_ascii=False, allow_nan=False))


def print_table(columns: Sequence[str], rows: Iterable[Sequence[object]]) -> None:
    """Columns under each other, numbers as they come."""
    print(text_table(columns, rows))


def split(text: str) -> tuple[str, dict[str, float]]:
    """ "paper:gap=50" → ("paper", {"gap": 50.0})."""
    name, _, rest = text.partition(":")
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


def as_schedule(text: str) -> Schedule:
    """A schedule by name, with parameters: "paper:gap=50", "doubling:start=10"."""
    from fedfairx.agent.schedules import schedule

    name, values = split(text)
    return _with(schedule(name), name, values)


def as_merit(text: str) -> Merit:
    """A merit by name, with parameters: "doubling:0.1", "exponential:steepness=10", "affine:offset=0.1"."""
    from fedfairx.core import merit

    kinds: dict[str, Merit] = {
        "exponential": merit.Exponential(),
        "affine": merit.Affine(),
        "power": merit.Power(),
        "logistic": merit.Logistic(),
    }
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


def as_range(text: str) -> tuple[float, float]:
    """ "1:5" → (1.0, 5.0)."""
    low, _, high = text.replace(",", ":").partition(":")
    try:
        return float(low), float(high)
    except ValueError:
        raise InvalidInput(f'reward_range must be like "1:5", got reward_range={text!r}') from None


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
