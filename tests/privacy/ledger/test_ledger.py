"""Both ledgers keep the same promises."""

from __future__ import annotations

import copy
import pickle
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

from fedfairx.errors import AlreadyObserved, LedgerMismatch, PrivacyError
from fedfairx.privacy.ledger.ledger import Ledger, MemoryLedger, Position
from fedfairx.storage.privacy_ledger import StoredLedger
from stored_ledger import stored_ledger

PARAMETERS = {"mechanism": "m", "bounds": {"context_norm": 1.0}, "dimension": 2}


def _position(frozen: int = 0, leaf: float = 0.0) -> Position:
    return Position(frozen, np.full(5, 0.1), 3, np.full(5, leaf), 1, 2)


@pytest.fixture(params=["memory", "stored"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    if request.param == "memory":
        yield MemoryLedger()
        return
    with stored_ledger(tmp_path / "ledger.sqlite") as opened:
        yield opened


@contextmanager
def _bound(path: Path) -> Iterator[StoredLedger]:
    with stored_ledger(path) as ledger:
        ledger.bind(PARAMETERS)
        yield ledger


def test_it_is_tied_to_its_first_parameters(ledger: Ledger) -> None:
    ledger.bind(PARAMETERS)
    ledger.bind(dict(PARAMETERS))
    with pytest.raises(LedgerMismatch, match="bounds, mechanism differ"):
        ledger.bind(PARAMETERS | {"mechanism": "n", "bounds": {"context_norm": 2.0}})


def test_a_record_enters_one_leaf_once(ledger: Ledger) -> None:
    ledger.bind(PARAMETERS)
    ledger.add("r1", _position())
    ledger.add(None, _position())
    ledger.add(None, _position())
    ledger.freeze(1, "digest", _position(1))
    ledger.add("r2", _position(1))
    with pytest.raises(AlreadyObserved, match="leaf 1"):
        ledger.add("r1", _position(1))
    with pytest.raises(AlreadyObserved, match="leaf 2"):
        ledger.add("r2", _position(1))


def test_a_number_has_one_content(ledger: Ledger) -> None:
    ledger.bind(PARAMETERS)
    ledger.freeze(1, "digest", _position(1))
    assert ledger.message(1) is None
    assert ledger.spent() == 0
    ledger.record(1, b"first")
    ledger.record(1, b"first")
    with pytest.raises(LedgerMismatch, match="release 1 is recorded with other content"):
        ledger.record(1, b"second")
    assert ledger.message(1) == b"first"
    assert ledger.spent() == 1
    with pytest.raises(LedgerMismatch, match="leaf"):
        ledger.freeze(1, "other", _position(1))


def test_what_is_not_sent_is_known(ledger: Ledger) -> None:
    ledger.bind(PARAMETERS)
    for number in (1, 2, 3):
        ledger.freeze(number, "digest", _position(number))
        ledger.record(number, b"m%d" % number)
    ledger.mark_sent(2)
    assert ledger.unsent() == (1, 3)
    ledger.mark_sent(2)
    ledger.mark_sent(1)
    ledger.mark_sent(3)
    assert ledger.unsent() == ()


def test_the_position_comes_back_bit_for_bit(tmp_path: Path) -> None:
    position = Position(0, np.array([0.1, 1 / 3]), 3, np.array([1e-300, -np.pi]), 1, 2)
    with _bound(tmp_path / "l") as ledger:
        assert ledger.position() is None
        ledger.add("r", position)
    with stored_ledger(tmp_path / "l") as ledger:
        back = ledger.position()
        assert back is not None
        assert (back.frozen, back.total_count, back.leaf_count, back.clipped) == (0, 3, 1, 2)
        assert back.total.tobytes() == position.total.tobytes()
        assert back.leaf.tobytes() == position.leaf.tobytes()
        assert (ledger.leaf_of("r"), ledger.leaf_of("s")) == (1, None)


def test_leaves_are_frozen_in_order_and_recorded_after(tmp_path: Path) -> None:
    with _bound(tmp_path / "l") as ledger:
        with pytest.raises(LedgerMismatch, match="leaf 1 is the next"):
            ledger.freeze(2, "digest", _position(2))
        with pytest.raises(LedgerMismatch, match="not frozen"):
            ledger.record(1, b"m")


def test_a_refused_record_leaves_the_position_as_it_was(tmp_path: Path) -> None:
    with _bound(tmp_path / "l") as ledger:
        ledger.add("r", _position(leaf=1.0))
        with pytest.raises(AlreadyObserved):
            ledger.add("r", _position(leaf=2.0))
        position = ledger.position()
        assert position is not None
        assert position.leaf.tolist() == [1.0] * 5


def test_printing_a_position_shows_no_sums() -> None:
    position = Position(1, np.full(2, 0.123456), 3, np.full(2, 0.654321), 1, 2)
    assert repr(position) == "Position(frozen=1, total_count=3, leaf_count=1, clipped=2)"


# --- places ------------------------------------------------------------------------------------------------


def test_no_two_leaves_have_the_same_place(tmp_path: Path) -> None:
    """Whatever is the same about them: parameters, number, content."""
    places = []
    for name in ("first", "second"):
        with _bound(tmp_path / name) as durable:
            for ledger in (durable, MemoryLedger()):
                ledger.bind(PARAMETERS)
                for number in (1, 2):
                    ledger.freeze(number, "digest", _position(number))
                    places.append(ledger.place(number))
                    assert ledger.place(number) == places[-1]
    assert len(set(places)) == len(places) == 8


def test_other_data_have_another_place_even_where_random_bytes_repeat() -> None:
    """As in a machine that was cloned with its entropy."""

    def places(*digests: str, parameters: dict[str, object] = PARAMETERS) -> list[bytes]:
        ledger = MemoryLedger(random=bytes)
        ledger.bind(parameters)
        for number, digest in enumerate(digests, 1):
            ledger.freeze(number, digest, _position(number))
        return [ledger.place(number) for number in range(1, len(digests) + 1)]

    first = places("a", "b", "c")
    assert places("a", "b", "c") == first
    rolled_back = places("a", "x", "c")
    assert rolled_back[0] == first[0]
    assert not {*rolled_back[1:]} & {*first}
    assert not {*places("a", "b", "c", parameters=PARAMETERS | {"mechanism": "n"})} & {*first}


def test_a_place_is_for_a_frozen_leaf_of_a_bound_ledger(ledger: Ledger) -> None:
    with pytest.raises(LedgerMismatch, match="must be bound"):
        ledger.freeze(1, "digest", _position(1))
    ledger.bind(PARAMETERS)
    for number in (0, 1, 2):
        with pytest.raises(PrivacyError, match=f"leaf {number} is not frozen"):
            ledger.place(number)


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_ledger_is_not_copied(ledger: Ledger, copied: Callable[[Ledger], object]) -> None:
    with pytest.raises(PrivacyError, match="can't be copied"):
        copied(ledger)
