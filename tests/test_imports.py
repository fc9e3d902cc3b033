"""Imports point one way; heavy and foreign packages stay where they belong; the core does no I/O."""

from __future__ import annotations

import ast
import functools
import graphlib
import importlib
import subprocess
import sys
from collections.abc import Iterator, Mapping
from pathlib import Path

import pytest

import fedfairx

PACKAGE = Path(fedfairx.__file__).parent
FILES = sorted(PACKAGE.rglob("*.py"))

#: What each room may import: lanes ← core ← privacy ← steps ← storage ← agent ← {federation, simulation} ←
#: service. `errors` and `util` stand below all.
BASE = {"errors", "util"}
MAY_IMPORT = {
    "errors": set(),
    "util": BASE,
    "lanes": BASE | {"lanes"},
    "core": BASE | {"lanes", "core"},
    "features": BASE,
    "decision": BASE | {"core"},
    "steps": BASE | {"core", "decision", "features", "privacy"},
    "privacy": BASE | {"lanes", "core", "privacy"},
    "fairness": BASE | {"core", "fairness"},
    "storage": BASE | {"core", "decision", "privacy", "steps", "storage"},
    "agent": BASE | {"lanes", "core", "decision", "features", "privacy", "steps", "storage", "agent"},
    "federation": BASE | {"core", "features", "privacy", "storage", "agent", "federation"},
    "simulation": BASE | {"lanes", "core", "privacy", "agent", "simulation"},
    "audit": BASE | {"core", "privacy", "agent", "audit"},
    "evaluation": BASE | {"core", "fairness", "storage", "agent", "evaluation"},
    "service": BASE
    | {"core", "decision", "fairness", "features", "privacy", "storage", "agent", "federation"}
    | {"evaluation", "service"},
    "client": BASE,
}
#: Where alone a package may be imported: a folder or a file.
ONLY_IN = {
    "nats": "federation/transport/nats",
    "flwr": "federation/transport",
    "starlette": "service",
    "uvicorn": "service",
    "jinja2": "service/pages",
    "psycopg": "storage/postgres.py",
}
#: Outside the package, the core imports this and nothing else: no files, no network, no clock, no randomness.
CORE_IMPORTS = {
    "__future__",
    "collections",
    "ctypes",
    "dataclasses",
    "functools",
    "itertools",
    "llvmlite",
    "math",
    "operator",
    "numba",
    "numpy",
    "types",
    "typing",
}
#: And beside it: what keeps machine code, and what makes it in less time.
BESIDES = {
    "decorators.py": {"contextlib", "hashlib", "os", "pathlib", "shutil", "threading", "time"},
    "compile_hooks.py": {"gc", "logging"},
}


def nodes(path: Path) -> Iterator[ast.AST]:
    return ast.walk(ast.parse(path.read_text()))


@functools.cache
def statements(path: Path) -> list[ast.Import | ast.ImportFrom]:
    """Those that import: the others are many, and would be looked at by every collection of garbage."""
    return [node for node in nodes(path) if isinstance(node, ast.Import | ast.ImportFrom)]


@functools.cache
def imports(path: Path) -> tuple[str, ...]:
    """Every module that a file imports, also inside functions."""
    return tuple(_imports(path))


def _imports(path: Path) -> Iterator[str]:
    for node in statements(path):
        if isinstance(node, ast.Import):
            yield from (alias.name for alias in node.names)
        else:
            assert node.level == 0, f"{path}: imports are absolute"
            if node.module == "fedfairx":
                yield from (f"fedfairx.{alias.name}" for alias in node.names)
            else:
                yield node.module or ""


def part_of(path: Path) -> str:
    return path.relative_to(PACKAGE).parts[0].removesuffix(".py")


PARTS = sorted({part_of(path) for path in FILES})


def files_in(part: str) -> list[Path]:
    return [path for path in FILES if part_of(path) == part]


def imported_in(part: str) -> Iterator[tuple[Path, str]]:
    """Files of a room, with every module that they import."""
    for path in files_in(part):
        for name in imports(path):
            yield path, name


def test_there_is_something_to_check() -> None:
    assert {"lanes", "core", "privacy", "federation"} <= {part_of(path) for path in FILES}
    assert len(FILES) > 30


@pytest.mark.parametrize("part", PARTS)
def test_imports_point_one_way(part: str) -> None:
    if part not in MAY_IMPORT:  # the public names and the command line see everything
        assert part in ("__init__", "__main__", "cli", "demo"), f"say what {part} may import"
        return
    for path, name in imported_in(part):
        if name.split(".")[0] == "fedfairx":
            below = [*name.split("."), "everything"][1]
            assert below in MAY_IMPORT[part], f"{path} imports {name}"


