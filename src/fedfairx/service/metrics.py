"""Metrics in the Prometheus text format: counts of the service, and the state of its agents."""

from __future__ import annotations

import time
from bisect import bisect_left
from collections import deque
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from starlette.responses import Response

from fedfairx.agent.agent import Agent
from fedfairx.fairness.change_test import Change
from fedfairx.fairness.missing_test import Missing
from fedfairx.service import schemas
from fedfairx.service.earnings import Earnings
from fedfairx.service.federation import Membership
from fedfairx.service.problems import KINDS
from fedfairx.storage.transaction_log import Log

EDGES = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)  # seconds
RECENT = 1_000  # requests of an operation that its quantiles are of
Labels = Mapping[str, object]
REQUEST_SECONDS = "request_seconds"


class MetricKind(NamedTuple):
    """What a metric is, the labels of its numbers, and whether only auditors and admins see it."""

    help: str
    labels: tuple[str, ...] = ()
    restricted: bool = False


_AGENT = ("agent",)
_PEER = ("agent", "peer")
#: Every metric, by its name after `fedfairx_`.
METRICS: dict[str, MetricKind] = {
    "requests_total": MetricKind("Answered requests.", ("operation", "status")),
    REQUEST_SECONDS: MetricKind("Time from a request's head to its answer.", ("operation", "le")),
    "start_time_seconds": MetricKind("When this process was started, since 1970."),
    "problems_total": MetricKind("Requests answered with a problem, by its type.", ("kind",)),
    "storage_failures_total": MetricKind("Groups that could not be written."),
    "commits_total": MetricKind("Groups of requests written."),
    "commit_steps_total": MetricKind("Requests in those groups."),
    "ready": MetricKind("Whether the storage takes a write, as /readyz."),
    "agents_open": MetricKind("Agents that are open."),
    "waiting": MetricKind("Whether this process waits for its database, and serves nothing."),
    "requests_waiting": MetricKind("Requests that wait to be written."),
    "database_bytes": MetricKind("Size of the database."),
    "disk_free_bytes": MetricKind("Space left on the disk of the database; not for PostgreSQL."),
    "verified_steps_total": MetricKind("Steps of the log that were verified in the background."),
    "damaged": MetricKind("Agents in whose log damage was found.", _AGENT),
    "clock_went_back_total": MetricKind("Steps while the clock was behind."),
    "decisions_total": MetricKind("Decisions, by what chose the action.", ("agent", "mode")),
    "rewards_total": MetricKind("Rewards taken.", _AGENT),
    "withdrawn_total": MetricKind("Decisions that were never shown.", _AGENT),
    "features_clipped_total": MetricKind("Numbers outside their range.", _AGENT),
    "features_unknown_total": MetricKind("Values that are no level of a category.", _AGENT),
    "pending": MetricKind("Decisions whose reward has not come.", _AGENT),
    "oldest_pending_seconds": MetricKind("How long the oldest pending decision has waited.", _AGENT),
    "mean_reward": MetricKind("Mean of all rewards.", _AGENT, True),
    "lift": MetricKind("Reward of live decisions minus that of controls.", _AGENT, True),
    "lift_low": MetricKind("Lower end of the lift's interval, at all times.", _AGENT, True),
    "lift_high": MetricKind("Upper end of the lift's interval, at all times.", _AGENT, True),
    "rewards_missing": MetricKind(
        "Decisions without a reward, of actions and groups with more of them than others.",
        ("agent", "kind", "name"),
        True,
    ),
    "observed": MetricKind("Rewards that the model has learnt from.", _AGENT),
    "records_clipped": MetricKind("Records that the privacy bounds moved.", _AGENT, True),
    "releases": MetricKind("Releases made.", _AGENT),
    "budget_releases": MetricKind("Releases that the budget allows.", _AGENT),
    "budget_spent": MetricKind("Releases spent of the budget.", _AGENT),
    "change_evidence": MetricKind("Odds against merit that never changes.", _AGENT, True),
    "change_alarm": MetricKind("Whether these odds have reached 100.", _AGENT, True),
    "federation_reached": MetricKind("Whether the transport was reached last time.", _AGENT),
    "federation_waiting": MetricKind("Whether a release is still to be sent.", _AGENT),
    "federation_halted": MetricKind("Whether sending is halted.", _AGENT),
    "federation_over": MetricKind("Whether all is released.", _AGENT),
    "federation_epoch": MetricKind("Secure aggregation: epoch that this member is in.", _AGENT),
    "federation_round": MetricKind("Secure aggregation: last round whose time has come.", _AGENT),
    "federation_round_opened": MetricKind("Secure aggregation: last round whose total is known.", _AGENT),
    "federation_waits_for": MetricKind(
        "Secure aggregation: whom the next total waits for.", (*_PEER, "what")
    ),
    "federation_next_round_seconds": MetricKind("Secure aggregation: time until the next round.", _AGENT),
    "peer_release": MetricKind("Number of the latest release held.", _PEER),
    "peer_records": MetricKind("Records in the latest release held.", _PEER),
    "peer_silent_seconds": MetricKind("Time since the peer's last sign of life, or this start.", _PEER),
    "peer_weight": MetricKind("Share of the peer's records that counts.", _PEER, True),
    "refused_total": MetricKind("Refused messages.", (*_PEER, "reason")),
    "certificate_expires_seconds": MetricKind("Time until a certificate expires.", ("agent", "file")),
}


