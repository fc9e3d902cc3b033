"""kill -9 of a whole agent with a durable ledger, with forks, restored ledgers and clones among its lives.

However it went: no acknowledged record is lost, none is in two leaves, every message is what its leaves and
its place in the ledger make it, and no noise lies under two contents. The moments are random; what is checked
holds at all of them. `FEDFAIRX_KILLS=100` makes it a hundred.
"""

from __future__ import annotations

import fcntl
import itertools
import os
import shutil
import signal
import time
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.errors import PrivacyError, StorageUnavailable
from fedfairx.privacy import Centring, KeyedNoise, MemoryLedger, Release, private
from fedfairx.privacy.ledger.ledger import Ledger
from fedfairx.storage.privacy_ledger import StoredLedger
from stored_ledger import stored_ledger

pytestmark = pytest.mark.process

KILLS = int(os.environ.get("FEDFAIRX_KILLS", "12"))
D, LEAF, FORK_EVERY = 3, 2, 5
BOX = replace(Centring.unit_box(D), intercept=True)


def _privatizer(ledger: Ledger, mechanism: str, centred: bool):
    return private(
        D,
        epsilon=2.0,
        releases=100_000,
        mechanism=mechanism,
        noise=KeyedNoise(bytes(32), agent="a", run="r"),
        centring=BOX if centred else None,
        intercept=True,
        ledger=ledger,
    )


def _log(path: Path, *words: object) -> None:
    with path.open("a") as file:
        file.write(" ".join(map(str, words)) + "\n")


def _lines(path: Path) -> list[list[str]]:
    """The whole lines; one that a kill cut short was never written."""
    text = path.read_text() if path.exists() else ""
    return [line.split() for line in text[: text.rfind("\n") + 1].splitlines()]


# --- a life ------------------------------------------------------------------------------------------------


def _live(folder: Path, outbox: Path, life: int, mechanism: str, centred: bool) -> None:
    """From wherever the ledger stands, until somebody kills it."""
    rng = np.random.default_rng(life)
    with stored_ledger(folder / "ledger") as ledger:
        agent = ffx.Agent(D, privatizer=_privatizer(ledger, mechanism, centred), seed=life)

        def send(number: int) -> None:
            message, position = ledger.message(number), ledger.position()
            assert message is not None
            assert position is not None
            assert position.frozen == number
            exact = BOX.leave(position.total, position.total_count) if centred else position.total
            noise = Release.from_bytes(message).packed - exact
            _log(outbox, number, ledger.place(number).hex(), message.hex(), noise.tobytes().hex())
            ledger.mark_sent(number)

        for number in ledger.unsent():
            send(number)
        for step in itertools.count(1):
            decision = agent.decide(rng.random((4, D)) / np.sqrt(D))
            reward = float(rng.random())
            _log(folder / "given", decision.id, *(float(x).hex() for x in (*decision.context, reward)))
            agent.observe(decision, reward=reward)
            _log(folder / "taken", decision.id)
            if step % (LEAF * FORK_EVERY) == 0:
                _fork(agent, ledger, folder)
            if step % LEAF == 0:
                release = agent.release()
                assert release.to_bytes() == ledger.message(release.number)
                send(release.number)


def _fork(agent: ffx.Agent, ledger: StoredLedger, folder: Path) -> None:
    """A child that is a copy of the agent, tries to go on, and may not."""
    waiting = agent.decide(np.eye(D))
    child = os.fork()
    if child == 0:
        for work in (agent.release, lambda: agent.observe(waiting, reward=1.0), ledger.spent):
            try:
                work()
                _log(folder / "breach", "a forked agent went on")
            except (PrivacyError, StorageUnavailable):
                pass
        os._exit(0)
    assert os.waitpid(child, 0)[1] == 0
    agent.forget(waiting)


def _killed(folder: Path, outbox: Path, life: int, after: float, *options) -> None:
    child = os.fork()
    if child == 0:
        try:
            _live(folder, outbox, life, *options)
        finally:
            os._exit(1)
    time.sleep(after)
    os.kill(child, signal.SIGKILL)
    _, status = os.waitpid(child, 0)
    assert os.WIFSIGNALED(status), "the agent ended by itself: an error"
    if (lock := folder / "ledger.lock").exists():
        with lock.open() as file:  # a child that was forked just before the kill may hold it for a moment
            fcntl.flock(file, fcntl.LOCK_EX)


