"""The table of mutants is up to date: each old text stands once in the function that it names."""

from __future__ import annotations

import pytest

from mutants import MUTANTS, Mutant, places


@pytest.mark.long
@pytest.mark.parametrize("mutant", MUTANTS, ids=lambda each: f"{each.where}: {each.what}")
def test_its_old_text_is_there_once(mutant: Mutant) -> None:
    assert len(places(mutant)) == 1
    assert mutant.new != mutant.old
