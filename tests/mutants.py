"""Mistakes made from the syntax tree, and whether tests notice them: `make mutants`.

`mutations.py` makes the mutants. Each is put into a copy of the source tree, never into the tree itself. The
tests that run the changed function then run against the copy: those of the module's own test file first, then
those of its folder, the quickest first. A test that fails must pass without the mutant, else it says nothing.
Survivors also meet the tests that start processes.

Which functions a test runs is recorded once, without a mutant, and kept until its file changes. Tests that
fail in that run or take more than `LONGEST` seconds are left out. `lanes/`, `core/`, `privacy/` and
`simulation/` run as plain Python: machine code is cached under a digest of these sources, so each mutant
would have to be compiled. Libraries are loaded once, and each run of tests is a fork. `accepted_mutants.toml`
lists those that may survive, with the reasons.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import difflib
import functools
import hashlib
import importlib
import json
import multiprocessing
import os
import py_compile
import random
import shutil
import signal
import sys
import tempfile
import threading
import time
import tomllib
from collections.abc import Callable, Iterable, Iterator
from contextlib import suppress
from pathlib import Path
from types import CodeType, FrameType
from typing import Any

import pytest

from mutations import MODULE, Mutant, mutants_of

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
PACKAGE = ROOT / "src" / "fedfairx"
ACCEPTED = TESTS / "accepted_mutants.toml"
STORE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedfairx-mutants"
ROOMS = ("core", "agent", "fairness", "evaluation", "privacy", "federation", "storage")
TOGETHER = {"agent": "storage", "storage": "agent"}  # rooms that are tested in each other's folders too
UNCOMPILED = ("lanes", "core", "privacy", "simulation")
LIBRARIES = (
    "cryptography.hazmat.primitives.asymmetric.ed25519", "cryptography.hazmat.primitives.asymmetric.x25519",
    "cryptography.hazmat.primitives.ciphers.aead", "hypothesis.extra.numpy", "hypothesis.strategies",
    "numba.core.config", "numpy", "pandas", "scipy.linalg", "scipy.optimize", "scipy.stats",
    "starlette.applications", "uvicorn",
)  # fmt: skip
LONGEST = 5.0  # seconds of a test
EXAMPLES = (TESTS / "test_help.py",)  # of docstrings
FEW = 40  # tests that run first: most mutants are killed by one of them
PATIENCE = 60.0  # seconds for a run of tests beyond five times those of its tests; more means that one hangs
MINUTES = 20  # for a run of tests whose seconds are not known

Tests = dict[str, float]  # ids of tests, and their seconds

#: Processes that a test has left may still write into it.
temporary_folder = functools.partial(
    tempfile.TemporaryDirectory, prefix="fedfairx-mutants-", ignore_cleanup_errors=True
)


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("only", nargs="*", help="files or folders of the package, or ids of mutants")
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--count", type=int, default=40, help="size of the sample")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many run at once")
    parser.add_argument("--quick", action="store_true", help="leave out tests that start processes")
    options = parser.parse_args()
    for each in options.only:
        if not (PACKAGE / each.partition(":")[0]).exists():
            parser.error(f"only must be files or folders of src/fedfairx, or ids of mutants, got {each!r}")
    mutants = sample(options.only or ROOMS, seed=options.seed, count=options.count)
    for library in LIBRARIES:
        importlib.import_module(library)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    survivors = []
    with temporary_folder(dir=memory) as folder:
        trial = Trial(Path(folder), quick=options.quick)
        with multiprocessing.get_context("fork").Pool(options.jobs) as pool:
            wanted = {(test, is_compiled(each)) for each in mutants for test in test_files(each.file)}
            for place in pool.imap_unordered(trial.record, sorted(wanted)):
                if place:
                    print(f"recorded  {place}", flush=True)
            for mutant, killer in pool.imap_unordered(trial.killer_of, mutants):
                if killer:
                    print(f"killed    {_place(mutant)} (by {killer})", flush=True)
                else:
                    survivors.append(mutant)
                    why = f"\n          accepted: {reason(mutant)}" if reason(mutant) else ""
                    print(f"SURVIVED  {_place(mutant)}\n{_difference(mutant)}{why}", flush=True)
    accepted = sum(bool(reason(each)) for each in survivors)
    killed = len(mutants) - len(survivors)
    print(f"{killed} of {len(mutants)} killed; {len(survivors)} survived, of which {accepted} are accepted")
    return 1 if len(survivors) > accepted or not mutants else 0


# --- the sample -------------------------------------------------------------------------------------------


def sample(only: Iterable[str], *, seed: int, count: int) -> list[Mutant]:
    """Mutants of these files and folders, or those with these ids; the same for the same seed."""
    mutants: dict[str, Mutant] = {}
    for each in sorted(only):
        name, _, identity = each.partition(":")
        path = PACKAGE / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            there = mutants_of(file.relative_to(PACKAGE).as_posix(), file.read_bytes())
            mutants |= {mutant.id: mutant for mutant in there if not identity or mutant.id == each}
    return random.Random(seed).sample([*mutants.values()], min(count, len(mutants)))


@functools.cache
def accepted_mutants() -> dict[str, list[dict[str, str]]]:
    """The entries of the list, by file."""
    return tomllib.loads(ACCEPTED.read_text(encoding="utf-8"))


def reason(mutant: Mutant) -> str:
    """Why a mutant may survive; empty if it may not."""
    entries = accepted_mutants().get(mutant.file, [])
    return next((entry["reason"] for entry in entries if matches(entry, mutant)), "")


def matches(entry: dict[str, str], mutant: Mutant) -> bool:
    """Whether an entry of the list is about this mutant."""
    same = entry["function"] == mutant.function and entry["kind"] == mutant.kind
    return same and entry.get("change", mutant.change) == mutant.change


def is_compiled(mutant: Mutant) -> bool:
    """Whether its tests run with machine code."""
    return Path(mutant.file).parts[0] not in UNCOMPILED


def _place(mutant: Mutant) -> str:
    return f"{mutant.id}  line {mutant.line}, {mutant.function}, {mutant.kind}"


def _difference(mutant: Mutant) -> str:
    source = (PACKAGE / mutant.file).read_bytes()
    before, after = source.decode().splitlines(), mutant.apply(source).decode().splitlines()
    lines = [*difflib.unified_diff(before, after, lineterm="", n=0)][3:]
    return "\n".join(f"          {line}" for line in lines)


# --- which tests ------------------------------------------------------------------------------------------


def mirror(file: str) -> Path:
    """The test file of a module's name."""
    path = TESTS / file
    return path.with_name(f"test_{path.stem}.py")


