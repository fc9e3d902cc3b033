"""While something of ours is compiled, Numba and Python go about it otherwise; and then as before."""

from __future__ import annotations

import gc
from collections.abc import Iterator
from types import SimpleNamespace
from typing import Any

import numba
import pytest
from numba.core import event

from fedfairx.lanes.compile_hooks import PASSES, RARELY, FasterSettings
from fedfairx.lanes.decorators import COMPILING


def passes() -> dict[str, Any]:
    return {name: getattr(numba.config, name) for name in PASSES}


def compilation(module: str) -> Any:
    """What Numba says of a function of this module."""
    return SimpleNamespace(data={"dispatcher": SimpleNamespace(py_func=SimpleNamespace(__module__=module))})


OURS, ANOTHERS = compilation("fedfairx.core.estimate"), compilation("somebody.else")


@pytest.fixture(autouse=True)
def usual() -> Iterator[None]:
    before, configured = gc.get_threshold(), passes()
    yield
    gc.set_threshold(*before)
    for name, value in configured.items():
        setattr(numba.config, name, value)


def test_what_was_usual_comes_back_when_the_outermost_compilation_ends() -> None:
    gc.set_threshold(701, 11, 12)
    before, haste = passes(), FasterSettings()
    haste.on_start(OURS)
    haste.on_start(OURS)
    haste.on_end(None)
    assert (gc.get_threshold(), passes()) == (RARELY, PASSES)
    haste.on_end(None)
    assert (gc.get_threshold(), passes()) == ((701, 11, 12), before)


def test_what_others_compile_gets_all_of_llvm() -> None:
    before, haste = passes(), FasterSettings()
    haste.on_start(ANOTHERS)
    assert passes() == before
    haste.on_end(None)
    assert passes() == before


def test_an_application_without_collections_stays_without() -> None:
    gc.set_threshold(0, 10, 10)
    haste = FasterSettings()
    haste.on_start(OURS)
    assert gc.get_threshold()[0] == 0
    haste.on_end(None)
    assert gc.get_threshold()[0] == 0


@pytest.mark.skipif(not COMPILING, reason="nothing is compiled")
def test_others_may_compile_what_is_of_no_module() -> None:
    """As functions are that an application makes by `exec`: whoever listens must not stumble over them."""

    def more(x: float) -> float:
        return x + 1.0

    more.__module__ = None  # type: ignore[assignment]
    assert numba.njit(more)(1.0) == 2.0


@pytest.mark.skipif(not COMPILING, reason="nothing is compiled")
def test_it_is_told_of_what_is_compiled() -> None:
    seen = []

    class Look(event.Listener):
        def on_start(self, _: object) -> None:
            seen.append((gc.get_threshold(), passes()))

        def on_end(self, _: object) -> None:
            pass

    def more(x: float) -> float:
        return x + 1.0

    more.__module__ = "fedfairx.lanes.of_a_test"
    before = passes()
    with event.install_listener("numba:compile", Look()):
        assert numba.njit(more)(1.0) == 2.0  # not kept on disk, so compiled each time
    assert seen == [(RARELY, PASSES)]
    assert (gc.get_threshold() != RARELY, passes()) == (True, before)
