"""The clients: the names of an agent, and repetition that does nothing twice."""

from __future__ import annotations

import asyncio
import doctest
import inspect
import ssl
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import httpx
import numpy as np
import pandas as pd
import polars as pl
import pytest
from test_standby import standby

import fedfairx as ffx
from fedfairx import client as calling
from fedfairx.client import AsyncClient, Client, RemoteDecision, ServiceError
from fedfairx.errors import InvalidInput
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


ROWS = [{"price": 4.0, "vegan": True}, {"price": 9.0, "vegan": False}]
DISHES = ["soup", "roast"]
MENU = dict(zip(DISHES, ROWS, strict=True))


@pytest.fixture(scope="module")
def menu(tmp_path_factory: pytest.TempPathFactory) -> Iterator[str]:
    flags = ("--features", "price=0:10,vegan=bool,city=Rome|Oslo", "--shared", "city")
    running = Running(str(tmp_path_factory.mktemp("menu") / "agent.db"), *flags)
    yield running.url
    running.stop()


@pytest.mark.parametrize(
    ("offer", "named"),
    [
        (MENU, True),
        (ROWS, False),
        ([pd.Series(row) for row in ROWS], False),
        ([{"id": name, "features": row, "group": "g"} for name, row in MENU.items()], True),
        (pd.DataFrame(ROWS, index=DISHES), True),
        (pd.DataFrame(ROWS).assign(name=DISHES, other=np.nan), True),
        (pd.DataFrame(ROWS), False),
        (pl.DataFrame(ROWS).with_columns(pl.Series("name", DISHES)), True),
        (pl.DataFrame(ROWS), False),
        (
            {
                name: {"price": np.int64(row["price"]), "vegan": np.bool_(row["vegan"])}
                for name, row in MENU.items()
            },
            True,
        ),
    ],
)
def test_it_takes_what_an_agent_takes(menu: str, offer: Any, named: bool) -> None:
    """The shares are those of an agent that is asked the same."""
    agent = ffx.Agent(schema=ffx.features.Schema(SCHEMA, shared=["city"]))
    plain = isinstance(offer, list) and "id" in offer[0]
    here = agent.policy(actions=MENU if plain else offer, context={"city": "Oslo"})
    with ffx.Client(menu) as client:
        for decision in (
            client.decide(offer, context={"city": "Oslo"}),
            client.decide(actions=offer, context=pd.Series({"city": "Oslo"})),
            *client.decide_many([{"actions": offer, "context": {"city": "Oslo"}}]),
        ):
            assert decision.policy == pytest.approx(here)
            assert decision.name == (DISHES[decision.action] if named else str(decision.action))
            client.forget(decision)


SCHEMA = {"price": (0, 10), "vegan": bool, "city": ["Rome", "Oslo"]}


def test_rows_with_shared_features_and_missing_ones(menu: str) -> None:
    rows = {name: {**row, "city": None} for name, row in MENU.items()}
    frame = pd.DataFrame(list(rows.values()), index=list(rows)).astype({"city": object})
    with ffx.Client(menu) as client:
        one, two = client.decide_many([rows, frame])
        assert one.policy == two.policy
        assert one.name in DISHES
        client.forget_many([one, two])
        with pytest.raises(InvalidInput, match="actions must have every feature, got no column vegan"):
            client.decide(frame.drop(columns="vegan"))
        with pytest.raises(ServiceError, match=r"price must be a finite number .* got null"):
            client.decide(frame.assign(price=np.nan))
        with pytest.raises(InvalidInput, match="contexts must be left out beside actions"):
            client.decide(rows, actions=rows)


def test_arrays_and_frames_of_numbers(url: str) -> None:
    frame = pd.DataFrame(CONTEXTS, columns=list("abc"))
    with ffx.Client(url) as client:
        asked = client.decide_many([CONTEXTS, np.array(CONTEXTS), frame, pl.from_pandas(frame)])
        named = client.decide(frame.assign(name=["ann", "ben", "cat"]))
        assert {one.policy for one in (*asked, named)} == {asked[0].policy}
        assert [one.name for one in asked] == [None] * 4
        assert named.name == ["ann", "ben", "cat"][named.action]
        client.forget_many([*asked, named])
        client.make_agent("dishes", actions=["bread", *DISHES])
        with ffx.Client(url, agent="dishes") as dishes:
            for offer in (pd.DataFrame(ROWS, index=DISHES), pl.DataFrame({"name": DISHES}), pd.Index(DISHES)):
                assert dishes.decide(offer).names == tuple(DISHES)
            with pytest.raises(InvalidInput, match="must have a column `name`, or an index of text"):
                dishes.decide(pd.DataFrame(ROWS))
        client.archive_agent("dishes")


def test_a_standby_answers_when_the_service_is_killed(tmp_path: Path) -> None:
    """Two services of one database. The same key gives the same decision, by whichever it was made."""
    place = str(tmp_path / "agent.db")
    first, second = Running(place, "--dimension", "3"), standby(place)
    with ffx.Client([second.url, first.url], retries=10) as client:
        before = client.decide(CONTEXTS, key="one")  # the standby answers 503
        client.observe(before, reward=1.0)
        first.kill()
        assert client.decide(CONTEXTS, key="one") == before
        client.observe(client.decide(CONTEXTS), reward=0.0)
        model = client.get("/v1/model")
        assert (model["observed"], model["pending"]) == (2, 0)

    async def work() -> RemoteDecision:
        async with ffx.AsyncClient((first.url, second.url)) as client:  # the first is gone
            both = await asyncio.gather(*[client.decide(CONTEXTS, key="one") for _ in range(5)])
            assert set(both) == {both[0]}
            return both[0]

    assert asyncio.run(work()) == before
    second.stop()
    with ffx.Client([first.url, second.url], retries=1) as client, pytest.raises(ServiceError) as caught:
        client.decide(CONTEXTS)
    assert (caught.value.status, caught.value.kind) == (0, "unreached")
    first.close()
    with pytest.raises(InvalidInput, match="url must be at least one address"):
        ffx.Client([])


@pytest.mark.parametrize(
    ("failure", "hosts"),
    [
        (503, ["a", "b", "b"]),
        (502, ["a", "b", "b"]),
        (httpx.ConnectError("no"), ["a", "b", "b"]),
        (httpx.ReadTimeout("late"), ["a", "b", "b"]),
        (429, ["a", "a", "a"]),  # too many requests are too many elsewhere
    ],
)
def test_it_stays_at_the_address_that_answers(
    monkeypatch: pytest.MonkeyPatch, failure: Any, hosts: list[str]
) -> None:
    monkeypatch.setattr(calling, "PAUSE", 0.0)
    client, asked = Client(["http://a/", "http://b"]), list[str]()
    failures = [httpx.Response(failure) if isinstance(failure, int) else failure]

    def answer(request: httpx.Request) -> httpx.Response:
        asked.append(request.url.host)
        return Flaky(*[failures.pop() for _ in failures[:1]])(request)

    client._calls._http = httpx.Client(transport=httpx.MockTransport(answer))
    client.decide(CONTEXTS)
    client.decide(CONTEXTS)
    assert asked == hosts


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
    with pytest.raises(ServiceError, match="http://there did not answer: no") as caught:
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
            with pytest.raises(ServiceError, match="http://there did not answer: no"):
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
