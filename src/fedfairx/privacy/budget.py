"""The privacy budget of a run: one value from which its mechanism, guarantee and privatizer follow."""

from __future__ import annotations

import math
from collections.abc import Callable, Mapping
from dataclasses import dataclass, field, replace
from functools import partial
from typing import Any

import numpy as np

from fedfairx.core.slates import ONE, Weights
from fedfairx.errors import InvalidInput, StateError, require
from fedfairx.privacy.bounds import Bounds
from fedfairx.privacy.centring import Centring
from fedfairx.privacy.guarantee import DecideFrom, Guarantee, claim
from fedfairx.privacy.ledger.ledger import Ledger, Persons
from fedfairx.privacy.ledger.rollback import Confirm
from fedfairx.privacy.mechanisms.gaussian import Gaussian, calibrate, require_mechanism
from fedfairx.privacy.mechanisms.noise import NoiseSource
from fedfairx.privacy.mechanisms.noise_share import RECORDS, NoiseShare, most_records, step_exponent
from fedfairx.privacy.privatizers.stream import StreamPrivatizer
from fedfairx.util.config import COUNT, POSITIVE, Limits, Scope, check_fields, details, option

AGENT, AGREED, *_ = Scope

#: The intercept that private agents of arrays have: what it costs in sensitivity is weighed against the noise
#: on how high rewards are (docs/paper/measurements.md, "Rewards that are not around 0").
INTERCEPT = 0.25
#: A user's mechanism: a function of `calibrate`'s keywords epsilon, delta, releases and sensitivity.
Calibrate = Callable[..., Gaussian]


