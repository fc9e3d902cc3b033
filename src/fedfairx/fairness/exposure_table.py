"""Exposure tables: shown and entitled shares, and whether they differ beyond chance and uncertainty.

A row has two verdicts. The likely one rests on the model and its prior, and needs a posterior. The certain
one (`verdict`) needs neither and holds at all times, so it takes far more data.
"""

from __future__ import annotations

import math
from collections import Counter
from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass, replace
from functools import partial
from typing import Any

import numpy as np
from numpy.typing import ArrayLike, NDArray

from fedfairx.core.merit import Exponential, Merit
from fedfairx.core.posterior import Posterior
from fedfairx.errors import InvalidInput, require
from fedfairx.fairness import likely
from fedfairx.fairness.confidence_region import Ellipsoid, region
from fedfairx.fairness.confidence_sequences import share_interval, spending
from fedfairx.fairness.credible import LEVEL, Belief, Estimates, Normal, OverTime, estimate, own_names
from fedfairx.fairness.decision_log import Block, Blocks, Labels, Logged, gather, records
from fedfairx.fairness.draw_test import Draws, DrawsSoFar
from fedfairx.fairness.forecast import Forecast, ShownSoFar
from fedfairx.fairness.likely import Likely, SharesSoFar
from fedfairx.fairness.totals import Sets, Tally
from fedfairx.util.arrays import Array
from fedfairx.util.formatting import html_table, number, text_table

# Of the error: one half is for entitlements, and a quarter each for shown shares of actions and of groups.
_MERIT_SHARE = 0.5
_SHOWN_SHARE = 0.25
_LEAST_MORE = 0.1  # of the rewards so far: a forecast is not nearer than that
#: Columns of features and names for which something is certain, and actions with names alone: more would take
#: too much time and memory, and far more rewards than anybody has.
MOST_COLUMNS, MOST_NAMES = 200, 2_000
_TITLES = ("", "decisions", "shown", "between", "entitled", "between", "verdict")
_LIKELY_TITLES = ("", "decisions", "shown", "estimated", "between", "likely", "certain")


