"""Roles of API keys: what each may do, and what is taken out of answers.

Readers and writers see what was possible, shown and answered: no context, no reward, and nothing that is
computed from rewards. That includes policies, which come from earlier rewards. A number that changes with
each reward reveals each reward to anybody who knows the contexts: they can replay the same decisions in
another agent, and see which reward gives that change.
"""

from __future__ import annotations

import math
from collections.abc import Iterable
from dataclasses import fields, is_dataclass, replace
from typing import Any, TypeVar

from msgspec import UNSET, Struct, structs

from fedfairx.fairness import Draws, Exposure, Row, Share
from fedfairx.federation.exchange.member import Peer
from fedfairx.service import schemas

Answer = TypeVar("Answer")

#: What each role may do. An auditor may also read whatever else can be read.
ROLES = {
    "reader": ("reader",),
    "writer": ("reader", "writer"),
    "federation": ("federation",),  # for an engine beside the service: envelopes, and nothing else
    "auditor": ("reader", "auditor"),
    "admin": ("reader", "writer", "federation", "auditor", "admin"),
}

_UNKNOWN = Share(math.nan, math.nan, math.nan)
#: Fields that only auditors and admins see, and what others see instead, by type.
RESTRICTED: dict[type, dict[str, object]] = {
    schemas.DecisionSeen: {"probability": None, "policy": None, "exposure": None, "reward": UNSET},
    schemas.SlotSeen: {"exposure": None, "reward": UNSET},
    schemas.FeatureSeen: dict.fromkeys(("clipped", "unknown")),
    schemas.Model: dict.fromkeys(
        ("estimate", "sd", "low", "high", "change", "knowledge", "mean_reward", "lift", "records", "differ")
    ),
    schemas.Privacy: {"clipped": None},
    schemas.Aggregated: dict.fromkeys(("weight", "reason")),
    Peer: dict.fromkeys(("weight", "reason")),
    schemas.Exposed: dict.fromkeys(
        ("policy", "entitled", "shortfall", "verdict", "estimate", "more_rewards", "likely")
    ),
    schemas.ExposureTable: dict.fromkeys(("draws", "claims", "summary")),
    schemas.ArrivalRow: {"missing": None},
    schemas.ArrivalTable: {"missing": None},
    # as pages have them
    Exposure: {"draws": Draws(0, 1.0), "learnt": False, "over_time": None},
    Row: {"policy": math.nan, "entitled": _UNKNOWN, "verdict": ""}
    | dict.fromkeys(("estimate", "more", "likely")),
}


def sees_all(role: str) -> bool:
    """Whether a role sees contexts, rewards, and what is computed from them."""
    return "auditor" in ROLES[role]


def for_role(answer: Answer, role: str) -> Answer:
    """The answer as a role may see it."""
    return answer if sees_all(role) else _without(answer)


def _without(value: Any) -> Any:
    kind = type(value)
    if kind is list or kind is tuple:
        return kind(map(_without, value))
    if kind is dict:
        return {name: _without(each) for name, each in value.items()}
    if isinstance(value, Struct):
        return structs.replace(value, **_changes(value, value.__struct_fields__))
    if is_dataclass(kind):
        return replace(value, **_changes(value, [each.name for each in fields(kind) if each.init]))
    return value


def _changes(value: Any, names: Iterable[str]) -> dict[str, Any]:
    """What is instead of the fields of these names, where anything is."""
    instead, changes = RESTRICTED.get(type(value), {}), {}
    for name in names:
        old = getattr(value, name)
        new = instead[name] if name in instead and old is not UNSET else _without(old)
        if new is not old:
            changes[name] = new
    return changes
