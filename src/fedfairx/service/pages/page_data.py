"""What each page shows, and how it is read from the service."""

from __future__ import annotations

import asyncio
import time
from collections.abc import Sequence
from dataclasses import dataclass
from importlib.metadata import version
from typing import TYPE_CHECKING

from fedfairx.fairness.exposure_table import ABOVE, BELOW
from fedfairx.privacy import Guarantee
from fedfairx.service import schemas, serializers
from fedfairx.service.exposure_cache import ExposureSnapshot
from fedfairx.service.pages.charts import Option
from fedfairx.service.pages.formatting import count, duration, sentence
from fedfairx.service.pages.periods import Period, Window, periods, stretches
from fedfairx.service.published import batch_of
from fedfairx.storage.queries import first_time, latest
from fedfairx.storage.records import StoredDecision

if TYPE_CHECKING:
    from fedfairx.service.service import Service


LINES = 50  # decisions on a page
LITTLE_LEFT = 0.1  # of a privacy budget
MANY_CLIPPED = 0.01  # of the records


Alarm = str  # "bad", "warn" or "good"


@dataclass(frozen=True)
class Frame:
    """What all pages have."""

    agent: str
    mode: str
    now: float
    signed_in: bool = False
    batch: int | None = None  # rewards after which pages are updated; None for admins, who see every one


@dataclass(frozen=True)
class Attention:
    """A notice that something should be looked at, with the page that tells more."""

    level: Alarm
    title: str
    detail: str
    link: str = ""


@dataclass(frozen=True)
class Series:
    """Counts in intervals of time, for a chart; `times` are their beginnings, in seconds since 1970."""

    times: Sequence[int]
    decisions: Sequence[int]
    rewards: Sequence[int]
    stretch: str  # "hour", "10 minutes"


@dataclass(frozen=True)
class Overview:
    attention: Sequence[Attention]
    decisions: int
    rewarded: int
    pending: int
    ended: int  # withdrawn or expired
    oldest_pending: float | None  # when it was made
    observed: int
    rule: str
    merit: str
    series: Series | None
    actions: Sequence[str] = ()  # without features, that it chooses from
    retired: Sequence[str] = ()


@dataclass(frozen=True)
class ExposurePage:
    looked: ExposureSnapshot
    periods: Sequence[Period]


@dataclass(frozen=True)
class DecisionLine:
    """A decision as the API shows it, with the name of its action and all actions it chose from."""

    seen: schemas.DecisionSeen
    action: str
    options: Sequence[Option]


@dataclass(frozen=True)
class DecisionsPage:
    lines: Sequence[DecisionLine]
    older: int | None  # `before` of the next page
    newest: bool  # whether this is the first page


@dataclass(frozen=True)
class PrivacyPage:
    privacy: schemas.Privacy
    guarantee: Guarantee
    records: int


@dataclass(frozen=True)
class FederationPage:
    sync: schemas.Sync
    observed: int


@dataclass(frozen=True)
class ReportPage:
    looked: ExposureSnapshot
    overview: Overview
    privacy: PrivacyPage
    periods: Sequence[Period]
    version: str
    dimension: int
    minimum_share: float
    model_version: int


def frame(service: Service, *, signed_in: bool, exact: bool) -> Frame:
    batch = None if exact else batch_of(service.agent.dimension)
    return Frame(service.agent.name, service.settings.mode, time.time(), signed_in, batch)


async def overview(service: Service, *, exact: bool) -> Overview:
    looked, ready = await service.exposures.look(exact=exact), await service.ready()
    return await asyncio.to_thread(_overview, service, looked, ready, exact)


def _overview(service: Service, looked: ExposureSnapshot, ready: bool, exact: bool) -> Overview:
    agent, counts = service.agent, service.counters.by_status(service.journal)
    waiting = next(iter(service.journal.decisions(status="pending", limit=1)), None)
    oldest = None if waiting is None else waiting.time
    active = agent.actions
    return Overview(
        attention=[
            *_attention(service, looked, oldest, ready),
            *_privacy_attention(service, exact),
            *_federation_attention(service),
        ],
        decisions=sum(counts.values()),
        rewarded=counts["rewarded"],
        pending=counts["pending"],
        ended=counts["withdrawn"] + counts["expired"],
        oldest_pending=oldest,
        observed=agent.observed,
        rule=agent.rule,
        merit=repr(agent.merit),
        series=_series(service),
        actions=active,
        retired=[name for name in agent.all_actions if name not in active],
    )


