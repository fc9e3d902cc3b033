"""Which address means what. Routes only translate; each file has its `OPERATIONS`, and all are here."""

from __future__ import annotations

from fedfairx.service.endpoint import Operation
from fedfairx.service.routes import (
    actions,
    decision_list,
    decisions,
    export,
    exposure,
    federation,
    health,
    model,
    rewards,
)

__all__ = ["OPERATIONS"]

#: The busiest ones first: they are looked for in this order.
OPERATIONS: tuple[Operation, ...] = (
    *decisions.OPERATIONS,
    *rewards.OPERATIONS,
    *decision_list.OPERATIONS,
    *model.OPERATIONS,
    *actions.OPERATIONS,
    *exposure.OPERATIONS,
    *export.OPERATIONS,
    *federation.OPERATIONS,
    *health.OPERATIONS,
)
