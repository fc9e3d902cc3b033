"""What each page shows, as plain values: pages are drawn from these, whoever fills them."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import dataclass

from fedfairx.service.exposure_cache import ExposureSnapshot

Alarm = str  # "bad", "warn" or "good"


@dataclass(frozen=True)
class Frame:
    """What all pages have: whose they are, and how one gets out."""

    agent: str
    mode: str
    now: float
    signed_in: bool = False
    batch: int | None = None  # of rewards, by which it is brought up to date; None for admins, who see all


@dataclass(frozen=True)
class Attention:
    """Something that somebody should look at, with the page that says more."""

    level: Alarm
    title: str
    detail: str
    link: str = ""


@dataclass(frozen=True)
class Series:
    """Counts in stretches of time, for a chart: when each began, in seconds since 1970."""

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
class Period:
    """A window of time that a page can be asked for."""

    name: str
    query: str
    chosen: bool


@dataclass(frozen=True)
class ExposurePage:
    looked: ExposureSnapshot
    periods: Sequence[Period]


@dataclass(frozen=True)
class Option:
    """An action that a decision could have taken."""

    name: str
    share: float | None
    taken: bool


@dataclass(frozen=True)
class DecisionLine:
    """A decision without contexts and reward."""

    id: str
    seq: int
    time: float
    action: str
    group: str | None
    probability: float | None
    options: Sequence[Option]
    mode: str
    status: str


@dataclass(frozen=True)
class DecisionsPage:
    lines: Sequence[DecisionLine]
    older: int | None  # `before` of the next page
    newest: bool  # whether this is the first page


@dataclass(frozen=True)
class PrivacyPage:
    private: bool
    simulated: bool
    statement: str
    caveats: Sequence[str]
    epsilon: float | None
    delta: float | None
    mu: float | None
    mechanism: str
    spent: int
    releases: int | None  # None: without end
    clipped: int
    records: int


@dataclass(frozen=True)
class Partner:
    """Another member: what is held of it, and what was refused, by reason."""

    name: str
    release: int
    records: int
    came: float | None
    lag: int
    refused: Sequence[tuple[str, int]]
    weight: float | None = None  # share of its statistics that is believed
    reason: str | None = None


@dataclass(frozen=True)
class FederationPage:
    name: str
    released: int
    federation: str | None = None
    roster: int | None = None
    releases: int | None = None
    next_round: int | None = None
    observed: int = 0
    waiting: bool = False
    trouble: str | None = None
    over: str | None = None
    partners: Sequence[Partner] = ()
    strangers: Sequence[tuple[str, int]] = ()


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
