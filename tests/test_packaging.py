"""What the package says of itself agrees with itself."""

from __future__ import annotations

import re
import tomllib
from importlib import metadata
from pathlib import Path

import fedfairx

ROOT = Path(__file__).resolve().parent.parent
PROJECT = tomllib.loads((ROOT / "pyproject.toml").read_text(encoding="utf-8"))
CITATION = (ROOT / "CITATION.cff").read_text(encoding="utf-8")


def test_one_version_and_one_licence() -> None:
    assert PROJECT["project"]["version"] == fedfairx.__version__
    assert f"\nversion: {fedfairx.__version__}\n" in CITATION
    assert f"\nlicense: {PROJECT['project']['license']}\n" in CITATION


def test_the_citation_names_the_paper() -> None:
    assert "Fairness and Privacy Guarantees in Federated Contextual Bandits" in CITATION
    assert PROJECT["project"]["authors"][0]["name"] in CITATION


def test_numba_is_bounded_by_the_minor_version_that_was_tested() -> None:
    """`lanes/vector_llvm.py` and `lanes/vector.py` build on interfaces that Numba calls its own."""
    numba = next(line for line in PROJECT["project"]["dependencies"] if line.startswith("numba"))
    bound = re.search(r"<0\.(\d+)$", numba)
    assert bound is not None
    assert int(metadata.version("numba").split(".")[1]) < int(bound[1])


def test_no_link_of_the_long_description_is_relative() -> None:
    """On a package index a relative link is dead."""
    text = (ROOT / "README.md").read_text(encoding="utf-8")
    for each in PROJECT["tool"]["hatch"]["metadata"]["hooks"]["fancy-pypi-readme"]["substitutions"]:
        text = re.sub(each["pattern"], each["replacement"], text)
    links = re.findall(r"\]\(([^)]+)\)", text)
    assert len(links) > 8
    assert all(link.startswith("https://") for link in links)
    assert "![" in text
    assert re.search(r"\]\(https://raw\.[^)]+\.svg\)", text)


def test_the_source_distribution_has_what_the_tests_and_the_readme_need() -> None:
    parts = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["only-include"]
    assert all((ROOT / part).exists() for part in parts)
    links = re.findall(r"\]\(([\w./-]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert {link.split("/")[0] for link in links} <= set(parts)
