"""What a member knows of the others."""

from __future__ import annotations

from collections import Counter
from collections.abc import Mapping
from dataclasses import dataclass

from fedfairx.federation.agent import Agent

__all__ = ["Peer", "peers_of"]


@dataclass(frozen=True)
class Peer:
    """What a member knows of another: its latest release, when it came, how many messages were refused."""

    number: int
    count: int
    came: float | None  # seconds since the epoch; None for one that was held before
    refused: int
    lag: int  # releases that it is behind this member


def peers_of(
    agent: Agent, refusals: Mapping[tuple[str, str], int], came: Mapping[str, float]
) -> dict[str, Peer]:
    """The others, by name, of whom something is held or was refused; `refusals` are by sender and reason."""
    refused: Counter[str] = Counter()
    for (name, _), times in list(refusals.items()):
        refused[name] += times
    held, own = agent.held, agent.released
    peers = {}
    for name in sorted({*held, *refused} - {agent.name}):
        number, count = (held[name].number, held[name].count) if name in held else (0, 0)
        peers[name] = Peer(number, count, came.get(name), refused[name], max(own - number, 0))
    return peers
