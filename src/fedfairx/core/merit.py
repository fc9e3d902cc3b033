"""Merit functions f: expected reward → merit > 0. An action is shown in proportion to its merit.

Everything downstream needs only log f and its slope (log f)' = f'/f, so that steepness 1 000 neither
overflows nor loses an action. Solanki et al., section 3.1: minimum merit γ > 0 and Lipschitz constant L.
"""

from __future__ import annotations

import math
from collections.abc import Callable
from dataclasses import dataclass, field, fields
from functools import partial
from typing import Any, ClassVar, Protocol, runtime_checkable

import numpy as np

from fedfairx.errors import InvalidInput, require
from fedfairx.lanes.callback import Pointer
from fedfairx.util.config import ABOVE_0, Limits, check_fields, details, option

EXPONENTIAL, AFFINE, POWER, LOGISTIC, CUSTOM = range(5)

Range = tuple[float, float]


@runtime_checkable
class Merit(Protocol):
    """A merit function: its compiled form, the size of rewards that it distinguishes, and the paper's two
    constants on a reward range.

    >>> merit: Merit = Exponential(10.0)
    >>> merit.minimum(0.0, 1.0)
    1.0
    """

    kind: ClassVar[int]

    def parameters(self) -> tuple[float, float, float, float, float]: ...
    @property
    def reward_scale(self) -> float: ...
    def minimum(self, low: float, high: float) -> float: ...
    def lipschitz(self, low: float, high: float) -> float: ...


def _check_range(low: float, high: float) -> None:
    ok = math.isfinite(low) and math.isfinite(high) and low < high
    require(ok, "reward_range", "must be two finite numbers, low < high", (low, high))


class _OnRange:
    """A merit that is held constant outside its reward range."""

    reward_range: Range

    @property
    def reward_scale(self) -> float:
        return 0.5 * (self.reward_range[1] - self.reward_range[0])

    def _clip(self, value: float) -> float:
        return min(max(value, self.reward_range[0]), self.reward_range[1])


def _exp(x: float) -> float:
    """e^x, infinite on overflow."""
    return math.exp(x) if x < 709.0 else math.inf


def _power(base: float, exponent: float) -> float:
    """base^exponent, infinite on overflow."""
    return _exp(exponent * math.log(base))


#: Steepness times `reward_scale`, of merits that have a steepness: 0.5 at the paper's steepness of 10.
STEEPNESS_SCALE = 5.0
#: Steepness of the default merit times the width of the reward range: the paper's, for rewards in [0, 1].
DEFAULT_STEEPNESS = 10.0


@dataclass(frozen=True, repr=False)
class Exponential:
    """f(μ) = exp(steepness · μ), the paper's choice with steepness 10 (section 5.1).

    `Exponential.doubling(0.1)` states the steepness another way: an action whose expected reward is 0.1
    higher gets twice the share.

    >>> Exponential.doubling(0.1)
    Exponential(steepness=6.93147, 0.1 better doubles the share)
    """

    steepness: float = option(DEFAULT_STEEPNESS, limits=ABOVE_0)
    kind: ClassVar[int] = EXPONENTIAL

    def __post_init__(self) -> None:
        check_fields(self, Exponential)

    @classmethod
    def doubling(cls, difference: float) -> Exponential:
        """The merit under which an expected reward higher by `difference` doubles the share."""
        require(0 < difference < math.inf, "difference", "must be finite and > 0", difference)
        return cls(math.log(2.0) / difference)

    @classmethod
    def for_range(cls, low: float, high: float) -> Exponential:
        """The default merit for rewards from `low` to `high`: 7 % of the range doubles the share."""
        _check_range(low, high)
        return cls(DEFAULT_STEEPNESS / (high - low))

    @property
    def doubles_at(self) -> float:
        """How much higher an expected reward must be for twice the share."""
        return math.log(2.0) / self.steepness

    @property
    def reward_scale(self) -> float:
        return STEEPNESS_SCALE / self.steepness

    def __repr__(self) -> str:
        words = f"{self.doubles_at:.3g} better doubles the share"
        return f"Exponential(steepness={self.steepness:.6g}, {words})"

    def parameters(self) -> tuple[float, float, float, float, float]:
        return self.steepness, 0.0, 0.0, -math.inf, math.inf

    def minimum(self, low: float, high: float) -> float:  # noqa: ARG002
        return _exp(self.steepness * low)

    def lipschitz(self, low: float, high: float) -> float:  # noqa: ARG002
        return self.steepness * _exp(self.steepness * high)


@dataclass(frozen=True)
class Affine(_OnRange):
    """f(μ) = offset + slope · μ, with μ held to `reward_range`, on which f must be positive.

    >>> Affine(offset=0.1).minimum(0.0, 1.0)
    0.1
    """

    offset: float = 0.1
    slope: float = option(1.0, limits=Limits(ge=0))
    reward_range: Range = (0.0, 1.0)
    kind: ClassVar[int] = AFFINE

    def __post_init__(self) -> None:
        check_fields(self, Affine)
        _check_range(*self.reward_range)
        smallest = self.offset + self.slope * self.reward_range[0]
        require(smallest > 0, "offset", "must make offset + slope * reward_range[0] > 0", self.offset)

    def parameters(self) -> tuple[float, float, float, float, float]:
        return self.offset, self.slope, 0.0, *self.reward_range

    def minimum(self, low: float, high: float) -> float:  # noqa: ARG002
        return self.offset + self.slope * self._clip(low)

    def lipschitz(self, low: float, high: float) -> float:  # noqa: ARG002
        return self.slope


