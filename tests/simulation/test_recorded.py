"""Recorded contexts: read from files, checked, told apart by what they hold, and never shown."""

from __future__ import annotations

import pickle
from pathlib import Path

import numpy as np
import pytest

from fedfairx.errors import InvalidInput
from fedfairx.simulation import Recorded, Scenario

CONTEXTS = np.random.default_rng(0).normal(size=(6, 3, 2))


def table() -> np.ndarray:
    """Rows of round, arm and features, in no order; rounds and arms by numbers of their own."""
    rows = [(10 + n, 7 * a, *CONTEXTS[n, a]) for n in range(6) for a in range(3)]
    return np.random.default_rng(1).permutation(np.array(rows))


def written(folder: Path, suffix: str) -> Path:
    path = folder / f"contexts{suffix}"
    if suffix == ".npy":
        np.save(path, CONTEXTS)
    elif suffix == ".npz":
        np.savez(path, contexts=CONTEXTS, rewards=np.zeros(3))
    elif suffix == ".csv":
        np.savetxt(path, table(), delimiter=",", header="round,arm,age,price", comments="", fmt="%.17g")
    else:
        import pandas as pd

        pd.DataFrame(table(), columns=["round", "arm", "age", "price"]).to_parquet(path)
    return path


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".csv", ".parquet"])
def test_every_format_holds_the_same(tmp_path: Path, suffix: str) -> None:
    recorded = Recorded.load(written(tmp_path, suffix))
    np.testing.assert_array_equal(recorded.contexts, CONTEXTS)
    assert recorded == Recorded(CONTEXTS)
    assert recorded.norm == pytest.approx(np.linalg.norm(CONTEXTS, axis=2).max())


def test_an_archive_with_one_array_needs_no_name(tmp_path: Path) -> None:
    np.savez(tmp_path / "one.npz", CONTEXTS)
    assert Recorded.load(tmp_path / "one.npz") == Recorded(CONTEXTS)
    np.savez(tmp_path / "two.npz", a=CONTEXTS, b=CONTEXTS)
    with pytest.raises(InvalidInput, match='one array or one named "contexts", got a, b'):
        Recorded.load(tmp_path / "two.npz")


def test_scaled_to_the_unit_ball() -> None:
    scaled = Recorded(50.0 * CONTEXTS, scale="unit-ball")
    assert scaled.norm == 1.0
    assert np.linalg.norm(scaled.contexts, axis=2).max() == pytest.approx(1.0)
    largest = np.linalg.norm(CONTEXTS, axis=2).max()
    assert scaled.contexts == pytest.approx(CONTEXTS / largest)


def test_told_apart_by_what_they_hold_and_never_shown() -> None:
    mine = CONTEXTS.copy()
    recorded = Recorded(mine)
    mine[0, 0, 0] += 1.0  # a copy was taken
    assert recorded == Recorded(CONTEXTS) != Recorded(mine)
    assert hash(recorded) == hash(Recorded(CONTEXTS))
    assert repr(recorded) == f"Recorded(scale=None, shape=(6, 3, 2), digest={recorded.digest!r})"
    with pytest.raises(ValueError, match="read-only"):
        recorded.contexts[0, 0, 0] = 0.0
    assert pickle.loads(pickle.dumps(recorded)) == recorded
    worlds = [Scenario(arms=3, dimension=2, contexts=each) for each in (recorded, Recorded(mine))]
    assert worlds[0] != worlds[1]


@pytest.mark.parametrize(
    ("array", "message"),
    [
        (
            np.zeros((3, 2)),
            r"shape must be \(rounds, actions, features\), none of them 0, got shape=\(3, 2\)",
        ),
        (np.zeros((0, 3, 2)), "none of them 0"),
        (np.full((2, 3, 2), np.nan), "must be finite, got 12 values"),
        (np.zeros((2, 3, 2)), "not all of them 0"),
        (np.full((2, 3, 2), 1e200), "norms that are finite"),
        ([["a", "b"]], "must be numbers"),
        ([[[1.0], [2.0]], [[3.0]]], "must be numbers"),
    ],
)
def test_bad_contexts_are_named(array: object, message: str) -> None:
    with pytest.raises(InvalidInput, match=message):
        Recorded(array)
    with pytest.raises(InvalidInput, match='scale must be None or "unit-ball"'):
        Recorded(CONTEXTS, scale="x")


@pytest.mark.parametrize(
    ("text", "message"),
    [
        ("", "must have the columns round, arm and then the features"),
        ("round,arm\n1,1\n", "must have the columns"),
        ("arm,round,x\n1,1,1\n", "must have the columns"),
        ("round,arm,x\n", "must have rows"),
        ("round,arm,x\n1,nan,1\n", "must have rows, all of them with the numbers"),
        ("round,arm,x\n1,1,1\n1,2,1\n2,1,1\n", "same actions in every round"),
        ("round,arm,x\n1,1,1\n1,2,1\n2,1,1\n2,3,1\n", "same actions in every round"),
        ("round,arm,x\n1,1,1\n1,1,1\n", "same actions in every round"),
        ("round,arm,x\n1,1,4.25secret\n", "can't be read as .csv of numbers"),
        ("round,arm,x\n1,1,1,1\n", "must have the columns"),
        ("1,1,4.25secret\n1,2,1\n", "must have the columns"),  # no head: the first line is a context
    ],
)
def test_bad_tables_are_named_without_their_values(tmp_path: Path, text: str, message: str) -> None:
    path = tmp_path / "bad.csv"
    path.write_text(text)
    with pytest.raises(InvalidInput, match=message) as caught:
        Recorded.load(path)
    assert "secret" not in str(caught.value)


@pytest.mark.parametrize("suffix", [".npy", ".npz", ".parquet"])
def test_files_that_are_something_else(tmp_path: Path, suffix: str) -> None:
    path = tmp_path / f"x{suffix}"
    path.write_bytes(b"something else")
    with pytest.raises(InvalidInput, match="can't be read as"):
        Recorded.load(path)
    with pytest.raises(InvalidInput, match="must be a file that can be read"):
        Recorded.load(tmp_path / f"none{suffix}")
    with pytest.raises(InvalidInput, match=r"path must end in .npy, .npz, .csv, .parquet"):
        Recorded.load(tmp_path / "x.txt")


def test_objects_are_not_unpickled(tmp_path: Path) -> None:
    np.save(tmp_path / "objects.npy", np.array([None]), allow_pickle=True)
    with pytest.raises(InvalidInput, match="can't be read"):
        Recorded.load(tmp_path / "objects.npy")


def test_the_first_bad_value_is_named_by_its_place_and_complex_numbers_are_refused():
    contexts = np.ones((4, 3, 2))
    contexts[2, 1, 0] = contexts[3, 0, 0] = np.nan
    with pytest.raises(InvalidInput, match="got 2 values that are not, the first in round 2, action 1"):
        Recorded(contexts)
    with pytest.raises(InvalidInput, match="must be numbers"):
        Recorded(np.ones((4, 3, 2)) * 1j)
