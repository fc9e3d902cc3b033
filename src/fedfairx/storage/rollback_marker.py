"""Noticing that a database is older than it was: a mark left outside of it, beside the file.

The mark says how far the log had come and in which life. It is written after what it tells of is on disk,
so a crash never puts it ahead. A file put back from a backup without its mark is noticed when it is opened;
one moved together with its mark, or to a new place, is not, and neither is a PostgreSQL database: there
only peers can tell (`privacy.peers`).
"""

from __future__ import annotations

from fedfairx.errors import OlderCopy
from fedfairx.storage.transaction_log import Log


def leave_mark(log: Log) -> None:
    """Say outside how far the log has come."""
    rows = log.database.execute("SELECT prefix FROM id_prefixes ORDER BY id DESC LIMIT 1")
    if rows:
        log.database.leave_mark({"life": rows[0][0], "end": log.end})


def check_mark(log: Log) -> None:
    """`OlderCopy` if the log is behind what was said outside, or went another way."""
    mark = log.database.mark
    life, end = mark.get("life"), mark.get("end")
    if not isinstance(life, str) or not isinstance(end, int):
        return
    known = log.database.execute("SELECT 1 FROM id_prefixes WHERE prefix = ?", (life,))
    if not known or end > log.end:
        place = log.database.place
        raise OlderCopy(
            f"{place} is an older copy: it ends at step {log.end}, and it was at step {end} when it was last "
            f"used here. A private agent must not go on from it, since its messages are out; for any other, "
            f"remove {place}.lock if this is meant"
        )
