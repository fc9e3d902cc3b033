"""New SQLite databases of tests are copies of an empty one that the migrations have made.

Tests make thousands of them, and SQLite takes most of that time to rename tables. Tests whose subject is how
tables are made ask for the fixture `migrated`.
"""

from __future__ import annotations

import sqlite3
from collections.abc import Iterator
from pathlib import Path
from tempfile import TemporaryDirectory
from typing import TYPE_CHECKING

import pytest

if TYPE_CHECKING:
    from fedfairx.storage.database import Database


class EmptyDatabase:
    """A database without an agent in memory, made by the migrations when it is first copied."""

    def __init__(self) -> None:
        from fedfairx.storage.migrations import MIGRATIONS

        self._migrations = MIGRATIONS
        self._content: sqlite3.Connection | None = None

    def migrate(self, database: Database) -> None:
        """As `migrations.migrate`, which this calls for all but a new SQLite database."""
        from fedfairx.storage import migrations
        from fedfairx.storage.sqlite import SqliteDatabase

        if (
            isinstance(database, SqliteDatabase)
            and migrations.MIGRATIONS is self._migrations
            and not database.execute("SELECT 1 FROM sqlite_master LIMIT 1")
        ):
            if self._content is None:
                self._content = self._made()
            self._content.backup(database._writer)
        else:
            migrations.migrate(database)

    def _made(self) -> sqlite3.Connection:
        from fedfairx.storage import migrations
        from fedfairx.storage.sqlite import SqliteDatabase

        content = sqlite3.connect(":memory:", check_same_thread=False)
        with TemporaryDirectory() as folder:
            database = SqliteDatabase(str(Path(folder) / "empty.db"))
            migrations.migrate(database)
            database._writer.backup(content)
            database.close()
        return content


@pytest.fixture(autouse=True, scope="session")
def _copied() -> Iterator[None]:
    from fedfairx.storage import open_log

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(open_log, "migrate", EmptyDatabase().migrate)
        yield


@pytest.fixture
def migrated(monkeypatch: pytest.MonkeyPatch) -> None:
    """Databases of this test are made by the migrations."""
    from fedfairx.storage import migrations, open_log

    monkeypatch.setattr(open_log, "migrate", migrations.migrate)
