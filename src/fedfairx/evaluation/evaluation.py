"""Evaluate policies on a log: what each would have earned and shown, and whether the log can tell."""

from __future__ import annotations

import math
import textwrap
from collections.abc import Mapping, Sequence
from dataclasses import dataclass, replace
from typing import TYPE_CHECKING, Any

import numpy as np

from fedfairx.agent.options import Options
from fedfairx.core.merit import Exponential, Merit
from fedfairx.errors import InvalidInput, require
from fedfairx.evaluation.estimators import (
    Estimate,
    PolicyValue,
    RewardScale,
    importance,
    self_normalised,
    series_of,
    slot_weights,
)
from fedfairx.evaluation.logs import read_log
from fedfairx.evaluation.policies import Decisions, Policy, believed, named, shares_of
from fedfairx.evaluation.regression import guesses_of
from fedfairx.fairness.credible import LEVEL, distances, interval
from fedfairx.fairness.decision_log import Block, Blocks, Labels, gather
from fedfairx.fairness.draw_test import Draws, DrawsSoFar
from fedfairx.fairness.totals import Sets
from fedfairx.util.arrays import Array
from fedfairx.util.formatting import counted, html_table, number, text_table

if TYPE_CHECKING:
    from matplotlib.figure import Figure

LOGGED = "the log"
MOST_UNSUPPORTED = 0.01  # of a policy's weight on actions that the log can't show
FEWEST = 30.0  # effective decisions that an estimate needs
_TITLES = (
    *("policy", "mean reward", "between", "gain", "between"),
    *("fairness regret", "between", "effective decisions"),
)
_ALL_TITLES = ("policy", "DR", "between", "IPS", "between", "SNIPS", "about", "largest weight", "unsupported")


@dataclass(frozen=True)
class Evaluation:
    """The log itself and each policy, in order, with what makes the log fit or unfit to judge them.

    >>> from fedfairx import Logged
    >>> log = [Logged([0.5, 0.5], t % 2, names=["ann", "ben"], reward=t % 2) for t in range(2000)]
    >>> evaluation = evaluate(log, "uniform")
    >>> evaluation.decisions, round(evaluation["uniform"].gain.value, 2)
    (2000, 0.0)
    """

    policies: Mapping[str, PolicyValue]
    decisions: int  # that were evaluated
    left_out: int  # without a reward, or withdrawn
    draws: Draws
    error: float
    merit: Merit
    replayed: bool = False  # whether a policy is one of options
    gone: str | None = None  # what is no longer in the log, as a sentence

    def __getitem__(self, name: str) -> PolicyValue:
        return self.policies[name]

    def notes(self) -> tuple[str, ...]:
        """Return what the numbers mean and what they rest on, in sentences."""
        sentences = [
            f"Mean rewards are over {number(self.decisions)} decisions. Intervals hold with probability at "
            f"least {100 * (1 - self.error):g} % each, at all times: you may evaluate a log every day, if "
            "it only grows at its end. Those of SNIPS are only right for long logs.",
            "Fairness regret is the mean distance from shares by true merit, which the log leaves uncertain: "
            f"an estimate with a {100 * LEVEL:g} % credible interval, right if rewards are linear in the "
            "features and differ by name, and the prior is right, for one look at the log.",
        ]
        if self.replayed:
            sentences.append(
                "Options are replayed: their value is the mean over policies that have learnt the log so "
                "far, not what a live agent would have earned, which would have learnt from its own choices."
            )
        if self.left_out:
            sentences.append(
                f"Left out: {counted(self.left_out, 'decision')} without a reward. That is right if whether "
                "a reward comes, and when, does not depend on what it is."
            )
        if self.gone:
            sentences.append(self.gone)
        sentences.append(str(self.draws))
        sentences += [f"{name}: {each.refused}." for name, each in self.policies.items() if each.refused]
        return tuple(sentences)

    def estimates(self) -> str:
        """Return a table of all estimates side by side, with what their quality depends on."""
        return text_table(_ALL_TITLES, map(_all_cells, self.policies.values()))

    def __str__(self) -> str:
        table = text_table(_TITLES, map(_cells, self.policies.values()))
        return "\n".join([table, "", *(textwrap.fill(note, 110) for note in self.notes())])

    def _repr_html_(self) -> str:
        return html_table(_TITLES, map(_cells, self.policies.values()), caption=" ".join(self.notes()))

    def to_dict(self) -> dict[str, Any]:
        """Return everything as plain values; numbers that are not known are None."""
        return {
            "decisions": self.decisions,
            "left_out": self.left_out,
            "gone": self.gone,
            "draws_p_value": self.draws.p_value,
            "error": self.error,
            "merit": repr(self.merit),
            "policies": [_plain(vars(each)) for each in self.policies.values()],
        }

    def plot(self) -> Figure:
        """Draw mean rewards with their intervals, and the share of each action."""
        from fedfairx.evaluation.figure import draw

        return draw(list(self.policies.values()), self.error)


