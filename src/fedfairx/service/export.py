"""Decisions with all that is known of them, as JSON lines, CSV or Parquet: for their owner alone."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator
from itertools import islice
from pathlib import Path
from typing import Any

import msgspec

from fedfairx.errors import needs
from fedfairx.storage.records import StoredDecision

FORMATS = {"jsonl": "application/jsonl", "csv": "text/csv", "parquet": "application/vnd.apache.parquet"}
COLUMNS = (
    "decision_id",
    "seq",
    "time",
    "mode",
    "status",
    "action",
    "action_id",
    "group",
    "probability",
    "drawn",
    "baseline",
    "policy",
    "contexts",
    "action_ids",
    "groups",
    "reward",
    "reward_time",
    "person",
    "model_version",
)
CHUNK = 2_000  # rows of a Parquet group
#: The last, so that one apostrophe can always be taken off.
RISKY = ("=", "+", "-", "@", "\t", "\r", "\n", "'")


def record(stored: StoredDecision) -> dict[str, Any]:
    """A row. `probability` is with which the action was taken (its propensity), `policy` the fair shares."""
    action, names, groups = stored.action, stored.names, stored.groups
    values = (
        stored.id,
        stored.seq,
        stored.time,
        stored.mode,
        stored.status,
        action,
        None if names is None else names[action],
        None if groups is None else groups[action],
        stored.propensity,
        stored.drawn,
        stored.baseline,
        stored.policy.tolist(),
        None if stored.featureless else stored.contexts.tolist(),
        names,
        groups,
        stored.reward,
        stored.reward_time,
        stored.person,
        stored.model_version,
    )
    return dict(zip(COLUMNS, values, strict=True))


def json_lines(rows: Iterable[StoredDecision]) -> Iterator[bytes]:
    """One object a line."""
    for stored in rows:
        yield msgspec.json.encode(record(stored)) + b"\n"


def csv_lines(rows: Iterable[StoredDecision]) -> Iterator[bytes]:
    """A header and a line each; lists are JSON, and texts begin with nothing that a spreadsheet computes."""
    yield _csv(COLUMNS)
    for stored in rows:
        yield _csv(map(_cell, record(stored).values()))


def _cell(value: object) -> object:
    if isinstance(value, list):
        return msgspec.json.encode(value).decode()  # it begins with a bracket
    return f"'{value}" if isinstance(value, str) and value.startswith(RISKY) else value


def _csv(values: Iterable[object]) -> bytes:
    line = io.StringIO()
    csv.writer(line).writerow(values)
    return line.getvalue().encode()


def write_parquet(rows: Iterable[StoredDecision], path: Path) -> None:
    """All of it into a file, group by group, so that memory holds one of them."""
    with needs("experiments"):
        import pyarrow
        import pyarrow.parquet

    schema = _schema(pyarrow)
    waiting = iter(rows)
    with pyarrow.parquet.ParquetWriter(path, schema, compression="zstd") as writer:
        while group := [record(stored) for stored in islice(waiting, CHUNK)]:
            writer.write_table(pyarrow.Table.from_pylist(group, schema=schema))


def _schema(pa: Any) -> Any:
    text, number, whole = pa.string(), pa.float64(), pa.int64()
    kinds: dict[str, Any] = dict.fromkeys(COLUMNS, text)
    kinds |= dict.fromkeys(("time", "probability", "reward", "reward_time"), number)
    kinds |= dict.fromkeys(("seq", "action", "drawn", "baseline", "model_version"), whole)
    kinds |= dict.fromkeys(("action_ids", "groups"), pa.list_(text))
    kinds |= {"policy": pa.list_(number), "contexts": pa.list_(pa.list_(number))}
    return pa.schema(list(kinds.items()))


LINES: dict[str, Callable[[Iterable[StoredDecision]], Iterator[bytes]]] = {
    "jsonl": json_lines,
    "csv": csv_lines,
}
