"""Files are whole or absent, whatever happens while they are written."""

from __future__ import annotations

import errno
import os
import time
from pathlib import Path

import pytest

from fedfairx.errors import ResultsError
from fedfairx.util.files import STALE_SECONDS, remove_stale, write_whole


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


def test_another_machines_partial_files_are_left_for_a_day(tmp_path: Path, monkeypatch: pytest.MonkeyPatch):
    theirs, old = tmp_path / ".a.0badcafe.1.partial", tmp_path / ".b.0badcafe.1.partial"
    for path in (theirs, old):
        path.write_text("")
    before = time.time() - STALE_SECONDS - 1
    os.utime(old, (before, before))
    remove_stale(tmp_path)
    assert names(tmp_path) == [theirs.name]
