"""A SQLite file that was copied without its `-wal` is refused; all others open, however they were ended."""

from __future__ import annotations

import os
import shutil
import signal
import sqlite3
import subprocess
import sys
from collections.abc import Callable
from contextlib import closing
from pathlib import Path
from typing import Any

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.cli.main import main
from fedfairx.errors import StateError
from fedfairx.storage.api_keys import open_keys
from fedfairx.storage.open_log import open_for_reading

D = 2
X = np.eye(D)
BUDGET = ffx.Budget(epsilon=4.0, delta=1e-3, releases=9)
MISSING = r"was in use when it was copied, and .*-wal, which has its latest transactions, is not there"


def enter(context: Any) -> None:
    with context:
        pass


def copied(file: Path, name: str = "copy.db") -> Path:
    """The file alone, as `cp` copies it."""
    return Path(shutil.copy(file, file.with_name(name)))


def beside(file: Path) -> set[str]:
    """The ends of the names of the files that SQLite has beside a file."""
    return {each.name.removeprefix(file.name) for each in file.parent.glob(f"{file.name}-*")}


def spent(place: Path) -> int:
    with ffx.Agent.open(place) as agent:
        return agent.privatizer.spent


def merge(file: Path) -> None:
    """Say that a file is whole, as the error tells it."""
    with closing(sqlite3.connect(file)) as connection:
        connection.execute("PRAGMA journal_mode = delete")


@pytest.fixture
def running(tmp_path: Path) -> Any:
    """A private agent that was opened for the second time, and has sent two messages."""
    place = tmp_path / "agent.db"
    with ffx.Agent.open(place, dimension=D, seed=0, budget=BUDGET) as agent:
        agent.release()
    with ffx.Agent.open(place) as agent:
        agent.observe(agent.decide(X), reward=0.5)
        agent.release()
        yield place, agent


@pytest.mark.parametrize(
    "opening",
    [
        lambda place: enter(ffx.Agent.open(place)),
        lambda place: enter(open_for_reading(place)),
        lambda place: enter(open_keys(place)),
    ],
)
def test_a_copy_without_its_wal_is_refused(
    running: tuple[Path, ffx.Agent], opening: Callable[[Path], object], capsys: pytest.CaptureFixture[str]
) -> None:
    place, agent = running
    copy = copied(place)
    content = copy.read_bytes()
    for _ in range(2):  # a refusal leaves nothing that would let the next one pass
        with pytest.raises(StateError, match=MISSING):
            opening(copy)
        assert main(["verify", "--data", str(copy)]) == 2
        assert "is not there: copy both, or make the copy with VACUUM INTO" in capsys.readouterr().err
    assert (beside(copy), copy.read_bytes()) == (set(), content)
    shutil.copy(f"{place}-wal", f"{copy}-wal")
    opening(copy)
    assert spent(copy) == 2
    agent.release()  # the first one goes on
    assert agent.privatizer.spent == 3


def test_a_copy_that_is_whole_opens(running: tuple[Path, ffx.Agent]) -> None:
    place, agent = running
    with closing(sqlite3.connect(place)) as source, closing(sqlite3.connect(f"{place}.bak")) as target:
        source.execute(f"VACUUM INTO '{place}.vacuum'")
        source.backup(target)
    assert main(["verify", "--data", f"{place}.vacuum"]) == 0
    assert spent(Path(f"{place}.vacuum")) == 2
    with pytest.raises(StateError, match=MISSING):  # nothing tells it from a file alone
        spent(Path(f"{place}.bak"))
    merge(Path(f"{place}.bak"))
    assert spent(Path(f"{place}.bak")) == 2
    agent.close()
    assert beside(place) == set()
    assert spent(copied(place)) == 2


def test_a_restored_copy_is_refused_as_soon_as_it_is_in_use(running: tuple[Path, ffx.Agent]) -> None:
    """`VACUUM INTO` has copied that the file was open."""
    place, _ = running
    restored = place.with_name("restored.db")
    with closing(sqlite3.connect(place)) as source:
        source.execute(f"VACUUM INTO '{restored}'")
    with ffx.Agent.open(restored) as agent:
        agent.release()
        with pytest.raises(StateError, match=MISSING):
            ffx.Agent.open(copied(restored))
    assert spent(restored) == 3


def test_an_opening_that_writes_nothing_changes_nothing(tmp_path: Path) -> None:
    place = tmp_path / "agent.db"
    ffx.Agent.open(place, dimension=D).close()
    content = place.read_bytes()
    with open_keys(place) as keys:
        assert list(keys.all()) == []
        ffx.Agent.open(copied(place)).close()  # nothing is missing
    assert (place.read_bytes(), beside(place)) == (content, set())


@pytest.mark.process
@pytest.mark.parametrize("times", [1, 2])
def test_after_a_kill_it_opens(tmp_path: Path, times: int) -> None:
    place = tmp_path / "agent.db"
    ffx.Agent.open(place, dimension=D, budget=BUDGET).close()
    for _ in range(times):
        child = os.fork()
        if child == 0:
            try:
                ffx.Agent.open(place).release()
                os.kill(os.getpid(), signal.SIGKILL)
            finally:
                os._exit(1)
        os.waitpid(child, 0)
        assert "-wal" in beside(place)
        assert main(["verify", "--data", str(place)]) == 0
        with pytest.raises(StateError, match=MISSING):
            ffx.Agent.open(copied(place))
    assert spent(place) == times


ENDINGS = {
    "without closing it": "agent.release()",
    "with an error": "agent.release(); raise SystemExit(0)",
    "in a transaction": "agent.release(); agent.journal.log.database.begin()",
    "after a child": """
agent.release()
child = os.fork()
if child == 0:
    sys.exit(0)
os.waitpid(child, 0)
shutil.copy(sys.argv[1], sys.argv[1] + ".copy")
try:
    ffx.Agent.open(sys.argv[1] + ".copy")
except ffx.errors.StateError:  # the child has not said that the file is closed
    agent.release()
""",
}


@pytest.mark.process
@pytest.mark.parametrize("ending", ENDINGS)
def test_after_the_end_of_a_program_it_opens(tmp_path: Path, ending: str) -> None:
    """SQLite removes the `-wal` when a program ends."""
    place = tmp_path / "agent.db"
    ffx.Agent.open(place, dimension=D, budget=BUDGET).close()
    program = "import os, shutil, sys\nimport fedfairx as ffx\nagent = ffx.Agent.open(sys.argv[1])\n"
    subprocess.run([sys.executable, "-c", program + ENDINGS[ending], place], check=True, timeout=120)
    assert spent(place) == (2 if ending == "after a child" else 1)


def test_files_of_others_stay_as_they_are(tmp_path: Path) -> None:
    place = tmp_path / "theirs.db"
    with closing(sqlite3.connect(place)) as theirs:
        theirs.execute("PRAGMA user_version = 1")
        theirs.execute("CREATE TABLE t (x)")
    content = place.read_bytes()
    with pytest.raises(StateError):
        ffx.Agent.open(place, dimension=D)
    assert place.read_bytes() == content
