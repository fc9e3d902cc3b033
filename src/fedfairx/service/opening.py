"""From settings to a service: the agent is opened where it lives, made if it is new, and warmed."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import numpy as np

from fedfairx.core.merit import Merit
from fedfairx.errors import InvalidInput, require
from fedfairx.federation.agent import Agent
from fedfairx.privacy import Budget
from fedfairx.service.doors import Doors, is_loopback
from fedfairx.service.features import FeatureTable
from fedfairx.service.service import Service
from fedfairx.service.settings import Settings, place_of
from fedfairx.storage.keys import ApiKeys

__all__ = ["open_service"]

KEPT = ("rule", "minimum_share", "name", "window", "default_reward")  # in the agent's database


def open_service(settings: Settings, *, merit: Merit | None = None) -> Service:
    """The service, ready to be asked. What is not given is as the database has it, or the default."""
    if not settings.database:
        Path(settings.data).mkdir(mode=0o700, parents=True, exist_ok=True)
    agent = Agent.open(place_of(settings), **_kept(settings, merit))
    try:
        expected = agent.dimension - settings.intercept
        given = len(settings.features) or settings.dimension or expected
        require(given == expected, "dimension", f"must be {expected}, as in the database", given)
        features = FeatureTable(settings.features, dimension=expected, intercept=settings.intercept)
        doors = Doors(ApiKeys(agent.journal.log), loopback=is_loopback(settings.host))
        if doors.keys_needed and not doors.any_key:
            raise InvalidInput(
                f"host must be loopback while there is no key, got host={settings.host!r}; "
                "`fedfairx keys create --role writer` makes one"
            )
        _warm(agent)
        return Service(settings, agent, doors, features)
    except BaseException:
        agent.close()
        raise


def _kept(settings: Settings, merit: Merit | None) -> dict[str, Any]:
    """What the agent is opened with: what was said, so that what was not is as it was."""
    given: dict[str, Any] = {name: getattr(settings, name) for name in KEPT if name in settings.given}
    dimension = len(settings.features) or settings.dimension
    if dimension:
        given["dimension"] = dimension + settings.intercept
    if merit is not None and "merit" in settings.given:
        given["merit"] = merit
    if settings.epsilon is not None:
        given["budget"] = Budget(
            epsilon=settings.epsilon,
            delta=settings.delta,
            releases=settings.releases,
            decide_from=settings.decide_from,  # type: ignore[arg-type]
            person_records=settings.person_records,
        )
    return given


def _warm(agent: Agent) -> None:
    """Compile what a decision needs, on an agent of no consequence, before anybody waits for it."""
    other = Agent(agent.dimension, rule=agent.rule, merit=agent.merit)
    other.observe(other.decide(np.zeros((2, agent.dimension))), reward=0.0)
