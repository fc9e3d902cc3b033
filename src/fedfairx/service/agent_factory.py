"""An agent from settings: open or create it, check it against the settings, and compile."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace
from typing import Any

import numpy as np

from fedfairx.agent.agent import Agent
from fedfairx.agent.by_name import as_merit
from fedfairx.core.slates import ONE, as_weights
from fedfairx.errors import InvalidInput, require
from fedfairx.federation.setup.member_folder import MemberFolder
from fedfairx.privacy import Bounds, Budget
from fedfairx.service.feature_table import Feature, FeatureTable
from fedfairx.service.federation import Membership
from fedfairx.service.metrics import AgentMetrics
from fedfairx.service.served_agent import ServedAgent
from fedfairx.service.settings import Settings, place_of
from fedfairx.service.write_queue import WriteQueue
from fedfairx.storage.agents import read_feature_schema, store_feature_schema

#: Settings that are stored with the agent.
KEPT = ("rule", "reward_range", "minimum_share", "slots", "half_life", "name", "window", "default_reward")
_warmed: set[tuple[object, ...]] = set()  # kinds of agents that are compiled


def open_served(settings: Settings, *, write_queue: WriteQueue, metrics: AgentMetrics) -> ServedAgent:
    """Open or create the agent of these settings, ready for requests.

    A setting that is not given is as stored, or its default.
    """
    place = MemberFolder.read(settings.federation) if settings.federation else None
    settings = remembered(settings)
    agent = _open(settings, place)
    try:
        expected = agent.dimension - settings.intercept
        for given in filter(None, (settings.dimension, len(settings.features))):
            require(given == expected, "dimension", f"must be {expected}, as in the database", given)
        features = FeatureTable(settings.features, dimension=expected, intercept=settings.intercept)
        remember(agent, settings)
        warm(agent)
        membership = None if place is None else Membership(place, agent)
        return ServedAgent(settings, agent, features, membership, write_queue=write_queue, metrics=metrics)
    except BaseException:
        agent.close()
        raise


def _open(settings: Settings, place: MemberFolder | None) -> Agent:
    """Open the agent with these settings or, in a federation, with the terms of the roster."""
    if place is None:
        return Agent.open(place_of(settings), **_kept(settings))
    named = settings.name or place.name
    require(named == place.name, "name", f"must be {place.name!r}, as in {settings.federation}", named)
    return place.roster.terms.open_agent(
        place.name,
        place_of(settings),
        decide_from=settings.decide_from if "decide_from" in settings.given else None,
        partners=settings.partners,
        half_life=settings.half_life,
        window=settings.window,
        default_reward=settings.default_reward,
    )


def _kept(settings: Settings) -> dict[str, Any]:
    """The agent's options that were given; the others stay as stored."""
    given: dict[str, Any] = {name: getattr(settings, name) for name in KEPT if name in settings.given}
    dimension = len(settings.features) or settings.dimension
    if dimension:
        given["dimension"] = dimension + settings.intercept
    if settings.actions:
        given["actions"] = settings.actions
    if settings.merit:
        given["merit"] = as_merit(settings.merit)
    if settings.epsilon is not None:
        given["budget"] = Budget(
            epsilon=settings.epsilon,
            delta=settings.delta,
            releases=settings.releases,
            bounds=None if settings.reward_range is None else Bounds.for_range(settings.reward_range),
            decide_from=settings.decide_from,
            person_records=settings.person_records,
        )
    return given


def warm(agent: Agent) -> None:
    """Compile what decisions with one slot and with several need, on a throw-away agent, before any request.

    From a filled cache it takes a moment; compiling would stop all requests for seconds.
    """
    slots = as_weights(agent.options.slots)
    kind = agent.rule, type(agent.merit), bool(agent.actions), agent.private, slots, agent.options.half_life
    if kind in _warmed:
        return
    names = [str(number) for number in range(max(2, len(slots)))]
    arms: dict[str, Any] = {"actions": names} if agent.actions else {"dimension": agent.dimension}
    other, third = (Agent(**arms, options=agent.options) for _ in range(2))
    contexts = None if agent.actions else np.zeros((len(names), agent.dimension))
    for weights in {slots} if agent.private else {slots, ONE, ONE * 2}:
        other.observe(other.decide(contexts, slots=weights), rewards=[0.0] * len(weights))
    other.absorb({other.name: other.release(), third.name: third.release()})
    _warmed.add(kind)


def remembered(settings: Settings) -> Settings:
    """The settings with the stored features; refuse settings that contradict them."""
    stored = read_feature_schema(place_of(settings), agent=settings.name or None)
    if stored is None:
        return settings
    features = tuple(Feature(name, low, high) for name, low, high in stored["features"])
    kept: dict[str, Any] = {"features": features, "intercept": bool(stored["intercept"])}
    for name, value in kept.items():
        given = getattr(settings, name)
        if name in settings.given and given != value:
            raise InvalidInput(
                f"{name} must be what the agent has learnt from, {name}={_shown(value)}, got "
                f"{name}={_shown(given)}; leave it out, or create another agent elsewhere"
            )
    return replace(settings, **kept)


def remember(agent: Agent, settings: Settings) -> None:
    """Store the features at the first start."""
    features = [[feature.name, feature.low, feature.high] for feature in settings.features]
    store_feature_schema(agent.journal, {"features": features, "intercept": settings.intercept})


def _shown(value: bool | Sequence[Feature]) -> str:
    """A value as it is written on the command line."""
    if isinstance(value, bool):
        return str(value).lower()
    return ",".join(f"{each.name}={each.low!r}:{each.high!r}" for each in value) or "(none)"
