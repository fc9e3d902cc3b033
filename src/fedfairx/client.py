"""A client of the service: `decide` and `observe` as an agent has them, over HTTP.

Every call can be repeated safely, so a lost connection or a 503 is tried again: decisions under one
Idempotency-Key, rewards because the same reward counts once.
"""

from __future__ import annotations

import asyncio
import time
from collections.abc import Mapping, Sequence
from types import TracebackType
from typing import Any, Self

from fedfairx.calling import (
    Actions,
    Attempts,
    Call,
    Calls,
    Contexts,
    RemoteDecision,
    ServiceError,
    decision_of,
)
from fedfairx.errors import needs

__all__ = ["AsyncClient", "Client", "RemoteDecision", "ServiceError"]


class Client(Calls):
    """Asks a service at `url`, with an API `key` where it needs one.

    timeout: seconds for one attempt. retries: how often a call is repeated that was not answered.

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
        """Which action? Give contexts (K, d), or `actions`, each with an id, features and perhaps a group."""
        return decision_of(self._do(self._decide(contexts, actions, excluded, baseline, key)))

    def decide_many(
        self, requests: Sequence[Mapping[str, Any]], *, key: str | None = None
    ) -> list[RemoteDecision]:
        """Several at once, each request a mapping with the arguments of `decide`: all are made, or none."""
        return [decision_of(one) for one in self._do(self._decide_many(requests, key))["decisions"]]

    def observe(
        self,
        decision: RemoteDecision | str,
        *,
        reward: float,
        person: str | None = None,
        replace: bool = False,
    ) -> None:
        """The reward of a decision, at once or any time later; with `replace`, which needs an admin's key,
        also in the place of one that was booked wrongly."""
        self._do(self._observe(decision, reward, person, replace))

    def observe_many(
        self,
        decisions: Sequence[RemoteDecision | str],
        rewards: Sequence[float],
        *,
        replace: bool = False,
    ) -> None:
        """Several rewards: all are taken, or none."""
        self._do(self._observe_many(decisions, rewards, replace))

    def forget(self, decision: RemoteDecision | str) -> None:
        """It was never shown: no reward will come."""
        self._do(self._forget(decision))

    def forget_many(self, decisions: Sequence[RemoteDecision | str]) -> None:
        """Several that were never shown: all are withdrawn, or none."""
        self._do(self._forget_many(decisions))

    def get(self, path: str) -> Any:
        """Anything that can be read, such as "/v1/model"."""
        return self._do(Call("GET", path))

    def close(self) -> None:
        """Let its connections go."""
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
        await self._do(self._forget(decision))

    async def forget_many(self, decisions: Sequence[RemoteDecision | str]) -> None:
        """As `Client.forget_many`."""
        await self._do(self._forget_many(decisions))

    async def get(self, path: str) -> Any:
        """As `Client.get`."""
        return await self._do(Call("GET", path))

    async def aclose(self) -> None:
        """Let its connections go."""
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