@dataclass(frozen=True)
class Exposure:
    """The table: per action and per group, and whether actions were drawn as the policy said.

    >>> log = [Logged([0.5, 0.5], t % 2, [0, 1], names=["ann", "ben"], reward=t % 2) for t in range(2000)]
    >>> table = exposure(log)
    >>> [row.name for row in table.actions], len(table.claims()) > 0
    (['ann', 'ben'], True)
    """

    actions: tuple[Row, ...]
    groups: tuple[Row, ...]
    draws: Draws
    decisions: int
    rewards: int  # number of rewards behind the estimate of merit
    error: float
    tolerance: float
    noise_sd: float
    merit: Merit
    featureless: bool = False  # whether actions have no features, so that each has a separate expected reward
    several: bool = False  # whether decisions have several slots, or a slot of a weight other than 1
    changing: bool = False  # whether merit is expected to change, so that nothing is said of entitlements
    over_time: OverTime | None = None  # shares of actions, if entitlements were estimated
    learnt: bool = False  # whether any reward is behind the estimates
    answered: float = math.nan  # for which part of the decisions a reward comes, about
    by_name: bool = False  # whether rewards may differ by name beside features
    too_many: int | None = None  # columns or names, at most, beyond which nothing is certain, where there are

    def claims(self) -> tuple[str, ...]:
        """Return the claims of this table, in sentences."""
        least = 1 - self.tolerance
        shown, chances = "share among decisions in which the action was available", "probabilities"
        if self.several:
            shown = "share of the weights of all slots, in decisions in which the action was available"
            chances = "expected weights"
        due = ", as far as slots allow: no action can have more than the first slot" if self.several else ""
        certain = "" if self.over_time is None else "certain "
        shares = (
            f"With probability at least {100 * (1 - self.error):g} %, all {certain}intervals of actions and "
            "groups hold at all times at once: you may read the table every day and stop at will.",
            f'"Shown" is the {shown}. Its interval covers the '
            f"mean of the {chances} that it really had, whatever the recorded policies are.",
        )
        if self.changing:
            return (
                *shares,
                '"Entitled" is left open, and nothing is judged: entitlements follow from rewards only where '
                "merit stays the same, and this agent has a half-life because merit is expected to change.",
            )
        if self.too_many is not None:
            what = "names" if self.featureless else "features and names together"
            return (
                *self._estimates(),
                *shares,
                f"Certain entitlements are left open, and no verdict is certain: there are more than "
                f"{number(self.too_many)} {what}.",
            )
        model = "of each action have a constant mean" if self.featureless else "are linear in the features"
        if self.by_name:
            model += " and differ by name"
        return (
            *self._estimates(),
            *shares,
            f'"Entitled" is the share in proportion to true merit{due}, averaged over the same decisions. '
            "Its interval holds for every parameter that the rewards so far leave possible, if rewards "
            f"{model} and vary around it by noise of sd {self.noise_sd:g} at most.",
            f'"Within" means surely between {100 * least:.0f} and {100 / least:.0f} % of the entitlement; '
            '"below" and "above" mean surely less and surely more than it; "too little data" means none of '
            "these is sure.",
        )

    def _estimates(self) -> tuple[str, ...]:
        if self.over_time is None:
            return ()
        least = 1 - self.tolerance
        return (
            f'"Estimated" is the expected entitled share with a {100 * LEVEL:g} % credible interval: an '
            "estimate under the model, right if the model and its prior are, and not at all times at once.",
            '"Likely below", "likely above" and "in line" mean that, with a probability of at least '
            f"{100 * likely.LEVEL:g} % under the model, both the share shown and the share without the luck "
            f"of the draw are less than {100 * least:.0f} % of the entitled one, more than "
            f"{100 / least:.0f} %, or between. Of all such verdicts that the table has at any one time, at "
            f"most {100 * (1 - likely.LEVEL):.0f} % are wrong on average, if the model and its prior are "
            "right. That is not the probability that none is ever wrong.",
            UNSEEN,
        )

    def summary(self) -> str:
        """Say in one sentence who is likely treated unfairly, and how many of them are no longer there.

        >>> log = [Logged([0.5, 0.5], t % 2, [0, 1], names=["ann", "ben"], reward=0.5) for t in range(40)]
        >>> exposure(log, posterior=([0.5, 0.5], [[0.0001, 0.0], [0.0, 0.0001]])).summary()
        'Nobody is known to be below: of 2 actions, 2 are in line.'
        """
        rows = (*self.groups, *self.actions)
        if not rows:
            return "Nothing is known: no decision has shown an action."
        if self.changing:
            return "Nobody is judged: merit is expected to change, and entitlements rest on merit that stays."
        counts = Counter(row.likely.verdict for row in rows if row.likely is not None)
        if not counts:
            return "Nobody is judged: there is no model of the rewards."
        if not self.learnt:
            return "Nobody is known to be below: this rests on no reward yet, so nothing is known of merit."
        who = _many(len(self.actions), "action")
        if self.groups:
            who += f" and {_many(len(self.groups), 'group')}"
        words = (likely.BELOW, likely.ABOVE, likely.IN_LINE, likely.UNKNOWN)
        gone = [row.likely.verdict for row in rows if row.left and row.likely is not None]
        left = Counter(each for each in gone if each in (likely.BELOW, likely.ABOVE))
        parts = [
            f"{number(counts[each])} {_be(counts[each])} {each}{_of_whom(counts[each], left[each])}"
            for each in words
            if counts[each]
        ]
        text = ", ".join(parts[:-1]) + " and " + parts[-1] if parts[1:] else parts[0]
        return f"{'Of' if counts[likely.BELOW] else 'Nobody is known to be below: of'} {who}, {text}."

    def __str__(self) -> str:
        tables = [
            text_table(self._titles, map(self._cells, rows)) for rows in (self.groups, self.actions) if rows
        ]
        return "\n\n".join([*tables, str(self.draws)])

    def _repr_html_(self) -> str:
        rows = [self._cells(row) for row in (*self.groups, *self.actions)]
        return html_table(self._titles, rows, caption=str(self.draws))

    @property
    def _titles(self) -> tuple[str, ...]:
        return _TITLES if self.over_time is None else _LIKELY_TITLES

    def _cells(self, row: Row) -> tuple[object, ...]:
        first = (row.name, f"{row.rounds:,}".replace(",", " "), percent(row.shown.value))
        if row.estimate is None or row.likely is None:
            return *first, _ends(row.shown), percent(row.entitled.value), _ends(row.entitled), row.verdict
        due = row.estimate
        return *first, percent(due.value), _ends(due), row.likely.verdict, row.verdict


