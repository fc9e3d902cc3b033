"""Every experiment in seconds: it runs, scores, draws and is reported."""

from __future__ import annotations

import json
import re
import shutil
from html.parser import HTMLParser
from pathlib import Path

import pytest

from paper import SMOKE, Headline, Size
from paper.datasets import missing
from paper.engine import Progress
from paper.registry import EXPERIMENTS, choose
from paper.report import DEVIATIONS, OUT_OF_REACH
from paper.sweep import Reproduction, reproduce

pytestmark = pytest.mark.long  # its fixture reproduces everything, at the smallest size

FIGURES = {
    "exp1": ("exp1-fairness", "exp1-reward", "exp1-growth"),
    "exp2": ("exp2-fairness", "exp2-reward"),
    "exp3": ("exp3-fairness", "exp3-reward"),
    "exp4": ("exp4-fairness", "exp4-reward"),
    "exp5": ("exp5-mechanisms", "exp5-rules"),
    "exp6": ("exp6-starvation",),
    "exp7": ("exp7-communication",),
    "exp8": ("exp8-merit",),
    "exp10": ("exp10-partners",),
    "exp11": ("exp11-regret", "exp11-attention"),
    "exp12": ("exp12-secure",),
    "exp9": ("exp9-summary", "exp9-worlds", "exp9-weakest", "exp9-late", "exp9-people", "exp9-joining"),
    "flights": ("flights-partners", "flights-carriers"),
    "star": ("star-partners",),
}
INSTALLED = [name for name, each in EXPERIMENTS.items() if not missing(each.libraries)]
KNOWN = tuple(EXPERIMENTS.values())


@pytest.mark.long
@pytest.mark.parametrize("name", INSTALLED)
def test_every_figure_is_drawn_and_says_that_it_is_reduced(smoke: Reproduction, name: str):
    for figure in FIGURES[name]:
        png, svg = (smoke.out / "figures" / f"{figure}.{kind}" for kind in ("png", "svg"))
        assert png.read_bytes().startswith(b"\x89PNG")
        assert "reduced size: T = 120, 2 seeds" in svg.read_text()


def test_nothing_fails(smoke: Reproduction):
    assert not smoke.failures
    assert {section.experiment.name for section in smoke.sections} == set(INSTALLED)
    assert "still run" not in smoke.report.read_text()


class _Outside(HTMLParser):
    def __init__(self) -> None:
        super().__init__()
        self.references: list[str] = []

    def handle_starttag(self, tag, attrs):  # noqa: ARG002 (the parser's)
        self.references += [value for name, value in attrs if name in ("src", "href") and value]


def test_the_page_is_self_contained(smoke: Reproduction):
    reader = _Outside()
    text = smoke.report.read_text()
    reader.feed(text)
    assert len(reader.references) == sum(len(FIGURES[name]) for name in INSTALLED)
    assert all(reference.startswith("data:image/svg+xml;base64,") for reference in reader.references)
    assert "url(" not in text


@pytest.mark.parametrize("name", ["report.html", "report.md"])
def test_the_report_says_what_it_must(smoke: Reproduction, name: str):
    import html

    text = html.unescape((smoke.out / name).read_text())
    for _, reason in OUT_OF_REACH:
        assert reason in text
    for theirs, ours in DEVIATIONS:
        assert theirs in text
        assert ours in text
    for item in (
        "seeds 0 to 1",
        "Wall time",
        "Made by fedfairx",
        "reduced size",
        "Criterion: ",
        "Calibration",
    ):
        assert item in text
    assert "Measured regret beside the theorem's bound" in text
    assert "vacuous" in text
    for each in INSTALLED:
        assert EXPERIMENTS[each].title in text


def test_the_report_opens_with_what_was_found_and_explains_its_words(smoke: Reproduction):
    text = (smoke.out / "report.md").read_text()
    opening, rest = text.split("Made by fedfairx", 1)
    (exp9,) = (section for section in smoke.sections if section.experiment.name == "exp9")
    assert exp9.of(Headline)[0] in opening
    assert opening.count("(figures/exp9-summary.png)") == 1
    assert "exp9-summary" not in rest
    for word in ("fairness regret", "B0", "Fed", "Priv"):
        assert f"| {word} |" in opening


def test_links_of_the_markdown_report_lead_somewhere(smoke: Reproduction):
    for link in re.findall(r"\]\((figures/[^)]+)\)", (smoke.out / "report.md").read_text()):
        assert (smoke.out / link).is_file()


