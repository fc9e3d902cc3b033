"""From a decision's request to what the agent is asked, and from its decision to the answer."""

from __future__ import annotations

from collections.abc import Sequence

import msgspec

from fedfairx.arrays import Array
from fedfairx.errors import InvalidInput, require
from fedfairx.service.features import FeatureTable
from fedfairx.service.schemas import DecisionRequest

__all__ = ["Asked", "understand"]


class Asked(msgspec.Struct, frozen=True):  # a tenth of the time that a frozen dataclass takes to make
    """The eligible actions as the agent sees them; `rows` are their places in the request."""

    contexts: Array
    rows: Sequence[int]
    actions: int  # in the request
    ids: list[str] | None  # of all actions in the request
    names: list[str] | None  # of the eligible ones
    groups: list[str | None] | None
    baseline: int | None  # among the eligible ones
    clipped: int


def understand(
    request: DecisionRequest, features: FeatureTable, *, max_actions: int, needs_baseline: bool
) -> Asked:
    """Check a request, and say it in the agent's terms."""
    if (request.actions is None) == (request.contexts is None):
        raise InvalidInput("either actions or contexts must be given")
    if request.actions is not None:
        actions = request.actions
        _check_count(len(actions), max_actions)
        ids = [action.id for action in actions]
        require(len(set(ids)) == len(ids), "actions", "must have different ids", f"{len(ids)} actions")
        rows = [features.row(action.features, f"actions[{i}].features") for i, action in enumerate(actions)]
        contexts, clipped = features.contexts(rows, "features of actions")
        grouped = any(action.group is not None for action in actions)
        groups = [action.group for action in actions] if grouped else None
        places = {name: row for row, name in enumerate(ids)}
    else:
        assert request.contexts is not None
        _check_count(len(request.contexts), max_actions)
        contexts, clipped = features.contexts(request.contexts, "contexts")
        ids, groups, places = None, None, {}
    count = len(contexts)
    baseline = None if request.baseline is None else _place(request.baseline, ids, places, count, "baseline")
    if needs_baseline and baseline is None:
        raise InvalidInput("baseline must be given: this service keeps it in some or all decisions (mode)")
    if not request.excluded:
        return Asked(contexts, range(count), count, ids, ids, groups, baseline, clipped)
    return _without(
        request, Asked(contexts, range(count), count, ids, ids, groups, baseline, clipped), places
    )


def _without(request: DecisionRequest, asked: Asked, places: dict[str, int]) -> Asked:
    """The same without the excluded actions; rows that lose their place get it as their name."""
    ids = asked.ids
    excluded = {_place(one, ids, places, asked.actions, "excluded") for one in request.excluded}
    rows = [row for row in range(asked.actions) if row not in excluded]
    require(bool(rows), "excluded", "must leave an action", f"{len(excluded)} of {asked.actions}")
    if asked.baseline is not None and asked.baseline in excluded:
        raise InvalidInput("baseline must be none of the excluded actions")
    return Asked(
        contexts=asked.contexts[rows],
        rows=rows,
        actions=asked.actions,
        ids=ids,
        names=[str(row) if ids is None else ids[row] for row in rows],
        groups=None if asked.groups is None else [asked.groups[row] for row in rows],
        baseline=None if asked.baseline is None else rows.index(asked.baseline),
        clipped=asked.clipped,
    )


def _check_count(count: int, most: int) -> None:
    require(count <= most, "actions", f"must be at most {most} (max_actions)", count)


def _place(one: str | int, ids: list[str] | None, places: dict[str, int], count: int, where: str) -> int:
    """The row that is meant: by id where actions have ids, by number where they have not."""
    if ids is None:
        if not isinstance(one, int) or one >= count:
            raise InvalidInput(f"{where} must be a row of contexts, from 0 to {count - 1}")
        return one
    if one not in places:
        raise InvalidInput(f"{where} must be the id of one of the {count} actions")
    return places[str(one)]
