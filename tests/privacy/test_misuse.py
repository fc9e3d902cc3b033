"""Copies, forks, threads, old states and second budgets: no noise lies under two contents."""

from __future__ import annotations

import copy
import os
import pickle
import shutil
import sys
import threading
from collections.abc import Callable
from pathlib import Path

import numpy as np
import pytest

from fedfairx.core.statistics import pack
from fedfairx.errors import PrivacyError
from fedfairx.privacy.bounds import Bounds
from fedfairx.privacy.mechanisms.gaussian import calibrate, mechanisms
from fedfairx.privacy.mechanisms.noise import SimulatedNoise
from fedfairx.privacy.privatizers.stream import StreamPrivatizer
from stored_ledger import stored_ledger
from streams import configured, feed


def _first_noise(privatizer: StreamPrivatizer, context: np.ndarray) -> np.ndarray:
    """The base noise z_1 behind the first release of one record."""
    privatizer.add(context, 0.5)
    exact = pack(np.outer(context, context), context * 0.5)
    scale = privatizer.mechanism.base_sd * privatizer.bounds.entry_scale(privatizer.dimension)
    return (privatizer.release().packed - exact) / scale


def _unrelated(first: np.ndarray, second: np.ndarray) -> bool:
    """Of nine differences of independent normals, three lie this near together once in 10⁷ times."""
    return bool((np.abs(first - second) < 1e-3).sum() < 3)


def test_the_same_key_agent_and_run_never_make_the_same_noise_twice() -> None:
    """Another budget, other bounds, a ledger that was deleted: each gave exact data away."""
    x = np.array([0.6, 0.5, 0.4])
    configuration = configured()
    other_budget = calibrate("blt", epsilon=1.0, delta=1e-6, releases=40, sensitivity=Bounds().sensitivity)
    drawn = [
        _first_noise(StreamPrivatizer(3, **configuration), x),
        _first_noise(StreamPrivatizer(3, **configuration), -x),
        _first_noise(StreamPrivatizer(3, **(configuration | {"mechanism": other_budget})), x),
        _first_noise(StreamPrivatizer(3, **(configuration | {"bounds": Bounds(reward=0.9)})), x),
    ]
    for index, first in enumerate(drawn):
        assert all(_unrelated(first, second) for second in drawn[index + 1 :])


@pytest.mark.parametrize("name", mechanisms())
def test_two_lives_of_one_ledger_share_their_past_noise_and_no_other(name: str, tmp_path: Path) -> None:
    configuration = configured(name=name)
    with stored_ledger(tmp_path / "first") as ledger:
        feed(StreamPrivatizer(3, ledger=ledger, **configuration), 1, 6)
    shutil.copy(tmp_path / "first", tmp_path / "second")
    lives = []
    for life in ("first", "second"):
        with stored_ledger(tmp_path / life) as ledger:
            again = StreamPrivatizer(3, ledger=ledger, **configuration)
            total = again._position.total
            lives.append(np.array([again.release().packed - total for _ in range(3)]))
    # Two lives with the same, empty leaves: the same data, and noise that differs by fresh z alone.
    factor = configuration["mechanism"].factor
    fresh = np.concatenate([np.zeros((6, 9)), lives[0] - lives[1]])
    base = factor.decorrelate(fresh) / configuration["mechanism"].base_sd
    assert np.abs(base[:6]).max() < 1e-9
    assert (np.abs(base[6:]) < 1e-4).sum() < 3  # of 27 differences of normals; once in 10⁹ times


def test_a_copied_ledger_file_goes_on_with_other_noise(tmp_path: Path) -> None:
    configuration = configured()
    with stored_ledger(tmp_path / "first") as ledger:
        feed(StreamPrivatizer(3, ledger=ledger, **configuration), 1, 2)
    shutil.copy(tmp_path / "first", tmp_path / "second")
    noises = []
    for name, sign in (("first", 1.0), ("second", -1.0)):
        with stored_ledger(tmp_path / name) as ledger:
            privatizer = StreamPrivatizer(3, ledger=ledger, **configuration)
            before = privatizer._position.total
            x = sign * np.array([0.6, 0.5, 0.4])
            privatizer.add(x, 0.5)
            noises.append(privatizer.release(3).packed - before - pack(np.outer(x, x), x * 0.5))
    assert _unrelated(*noises)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_neither_a_privatizer_nor_its_agent_is_copied(copied: Callable[[object], object]) -> None:
    privatizer = StreamPrivatizer(3, **configured())
    with pytest.raises(PrivacyError, match="can't be copied or pickled"):
        copied(privatizer)


@pytest.mark.process
def test_a_forked_process_does_not_go_on() -> None:
    privatizer = StreamPrivatizer(2, **configured())
    simulated = StreamPrivatizer(2, **(configured() | {"noise": SimulatedNoise(0)}))
    child = os.fork()
    if child == 0:
        code = 1
        try:
            for work in (privatizer.release, lambda: privatizer.add(np.ones(2), 1.0)):
                with pytest.raises(PrivacyError):
                    work()
            simulated.release()  # nothing to protect
            code = 0
        finally:
            os._exit(code)
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 0


def test_threads_lose_no_record_and_share_no_number() -> None:
    privatizer = StreamPrivatizer(2, **configured(releases=400))
    numbers: list[int] = []

    def work(first: int) -> None:
        for index in range(100):
            privatizer.add(np.array([0.6, 0.8]), 1.0, record=first + index)
            if index % 4 == 0:
                numbers.append(privatizer.release().number)

    before = sys.getswitchinterval()
    sys.setswitchinterval(1e-6)
    try:
        threads = [threading.Thread(target=work, args=(1000 * i,)) for i in range(4)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    finally:
        sys.setswitchinterval(before)
    assert sorted(numbers) == list(range(1, 101))
    release = privatizer.release()
    assert release.count == 400
    np.testing.assert_allclose(privatizer._position.total, np.array([144.0, 192.0, 256.0, 240.0, 320.0]))
