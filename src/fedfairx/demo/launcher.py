"""The services of a federation on this machine, each in its own process, and their hub if there is one."""

from __future__ import annotations

import re
import shutil
import subprocess
import sys
import time
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import Self

import numpy as np

from fedfairx.errors import FedFairXError, InvalidInput
from fedfairx.federation.roster.terms import Terms
from fedfairx.federation.setup.create import create_federation
from fedfairx.federation.setup.member_folder import MemberFolder
from fedfairx.federation.transport.flower.launcher import (
    Flower,
    answers,
    find_commands,
    free_port,
    start_process,
)
from fedfairx.storage.api_keys import open_keys
from fedfairx.util.files import write_private

PATIENCE = 180.0  # seconds until a service must listen; it may have to compile first
LOG = "service.log"
ENGINE_KEY = "engine.key"  # API key for a service's endpoints for envelopes
GAP = 1.0  # seconds between two of Flower's rounds


class Fleet:
    """Services of `names` in a federation with these terms, in `folder`; they run inside `with`.

    seed: seed of the agents' random draws; without it they are not repeatable.
    port: port of the first service, by default any; those of the others are free ones.
    """

    def __init__(
        self,
        folder: Path,
        names: Sequence[str],
        terms: Terms,
        *,
        transport: str,
        decide_from: str | None = None,
        seed: int | None = None,
        flower: str | None = None,
        port: int = 0,
    ) -> None:
        self.folder = folder.resolve()  # processes run in other folders
        self.names = tuple(names)
        self._terms = terms
        self._transport = transport
        self._decide_from = decide_from
        self._seed = seed
        self._port = port
        self._processes: dict[str, subprocess.Popen[bytes]] = {}
        self._commands = find_commands(flower) if transport == "flower" else None
        self.flower: Flower | None = None
        self.urls: Mapping[str, str] = {}
        self.keys: dict[str, str] = {}  # API keys for the services, if these need one

    def database(self, name: str) -> Path:
        """The database of a service's agent."""
        return self.folder / name / "data" / "agent.sqlite"

    def __enter__(self) -> Self:
        try:
            port = free_port()
            create_federation(
                self.folder,
                self._terms,
                dict.fromkeys(self.names),
                transport=self._transport,
                hosts=("127.0.0.1", "localhost"),
                port=port,
                confirm=True,  # all folders are on this machine
            )
            if self._transport == "nats":
                self._start_hub(port)
            for place, name in enumerate(self.names):
                self._make_agent(name, place)
                if self._transport == "flower":
                    self._make_keys(name)
                self._start(name)
            self.urls = {name: self._listens(name) for name in self.names}
            if self._commands is not None:
                self._start_flower(self._commands, port)
        except BaseException:
            self.stop()
            raise
        return self

    def __exit__(self, *_: object) -> None:
        self.stop()

    def stop(self) -> None:
        """Stop all processes, the hub last."""
        if self.flower is not None:
            self.flower.stop()
        for process in self._processes.values():
            process.terminate()
        for process in self._processes.values():
            try:
                process.wait(30)
            except subprocess.TimeoutExpired:
                process.kill()
                process.wait()
        self._processes = {}

    def _start(self, name: str) -> None:
        command = [sys.executable, "-m", "fedfairx", "serve", "--federation", str(self.folder / name)]
        command += ["--port", str(self._port if name == self.names[0] else 0)]
        if self._decide_from is not None:
            command += ["--decide-from", self._decide_from]
        self._launch(name, command, cwd=self.folder)

    def _start_hub(self, port: int) -> None:
        program = shutil.which("nats-server")
        if program is None:
            raise InvalidInput("transport must be sqlite: there is no nats-server on this machine")
        hub = self.folder / "hub"
        config = hub / "nats-server.conf"
        config.write_text(config.read_text().replace('"0.0.0.0:', '"127.0.0.1:'))
        self._launch("hub", [program, "-c", config.name], cwd=hub)
        _until(lambda: answers(port), "the nats-server")
        from fedfairx.federation.transport.nats import make_bucket

        place = MemberFolder.read(hub)
        rows = place.roster.terms.secure
        make_bucket(place.servers, federation=place.roster.federation, tls=place.tls, rows=rows)

    def _make_agent(self, name: str, place: int) -> None:
        database = self.database(name)
        database.parent.mkdir(mode=0o700)
        seed = None if self._seed is None else int(np.random.default_rng([self._seed, place]).integers(2**32))
        self._terms.open_agent(name, database, decide_from=self._decide_from, seed=seed).close()

    def _make_keys(self, name: str) -> None:
        """Make an API key for the SuperNode, for envelopes only, and one for the demonstration."""
        with open_keys(self.database(name)) as keys:
            write_private(self.folder / name / ENGINE_KEY, keys.add("SuperNode", "federation").encode())
            self.keys[name] = keys.add("demonstration", "admin")

    def _start_flower(self, commands: Path, port: int) -> None:
        services = {name: (self.urls[name], self.folder / name / ENGINE_KEY) for name in self.names}
        self.flower = Flower(self.folder, services, commands=commands, port=port, gap=GAP)
        self.flower.start()

    def _launch(self, name: str, command: Sequence[str], *, cwd: Path) -> None:
        process = start_process(command, log=self.folder / name / LOG, cwd=cwd)
        self._processes = {name: process, **self._processes}  # the hub, started first, is stopped last

    def _listens(self, name: str) -> str:
        log, process = self.folder / name / LOG, self._processes[name]
        addresses: list[str] = []

        def listening() -> bool:
            text = log.read_text(errors="replace")
            if process.poll() is not None:
                raise FedFairXError(f"the service of {name} did not start: {text.strip()[-500:]}")
            addresses[:] = re.findall(r"serves on (http://\S+)", text)
            return bool(addresses)

        _until(listening, f"the service of {name}")
        return addresses[0]


def _until(met: Callable[[], bool], what: str) -> None:
    ends = time.monotonic() + PATIENCE
    while not met():
        if time.monotonic() > ends:
            raise FedFairXError(f"{what} did not listen within {PATIENCE:.0f} seconds")
        time.sleep(0.05)
