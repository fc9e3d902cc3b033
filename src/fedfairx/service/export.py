"""Export of decisions with contexts and rewards, as JSON lines, CSV or Parquet: for admins alone."""

from __future__ import annotations

import csv
import io
from collections.abc import Callable, Iterable, Iterator, Sequence
from itertools import islice
from pathlib import Path
from typing import IO, Any

import msgspec

from fedfairx.errors import needs
from fedfairx.storage.records import StoredDecision

FORMATS = {"jsonl": "application/jsonl", "csv": "text/csv", "parquet": "application/vnd.apache.parquet"}
#: The columns, with their types in Parquet.
COLUMNS = {
    "decision_id": "text",
    "seq": "integer",
    "time": "number",
    "mode": "text",
    "status": "text",
    "action": "integer",
    "action_id": "text",
    "group": "text",
    "probability": "number",
    "drawn": "integer",
    "baseline": "integer",
    "control_share": "number",
    "policy": "numbers",
    "exposure": "numbers",
    "shown": "slots",
    "contexts": "rows",
    "action_ids": "texts",
    "groups": "texts",
    "reward": "number",
    "reward_time": "number",
    "person": "text",
    "model_version": "integer",
    "rolled_back": "boolean",
}
#: The columns of each of several slots.
SLOT = {
    "slot": "integer",
    "action": "integer",
    "action_id": "text",
    "group": "text",
    "weight": "number",
    "exposure": "number",
    "drawn": "integer",
    "baseline": "integer",
    "status": "text",
    "reward": "number",
    "reward_time": "number",
    "person": "text",
}
CHUNK = 2_000  # rows of a Parquet group
PART = 1 << 18  # bytes of a file that are read at once
#: Beginnings of a CSV cell that get an apostrophe; itself too, so that one can always be taken off.
RISKY = ("=", "+", "-", "@", "\t", "\r", "\n", "'")


def record(stored: StoredDecision, *, contexts: bool = True) -> dict[str, Any]:
    """A row: `probability` is the propensity of the action taken, `policy` the fair shares.

    contexts: whether it has any; actions with names alone have none.
    A decision with several slots has `shown` and `exposure` instead of them; its `reward` is the sum. In
    `shown`, each slot has what was drawn for it and the baseline's action beside the one that was shown.
    """
    names, groups = stored.names, stored.groups
    several = bool(stored.slots)
    row = {name: getattr(stored, name) if name in StoredDecision.__slots__ else None for name in COLUMNS}
    return row | {
        "decision_id": stored.id,
        "action": None if several else stored.action,
        "action_id": None if names is None or several else names[stored.action],
        "group": None if groups is None or several else groups[stored.action],
        "probability": None if several else stored.propensity,
        "drawn": None if several else stored.drawn,
        "policy": None if several else stored.policy.tolist(),
        "exposure": stored.policy.tolist() if several else None,
        "shown": _slots(stored) if several else None,
        "contexts": stored.contexts.tolist() if contexts else None,
        "action_ids": names,
        "groups": groups,
    }


def _slots(stored: StoredDecision) -> list[dict[str, Any]]:
    groups = stored.groups
    return [
        {
            "slot": number,
            "action": slot.action,
            "action_id": slot.name,
            "group": None if groups is None else groups[slot.action],
            **{name: getattr(slot, name) for name in list(SLOT)[4:]},
        }
        for number, slot in enumerate(stored.slots, 1)
    ]


def json_lines(rows: Iterable[StoredDecision], *, contexts: bool = True) -> Iterator[bytes]:
    """One object a line."""
    for stored in rows:
        yield msgspec.json.encode(record(stored, contexts=contexts)) + b"\n"


def csv_lines(rows: Iterable[StoredDecision], *, contexts: bool = True) -> Iterator[bytes]:
    """A header, and a line for each; lists are JSON, and no text begins like a spreadsheet formula."""
    yield csv_line(list(COLUMNS))
    for stored in rows:
        yield csv_line(list(record(stored, contexts=contexts).values()))


def csv_line(values: Sequence[object]) -> bytes:
    """A line of CSV."""
    line = io.StringIO()
    csv.writer(line).writerow(map(_cell, values))
    return line.getvalue().encode()


def _cell(value: object) -> object:
    if isinstance(value, list):
        return msgspec.json.encode(value).decode()  # it begins with a bracket
    return f"'{value}" if isinstance(value, str) and value.startswith(RISKY) else value


def write_parquet(rows: Iterable[StoredDecision], file: Path | IO[bytes], *, contexts: bool = True) -> None:
    """Write a file group by group, so that only one group is in memory."""
    with needs("frames"):
        import pyarrow
        import pyarrow.parquet

    schema = _schema(pyarrow)
    waiting = iter(rows)
    with pyarrow.parquet.ParquetWriter(file, schema, compression="zstd") as writer:
        while group := [record(stored, contexts=contexts) for stored in islice(waiting, CHUNK)]:
            writer.write_table(pyarrow.Table.from_pylist(group, schema=schema))


def read_whole(file: IO[bytes]) -> Iterator[bytes]:
    """All of a file, part by part; it is closed at the end."""
    with file:
        file.seek(0)
        while part := file.read(PART):
            yield part


def _schema(pa: Any) -> Any:
    kinds = {"text": pa.string(), "number": pa.float64(), "integer": pa.int64()}
    kinds |= {"texts": pa.list_(pa.string()), "numbers": pa.list_(pa.float64()), "boolean": pa.bool_()}
    kinds["rows"] = pa.list_(kinds["numbers"])
    kinds["slots"] = pa.list_(pa.struct([(name, kinds[kind]) for name, kind in SLOT.items()]))
    return pa.schema([(name, kinds[kind]) for name, kind in COLUMNS.items()])


LINES: dict[str, Callable[..., Iterator[bytes]]] = {
    "jsonl": json_lines,
    "csv": csv_lines,
}
