"""Clients of a service, for threads and for asyncio: requests, repetitions and responses."""

from __future__ import annotations

import asyncio
import random
import time
import uuid
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from types import TracebackType
from typing import TYPE_CHECKING, Any, Self, cast
from urllib.parse import quote

from fedfairx.errors import FedFairXError, needs

if TYPE_CHECKING:
    import httpx


AGAIN = (408, 429, 502, 503, 504)  # statuses of a service or a proxy after which a repetition may succeed
PAUSE = 0.1  # seconds before the first repetition; each is about twice the one before
LONGEST = 5.0

Actions = Sequence[Mapping[str, Any] | str]
Contexts = Sequence[Sequence[float]] | Sequence[str]


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
    """The action to take: its place in the request, its `name`, and the policy it was drawn from.

    `names` are whose shares those are, where actions have no features.
    """

    id: str
    action: int
    name: str | None
    probability: float
    policy: tuple[float, ...]
    model_version: int
    mode: str
    names: tuple[str, ...] | None = None


@dataclass(frozen=True)
class Call:
    """A request that may be repeated."""

    method: str
    path: str
    body: Any = None
    key: str | None = None


class Calls:
    """The requests, which both clients send."""

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
        bodies = [_request(**request) for request in requests]
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


class Attempts:
    """The attempts of one call: iterate over the pauses before each, until it is answered or given up."""

    def __init__(self, call: Call, retries: int) -> None:
        headers = {} if call.key is None else {"idempotency-key": call.key}
        self.request = {"method": call.method, "url": call.path, "json": call.body, "headers": headers}
        self.response: httpx.Response | None = None  # of the last attempt
        self._failed = ""
        self._retries = retries

    def __iter__(self) -> Iterator[float]:
        """Pauses in seconds; random, so that callers don't come back together."""
        yield 0.0
        pause = PAUSE
        for _ in range(self._retries):
            if self.response is not None and self.response.status_code not in AGAIN:
                return
            yield pause * random.uniform(0.5, 1.5)
            pause = min(2 * pause, LONGEST)

    @contextmanager
    def trying(self) -> Iterator[None]:
        """The context of an attempt, which sets `response`."""
        import httpx

        self.response = None
        try:
            yield
        except httpx.TransportError as error:
            self._failed = type(error).__name__

    def answer(self) -> Any:
        """The answer of the last attempt, or `ServiceError`."""
        response = self.response
        if response is None:
            raise ServiceError(0, "unreached", f"The service could not be reached ({self._failed}).")
        if response.is_success:
            return None if response.status_code == 204 else response.json()
        try:
            problem = dict(response.json())
        except (ValueError, TypeError):  # not a JSON object: from something between us and the service
            problem = {}
        kind = str(problem.get("type", "")).rpartition(":")[2]
        detail = str(problem.get("detail", f"The service answered {response.status_code}."))
        raise ServiceError(response.status_code, kind, detail, str(problem.get("remedy", "")))


def _request(
    contexts: Contexts | None = None,
    actions: Actions | None = None,
    excluded: Sequence[str | int] = (),
    baseline: str | int | None = None,
) -> dict[str, Any]:
    body: dict[str, Any] = {}
    if contexts is not None and len(contexts) and all(isinstance(row, str) for row in contexts):
        contexts, actions = None, cast("Sequence[str]", contexts)  # as `Agent.decide` takes them
    if contexts is not None:
        body["contexts"] = [[float(number) for number in row] for row in contexts]
    if actions is not None:
        body["actions"] = [action if isinstance(action, str) else dict(action) for action in actions]
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
        names=tuple(answer["action_ids"]) if "action_ids" in answer else None,
    )


def active_of(answer: Mapping[str, Any]) -> tuple[str, ...]:
    return tuple(action["id"] for action in answer["actions"] if action["status"] == "active")


def _plain_id(decision: RemoteDecision | str) -> str:
    return decision if isinstance(decision, str) else decision.id


def _id(decision: RemoteDecision | str) -> str:
    return quote(_plain_id(decision), safe="")


def _quoted(name: str) -> str:
    """A name in a path; dots too, since "." and ".." mean other paths."""
    return quote(name, safe="").replace(".", "%2E")


