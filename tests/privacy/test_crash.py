"""kill -9 between every two steps of a release, and at any moment: nothing twice, nothing lost.

The child is a forked process that an oracle follows: whatever was killed when, the messages that reach
the outbox must be, bit for bit, the sums of a run that nothing ever stopped, plus the one noise of their
place in the ledger.
"""

from __future__ import annotations

import gc
import os
import signal
import time
from pathlib import Path

import numpy as np
import pytest

from fedfairx.privacy.bounds import Bounds
from fedfairx.privacy.ledger.ledger import MemoryLedger
from fedfairx.privacy.mechanisms.gaussian import calibrate, mechanisms
from fedfairx.privacy.mechanisms.noise import KeyedNoise
from fedfairx.privacy.privatizers.stream import StreamPrivatizer
from fedfairx.privacy.release import Release
from fedfairx.storage.privacy_ledger import StoredLedger
from stored_ledger import stored_ledger

RECORDS, LEAF = 30, 3
STEPS = ["added", "frozen", "recorded", "sent", "marked"]
GENERATOR = np.random.default_rng(11)
DATA = [(GENERATOR.normal(size=3), float(GENERATOR.normal())) for _ in range(RECORDS)]


def _privatizer(name: str, **other) -> StreamPrivatizer:
    return StreamPrivatizer(
        3,
        mechanism=calibrate(
            name, epsilon=2.0, delta=1e-6, releases=RECORDS // LEAF, sensitivity=Bounds().sensitivity
        ),
        noise=KeyedNoise(bytes(range(32)), agent="a", run="r"),
        **other,
    )


def _oracle(name: str, ledger: StoredLedger, records: int = RECORDS) -> dict[int, bytes]:
    """The messages of a run that nothing stopped, with the noise of this ledger's places."""

    class Following(MemoryLedger):
        def place(self, number: int) -> bytes:
            return ledger.place(number)

    privatizer = _privatizer(name, ledger=Following())
    messages = {}
    for index, (x, y) in enumerate(DATA[:records]):
        privatizer.add(x, y, record=index)
        if (index + 1) % LEAF == 0:
            release = privatizer.release()
            messages[release.number] = release.to_bytes()
    return messages


def _append(path: Path, line: bytes) -> None:
    with path.open("ab") as file:
        file.write(line + b"\n")


def _agent(folder: Path, name: str, kill_at: tuple[str, int] | None = None, records: int = RECORDS) -> None:
    """An agent's whole life from wherever its ledger says it stands; dies at its `kill_at`-th such step."""
    passed: dict[str, int] = {}

    def step(reached: str) -> None:
        passed[reached] = passed.get(reached, 0) + 1
        if kill_at == (reached, passed[reached]):
            os.kill(os.getpid(), signal.SIGKILL)

    with stored_ledger(folder / "ledger") as ledger:
        privatizer = _privatizer(name, ledger=ledger, checkpoint=step)

        def send(number: int) -> None:
            message = ledger.message(number)
            assert message is not None
            _append(folder / "outbox", message.hex().encode())
            step("sent")
            ledger.mark_sent(number)
            step("marked")

        for number in ledger.unsent():
            send(number)
        for index, (x, y) in enumerate(DATA[:records]):
            if ledger.leaf_of(index) is None:
                privatizer.add(x, y, record=index)
                step("added")
                _append(folder / "acknowledged", str(index).encode())
            number = (index + 1) // LEAF
            if (index + 1) % LEAF == 0 and privatizer.spent < number:
                send(privatizer.release().number)


def _fork(folder: Path, name: str, kill_at: tuple[str, int] | None = None, records: int = RECORDS) -> int:
    child = os.fork()
    if child == 0:
        gc.disable()  # it would copy the memory of this process
        code = 1
        try:
            _agent(folder, name, kill_at, records)
            code = 0
        finally:
            os._exit(code)
    return child


def _check(folder: Path, name: str, records: int = RECORDS) -> None:
    contents: dict[int, set[bytes]] = {}
    for line in (folder / "outbox").read_bytes().split():
        message = bytes.fromhex(line.decode())
        contents.setdefault(Release.from_bytes(message).number, set()).add(message)
    acknowledged = [int(line) for line in (folder / "acknowledged").read_bytes().split()]
    with stored_ledger(folder / "ledger") as ledger:
        oracle = _oracle(name, ledger, records)
        leaves = [ledger.leaf_of(index) for index in range(records)]
        assert ledger.unsent() == ()
        position = ledger.position()
    assert contents == {number: {message} for number, message in oracle.items()}
    assert len(set(acknowledged)) == len(acknowledged)
    assert leaves == [1 + index // LEAF for index in range(records)]
    assert position is not None
    assert position.total_count == records


#: All pairs of a mechanism and a step, of a step and its number, and of a mechanism and that number.
MOMENTS = [
    (name, step, (1, 4)[(row + column) % 2])
    for row, name in enumerate(mechanisms())
    for column, step in enumerate(STEPS)
]


@pytest.mark.process
@pytest.mark.parametrize(("name", "step", "occurrence"), MOMENTS)
def test_killed_between_two_steps(tmp_path: Path, name: str, step: str, occurrence: int) -> None:
    _, status = os.waitpid(_fork(tmp_path, name, (step, occurrence)), 0)
    assert os.WIFSIGNALED(status)
    assert os.WTERMSIG(status) == signal.SIGKILL
    _agent(tmp_path, name)
    _check(tmp_path, name)


@pytest.mark.process
def test_killed_at_the_same_step_of_every_life(tmp_path: Path) -> None:
    """An agent that dies at every first checkpoint still gets on: no step has to be repeated for ever."""
    records = 4 * LEAF
    for step in STEPS * records:
        _, status = os.waitpid(_fork(tmp_path, "blt", (step, 1), records), 0)
        if status == 0:
            break
    _agent(tmp_path, "blt", records=records)
    _check(tmp_path, "blt", records)


@pytest.mark.process
def test_killed_at_any_moment(tmp_path: Path) -> None:
    """A kill -9 from outside, at moments spread over the whole run."""
    began = time.perf_counter()
    (tmp_path / "whole").mkdir()
    os.waitpid(_fork(tmp_path / "whole", "blt"), 0)
    whole = time.perf_counter() - began
    for share in np.random.default_rng(0).uniform(0.02, 0.6, 25):
        child = _fork(tmp_path, "blt")
        time.sleep(share * whole)
        os.kill(child, signal.SIGKILL)
        os.waitpid(child, 0)
    # A line that the kill cut short never left: the transport's own write is not atomic, and it is not ours.
    for name in ("outbox", "acknowledged"):
        path = tmp_path / name
        if path.exists():
            path.write_bytes(path.read_bytes().rpartition(b"\n")[0] + b"\n")
    _agent(tmp_path, "blt")
    _check_after_fuzz(tmp_path)


def _check_after_fuzz(folder: Path) -> None:
    """As `_check`; the last line before a kill may be missing from the outbox: a cut line was dropped."""
    with stored_ledger(folder / "ledger") as ledger:
        oracle = _oracle("blt", ledger)
        assert {number: ledger.message(number) for number in oracle} == oracle
        assert [ledger.leaf_of(index) for index in range(RECORDS)] == [1 + i // LEAF for i in range(RECORDS)]
    for line in (folder / "outbox").read_bytes().split():
        message = bytes.fromhex(line.decode())
        assert message == oracle[Release.from_bytes(message).number]
