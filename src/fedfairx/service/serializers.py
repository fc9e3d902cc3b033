"""The agent and its decisions in wire format, whole: `roles.for_role` takes out what a caller may not see."""

from __future__ import annotations

import math
from collections.abc import Sequence
from dataclasses import replace
from importlib import metadata
from typing import TYPE_CHECKING, NamedTuple

import numpy as np

from fedfairx.agent.agent import Agent
from fedfairx.agent.knowledge import Knowledge
from fedfairx.core.own_record import CONTEXTS, RECORDS, REWARDS
from fedfairx.errors import StorageError
from fedfairx.fairness.change_test import Change
from fedfairx.fairness.credible import coordinates, of_names
from fedfairx.features import Schema
from fedfairx.federation.exchange.member import peers_of
from fedfairx.service import schemas
from fedfairx.service.earnings import Earnings
from fedfairx.service.write_queue import WriteQueue
from fedfairx.storage.records import StoredDecision
from fedfairx.util.arrays import Array

if TYPE_CHECKING:
    from fedfairx.service.endpoint import Named
    from fedfairx.service.federation import Membership
    from fedfairx.service.served_agent import ServedAgent

LEAST_NAMES, LEAST_REWARDS = 8, 2  # with so many rewards each, before which nobody knows how names differ
VERSION = metadata.version("fedfairx")  # read once: it takes longer than the rest of a page


def seen(stored: StoredDecision) -> schemas.DecisionSeen:
    """A decision without contexts and reward."""
    action, groups = stored.action, stored.groups
    if stored.slots:
        return _slate_seen(stored)
    return schemas.DecisionSeen(
        decision_id=stored.id,
        seq=stored.seq,
        time=stored.time,
        action=action,
        action_id=stored.name,
        group=None if groups is None else groups[action],
        probability=stored.propensity,
        policy=stored.policy.tolist(),
        action_ids=stored.names,
        mode=stored.mode,
        status=stored.status,
        model_version=stored.model_version,
        rolled_back=stored.rolled_back,
    )


def _slate_seen(stored: StoredDecision) -> schemas.DecisionSeen:
    groups = stored.groups
    shown = [
        schemas.SlotSeen(
            action=slot.action,
            action_id=slot.name,
            group=None if groups is None else groups[slot.action],
            slot=number,
            weight=slot.weight,
            exposure=slot.exposure,
            status=slot.status,
        )
        for number, slot in enumerate(stored.slots, 1)
    ]
    return schemas.DecisionSeen(
        decision_id=stored.id,
        seq=stored.seq,
        time=stored.time,
        action=None,
        action_id=None,
        group=None,
        probability=None,
        policy=None,
        action_ids=stored.names,
        mode=stored.mode,
        status=stored.status,
        model_version=stored.model_version,
        rolled_back=stored.rolled_back,
        shown=shown,
        exposure=stored.policy.tolist(),
    )


def actions(agent: Agent) -> schemas.ActionList:
    names, active = agent.all_actions, set(agent.actions)
    return schemas.ActionList(
        [schemas.ActionSeen(name, "active" if name in active else "retired") for name in names]
    )


def columns(served: ServedAgent) -> list[str]:
    """What each coordinate of θ is of: a feature or, by the optimistic rule, an action with a name alone."""
    agent = served.agent
    if agent.schema is not None:
        return list(agent.schema.columns)
    if served.featureless and not agent.constant:
        return list(agent.all_actions)
    names = [f"x{place}" for place in range(1, agent.dimension + 1)]
    return [*names, "intercept"] if agent.columns > agent.dimension else names


def estimates(served: ServedAgent, effects: Array | None = None) -> tuple[list[float], ...]:
    """θ or effects (m, d) times θ, the sd of each and both ends of its 95 % interval."""
    agent = served.agent
    mean, covariance = agent.estimate, agent.covariance
    if effects is not None:
        mean, covariance = effects @ mean, effects @ covariance @ effects.T
    sds = np.sqrt(np.maximum(np.diagonal(covariance), 0.0))
    ends = coordinates(agent.posterior, effects, rewards=served.featureless and not agent.constant)
    return tuple(each.tolist() for each in (mean, sds, *ends))


class OwnRow(NamedTuple):
    """What was learnt of a name: its effect beside features or, of one alone, its expected reward.

    weight: how far its own record counts.
    """

    place: int
    name: str
    rewards: float
    weight: float
    value: float
    sd: float


def own_rows(served: ServedAgent) -> list[OwnRow]:
    """The own records of all names that have one."""
    agent = served.agent
    names = agent.names
    found = agent.tallies_of(names)
    if found is None:
        return []
    (tallies, ratio), theta, covariance = found, agent.estimate, agent.covariance
    counts, shares = tallies[:, RECORDS], 1.0 / (tallies[:, RECORDS] + ratio)
    pulls = shares[:, None] * tallies[:, CONTEXTS : CONTEXTS + theta.size]
    rows = (agent.constant if served.featureless else 0.0) - pulls  # z of a candidate with these contexts
    values = rows @ theta + shares * tallies[:, REWARDS]
    variances = (rows * (rows @ covariance)).sum(axis=1) + agent.noise_sd**2 * shares
    numbers = zip(names, counts, counts * shares, values, np.sqrt(np.maximum(variances, 0.0)), strict=True)
    return [OwnRow(place, name, *map(float, each)) for place, (name, *each) in enumerate(numbers)]


def differ(served: ServedAgent, rows: Sequence[OwnRow]) -> float | None:
    """How much people with the same features differ; None until enough of them have rewards to know it."""
    enough = sum(row.rewards >= LEAST_REWARDS for row in rows) >= LEAST_NAMES
    return served.agent.own_sd if enough else None


