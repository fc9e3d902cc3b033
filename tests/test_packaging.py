"""What the package says of itself agrees with itself."""

from __future__ import annotations

import os
import re
import subprocess
import sys
import tomllib
from fnmatch import fnmatch
from importlib import metadata
from pathlib import Path

import pytest

import fedfairx
from fedfairx.errors import MissingLibrary, needs

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


def _distributions(extra: str) -> set[str]:
    """What an extra installs, with the extras that it names."""
    found = set()
    for line in PROJECT["project"]["optional-dependencies"][extra]:
        name, extras = re.match(r"([\w-]+)(?:\[([\w,]+)\])?", line).groups()  # type: ignore[union-attr]
        found |= (
            set().union(*map(_distributions, extras.split(","))) if name == "fedfairx" else {name.lower()}
        )
    return found


@pytest.mark.long
@pytest.mark.process
def test_a_light_install_is_told_the_right_extra() -> None:
    """Without any optional library, each command that needs one names an extra that has it."""
    optional = _distributions("all")
    of = metadata.packages_distributions()
    absent = [name for name, sources in of.items() if optional & {source.lower() for source in sources}]
    commands = {
        "serve --dimension 2": "service",
        "serve --database postgresql:///none --dimension 2": "service",
        "demo": "service,client",
        "verify --data postgresql:///none": "postgres",
    }
    program = f"""
import sys
class Absent:
    def find_spec(name, path=None, target=None):
        if name.partition(".")[0] in {absent!r}:
            raise ModuleNotFoundError(name, name=name)
sys.meta_path.insert(0, Absent)
from fedfairx.cli.main import main
for command in {list(commands)!r}:
    assert main(command.split()) == 2
"""
    environment = {**os.environ, "NUMBA_DISABLE_JIT": "1"}
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, env=environment)
    assert done.returncode == 0, done.stderr
    said = [
        re.fullmatch(r"fedfairx: .*this needs (\w+).*: pip install 'fedfairx\[([\w,]+)\]'", line)
        for line in done.stderr.splitlines()
    ]
    assert [None if each is None else each[2] for each in said] == list(commands.values()), done.stderr
    for each in said:
        assert each is not None
        given = {name.replace("-", "_") for extra in each[2].split(",") for name in _distributions(extra)}
        assert {source.lower().replace("-", "_") for source in of[each[1]]} & given


def test_an_error_that_names_an_extra_keeps_it() -> None:
    with pytest.raises(MissingLibrary, match=r"needs nats: .*\[nats\]"), needs("service"), needs("nats"):
        raise ModuleNotFoundError("No module named 'nats'", name="nats")
    with pytest.raises(MissingLibrary, match=r"needs no wrapper: .*\[postgres\]"), needs("postgres"):
        raise ImportError("no wrapper")


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


def test_the_wheel_has_all_files_of_the_package() -> None:
    """Such as `storage/schema.sql`: Hatch takes all of a package that Git does not ignore."""
    assert PROJECT["tool"]["hatch"]["build"]["targets"]["wheel"] == {"packages": ["src/fedfairx"]}
    ignored = [line.rstrip("/") for line in (ROOT / ".gitignore").read_text(encoding="utf-8").split()]
    package = ROOT / "src" / "fedfairx"
    files = [path.relative_to(package) for path in package.rglob("*") if path.is_file()]
    lost = [path for path in files if any(fnmatch(part, each) for part in path.parts for each in ignored)]
    assert {path.parent.name for path in lost} <= {"__pycache__"}


def test_the_source_distribution_has_what_the_tests_and_the_readme_need() -> None:
    parts = PROJECT["tool"]["hatch"]["build"]["targets"]["sdist"]["only-include"]
    assert all((ROOT / part).exists() for part in parts)
    links = re.findall(r"\]\(([\w./-]+)\)", (ROOT / "README.md").read_text(encoding="utf-8"))
    assert {link.split("/")[0] for link in links} <= set(parts)
