"""Real servers for tests, started in a temporary folder and stopped at the end; and places for agents.

A server that is not installed skips the tests that need it, with a word; with FEDFAIRX_SERVERS=required,
which CI sets, it fails them.
"""

from __future__ import annotations

import glob
import os
import pwd
import shutil
import subprocess
import sys
import tempfile
import uuid
from collections.abc import Iterator, Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

#: The columns of all tables and indexes of a schema.
SHAPE = """
    SELECT c.relname, c.relkind, array_agg(a.attname::text || ' ' || a.atttypid ORDER BY a.attnum)
    FROM pg_class c JOIN pg_attribute a ON a.attrelid = c.oid AND a.attnum > 0
    WHERE c.relnamespace = %s::regnamespace GROUP BY c.relname, c.relkind ORDER BY c.relname
"""


def missing(what: str) -> None:
    """Skip the test, or fail it where servers are required."""
    text = f"{what} is not installed here, and this test needs it"
    if os.environ.get("FEDFAIRX_SERVERS") == "required":
        pytest.fail(text)
    pytest.skip(text)


class Postgres:
    """A PostgreSQL server of one's own, on a Unix socket, without a password; tests need no flushed disk."""

    def __init__(self, programs: Path, *, flush: bool = False) -> None:
        self.programs = programs
        self._flush = flush
        self._folder = tempfile.mkdtemp(prefix="ffxpg")
        self._root = os.geteuid() == 0  # the server refuses to run as root
        if self._root:
            owner = pwd.getpwnam("postgres")
            os.chown(self._folder, owner.pw_uid, owner.pw_gid)
        self._data = f"{self._folder}/data"
        self._connection: Any = None
        self._emptied: list[str] = []  # addresses of schemas that were given back
        self._shape: Any = None  # of the tables in them
        self._run("initdb", "-D", self._data, "-U", "postgres", "-A", "trust", "--no-sync", "-E", "UTF8")
        self.start()

    def start(self, data: Path | None = None) -> None:
        """Start it; with another folder of data, it has that from now on."""
        self._data = str(data or self._data)
        options = f"-k {self._folder} -h '' {'' if self._flush else '-F'} -c max_connections=50"
        self._run("pg_ctl", "-D", self._data, "-w", "-o", options, "-l", f"{self._folder}/log", "start")

    def stop(self, mode: str = "immediate") -> None:
        if self._connection is not None:
            self._connection.close()
        self._run("pg_ctl", "-D", self._data, "-w", "-m", mode, "stop")

    def backup(self) -> Path:
        """A copy of all that there is, to `start` from."""
        copy = Path(self._folder) / f"copy{uuid.uuid4().hex[:12]}"
        self._run(
            "pg_basebackup", "-D", str(copy), "-d", self.address, "-X", "fetch", "-c", "fast", "--no-sync"
        )
        return copy

    def remove(self) -> None:
        self.stop()
        shutil.rmtree(self._folder, ignore_errors=True)

    def schema(self) -> str:
        """The address of an empty schema."""
        name = f"s{uuid.uuid4().hex[:12]}"
        self._connected().execute(f"CREATE SCHEMA {name}")
        return f"{self.address}&options=-csearch_path%3D{name}"

    def lend(self) -> str:
        """The address of a schema that has the tables of a durable agent, but no rows, until `take_back`."""
        from fedfairx.storage.open_log import open_log

        if self._emptied:
            return self._emptied.pop()
        place = self.schema()
        open_log(place).close()
        if self._shape is None:
            self._shape = self._connected().execute(SHAPE, (_name(place),)).fetchall()
        return place

    def take_back(self, place: str) -> None:
        """Remove all rows, to lend the schema again; not if its tables have changed or are in use."""
        import psycopg

        from fedfairx.storage.schema import VERSION

        name, connection = _name(place), self._connected()
        with suppress(psycopg.Error), connection.transaction():
            held = "SELECT pg_try_advisory_xact_lock(hashtextextended('fedfairx ' || %s, 0))"
            free = connection.execute(held, (name,)).fetchone() == (True,)
            if not free or connection.execute(SHAPE, (name,)).fetchall() != self._shape:
                return
            tables = [table for table, kind, _ in self._shape if kind == "r"]
            connection.execute(
                f"SET LOCAL lock_timeout = '1s'; "
                f"{'; '.join(f'DELETE FROM {name}.{table}' for table in tables)}; "
                f"INSERT INTO {name}.fedfairx VALUES ({VERSION})"
            )
            self._emptied.append(place)

    def ask(self, question: str) -> list[Any]:
        rows: list[Any] = self._connected().execute(question).fetchall()
        return rows

    def end_sessions(self) -> None:
        """Of all clients but this one."""
        self.ask(
            "SELECT pg_terminate_backend(pid) FROM pg_stat_activity "
            "WHERE pid <> pg_backend_pid() AND backend_type = 'client backend'"
        )

    def _connected(self) -> Any:
        import psycopg

        if self._connection is not None:
            with suppress(psycopg.Error):  # a test may end all connections
                self._connection.execute("SELECT 1")
                return self._connection
        self._connection = psycopg.connect(self.address, autocommit=True)
        return self._connection

    @property
    def socket(self) -> Path:
        """Where it listens."""
        return Path(self._folder) / ".s.PGSQL.5432"

    @property
    def address(self) -> str:
        return f"postgresql://postgres@/postgres?host={self._folder}"

    def _run(self, program: str, *arguments: str) -> None:
        command = [str(self.programs / program), *arguments]
        if self._root:
            command = ["setpriv", "--reuid=postgres", "--regid=postgres", "--init-groups", *command]
        # Not captured by pipes: the server would keep them open.
        with open(f"{self._folder}.out", "w+") as said:
            done = subprocess.run(command, stdout=said, stderr=said, cwd="/", timeout=60)
            said.seek(0)
            assert done.returncode == 0, said.read()
        os.unlink(f"{self._folder}.out")


