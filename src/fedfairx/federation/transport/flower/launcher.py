"""Start all of Flower on one machine, for trials and tests: a SuperLink with TLS and node authentication, its
SuperExec, a SuperNode for each member, and the run. In production each organisation starts its own part.
Also helpers for starting processes on this machine.
"""

from __future__ import annotations

import json
import os
import shutil
import signal
import socket
import subprocess
import time
from collections.abc import Mapping, Sequence
from contextlib import suppress
from pathlib import Path

from fedfairx.errors import InvalidInput, StateError

COMMANDS = ("flower-superlink", "flower-superexec", "flower-supernode", "flwr")
CONNECTION = "hub"  # name of the SuperLink in `flwr`'s configuration
START = 60.0  # seconds until a part must have started


def find_commands(folder: str | os.PathLike[str] | None = None) -> Path:
    """Find the folder of Flower's commands: `bin` of the environment that it is installed in."""
    if folder is None:
        first = shutil.which(COMMANDS[0])
        if first is None:
            raise InvalidInput(
                "Flower's commands are not on the path: install fedfairx[flower] into a separate environment "
                "and give its folder (--flower ENVIRONMENT/bin)"
            )
        folder = Path(first).parent
    commands = Path(folder).resolve()
    for name in COMMANDS:
        if not (commands / name).exists():
            raise InvalidInput(f"flower must be a folder with {', '.join(COMMANDS)}, got {folder}: no {name}")
    return commands


