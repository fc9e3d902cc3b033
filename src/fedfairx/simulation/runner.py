"""`simulate`: from a scenario and an algorithm to measured regret."""

from __future__ import annotations

import math
from collections.abc import Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass, field
from functools import partial
from typing import TYPE_CHECKING, Any, Unpack

import numpy as np

from fedfairx.agent.options import Keywords, Options
from fedfairx.core.merit_kernels import MOST_BONUS
from fedfairx.core.slates import ONE
from fedfairx.errors import FedFairXError, needs, require
from fedfairx.simulation.kernel import loop
from fedfairx.simulation.kernel.setup import prepare
from fedfairx.simulation.kernel.state import Counts
from fedfairx.simulation.scenario import Scenario
from fedfairx.util.arrays import Array
from fedfairx.util.figure_style import METRIC_NAMES, Curves, draw_curves
from fedfairx.util.formatting import counted, html_table, mean_and_half, number, text_table

if TYPE_CHECKING:
    import pandas as pd
    from matplotlib.figure import Figure


@dataclass(frozen=True)
class Result:
    """The result of a simulation. Regrets are cumulative and averaged over agents (Definition 1).

    `summary()` is a short table of it, `plot()` a figure, `to_frame()` all numbers for pandas, and `compare`
    puts several side by side.

    rounds: the rounds at which regret was noted, the last one the horizon.
    fairness_regret, reward_regret: a row for each seed, a column for each of `rounds`.
    syncs: how often agents shared, of each seed.
    exposure, shown, entitled: who was shown, with `simulate(…, exposure=True)`; see `weakest_share`.
    options: what the run was made of, as plain values.

    >>> import fedfairx as ffx
    >>> result = ffx.simulate(ffx.Scenario(agents=2, horizon=50), algorithm="fairx-bayes", seeds=2)
    >>> int(result.rounds[-1]), result.fairness_regret.shape
    (50, (2, 50))
    """

    scenario: Scenario
    algorithm: str
    seeds: tuple[int, ...]
    rounds: Counts  # (points,)
    fairness_regret: Array  # (seeds, points)
    reward_regret: Array  # (seeds, points)
    syncs: Counts  # (seeds,)
    exposure: (
        Array  # (seeds, arms): mean share by rank of the true mean, the best first; empty unless asked for
    )
    # Cumulative policy and fair policy, mean over agents, of each arm: by its number where arms stay, else by
    # rank. Empty unless asked for.
    shown: Array  # (seeds, points, arms)
    entitled: Array  # (seeds, points, arms)
    options: dict[str, Any] = field(default_factory=dict)

    def __repr__(self) -> str:  # not the arrays: they fill a screen
        fairness, reward = (mean_and_half(values[:, -1]) for values in self._regrets())
        return (
            f"Result({self.algorithm!r}, T={self.rounds[-1]}, {counted(len(self.seeds), 'seed')}, "
            f"fairness regret {fairness}, reward regret {reward}, {number(float(self.syncs.mean()))} syncs)"
        )

    def _repr_html_(self) -> str:
        return html_table(*self._lines(), caption=self._title())

    def summary(self) -> str:
        """A table of regret at the horizon: a row for each seed, and the mean ± half its 95 % interval."""
        return f"{self._title()}\n{text_table(*self._lines())}"

    def plot(self) -> Figure:
        """A Matplotlib figure: both regrets over rounds, with 95 % bands; `.savefig(path)` keeps it."""
        values = dict(zip(METRIC_NAMES, self._regrets(), strict=True))
        return draw_curves([Curves(self.algorithm, self.algorithm, self.rounds, values)])

    def _regrets(self) -> tuple[Array, Array]:
        return self.fairness_regret, self.reward_regret

    def _title(self) -> str:
        return f"{self.algorithm}, T={self.scenario.horizon}, regret per agent at T"

    def _lines(self) -> tuple[list[str], list[list[str]]]:
        ends = [values[:, -1] for values in self._regrets()]
        rows = [
            [str(seed), *(number(float(values[i])) for values in ends), str(int(self.syncs[i]))]
            for i, seed in enumerate(self.seeds)
        ]
        rows.append(["mean", *(mean_and_half(values) for values in ends), number(float(self.syncs.mean()))])
        return ["seed", *METRIC_NAMES.values(), "synchronisations"], rows

    def weakest_share(self, *, window: int | None = 1) -> Array:
        """(seeds, points): what the weakest action was shown over what it was due, in the last `window`.

        `window` counts points of `rounds`; None is all the time since the start. Where actions stay, the
        weakest is that with the smallest mean under the seed's θ* (under drift: as the run begins), and only
        rounds with it count. Elsewhere it is the last rank, and only rounds with all actions count. NaN where
        none do.
        """
        asked = self.shown.shape[2] > 0
        require(asked, "exposure", "must have been asked for, as simulate(…, exposure=True)", False)
        require(window is None or window >= 1, "window", "must be None or >= 1", window)
        world, each = self.scenario, np.arange(len(self.seeds))
        weakest = np.full(each.size, world.arms - 1)
        if world.arms_stay:
            weakest = np.array([(world.features(s) @ world.parameter(s)).argmin() for s in self.seeds])
        shown, entitled = (_gained(sums[each, :, weakest], window) for sums in (self.shown, self.entitled))
        return np.divide(shown, entitled, out=np.full_like(shown, np.nan), where=entitled > 0)

    def to_frame(self) -> pd.DataFrame:
        """One row for each seed and point."""
        with needs("frames"):
            import pandas as pd

        seeds, points = len(self.seeds), self.rounds.size
        return pd.DataFrame(
            {
                "algorithm": self.algorithm,
                "seed": np.repeat(np.array(self.seeds), points),
                "round": np.tile(self.rounds, seeds),
                "fairness_regret": self.fairness_regret.ravel(),
                "reward_regret": self.reward_regret.ravel(),
                "syncs": np.repeat(self.syncs, points),
            }
        )