class Client(Calls):
    """A client of the service at `url`, with an API `key` if it needs one.

    timeout: seconds for one attempt. retries: how often an unanswered call is repeated.

    >>> client = Client("http://127.0.0.1:8000")  # doctest: +SKIP
    >>> decision = client.decide([[0.2, 0.4], [0.5, 0.1]])  # doctest: +SKIP
    >>> client.observe(decision, reward=1.0)  # doctest: +SKIP
    """

    def __init__(self, url: str, key: str | None = None, *, timeout: float = 10.0, retries: int = 5) -> None:
        super().__init__(url, key, timeout, retries)
        with needs("client"):
            import httpx
        self._http = httpx.Client(**self._options)

    def decide(
        self,
        contexts: Contexts | None = None,
        *,
        actions: Actions | None = None,
        excluded: Sequence[str | int] = (),
        baseline: str | int | None = None,
        key: str | None = None,
    ) -> RemoteDecision:
        """Which action? Give contexts (K, d), or `actions`, each with an id, features and perhaps a group.

        Of a service whose actions have no features give the names of some, or nothing for all of them.
        """
        return decision_of(self._do(self._decide(contexts, actions, excluded, baseline, key)))

    def decide_many(
        self, requests: Sequence[Mapping[str, Any]], *, key: str | None = None
    ) -> list[RemoteDecision]:
        """Make several decisions, each request a mapping with the arguments of `decide`: all, or none."""
        return [decision_of(one) for one in self._do(self._decide_many(requests, key))["decisions"]]

    def observe(
        self,
        decision: RemoteDecision | str,
        *,
        reward: float,
        person: str | None = None,
        replace: bool = False,
    ) -> None:
        """Send the reward of a decision, now or any time later; with `replace`, which needs an admin's key,
        in place of an earlier one."""
        self._do(self._observe(decision, reward, person, replace))

    def observe_many(
        self,
        decisions: Sequence[RemoteDecision | str],
        rewards: Sequence[float],
        *,
        replace: bool = False,
    ) -> None:
        """Send several rewards: all are taken, or none."""
        self._do(self._observe_many(decisions, rewards, replace))

    def forget(self, decision: RemoteDecision | str) -> None:
        """Withdraw a decision that was never shown."""
        self._do(Call("DELETE", f"/v1/decisions/{_id(decision)}"))

    def forget_many(self, decisions: Sequence[RemoteDecision | str]) -> None:
        """Withdraw several decisions: all, or none."""
        self._do(Call("POST", "/v1/withdrawals", {"decision_ids": [_plain_id(one) for one in decisions]}))

    def actions(self) -> tuple[str, ...]:
        """The active actions of a service whose actions have no features."""
        return active_of(self.get("/v1/actions"))

    def add_actions(self, *names: str) -> None:
        """Add actions, one after the other; needs an admin's key."""
        for name in names:
            self._do(Call("PUT", f"/v1/actions/{_quoted(name)}"))

    def retire_actions(self, *names: str) -> None:
        """Retire actions, one after the other; needs an admin's key."""
        for name in names:
            self._do(Call("DELETE", f"/v1/actions/{_quoted(name)}"))

    def get(self, path: str) -> Any:
        """Read a path, such as "/v1/model"."""
        return self._do(Call("GET", path))

    def close(self) -> None:
        """Close its connections."""
        self._http.close()

    def __enter__(self) -> Self:
        return self

    def __exit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        self.close()

    def _do(self, call: Call) -> Any:
        attempts = Attempts(call, self._retries)
        for pause in attempts:
            time.sleep(pause)
            with attempts.trying():
                attempts.response = self._http.request(**attempts.request)
        return attempts.answer()


class AsyncClient(Calls):
    """`Client` for asyncio: the same names, awaited."""

    def __init__(self, url: str, key: str | None = None, *, timeout: float = 10.0, retries: int = 5) -> None:
        super().__init__(url, key, timeout, retries)
        with needs("client"):
            import httpx
        self._http = httpx.AsyncClient(**self._options)

    async def decide(
        self,
        contexts: Contexts | None = None,
        *,
        actions: Actions | None = None,
        excluded: Sequence[str | int] = (),
        baseline: str | int | None = None,
        key: str | None = None,
    ) -> RemoteDecision:
        """As `Client.decide`."""
        return decision_of(await self._do(self._decide(contexts, actions, excluded, baseline, key)))

    async def decide_many(
        self, requests: Sequence[Mapping[str, Any]], *, key: str | None = None
    ) -> list[RemoteDecision]:
        """As `Client.decide_many`."""
        made = await self._do(self._decide_many(requests, key))
        return [decision_of(one) for one in made["decisions"]]

    async def observe(
        self,
        decision: RemoteDecision | str,
        *,
        reward: float,
        person: str | None = None,
        replace: bool = False,
    ) -> None:
        """As `Client.observe`."""
        await self._do(self._observe(decision, reward, person, replace))

    async def observe_many(
        self,
        decisions: Sequence[RemoteDecision | str],
        rewards: Sequence[float],
        *,
        replace: bool = False,
    ) -> None:
        """As `Client.observe_many`."""
        await self._do(self._observe_many(decisions, rewards, replace))

    async def forget(self, decision: RemoteDecision | str) -> None:
        """As `Client.forget`."""
        await self._do(Call("DELETE", f"/v1/decisions/{_id(decision)}"))

    async def forget_many(self, decisions: Sequence[RemoteDecision | str]) -> None:
        """As `Client.forget_many`."""
        await self._do(
            Call("POST", "/v1/withdrawals", {"decision_ids": [_plain_id(one) for one in decisions]})
        )

    async def actions(self) -> tuple[str, ...]:
        """As `Client.actions`."""
        return active_of(await self.get("/v1/actions"))

    async def add_actions(self, *names: str) -> None:
        """As `Client.add_actions`."""
        for name in names:
            await self._do(Call("PUT", f"/v1/actions/{_quoted(name)}"))

    async def retire_actions(self, *names: str) -> None:
        """As `Client.retire_actions`."""
        for name in names:
            await self._do(Call("DELETE", f"/v1/actions/{_quoted(name)}"))

    async def get(self, path: str) -> Any:
        """As `Client.get`."""
        return await self._do(Call("GET", path))

    async def aclose(self) -> None:
        """Close its connections."""
        await self._http.aclose()

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(self, *_: type[BaseException] | BaseException | TracebackType | None) -> None:
        await self.aclose()

    async def _do(self, call: Call) -> Any:
        attempts = Attempts(call, self._retries)
        for pause in attempts:
            await asyncio.sleep(pause)
            with attempts.trying():
                attempts.response = await self._http.request(**attempts.request)
        return attempts.answer()
