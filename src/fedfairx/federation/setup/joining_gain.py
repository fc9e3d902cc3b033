"""Expected gain of joining: regret as a member over regret alone, from a table of simulations.

`benchmarks/joining_gain.py` measures the table, `joining_gain.json`. Between its entries the ratio is linear
in the logarithms of ε, members and horizon; outside, the nearest entry is used and named. The table is of one
simulated world, which the sentence names, and promises nothing about others.
"""

from __future__ import annotations

import json
import math
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedfairx.errors import require
from fedfairx.privacy import epsilon_for, mu_for
from fedfairx.privacy.mechanisms.noise_share import NoiseShare
from fedfairx.util.arrays import Array

FILE = Path(__file__).with_suffix(".json")
WORLD, DELTA, EPSILONS, MEMBERS, HORIZONS, RATIOS = json.loads(FILE.read_text(encoding="utf-8")).values()
SMALL = 0.1  # a smaller gain gives a warning
_SAME = 0.005  # shown as no difference


@dataclass(frozen=True)
class Gain:
    """The gain that a member can expect from joining.

    ratio: its fairness regret over that of deciding alone; below 1 joining pays.
    nearest: which entry was used for values outside the table, in words.
    """

    members: int
    horizon: int
    epsilon: float | None
    decide_from: str
    centred: bool
    ratio: float
    nearest: tuple[str, ...] = ()
    share: NoiseShare | None = None

    @property
    def gain(self) -> float:
        """The share of regret that joining saves; negative where it costs."""
        return 1.0 - self.ratio

    @property
    def difference(self) -> str:
        """The ratio in words."""
        if self.ratio >= 2.0:
            return f"none; {self.ratio:.1f} times the regret"
        if abs(self.gain) < _SAME:
            return "none; as much regret"
        per_cent = f"{100 * abs(self.gain):.2g} %"
        return f"{per_cent} less regret" if self.gain > 0 else f"none; {per_cent} more regret"

    @property
    def sentence(self) -> str:
        """State the expected gain, for whom, and in which simulation."""
        budget = "exact sums" if self.epsilon is None else f"ε = {self.epsilon:g}"
        if self.share is not None:
            budget += f" with secure aggregation, of whom {self.share.colluding} may collude"
        clipped = "centred" if self.centred else "clipped around zero"
        world = WORLD if self.epsilon is None else f"{WORLD}, geometric schedule, records {clipped}"
        near = f" The nearest that was simulated is {', '.join(self.nearest)}." if self.nearest else ""
        return (
            f"Expected gain over deciding alone: {self.difference} at {self.members} members, {budget}, "
            f"{_counted(self.horizon)} decisions each (simulated: {world}; "
            f"docs/paper/cost-of-privacy.md).{near}"
        )

    @property
    def warning(self) -> str | None:
        """A warning if the gain is small, else None."""
        if self.ratio <= 1.0 - SMALL:
            return None
        remedies = ["a larger ε"] if self.epsilon is not None else []
        if self.decide_from == "released":
            remedies.append('decide_from="own+released"')
        if self.epsilon is not None and not self.centred:
            remedies.append("a public point to centre records at (docs/explanation/privacy.md)")
        listed = ", ".join([*remedies, "more members"])
        return (
            "the expected gain over deciding alone is less than a tenth: "
            f"consider {listed} or a longer horizon, or working alone"
        )

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "gain": self.gain,
            "ratio": self.ratio,
            "decide_from": self.decide_from,
            "centred": self.centred,
            "nearest": list(self.nearest),
            "world": WORLD,
            "sentence": self.sentence,
        }


def expected_gain(
    *,
    members: int,
    horizon: int,
    epsilon: float | None,
    delta: float = DELTA,
    decide_from: str = "own+released",
    centred: bool = False,
    share: NoiseShare | None = None,
) -> Gain | None:
    """The gain in simulations; None for what was not simulated, such as "released+local".

    members: size of the federation; None is returned for 1.
    horizon: decisions of each member.
    epsilon, delta: of each member's releases; an ε of None is for exact sums. The table is for δ = 1e-6:
        another δ is read at the ε that asks for as much noise.
    decide_from: what a private member decides from.
    centred: whether records are clipped around the middle of their box, or around zero.
    share: of the noise, with secure aggregation: the table is read at the ε that asks for as much noise.
    """
    require(horizon >= 1, "horizon", "must be >= 1", horizon)
    mode = "exact" if epsilon is None else f"{decide_from}, centred" if centred else decide_from
    if mode not in RATIOS or members < 2:
        return None
    asked = math.inf
    if epsilon is not None:
        times = 1.0 if share is None else 1.0 / share.noise
        same = delta == DELTA and share is None
        asked = epsilon if same else epsilon_for(DELTA, times * mu_for(epsilon, delta))
    axes = (
        ("{} decisions each", HORIZONS, horizon),
        (f"ε = {{}} at δ = {DELTA:g}", [math.inf] if epsilon is None else EPSILONS, asked),
        ("{} members", MEMBERS, members),
    )
    ratios, nearest = np.array(RATIOS[mode]), []
    for words, grid, x in axes:
        ratios = _at(np.log(x), np.log(grid), ratios)
        if not grid[0] <= x <= grid[-1]:
            nearest.append(words.format(_counted(min(max(x, grid[0]), grid[-1]))))
    return Gain(
        members=members,
        horizon=horizon,
        epsilon=epsilon,
        decide_from=decide_from,
        centred=centred,
        ratio=float(ratios),
        nearest=tuple(nearest),
        share=share,
    )


def _counted(value: float) -> str:
    """Format a count with spaced thousands."""
    return f"{value:,.10g}".replace(",", " ")


def _at(x: float, grid: Array, values: Array) -> Array:
    """Interpolate along the first axis; outside of the grid, take the nearest."""
    return np.apply_along_axis(lambda column: np.interp(x, grid, column), 0, values)