def simulate(
    scenario: Scenario,
    *,
    seeds: int | Sequence[int] = 5,
    options: Options | None = None,
    workers: int = 1,
    points: int = 100,
    exposure: bool = False,
    most_bonus: float = MOST_BONUS,
    **keywords: Unpack[Keywords],
) -> Result:
    """Run an algorithm in a scenario, for several seeds, and measure its regret.

    A seed's result is the same to the byte whatever `workers` is and whichever seeds run beside it. Contexts,
    θ* and noise depend on the seed alone, so that two algorithms under one seed are a fair pair.

    Keywords are fields of `Options`, as of `Federation`, and agents are the same ones. What is left out and
    the scenario's laws tell is taken from them, as `Scenario.options` does: private algorithms clip around
    the middle of the scenario's box, to where its laws put contexts and rewards (`bounds` then gives only the
    adjacency and the Gram's share of the noise), and the confidence knows the rewards' σ. `centring=None`
    clips around zero, as the paper does, to `bounds`, or again to where the laws put them. `options` are all
    of them as one object, taken as they are. `exposure=True` also measures who is shown: `Result.exposure`,
    `shown`, `entitled` and `weakest_share`. `most_bonus` is κ, the most that uncertainty may add to the
    logarithm of an expected merit e^{cμ}. Agents have the default; `math.inf`, no limit, is for comparison.

    >>> import fedfairx as ffx
    >>> world = ffx.Scenario(agents=2, arms=3, dimension=2, horizon=50)
    >>> simulate(world, algorithm="fed-fairx-bayes", seeds=3).syncs
    array([50, 50, 50])
    """
    numbers = tuple(range(seeds)) if isinstance(seeds, int) else tuple(int(seed) for seed in seeds)
    require(len(numbers) >= 1, "seeds", "must be at least one", seeds)
    require(all(number >= 0 for number in numbers), "seeds", "must be >= 0", seeds)
    require(workers >= 1, "workers", "must be >= 1", workers)
    require(points >= 1, "points", "must be >= 1", points)
    require(most_bonus > 0, "most_bonus", "must be > 0", most_bonus)
    require(isinstance(scenario, Scenario), "scenario", "must be a Scenario", scenario)
    if options is None:
        chosen = scenario.options(**keywords)
    else:
        chosen = Options.given(options, **keywords)
    text = "must be left out of options, or be the scenario's"
    require(chosen.merit in (None, scenario.merit), "merit", text, chosen.merit)
    text = "must be left out: a simulation shows one action a round; agents (`Agent`) can show several"
    require(chosen.slots == ONE, "slots", text, chosen.slots)
    text = "must be left out: in a simulation all records count alike; agents (`Agent`) can have one"
    require(chosen.half_life is None, "half_life", text, chosen.half_life)
    chosen.check_dimension(scenario.dimension)
    grid = _grid(scenario.horizon, points)
    groups = [numbers[i::workers] for i in range(min(workers, len(numbers)))]
    if len(groups) == 1:
        parts = [_run_group(scenario, chosen, groups[0], grid, exposure, most_bonus)]
    else:
        with ThreadPoolExecutor(len(groups)) as pool:  # the kernel releases the GIL
            run = partial(_run_group, scenario, chosen, grid=grid, exposure=exposure, most_bonus=most_bonus)
            parts = list(pool.map(run, groups))
    order = np.argsort(
        np.concatenate([np.arange(len(numbers))[i :: len(groups)] for i in range(len(groups))])
    )
    fairness, reward, syncs, shares, shown, entitled = (
        np.concatenate(column)[order] for column in zip(*parts, strict=True)
    )
    name = chosen.composed.name
    return Result(
        scenario, name, numbers, grid, fairness, reward, syncs, shares, shown, entitled, chosen.summary()
    )


def _grid(horizon: int, points: int) -> Counts:
    """`points` rounds, evenly spread, the last one the horizon."""
    return np.unique(np.ceil(np.linspace(0, horizon, min(points, horizon) + 1)[1:]).astype(np.int64))


def _gained(sums: Array, window: int | None) -> Array:
    """Growth of cumulative sums (seeds, points) over the last `window` points; None: since the start."""
    points = sums.shape[1]
    before = np.concatenate([np.zeros((sums.shape[0], 1)), sums], axis=1)
    began = np.maximum(np.arange(1, points + 1) - (window or points), 0)
    return np.asarray(sums - before[:, began])


def _run_group(
    scenario: Scenario,
    options: Options,
    seeds: tuple[int, ...],
    grid: Counts,
    exposure: bool,
    most_bonus: float,
) -> tuple[Array, Array, Counts, Array, Array, Array]:
    setting = prepare(scenario, options, seeds, grid, exposure=exposure, most_bonus=most_bonus)
    loop.run(0, scenario.horizon, *setting)
    tally, shown = setting.tally, setting.exposure
    if not math.isfinite(float(tally.fairness.sum())):
        raise FedFairXError("scenario must keep all numbers finite: the simulation overflowed")
    shares = shown.by_rank / (scenario.agents * scenario.horizon)
    return tally.fairness, tally.reward, tally.syncs, shares, shown.shown, shown.entitled
