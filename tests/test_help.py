"""What `help` says: every parameter is explained, and examples give what they print."""

from __future__ import annotations

import doctest
import importlib
import inspect
import re

import pytest

import fedfairx as ffx

MODULES = (
    "core.confidence",
    "core.posterior",
    "features",
    "agent.agent",
    "federation.in_process",
    "agent.options",
    "agent.partners",
    "simulation.compare",
)


@pytest.mark.parametrize("name", MODULES)
def test_examples_of_docstrings(name: str) -> None:
    done = doctest.testmod(importlib.import_module(f"fedfairx.{name}"))
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
