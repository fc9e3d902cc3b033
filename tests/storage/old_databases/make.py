"""Make the databases beside this file. It runs on the source that wrote version 3 of the tables, d432653:

    git worktree add ../old d432653
    PYTHONPATH=../old/src:tests python tests/storage/old_databases/make.py

The same source with fewer migrations made those of versions 1 and 2; `expected.json` is what it goes on with.
`version1-early` and `version2-early` are of 8ef2905 and 988dcd3, whose agents no later source can open.
"""

from __future__ import annotations

import json
import shutil
import sqlite3
import tempfile
from pathlib import Path
from unittest.mock import patch

import numpy as np

import fedfairx as ffx
from fedfairx.storage import ApiKeys, DecisionNote, migrations
from fedfairx.storage.seen import SeenTables
from golden import machine

HERE = Path(__file__).parent
SOME = np.array([[1.0, 0.0], [0.6, 0.8], [0.0, 1.0]])
BUDGET = ffx.Budget(epsilon=4.0, delta=1e-3, releases=8)


def plain(place: Path) -> None:
    """Every kind of step but those of privacy, in three openings."""
    from fedfairx.service.decisions import DecisionMeta  # type: ignore[attr-defined]

    with ffx.Agent.open(place, dimension=2, seed=1, name="plain") as agent:
        ApiKeys(agent.journal.log).add("shop", "writer")
        made = [agent.decide(SOME) for _ in range(6)]
        for k, each in enumerate(made[:4]):
            agent.observe(each, reward=k / 4)
        agent.forget(made[4])
    with ffx.Agent.open(place, window=1.0, default_reward=0.25) as agent:
        agent.observe(made[1], reward=0.9, replace=True)
        agent.observe(made[2], reward=0.1, replace=True)
        agent.observe(made[1], reward=0.8, replace=True)
        for mode, baseline, share, key in (
            ("shadow", 1, 0.0, "k-1"),
            ("control", 2, 0.25, "k-2"),
            ("live", 0, 0.25, "k-3"),
            ("live", None, 0.0, None),
        ):
            note = DecisionNote(
                key=key,
                digest=None if key is None else f"digest of {key}",
                groups=["x", None, "ÿ"],
                mode=mode,
                baseline=None if mode == "live" else baseline,
                extra=DecisionMeta(7, baseline, share).text(),
            )
            agent.decide(SOME, names=["änt", "bee", "cat"], note=note)
        agent.decide(SOME, note=DecisionNote(extra="a text of my own"))
        agent.learn(SOME, [0.1, 0.2, 0.3])
        agent.expire(now=agent._pending[made[5].number].time / 1e6 + 1.5)
        agent.journal.log.closing.clear()  # as if it had been killed
    with ffx.Agent.open(place) as agent:
        peer = ffx.Agent(2, seed=2, name="peer")
        peer.observe(peer.decide(SOME), reward=0.75)
        agent.release()
        agent.absorb({"peer": peer.release()})
        agent.observe(agent.decide(SOME), reward=0.5)
        agent.decide(SOME)
        if "meanings" in agent.journal.log.database.tables():
            body = '{"features": [["a", 0.0, 1.0], ["b", 0.0, 1.0]], "intercept": false}'
            with agent.journal.log.step() as log:
                log.write("INSERT INTO meanings VALUES (1, ?)", (body,))
        if "seen_rosters" in agent.journal.log.database.tables():
            with agent.journal.log.step():
                seen = SeenTables(agent.journal, "north")
                seen.keep_roster((3, "abc"))
                seen.keep_release("peer", (1, "def"))


def private(place: Path) -> None:
    """A ledger, a bound on each person's records, and a second run."""
    with ffx.Agent.open(place, dimension=2, seed=1, name="private", budget=BUDGET) as agent:
        made = [agent.decide(SOME) for _ in range(5)]
        agent.observe_many(made[:3], [0.2, 0.4, 0.6])
        agent.release()
        agent.observe(made[3], reward=0.5)
        agent.observe(made[3], reward=0.75, replace=True)
        agent.begin_run(ffx.Budget(epsilon=1.0, delta=1e-3, releases=4))
        agent.observe(agent.decide(SOME), reward=0.125)


def goes_on(place: Path) -> dict[str, object]:
    """What is in a database, and what its agent does next."""
    with ffx.Agent.open(place) as agent:
        agent.verify()
        kept = [
            [
                *(made.id, made.seq, made.time, made.action, made.drawn, made.mode, made.status, made.names),
                *(made.groups, made.key, made.digest, made.reward, made.reward_time, made.person),
                *(made.policy.tolist(), made.theta.tolist(), made.contexts.tolist()),
            ]
            for made in agent.journal.decisions()
        ]
        next_decisions = []
        for k in range(5):
            made = agent.decide(SOME)
            agent.observe(made, reward=k / 8)
            next_decisions.append([made.number, made.action, made.policy.tolist(), made.theta.tolist()])
        return {
            "kept": kept,
            "next": next_decisions,
            "estimate": agent.estimate.tolist(),
            "gram": agent.gram.tolist(),
            "counts": [agent.observed, agent.pending, agent.released],
        }


def main() -> None:
    expected: dict[str, object] = {"machine": machine()}
    with tempfile.TemporaryDirectory() as folder:
        for version in (1, 2, 3):
            for make in (plain, private):
                name = f"version{version}-{make.__name__}"
                place = Path(folder) / f"{name}.db"
                with patch.object(migrations, "MIGRATIONS", migrations.MIGRATIONS[:version]):
                    make(place)
                    connection = sqlite3.connect(place)
                    (HERE / f"{name}.sql").write_text(
                        "\n".join(connection.iterdump()) + "\n", encoding="utf-8"
                    )
                    connection.close()
                    copy = Path(shutil.copy(place, Path(folder) / f"{name}-copy.db"))
                    expected[name] = goes_on(copy)
    lines = [f"{json.dumps(name)}: {json.dumps(value)}" for name, value in expected.items()]
    (HERE / "expected.json").write_text("{\n" + ",\n".join(lines) + "\n}\n", encoding="utf-8")


if __name__ == "__main__":
    main()
