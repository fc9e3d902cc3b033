"""Plain sums: exact, in order, and labelled."""

from __future__ import annotations

import json
import math

import numpy as np
import pytest

from fedfairx.core.statistics import unpack
from fedfairx.errors import InvalidInput, StateError
from fedfairx.privacy.privatizers.non_private import NonPrivateSums


def test_the_bits_are_those_of_adding_in_turn() -> None:
    generator = np.random.default_rng(0)
    sums = NonPrivateSums(4)
    gram, moment = np.zeros((4, 4)), np.zeros(4)
    for number in range(1, 30):
        for _ in range(number % 3):
            x, y = generator.normal(size=4), float(generator.normal())
            sums.add(x, y)
            for i in range(4):
                moment[i] += x[i] * y
                for j in range(4):
                    gram[i, j] += x[i] * x[j]
        release = sums.release()
        found = unpack(release.packed)
        assert (release.number, release.count) == (number, sum(k % 3 for k in range(1, number + 1)))
        assert found[0].tobytes() == gram.tobytes()
        assert found[1].tobytes() == moment.tobytes()


def test_a_release_does_not_change_later() -> None:
    sums = NonPrivateSums(2)
    first = sums.release()
    sums.add(np.ones(2), 1.0)
    assert not first.packed.any()
    assert sums.release(1) is first
    assert sums.release(2).packed.any()
    with pytest.raises(InvalidInput, match="number"):
        sums.release(9)


def test_it_says_that_it_is_not_private() -> None:
    guarantee = NonPrivateSums(2).guarantee
    assert guarantee.mu == guarantee.epsilon == math.inf
    assert str(guarantee) == "NOT PRIVATE: releases are exact sums, without noise."


def test_a_saved_state_goes_on_with_the_same_bits() -> None:
    generator = np.random.default_rng(1)
    records = [(generator.normal(size=3), float(generator.normal())) for _ in range(20)]
    sums = NonPrivateSums(3)
    for x, y in records[:10]:
        sums.add(x, y)
    fresh = NonPrivateSums.from_state(json.loads(json.dumps(sums.state())), dimension=3)
    assert fresh.release() == sums.release()
    again = NonPrivateSums.from_state(json.loads(json.dumps(sums.state())), dimension=3)
    for x, y in records[10:]:
        sums.add(x, y)
        again.add(x, y)
    assert again.release(1) == sums.release(1)
    assert again.release() == sums.release()


def test_another_dimension_is_refused() -> None:
    with pytest.raises(StateError):
        NonPrivateSums.from_state(NonPrivateSums(3).state(), dimension=4)
