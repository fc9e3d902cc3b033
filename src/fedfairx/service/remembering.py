"""Features and intercept as the agent began with: later starts may leave them out, but say no others."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

from fedfairx.agent.agent import Agent
from fedfairx.errors import InvalidInput
from fedfairx.service.features import Feature
from fedfairx.service.settings import Settings, place_of
from fedfairx.storage.feature_schema import keep_meaning, read_meaning

__all__ = ["remember", "remembered"]


def remembered(settings: Settings) -> Settings:
    """The settings with what is kept; one that says otherwise is refused."""
    stored = read_meaning(place_of(settings))
    if stored is None:
        return settings
    features = tuple(Feature(name, low, high) for name, low, high in stored["features"])
    kept: dict[str, Any] = {"features": features, "intercept": bool(stored["intercept"])}
    for name, value in kept.items():
        given = getattr(settings, name)
        if name in settings.given and given != value:
            raise InvalidInput(
                f"{name} must be what the agent has learnt from so far, {name}={_shown(value)}, got "
                f"{name}={_shown(given)}; leave it out, or begin another agent in another place"
            )
    return replace(settings, **kept)


def remember(agent: Agent, settings: Settings) -> None:
    """Keep what this start says, if it is the first."""
    features = [[feature.name, feature.low, feature.high] for feature in settings.features]
    keep_meaning(agent.journal, {"features": features, "intercept": settings.intercept})


def _shown(value: bool | Sequence[Feature]) -> str:
    """As one would write it on the command line."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(f"{each.name}={each.low!r}:{each.high!r}" for each in value) or "(none)"
