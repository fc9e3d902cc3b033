"""Logs of actions without features: their places say as much as unit vectors, and take less."""

from __future__ import annotations

from collections.abc import Sequence
from dataclasses import replace

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

import fedfairx as ffx
from fedfairx.core.merit import Exponential, Merit, Power
from fedfairx.errors import InvalidInput
from fedfairx.fairness import Exposure, Logged

MERITS = (Exponential(4.0), Power())


def log_of(
    rounds: Sequence[tuple[Sequence[int], float]], count: int, *, grouped: bool = True
) -> list[Logged]:
    """Decisions among some of `count` actions, whose true rewards are 0.2, 0.4 and so on."""
    rng = np.random.default_rng(len(rounds))
    log = []
    for places, luck in rounds:
        merits = np.exp(4.0 * (np.array(places) + 1) / count)
        policy = merits / merits.sum()
        action = int(np.searchsorted(np.cumsum(policy), luck * 0.999))
        log.append(
            Logged(
                policy,
                None if luck > 0.97 else action,
                np.array(places),
                names=[f"n{place}" for place in places],
                groups=[f"g{place % 2}" if place else None for place in places],
                drawn=action,
                reward=None if luck > 0.9 else float(rng.random()),
            )
        )
    return log


def as_units(log: Sequence[Logged], count: int) -> list[Logged]:
    return [replace(each, contexts=np.eye(count)[np.asarray(each.contexts)]) for each in log]


def assert_same(ours: Exposure, theirs: Exposure) -> None:
    assert (ours.decisions, ours.rewards) == (theirs.decisions, theirs.rewards)
    assert ours.draws == theirs.draws
    for mine, other in ((ours.actions, theirs.actions), (ours.groups, theirs.groups)):
        assert [row.name for row in mine] == [row.name for row in other]
        for one, two in zip(mine, other, strict=True):
            assert (one.rounds, one.count, one.shown, one.verdict) == (
                two.rounds, two.count, two.shown, two.verdict,
            )  # fmt: skip
            assert one.policy == pytest.approx(two.policy)
            for end in ("value", "low", "high"):
                expected = getattr(two.entitled, end)
                assert getattr(one.entitled, end) == pytest.approx(expected, abs=1e-9, nan_ok=True)


some = st.lists(st.integers(0, 4), min_size=1, max_size=5, unique=True)


@pytest.mark.long
@given(
    rounds=st.lists(st.tuples(some, st.floats(0.0, 1.0)), min_size=1, max_size=40), which=st.integers(0, 1)
)
def test_the_table_is_that_of_unit_vectors(rounds: list[tuple[list[int], float]], which: int) -> None:
    log, merit = log_of(rounds, 5), MERITS[which]
    rewarded = any(each.reward is not None and each.action is not None for each in log)
    seen = 1 + max(max(places) for places, _ in rounds) if rewarded else 5
    assert_same(ffx.exposure(log, merit=merit), ffx.exposure(as_units(log, seen), merit=merit))


@pytest.mark.parametrize("merit", MERITS)
def test_an_action_may_change_its_group(merit: Merit) -> None:
    """Rounds of the same actions are merged, but not those in which they are of other groups."""
    log = log_of([([0, 1, 2], t / 60) for t in range(60)], 3)
    for t, each in enumerate(log):
        each.groups = ["a", "b", "c"] if t % 3 else ["b", "a", None]
    assert_same(ffx.exposure(log, merit=merit), ffx.exposure(as_units(log, 3), merit=merit))


@pytest.mark.parametrize("merit", MERITS)
def test_one_that_is_there_twice_counts_once(merit: Merit) -> None:
    rng = np.random.default_rng(2)
    rounds = [(rng.integers(0, 4, 1 + t % 6).tolist(), 0.9 * float(rng.random())) for t in range(500)]
    log = log_of(rounds, 4)
    assert_same(ffx.exposure(log, merit=merit), ffx.exposure(as_units(log, 4), merit=merit))


@pytest.mark.long
@pytest.mark.parametrize("merit", MERITS)
def test_sums_of_all_rewards_may_be_given(merit: Merit) -> None:
    rng = np.random.default_rng(1)
    rounds = [(sorted(rng.permutation(6)[: 1 + t % 6].tolist()), float(rng.random())) for t in range(3000)]
    log = log_of(rounds, 6)
    gram, moment = np.diag(rng.integers(50, 500, 6).astype(float)), 100 * rng.random(6)
    for many in (1.0, 1e5):  # with many the linear bound is the narrower one
        sums = many * gram, many * moment
        ours = ffx.exposure(log, merit=merit, sums=sums)
        assert_same(ours, ffx.exposure(as_units(log, 6), merit=merit, sums=sums))
    with pytest.raises(InvalidInput, match="sums must have the dimension"):
        ffx.exposure(log, merit=merit, sums=(gram[:4, :4], moment[:4]))
    with pytest.raises(InvalidInput, match="sums must have the dimension"):
        ffx.exposure(as_units(log, 6), merit=merit, sums=(gram[:4, :4], moment[:4]))


def test_what_is_no_place_is_refused() -> None:
    for contexts in ([-1, 0], [0.5, 1.0], [0], [[0], [1, 2]], ["a", "b"]):
        with pytest.raises(InvalidInput, match="contexts must"):
            ffx.exposure([Logged([0.5, 0.5], 0, contexts, reward=1.0)])
    with pytest.raises(InvalidInput, match="for all decisions or for none"):
        ffx.exposure([Logged([0.5, 0.5], 0, [0, 1]), Logged([0.5, 0.5], 0, np.eye(2))])
    with pytest.raises(InvalidInput, match="for all decisions or for none"):
        ffx.exposure([Logged([0.5, 0.5], 0, [0, 1]), Logged([1.0], 0, [[0.0, 1.0]])])
