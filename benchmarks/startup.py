"""The time before a process's first decision: the import, and compilation with a warm or an empty cache."""

from __future__ import annotations

import os
import subprocess
import sys
import tempfile

from measure import Contestant, Report, main, race

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
#: Code to run with an empty cache, and the goal in CPU seconds.
COLD = {
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


def child(code: str, **environment: str) -> float:
    """Run code in a fresh interpreter; return the seconds that it prints, without the interpreter's start."""
    answer = subprocess.run(
        [sys.executable, "-c", CLOCKED.format(code=code)],
        check=True,
        capture_output=True,
        text=True,
        env={**os.environ, **environment},
    )
    return float(answer.stdout.split()[-1])


def run(report: Report) -> None:
    report.heading("Starting, in CPU seconds, with a warm cache")
    child(BOTH)  # fill the cache of compiled code: some seconds per version of the source
    times = race(
        {
            "import fedfairx.Agent": Contestant(lambda: child("from fedfairx import Agent")),
            "import numpy, numba": Contestant(lambda: child(IMPORT.format(names="numpy, numba"))),
            "first decide + observe": Contestant(lambda: child(BOTH)),
        },
        turns=2 if report.quick else 7,
    )
    report.time("import fedfairx.Agent", times["import fedfairx.Agent"], "s", at_most=1.0)
    report.time("import numpy, numba", times["import numpy, numba"], "s")
    report.time("first decide + observe", times["first decide + observe"], "s", at_most=2.0)
    ratio = times["import fedfairx.Agent"].over(times["import numpy, numba"])
    report.ratio("import fedfairx.Agent ÷ import numpy, numba", ratio)
    report.heading("The first time, in CPU seconds, with an empty cache")
    for name, (code, most) in COLD.items():
        with tempfile.TemporaryDirectory() as empty:
            # Only once, since it takes seconds.
            once = race({name: Contestant(lambda: child(code, NUMBA_CACHE_DIR=empty))}, turns=1)  # noqa: B023
        report.time(name, once[name], "s", at_most=most)


if __name__ == "__main__":
    main("startup", run, __doc__)
