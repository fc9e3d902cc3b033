"""`fedfairx list`: the names of algorithms, mechanisms, schedules and merits."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Literal

from fedfairx.agent.by_name import MERITS
from fedfairx.cli.common import Output
from fedfairx.util.formatting import text_table

MECHANISMS = {
    "paper-tree": "a binary tree with the paper's printed noise",
    "tree": "the same tree, noise calibrated exactly",
    "blt": "buffered linear Toeplitz: nearly the least noise, constant memory (default)",
}


@dataclass(frozen=True, kw_only=True)
class List(Output):
    """List the algorithms, mechanisms, schedules and merits.

        fedfairx list
        fedfairx list schedules --json

    kind: list one kind only (default: all).
    """

    kind: Literal["algorithms", "mechanisms", "schedules", "merits"] | None = field(
        default=None, metadata={"positional": True, "metavar": "KIND"}
    )

    def run(self) -> int:
        listing = everything()
        if self.kind:
            listing = {self.kind: listing[self.kind]}
        self.answer(
            listing, "\n\n".join(text_table((kind, ""), each.items()) for kind, each in listing.items())
        )
        return 0


def everything() -> dict[str, dict[str, str]]:
    """Every name with a description, by kind."""
    from fedfairx.agent.algorithms import ALGORITHMS
    from fedfairx.agent.schedules import SCHEDULES
    from fedfairx.privacy import mechanisms

    return {
        "algorithms": {name: item.summary for name, item in ALGORITHMS.items()},
        "mechanisms": {name: MECHANISMS.get(name, "") for name in mechanisms()},
        "schedules": {name: _line(item) for name, item in SCHEDULES.items()},
        "merits": {name: _line(item) for name, item in MERITS.items()},
    }


def _line(item: object) -> str:
    return (item.__doc__ or "").strip().splitlines()[0]
