"""What every request passes: who sends it, and what every answer carries."""

from __future__ import annotations

from pathlib import Path
from typing import Any

import pytest

from fedfairx.service.routes import OPERATIONS
from service_helpers import CONTEXTS, asking, decide

BODY = {"contexts": CONTEXTS}
WRITES = [operation for operation in OPERATIONS if operation.method != "GET"]
SITES = ("cross-site", "same-site", "cross-origin", "")


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with asking(str(tmp_path_factory.mktemp("gate") / "agent.db")) as made:
        yield made


@pytest.mark.parametrize("operation", WRITES, ids=lambda one: one.name)
def test_a_page_of_another_site_writes_nothing(client: Any, operation: Any) -> None:
    path = operation.path.replace("{decision_id}", decide(client)["decision_id"])
    for site in SITES:
        answer = client.request(operation.method, path, json={}, headers={"sec-fetch-site": site})
        assert (answer.status_code, answer.json()["type"].rpartition(":")[2]) == (403, "cross-site"), site
    for site in ("same-origin", "none"):
        answer = client.request(operation.method, path, json={}, headers={"sec-fetch-site": site})
        assert answer.status_code != 403


def test_a_key_does_not_help_another_site(tmp_path: Path) -> None:
    from test_auth import bearer, new_key

    place = str(tmp_path / "agent.db")
    key = bearer(new_key(place, "admin"))
    with asking(place) as client:
        across = client.post("/v1/decisions", json=BODY, headers={**key, "sec-fetch-site": "cross-site"})
        assert across.status_code == 403
        assert client.post("/v1/decisions", json=BODY, headers=key).status_code == 201


def test_another_site_may_link_here(client: Any) -> None:
    """Reading changes nothing, and the browser does not show the answer to the other site."""
    assert client.get("/v1/model", headers={"sec-fetch-site": "cross-site"}).status_code == 200


#: Without a federation, `PUT /v1/peers` says that first.
WITH_BODY = [each for each in WRITES if each.takes and each.name != "bring_peers"]


@pytest.mark.parametrize("operation", WITH_BODY, ids=lambda one: one.name)
def test_a_body_says_that_it_is_json(client: Any, operation: Any) -> None:
    """Without a Content-Type a page of any site may send it without asking."""
    path = operation.path.replace("{decision_id}", decide(client)["decision_id"])
    for headers in ({}, {"content-type": ""}, {"content-type": "text/plain"}):
        answer = client.request(operation.method, path, content=b"{}", headers=headers)
        assert answer.status_code == 415, headers


def test_every_answer_is_not_to_be_kept_nor_guessed(client: Any) -> None:
    made = decide(client)["decision_id"]
    answers = [
        client.request(operation.method, operation.path.replace("{decision_id}", made), json={})
        for operation in OPERATIONS
    ]
    answers += [client.get(f"/v1/export?format={kind}") for kind in ("jsonl", "csv", "parquet")]
    answers += [client.get("/nowhere"), client.get("/v1/nowhere"), client.patch("/v1/model")]
    assert {answer.status_code for answer in answers} >= {200, 204, 404, 405, 422}
    for answer in answers:
        assert answer.headers.get_list("x-content-type-options") == ["nosniff"], answer.url
        assert answer.headers.get_list("cache-control") == ["no-store"], answer.url
