"""`mutations.py` makes single changes of the kinds that it names, and `mutants.py` says which survive."""

from __future__ import annotations

import ast
import os
import subprocess
import sys
import textwrap
from pathlib import Path

import pytest

import mutants
from fedfairx.lanes.decorators import COMPILED_SOURCES
from mutations import KINDS, MODULE, mutants_of

PARTS = ["core/posterior.py", "agent/schedules.py", "storage/journal.py"]


def changes(source: str, kind: str) -> list[str]:
    found = mutants_of("core/made_up.py", textwrap.dedent(source).encode())
    return [each.change for each in found if each.kind == kind]


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(a, b):\n return a < b", ["a < b -> a <= b", "a < b -> a >= b"]),
        ("def f(a, b):\n return a == (b)", ["a == (b) -> a != (b)"]),
        ("def f(a):\n return a is not None", ["a is not None -> a is None"]),
        ("def f(a, b):\n return a not in b", ["a not in b -> a in b"]),
        ("def f(a, b):\n return a if b else a", ["b -> not b"]),
    ],
)
def test_comparisons(source: str, expected: list[str]) -> None:
    assert changes(source, "comparison") == expected


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("def f(a, b):\n return (a) + b", ["(a) + b -> (a) - b"]),
        ("def f(a, b):\n return a ** b", ["a ** b -> a * b"]),
        ("def f(a, b):\n return a and b or a", ["a and b or a -> a and b and a", "a and b -> a or b"]),
        ("def f(a):\n return -a", ["-a -> a"]),
        ("def f(a):\n return not a", ["not a -> a"]),
        ("def f(a, b):\n a *= b\n return a", ["a *= b -> a /= b"]),
        ("def f(a):\n return 'x' + a", []),
        ("Number = int | float", []),
    ],
)
def test_signs(source: str, expected: list[str]) -> None:
    assert sorted(changes(source, "sign")) == sorted(expected)


@pytest.mark.parametrize(
    ("source", "expected"),
    [
        ("A = 3", ["A = 3 -> A = 4"]),
        ("def f():\n return 0.5", ["return 0.5 -> return 1.0"]),
        ("def f(a=0.0):\n return a", ["0.0 -> 1.0"]),
        ("def f(a):\n return a.get(True)", ["a.get(True) -> a.get(False)"]),
        ("def f(a):\n return a + 1e-12", []),
        ("def f(a):\n return zip(a, a, strict=True)", []),
    ],
)
def test_constants(source: str, expected: list[str]) -> None:
    assert changes(source, "constant") == expected


def test_dropped_statements() -> None:
    source = '''
    def f(a, b):
        """Its docstring."""
        only = a
        if a:
            a = b
            return only
        self.x = only
        b.append(a)
        LOG.info("text")
        if b:
            raise ValueError(f"b is {b + 1}")
        return a
    '''
    assert changes(source, "dropped statement") == [
        "a = b -> pass",
        "return only -> pass",
        "self.x = only -> pass",
        "b.append(a) -> pass",
        'raise ValueError(f"b is {b + 1}") -> pass',
    ]
    assert changes(source, "sign") == []


def test_swapped_arguments() -> None:
    source = "def f(a, b):\n g(a, b.c, 1)\n g(a, a)\n g(*a, b)\n max(a, b)\n return isinstance(a, b)"
    assert changes(source, "swapped arguments") == ["g(a, b.c, 1) -> g(b.c, a, 1)"]


def test_off_by_one() -> None:
    source = "def f(a, n):\n a[0]\n a[1:n]\n a[:n + n, 2]\n a[-1]\n range(n)\n range(1, 9)"
    assert sorted(changes(source, "off by one")) == sorted(
        [
            "a[0] -> a[1]",
            "1:n -> 2:n",
            "a[1:n] -> a[1:n - 1]",
            "a[:n + n, 2] -> a[:(n + n) - 1, 2]",
            ":n + n, 2 -> :n + n, 3",
            "range(n) -> range(n - 1)",
            "range(1, 9) -> range(2, 9)",
            "range(1, 9) -> range(1, 8)",
        ]
    )
    assert changes(source, "constant") == ["-1 -> -2"]


@pytest.mark.parametrize(
    "source",
    [
        "from __future__ import annotations\n__all__ = [1]",
        "class A:\n __slots__ = (1, 2)\n def __repr__(self):\n  return str(1 + 2)",
        "@dataclass(frozen=True)\nclass A(B, tag=1):\n x: Literal[1, 2]",
        "if TYPE_CHECKING:\n A = 1",
        "def f(a):\n return f'{a + 1} {a[0]}'",
        "T = TypeVar('T', bound=int)",
        "@overload\ndef f(a: int = 0) -> int: ...",
    ],
)
def test_what_no_test_should_notice_is_left_out(source: str) -> None:
    assert mutants_of("core/made_up.py", source.encode()) == []


def test_each_is_named_by_the_outermost_function_or_the_class() -> None:
    source = b"A = 1\nclass B:\n x = 2\n def f(self):\n  def g():\n   return 3\n  return g\n"
    assert [each.function for each in mutants_of("core/made_up.py", source)] == [MODULE, "B", "B.f"]


@pytest.mark.long
def test_one_place_of_the_file_is_changed_and_it_can_be_parsed() -> None:
    sample = mutants.sample(PARTS, seed=3, count=150)
    assert {each.kind for each in sample} == set(KINDS)
    for mutant in sample:
        source = (mutants.PACKAGE / mutant.file).read_bytes()
        changed = mutant.apply(source)
        rest = len(source) - mutant.end
        assert changed[: mutant.start] == source[: mutant.start]
        assert changed[len(changed) - rest :] == source[mutant.end :]
        assert changed != source
        ast.parse(changed)


