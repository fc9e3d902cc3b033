"""Files are whole or absent, whatever happens while they are written."""

from __future__ import annotations

import errno
import os
from pathlib import Path

import pytest

from fedfairx.util.files import write_atomically


def names(folder: Path) -> list[str]:
    return sorted(each.name for each in folder.iterdir())


def test_text_and_bytes(tmp_path: Path):
    write_atomically(tmp_path / "a", "θ")
    write_atomically(tmp_path / "a", b"\x00")
    assert (tmp_path / "a").read_bytes() == b"\x00"
    assert names(tmp_path) == ["a"]


@pytest.mark.parametrize("error", [OSError(errno.ENOSPC, os.strerror(errno.ENOSPC)), KeyboardInterrupt()])
def test_what_was_there_stays_and_nothing_half_written(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, error: BaseException
):
    def fail(_: int) -> None:
        raise error

    write_atomically(tmp_path / "a", "before")
    monkeypatch.setattr(os, "fsync", fail)
    with pytest.raises(type(error)):
        write_atomically(tmp_path / "a", "after")
    assert (tmp_path / "a").read_text() == "before"
    assert names(tmp_path) == ["a"]