def exposure(
    log: Iterable[Logged],
    *,
    merit: Merit | None = None,
    noise_sd: float = 0.5,
    error: float = 0.05,
    tolerance: float = 0.2,
    sums: tuple[ArrayLike, ArrayLike] | None = None,
    changing: bool = False,
    posterior: Belief | tuple[ArrayLike, ArrayLike] | None = None,
    times: Sequence[float] = (0.0,),
) -> Exposure:
    """Compare shown with entitled shares, from a log of decisions in the order in which they were made.

    merit: the agent's merit function of rewards; `Exponential()` by default.
    noise_sd: σ of the rewards' noise, or a bound on it: half of the range of rewards is always a bound, so
        0.5 is right for rewards from 0 to 1.
    error: probability, at most, that any interval of actions or groups ever fails to hold.
    tolerance: 0.2 calls "within" what gets between four fifths and five quarters of its entitlement.
    sums: (Σxxᵀ, Σxy) over all rewards so far, if the log is only a part of the decisions; with own records
        in `posterior`, x has a column for each of its names after the features.
    changing: whether merit is expected to change, as by an agent with a half-life. Entitlements, which rest
        on one parameter for all rounds, are then not estimated.
    posterior: what is believed of θ: `agent.posterior`, or (mean, covariance). If names have own records in
        it, rewards may differ by name: what is certain then holds for features and names. Each row has an
        `estimate` with a 95 % credible interval, which says more than `entitled` while there are few rewards,
        and rests on the model; a `likely` verdict by the same model; and `more`, about how many rewards it
        takes until the verdict is certain.
    times: when each stretch of time begins, if decisions have a `stretch`.

    >>> contexts = [[1.0, 0.0], [0.0, 1.0]]
    >>> log = [Logged([0.5, 0.5], t % 2, contexts=contexts, reward=0.5) for t in range(30_000)]
    >>> [(row.name, row.verdict) for row in exposure(log, noise_sd=0.1).actions]
    [('action 0', 'within'), ('action 1', 'within')]
    """
    require(0 < error < 1, "error", "must be in (0, 1)", error)
    require(0 <= tolerance < 1, "tolerance", "must be in [0, 1)", tolerance)
    require(math.isfinite(noise_sd) and noise_sd > 0, "noise_sd", "must be finite and > 0", noise_sd)
    merit = Exponential() if merit is None else merit
    sorted_log = gather(log)
    blocks = sorted_log.blocks
    belief = None if changing else _belief(posterior, sorted_log)
    featureless = any(map(_featureless, blocks))
    by_name = not featureless and belief is not None and own_names(belief) is not None
    dimension, most = _dimension(sorted_log, belief if by_name else None), MOST_COLUMNS if by_name else None
    if featureless:
        most = MOST_NAMES
    too_many = most if most is not None and dimension > most else None
    if by_name and too_many is None:
        assert belief is not None
        blocks = sorted_log.blocks = _with_places(sorted_log, belief)
    gram, moment, rewards = None, None, 0
    if sums is not None:
        gram, moment = _as_arrays(sums)
    elif too_many is None:
        gram, moment, rewards = _sums(sorted_log, dimension)
    ellipsoid = None
    if too_many is None and gram is not None and moment is not None:
        fits = sums is None or moment.size == dimension or (featureless and moment.size > dimension)
        fits = fits or any(block.contexts is None for block in blocks) or not blocks
        text = "must have the dimension of the contexts" + by_name * ", and of names with own records"
        require(fits, "sums", text, f"{moment.size} numbers")
        if not changing and gram.any() and all(block.contexts is not None for block in blocks):
            ellipsoid = region(gram, moment, noise_sd=noise_sd, error=error * _MERIT_SHARE)
    draws, tallies = _count(sorted_log, ellipsoid, merit, len(times))
    unsaid = NOT_JUDGED if changing or too_many is not None else UNKNOWN
    decisions = sum(len(block.taken) for block in blocks)
    actions, groups = (
        tuple(_rows(tally, labels, ellipsoid, error * _SHOWN_SHARE, tolerance, unsaid, decisions))
        for tally, labels in zip(tallies, (sorted_log.names, sorted_log.groups), strict=True)
    )
    shown = sum(int((block.times > 0).sum()) for block in blocks)
    several = any(block.weights.shape[1] > 1 or bool((block.weights != 1.0).any()) for block in blocks)
    settings = error, tolerance, noise_sd, merit, featureless, several, changing
    table = Exposure(actions, groups, draws, shown, rewards, *settings, by_name=by_name, too_many=too_many)
    if belief is None or not actions:
        return table
    return _with_estimates(table, sorted_log, tallies, belief, None if ellipsoid is None else gram, times)


