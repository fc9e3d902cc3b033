"""Every number that right agents send is what it must be."""

from __future__ import annotations

from dataclasses import replace
from typing import Any

import numpy as np
import pytest

import draws_alike
import whole
from fedfairx.agent.options import Options
from fedfairx.privacy.bounds import Bounds
from fedfairx.privacy.centring import Centring
from fedfairx.privacy.mechanisms.noise import KeyedNoise

BOX = Centring.unit_box(3)
RIGHT: list[tuple[int, dict[str, Any]]] = [
    (20, {"mechanism": "paper-tree"}),
    (37, {"mechanism": "tree"}),
    (1, {"mechanism": "blt"}),
    (9, {"mechanism": "tree", "bounds": Bounds(adjacency="add-remove")}),
    (33, {"bounds": Bounds(nonnegative=True, gram_share=0.5)}),
    (16, {"bounds": Bounds(context_norm=2.0, reward=0.5, gram_share=0.3)}),
    (8, {"bounds": Bounds(gram_share=0.6, record_norm=0.9)}),
    (20, {"centring": BOX}),
    (20, {"centring": BOX, "bounds": Bounds(adjacency="add-remove")}),
    (8, {"centring": replace(BOX, record_radius=0.4), "bounds": Bounds(gram_share=0.6)}),
    (8, {"slots": (1.0, 0.5)}),
    (8, {"aggregation": "secure", "colluding": 1}),
    (3_000, {"mechanism": "blt", "decide_from": "released"}),  # beyond those that agents make one by one
]


@pytest.mark.long
@pytest.mark.usefixtures("_few_inputs", "_few_keys")
@pytest.mark.parametrize(("releases", "given"), RIGHT)
def test_right_agents_send_what_they_must(releases: int, given: dict[str, Any]) -> None:
    options = Options(**{"algorithm": "priv-fairx-bayes", "epsilon": 2.0, "delta": 0.1} | given)
    checks = whole.compare(options, dimension=3, releases=releases)
    assert whole.failed(checks) == ()
    compared = int(checks[0].name.rsplit(" ", 1)[1])
    assert compared >= min(releases, 512) * 9  # 3 · 4 / 2 + 3 sums of each release of the first agent


def test_keys_differ() -> None:
    assert draws_alike.keys().ok


def test_draws_alike_are_counted() -> None:
    draws = [np.arange(1.0, 5.0), np.arange(11.0, 15.0)]
    assert draws_alike.draws_alike(draws, key="k").found == 0.0
    assert draws_alike.draws_alike([*draws, -draws[0]], key="k").found == 3.0  # three pairs, up to signs


def test_related_draws_are_those_of_inputs_that_differ_in_one_way() -> None:
    """Each draw is compared with that of the same key, agent, run, release and place."""
    asked = []

    class Asked(KeyedNoise):
        def __init__(self, key: bytes, *, agent: str, run: str) -> None:
            super().__init__(key, agent=agent, run=run)
            self.made_for = (key, agent, run)

        def __call__(self, number: int, count: int, place: bytes, /) -> np.ndarray:
            asked.append((*self.made_for, number, place))
            return super().__call__(number, count, place)

    with pytest.MonkeyPatch.context() as patch:
        patch.setattr(draws_alike, "KeyedNoise", Asked)
        assert draws_alike.draws_alike([], key="k").ok
    first = asked[0]
    different = [sum(a != b for a, b in zip(first, each, strict=True)) for each in asked]
    assert different[0] == 0
    assert sorted(set(different)) == [0, 1, 2]
    assert different.count(2) == 4  # ("ab", "c") and its kind
    assert len(set(asked)) == len(asked)
