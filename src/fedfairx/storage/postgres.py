"""A database on a PostgreSQL server.

An advisory lock excludes other processes while the connection lives, and a row says who holds it. When the
connection is lost, the next step connects and locks again. The process goes on if nobody else has had the
lock meanwhile; else its agents are not what the database says, and it must be started again. The same holds
if what it wrote last is missing, which each transaction looks up: an older copy can be restored under a
running process without closing its connection.
"""

from __future__ import annotations

import json
import os
import re
import socket
import threading
import time
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING, Any

from fedfairx.errors import (
    InvalidInput,
    OlderCopy,
    OutcomeUnknown,
    StateError,
    StorageError,
    StorageUnavailable,
    needs,
)
from fedfairx.storage.database import Access, InUse, LastRow, Row, damaged, is_there
from fedfairx.util.fork_safety import watch

if TYPE_CHECKING:
    import psycopg

_TYPES = {" BLOB": " BYTEA", " INTEGER": " BIGINT", " REAL": " DOUBLE PRECISION"}
_WAITS = (0.01, 0.04, 0.1, 0.2, 0.4)  # seconds
#: The server ends the session of a machine that is gone, and with it the lock, after some 25 seconds.
_KEEPALIVE = "SET tcp_keepalives_idle = 10; SET tcp_keepalives_interval = 5; SET tcp_keepalives_count = 3"
#: So does this process, where the address says nothing else; it waits for no longer than that to connect.
_PATIENCE = {
    "connect_timeout": 10,
    "keepalives_idle": 10,
    "keepalives_interval": 5,
    "keepalives_count": 3,
    "tcp_user_timeout": 25_000,
}
_LOCK = "('fedfairx ' || current_schema())"
#: What shows the life of a service in `pg_stat_activity`, and ends one that has shown none for some seconds.
_SHOW_LIFE = "SET application_name = 'fedfairx serve'"
_END_PAUSED = f"""
    SELECT pg_terminate_backend(a.pid) FROM pg_locks l JOIN pg_stat_activity a ON a.pid = l.pid
    WHERE l.locktype = 'advisory' AND l.granted AND l.objsubid = 1
    AND l.database = (SELECT oid FROM pg_database WHERE datname = current_database())
    AND (l.classid::BIGINT << 32 | l.objid::BIGINT) = hashtextextended({_LOCK}, 0)
    AND a.application_name = 'fedfairx serve'
    AND a.wait_event_type = 'Client' AND a.state_change < clock_timestamp() - make_interval(secs => %s)
"""
#: What a server says to a connection that it will refuse later, too. Its code is not known then.
_REFUSED = re.compile(
    r"authentication failed|no password supplied|no pg_hba\.conf entry|is not permitted to log in"
    r'|(database|role|user) ".*" does not exist|certificate|invalid '
).search
_INSERT = re.compile(r"INSERT INTO (\w+) \(([\w, ]+)\) VALUES \([?, ]+\)").fullmatch
_HOLDER = "CREATE TABLE IF NOT EXISTS holder (id BIGINT PRIMARY KEY, process BIGINT, host TEXT, since TEXT)"
_HOLD = (
    "INSERT INTO holder VALUES (1, %s, %s, %s) ON CONFLICT (id) DO UPDATE SET "
    "process = excluded.process, host = excluded.host, since = excluded.since"
)
#: Error codes after which a retry may succeed: connection, conflict, resources, operator, read-only.
_TRY_AGAIN = ("08", "40", "53", "55", "57", "58", "25006")
#: Error codes of damage: values, constraints, a missing table or column, the server's own checks.
_DAMAGED = ("22", "23", "42P01", "42703", "XX")


