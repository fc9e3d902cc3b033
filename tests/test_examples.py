"""The examples run as they are printed, and show what they say."""

from __future__ import annotations

import runpy
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


def test_three_workers(capsys: pytest.CaptureFixture[str]) -> None:
    # 5 000 tasks: a share's standard deviation is at most 0.007, and optimism lifts the best a little. 0.03
    # is more than four of them; the seed is fixed.
    result = runpy.run_path(str(EXAMPLES / "three_workers.py"))
    shares = result["tasks"] / result["tasks"].sum()
    assert shares == pytest.approx(np.array([1, 2, 4]) / 7, abs=0.03)
    assert "share of the tasks" in capsys.readouterr().out


def test_it_is_short_enough_for_the_readme() -> None:
    lines = (EXAMPLES / "three_workers.py").read_text().splitlines()
    assert len([line for line in lines[5:] if line.strip()]) <= 16
