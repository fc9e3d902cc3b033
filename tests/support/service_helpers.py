"""A service to ask: in this process, or in one of its own that can be killed."""

from __future__ import annotations

import atexit
import functools
import json
import os
import re
import signal
import socket
import subprocess
import sys
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from datetime import UTC, datetime, timedelta
from pathlib import Path
from typing import IO, Any

from cryptography import x509
from cryptography.hazmat.primitives import hashes
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import Encoding, NoEncryption, PrivateFormat

from fedfairx.service.app import make_app
from fedfairx.service.factory import open_service
from fedfairx.service.settings import Settings, load
from in_process_client import InProcessClient

CONTEXTS = [[0.1, 0.2, 0.3], [0.3, 0.2, 0.1], [0.2, 0.2, 0.2]]
ACTIONS = [
    {"id": "ann", "features": [0.1, 0.2, 0.3], "group": "small"},
    {"id": "ben", "features": [0.3, 0.2, 0.1], "group": "large"},
    {"id": "cat", "features": [0.2, 0.2, 0.2]},
]


def settings_for(place: str, **given: Any) -> Settings:
    """Settings of a service that lives in `place`: a folder, or a PostgreSQL address."""
    where = {"database": place} if place.startswith("postgresql:") else {"data": str(Path(place).parent)}
    if not {"features", "dimension", "actions"} & given.keys():
        given = {"dimension": 3, **given}
    return load({**where, **given}, environment={})


@contextmanager
def asking(place: str, **given: Any) -> Iterator[InProcessClient]:
    """A client of a service in this process."""
    app = make_app(open_service(settings_for(place, **given)))
    with InProcessClient(app, base_url="http://127.0.0.1", raise_server_exceptions=False) as client:
        yield client


def decide(client: Any, **more: Any) -> dict[str, Any]:
    """A decision among `CONTEXTS`."""
    headers = {"idempotency-key": more.pop("key")} if "key" in more else {}
    body = {"contexts": CONTEXTS, **more} if "actions" not in more else more
    answer = client.post("/v1/decisions", json=body, headers=headers)
    assert answer.status_code == 201, answer.text
    made: dict[str, Any] = answer.json()
    return made


def metrics_of(client: Any) -> str:
    """The metrics of a service with one agent, whose name is left out."""
    text: str = client.get("/metrics").text
    return re.sub(r'{agent="[^"]*",?', "{", text).replace("{}", "")


def self_signed(folder: Path) -> list[str]:
    """A certificate for localhost, as flags of `serve`; the file `cert.pem` is also who signed it."""
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(x509.NameOID.COMMON_NAME, "localhost")])
    now = datetime.now(UTC)
    certificate = (
        x509.CertificateBuilder(name, name, key.public_key(), x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=1))
        .add_extension(x509.SubjectAlternativeName([x509.DNSName("localhost")]), critical=False)
        .sign(key, hashes.SHA256())
    )
    (folder / "cert.pem").write_bytes(certificate.public_bytes(Encoding.PEM))
    secret = key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption())
    (folder / "key.pem").write_bytes(secret)
    return ["--tls-certificate", str(folder / "cert.pem"), "--tls-key", str(folder / "key.pem")]


