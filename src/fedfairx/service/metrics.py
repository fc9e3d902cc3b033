"""Metrics in the Prometheus text format: counts of the service, and the state of its agent and federation."""

from __future__ import annotations

from bisect import bisect_left
from collections.abc import Iterable

from fedfairx.agent.agent import Agent
from fedfairx.service import schemas
from fedfairx.service.federation import Membership

EDGES = (0.0005, 0.001, 0.0025, 0.005, 0.01, 0.025, 0.05, 0.1, 0.25, 0.5, 1.0, 2.5, 5.0)  # seconds
Sample = tuple[str, str, str, float]  # name, kind, help, value


class Metrics:
    """What this process has counted since it was started."""

    def __init__(self) -> None:
        self._requests: dict[tuple[str, int], int] = {}
        self._latencies: dict[str, list[float]] = {}  # a count for each bucket, and the sum of seconds
        self.decisions: dict[str, int] = {"live": 0, "shadow": 0, "control": 0}
        self.rewards = 0
        self.withdrawn = 0
        self.clipped = 0
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

    def lines(self) -> Iterable[str]:
        """All of it, line by line."""
        yield from _head("fedfairx_requests_total", "counter", "Answered requests.")
        for (operation, status), count in sorted(self._requests.items()):
            yield f'fedfairx_requests_total{{operation="{operation}",status="{status}"}} {count}'
        yield from _head("fedfairx_request_seconds", "histogram", "Time from a request's head to its answer.")
        for operation, counts in sorted(self._latencies.items()):
            below = 0.0
            for edge, within in zip((*map(str, EDGES), "+Inf"), counts[:-1], strict=True):
                below += within
                yield f'fedfairx_request_seconds_bucket{{operation="{operation}",le="{edge}"}} {below:.0f}'
            yield f'fedfairx_request_seconds_sum{{operation="{operation}"}} {counts[-1]!r}'
            yield f'fedfairx_request_seconds_count{{operation="{operation}"}} {below:.0f}'
        yield from _head("fedfairx_decisions_total", "counter", "Decisions, by what chose the action.")
        for mode, count in self.decisions.items():
            yield f'fedfairx_decisions_total{{mode="{mode}"}} {count}'
        yield from text(
            [
                ("fedfairx_rewards_total", "counter", "Rewards taken.", self.rewards),
                ("fedfairx_withdrawn_total", "counter", "Decisions that were never shown.", self.withdrawn),
                ("fedfairx_features_clipped_total", "counter", "Numbers outside their range.", self.clipped),
                ("fedfairx_commits_total", "counter", "Groups of requests written.", self.groups),
                ("fedfairx_commit_steps_total", "counter", "Requests in those groups.", self.grouped),
            ]
        )


def labelled(
    name: str, kind: str, help: str, values: Iterable[tuple[dict[str, str], float]]
) -> Iterable[str]:
    """One number for each set of labels, whose values must need no escaping."""
    yield from _head(name, kind, help)
    for labels, value in values:
        shown = ",".join(f'{label}="{text}"' for label, text in labels.items())
        yield f"{name}{{{shown}}} {value!r}"


def text(samples: Iterable[Sample]) -> Iterable[str]:
    """Plain numbers."""
    for name, kind, help, value in samples:
        yield from _head(name, kind, help)
        yield f"{name} {value!r}"


def _head(name: str, kind: str, help: str) -> tuple[str, str]:
    return f"# HELP {name} {help}", f"# TYPE {name} {kind}"


def agent_lines(agent: Agent, told: schemas.Privacy, *, ready: bool) -> list[str]:
    """The state of the agent; `told` is what the caller may see of its privacy."""
    return [
        *text(
            [
                ("fedfairx_pending", "gauge", "Decisions whose reward has not come.", agent.pending),
                ("fedfairx_observed", "gauge", "Rewards that the model has learnt from.", agent.observed),
                ("fedfairx_records_clipped", "gauge", "Records that the privacy bounds moved.", told.clipped),
                ("fedfairx_releases", "gauge", "Releases made.", agent.released),
                ("fedfairx_budget_releases", "gauge", "Releases that the budget allows.", told.releases or 0),
                ("fedfairx_budget_spent", "gauge", "Releases spent of the budget.", told.spent),
                ("fedfairx_ready", "gauge", "Whether the storage takes a write, as /readyz.", int(ready)),
            ]
        )
    ]


def federation_lines(membership: Membership, *, exact: bool) -> list[str]:
    """The state of the exchange with peers."""
    member, peers = membership.member, membership.peers
    reached, waiting = int(member.away is None), int(member.waiting)
    halted, over = int(member.halted is not None), int(membership.over is not None)
    lines = [
        *text(
            [
                ("fedfairx_federation_reached", "gauge", "Whether the transport was, last.", reached),
                ("fedfairx_federation_waiting", "gauge", "Whether a release is still to be sent.", waiting),
                ("fedfairx_federation_halted", "gauge", "Whether sending is halted.", halted),
                ("fedfairx_federation_over", "gauge", "Whether all is released.", over),
            ]
        )
    ]
    for name, help, of in (
        ("release", "Number of the latest release held.", [peer.number for peer in peers.values()]),
        ("records", "Records in the latest release held.", [peer.count for peer in peers.values()]),
        ("lag", "Releases that it is behind this agent.", [peer.lag for peer in peers.values()]),
    ):
        values = [({"peer": peer}, value) for peer, value in zip(peers, of, strict=True)]
        lines += labelled(f"fedfairx_peer_{name}", "gauge", help, values)
    if exact:  # our rewards have told
        weights = [({"peer": name}, each.weight) for name, each in membership.agent.partners.items()]
        lines += labelled("fedfairx_peer_weight", "gauge", "Share of its records that counts.", weights)
    refused = [
        ({"peer": each, "reason": why}, times) for (each, why), times in sorted(membership.refusals.items())
    ]
    lines += labelled("fedfairx_refused_total", "counter", "Refused messages.", refused)
    return lines
