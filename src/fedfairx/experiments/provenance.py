"""Run ids: two runs have the same id if and only if they compute the same.

The id is a digest of scenario, options and code, so a results folder can be reused, and stale results are
never read.
"""

from __future__ import annotations

import hashlib
import json
import math
from collections.abc import Callable, Iterator, Mapping
from dataclasses import asdict, dataclass, fields, is_dataclass
from functools import cache
from importlib import metadata
from pathlib import Path
from types import CodeType, FunctionType
from typing import Any

import numpy as np

from fedfairx.errors import InvalidInput
from fedfairx.util.canonical_json import canonical

SCHEMA = 3  # of a results file
#: Folders, with all below them, whose code decides what a run computes,
_COMPUTING = ("lanes", "core", "privacy", "agent", "simulation")
#: and files in them that do not.
_ELSEWHERE = ("executors.py",)


@dataclass(frozen=True)
class Provenance:
    """The versions and code that made a result."""

    schema: int
    version: str
    code: str  # digest of the package's computing parts

    def __str__(self) -> str:
        return f"fedfairx {self.version} (code {self.code}, results schema {self.schema})"

    def to_dict(self) -> dict[str, Any]:
        return asdict(self)


@cache
def version() -> str:
    """The package's version."""
    try:
        return metadata.version("fedfairx")
    except metadata.PackageNotFoundError:  # a source tree that is not installed
        return "unknown"


@cache
def provenance() -> Provenance:
    """The provenance of results computed now."""
    digest = hashlib.sha256()
    for name, source in computing_sources():
        digest.update(f"{name}\0".encode())
        digest.update(source.read_bytes())
    return Provenance(SCHEMA, version(), digest.hexdigest()[:12])


def computing_sources() -> Iterator[tuple[str, Path]]:
    """Every source file that decides what a run computes, by its path in the package."""
    package = Path(__file__).parent.parent
    for folder in _COMPUTING:
        for path in sorted((package / folder).rglob("*")):
            if path.suffix in (".py", ".json") and path.name not in _ELSEWHERE:
                yield path.relative_to(package).as_posix(), path


def digest_of(value: object, *, length: int = 16) -> str:
    """A short hash of `describe(value)`."""
    return hashlib.sha256(canonical(describe(value))).hexdigest()[:length]


def describe(value: Any) -> Any:
    """Plain JSON values that describe a value completely; objects outside the package include their code."""
    if value is None or isinstance(value, bool | str):
        return value
    if isinstance(value, int | np.integer):
        return int(value)
    if isinstance(value, float | np.floating):
        return float(value) if math.isfinite(value) else repr(float(value))
    if isinstance(value, Mapping):
        return {str(key): describe(item) for key, item in value.items()}
    if isinstance(value, np.ndarray) and value.dtype != object:  # by its bytes: recorded data are large
        data = hashlib.sha256(value.tobytes()).hexdigest()
        return {"array": data, "kind": value.dtype.str, "shape": list(value.shape)}
    if isinstance(value, np.ndarray):
        return describe(value.tolist())
    if not isinstance(value, type) and is_dataclass(value):
        return _object(value, {item.name: getattr(value, item.name) for item in fields(value)})
    if isinstance(value, tuple) and hasattr(value, "_asdict"):
        return _object(value, value._asdict())
    if isinstance(value, tuple | list | range):
        return [describe(item) for item in value]
    if isinstance(value, set | frozenset):
        return sorted((describe(item) for item in value), key=str)
    function = getattr(value, "py_func", value)  # what Numba wrapped
    if isinstance(function, FunctionType):
        return {"function": function.__qualname__, "code": _code(function)}
    if isinstance(value, type):
        return {"class": value.__qualname__}
    if hasattr(value, "__dict__"):
        return _object(value, vars(value))
    raise InvalidInput(
        f"a run's values must be plain, dataclasses or functions for its id, got a {type(value).__name__}"
    )


def _object(value: object, state: Mapping[str, Any]) -> dict[str, Any]:
    kind = type(value)
    described = {"type": kind.__qualname__, **{name: describe(item) for name, item in state.items()}}
    if kind.__module__.partition(".")[0] != "fedfairx":  # the package's own code is in the provenance
        methods = [vars(base) for base in kind.__mro__ if base.__module__ == kind.__module__]
        described["code"] = [
            _code(item) for names in methods for _, item in sorted(names.items()) if _is_function(item)
        ]
    return described


def _is_function(item: object) -> bool:
    return isinstance(item, FunctionType | property | staticmethod | classmethod)


def _code(item: Any) -> str:
    function: Callable[..., Any] = getattr(item, "fget", None) or getattr(item, "__func__", None) or item
    digest = hashlib.sha256()
    if hasattr(function, "__code__"):
        _add_code(digest, function.__code__)
        for cell in function.__closure__ or ():
            inner = cell.cell_contents
            if isinstance(inner, FunctionType):  # its code, but not its closure: that may lead back here
                _add_code(digest, inner.__code__)
            else:
                digest.update(json.dumps(describe(inner), sort_keys=True).encode())
    return digest.hexdigest()[:16]


def _add_code(digest: Any, code: CodeType) -> None:
    digest.update(code.co_code)
    digest.update(repr(code.co_names).encode())
    for constant in code.co_consts:
        if isinstance(constant, CodeType):
            _add_code(digest, constant)
        else:
            digest.update(repr(constant).encode())