class Metric(NamedTuple):
    """A number for each set of labels."""

    name: str
    samples: list[tuple[Labels, float]]


class Metrics:
    """What this process has counted since it was started."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, int], int] = {}
        self._latencies: dict[str, list[float]] = {}  # a count for each bucket, and the sum of seconds
        self._recent: dict[str, deque[float]] = {}  # seconds
        self.started = time.time()
        self.problems = dict.fromkeys(KINDS, 0)
        self.storage_failures = 0
        self.groups = 0
        self.grouped = 0

    def request(self, operation: str, status: int, seconds: float) -> None:
        """One answered request."""
        requests = self._requests
        requests[operation, status] = requests.get((operation, status), 0) + 1
        counts = self._latencies.get(operation)
        if counts is None:
            counts = self._latencies[operation] = [0.0] * (len(EDGES) + 2)
            self._recent[operation] = deque(maxlen=RECENT)
        counts[bisect_left(EDGES, seconds)] += 1
        counts[-1] += seconds
        self._recent[operation].append(seconds)

    def answered(self) -> list[schemas.OperationSeen]:
        """All operations that were requested, the most frequent first."""
        operations = []
        for operation, recent in self._recent.items():
            statuses = {status: n for (name, status), n in self._requests.items() if name == operation}
            seconds = sorted(recent)
            operations.append(
                schemas.OperationSeen(
                    operation,
                    sum(statuses.values()),
                    sum(n for status, n in statuses.items() if 400 <= status < 500),
                    sum(n for status, n in statuses.items() if status >= 500),
                    seconds[(len(seconds) - 1) // 2],
                    seconds[-(-95 * len(seconds) // 100) - 1],
                )
            )
        return sorted(operations, key=lambda each: (-each.requests, each.operation))

    def lines(self) -> Iterator[str]:
        """All metrics, line by line."""
        requests = [
            ({"operation": operation, "status": status}, count)
            for (operation, status), count in sorted(self._requests.items())
        ]
        yield from lines(metric("requests_total", requests))
        yield from head(REQUEST_SECONDS)
        name = f"fedfairx_{REQUEST_SECONDS}"
        for operation, counts in sorted(self._latencies.items()):
            below = 0.0
            for edge, within in zip((*map(str, EDGES), "+Inf"), counts[:-1], strict=True):
                below += within
                yield f'{name}_bucket{{operation="{operation}",le="{edge}"}} {below:.0f}'
            yield f'{name}_sum{{operation="{operation}"}} {counts[-1]!r}'
            yield f'{name}_count{{operation="{operation}"}} {below:.0f}'
        yield from lines(metric("start_time_seconds", self.started))
        problems = [({"kind": kind}, count) for kind, count in self.problems.items()]
        yield from lines(metric("problems_total", problems))
        yield from lines(metric("storage_failures_total", self.storage_failures))
        yield from lines(metric("commits_total", self.groups))
        yield from lines(metric("commit_steps_total", self.grouped))


class AgentMetrics:
    """What this process has counted of one agent since it was started."""

    def __init__(self) -> None:
        self.decisions: dict[str, int] = {"live": 0, "shadow": 0, "control": 0}
        self.rewards = 0
        self.withdrawn = 0
        self.clipped = 0
        self.unknown = 0

    def all(self) -> Iterator[Metric]:
        modes = [({"mode": mode}, count) for mode, count in self.decisions.items()]
        yield from metric("decisions_total", modes)
        yield from metric("rewards_total", self.rewards)
        yield from metric("withdrawn_total", self.withdrawn)
        yield from metric("features_clipped_total", self.clipped)
        yield from metric("features_unknown_total", self.unknown)


def metric(name: str, value: float | Iterable[tuple[Labels, float]]) -> Iterator[Metric]:
    """A metric of `METRICS` with one number, or with one for each set of labels."""
    yield Metric(name, [({}, value)] if isinstance(value, int | float) else list(value))


def kind(name: str) -> str:
    """The type of a metric, in Prometheus's words."""
    return "histogram" if name == REQUEST_SECONDS else "counter" if name.endswith("_total") else "gauge"


