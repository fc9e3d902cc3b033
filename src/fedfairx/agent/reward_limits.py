"""Which rewards an agent accepts: those in its reward range or, without a range, those of plausible size.

One absurd reward would ruin the model for good. Without a range a reward may be `FIRST` times as large as the
agent expects and, from 32 rewards on, `USUAL` times their root mean square. That follows them down as well as
up: rewards that become a hundred times as large are accepted, and one of 800 times the usual size is not. It
stays at `LEAST` times what the agent expects: where most rewards are 0, a rare 1 is no mistake. A private
agent accepts any reward, because a refusal would show in the public count: here it clips what it learns from,
and its privatizer clips what it sends.
"""

from __future__ import annotations

import math
from collections.abc import Iterable

from fedfairx.agent.input_warnings import warn_caller
from fedfairx.core.agent_kernels import LARGEST
from fedfairx.core.confidence import Confidence
from fedfairx.core.merit import Range
from fedfairx.core.posterior import Prior
from fedfairx.errors import InvalidInput, ScaleWarning, require

FIRST = 1000.0
USUAL = 300.0
LEAST = 100.0
ENOUGH = 20  # rewards before their size counts; it is checked after 32, 64, …
MUCH_LARGER, MUCH_SMALLER = 4.0, 0.1  # ratios to the expected root mean square
NOTHING = 1e-9  # of squares: rewards that are all alike tell nothing of how far they differ


def check_order(reward_range: Range | None) -> None:
    """Refuse a reward range that is empty."""
    rises = reward_range is None or reward_range[0] < reward_range[1]
    require(rises, "reward_range", "must be two numbers, low < high", reward_range)


def check_weights(weights: Iterable[float], reward_range: Range | None) -> None:
    """Refuse a range without 0 where the weights of slots are not all 1.

    A weight multiplies the expected reward, so that 0 is the reward of an action that nobody looked at.
    """
    if reward_range is None or reward_range[0] <= 0.0 <= reward_range[1]:
        return
    text = "must contain 0 where slots have weights, which multiply rewards: 0 is what nobody looked at"
    low, high = reward_range
    near = low if low > 0.0 else high
    remedy = f"give rewards less {near:g}, and reward_range=({low - near:g}, {high - near:g})"
    require(all(weight == 1.0 for weight in weights), "reward_range", text, reward_range, remedy)


class RewardLimits:
    """Rewards from `low` to `high` are accepted; `look` adapts the limits and notes an unexpected size."""

    def __init__(self, expects: Prior | Confidence, reward_range: Range | None) -> None:
        self._range, self._warned = reward_range, reward_range is not None
        self.contradiction: str | None = None  # the text of a warning that is due
        self.warning: str | None = None  # and of the one that is due or was issued
        if isinstance(expects, Prior):
            self._sizes = max(expects.sd, expects.noise_sd), expects.noise_sd
            means = expects.mean if isinstance(expects.mean, tuple) else (expects.mean,)
            self._centre = max(abs(mean) for mean in means)
        else:
            self._sizes, self._centre = (expects.parameter_norm, expects.noise_sd), 0.0
        self.low = self.high = 0.0
        self._expected = self._centre + math.hypot(*self._sizes)
        self.set_largest(min(FIRST * self._expected, LARGEST))

    def set_largest(self, size: float) -> None:
        """Accept rewards up to this size, unless there is a range."""
        self.low, self.high = self._range or (-size, size)

    @property
    def ends(self) -> Range:
        """The least and the largest reward that are accepted."""
        return self.low, self.high

    def clipped(self, value: float) -> float:
        """The nearest acceptable reward; NaN counts as 0."""
        return min(max(value, self.low), self.high) if value == value else 0.0

    def check(self, value: float) -> None:
        """Refuse a reward outside the limits. The error text does not contain it."""
        if self.low <= value <= self.high:
            return
        if not math.isfinite(value):
            raise InvalidInput("reward must be finite, got reward=NaN or infinity")
        if self._range is not None:
            raise InvalidInput(
                f"reward must be from {self.low:g} to {self.high:g} (reward_range), got one outside"
            )
        raise InvalidInput(
            f"reward must be at most {self.high:g} in size, far more than those before or than the prior "
            "expects, got a larger one; if it is correct, make the agent with reward_range=(low, high)"
        )

    def look(self, observed: float, squares: float, spread: float, context_squares: float) -> None:
        """Adapt the limits to `observed` rewards, given sums of squares of rewards and of contexts.

        spread: the sum of squares of rewards, around their mean if there is an intercept, which the contexts
        are then without. Where records decay, all are sums of weights.
        """
        if self._range is not None or observed < ENOUGH:
            return
        size = math.sqrt(squares / observed)
        self.set_largest(min(max(USUAL * size, LEAST * self._expected), LARGEST))
        sd, noise_sd = self._sizes
        expected = self._centre + math.hypot(sd * math.sqrt(context_squares / observed), noise_sd)
        what, size = (
            "rewards" if spread == squares else "differences of rewards",
            math.sqrt(spread / observed),
        )
        if (
            self._warned
            or spread <= NOTHING * squares
            or MUCH_SMALLER * expected <= size <= MUCH_LARGER * expected
        ):
            return
        self._warned = True
        times, how, effect = MUCH_LARGER, "large", "one action may get nearly all"
        if size < expected:
            times, how, effect = 1.0 / MUCH_SMALLER, "small", "all actions get nearly the same"
        self.contradiction = self.warning = (
            f"{what} are more than {times:g} times as {how} as this agent expects, and its merit is made "
            f"for the size it expects, so {effect}. Give reward_range=(low, high), which sets both, or a "
            "merit in units of your rewards (fedfairx.merit.Exponential.doubling)"
        )

    def warn(self) -> None:
        """Issue the warning that is due, if any. Call it last: a warning may be turned into an error."""
        text, self.contradiction = self.contradiction, None
        if text is not None:
            warn_caller(text, ScaleWarning)