@pytest.mark.long
def test_a_sample_is_repeatable_and_has_no_mutant_twice() -> None:
    sample = mutants.sample(PARTS, seed=1, count=100)
    assert sample == mutants.sample(PARTS, seed=1, count=100) != mutants.sample(PARTS, seed=2, count=100)
    assert len({each.id for each in mutants.sample([*PARTS, "core"], seed=1, count=9999)}) > 3000
    assert len({each.id for each in sample}) == 100


def test_a_mutant_is_found_by_its_id_wherever_its_line_is() -> None:
    mutant = mutants.sample(["core/posterior.py"], seed=1, count=1)[0]
    assert mutants.sample([mutant.id], seed=7, count=40) == [mutant]
    source = (mutants.PACKAGE / mutant.file).read_bytes()
    assert mutant.id in {each.id for each in mutants_of(mutant.file, b"# one line more\n" + source)}


def test_each_accepted_mutant_can_be_made_and_has_a_reason() -> None:
    for file, entries in mutants.accepted_mutants().items():
        there = mutants_of(file, (mutants.PACKAGE / file).read_bytes())
        for entry in entries:
            assert any(mutants.matches(entry, each) for each in there), (file, entry)
            assert entry["reason"]
            assert entry.keys() <= {"function", "kind", "change", "reason"}


@pytest.mark.long
def test_a_module_is_tested_by_its_mirror_its_room_what_imports_it_and_examples() -> None:
    tests = mutants.TESTS
    assert mutants.mirror("core/estimate.py") == tests / "core" / "test_estimate.py"
    assert not mutants.mirror("core/rules.py").exists()
    chosen = mutants.test_files("core/rules.py")
    for name in (
        "core/test_slates.py",
        "core/optimism/test_solver.py",
        "fairness/test_contributions.py",
        "test_help.py",
    ):
        assert tests / name in chosen
    assert tests / "service" / "test_earnings.py" not in chosen
    assert tests / "storage" / "test_erasure.py" in mutants.test_files("agent/agent.py")
    assert tests / "test_features.py" in mutants.test_files("features.py")


def test_only_what_is_no_part_of_the_digest_runs_compiled() -> None:
    assert mutants.UNCOMPILED == COMPILED_SOURCES


SCRIPT = """
import sys
from pathlib import Path
import mutants
here = Path(sys.argv.pop(1))
mutants.ROOT, mutants.TESTS, mutants.PACKAGE = here, here / "tests", here / "src" / "fedfairx"
mutants.STORE, mutants.EXAMPLES, mutants.PATIENCE = here / "store", (), 10.0
mutants.LIBRARIES = ("numba.core.config",)
sys.exit(mutants.main())
"""


@pytest.mark.process
def test_a_mutant_is_killed_or_survives(tmp_path: Path) -> None:
    files = {
        "pytest.ini": "[pytest]\naddopts = -p no:schemathesis\nmarkers = process",
        "src/fedfairx/__init__.py": "",
        "src/fedfairx/agent/__init__.py": "",
        "src/fedfairx/agent/made_up.py": """
            STEP = 3
            def killed(a): return a + 1
            def hanging(a):
                while a < 1: a += 1
                return a
            def surviving(a): return a * 1
            def lonely(a): return a - a
            def started(a): return a + 2
        """,
        "tests/agent/test_made_up.py": """
            import pytest
            from fedfairx.agent.made_up import STEP, killed, surviving, started
            def test_it(): assert killed(1) == 2 and surviving(1) == 1 and STEP == 3
            def test_that_fails_without_a_mutant(): assert surviving(2) == 3
            @pytest.mark.process
            def test_started(): assert started(1) == 3
        """,
        "tests/agent/test_other.py": """
            from fedfairx.agent.made_up import hanging
            def test_it(): assert hanging(0) == 1
        """,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text), encoding="utf-8")
    source = (tmp_path / "src" / "fedfairx" / "agent" / "made_up.py").read_bytes()
    every = mutants_of("agent/made_up.py", source)
    changes = ("STEP = 4", "a - 1", "a -= 1", "a / 1", "a + a", "a - 2")
    chosen = [next(each.id for each in every if change in each.change) for change in changes]

    def lines(*options: str) -> list[str]:
        command = [sys.executable, "-c", SCRIPT, str(tmp_path), *chosen, "--count=9", "--jobs=2", *options]
        environment = {**os.environ, "PYTHONPATH": str(mutants.TESTS)}
        done = subprocess.run(command, capture_output=True, text=True, env=environment, check=False)
        assert done.returncode == 1, done.stderr
        return done.stdout.splitlines()

    printed = lines()
    assert sum(line.startswith("recorded") for line in printed) == 2
    ends = {line.split(", ")[-2]: line.partition("(by ")[2] for line in printed if line.startswith("killed")}
    assert ends == {
        mutants.MODULE: "tests/agent/test_made_up.py::test_it)",
        "killed": "tests/agent/test_made_up.py::test_it)",
        "hanging": "a crash or a hang)",
        "started": "tests/agent/test_made_up.py::test_started)",
    }
    assert "          -def surviving(a): return a * 1" in printed
    assert printed[-1] == "4 of 6 killed; 2 survived, of which 0 are accepted"
    del chosen[:-1]
    again = lines("--quick")
    assert not any(line.startswith("recorded") for line in again)
    assert again[-1] == "0 of 1 killed; 1 survived, of which 0 are accepted"
