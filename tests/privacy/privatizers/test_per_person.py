"""At most k records of a person enter, also after a crash, and the guarantee says what that is worth."""

from __future__ import annotations

from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import numpy as np
import pytest

import fedfairx as ffx
from fedfairx.audit.subject import ZeroNoise
from fedfairx.errors import (
    AlreadyObserved,
    InvalidInput,
    LedgerMismatch,
    ReplacementRefused,
)
from fedfairx.privacy import (
    Bounds,
    Centring,
    MemoryPersons,
    SimulatedNoise,
    StreamPrivatizer,
    epsilon_for,
    mu_for,
    private,
)
from fedfairx.storage.open_log import open_log
from fedfairx.storage.privacy_ledger import StoredPersons
from stored_ledger import stored_ledger

BUDGET = {"epsilon": 2.0, "delta": 1e-6, "releases": 4}
X = np.array([0.6, 0.8])


def bound(records: int | None = 2, **other) -> StreamPrivatizer:
    given = {"noise": ZeroNoise(), "person_records": records} | BUDGET | other
    return private(2, **given)


def entered(privatizer: StreamPrivatizer) -> float:
    """How many records of context `X` are in the sums: the trace of the Gram matrix without noise."""
    packed = privatizer.release().packed
    return float(packed[0] + packed[2])


def test_of_one_person_no_more_than_k_records_enter_and_all_count() -> None:
    privatizer = bound(records=2)
    for person in ("ann", "ann", "ann", "bob", "ann"):
        privatizer.add(X, 0.5, person=person)
    assert entered(privatizer) == pytest.approx(3.0, abs=1e-4)
    privatizer.add(X, 0.5, person="ann")  # in another leaf too
    release = privatizer.release()
    assert release.packed[0] + release.packed[2] == pytest.approx(3.0, abs=1e-4)
    assert release.count == 6
    assert privatizer.dropped == 3


def test_a_record_beyond_the_limit_stays_blank_when_it_is_amended(tmp_path: Path) -> None:
    log = open_log(tmp_path / "a.db")
    for persons in (MemoryPersons(), StoredPersons(log, 1, 1)):
        privatizer = bound(records=2, persons=persons)
        for record in range(3):
            privatizer.add(X, 0.5, record, person="ann")
        privatizer.add(X, 0.5, 3, person="bob")
        assert (persons.of("ann"), persons.of("bob"), persons.of("cid")) == (3, 1, 0)
        privatizer.amend(X, 0.5, 1.0, 2, person="ann", turn=(3, 3))
        privatizer.amend(X, 0.5, 0.25, 1, person="ann", turn=(2, 3))
        privatizer.amend(X, 0.5, 0.0, 3, person="bob", turn=(1, 1))
        with pytest.raises(ReplacementRefused, match="which of them have entered is not kept") as caught:
            privatizer.amend(X, 0.5, 1.0, 0, person="ann", turn=(1, 2))
        assert "ann" not in str(caught.value)
        assert privatizer.blank(X, 1.0, 2, person="ann", turn=(3, 3))  # it is blank already
        assert not privatizer.blank(X, 0.5, 0, person="ann", turn=(1, 2))
        assert privatizer.release().packed[-2:] == pytest.approx(0.75 * X, abs=1e-4)
    log.close()


def test_changing_all_records_of_a_person_changes_no_more_than_k_sensitivities() -> None:
    """The norm of the change over all leaves, of which the cost is at most kμ, however many records came."""
    bounds = Bounds()
    worlds = []
    for sign in (1.0, -1.0):
        privatizer = bound(records=3)
        leaves = []
        for _ in range(4):
            for _ in range(5):
                privatizer.add(sign * np.array([1.0, 0.0]), 1.0, person="ann")
                privatizer.add(X, 0.3, person="bob")
            leaves.append(privatizer.release().packed)
        worlds.append(np.diff(leaves, axis=0, prepend=0.0) / bounds.entry_scale(2))
    change = np.linalg.norm(worlds[0] - worlds[1], axis=1).sum()
    assert change == pytest.approx(3 * bounds.sensitivity, rel=1e-3)


def test_a_dropped_record_lies_at_the_public_point_of_a_centring() -> None:
    box = Centring.unit_box(2)
    privatizer = bound(records=1, centring=box)
    for _ in range(3):
        privatizer.add(np.array([0.1, 0.6]), 0.9, person=7)
    point, level = box.blank
    expected = np.outer([0.1, 0.6], [0.1, 0.6]) + 2 * np.outer(point, point)
    packed = privatizer.release().packed
    assert packed[:3] == pytest.approx(expected[np.triu_indices(2)], abs=1e-4)
    assert packed[3:] == pytest.approx(np.array([0.1, 0.6]) * 0.9 + 2 * point * level, abs=1e-4)


