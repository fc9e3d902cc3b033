"""The time before a process's first decision: the import, and compilation with a warm or an empty cache."""

from __future__ import annotations

import json
import os
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

from measure import Contestant, Report, main, race
from service import cpu_of, free_port, started

IMPORT = "import {names}"
FIRST = """
import numpy, fedfairx
agent = fedfairx.Agent(dimension=5, seed=0, rule="{rule}")
contexts = numpy.full((10, 5), 0.4)
start = time.process_time()
decision = agent.decide(contexts)
"""
REWARD = "agent.observe(decision, reward=0.5)\n"
SIMULATE = """
import fedfairx
start = time.process_time()
fedfairx.simulate(fedfairx.Scenario(agents=2, arms=2, dimension=2, horizon=4), seeds=1)
"""
DEFAULT, OPTIMISM = (FIRST.format(rule=rule) for rule in ("expected-merit", "optimism"))
#: decide + observe, by the default rule.
BOTH = DEFAULT + REWARD
#: README's first program, with its imports.
README = (Path(__file__).parents[1] / "README.md").read_text("utf-8").split("```python\n")[1].split("```")[0]
#: Code to run with an empty cache, and the goal in CPU seconds.
COLD = {
    "README's first program": (README, 3.0),
    "first decision": (DEFAULT, 3.0),
    "first decision and reward": (BOTH, None),
    "first decision, optimism": (OPTIMISM, 10.0),
    "first simulate": (SIMULATE, 10.0),
}
CLOCKED = """
import time
start = time.process_time()
{code}
print(time.process_time() - start)
"""
DECISION = json.dumps({"contexts": [[0.4] * 5] * 10}).encode()


def child(code: str, **environment: str) -> float:
    """Run code in a fresh interpreter; return the seconds that it prints, without the interpreter's start.

    It may write bytecode, as users' interpreters do: reading the source again takes a quarter of an import.
    """
    environment = {**os.environ, "PYTHONDONTWRITEBYTECODE": "", **environment}
    answer = subprocess.run(
        [sys.executable, "-c", CLOCKED.format(code=code)],
        check=True,
        capture_output=True,
        text=True,
        env=environment,
    )
    return float(answer.stdout.split()[-1])


def first_service(cache: str) -> tuple[float, float]:
    """Seconds of CPU and of the clock until a new service with features has answered its first decision."""
    with tempfile.TemporaryDirectory() as folder:
        port, data = free_port(), str(Path(folder) / "data")
        command = [sys.executable, "-m", "fedfairx", "serve", "--data", data, "--port", str(port)]
        start = time.monotonic()
        environment = ["env", "PYTHONDONTWRITEBYTECODE=", f"NUMBA_CACHE_DIR={cache}"]
        with started([*environment, *command, "--dimension", "5"], port, "/healthz") as process:
            headers = {"content-type": "application/json"}
            url = f"http://127.0.0.1:{port}/v1/decisions"
            urllib.request.urlopen(urllib.request.Request(url, DECISION, headers), timeout=60).close()
            return cpu_of(process), time.monotonic() - start


def run(report: Report) -> None:
    report.heading("Starting, in CPU seconds, with a warm cache")
    child(BOTH)  # fill the cache of compiled code: some seconds per version of the source
    child(README)
    times = race(
        {
            "import fedfairx.Agent": Contestant(lambda: child("from fedfairx import Agent")),
            "import numpy, numba": Contestant(lambda: child(IMPORT.format(names="numpy, numba"))),
            "first decide + observe": Contestant(lambda: child(BOTH)),
            "README's first program": Contestant(lambda: child(README)),
        },
        turns=2 if report.quick else 7,
    )
    report.time("import fedfairx.Agent", times["import fedfairx.Agent"], "s", at_most=1.0)
    report.time("import numpy, numba", times["import numpy, numba"], "s")
    report.time("first decide + observe", times["first decide + observe"], "s", at_most=2.0)
    report.time("README's first program", times["README's first program"], "s", at_most=0.7)
    ratio = times["import fedfairx.Agent"].over(times["import numpy, numba"])
    report.ratio("import fedfairx.Agent ÷ import numpy, numba", ratio)
    report.heading("The first time, in CPU seconds, with an empty cache")
    for name, (code, most) in COLD.items():
        with tempfile.TemporaryDirectory() as empty:
            # Only once, since it takes seconds.
            once = race({name: Contestant(lambda: child(code, NUMBA_CACHE_DIR=empty))}, turns=1)  # noqa: B023
        report.time(name, once[name], "s", at_most=most)
    with tempfile.TemporaryDirectory() as empty:
        for how in ("with an empty cache", "again"):
            cpu, clock = first_service(empty)
            report.add(f"first decision of a service, {how}", cpu, "s")
            report.add(f"first decision of a service, {how}, by the clock", clock, "s")


if __name__ == "__main__":
    main("startup", run, __doc__)