def test_no_import_leads_back() -> None:
    """Among modules there is no circle, those of imports for types alone included."""
    modules = {
        ".".join(("fedfairx", *path.relative_to(PACKAGE).with_suffix("").parts)): path for path in FILES
    }
    modules = {name.removesuffix(".__init__"): path for name, path in modules.items()}
    below = {name: _imported_modules(path, modules) - {name} for name, path in modules.items()}
    assert "fedfairx.core.partners" in below["fedfairx.agent.partners"]
    tuple(graphlib.TopologicalSorter(below).static_order())  # CycleError names a circle


def _imported_modules(path: Path, modules: Mapping[str, Path]) -> set[str]:
    found = set()
    for node in statements(path):
        if isinstance(node, ast.ImportFrom) and (node.module or "").split(".")[0] == "fedfairx":
            for alias in node.names:
                whole = f"{node.module}.{alias.name}"
                found.add(whole if whole in modules else str(node.module))
        elif isinstance(node, ast.Import):
            found |= {alias.name for alias in node.names} & modules.keys()
    return found


@pytest.mark.parametrize("part", PARTS)
def test_foreign_packages_stay_where_they_belong(part: str) -> None:
    for path, name in imported_in(part):
        home = ONLY_IN.get(name.split(".")[0])
        if home is not None:
            assert path.is_relative_to(PACKAGE / home), f"{path} imports {name}; only {home} may"


@pytest.mark.parametrize("part", ["lanes", "core"])
def test_the_core_does_no_input_or_output(part: str) -> None:
    for path, name in imported_in(part):
        allowed = CORE_IMPORTS | BESIDES.get(path.name, set())
        assert name.startswith("fedfairx") or name.split(".")[0] in allowed, f"{path} imports {name}"
    for path in files_in(part):
        for node in nodes(path):
            if isinstance(node, ast.Call):
                called = ast.unparse(node.func)
                assert called not in ("open", "print", "input", "exec", "eval"), f"{path} calls {called}"
                assert "random" not in called.split("."), f"{path} calls {called}: randomness is passed in"


def test_the_paper_imports_public_names_alone() -> None:
    """And no room of the package from which it could reach others."""
    for path in sorted((PACKAGE.parents[1] / "paper").rglob("*.py")):
        for node in statements(path):
            names = [alias.name for alias in node.names]
            if isinstance(node, ast.Import):
                assert all(not name.startswith("fedfairx.") for name in names), f"{path} imports {names}"
            elif (node.module or "").partition(".")[0] == "fedfairx":
                public = getattr(importlib.import_module(str(node.module)), "__all__", ())
                errors = node.module == "fedfairx.errors"  # all of whose names are public
                assert errors or set(names) <= set(public), f"{path} imports {names} from {node.module}"
    for path in FILES:
        assert all(name.partition(".")[0] != "paper" for name in imports(path)), f"{path} knows of paper/"


@pytest.mark.process
def test_importing_the_package_loads_nothing_heavy() -> None:
    heavy = (
        "pandas",
        "matplotlib",
        "scipy.special",
        "scipy.optimize",
        "starlette",
        "httpx",
        "pyarrow",
    )
    assert _loaded(heavy, "from fedfairx import *") == "[]"
    assert _loaded((*heavy, "asyncio", "cryptography"), "fedfairx.Agent") == "[]"
    assert _loaded(("numba", "numpy"), "") == "[]"


def _loaded(names: tuple[str, ...], then: str) -> str:
    """Which of these modules a process has after importing the package."""
    program = f"import sys, fedfairx\n{then}\nprint([name for name in {names!r} if name in sys.modules])"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, check=True)
    return done.stdout.strip()


def test_the_public_names() -> None:
    for name in (
        "Agent",
        "Confidence",
        "Decision",
        "Federation",
        "algorithms",
        "compare",
        "features",
        "merit",
    ):
        assert name in fedfairx.__all__
    for name in fedfairx.__all__:
        value = getattr(fedfairx, name)
        assert (getattr(value, "__name__", name).split(".")[-1], name in dir(fedfairx)) == (name, True)
    assert fedfairx.errors.InvalidInput  # a room, without an import of its own
    with pytest.raises(AttributeError, match="nonsense"):
        fedfairx.nonsense  # noqa: B018


def test_the_name_of_a_public_class_means_one_thing() -> None:
    """A class of `service.schemas` that is made of fields stands there a second time, for type checkers."""
    places: dict[str, set[str]] = {}
    for file in FILES:
        for node in ast.walk(ast.parse(file.read_text(encoding="utf-8"))):
            if isinstance(node, ast.ClassDef) and not node.name.startswith("_"):
                places.setdefault(node.name, set()).add(file.relative_to(PACKAGE).as_posix())
    assert {name: sorted(files) for name, files in places.items() if len(files) > 1} == {}