@dataclass(frozen=True)
class Power(_OnRange):
    """f(μ) = (offset + μ)^exponent, with μ held to `reward_range`; offset + μ must be positive there.

    >>> Power(exponent=2.0, offset=0.5).minimum(0.0, 1.0)
    0.25
    """

    exponent: float = option(2.0, limits=ABOVE_0)
    offset: float = 0.1
    reward_range: Range = (0.0, 1.0)
    kind: ClassVar[int] = POWER

    def __post_init__(self) -> None:
        check_fields(self, Power)
        _check_range(*self.reward_range)
        positive = self.offset + self.reward_range[0] > 0
        require(positive, "offset", "must make offset + reward_range[0] > 0", self.offset)

    def parameters(self) -> tuple[float, float, float, float, float]:
        return self.exponent, self.offset, 0.0, *self.reward_range

    def minimum(self, low: float, high: float) -> float:  # noqa: ARG002
        return _power(self.offset + self._clip(low), self.exponent)

    def lipschitz(self, low: float, high: float) -> float:
        steepest = high if self.exponent >= 1 else low  # where the derivative is largest
        return self.exponent * _power(self.offset + self._clip(steepest), self.exponent - 1)


@dataclass(frozen=True)
class Logistic:
    """f(μ) = floor + 1 / (1 + exp(-steepness (μ - midpoint))): merit that levels off at both ends.

    >>> Logistic(steepness=8.0).lipschitz(0.0, 1.0)
    2.0
    """

    steepness: float = option(10.0, limits=ABOVE_0)
    midpoint: float = 0.5
    floor: float = option(0.05, limits=ABOVE_0)
    kind: ClassVar[int] = LOGISTIC

    def __post_init__(self) -> None:
        check_fields(self, Logistic)

    def parameters(self) -> tuple[float, float, float, float, float]:
        return self.steepness, self.midpoint, self.floor, -math.inf, math.inf

    @property
    def reward_scale(self) -> float:
        return STEEPNESS_SCALE / self.steepness

    def minimum(self, low: float, high: float) -> float:  # noqa: ARG002
        return self.floor + 0.5 * (1.0 + math.tanh(0.5 * self.steepness * (low - self.midpoint)))

    def lipschitz(self, low: float, high: float) -> float:
        nearest = min(max(self.midpoint, low), high)
        half = 0.5 * (1.0 + math.tanh(0.5 * self.steepness * (nearest - self.midpoint)))
        return self.steepness * half * (1.0 - half)


@dataclass(frozen=True)
class Custom(_OnRange):
    """A user-defined f, with its declared minimum γ > 0 and Lipschitz constant L on `reward_range`.

    `function` takes and returns a float. Outside `reward_range` it is held at the nearest end. The two
    declarations are spot-checked here; a function that breaks them between the points is not noticed.
    Called through a C function pointer: a function that Numba can compile runs at full speed, any other
    runs as Python.

    >>> f = Custom(lambda mean: 1.0 + mean * mean, minimum_merit=1.0, lipschitz_constant=2.0)
    >>> f.lipschitz(-1.0, 1.0)
    2.0
    """

    function: Callable[[float], float]
    minimum_merit: float = field(kw_only=True, metadata=details(limits=ABOVE_0))
    lipschitz_constant: float = field(kw_only=True, metadata=details(limits=ABOVE_0))
    reward_range: Range = field(default=(-1.0, 1.0), kw_only=True)
    kind: ClassVar[int] = CUSTOM

    def __post_init__(self) -> None:
        check_fields(self, Custom)
        _check_range(*self.reward_range)
        points = np.linspace(*self.reward_range, 257)
        try:
            values = np.array([float(self.function(float(point))) for point in points])
        except Exception as error:
            raise InvalidInput(f"function must take and return a float, got {type(error).__name__}") from None
        require(bool(np.isfinite(values).all()), "function", "must be finite on reward_range", self.function)
        least, declared = float(values.min()), self.minimum_merit
        fits, seen = least >= declared * (1 - 1e-12), f"the least seen is {least:.6g}"
        require(fits, "minimum_merit", "must not exceed the function's values", declared, seen)
        steepest, declared = float(np.abs(np.diff(values) / np.diff(points)).max()), self.lipschitz_constant
        fits, seen = steepest <= declared * (1 + 1e-9), f"the steepest seen is {steepest:.6g}"
        require(fits, "lipschitz_constant", "must not be below the function's slope", declared, seen)
        object.__setattr__(self, "_pointer", Pointer(self.function))

    def parameters(self) -> tuple[float, float, float, float, float]:
        return self.minimum_merit, self.lipschitz_constant, 0.0, *self.reward_range

    def __reduce__(self) -> tuple[Any, ...]:  # the copy makes a pointer of its own
        declared = {item.name: getattr(self, item.name) for item in fields(self)}
        return partial(Custom, **declared), ()

    def address(self) -> int:
        pointer: Pointer = self.__dict__["_pointer"]
        return pointer.address

    def minimum(self, low: float, high: float) -> float:  # noqa: ARG002
        return self.minimum_merit

    def lipschitz(self, low: float, high: float) -> float:  # noqa: ARG002
        return self.lipschitz_constant
