"""Huge pages: the same memory, in larger pages where the system can."""

from __future__ import annotations

import os
import re
import sys
from pathlib import Path

import pytest

from fedfairx.util.huge_pages import SIZE, use_huge_pages

linux = pytest.mark.skipif(sys.platform != "linux", reason="only Linux has them")


def _huge() -> int:
    """Bytes of this process that are in huge pages."""
    rollup = Path("/proc/self/smaps_rollup").read_text()
    return 1024 * int(re.findall(r"AnonHugePages: +(\d+) kB", rollup)[0])


def _can_move() -> bool:
    kernel = tuple(int(each) for each in re.findall(r"\d+", os.uname().release)[:2])
    setting = Path("/sys/kernel/mm/transparent_hugepage/enabled")
    return kernel >= (6, 1) and setting.exists() and "[never]" not in setting.read_text()


@linux
@pytest.mark.process
def test_what_was_in_small_pages_is_as_it_was() -> None:
    child = os.fork()  # so that the other tests go on in small ones
    if child == 0:
        content = [bytearray(os.urandom(SIZE)) for _ in range(8)]
        expected, before = [bytes(each) for each in content], _huge()
        moved = use_huge_pages()
        fewer = _can_move() and (moved == 0 or _huge() < before + SIZE)
        os._exit(1 if content != expected else 2 if fewer else 0)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


@pytest.mark.parametrize("system", ["win32", "darwin"])
def test_other_systems_have_none(system: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(sys, "platform", system)
    assert use_huge_pages() == 0


@linux
def test_a_system_without_proc(monkeypatch: pytest.MonkeyPatch) -> None:
    def missing(_: Path) -> str:
        raise FileNotFoundError

    monkeypatch.setattr(Path, "read_text", missing)
    assert use_huge_pages() == 0