def _records(served: ServedAgent, rows: Sequence[OwnRow], asked: Named) -> list[schemas.OwnRecordSeen]:
    some = [row for row in rows if asked.asks_for(row.name)][: asked.limit]
    ends = np.full((2, len(some)), math.nan)
    if served.featureless:
        ends = np.array(of_names(served.agent.posterior, [row.name for row in some]))
    return [
        schemas.OwnRecordSeen(
            row.name,
            row.rewards,
            row.weight,
            None if served.featureless or not row.rewards else row.value,
            None if not (served.featureless or row.rewards) else row.sd,
            schemas.ExpectedReward(row.value, float(low), float(high)) if served.featureless else None,
        )
        for row, low, high in zip(some, *ends, strict=True)
    ]


def knowledge(known: Knowledge) -> schemas.KnowledgeSeen:
    return schemas.KnowledgeSeen(known.rewards, known.numbers, known.enough, known.little)


def model(served: ServedAgent, change: Change, earned: Earnings, asked: Named) -> schemas.Model:
    agent, settings, own = served.agent, served.settings, own_rows(served)
    estimate, sd, low, high = estimates(served)
    return schemas.Model(
        name=agent.name,
        rule=agent.rule,
        merit=repr(agent.merit),
        dimension=agent.dimension,
        features=list(served.features.names),
        schema=None if agent.schema is None else _schema(agent, agent.schema),
        actions=list(agent.all_actions),
        intercept=agent.columns > agent.dimension if agent.schema is None else agent.schema.intercept,
        columns=columns(served),
        estimate=estimate,
        sd=sd,
        low=low,
        high=high,
        observed=agent.observed,
        knowledge=knowledge(agent.knowledge),
        pending=agent.pending,
        model_version=agent.model_version,
        mode=settings.mode,
        control_share=settings.control_share,
        slots=list(served.slots),
        half_life=served.half_life,
        change=change,
        mean_reward=earned.mean,
        lift=earned.lift if earned.lift is not None and earned.lift.decisions else None,
        names=len(own),
        records=_records(served, own, asked),
        differ=differ(served, own),
    )


def status(queue: WriteQueue) -> schemas.Status:
    """How the process runs, whose write queue this is."""
    metrics = queue.metrics
    size: int | None
    try:
        size, free = queue.log.database.space()
    except StorageError:
        size = free = None
    return schemas.Status(VERSION, metrics.started, queue.waiting, size, free, metrics.answered())


def _schema(agent: Agent, schema: Schema) -> schemas.SchemaSeen:
    features = [
        schemas.FeatureSeen(
            name=each.name,
            kind="category" if each.levels else "boolean" if each.range is None else "number",
            range=each.range,
            levels=list(each.levels) or None,
            shared=each.name in schema.shared,
            clipped=agent.clipped_values[each.name],
            unknown=agent.unknown_values[each.name],
        )
        for each in schema.features
    ]
    products, version = list(schema.products), schema.versions
    return schemas.SchemaSeen(features, products, schema.intercept, version, schema.digest)


def privacy(agent: Agent) -> schemas.Privacy:
    guarantee = agent.privatizer.guarantee
    promised = math.isfinite(guarantee.mu)
    return schemas.Privacy(
        private=guarantee.is_private,
        statement=str(guarantee),
        mechanism=guarantee.mechanism,
        epsilon=guarantee.epsilon if promised else None,
        delta=guarantee.delta if promised else None,
        releases=guarantee.releases if promised else None,
        spent=guarantee.spent,
        clipped=agent.privatizer.clipped,
    )


def sync(served: ServedAgent) -> schemas.Sync:
    """The exchange with peers."""
    agent, membership = served.agent, served.membership
    peers = peers_of(agent, {}, {}, {}) if membership is None else membership.peers
    silent = {} if membership is None else membership.silent
    peers = {name: replace(peer, silent=name in silent) for name, peer in peers.items()}
    for name, partner in agent.partners.items():
        if name in peers:
            peers[name] = replace(peers[name], weight=partner.weight, reason=partner.reason)
    if membership is None:
        return schemas.Sync(
            agent.name, None, None, agent.released, None, None, False, None, None, {}, peers, {}
        )
    refusals: dict[str, dict[str, int]] = {}
    for (name, reason), times in sorted(membership.refusals.items()):
        refusals.setdefault(name, {})[reason] = times
    return schemas.Sync(
        name=agent.name,
        federation=membership.place.roster.federation,
        roster=membership.place.roster.version,
        released=agent.released,
        releases=membership.releases,
        next_round=membership.next_round,
        waiting=membership.member.waiting,
        trouble=membership.trouble,
        over=membership.over,
        refusals=refusals,
        peers=peers,
        certificates=membership.expiries,
        aggregation=aggregated(membership),
    )


def aggregated(membership: Membership) -> schemas.Aggregated | None:
    """The rounds of secure aggregation, as for `sync`; None without it."""
    terms, member = membership.place.roster.terms, membership.secure
    if member is None or terms.rounds is None or terms.share is None:
        return None
    progress, guarantee = member.progress, member.agent.privatizer.guarantee
    others = next(iter(member.agent.partners.values()), None)
    return schemas.Aggregated(
        epoch=progress.epoch,
        round=progress.due,
        rounds=terms.rounds.count,
        sent=progress.sent,
        opened=progress.opened,
        next_time=progress.next_time,
        unconfirmed=progress.unconfirmed,
        waits_for=progress.waits_for,
        openers=list(membership.place.roster.openers),
        colluding=terms.share.colluding,
        honest=terms.share.honest,
        records=progress.records,
        weight=None if others is None else others.weight,
        reason=None if others is None else others.reason,
        claims=guarantee.against,
    )
