"""What a client asks of the service, and how it reads the answers; how they travel is `client`."""

from __future__ import annotations

import random
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any
from urllib.parse import quote

from fedfairx.errors import FedFairXError

if TYPE_CHECKING:
    import httpx

__all__ = [
    "Actions",
    "Attempts",
    "Call",
    "Calls",
    "Contexts",
    "RemoteDecision",
    "ServiceError",
    "decision_of",
]

AGAIN = (408, 429, 502, 503, 504)  # answers of a service or a proxy that may soon answer otherwise
PAUSE = 0.1  # seconds before the first repetition; each is about twice the one before
LONGEST = 5.0

Actions = Sequence[Mapping[str, Any]]
Contexts = Sequence[Sequence[float]]


class ServiceError(FedFairXError):
    """The service refused (`status`, `kind`, `detail`, `remedy`), or could not be reached (`status` 0)."""

    def __init__(self, status: int, kind: str, detail: str, remedy: str = "") -> None:
        super().__init__(f"{detail} {remedy}".strip())
        self.status = status
        self.kind = kind
        self.detail = detail
        self.remedy = remedy


@dataclass(frozen=True)
class RemoteDecision:
    """The action to take: its place in the request, its `name`, and the policy it was drawn from."""

    id: str
    action: int
    name: str | None
    probability: float
    policy: tuple[float, ...]
    model_version: int
    mode: str


@dataclass(frozen=True)
class Call:
    """A request that may be repeated."""

    method: str
    path: str
    body: Any = None
    key: str | None = None


class Calls:
    """What is asked; how it travels is the two clients' affair."""

    def __init__(self, url: str, key: str | None, timeout: float, retries: int) -> None:
        self._options: dict[str, Any] = {
            "base_url": url.rstrip("/"),
            "headers": {} if key is None else {"authorization": f"Bearer {key}"},
            "timeout": timeout,
        }
        self._retries = retries

    @staticmethod
    def _decide(
        contexts: Contexts | None,
        actions: Actions | None,
        excluded: Sequence[str | int],
        baseline: str | int | None,
        key: str | None,
    ) -> Call:
        body = _request(contexts, actions, excluded, baseline)
        return Call("POST", "/v1/decisions", body, key or str(uuid.uuid4()))

    @staticmethod
    def _decide_many(requests: Sequence[Mapping[str, Any]], key: str | None) -> Call:
        bodies = [_request(**{**EMPTY, **request}) for request in requests]
        return Call("POST", "/v1/decisions/batch", {"decisions": bodies}, key or str(uuid.uuid4()))

    @staticmethod
    def _observe(decision: RemoteDecision | str, reward: float, person: str | None, replace: bool) -> Call:
        body: dict[str, Any] = {"reward": float(reward)}
        body |= ({} if person is None else {"person": person}) | ({"replace": True} if replace else {})
        return Call("PUT", f"/v1/decisions/{_id(decision)}/reward", body)

    @staticmethod
    def _observe_many(
        decisions: Sequence[RemoteDecision | str], rewards: Sequence[float], replace: bool
    ) -> Call:
        pairs = zip(decisions, rewards, strict=True)
        body = [{"decision_id": _plain_id(one), "reward": float(reward)} for one, reward in pairs]
        return Call("POST", "/v1/rewards", {"rewards": body} | ({"replace": True} if replace else {}))

    @staticmethod
    def _forget(decision: RemoteDecision | str) -> Call:
        return Call("DELETE", f"/v1/decisions/{_id(decision)}")

    @staticmethod
    def _forget_many(decisions: Sequence[RemoteDecision | str]) -> Call:
        return Call("POST", "/v1/withdrawals", {"decision_ids": [_plain_id(one) for one in decisions]})


class Attempts:
    """One call, tried until it is answered or given up: to be gone through, by the pauses before each try."""

    def __init__(self, call: Call, retries: int) -> None:
        headers = {} if call.key is None else {"idempotency-key": call.key}
        self.request = {"method": call.method, "url": call.path, "json": call.body, "headers": headers}
        self.response: httpx.Response | None = None  # of the last try, where there was one
        self._failed = ""
        self._retries = retries

    def __iter__(self) -> Iterator[float]:
        """Seconds; by chance, so that callers don't come back together."""
        yield 0.0
        pause = PAUSE
        for _ in range(self._retries):
            if self.response is not None and self.response.status_code not in AGAIN:
                return
            yield pause * random.uniform(0.5, 1.5)
            pause = min(2 * pause, LONGEST)

    @contextmanager
    def trying(self) -> Iterator[None]:
        """Around a try that sets `response`."""
        import httpx

        self.response = None
        try:
            yield
        except httpx.TransportError as error:
            self._failed = type(error).__name__

    def answer(self) -> Any:
        """What the last try brought, or `ServiceError`."""
        response = self.response
        if response is None:
            raise ServiceError(0, "unreached", f"The service could not be reached ({self._failed}).")
        if response.is_success:
            return None if response.status_code == 204 else response.json()
        try:
            problem = dict(response.json())
        except (ValueError, TypeError):  # no JSON, or no object: of something between us and the service
            problem = {}
        kind = str(problem.get("type", "")).rpartition(":")[2]
        detail = str(problem.get("detail", f"The service answered {response.status_code}."))
        raise ServiceError(response.status_code, kind, detail, str(problem.get("remedy", "")))


EMPTY: dict[str, Any] = {"contexts": None, "actions": None, "excluded": (), "baseline": None}


def _request(
    contexts: Contexts | None,
    actions: Actions | None,
    excluded: Sequence[str | int],
    baseline: str | int | None,
) -> dict[str, Any]:
    body: dict[str, Any] = {}
    if contexts is not None:
        body["contexts"] = [[float(number) for number in row] for row in contexts]
    if actions is not None:
        body["actions"] = [dict(action) for action in actions]
    if len(excluded):
        body["excluded"] = list(excluded)
    if baseline is not None:
        body["baseline"] = baseline
    return body


def decision_of(answer: Mapping[str, Any]) -> RemoteDecision:
    return RemoteDecision(
        id=answer["decision_id"],
        action=answer["action"],
        name=answer["action_id"],
        probability=answer["probability"],
        policy=tuple(answer["policy"]),
        model_version=answer["model_version"],
        mode=answer["mode"],
    )


def _plain_id(decision: RemoteDecision | str) -> str:
    return decision if isinstance(decision, str) else decision.id


def _id(decision: RemoteDecision | str) -> str:
    return quote(_plain_id(decision), safe="")
