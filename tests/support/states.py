"""Comparing what agents know."""

from __future__ import annotations

from typing import Any

import fedfairx as ffx
from fedfairx.agent.settings import plain_value


def told(agent: ffx.Agent) -> dict[str, Any]:
    """All that an agent's future depends on, but for the privatizer's ledger."""
    state: dict[str, Any] = plain_value(agent.state())
    del state["privatizer"]
    return state
