"""Decisions per second over HTTP, durably, against bare endpoints that answer a constant.

`wrk` sends the same body to both, on loopback, in turns of one run. A bare endpoint (Starlette + msgspec)
parses the body; one of them also stores it, with a commit of its own. The service decides, and stores each
decision on disk before it answers. With FEDFAIRX_BEFORE=PATH, the `src` folder of another checkout, batches
and decisions among many names are compared with that version.
"""

from __future__ import annotations

import json
import os
import re
import shutil
import socket
import subprocess
import sys
import tempfile
import time
import urllib.error
import urllib.request
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from dataclasses import dataclass
from pathlib import Path

import numpy as np

from measure import Report, main

ARMS, DIMENSION = 10, 5
MANY, ONE = 64, 1  # connections
BATCH, NAMES = 100, 1_000
CONTEXTS = np.round(np.random.default_rng(0).random((ARMS, DIMENSION)) / np.sqrt(DIMENSION), 4).tolist()
SCRIPT = """
wrk.headers["Content-Type"] = "application/json"
local body = '%s'
local waiting = {}
function request()
  local id = %s and table.remove(waiting)
  if id then return wrk.format("PUT", "/v1/decisions/" .. id .. "/reward", nil, '{"reward": 0.5}') end
  return wrk.format("POST", "%s", nil, body)
end
%s
"""
REMEMBER = """
function response(status, headers, body)
  local id = string.match(body, '"decision_id":"([^"]+)"')
  if id then table.insert(waiting, id) end
end
"""


@dataclass(frozen=True)
class Held:
    """The results of wrk."""

    rate: float  # answers per second
    median: float  # milliseconds
    p99: float
    refused: int
    cpu: float  # µs of the server's process per answer


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def started(command: list[str], port: int, path: str, source: str | None = None) -> Iterator[int]:
    """Run a server until the end of the block, from this source folder if one is given; yield its process."""
    environment = os.environ if source is None else {**os.environ, "PYTHONPATH": source}
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL, env=environment)
    try:
        for _ in range(600):
            try:
                urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=1).close()
                break
            except urllib.error.HTTPError:
                break
            except OSError:
                time.sleep(0.1)
        yield process.pid
    finally:
        process.terminate()
        process.wait()