@dataclass(frozen=True, kw_only=True)
class Budget:
    """(epsilon, delta) for all of `releases` messages, and how they are made private.

    epsilon, delta: the guarantee for all messages together.
    releases: the number of messages.
    mechanism: how noise is spread over releases: a name of `mechanisms()`, or a function that is called like
        `calibrate`.
    bounds: what records are clipped to; by default norm 1 and reward 1.
    centring: public point that records are clipped around instead; only the adjacency and the gram_share of
        `bounds` matter then.
    decide_from: what decisions may use; "released" is the strict mode, whose claim also covers what a record
        changes in later decisions.
    person_records: number of records of one person that may enter; None for no bound.
    public_schedule: False if the data decide when a release is made; nothing is guaranteed then.
    share: with secure aggregation, each member's share of the noise; None where every release is seen.

    >>> budget = Budget(epsilon=2.0, delta=1e-6, releases=1000)
    >>> round(budget.guarantee().mu, 3)
    0.448

    Guarantees:
    - `from_dict(to_dict())` is the same budget.
    - The noise is calibrated to the sensitivity of the bounds that clip.
    - The privatizer that it makes claims this epsilon and delta, for this many releases.
    """

    epsilon: float = field(metadata=details(AGREED, POSITIVE))
    releases: int = field(metadata=details(AGREED, COUNT))
    delta: float = option(1e-6, AGREED, Limits(gt=0, lt=1))
    mechanism: str | Calibrate = "blt"
    bounds: Bounds | None = None
    centring: Centring | None = None
    decide_from: DecideFrom = "own+released"
    person_records: int | None = option(None, AGENT, COUNT)
    public_schedule: bool = True
    share: NoiseShare | None = None

    def __post_init__(self) -> None:
        check_fields(self, Budget)
        require_mechanism(self.mechanism)

    @property
    def summed_bounds(self) -> Bounds:
        """Bounds of the summed records, centred or not; the noise is calibrated to them."""
        bounds = Bounds() if self.bounds is None else self.bounds
        if self.centring is None:
            return bounds
        if bounds.slots != ONE:
            why = "sums are moved back from the public point by the number of records, which tells no weights"
            raise InvalidInput(
                f"centring must be left out where a decision has several slots: {why}; records are then "
                "clipped around zero"
            )
        return self.centring.inner_bounds(adjacency=bounds.adjacency, gram_share=bounds.gram_share)

    def with_slots(self, slots: Weights) -> Budget:
        """The same budget for decisions with these slots, unless its bounds have slots already."""
        bounds = self.bounds or Bounds()
        if slots == ONE or bounds.slots != ONE:
            return self
        return replace(self, bounds=replace(bounds, slots=slots))

    def with_intercept(self) -> Budget:
        """The same budget for contexts of arrays that end with an intercept."""
        if self.centring is not None:
            return replace(self, centring=replace(self.centring, intercept=True))
        bounds = self.bounds or Bounds()
        return replace(self, bounds=replace(bounds, constant=bounds.constant or INTERCEPT))

    def among(self, members: int) -> Budget:
        """The same budget where this many members add up their rows, with secure aggregation."""
        return self if self.share is None else replace(self, share=replace(self.share, members=members))

    def calibrate(self) -> Gaussian:
        """Make the mechanism with the noise that this budget needs."""
        make = partial(calibrate, self.mechanism) if isinstance(self.mechanism, str) else self.mechanism
        mechanism = make(
            epsilon=self.epsilon,
            delta=self.delta,
            releases=self.releases,
            sensitivity=self.summed_bounds.sensitivity,
        )
        mechanism = replace(mechanism, public_point=self.centring)
        if self.share is None:
            return mechanism
        return replace(mechanism, share=self._on_grid(mechanism, self.share))

    def _on_grid(self, mechanism: Gaussian, share: NoiseShare) -> NoiseShare:
        """The share with its grid, and with a number of records for which totals stay in range."""
        bounds = self.summed_bounds
        norm, scale = bounds.whole_norm, bounds.entry_scale(1)  # of a diagonal entry and of the moment
        own_sd = mechanism.base_sd * share.noise
        exponent = step_exponent(own_sd * min(1.0, float(scale.min())))
        loudest = own_sd * float(mechanism.factor.row_norm(np.arange(1, mechanism.releases + 1)).max())
        most = most_records(
            share,
            step=math.ldexp(1.0, exponent),
            bound=norm * max(norm, bounds.reward),
            sd=loudest * float(scale.max()),
        )
        records = min(RECORDS, most) if share.records is None else share.records
        text = f"must be in 1..{most}, so that totals of {share.members} members stay in range"
        require(1 <= records <= most, "records", text, records, "lower it, or epsilon")
        return replace(share, records=records, step_exponent=exponent)

    def guarantee(self) -> Guarantee:
        """Return the guarantee of agents under this budget, before the first message."""
        return claim(
            self.calibrate(),
            bounds=self.summed_bounds,
            decide_from=self.decide_from,
            public_schedule=self.public_schedule,
            person_records=self.person_records,
        )

    def privatizer(
        self,
        dimension: int,
        *,
        noise: NoiseSource,
        ledger: Ledger | None = None,
        persons: Persons | None = None,
        confirm: Confirm | None = None,
    ) -> StreamPrivatizer:
        """Make a privatizer of this budget; `persons` counts records of persons where they are bounded."""
        return StreamPrivatizer(
            dimension,
            mechanism=self.calibrate(),
            bounds=self.summed_bounds,
            centring=self.centring,
            noise=noise,
            decide_from=self.decide_from,
            ledger=ledger,
            public_schedule=self.public_schedule,
            person_records=self.person_records,
            persons=persons,
            confirm=confirm,
        )

    def to_dict(self) -> dict[str, Any]:
        """Return plain values."""
        named = isinstance(self.mechanism, str)
        require(named, "mechanism", "must be a name, to be stored", self.mechanism)
        values = dict(vars(self))
        share = values.pop("share")
        return ({} if share is None else {"share": share.to_dict()}) | {
            **values,
            "bounds": None if self.bounds is None else self.bounds.to_dict(),
            "centring": None if self.centring is None else self.centring.to_dict(),
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Budget:
        """Restore a budget from `to_dict`."""
        try:
            bounds, centring = values["bounds"], values["centring"]
            if centring is not None:
                centring = Centring(**{**centring, "context": tuple(centring["context"])})
            parts = {"bounds": None if bounds is None else Bounds(**bounds), "centring": centring}
            if values.get("share") is not None:  # only with secure aggregation
                parts["share"] = NoiseShare(**values["share"])
            return cls(**{**values, **parts})
        except (KeyError, TypeError) as error:
            raise StateError("this is not a budget") from error


def private(
    dimension: int,
    *,
    epsilon: float,
    delta: float = 1e-6,
    releases: int,
    noise: NoiseSource,
    mechanism: str | Calibrate = "blt",
    bounds: Bounds | None = None,
    centring: Centring | None = None,
    decide_from: DecideFrom = "own+released",
    ledger: Ledger | None = None,
    public_schedule: bool = True,
    person_records: int | None = None,
    persons: Persons | None = None,
    confirm: Confirm | None = None,
    intercept: bool = False,
) -> StreamPrivatizer:
    """Make a privatizer whose whole transcript of `releases` messages is (epsilon, delta)-DP.

    The other arguments are those of `Budget` and `StreamPrivatizer`. By default the claim is for replacing
    one record of the log while the others stay as recorded; `decide_from="released"` is the strict mode,
    which also covers what the record changes in later decisions. `intercept` is for agents of arrays that
    have one: `dimension` is then that of the agent, and contexts have one number more.

    >>> from fedfairx.privacy import KeyedNoise, new_key
    >>> noise = KeyedNoise(new_key(), agent="clinic-3", run="first")
    >>> privatizer = private(2, epsilon=2.0, releases=1000, noise=noise)
    >>> privatizer.release().count, privatizer.guarantee.remaining
    (0, 999)

    Guarantees:
    - The noise is calibrated to the sensitivity of the bounds that clip.
    """
    budget = Budget(
        epsilon=epsilon,
        delta=delta,
        releases=releases,
        mechanism=mechanism,
        bounds=bounds,
        centring=centring,
        decide_from=decide_from,
        person_records=person_records,
        public_schedule=public_schedule,
    )
    budget = budget.with_intercept() if intercept else budget
    return budget.privatizer(
        dimension + intercept, noise=noise, ledger=ledger, persons=persons, confirm=confirm
    )
