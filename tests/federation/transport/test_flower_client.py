"""The Flower ClientApp: what it asks of its agent's service, what it tells, and what it keeps to itself."""

from __future__ import annotations

import base64
import json
import threading
from collections.abc import Iterator
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from flower_app import Message, RecordDict, flower_app


@pytest.fixture
def app() -> Iterator[tuple[Any, Any, list[str]]]:
    with flower_app() as modules:
        yield modules


class Service:
    """Two doors that answer what they are told to, and remember who came."""

    def __init__(self) -> None:
        self.came: list[tuple[str, str, str | None, bytes]] = []
        self.answers: dict[str, tuple[int, bytes]] = {
            "PUT": (200, b'{"taken": [], "refused": {}, "alive": "bGlmZQ=="}'),
            "GET": (200, json.dumps({"envelope": base64.b64encode(b"sealed").decode()}).encode()),
        }
        service = self

        class Handler(BaseHTTPRequestHandler):
            def do_GET(self) -> None:
                body = self.rfile.read(int(self.headers.get("content-length", 0)))
                service.came.append((self.command, self.path, self.headers["authorization"], body))
                status, answer = service.answers[self.command]
                self.send_response(status)
                if status == 307:
                    self.send_header("location", "/elsewhere")
                self.send_header("content-length", str(len(answer)))
                self.end_headers()
                self.wfile.write(answer)

            do_PUT = do_GET  # noqa: N815

            def log_message(self, *_: Any) -> None:
                """Not to the terminal."""

        self.server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
        threading.Thread(target=self.server.serve_forever, args=(0.01,), daemon=True).start()
        self.url = f"http://127.0.0.1:{self.server.server_port}"


@pytest.fixture
def service() -> Iterator[Service]:
    made = Service()
    yield made
    made.server.shutdown()
    made.server.server_close()


@pytest.fixture
def config(service: Service, tmp_path: Path) -> dict[str, str]:
    (tmp_path / "engine.key").write_text("KEY\n")
    return {"service": service.url, "key-file": str(tmp_path / "engine.key")}


def carried(app: Any, config: dict[str, str], board: dict[str, Any] | None = None, **run_config: str) -> Any:
    node = SimpleNamespace(node_config=config, run_config=run_config)
    asked = Message(RecordDict({"board": board or {}}))
    asked.metadata.message_id = "m1"
    reply = app[1].carry(asked, node)
    assert reply.metadata.reply_to_message_id == "m1"
    return reply.content["answer"]


def test_what_others_hold_is_brought_before_its_own_is_taken_along(
    app: Any, service: Service, config: dict[str, str]
) -> None:
    board = {"org2": b"\x00\xff", "org1": b"own", "odd": "no bytes"}
    assert carried(app, config, board) == {"alive": b"life", "message": b"sealed"}
    put, get = service.came
    assert put[:3] == ("PUT", "/v1/peers", "Bearer KEY")
    assert json.loads(put[3]) == {"envelopes": {"org2": "AP8=", "org1": base64.b64encode(b"own").decode()}}
    assert get == ("GET", "/v1/release/latest", "Bearer KEY", b"")


def test_one_of_several_agents_is_named_by_the_node_s_configuration(
    app: Any, service: Service, config: dict[str, str]
) -> None:
    assert carried(app, config | {"agent": "org1"}) == {"alive": b"life", "message": b"sealed"}
    carried(app, config | {"agent": "../keys?"})
    paths = [path for _, path, _, _ in service.came]
    assert paths[:2] == ["/v1/agents/org1/peers", "/v1/agents/org1/release/latest"]
    assert paths[2] == "/v1/agents/..%2Fkeys%3F/peers"


def test_a_member_whose_message_is_as_large_as_can_be_hinders_nobody(
    app: Any, service: Service, config: dict[str, str]
) -> None:
    board = {f"org{i}": bytes(2**20) for i in range(4)} | {"small": b"x"}
    assert carried(app, config, board) == {"alive": b"life", "message": b"sealed"}
    bodies = [body for method, _, _, body in service.came if method == "PUT"]
    assert all(len(body) < 4 * 2**20 for body in bodies)  # what a service takes by default
    assert [name for body in bodies for name in json.loads(body)["envelopes"]] == list(board)


def test_before_the_first_release_there_is_nothing_to_carry(
    app: Any, service: Service, config: dict[str, str]
) -> None:
    service.answers["GET"] = (404, b"{}")
    assert carried(app, config) == {"alive": b"life"}


@pytest.mark.parametrize("method", ["PUT", "GET"])
@pytest.mark.parametrize("status", [307, 401, 403, 409, 500, 503])
def test_what_the_service_refuses_is_told_as_a_number(
    app: Any, service: Service, config: dict[str, str], method: str, status: int
) -> None:
    service.answers[method] = (status, b'{"detail": "what nobody else should read"}')
    assert carried(app, config) == {"trouble": f"service answered {status}"}
    assert all(path in ("/v1/peers", "/v1/release/latest") for _, path, _, _ in service.came)  # not elsewhere


@pytest.mark.parametrize(
    "answer", [b"no json", b"[]", b'{"envelope": 7}', b'{"envelope": "\\u00e9"}', b"\xff"]
)
def test_a_strange_answer_is_told_in_one_word(
    app: Any, service: Service, config: dict[str, str], answer: bytes
) -> None:
    service.answers["GET"] = (200, answer)
    assert carried(app, config) == {"trouble": "failed"}


def test_an_answer_without_end_is_not_read(app: Any, service: Service, config: dict[str, str]) -> None:
    service.answers["GET"] = (200, b" " * (app[1].LARGEST + 1))
    assert carried(app, config) == {"trouble": "answer too large"}


def test_a_service_that_is_away(app: Any, service: Service, config: dict[str, str]) -> None:
    service.server.shutdown()
    service.server.server_close()
    assert carried(app, config) == {"trouble": "service away"}


@pytest.mark.parametrize(
    "where",
    ["http://192.0.2.1:80", "https://127.0.0.1:80", "file:///etc/passwd", "http://127.0.0.1.example.org"],
)
def test_only_this_machine_is_asked(app: Any, config: dict[str, str], where: str) -> None:
    trouble = carried(app, {**config, "service": where})["trouble"]
    assert trouble in ("service must be on loopback", "node not configured")


@pytest.mark.parametrize("missing", ["service", "key-file"])
def test_a_node_that_is_not_configured(app: Any, config: dict[str, str], missing: str) -> None:
    del config[missing]
    assert carried(app, config) == {"trouble": "node not configured"}
    assert carried(app, {**config, "key-file": "/nowhere"})["trouble"] == "node not configured"


def test_the_superlink_does_not_say_where_to_go(app: Any, service: Service, config: dict[str, str]) -> None:
    other = {"service": "http://127.0.0.1:1", "key-file": "/etc/hostname"}
    assert carried(app, config, {}, **other) == {"alive": b"life", "message": b"sealed"}
    assert service.came[0][2] == "Bearer KEY"
