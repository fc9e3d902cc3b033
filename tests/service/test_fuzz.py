"""Whatever is sent: a clear refusal, never a trace, never an echo of what was sent."""

from __future__ import annotations

import json
import logging
import re
from pathlib import Path
from typing import Any

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from service_helpers import ACTIONS, CONTEXTS, asking, decide

SECRET = 0.73519264  # a number that must turn up nowhere
JSON = {"content-type": "application/json"}


@pytest.fixture(scope="module")
def client(tmp_path_factory: pytest.TempPathFactory) -> Any:
    with asking(str(tmp_path_factory.mktemp("fuzz") / "agent.db")) as made:
        yield made


def post(client: Any, body: bytes | str, path: str = "/v1/decisions") -> Any:
    return client.post(path, content=body, headers=JSON)


def check_refused(answer: Any, *statuses: int) -> None:
    assert answer.status_code in (statuses or range(400, 500)), answer.text
    assert answer.headers["content-type"] == "application/problem+json"
    problem = answer.json()
    assert set(problem) == {"type", "title", "status", "detail", "remedy", "request_id"}
    assert problem["remedy"]
    assert "73519264" not in answer.text
    assert "Traceback" not in answer.text
    assert ".py" not in answer.text


def row(number: object) -> str:
    return json.dumps({"contexts": [[SECRET, number, 0.1], [0.1, 0.2, 0.3]]})


BAD = {
    "nan": '{"contexts": [[NaN, 0.1, 0.1]]}',
    "infinity": '{"contexts": [[Infinity, 0.1, 0.1]]}',
    "overflow": '{"contexts": [[1e999, 0.1, 0.1]]}',
    "huge": row(1e308),
    "huge integer": row(10**400),
    "text": row("0.73519264"),
    "null": row(None),
    "true": row(True),
    "object": row({"0.73519264": 1}),
    "list": row([SECRET]),
    "too many numbers": '{"contexts": [[0.73519264, 1, 1, 1]]}',
    "ragged": '{"contexts": [[0.73519264, 1, 1], [1]]}',
    "empty": '{"contexts": []}',
    "empty row": '{"contexts": [[]]}',
    "nothing": "{}",
    "both": json.dumps({"contexts": CONTEXTS, "actions": ACTIONS}),
    "no body": "",
    "no object": "[0.73519264]",
    "number": "0.73519264",
    "cut": '{"contexts": [[0.73519264',
    "tail": row(0.1) + "x",
    "unknown field": '{"contexts": [[0.1, 0.1, 0.1]], "0.73519264": 0.73519264}',
    "unknown field with a tick": '{"` - at 0.73519264": 1}',
    "nested": '{"contexts": ' + "[" * 100_000 + "]" * 100_000 + "}",
    "nested objects": '{"a":' * 50_000 + "1" + "}" * 50_000,
    "bytes": b'{"contexts": [[\xff\xfe]]}',
    "utf-16": row(0.1).encode("utf-16"),
    "surrogate": '{"actions": [{"id": "\\ud800", "features": [1, 1, 1]}]}',
    "named where there are no names": '{"actions": [{"id": "a", "features": {"x": 0.73519264}}]}',
    "empty id": '{"actions": [{"id": "", "features": [1, 1, 1]}]}',
    "long id": json.dumps({"actions": [{"id": "x" * 201, "features": [1, 1, 1]}]}),
    "baseline": json.dumps({"contexts": CONTEXTS, "baseline": 3}),
    "negative baseline": json.dumps({"contexts": CONTEXTS, "baseline": -1}),
    "baseline by name": json.dumps({"contexts": CONTEXTS, "baseline": "0.73519264"}),
    "many actions": json.dumps({"contexts": [[0.1, 0.1, 0.1]] * 1001}),
}


@pytest.mark.parametrize("body", BAD.values(), ids=BAD)
def test_bad_decisions(client: Any, body: str | bytes, caplog: pytest.LogCaptureFixture) -> None:
    with caplog.at_level(logging.DEBUG):
        check_refused(post(client, body), 400, 422)
    assert "73519264" not in caplog.text


NOT_UTF8 = {
    ("POST", "/v1/decisions"): b'{"actions": [{"id": "\xff", "features": [1, 1, 1]}]}',
    ("POST", "/v1/decisions/batch"): b'{"decisions": [{"excluded": ["\xc3\x28"]}]}',
    ("PUT", "/v1/decisions/a-1/reward"): b'{"reward": 0.73519264, "person": "\xed\xa0\x80"}',
    ("POST", "/v1/rewards"): b'{"rewards": [{"decision_id": "\xff", "reward": 0.73519264}]}',
    ("POST", "/v1/withdrawals"): b'{"decision_ids": ["\xf0\x28\x8c\x28"]}',
}


@pytest.mark.parametrize(("method", "path"), NOT_UTF8)
def test_names_that_are_not_utf8(client: Any, method: str, path: str) -> None:
    for body in (NOT_UTF8[method, path], b'{"\xff": 1}'):
        answer = client.request(method, path, content=body, headers=JSON)
        check_refused(answer, 400)
        assert answer.json()["detail"] == "The body is not UTF-8."


