"""Ids derive from values, and from the code that is not the package's."""

from __future__ import annotations

import json
import math
import subprocess
import sys
from dataclasses import dataclass, replace
from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedfairx
from experiment_helpers import small_run
from fedfairx import schedules
from fedfairx.errors import InvalidInput
from paper.experiment import _COMPUTING, describe, made_by


def digest_of(value: object) -> str:
    return json.dumps(describe(value), sort_keys=True)


def test_the_key_is_only_a_name():
    assert small_run("a").identity("x") == small_run("b").identity("x")


@pytest.mark.parametrize(
    "other",
    [
        small_run(horizon=31),
        small_run(algorithm="fairx-linucb"),
        small_run(schedule=schedules.Paper(gap=2)),
        small_run(points=7),
    ],
)
def test_another_value_is_another_run(other):
    assert other.identity("x") != small_run().identity("x")


def test_other_code_is_another_run():
    assert small_run().identity("this") != small_run().identity("other")


def test_what_a_played_run_is_depends_on_the_file_that_plays_it(tmp_path: Path):
    """It may call other functions of its file, whose changes its own code would not show."""
    identities = []
    for helper in ("1", "2", "1"):
        file = tmp_path / "mine.py"
        file.write_text(f"def helper(): return {helper}\ndef play(run, seeds): return helper()\n")
        names: dict = {}
        exec(compile(file.read_text(), str(file), "exec"), names)
        identities.append(replace(small_run(), play=names["play"]).identity("x"))
    assert identities[0] == identities[2] != identities[1]


@pytest.mark.process
def test_every_module_that_a_simulation_imports_is_in_its_digest():
    """But for those that compute nothing of it."""
    code = (
        "import sys, fedfairx as ffx\n"
        "ffx.simulate(ffx.Scenario(horizon=5, agents=2), algorithm='priv-fairx-bayes', epsilon=1.0)\n"
        "print(*(m.__file__ for n, m in sys.modules.items() if n.startswith('fedfairx.') and m.__file__))"
    )
    done = subprocess.run([sys.executable, "-c", code], capture_output=True, text=True, check=True)
    package = Path(fedfairx.__file__).parent
    imported = {str(Path(file).relative_to(package)) for file in done.stdout.split()}
    assert "simulation/kernel/loop.py" in imported
    beside = {"storage", "fairness", "evaluation", "util"}
    assert {Path(file).parts[0] for file in imported if "/" in file} <= {*_COMPUTING, *beside}


def test_what_made_a_result_is_this_package():
    assert made_by().startswith(f"fedfairx {fedfairx.__version__} (code ")


def test_code_of_a_users_class_counts():
    def schedule(step):
        @dataclass(frozen=True)
        class Mine:
            gap: int = 3

            def rounds(self, plan):
                return list(range(step, plan, self.gap)) if step > 1 else []

        return Mine()

    def other():
        @dataclass(frozen=True)
        class Mine:
            gap: int = 3

            def rounds(self, plan):
                return list(range(self.gap, plan, self.gap + 1))

        return Mine()

    assert digest_of(schedule(2)) == digest_of(schedule(2))
    assert digest_of(schedule(2)) != digest_of(schedule(3))  # what a function closes over
    assert digest_of(schedule(2)) != digest_of(other())


def test_functions_are_told_apart_by_their_code():
    one = digest_of(lambda x: x + 1)
    two = digest_of(lambda x: x + 2)
    assert one != two


@given(st.dictionaries(st.text(), st.one_of(st.integers(), st.floats(), st.text(), st.none()), max_size=5))
def test_order_of_keys_does_not_matter(values):
    backwards = dict(reversed(list(values.items())))
    assert digest_of(values) == digest_of(backwards)


def test_infinities_and_arrays_of_objects_are_plain():
    assert digest_of({"a": math.inf, "b": np.array([0, None])}) == '{"a": Infinity, "b": [0, null]}'


def test_arrays_are_told_by_bytes_kind_and_shape():
    array = np.arange(6.0)
    others = [array + 1.0, array.astype(np.float32), array.reshape(2, 3), array.reshape(3, 2)]
    assert len({digest_of(each) for each in (array, *others)}) == 5
    assert digest_of(array) == digest_of(np.arange(12.0)[::2] / 2.0)


def test_what_has_no_values_is_refused():
    with pytest.raises(InvalidInput, match="got a object"):
        describe(object())
