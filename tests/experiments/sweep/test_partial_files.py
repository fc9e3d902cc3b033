"""Files are whole or absent, whatever happens while they are written."""

from __future__ import annotations

import errno
import os
import signal
import subprocess
import sys
import time
from pathlib import Path

import pytest

from experiment_helpers import outcome, small_run
from fedfairx.errors import ResultsError
from fedfairx.experiments.provenance import provenance
from fedfairx.experiments.report.figures import canvas, save
from fedfairx.experiments.sweep import partial_files
from fedfairx.experiments.sweep.partial_files import remove_stale, write_whole
from fedfairx.experiments.sweep.store import Store
from fedfairx.util.figure_style import styled


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_text_and_bytes(tmp_path: Path):
    write_whole(tmp_path / "a", "θ")
    write_whole(tmp_path / "a", b"\x00")
    assert (tmp_path / "a").read_bytes() == b"\x00"
    assert names(tmp_path) == ["a"]


def full(_: int) -> None:
    raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC))


def test_what_was_there_stays_when_the_disk_is_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    write_whole(tmp_path / "a", "before")
    monkeypatch.setattr(os, "fsync", full)
    with pytest.raises(ResultsError, match=r"a could not be written \(No space left on device\)"):
        write_whole(tmp_path / "a", "after")
    assert (tmp_path / "a").read_text() == "before"
    assert names(tmp_path) == ["a"]


def test_an_interruption_leaves_nothing_half_written(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    def interrupted(_: int) -> None:
        raise KeyboardInterrupt

    monkeypatch.setattr(os, "fsync", interrupted)
    with pytest.raises(KeyboardInterrupt):
        write_whole(tmp_path / "a", "text")
    assert names(tmp_path) == []


def test_a_full_disk_leaves_no_half_figure(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    with styled():
        figure, _ = canvas()
        save(figure, tmp_path / "figures", "f")
        before = (tmp_path / "figures" / "f.png").read_bytes()
        monkeypatch.setattr(os, "fsync", full)
        with pytest.raises(ResultsError, match=r"f\.png could not be written \(No space left on device\)"):
            save(figure, tmp_path / "figures", "f")
    assert (tmp_path / "figures" / "f.png").read_bytes() == before
    assert names(tmp_path / "figures") == ["f.png", "f.svg"]


@pytest.mark.skipif(not Path("/dev/full").exists(), reason="needs a device that is always full")
def test_a_device_that_is_really_full(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    opened = Path.open

    def onto_full(path: Path, mode: str = "r", *rest, **more):
        return (
            opened(Path("/dev/full"), mode)
            if path.suffix == ".partial"
            else opened(path, mode, *rest, **more)
        )

    monkeypatch.setattr(Path, "open", onto_full)
    with pytest.raises(ResultsError, match="No space left on device"):
        write_whole(tmp_path / "a", b"text" * 100_000)
    assert names(tmp_path) == []


WRITER = """
import os, sys, time
from pathlib import Path
from fedfairx.experiments.sweep.partial_files import write_whole
def wait(_):
    print("here", flush=True)
    time.sleep(60)
os.fsync = wait
write_whole(Path(sys.argv[1]), "text")
"""


@pytest.mark.process
def test_what_a_killed_run_left_is_cleared_away(tmp_path: Path):
    folder = tmp_path / "results"
    store = Store(folder, provenance()).open()
    store.write(small_run(), outcome())
    whole = names(folder)
    with subprocess.Popen(
        [sys.executable, "-c", WRITER, str(folder / "late.parquet")], stdout=subprocess.PIPE
    ) as writer:
        assert writer.stdout is not None
        assert writer.stdout.readline() == b"here\n"
        remove_stale(folder)
        assert len(names(folder)) == len(whole) + 1  # its writer lives
        writer.send_signal(signal.SIGKILL)
    assert len(names(folder)) == len(whole) + 1
    assert Store(folder, provenance()).open().damaged == []
    assert names(folder) == whole


def test_another_machines_partial_files_are_left_for_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    theirs, old = tmp_path / ".a.0badcafe.1.partial", tmp_path / ".b.0badcafe.1.partial"
    for path in (theirs, old):
        path.write_text("")
    before = time.time() - partial_files.STALE_SECONDS - 1
    os.utime(old, (before, before))
    remove_stale(tmp_path)
    assert names(tmp_path) == [theirs.name]
