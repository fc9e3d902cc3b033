"""All endpoints. They only translate between HTTP and the service."""

from __future__ import annotations

from fedfairx.service.endpoint import Operation
from fedfairx.service.routes import agents, decisions, exposure, federation, health, history, model, rewards

__all__ = ["OPERATIONS"]

#: All operations; the busiest are first, since Starlette looks for a path in this order.
OPERATIONS: tuple[Operation, ...] = tuple(
    each
    for module in (decisions, model, exposure, rewards, history, federation, agents, health)
    for each in vars(module).values()
    if isinstance(each, Operation)
)
