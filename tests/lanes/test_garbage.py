"""Garbage is looked for more rarely while something is compiled, and then as before."""

from __future__ import annotations

import gc
from collections.abc import Iterator

import pytest
from numba.core import event

from fedfairx.lanes.compile import compiled
from fedfairx.lanes.garbage import RARELY, Housekeeper


@pytest.fixture(autouse=True)
def usual() -> Iterator[tuple[int, int, int]]:
    before = gc.get_threshold()
    yield before
    gc.set_threshold(*before)


def test_the_usual_threshold_comes_back_when_the_outermost_compilation_ends() -> None:
    gc.set_threshold(701, 11, 12)
    keeper = Housekeeper()
    keeper.on_start(None)
    keeper.on_start(None)
    keeper.on_end(None)
    assert gc.get_threshold() == RARELY
    keeper.on_end(None)
    assert gc.get_threshold() == (701, 11, 12)


def test_an_application_without_collections_stays_without() -> None:
    gc.set_threshold(0, 10, 10)
    keeper = Housekeeper()
    keeper.on_start(None)
    assert gc.get_threshold()[0] == 0
    keeper.on_end(None)
    assert gc.get_threshold()[0] == 0


def test_it_is_told_of_what_is_compiled() -> None:
    seen = []

    class Look(event.Listener):
        def on_start(self, _: object) -> None:
            seen.append(gc.get_threshold())

        def on_end(self, _: object) -> None:
            pass

    def more(x: float) -> float:
        return x + 1.0

    with event.install_listener("numba:compile", Look()):
        assert compiled(more)(1.0) == 2.0
    assert seen == [RARELY]
    assert gc.get_threshold() != RARELY
