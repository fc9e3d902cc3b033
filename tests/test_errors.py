"""The exception tree is as it is drawn, and error text has its parts."""

from __future__ import annotations

import inspect
import re

import pytest

from fedfairx import errors
from fedfairx.errors import FedFairXError, InvalidInput, UnknownDecision, require

CLASSES = [value for value in vars(errors).values() if inspect.isclass(value)]


def test_the_docstring_draws_the_tree() -> None:
    drawn = re.findall(r"^\s*[│├└─ ]*\s*(\w+)(?: \((\w+)\))?", errors.__doc__ or "", re.MULTILINE)
    names = {name for name, _ in drawn}
    for each in CLASSES:
        assert each.__name__ in names, each
        assert issubclass(each, FedFairXError | Warning)
        assert each.__doc__
    for name, builtin in drawn:
        if builtin and hasattr(errors, name):
            assert builtin in {base.__name__ for base in getattr(errors, name).__mro__}


def test_nested_classes_stand_below_their_parent() -> None:
    lines = (errors.__doc__ or "").splitlines()
    parents: list[tuple[int, str]] = []
    for line in lines:
        found = re.match(r"^([\s│├└─]*)(\w+)", line)
        if not found or not hasattr(errors, found[2]):
            continue
        depth = len(found[1])
        while parents and parents[-1][0] >= depth:
            parents.pop()
        if parents:
            assert issubclass(getattr(errors, found[2]), getattr(errors, parents[-1][1]))
        parents.append((depth, found[2]))


def test_invalid_input_is_a_value_error_and_an_unknown_decision_a_key_error() -> None:
    assert issubclass(InvalidInput, ValueError)
    assert issubclass(UnknownDecision, KeyError)
    assert str(UnknownDecision("decision must be known")) == "decision must be known"
    assert str(UnknownDecision()) == ""


def test_require_names_the_parameter_the_rule_the_value_and_the_remedy() -> None:
    require(True, "delta", "must be in (0, 1)", 0.5)
    with pytest.raises(InvalidInput) as refused:
        require(False, "delta", "must be in (0, 1)", 1.5)
    assert str(refused.value) == "delta must be in (0, 1), got delta=1.5"
    with pytest.raises(InvalidInput) as refused:
        require(False, "schedule", "must be known", "weekly", "see schedules")
    assert str(refused.value) == "schedule must be known, got schedule='weekly'; see schedules"
