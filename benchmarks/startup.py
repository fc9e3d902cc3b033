"""What a process pays before its first decision: the import, and loading compiled code from its cache."""

from __future__ import annotations

import subprocess
import sys

from measure import Contestant, Report, main, race

IMPORT = "import {names}"
FIRST = """
import numpy, fedfairx
agent = fedfairx.Agent(dimension=5, seed=0)
contexts = numpy.full((10, 5), 0.4)
start = time.process_time()
agent.observe(agent.decide(contexts), reward=0.5)
"""
CLOCKED = """
import time
start = time.process_time()
{code}
print(time.process_time() - start)
"""


def child(code: str) -> float:
    """Run code in a fresh interpreter; the seconds that it prints, without the interpreter's own start."""
    script = CLOCKED.format(code=code)
    answer = subprocess.run([sys.executable, "-c", script], check=True, capture_output=True, text=True)
    return float(answer.stdout.split()[-1])


def run(report: Report) -> None:
    report.heading("Starting, in CPU seconds, with a warm cache")
    child(FIRST)  # fills the cache of compiled code: up to a minute, once for each version of the source
    times = race(
        {
            "import fedfairx": Contestant(lambda: child(IMPORT.format(names="fedfairx"))),
            "import numpy, numba": Contestant(lambda: child(IMPORT.format(names="numpy, numba"))),
            "first decide + observe": Contestant(lambda: child(FIRST)),
        },
        turns=2 if report.quick else 7,
    )
    report.time("import fedfairx", times["import fedfairx"], "s", at_most=1.0)
    report.time("import numpy, numba", times["import numpy, numba"], "s")
    report.time("first decide + observe", times["first decide + observe"], "s", at_most=2.0)
    ratio = times["import fedfairx"].over(times["import numpy, numba"])
    report.ratio("import fedfairx ÷ import numpy, numba", ratio)


if __name__ == "__main__":
    main("startup", run, __doc__)
