"""Numbers and tables as people see them."""

from __future__ import annotations

import numpy as np
import pytest

from fedfairx.util.formatting import counted, duration, html_table, mean_and_half, number, text_table, visible


@pytest.mark.parametrize(
    ("value", "text"),
    [(0.12345, "0.123"), (12345.6, "12 346"), (2e8, "2.0e+08"), (-150.0, "-150"), (float("nan"), "–")],
)
def test_numbers(value: float, text: str) -> None:
    assert number(value) == text


def test_a_mean_has_an_interval_if_there_are_two() -> None:
    assert mean_and_half(np.array([3.0])) == "3"
    # Student's t with one degree of freedom, 12.706, times √2/√2
    assert mean_and_half(np.array([1.0, 3.0])) == "2 ± 12.7"


def test_counts() -> None:
    assert [counted(n, "seed") for n in (0, 1, 2)] == ["0 seeds", "1 seed", "2 seeds"]


def test_tables() -> None:
    assert text_table(("a", "long"), [(1, 2), ("wide", 3)]).splitlines() == [
        "a     long",
        "----  ----",
        "1     2",
        "wide  3",
    ]


def test_nothing_in_a_table_is_taken_for_markup() -> None:
    text = html_table(("<b>",), [("<script>",)], caption="a & b")
    assert "<b>" not in text
    assert "<script>" not in text
    assert "<caption>a &amp; b</caption>" in text
    assert text.count("<tr>") == 2


@pytest.mark.parametrize(
    ("name", "shown"),
    [
        ("Zoë 💥 日本", "Zoë 💥 日本"),
        ("12\u202f000\u00a0%", "12\u202f000\u00a0%"),  # spaces that do not break are seen
        ("ann\u202eneb", "ann\\u202eneb"),
        ("a\u2066b\u2069", "a\\u2066b\\u2069"),
        ("a\u200db\ufeff", "a\\u200db\\ufeff"),
        ("a\tb\x00\x1b\x85", "a\\tb\\x00\\x1b\\x85"),
        ("\u2028\u3164\U000e0041", "\\u2028\\u3164\\U000e0041"),
    ],
)
def test_invisible_characters_are_escaped(name: str, shown: str) -> None:
    assert visible(name) == shown
    assert text_table((name,), [(name,)]).splitlines()[::2] == [shown, shown]
    assert html_table((name,), [(name,)], caption=name).count(f">{shown}<") == 3


def test_durations() -> None:
    assert [duration(seconds) for seconds in (5, 61, 7_200, 90_000)] == [
        "less than a minute",
        "1 minute",
        "2 hours",
        "1 day",
    ]
