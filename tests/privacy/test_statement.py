"""The page for whoever signs says what the guarantee says, and what it does not cover."""

from __future__ import annotations

from dataclasses import replace

import pytest

from fedfairx.privacy import Bounds, calibrate, claim
from fedfairx.privacy.statement import found_at_most, statement


def _guarantee(bounds: Bounds | None = None, **other):
    limits = Bounds() if bounds is None else bounds
    made = calibrate("blt", epsilon=2.0, delta=1e-6, releases=20, sensitivity=limits.sensitivity)
    return claim(made, bounds=limits, **other)


def _words(text: str) -> str:
    return " ".join(text.split())


def test_it_has_the_claim_and_all_that_whoever_signs_needs() -> None:
    page = statement(_guarantee(), rounds=100)
    words = _words(page)
    assert str(_guarantee()) in words
    for title in ("THE CLAIM", "AGAINST WHOM", "NOT PROTECTED", "FOR HOW LONG", "KEEP, ROTATE AND DELETE"):
        assert title in page
    for outside in ("Decisions shown to people", "how many records it has", "when it sends"):
        assert outside in words
    for duty in ("Secret: the noise key", "Store:", "Rotate: by a new run", "Delete: the key"):
        assert duty in words
    assert "For 20 messages of each agent, over 100 rounds; the next one is refused." in words
    assert "nothing bounds k here" in words


def test_it_tells_what_this_configuration_adds_and_lacks() -> None:
    narrow = _words(statement(_guarantee(Bounds(adjacency="add-remove"))))  # own+released, the default
    assert 'decide_from="own+released"' in narrow
    assert "two logs that differ in one record and are the same in all others" in narrow
    assert 'decide_from="released" is the strict mode that covers this too' in narrow
    strict = _words(statement(_guarantee(decide_from="released")))
    assert "strict claim" in strict
    assert "later decisions" not in strict
    assert "replacing costs up to twice the μ" in narrow
    bounded = _words(statement(replace(_guarantee(), person_records=3)))
    assert "at most 3 records of one enter" in bounded
    assert f"finds it in at most {found_at_most(3 * _guarantee().mu):.1%}" in bounded


def test_what_is_not_private_is_not_to_be_signed() -> None:
    page = statement(_guarantee(public_schedule=False))
    assert page == "NOT PRIVATE: when it releases depends on data. There is nothing to sign."


def test_the_adversary_in_words() -> None:
    assert [found_at_most(mu) for mu in (0.0, 0.3, 1.0, 2.0)] == pytest.approx(
        [0.05, 0.09, 0.26, 0.64], abs=5e-3
    )
