"""Recorded contexts as a world to simulate in."""

from __future__ import annotations

import hashlib
import math
import zipfile
from collections.abc import Callable, Sequence
from dataclasses import InitVar, dataclass, field
from os import PathLike
from pathlib import Path
from typing import Any

import numpy as np

from fedfairx.errors import InvalidInput, require
from fedfairx.util.arrays import Array, as_floats

SCALES = (None, "unit-ball")


@dataclass(frozen=True)
class Recorded:
    """N recorded rounds of K actions with d features: an array (N, K, d).

    Each simulated round of each agent takes one of them at random, with replacement; rewards are simulated
    from θ*. scale="unit-ball" divides all contexts by the largest norm among them.

    A scale, or a bound on the norm, that is taken from the records reveals something of them. The privacy of
    a simulated run is stated for records that are bounded by public numbers; so for a private run of data
    that matter, scale by a public number first and give `simulate` its `bounds`.

    >>> import numpy as np
    >>> import fedfairx as ffx
    >>> rounds = Recorded(np.random.default_rng(0).random((50, 4, 3)), scale="unit-ball")
    >>> ffx.Scenario(agents=2, arms=4, dimension=3, horizon=100, contexts=rounds).context_norm
    1.0
    """

    array: InitVar[Any]
    scale: str | None = field(default=None, kw_only=True)
    contexts: Array = field(init=False, repr=False, compare=False)  # (N, K, d), read-only
    norm: float = field(init=False, repr=False, compare=False)  # what no context's norm exceeds
    shape: tuple[int, ...] = field(init=False)
    digest: str = field(init=False)  # of the contexts, which tells two records apart

    def __post_init__(self, array: Any) -> None:
        require(self.scale in SCALES, "scale", 'must be None or "unit-ball"', self.scale)
        numbers = as_floats(array)
        if numbers is None:
            raise InvalidInput("recorded contexts must be numbers, shaped (rounds, actions, features)")
        contexts = numbers.copy()  # a private copy
        ok = contexts.ndim == 3 and contexts.size > 0
        require(ok, "shape", "must be (rounds, actions, features), none of them 0", contexts.shape)
        bad = np.argwhere(~np.isfinite(contexts))
        if len(bad):
            first = f"the first in round {bad[0, 0]}, action {bad[0, 1]}"
            raise InvalidInput(
                f"recorded contexts must be finite, got {len(bad)} values that are not, {first}"
            )
        with np.errstate(over="ignore"):
            norm = float(np.sqrt((contexts * contexts).sum(axis=2).max()))
        if not 0.0 < norm < math.inf:
            raise InvalidInput("recorded contexts must have norms that are finite, and not all of them 0")
        if self.scale == "unit-ball":
            contexts /= norm
        contexts.flags.writeable = False
        for name, value in {
            "contexts": contexts,
            "norm": norm if self.scale is None else 1.0,
            "shape": contexts.shape,
            "digest": hashlib.sha256(contexts.tobytes()).hexdigest()[:16],
        }.items():
            object.__setattr__(self, name, value)

    @classmethod
    def load(cls, path: str | PathLike[str], *, scale: str | None = None) -> Recorded:
        """Read a file.

        .npy: the array. .npz: its only array, or that named "contexts". .csv and .parquet (this one needs
        pandas): one row for each action of each round, columns "round", "arm" and then the features; rows in
        any order, all numbers, the same actions in every round.
        """
        file = Path(path)
        require(file.suffix in FORMATS, "path", f"must end in {', '.join(FORMATS)}", str(file))
        try:
            array = FORMATS[file.suffix](file)
        except InvalidInput as error:
            raise InvalidInput(f"{file}: {error}") from None
        except OSError as error:
            text = f"path must be a file that can be read, got {file} ({error.strerror})"
            raise InvalidInput(text) from None
        except (ValueError, EOFError, zipfile.BadZipFile):  # their text may hold a value
            raise InvalidInput(f"{file} can't be read as {file.suffix} of numbers") from None
        return cls(array, scale=scale)


def _npy(file: Path) -> Any:
    with file.open("rb") as bytes_:
        return np.lib.format.read_array(bytes_, allow_pickle=False)


def _npz(file: Path) -> Any:
    with np.load(file, allow_pickle=False) as arrays:
        names = arrays.files
        name = "contexts" if "contexts" in names else names[0] if len(names) == 1 else None
        if name is None:
            raise InvalidInput(f'must hold one array or one named "contexts", got {", ".join(names)}')
        return arrays[name]


def _csv(file: Path) -> Array:
    head, *lines = file.read_text(encoding="utf-8-sig").splitlines() or [""]
    names = [name.strip() for name in head.split(",")]
    empty = np.zeros((0, len(names)))
    return _rounds(names, np.loadtxt(lines, delimiter=",", ndmin=2) if lines else empty)


def _parquet(file: Path) -> Array:
    try:
        import pandas as pd

        frame = pd.read_parquet(file)
    except ImportError:
        raise InvalidInput("needs pandas and pyarrow: pip install 'fedfairx[frames]'") from None
    return _rounds([str(name) for name in frame.columns], frame.to_numpy(dtype=np.float64))


def _rounds(names: Sequence[str], rows: Array) -> Array:
    """(N, K, d) from rows (N·K, 2 + d) of round, arm and features."""
    columns = len(names) >= 3 and list(names[:2]) == ["round", "arm"] and rows.shape[1] == len(names)
    if not columns:
        raise InvalidInput(f"must have the columns round, arm and then the features, got {len(names)} names")
    if rows.shape[0] == 0 or not np.isfinite(rows[:, :2]).all():
        raise InvalidInput("must have rows, all of them with the numbers of a round and an arm")
    count = np.unique(rows[:, 0], return_counts=True)[1]
    arms = np.unique(rows[:, 1])
    ordered = rows[np.lexsort((rows[:, 1], rows[:, 0]))]
    if (count != arms.size).any() or (ordered[:, 1].reshape(-1, arms.size) != arms).any():
        raise InvalidInput(
            f"must have the same actions in every round, each of them once, got {count.size} rounds of "
            f"{count.min()} to {count.max()} rows, and {arms.size} arms"
        )
    return ordered[:, 2:].reshape(count.size, arms.size, -1)


FORMATS: dict[str, Callable[[Path], Any]] = {".npy": _npy, ".npz": _npz, ".csv": _csv, ".parquet": _parquet}