@functools.cache
def _nursery() -> socket.socket:
    """The process that all services of this session are forked from (`nursery.py`)."""
    ours, theirs = socket.socketpair(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    program = str(Path(__file__).with_name("nursery.py"))
    with theirs:
        process = subprocess.Popen([sys.executable, program], stdin=theirs, stdout=subprocess.DEVNULL)
    atexit.register(process.wait)
    atexit.register(ours.close)  # before it is waited for: it ends then
    return ours


def _fork(arguments: list[str], said: int, *, folder: str = "", member: str = "") -> int:
    """Start `fedfairx`, and return its process id; `said` is the file for what it says.

    folder: where it runs, with standard output into the same file; by default here, without an output.
    """
    wanted = {
        "arguments": arguments,
        "environment": dict(os.environ),
        "folder": folder,
        "member": member,
    }
    socket.send_fds(_nursery(), [json.dumps(wanted).encode()], [said])
    return int(_nursery().recv(100))


def _is_gone(process: int) -> bool:
    try:
        os.kill(process, 0)
    except ProcessLookupError:
        return True
    return False


class Forked:
    """`fedfairx` in a process of its own, with what `fedfairx.demo.launcher` asks of a `Popen`."""

    def __init__(self, arguments: list[str], *, log: Path, cwd: Path) -> None:
        member = arguments[arguments.index("--federation") + 1]
        with log.open("wb") as file:
            self._process = _fork(arguments, file.fileno(), folder=str(cwd.absolute()), member=member)

    def poll(self) -> int | None:
        return 0 if _is_gone(self._process) else None

    def terminate(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGTERM)

    def kill(self) -> None:
        with suppress(ProcessLookupError):
            os.kill(self._process, signal.SIGKILL)

    def wait(self, timeout: float = 30.0) -> None:
        until(lambda: _is_gone(self._process), seconds=timeout)


class Running:
    """`fedfairx serve` in a process of its own, which can be killed and started again."""

    def __init__(self, place: str, *flags: str, start: bool = True) -> None:
        where = (
            ["--database", place] if place.startswith("postgresql:") else ["--data", str(Path(place).parent)]
        )
        self._set("serve", "--port", "0", *where, *flags)
        if start:
            self.start()

    @classmethod
    def member(cls, folder: Path, *flags: str, start: bool = True) -> Running:
        """A member of a federation, in its folder."""
        made = cls.__new__(cls)
        made._set("serve", "--port", "0", "--federation", str(folder), *flags, member=str(folder))
        if start:
            made.start()
        return made

    def _set(self, *arguments: str, member: str = "") -> None:
        self._arguments, self._member = list(arguments), member
        self._errors: IO[str] | None = None
        self.said = ""

    def start(self, *, die: str = "", until: str = "serves") -> None:
        """Start it, and wait until it serves or waits; `die` is where it will kill itself (`nursery`)."""
        self.close()
        dying = [f"die:{die}"] if die else []
        read, write = os.pipe()
        self._errors = open(read, encoding="utf-8")  # noqa: SIM115 (closed with the process)
        try:
            self._process = _fork([*dying, *self._arguments], write, member=self._member)
        finally:
            os.close(write)
        self.listen(until)

    def listen(self, until: str = "serves") -> None:
        """Read what it says until it serves or waits."""
        assert self._errors is not None
        patience = threading.Timer(120.0, os.kill, (self._process, signal.SIGKILL))
        patience.start()
        try:
            for line in self._errors:
                self.said += line
                found = re.search(rf"{until} on (https?://\S+)", line)
                if found:
                    self.url = found[1]
                    return
                if "fedfairx: " in line:  # it was refused
                    break
        finally:
            patience.cancel()
        self.close()
        raise AssertionError(f"it did not start: {self.said}")

    def kill(self) -> None:
        """As the power going off would, for the process."""
        self._end(signal.SIGKILL)

    def stop(self) -> None:
        """As its owner would, and for good."""
        self._end(signal.SIGTERM)
        self.close()

    def pause(self) -> None:
        """As a machine that stands still would; `resume` ends it."""
        os.kill(self._process, signal.SIGSTOP)

    def resume(self) -> None:
        os.kill(self._process, signal.SIGCONT)

    def close(self) -> None:
        """Read what it still says, until it has ended."""
        if self._errors is not None:
            self.said += self._errors.read()
            self._errors.close()
            self._errors = None

    def _end(self, how: int) -> None:
        os.kill(self._process, how)
        until(self.gone, seconds=30)

    def gone(self) -> bool:
        return _is_gone(self._process)


def until(true: Any, *, seconds: float = 10.0) -> None:
    """Wait until something holds."""
    end, pause = time.monotonic() + seconds, 0.001
    while not true():
        assert time.monotonic() < end, "it did not come about"
        time.sleep(pause)
        pause = min(1.5 * pause, 0.02)
