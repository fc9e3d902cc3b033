"""Huge pages: the same memory, in larger pages where the system can."""

from __future__ import annotations

import mmap
import os
import re
import sys
from pathlib import Path

import pytest

from fedfairx.util import huge_pages
from fedfairx.util.huge_pages import SETTING, SIZE, use_huge_pages

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has them")


def _huge() -> int:
    """Bytes of this process that are in huge pages."""
    rollup = Path("/proc/self/smaps_rollup").read_text()
    return 1024 * int(re.findall(r"AnonHugePages: +(\d+) kB", rollup)[0])


def _can_move() -> bool:
    kernel = tuple(int(each) for each in re.findall(r"\d+", os.uname().release)[:2])
    return kernel >= (6, 1) and SETTING.exists() and b"[never]" not in SETTING.read_bytes()


@linux
@pytest.mark.process
@pytest.mark.parametrize("name", [b"plain", b"d\xe9", b"d\x0cx", b"d\xc2\x85x", b"d\rx", b"a b [heap]"])
def test_what_was_in_small_pages_is_as_it_was(tmp_path: Path, name: bytes) -> None:
    """Whatever files of whatever names the process has mapped."""
    file = os.path.join(os.fsencode(tmp_path), name)
    child = os.fork()  # so that the other tests go on in small ones
    if child == 0:
        code = 3
        try:
            with open(file, "w+b") as opened:
                opened.truncate(2 * SIZE)
                mapped = mmap.mmap(opened.fileno(), 2 * SIZE)
            content = [bytearray(os.urandom(SIZE)) for _ in range(8)]
            expected, before = [bytes(each) for each in content], _huge()
            moved = use_huge_pages()
            fewer = _can_move() and (moved == 0 or _huge() < before + SIZE)
            code = 1 if content != expected or any(mapped[:]) else 2 if fewer else 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_other_systems_have_none(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", system)
    assert use_huge_pages() == 0


@linux
@pytest.mark.parametrize("setting", [None, b"always madvise [never]\n"])
def test_a_system_that_has_none_or_wants_none(
    setting: bytes | None, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    file = tmp_path / "enabled"
    if setting is not None:
        file.write_bytes(setting)
    monkeypatch.setattr(huge_pages, "SETTING", file)
    assert use_huge_pages() == 0
