"""A second run after the first: the messages add up, the noise is what is said, the costs add."""

from __future__ import annotations

import math
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from fedfairx.audit.subject import ZeroNoise
from fedfairx.core.statistics import diagonal_entries, pack
from fedfairx.errors import AlreadyObserved, BudgetExhausted, InvalidInput, LedgerMismatch
from fedfairx.privacy import (
    Bounds,
    Centring,
    ContinuedPrivatizer,
    MemoryPersons,
    Release,
    SimulatedNoise,
    StreamPrivatizer,
    carry_over,
    private,
    refuse_old_copy,
)
from stored_ledger import stored_ledger

X = np.array([0.6, 0.8])


def _private(
    seed: int, epsilon: float = 2.0, releases: int = 3, dimension: int = 2, **more: Any
) -> StreamPrivatizer:
    given = {"noise": SimulatedNoise(seed), "decide_from": "released"} | more
    made: Any = private(dimension, epsilon=epsilon, releases=releases, **given)
    return made


def _silent(**more: Any) -> StreamPrivatizer:
    return _private(0, noise=ZeroNoise(), **more)


def _trace(release: Release) -> float:
    return float(release.packed[0] + release.packed[2])


def test_messages_go_on_and_add_up() -> None:
    x = np.array([0.6, 0.8])
    one = pack(np.outer(x, x), x)
    before = _private(0, epsilon=1e6)
    for _ in range(3):
        before.add(x, 1.0)
        last = before.release()
    both = ContinuedPrivatizer(_private(1, epsilon=1e6), before=before)
    assert both.dimension == 2
    assert both.release(3) == last
    both.add(x, 1.0, "r")
    release = both.release()
    assert (release.number, release.count, release.mechanism) == (4, 4, both.mechanism.digest())
    assert release.packed == pytest.approx(4 * one, abs=0.1)
    assert both.release(4) == release
    both.release()
    both.release()
    with pytest.raises(BudgetExhausted):
        both.release()


@pytest.mark.long
def test_the_stated_noise_is_that_of_the_sum() -> None:
    """900 entries: an empirical sd is within 10 % but for a chance of 3e-5 (seeds fixed)."""
    found = []
    for seed in range(20):
        before = _private(2 * seed, dimension=9)
        before.release()
        both = ContinuedPrivatizer(_private(2 * seed + 1, dimension=9), before=before)
        both.release()
        packed = both.release().packed
        found.append(np.delete(packed, diagonal_entries(9)))  # off the diagonal: the stated sd itself
    assert np.size(found) == 900
    assert both.mechanism.sd(3) == pytest.approx(np.std(found), rel=0.1)
    first, second = both.mechanism.before, both.mechanism.after
    assert both.mechanism.sd([1, 2]).tolist() == [first.sd(1), math.hypot(first.sd(1), second.sd(1))]


def test_the_costs_add_as_squares() -> None:
    before = _private(0, epsilon=2.0)
    before.release()
    both = ContinuedPrivatizer(_private(1, epsilon=1.0, releases=5), before=before)
    mu = math.hypot(before.mechanism.mu, both.inner.guarantee.mu)
    assert both.mechanism.mu == both.guarantee.mu == pytest.approx(mu)
    assert (both.mechanism.releases, both.guarantee.releases, both.guarantee.spent) == (6, 6, 1)
    assert "All 6 messages together" in str(both.guarantee)
    assert both.mechanism.digest() != both.inner.mechanism.digest()
    assert both.mechanism.name == "blt"
    assert both.owner is None


def test_a_new_run_has_the_same_dimension() -> None:
    before = _private(0)
    before.release()
    with pytest.raises(InvalidInput, match="inner must have dimension 2"):
        ContinuedPrivatizer(_private(1, dimension=3), before=before)


@pytest.mark.parametrize(
    ("other", "message"),
    [
        ({"bounds": Bounds(adjacency="add-remove")}, "adjacency must be that of the run before, 'replace'"),
        ({"centring": Centring.unit_box(2)}, "centred must be that of the run before, False"),
    ],
)
def test_a_new_run_has_the_same_neighbours(other: dict[str, Any], message: str) -> None:
    before = _private(0)
    before.release()
    with pytest.raises(InvalidInput, match=message):
        ContinuedPrivatizer(_private(1, **other), before=before)


@pytest.mark.parametrize(("first", "second", "both"), [(2, 3, 3), (None, 3, None), (2, None, None)])
def test_a_person_is_spoken_of_where_both_runs_bound_its_records(
    first: int | None, second: int | None, both: int | None
) -> None:
    runs: list[Any] = [
        _private(0, person_records=first),
        _private(1, bounds=Bounds(reward=0.5), person_records=second),
    ]
    runs[0].release()
    guarantee = ContinuedPrivatizer(runs[1], before=runs[0]).guarantee
    assert guarantee.person_records == both
    assert ("records enter in each of 2 runs" in str(guarantee)) == (both is not None)
    assert guarantee.reward == 1.0  # the wider of both
    if both is not None:
        costs = [run.guarantee.person_mu for run in runs]
        assert guarantee.person_mu >= math.hypot(*costs)


