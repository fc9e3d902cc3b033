"""The experiments by name, and those of a user's file."""

import importlib
import importlib.util
import sys
from collections.abc import Mapping, Sequence
from pathlib import Path
from types import ModuleType

from fedfairx.errors import InvalidInput
from paper.experiment import Experiment

_FILES = (*(f"exp{number:02}" for number in range(1, 13)), "flights", "star")
_ALL = [importlib.import_module(f"paper.{name}") for name in _FILES]
EXPERIMENTS: dict[str, Experiment] = {each.EXPERIMENT.name: each.EXPERIMENT for each in _ALL}


def load(path: str | Path) -> tuple[ModuleType, dict[str, Experiment]]:
    """Run a Python file; return it with every `Experiment` that it defines at its top level."""
    path = Path(path)
    spec = importlib.util.spec_from_file_location(f"paper_plugin_{path.stem}", path)
    if spec is None or spec.loader is None or not path.is_file():
        raise InvalidInput(f"plugin must be a Python file, got plugin={str(path)!r}")
    module = importlib.util.module_from_spec(spec)
    sys.modules[spec.name] = module  # dataclasses and pickle look their module up there
    try:
        spec.loader.exec_module(module)
    except Exception as error:
        del sys.modules[spec.name]
        raise InvalidInput(f"plugin {path} could not be run: {type(error).__name__}: {error}") from error
    found = {each.name: each for each in vars(module).values() if isinstance(each, Experiment)}
    if not found:
        raise InvalidInput(f"plugin {path} defines no Experiment at its top level")
    for name in found.keys() & EXPERIMENTS.keys():
        raise InvalidInput(f"name must not be one of this package's experiments, got name={name!r}")
    return module, found


def choose(names: Sequence[str], known: Mapping[str, Experiment] = EXPERIMENTS) -> list[Experiment]:
    """The experiments of these names; "all", or no name, is all of them."""
    for name in set(names) - {*known, "all"}:
        raise InvalidInput(f"experiment must be one of {', '.join(known)}, all, got experiment={name!r}")
    return (
        list(known.values())
        if not names or "all" in names
        else [known[name] for name in dict.fromkeys(names)]
    )
