"""Results are the same to the bit as those that were stored, on the kind of machine that stored them."""

from __future__ import annotations

import json

import pytest

import golden


def test_every_bit_is_the_same() -> None:
    stored = json.loads(golden.FILE.read_text(encoding="utf-8"))
    if stored.pop("machine") != golden.machine():
        pytest.skip("golden.json was made by another processor or other libraries (tests/golden.py --write)")
    assert golden.compute() == stored
