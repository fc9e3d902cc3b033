"""The documentation keeps its word: links resolve, commands exist, examples run, names and figures hold."""

from __future__ import annotations

import re
import shlex
from collections.abc import Iterator
from pathlib import Path

import numpy as np
import pytest

from fedfairx.agent.algorithms import ALGORITHMS, ALIASES
from fedfairx.agent.options import DECIDE_FROM
from fedfairx.agent.schedules import SCHEDULES, Plan, schedule
from fedfairx.agent.solvers import SOLVERS
from fedfairx.cli.main import parser
from fedfairx.experiments.registry import experiments
from fedfairx.privacy import Bounds, Centring, calibrate, epsilon_for, mechanisms, mu_for
from fedfairx.privacy.statement import found_at_most

ROOT = Path(__file__).resolve().parent.parent
PAGES = sorted([ROOT / "README.md", *(ROOT / "docs").glob("*.md")])
TEXT = {page: page.read_text(encoding="utf-8") for page in PAGES}
IDS = [page.relative_to(ROOT).as_posix() for page in PAGES]
#: Pages whose Python blocks are whole programs; that of extending.md is a plug-in, with a test of its own.
RUNNABLE = [
    page
    for page in PAGES
    if page.name
    in (
        "README.md",
        "algorithm.md",
        "fairness.md",
        "federation.md",
        "first-steps.md",
        "privacy.md",
        "reproduction.md",
    )
]

FENCE = re.compile(r"^```(\w*)\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")


def prose(text: str) -> str:
    """A page without its fenced blocks."""
    return FENCE.sub("", text)


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(text: str) -> Iterator[str]:
    """Every `fedfairx …` of a page: code spans, indented lines, and lines of blocks that are not Python."""
    yield from re.findall(r"`(fedfairx [^`]+)`", prose(text))
    lines = re.findall(r"^    (.+)$", prose(text), re.MULTILINE)
    for language, body in FENCE.findall(text):
        lines += [] if language == "python" else body.splitlines()
    for line in lines:
        if line.removeprefix("$ ").startswith("fedfairx "):
            yield line.removeprefix("$ ").partition("  #")[0]


def accepted(words: list[str]) -> bool:
    """Whether the command line takes these words."""
    try:
        parser().parse_args(words)
    except SystemExit as end:  # --help ends so too, with 0
        return end.code == 0
    return True


COMMANDS = sorted({command for text in TEXT.values() for command in commands(text)})
BLOCKS = [
    pytest.param(body, id=f"{page.name}-{number}")
    for page in RUNNABLE
    for number, (language, body) in enumerate(FENCE.findall(TEXT[page]), 1)
    if language == "python"
]


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_relative_link_resolves(page: Path) -> None:
    for target in LINK.findall(prose(TEXT[page])):
        if re.match(r"[a-z]+:", target):  # another site
            continue
        name, _, anchor = target.partition("#")
        found = (page.parent / name).resolve() if name else page
        assert found.exists(), target
        if anchor:
            assert anchor in anchors(found.read_text(encoding="utf-8")), target


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_exists_with_its_flags(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(command)[1:]
    verbs = next(action for action in parser()._actions if action.dest == "verb").choices or {}
    assert words[0].startswith("--") or words[0] in ("VERB", *verbs)
    if words[0] == "VERB" or re.search(r"[\[\]…]|\.\.\.", command):  # a pattern, not a command
        return
    assert accepted(words), capsys.readouterr().err


@pytest.mark.parametrize("block", BLOCKS)
def test_python_blocks_run_as_printed(
    block: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "example", "exec"), {"__name__": "example"})
    assert capsys.readouterr().out.strip()  # each prints what it is about


def test_the_readme_has_examples() -> None:
    assert sum("README" in str(block.id) for block in BLOCKS) >= 2


@pytest.mark.parametrize(
    "name",
    [*ALGORITHMS, *ALIASES, *mechanisms(), *SCHEDULES, *experiments(), *DECIDE_FROM]
    + [f'solver="{name}"' for name in SOLVERS if name != "fixed-point"],
)
def test_every_name_is_documented(name: str) -> None:
    assert any(f"`{name}`" in text for text in TEXT.values())


# --- figures of docs/privacy.md that the code can compute ---

PRIVACY = TEXT[ROOT / "docs" / "privacy.md"]
PAPER = schedule("paper").max_releases(Plan(100_000, 10, 5))


def table(first: str) -> dict[str, list[str]]:
    """The rows below the header that begins with `first`, by their first cell; the header is the row ""."""
    lines = PRIVACY.splitlines()
    start = next(number for number, line in enumerate(lines) if line.startswith(f"| {first} |"))
    rows: dict[str, list[str]] = {}
    for number, line in enumerate(lines[start:]):
        if not line.startswith("|"):
            break
        cells = [cell.strip() for cell in line.strip("|").split("|")]
        if number != 1:
            rows["" if number == 0 else cells[0]] = cells[1:]
    return rows


def numbers(text: str) -> list[float]:
    return [float(found) for found in re.findall(r"\d+(?:\.\d+)?(?:e-\d+)?", text)]


