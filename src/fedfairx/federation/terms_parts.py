"""Parts of a federation's terms, read from plain values."""

from __future__ import annotations

import dataclasses
import json
from collections.abc import Mapping
from typing import Any, Literal, cast

from fedfairx.core.confidence import Confidence
from fedfairx.core.posterior import Prior
from fedfairx.errors import InvalidInput, StateError
from fedfairx.federation.fields import Fields
from fedfairx.federation.schedules import SCHEDULES, Schedule
from fedfairx.privacy import Bounds, Centring

__all__ = ["bounds_from", "canonical", "centring_from", "confidence_from", "prior_from", "schedule_from"]


def schedule_from(values: Mapping[str, Any]) -> Schedule:
    name = values.get("name")
    if name not in SCHEDULES:
        raise StateError(f"terms.schedule.name must be one of {', '.join(SCHEDULES)}, got {name!r}")
    found: Any = SCHEDULES[name]
    try:
        return cast(
            "Schedule", dataclasses.replace(found, **{k: v for k, v in values.items() if k != "name"})
        )
    except (TypeError, InvalidInput) as error:
        raise StateError(f"terms.schedule has no such parameters: {error}") from None


def bounds_from(fields: Fields) -> Bounds:
    return Bounds(
        context_norm=fields.number("context_norm"),
        reward=fields.number("reward"),
        adjacency=cast('Literal["replace", "add-remove"]', fields.text("adjacency")),
        nonnegative=fields.flag("nonnegative"),
        gram_share=fields.number("gram_share"),
    )


def centring_from(fields: Fields, dimension: int) -> Centring:
    return Centring(
        context=tuple(fields.numbers("context", dimension).tolist()),
        context_radius=fields.number("context_radius"),
        reward=fields.number("reward"),
        reward_radius=fields.number("reward_radius"),
        constant=fields.number("constant"),
    )


def prior_from(fields: Fields, dimension: int) -> Prior:
    means = fields.numbers("mean", dimension).tolist()
    return Prior(
        means[0] if means.count(means[0]) == dimension else tuple(means),
        fields.number("sd"),
        fields.number("noise_sd"),
        fields.flag("learn"),
    )


def confidence_from(fields: Fields) -> Confidence:
    return Confidence(**{each.name: fields.number(each.name) for each in dataclasses.fields(Confidence)})


def canonical(value: object) -> bytes:
    """The same bytes for the same plain values."""
    return json.dumps(value, sort_keys=True, separators=(",", ":"), allow_nan=False).encode()
