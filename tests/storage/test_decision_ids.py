"""Ids that are never given twice."""

from __future__ import annotations

from fedfairx.storage.decision_ids import IdPrefixes


def test_a_prefix_holds_from_a_number_on() -> None:
    origins = IdPrefixes()
    first, second, third = origins.begin(0), origins.begin(5), origins.begin(5)
    assert len({first, second, third}) == 3
    assert all(len(each) == 16 for each in (first, second, third))
    assert [origins.of(number) for number in (0, 4, 5, 99)] == [first, first, third, third]
    assert origins.used(5) == [(0, first)]
    assert origins.used(6) == [(0, first), (5, third)]
    assert IdPrefixes([(3, "abc")]).of(2) is None


def test_an_id_is_ones_own_or_not() -> None:
    origins = IdPrefixes([(0, "abc"), (5, "def")])
    assert origins.number_in("abc-4") == 4
    assert origins.number_in("def-5") == 5
    assert origins.number_in("def-" + "9" * 18) == 10**18 - 1
    for other in (
        "abc-5",
        "def-4",
        "xyz-4",
        "abc-04",
        "abc--4",
        "abc-",
        "abc",
        "",
        "abc-4.0",
        "def-" + "9" * 19,  # more than a database's integers hold
        "def-" + "9" * 30,
    ):
        assert origins.number_in(other) is None, other
