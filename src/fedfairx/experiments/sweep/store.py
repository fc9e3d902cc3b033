"""Stored results: one Parquet file for each job, written atomically and found by its id.

    FOLDER/<id of the run>-s<first seed>-<last seed>.parquet

A row is a seed; curves are list columns. The file's metadata hold the run, its provenance, and a digest of
themselves and of all values: a file in which a bit has changed is refused.
"""

from __future__ import annotations

import hashlib
import json
import os
from collections.abc import Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import numpy as np

from fedfairx.errors import ResultsError
from fedfairx.experiments.experiment import Run
from fedfairx.experiments.outcomes import Outcome
from fedfairx.experiments.provenance import SCHEMA, Provenance
from fedfairx.util.files import remove_stale, write_whole

_META = b"fedfairx"
_COLUMNS = ("seeds", "rounds", "fairness_regret", "reward_regret", "syncs", "exposure", "weakest", "by_agent")
_OF_EACH_SEED = tuple(name for name in _COLUMNS if name != "rounds")


@dataclass(frozen=True)
class Stored:
    """The content of a results file."""

    path: Path
    identity: str
    made_by: Provenance
    outcome: Outcome


class ResultStore:
    """The results in one folder."""

    def __init__(self, folder: Path, made_by: Provenance) -> None:
        self.folder = folder
        self.made_by = made_by
        self.damaged: list[Path] = []  # files cut short or changed, set aside under another name
        self.foreign: dict[str, int] = {}  # files of other code, left alone: who made them, how many
        self._files: dict[str, list[Path]] = {}

    def open(self) -> ResultStore:
        """Create the folder if missing, remove partial files of killed runs, and index it."""
        try:
            self.folder.mkdir(parents=True, exist_ok=True)
            probe = self.folder / f".writable-{os.getpid()}"
            probe.write_bytes(b"")
            probe.unlink()
            remove_stale(self.folder)
        except OSError as error:
            raise ResultsError(
                f"out must be a folder that can be written, got {self.folder} ({error.strerror})"
            ) from None
        return self.look()

    def look(self) -> ResultStore:
        """Index the folder without writing to it, except to set damaged files aside."""
        self.damaged, self.foreign, self._files = [], {}, {}
        for path in sorted(self.folder.glob("*.parquet")):
            try:
                meta = read_metadata(path)
                maker = Provenance(**meta["made_by"])
                if maker == self.made_by:
                    read_file(path)
            except ResultsError:
                self.damaged.append(path.replace(path.with_suffix(".damaged")))
                continue
            if maker != self.made_by:
                self.foreign[str(maker)] = self.foreign.get(str(maker), 0) + 1
                continue
            self._files.setdefault(meta["identity"], []).append(path)
        return self

    def seeds(self, identity: str) -> frozenset[int]:
        """The seeds of a run that are stored."""
        return frozenset(
            seed for path in self._files.get(identity, ()) for seed in read_metadata(path)["seeds"]
        )

    def write(self, run: Run, outcome: Outcome) -> Path:
        """Store the outcome of a job."""
        import pyarrow as pa
        import pyarrow.parquet as pq

        identity = run.identity(self.made_by)
        seeds = [int(seed) for seed in outcome.seeds]
        meta = {
            "identity": identity,
            "seeds": seeds,
            "made_by": self.made_by.to_dict(),
            "seconds": outcome.seconds,
            "run": run.describe(),
            "values": _digest_of_values(outcome),
        }
        table = pa.table(
            {"seed": seeds, "rounds": [outcome.rounds.tolist()] * len(seeds)}
            | {name: getattr(outcome, name).tolist() for name in _OF_EACH_SEED if name != "seeds"}
        ).replace_schema_metadata({_META: json.dumps({**meta, "digest": _digest(meta)}).encode()})
        path = self.folder / f"{identity}-s{seeds[0]}-{seeds[-1]}.parquet"
        buffer = pa.BufferOutputStream()
        pq.write_table(table, buffer, compression="zstd")
        write_whole(path, buffer.getvalue().to_pybytes())
        if path not in self._files.setdefault(identity, []):
            self._files[identity].append(path)
        return path

    def read(self, identity: str, seeds: Sequence[int], *, label: str) -> Outcome:
        """Read the outcome of a run, in the order of `seeds`; `label` is for error messages."""
        rows: dict[int, tuple[Outcome, int]] = {}
        seconds = 0.0
        for path in self._files.get(identity, ()):
            outcome = read_file(path).outcome
            seconds += outcome.seconds
            rows.update({int(seed): (outcome, i) for i, seed in enumerate(outcome.seeds)})
        missing = [seed for seed in seeds if seed not in rows]
        if missing:
            raise ResultsError(
                f"{self.folder} has no results of {label} for seed{'s' if len(missing) > 1 else ''} "
                f"{', '.join(map(str, missing))} made by {self.made_by}; compute them with `fedfairx "
                f"reproduce --out {self.folder.parent}`"
            )
        ordered = [rows[seed] for seed in seeds]
        columns: dict[str, Any] = {
            name: np.array([getattr(outcome, name)[i] for outcome, i in ordered]) for name in _OF_EACH_SEED
        }
        return Outcome(rounds=ordered[0][0].rounds, seconds=seconds, **columns)


