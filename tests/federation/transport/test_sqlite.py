"""The file between processes: killed writers, foreign files, and who may read it."""

from __future__ import annotations

import itertools
import os
import signal
import sqlite3
import subprocess
import sys
from pathlib import Path

import pytest

from fedfairx.errors import TransportRefused, TransportUnavailable
from fedfairx.federation.transport import SqliteTransport
from nats_server import wait_until


def write(path: Path, name: str, output: int) -> None:
    """Publish messages until somebody kills this process, and say which are there."""
    transport, before = SqliteTransport(path), None
    for number in itertools.count():
        message = b"%d " % number * 2000
        transport.publish(name, message, replacing=before)
        os.write(output, b"%d\n" % number)
        before = message


@pytest.mark.process
def test_two_connections_of_a_process_do_not_lose_their_locks(tmp_path: Path) -> None:
    """Another process that opens and closes the file must not take its log away from them."""
    path = tmp_path / "transport.sqlite"
    one, two = SqliteTransport(path), SqliteTransport(path)
    one.publish("a", b"1", replacing=None)
    assert two.latest() == {"a": b"1"}
    look = "import sqlite3, sys; print(sqlite3.connect(sys.argv[1]).execute(sys.argv[2]).fetchall())"

    def seen_by_another() -> str:
        command = [sys.executable, "-c", look, str(path), "SELECT message FROM messages"]
        return subprocess.run(command, capture_output=True, text=True, check=True).stdout.strip()

    assert seen_by_another() == "[(b'1',)]"
    one.publish("a", b"2", replacing=b"1")
    assert seen_by_another() == "[(b'2',)]"
    one.close()
    two.close()


@pytest.mark.process
def test_a_writer_that_is_killed_leaves_its_last_whole_message(tmp_path: Path) -> None:
    """kill -9 in the middle of writing: what was acknowledged is there, and every message is whole."""
    path = tmp_path / "transport.sqlite"
    reader = SqliteTransport(path)
    for name in ("a", "b", "c"):
        output, told = os.pipe()
        child = os.fork()
        if child == 0:
            try:
                write(path, name, told)
            finally:
                os._exit(1)
        os.close(told)
        with open(output) as said:
            acknowledged = -1
            while acknowledged < 20:
                acknowledged = int(said.readline())
            os.kill(child, signal.SIGKILL)
            rest = said.read().split()  # what it said before it died
        os.waitpid(child, 0)
        acknowledged = max([acknowledged, *(int(word) for word in rest)])
        message = reader.latest()[name]
        number = int(message.split()[0])
        assert acknowledged <= number <= acknowledged + 1
        assert message == b"%d " % number * 2000
    assert set(reader.latest()) == {"a", "b", "c"}
    reader.close()


def test_a_file_that_is_none_is_refused(tmp_path: Path) -> None:
    (tmp_path / "text").write_text("no database, but long enough to be one " * 100)
    with pytest.raises(TransportRefused, match="transport"):
        SqliteTransport(tmp_path / "text").latest()
    other = sqlite3.connect(tmp_path / "other")
    other.execute("CREATE TABLE something (x)")
    other.commit()
    with pytest.raises(TransportRefused, match="transport"):
        SqliteTransport(tmp_path / "other").latest()
    with pytest.raises(TransportUnavailable):
        SqliteTransport(tmp_path / "no" / "folder").latest()


def test_while_somebody_else_writes_a_call_waits_and_then_says_so(tmp_path: Path) -> None:
    path = tmp_path / "transport.sqlite"
    transport = SqliteTransport(path, deadline=0.2)
    transport.publish("a", b"one", replacing=None)
    other = sqlite3.connect(path, isolation_level=None)
    other.execute("BEGIN IMMEDIATE")
    with pytest.raises(TransportUnavailable, match="locked"):
        transport.publish("a", b"two", replacing=b"one")
    assert transport.latest() == {"a": b"one"}  # reading goes on
    other.execute("ROLLBACK")
    transport.publish("a", b"two", replacing=b"one")  # and it is the same object that goes on
    other.close()
    transport.close()


def test_only_the_owner_may_read_it(tmp_path: Path) -> None:
    transport = SqliteTransport(tmp_path / "transport.sqlite")
    transport.publish("a", b"one", replacing=None)
    for path in tmp_path.iterdir():
        assert path.stat().st_mode & 0o077 == 0
    transport.close()


def test_watching_outlives_trouble(tmp_path: Path) -> None:
    path = tmp_path / "folder" / "transport.sqlite"
    transport = SqliteTransport(path, poll=0.01)
    told: list[int] = []
    stop = transport.watch(lambda: told.append(1))
    path.parent.mkdir()
    wait_until(lambda: bool(told))
    stop()
    transport.close()
