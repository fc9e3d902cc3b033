"""Which address means what. Routes only translate; each file has its `OPERATIONS`, and all are here."""

from __future__ import annotations

from fedfairx.service.operations import Operation
from fedfairx.service.routes import (
    acting,
    deciding,
    describing,
    exporting,
    exposing,
    federating,
    listing,
    operating,
    rewarding,
)

__all__ = ["OPERATIONS"]

#: The busiest ones first: they are looked for in this order.
OPERATIONS: tuple[Operation, ...] = (
    *deciding.OPERATIONS,
    *rewarding.OPERATIONS,
    *listing.OPERATIONS,
    *describing.OPERATIONS,
    *acting.OPERATIONS,
    *exposing.OPERATIONS,
    *exporting.OPERATIONS,
    *federating.OPERATIONS,
    *operating.OPERATIONS,
)