class Flower:
    """The processes of one SuperLink, which `start` starts and `stop` stops.

    base: a federation's folder that `federate init --transport flower` has made.
    services: URL of each agent's service, such as http://127.0.0.1:8001, and the file with its API key.
    gap: seconds between two rounds.
    """

    def __init__(
        self,
        base: Path,
        services: Mapping[str, tuple[str, Path]],
        *,
        commands: Path,
        port: int,
        gap: float,
    ) -> None:
        self.base, self.services, self.port = base.resolve(), dict(services), port
        self.run_config = f"gap={float(gap)}"
        self._commands = commands
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._logs = self.base / "logs"

    def start(self) -> None:
        self._logs.mkdir(exist_ok=True)
        hub, address = self.base / "hub", f"127.0.0.1:{self.port}"
        secret = _flags(superexec_auth_secret_file=hub / "superexec.secret")
        root = _flags(root_certificates=hub / "authority.crt")
        self._begin(
            "superlink",
            "flower-superlink",
            *_flags(host="127.0.0.1", port=self.port, database=hub / "superlink.db", isolation="process"),
            *_flags(ssl_ca_certfile=hub / "authority.crt", ssl_certfile=hub / "hub.crt"),
            *_flags(ssl_keyfile=hub / "hub.key"),
            *("--enable-supernode-auth", "--disable-runtime-dependency-installation"),
            *secret,
        )
        self._wait_for_superlink()
        self._connect(address)
        self._register()
        self._begin("superexec", "flower-superexec", *_flags(runtime_api_address=address), *root, *secret)
        for name, (url, key) in self.services.items():
            self._begin(
                f"supernode-{name}",
                "flower-supernode",
                *root,
                *_flags(superlink=address, host="127.0.0.1", port=free_port()),
                *_flags(auth_supernode_private_key=self.base / name / "node.key"),
                *_flags(node_config=f'service="{url}" key-file="{key.resolve()}"'),
            )
        self._flwr("run", str(self.base / "hub" / "app"), CONNECTION, "--run-config", self.run_config)

    def _register(self) -> None:
        """Register each node's key under its member's name, unless an earlier start has done it."""
        for name in self.services:
            public = self.base / "hub" / "nodes" / f"{name}.pub"
            done = public.with_suffix(".registered")
            if not done.exists():
                self._flwr("supernode", "register", str(public), CONNECTION, "--name", name)
                done.touch()

    def stop(self) -> None:
        """Stop all process groups, nodes first, so that they can sign off."""
        nodes = [process for part, process in self._processes.items() if part.startswith("supernode-")]
        others = [process for process in self._processes.values() if process not in nodes]
        for processes in (nodes, others):
            for process in processes:
                _signal(process, signal.SIGTERM)
            for process in processes:
                with suppress(subprocess.TimeoutExpired):
                    process.wait(5.0)
                _signal(process, signal.SIGKILL)
                process.wait()
        self._processes.clear()

    @property
    def processes(self) -> dict[str, int]:
        """The process of each part, which leads the group of its children."""
        return {name: process.pid for name, process in self._processes.items()}

    def _begin(self, part: str, command: str, *arguments: str) -> None:
        self._processes[part] = start_process(
            [str(self._commands / command), *arguments],
            log=self._logs / f"{part}.log",
            cwd=self._logs,
            env=self._environment(part),
        )

    def _connect(self, address: str) -> None:
        """Configure the SuperLink's address for `flwr`."""
        home = self._logs / "flwr.home"
        home.mkdir(exist_ok=True)
        authority = json.dumps(str(self.base / "hub" / "authority.crt"))
        (home / "config.toml").write_text(
            f'[superlink]\ndefault = "{CONNECTION}"\n\n'
            f'[superlink.{CONNECTION}]\naddress = "{address}"\nroot-certificates = {authority}\n',
            encoding="utf-8",
        )

    def _flwr(self, *arguments: str) -> str:
        try:
            done = subprocess.run(
                [str(self._commands / "flwr"), *arguments],
                env=self._environment("flwr"),
                cwd=self._logs,
                capture_output=True,
                text=True,
                timeout=START,
            )
        except subprocess.TimeoutExpired:
            raise StateError(f"flwr {' '.join(arguments[:2])} did not answer within {START:.0f} s") from None
        if done.returncode != 0:
            raise StateError(f"flwr {' '.join(arguments[:2])} failed: {(done.stderr or done.stdout).strip()}")
        return done.stdout

    def _environment(self, part: str) -> dict[str, str]:
        home = self._logs / f"{part}.home"
        home.mkdir(exist_ok=True)
        path = f"{self._commands}{os.pathsep}{os.environ.get('PATH', '')}"
        environment = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
        quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
        return {**environment, **quiet, "PATH": path, "FLWR_HOME": str(home)}

    def _wait_for_superlink(self) -> None:
        ends, superlink = time.monotonic() + START, self._processes["superlink"]
        while not answers(self.port):
            ended = superlink.poll()
            if ended is not None or time.monotonic() > ends:
                why = f"does not listen on port {self.port}" if ended is None else f"has ended with {ended}"
                raise StateError(f"superlink {why}; see {self._logs / 'superlink.log'}")
            time.sleep(0.1)


def start_process(
    command: Sequence[str], *, log: Path, cwd: Path, env: Mapping[str, str] | None = None
) -> subprocess.Popen[bytes]:
    """Start a process that writes to a log file and leads its own group, which Ctrl-C does not reach."""
    with log.open("wb") as file:
        return subprocess.Popen(
            command,
            cwd=cwd,
            env=env,
            stdin=subprocess.DEVNULL,
            stdout=file,
            stderr=file,
            start_new_session=True,
        )


def free_port() -> int:
    """A port that is free now."""
    with socket.socket() as probe:
        probe.bind(("127.0.0.1", 0))
        return int(probe.getsockname()[1])


def answers(port: int) -> bool:
    """Whether a process of this machine listens on a port."""
    with socket.socket() as probe:
        return probe.connect_ex(("127.0.0.1", port)) == 0


def _flags(**options: object) -> list[str]:
    """Convert keywords to flags: port=1 becomes --port 1."""
    return [text for name, value in options.items() for text in (f"--{name.replace('_', '-')}", str(value))]


def _signal(process: subprocess.Popen[bytes], which: int) -> None:
    with suppress(ProcessLookupError):
        os.killpg(process.pid, which)
