"""`mutations.py` makes single changes of the kinds that it names, and `mutants.py` says which survive."""

from __future__ import annotations

import ast
import textwrap
from pathlib import Path

import pytest

import mutants
from fedfairx.lanes.decorators import COMPILED_SOURCES
from mutations import KINDS, MODULE, Mutant, mutants_of

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
    sample = mutants.sample(PARTS, 3, 150)
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
    sample = mutants.sample(PARTS, 1, 100)
    assert sample == mutants.sample(PARTS, 1, 100) != mutants.sample(PARTS, 2, 100)
    assert len({each.id for each in mutants.sample([*PARTS, "core"], 1, 9999)}) > 3000
    assert len({each.id for each in sample}) == 100


def test_a_mutant_is_found_by_its_id_wherever_its_line_is() -> None:
    mutant = mutants.sample(["core/posterior.py"], 1, 1)[0]
    assert mutants.sample([mutant.id], 7, 40) == [mutant]
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
def test_a_module_is_tested_by_its_mirror_its_room_and_what_imports_it() -> None:
    tests = mutants.TESTS
    assert mutants.first_tests("core/posterior.py") != ()
    assert mutants.first_tests("core/estimate.py") == (tests / "core" / "test_estimate.py",)
    room = mutants.room_tests("core/estimate.py")
    assert tests / "core" / "test_estimate.py" not in room
    assert tests / "core" / "optimism" / "test_solver.py" in room
    assert tests / "fairness" / "test_credible.py" in mutants.other_tests("core/slates.py")
    assert tests / "service" / "test_earnings.py" not in mutants.all_tests("core/estimate.py")
    assert tests / "test_features.py" in mutants.all_tests("features.py")


def test_only_what_is_no_part_of_the_digest_runs_compiled() -> None:
    assert mutants.UNCOMPILED == COMPILED_SOURCES


@pytest.mark.process
def test_a_mutant_is_killed_or_survives(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    files = {
        "pytest.ini": "[pytest]\naddopts = -p no:schemathesis\nmarkers = process",
        "src/fedfairx/__init__.py": "",
        "src/fedfairx/core/__init__.py": "",
        "src/fedfairx/core/made_up.py": """
            def killed(a): return a + 1
            def hanging(a):
                while a < 1: a += 1
                return a
            def surviving(a): return a * 1
            def lonely(a): return a - a
        """,
        "tests/conftest.py": "def needs_a_server(item): return False",
        "tests/core/test_made_up.py": """
            from fedfairx.core.made_up import killed, surviving
            def test_it(): assert killed(1) == 2 and surviving(1) == 1
            def test_that_fails_without_a_mutant(): assert surviving(2) == 3
        """,
        "tests/core/test_other.py": """
            from fedfairx.core.made_up import hanging
            def test_it(): assert hanging(0) == 1
        """,
    }
    for name, text in files.items():
        (tmp_path / name).parent.mkdir(parents=True, exist_ok=True)
        (tmp_path / name).write_text(textwrap.dedent(text), encoding="utf-8")
    (tmp_path / "store").mkdir()
    for name, path in {"ROOT": ".", "TESTS": "tests", "PACKAGE": "src/fedfairx", "STORE": "store"}.items():
        monkeypatch.setattr(mutants, name, tmp_path / path)
    every = mutants.sample(["core/made_up.py"], 0, 100)
    chosen = [
        next(each for each in every if change in each.change)
        for change in ("a - 1", "a / 1", "a + a", "a -= 1")
    ]
    (tmp_path / "trial").mkdir()
    monkeypatch.setattr(mutants, "PATIENCE", 2.0)
    survivors = mutants.Trial(tmp_path / "trial", 2).survivors(chosen)
    assert [each.function for each in survivors] == ["surviving", "lonely"]
    printed = capsys.readouterr().out
    assert "killed, sign (by tests/core/test_made_up.py::test_it)" in printed
    assert "hanging, sign (by a test that hangs)" in printed
    assert "surviving, sign (1 test files run it)\n          -def surviving(a): return a * 1\n" in printed
    assert "lonely, sign (0 test files run it)" in printed


@pytest.mark.process
def test_a_mutant_of_the_package_is_killed(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(mutants, "STORE", tmp_path / "store")
    mutant: Mutant = next(each for each in mutants.sample(["core/regret.py"], 0, 100) if each.kind == "sign")
    assert mutants.Trial(tmp_path, 1).survivors([mutant]) == []
