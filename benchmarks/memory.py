"""The peak memory of a simulation in its own process, at the paper's full size and at a large one."""

from __future__ import annotations

import json
import subprocess
import sys
import time
from typing import Any

import numpy as np

from measure import Contestant, Report, main, race
from numpy_worlds import draw_numbers, floor_rounds

CHILD = """
import json, resource, sys, time
import fedfairx as ffx

def peak():
    return resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024  # KiB on Linux

scenario, options = json.loads(sys.argv[1])
small = dict(scenario, horizon=10, agents=2)
ffx.simulate(ffx.Scenario(**small), **options)  # loads the compiled code
before, start = peak(), time.process_time()
ffx.simulate(ffx.Scenario(**scenario), **options)
print(json.dumps([before, peak(), time.process_time() - start]))
"""


def child(scenario: dict[str, Any], options: dict[str, Any]) -> tuple[float, float, float]:
    """Peak MiB before and after a simulation in its own process, and its CPU seconds."""
    command = [sys.executable, "-c", CHILD, json.dumps([scenario, options])]
    answer = subprocess.run(command, check=True, capture_output=True, text=True)
    before, after, seconds = json.loads(answer.stdout)
    return before, after, seconds


def full_size(report: Report) -> None:
    horizon = 10_000 if report.quick else 100_000
    report.heading(f"Memory at K=10, d=5, m=10, T={horizon:,}, 5 seeds")
    scenario = {"agents": 10, "arms": 10, "dimension": 5, "horizon": horizon}
    private = {"seeds": 5, "algorithm": "priv-fairx-linucb", "epsilon": 2.0, "delta": 0.1}
    for name, options in {
        "fed": {"seeds": 5},
        "priv, decides from what is released": private,
        "priv, own + released": private | {"decide_from": "own+released"},
    }.items():
        before, after, _ = child(scenario, options)
        report.add(name, after, "MiB", at_most=2048.0, note=f"{before:.0f} before it began")


def large(report: Report) -> None:
    horizon = 20 if report.quick else 200
    arms, dimension, agents = 100, 50, 100
    report.heading(f"A large run: K={arms}, d={dimension}, m={agents}, T={horizon}, one seed, one core")
    scenario = {"agents": agents, "arms": arms, "dimension": dimension, "horizon": horizon}
    _, after, seconds = child(scenario, {"seeds": 1})
    generator = np.random.default_rng(0)
    drawn = floor_rounds(500, arms=arms, dimension=dimension)
    floor = race(
        {"floor": Contestant(lambda: draw_numbers(generator, 500, arms=arms, dimension=dimension), drawn)},
        turns=7,
        clock=time.process_time,
    )["floor"]
    each = seconds / (agents * horizon)
    report.add("per agent-round", each * 1e6, "µs")
    report.add("÷ floor", each / floor.typical, "×")
    report.add("peak memory", after, "MiB", at_most=2048.0)


def run(report: Report) -> None:
    full_size(report)
    large(report)


if __name__ == "__main__":
    main("memory", run, __doc__)
