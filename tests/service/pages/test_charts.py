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
    Row, st.just("a"), st.just(9), st.just(3), shares, st.floats(0, 1), shares, st.just("within")
)


@given(st.lists(rows, max_size=5))
def test_every_place_is_inside(found: list[Row]) -> None:
    scale = charts.scale_of(found)
    assert 0 < scale <= 1
    assert 2 <= len(charts.ticks(scale)) <= 6
    assert math.isclose(charts.ticks(scale)[-1], scale)
    for row in found:
        text = charts.intervals(row, scale)
        for place in re.findall(r'(?:x|x1|x2|cx|width)="([\d.]+)%"', text):
            assert 0 <= float(place) <= 100.001
        assert "nan" not in text


def test_what_is_not_known_has_no_middle() -> None:
    row = Row("a", 9, 3, Share(0.3, 0.1, 0.6), 0.3, Share(math.nan, 0.0, 1.0), "too little data")
    assert "middle" not in charts.intervals(row, 1.0)
    assert "nan" not in charts.intervals(row, 1.0)


def test_a_policy_fills_its_line() -> None:
    options = [Option("a", 0.25, False), Option("b", 0.75, True)]
    text = charts.policy(options)
    assert text.count("<rect") == 2
    assert 'class="taken" x="25.000%"' in text


def test_words() -> None:
    assert formatting.percent(0.1234) == "12.3\u00a0%"
    assert formatting.percent(math.nan) == "–"
    assert formatting.points(-0.012) == "\u22121.2"
    assert formatting.points(0.012) == "+1.2"
    assert formatting.count(1234567) == "1\u202f234\u202f567"
    assert formatting.moment(0) == "1970-01-01 00:00"
    assert formatting.moment(None) == "–"
