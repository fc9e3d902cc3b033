"""The experiments by name: the package's own, and those of a user's plug-in."""

from __future__ import annotations

import importlib
import importlib.util
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from fedfairx.errors import InvalidInput, require
from fedfairx.experiments.experiment import Experiment

BUILT_IN = tuple(f"exp{number}" for number in range(1, 11))
_SUITE = (
    "exp01_together",
    "exp02_protocols",
    "exp03_agents",
    "exp04_budget",
    "exp05_mechanisms",
    "exp06_starvation",
    "exp07_communication",
    "exp08_merit",
    "exp09_exploration",
    "exp10_heterogeneity",
)
_PLUGGED: dict[str, Experiment] = {}


@cache
def _built_in() -> dict[str, Experiment]:
    modules = [importlib.import_module(f"fedfairx.experiments.suite.{name}") for name in _SUITE]
    return {module.EXPERIMENT.name: module.EXPERIMENT for module in modules}


def experiments() -> dict[str, Experiment]:
    """All experiments, in order."""
    return {**_built_in(), **_PLUGGED}


def register(experiment: Experiment) -> Experiment:
    """Add an experiment, whose name must be new."""
    taken = experiment.name in _built_in()
    require(not taken, "name", "must not be one of the package's experiments", experiment.name)
    _PLUGGED[experiment.name] = experiment
    return experiment


def choose(names: list[str]) -> list[Experiment]:
    """The experiments of these names; "all" is all of them."""
    known = experiments()
    if not names or "all" in names:
        return list(known.values())
    for name in names:
        require(name in known, "experiment", f"must be one of {', '.join(known)}, all", name)
    return [known[name] for name in dict.fromkeys(names)]


def load_plugin(path: str | Path) -> ModuleType:
    """Run a Python file and register every `Experiment` that it defines at its top level."""
    path = Path(path)
    spec = importlib.util.spec_from_file_location(f"fedfairx_plugin_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InvalidInput(f"plugin must be a Python file, got plugin={str(path)!r}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickle look their module up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[spec.name]
        raise InvalidInput(f"plugin {path} could not be run: {type(error).__name__}: {error}") from error
    found = [value for value in vars(module).values() if isinstance(value, Experiment)]
    if not found:
        raise InvalidInput(f"plugin {path} defines no Experiment at its top level")
    for experiment in found:
        register(experiment)
    return module
