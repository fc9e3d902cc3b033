"""Mistakes made from the syntax tree, and whether tests notice them: `make mutants`.

Each mutant is put into a copy of the source tree, never into the tree itself, and tests run against the copy:
first the file that mirrors the module, then the other files of its room and those that import the module, if
they run the function. Which functions a test file runs is recorded once, without a mutant. Tests that fail
then, or take long, are left out. `mutations.py` makes the mutants. `accepted_mutants.toml` lists those that
may survive.

Compiled sources run as plain Python: machine code is cached by their digest, and each mutant would be
compiled again. A mutant in any other room leaves the digest as it is, and runs with compiled code.
"""

from __future__ import annotations

import argparse
import ast
import compileall
import contextlib
import difflib
import functools
import hashlib
import json
import os
import py_compile
import random
import re
import shutil
import signal
import subprocess
import sys
import tempfile
import tomllib
from collections.abc import Callable, Iterable, Sequence
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from mutations import Mutant, mutants_of

ROOT = Path(__file__).resolve().parent.parent
TESTS = ROOT / "tests"
PACKAGE = ROOT / "src" / "fedfairx"
ACCEPTED = TESTS / "accepted_mutants.toml"
PLUGIN = TESTS / "mutant_plugin.py"
ROOMS = ("core", "agent", "fairness", "evaluation", "privacy", "federation", "storage")
UNCOMPILED = ("lanes", "core", "privacy", "simulation")  # whose digest names the cache of machine code
STORE = Path(os.environ.get("XDG_CACHE_HOME") or Path.home() / ".cache") / "fedfairx-mutants"
SECONDS = 3600  # for one run of pytest; single tests have limits of their own
PATIENCE, SLOWER = 30.0, 10.0  # a test hangs if it takes so many seconds and so many times its time more
NO_TESTS = 5  # pytest's exit code


@dataclass(frozen=True)
class Baseline:
    """What the tests of one file do without a mutant."""

    functions: frozenset[str]
    left_out: tuple[str, ...]
    seconds: dict[str, float]
    processes: tuple[str, ...]


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument(
        "only", nargs="*", default=ROOMS, help="files or folders of the package, or ids of mutants"
    )
    parser.add_argument("--seed", type=int, default=0, help="of the sample")
    parser.add_argument("--count", type=int, default=40, help="size of the sample")
    parser.add_argument("--jobs", type=int, default=os.cpu_count() or 1, help="how many run at once")
    options = parser.parse_args()
    mutants = sample(options.only or ROOMS, options.seed, options.count)
    memory = "/dev/shm" if os.access("/dev/shm", os.W_OK) else None
    with tempfile.TemporaryDirectory(prefix="fedfairx-mutants-", dir=memory) as folder:
        survivors = Trial(Path(folder), options.jobs).survivors(mutants)
    accepted = [each for each in survivors if reason(each)]
    print(
        f"{len(mutants) - len(survivors)} of {len(mutants)} killed; "
        f"{len(survivors)} survived, of which {len(accepted)} are accepted"
    )
    return 1 if len(survivors) > len(accepted) or not mutants else 0


def sample(only: Iterable[str], seed: int, count: int) -> list[Mutant]:
    """Mutants of these files and folders, or those with these ids; the same for the same seed."""
    mutants: dict[str, Mutant] = {}
    for each in sorted(only):
        name, _, digest = each.partition(":")
        path = PACKAGE / name
        for file in sorted(path.rglob("*.py")) if path.is_dir() else [path]:
            there = mutants_of(file.relative_to(PACKAGE).as_posix(), file.read_bytes())
            mutants |= {mutant.id: mutant for mutant in there if not digest or mutant.id == each}
    return random.Random(seed).sample(list(mutants.values()), min(count, len(mutants)))


@functools.cache
def accepted_mutants() -> dict[str, list[dict[str, str]]]:
    """The entries of the list, by file."""
    return tomllib.loads(ACCEPTED.read_text(encoding="utf-8"))


def reason(mutant: Mutant) -> str:
    """Why a mutant may survive; empty if it may not."""
    for entry in accepted_mutants().get(mutant.file, []):
        if matches(entry, mutant):
            return entry["reason"]
    return ""


def matches(entry: dict[str, str], mutant: Mutant) -> bool:
    """Whether an entry of the list is about this mutant."""
    same = entry["function"] == mutant.function and entry["kind"] == mutant.kind
    return same and entry.get("change", mutant.change) == mutant.change


def mirror(file: str) -> Path:
    """The test file of a module's name."""
    path = TESTS / file
    return path.with_name(f"test_{path.stem}.py")


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


@functools.cache
def first_tests(file: str) -> tuple[Path, ...]:
    """The mirror of a module; without one, the test files that import it."""
    if mirror(file).exists():
        return (mirror(file),)
    return tuple(each for each in all_tests(file) if _module(file) in imports(each))


