"""Lines of the log, as text or JSON, and the id of each request."""

from __future__ import annotations

import io
import json
import logging
import re
import resource
from collections.abc import Iterator
from importlib import metadata
from pathlib import Path
from typing import Any

import pytest
from starlette.applications import Starlette

from fedfairx.client import Client, ServiceError
from fedfairx.service import app, logs
from fedfairx.service.app import openapi_document
from fedfairx.service.logs import HEADER, REQUEST_ID, AgentLog, LineFormatter, id_of, start_logging
from fedfairx.service.problems import problem_of
from fedfairx.service.settings import load
from service_helpers import asking, decide

NEW = re.compile(r"[0-9a-f]{16}")


@pytest.fixture
def lines() -> Iterator[io.StringIO]:
    """What the service logs from now on, as JSON."""
    written = io.StringIO()
    handler = logging.StreamHandler(written)
    handler.setFormatter(LineFormatter(as_json=True))
    logger = logging.getLogger("fedfairx.service")
    before = logger.level
    logger.addHandler(handler)
    logger.setLevel("INFO")
    yield written
    logger.removeHandler(handler)
    logger.setLevel(before)


def read(lines: io.StringIO) -> list[dict[str, Any]]:
    return [json.loads(line) for line in lines.getvalue().splitlines()]


def test_every_response_has_the_id_of_its_request(tmp_path: Path) -> None:
    with asking(str(tmp_path / "agent.db")) as client:
        for path in ("/healthz", "/", "/v1/model", "/nowhere", "/v1/decisions/none-1"):
            answer = client.get(path, headers={"x-request-id": "checkout-17/a"})
            assert answer.headers.get_list("x-request-id") == ["checkout-17/a"]
            if "json" in answer.headers["content-type"] and answer.status_code >= 400:
                assert answer.json()["request_id"] == "checkout-17/a"
        ids = {client.get("/healthz").headers["x-request-id"] for _ in range(20)}
        assert len(ids) == 20
        assert all(NEW.fullmatch(one) for one in ids)


@pytest.mark.parametrize("bad", [b"", b"two words", b"x" * 129, "ä".encode(), b'"}', b"a\tb"])
def test_an_id_that_is_not_plain_is_replaced(bad: bytes) -> None:
    assert NEW.fullmatch(id_of([(b"accept", b"*/*"), (HEADER, bad)]).decode())
    assert id_of([(HEADER, b"x" * 128)]) == b"x" * 128


def test_a_request_is_a_line_with_its_id(tmp_path: Path, lines: io.StringIO) -> None:
    with asking(str(tmp_path / "agent.db"), log_requests=True) as client:
        decide(client)
        client.post("/v1/decisions", json={"contexts": []}, headers={"x-request-id": "mine"})
    made, refused = read(lines)
    assert (made["operation"], made["status"], made["level"]) == ("decide", 201, "info")
    assert NEW.fullmatch(made["request_id"])
    assert 0 < made["seconds"] < 10
    assert (refused["status"], refused["request_id"]) == (422, "mine")
    assert refused["message"].startswith("decide: 422 in 0.")
    assert re.fullmatch(r"\d{4}-\d\d-\d\dT\d\d:\d\d:\d\d\.\d{3}\+00:00", made["time"])