def _featureless(block: Block) -> bool:
    return block.contexts is not None and block.contexts.ndim == 2


def _dimension(sorted_log: Blocks, by_name: Belief | None) -> int:
    """How many numbers the certain model has: of features, and of names with own records, if these count."""
    names = None if by_name is None else own_names(by_name)
    for block in sorted_log.blocks:
        if block.contexts is not None and block.contexts.ndim == 3:
            return int(block.contexts.shape[2]) + (0 if names is None else len(names.places))
    places = (block.contexts for block in sorted_log.blocks if block.contexts is not None)
    return max((1 + int(each.max()) for each in places), default=0)


def _with_places(sorted_log: Blocks, belief: Belief) -> list[Block]:
    """The blocks with the places of names that have own records."""
    names = own_names(belief)
    assert names is not None
    places = np.array([names.places.get(name, -1) for name in sorted_log.names.numbers], dtype=np.int64)
    return [replace(block, own=places[block.names]) for block in sorted_log.blocks]


def _sums(sorted_log: Blocks, dimension: int) -> tuple[Array, Array, int]:
    gram, moment, count = np.zeros((dimension, dimension)), np.zeros(dimension), 0
    for contexts, rewards in records(sorted_log.blocks, dimension):
        gram += contexts.T @ contexts
        moment += contexts.T @ rewards
        count += rewards.size
    return gram, moment, count


def _as_arrays(sums: tuple[ArrayLike, ArrayLike]) -> tuple[Array, Array]:
    gram, moment = (np.asarray(part, dtype=np.float64) for part in sums)
    sound = gram.shape == (moment.size, moment.size) and np.isfinite(gram).all() and np.isfinite(moment).all()
    if not sound:
        raise InvalidInput("sums must be a (d, d) array and a (d,) array of finite numbers")
    return gram, moment


def _belief(posterior: Belief | tuple[ArrayLike, ArrayLike] | None, sorted_log: Blocks) -> Belief | None:
    blocks = sorted_log.blocks
    if posterior is None or not blocks or any(block.contexts is None for block in blocks):
        return None
    if isinstance(posterior, tuple):
        mean, covariance = (np.asarray(part, dtype=np.float64) for part in posterior)
        sound = covariance.shape == (mean.size, mean.size) and np.isfinite(covariance).all()
        if not (sound and np.isfinite(mean).all()):
            raise InvalidInput("posterior must be a (d,) array and a (d, d) array of finite numbers")
        posterior = Normal(mean, covariance)
    size, names = posterior.mean.size, own_names(posterior)
    if names is not None and any(map(_featureless, blocks)):
        known = size == 1 and any(name in names.places for name in sorted_log.names.numbers)
        text = "must be of an agent whose actions have these names alone"
        require(known, "posterior", text, f"{len(names.places)} names", "give Logged their names")
        return posterior
    fits = all(block.fits(size) for block in blocks)
    remedy = "contexts of an agent with an intercept end with it (fedfairx.features.intercept)"
    require(fits, "posterior", "must be of the dimension of the contexts", f"{size} numbers", remedy)
    return posterior