def head(name: str) -> Iterator[str]:
    """The lines above the numbers of a metric."""
    yield f"# HELP fedfairx_{name} {METRICS[name].help}"
    yield f"# TYPE fedfairx_{name} {kind(name)}"


def lines(metrics: Iterable[Metric]) -> Iterator[str]:
    """The lines of metrics."""
    for name, samples in metrics:
        yield from head(name)
        for labels, number in samples:
            shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            yield f"fedfairx_{name}{f'{{{shown}}}' if shown else ''} {number!r}"


def exposition(text: Iterable[str]) -> Response:
    """The answer with these lines."""
    return Response("\n".join(text) + "\n", media_type="text/plain; version=0.0.4; charset=utf-8")


def _escaped(value: object) -> str:
    return str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def labelled(of_agents: Iterable[tuple[str, Iterable[Metric]]]) -> list[Metric]:
    """The metrics of several agents, by name: each once, with the agent's name at every number."""
    merged: dict[str, Metric] = {}
    for agent, metrics in of_agents:
        for name, samples in metrics:
            of_all = merged.setdefault(name, Metric(name, [])).samples
            of_all += [({"agent": agent, **labels}, number) for labels, number in samples]
    return list(merged.values())


def storage_metrics(log: Log, *, waiting: int) -> Iterator[Metric]:
    """The state of the database; `waiting` requests are still to be written."""
    size, free = log.database.space()
    yield from metric("requests_waiting", waiting)
    yield from metric("database_bytes", size)
    if free is not None:  # a PostgreSQL server's disk is its own matter
        yield from metric("disk_free_bytes", free)
    yield from metric("clock_went_back_total", log.clock_went_back)


def agent_metrics(
    agent: Agent, privacy: schemas.Privacy, change: Change, earned: Earnings, missing: Iterable[Missing]
) -> Iterator[Metric]:
    """The state of the agent."""
    yield from metric("pending", agent.pending)
    oldest = agent.oldest_pending
    age = 0.0 if oldest is None else max(0.0, time.time() - oldest)
    yield from metric("oldest_pending_seconds", age)
    if earned.mean is not None:
        yield from metric("mean_reward", earned.mean)
    if earned.lift is not None and earned.lift.decisions:
        yield from metric("lift", earned.lift.value)
        yield from metric("lift_low", earned.lift.low)
        yield from metric("lift_high", earned.lift.high)
    lacking = [({"kind": one.kind, "name": one.name}, one.shown - one.came) for one in missing]
    yield from metric("rewards_missing", lacking)
    yield from metric("observed", agent.observed)
    yield from metric("records_clipped", privacy.clipped)
    yield from metric("releases", agent.released)
    yield from metric("budget_releases", privacy.releases or 0)
    yield from metric("budget_spent", privacy.spent)
    yield from metric("change_evidence", change.evidence)
    yield from metric("change_alarm", int(change.alarm))


def federation_metrics(membership: Membership) -> Iterator[Metric]:
    """The state of the exchange with peers."""
    member, peers = membership.member, membership.peers.items()
    yield from metric("federation_reached", int(membership.away is None))
    yield from metric("federation_waiting", int(member.waiting))
    yield from metric("federation_halted", int(member.halted is not None))
    yield from metric("federation_over", int(membership.over is not None))
    if membership.secure is not None:
        progress, now = membership.secure.progress, member.clock()
        waits = [({"peer": name, "what": what}, 1) for name, what in progress.waits_for.items()]
        until = None if progress.next_time is None else progress.next_time - now
        yield from metric("federation_epoch", progress.epoch)
        yield from metric("federation_round", progress.due)
        yield from metric("federation_round_opened", progress.opened)
        yield from metric("federation_waits_for", waits)
        if until is not None:
            yield from metric("federation_next_round_seconds", until)
    numbers, records = (
        [({"peer": name}, getattr(peer, field)) for name, peer in peers] for field in ("release", "records")
    )
    ages = [({"peer": name}, age) for name, age in membership.ages.items()]
    now = member.clock()
    left = [({"file": file}, end - now) for file, end in membership.expiries.items()]
    yield from metric("peer_release", numbers)
    yield from metric("peer_records", records)
    yield from metric("peer_silent_seconds", ages)
    weights = [({"peer": name}, each.weight) for name, each in membership.agent.partners.items()]
    yield from metric("peer_weight", weights)
    refused = [({"peer": name, "reason": why}, n) for (name, why), n in sorted(membership.refusals.items())]
    yield from metric("refused_total", refused)
    yield from metric("certificate_expires_seconds", left)