def evaluate(
    log: Any,
    policies: Policy | Sequence[Policy] | Mapping[str, Policy],
    *,
    merit: Merit | None = None,
    reward_range: tuple[float, float] | None = None,
    error: float = 0.05,
    agent: str | None = None,
) -> Evaluation:
    """Estimate what policies would have earned and shown in the decisions of a log.

    log: `Logged` decisions in the order in which they were made; or a pandas or polars frame with the
        columns of the service's export; or the path of an export, of a service's data folder, or of a
        database, which is only read.
    policies: one, several, or by name. "uniform" and "greedy" (all to the action of the highest estimated
        reward), `Options` (replayed: at each decision what an agent would do that has learnt the log so far;
        without a `reward_range` of their own they have that of the log),
        an `Agent` (as it is now), or a function that returns the shares (K,) of contexts (K, d).
    merit: what fairness regret is measured by; by default that of the log's agent.
    reward_range: (low, high) of all rewards; by default that of the log's agent, or (0, 1).
    error: probability, at most, that an interval ever fails to hold.
    agent: which one, if the database holds several.

    >>> from fedfairx import Logged
    >>> log = [Logged([0.5, 0.5], t % 2, names=["ann", "ben"], reward=t % 2) for t in range(2000)]
    >>> evaluation = evaluate(log, {"all to ben": lambda names: [0.0, 1.0]})
    >>> round(evaluation["all to ben"].reward.value, 2)
    1.0
    """
    require(0 < error < 1, "error", "must be in (0, 1)", error)
    decision_log = read_log(log, agent=agent, merit=merit)
    options, others = decision_log.options, named(policies)
    require(LOGGED not in others, "policies", f"must not be called {LOGGED!r}, which is there anyway", LOGGED)
    stated = reward_range or (None if options is None else options.reward_range)
    ends = stated or (0.0, 1.0)
    measure = merit or (None if options is None else options.merit) or Exponential.for_range(*ends)
    sorted_log = gather(decision_log.decisions)
    draws = _draws(sorted_log)
    decisions, left_out = _complete(sorted_log, ends)
    guesses = guesses_of(decisions.blocks, decisions.scale, named=decisions.named)
    all_shares = {LOGGED: [block.policy for block in decisions.blocks]}
    for name, policy in others.items():
        if isinstance(policy, Options) and policy.reward_range is None:
            policy = replace(policy, reward_range=stated)
        all_shares[name] = shares_of(policy, decisions)
    regrets = _regrets(decisions, list(all_shares.values()), Options(merit=measure, reward_range=ends))
    values = {}
    for (name, shares), regret in zip(all_shares.items(), regrets, strict=True):
        value = _value(
            name,
            decisions,
            shares,
            guesses,
            error,
            fairness_regret=regret,
            action_shares=_mean_shares(decisions.blocks, shares, sorted_log.names, "names"),
            group_shares=_mean_shares(decisions.blocks, shares, sorted_log.groups, "groups"),
        )
        # The log's own weights are 1, so its mean is known without guesses.
        values[name] = replace(value, reward=value.ips) if name == LOGGED else value
    if not draws.as_the_policy_said:
        text = "the log's actions were not drawn as its policy says, so no weight can be trusted"
        values = {name: each if name == LOGGED else _refuse(each, text) for name, each in values.items()}
    replayed = any(isinstance(each, Options) for each in others.values())
    return Evaluation(values, len(decisions), left_out, draws, error, measure, replayed, decision_log.gone)


def _draws(sorted_log: Blocks) -> Draws:
    """Test whether actions were drawn as the log says, on all decisions."""
    draws = DrawsSoFar()
    for block in sorted_log.blocks:
        part = block[block.drawn[:, 0] >= 0]
        if len(part.drawn):
            draws.take(part, Sets.of(part.names), len(sorted_log.names.numbers))
    return draws.answer()


def _complete(sorted_log: Blocks, ends: tuple[float, float]) -> tuple[Decisions, int]:
    """Decisions with all of their rewards, numbered again, and how many others there are."""
    low, high = ends
    require(low < high, "reward_range", "must be (low, high) with low < high", ends)
    rewarded = [np.isfinite(block.rewards) & (block.taken >= 0) for block in sorted_log.blocks]
    whole = [block[each.min(axis=1)] for block, each in zip(sorted_log.blocks, rewarded, strict=True)]
    complete = [block for block in whole if len(block.taken)]
    if not complete:
        raise InvalidInput("log must have decisions with rewards, got none")
    total = sum(len(block.taken) for block in sorted_log.blocks)
    every = np.sort(np.concatenate([block.positions for block in complete]))
    complete = [replace(block, positions=np.searchsorted(every, block.positions)) for block in complete]
    outside = any(bool(((block.rewards < low) | (block.rewards > high)).any()) for block in complete)
    require(not outside, "reward_range", "must be (low, high) of all rewards of the log", ends)
    ranked = any(bool((block.weights != 1.0).any()) for block in complete)
    text = "must begin at 0 where slots have weights, which rewards are in proportion to"
    require(not ranked or low == 0.0, "reward_range", text, ends)
    slots = max(float(slot_weights(block).sum(axis=1).max()) for block in complete)
    decisions = Decisions(complete, list(sorted_log.names.numbers), RewardScale(low, high, slots))
    return decisions, total - len(decisions)


