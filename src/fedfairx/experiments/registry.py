"""The experiments by name: the package's own, and those of a user's plug-in."""

from __future__ import annotations

import importlib.util
import pkgutil
import sys
from functools import cache
from pathlib import Path
from types import ModuleType

from fedfairx.errors import InvalidInput, require
from fedfairx.experiments import suite
from fedfairx.experiments.experiment import Experiment

BUILT_IN = (*(f"exp{number}" for number in range(1, 13)), "flights", "star")
_PLUGGED: dict[str, Experiment] = {}


@cache
def _built_in() -> dict[str, Experiment]:
    names = sorted(module.name for module in pkgutil.iter_modules(suite.__path__, f"{suite.__name__}."))
    values = [getattr(importlib.import_module(name), "EXPERIMENT", None) for name in names]
    return {each.name: each for each in values if each is not None}


def experiments() -> dict[str, Experiment]:
    """All experiments, in order."""
    return {**_built_in(), **_PLUGGED}


def register(experiment: Experiment) -> Experiment:
    """Add an experiment, whose name must be new."""
    is_built_in = experiment.name in _built_in()
    require(not is_built_in, "name", "must not be one of the package's experiments", experiment.name)
    _PLUGGED[experiment.name] = experiment
    return experiment


def choose(names: list[str]) -> list[Experiment]:
    """The experiments of these names; "all" is all of them."""
    by_name = experiments()
    if not names or "all" in names:
        return list(by_name.values())
    for name in names:
        require(name in by_name, "experiment", f"must be one of {', '.join(by_name)}, all", name)
    return [by_name[name] for name in dict.fromkeys(names)]


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
    additions = [value for value in vars(module).values() if isinstance(value, Experiment)]
    if not additions:
        raise InvalidInput(f"plugin {path} defines no Experiment at its top level")
    for experiment in additions:
        register(experiment)
    return module
