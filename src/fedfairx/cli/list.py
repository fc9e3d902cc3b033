"""`fedfairx list`: what there is, by name."""

from __future__ import annotations

from dataclasses import dataclass, field
from pathlib import Path
from typing import Any, Literal

from fedfairx.cli.common import Output, add_verb, print_json, print_table


@dataclass(frozen=True, kw_only=True)
class List(Output):
    """Flags of `fedfairx list`.

    kind: one kind only (default: all).
    plugin: a Python file with experiments.
    """

    kind: Literal["algorithms", "mechanisms", "schedules", "merits", "experiments"] | None = field(
        default=None, metadata={"positional": True, "metavar": "KIND"}
    )
    plugin: tuple[Path, ...] = ()


def add(verbs: Any) -> None:
    add_verb(
        verbs,
        "list",
        run,
        List,
        summary="List the algorithms, mechanisms, schedules, merits and experiments.",
        example="fedfairx list\nfedfairx list experiments --json",
    )


def everything() -> dict[str, dict[str, str]]:
    """Every name with a line about it, by kind."""
    from fedfairx.agent.algorithms import ALGORITHMS
    from fedfairx.agent.schedules import SCHEDULES
    from fedfairx.core import merit
    from fedfairx.experiments.registry import experiments
    from fedfairx.privacy import mechanisms

    about = {
        "paper-tree": "a binary tree with the paper's printed noise",
        "tree": "the same tree, noise calibrated exactly",
        "sqrt-toeplitz": "square-root factorisation: nearly the least noise, memory grows with the releases",
        "blt": "buffered linear Toeplitz: the same noise within 1 %, constant memory (default)",
    }
    merits = (merit.Exponential, merit.Affine, merit.Power, merit.Logistic)
    return {
        "algorithms": {name: item.summary for name, item in ALGORITHMS.items()},
        "mechanisms": {name: about.get(name, "") for name in mechanisms()},
        "schedules": {name: _line(item) for name, item in SCHEDULES.items()},
        "merits": {kind.__name__.lower(): _line(kind) for kind in merits},
        "experiments": {name: item.question for name, item in experiments().items()},
    }


def _line(item: object) -> str:
    return (item.__doc__ or "").strip().splitlines()[0]


def run(args: List) -> int:
    from fedfairx.experiments.registry import load_plugin

    for plugin in args.plugin:
        load_plugin(plugin)
    found = everything()
    if args.kind:
        found = {args.kind: found[args.kind]}
    if args.json:
        print_json(found)
        return 0
    for i, (kind, items) in enumerate(found.items()):
        if i:
            print()
        print_table((kind, ""), items.items())
    return 0
