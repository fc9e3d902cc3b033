"""How merits are written on the command line."""

from __future__ import annotations

import math

import pytest

from fedfairx.agent.by_name import as_merit
from fedfairx.core.merit import Affine, Exponential
from fedfairx.errors import InvalidInput


def test_merits_by_name() -> None:
    assert as_merit("doubling:0.1") == Exponential(math.log(2) / 0.1)
    assert as_merit("exponential") == Exponential(10.0)
    assert as_merit("exponential:steepness=3") == Exponential(3.0)
    assert as_merit("affine:slope=2") == Affine(slope=2.0)


@pytest.mark.parametrize(
    ("text", "why"),
    [
        ("doubling", 'must be like "doubling:0.1"'),
        ("doubling:", 'must be like "doubling:0.1"'),
        ("doubling:ten", 'must be like "doubling:0.1"'),
        ("doubling:0", 'must be like "doubling:0.1"'),
        ("best", "must be one of doubling, exponential"),
        ("affine:height=1", "has no parameter 'height'"),
    ],
)
def test_other_merits_are_refused(text: str, why: str) -> None:
    with pytest.raises(InvalidInput, match=why):
        as_merit(text)
