"""What `help` says: every parameter is explained, and examples give what they print."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re
import sys
import warnings
from pathlib import Path

import pytest

import fedfairx as ffx

DOCS = Path(__file__).resolve().parent.parent / "docs"
sys.path.insert(0, str(DOCS))
public = importlib.import_module("generated").public
sys.path.remove(str(DOCS))

PACKAGES = re.findall(
    r"^<!-- generated: api (\S+) -->$",
    "\n".join(page.read_text(encoding="utf-8") for page in sorted((DOCS / "reference" / "api").glob("*.md"))),
    re.MULTILINE,
)
NAMES = {
    name: found
    for package in PACKAGES
    for name, found in public(package).items()
    if inspect.isclass(found) or inspect.isfunction(found)
}
#: service/test_client.py runs the examples of clients, beside a service.
MODULES = sorted({found.__module__ for found in NAMES.values()} - {"fedfairx.client"})


@pytest.mark.parametrize("name", NAMES)
def test_every_public_name_has_an_example(name: str) -> None:
    assert doctest.DocTestParser().get_examples(inspect.getdoc(NAMES[name]) or "")


def test_every_package_has_a_page() -> None:
    assert {"fedfairx", "fedfairx.privacy", "fedfairx.storage", "fedfairx.errors"} <= set(PACKAGES)
    assert {f"fedfairx.{name}" for name in ffx.__all__ if inspect.ismodule(getattr(ffx, name))} <= set(
        PACKAGES
    )


@pytest.mark.long
@pytest.mark.parametrize("name", [*MODULES, "fedfairx.agent.partners"])
def test_examples_of_docstrings(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with warnings.catch_warnings():
        done = doctest.testmod(importlib.import_module(name), optionflags=doctest.ELLIPSIS)
    assert done.attempted > 0
    assert done.failed == 0


@pytest.mark.parametrize(
    "kind", [ffx.Agent, ffx.Federation, ffx.Confidence, ffx.Options, ffx.Prior, ffx.Scenario]
)
def test_every_parameter_is_explained(kind: type) -> None:
    text = inspect.getdoc(kind) or ""
    given = {name for line in re.findall(r"^([\w, ]+): ", text, re.MULTILINE) for name in line.split(", ")}
    parameters = inspect.signature(kind).parameters
    wanted = {name for name, each in parameters.items() if each.kind is not each.VAR_KEYWORD}
    assert wanted <= given, wanted - given
