"""One process at a time has a file, whatever is opened, read, forked or removed beside it."""

from __future__ import annotations

import gc
import os
import shutil
from collections.abc import Callable, Iterator
from contextlib import closing, contextmanager
from functools import partial
from pathlib import Path

import pytest

from elsewhere import elsewhere
from fedfairx.errors import LedgerMismatch, PrivacyError, StateError, StorageUnavailable
from fedfairx.storage.open_log import open_database
from fedfairx.storage.sqlite import SqliteDatabase
from fedfairx.util.file_lock import FileLock


@contextmanager
def _written(path: Path) -> Iterator[SqliteDatabase]:
    """A database in which a transaction was committed, so that it has a `-wal`."""
    database = SqliteDatabase(str(path))
    try:
        database.begin()
        database.execute("CREATE TABLE t (x)")
        database.commit()
        yield database
    finally:
        database.close()


def _opens(path: Path) -> None:
    SqliteDatabase(str(path)).close()


def _in_child(work: Callable[[], object]) -> int:
    """Exit code of a forked child: 0 for done, 7 for refused."""
    child = os.fork()
    if child == 0:
        code = 1
        try:
            work()
            code = 0
        except StorageUnavailable:
            code = 7
        finally:
            os._exit(code)
    return os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])


def _second(path: Path) -> None:
    with pytest.raises(StorageUnavailable, match="is locked"):
        _opens(path)


def _backup(path: Path) -> None:
    shutil.copy(path, path.with_suffix(".backup"))


def _fork(path: Path) -> None:
    assert _in_child(partial(_opens, path)) == 7


@pytest.mark.process
@pytest.mark.parametrize("event", [_second, _backup, _fork])
def test_the_lock_outlives(tmp_path: Path, event: Callable[[Path], None]) -> None:
    """POSIX record locks would be lost in each case, since a descriptor of the file is closed."""
    path = tmp_path / "a.db"
    with elsewhere(partial(_opens, path)) as opens, _written(path):
        event(path)
        assert "is locked by process" in opens()


@pytest.mark.process
def test_a_forked_child_may_neither_use_nor_end_it(tmp_path: Path) -> None:
    path = tmp_path / "a.db"
    with _written(path) as database:
        for work in (
            database.begin,
            lambda: database.insert("INSERT INTO t VALUES (?)", (1,)),
            lambda: database.execute("SELECT x FROM t"),
            lambda: database.read("SELECT x FROM t"),
        ):
            assert _in_child(work) == 7
        for ending in (database.close, lambda: (delattr(database, "_writer"), gc.collect())):
            assert _in_child(ending) == 0
            assert (tmp_path / "a.db-wal").exists()  # a connection that is closed would take it away
        database.insert("INSERT INTO t VALUES (?)", (1,))
    with closing(SqliteDatabase(str(path))) as database:
        assert database.execute("SELECT x FROM t") == [(1,)]


@pytest.mark.process
@pytest.mark.parametrize("late", [False, True])
def test_a_child_that_is_still_there_does_not_hold_the_lock(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, late: bool
) -> None:
    path = tmp_path / "a.db"
    if late:  # a child that has not come to giving up its share
        monkeypatch.setattr(FileLock, "disown", lambda _: [])
    with elsewhere(partial(_opens, path)) as opens:
        database = SqliteDatabase(str(path))
        with elsewhere(lambda: None):
            database.close()
            assert opens() == "None"


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
    (tmp_path / "a.db.lock").symlink_to(other)
    text = r"a\.db\.lock must be a file of its own, and is a symbolic link: remove the link"
    with pytest.raises(PrivacyError, match=text):
        FileLock(tmp_path / "a.db.lock")
    with pytest.raises(StateError, match=text):
        open_database(tmp_path / "a.db")
    assert (other.read_bytes() == b"somebody's") if target is _file else not other.exists()
    assert not (tmp_path / "a.db").exists()
    (tmp_path / "a.db.lock").unlink()
    _opens(tmp_path / "a.db")


def _removed(lock: Path) -> None:
    lock.unlink()


def _linked(lock: Path) -> None:
    """To the very file that was locked: whoever made the link can let it lead elsewhere."""
    lock.rename(lock.with_name("moved"))
    lock.symlink_to(lock.with_name("moved"))


@pytest.mark.parametrize("change", [_removed, _linked])
def test_a_lock_that_is_there_no_more_is_noticed(tmp_path: Path, change: Callable[[Path], None]) -> None:
    with _written(tmp_path / "a.db") as database:
        change(tmp_path / "a.db.lock")
        for work in (database.begin, lambda: database.execute("SELECT x FROM t")):
            with pytest.raises(StorageUnavailable, match="was removed"):
                work()


def test_who_holds_it_and_that_it_is_free(tmp_path: Path) -> None:
    lock = FileLock(tmp_path / "a.lock")
    with pytest.raises(LedgerMismatch, match=rf"is locked by process {os.getpid()} on .* since 20"):
        FileLock(tmp_path / "a.lock")
    lock.free()
    lock.free()
    with pytest.raises(PrivacyError, match="is closed"):
        lock.check()
    FileLock(tmp_path / "a.lock").free()


def test_a_forgotten_database_gives_its_file_free(tmp_path: Path) -> None:
    database = SqliteDatabase(str(tmp_path / "a.db"))
    del database
    gc.collect()
    _opens(tmp_path / "a.db")
