"""The examples run as they are printed, and show what they say."""

from __future__ import annotations

import re
import runpy
import subprocess
import sys
from pathlib import Path

import numpy as np
import pytest

EXAMPLES = Path(__file__).resolve().parent.parent / "examples"


@pytest.mark.long
def test_three_workers(capsys: pytest.CaptureFixture[str]) -> None:
    # With every default, 2 000 tasks, mean over 20 fixed seeds. A share's standard deviation is 0.011 for one
    # seed and 0.0025 for the mean, so a tenth of the least share, 0.014, is more than five of them.
    result = runpy.run_path(str(EXAMPLES / "three_workers.py"))
    assert "share of the tasks" in capsys.readouterr().out
    shares = np.array([result["shares"](seed) for seed in range(20)])
    assert shares.mean(axis=0) == pytest.approx(np.array([1, 2, 4]) / 7, rel=0.1)


@pytest.mark.long
def test_couriers(capsys: pytest.CaptureFixture[str]) -> None:
    """Fixed seeds; what it prints is what the how-to shows."""
    result = runpy.run_path(str(EXAMPLES / "couriers.py"), run_name="__main__")
    page = (EXAMPLES.parent / "docs" / "howto" / "describe-features.md").read_text(encoding="utf-8")
    assert capsys.readouterr().out in page
    rows = result["deliver"](1)
    assert rows["largest"][:300].max() < 1 / 3  # before any reward
    assert rows["apart"][-1_000:].mean() < 0.5 * rows["equal"][-1_000:].mean()
    assert rows["new shown"].sum() == pytest.approx(rows["new due"].sum(), rel=0.2)


def test_it_is_short_enough_for_the_readme() -> None:
    lines = (EXAMPLES / "three_workers.py").read_text().splitlines()
    assert len([line for line in lines[5:] if line.strip()]) <= 17


@pytest.mark.process
@pytest.mark.long
def test_the_first_example_is_on_the_front_page_and_is_typed(tmp_path: Path) -> None:
    """By the settings of the project, whose cache `make lint` has filled."""
    root, block = EXAMPLES.parent, re.compile(r"```python\n(.*?)```", re.DOTALL)
    first, front = (
        block.findall((root / page).read_text(encoding="utf-8"))[0] for page in ("README.md", "docs/index.md")
    )
    assert first == front
    program = tmp_path / "first.py"
    named = first + "name: str = decision.names[0]\n"
    for text, errors in ((named, 0), (first + "decision.reward = 'much'\n", 1)):
        program.write_text(text, encoding="utf-8")
        command = [sys.executable, "-m", "mypy", "--strict", str(program)]
        done = subprocess.run(command, cwd=root, capture_output=True, text=True, check=False)
        assert len(re.findall("error:", done.stdout)) == errors, done.stdout


def test_the_picture_of_the_readme_is_current() -> None:
    picture = runpy.run_path(str(EXAMPLES.parent / "docs" / "img" / "three_workers.py"))
    assert picture["described"](picture["shares"]()) in picture["FILE"].read_text(encoding="utf-8")


@pytest.mark.long
def test_the_diagrams_of_the_explanation_are_current() -> None:
    """Texts and shapes are equal, and places agree to a pixel: the last bits of a share differ by machine."""
    folder = EXAMPLES.parent / "docs" / "img"
    for name, draw in runpy.run_path(str(folder / "diagrams.py"))["DIAGRAMS"].items():
        stored, made = (folder / f"{name}.svg").read_text(encoding="utf-8"), draw().text
        number = re.compile(r"\d+")
        assert number.sub("#", stored) == number.sub("#", made), f"run docs/img/diagrams.py: {name}"
        found = [[int(each) for each in number.findall(text)] for text in (stored, made)]
        assert found[0] == pytest.approx(found[1], abs=1), f"run docs/img/diagrams.py: {name}"