def cpu_of(process: int) -> float:
    fields = Path(f"/proc/{process}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / os.sysconf("SC_CLK_TCK")


def ask(port: int, process: int, seconds: float, script: str, connections: int) -> Held:
    """Run wrk for some seconds."""
    before = cpu_of(process)
    done = subprocess.run(
        [
            "wrk",
            "-t1",
            f"-c{connections}",
            f"-d{seconds:g}s",
            "--latency",
            "-s",
            script,
            f"http://127.0.0.1:{port}",
        ],
        capture_output=True,
        text=True,
        check=True,
    ).stdout
    rate = float(re.search(r"Requests/sec:\s+([\d.]+)", done)[1])  # type: ignore[index]
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", done)
    answers = int(re.search(r"(\d+) requests in", done)[1])  # type: ignore[index]
    cpu = (cpu_of(process) - before) / answers * 1e6
    return Held(rate, _latency(done, 50), _latency(done, 99), int(refused[1]) if refused else 0, cpu)


def _latency(said: str, quantile: int) -> float:
    """Milliseconds, from what wrk says."""
    value, unit = re.search(rf"{quantile}%\s+([\d.]+)(us|ms|s)", said).groups()  # type: ignore[union-attr]
    return float(value) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[unit]


def script(
    folder: Path, name: str, body: object, path: str = "/v1/decisions", *, rewards: bool = False
) -> str:
    file = folder / f"{name}.lua"
    remember = REMEMBER if rewards else ""
    file.write_text(SCRIPT % (json.dumps(body), "true" if rewards else "false", path, remember))
    return str(file)


@dataclass(frozen=True)
class Server:
    """A server under test."""

    port: int
    process: int


class Servers:
    """Starts servers, and stops all of them at the end."""

    def __init__(self, stack: ExitStack, folder: Path) -> None:
        self._stack, self._folder = stack, folder

    def bare(self, *more: str) -> Server:
        port = free_port()
        command = [sys.executable, str(Path(__file__).with_name("bare_service.py")), str(port), *more]
        return Server(port, self._stack.enter_context(started(command, port, "/")))

    def service(self, *flags: str, source: str | None = None) -> Server:
        port = free_port()
        data = str(self._folder / f"data-{port}")
        command = [sys.executable, "-m", "fedfairx", "serve", "--data", data, "--port", str(port), *flags]
        return Server(port, self._stack.enter_context(started(command, port, "/healthz", source)))


def in_turns(
    servers: dict[str, Server], turns: int, seconds: float, script: str, connections: int
) -> dict[str, list[Held]]:
    """Ask servers in turns, every other one in reverse order: short ones, so that all meet the same load."""
    found: dict[str, list[Held]] = {name: [] for name in servers}
    for turn in range(turns):
        order = list(servers.items())
        for name, server in order if turn % 2 == 0 else reversed(order):
            found[name].append(ask(server.port, server.process, seconds, script, connections))
    return found


def after_starts(
    folder: Path, starts: int, turns: int, seconds: float, script: str
) -> tuple[dict[str, list[Held]], dict[str, list[Held]]]:
    """Turns over many connections and over one, for several starts of the servers.

    A process is up to a tenth faster or slower than another of the same code, for as long as it runs: it
    depends on Python's random hashes of texts.
    """
    many: dict[str, list[Held]] = {"bare": [], "service": []}
    one: dict[str, list[Held]] = {"bare": [], "service": []}
    for start in range(starts):
        with ExitStack() as stack:
            servers = Servers(stack, folder)
            service = servers.service("--dimension", str(DIMENSION))
            storing = servers.bare(str(folder / f"bodies-{start}.db"))
            for found, bare, connections in ((many, servers.bare(), MANY), (one, storing, ONE)):
                pair = {"bare": bare, "service": service}
                for name, held in in_turns(pair, turns, seconds, script, connections).items():
                    found[name] += held
    return many, one


def run(report: Report) -> None:
    if shutil.which("wrk") is None:
        report.note("wrk is not installed: nothing was measured")
        return
    starts, turns, seconds, long = (1, 2, 2.0, 3.0) if report.quick else (5, 20, 2.0, 60.0)
    names = [f"worker-{k:04d}" for k in range(NAMES)]
    before = os.environ.get("FEDFAIRX_BEFORE")
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        servers = Servers(stack, folder)
        decisions = script(folder, "decisions", {"contexts": CONTEXTS})
        many, one = after_starts(folder, starts, turns // starts, seconds, decisions)
        title = f"Decisions over HTTP, K={ARMS}, d={DIMENSION}, {MANY} connections"
        report.heading(f"{title}, {starts} starts of the servers")
        compare(report, "bare endpoint", many, at_least=0.6)
        report.heading(f"The same over {ONE} connection, compared with a commit for each request")
        compare(report, "bare endpoint with a commit", one, at_least=0.6)
        batch = script(
            folder, "batch", {"decisions": [{"contexts": CONTEXTS}] * BATCH}, "/v1/decisions/batch"
        )
        named = script(folder, "named", {"actions": names})
        for title, flags, wanted, count, goal in (
            (f"Batches of {BATCH}", ("--dimension", str(DIMENSION)), batch, BATCH, 0.5),
            (f"Decisions among {NAMES} names", ("--actions", ",".join(names)), named, 1, 1 / 3),
        ):
            report.heading(f"{title}, 8 connections")
            pair = {"now": servers.service(*flags)}
            if before is not None:
                pair["before"] = servers.service(*flags, source=before)
            each = in_turns(pair, turns, seconds, wanted, 8)
            cost = {name: np.array([one.cpu for one in all_]) / count for name, all_ in each.items()}
            report.add("CPU of a decision", float(np.median(cost["now"])), "µs")
            report.add("answers that were no success", sum(one.refused for one in each["now"]), "", at_most=0)
            if before is not None:
                report.ratio("CPU of a decision ÷ before", cost["now"] / cost["before"], at_most=goal)
        report.heading(f"Decisions and rewards at the same rate for {long:g} s, one process")
        mixed = script(folder, "mixed", {"contexts": CONTEXTS}, rewards=True)
        service = servers.service("--dimension", str(DIMENSION))
        both = ask(service.port, service.process, long, mixed, MANY)
        report.add("decisions per second, and as many rewards", both.rate / 2, "1/s")
        report.add("p99", both.p99, "ms")
        report.add("answers that were no success", both.refused, "", at_most=0)


def compare(report: Report, name: str, found: dict[str, list[Held]], *, at_least: float) -> None:
    for title, held in ((name, found["bare"]), ("service, durable", found["service"])):
        report.add(f"{title}: answers per second", float(np.median([one.rate for one in held])), "1/s")
        report.add(f"{title}: p99", float(np.median([one.p99 for one in held])), "ms")
        report.add(f"{title}: CPU of an answer", float(np.median([one.cpu for one in held])), "µs")
        report.add(f"{title}: answers that were no success", sum(one.refused for one in held), "", at_most=0)
    pairs = zip(found["service"], found["bare"], strict=True)
    ratios = np.array([mine.rate / floor.rate for mine, floor in pairs])
    report.ratio(f"service ÷ {name}, answers per second", ratios, at_least=at_least)


if __name__ == "__main__":
    main("service", run, __doc__)