def test_the_guarantee_speaks_of_a_person() -> None:
    guarantee = bound(records=5).guarantee
    mu = 5 * mu_for(2.0, 1e-6)
    assert guarantee.person_mu == pytest.approx(mu)
    assert guarantee.person_epsilon == pytest.approx(epsilon_for(1e-6, mu))
    assert "For a person, of whom at most 5 records enter" in str(guarantee)
    assert guarantee.to_dict()["person"]["records"] == 5
    assert "person" not in str(bound(records=None).guarantee)
    assert bound(records=None).guarantee.to_dict()["person"] is None


def test_a_record_without_a_person_is_refused() -> None:
    privatizer = bound()
    with pytest.raises(InvalidInput, match="person must be given"):
        privatizer.add(X, 0.5)
    assert entered(privatizer) == pytest.approx(0.0, abs=1e-4)


def test_what_was_refused_is_not_counted() -> None:
    privatizer = bound(records=2)
    privatizer.add(X, 0.5, "r1", person="ann")
    with pytest.raises(AlreadyObserved) as refused:
        privatizer.add(X, 0.5, "r1", person="ann")
    assert "ann" not in str(refused.value)
    with pytest.raises(InvalidInput, match="context shape"):
        privatizer.add(np.ones(3), 0.5, "r2", person="ann")
    privatizer.add(X, 0.5, "r3", person="ann")
    assert (privatizer.dropped, entered(privatizer)) == (0, pytest.approx(2.0, abs=1e-4))
    assert "ann" not in repr(privatizer) + repr(privatizer.persons)


@contextmanager
def stored(path: Path, records: int = 2) -> Iterator[StreamPrivatizer]:
    given = {"noise": SimulatedNoise(0), "person_records": records} | BUDGET
    with stored_ledger(path) as ledger:
        yield private(2, ledger=ledger, persons=StoredPersons(ledger._log, 1, 1), **given)


def test_a_database_goes_on_counting(tmp_path: Path) -> None:
    for _ in range(2):
        with stored(tmp_path / "a.db") as privatizer:
            privatizer.add(X, 0.5, person="ann")
            privatizer.add(X, 0.5, person="ann")
    assert privatizer.dropped == 2  # both of the second process


def test_a_ledger_with_records_that_were_not_counted_is_refused(tmp_path: Path) -> None:
    """Records that came past the bound: k would be said of more."""
    with stored_ledger(tmp_path / "a.db") as ledger:
        private(2, noise=SimulatedNoise(0), ledger=ledger, **BUDGET).add(X, 0.5)
    with (
        pytest.raises(LedgerMismatch, match="records whose persons were not counted"),
        stored(tmp_path / "a.db"),
    ):
        pass


def test_a_durable_ledger_needs_durable_counts(tmp_path: Path) -> None:
    given = pytest.raises(InvalidInput, match="persons must be given with a durable ledger")
    with stored_ledger(tmp_path / "a.db") as ledger, given:
        bound(records=2, ledger=ledger)


def test_a_limit_below_one_or_another_one_is_refused() -> None:
    with pytest.raises(InvalidInput, match="person_records must be a whole number >= 1"):
        bound(records=0)
    persons = MemoryPersons()
    bound(records=2, persons=persons)
    with pytest.raises(LedgerMismatch, match="a run keeps its limit"):
        bound(records=1, persons=persons)


def test_an_agent_says_whose_record_it_is() -> None:
    agent = ffx.Agent(2, privatizer=bound(records=1, intercept=True), seed=0)
    for _ in range(3):
        decision = agent.decide([X, X])
        agent.observe(decision, reward=0.5, person="ann")
    decisions = agent.decide_many([[X, X], [X, X]])
    agent.observe_many(decisions, [0.5, 0.5], ["ann", "bob"])
    assert agent.privatizer.dropped == 3
    release = agent.release()
    assert (release.count, release.packed[0] + release.packed[3]) == (5, pytest.approx(2.0, abs=1e-4))


def test_an_agent_refuses_persons_that_nobody_counts_and_records_of_nobody() -> None:
    plain, bounded = ffx.Agent(2, seed=0), ffx.Agent(2, privatizer=bound(intercept=True), seed=0)
    decision = plain.decide([X, X])
    with pytest.raises(InvalidInput, match="person must be left out"):
        plain.observe(decision, reward=0.5, person="ann")
    plain.observe(decision, reward=0.5)
    decisions = bounded.decide_many([[X, X], [X, X]])
    for persons, message in (
        (None, "person must be given"),
        (["ann"], "persons must be as many as the 2 decisions"),
        (["ann", None], "persons must all be given"),
    ):
        with pytest.raises(InvalidInput, match=message) as refused:
            bounded.observe_many(decisions, [0.5, 0.5], persons)
        assert "ann" not in str(refused.value)
    assert bounded.pending == 2
