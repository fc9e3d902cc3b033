"""The documentation keeps its word: links resolve, commands exist, examples run, names and figures hold."""

from __future__ import annotations

import functools
import importlib
import pydoc
import re
import shlex
from collections.abc import Collection, Iterator
from pathlib import Path

import numpy as np
import pytest

from fedfairx.agent.algorithms import ALGORITHMS, ALIASES, SOLVERS
from fedfairx.agent.options import DECIDE_FROM
from fedfairx.agent.schedules import SCHEDULES, Plan, schedule
from fedfairx.cli.main import parser
from fedfairx.privacy import Bounds, Centring, calibrate, epsilon_for, mechanisms, mu_for
from fedfairx.privacy.statement import found_at_most
from fedfairx.service.federation import REFUSED
from fedfairx.service.metrics import METRICS
from fedfairx.service.roles import ROLES
from fedfairx.service.routes import OPERATIONS
from fedfairx.service.settings import table as table_of_settings
from fedfairx.storage.schema import SQL
from mistakes import MISTAKES
from paper.registry import EXPERIMENTS

ROOT = Path(__file__).resolve().parent.parent
FRONT = ("README.md", "CONTRIBUTING.md", "SECURITY.md", "CHANGELOG.md", "deploy/README.md")
PAGES = sorted([*(ROOT / name for name in FRONT), *(ROOT / "docs").rglob("*.md")])
TEXT = {page: page.read_text(encoding="utf-8") for page in PAGES}
IDS = [page.relative_to(ROOT).as_posix() for page in PAGES]
#: Other texts that speak of compiling.
SPOKEN = [
    ROOT / "benchmarks/README.md",
    *(ROOT / "src/fedfairx/lanes").glob("*.py"),
    ROOT / "src/fedfairx/cli/warm.py",
]
#: Pages whose Python block is a plug-in or a client: test_plugin.py and test_personalizer.py run those.
APART = {"write-an-experiment.md", "from-personalizer.md"}

PROGRAM = re.compile(r"^```python\n(.*?)^```$(?:\n\n^```text\n(.*?)^```$)?", re.MULTILINE | re.DOTALL)
FENCE = re.compile(r"^```(\S*)[^\n]*\n(.*?)^```$", re.MULTILINE | re.DOTALL)
LINK = re.compile(r"\[[^\]]*\]\(([^)\s]+)\)")

all_commands = functools.cache(parser)


def prose(text: str) -> str:
    """A page without its fenced blocks."""
    return FENCE.sub("", text)


def anchors(text: str) -> set[str]:
    """The anchors of a page's headings, as GitHub makes them."""
    headings = re.findall(r"^#+ (.+)$", prose(text), re.MULTILINE)
    return {re.sub(r"[^\w\- ]", "", heading.lower()).replace(" ", "-") for heading in headings}


def commands(text: str) -> Iterator[str]:
    """Every `fedfairx …` of a page: code spans, indented lines, and lines of blocks that nothing runs."""
    yield from re.findall(r"`(fedfairx [^`]+)`", prose(text))
    lines = re.findall(r"^    (.+)$", prose(text), re.MULTILINE)
    for language, body in FENCE.findall(text):
        lines += [] if language in ("python", "{code-cell}") else body.splitlines()
    for line in lines:
        if line.removeprefix("$ ").startswith("fedfairx "):
            yield line.removeprefix("$ ").partition("  #")[0]


def accepted(words: list[str]) -> bool:
    """Whether the command line takes these words."""
    try:
        all_commands().parse_args(words)
    except SystemExit as end:  # --help ends so too, with 0
        return end.code == 0
    return True


