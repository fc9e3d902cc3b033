"""Decisions per second over HTTP, durably, against a bare endpoint that answers a constant.

`wrk` sends the same body over the same connections to both, on loopback, in turns of one run. The bare
endpoint (Starlette + msgspec) parses the body and stores nothing; the service decides, and stores each
decision on disk before it answers.
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

ARMS, DIMENSION, CONNECTIONS = 10, 5, 256
CONTEXTS = np.round(np.random.default_rng(0).random((ARMS, DIMENSION)) / np.sqrt(DIMENSION), 4).tolist()
SCRIPT = """
wrk.headers["Content-Type"] = "application/json"
local body = '%s'
local waiting = {}
function request()
  local id = %s and table.remove(waiting)
  if id then return wrk.format("PUT", "/v1/decisions/" .. id .. "/reward", nil, '{"reward": 0.5}') end
  return wrk.format("POST", "/v1/decisions", nil, body)
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
    p99: float  # milliseconds
    refused: int
    cpu: float  # µs of the server's process per answer


def free_port() -> int:
    with socket.socket() as found:
        found.bind(("127.0.0.1", 0))
        return int(found.getsockname()[1])


@contextmanager
def started(command: list[str], port: int, path: str) -> Iterator[int]:
    """Run a server until the end of the block; yield its process."""
    process = subprocess.Popen(command, stdout=subprocess.DEVNULL, stderr=subprocess.DEVNULL)
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


def ask(port: int, process: int, seconds: float, script: str) -> Held:
    """Run wrk for some seconds."""
    before = cpu_of(process)
    done = subprocess.run(
        [
            "wrk",
            "-t1",
            f"-c{CONNECTIONS}",
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
    value, unit = re.search(r"99%\s+([\d.]+)(us|ms|s)", done).groups()  # type: ignore[union-attr]
    refused = re.search(r"Non-2xx or 3xx responses: (\d+)", done)
    p99 = float(value) * {"us": 1e-3, "ms": 1.0, "s": 1e3}[unit]
    answers = int(re.search(r"(\d+) requests in", done)[1])  # type: ignore[index]
    return Held(rate, p99, int(refused[1]) if refused else 0, (cpu_of(process) - before) / answers * 1e6)


def script(folder: Path, *, rewards: bool) -> str:
    path = folder / f"ask-{rewards}.lua"
    body = json.dumps({"contexts": CONTEXTS})
    path.write_text(SCRIPT % (body, "true" if rewards else "false", REMEMBER if rewards else ""))
    return str(path)


def run(report: Report) -> None:
    if shutil.which("wrk") is None:
        report.note("wrk is not installed: nothing was measured")
        return
    # Many short turns, so that both meet the same load.
    turns, seconds, long = (2, 2.0, 3.0) if report.quick else (20, 2.0, 60.0)
    with ExitStack() as stack:
        folder = Path(stack.enter_context(tempfile.TemporaryDirectory()))
        bare_port, port = free_port(), free_port()
        bare_command = [sys.executable, str(Path(__file__).with_name("bare_service.py")), str(bare_port)]
        bare = stack.enter_context(started(bare_command, bare_port, "/"))
        command = [
            sys.executable,
            "-m",
            "fedfairx",
            "serve",
            "--data",
            str(folder / "data"),
            "--port",
            str(port),
        ]
        service = stack.enter_context(started([*command, "--dimension", str(DIMENSION)], port, "/healthz"))
        decisions = script(folder, rewards=False)
        report.heading(f"Decisions over HTTP, K={ARMS}, d={DIMENSION}, {CONNECTIONS} connections, by turns")
        found: dict[str, list[Held]] = {"bare": [], "service": []}
        for turn in range(turns):
            pair = [("bare", bare_port, bare), ("service", port, service)]
            for name, where, process in pair if turn % 2 == 0 else reversed(pair):
                found[name].append(ask(where, process, seconds, decisions))
        compare(report, found["bare"], found["service"])
        report.heading(f"Decisions and rewards at the same rate for {long:g} s, one process")
        both = ask(port, service, long, script(folder, rewards=True))
        report.add("decisions per second, and as many rewards", both.rate / 2, "1/s")
        report.add("p99", both.p99, "ms")
        report.add("answers that were no success", both.refused, "", at_most=0)


def compare(report: Report, bare: list[Held], service: list[Held]) -> None:
    for name, found in (("bare endpoint", bare), ("service, durable", service)):
        report.add(f"{name}: answers per second", float(np.median([one.rate for one in found])), "1/s")
        report.add(f"{name}: p99", float(np.median([one.p99 for one in found])), "ms")
        report.add(f"{name}: CPU of an answer", float(np.median([one.cpu for one in found])), "µs")
        report.add(f"{name}: answers that were no success", sum(one.refused for one in found), "", at_most=0)
    ratios = np.array([mine.rate / floor.rate for mine, floor in zip(service, bare, strict=True)])
    report.ratio("service ÷ bare endpoint, answers per second", ratios, at_least=0.5)


if __name__ == "__main__":
    main("service", run, __doc__)
