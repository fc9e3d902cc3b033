"""A market to look at: an agent's database with decisions among five sellers, and its service's pages."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import numpy as np

import fedfairx as ffx
from fedfairx.decision import DecisionNote
from fedfairx.service.app import make_app
from fedfairx.service.factory import open_service
from fedfairx.service.settings import load
from in_process_client import InProcessClient

NAMES = ("Ada Works", "Bo & Sons", "Cy Ltd", "Di Supplies", "<b>Eve</b>")
GROUPS = ("small", "small", "large", "large", None)
MERIT = ffx.merit.Exponential(4.0)
THETA = np.array([0.3, 0.5, 0.2])


def fill(place: str, decisions: int, *, seed: int = 0, favourite: float = 0.0, **options: Any) -> None:
    """Decisions of an agent in `place`; in a share of them the first seller is taken, whoever was drawn."""
    rng = np.random.default_rng(seed + 1)
    features = rng.random((5, 3)) / np.sqrt(3)
    Path(place).parent.mkdir(exist_ok=True, parents=True)
    with ffx.Agent.open(place, dimension=3, name="market", merit=MERIT, seed=seed, **options) as agent:
        for start in range(0, decisions, 1_000):
            with agent.transaction():
                for _ in range(min(1_000, decisions - start)):
                    contexts = features + 0.05 * rng.random((5, 3))
                    note = DecisionNote(groups=GROUPS)
                    if rng.random() < favourite:
                        note = DecisionNote(groups=GROUPS, mode="control", baseline=0)
                    made = agent.decide(contexts, names=NAMES, note=note)
                    ended = rng.random()
                    if ended < 0.9:
                        agent.observe(made, reward=float(rng.random() < contexts[made.action] @ THETA))
                    elif ended < 0.95:
                        agent.forget(made)


@contextmanager
def looking(place: str, **given: Any) -> Iterator[InProcessClient]:
    """A client of a service with its pages, in this process."""
    service = open_service(load({"data": str(Path(place).parent), **given}, environment={}))
    with InProcessClient(
        make_app(service), base_url="http://127.0.0.1", raise_server_exceptions=False
    ) as client:
        client.app_service = service  # type: ignore[attr-defined]
        yield client
