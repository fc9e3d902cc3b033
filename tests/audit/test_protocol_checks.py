"""What is asked of shares and openers: right ones pass, and each known mistake fails its check."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from scipy import stats

import protocol_checks
from fedfairx.agent.options import Options
from mistakes import MISTAKES
from protocol_checks import hiding, opened_once
from whole_config import WholeConfig

NAMED = {each.name: each for each in MISTAKES}


def secure(agents: int = 3, **options: Any) -> WholeConfig:
    made = Options(algorithm="priv-fairx-bayes", epsilon=2.0, aggregation="secure", **options)
    return WholeConfig(options=made, dimension=2, releases=4, agents=agents)


def test_the_statistic_is_pearsons() -> None:
    numbers = np.random.default_rng(0).integers(0, 2**64, 500, dtype=np.uint64) >> np.uint64(1)
    counts = np.bincount(np.frombuffer(numbers.astype("<u8").tobytes(), np.uint8), minlength=256)
    assert protocol_checks._chi_squared(numbers) == pytest.approx(stats.chisquare(counts).statistic)


@pytest.mark.parametrize(("agents", "colluding"), [(3, 1), (6, 3)])
def test_right_shares_pass(agents: int, colluding: int) -> None:
    """Fresh random bytes: it fails by chance once in 10⁷ runs."""
    alike, spread = hiding(secure(agents, colluding=colluding), 1e-7)
    assert (alike.ok, spread.ok) == (True, True)
    openers = colluding + 1
    assert alike.name.endswith(f"of {3 * openers * 4096}")
    views = 4 * openers  # of two rows, each share and the sum of all but it
    assert spread.allowed == f"≤ {stats.chi2.isf(1e-7 / views, 255):.1f}"


def test_shares_that_do_not_hide_fail() -> None:
    with NAMED["shares that hide 32 bits"].inserted():
        _, spread = hiding(secure(), 1e-7)  # of numbers of 32 bits, two are the same in one run of 50
        assert not spread.ok
    with NAMED["seeds of shares that are not random"].inserted():
        alike, spread = hiding(secure(), 1e-7)
        assert (alike.found, spread.ok) == (2 * 4096, True)  # both shares of the row that is sent again


def test_a_round_is_opened_once() -> None:
    check = opened_once(secure(6, colluding=3))
    assert (check.ok, check.name.rsplit(" ", 1)[-1]) == (True, "20")
    with NAMED["a round that is opened twice"].inserted():
        assert opened_once(secure()).found == 2 * 3  # each opener: the same, another row, an earlier round


def test_an_opener_that_takes_fewer_members_or_another_round_fails(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(protocol_checks, "open_round", lambda *_: b"the same")
    assert opened_once(secure()).found == 5 * 2