def test_scores_are_stored(smoke: Reproduction):
    assert set(json.loads((smoke.out / "scores.json").read_text())) == set(INSTALLED)


@pytest.mark.long
def test_what_is_stored_is_only_drawn_again(tmp_path: Path, smoke: Reproduction):
    """And figures of others, which stay in the report, are not."""
    shutil.copytree(smoke.out, tmp_path, dirs_exist_ok=True)
    before = {path.name: path.stat().st_mtime_ns for path in (tmp_path / "figures").iterdir()}
    done = reproduce(choose(["exp6"]), size=SMOKE, out=tmp_path, known=KNOWN)
    assert (done.runs, done.reused) == (0, 8)
    new = {p.name for p in (tmp_path / "figures").iterdir() if p.stat().st_mtime_ns > before[p.name]}
    assert new == {"exp6-starvation.png", "exp6-starvation.svg"}
    for name in ("report.md", "scores.json"):
        lines = [(out / name).read_text().splitlines() for out in (smoke.out, tmp_path)]
        assert all(one == two for one, two in zip(*lines, strict=True) if "Wall time" not in one)


SMALL, LARGE = Size(horizon=40, seeds=1), Size(horizon=60, seeds=1)


def sections(out: Path) -> list[str]:
    return sorted(json.loads((out / "scores.json").read_text()))


@pytest.fixture(scope="module")
def _made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    out = tmp_path_factory.mktemp("made")
    reproduce(choose(["exp6"]), size=LARGE, out=out, known=KNOWN)
    return out


@pytest.fixture
def exp6(_made: Path, tmp_path: Path) -> Path:
    """A folder of its own with exp6 at `LARGE`."""
    return Path(shutil.copytree(_made, tmp_path / "exp6"))


@pytest.mark.long
def test_one_folder_keeps_every_experiment_of_one_size(exp6: Path):
    assert sections(exp6) == ["exp6"]
    reproduce(choose(["exp7"]), size=LARGE, out=exp6, known=KNOWN)
    assert sections(exp6) == ["exp6", "exp7"]
    assert (exp6 / "figures" / "exp6-starvation.png").is_file()
    before = (exp6 / "figures" / "exp7-communication.svg").read_bytes()
    again = reproduce(
        choose(["exp7"]), size=LARGE, out=exp6, known=KNOWN
    )  # computes nothing, and draws the same
    assert again.runs == 0
    assert [each.experiment.name for each in again.sections] == ["exp6", "exp7"]
    assert (exp6 / "figures" / "exp7-communication.svg").read_bytes() == before


@pytest.mark.long
def test_another_size_replaces_the_report_and_says_so_but_no_results(
    exp6: Path, capsys: pytest.CaptureFixture[str]
):
    before = (exp6 / "report.md").read_text()
    reproduce(choose(["exp7"]), size=SMALL, out=exp6, known=KNOWN, progress=Progress())
    assert f"the report of exp6 at {LARGE} is replaced; results stay" in capsys.readouterr().err
    assert sections(exp6) == ["exp7"]
    assert not list((exp6 / "figures").glob("exp6*"))  # none that is stale beside it
    again = reproduce(choose(["exp6"]), size=LARGE, out=exp6, known=KNOWN)
    assert again.runs == 0
    assert [line for line in (exp6 / "report.md").read_text().splitlines() if "Wall time" not in line] == [
        line for line in before.splitlines() if "Wall time" not in line
    ]


@pytest.mark.long
def test_what_other_code_made_is_not_shown_beside(exp6: Path):
    path = exp6 / "run.json"
    manifest = json.loads(path.read_text())
    manifest["made_by"] = "fedfairx 0.0"
    path.write_text(json.dumps(manifest))
    reproduce(choose(["exp7"]), size=LARGE, out=exp6, known=KNOWN)
    assert sections(exp6) == ["exp7"]


@pytest.mark.parametrize("text", ["{", '{"size": {"horizon": 60, "seeds": 1}}', None])
def test_without_a_list_of_what_it_has_a_report_is_of_what_is_asked(exp6: Path, text: str | None):
    (exp6 / "run.json").write_text(text) if text else (exp6 / "run.json").unlink()
    reproduce(choose(["exp7"]), size=LARGE, out=exp6, known=KNOWN)
    assert sections(exp6) == ["exp7"]


@pytest.mark.long
def test_an_experiment_whose_results_are_gone_leaves_the_report(exp6: Path):
    next((exp6 / "results").glob("*.npz")).unlink()
    reproduce(choose(["exp7"]), size=LARGE, out=exp6, known=KNOWN)
    assert sections(exp6) == ["exp7"]
