"""What a private run may cost and how it is made private: a value, from which a privatizer is made."""

from __future__ import annotations

from collections.abc import Mapping
from dataclasses import dataclass
from typing import Any

from fedfairx.errors import StateError, require
from fedfairx.privacy.bounds import Bounds
from fedfairx.privacy.centring import Centring
from fedfairx.privacy.guarantee import DecideFrom
from fedfairx.privacy.ledger.ledger import Ledger
from fedfairx.privacy.mechanisms.noise import NoiseSource
from fedfairx.privacy.privatizers.factory import private
from fedfairx.privacy.privatizers.per_person import PersonBound, Persons
from fedfairx.privacy.privatizers.protocol import Privatizer


@dataclass(frozen=True, kw_only=True)
class Budget:
    """(epsilon, delta) for all of `releases` messages; the other parts are as for `privacy.private`.

    `person_records` lets so many records of a person enter (`PersonBound`).

    Guarantees:
    - `from_dict(to_dict())` is the same budget.
    - The privatizer that it makes claims this epsilon and delta, for this many releases.
    """

    epsilon: float
    releases: int
    delta: float = 1e-6
    mechanism: str = "blt"
    bounds: Bounds | None = None
    centring: Centring | None = None
    decide_from: DecideFrom = "own+released"
    person_records: int | None = None
    public_schedule: bool = True

    def __post_init__(self) -> None:
        require(self.releases >= 1, "releases", "must be >= 1", self.releases)

    def privatizer(
        self, dimension: int, *, noise: NoiseSource, ledger: Ledger, persons: Persons | None = None
    ) -> Privatizer:
        """A privatizer of this budget; `persons` counts them where it bounds a person's records."""
        made: Privatizer = private(
            dimension,
            epsilon=self.epsilon,
            delta=self.delta,
            releases=self.releases,
            noise=noise,
            mechanism=self.mechanism,
            bounds=self.bounds,
            centring=self.centring,
            decide_from=self.decide_from,
            ledger=ledger,
            public_schedule=self.public_schedule,
        )
        if self.person_records is None:
            return made
        return PersonBound(made, records=self.person_records, persons=persons)

    def to_dict(self) -> dict[str, Any]:
        """Plain values."""
        return {
            "epsilon": float(self.epsilon),
            "releases": int(self.releases),
            "delta": float(self.delta),
            "mechanism": self.mechanism,
            "bounds": None if self.bounds is None else self.bounds.to_dict(),
            "centring": None if self.centring is None else self.centring.to_dict(),
            "decide_from": self.decide_from,
            "person_records": self.person_records,
            "public_schedule": self.public_schedule,
        }

    @classmethod
    def from_dict(cls, values: Mapping[str, Any]) -> Budget:
        """The budget that `to_dict` described."""
        try:
            bounds, centring = values["bounds"], values["centring"]
            if centring is not None:
                centring = Centring(**{**centring, "context": tuple(centring["context"])})
            return cls(
                **{**values, "bounds": None if bounds is None else Bounds(**bounds), "centring": centring}
            )
        except (KeyError, TypeError) as error:
            raise StateError("this is not a budget") from error
