"""What only compiled code calls is taken in by what Python calls, and is machine code nowhere else."""

from __future__ import annotations

import os
import subprocess
import sys
from pathlib import Path

import pytest

from fedfairx.lanes import decorators as compiling

LEVELS = """
from fedfairx.lanes.decorators import compiled, stage
from fedfairx.lanes.inline_compiler import Intermediate

@stage
def square(x):
    return x * x

@stage
def sum_of_squares(x, y):
    return square(x) + square(y)

@compiled
def called(x, y):
    return sum_of_squares(x, y) + square(x)

print(called(3.0, 4.0), called(3, 4))
for inner in (square, sum_of_squares):
    for made in inner.inside.overloads.values():
        assert isinstance(made.library, Intermediate)
        assert not made.library.codegen._engine.is_symbol_defined(made.fndesc.llvm_cpython_wrapper_name)
print(sum_of_squares(1.0, 2.0))
"""

# `left_out` is reached by a branch that LLVM removes, and `smaller` is also called by what is compiled.
LEFT_OUT = """
from fedfairx.lanes.decorators import compiled, stage

@stage
def left_out(x):
    return min(x, 1.0)

@stage
def smaller(x):
    return min(x, 2.0)

@stage
def inner(x):
    return smaller(x)

@compiled
def called(x):
    y = inner(x)
    return left_out(y) if len((x, y)) > 2 else y

print(called(3.0))
"""

# Too large for the compiler to take in by itself where it is called more than once.
LENGTHY = "\n".join(f"    x = sqrt(x * x + {i}.0) + x / (x + {i}.5)" for i in range(60))
BODY = f"""
from fedfairx.lanes.decorators import body, compiled, stage
from fedfairx.lanes.vector import sqrt

@stage
def lengthy(x):
{LENGTHY}
    return x

@body
def every_time(x):
{LENGTHY}
    return x

@body
def around(x):
    return lengthy(x) + lengthy(x + 1.0)

@compiled
def called(x):
    return around(x) + every_time(x) + every_time(x + 1.0)

called(1.0)
(code,) = called.inspect_llvm().values()
defined = "".join(line for line in code.splitlines() if line.startswith("define"))
print(*(name in defined for name in ("lengthy", "every_time", "around")))
"""


@pytest.mark.process
@pytest.mark.skipif(not compiling.COMPILING, reason="nothing is compiled under NUMBA_DISABLE_JIT=1")
def test_a_body_is_part_of_its_caller_and_what_it_calls_need_not_be(tmp_path: Path) -> None:
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    script = tmp_path / "body.py"
    script.write_text(BODY)
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["True", "False", "False"], done.stderr


@pytest.mark.process
@pytest.mark.skipif(not compiling.COMPILING, reason="nothing is compiled under NUMBA_DISABLE_JIT=1")
def test_what_a_removed_branch_calls_is_still_there_for_others(tmp_path: Path) -> None:
    script = tmp_path / "left_out.py"
    script.write_text(LEFT_OUT)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(tmp_path)}
    done = subprocess.run(
        [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=False
    )
    assert done.stdout.split() == ["2.0"], done.stderr


@pytest.mark.process
@pytest.mark.skipif(not compiling.COMPILING, reason="nothing is compiled under NUMBA_DISABLE_JIT=1")
def test_levels_of_calls_become_one_piece_of_machine_code(tmp_path: Path) -> None:
    script, cache = tmp_path / "levels.py", tmp_path / "cache"
    script.write_text(LEVELS)
    environment = {**os.environ, "NUMBA_CACHE_DIR": str(cache)}
    for _ in ("compiled", "kept from before"):
        done = subprocess.run(
            [sys.executable, str(script)], env=environment, capture_output=True, text=True, check=True
        )
        assert done.stdout.split() == ["34.0", "34", "5.0"]
    kept = {name.split("-")[0] for name in os.listdir(next(cache.rglob("levels.*.nbi")).parent)}
    assert kept == {"levels.called", "levels.sum_of_squares_for_python"}