def test_ten_megabytes(client: Any) -> None:
    check_refused(post(client, b"[" + b"1," * 5_000_000 + b"1]"), 413)
    check_refused(post(client, (b"x" * 65_536 for _ in range(160))), 413)  # in parts, without a length


def test_only_json(client: Any) -> None:
    """A form of another site may send text/plain without asking anybody."""
    for kind in ("text/plain", "application/x-www-form-urlencoded", "multipart/form-data; boundary=x"):
        answer = client.post("/v1/decisions", content=row(0.1), headers={"content-type": kind})
        check_refused(answer, 415)
    kind = {"content-type": "Application/JSON; charset=utf-8"}
    assert client.post("/v1/decisions", content=row(0.1), headers=kind).status_code == 201


@pytest.mark.parametrize(
    "reward",
    [
        "NaN",
        "1e999",
        "1e308",
        "-1e101",
        '"0.73519264"',
        "null",
        "true",
        "[0.73519264]",
        "{}",
        '{"a": 0.73519264}',
    ],
)
def test_bad_rewards(client: Any, reward: str, caplog: pytest.LogCaptureFixture) -> None:
    identity = decide(client)["decision_id"]
    with caplog.at_level(logging.DEBUG):
        answer = client.put(
            f"/v1/decisions/{identity}/reward", content=f'{{"reward": {reward}}}', headers=JSON
        )
    check_refused(answer, 400, 422)
    assert "73519264" not in caplog.text


@pytest.mark.parametrize(
    "identity",
    [
        "1; DROP TABLE decisions; --",
        "' OR '1'='1",
        "%00",
        "-1",
        "a-9999999999999999999999",
        "a-٣",
        "ⅷ",
        "💥" * 50,
        "x" * 5_000,
        "..%2f..%2fetc",
        "%FF",
        "%ED%A0%80",
        "a%00-1",
        "\udcff".encode("utf-8", "surrogateescape").decode("latin-1"),
    ],
)
def test_odd_ids(client: Any, identity: str) -> None:
    before = client.get("/v1/model").json()["pending"]
    check_refused(client.put(f"/v1/decisions/{identity}/reward", json={"reward": SECRET}), 404)
    check_refused(client.delete(f"/v1/decisions/{identity}"), 404)
    check_refused(client.get(f"/v1/decisions/{identity}"), 404)
    assert client.get("/v1/model").json()["pending"] == before


def test_odd_names_come_back_as_they_went(client: Any) -> None:
    for name in ("Zoë", "'; DROP TABLE decisions; --", "💥", "\u202eevil", "\x00null", '<script>"&'):
        made = decide(client, actions=[{"id": name, "features": [0.1, 0.1, 0.1], "group": name}])
        assert made["action_id"] == name
        assert client.get(f"/v1/decisions/{made['decision_id']}").json()["group"] == name


def test_what_nobody_foresaw_is_logged_by_its_place_only(
    client: Any, monkeypatch: pytest.MonkeyPatch, caplog: pytest.LogCaptureFixture
) -> None:
    def wrong(*_: object, **__: object) -> None:
        raise ValueError(f"could not convert {SECRET}")

    monkeypatch.setattr("fedfairx.service.decisions.plain_contexts", wrong)
    answer = post(client, row(0.1))
    check_refused(answer, 500)
    assert re.search(r"unforeseen ValueError at service/\S+\.py:\d+", caplog.text)
    assert "73519264" not in caplog.text


ANY = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats(allow_nan=False) | st.text(),
    lambda inner: (
        st.lists(inner, max_size=4)
        | st.dictionaries(
            st.sampled_from(["contexts", "actions", "id", "features", "excluded"]) | st.text(),
            inner,
            max_size=4,
        )
    ),
    max_leaves=12,
)


@pytest.mark.long
@settings(suppress_health_check=list(HealthCheck))
@given(ANY)
def test_any_json_is_answered(client: Any, value: object) -> None:
    body = json.dumps(value, allow_nan=True).replace("Infinity", "1e999")
    for path in ("/v1/decisions", "/v1/decisions/batch", "/v1/rewards"):
        assert post(client, body, path).status_code in (201, 204, 400, 404, 409, 422)


@pytest.mark.process
def test_nothing_sent_is_in_the_log_of_a_process(tmp_path: Path) -> None:
    """The whole standard error of a service that gets good and bad bodies, and tells all that it can."""
    import httpx

    from service_helpers import Running

    running = Running(str(tmp_path / "agent.db"), "--dimension", "3", "--log-level", "debug")
    try:
        with httpx.Client(base_url=running.url, headers=JSON, verify=False) as http:
            for body in [*BAD.values(), row(0.1)]:
                http.post("/v1/decisions", content=body)
            big = row(1e6)  # far larger than what an agent expects: it warns
            assert http.post("/v1/decisions", content=big).status_code == 201
    finally:
        running.stop()
    assert "73519264" not in running.said
    assert "Traceback" not in running.said