@functools.cache
def all_tests(file: str) -> tuple[Path, ...]:
    """All test files that may notice a mutant of a module: those of its room, and those that import it."""
    room = TESTS / Path(file).parts[0]
    return tuple(
        each
        for each in sorted(TESTS.rglob("test_*.py"))
        if each.is_relative_to(room) or each == mirror(file) or _module(file) in imports(each)
    )


def room_tests(file: str) -> tuple[Path, ...]:
    """The rest of its room."""
    room = TESTS / Path(file).parts[0]
    return tuple(
        each for each in all_tests(file) if each.is_relative_to(room) and each not in first_tests(file)
    )


def other_tests(file: str) -> tuple[Path, ...]:
    """The rest of all: test files of other rooms that import it."""
    return tuple(each for each in all_tests(file) if each not in (*first_tests(file), *room_tests(file)))


def _module(file: str) -> str:
    return ".".join(["fedfairx", *Path(file).with_suffix("").parts]).removesuffix(".__init__")


class Trial:
    """Runs tests on copies of the source tree within a folder."""

    def __init__(self, folder: Path, jobs: int) -> None:
        self.folder = folder
        self.pool = ThreadPoolExecutor(jobs)
        self.copy = folder / "original" / "fedfairx"
        shutil.copytree(PACKAGE, self.copy, ignore=shutil.ignore_patterns("__pycache__"))
        # Bytecode is used only for the very bytes of its source: a mutant may have the same size and time.
        mode = py_compile.PycInvalidationMode.CHECKED_HASH
        compileall.compile_dir(self.copy, quiet=1, invalidation_mode=mode)
        self.source = _digest(each for each in sorted(PACKAGE.rglob("*.*")) if each.suffix != ".pyc")
        self.baselines: dict[tuple[Path, bool, bool], Baseline] = {}

    def survivors(self, mutants: Sequence[Mutant]) -> list[Mutant]:
        """Those that no test notices; each is printed."""
        if any(_is_compiled(each) for each in mutants):
            self.warm()
        left = self._stage(mutants, first_tests)
        left = self._stage(left, room_tests)
        left = self._stage(left, other_tests)
        lonely = [
            each for each in left if not self._chosen(each, all_tests(each.file))
        ]  # there is no cheaper test
        left = [each for each in left if each not in lonely] + self._stage(lonely, all_tests, servers=True)
        for each in left:
            files = len(self._chosen(each, all_tests(each.file), servers=each in lonely))
            _report(each, f"accepted: {reason(each)}" if reason(each) else f"{files} test files run it")
        return left

    def _stage(
        self, mutants: Sequence[Mutant], tests_of: Callable[[str], Sequence[Path]], *, servers: bool = False
    ) -> list[Mutant]:
        """Those that survive these tests of theirs."""
        self._prepare(
            {(test, _is_compiled(each), servers) for each in mutants for test in tests_of(each.file)}
        )

        def survives(mutant: Mutant) -> bool:
            tests = self._chosen(mutant, tests_of(mutant.file), servers=servers)
            killer = self._killer(mutant, tests, servers) if tests else ""
            if killer:
                print(f"killed    {_place(mutant)} (by {killer})", flush=True)
            return not killer

        return [each for each, alive in zip(mutants, self.pool.map(survives, mutants), strict=True) if alive]

    def _chosen(self, mutant: Mutant, tests: Sequence[Path], *, servers: bool = False) -> list[Path]:
        """The test files that run the function, the quickest first.

        What runs in processes that tests start is unknown: such files count if they lie beside the mirror.
        """
        chosen = []
        for test in tests:
            baseline = self.baselines[test, _is_compiled(mutant), servers]
            runs = f"{mutant.file}:{mutant.function}" in baseline.functions
            if baseline.seconds and (
                runs or (baseline.processes and test.parent == mirror(mutant.file).parent)
            ):
                chosen.append((test != mirror(mutant.file), sum(baseline.seconds.values()), test))
        return [test for _, _, test in sorted(chosen)]

    def _killer(self, mutant: Mutant, tests: Sequence[Path], servers: bool) -> str:
        """The test that notices a mutant; empty if none does."""
        compiled = _is_compiled(mutant)
        baselines = [self.baselines[test, compiled, servers] for test in tests]
        plan = {
            "servers": servers,
            "left_out": [name for each in baselines for name in each.left_out],
            "limits": {
                name: PATIENCE + SLOWER * took for each in baselines for name, took in each.seconds.items()
            },
        }
        with tempfile.TemporaryDirectory(dir=self.folder) as folder:
            package = Path(folder) / "fedfairx"
            shutil.copytree(self.copy, package)
            (package / mutant.file).write_bytes(mutant.apply((self.copy / mutant.file).read_bytes()))
            code, output = self._run(package, tests, plan, compiled)
        if code == NO_TESTS:
            raise RuntimeError(f"no test ran for {mutant.id}:\n{output}")
        failures = re.findall(r"^(?:FAILED|ERROR) (\S+)", output, re.MULTILINE)
        if code == 0:
            return ""
        return failures[0] if failures else "a test that hangs" if code == 1 else f"exit code {code}"

    def _prepare(self, keys: Iterable[tuple[Path, bool, bool]]) -> None:
        """Have a baseline for each test file, compiled or not, with or without servers."""
        missing = sorted(set(keys) - set(self.baselines))
        self.baselines.update(zip(missing, self.pool.map(self._baseline, missing), strict=True))

    def _baseline(self, key: tuple[Path, bool, bool]) -> Baseline:
        test, compiled, servers = key
        helpers = [PLUGIN, TESTS / "conftest.py", *sorted((TESTS / "support").glob("*.*"))]
        name = f"{self.source}-{_digest([test, *helpers])}-{compiled:d}{servers:d}.json"
        record = STORE / "baselines" / name
        if not record.exists():
            print(f"  without a mutant: {test.relative_to(ROOT)}", flush=True)
            record.parent.mkdir(parents=True, exist_ok=True)
            fresh = self.folder / name
            plan = {"record": str(fresh), "package": str(self.copy), "servers": servers, "left_out": []}
            code, output = self._run(self.copy, [test], plan, compiled)
            if code not in (0, 1, NO_TESTS):
                raise RuntimeError(f"{test} ends with {code} without a mutant:\n{output}")
            shutil.move(fresh, record)
        stored = json.loads(record.read_text(encoding="utf-8"))
        return Baseline(
            frozenset(stored["functions"]),
            tuple(stored["left_out"]),
            stored["seconds"],
            tuple(stored["processes"]),
        )

    def warm(self) -> None:
        """Have machine code of the source as it is, in a cache that only mutants use."""
        command = [sys.executable, "-m", "fedfairx", "warm", "--all"]
        subprocess.run(command, env=self._environment(self.copy, True), check=True, stdout=subprocess.DEVNULL)

    def _run(
        self, package: Path, tests: Sequence[Path], plan: dict[str, Any], compiled: bool
    ) -> tuple[int, str]:
        """pytest's exit code and output. It is negative after a signal, and 1 when a test fails or hangs."""
        command = [sys.executable, "-m", "pytest", "-q", "-p", "no:cacheprovider", "-p", "mutant_plugin"]
        if not compiled:  # plain Python warns where compiled code divides by zero on purpose
            command += ["-W", "ignore::RuntimeWarning"]
        if "record" not in plan:
            command += ["-x", "--tb=no"]
        environment = self._environment(package, compiled)
        command += map(str, tests)
        # A file, because a pipe stays open as long as anything that a test started.
        with (
            tempfile.TemporaryFile(dir=self.folder) as output,
            tempfile.NamedTemporaryFile("w", dir=self.folder) as file,
        ):
            json.dump({"record": None, **plan}, file)
            file.flush()
            environment["MUTANT_PLAN"] = file.name
            process = subprocess.Popen(
                command, cwd=ROOT, env=environment, stdout=output, stderr=output, start_new_session=True
            )
            try:
                with contextlib.suppress(subprocess.TimeoutExpired):
                    process.wait(SECONDS)
            finally:
                _end(process)
            output.seek(0)
            return process.returncode, output.read().decode(errors="replace")

    def _environment(self, package: Path, compiled: bool) -> dict[str, str]:
        return {
            **os.environ,
            "PYTHONPATH": f"{package.parent}{os.pathsep}{PLUGIN.parent}",
            "PYTHONDONTWRITEBYTECODE": "1",
            "HYPOTHESIS_STORAGE_DIRECTORY": str(self.folder / "hypothesis"),
            "NUMBA_CACHE_DIR": str(STORE / "machine-code"),
            "NUMBA_DISABLE_JIT": "0" if compiled else "1",
        }