@functools.cache
def test_files(file: str) -> tuple[Path, ...]:
    """The test files that may notice a mutant: those of its room, and examples.

    Where there is no mirror, also those of other rooms that import the module.
    """
    room, module = Path(file).parts[0], ".".join(["fedfairx", *Path(file).with_suffix("").parts])
    rooms = {TESTS / room, TESTS / TOGETHER.get(room, room)}
    near = {each for each in all_test_files() if each == mirror(file) or rooms & {*each.parents}}
    if mirror(file) not in near:
        near |= {each for each in all_test_files() if module.removesuffix(".__init__") in imports(each)}
    return tuple(sorted({*near, *EXAMPLES}))


@functools.cache
def all_test_files() -> tuple[Path, ...]:
    return tuple(sorted(TESTS.rglob("test_*.py")))


@functools.cache
def imports(test: Path) -> frozenset[str]:
    """Modules, and names in modules, that a test file imports."""
    names = set()
    for node in ast.walk(ast.parse(test.read_bytes())):
        if isinstance(node, ast.ImportFrom):
            names |= {str(node.module), *(f"{node.module}.{each.name}" for each in node.names)}
        elif isinstance(node, ast.Import):
            names |= {each.name for each in node.names}
    return frozenset(names)


def record_of(test: Path, compiled: bool) -> Path:
    """Where it is kept which functions the tests of a file run."""
    digest = hashlib.sha256(test.read_bytes()).hexdigest()[:16]
    return STORE / f"{test.stem}-{digest}-{'compiled' if compiled else 'plain'}.json"


def tests_of(mutant: Mutant) -> tuple[Tests, set[Path]]:
    """The tests that run the changed function, in order, and files beside the mirror that start processes."""
    ranked: list[tuple[bool, float, str]] = []
    processes = set()
    place = f"{mutant.file}:{'' if mutant.function == MODULE else mutant.function}"
    inside = place if mutant.function == MODULE else f"{place}."  # the methods of a class
    records = {test: record_of(test, is_compiled(mutant)) for test in test_files(mutant.file)}
    for test, record in records.items():
        if not record.exists():
            continue
        kept = json.loads(record.read_text(encoding="utf-8"))
        if kept["processes"] and test.parent == mirror(mutant.file).parent:
            processes.add(test)
        for identity, (seconds, functions) in kept["tests"].items():
            if any(each == place or each.startswith(inside) for each in functions):
                ranked.append((test != mirror(mutant.file), seconds, identity))
    return {identity: seconds for _, seconds, identity in sorted(ranked)}, processes


