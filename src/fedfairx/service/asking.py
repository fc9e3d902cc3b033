"""From a decision's request to what the agent is asked, and from its decision to the answer."""

from __future__ import annotations

from collections.abc import Collection, Sequence

import msgspec

from fedfairx.errors import InvalidInput, require
from fedfairx.service.features import FeatureTable
from fedfairx.service.schemas import Action, DecisionRequest
from fedfairx.util.arrays import Array

__all__ = ["AmongAll", "Asked", "understand", "understand_names"]


NO_BASELINE = "baseline must be given: this service keeps it in some or all decisions (mode)"


class Asked(msgspec.Struct, frozen=True):  # a tenth of the time that a frozen dataclass takes to make
    """The eligible actions as the agent sees them; `rows` are their places in the request."""

    contexts: Array | None  # None: actions without features, which are their names
    rows: Sequence[int]
    actions: int  # in the request
    ids: list[str] | None  # of all actions in the request
    names: list[str] | None  # of the eligible ones
    groups: list[str | None] | None
    baseline: int | None  # among the eligible ones
    clipped: int


class AmongAll(msgspec.Struct, frozen=True):
    """A request that names no actions: of those without features all are meant that are active then."""

    excluded: Collection[str]
    baseline: str | None
    most: int

    def among(self, active: Sequence[str], known: Collection[str]) -> Asked:
        """What is asked, once it is known what there is; excluded ones are no part of it."""
        for name in self.excluded:
            require(name in known, "excluded", "must be the ids of actions that there are", name)
        names = [name for name in active if name not in self.excluded]
        require(bool(names), "excluded", "must leave an action", f"{len(active)} of {len(active)}")
        _check_count(len(names), self.most)
        baseline = self.baseline
        fits = baseline is None or baseline in names
        require(fits, "baseline", f"must be the id of one of the {len(names)} actions", baseline)
        return named(names, None if baseline is None else names.index(baseline))


def named(names: list[str], baseline: int | None = None) -> Asked:
    """All of these actions without features."""
    return Asked(None, range(len(names)), len(names), names, names, None, baseline, 0)


def understand_names(request: DecisionRequest, *, max_actions: int, needs_baseline: bool) -> Asked | AmongAll:
    """`understand`, of actions without features; whether there are such, the agent will say."""
    if request.contexts is not None:
        raise InvalidInput("contexts must be left out: this service's actions have no features")
    if needs_baseline and request.baseline is None:
        raise InvalidInput(NO_BASELINE)
    if request.actions is None:
        by_id = all(isinstance(one, str) for one in (*request.excluded, request.baseline or ""))
        require(by_id, "excluded and baseline", "must be ids of actions", "numbers")
        baseline = None if request.baseline is None else str(request.baseline)
        return AmongAll(frozenset(map(str, request.excluded)), baseline, max_actions)
    actions = [Action(one) if isinstance(one, str) else one for one in request.actions]
    for index, action in enumerate(actions):
        if action.features is not None:
            raise InvalidInput(
                f"actions[{index}].features must be left out: this service's actions have no features"
            )
    _check_count(len(actions), max_actions)
    ids, groups, places = _ids_of(actions)
    count = len(ids)
    baseline_at = (
        None if request.baseline is None else _place(request.baseline, ids, places, count, "baseline")
    )
    asked = Asked(None, range(count), count, ids, ids, groups, baseline_at, 0)
    return _without(request, asked, places) if request.excluded else asked


def understand(
    request: DecisionRequest, features: FeatureTable, *, max_actions: int, needs_baseline: bool
) -> Asked:
    """Check a request, and say it in the agent's terms."""
    if (request.actions is None) == (request.contexts is None):
        raise InvalidInput("either actions or contexts must be given")
    if request.actions is not None:
        _check_count(len(request.actions), max_actions)
        actions, rows = [], []
        for i, action in enumerate(request.actions):
            if isinstance(action, str) or action.features is None:
                raise InvalidInput(f"actions[{i}] must have features: this service decides by them")
            actions.append(action)
            rows.append(features.row(action.features, f"actions[{i}].features"))
        ids, groups, places = _ids_of(actions)
        contexts, clipped = features.contexts(rows, "features of actions")
    else:
        assert request.contexts is not None
        _check_count(len(request.contexts), max_actions)
        contexts, clipped = features.contexts(request.contexts, "contexts")
        ids, groups, places = None, None, dict[str, int]()
    count = len(contexts)
    baseline = None if request.baseline is None else _place(request.baseline, ids, places, count, "baseline")
    if needs_baseline and baseline is None:
        raise InvalidInput(NO_BASELINE)
    if not request.excluded:
        return Asked(contexts, range(count), count, ids, ids, groups, baseline, clipped)
    return _without(
        request, Asked(contexts, range(count), count, ids, ids, groups, baseline, clipped), places
    )


def _ids_of(actions: Sequence[Action]) -> tuple[list[str], list[str | None] | None, dict[str, int]]:
    """Ids, groups if there are any, and the row of each id."""
    ids = [action.id for action in actions]
    places = {name: row for row, name in enumerate(ids)}
    require(len(places) == len(ids), "actions", "must have different ids", f"{len(ids)} actions")
    grouped = any(action.group is not None for action in actions)
    return ids, [action.group for action in actions] if grouped else None, places


def _without(request: DecisionRequest, asked: Asked, places: dict[str, int]) -> Asked:
    """The same without the excluded actions; rows that lose their place get it as their name."""
    ids = asked.ids
    excluded = {_place(one, ids, places, asked.actions, "excluded") for one in request.excluded}
    rows = [row for row in range(asked.actions) if row not in excluded]
    require(bool(rows), "excluded", "must leave an action", f"{len(excluded)} of {asked.actions}")
    if asked.baseline is not None and asked.baseline in excluded:
        raise InvalidInput("baseline must be none of the excluded actions")
    return Asked(
        contexts=None if asked.contexts is None else asked.contexts[rows],
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
