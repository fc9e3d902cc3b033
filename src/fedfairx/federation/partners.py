"""An agent's partners: what it has heard of each, how far it believes them, and why.

>>> from fedfairx import Federation
>>> fed = Federation(agents=2, dimension=1, horizon=9, partners="differ", seed=0)
>>> for agent in fed.agents:
...     agent.observe(agent.decide([[1.0]]), reward=0.5)
>>> _ = fed.end_round()
>>> fed.agents[0].partners
partner       releases  observations  weight  difference  reason
------------  --------  ------------  ------  ----------  -----------------------------
agent-000001  1         1             1       0           too little of our own to tell
"""

from __future__ import annotations

import math
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import astuple, dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedfairx.arrays import Array
from fedfairx.core import listening
from fedfairx.core.partners import DIFFERENCES, EVIDENCE
from fedfairx.core.statistics import dimension_of
from fedfairx.errors import needs
from fedfairx.lanes.rows import floats, size_of
from fedfairx.showing import html_table, number, text_table

if TYPE_CHECKING:
    import pandas as pd

    from fedfairx.privacy import Release

ALIKE_TOLD = "taken for alike, as this agent was told"
NOT_ABLE = "taken for alike: decisions come from releases alone, which can't tell"
NOTHING_OWN = "nothing of our own is released yet: taken for alike"


class Heard(NamedTuple):
    """What partners who may differ say; of `core.listening`."""

    told: Array  # (q,) of one's own θ, as exact statistics would say it
    difference: float  # q of those heard
    share: float  # of their information that is kept
    heard: list[bool]
    each: Array  # (J, levels) ln p of one's own rewards given each alone, for all q


class _Places(NamedTuple):
    """Where an `Ear` of so many partners begins what in its memory: laying it out anew takes longer than half
    of the listening."""

    size: int
    told: int
    heard: int
    each: int
    together: int
    share: int


@cache
def _places(dimension: int, partners: int) -> _Places:
    size = size_of(listening.ear_in, dimension, partners)
    ear = listening.ear_in(floats(np.arange(size)), dimension, partners)
    rows = ear.told, ear.heard, ear.each, ear.together, ear.share
    return _Places(size, *(int(row.array.flat[0]) for row in rows))


def listen(
    own: Array,
    releases: Sequence[Array],
    *,
    noise_sd: Sequence[float],
    size: float,
    ridge: float,
    variance: float,
    mean: Array,
) -> Heard:
    """Whom to listen to, and how far: see `core.listening`. There must be somebody."""
    d, count = dimension_of(own), len(releases)
    at = _places(d, count)
    memory = np.zeros(at.size)
    memory[: at.told] = np.concatenate((own, mean, *releases, noise_sd))  # an `Ear` begins with these
    difference = float(listening.listen_in(memory, d, count, size, ridge, variance))
    told, heard = memory[at.told : at.heard], [bool(each) for each in memory[at.heard : at.each]]
    each = memory[at.each : at.together].reshape(count, -1)
    return Heard(told, difference, float(memory[at.share]), heard, each)


@dataclass(frozen=True)
class Partner:
    """One partner, as an agent sees it now.

    weight: what share of its statistics' information is believed, from 0 to 1.
    difference: how far its θ is from ours, in sds of the prior: 0 the same, 1 it tells nothing of ours.
    """

    name: str
    releases: int
    observations: int
    weight: float
    difference: float
    reason: str


class Partners(Mapping[str, Partner]):
    """By name; a table to look at."""

    def __init__(self, partners: Sequence[Partner]) -> None:
        self._by_name = {each.name: each for each in partners}

    def __getitem__(self, name: str) -> Partner:
        return self._by_name[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._by_name)

    def __len__(self) -> int:
        return len(self._by_name)

    def _rows(self) -> list[tuple[object, ...]]:
        return [
            (
                each.name,
                each.releases,
                each.observations,
                number(each.weight),
                number(each.difference),
                each.reason,
            )
            for each in self.values()
        ]

    def __repr__(self) -> str:
        return text_table(COLUMNS, self._rows())

    def _repr_html_(self) -> str:
        return html_table(COLUMNS, self._rows(), caption="Partners")

    def to_frame(self) -> pd.DataFrame:
        """One row for each partner."""
        with needs("experiments"):
            import pandas as pd

        return pd.DataFrame(
            [astuple(each) for each in self.values()], columns=[f.name for f in fields(Partner)]
        )


COLUMNS = ("partner", "releases", "observations", "weight", "difference", "reason")


def partners_alike(held: Mapping[str, Release], reason: str) -> Partners:
    """Partners who are taken for alike."""
    return Partners([Partner(name, each.number, each.count, 1.0, 0.0, reason) for name, each in held.items()])


def partners_heard(held: Mapping[str, Release], heard: Heard) -> Partners:
    """Partners as they were judged; `heard` has them in the order of `held`."""
    found = []
    for (name, release), used, likely in zip(held.items(), heard.heard, heard.each, strict=True):
        weight = heard.share if used else 0.0
        difference = float(DIFFERENCES[int(likely.argmax())])
        reason = _reason(used, heard.difference, likely)
        found.append(Partner(name, release.number, release.count, weight, difference, reason))
    return Partners(found)


def _reason(used: bool, difference: float, likely: Array) -> str:
    """In words, from ln p of one's own rewards given this partner alone, for all q."""
    odds = float(likely.max() - likely[0])
    if not used:
        return f"contradicts our rewards: {_times(odds)} likelier if it differs"
    if float(likely.max() - likely.min()) < EVIDENCE:
        return "too little of our own to tell"
    if difference == 0.0:
        return "predicts our rewards"
    if odds > EVIDENCE:
        return f"differs, as partners here do: our rewards are {_times(odds)} likelier so"
    return "predicts our rewards, but partners together are off"


def _times(odds: float) -> str:
    """How many times likelier, of a difference in ln p."""
    return f"{number(math.exp(odds))} times" if odds < math.log(1e6) else "over a million times"
