"""The table of mutants is up to date: each old text stands once in the function that it names."""

from __future__ import annotations

import pytest

from mutants import MUTANTS, places


@pytest.mark.long
def test_each_old_text_is_there_once() -> None:
    times = {f"{each.where}: {each.what}": len(places(each)) for each in MUTANTS}
    assert {name: count for name, count in times.items() if count != 1} == {}


def test_each_mutant_is_named_once_and_changes_something() -> None:
    assert len({(each.where, each.what) for each in MUTANTS}) == len(MUTANTS) > 100
    assert [each for each in MUTANTS if each.new == each.old] == []