def _with_estimates(
    table: Exposure,
    sorted_log: Blocks,
    tallies: tuple[Tally, Tally],
    belief: Belief,
    gram: Array | None,
    times: Sequence[float],
) -> Exposure:
    """Add what the posterior says; `gram` is None if nothing was learnt yet, or nothing is certain."""
    labels = sorted_log.names, sorted_log.groups
    decisions, answered = _answered(sorted_log)
    names, count = list(sorted_log.names.numbers), len(sorted_log.groups.numbers)
    believed = estimate(_seen(sorted_log), belief, table.merit, names, count, len(times))
    learnt = gram is not None or (table.too_many is not None and _has_learnt(belief))
    forecasts = None if gram is None else _forecasts(table, sorted_log, belief, gram)
    rows = []
    for each, own_labels, tally, sums in zip(
        (table.actions, table.groups), labels, tallies, believed, strict=True
    ):
        weight = np.where(tally.weight > 0, tally.weight, 1.0)
        value, low, high = sums.interval(weight)
        seen, due = SharesSoFar.of(tally), sums.shares(weight)
        chances = likely.probabilities(seen, due, table.tolerance)
        more, later = np.full((2, tally.rounds.size), math.nan)
        if forecasts is not None and each:
            certain, probable, so_far = forecasts
            codes = certain.latest.names if own_labels is sorted_log.names else certain.latest.groups
            errors = table.error * _SHOWN_SHARE * spending(tally.rounds.size)
            shown = ShownSoFar(np.maximum(tally.rounds, 1.0), tally.shown, errors)
            more = certain.rewards(codes, shown, so_far, partial(_certain, tolerance=table.tolerance))
            more = np.maximum(more, _LEAST_MORE * so_far)
            growth = 1.0 / (answered * decisions)
            later = probable.likely(codes, seen, tally.rounds, due, table.tolerance, growth) / answered
            later = np.maximum(later, _LEAST_MORE * decisions)
        places = [own_labels.numbers[row.name] for row in each]
        rows.append(
            tuple(
                replace(
                    row,
                    estimate=Share(float(value[k]), float(low[k]), float(high[k])),
                    more=None if row.verdict != UNKNOWN else _about(more[k]),
                    likely=_likely([float(each[k]) for each in chances], later[k], learnt),
                )
                for row, k in zip(each, places, strict=True)
            )
        )
    over_time = _over_time(sorted_log.names, tallies[0], believed[0], times)
    table = replace(table, actions=rows[0], groups=rows[1], over_time=over_time)
    return replace(table, learnt=learnt, answered=answered)


def _has_learnt(belief: Belief) -> bool:
    return not isinstance(belief, Posterior) or bool(belief.gram.any())


def _likely(chances: Sequence[float], more: float, learnt: bool) -> Likely:
    words = likely.verdict(*chances) if learnt else likely.UNKNOWN  # nobody is judged by the prior alone
    below, in_line, above = chances
    return Likely(words, below, in_line, above, _about(more) if words == likely.UNKNOWN else None)


def _about(more: float) -> int | None:
    """Round a forecast to two digits; None if nothing can be said."""
    return None if math.isnan(more) else int(float(f"{more:.1e}"))


def _answered(sorted_log: Blocks) -> tuple[int, float]:
    """Return the number of decisions, and for which part of them a reward comes, by the older half if it can.

    Rewards of the latest decisions may still come.
    """
    places = np.concatenate([block.positions for block in sorted_log.blocks])
    came = np.concatenate([np.isfinite(block.rewards).mean(axis=1) for block in sorted_log.blocks])
    older = came[2 * places < places.size]
    return places.size, float(older.mean()) if older.any() else float(came.mean())


def _seen(sorted_log: Blocks) -> Iterator[Block]:
    """Yield the rounds that showed something, those with equal entitlements merged."""
    for block in sorted_log.blocks:
        seen = block.times > 0
        yield (block if seen.all() else block[seen]).distinct()


def _forecasts(
    table: Exposure, sorted_log: Blocks, belief: Belief, gram: Array
) -> tuple[Forecast, Forecast, int] | None:
    """Forecast from the latest rounds, where the linear bound holds, and say how many rewards came so far.

    The first is of what is certain, the second of what is likely: they differ in λ.
    """
    so_far = sum(int(np.isfinite(block.rewards).sum()) for block in sorted_log.blocks)
    if not isinstance(table.merit, Exponential) or table.several or not so_far:
        return None
    latest = max(sorted_log.blocks, key=lambda block: int(block.positions[-1]))
    basis = latest, _means(sorted_log, belief, gram), gram, table.merit, table.noise_sd
    return (
        Forecast(*basis, table.error * _MERIT_SHARE, np.full(len(gram), table.noise_sd**2)),
        Forecast(*basis, table.error * _MERIT_SHARE, _ridges(belief, gram, table.noise_sd)),
        so_far,
    )


