"""Steps: each has one form in the log, and one effect on an agent."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedfairx import steps
from fedfairx.agent.core import _CHANGES
from fedfairx.core.statistics import packed_size
from fedfairx.features import Schema
from fedfairx.privacy import Release

FLOATS = st.floats(-1e6, 1e6)
COUNTS = st.integers(0, 2**53)
NAME = st.text(st.characters(codec="utf-8"), min_size=1)
NAMES = st.lists(NAME, max_size=3, unique=True)


@st.composite
def releases(draw: st.DrawFn) -> Release:
    packed = draw(arrays(np.float64, packed_size(2), elements=FLOATS))
    tallies = draw(st.dictionaries(NAME, arrays(np.float64, 4, elements=FLOATS), max_size=2))
    return Release(draw(st.integers(1, 99)), packed, draw(st.integers(0, 99)), "ab" * 32, tallies)


@st.composite
def learnt(draw: st.DrawFn) -> steps.Learnt:
    count, width = draw(st.integers(1, 5)), draw(st.integers(1, 3))
    rows = draw(arrays(np.float64, (count, width), elements=FLOATS))
    rewards = draw(st.lists(FLOATS, min_size=count, max_size=count))
    weights = draw(st.none() | arrays(np.float64, count, elements=st.floats(0, 1)))
    names = draw(st.none() | st.lists(NAME, min_size=count, max_size=count))
    if names is not None and weights is None:
        weights = np.ones(count)  # as they are read
    return steps.Learnt(rows, rewards, weights, names)


EVENTS: dict[type, st.SearchStrategy[Any]] = {
    steps.Learnt: learnt(),
    steps.Aged: st.builds(steps.Aged),
    steps.Released: st.builds(steps.Released, COUNTS),
    steps.Absorbed: st.builds(
        steps.Absorbed, st.dictionaries(st.text(st.characters(codec="utf-8")), releases(), max_size=2)
    ),
    steps.PeersDropped: st.builds(steps.PeersDropped, NAMES),
    steps.TotalAdded: st.builds(steps.TotalAdded, releases(), st.integers(1, 99)),
    steps.RunBegun: st.builds(steps.RunBegun, COUNTS),
    steps.EpochBegun: st.builds(steps.EpochBegun, COUNTS),
    steps.ActionsChanged: st.builds(steps.ActionsChanged, st.sampled_from(["add", "retire"]), NAMES),
    steps.NamesForgotten: st.builds(steps.NamesForgotten, NAMES),
    steps.SchemaExtended: st.just(steps.SchemaExtended(Schema({"distance": (0, 10)}))),
    steps.Dropped: st.builds(steps.Dropped, COUNTS, COUNTS, COUNTS, st.text(max_size=5), COUNTS),
    steps.Deleted: st.builds(steps.Deleted, st.lists(COUNTS, max_size=4)),
    steps.RolledBack: st.builds(steps.RolledBack, COUNTS, COUNTS),
}


def plain(event: Any) -> Any:
    """The fields of an event as values that can be compared."""
    fields = [getattr(event, name) for name in event.__struct_fields__]
    return [value.tolist() if isinstance(value, np.ndarray) else value for value in fields]


def test_every_event_has_a_kind_of_its_own_and_every_step_an_effect() -> None:
    assert set(EVENTS) == set(steps.Event.__args__)
    assert len(steps.UNPACK) == len(EVENTS) + 2  # records with weights, or with names, have other kinds
    assert set(_CHANGES) == set(steps.Step.__args__)


@pytest.mark.parametrize("kind", EVENTS, ids=lambda kind: kind.__name__)
@given(st.data())
def test_what_is_packed_is_unpacked(kind: type, data: st.DataObject) -> None:
    event = data.draw(EVENTS[kind])
    again = steps.UNPACK[steps.kind_of(event)](event.pack())
    assert type(again) is kind
    assert plain(again) == plain(event)
    assert steps.numbers_of(event) == steps.numbers_of(again)


@pytest.mark.parametrize("kind", steps.LEARNING)
def test_a_log_that_was_dropped_by_age_has_no_records(kind: str) -> None:
    assert len(steps.UNPACK[kind](b"").rows) == 0  # type: ignore[union-attr]
