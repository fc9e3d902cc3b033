"""Make the databases of version 4 beside this file. It runs on the last source that wrote them, cc58827:

git worktree add ../old cc58827
PYTHONPATH=../old/src:tests python tests/storage/old_databases/make4.py
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from pathlib import Path

import numpy as np

import fedfairx as ffx
from fedfairx.storage import DecisionNote

HERE = Path(__file__).parent
SOME = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])


def plain(place: Path) -> None:
    """Every kind of step but those of privacy, in two openings."""
    with ffx.Agent.open(place, dimension=2, seed=1, name="plain", window=1.0) as agent:
        made = [agent.decide(SOME) for _ in range(6)]
        for k, each in enumerate(made[:4]):
            agent.observe(each, reward=k / 4)
        agent.forget(made[4])
        agent.observe(made[1], reward=0.9, replace=True)
        note = DecisionNote("k-1", "d", ["x", None, "ÿ"], "control", 2, 0.25, 7, "a text of my own")
        agent.decide(SOME, names=["änt", "bee", "cat"], note=note)
        two = agent.decide(SOME, slots=[1.0, 0.5])
        agent.observe(two, rewards={two.actions[1]: 0.5})
        agent.learn(SOME, [0.1, 0.2, 0.3])
        agent.expire(now=agent._pending[made[5].number].time / 1e6 + 1.5)
    with ffx.Agent.open(place) as agent:
        peer = ffx.Agent(2, seed=2, name="peer")
        peer.observe(peer.decide(SOME), reward=0.75)
        agent.absorb({"plain": agent.release(), "peer": peer.release()})
        agent.observe(agent.decide(SOME), reward=0.5)
        agent.journal.log.closing.clear()  # as if it had been killed


def private(place: Path) -> None:
    """A ledger, and a bound on each person's records."""
    budget = ffx.Budget(epsilon=4.0, delta=1e-3, releases=8, person_records=2)
    with ffx.Agent.open(place, dimension=2, seed=1, name="private", budget=budget) as agent:
        for k in range(5):
            agent.observe(agent.decide(SOME), reward=k / 5, person=f"p{k % 2}")
        agent.release()
        agent.observe(agent.decide(SOME), reward=0.125, person="p0")
        agent.begin_run(ffx.Budget(epsilon=1.0, delta=1e-3, releases=4))


def main() -> None:
    from make import goes_on  # type: ignore[import-not-found]

    expected = json.loads((HERE / "expected.json").read_text(encoding="utf-8"))
    with tempfile.TemporaryDirectory() as folder:
        for make in (plain, private):
            name = f"version4-{make.__name__}"
            place = Path(folder) / f"{name}.db"
            make(place)
            connection = sqlite3.connect(place)
            text = "\n".join(connection.iterdump()) + "\n"
            connection.close()
            (HERE / f"{name}.sql").write_text(text, encoding="utf-8")
            expected[name] = goes_on(Path(shutil.copy(place, Path(folder) / f"{name}-copy.db")))
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in expected.items()]
    (HERE / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
