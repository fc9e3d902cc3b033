"""The style: colours for all, labels that don't touch, notes on reduced figures."""

from __future__ import annotations

from pathlib import Path

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfairx import algorithms
from fedfairx.privacy import mechanisms
from paper import FULL, QUICK, Size
from paper.figures import COLOURS, NAMES, canvas, end_labels, power, save, styled, write_note


def test_every_algorithm_and_mechanism_has_a_colour():
    assert set(algorithms()) <= set(COLOURS)
    assert set(algorithms()) <= set(NAMES)
    assert set(mechanisms()) <= set(COLOURS)
    shown = [COLOURS[name] for name in algorithms()]
    assert len(set(shown)) == len(shown)


@pytest.mark.long
@given(st.lists(st.floats(1, 100), min_size=1, max_size=6))
def test_labels_never_overlap_and_keep_their_order(values):
    with styled():
        _, (axes,) = canvas()
        axes.set_ylim(0, 100)
        end_labels(axes, [(value, str(i), "k") for i, value in enumerate(values)])
    places = {text.get_text(): text.get_position()[1] for text in axes.texts}
    in_order = [places[str(i)] for i in np.argsort(values, kind="stable")]
    assert (np.diff(in_order) > 0.05).all()


def test_a_full_figure_carries_no_note():
    assert FULL.note == ""
    assert Size(horizon=100_000, seeds=6).note == ""
    assert QUICK.note.startswith("reduced size: T = ")
    assert "1 seed (" in Size(horizon=5, seeds=1).note


@pytest.mark.parametrize(("value", "text"), [(0.1, "0.1"), (1e-6, "10⁻⁶"), (1e-12, "10⁻¹²")])
def test_powers(value, text):
    assert power(value) == text


@pytest.mark.long
def test_what_is_saved_is_what_savefig_would_save(tmp_path: Path) -> None:
    """Laid out and as large; `save` goes around it because it draws twice."""

    def figure():
        made, panels = canvas(panels=2)
        write_note(made, QUICK.note)
        for axes in panels:
            axes.plot([1, 2], [3_000, 40_000])
            axes.set_ylabel("a long name of what is measured")
        return made

    with styled():
        png, svg = save(figure())
        theirs = figure()
        theirs.savefig(tmp_path / "theirs.png")
        theirs.set_layout_engine("none")
        theirs.savefig(tmp_path / "theirs.svg", metadata={"Date": None})
    assert png == (tmp_path / "theirs.png").read_bytes()
    assert svg == (tmp_path / "theirs.svg").read_bytes()