def _means(sorted_log: Blocks, belief: Belief, gram: Array) -> Array:
    """The mean of the certain model's numbers (d,): of θ, and of own numbers by their places."""
    names = own_names(belief)
    if not isinstance(belief, Posterior) or names is None:
        return belief.mean
    if not any(map(_featureless, sorted_log.blocks)):
        return np.concatenate([belief.mean, belief.own_mean(list(names.places))])
    means, own = np.full(len(gram), belief.mean[0]), belief.own_mean(list(sorted_log.names.numbers))
    for block in sorted_log.blocks:
        assert block.contexts is not None
        means[block.contexts] = belief.mean[0] + own[block.names]
    return means


def _ridges(belief: Belief, gram: Array, noise_sd: float) -> Array:
    """λ of the posterior for each of its numbers (d,), about: ρ of names."""
    size, names = len(gram), own_names(belief)
    if names is not None:
        ridge = sum(
            float(weight * (sizes.weights @ sizes.ridge))
            for weight, sizes in zip(names.weights, names.sizes, strict=True)
        )
        ridges = np.full(size, float(names.weights @ names.ratios))
        ridges[: size - len(names.places)] = ridge
        return ridges
    if not isinstance(belief, Normal):
        return np.full(size, float(belief.sizes.weights @ belief.sizes.ridge))
    variances = np.diagonal(belief.covariance)
    widest = int(variances.argmax())  # a direction with few records
    ridge = noise_sd**2 / float(variances[widest]) - float(gram[widest, widest])
    return np.full(size, max(ridge, 1e-6 * noise_sd**2))


def _over_time(labels: Labels, tally: Tally, believed: Estimates, times: Sequence[float]) -> OverTime:
    with np.errstate(invalid="ignore", divide="ignore"):
        shown = tally.shown_over_time / tally.weight_over_time
        due = believed.over_time / tally.weight_over_time
    shares = ({name: each[k].tolist() for name, k in labels.numbers.items()} for each in (shown, due))
    return OverTime(list(times), *shares)


def _count(
    sorted_log: Blocks, ellipsoid: Ellipsoid | None, merit: Merit, stretches: int
) -> tuple[Draws, tuple[Tally, Tally]]:
    dimension = 0 if ellipsoid is None else ellipsoid.centre.size
    draws = DrawsSoFar()
    names, groups = (
        Tally.empty(len(each.numbers), dimension, stretches) for each in (sorted_log.names, sorted_log.groups)
    )
    for block in sorted_log.blocks:
        seen = block.times > 0
        for part in _parts(block, 1):
            draws.take(part, Sets.of(part.names), len(sorted_log.names.numbers))
            for tally, codes in ((names, part.names), (groups, part.groups)):
                if tally.rounds.size:
                    tally.give(part, codes, Sets.of(codes))
        shown = block if seen.all() else block[seen]
        for part in _parts(shown, 1):
            for tally, codes in ((names, part.names), (groups, part.groups)):
                if tally.rounds.size:
                    tally.count(part, codes, Sets.of(codes))
        dense = 1 if ellipsoid is None or (ellipsoid.root.ndim == 1 and _featureless(block)) else dimension
        for part in _parts(shown.distinct(), dense):
            for tally, codes in ((names, part.names), (groups, part.groups)):
                if tally.rounds.size:
                    tally.entitle(part, codes, Sets.of(codes), ellipsoid, merit)
    return draws.answer(), (names, groups)


