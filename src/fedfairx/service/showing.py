"""The agent and its decisions as readers see them."""

from __future__ import annotations

import math
from typing import TYPE_CHECKING, Any

from fedfairx.federation.agent import Agent
from fedfairx.federation.partners import Partner
from fedfairx.service import schemas
from fedfairx.service.modes import Remark, propensity
from fedfairx.storage.rows import StoredDecision

if TYPE_CHECKING:
    from fedfairx.service.service import Service

__all__ = ["model", "privacy", "seen", "sync"]


def seen(stored: StoredDecision) -> schemas.DecisionSeen:
    """A decision without its contexts and its reward."""
    remark = Remark.read(stored.extra)
    action = stored.action
    return schemas.DecisionSeen(
        decision_id=stored.id,
        seq=stored.seq,
        time=stored.time,
        action=action,
        action_id=stored.name,
        group=None if stored.groups is None else stored.groups[action],
        probability=propensity(stored.mode, action, float(stored.policy[action]), remark),
        policy=stored.policy.tolist(),
        action_ids=stored.names,
        mode=stored.mode,
        status=stored.status,
        model_version=remark.model_version,
    )


def model(service: Service) -> schemas.Model:
    agent, settings = service.agent, service.settings
    return schemas.Model(
        name=agent.name,
        rule=agent.rule,
        merit=repr(agent.merit),
        dimension=agent.dimension,
        features=list(service.features.names),
        intercept=settings.intercept,
        estimate=agent.estimate.tolist(),
        observed=agent.observed,
        pending=agent.pending,
        model_version=agent.model_version,
        mode=settings.mode,
        control_share=settings.control_share,
    )


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
        clipped=int(getattr(agent.privatizer, "clipped", 0)),
    )


def _believed(partner: Partner | None) -> dict[str, Any]:
    if partner is None:
        return {}
    return {"weight": partner.weight, "reason": partner.reason}


def sync(service: Service) -> schemas.Sync:
    agent, membership = service.agent, service.membership
    if membership is None:
        none = schemas.Sync(agent.name, None, None, agent.released, None, None, False, None, None, {}, {})
        none.peers = {
            name: schemas.PeerSeen(
                each.releases,
                each.observations,
                None,
                max(agent.released - each.releases, 0),
                0,
                **_believed(each),
            )
            for name, each in agent.partners.items()
        }
        return none
    partners = agent.partners
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
        peers={
            name: schemas.PeerSeen(
                peer.number, peer.count, peer.came, peer.lag, peer.refused, **_believed(partners.get(name))
            )
            for name, peer in membership.peers.items()
        },
    )