def _series(service: Service) -> Series | None:
    first = first_time(service.journal)
    if first is None:
        return None
    since, width, many, name = stretches(first, time.time())
    made, rewarded = service.counters.by_time(service.journal, since=since, width=width, count=many)
    if many > 3:  # the last one is not over, and would look like a fall
        many, made, rewarded = many - 1, made[:-1], rewarded[:-1]
    return Series([int(since + width * k) for k in range(many)], made, rewarded, name)


def _attention(
    service: Service, looked: ExposureSnapshot, oldest: float | None, ready: bool
) -> list[Attention]:
    found, table, settings = [], looked.table, service.settings
    if not ready:
        found.append(Attention("bad", "Nothing can be written", "The storage takes no write."))
    if not table.draws.as_the_policy_said:
        found.append(Attention("bad", "Actions were not drawn from the policy", str(table.draws), "exposure"))
    for kind, rows in (("action", table.actions), ("group", table.groups)):
        for words, level, what in ((BELOW, "bad", "less"), (ABOVE, "warn", "more")):
            names = [row.name for row in rows if row.verdict == words]
            if names:
                title = f"{len(names)} {kind}{'' if len(names) == 1 else 's'} {words}"
                shown = ", ".join(names[:5]) + (" and others" if len(names) > 5 else "")
                found.append(
                    Attention(level, title, f"Shown surely {what} than entitled to: {shown}.", "exposure")
                )
    if oldest is not None and settings.window is None and time.time() - oldest > 86_400:
        age = duration(time.time() - oldest)
        detail = f"The oldest decision has waited {age} for its reward, and no window ends it."
        found.append(Attention("warn", "Rewards are missing", detail, "decisions"))
    return found


def _privacy_attention(service: Service, exact: bool) -> list[Attention]:
    found, now, records = [], serializers.privacy(service.agent, exact=exact), service.agent.observed
    if now.private and now.releases:
        left = now.releases - now.spent
        if left <= LITTLE_LEFT * now.releases:
            detail = f"{count(left)} of {count(now.releases)} releases are left."
            found.append(
                Attention("bad" if left == 0 else "warn", "The privacy budget ends", detail, "privacy")
            )
    if now.private and records and now.clipped > MANY_CLIPPED * records:
        detail = f"{count(now.clipped)} of {count(records)} records were moved by the privacy bounds."
        found.append(Attention("warn", "Many records are clipped", detail, "privacy"))
    return found


async def decisions(service: Service, before: int | None, *, exact: bool) -> DecisionsPage:
    found = await service.read(lambda journal: latest(journal, limit=LINES + 1, before=before))
    lines = [_line(stored, exact) for stored in found[:LINES]]
    return DecisionsPage(lines, lines[-1].seen.seq if len(found) > LINES else None, before is None)


def _line(stored: StoredDecision, exact: bool) -> DecisionLine:
    shown = serializers.seen(stored, exact=exact)
    names = stored.names or [f"action {place}" for place in range(stored.policy.size)]
    shares: Sequence[float | None] = shown.policy or [None] * len(names)
    options = [
        Option(name, share, place == stored.action)
        for place, (name, share) in enumerate(zip(names, shares, strict=True))
    ]
    return DecisionLine(shown, names[stored.action], options)


def privacy(service: Service, *, exact: bool) -> PrivacyPage:
    agent = service.agent
    return PrivacyPage(serializers.privacy(agent, exact=exact), agent.privatizer.guarantee, agent.observed)


def federation(service: Service, *, exact: bool) -> FederationPage:
    return FederationPage(serializers.sync(service, exact=exact), service.agent.observed)


def _federation_attention(service: Service) -> list[Attention]:
    membership = service.membership
    if membership is None:
        return []
    found, halted = [], membership.member.halted
    if halted is not None:
        found.append(Attention("bad", "Sending is halted", sentence(halted), "federation"))
    elif membership.member.away is not None:
        detail = sentence(membership.member.away)
        found.append(Attention("warn", "The others can't be reached", detail, "federation"))
    if membership.over is not None:
        found.append(Attention("warn", "Nothing more is shared", sentence(membership.over), "federation"))
    refused = sum(membership.refusals.values())
    if refused:
        detail = f"{count(refused)} since this start: forged, damaged, or of members who differ."
        found.append(Attention("warn", "Messages were refused", detail, "federation"))
    return found


async def report(service: Service, window: Window, *, exact: bool) -> ReportPage:
    looked = await service.exposures.look(since=window.since, until=window.until, exact=exact)
    agent = service.agent
    return ReportPage(
        looked,
        await overview(service, exact=exact),
        await asyncio.to_thread(privacy, service, exact=exact),
        periods(window),
        version("fedfairx"),
        agent.dimension,
        agent.options.minimum_share,
        agent.model_version,
    )
