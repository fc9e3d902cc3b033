"""Stored results: whole or absent, found by id, never taken from other code."""

from __future__ import annotations

import os
import re
import signal
import subprocess
import sys
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from experiment_helpers import outcome, small_run
from fedfairx.errors import ResultsError
from fedfairx.experiments.provenance import SCHEMA, Provenance
from fedfairx.experiments.sweep.store import ResultStore, read_file
from fedfairx.util.files import remove_stale

HERE = Provenance(SCHEMA, "1.0", "abc")


@pytest.fixture
def store(tmp_path: Path) -> ResultStore:
    return ResultStore(tmp_path / "results", HERE).open()


def test_round_trip(store: ResultStore):
    run, given = small_run(), outcome((0, 1, 2))
    path = store.write(run, given)
    assert list(store.folder.iterdir()) == [path]
    found = ResultStore(store.folder, HERE).open().read(run.identity(HERE), (2, 0), label="x")
    assert found.seeds.tolist() == [2, 0]
    np.testing.assert_array_equal(found.fairness_regret, given.fairness_regret[[2, 0]])
    np.testing.assert_array_equal(found.reward_regret, given.reward_regret[[2, 0]])
    np.testing.assert_array_equal(found.exposure, given.exposure[[2, 0]])
    np.testing.assert_array_equal(found.rounds, given.rounds)
    assert found.syncs.tolist() == [7, 7]


def test_seeds_of_several_files_join(store: ResultStore):
    run = small_run()
    store.write(run, outcome((0, 1)))
    store.write(run, outcome((2,), scale=3.0))
    assert store.seeds(run.identity(HERE)) == {0, 1, 2}
    assert store.read(run.identity(HERE), range(3), label="x").final().tolist() == [4.0, 4.1, 12.2]


def test_an_empty_exposure_is_kept_empty(store: ResultStore):
    run = small_run()
    store.write(run, replace(outcome(), exposure=np.zeros((2, 0))))
    assert store.read(run.identity(HERE), (0, 1), label="x").exposure.shape == (2, 0)


def test_the_regret_of_each_agent_is_kept(store: ResultStore):
    run, curves = small_run(), np.arange(12.0).reshape(2, 3, 2)
    store.write(run, replace(outcome(), by_agent=curves))
    np.testing.assert_array_equal(store.read(run.identity(HERE), (1, 0), label="x").by_agent, curves[::-1])


def test_missing_seeds_are_named(store: ResultStore):
    run = small_run()
    store.write(run, outcome((0,)))
    with pytest.raises(ResultsError, match="no results of curve for seeds 1, 2"):
        store.read(run.identity(HERE), range(3), label="curve")


@pytest.mark.parametrize("keep", [0.0, 0.3, 0.95])
def test_a_file_cut_short_is_set_aside_and_nothing_else_is_lost(store: ResultStore, keep: float):
    run, other = small_run(), small_run(horizon=31)
    cut, whole = store.write(run, outcome()), store.write(other, outcome())
    data = cut.read_bytes()
    cut.write_bytes(data[: int(keep * len(data))])
    again = ResultStore(store.folder, HERE).open()
    assert [path.name for path in again.damaged] == [cut.with_suffix(".damaged").name]
    assert again.seeds(run.identity(HERE)) == frozenset()
    assert again.seeds(other.identity(HERE)) == {0, 1}
    assert whole.exists()


def test_a_damaged_file_read_by_itself_is_an_error(store: ResultStore):
    path = store.write(small_run(), outcome())
    path.write_bytes(path.read_bytes()[:-10])
    with pytest.raises(ResultsError, match="truncated"):
        read_file(path)


def test_a_file_with_fewer_rows_than_it_claims_is_damaged(store: ResultStore):
    import pyarrow.parquet as pq

    path = store.write(small_run(), outcome((0, 1, 2)))
    pq.write_table(pq.read_table(path).slice(0, 2), path)
    with pytest.raises(ResultsError, match="truncated"):
        read_file(path)


