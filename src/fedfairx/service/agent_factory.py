"""An agent from settings: open or create it, check it against the settings, and compile."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import closing, contextmanager
from dataclasses import fields, replace
from tempfile import TemporaryDirectory
from typing import Any, cast

from fedfairx.agent.agent import Agent
from fedfairx.agent.options import SharedOptions
from fedfairx.agent.settings import StoredSettings
from fedfairx.agent.warm import is_warm, warm
from fedfairx.errors import InvalidInput, require
from fedfairx.features import features_of
from fedfairx.federation.setup.member_folder import MemberFolder
from fedfairx.privacy import Bounds, Budget
from fedfairx.privacy.guarantee import DecideFrom
from fedfairx.service.feature_table import FeatureTable
from fedfairx.service.federation import Membership
from fedfairx.service.metrics import AgentMetrics
from fedfairx.service.served_agent import ServedAgent
from fedfairx.service.settings import Settings, place_of, schema_of
from fedfairx.service.write_queue import WriteQueue
from fedfairx.storage.agents import read_feature_schema, store_feature_schema

#: Settings that are arguments of `Agent.open`: options that an agent stores, and how it is run.
KEPT = {item.name for item in fields(SharedOptions)} & {item.name for item in fields(StoredSettings)}
KEPT |= {"actions", "name", "window", "default_reward"}


def open_served(settings: Settings, *, write_queue: WriteQueue, metrics: AgentMetrics) -> ServedAgent:
    """Open or create the agent of these settings, ready for requests.

    A setting that is not given is as stored, or its default.
    """
    place = MemberFolder.read(settings.federation, vaults=settings.vault) if settings.federation else None
    settings = remembered(settings)
    agent = _open(settings, place)
    try:
        features = FeatureTable.of(agent)
        expected, dimension = features.width, settings.dimension or features.width
        require(dimension == expected, "dimension", f"must be {expected}, as in the database", dimension)
        remember(agent)
        warm(agent)
        membership = None if place is None else Membership(place, agent)
        return ServedAgent(settings, agent, features, membership, write_queue=write_queue, metrics=metrics)
    except BaseException:
        agent.close()
        raise


def is_compiled(settings: Settings) -> bool:
    """Whether what an agent of these settings needs is compiled."""
    with _sample(settings) as agent:
        return is_warm(agent)


def compile_for(settings: Settings) -> None:
    """Compile what an agent of these settings needs, without a lock that others need."""
    with _sample(settings) as agent:
        warm(agent)


@contextmanager
def _sample(settings: Settings) -> Iterator[Agent]:
    """An agent of these settings in a database of its own, which is thrown away."""
    place = MemberFolder.read(settings.federation) if settings.federation else None
    with TemporaryDirectory(prefix="fedfairx-") as folder:
        agent = _open(replace(settings, data=folder, database=""), place)
        with closing(agent):
            yield agent


def _open(settings: Settings, place: MemberFolder | None) -> Agent:
    """Open the agent with these settings or, in a federation, with the terms of the roster."""
    if place is None:
        return Agent.open(place_of(settings), **_options(settings))
    named = settings.name or place.name
    require(named == place.name, "name", f"must be {place.name!r}, as in {settings.federation}", named)
    schema = schema_of(settings) if settings.features else None
    return place.roster.terms.open_agent(
        place.name,
        place_of(settings),
        schema=schema,
        members=len(place.roster.members) if place.roster.terms.secure else None,
        decide_from=settings.decide_from if "decide_from" in settings.given else None,
        partners=settings.partners if "partners" in settings.given else None,
        half_life=settings.half_life,
        window=settings.window,
        default_reward=settings.default_reward,
    )


def _options(settings: Settings) -> dict[str, Any]:
    """The agent's options that were given; the others stay as stored."""
    options = {name: getattr(settings, name) for name in KEPT & settings.given}
    options = {name: value for name, value in options.items() if value is not None}  # an empty variable
    if settings.features:
        options["schema"] = schema_of(settings)
    elif settings.dimension:
        options["dimension"] = settings.dimension
        if settings.intercept is not None:
            options["intercept"] = settings.intercept
    if settings.epsilon is not None:
        options["budget"] = Budget(
            epsilon=settings.epsilon,
            delta=settings.delta,
            releases=settings.releases,
            bounds=None
            if settings.features or settings.reward_range is None
            else Bounds.for_range(settings.reward_range),
            decide_from=cast("DecideFrom", settings.decide_from or Settings.decide_from),
            person_records=settings.person_records,
        )
    return options


def remembered(settings: Settings) -> Settings:
    """The settings with what is stored of the features; refuse settings that contradict it.

    The agent itself refuses features that are not those that it has, or append to them.
    """
    stored = read_feature_schema(place_of(settings), agent=settings.name or None)
    if stored is None:
        return settings
    changes: dict[str, Any] = {"intercept": bool(stored["intercept"])}
    if stored["features"]:
        changes |= {name: stored[name] for name in ("features", "shared", "products")}
        changes["features"] = features_of(changes["features"])
        described = {"features", "shared", "products"} & settings.given
        if described and not settings.features:
            raise InvalidInput(
                f"features must be given with {', '.join(sorted(described))}, or all be left out: the agent "
                f"has {','.join(map(str, changes['features']))}"
            )
        if described:
            changes = {
                "intercept": changes["intercept"] if settings.intercept is None else settings.intercept
            }
        return replace(settings, **changes)
    if settings.features:
        raise InvalidInput(
            "features must be left out: the agent has learnt from numbers without names, got "
            f"features={','.join(map(str, settings.features))}; create another agent elsewhere"
        )
    same = settings.intercept in (None, changes["intercept"])
    text = f"must be what the agent has learnt from, {changes['intercept']}"
    require(same, "intercept", text, settings.intercept, "create another agent elsewhere")
    return settings


def remember(agent: Agent) -> None:
    """Store at the first start that features have no names, and whether there is an intercept."""
    if agent.schema is None:
        store_feature_schema(agent.journal, {"features": [], "intercept": agent.columns > agent.dimension})