# --- running tests ----------------------------------------------------------------------------------------


class TooLong(BaseException):
    """A test took too long."""


class Selection:
    """Runs these tests alone, in this order, and notes the first that fails; a plug-in of pytest."""

    def __init__(self, tests: Iterable[str]) -> None:
        self.order = {identity: place for place, identity in enumerate(tests)}
        self.failure = ""

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        items[:] = sorted(
            (item for item in items if not self.order or item.nodeid in self.order),
            key=lambda item: self.order.get(item.nodeid, 0),
        )

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failure = self.failure or report.nodeid

    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        if report.failed:
            self.failure = self.failure or f"{report.nodeid}: import"


class Recorder:
    """Notes which functions of a package each test runs, and its seconds; a plug-in of pytest."""

    def __init__(self, package: Path) -> None:
        self.folder = f"{package}{os.sep}"
        self.codes: dict[int, CodeType] = {}
        self.tests: dict[str, tuple[float, list[str]]] = {}
        self.processes: list[str] = []
        self.failures: set[str] = set()

    def _trace(self, frame: FrameType, _event: str, _argument: object) -> None:
        self.codes[id(frame.f_code)] = frame.f_code  # kept, so that no other gets its id

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_runtest_protocol(self, item: pytest.Item) -> Iterator[object]:
        self.codes, began = {}, time.perf_counter()
        signal.setitimer(signal.ITIMER_REAL, LONGEST)
        threading.settrace(self._trace)
        sys.settrace(self._trace)
        try:
            return (yield)
        except TooLong:
            self.failures.add(item.nodeid)
            return True
        finally:
            signal.setitimer(signal.ITIMER_REAL, 0.0)
            sys.settrace(None)
            threading.settrace(None)  # type: ignore[arg-type]
            functions = {
                f"{code.co_filename.removeprefix(self.folder)}:{code.co_qualname.partition('.<locals>')[0]}"
                for code in self.codes.values()
                if code.co_filename.startswith(self.folder)
            }
            self.tests[item.nodeid] = time.perf_counter() - began, sorted(functions)

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        if report.failed:
            self.failures.add(report.nodeid)

    @pytest.hookimpl(trylast=True)
    def pytest_collection_modifyitems(self, items: list[pytest.Item]) -> None:
        self.processes = [item.nodeid for item in items if item.get_closest_marker("process")]
        items[:] = [item for item in items if not item.get_closest_marker("process")]


