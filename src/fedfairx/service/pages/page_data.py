"""The values that all pages have, and those of the overview, the privacy and the federation page."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Mapping, Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.datastructures import QueryParams

from fedfairx.core.slates import ONE, Weights
from fedfairx.fairness import Row, likely
from fedfairx.fairness.missing_test import Missing
from fedfairx.service import serializers
from fedfairx.service.exposure_cache import ExposureSnapshot
from fedfairx.service.federation import PATIENCE, REFUSED, UNKNOWN, expiry_text
from fedfairx.service.pages.formatting import count, percent, sentence
from fedfairx.service.roles import for_role, sees_all
from fedfairx.service.stretches import stretches
from fedfairx.storage.queries import first_time
from fedfairx.util.formatting import counted, duration

if TYPE_CHECKING:
    from fedfairx.agent.agent import Agent
    from fedfairx.features import Feature, Schema
    from fedfairx.federation.aggregation.progress import Progress
    from fedfairx.service.federation import Membership
    from fedfairx.service.served_agent import ServedAgent

MOST_BELOW = 3  # largest shortfalls on the overview
LITTLE_LEFT = 0.1  # of a privacy budget
MANY_CLIPPED = 0.01  # of the records
SILENT = (
    "Nothing leaves this service: its agent is in no federation, and has made no release. If it made one, "
    "that would be exact sums, without noise."
)
FEW_LEVELS = 8  # of a category, all of which are shown

View = dict[str, Any]  # by the names in the template


class Attention(NamedTuple):
    """A notice on the overview; `level` is bad or warn, `link` the page with the details."""

    level: str
    title: str
    detail: str
    link: str = ""


def frame(
    served: ServedAgent,
    *,
    agents: Sequence[str],
    pages: Mapping[str, str],
    signed_in: bool,
    everything: bool,
) -> View:
    """The values that all pages have.

    agents: the names of those that can be chosen.
    pages: the paths of those that can be chosen.
    everything: whether nothing was taken out of the values.
    """
    return {
        "agent": served.agent.name,
        "agents": agents,
        "pages": pages,
        "archived": served.archived,
        "mode": served.settings.mode,
        "now": time.time(),
        "signed_in": signed_in,
        "everything": everything,
    }


async def overview(served: ServedAgent, _query: QueryParams, role: str) -> View:
    ready, merit = await served.ready(), await _merit(served) if sees_all(role) else None
    return await asyncio.to_thread(_overview, served, ready, merit)


async def _merit(served: ServedAgent) -> View:
    """What is computed from rewards."""
    seen = served.exposures
    looked, change, earned, arrived = await asyncio.gather(  # each may take a second
        seen.glance(), seen.change(), seen.earnings(), seen.arrivals()
    )
    return {
        "looked": looked,
        "below": [] if looked is None else _below(looked),
        "change": str(change),
        "changed": change.alarm,
        "earned": earned,
        "missing": arrived.alarms(),
        "read": seen.results is not None,
        "counted": arrived.read,
    }


def _counted(served: ServedAgent) -> View:
    """Decisions and rewards so far, and over time."""
    counts = served.counters.by_status(served.journal)
    return {
        "decisions": sum(counts.values()),
        "rewarded": counts["rewarded"],
        "pending": counts["pending"],
        "ended": counts["withdrawn"] + counts["expired"],
        "series": _series(served),
    }


def _overview(served: ServedAgent, ready: bool, merit: View | None) -> View:
    agent = served.agent
    waiting = next(iter(served.journal.decisions(status="pending", limit=1)), None)
    oldest = None if waiting is None else waiting.time
    active = agent.actions
    seen = {} if merit is None else merit
    return (
        seen
        | _counted(served)
        | {
            "attention": [
                *_attention(served, oldest, ready),
                *(() if merit is None else _merit_attention(served, merit)),
                *_feature_attention(served, named=merit is not None),
                *_budget_attention(served),
                *_federation_attention(served),
            ],
            "oldest_pending": oldest,
            "observed": agent.observed,
            "known": agent.knowledge if merit is not None or not agent.held else None,
            "half_life": served.half_life,
            "rule": agent.rule,
            "slots": _slots(served.slots),
            "merit": repr(agent.merit),
            "features": _features(agent.schema),
            "actions": active,  # without features
            "retired": [name for name in agent.all_actions if name not in active],
        }
    )


def _below(looked: ExposureSnapshot) -> list[tuple[str, Row]]:
    """The likely below with the largest shortfalls, and whether each is an action or a group.

    Those who left come last.
    """
    table = looked.table
    rows = [
        (kind, row) for kind, each in (("group", table.groups), ("action", table.actions)) for row in each
    ]
    below = [(kind, row) for kind, row in rows if row.likely and row.likely.verdict == likely.BELOW]
    below.sort(key=lambda each: (each[1].left, each[1].shown.value - each[1].estimated))
    return below[:MOST_BELOW]


def _features(schema: Schema | None) -> list[str]:
    """The named features, in words."""
    return [] if schema is None else [_feature(one, schema) for one in schema.features]


def _feature(one: Feature, schema: Schema) -> str:
    words = "yes or no" if one.range is None else f"{one.range[0]:g} to {one.range[1]:g}"
    if one.levels:
        words = ", ".join(one.codes) if len(one.codes) <= FEW_LEVELS else f"{len(one.codes)} levels"
    return f"{one.name} ({words}{'; the same for all actions' if one.name in schema.shared else ''})"


def _slots(weights: Weights) -> str:
    """The slots of a decision; nothing for one of weight 1."""
    several = f"{len(weights)} slot{'' if len(weights) == 1 else 's'}"
    if len(weights) > 1 and weights[0] == weights[-1] == 1.0:
        return f"{several} of equal weight"
    return "" if weights is ONE else f"{several} of weight {', '.join(f'{one:g}' for one in weights)}"


def _series(served: ServedAgent) -> View | None:
    """Decisions and rewards in intervals of time, the last of which is not over; `times` are since 1970."""
    first = first_time(served.journal)
    if first is None:
        return None
    since, width, many, name = stretches(first, time.time())
    decisions, rewards = served.counters.by_time(served.journal, since=since, width=width, count=many)
    times = [int(since + width * k) for k in range(many)]
    return {"times": times, "decisions": decisions, "rewards": rewards, "stretch": name}


def _attention(served: ServedAgent, oldest: float | None, ready: bool) -> list[Attention]:
    attention, settings = [], served.settings
    if not ready:
        attention.append(Attention("bad", "Nothing can be written", "The storage takes no write."))
    if oldest is not None and settings.window is None and time.time() - oldest > 86_400:
        age = duration(time.time() - oldest)
        detail = f"The oldest decision has waited {age} for its reward, and no window ends it."
        attention.append(Attention("warn", "Rewards are missing", detail, "decisions"))
    return attention


def _merit_attention(served: ServedAgent, merit: View) -> list[Attention]:
    """What is noticed by rewards, and by policies, which come from them."""
    agent, looked, attention = served.agent, merit["looked"], []
    if looked is not None and not looked.table.draws.as_the_policy_said:
        title = "Actions were not drawn from the policy"
        attention.append(Attention("bad", title, str(looked.table.draws), "exposure"))
    attention += _missing_attention(merit["missing"])
    if merit["changed"]:
        attention.append(Attention("warn", "Merit may have changed", merit["change"]))
    attention += [
        Attention("warn", "Numbers of an unexpected size", sentence(text)) for text in agent.warnings
    ]
    records, clipped = agent.observed, agent.privatizer.clipped
    if agent.private and clipped > MANY_CLIPPED * records:
        detail = f"{count(clipped)} of {count(records)} records were clipped to the privacy bounds."
        attention.append(Attention("warn", "Many records are clipped", detail, "privacy"))
    for each in () if served.membership is None else served.membership.agent.partners.values():
        if each.differs:
            detail = f"It {each.reason}: {percent(each.weight)} of its records count here."
            attention.append(Attention("warn", f"{each.name} differs from us", detail, "federation"))
    return attention


def _missing_attention(missing: Sequence[Missing]) -> list[Attention]:
    """Actions and groups of which more rewards are missing than of the others."""
    attention = []
    for kind in ("action", "group"):
        rows = sorted(
            (each for each in missing if each.kind == kind), key=lambda each: each.came - each.shown
        )
        if rows:
            title = f"Rewards of {counted(len(rows), kind)} are missing"
            shown = ". ".join(map(str, rows[:5])) + (". And others" if len(rows) > 5 else "")
            attention.append(Attention("bad", title, f"{shown}.", "rewards"))
    return attention


def _feature_attention(served: ServedAgent, *, named: bool) -> list[Attention]:
    """Values outside of ranges and levels, where there is one in a hundred decisions of this start or more.

    named: whether it says which features these are of.
    """
    agent, attention = served.agent, []
    least = MANY_CLIPPED * sum(served.metrics.decisions.values())
    for counts, title, rule in (
        (agent.clipped_values, "Numbers are outside of their ranges", "clipped to an end of their range"),
        (agent.unknown_values, "Levels are unknown", "taken as “other”"),
    ):
        many = sum(counts.values())
        if many and many >= least:
            features = ", ".join(f"{name} {count(times)}" for name, times in counts.most_common(5))
            detail = f"{count(many)} since this start were {rule}{f': {features}' if named else ''}."
            attention.append(Attention("warn", title, detail))
    return attention


def _budget_attention(served: ServedAgent) -> list[Attention]:
    now = serializers.privacy(served.agent)
    if not now.private or not now.releases or now.releases - now.spent > LITTLE_LEFT * now.releases:
        return []
    left = now.releases - now.spent
    detail = f"{count(left)} of {count(now.releases)} releases are left."
    return [Attention("warn" if left else "bad", "The privacy budget ends", detail, "privacy")]


async def privacy(served: ServedAgent, _query: QueryParams, role: str) -> View:
    def read(agent: Agent) -> View:
        privacy, guarantee = for_role(serializers.privacy(agent), role), agent.privatizer.guarantee
        silent = served.membership is None and privacy.spent == 0
        statement = SILENT if silent and not privacy.private else privacy.statement
        return {
            "privacy": privacy,
            "guarantee": guarantee,
            "records": agent.observed,
            "silent": silent,
            "statement": statement,
        }

    return await asyncio.to_thread(read, served.agent)


async def federation(served: ServedAgent, _query: QueryParams, role: str) -> View:
    def read() -> View:
        sync, own = for_role(serializers.sync(served), role), served.agent.held.get(served.agent.name)
        records = 0 if own is None else own.count  # in our latest release
        return {"sync": sync, "observed": served.agent.observed, "records": records, "refused": REFUSED}

    return await asyncio.to_thread(read)


def _rounds_attention(progress: Progress, membership: Membership) -> list[Attention]:
    """What keeps secure aggregation from opening totals."""
    attention = []
    if progress.unconfirmed:
        detail = sentence(progress.unconfirmed)
        attention.append(Attention("warn", "The roster is not accepted here", detail, "federation"))
    since = progress.since if progress.due else math.inf
    if progress.waits_for and membership.member.clock() - since > PATIENCE:
        who = ", ".join(f"{name} ({what})" for name, what in progress.waits_for.items())
        begun, version = progress.signs or progress.rows or progress.partials, membership.place.roster.version
        what = f"The total of round {progress.due}" if begun else f"Epoch {version}"
        detail = f"{what} waits for {who}. Decisions go on."
        attention.append(Attention("warn", "A total is waited for", detail, "federation"))
    return attention


def _federation_attention(served: ServedAgent) -> list[Attention]:
    membership = served.membership
    if membership is None:
        return []
    attention, halted = [], membership.member.halted
    if halted is not None:
        attention.append(Attention("bad", "Sending is halted", sentence(halted), "federation"))
    elif membership.away is not None:
        detail = sentence(membership.away)
        attention.append(Attention("warn", "The peers can't be reached", detail, "federation"))
    if membership.over is not None:
        attention.append(Attention("warn", "Nothing more is shared", sentence(membership.over), "federation"))
    if membership.secure is not None:
        attention += _rounds_attention(membership.secure.progress, membership)
    for name, seconds in membership.silent.items():
        last = "Its last release still counts. " if membership.peers[name].release else ""
        detail = f"No sign of life for {duration(seconds)}. {last}Ask its operator, or the hub's."
        attention.append(Attention("warn", f"{name} is silent", detail, "federation"))
    for (name, why), times in sorted(membership.refused.items()):
        who = "unknown senders" if name == UNKNOWN else name
        detail = f"{count(times)} since this start: {REFUSED.get(why, why)}."
        attention.append(Attention("warn", f"Messages of {who} are refused", detail, "federation"))
    for file, left in membership.expiring:
        level, title = (
            ("warn", "A certificate expires") if left > 0.0 else ("bad", "A certificate has expired")
        )
        attention.append(Attention(level, title, sentence(expiry_text(file, left)), "federation"))
    return attention
