"""The values that all pages have, and those of the overview, the privacy and the federation page."""

from __future__ import annotations

import asyncio
import math
import time
from collections.abc import Sequence
from typing import TYPE_CHECKING, Any, NamedTuple

from starlette.datastructures import QueryParams

from fedfairx.core.slates import ONE, Weights
from fedfairx.fairness import Row, likely
from fedfairx.fairness.change_test import Change
from fedfairx.fairness.missing_test import Missing
from fedfairx.service import serializers
from fedfairx.service.earnings import Earnings
from fedfairx.service.exposure_cache import ExposureSnapshot
from fedfairx.service.federation import PATIENCE, REFUSED, UNKNOWN, expiry_text
from fedfairx.service.pages.formatting import count, percent, sentence
from fedfairx.service.published import batch_of
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


def frame(served: ServedAgent, *, agents: Sequence[str], signed_in: bool, exact: bool) -> View:
    """The values that all pages have; `batch` is the number of rewards after which pages are updated.

    agents: the names of those that can be chosen.
    """
    return {
        "agent": served.agent.name,
        "agents": agents,
        "archived": served.archived,
        "mode": served.settings.mode,
        "now": time.time(),
        "signed_in": signed_in,
        "batch": None if exact else batch_of(served.agent.dimension),  # admins see every reward at once
    }


async def overview(served: ServedAgent, _query: QueryParams, exact: bool) -> View:
    seen = served.exposures
    looked, _, arrived, ready, counted = await asyncio.gather(  # each may take a second
        seen.glance(exact=exact),
        seen.change(),
        seen.arrivals(),
        served.ready(),
        asyncio.to_thread(_counted, served),
    )
    missing, (change, earned) = arrived.alarms(), seen.results or (Change(), Earnings())
    if exact:
        earned = seen.latest
    view = counted | await asyncio.to_thread(_overview, served, looked, change, missing, ready, exact)
    more = {"read": seen.results is not None, "counted": arrived.read}
    return {**view, **more, "earned": earned}


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


def _overview(
    served: ServedAgent,
    looked: ExposureSnapshot | None,
    change: Change,
    missing: Sequence[Missing],
    ready: bool,
    exact: bool,
) -> View:
    agent = served.agent
    waiting = next(iter(served.journal.decisions(status="pending", limit=1)), None)
    oldest = None if waiting is None else waiting.time
    active, warned = agent.actions, agent.warnings if exact else ()  # which tell of single rewards
    return {
        "looked": looked,
        "below": [] if looked is None else _below(looked),
        "attention": [
            *_attention(served, looked, oldest, ready),
            *_missing_attention(missing),
            *([Attention("warn", "Merit may have changed", str(change))] if change.alarm else []),
            *(Attention("warn", "Numbers of an unexpected size", sentence(text)) for text in warned),
            *_feature_attention(served, exact),
            *_privacy_attention(served, exact),
            *_federation_attention(served, exact),
        ],
        "oldest_pending": oldest,
        "observed": agent.observed,
        "half_life": served.half_life,
        "change": str(change),
        "changed": change.alarm,
        "rule": agent.rule,
        "slots": _slots(served.slots),
        "merit": repr(agent.merit),
        "features": _features(agent.schema),
        "actions": active,  # without features
        "retired": [name for name in agent.all_actions if name not in active],
    }


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


def _attention(
    served: ServedAgent, looked: ExposureSnapshot | None, oldest: float | None, ready: bool
) -> list[Attention]:
    attention, settings = [], served.settings
    if not ready:
        attention.append(Attention("bad", "Nothing can be written", "The storage takes no write."))
    draws = None if looked is None else looked.table.draws
    if draws is not None and not draws.as_the_policy_said:
        attention.append(Attention("bad", "Actions were not drawn from the policy", str(draws), "exposure"))
    if oldest is not None and settings.window is None and time.time() - oldest > 86_400:
        age = duration(time.time() - oldest)
        detail = f"The oldest decision has waited {age} for its reward, and no window ends it."
        attention.append(Attention("warn", "Rewards are missing", detail, "decisions"))
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


def _feature_attention(served: ServedAgent, exact: bool) -> list[Attention]:
    """Values outside of ranges and levels, where there is one in a hundred decisions of this start or more.

    Which features these are of, only admins see.
    """
    agent, attention = served.agent, []
    least = MANY_CLIPPED * sum(served.metrics.decisions.values())
    for counts, title, rule in (
        (agent.clipped_values, "Numbers are outside of their ranges", "clipped to an end of their range"),
        (agent.unknown_values, "Levels are unknown", "taken as “other”"),
    ):
        many = sum(counts.values())
        if many and many >= least:
            named = ", ".join(f"{name} {count(times)}" for name, times in counts.most_common(5))
            detail = f"{count(many)} since this start were {rule}{f': {named}' if exact else ''}."
            attention.append(Attention("warn", title, detail))
    return attention


def _privacy_attention(served: ServedAgent, exact: bool) -> list[Attention]:
    attention, now, records = [], serializers.privacy(served.agent, exact=exact), served.agent.observed
    if now.private and now.releases:
        left = now.releases - now.spent
        if left <= LITTLE_LEFT * now.releases:
            detail = f"{count(left)} of {count(now.releases)} releases are left."
            attention.append(
                Attention("bad" if left == 0 else "warn", "The privacy budget ends", detail, "privacy")
            )
    if now.private and records and now.clipped > MANY_CLIPPED * records:
        detail = f"{count(now.clipped)} of {count(records)} records were clipped to the privacy bounds."
        attention.append(Attention("warn", "Many records are clipped", detail, "privacy"))
    return attention


async def privacy(served: ServedAgent, _query: QueryParams, exact: bool) -> View:
    def read(agent: Agent) -> View:
        privacy, guarantee = serializers.privacy(agent, exact=exact), agent.privatizer.guarantee
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


async def federation(served: ServedAgent, _query: QueryParams, exact: bool) -> View:
    def read() -> View:
        sync, own = serializers.sync(served, exact=exact), served.agent.held.get(served.agent.name)
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


def _federation_attention(served: ServedAgent, exact: bool) -> list[Attention]:
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
    differing = membership.agent.partners.values() if exact else ()  # it depends on our rewards
    for each in differing:
        if each.differs:
            detail = f"It {each.reason}: {percent(each.weight)} of its records count here."
            attention.append(Attention("warn", f"{each.name} differs from us", detail, "federation"))
    return attention
