"""kill -9 of a process that decides, observes and releases in a loop, at random moments, again and again.

Whatever it had acknowledged is there afterwards, exactly once, and the agent is to the bit what its log makes
of it from the very beginning. The moments are random; what is checked holds at all of them.
"""

from __future__ import annotations

import itertools
import os
import random
import signal
import time
from collections import Counter
from pathlib import Path

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.agent import persistence
from fedfairx.privacy import Release

pytestmark = pytest.mark.process

KILLS = int(os.environ.get("FEDFAIRX_KILLS", "20"))


def live(place: Path, output: Path, life: int, kind: str, rounds: int | None = None) -> None:
    """From wherever the log stands, until somebody kills it, or for some rounds."""
    budget = ffx.Budget(epsilon=4.0, delta=0.1, releases=100_000, decide_from="own+released")
    given = {"budget": budget} if kind == "private" else {"half_life": "1s"} if kind == "decaying" else {}
    rng = np.random.default_rng(life)
    with ffx.Agent.open(place, dimension=3, seed=0, name="a", **given) as agent, output.open("w") as told:

        def say(*words: object) -> None:
            print(*words, file=told, flush=True)

        say("open")
        for _ in itertools.count() if rounds is None else range(rounds):
            made = agent.decide(rng.random((4, 3)) / 2)
            say("made", made.id)
            if rng.random() < 0.8:
                agent.observe(made, reward=float(rng.random()))
                say("taken", made.id)
            elif rng.random() < 0.3:
                agent.forget(made)
                say("gone", made.id)
            if rng.random() < 0.1:
                with agent.transaction():
                    group = [agent.decide(rng.random((2, 3)) / 2) for _ in range(5)]
                    agent.observe_many(group[:3], [0.5] * 3)
                for at, each in enumerate(group):
                    say("made", each.id)
                    if at < 3:
                        say("taken", each.id)
            if rng.random() < 0.05:
                release = agent.release()
                agent.absorb({"a": release})
                say("sent", release.number, release.to_bytes().hex())


@pytest.mark.parametrize("kind", ["plain", "private", "decaying"])
def test_what_was_acknowledged_is_there_exactly_once(
    tmp_path: Path, kind: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(persistence, "SNAPSHOT_EVERY", 37)
    live(tmp_path / "other.db", tmp_path / "said", 0, kind, rounds=40)  # compiled code is loaded once
    place, moments = tmp_path / "agent.db", random.Random(5)
    said: list[list[str]] = []
    lives = KILLS // 2
    for life in range(lives):
        output = tmp_path / f"said-{life}"
        child = os.fork()
        if child == 0:
            try:
                live(place, output, life, kind)
            finally:
                os._exit(1)
        while not (output.exists() and output.stat().st_size):
            time.sleep(0.001)
        time.sleep(moments.uniform(0.0, 0.06))
        os.kill(child, signal.SIGKILL)
        assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == -signal.SIGKILL
        text = output.read_text()
        said += [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]
    counts = Counter(words[0] for words in said)
    assert counts["open"] == lives
    assert counts["taken"] > 3 * lives
    with ffx.Agent.open(place) as agent:
        agent.verify()
        kept = {each.id: each for each in agent.journal.decisions()}
        made = [words[1] for words in said if words[0] == "made"]
        assert len(set(made)) == len(made)
        assert set(made) <= set(kept)
        assert len(kept) - len(made) <= 6 * lives  # at most the step, or the group, that a kill cut off
        for words in said:
            if words[0] == "taken":
                assert kept[words[1]].status == "rewarded"
            elif words[0] == "gone":
                assert kept[words[1]].status == "withdrawn"
        rewarded = [each for each in kept.values() if each.status == "rewarded"]
        assert agent.observed == len(rewarded)
        assert agent.pending == sum(each.status == "pending" for each in kept.values())
        assert agent.release().count == len(rewarded)
        sent = [words for words in said if words[0] == "sent"]
        assert len({words[1] for words in sent}) == len(sent)
        for _, number, content in sent if kind == "private" else ():
            assert agent.release(int(number)) == Release.from_bytes(bytes.fromhex(content))