def _value(
    name: str,
    decisions: Decisions,
    shares: Sequence[Array],
    guesses: Sequence[Array],
    error: float,
    **exact: Any,
) -> PolicyValue:
    """Estimates of a policy, beside what is `exact`."""
    blocks, scale = decisions.blocks, decisions.scale
    ips = series_of(blocks, shares, scale)
    dr = series_of(blocks, shares, scale, guesses=guesses)
    gain = series_of(blocks, shares, scale, guesses=guesses, gain=True)
    weights, total, unsupported, largest = np.zeros(len(decisions)), 0.0, 0.0, 0.0
    for block, share in zip(blocks, shares, strict=True):
        each = np.take_along_axis(importance(block, share), block.taken, axis=1)
        weights[block.positions] = (block.weights * each).sum(axis=1) / block.weights.sum(axis=1)
        largest = max(largest, float(each.max()))
        total += float(share.sum())
        unsupported += float(share[share > len(decisions) * block.policy].sum())
    squares, start = float(np.square(weights).sum()), scale.low * scale.slots * dr.whole
    value = PolicyValue(
        name,
        reward=scale.outside(dr.estimate(error), start),
        gain=scale.outside(gain.estimate(error)),
        ips=scale.outside(ips.estimate(error), start),
        snips=scale.outside(self_normalised(ips.value, weights, error), start),
        effective=float(weights.sum()) ** 2 / squares if squares > 0 else 0.0,
        largest=largest,
        unsupported=unsupported / total,
        **exact,
    )
    if value.unsupported > MOST_UNSUPPORTED:
        missing = f"{100 * value.unsupported:.3g} %"
        text = f"{missing} of this policy's weight is on actions that it shows never, or less than once"
        return _refuse(value, f"the log can't tell: {text}")
    if value.effective < FEWEST:
        text = f"it agrees with {value.effective:.3g} decisions in effect, fewer than {FEWEST:g}"
        return _refuse(value, f"the log can't tell: {text}")
    return value


def _refuse(value: PolicyValue, why: str) -> PolicyValue:
    none = Estimate(math.nan, math.nan, math.nan)
    return replace(value, reward=none, gain=none, ips=none, snips=none, refused=value.refused or why)


def _regrets(decisions: Decisions, policies: Sequence[Sequence[Array]], options: Options) -> list[Estimate]:
    """The fairness regret of each policy, under what these options' agent believes after the whole log."""
    merit = options.merit
    assert merit is not None
    belief = believed(options, decisions)
    found = distances(decisions.entered(), policies, belief, merit, decisions.names)
    ends = zip(*interval(found), strict=True)
    return [Estimate(*map(float, each)) for each in ends]


def _mean_shares(
    blocks: Sequence[Block], shares: Sequence[Array], labels: Labels, what: str
) -> dict[str, float]:
    """The share of each action or group in decisions in which it was available."""
    size = len(labels.numbers)
    got, there = np.zeros((2, size))
    for block, share in zip(blocks, shares, strict=True):
        codes = getattr(block, what)
        has_code = codes >= 0
        once = has_code & Sets.of(codes).first
        got += np.bincount(codes[has_code], share[has_code], size)
        total = np.broadcast_to(block.weights.sum(axis=1, keepdims=True), codes.shape)
        there += np.bincount(codes[once], total[once], size)
    return {name: float(got[k] / there[k]) for name, k in labels.numbers.items() if there[k] > 0}


def _cells(value: PolicyValue) -> list[str]:
    gain = _interval(value.gain) if value.name != LOGGED else ("", "")
    regret = _interval(value.fairness_regret)
    return [value.name, *_interval(value.reward), *gain, *regret, number(round(value.effective))]


def _all_cells(value: PolicyValue) -> list[str]:
    estimates = [cell for each in (value.reward, value.ips, value.snips) for cell in _interval(each)]
    return [value.name, *estimates, number(value.largest), f"{100 * value.unsupported:.3g} %"]


def _interval(each: Estimate) -> tuple[str, str]:
    if math.isnan(each.value):
        return "–", "–"
    return f"{each.value:.3g}", f"{each.low:.3g} and {each.high:.3g}"


def _plain(value: Any) -> Any:
    if isinstance(value, Estimate):
        return _plain(vars(value))
    if isinstance(value, Mapping):
        return {key: _plain(each) for key, each in value.items()}
    return None if isinstance(value, float) and not math.isfinite(value) else value
