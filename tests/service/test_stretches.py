"""The stretches of a chart."""

from __future__ import annotations

from hypothesis import given
from hypothesis import strategies as st

from fedfairx.service.stretches import stretches


@given(st.floats(1e9, 2e9), st.floats(0, 3e8))
def test_a_chart_has_few_stretches_and_reaches_until_now(first: float, length: float) -> None:
    now = first + length
    since, width, count, _ = stretches(first, now)
    assert 10 <= count <= 61
    assert since <= max(first, now - 365 * 86_400)
    assert since + width * (count - 1) <= now < since + width * count + 1e-3
