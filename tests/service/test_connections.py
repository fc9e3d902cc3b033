"""Clients that send too much, too slowly or from too many connections, against a server that really runs."""

from __future__ import annotations

import json
import socket
import sqlite3
import ssl
import time
from collections.abc import Iterator
from contextlib import ExitStack, closing, contextmanager
from pathlib import Path

import httpx
import pytest

from service_helpers import CONTEXTS, Running, decide, self_signed, until

pytestmark = pytest.mark.process

GET = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\n"
POST = b"POST /v1/decisions HTTP/1.1\r\nHost: localhost\r\nContent-Type: application/json\r\n"
PATIENT = 30.0  # seconds after which a test gives up


@contextmanager
def serving(folder: Path, **limits: float) -> Iterator[Running]:
    flags = [part for name, value in limits.items() for part in (f"--{name.replace('_', '-')}", f"{value:g}")]
    running = Running(str(folder / "agent.db"), "--dimension", "3", *flags)
    try:
        yield running
    finally:
        running.stop()


def connect(running: Running, first: bytes = b"") -> socket.socket:
    host, port = running.url.rpartition("/")[2].split(":")
    made = socket.create_connection((host, int(port)), timeout=PATIENT)
    made.sendall(first)
    return made


def rest(connection: socket.socket) -> bytes:
    """All that still comes, until the other side ends it."""
    parts = []
    try:
        while part := connection.recv(65_536):
            parts.append(part)
    except ConnectionResetError:
        pass
    return b"".join(parts)


def ended(connection: socket.socket) -> bool:
    """Whether the other side has ended it by now."""
    connection.setblocking(False)
    try:
        return not connection.recv(65_536) or ended(connection)
    except BlockingIOError:
        return False
    except ConnectionResetError:
        return True


def problem(answer: bytes) -> tuple[int, str]:
    head, _, body = answer.partition(b"\r\n\r\n")
    lines = head.lower().split(b"\r\n")
    assert {b"connection: close", b"cache-control: no-store", b"x-content-type-options: nosniff"} <= set(
        lines
    )
    found = json.loads(body)
    assert found["remedy"]
    return int(head.split()[1]), found["type"].rpartition(":")[2]


