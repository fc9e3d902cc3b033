"""Real nats-servers for tests: started in a temporary folder, killed and started again there."""

from __future__ import annotations

import os
import shutil
import signal
import socket
import subprocess
import threading
import time
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path

import pytest

BINARY = shutil.which("nats-server")


def require_nats() -> None:
    """Skip without a server; where servers are required, that is a failure."""
    if BINARY is None:
        text = "there is no nats-server on this machine"
        if os.environ.get("FEDFAIRX_SERVERS") == "required":
            pytest.fail(text)
        pytest.skip(text)


def free_port() -> int:
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


class NatsServer:
    """One nats-server; `config` is more of its configuration file."""

    def __init__(self, folder: Path, config: str = "", *, port: int | None = None) -> None:
        require_nats()
        self.folder, self.port = folder, port or free_port()
        folder.mkdir(parents=True, exist_ok=True)
        self.config = folder / "nats.conf"
        self.config.write_text(
            f'listen: "127.0.0.1:{self.port}"\njetstream {{ store_dir: "{folder / "store"}" }}\n{config}\n'
        )
        self.process: subprocess.Popen[bytes] | None = None

    @classmethod
    def of(cls, config: Path, port: int) -> NatsServer:
        """A server with a configuration of its own, run in that file's folder."""
        require_nats()
        server = cls.__new__(cls)
        server.folder, server.config, server.port, server.process = config.parent, config, port, None
        return server

    @property
    def url(self) -> str:
        return f"nats://127.0.0.1:{self.port}"

    def start(self) -> NatsServer:
        assert BINARY is not None
        self.log = (self.folder / "log").open("ab")
        command = [BINARY, "-c", str(self.config)]
        self.process = subprocess.Popen(command, cwd=self.folder, stdout=self.log, stderr=self.log)
        wait_until(self._listens, what=f"nats-server in {self.folder}")
        return self

    def make_bucket(self, federation: str, *, replicas: int = 1, deadline: float = 5.0) -> None:
        """As the hub's operator."""
        from fedfairx.federation.transport.nats import make_bucket

        make_bucket(self.url, federation=federation, replicas=replicas, deadline=deadline)

    def make_bucket_in(self, folder: Path) -> None:
        """As the operator of a hub with TLS, by its folder."""
        from fedfairx.federation.setup.member_folder import MemberFolder
        from fedfairx.federation.transport.nats import make_bucket

        place = MemberFolder.read(folder)
        rows = place.roster.terms.secure
        make_bucket(place.servers, federation=place.roster.federation, tls=place.tls, rows=rows)

    def _listens(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, (self.folder / "log").read_text()
        with socket.socket() as probe:
            return probe.connect_ex(("127.0.0.1", self.port)) == 0

    def kill(self) -> None:
        """kill -9."""
        if self.process is not None:
            self.process.send_signal(signal.SIGKILL)
            self.process.wait()
            self.process = None
            self.log.close()

    def pause(self) -> None:
        """As a machine that stands still would; `resume` ends it."""
        assert self.process is not None
        self.process.send_signal(signal.SIGSTOP)

    def resume(self) -> None:
        if self.process is not None:
            self.process.send_signal(signal.SIGCONT)

    def reload(self) -> None:
        """Read the configuration again, as `nats-server --signal reload` has it."""
        assert self.process is not None
        text, log = "Reloaded server configuration", self.folder / "log"
        before = log.read_text().count(text)
        self.process.send_signal(signal.SIGHUP)
        wait_until(lambda: log.read_text().count(text) > before, what="reload")


class Relay:
    """A port of its own that leads to a server's, and that can be cut."""

    def __init__(self, target: int) -> None:
        self._target, self._whole, self._open = target, True, set[socket.socket]()
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self.port = int(self._listener.getsockname()[1])
        threading.Thread(target=self._accept, daemon=True).start()

    def cut(self) -> None:
        """Close all connections, and each new one until `restore`."""
        with self._lock:
            self._whole = False
            for each in self._open:
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

    def restore(self) -> None:
        with self._lock:
            self._whole = True

    def close(self) -> None:
        """End it for good."""
        self.cut()
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        with suppress(OSError):  # it is closed
            while True:
                near, _ = self._listener.accept()
                threading.Thread(target=self._connect, args=(near,), daemon=True).start()

    def _connect(self, near: socket.socket) -> None:
        """Pass on what comes from either side, until one of them ends."""
        with near, suppress(OSError), socket.create_connection(("127.0.0.1", self._target)) as far:
            with self._lock:
                if not self._whole:
                    return
                self._open |= {near, far}
            back = threading.Thread(target=self._pass_on, args=(far, near), daemon=True)
            back.start()
            self._pass_on(near, far)
            back.join()
            with self._lock:
                self._open -= {near, far}

    def _pass_on(self, source: socket.socket, target: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(2**16):
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)


@contextmanager
def nats_server(folder: Path, config: str = "", *, federation: str | None = None) -> Iterator[NatsServer]:
    """A server, with the bucket of a federation if one is given."""
    server = NatsServer(folder, config)
    try:
        server.start()
        if federation is not None:
            server.make_bucket(federation)
        yield server
    finally:
        server.kill()


@contextmanager
def nats_cluster(folder: Path) -> Iterator[list[NatsServer]]:
    """Three servers that keep everything three times."""
    require_nats()
    routes = [free_port() for _ in range(3)]
    listed = ", ".join(f'"nats://127.0.0.1:{port}"' for port in routes)
    servers = [
        NatsServer(
            folder / str(i),
            f'server_name: "n{i}"\ncluster {{ name: "c", listen: "127.0.0.1:{port}", routes: [{listed}] }}',
        )
        for i, port in enumerate(routes)
    ]
    try:
        yield [server.start() for server in servers]
    finally:
        for server in servers:
            server.kill()


def wait_until(met: object, *, seconds: float = 20.0, what: str = "") -> None:
    """Wait for a condition, and fail after some time."""
    ends = time.monotonic() + seconds
    while not met():  # type: ignore[operator]
        assert time.monotonic() < ends, f"not in {seconds} s: {what or met}"
        time.sleep(0.01)