def read_metadata(path: Path) -> dict[str, Any]:
    """Read the metadata of a results file, which proves that it is complete."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    try:
        file = pq.ParquetFile(path)
        meta: dict[str, Any] = json.loads((file.schema_arrow.metadata or {})[_META])
        digest = meta.pop("digest", None)
        whole = file.metadata.num_rows == len(meta["seeds"])
        schema = meta["made_by"]["schema"]
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError, AttributeError):
        whole = False
    if not whole:
        raise ResultsError(
            f"{path} is truncated or not a results file; remove it and run the same command again"
        )
    if schema == SCHEMA and digest != _digest(meta):  # other schemas are refused by their number
        raise _changed(path)
    return meta


def read_file(path: Path) -> Stored:
    """Read a results file of any provenance, if this version knows its schema."""
    import pyarrow as pa
    import pyarrow.parquet as pq

    meta = read_metadata(path)
    made_by = Provenance(**meta["made_by"])
    if made_by.schema != SCHEMA:
        raise ResultsError(f"{path} was made by {made_by}; this version reads results schema {SCHEMA}")
    try:
        table = pq.read_table(path)
        column = {name: np.array(table.column(name).to_pylist()) for name in table.column_names}
        seeds, rounds = column.pop("seed"), column.pop("rounds")[0]
        outcome = Outcome(seeds=seeds, rounds=rounds, seconds=float(meta["seconds"]), **column)
        same = meta["values"] == _digest_of_values(outcome)
    except (pa.ArrowException, OSError, KeyError, ValueError, TypeError, IndexError):
        same = False
    if not same:
        raise _changed(path)
    return Stored(path, meta["identity"], made_by, outcome)


def _changed(path: Path) -> ResultsError:
    return ResultsError(
        f"{path} is damaged: its digest does not fit its content; remove it and run the same command again"
    )


def _digest(meta: dict[str, Any]) -> str:
    return hashlib.sha256(json.dumps(meta, sort_keys=True).encode()).hexdigest()


def _digest_of_values(outcome: Outcome) -> str:
    """Digest of all numbers, their types and shapes; the same before writing and after reading."""
    digest = hashlib.sha256()
    for name in _COLUMNS:
        values = np.asarray(getattr(outcome, name))
        kind = "<i8" if values.dtype.kind == "i" else "<f8"
        digest.update(f"{name} {kind} {values.shape}\0".encode())
        digest.update(np.ascontiguousarray(values, dtype=kind).tobytes())
    return digest.hexdigest()
