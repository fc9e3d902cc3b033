"""The agent's side: what a release holds, what is refused, and what goes on after a save."""

from __future__ import annotations

import math
from dataclasses import replace
from pathlib import Path

import numpy as np
import pytest

from fedfairx.core.statistics import pack
from fedfairx.errors import (
    AlreadyObserved,
    BudgetExhausted,
    FedFairXError,
    InvalidInput,
    LedgerMismatch,
    PrivacyError,
    ReplacementRefused,
)
from fedfairx.privacy.bounds import Bounds, Unbounded
from fedfairx.privacy.ledger.ledger import MemoryLedger
from fedfairx.privacy.mechanisms.gaussian import mechanisms
from fedfairx.privacy.mechanisms.noise import KeyedNoise, SimulatedNoise
from fedfairx.privacy.privatizers.stream import StreamPrivatizer
from fedfairx.privacy.release import leaf_digest
from fedfairx.storage.open_log import open_log
from fedfairx.storage.privacy_ledger import StoredLedger
from stored_ledger import stored_ledger
from streams import KEY, configured, feed


@pytest.mark.parametrize("name", mechanisms())
@pytest.mark.parametrize(
    "bounds", [Bounds(), Bounds(nonnegative=True, gram_share=0.5), Bounds(context_norm=0.5)]
)
def test_a_release_is_the_clipped_total_plus_the_mechanisms_noise(name: str, bounds: Bounds) -> None:
    configuration = configured(name=name, bounds=bounds)
    privatizer = StreamPrivatizer(3, **configuration)
    stream = configuration["mechanism"].stream(
        lambda number, count: configuration["noise"](number, count, privatizer.ledger.place(number)),
        entry_scale=bounds.entry_scale(3),
    )
    generator = np.random.default_rng(4)
    total, count, clipped = np.zeros(9), 0, 0
    for number in range(1, 41):
        for _ in range(number % 4):
            x, y = generator.normal(size=3), float(generator.normal())
            privatizer.add(x, y)
            x, y, moved = bounds.clip(x, y)
            total += pack(np.outer(x, x), x * y)
            count, clipped = count + 1, clipped + moved
        release = privatizer.release()
        assert (release.number, release.count) == (number, count)
        step = configuration["mechanism"].base_sd * 2.0**-18
        np.testing.assert_allclose(release.packed, total + stream.next(), atol=step)
    assert privatizer.clipped == clipped > 0
    assert privatizer.spent == 40


@pytest.mark.parametrize("bounds", [Bounds(), Bounds(nonnegative=True), Bounds(context_norm=0.5, reward=0.3)])
def test_an_amended_record_is_as_if_it_had_had_the_other_reward(bounds: Bounds) -> None:
    amended, right = (StreamPrivatizer(3, **configured(bounds=bounds)) for _ in range(2))
    generator = np.random.default_rng(4)
    for number in range(20):
        x, old, new = generator.normal(size=3), *generator.normal(size=2)
        amended.add(x, float(old), number)
        amended.amend(x, float(old), float(new), number)
        right.add(x, float(new), number)
    ours, theirs = amended._position, right._position
    assert ours.leaf == pytest.approx(theirs.leaf, abs=1e-14)
    assert (ours.leaf[:-3] == theirs.leaf[:-3]).all()
    assert (ours.leaf_count, ours.clipped) == (theirs.leaf_count, theirs.clipped)
    assert ours.clipped > 0


@pytest.mark.parametrize("bounds", [Bounds(), Bounds(nonnegative=True), Bounds(context_norm=0.5, reward=0.3)])
def test_a_blanked_record_is_as_if_it_had_been_blank(bounds: Bounds) -> None:
    blanked, right = (StreamPrivatizer(3, **configured(bounds=bounds)) for _ in range(2))
    generator = np.random.default_rng(4)
    for number in range(20):
        x, y = generator.normal(size=3), float(generator.normal())
        blanked.add(x, y, number)
        right.add(*((x, y) if number % 3 else (np.zeros(3), 0.0)), number)
        if number % 3 == 0:
            assert blanked.blank(x, y, number)
    ours, theirs = blanked._position, right._position
    assert ours.leaf == pytest.approx(theirs.leaf, abs=1e-12)
    assert (ours.leaf_count, ours.clipped) == (theirs.leaf_count, theirs.clipped)
    blanked.release()
    before = blanked._position
    assert not blanked.blank(x, y, 19)  # its leaf is frozen
    assert blanked._position == before


