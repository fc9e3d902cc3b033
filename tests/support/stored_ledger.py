"""A ledger in a database, without an agent."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from fedfairx.storage.open_log import open_log
from fedfairx.storage.privacy_ledger import StoredLedger


@contextmanager
def stored_ledger(path: Path) -> Iterator[StoredLedger]:
    log = open_log(path)
    try:
        yield StoredLedger(log, 1, 1)
    finally:
        log.close()
