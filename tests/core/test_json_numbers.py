"""Matrices of numbers from JSON: bit for bit what `json.loads` gives, or not read."""

from __future__ import annotations

import json
from decimal import Decimal

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfairx.core.json_numbers import read_matrices

SPACES = st.sampled_from(["", " ", "\n", "\t ", "\r\n"])
WRITTEN = st.one_of(
    st.floats(allow_nan=False, allow_infinity=False).map(repr),
    st.floats(-1e6, 1e6).map(repr),
    st.integers(-(10**25), 10**25).map(str),
    st.from_regex(r"-?(0|[1-9][0-9]{0,20})(\.[0-9]{1,25})?([eE][+-]?[0-9]{1,3})?", fullmatch=True),
)


@st.composite
def texts(draw: st.DrawFn) -> str:
    """A matrix, with spaces anywhere."""
    rows, columns = draw(st.integers(1, 4)), draw(st.integers(1, 4))
    tokens = ["["]
    for row in range(rows):
        tokens += ["," if row else "", "["]
        for column in range(columns):
            tokens += ["," if column else "", draw(WRITTEN)]
        tokens += ["]"]
    return "".join(draw(SPACES) + token for token in [*tokens, "]", ""])


def bits(numbers: object) -> list[int]:
    return np.asarray(numbers, dtype=float).view(np.int64).ravel().tolist()


@given(texts())
def test_numbers_are_those_of_the_standard_library(text: str) -> None:
    found = read_matrices([text.encode()])
    if found is not None:
        wanted = json.loads(text)
        assert found.shape == (1, len(wanted), len(wanted[0]))
        assert bits(found) == bits(wanted)


@given(st.lists(st.one_of(st.floats(1e-5, 1e15), st.floats(-1e15, -1e-5), st.just(-0.0)), min_size=1))
def test_usual_numbers_are_read(numbers: list[float]) -> None:
    found = read_matrices([json.dumps([numbers]).encode()])
    assert found is not None
    assert bits(found) == bits([numbers])


@pytest.mark.parametrize("number", ["9007199254740993", "9007199254740993.0", "9007199254740995e-0"])
def test_the_middle_of_two_numbers_is_left_to_others(number: str) -> None:
    assert float(number) != 0
    assert read_matrices([f"[[{number}]]".encode()]) is None


def test_numbers_beside_the_middle_of_two() -> None:
    """Decimals of 17 to 19 digits that lie as close to the middle of two floats as they can."""
    read = 0
    for number in 0.5 + np.random.default_rng(0).random(2_000) / 2:
        middle = Decimal(float(number)) + Decimal(2) ** -54
        for digits in (17, 18, 19):
            text = f"{middle:.{digits}f}"
            found = read_matrices([f"[[{text}]]".encode()])
            assert found is None or bits(found) == bits(float(text)), text
            read += found is not None
    assert read > 5_000


@pytest.mark.parametrize(
    "text",
    [
        "",
        "1",
        "[]",
        "[1]",
        "[[]]",
        "[[1], []]",
        "[[], [1]]",
        "[[1,]]",
        "[[1],]",
        "[,[1]]",
        "[[1 2]]",
        "[[1], [1, 2]]",
        "[[[1]]]",
        "[[1]",
        "[[1]]]",
        "[[1]] 2",
        "[[01]]",
        "[[-]]",
        "[[+1]]",
        "[[1.]]",
        "[[.5]]",
        "[[1e]]",
        "[[1e+]]",
        "[[NaN]]",
        "[[Infinity]]",
        "[[null]]",
        '[["1"]]',
        "[[1\0]]",
        "[[1]]\0",
        "[[1e23]]",
        "[[1e999999999999999999999]]",
        "[[12345678901234567890]]",
    ],
)
def test_what_is_not_read(text: str) -> None:
    assert read_matrices([text.encode()]) is None


def test_several_matrices() -> None:
    found = read_matrices([b"[[1, 2]]", b" [[3,4]]\n"])
    assert found is not None
    assert found.tolist() == [[[1.0, 2.0]], [[3.0, 4.0]]]
    assert read_matrices([]) is None
    assert read_matrices([b"[[1, 2]]", b"[[3]]"]) is None
    assert read_matrices([b"[[1, 2]]", b"[[3, 4], [5, 6]]"]) is None
    assert read_matrices([b"[[1, 2]]", b""]) is None
    assert read_matrices([b"[[1, 2]", b"]"]) is None
