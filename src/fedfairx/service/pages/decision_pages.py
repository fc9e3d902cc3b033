"""Decisions, and why the actions of one have their shares, as their pages show them."""

from __future__ import annotations

import asyncio
from collections.abc import Iterator, Sequence
from typing import TYPE_CHECKING

from starlette.datastructures import QueryParams

from fedfairx.service import serializers
from fedfairx.service.explanation import explain, known_then
from fedfairx.service.pages.charts import Option, Scale
from fedfairx.service.pages.page_data import View
from fedfairx.service.pages.pagination import LINES, Keys, link, listed
from fedfairx.service.problems import ProblemError
from fedfairx.service.roles import for_role, sees_all
from fedfairx.service.schemas import Explanation, FeatureExplained
from fedfairx.storage.journal import Journal
from fedfairx.storage.queries import matching
from fedfairx.storage.records import STATUSES, StoredDecision

if TYPE_CHECKING:
    from fedfairx.service.served_agent import ServedAgent

MOST_LINES = 10_000  # in a file
MOST_PARTS = 25  # contributions that are drawn
NEGLIGIBLE = 1e-3  # of the largest contribution: smaller ones are not shown
SEEN = 0.005  # of a share, by which what is not known yet changes it, else that column is left out
LARGEST = 2**53  # number of a decision


async def decisions(served: ServedAgent, query: QueryParams, role: str) -> View:
    before = query.get("before", "")
    if before and not (before.isascii() and before.isdigit() and int(before) <= LARGEST):
        raise ProblemError("invalid", "before must be a number that a page linked to.")
    wanted = {name: query.get(name, "").strip() for name in ("action", "group", "status", "id")}
    if wanted["status"] not in ("", *STATUSES):
        raise ProblemError("invalid", f"status must be one of {', '.join(STATUSES)}.")
    limit = MOST_LINES if query.get("format") == "csv" else LINES

    def read(journal: Journal) -> tuple[list[StoredDecision], int | None]:
        if wanted["id"]:
            stored = journal.decision(wanted["id"])
            return ([] if stored is None or stored.gone else [stored]), None
        return matching(
            journal,
            name=wanted["action"] or None,
            group=wanted["group"] or None,
            status=wanted["status"] or None,
            newest=True,
            before=int(before) if before else None,
            limit=limit,
        )

    rows, older = await served.read(read)
    gone = await served.read(lambda journal: journal.amendments().gone())
    filters = {name: value for name, value in wanted.items() if value}
    return {
        "lines": [_line(stored, role) for stored in rows] if limit == LINES else [],
        "older": None if older is None else link(filters, before=older),
        "newest": not before,
        "newest_link": link(filters),
        "csv_link": link(filters, before=before, format="csv"),
        "wanted": wanted,
        "gone": gone,
        "filtered": bool(filters),
        "statuses": STATUSES,
        "csv": _decision_rows(rows, role),
    }


def _decision_rows(rows: Sequence[StoredDecision], role: str) -> Iterator[Sequence[object]]:
    """Decisions as lines of CSV; of several slots, lists in their order."""
    columns = ["decision_id", "seq", "time", "mode", "status", "action_id", "group", "model_version"]
    yield [*columns, *(["probability"] if sees_all(role) else [])]
    for stored in rows:
        seen = for_role(serializers.seen(stored), role)
        slots = seen.shown or []
        name = [slot.action_id for slot in slots] if slots else seen.action_id
        group = [slot.group for slot in slots] if slots else seen.group
        chance = [slot.exposure for slot in slots] if slots else seen.probability
        row = [seen.decision_id, seen.seq, seen.time, seen.mode, seen.status, name, group, seen.model_version]
        yield [*row, *([chance] if sees_all(role) else [])]


#: How the actions of a decision can be sorted.
OPTIONS: Keys = {
    "name": lambda each: each["name"].casefold(),
    "share": lambda each: each["share"],
}