@pytest.fixture(scope="module")
def strict(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service with little time."""
    with serving(tmp_path_factory.mktemp("strict"), header_seconds=0.5, body_seconds=0.5) as running:
        yield running


@pytest.fixture(scope="module")
def narrow(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Running]:
    """A service with much time, and little room."""
    with serving(tmp_path_factory.mktemp("narrow"), max_header=8_192) as running:
        yield running


def test_a_header_that_is_too_long(narrow: Running) -> None:
    for size, status in ((8_000, 200), (8_300, 431), (200_000, 431)):  # at once
        with closing(connect(narrow, GET + b"X: " + b"x" * size + b"\r\nConnection: close\r\n\r\n")) as one:
            assert int(rest(one).split()[1]) == status, size
    with closing(connect(narrow, GET)) as one, httpx.Client(base_url=narrow.url, verify=False) as http:
        for _ in range(9):  # in parts, none of them long
            assert http.get("/healthz").status_code == 200  # the part before has been read by then
            one.sendall(b"X: " + b"x" * 1_000 + b"\r\n")
        assert problem(rest(one)) == (431, "long-header")
    with closing(connect(narrow, b"GET /" + b"x" * 9_000 + b" HTTP/1.1\r\nHost: localhost\r\n\r\n")) as one:
        assert problem(rest(one)) == (431, "long-header")


def test_a_header_without_end(narrow: Running) -> None:
    """80 MB of it kept others waiting for 22 seconds."""
    with closing(connect(narrow, GET + b"X: ")) as one:
        sent = 0
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            while sent < 80_000_000:
                sent += one.send(b"x" * 65_536)
        assert sent < 16_000_000  # what fits into the system's buffers
    assert httpx.get(f"{narrow.url}/healthz", verify=False).status_code == 200


def test_many_pipelined_requests_are_no_long_header(narrow: Running) -> None:
    body = json.dumps({"contexts": CONTEXTS}).encode()
    one = POST + b"Content-Length: %d\r\n\r\n" % len(body) + body
    last = GET + b"Connection: close\r\n\r\n"
    with closing(connect(narrow, one * 100 + last)) as connection:
        answer = rest(connection)
    assert answer.count(b"HTTP/1.1 201") == 100
    assert answer.count(b"HTTP/1.1 200") == 1


def test_a_header_that_does_not_come(strict: Running) -> None:
    whole = GET + b"\r\n"
    with ExitStack() as stack:
        silent, half, second = (
            stack.enter_context(closing(connect(strict, first))) for first in (b"", GET, whole + GET)
        )
        assert rest(silent) == b""
        assert problem(rest(half)) == (408, "slow")
        first, _, then = rest(second).partition(b'{"status":"alive"}')
        assert first.startswith(b"HTTP/1.1 200")
        assert problem(then) == (408, "slow")


def test_a_body_that_does_not_come(strict: Running) -> None:
    parts = (b"Content-Length: 100\r\n\r\n{", b"Transfer-Encoding: chunked\r\n\r\n5\r\n{")
    with ExitStack() as stack:
        for one in [stack.enter_context(closing(connect(strict, POST + part))) for part in parts]:
            assert problem(rest(one)) == (408, "slow")


def test_a_body_may_take_longer_than_a_header(tmp_path: Path) -> None:
    body = json.dumps({"contexts": CONTEXTS}).encode()
    begun = POST + b"Content-Length: %d\r\n\r\n" % len(body) + body[:9]
    with (
        serving(tmp_path, header_seconds=0.5, body_seconds=60) as running,
        closing(connect(running, begun)) as one,
    ):
        with closing(connect(running, GET)) as other:
            rest(other)  # its time is past
        one.sendall(body[9:])
        assert one.recv(12) == b"HTTP/1.1 201"


def test_who_was_refused_may_not_stay(tmp_path: Path) -> None:
    """Its body is not read, and comes byte by byte."""
    from test_auth import new_key

    new_key(str(tmp_path / "agent.db"), "writer")
    begun = POST + b"Content-Length: 1000\r\n\r\n{"
    with serving(tmp_path, header_seconds=0.5) as running, closing(connect(running, begun)) as one:
        assert one.recv(12) == b"HTTP/1.1 401"
        with pytest.raises((ConnectionResetError, BrokenPipeError)):
            for _ in range(500):
                one.sendall(b" ")
                time.sleep(0.02)


def test_trailers_without_end(narrow: Running) -> None:
    """50 MB of them took 1 GB of the service's memory."""
    chunks = POST + b"Transfer-Encoding: chunked\r\n\r\n2\r\n{}\r\n0\r\n"
    with closing(connect(narrow, chunks)) as one, httpx.Client(base_url=narrow.url, verify=False) as http:
        for _ in range(9):
            assert http.get("/healthz").status_code == 200  # the part before has been read by then
            one.sendall(b"a:b\r\n" * 200)
        assert problem(rest(one)) == (431, "long-header")


def test_a_key_in_a_trailer_is_none(tmp_path: Path) -> None:
    from test_auth import new_key

    body = json.dumps({"contexts": CONTEXTS}).encode()
    key = b"Authorization: Bearer " + new_key(str(tmp_path / "agent.db"), "writer").encode() + b"\r\n"
    chunks = b"Transfer-Encoding: chunked\r\n\r\n%x\r\n" % len(body) + body + b"\r\n0\r\n"
    with serving(tmp_path) as running:
        for request, status in ((POST + chunks + key, b"401"), (POST + key + chunks, b"201")):
            with closing(connect(running, request + b"\r\n")) as one:
                assert one.recv(12) == b"HTTP/1.1 " + status


def test_what_is_no_http(narrow: Running) -> None:
    for sent in (b"\x16\x03\x01\x02\x00\x01\x00", b"GET /\xff\xfe HTTP/1.1\r\n\r\n", b"nonsense\r\n\r\n"):
        with closing(connect(narrow, sent)) as one:
            assert problem(rest(one)) == (400, "no-http")


def test_what_proxies_read_in_different_ways(narrow: Running) -> None:
    two = b"GET /healthz HTTP/1.1\r\nHost: localhost\r\nhOST: localhost\r\n\r\n"
    old, new = (GET.replace(b"1.1", version) + b"\r\n" for version in (b"0.9", b"2.0"))
    for sent in (two, old, new, b"GET /healthz\r\n\r\n"):
        with closing(connect(narrow, sent)) as one:
            answer = rest(one)
            assert problem(answer) == (400, "no-http"), sent
            assert b"HTTP/1.0 or HTTP/1.1, with one Host" in answer
    for sent in (GET + b"Connection: close\r\n\r\n", b"GET /healthz HTTP/1.0\r\n\r\n"):
        with closing(connect(narrow, sent)) as one:
            assert rest(one).startswith(b"HTTP/1.1 200")


def test_broken_requests_do_not_fill_the_log(tmp_path: Path) -> None:
    with serving(tmp_path) as running:
        for _ in range(50):
            with closing(connect(running, b"nonsense\r\n\r\n")) as one:
                assert problem(rest(one)) == (400, "no-http")
    assert running.said.count("Invalid HTTP request received") == 10


def test_too_many_connections(tmp_path: Path) -> None:
    """1500 half-sent requests were all held; now those go that are old, and whoever asks is answered."""
    with serving(tmp_path, max_connections=50, header_seconds=600) as running, ExitStack() as stack:
        held = [stack.enter_context(closing(connect(running, GET))) for _ in range(200)]
        for _ in range(20):
            assert httpx.get(f"{running.url}/healthz", timeout=PATIENT, verify=False).status_code == 200
        left = [one for one in held if not ended(one)]
        assert 40 <= len(left) <= 50
        assert not set(held[:100]) & set(left)  # the oldest have gone


def test_who_is_served_stays(tmp_path: Path) -> None:
    """Requests under way are not ended for those who come; these are told that there are too many."""
    with serving(tmp_path, max_connections=5, header_seconds=600) as running, ExitStack() as stack:
        with httpx.Client(base_url=running.url, verify=False) as http:
            decide(http)
        body = json.dumps({"contexts": CONTEXTS}).encode()
        other = sqlite3.connect(tmp_path / "agent.sqlite", isolation_level=None)
        other.execute("BEGIN IMMEDIATE")  # decisions wait for it
        request = POST + b"Content-Length: %d\r\nConnection: close\r\n\r\n" % len(body) + body
        served = [stack.enter_context(closing(connect(running, request))) for _ in range(5)]
        until(lambda: b" 503 " in _status(running))
        other.execute("ROLLBACK")
        other.close()
        assert [rest(one).split()[1] for one in served] == [b"201"] * 5


def _status(running: Running) -> bytes:
    with closing(connect(running)) as one:
        one.settimeout(0.2)
        try:
            return rest(one)
        except TimeoutError:
            return b""


def test_a_handshake_that_does_not_come(tmp_path: Path) -> None:
    from test_auth import new_key

    new_key(str(tmp_path / "agent.db"), "writer")
    flags = ("--dimension", "3", "--header-seconds", "0.5", *self_signed(tmp_path))
    running = Running(str(tmp_path / "agent.db"), *flags)
    try:
        with closing(connect(running)) as one:
            assert rest(one) == b""
        trusted = ssl.create_default_context(cafile=str(tmp_path / "cert.pem"))
        url = running.url.replace("127.0.0.1", "localhost")
        assert httpx.get(f"{url}/healthz", verify=trusted).status_code == 200
    finally:
        running.stop()


def test_the_limits_have_defaults(tmp_path: Path) -> None:
    long = GET + b"X: " + b"x" * 33_000 + b"\r\n\r\n"
    with serving(tmp_path) as running, ExitStack() as stack:
        with closing(connect(running, long)) as one:
            assert problem(rest(one)) == (431, "long-header")
        held = [stack.enter_context(closing(connect(running, GET))) for _ in range(850)]
        assert httpx.get(f"{running.url}/healthz", timeout=PATIENT, verify=False).status_code == 200
        assert sum(not ended(one) for one in held) <= 800
