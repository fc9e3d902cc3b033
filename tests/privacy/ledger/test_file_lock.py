"""One process at a time has a ledger, whatever is opened, read, forked or removed beside it."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable
from functools import partial
from pathlib import Path

import numpy as np
import pytest

from elsewhere import elsewhere
from fedfairx.errors import LedgerMismatch, PrivacyError, StateError
from fedfairx.privacy.ledger.ledger import Position
from fedfairx.privacy.ledger.sqlite import SqliteLedger
from fedfairx.storage import open_database
from fedfairx.util.file_lock import FileLock


def _position(frozen: int = 0) -> Position:
    return Position(frozen, np.zeros(5), 0, np.zeros(5), 0, 0)


def _bound(path: Path) -> SqliteLedger:
    ledger = SqliteLedger(path, create=True)
    ledger.bind({"dimension": 2})
    return ledger


def _opens(path: Path) -> None:
    SqliteLedger(path).close()


def _in_child(work: Callable[[], object]) -> int:
    """Exit code of a forked child: 0 for done, 7 for refused."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except PrivacyError:
            code = 7
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _second(path: Path) -> None:
    with pytest.raises(LedgerMismatch):
        SqliteLedger(path)


def _backup(path: Path) -> None:
    shutil.copy(path, path.with_suffix(".backup"))


def _fork(path: Path) -> None:
    assert _in_child(lambda: SqliteLedger(path)) == 7


@pytest.mark.process
@pytest.mark.parametrize("event", [_second, _backup, _fork])
def test_the_lock_outlives(tmp_path: Path, event: Callable[[Path], None]) -> None:
    """POSIX record locks would be lost in each case, since a descriptor of the file is closed."""
    path = tmp_path / "l"
    with elsewhere(partial(_opens, path)) as opens, _bound(path):
        event(path)
        assert opens().startswith("LedgerMismatch: ")


@pytest.mark.process
def test_a_forked_child_may_neither_use_nor_end_it(tmp_path: Path) -> None:
    path = tmp_path / "l"
    with _bound(path) as ledger:
        ledger.freeze(1, "digest", _position(1))
        for work in (
            lambda: ledger.add("r", _position()),
            lambda: ledger.freeze(2, "digest", _position(2)),
            lambda: ledger.record(1, b"m"),
            ledger.position,
            lambda: ledger.message(1),
            ledger.spent,
            ledger.unsent,
        ):
            assert _in_child(work) == 7
        for ending in (ledger.close, lambda: (delattr(ledger._file, "connection"), gc.collect())):
            assert _in_child(ending) == 0
            assert (tmp_path / "l-wal").exists()  # a connection that is closed would take it away
        ledger.record(1, b"m")
    with SqliteLedger(path) as ledger:
        assert ledger.message(1) == b"m"


@pytest.mark.process
@pytest.mark.parametrize("late", [False, True])
def test_a_child_that_is_still_there_does_not_hold_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    path = tmp_path / "l"
    if late:  # a child that has not come to giving up its share
        monkeypatch.setattr(FileLock, "disown", lambda _: [])
    with elsewhere(partial(_opens, path)) as opens:
        ledger = _bound(path)
        with elsewhere(lambda: None):
            ledger.close()
            assert opens() == "None"


def test_a_lock_that_was_removed_is_noticed(tmp_path: Path) -> None:
    with _bound(tmp_path / "l") as ledger:
        (tmp_path / "l.lock").unlink()
        with pytest.raises(PrivacyError, match="was removed"):
            ledger.freeze(1, "digest", _position(1))


def _file(path: Path) -> None:
    path.write_bytes(b"somebody's")


def _nothing(path: Path) -> None:
    assert not path.exists()


@pytest.mark.parametrize("target", [_file, _nothing])
def test_a_lock_that_is_a_link_is_refused_and_its_target_left_alone(
    tmp_path: Path, target: Callable[[Path], None]
) -> None:
    other = tmp_path / "other"
    target(other)
    (tmp_path / "l.lock").symlink_to(other)
    with pytest.raises(
        PrivacyError, match=r"l\.lock must be a file of its own, and is a symbolic link: remove"
    ):
        SqliteLedger(tmp_path / "l", create=True)
    with pytest.raises(StateError, match="is a symbolic link: remove the link"):
        open_database(tmp_path / "l")
    assert (other.read_bytes() == b"somebody's") if target is _file else not other.exists()
    assert not (tmp_path / "l").exists()
    (tmp_path / "l.lock").unlink()
    SqliteLedger(tmp_path / "l", create=True).close()


def test_a_lock_that_becomes_a_link_is_noticed(tmp_path: Path) -> None:
    """Even one to the very file that was locked: whoever made it can let it lead elsewhere."""
    with _bound(tmp_path / "l") as ledger:
        (tmp_path / "l.lock").rename(tmp_path / "moved")
        (tmp_path / "l.lock").symlink_to(tmp_path / "moved")
        with pytest.raises(PrivacyError, match="was removed"):
            ledger.freeze(1, "digest", _position(1))


def test_a_closed_ledger_says_so(tmp_path: Path) -> None:
    ledger = _bound(tmp_path / "l")
    ledger.close()
    ledger.close()
    with pytest.raises(PrivacyError, match="is closed"):
        ledger.spent()


def test_a_forgotten_ledger_gives_its_file_free(tmp_path: Path) -> None:
    ledger = _bound(tmp_path / "l")
    del ledger
    gc.collect()
    SqliteLedger(tmp_path / "l").close()
