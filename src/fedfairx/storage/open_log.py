"""From a place to the log in it."""

from __future__ import annotations

import os

from fedfairx.storage.database import open_database
from fedfairx.storage.migrations import bring_up
from fedfairx.storage.rollback_marker import check_mark
from fedfairx.storage.transaction_log import Log


def open_log(place: str | os.PathLike[str]) -> Log:
    """The log in a database, whose tables are made or brought up to date."""
    database = open_database(place)
    try:
        bring_up(database)
        log = Log(database)
        check_mark(log)
    except BaseException:
        database.close()
        raise
    return log