def _parts(block: Block, dimension: int) -> Iterator[Block]:
    """Split a block where (K, d) numbers for each decision would take too much memory."""
    arms = block.policy.shape[1]
    rows = max(1, (1 << 20) // (arms * dimension))
    for start in range(0, len(block.taken), rows):
        yield block[start : start + rows]


def _rows(
    tally: Tally,
    labels: Labels,
    ellipsoid: Ellipsoid | None,
    error: float,
    tolerance: float,
    unsaid: str,
    decisions: int,
) -> Iterator[Row]:
    if not labels.numbers:
        return
    errors = error * spending(tally.rounds.size)
    low, high = tally.interval(0.0 if ellipsoid is None else ellipsoid.radius)
    rounds, weight = np.maximum(tally.rounds, 1.0), np.where(tally.weight > 0, tally.weight, 1.0)
    most = None if bool(np.isin(tally.most, (0.0, 1.0)).all()) else np.where(tally.most > 0, tally.most, 1.0)
    ends = share_interval(tally.shown, rounds, errors, most)
    shown_low, shown_high = ((end * (rounds / weight)).clip(max=1.0) for end in ends)
    gone = likely.left(tally, decisions)
    for name, k in labels.numbers.items():
        n = tally.rounds[k]
        if n == 0:  # its decisions showed nothing
            continue
        shown = Share(tally.shown[k] / weight[k], shown_low[k], shown_high[k])
        middle = math.nan if ellipsoid is None else min(max(tally.share[k] / weight[k], low[k]), high[k])
        entitled = Share(middle, low[k], high[k])
        words = unsaid if ellipsoid is None else verdict(shown, entitled, tolerance)
        counts, policy = (int(n), int(tally.times[k])), tally.policy[k] / weight[k]
        yield Row(name, *counts, shown, policy, entitled, words, left=bool(gone[k]))


def _ends(share: Share) -> str:
    return f"{percent(share.low)} and {percent(share.high)}"


def _many(count: int, what: str) -> str:
    """ "1 action", "1 000 actions"."""
    return f"{number(count)} {what}{'' if count == 1 else 's'}"


def _be(count: int) -> str:
    return "is" if count == 1 else "are"


def _of_whom(count: int, left: int) -> str:
    """How many of them have left, if any has."""
    if not left:
        return ""
    who = "it" if count == 1 else "all" if left == count else f"{number(left)} of them"
    return f" ({who} {'has' if left == 1 else 'have'} left)"


def percent(share: float) -> str:
    """Format a share as "12.3 %"."""
    return "–" if math.isnan(share) else f"{100 * share:.1f} %"


WITHIN, BELOW, ABOVE, UNKNOWN = "within", "below", "above", "too little data"
#: What likely verdicts can't see.
UNSEEN = (
    "Likely verdicts judge shares by the same model that makes them: they see lag, exploration and your own "
    "choices, and they can't see that the model is wrong."
)
NOT_JUDGED = "not judged"  # where merit is expected to change


@dataclass(frozen=True)
class Share:
    """A share of decisions, of several slots of their weights, and its interval, which holds at all times.

    >>> log = [Logged([0.5, 0.5], t % 2, names=["ann", "ben"]) for t in range(2000)]
    >>> shown = exposure(log).actions[0].shown
    >>> bool(shown.low < 0.5 < shown.high)
    True
    """

    value: float
    low: float
    high: float


@dataclass(frozen=True)
class Row:
    """An action or a group, over the rounds in which it was available.

    >>> log = [Logged([0.5, 0.5], t % 2, names=["ann", "ben"]) for t in range(2000)]
    >>> ann = exposure(log).actions[0]
    >>> ann.name, ann.count, float(ann.shown.value)
    ('ann', 1000, 0.5)
    """

    name: str
    rounds: int
    count: int  # how often it was shown
    shown: Share
    policy: float  # share under the policies: the shown share without the luck of the draw
    entitled: Share
    verdict: str  # what is certain
    estimate: Share | None = None  # of the entitlement, under a posterior, with a credible interval
    more: int | None = None  # rewards, about, until the verdict may be certain
    likely: Likely | None = None  # what is likely under a posterior
    left: bool = False  # whether it is no longer among the actions, by how long it was absent

    @property
    def estimated(self) -> float:
        """The share that it is entitled to, as well as it is known."""
        return self.entitled.value if self.estimate is None else self.estimate.value

    @property
    def shortfall(self) -> Share:
        """Entitled less shown; its interval holds while both others hold."""
        due, shown = self.entitled, self.shown
        return Share(due.value - shown.value, due.low - shown.high, due.high - shown.low)


def verdict(shown: Share, entitled: Share, tolerance: float) -> str:
    """Return the verdict that is certain while both intervals hold."""
    if _is_within(shown.low, shown.high, entitled.low, entitled.high, tolerance):
        return WITHIN
    if shown.high < entitled.low:
        return BELOW
    if shown.low > entitled.high:
        return ABOVE
    return UNKNOWN


def _is_within(low: Any, high: Any, due_low: Any, due_high: Any, tolerance: float) -> Any:
    least = 1.0 - tolerance
    return (low >= least * due_high) & (least * high <= due_low)


def _certain(
    low: Array, high: Array, due_low: Array, due_high: Array, *, tolerance: float
) -> NDArray[np.bool_]:
    """Tell of which rows the verdict is certain."""
    within = _is_within(low, high, due_low, due_high, tolerance)
    return np.asarray(within | (high < due_low) | (low > due_high))
