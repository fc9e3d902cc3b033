"""Curves in the house style."""

from __future__ import annotations

import numpy as np
import pytest

from fedfairx.util.figure_style import COLOURS, METRIC_NAMES, Curves, draw_curves


def curves(label: str, algorithm: str, seeds: int = 2) -> Curves:
    values = np.arange(1.0, 5.0) + np.arange(seeds)[:, None]
    return Curves(label, algorithm, np.arange(1, 5) * 10, dict.fromkeys(METRIC_NAMES, values))


def test_a_panel_for_each_metric_a_band_and_a_label_for_each_curve() -> None:
    figure = draw_curves([curves("first", "b2"), curves("second", "linucb", seeds=1)])
    assert [axes.get_title(loc="left") for axes in figure.axes] == [
        "fairness regret, 1 seed or 2 seeds",
        "reward regret, 1 seed or 2 seeds",
    ]
    for axes in figure.axes:
        assert [text.get_text() for text in axes.texts] == ["second", "first"]  # from below
        assert [line.get_color() for line in axes.lines] == [COLOURS["b2"], COLOURS["linucb"]]
        assert len(axes.collections) == 1  # one seed has no band


@pytest.mark.parametrize("count", [2, 5])
def test_one_algorithm_twice_has_two_colours(count: int) -> None:
    figure = draw_curves([*(curves(str(i), "b2") for i in range(count)), curves("other", "linucb")])
    colours = [line.get_color() for line in figure.axes[0].lines]
    assert len(set(colours)) == count + 1