COMMANDS = sorted({command for text in TEXT.values() for command in commands(text)})
BLOCKS = [
    pytest.param(found[1], found[2], id=f"{page.stem}-{number}")
    for page in PAGES
    if page.name not in APART
    for number, found in enumerate(PROGRAM.finditer(TEXT[page]), 1)
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


@pytest.mark.parametrize("page", PAGES, ids=IDS)
def test_every_path_that_a_page_names_exists(page: Path) -> None:
    for name in re.findall(r"`((?:[a-z_]+/)+\w+\.(?:py|md|json))`", TEXT[page]):
        assert any((below / name).exists() for below in (ROOT, ROOT / "src" / "fedfairx")), name


def test_how_long_compiling_takes_is_told_in_one_place() -> None:
    """A second number would disagree with the first after the next change."""
    texts = {**TEXT, **{path: path.read_text(encoding="utf-8") for path in SPOKEN}}
    time = r"((\d+|three|ten|twenty) seconds|(a|\d+) minutes?)"
    timed = re.compile(rf"compil[^.|]{{0,60}}?\b{time}|\b{time} of compil")
    assert {path.name for path, text in texts.items() if timed.search(text)} == {"measurements.md"}


def test_every_page_that_the_code_names_exists() -> None:
    for folder in ("src", "tests", "benchmarks", "examples"):
        for file in (ROOT / folder).rglob("*.py"):
            for name in re.findall(r"docs/[\w/-]+\.md", file.read_text(encoding="utf-8")):
                assert (ROOT / name).exists(), (file, name)


@pytest.mark.parametrize("command", COMMANDS)
def test_every_command_exists_with_its_flags(command: str, capsys: pytest.CaptureFixture[str]) -> None:
    words = shlex.split(command)[1:]
    verbs = next(action for action in all_commands()._actions if action.dest == "verb").choices or {}
    assert words[0].startswith("--") or words[0] in ("VERB", *verbs)
    if words[0] == "VERB" or re.search(r"[\[\]…]|\.\.\.", command):  # a pattern, not a command
        return
    assert accepted(words), capsys.readouterr().err


@pytest.mark.long
@pytest.mark.parametrize(("block", "printed"), BLOCKS)
def test_python_blocks_run_and_print_what_stands_below(
    block: str,
    printed: str | None,
    tmp_path: Path,
    monkeypatch: pytest.MonkeyPatch,
    capsys: pytest.CaptureFixture[str],
) -> None:
    monkeypatch.chdir(tmp_path)
    exec(compile(block, "example", "exec", dont_inherit=True), {"__name__": "example"})
    found = capsys.readouterr().out
    assert found.strip()  # each prints what it is about
    assert printed in (None, found)


def test_the_generated_reference_has_the_flags(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    import generated

    assert "--epsilon FLOAT" in generated.cli()
    assert (
        "| [`fedfairx federate renew`](#fedfairx-federate-renew) | Renew the certificates" in generated.cli()
    )
    assert "| `port` | `8000` |" in generated.settings()


@pytest.mark.parametrize("page", sorted((ROOT / "docs" / "howto").glob("*.md")), ids=lambda page: page.stem)
def test_a_how_to_begins_with_its_task_and_how_it_is_done(page: Path) -> None:
    _, task, rest = TEXT[page].split("\n\n", 2)
    assert task.startswith("How ")
    assert re.match(r"(?:(?!^## ).*\n)*?(?:## .*\n\n)?(?:```|    |\| )", rest, re.MULTILINE)


def test_the_readme_has_examples() -> None:
    shown = [block.values[1] for block in BLOCKS if "README" in str(block.id)]
    assert len(shown) >= 2
    assert all(shown)  # with what it prints


@pytest.mark.parametrize(
    "name",
    [*ALGORITHMS, *ALIASES, *mechanisms(), *SCHEDULES, *EXPERIMENTS, *DECIDE_FROM]
    + [f'solver="{name}"' for name in SOLVERS if name != "fixed-point"],
)
def test_every_name_is_documented(name: str, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    generated = importlib.import_module("generated")
    assert any(f"`{name}`" in text for text in (*TEXT.values(), generated.names()))


def test_the_generated_reference_is_complete(monkeypatch: pytest.MonkeyPatch) -> None:
    """Flags are made when a command is first used: an unused parser would print none."""
    monkeypatch.syspath_prepend(str(ROOT / "docs"))
    generated = importlib.import_module("generated")
    rows = re.findall(r"^\| `(\w+)` \|", generated.settings(), re.MULTILINE)
    assert rows == [each.name for each in table_of_settings()]
    for flag in ("--max-body", "--epsilon", "--transport", "--role"):
        assert flag in generated.cli()
    assert re.findall(r"^\| `fedfairx_(\w+)` \|", generated.metrics(), re.MULTILINE) == [*METRICS]
    assert re.findall(r"^\| `(\w+)` \|", generated.tables(), re.MULTILINE) == sorted(
        re.findall(r"CREATE TABLE (\w+)", SQL)
    )
    assert re.findall(r"^\| `([\w ]+)` \|", generated.refusals(), re.MULTILINE) == [*REFUSED]
    opened = dict(re.findall(r"^\| ([\w ]+) \| (`.+`) \|", generated.roles(), re.MULTILINE))
    assert [*opened] == ["no key", *ROLES]
    assert "`GET /report`" in opened["auditor"]
    for each in OPERATIONS:
        assert f"`{each.method} {each.path}`" in opened[each.role or "no key"]
    rules = re.findall(r"- alert: (\w+)", (ROOT / "deploy/prometheus/fedfairx.rules.yml").read_text())
    assert re.findall(r"^\| `(\w+)` \|", generated.alerts(), re.MULTILINE) == rules


def fields_of(owner: str) -> Collection[str]:
    """The fields of a public dataclass, those that it fills in itself included."""
    fields: Collection[str] = getattr(pydoc.locate(owner), "__dataclass_fields__", ())
    return fields


def test_every_name_that_a_docstring_explains_is_a_parameter_or_an_attribute() -> None:
    """conf.py makes fields of such lines, wherever they stand in a docstring."""
    explained = set()
    for file in sorted((ROOT / "tests/golden_texts").glob("fedfairx*.txt")):
        text, owner, header = file.read_text(encoding="utf-8"), "", ""
        for line in text.splitlines():
            begins = re.match(r"fedfairx\.[\w.]+", line)
            if begins:
                owner, header = begins[0], line.removeprefix(begins[0])
            parameter = re.match(r"([a-z_]\w*(?:, [a-z_]\w*)*): .", line)
            for name in parameter[1].split(", ") if parameter and header else ():
                explained.add((owner, name))
                there = re.search(rf"\b{name}\b", header) or f"{owner}.{name}" in text
                assert there or name in fields_of(owner), (owner, name)
    assert {("fedfairx.Agent", "half_life"), ("fedfairx.Agent.open", "seed")} <= explained


# --- figures of the pages on privacy that the code can compute ---

PRIVACY = "\n".join(
    TEXT[ROOT / "docs" / name]
    for name in ("explanation/privacy.md", "howto/choose-epsilon.md", "howto/protect-a-person.md")
)
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
    page = TEXT[ROOT / "docs" / "explanation" / "privacy-summary.md"]
    rows = re.findall(r"^\| ε = (\d+) \| (\S+) % \| (\S+) % \|$", page, re.MULTILINE)
    assert len(rows) == 3
    for epsilon, *shares in rows:
        mu = mu_for(float(epsilon), 1e-6)
        found = [100 * found_at_most(mu), 100 * found_at_most(3 * mu)]
        assert [float(share) for share in shares] == pytest.approx(found, abs=0.06)


def test_ten_questions_are_settled_on_the_pages_for_those_who_sign() -> None:
    text = TEXT[ROOT / "docs" / "explanation" / "questions.md"]
    _, *answers = re.split(r"^## \d+\. .+\?$", text, flags=re.MULTILINE)
    assert len(answers) == 10
    for answer in answers:
        assert re.search(r"\((privacy|fairness)-summary\.md#[\w-]+\)", answer), answer


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


def test_the_relative_noise_of_blt() -> None:
    words = " ".join(PRIVACY.split())
    found = re.search(r"At (\d+) (\d+) releases `blt` has a mean entry sd of (\S+)", words)
    assert found
    releases = int(found[1] + found[2])
    made = calibrate("blt", epsilon=2.0, delta=0.1, releases=releases, sensitivity=1.0)
    sd = made.sd(np.arange(1, releases + 1)) * made.mu
    assert float(found[3]) == pytest.approx(sd.mean(), abs=6e-3)


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
    "name",
    [
        "README.md",
        "docs/explanation/privacy-summary.md",
        "docs/explanation/privacy.md",
        "docs/howto/found-a-federation.md",
    ],
)
def test_who_reads_of_the_claim_reads_of_the_strict_mode(name: str) -> None:
    words = " ".join(TEXT[ROOT / name].split())
    assert re.search(r'decide_from ?= ?"released"', words)
    assert "strict mode" in words


def test_what_each_algorithm_decides_from_is_told() -> None:
    algorithm = TEXT[ROOT / "docs" / "explanation" / "algorithm.md"]
    for name, each in ALGORITHMS.items():
        if each.private and each.schedule.public:
            row = next(
                line for line in algorithm.splitlines() if line.startswith(f"| `{each.decide_from}` |")
            )
            assert re.search(rf"default of[^;:]*`{re.escape(name)}`", row)


# --- a measured number says where it comes from ---

#: A command, a date and a commit, as in "*`make reproduce`, 17 November 2026, 668e693.*"
ORIGIN = re.compile(r"\*`[^`]+`[^*]*\b\d{1,2}\s[A-Z][a-z]+\s\d{4},\s[0-9a-f]{7}\b[^*]*\*")


@pytest.mark.parametrize(
    ("name", "other"),
    [
        ("docs/paper/cost-of-privacy.md", set()),
        ("docs/paper/measurements.md", set()),
        ("benchmarks/README.md", {"What each prints", "How to read the noise", "Compilation"}),
    ],
)
def test_every_measurement_has_its_command_date_and_commit(name: str, other: set[str]) -> None:
    sections = re.split(r"^## ", (ROOT / name).read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]
    for section in sections:
        title, _, body = section.partition("\n\n")
        assert title in other or ORIGIN.match(body), title


def test_every_experiment_has_its_command_date_and_commit() -> None:
    text = TEXT[ROOT / "docs" / "paper" / "results.md"]
    rows = re.findall(r"^\| (`.+?) \| `.+?` \| \d+ \w+ \d{4} \| [0-9a-f]{7} \|$", text, re.MULTILINE)
    assert sorted(", ".join(rows).replace("`", "").split(", ")) == sorted(EXPERIMENTS)


def test_one_program_runs_each_benchmark(monkeypatch: pytest.MonkeyPatch) -> None:
    """The long ones by name alone, as the README says."""
    monkeypatch.syspath_prepend(str(ROOT / "benchmarks"))
    run = importlib.import_module("run")
    text = (ROOT / "benchmarks/README.md").read_text(encoding="utf-8")
    rows = re.findall(r"^\| `(\w+)\.py`( \(long)?", text, re.MULTILINE)
    assert {name for name, long in rows if not long} == {*run.BENCHMARKS}
    assert {name for name, long in rows if long} == {*run.LONG}
    programs = {path.stem for path in (ROOT / "benchmarks").glob("*.py") if "\n    main(" in path.read_text()}
    assert programs <= {*run.BENCHMARKS, *run.LONG, "joining_gain"}


def test_the_audit_detected_all_mistakes_that_there_are() -> None:
    text = TEXT[ROOT / "docs" / "paper" / "measurements.md"]
    counts = re.findall(r"detected\s(\d+)\sof\s(\d+)\sknown\smistakes", text)
    assert counts == [(str(len(MISTAKES)),) * 2], "say what tests/support/mistakes.py prints"


def test_a_measured_value_stands_on_one_page_of_measurements() -> None:
    """A value with its interval, as in "0.328 [0.321, 0.335]"; a copy would differ after the next run."""
    pages: dict[str, set[Path]] = {}
    for page, text in TEXT.items():
        for value in re.findall(r"\d[\d.]* \[\d[\d.]*,\s\d[\d.]*\]", prose(text)):
            pages.setdefault(value, set()).add(page)
    assert len(pages) > 100
    for value, found in pages.items():
        assert len(found) == 1, (value, found)
        assert all(page.parent == ROOT / "docs" / "paper" for page in found), (value, found)