def test_results_of_other_code_are_kept_but_not_used(store: ResultStore):
    run = small_run()
    path = store.write(run, outcome())
    newer = ResultStore(store.folder, replace(HERE, version="2.0")).open()
    assert newer.seeds(run.identity(newer.made_by)) == frozenset()
    assert newer.foreign == {str(HERE): 1}
    assert path.exists()


def test_another_schema_is_an_error_that_says_so(tmp_path: Path):
    future = ResultStore(tmp_path, replace(HERE, schema=SCHEMA + 1)).open()
    path = future.write(small_run(), outcome())
    with pytest.raises(ResultsError, match=f"reads results schema {SCHEMA}"):
        read_file(path)


def test_nothing_half_written_is_left(store: ResultStore, monkeypatch: pytest.MonkeyPatch):
    def full(_):
        raise OSError(28, "No space left on device")

    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResultsError, match="No space left"):
        store.write(small_run(), outcome())
    assert list(store.folder.iterdir()) == []


@pytest.mark.long
def test_a_changed_bit_is_never_believed(store: ResultStore):
    """Every byte of the file, with one of its bits turned: the same values, or an error that says so."""
    run, given = small_run(), outcome((0, 1))
    path = store.write(run, given)
    whole = path.read_bytes()
    rng = np.random.default_rng(0)
    refused: list[str] = []
    for place in range(0, len(whole), 7):
        spoilt = bytearray(whole)
        spoilt[place] ^= 1 << int(rng.integers(8))
        path.write_bytes(spoilt)
        try:
            found = read_file(path)
        except ResultsError as error:
            refused.append(str(error))
            continue
        assert found.identity == run.identity(HERE)
        assert found.made_by == HERE
        for name in ("seeds", "rounds", "fairness_regret", "reward_regret", "syncs", "exposure"):
            np.testing.assert_array_equal(getattr(found.outcome, name), getattr(given, name))
        assert found.outcome.seconds == given.seconds
    assert len(refused) > 100
    assert all(re.search("damaged|truncated|reads results schema", text) for text in refused)


def test_a_changed_value_is_computed_again(store: ResultStore):
    import pyarrow as pa
    import pyarrow.parquet as pq

    run = small_run()
    path = store.write(run, outcome((0, 1)))
    table = pq.read_table(path)
    place = table.column_names.index("syncs")
    pq.write_table(table.set_column(place, "syncs", pa.array([7, 8])), path)
    with pytest.raises(ResultsError, match="is damaged: its digest does not fit its content"):
        read_file(path)
    again = ResultStore(store.folder, HERE).open()
    assert [each.name for each in again.damaged] == [path.with_suffix(".damaged").name]
    assert again.seeds(run.identity(HERE)) == frozenset()


def test_a_folder_that_cannot_be_made(tmp_path: Path):
    (tmp_path / "file").write_text("")
    with pytest.raises(ResultsError, match="out must be a folder that can be written"):
        ResultStore(tmp_path / "file" / "results", HERE).open()


WRITER = """
import os, sys, time
from pathlib import Path
from fedfairx.util.files import write_whole
def wait(_):
    print("here", flush=True)
    time.sleep(60)
os.fsync = wait
write_whole(Path(sys.argv[1]), "text")
"""


@pytest.mark.process
def test_what_a_killed_run_left_is_cleared_away(store: ResultStore):
    folder = store.folder
    store.write(small_run(), outcome())
    whole = set(folder.iterdir())
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder / "late.parquet")], stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"here\n"
        remove_stale(folder)
        assert len(set(folder.iterdir()) - whole) == 1  # its writer lives
        writer.send_signal(signal.SIGKILL)
    assert len(set(folder.iterdir()) - whole) == 1
    assert ResultStore(folder, HERE).open().damaged == []
    assert set(folder.iterdir()) == whole
