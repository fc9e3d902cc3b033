"""Both ledgers keep the same promises; the SQLite one keeps them on disk and against other writers."""

from __future__ import annotations

import copy
import json
import pickle
import sqlite3
import stat
from collections.abc import Callable, Iterator
from pathlib import Path

import numpy as np
import pytest

from fedfairx.errors import AlreadyObserved, LedgerMismatch, PrivacyError
from fedfairx.privacy.ledger.ledger import Ledger, MemoryLedger, Position
from fedfairx.privacy.ledger.sqlite import SqliteLedger

PARAMETERS = {"mechanism": "m", "bounds": {"context_norm": 1.0}, "dimension": 2}


def _position(frozen: int = 0, leaf: float = 0.0) -> Position:
    return Position(frozen, np.full(5, 0.1), 3, np.full(5, leaf), 1, 2)


@pytest.fixture(params=["memory", "sqlite"])
def ledger(request: pytest.FixtureRequest, tmp_path: Path) -> Iterator[Ledger]:
    if request.param == "memory":
        yield MemoryLedger()
        return
    with SqliteLedger(tmp_path / "ledger.sqlite", create=True) as opened:
        yield opened


def _bound(path: Path) -> SqliteLedger:
    ledger = SqliteLedger(path, create=True)
    ledger.bind(PARAMETERS)
    return ledger


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


def test_memory_state_goes_through_json() -> None:
    ledger = MemoryLedger()
    ledger.bind(PARAMETERS)
    ledger.add("r1", _position())
    ledger.freeze(1, "digest", _position(1))
    ledger.record(1, b"first")
    again = MemoryLedger.from_state(json.loads(json.dumps(ledger.state())))
    assert again.state() == ledger.state()
    assert again.unsent() == (1,)
    again.mark_sent(1)
    assert MemoryLedger.from_state(again.state()).unsent() == ()
    with pytest.raises(AlreadyObserved):
        again.add("r1", _position(1))
    with pytest.raises(LedgerMismatch):
        again.record(1, b"other")
    assert MemoryLedger.from_state(MemoryLedger().state()).spent() == 0


def test_the_position_comes_back_bit_for_bit(tmp_path: Path) -> None:
    position = Position(0, np.array([0.1, 1 / 3]), 3, np.array([1e-300, -np.pi]), 1, 2)
    with _bound(tmp_path / "l") as ledger:
        assert ledger.position() is None
        ledger.add("r", position)
    with SqliteLedger(tmp_path / "l") as ledger:
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


@pytest.mark.parametrize(
    "statement",
    [
        "UPDATE releases SET message = x'00' WHERE number = 1",
        "UPDATE releases SET message = NULL WHERE number = 1",
        "UPDATE releases SET place = x'00'",
        "UPDATE releases SET number = 2",
        "UPDATE releases SET sent = 0",
        "DELETE FROM releases",
        "INSERT OR REPLACE INTO releases VALUES (1, x'00', x'00', 0)",
        "UPDATE records SET leaf = 2",
        "DELETE FROM records",
        "INSERT OR REPLACE INTO records VALUES ('r', 2)",
        "UPDATE parameters SET place = x'00'",
        "DELETE FROM parameters",
        "INSERT OR REPLACE INTO parameters VALUES (1, '{}', x'00')",
        "UPDATE position SET frozen = 0",
        "DELETE FROM position",
        "INSERT OR REPLACE INTO position VALUES (1, 0, x'00', 0, x'00', 0, 0)",
    ],
)
def test_releases_are_append_only_whoever_writes(tmp_path: Path, statement: str) -> None:
    with _bound(tmp_path / "l") as ledger:
        ledger.add("r", _position())
        ledger.freeze(1, "digest", _position(1))
        ledger.record(1, b"m")
        ledger.mark_sent(1)
    other = sqlite3.connect(tmp_path / "l")
    with pytest.raises(sqlite3.IntegrityError):
        other.execute(statement)
    other.close()


def test_only_one_has_it_open(tmp_path: Path) -> None:
    with SqliteLedger(tmp_path / "l", create=True), pytest.raises(LedgerMismatch, match="is locked"):
        SqliteLedger(tmp_path / "l")
    SqliteLedger(tmp_path / "l").close()


def test_the_file_is_its_owners(tmp_path: Path) -> None:
    with _bound(tmp_path / "l") as ledger:
        ledger.bind(PARAMETERS)
        for path in tmp_path.iterdir():
            assert stat.S_IMODE(path.stat().st_mode) == 0o600


def test_an_existing_file_becomes_its_owners(tmp_path: Path) -> None:
    _bound(tmp_path / "l").close()
    (tmp_path / "l").chmod(0o644)
    with SqliteLedger(tmp_path / "l"):
        assert stat.S_IMODE((tmp_path / "l").stat().st_mode) == 0o600


def test_a_ledger_that_is_gone_is_not_made_anew_by_accident(tmp_path: Path) -> None:
    path = tmp_path / "l"
    with pytest.raises(LedgerMismatch, match=r"there is no ledger .* create=True makes one"):
        SqliteLedger(path)
    assert not list(tmp_path.iterdir())
    path.touch()
    with pytest.raises(LedgerMismatch, match="is not a ledger"):
        SqliteLedger(path)
    _bound(path).close()
    _bound(path).close()  # create=True opens the one that is there


def test_a_second_name_of_the_file_is_the_same_file_or_refused(tmp_path: Path) -> None:
    (tmp_path / "link").symlink_to(tmp_path / "l")
    with _bound(tmp_path / "l"), pytest.raises(LedgerMismatch, match="is locked"):
        SqliteLedger(tmp_path / "link")
    (tmp_path / "hard").hardlink_to(tmp_path / "l")
    with pytest.raises(LedgerMismatch, match="has two names"):
        SqliteLedger(tmp_path / "hard")


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


def test_commits_are_synchronous(tmp_path: Path) -> None:
    with _bound(tmp_path / "l") as ledger:
        assert ledger._file.connection.execute("PRAGMA synchronous").fetchone() == (2,)  # FULL


def test_another_file_is_not_a_ledger(tmp_path: Path) -> None:
    path = tmp_path / "l"
    path.write_bytes(b"something else" * 100)
    with pytest.raises(LedgerMismatch, match="is not a ledger"):
        SqliteLedger(path)