def _copy(source: Path, target: Path) -> None:
    """All of an agent's files, as a backup or a cloned disk has them."""
    shutil.rmtree(target, ignore_errors=True)
    shutil.copytree(source, target)


# --- what must hold ----------------------------------------------------------------------------------------


def _check_ledger(folder: Path, mechanism: str, centred: bool) -> int:
    """The ledger's messages are, bit for bit, those of its records and places; returns how many there are."""
    given = {
        line[0]: np.array([float.fromhex(word) for word in line[1:]]) for line in _lines(folder / "given")
    }
    with stored_ledger(folder / "ledger") as ledger:

        class Following(MemoryLedger):
            def place(self, number: int) -> bytes:
                return ledger.place(number)

        _privatizer(ledger, mechanism, centred)  # finishes what was frozen
        leaves = {identity: ledger.leaf_of(identity) for identity in given}
        assert all(leaves[line[0]] is not None for line in _lines(folder / "taken")), "a record was lost"
        fresh = _privatizer(Following(), mechanism, centred)
        for number in range(1, ledger.spent() + 1):
            for identity, values in given.items():
                if leaves[identity] == number:
                    fresh.add(values[:-1], values[-1], identity)
            assert fresh.release().to_bytes() == ledger.message(number)
        position = ledger.position()
        assert position is not None
        inside = sum(leaf is not None for leaf in leaves.values())
        assert position.total_count + position.leaf_count == inside
        return ledger.spent()


def _check_outbox(outbox: Path) -> int:
    """One content to a place; different places, unrelated noise. Returns how many numbers were sent twice."""
    contents: dict[int, dict[str, str]] = {}
    noises: dict[int, dict[str, np.ndarray]] = {}
    for number, place, message, noise in _lines(outbox):
        known = contents.setdefault(int(number), {}).setdefault(place, message)
        assert known == message, "two contents at one place"
        noises.setdefault(int(number), {})[place] = np.frombuffer(bytes.fromhex(noise))
    places = [place for messages in contents.values() for place in messages]
    assert len(set(places)) == len(places)
    for drawn in noises.values():
        for first, second in itertools.combinations(drawn.values(), 2):
            # Nine differences of sd 5 or more: three lie so near 0 once in 10⁹ pairs.
            assert (np.abs(first - second) < 1e-3).sum() < 3, "two contents under one noise"
    return sum(len(messages) > 1 for messages in contents.values())


@pytest.mark.parametrize(("mechanism", "centred"), [("tree", False), ("blt", True)])
def test_a_whole_agent_killed_restored_and_cloned(tmp_path: Path, mechanism: str, centred: bool) -> None:
    warm = ffx.Agent(
        D, privatizer=_privatizer(MemoryLedger(), mechanism, centred)
    )  # compiles, before the clock
    warm.observe(warm.decide(np.eye(D)), reward=0.0)
    warm.release()
    rng = np.random.default_rng(KILLS)
    home, backup, clone, outbox = (tmp_path / name for name in ("home", "backup", "clone", "outbox"))
    home.mkdir()
    options = mechanism, centred
    began = time.perf_counter()
    for life in range(KILLS):
        _killed(home, outbox, 2 * life, rng.uniform(0.01, 0.2), *options)
        event = ("none", "backup", "restore", "clone")[life % 4 if life < 4 else rng.integers(4)]
        if event == "backup" or not backup.exists():
            _copy(home, backup)
        elif event == "restore":
            _copy(backup, home)
        elif event == "clone":
            _copy(home, clone)
            _killed(clone, outbox, 2 * life + 1, rng.uniform(0.01, 0.2), *options)
            _check_ledger(clone, *options)
            assert not (clone / "breach").exists()
    assert not (home / "breach").exists()
    spent = _check_ledger(home, *options)
    again = _check_outbox(outbox)
    print(
        f"{mechanism}: {KILLS} kills, {spent} releases at last, {len(_lines(outbox))} messages, "
        f"{again} numbers with several contents, {time.perf_counter() - began:.0f} s"
    )
