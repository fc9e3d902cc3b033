"""The clients: the names of an agent, and repetition that does nothing twice."""

from __future__ import annotations

import asyncio
import doctest
import inspect
import ssl
from collections.abc import Callable, Iterator
from typing import Any

import httpx
import pytest

import fedfairx as ffx
from fedfairx import client as calling
from fedfairx.client import AsyncClient, Client, ServiceError
from service_helpers import ACTIONS, CONTEXTS, Running

pytestmark = pytest.mark.process


@pytest.fixture(scope="module")
def url(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    running = Running(str(tmp_path_factory.mktemp("client") / "agent.db"), "--dimension", "3")
    yield running.url
    running.stop()


def test_a_round(url: str) -> None:
    with ffx.Client(url) as client:
        before = client.get("/v1/model")["observed"]
        decision = client.decide(CONTEXTS)
        assert decision.probability == decision.policy[decision.action]
        assert decision.name is None
        client.observe(decision, reward=0.5)
        client.observe(decision.id, reward=0.5)
        named = client.decide(actions=ACTIONS, excluded=["ann"], baseline="cat")
        assert named.name in ("ben", "cat")
        client.forget(named)
        made = client.decide_many([{"contexts": CONTEXTS}, {"actions": ACTIONS, "excluded": ["ben"]}])
        client.observe_many(made, [0.1, 0.2])
        client.forget_many([client.decide(CONTEXTS), client.decide(CONTEXTS).id])
        assert client.get("/v1/model")["observed"] == before + 3
        with pytest.raises(ServiceError) as caught:
            client.observe(decision, reward=0.6)
        assert (caught.value.status, caught.value.kind) == (409, "conflict")
        assert caught.value.remedy
        with pytest.raises(ServiceError, match="no such decision"):
            client.observe("nobody-1", reward=0.6)


def test_examples_of_docstrings(url: str) -> None:
    done = doctest.testmod(calling, extraglobs={"url": url})
    assert (done.attempted, done.failed) == (4, 0)


def test_agents(url: str) -> None:
    with ffx.Client(url) as client, ffx.Client(url, agent="news") as news:
        before = client.get("/v1/model")
        for _ in range(2):
            client.make_agent("news", actions=["ann", "ben"])
        assert client.agents() == (before["name"], "news")
        decision = news.decide()
        assert decision.name in news.actions() == ("ann", "ben")
        news.observe(decision, reward=1.0)
        news.observe_many(news.decide_many([{}]), [0.5])
        news.forget(news.decide())
        news.add_actions("a/b")
        news.retire_actions("ann")
        assert news.actions() == ("ben", "a/b")
        assert (news.get("/v1/model")["name"], news.get("/v1/model")["observed"]) == ("news", 2)
        assert client.get("/v1/model") == before
        with pytest.raises(ServiceError, match="no such decision"):
            client.observe(decision, reward=1.0)
        with pytest.raises(ServiceError, match="actions must be what the agent has") as caught:
            client.make_agent("news", actions=["ann", "cid"])
        assert (caught.value.status, caught.value.kind) == (409, "agent-exists")
        client.archive_agent("news")
        assert client.agents() == (before["name"],)
        with pytest.raises(ServiceError, match="archived"):
            news.decide()


def test_an_asynchronous_round(url: str) -> None:
    async def work() -> None:
        async with ffx.AsyncClient(url) as client:
            pending = (await client.get("/v1/model"))["pending"]
            decisions = await asyncio.gather(*[client.decide(CONTEXTS) for _ in range(10)])
            await asyncio.gather(*[client.observe(one, reward=0.5) for one in decisions])
            made = await client.decide_many([{"contexts": CONTEXTS}])
            await client.observe_many(made, [0.1])
            await client.forget(await client.decide(actions=ACTIONS))
            await client.forget_many([await client.decide(CONTEXTS)])
            assert (await client.get("/v1/model"))["pending"] == pending
            assert (await client.get("/v1/sync"))["released"] == 0

    asyncio.run(work())


def test_both_have_the_same_names() -> None:
    for name, method in inspect.getmembers(Client, inspect.isfunction):
        if not name.startswith("_") and name != "close":
            assert inspect.signature(method) == inspect.signature(getattr(AsyncClient, name))


def test_certificates_are_loaded_for_tls_alone() -> None:
    """Without them nothing is trusted, as opposed to everything."""
    assert Client("https://there")._calls._options["verify"] is True
    verify = Client("HTTP://there")._calls._options["verify"]
    assert (verify.verify_mode, verify.check_hostname) == (ssl.CERT_REQUIRED, True)
    assert verify.cert_store_stats()["x509"] == 0


class Flaky:
    """A transport that fails some times before it answers, and remembers what it was asked."""

    def __init__(self, *failures: Any) -> None:
        self.failures = list(failures)
        self.asked: list[tuple[str, bytes]] = []

    def __call__(self, request: httpx.Request) -> httpx.Response:
        self.asked.append((request.headers.get("idempotency-key", ""), request.content))
        if self.failures:
            failure = self.failures.pop(0)
            if isinstance(failure, Exception):
                raise failure
            return failure
        made = {
            "decision_id": "a-1", "action": 0, "action_id": None, "probability": 1.0, "policy": [1.0],
            "model_version": 0, "mode": "live",
        }  # fmt: skip
        return httpx.Response(201, json=made)


@pytest.fixture
def flaky(monkeypatch: pytest.MonkeyPatch) -> Callable[..., tuple[Client, Flaky]]:
    monkeypatch.setattr(calling, "PAUSE", 0.0)

    def make(*failures: Any) -> tuple[Client, Flaky]:
        transport = Flaky(*failures)
        client = Client("http://there", "key", retries=3)
        client._calls._http = httpx.Client(transport=httpx.MockTransport(transport), **client._calls._options)
        return client, transport

    return make


def test_what_was_not_answered_is_asked_again_under_the_same_key(flaky: Any) -> None:
    client, transport = flaky(httpx.ReadError("broken"), httpx.Response(503), httpx.ConnectTimeout("late"))
    assert client.decide([[1.0]]).id == "a-1"
    assert len(transport.asked) == 4
    assert len(set(transport.asked)) == 1
    assert len(transport.asked[0][0]) == 36
    client.decide([[1.0]])
    assert transport.asked[-1][0] != transport.asked[0][0]  # another decision, another key
    client.decide([[1.0]], key="mine")
    assert transport.asked[-1][0] == "mine"


def test_it_gives_up(flaky: Any) -> None:
    client, transport = flaky(*[httpx.Response(503)] * 9)
    with pytest.raises(ServiceError) as caught:
        client.decide([[1.0]])
    assert caught.value.status == 503
    assert len(transport.asked) == 4
    client, _ = flaky(*[httpx.ConnectError("no")] * 9)
    with pytest.raises(ServiceError, match="could not be reached") as caught:
        client.decide([[1.0]])
    assert caught.value.status == 0


def test_the_asynchronous_one_asks_again_too(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(calling, "PAUSE", 0.0)
    transport = Flaky(httpx.ReadError("broken"), httpx.Response(408))

    async def work() -> None:
        async with AsyncClient("http://there", retries=3) as client:
            await client._http.aclose()
            client._http = httpx.AsyncClient(transport=httpx.MockTransport(transport), **client._options)
            assert (await client.decide([[1.0]])).id == "a-1"
            transport.failures += [httpx.ConnectError("no")] * 4
            with pytest.raises(ServiceError, match="could not be reached"):
                await client.decide([[1.0]])

    asyncio.run(work())
    assert len(transport.asked) == 3 + 4
    assert len(set(transport.asked)) == 2


def test_an_answer_of_something_in_between(flaky: Any) -> None:
    for odd in (httpx.Response(500, text="oops"), httpx.Response(500, json=7), httpx.Response(500, json="x")):
        client, _ = flaky(odd)
        with pytest.raises(ServiceError, match="The service answered 500"):
            client.decide([[1.0]])


def test_what_was_refused_is_not_asked_again(flaky: Any) -> None:
    client, transport = flaky(
        httpx.Response(401, json={"type": "urn:x:y", "detail": "No.", "remedy": "Ask."})
    )
    with pytest.raises(ServiceError, match=r"No\. Ask\."):
        client.decide([[1.0]])
    assert len(transport.asked) == 1


def test_a_query_and_an_explanation_are_asked_for_by_their_addresses(flaky: Any) -> None:
    """The mocked answer is of no interest; the address is."""
    client, _ = flaky()
    asked: list[str] = []
    client._calls._http.event_hooks = {"request": [lambda request: asked.append(str(request.url))]}
    client.get("/v1/decisions", {"action_id": "Bo & Sons", "status": "pending"})
    client.explain("a/b")
    assert asked == [
        "http://there/v1/decisions?action_id=Bo+%26+Sons&status=pending",
        "http://there/v1/decisions/a%2Fb/explanation",
    ]
