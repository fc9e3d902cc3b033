"""An agent's partners: what it has received from each, how far it believes them, and why.

>>> from fedfairx import Federation
>>> fed = Federation(agents=2, dimension=1, horizon=9, partners="differ", seed=0)
>>> for agent in fed.agents:
...     agent.observe(agent.decide([[1.0]]), reward=0.5)
>>> _ = fed.end_round()
>>> fed.agents[0].partners
partner       releases  observations  weight  reason
------------  --------  ------------  ------  -----------------------------
agent-000001  1         1             0.136   too little of our own to tell
"""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import astuple, dataclass, fields
from functools import cache
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedfairx.core.partners import (
    FEW,
    LEVELS,
    POWERS,
    PRIOR_WEIGHTS,
    judge_by_each_other_in,
    partner_evidence,
    peers_of,
    power_in,
)
from fedfairx.core.statistics import dimension_of
from fedfairx.errors import needs
from fedfairx.lanes.rows import size_of
from fedfairx.util.arrays import Array
from fedfairx.util.formatting import html_table, number, text_table

if TYPE_CHECKING:
    import pandas as pd

CONTRADICTED = 0.005  # a partner whose power, judged by itself, is below this contradicts our rewards
FALSE_ALARM = 1e-3  # chance at most that one who is alike is said to differ, each time that it is judged
ENOUGH = 32  # own rewards for saying so: the σ learnt from fewer may be far too small
CONTRADICTS = "contradicts our rewards"
DIFFERS = "differs: predicts our rewards in part"
ASSUMED_ALIKE = "assumed to be alike, as configured"
TOO_LITTLE_TO_TELL = "too little of our own to tell"
DISTRUSTED = f"{TOO_LITTLE_TO_TELL}; most other partners contradict it"
NOT_ABLE = "taken for alike: decisions come from releases alone, which can't tell"


class Judged(NamedTuple):
    """What partners who may differ say about the agent's own θ, and how far they are believed."""

    statistics: Array  # (q,) as if they were exact
    weights: dict[str, Array]  # of `POWERS`, for each partner by itself and our rewards alone
    trust: dict[str, float]  # of each, by the other partners; 1 if we have rewards enough
    powers: dict[str, float]  # with which each of them counts


class Judge:
    """Judges partners by an agent's own exact statistics, packed (q,): see `core.partners`.

    `size` is E‖θ‖², `ridge` λ, `variance` σ². If it has `observed` few rewards itself, partners are also
    judged by each other.
    """

    def __init__(
        self, own: Array, mean: Array, *, size: float, ridge: float, variance: float, observed: float
    ) -> None:
        self._dimension = dimension_of(own)
        self._memory = np.empty(_memory_size(self._dimension))
        start = own.size + mean.size
        self._memory[:start] = np.concatenate((own, mean))  # a `PartnerEvidence` begins with these
        self._prior_weights = self._memory[start : start + LEVELS]
        self._weights = self._memory[start + LEVELS : start + 2 * LEVELS]
        self._scales = size, ridge, variance
        self._few = observed < FEW

    def _power(self, others: Array, noise_sd: float, prior_weights: Array) -> float:
        """How far these statistics are believed; they are filtered in place."""
        self._prior_weights[:] = prior_weights
        return float(power_in(others, self._memory, self._dimension, noise_sd, *self._scales))

    def weights(self, release: Array, noise_sd: float) -> Array:
        """The weights of `POWERS` for one partner."""
        self._power(release.copy(), noise_sd, PRIOR_WEIGHTS)
        return self._weights.copy()

    def together(
        self, releases: Mapping[str, Array], noise_sd: Mapping[str, float], before: Mapping[str, Array]
    ) -> Judged:
        """Judge all partners together; those whose weights are in `before` are not judged again."""
        weights = {
            name: before[name] if name in before else self.weights(packed, noise_sd[name])
            for name, packed in releases.items()
        }
        each, packed = np.array(list(weights.values())), np.array(list(releases.values()))
        sds, trust = np.array([noise_sd[name] for name in releases]), np.ones(len(each))
        if self._few and len(each) > 1:
            each, trust = self._by_each_other(packed, sds, each)
        powers = each @ POWERS
        powers /= max(float(powers.max()), 1e-300)
        statistics = powers @ packed
        noise = float(np.linalg.norm(powers * sds))
        common = self._power(statistics, noise, powers @ each / max(float(powers.sum()), 1e-300))
        statistics *= common
        return Judged(
            statistics,
            weights,
            dict(zip(releases, trust.tolist(), strict=True)),
            dict(zip(releases, (common * powers).tolist(), strict=True)),
        )

    def _by_each_other(self, releases: Array, noise_sds: Array, weights: Array) -> tuple[Array, Array]:
        """The weights (n, LEVELS) if partners judge each other, too, and the trust in each (n,)."""
        count, dimension = len(releases), self._dimension
        memory = np.zeros(size_of(peers_of, dimension, count))
        sizes = (releases.size, weights.size, count)  # `Peers` begin with these
        ends = np.cumsum(sizes)
        memory[: ends[1]] = np.concatenate((releases.ravel(), weights.ravel()))
        judge_by_each_other_in(memory, count, self._memory, dimension, noise_sds, *self._scales)
        return memory[ends[0] : ends[1]].reshape(weights.shape), memory[ends[1] : ends[2]]


@cache
def _memory_size(dimension: int) -> int:
    return size_of(partner_evidence, dimension)


@dataclass(frozen=True)
class Partner:
    """One partner, as an agent sees it now. `weight` is the share of its records that counts, from 0 to 1."""

    name: str
    releases: int
    observations: int
    weight: float
    reason: str

    @property
    def differs(self) -> bool:
        """Whether our own rewards say that it differs from us."""
        return self.reason in (CONTRADICTS, DIFFERS)


class Partners(dict[str, Partner]):
    """An agent's partners by name, shown as a table."""

    def _rows(self) -> list[tuple[object, ...]]:
        return [(*astuple(each)[:3], number(each.weight), each.reason) for each in self.values()]

    def __repr__(self) -> str:
        return text_table(COLUMNS, self._rows())

    def _repr_html_(self) -> str:
        return html_table(COLUMNS, self._rows(), caption="Partners")

    def to_frame(self) -> pd.DataFrame:
        """One row for each partner."""
        with needs("frames"):
            import pandas as pd

        return pd.DataFrame(
            [astuple(each) for each in self.values()], columns=[f.name for f in fields(Partner)]
        )


COLUMNS = ("partner", "releases", "observations", "weight", "reason")


def reason(weights: Array, trust: float, observed: float) -> str:
    """Put in words the weights of `POWERS` for one partner, by `observed` own rewards, and the others' trust.

    If the partner is alike, the likelihood of own rewards averaged over the powers, over that at power 1, has
    mean 1, so it exceeds 1/`FALSE_ALARM` with a chance of at most `FALSE_ALARM` (Markov).
    """
    if observed >= ENOUGH and weights[-1] <= FALSE_ALARM * PRIOR_WEIGHTS[-1]:
        return CONTRADICTS if float(weights @ POWERS) < CONTRADICTED else DIFFERS
    if weights[-1] >= 0.5:
        return "predicts our rewards"
    return TOO_LITTLE_TO_TELL if trust >= 0.5 else DISTRUSTED