def test_a_record_of_a_frozen_leaf_is_amended_no_more(tmp_path: Path) -> None:
    x = np.array([0.1, 0.2, 0.3])
    log = open_log(tmp_path / "a.db")
    for ledger in (MemoryLedger(), StoredLedger(log, 1, 1)):
        privatizer = StreamPrivatizer(3, **configured(), ledger=ledger)
        privatizer.add(x, 0.5, "old")
        privatizer.release()
        privatizer.add(x, 0.5, "new")
        before = privatizer._position.leaf.copy()
        for record in ("old", "nobody's"):
            with pytest.raises(ReplacementRefused, match="not in the open leaf"):
                privatizer.amend(x, 0.5, 0.25, record)
        assert (privatizer._position.leaf == before).all()
        privatizer.amend(x, 0.5, 0.25, "new")
        assert privatizer._position.leaf[-3:] == pytest.approx(0.25 * x)
        with pytest.raises(AlreadyObserved):
            privatizer.add(x, 0.5, "new")
    log.close()


def test_releases_lie_on_a_grid_far_below_the_noise() -> None:
    configuration = configured()
    privatizer = StreamPrivatizer(3, **configuration)
    privatizer.add(np.array([0.1, 0.2, 0.3]), 0.123456789)
    step = 2.0 ** (math.frexp(configuration["mechanism"].base_sd)[1] - 20)
    steps = privatizer.release().packed / step
    assert np.array_equal(steps, np.rint(steps))
    assert step <= 2e-6 * configuration["mechanism"].base_sd


def test_a_record_enters_exactly_one_leaf() -> None:
    """With the noise taken off, the increments of the releases are the leaves."""
    configuration = configured(name="tree")
    privatizer = StreamPrivatizer(2, **configuration)
    totals = []
    for number in range(1, 6):
        if number == 3:
            privatizer.add(np.array([0.6, 0.8]), 1.0)
            assert privatizer.waiting == 1
        privatizer.release()
        assert privatizer.waiting == 0
        totals.append(privatizer._position.total)
    increments = np.diff(totals, axis=0, prepend=np.zeros((1, 5)))
    assert np.count_nonzero(increments.any(axis=1)) == 1
    np.testing.assert_allclose(increments[2], pack(np.outer([0.6, 0.8], [0.6, 0.8]), np.array([0.6, 0.8])))


def test_a_record_id_given_twice_is_refused_and_changes_nothing() -> None:
    privatizer = StreamPrivatizer(2, **configured())
    privatizer.add(np.array([0.1, 0.2]), 0.5, record="visit-17")
    privatizer.release()
    before = privatizer._position
    with pytest.raises(AlreadyObserved) as caught:
        privatizer.add(np.array([0.1, 0.2]), 0.5, record="visit-17")
    assert privatizer._position is before
    assert "leaf 1" in str(caught.value)
    assert "visit-17" not in str(caught.value)


def test_one_release_too_many_is_refused_and_the_leaf_stays_open() -> None:
    privatizer = StreamPrivatizer(2, **configured(releases=3))
    feed(privatizer, 0, 3)
    privatizer.add(np.array([0.1, 0.2]), 0.5)
    with pytest.raises(BudgetExhausted, match="all 3 releases"):
        privatizer.release()
    assert privatizer.waiting == 1
    assert privatizer.guarantee.remaining == 0
    assert privatizer.release(3).number == 3


def test_a_number_has_one_content() -> None:
    privatizer = StreamPrivatizer(2, **configured())
    messages = feed(privatizer, 0, 5)
    privatizer.add(np.ones(2), 1.0)
    assert [privatizer.release(number).to_bytes() for number in range(1, 6)] == messages
    assert privatizer.waiting == 1
    assert privatizer.release(6).number == 6
    for number in (0, 9):
        with pytest.raises(InvalidInput, match=r"number must be in 1\.\.7"):
            privatizer.release(number)


def test_a_smaller_sensitivity_than_the_bounds_is_refused() -> None:
    configuration = configured()
    with pytest.raises(InvalidInput, match="sensitivity must be at least that of the bounds"):
        StreamPrivatizer(2, **(configuration | {"bounds": Bounds(context_norm=2.0)}))
    StreamPrivatizer(2, **(configuration | {"bounds": Bounds(context_norm=0.5)}))


def test_a_ledger_of_another_configuration_is_refused() -> None:
    configuration, ledger = configured(), MemoryLedger()
    StreamPrivatizer(3, ledger=ledger, **configuration)
    others = (
        {"noise": KeyedNoise(bytes(32), agent="a", run="r")},
        {"noise": KeyedNoise(KEY, agent="b", run="r")},
        {"mechanism": configured(releases=41)["mechanism"]},
        {"mechanism": replace(configuration["mechanism"], base_sd=0.01 * configuration["mechanism"].base_sd)},
        {"bounds": Bounds(reward=0.5)},
        {"decide_from": "released+local"},
        {"public_schedule": False},
    )
    for other in others:
        with pytest.raises(LedgerMismatch, match="differ"):
            StreamPrivatizer(3, ledger=ledger, **(configuration | other))