class PostgresDatabase:
    """A `Database` in the schema that the address selects; use a separate schema for each database."""

    local = False
    last_row: LastRow | None = None
    ended: StorageError | None = None
    unmark = "DROP TABLE older_copy"

    def __init__(self, address: str, *, access: Access = "own") -> None:
        with needs("postgres"):
            import psycopg
        self._psycopg = psycopg
        self._address = address
        self._access = access
        self._inside = False  # a transaction
        self._shows_life = False  # see `show_life`
        self._holder = os.getpid(), socket.gethostname(), datetime.now(UTC).isoformat()
        self._locked = False  # whether this process had the lock before
        self._types: dict[str, list[int]] = {}  # of the columns that a statement inserts
        self._guard = threading.RLock()
        self._writer: psycopg.Connection[Row] | None = None
        self._reader: psycopg.Connection[Row] | None = None
        try:
            info = psycopg.conninfo.conninfo_to_dict(address)
        except psycopg.Error:  # its text may have the password
            raise InvalidInput("database must be a URL that PostgreSQL understands") from None
        self._patience = {name: value for name, value in _PATIENCE.items() if name not in info}
        self.place = f"postgresql://{info.get('host', '')}/{info.get('dbname', '')}"
        self._forked = False
        with self._translated():
            self._connected()
        watch(self)

    def _connected(self) -> psycopg.Connection[Row]:
        """The connection for writing: the open one, or a new one that holds the lock."""
        self._check()
        if self._writer is not None and not self._writer.closed and not self._writer.broken:
            return self._writer
        if self._inside:
            raise StorageUnavailable(f"the connection to {self.place} was lost; nothing has changed")
        connection = self._connect()
        try:
            if self._access == "read":
                connection.execute("BEGIN ISOLATION LEVEL REPEATABLE READ READ ONLY")
            else:
                connection.execute("SET synchronous_commit = on")
            if self._access == "own":
                connection.execute(_KEEPALIVE)
                if self._shows_life:
                    connection.execute(_SHOW_LIFE)
                self._lock(connection)
        except BaseException:
            connection.close()
            raise
        self._writer = connection
        return connection

    def _connect(self) -> psycopg.Connection[Row]:
        return self._psycopg.connect(self._address, autocommit=True, **self._patience)  # type: ignore[arg-type]

    def show_life(self) -> bool:
        self._shows_life = True
        connection, active = self._writer, self._psycopg.pq.TransactionStatus.ACTIVE
        if connection is None or connection.closed:
            return False
        with suppress(self._psycopg.Error):
            if connection.info.transaction_status != active:
                connection.execute(_SHOW_LIFE)
        return not connection.closed

    def _check(self) -> None:
        if self._forked:
            raise StorageUnavailable(f"{self.place} is open in the process that this one was forked from")
        if self.ended is not None:
            raise self.ended

    def _lock(self, connection: psycopg.Connection[Row]) -> None:
        """Take the lock; if this process had it before, nobody else may have had it since."""
        for wait in (*_WAITS, None):  # the server notices late that a process has ended
            row = connection.execute(f"SELECT pg_try_advisory_lock(hashtextextended({_LOCK}, 0))").fetchone()
            free = row is not None and row[0]
            if wait is None or free:
                break
            time.sleep(wait)
        holder, who = None, ""
        with suppress(self._psycopg.errors.UndefinedTable):  # the first process is about to create it
            holder = connection.execute("SELECT process, host, since FROM holder").fetchone()
        if holder is not None:
            who = f" by process {holder[0]} on {holder[1]} since {holder[2]}"
        if self._locked and free:
            self._check_last_row(connection)
        if self._locked and holder != self._holder:
            raise self._end(
                f"{self.place} was locked{who} while this process had lost its connection, so what it has in "
                "memory may be out of date; nothing was written. Start it again: it reads what is there"
            )
        if not free:
            raise InUse(f"{self.place} is locked{who}: is it in use?")
        # Not before the lock: PostgreSQL refuses one of two processes that create a table at the same time.
        connection.execute(_HOLDER)
        connection.execute(_HOLD, self._holder)
        self._locked = True

    def _check_last_row(self, connection: psycopg.Connection[Row]) -> None:
        """Refuse a database in which what this process knows is missing."""

        def ask(question: str, values: Sequence[Any]) -> list[Row]:
            return connection.execute(_marks(question), values).fetchall()

        if self.last_row is not None and not is_there(ask, self.last_row):
            raise self._older_copy(connection, self.last_row)

    def _older_copy(self, connection: psycopg.Connection[Row], last: LastRow) -> OlderCopy:
        """The error of an older copy; one that has a private agent is marked, so that it stays closed."""
        connection.execute("ROLLBACK")
        remedy = "Restore a later copy, or start again to go on without what is missing"
        if connection.execute("SELECT 1 FROM agents WHERE secret IS NOT NULL").fetchone():
            prefix = connection.execute("SELECT prefix FROM id_prefixes ORDER BY id DESC LIMIT 1").fetchone()
            mark = {"life": prefix[0] if prefix else "", "end": last.end}
            connection.execute("DROP TABLE IF EXISTS older_copy; CREATE TABLE older_copy (mark TEXT)")
            connection.execute("INSERT INTO older_copy VALUES (%s)", (json.dumps(mark),))
            remedy = (
                "It holds a private agent, which must not go on from it, since its messages are out: restore "
                "a later copy"
            )
        return self._end(
            f"{self.place} is an older copy: not all is there that this process has written, up to step "
            f"{last.end}. Nothing more was written. {remedy}"
        )

    def _end(self, why: str) -> OlderCopy:
        """The error of this and each later use."""
        self.ended = error = OlderCopy(why)
        return error

    @property
    def mark(self) -> dict[str, Any]:
        """What `_older_copy` left."""
        rows = self.execute("SELECT mark FROM older_copy") if "older_copy" in self.tables() else []
        return json.loads(rows[0][0]) if rows else {}

    def leave_mark(self, mark: dict[str, Any]) -> None:
        """Do nothing: there is no place outside of the database, and within it a copy has its own mark."""

    def check_last_row(self) -> None:
        with self._translated():
            self._check_last_row(self._connected())

    def overwrite_deleted(self) -> None:
        """Do nothing: the server's autovacuum makes room of dead rows, in its own time."""

    def begin(self, *, briefly: bool = False) -> None:  # noqa: ARG002
        with self._translated():
            connection = self._outside()
            try:
                connection.execute("BEGIN")
                self._check_last_row(connection)
            except self._psycopg.Error:
                self.rollback()
                raise
            self._inside = True

    def _outside(self) -> psycopg.Connection[Row]:
        """The connection, in no transaction: one that Ctrl-C left open is undone."""
        connection = self._connected()
        if connection.info.transaction_status != self._psycopg.pq.TransactionStatus.IDLE:
            connection.execute("ROLLBACK")
        return connection

    def commit(self) -> None:
        connection = self._within()
        try:
            connection.execute("COMMIT")
        except self._psycopg.Error as error:
            meaning = self._meaning(error)
            raise (self._unknown() if connection.closed else meaning) from error
        self._inside = False

    def rollback(self) -> None:
        self._inside = False
        with suppress(self._psycopg.Error):
            if self._writer is not None and not self._writer.closed and not self._forked:
                self._writer.execute("ROLLBACK")

    def _within(self) -> psycopg.Connection[Row]:
        """The connection of the open transaction, which is lost with it."""
        if self._writer is None or self._writer.closed:
            raise StorageUnavailable(f"the connection to {self.place} was lost; nothing has changed")
        return self._writer

    def execute(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        with self._translated():
            cursor = self._connected().execute(_marks(statement), values)
            return cursor.fetchall() if cursor.description is not None else []

    def insert(self, statement: str, row: Row, *, briefly: bool = False) -> None:  # noqa: ARG002
        with self._translated():
            connection, last = self._outside(), self.last_row
            if last is not None:  # in the same statement, which is undone by a division by zero
                statement = f"{statement} RETURNING 1 / (SELECT COUNT(*) FROM {last.where})"
                row = (*row, *last.values)
            try:
                connection.execute(_marks(statement), row)
            except self._psycopg.errors.DivisionByZero:
                if last is None:
                    raise
                raise self._older_copy(connection, last) from None
            except self._psycopg.OperationalError as error:
                if error.sqlstate is None and connection.closed:
                    raise self._unknown() from error
                raise

    def execute_many(self, statement: str, rows: Sequence[Row]) -> None:
        with self._translated(), self._within().cursor() as cursor:
            plain = _INSERT(statement) if len(rows) > 1 else None
            if plain is None:
                cursor.executemany(_marks(statement), rows)
                return
            # In a quarter of the time that an INSERT for each row takes.
            table, columns = plain.groups()
            if statement not in self._types:
                cursor.execute(f"SELECT {columns} FROM {table} LIMIT 0")
                self._types[statement] = [column.type_code for column in cursor.description or ()]
            with cursor.copy(f"COPY {table} ({columns}) FROM STDIN (FORMAT BINARY)") as copy:
                copy.set_types(self._types[statement])
                for row in rows:
                    copy.write_row(row)

    def read(self, statement: str, values: Sequence[Any] = ()) -> list[Row]:
        if self._access == "read":  # all queries see the snapshot
            return self.execute(statement, values)
        with self._translated(), self._guard:
            self._check()
            if self._reader is not None and not self._reader.closed:
                with suppress(self._psycopg.OperationalError):  # connection lost: a query can be repeated
                    return self._reader.execute(_marks(statement), values).fetchall()
            self._reader = self._connect()
            return self._reader.execute(_marks(statement), values).fetchall()

    def space(self) -> tuple[int, int | None]:
        question = (
            "SELECT COALESCE(SUM(pg_total_relation_size(c.oid)), 0) FROM pg_class c "
            "WHERE c.relkind = 'r' AND c.relnamespace = current_schema()::regnamespace"
        )
        return int(self.read(question)[0][0]), None

    def tables(self) -> set[str]:
        question = "SELECT tablename FROM pg_tables WHERE schemaname = current_schema()"
        return {str(name) for (name,) in self.execute(question)}

    def types(self, statement: str) -> str:
        for name, here in _TYPES.items():
            statement = statement.replace(name, here)
        return statement

    def close(self) -> None:
        with self._guard:
            for connection in (self._reader, self._writer):
                if connection is not None and not self._forked:
                    with suppress(self._psycopg.Error):  # else the server would release it later
                        connection.execute("SELECT pg_advisory_unlock_all()")
                    connection.close()

    def disown(self) -> list[Any]:
        """In a forked child: leave the connections to the parent, so that its lock ends with it."""
        connections = [connection for connection in (self._writer, self._reader) if connection is not None]
        for connection in connections:
            if not connection.closed:
                os.close(connection.fileno())  # the child's share of the socket; nothing is sent
        self._forked = True
        self._writer = self._reader = None  # a child of this child would close somebody else's descriptors
        return connections

    def _unknown(self) -> OutcomeUnknown:
        text = f"the connection to {self.place} was lost during a commit: whether it was stored is not known"
        return OutcomeUnknown(text)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except self._psycopg.Error as error:
            raise self._meaning(error) from error

    def _meaning(self, error: psycopg.Error) -> StorageError:
        """The error to raise: by PostgreSQL's code, a retry may succeed or not."""
        code = error.sqlstate
        text = str(error).splitlines()[0] if str(error) else type(error).__name__
        lost = code is None and isinstance(
            error, self._psycopg.OperationalError | self._psycopg.InterfaceError
        )
        if lost and not self._locked and _REFUSED(str(error)):
            return StateError(f"{self.place} can't be used: {text}")
        if lost or (code is not None and code.startswith(_TRY_AGAIN)):
            # Of a server that may only be read now, another one may be written.
            if self._writer is not None and (self._writer.broken or code == "25006"):
                self._writer.close()
            return StorageUnavailable(f"{self.place} can't be used for now: {text}; nothing has changed")
        if code is not None and code.startswith(_DAMAGED):
            return damaged(self.place, text)
        return StateError(f"{self.place} can't be used: {text}")


def end_paused(address: str, seconds: float) -> bool:
    """End the session of a service that has a database and was paused for so long; whether there was one."""
    import psycopg

    with suppress(psycopg.Error), psycopg.connect(address, autocommit=True, **_PATIENCE) as connection:  # type: ignore[arg-type]
        return connection.execute(_END_PAUSED, (seconds,)).fetchone() is not None
    return False


def _marks(statement: str) -> Any:
    """The statement with `%s` for `?`; no statement has either in a string."""
    return statement.replace("?", "%s")
