"""Whatever interrupts a release, the next call makes that one, and no number is skipped."""

from __future__ import annotations

import os
import sys
from collections.abc import Callable
from pathlib import Path
from types import FrameType
from typing import Any

import numpy as np
import pytest

from fedfairx.privacy.ledger.ledger import MemoryLedger
from fedfairx.privacy.mechanisms.gaussian import mechanisms
from fedfairx.privacy.mechanisms.noise import KeyedNoise
from fedfairx.privacy.privatizers.stream import StreamPrivatizer
from fedfairx.storage.open_log import open_log
from fedfairx.storage.privacy_ledger import StoredLedger
from streams import KEY, configured, feed


class _Failing:
    """A keyed noise that fails when told to, before or after the draw."""

    def __init__(self) -> None:
        self._inner = KeyedNoise(KEY, agent="a", run="r")
        self.fails = False

    is_private = True
    owner = None

    @property
    def fingerprint(self) -> str:
        return self._inner.fingerprint

    def __call__(self, number: int, count: int, place: bytes) -> np.ndarray:
        if self.fails:
            raise OSError("the key store does not answer")
        return self._inner(number, count, place)


@pytest.mark.parametrize("name", mechanisms())
def test_an_interrupted_release_is_made_by_the_next_call_and_no_number_is_skipped(name: str) -> None:
    configuration = configured(name=name)
    whole = StreamPrivatizer(3, ledger=MemoryLedger(random=bytes), **configuration)
    expected = feed(whole, 7, 9)
    noise = _Failing()
    privatizer = StreamPrivatizer(3, ledger=MemoryLedger(random=bytes), **(configuration | {"noise": noise}))
    generator = np.random.default_rng(7)
    found = []
    for number in range(1, 10):
        for _ in range(generator.integers(0, 4)):
            privatizer.add(generator.normal(size=3), generator.normal())
        if number in (3, 4, 8):
            noise.fails = True
            for _ in range(2):
                with pytest.raises(OSError, match="key store"):
                    privatizer.release()
            assert privatizer.spent == number - 1
            noise.fails = False
        found.append(privatizer.release().to_bytes())
    assert found == expected


@pytest.mark.long
@pytest.mark.parametrize(("name", "durable"), [*((name, False) for name in mechanisms()), ("tree", True)])
def test_an_interruption_anywhere_in_a_release_repeats_and_skips_nothing(
    name: str, durable: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Ctrl-C at every single line of the code that makes a release; then the caller tries again."""
    monkeypatch.setattr("fedfairx.storage.privacy_ledger.secrets.token_bytes", bytes)
    configuration = configured(name=name)
    expected = feed(StreamPrivatizer(3, ledger=MemoryLedger(random=bytes), **configuration), 7, 4)

    def life(stop_at: int, path: Path) -> tuple[list[bytes], bool]:
        log = open_log(path) if durable else None
        ledger = MemoryLedger(random=bytes) if log is None else StoredLedger(log, 1, 1)
        privatizer = StreamPrivatizer(3, ledger=ledger, **configuration)
        generator = np.random.default_rng(7)
        found: dict[int, bytes] = {}
        interrupted = False
        for number in range(1, 5):
            for _ in range(generator.integers(0, 4)):
                privatizer.add(generator.normal(size=3), generator.normal())
            if number == 3:
                interrupted = _interrupted(privatizer.release, stop_at)
            if privatizer.spent < number:
                privatizer.release()
            found[number] = privatizer.release(number).to_bytes()
        if log is not None:
            log.close()
        return [found[number] for number in sorted(found)], interrupted

    stop_at = 0
    while True:
        messages, interrupted = life(stop_at, tmp_path / str(stop_at))
        assert messages == expected
        if not interrupted:
            break
        stop_at += 9 if durable else 1
    assert stop_at > 20


def _interrupted(work: Callable[[], object], stop_at: int) -> bool:
    """Raise KeyboardInterrupt at the `stop_at`-th line of the package that `work` runs."""
    seen = 0

    def trace(frame: FrameType, event: str, _argument: object) -> Any:
        nonlocal seen
        if os.sep + "privacy" + os.sep not in frame.f_code.co_filename:
            return None
        if event == "line":
            seen += 1
            if seen > stop_at:
                sys.settrace(None)
                raise KeyboardInterrupt
        return trace

    sys.settrace(trace)
    try:
        work()
    except KeyboardInterrupt:
        return True
    finally:
        sys.settrace(None)
    return False