def _name(place: str) -> str:
    """The name of the schema at an address."""
    return place.rpartition("%3D")[2]


def postgres_programs() -> Path | None:
    """Where PostgreSQL's programs are, of the newest version there is."""
    found = sorted(glob.glob("/usr/lib/postgresql/*/bin/initdb")) or [shutil.which("initdb") or ""]
    return Path(found[-1]).parent if found[-1] else None


@pytest.fixture(scope="session")
def postgres() -> Iterator[Postgres]:
    """A PostgreSQL server for this session."""
    programs = postgres_programs()
    if programs is None:
        missing("PostgreSQL")
    pytest.importorskip("psycopg")
    assert programs is not None
    server = Postgres(programs)
    yield server
    server.remove()


@pytest.fixture
def own_postgres(postgres: Postgres) -> Iterator[Postgres]:
    """A PostgreSQL server for one test, which can be stopped, and fall back to a copy."""
    other = Postgres(postgres.programs)
    yield other
    other.remove()


@pytest.fixture(params=["sqlite", "postgresql"])
def place(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[str]:
    """A place for a durable agent, of each kind; on a server with the tables, to save time."""
    if request.param == "sqlite":
        yield str(tmp_path / "agent.db")
        return
    server: Postgres = request.getfixturevalue("postgres")
    lent = server.lend()
    yield lent
    server.take_back(lent)


@pytest.fixture
def forked_fleet(monkeypatch: pytest.MonkeyPatch) -> None:
    """Services of a demonstration are forked, as other tests' are; its other programs start as ever."""
    from fedfairx.demo import launcher
    from service_helpers import Forked

    real = launcher.start_process

    def start(command: Sequence[str], *, log: Path, cwd: Path) -> Any:
        if [*command[:3]] != [sys.executable, "-m", "fedfairx"]:
            return real(command, log=log, cwd=cwd)
        return Forked([*command[3:]], log=log, cwd=cwd)

    monkeypatch.setattr(launcher, "start_process", start)
