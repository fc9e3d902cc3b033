"""One's own schedule, merit, environment and mechanism, without touching the package."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path

import pytest

from fedfairx import Scenario, simulate
from fedfairx.errors import InvalidInput
from fedfairx.privacy import calibrate
from paper import Run, Size
from paper.experiment import made_by
from paper.registry import EXPERIMENTS, choose, load
from paper.sweep import Reproduction, reproduce

DOCUMENT = Path(__file__).parents[2] / "docs" / "howto" / "write-an-experiment.md"


def ran(path: Path, *names: str) -> Reproduction:
    """What is reproduced of a file's experiments."""
    known = EXPERIMENTS | load(path)[1]
    return reproduce(choose(names, known), size=Size(horizon=60, seeds=2), out=path.parent / "out")


def documented(tmp_path: Path) -> Path:
    code = re.search(r"```python\n(.*?)```", DOCUMENT.read_text(), re.DOTALL)
    assert code is not None
    path = tmp_path / "mine.py"
    path.write_text(code.group(1))
    return path


@pytest.mark.long
def test_the_documented_plug_in_runs(tmp_path: Path):
    done = ran(documented(tmp_path), "mine")
    assert not done.failures
    assert (tmp_path / "out" / "figures" / "mine.png").exists()
    assert "Does sharing pay?" in done.report.read_text()


OWN = """
from paper import Claim, judge

def heads(results, size):
    yield Claim("heads", "by a coin", "heads", judge(1.0, low=0.5))

ALSO = Experiment("also", "Also mine", "Really?", runs, heads, words={"coin": "a fair one"})
"""


@pytest.mark.long
def test_a_report_of_ones_own_experiments_is_about_these_alone(tmp_path: Path):
    path = documented(tmp_path)
    path.write_text(path.read_text() + OWN)
    done = ran(path, "mine", "also")
    page = (tmp_path / "out" / "report.md").read_text()
    assert page.startswith("# Mine; Also mine\n")
    for line in (
        "| coin | a fair one |",
        "| also | heads | holds | heads | by a coin |",
        "## also: Also mine",
    ):
        assert line in page
    assert [line.split(" |")[0] for line in page.splitlines() if line.startswith("| fair")] == [
        "| fair share",
        "| fairness regret",
    ]
    body = re.sub(r"data:[^\"]*", "", done.report.read_text().partition("<body>")[2])
    for text in (page, body):
        assert not re.search(r"paper|B0|Priv|Calibration|reduced size|not judged", text)
    assert "reduced size" not in (tmp_path / "out" / "figures" / "mine.svg").read_text()


@pytest.mark.long
def test_beside_the_papers_it_keeps_its_name(tmp_path: Path):
    ran(documented(tmp_path), "mine", "exp3")
    page = (tmp_path / "out" / "report.md").read_text()
    assert page.startswith("# Fair, private, federated bandits: the paper's experiments; Mine\n")
    assert "## exp3: The number of agents (the paper's)" in page
    assert "\n## mine: Mine\n" in page
    assert "Every deviation from the paper" in page
    assert "reduced size" in (tmp_path / "out" / "figures" / "exp3-fairness.svg").read_text()
    assert "reduced size" not in (tmp_path / "out" / "figures" / "mine.svg").read_text()


PARTS = """
from dataclasses import dataclass, replace
from fedfairx.privacy import calibrate

@dataclass(frozen=True)
class Weekly:
    days: int = 7
    public = True
    def rounds(self, plan): return np.arange(self.days, plan.horizon + 1, self.days)
    def max_releases(self, plan): return plan.horizon // self.days

def louder(**budget):
    tree = calibrate("tree", **budget)
    return replace(tree, base_sd=2 * tree.base_sd)

"""


@pytest.mark.long
def test_a_plug_in_has_its_own_schedule_and_mechanism(tmp_path: Path):
    path, given = documented(tmp_path), '{"epsilon": 2.0}'
    text = path.read_text()
    assert given in text
    own = given.replace("}", ', "schedule": Weekly(), "mechanism": louder}')
    path.write_text(text.replace("class Sparse", f"{PARTS}class Sparse").replace(given, own))
    done = ran(path, "mine")
    assert not done.failures


def test_it_is_short(tmp_path: Path):
    lines = [line for line in documented(tmp_path).read_text().splitlines() if line.strip()]
    own = [line for line in lines if not line.startswith(("#", "import", "from", "@"))]
    assert len(own) <= 20, "the page promises 20 lines"


def test_a_name_of_the_packages_own_is_refused(tmp_path: Path):
    path = documented(tmp_path)
    path.write_text(path.read_text().replace('Experiment("mine"', 'Experiment("exp1"'))
    with pytest.raises(InvalidInput, match="name must not be"):
        load(path)


@pytest.mark.parametrize(
    ("text", "message"),
    [("x = 1", "defines no Experiment"), ("1/0", "ZeroDivisionError"), (None, "must be a Python file")],
)
def test_what_is_no_plug_in(tmp_path: Path, text, message):
    path = tmp_path / "bad.py"
    if text is not None:
        path.write_text(text)
    with pytest.raises(InvalidInput, match=message):
        load(path)


def test_unknown_experiments_are_named():
    with pytest.raises(InvalidInput, match=r"experiment must be one of exp1, .*, all, got experiment='none'"):
        choose(["none"])


def test_ones_own_mechanism():
    def twice_the_noise(*, epsilon, delta, releases, sensitivity):
        found = calibrate("tree", epsilon=epsilon, delta=delta, releases=releases, sensitivity=sensitivity)
        return replace(found, base_sd=2 * found.base_sd)

    world = Scenario(agents=2, arms=3, dimension=2, horizon=60)
    own, tree = (
        simulate(world, algorithm="priv-fairx-linucb", seeds=2, epsilon=2.0, mechanism=mechanism)
        for mechanism in (twice_the_noise, "tree")
    )
    assert (own.fairness_regret[:, -1] != tree.fairness_regret[:, -1]).all()
    run = Run("own", world, "priv-fairx-linucb", {"epsilon": 2.0, "mechanism": twice_the_noise})
    assert run.identity(made_by()) != replace(run, options={"epsilon": 2.0}).identity(made_by())
