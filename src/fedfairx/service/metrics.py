"""Metrics in the Prometheus text format: counts of the service, and the state of its agents."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable, Iterator, Mapping
from typing import NamedTuple

from fedfairx.agent.agent import Agent
from fedfairx.fairness.change_test import Change
from fedfairx.service import schemas
from fedfairx.service.federation import Membership

EDGES = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)  # seconds
Labels = Mapping[str, object]


class Metric(NamedTuple):
    """A counter, if the name ends in `_total`, or a gauge: a number for each set of labels."""

    name: str
    help: str
    samples: list[tuple[Labels, float]]


class Metrics:
    """What this process has counted since it was started."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, int], int] = {}
        self._latencies: dict[str, list[float]] = {}  # a count for each bucket, and the sum of seconds
        self.groups = 0
        self.grouped = 0

    def request(self, operation: str, status: int, seconds: float) -> None:
        """One answered request."""
        requests = self._requests
        requests[operation, status] = requests.get((operation, status), 0) + 1
        counts = self._latencies.get(operation)
        if counts is None:
            counts = self._latencies[operation] = [0.0] * (len(EDGES) + 2)
        counts[bisect_left(EDGES, seconds)] += 1
        counts[-1] += seconds

    def lines(self) -> Iterator[str]:
        """All metrics, line by line."""
        requests = [
            ({"operation": operation, "status": status}, count)
            for (operation, status), count in sorted(self._requests.items())
        ]
        yield from lines(metric("requests_total", "Answered requests.", requests))
        name = "fedfairx_request_seconds"
        yield f"# HELP {name} Time from a request's head to its answer."
        yield f"# TYPE {name} histogram"
        for operation, counts in sorted(self._latencies.items()):
            below = 0.0
            for edge, within in zip((*map(str, EDGES), "+Inf"), counts[:-1], strict=True):
                below += within
                yield f'{name}_bucket{{operation="{operation}",le="{edge}"}} {below:.0f}'
            yield f'{name}_sum{{operation="{operation}"}} {counts[-1]!r}'
            yield f'{name}_count{{operation="{operation}"}} {below:.0f}'
        yield from lines(metric("commits_total", "Groups of requests written.", self.groups))
        yield from lines(metric("commit_steps_total", "Requests in those groups.", self.grouped))


class AgentMetrics:
    """What this process has counted of one agent since it was started."""

    def __init__(self) -> None:
        self.decisions: dict[str, int] = {"live": 0, "shadow": 0, "control": 0}
        self.rewards = 0
        self.withdrawn = 0
        self.clipped = 0

    def all(self) -> Iterator[Metric]:
        modes = [({"mode": mode}, count) for mode, count in self.decisions.items()]
        yield from metric("decisions_total", "Decisions, by what chose the action.", modes)
        yield from metric("rewards_total", "Rewards taken.", self.rewards)
        yield from metric("withdrawn_total", "Decisions that were never shown.", self.withdrawn)
        yield from metric("features_clipped_total", "Numbers outside their range.", self.clipped)


def metric(name: str, help: str, value: float | Iterable[tuple[Labels, float]]) -> Iterator[Metric]:
    """A metric with one number, or with one for each set of labels."""
    yield Metric(name, help, [({}, value)] if isinstance(value, int | float) else list(value))


def lines(metrics: Iterable[Metric]) -> Iterator[str]:
    """The lines of metrics."""
    for name, help, samples in metrics:
        yield f"# HELP fedfairx_{name} {help}"
        yield f"# TYPE fedfairx_{name} {'counter' if name.endswith('_total') else 'gauge'}"
        for labels, number in samples:
            shown = ",".join(f'{label}="{_escaped(text)}"' for label, text in labels.items())
            yield f"fedfairx_{name}{f'{{{shown}}}' if shown else ''} {number!r}"


def _escaped(value: object) -> str:
    return str(value).replace("\\", "\\\\").replace('"', '\\"').replace("\n", "\\n")


def labelled(found: Iterable[tuple[str, Iterable[Metric]]]) -> list[Metric]:
    """The metrics of several agents, by name: each once, with the agent's name at every number."""
    merged: dict[str, Metric] = {}
    for agent, metrics in found:
        for name, help, samples in metrics:
            of_all = merged.setdefault(name, Metric(name, help, [])).samples
            of_all += [({"agent": agent, **labels}, number) for labels, number in samples]
    return list(merged.values())


def agent_metrics(agent: Agent, told: schemas.Privacy, change: Change) -> Iterator[Metric]:
    """The state of the agent; `told` is what the caller may see of its privacy."""
    yield from metric("pending", "Decisions whose reward has not come.", agent.pending)
    yield from metric("observed", "Rewards that the model has learnt from.", agent.observed)
    yield from metric("records_clipped", "Records that the privacy bounds moved.", told.clipped)
    yield from metric("releases", "Releases made.", agent.released)
    yield from metric("budget_releases", "Releases that the budget allows.", told.releases or 0)
    yield from metric("budget_spent", "Releases spent of the budget.", told.spent)
    yield from metric("change_evidence", "Odds against merit that never changes.", change.evidence)
    yield from metric("change_alarm", "Whether they have reached 100.", int(change.alarm))


def federation_metrics(membership: Membership, *, exact: bool) -> Iterator[Metric]:
    """The state of the exchange with peers."""
    member, peers = membership.member, membership.peers.items()
    yield from metric("federation_reached", "Whether the transport was, last.", int(member.away is None))
    yield from metric("federation_waiting", "Whether a release is still to be sent.", int(member.waiting))
    yield from metric("federation_halted", "Whether sending is halted.", int(member.halted is not None))
    yield from metric("federation_over", "Whether all is released.", int(membership.over is not None))
    numbers, records, lags = (
        [({"peer": name}, getattr(peer, field)) for name, peer in peers]
        for field in ("number", "count", "lag")
    )
    yield from metric("peer_release", "Number of the latest release held.", numbers)
    yield from metric("peer_records", "Records in the latest release held.", records)
    yield from metric("peer_lag", "Releases that it is behind this agent.", lags)
    if exact:  # weights depend on our rewards
        weights = [({"peer": name}, each.weight) for name, each in membership.agent.partners.items()]
        yield from metric("peer_weight", "Share of its records that counts.", weights)
    refused = [({"peer": name, "reason": why}, n) for (name, why), n in sorted(membership.refusals.items())]
    yield from metric("refused_total", "Refused messages.", refused)