def test_an_old_number_is_given_again_and_a_future_one_refused_in_its_own_terms() -> None:
    before = _private(0)
    first, last = before.release(), before.release()
    both = ContinuedPrivatizer(_private(1), before=before)
    following = both.release()
    assert [both.release(number) for number in (1, 2, 3)] == [first, last, following]
    for wrong in (0, 5):
        with pytest.raises(InvalidInput, match=f"number must be in 1..4, got number={wrong}"):
            both.release(wrong)


def test_it_counts_what_was_clipped_and_what_waits() -> None:
    before = _private(0)
    before.add(X, 9.0)
    before.release()
    both = ContinuedPrivatizer(_private(1), before=before)
    both.add(X, 9.0)
    both.add(X, 0.5)
    assert (both.clipped, both.waiting, both.spent) == (2, 2, 1)


def test_peers_are_asked_in_the_numbers_of_both_runs() -> None:
    before = _private(0)
    before.release()
    both = ContinuedPrivatizer(_private(1), before=before)

    def opened(*held: Release) -> None:
        ContinuedPrivatizer(both.inner, before=before, confirm=refuse_old_copy(held))

    opened(before.release(1))
    second = both.release()
    opened(before.release(1), second)
    with pytest.raises(LedgerMismatch, match="ends at release 2, and peers hold release 3"):
        opened(Release(3, second.packed, second.count, second.mechanism))
    with pytest.raises(LedgerMismatch, match="peers hold release 2 with other content"):
        opened(Release(2, second.packed + 1.0, second.count, second.mechanism))


# --- the records in between --------------------------------------------------------------------------------


def test_records_in_no_message_enter_the_new_run_once(tmp_path: Path) -> None:
    """Of a durable ledger too: the old one, opened again, doesn't have them any more."""
    with stored_ledger(tmp_path / "old") as ledger:
        before = _silent(ledger=ledger)
        before.add(X, 1.0, "in a release")
        before.release()
        for record in ("first", "second", None):
            before.add(X, 1.0, record)
        after = _silent()
        after.add(X, 1.0)
        assert carry_over(before, after)
        records = ("in a release", "first", "second")
        assert [before.ledger.leaf_of(record) for record in records] == [1, None, None]
        assert [after.ledger.leaf_of(record) for record in records] == [None, 1, 1]
        with pytest.raises(AlreadyObserved):
            after.add(X, 1.0, "first")
        assert (before.waiting, after.waiting) == (0, 4)
        assert carry_over(before, after)
        assert after.waiting == 4
        release = ContinuedPrivatizer(after, before=before).release()
        assert (release.count, _trace(release)) == (5, pytest.approx(5.0, abs=1e-4))
    with stored_ledger(tmp_path / "old") as ledger:
        assert _trace(_silent(ledger=ledger).release()) == pytest.approx(1.0, abs=1e-4)


def test_an_interruption_loses_records_and_never_doubles_them() -> None:
    before, after = _silent(), _silent()
    before.add(X, 1.0)

    def full(*_: object) -> None:
        raise OSError("no space left")

    after.ledger.take_leaf = full  # type: ignore[method-assign]
    with pytest.raises(OSError, match="no space"):
        carry_over(before, after)
    assert (before.waiting, after.waiting) == (0, 0)


def test_a_release_that_was_begun_is_in_the_messages() -> None:
    before = _silent()
    before.release()
    before.add(X, 1.0)
    record, before.ledger.record = before.ledger.record, None  # type: ignore[method-assign,assignment]
    with pytest.raises(TypeError):
        before.release()
    before.ledger.record = record  # type: ignore[method-assign]
    before.add(X, 1.0)
    both = ContinuedPrivatizer(_silent(), before=before)
    assert (both.spent, both.release(2).count, both.guarantee.spent) == (2, 1, 2)


def test_records_stay_where_the_new_run_clips_otherwise_or_persons_are_counted() -> None:
    for after in (
        _silent(bounds=Bounds(reward=0.5)),
        _silent(centring=Centring.unit_box(2)),
        _silent(person_records=1),
    ):
        before = _silent()
        before.add(X, 1.0)
        assert not carry_over(before, after)
        assert before.waiting == 1
    with pytest.raises(InvalidInput, match="must have a separate ledger"):
        carry_over(before, before)


# --- persons -----------------------------------------------------------------------------------------------


def test_a_bound_of_the_new_run_can_count_the_records_of_the_run_before() -> None:
    box = Centring.unit_box(2)
    persons = MemoryPersons()
    before = _silent(centring=box, person_records=1, persons=persons)
    before.add(np.array([0.1, 0.6]), 0.9, person=7)
    before.release()
    after = _silent(centring=box, person_records=1, persons=persons)
    both = ContinuedPrivatizer(after, before=before)
    for _ in range(2):
        both.add(np.array([0.1, 0.6]), 0.9, person=7)
    point, _ = box.blank
    expected = np.outer([0.1, 0.6], [0.1, 0.6]) + 2 * np.outer(point, point)
    assert both.release().packed[:3] == pytest.approx(expected[np.triu_indices(2)], abs=1e-3)
    assert after.dropped == 2