@pytest.mark.parametrize("name", mechanisms())
def test_a_durable_ledger_goes_on_with_the_same_bits(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, name: str
) -> None:
    monkeypatch.setattr("fedfairx.storage.privacy_ledger.secrets.token_bytes", bytes)
    configuration = configured(name=name)
    oracle = StreamPrivatizer(3, ledger=MemoryLedger(random=bytes), **configuration)
    expected = feed(oracle, 5, 30)
    with stored_ledger(tmp_path / "ledger") as ledger:
        found = feed(StreamPrivatizer(3, ledger=ledger, **configuration), 5, 30)
    assert found == expected
    with stored_ledger(tmp_path / "ledger") as ledger:
        again = StreamPrivatizer(3, ledger=ledger, **configuration)
        assert [again.release(k).to_bytes() for k in range(1, 31)] == expected
        assert feed(again, 6, 10) == feed(oracle, 6, 10)


def test_a_failed_record_is_finished_by_the_next_call() -> None:
    class Full(MemoryLedger):
        full = False

        def record(self, number: int, message: bytes) -> None:
            if self.full:
                raise OSError("no space left on device")
            super().record(number, message)

    configuration = configured()
    ledger = Full(random=bytes)
    privatizer = StreamPrivatizer(3, ledger=ledger, **configuration)
    expected = feed(StreamPrivatizer(3, ledger=MemoryLedger(random=bytes), **configuration), 3, 2)
    generator = np.random.default_rng(3)
    for _ in range(generator.integers(0, 4)):
        privatizer.add(generator.normal(size=3), generator.normal())
    ledger.full = True
    with pytest.raises(OSError, match="no space"):
        privatizer.release()
    assert privatizer.spent == 0
    ledger.full = False
    assert privatizer.release(1).to_bytes() == expected[0]
    assert privatizer.spent == 1


def test_a_ledger_that_contradicts_itself_is_refused() -> None:
    configuration, ledger = configured(), MemoryLedger()
    privatizer = StreamPrivatizer(3, ledger=ledger, **configuration)
    feed(privatizer, 0, 3)
    ledger.restore(replace(privatizer._position, frozen=7))
    with pytest.raises(PrivacyError, match="contradict"):
        StreamPrivatizer(3, ledger=ledger, **configuration)


def test_the_leaf_digest_is_of_the_exact_leaf() -> None:
    seen = {}

    class Watching(MemoryLedger):
        def freeze(self, number, digest, position):
            seen[number] = digest
            super().freeze(number, digest, position)

    privatizer = StreamPrivatizer(2, ledger=Watching(), **configured())
    privatizer.add(np.array([0.6, 0.8]), 0.5)
    privatizer.release()
    x = np.array([0.6, 0.8])
    assert seen == {1: leaf_digest(pack(np.outer(x, x), x * 0.5))}


def test_the_guarantee_follows_theconfigured() -> None:
    configuration = configured()
    privatizer = StreamPrivatizer(2, **configuration)
    assert privatizer.guarantee.is_private
    assert privatizer.guarantee.decide_from == "own+released"
    assert "narrower" in str(privatizer.guarantee)
    strict = StreamPrivatizer(2, **configuration, decide_from="released")
    assert "narrower" not in str(strict.guarantee)
    trigger = StreamPrivatizer(2, **configuration, public_schedule=False)
    assert str(trigger.guarantee) == "NOT PRIVATE: when it releases depends on data."
    free = StreamPrivatizer(2, **(configuration | {"bounds": Unbounded()}))
    assert str(free.guarantee) == "NOT PRIVATE: records are not bounded."
    simulated = StreamPrivatizer(2, **(configuration | {"noise": SimulatedNoise(0)}))
    assert simulated.guarantee.simulated
    assert not simulated.guarantee.is_private
    assert privatizer.guarantee.spent == 0
    privatizer.release()
    assert privatizer.guarantee.spent == 1


def test_no_error_shows_a_context_or_a_reward() -> None:
    """Whatever is wrong with a record, the text names shapes only; odd numbers are clipped, not refused."""
    privatizer = StreamPrivatizer(2, **configured())
    for context in (np.full(3, 0.123456), np.full((1, 2), 0.123456), np.float64(0.123456)):
        with pytest.raises(FedFairXError) as caught:
            privatizer.add(context, 0.654321)
        assert "0.123456" not in str(caught.value)
        assert "0.654321" not in str(caught.value)
    privatizer.add(np.array([np.nan, np.inf]), -np.inf)
    assert np.isfinite(privatizer.release().packed).all()
    assert privatizer.clipped == 1


def test_checkpoints_come_in_order() -> None:
    steps: list[str] = []
    privatizer = StreamPrivatizer(2, checkpoint=steps.append, **configured())
    privatizer.release()
    assert steps == ["frozen", "recorded"]


def test_a_release_at_dimension_50_takes_under_5_ms() -> None:
    import time

    privatizer = StreamPrivatizer(50, **configured(releases=20_000))
    times = []
    for _ in range(30):
        privatizer.add(np.full(50, 0.1), 0.5)
        began = time.perf_counter()
        privatizer.release()
        times.append(time.perf_counter() - began)
    assert sorted(times)[15] < 0.005