async def decision(served: ServedAgent, query: QueryParams, role: str) -> View:
    (stored,) = await served.stored([query["decision_id"]])
    view: View = {"line": _line(stored, role), "explanation": None, "rewards": None}
    names = stored.names or [f"action {place}" for place in range(stored.policy.size)]
    shown = {slot.action for slot in stored.slots} or {stored.action}
    rows: list[View] = [
        {"place": place, "name": name, "taken": place in shown, "share": 0.0, "log_merit": None}
        for place, name in enumerate(names)
    ]
    if sees_all(role):
        explained = await asyncio.to_thread(explain, served, stored)
        view |= {"known": known_then(served.agent, stored), "alone": served.featureless}
        for row, each in zip(rows, explained.actions, strict=True):
            row |= {"share": each.share, "log_merit": each.log_merit}
        view |= _why(explained, query.get("of", ""), stored.action)
        view["rewards"] = [slot.reward for slot in stored.slots] or [stored.reward]
    plain = QueryParams({name: value for name, value in query.items() if name != "decision_id"})
    listing = listed(rows, plain, OPTIONS, lambda each: each["name"])
    return view | {"listing": listing, "csv": _explained_rows(view["explanation"], listing.matching)}


def _why(explained: Explanation, asked: str, taken: int) -> View:
    """What each feature adds to one action's share: to the one at this place, or to the one taken.

    faint: the features that add nothing that can be seen.
    """
    is_place = asked.isascii() and asked.isdigit() and int(asked[:9]) < len(explained.actions)
    one = explained.actions[int(asked) if is_place else taken]
    rows = sorted(one.features, key=lambda each: -_size(each))
    seen = [each for each in rows if _size(each) > NEGLIGIBLE * (_size(rows[0]) or 1.0)]
    changes = [each.uncertainty_change for each in seen if each.uncertainty is not None]
    return {
        "explanation": explained,
        "one": one,
        "split": any(change is None or abs(change) >= SEEN for change in changes),
        "sure": SEEN if changes else None,
        "parts": seen[:MOST_PARTS],
        "faint": [each.feature for each in rows[len(seen) :]],
        "left": len(seen[MOST_PARTS:]),
        "range": Scale.around([end for each in seen for end in (each.contribution, each.uncertainty or 0.0)]),
    }


def _size(each: FeatureExplained) -> float:
    return max(abs(each.contribution), abs(each.uncertainty or 0.0))


def _explained_rows(explained: Explanation | None, rows: Sequence[View]) -> Iterator[Sequence[object]]:
    """The actions of a decision as lines of CSV, with contributions if they may be seen."""
    if explained is None:
        yield ["action", "taken"]
        yield from ([row["name"], row["taken"]] for row in rows)
        return
    names = [each.feature for each in explained.actions[0].features]
    kinds = ("", " contribution", " change", " uncertainty", " uncertainty_change")
    columns = [f"{name}{kind}" for name in names for kind in kinds]
    yield ["action", "taken", "share", "log_merit", "uncertainty", "sentence", *columns]
    for row in rows:
        one = explained.actions[row["place"]]
        parts = [
            value
            for each in one.features
            for value in (
                each.value,
                each.contribution,
                each.change,
                each.uncertainty,
                each.uncertainty_change,
            )
        ]
        yield [row["name"], row["taken"], one.share, one.log_merit, one.uncertainty, one.sentence, *parts]


def _line(stored: StoredDecision, role: str) -> View:
    """A decision as the API shows it, with the names of its actions and those that it chose from.

    shown: the slots, where there are several, each with the name of its action.
    whole: the sum of all shares.
    """
    seen = for_role(serializers.seen(stored), role)
    slots = seen.shown or []
    names = stored.names or [f"action {place}" for place in range(stored.policy.size)]
    shares: Sequence[float | None] = seen.policy or seen.exposure or [None] * len(names)
    shown = {slot.action for slot in slots} or {stored.action}
    options = [
        Option(name, share, place in shown)
        for place, (name, share) in enumerate(zip(names, shares, strict=True))
    ]
    return {
        "seen": seen,
        "action": names[stored.action],
        "options": options,
        "shown": [(names[slot.action], slot) for slot in slots],
        "whole": sum(slot.weight for slot in slots) or 1.0,
    }