def test_the_table_of_mu() -> None:
    rows = table("μ at")
    deltas = [numbers(cell)[0] for cell in rows.pop("")]
    for epsilon, cells in rows.items():
        for delta, cell in zip(deltas, cells, strict=True):
            assert float(cell) == pytest.approx(mu_for(numbers(epsilon)[0], delta), abs=6e-4)
    assert epsilon_for(1e-6, mu_for(2.0, 0.1)) == pytest.approx(7.0, abs=0.05)


def test_the_summary_tells_what_the_code_computes() -> None:
    rows = re.findall(
        r"^\| \((\d+), (\S+)\) \| (\S+) \| (\S+) % \|$",
        TEXT[ROOT / "docs" / "privacy-summary.md"],
        re.MULTILINE,
    )
    assert len(rows) == 3
    for epsilon, delta, mu, share in rows:
        assert float(mu) == pytest.approx(mu_for(float(epsilon), float(delta)), abs=6e-4)
        assert float(share) == pytest.approx(
            100 * found_at_most(mu_for(float(epsilon), float(delta))), abs=0.06
        )


def test_the_readme_promises_no_more_than_is_proved() -> None:
    """The claim is about messages; what is outside of it is said in the same breath."""
    opening = " ".join(TEXT[ROOT / "README.md"].split("\n## ")[0].split())
    for word in ("messages to each other", "(ε, δ)", "outside of that promise", "privacy-summary.md"):
        assert word in opening


def test_the_readme_shows_what_its_first_example_prints(capsys: pytest.CaptureFixture[str]) -> None:
    found = re.search(r"```python\n(.*?)```\n\n```text\n(.*?)```", TEXT[ROOT / "README.md"], re.DOTALL)
    assert found is not None
    exec(compile(found[1], "example", "exec"), {"__name__": "example"})
    assert capsys.readouterr().out == found[2]


def test_the_table_of_sensitivities() -> None:
    rows = table("adjacency")
    found = [float(cells[-1]) for name, cells in rows.items() if name]
    made = [Bounds(), Bounds(nonnegative=True), Bounds(adjacency="add-remove")]
    assert found == pytest.approx([bounds.sensitivity for bounds in made], abs=1e-4)
    assert f"(Δ = {Centring.unit_box(5).inner_bounds().sensitivity:g})" in PRIVACY


def test_the_table_of_group_privacy() -> None:
    rows = table("records k")
    rows.pop("")
    for records, cells in rows.items():
        assert float(cells[0]) == pytest.approx(epsilon_for(1e-6, int(records) * mu_for(2.0, 1e-6)), abs=0.05)


def test_the_table_of_relative_noise() -> None:
    rows = table("mechanism | τ = 20")
    counts = [int(numbers(cell)[0]) for cell in rows.pop("")]
    assert {name.strip("`") for name in rows} == set(mechanisms()) - {"paper-tree"}  # whose unit is not Δ/μ
    for name, cells in rows.items():
        for releases, cell in zip(counts, cells, strict=True):
            made = calibrate(name.strip("`"), epsilon=2.0, delta=0.1, releases=releases, sensitivity=1.0)
            sd = made.sd(np.arange(1, releases + 1)) * made.mu
            assert numbers(cell) == pytest.approx([sd.max(), sd.mean()], abs=6e-3)


def test_the_table_of_absolute_noise() -> None:
    assert f"{PAPER:,} releases".replace(",", " ") in PRIVACY
    rows = table("mechanism | (2, 0.1)")
    budgets = [numbers(cell) for cell in rows.pop("")]
    assert set(mechanisms()) == {name.strip("`") for name in rows if "centred" not in name}
    for name, cells in rows.items():
        bounds = Centring.unit_box(5).inner_bounds() if "centred" in name else Bounds()
        for (epsilon, delta), cell in zip(budgets, cells, strict=True):
            made = calibrate(
                name.split("`")[1],
                epsilon=epsilon,
                delta=delta,
                releases=PAPER,
                sensitivity=bounds.sensitivity,
            )
            assert float(cell) == pytest.approx(float(made.sd(np.arange(1, PAPER + 1)).max()), abs=0.051)


@pytest.mark.parametrize(
    "name", ["README.md", "docs/privacy-summary.md", "docs/privacy.md", "docs/federation.md"]
)
def test_the_claim_of_the_default_and_the_strict_mode_are_told(name: str) -> None:
    words = " ".join(TEXT[ROOT / name].split())
    assert re.search(r"the other records stay(ing)? as recorded; what the record changes in later", words)
    assert "what the record changes in later decisions is not covered" in words
    assert re.search(
        r'decide_from ?= ?"released"`[^.]*strict mode|strict mode, `decide_from ?= ?"released"', words
    )
    assert not re.search(r"`released` \(default\)|default, `decide_from ?= ?\"released", words)


def test_what_each_algorithm_decides_from_is_told() -> None:
    algorithm = TEXT[ROOT / "docs" / "algorithm.md"]
    for name, each in ALGORITHMS.items():
        if each.private and each.schedule.public:
            row = next(
                line for line in algorithm.splitlines() if line.startswith(f"| `{each.decide_from}` |")
            )
            assert re.search(rf"default of[^;:]*`{re.escape(name)}`", row)