class Trial:
    """Runs tests on copies of the source tree within a folder."""

    def __init__(self, folder: Path, *, quick: bool = False) -> None:
        self.folder, self.original, self.quick = folder, folder / "original", quick
        copy = self.original / "fedfairx"
        shutil.copytree(PACKAGE, copy, ignore=shutil.ignore_patterns("__pycache__"))
        # Bytecode is used only for the very bytes of its source: a mutant may have the same size and time.
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(copy, quiet=1, invalidation_mode=mode)

    def record(self, key: tuple[Path, bool]) -> str:
        """Keep which functions the tests of a file run; its name, or "" if that was known."""
        test, compiled = key
        place = record_of(test, compiled)
        if place.exists():
            return ""

        def run() -> object:
            signal.signal(signal.SIGALRM, _raise)
            recorder = Recorder(self.original / "fedfairx")
            pytest.main([*_options(compiled), str(test)], plugins=[recorder])
            passed = {name: each for name, each in recorder.tests.items() if name not in recorder.failures}
            return {"tests": passed, "processes": recorder.processes}

        kept = self._fork(self.original, run, compiled, seconds=60 * MINUTES)
        if kept is None:  # nothing is kept: the next run tries it again
            return f"{test.relative_to(ROOT)}: NOTHING, it crashed or took too long"
        STORE.mkdir(parents=True, exist_ok=True)
        place.write_text(json.dumps(kept), encoding="utf-8")
        return f"{test.relative_to(ROOT)}: {len(kept['tests'])} tests"

    def killer_of(self, mutant: Mutant) -> tuple[Mutant, str]:
        """The test that notices a mutant; empty if none does."""
        tests, processes = tests_of(mutant)
        few = dict(list(tests.items())[:FEW])
        with temporary_folder(dir=self.folder) as folder:
            copy = Path(folder) / "fedfairx"
            shutil.copytree(self.original / "fedfairx", copy)
            (copy / mutant.file).write_bytes(mutant.apply((copy / mutant.file).read_bytes()))
            for chosen in (few, {name: tests[name] for name in tests if name not in few}):
                killer = self._killer(copy.parent, [], chosen, is_compiled(mutant)) if chosen else ""
                if killer:
                    return mutant, killer
            if processes and not self.quick:
                options = ["-m", "process and not slow", *map(str, sorted(processes))]
                return mutant, self._killer(copy.parent, options, {}, is_compiled(mutant))
        return mutant, ""

    def _killer(self, source: Path, options: list[str], tests: Tests, compiled: bool) -> str:
        """The first of these tests that fails with the mutant, and passes without it; empty if none does."""
        chosen = dict(tests)
        while True:
            files = options or sorted({str(ROOT / name.partition("::")[0]) for name in chosen})
            failure = self._run(source, files, chosen, compiled)
            if not failure or failure.endswith("import"):
                return failure
            if "::" not in failure:  # it hangs or crashes: a test alone would, too
                return "" if self._run(self.original, files, chosen, compiled) else failure
            if not self._run(self.original, [failure], {}, compiled):
                return failure
            if options or failure not in chosen:
                return ""
            del chosen[failure]
            if not chosen:
                return ""

    def _run(self, source: Path, arguments: list[str], tests: Tests, compiled: bool) -> str:
        """The first of these tests that fails with the package in this folder; empty if all pass."""

        def run() -> object:
            selection = Selection(tests)
            pytest.main([*_options(compiled), "-x", *arguments], plugins=[selection])
            return selection.failure

        seconds = PATIENCE + 5 * sum(tests.values()) if tests else 60 * MINUTES
        failure = self._fork(source, run, compiled, seconds=seconds)
        return "a crash or a hang" if failure is None else str(failure)

    def _fork(self, source: Path, run: Callable[[], object], compiled: bool, *, seconds: float) -> Any:
        """What a function returns in a fork that loads the package from this folder; None if it does not."""
        with tempfile.NamedTemporaryFile(dir=self.folder) as file:
            child = os.fork()
            if child == 0:
                try:
                    os.setsid()  # so that it can be ended with all that its tests start
                    self._enter(source, compiled)
                    Path(file.name).write_text(json.dumps(run()), encoding="utf-8")
                finally:
                    os._exit(0)
            deadline = time.monotonic() + seconds
            while os.waitpid(child, os.WNOHANG) == (0, 0):
                if time.monotonic() > deadline:
                    os.killpg(child, signal.SIGKILL)
                time.sleep(0.02)
            with suppress(ProcessLookupError, PermissionError):
                os.killpg(child, signal.SIGKILL)  # whatever its tests have left
            said = Path(file.name).read_text(encoding="utf-8")
        return json.loads(said) if said else None

    def _enter(self, source: Path, compiled: bool) -> None:
        silence = os.open(os.devnull, os.O_WRONLY)
        os.dup2(silence, 1)
        os.dup2(silence, 2)
        os.chdir(ROOT)
        os.environ |= {"PYTHONPATH": str(source), "PYTHONDONTWRITEBYTECODE": "1", "TMPDIR": str(self.folder)}
        os.environ["HYPOTHESIS_STORAGE_DIRECTORY"] = str(self.folder / "hypothesis")
        tempfile.tempdir = str(self.folder)
        sys.dont_write_bytecode = True
        sys.path.insert(0, str(source))
        if not compiled:
            os.environ["NUMBA_DISABLE_JIT"] = "1"
            sys.modules["numba.core.config"].reload_config()  # type: ignore[attr-defined]


def _options(compiled: bool) -> list[str]:
    # Plain Python warns where compiled code divides by zero on purpose.
    return ["-q", "-p", "no:cacheprovider", *([] if compiled else ["-W", "ignore::RuntimeWarning"])]


def _raise(_signal: int, _frame: object) -> None:
    raise TooLong


if __name__ == "__main__":
    sys.exit(main())