def _is_compiled(mutant: Mutant) -> bool:
    """Whether its tests run with machine code."""
    return Path(mutant.file).parts[0] not in UNCOMPILED


def _digest(files: Iterable[Path]) -> str:
    digest = hashlib.sha256()
    for file in files:
        digest.update(file.name.encode() + b"\0" + file.read_bytes())
    return digest.hexdigest()[:16]


def _end(process: subprocess.Popen[bytes]) -> None:
    """End what is left of a run, and what its tests started."""
    with contextlib.suppress(ProcessLookupError):
        os.killpg(process.pid, signal.SIGKILL)
    process.wait()


def _place(mutant: Mutant) -> str:
    return f"{mutant.id}  line {mutant.line}, {mutant.function}, {mutant.kind}"


def _report(mutant: Mutant, note: str) -> None:
    source = (PACKAGE / mutant.file).read_bytes()
    before, after = source.decode().splitlines(), mutant.apply(source).decode().splitlines()
    lines = [
        each
        for each in difflib.unified_diff(before, after, n=0, lineterm="")
        if each[:2] not in ("--", "++", "@@")
    ]
    print(
        "\n".join([f"SURVIVED  {_place(mutant)} ({note})", *(f"          {each}" for each in lines)]),
        flush=True,
    )


if __name__ == "__main__":
    sys.exit(main())
