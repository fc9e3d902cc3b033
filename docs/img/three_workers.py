"""The README's picture: three workers of merit 1 : 2 : 4 over 2 000 tasks, by fedfairx and by LinUCB.

`python docs/img/three_workers.py` draws three-workers.svg again; a test fails when it is out of date.
"""

from __future__ import annotations

import runpy
from dataclasses import replace
from pathlib import Path

import numpy as np

import fedfairx as ffx

FILE = Path(__file__).with_name("three-workers.svg")
EXAMPLE = Path(__file__).resolve().parents[2] / "examples" / "three_workers.py"
TASKS, SEED = 2_000, 0


def agents(merit: ffx.merit.Affine) -> dict[str, ffx.Agent]:
    winner = ffx.Options(algorithm="linucb")
    return {
        "fedfairx: in proportion to merit": ffx.Agent(dimension=3, merit=merit, seed=SEED),
        "LinUCB: the best takes all": ffx.Agent(3, options=replace(winner, merit=merit), seed=SEED),
    }


def shares() -> dict[str, np.ndarray]:
    """Cumulative share of each worker (tasks, 3), by rule."""
    example = runpy.run_path(str(EXAMPLE))
    found = {}
    for name, agent in agents(example["merit"]).items():
        noise, given = np.random.default_rng(SEED), np.zeros((TASKS, 3))
        for task in range(TASKS):
            decision = agent.decide(example["contexts"])
            reward = example["speeds"][decision.action] + 0.1 * noise.normal()
            agent.observe(decision, reward=reward)
            given[task, decision.action] = 1.0
        found[name] = np.cumsum(given, axis=0) / np.arange(1, TASKS + 1)[:, None]
    return found


def described(found: dict[str, np.ndarray]) -> str:
    """The last shares, as they stand in the picture's description."""
    return "; ".join(f"{name}: {', '.join(f'{x:.2f}' for x in each[-1])}" for name, each in found.items())


def draw(found: dict[str, np.ndarray], path: Path = FILE) -> None:
    import matplotlib

    matplotlib.use("Agg")
    matplotlib.rcParams["svg.hashsalt"] = "three workers"
    from matplotlib import pyplot

    figure, panels = pyplot.subplots(1, 2, figsize=(8.4, 2.9), sharey=True, layout="constrained")
    colours = ("#7a9cc6", "#d98c5f", "#3f7d58")
    for axes, (name, each) in zip(panels, found.items(), strict=True):
        at, ends = np.arange(4, TASKS, 5), each[-1]
        for worker, colour in enumerate(colours):
            axes.plot(at + 1, each[at, worker], color=colour, lw=1.8)
            axes.axhline(2**worker / 7, color=colour, lw=0.9, ls=":")
        together = ends[1] - ends[0] < 0.05
        labels = [("merit 1 and 2", 0)] if together else [("merit 1", 0), ("merit 2", 1)]
        for text, worker in [*labels, ("merit 4", 2)]:
            place = {"xytext": (4, 0), "textcoords": "offset points", "va": "center", "fontsize": 9}
            axes.annotate(text, (TASKS, ends[worker]), color=colours[worker], **place)
        axes.set_title(name, fontsize=10.5, loc="left")
        axes.set_xlim(0, TASKS)
        axes.set_ylim(0, 1)
        axes.set_xlabel("tasks")
        axes.spines[["top", "right"]].set_visible(False)
    panels[0].set_ylabel("share of the tasks so far")
    figure.savefig(path, metadata={"Date": None, "Description": described(found)})


if __name__ == "__main__":
    shown = shares()
    draw(shown)
    print(described(shown))
