"""Small figures: places that fit, for any row."""

from __future__ import annotations

import math
import re

from hypothesis import given
from hypothesis import strategies as st

from fedfairx.fairness import Row, Share
from fedfairx.service.pages import charts, formatting
from fedfairx.service.pages.charts import Option

shares = st.lists(st.floats(0, 1), min_size=3, max_size=3).map(sorted).map(lambda s: Share(s[1], s[0], s[2]))
rows = st.builds(
    Row,
    st.just("a"),
    st.just(9),
    st.just(3),
    shares,
    st.floats(0, 1),
    shares,
    st.just("within"),
    st.none() | shares,
)


@given(st.lists(rows, max_size=5))
def test_every_place_is_inside(found: list[Row]) -> None:
    scale = charts.scale_of(found, 0.2)
    assert 0 < scale <= 1
    assert 2 <= len(charts.ticks(scale)) <= 6
    assert math.isclose(charts.ticks(scale)[-1], scale)
    for row in found:
        text = charts.shares(row, scale, 0.2)
        for place in re.findall(r'(?:x|x1|x2|cx|width)="([\d.]+)%"', text):
            assert 0 <= float(place) <= 100.001
        assert "nan" not in text


def test_what_is_not_known_is_not_drawn() -> None:
    row = Row("a", 9, 3, Share(0.3, 0.1, 0.6), 0.3, Share(math.nan, 0.0, 1.0), "too little data")
    assert "estimated" not in charts.shares(row, 1.0, 0.2)
    assert "nan" not in charts.shares(row, 1.0, 0.2)


def test_the_axis_fits_what_is_drawn() -> None:
    """What is guaranteed of entitlements is not in the figure, and does not stretch it."""
    wide = Share(0.01, 0.0, 1.0)
    row = Row("a", 9, 3, Share(0.012, 0.0, 0.5), 0.0, wide, "too little data", Share(0.01, 0.008, 0.013))
    assert charts.scale_of([row], 0.2) == 0.015
    assert charts.scale_of([row], 0.5) == 0.02
    assert charts.scale_of([], 0.2) == 1.0
    assert re.findall(r">([0-9.]+) %<", charts.axis(0.015)) == ["0", "0.5", "1", "1.5"]


def test_numbers_of_a_narrow_axis_do_not_touch() -> None:
    assert re.findall(r">([0-9]+) %<", charts.axis(1.0)) == ["0", "50", "100"]
    assert charts.axis(1.0).count("<line") == 5
    assert re.findall(r">([0-9]+) %<", charts.axis(0.6)) == ["0", "20", "40", "60"]


def test_a_policy_fills_its_line() -> None:
    options = [Option("a", 0.25, False), Option("b", 0.75, True)]
    text = charts.policy(options)
    assert text.count("<rect") == 2
    assert 'class="taken" x="25.000%"' in text


def test_of_many_options_those_taken_are_seen() -> None:
    options = [Option(str(k), 0.001, k in (3, 700)) for k in range(1_000)]
    text = charts.policy(options)
    assert text.count("<rect") == 5  # between them, the others
    assert text.count('class="taken"') == 2
    widths = [float(width) for width in re.findall(r'width="([\d.]+)%"', text)]
    assert widths[1] == widths[3] == 0.6
    assert widths[2] == 69.6


@given(st.lists(st.floats(-1e3, 1e3), min_size=1, max_size=5))
def test_a_range_has_zero_and_all_values_in_it(values: list[float]) -> None:
    shown = charts.Scale.around(values)
    places = [float(shown.x(value)[:-1]) for value in sorted([0.0, *values])]
    assert places == sorted(places)
    assert 1.99 < places[0] <= places[-1] < 98.01
    for value in values:
        for text in (charts.bar(value, shown), charts.estimate(value, value - 1, value + 1, shown)):
            for place in re.findall(r'(?:x|x1|x2|cx|width)="(-?[\d.]+)%"', text):
                assert 0 <= float(place) <= 98.01


def test_words() -> None:
    assert [formatting.number(each) for each in (0.12345, -12.345, 0.0, 2e-5, 3e7, None, math.nan)] == [
        "0.123",
        "\u221212.3",
        "0.000",
        "2.0e\u221205",
        "3.0e+07",
        "–",
        "–",
    ]
    assert [formatting.factor(each) for each in (math.log(2), -6.0, -244.0, 276.0, None)] == [
        *("×2.00", "×0.0025", "×10⁻¹⁰⁶", "×10¹²⁰", "–")
    ]
    parts = [formatting.change(each) for each in (0.333, -0.0123, 1e-16, 2.5, None, math.nan)]
    assert parts == ["+33\u00a0%", "\u22121.2\u00a0%", "0\u00a0%", "×3.5", "–", "–"]
    assert formatting.change(2.4e31) == ">\u00a0×1\u202f000"
    words = [formatting.together(["rating", "price", "distance"][:count]) for count in range(4)]
    assert words == ["", "rating", "rating and price", "rating, price and distance"]
    assert formatting.breaking("courier-003/<b>") == "courier-<wbr>003/<wbr>&lt;b&gt;"
    assert formatting.breaking("a-\u202e-") == "a-<wbr>\\u202e-"
    assert formatting.percent(0.00123) == "0.12\u00a0%"
    assert formatting.between(0.001, 0.25) == "0.10 – 25.0\u00a0%"
    assert formatting.percent(0.1234) == "12.3\u00a0%"
    assert formatting.percent(math.nan) == "–"
    assert formatting.points(-0.012) == "\u22121.2"
    assert formatting.points(0.012) == "+1.2"
    assert formatting.count(1234567) == "1\u202f234\u202f567"
    assert formatting.moment(0) == "1970-01-01 00:00"
    assert formatting.moment(None) == "–"


def test_numbers_are_written_for_people() -> None:
    assert [formatting.between(*ends) for ends in ((0.0123, 0.456), (1.0, 1.0), (0.00001, 0.00456))] == [
        "1.2 – 45.6\u00a0%",
        "100.0\u00a0%",
        "0.0 – 0.46\u00a0%",
    ]
    numbers = ((0.0008,), (0.0008, 0.1), (-0.0004, 0.1), (-0.25, 0.1), (2e-6, 1e-6))
    assert [formatting.number(*each) for each in numbers] == [
        "8.0e\u221204",
        "0.001",
        "0.000",
        "\u22120.250",
        "2.0e\u221206",
    ]
    text = "5 000 of 12 345 678 draws, 7 actions, 2026 11, 1 2345"
    written = "5\u202f000 of 12\u202f345\u202f678 draws, 7 actions, 2026 11, 1 2345"
    assert formatting.unbroken(text) == written