def test_an_error_is_found_by_the_id_that_its_caller_got(
    tmp_path: Path, lines: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Also from a thread; and without the setting, an answered request is no line."""
    with asking(str(tmp_path / "agent.db")) as client:

        def fail(*_: object, **__: object) -> None:
            raise ZeroDivisionError("with a reward of 73519264")

        monkeypatch.setattr("fedfairx.service.serializers.privacy", fail)
        answer = client.get("/v1/privacy", headers={"x-request-id": "lost-1"})
        assert answer.status_code == 500
        decide(client)
    (line,) = read(lines)
    assert line["request_id"] == answer.json()["request_id"] == "lost-1"
    assert re.fullmatch(
        r"unforeseen ZeroDivisionError at service/routes/\w+\.py:\d+( < service/\w+\.py:\d+)+",
        line["message"],
    )
    assert "73519264" not in lines.getvalue()


def test_an_error_of_the_system_is_named(
    tmp_path: Path, lines: io.StringIO, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Without its text, in which the system names a file."""
    secret = tmp_path / "73519264"
    secret.touch()

    def fail(*_: object, **__: object) -> None:
        limits = resource.getrlimit(resource.RLIMIT_NOFILE)
        resource.setrlimit(resource.RLIMIT_NOFILE, (0, limits[1]))
        try:
            secret.read_text()
        finally:
            resource.setrlimit(resource.RLIMIT_NOFILE, limits)

    with asking(str(tmp_path / "agent.db")) as client:
        monkeypatch.setattr("fedfairx.service.serializers.privacy", fail)
        assert client.get("/v1/privacy").status_code == 500
    (line,) = read(lines)
    assert line["message"].startswith("unforeseen OSError EMFILE (Too many open files) at service/routes/")
    assert "73519264" not in lines.getvalue()


def test_an_error_in_other_code_has_its_place_there(lines: io.StringIO) -> None:
    try:
        int("73519264x")
    except ValueError as error:
        problem_of(error)
    (line,) = read(lines)
    assert re.fullmatch(r"unforeseen ValueError at \S+/test_service_logs.py:\d+", line["message"])


def test_no_request_reads_the_version_from_a_file(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """It could not, with too many files open."""

    def fail(*_: object) -> None:
        raise OSError

    monkeypatch.setattr(metadata, "distribution", fail)
    openapi_document.cache_clear()
    with asking(str(tmp_path / "agent.db")) as client:
        for path in ("/v1/status", "/v1/openapi.json", "/exposure"):
            assert client.get(path).status_code == 200


def test_the_client_tells_the_id(tmp_path: Path) -> None:
    with asking(str(tmp_path / "agent.db")) as served:
        client = Client("http://127.0.0.1")
        client._calls._http = served
        with pytest.raises(ServiceError) as refused:
            client.decide([])
        assert NEW.fullmatch(refused.value.request_id)


def test_text_and_json() -> None:
    record = logging.LogRecord("fedfairx.service", logging.WARNING, "", 1, "a %s", ("line\nof two",), None)
    assert json.loads(LineFormatter(as_json=True).format(record))["message"] == "a line\nof two"
    assert "\n" not in LineFormatter(as_json=True).format(record)
    assert "request_id" not in LineFormatter(as_json=True).format(record)
    assert LineFormatter(as_json=False).format(record).endswith("WARNING a line\nof two")
    token = REQUEST_ID.set("r-1")
    try:
        assert LineFormatter(as_json=False).format(record).endswith("of two [r-1]")
        vars(record).update(otelTraceID="abc", otelSpanID="def")
        found = json.loads(LineFormatter(as_json=True).format(record))
        assert (found["request_id"], found["trace_id"], found["span_id"]) == ("r-1", "abc", "def")
    finally:
        REQUEST_ID.reset(token)


def test_lines_about_an_agent_name_it(caplog: pytest.LogCaptureFixture) -> None:
    AgentLog("100 %s").warning("%s is silent", "org2")
    (record,) = caplog.records
    assert LineFormatter(as_json=False).format(record).endswith("WARNING agent 100 %s: org2 is silent")
    found = json.loads(LineFormatter(as_json=True).format(record))
    assert (found["agent"], found["logger"]) == ("100 %s", "fedfairx.service")


def test_the_format_comes_from_any_source(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    file = tmp_path / "service.toml"
    file.write_text('log_format = "json"\nlog_requests = true\n')
    assert load({}, environment={}, config=file).log_requests is True
    assert load({}, environment={"FEDFAIRX_LOG_FORMAT": "json"}).log_format == "json"
    root = logging.Logger("root")
    monkeypatch.setattr(logging, "root", root)
    monkeypatch.setattr(logs.logging, "getLogger", lambda name="": logging.Logger(name) if name else root)
    monkeypatch.setattr(logs.logging, "captureWarnings", lambda _: None)
    start_logging(load({"log_format": "json", "log_level": "warning"}, environment={}))
    (handler,) = root.handlers
    assert root.level == logging.WARNING
    assert isinstance(handler.formatter, LineFormatter)
    handler.setFormatter(other := logging.Formatter("%(message)s"))  # as OpenTelemetry does before us
    start_logging(load({}, environment={}))
    assert handler.formatter is other
    start_logging(load({"log_format": "json"}, environment={}))
    assert isinstance(handler.formatter, LineFormatter)
    assert root.handlers == [handler]


def test_middleware_sees_every_request(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """OpenTelemetry adds its own when it patches Starlette; plain paths must not go around it."""
    seen: list[str] = []

    class Middleware:
        def __init__(self, inner: Any) -> None:
            self._inner = inner

        async def __call__(self, scope: Any, receive: Any, send: Any) -> None:
            seen.append(scope.get("path", scope["type"]))
            await self._inner(scope, receive, send)

    class Instrumented(Starlette):
        def __init__(self, **options: Any) -> None:
            super().__init__(**options)
            self.add_middleware(Middleware)

    monkeypatch.setattr(app, "Starlette", Instrumented)
    with asking(str(tmp_path / "agent.db")) as client:
        decide(client)
        assert client.get("/healthz").headers["x-request-id"]
    assert seen == ["lifespan", "/v1/decisions", "/healthz"]


def test_warnings_of_broken_requests_are_limited_in_number() -> None:
    now, written = [0.0], io.StringIO()
    logger, handler = logging.Logger("of a server"), logging.StreamHandler(written)
    logger.addHandler(handler)
    logger.addFilter(logs.Limited(lambda: now[0]))
    for now[0] in (0.0, 59.0):
        for _ in range(500):
            logger.warning("broken")
        logger.warning("of another text")
        logger.error("an error")
    said = written.getvalue().splitlines()
    assert {text: said.count(text) for text in said} == {"broken": 10, "of another text": 2, "an error": 2}
    now[0] = 60.0
    logger.warning("broken")
    logger.warning("broken")
    assert written.getvalue().splitlines()[len(said) :] == ["broken (990 more were not logged)", "broken"]
