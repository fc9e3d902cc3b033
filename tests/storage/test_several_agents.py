"""Two agents in one database, on one log; and several shown actions of one decision."""

from __future__ import annotations

import math
from collections.abc import Iterator

import numpy as np
import pytest

from fedfairx.core.slates import ONE, Weights
from fedfairx.decision import REWARDED, Decision
from fedfairx.errors import KeyTaken, StateError
from fedfairx.steps import Aged, Decided, Ended, Released
from fedfairx.storage import DecisionNote, Journal, Log, open_database
from fedfairx.storage.agents import (
    add_agent,
    read_agents,
    read_feature_schema,
    store_feature_schema,
    update_settings,
)
from fedfairx.storage.journal import NOW
from fedfairx.storage.open_log import open_for_reading
from fedfairx.storage.queries import latest, number_at, records
from fedfairx.storage.replacement import replace, replaced_between, stored_reward
from fedfairx.storage.schema import create_tables
from fedfairx.storage.seen import SeenTables
from fedfairx.storage.verification import check_logs

X = np.array([[1.0, 0.0], [0.0, 1.0]])
VALUES = np.array([0.25, 0.75, 0.1, 0.2, 0.0, 1.0])  # policy, θ, chosen context


@pytest.fixture
def log(place: str) -> Iterator[Log]:
    database = open_database(place)
    create_tables(database)
    log = Log(database)
    yield log
    log.close()


@pytest.fixture
def two(log: Log) -> list[Journal]:
    with log.transaction:
        numbers = [add_agent(log, name, {"name": name}, None) for name in ("north", "south")]
    journals = [Journal(log, number) for number in numbers]
    for journal in journals:
        journal.begin_incarnation()
        journal.write_snapshot({"agent": journal.agent})
    return journals


def test_a_commit_concerns_the_agents_that_have_rows_in_it(log: Log, two: list[Journal]) -> None:
    after: list[int] = []
    for journal in two:
        log.committed[journal.agent] = lambda number=journal.agent: after.append(number)  # type: ignore[misc]
    north, south = two
    decide(north)
    assert after == [north.agent]
    with log.transaction:
        decide(north)
        decide(south)
        south.append(Aged())
        assert after == [north.agent]
    assert sorted(after) == [north.agent, north.agent, south.agent]
    with pytest.raises(ZeroDivisionError), log.transaction:
        decide(south)
        raise ZeroDivisionError
    with log.transaction:
        log.write("SELECT 1")
    assert len(after) == 3


def end(journal: Journal, number: int, rewards: dict[int, float | None], person: str | None = None) -> None:
    """Inside a transaction: outcomes of slots of a decision."""
    (decision,) = journal.waiting([number], before=NOW)
    decision.end(rewards, REWARDED)
    journal.append_outcomes(Ended(number, rewards, person=person), decision)


def decide(journal: Journal, note: DecisionNote | None = None, weights: Weights = ONE) -> int:
    number, shown = journal.log.numbers.next, [1, 0][: len(weights)]
    with journal.log.transaction as log:
        if note is not None and note.key is not None:
            journal.require_new(note.key)
        values = np.concatenate([VALUES, *[X[0]] * (len(weights) - 1)])
        origin = journal.prefixes.of(number)
        decision = Decision(number, shown, values, 2, weights, None, origin, log.time, 0.75)
        journal.append_decisions([Decided(decision, X, None, note)])
        log.numbers.next = number + 1
    return number


def test_steps_of_both_are_in_one_order_and_apart(two: list[Journal], log: Log, place: str) -> None:
    with log.transaction:
        made = [[decide(journal) for journal in two] for _ in range(3)]
    numbers = [number for each in made for number in each]
    assert numbers == list(range(6))
    north, south = two
    with log.transaction:
        end(north, made[0][0], {0: 0.5})
        end(south, made[0][1], {0: 0.25}, person="Ada")
        south.append(Released(1))
    assert len({journal.id_of(journal.agent) for journal in two}) == 2
    ids = {each.id for journal in two for each in journal.decisions()}
    assert len(ids) == 6
    for journal, place_ in ((north, 0), (south, 1)):
        mine = [each[place_] for each in made]
        assert [each.seq for each in journal.decisions()] == mine
        assert [each.seq for each in latest(journal, limit=2)] == mine[:0:-1]
        assert journal.counts() == {"pending": 2, "rewarded": 1, "withdrawn": 0, "expired": 0}
        assert journal.counted()[:2] == (3, {"rewarded": 1})
        assert number_at(journal, None) == mine[-1] + 1
        assert [each[2].tolist() for each in records(journal, 3, first=0, end=99)] == [[0.5], [0.25]][
            place_ : place_ + 1
        ]
        other = two[1 - place_]
        assert other.decision(journal.id_of(mine[0])) is None
        assert other.status_of(mine[0]) is None
        assert stored_reward(other, *journal.decided(mine[:1]), 0) is None
        with pytest.raises(StateError, match="are missing"):
            list(other.decided(mine))
    assert (north.end(), south.end()) == (7, 9)
    assert north.head() != south.head()
    with open_for_reading(place) as database:
        found = check_logs(database)
    assert [(each.agent, each.decisions, each.rewards, each.damage) for each in found] == [
        ("north", 3, 1, None),
        ("south", 3, 1, None),
    ]


def test_keys_are_each_ones_own(two: list[Journal]) -> None:
    north, south = two
    note = DecisionNote(key="order-1")
    first, second = decide(north, note), decide(south, note)
    with pytest.raises(KeyTaken):
        decide(north, note)
    with pytest.raises(KeyTaken), north.log.transaction:
        decide(south, DecisionNote(key="order-2"))
        decide(south, DecisionNote(key="order-2"))
    assert (north.by_key("order-1").seq, south.by_key("order-1").seq) == (first, second)


def test_snapshots_settings_and_what_is_remembered_are_apart(
    two: list[Journal], log: Log, place: str
) -> None:
    north, south = two
    for _ in range(3):
        decide(north)
        north.write_snapshot({"agent": "north"})
    assert [seq for seq, _ in south.snapshots()] == [0]
    assert len(list(north.snapshots())) == 4
    with log.transaction:
        update_settings(log, south.agent, {"name": "south", "more": 1})
    assert [row.settings.get("more") for row in read_agents(log)] == [None, 1]
    store_feature_schema(south, {"features": ["s"]})
    store_feature_schema(north, {"features": ["n"]})
    with log.transaction:
        SeenTables(north, "f").keep_roster((1, "a"))
    assert SeenTables(south, "f").roster() is None
    log.close()
    assert read_feature_schema(place, agent="north") == {"features": ["n"]}
    assert read_feature_schema(place, agent="south") == {"features": ["s"]}
    assert read_feature_schema(place, agent="west") is None


def test_replacing_for_one_leaves_the_other(two: list[Journal], log: Log) -> None:
    north, south = two
    made = [decide(north), decide(south)]
    with log.transaction:
        for journal, number in zip(two, made, strict=True):
            end(journal, number, {0: 0.5})
    for journal in two:
        journal.write_snapshot({})
    with log.transaction:
        replace(north, stored_reward(north, *north.decided(made[:1]), 0), 0.75)
    assert (replaced_between(north, 0, 99), replaced_between(south, 0, 99)) == (True, False)
    assert [next(journal.decisions()).reward for journal in two] == [0.75, 0.5]
    assert [len(list(journal.snapshots())) for journal in two] == [1, 2]
    for journal in two:
        assert list(journal.entries())


def test_each_slot_has_an_outcome_of_its_own(two: list[Journal], log: Log, place: str) -> None:
    """Tables and seals hold what ranked lists need: shown actions with weights, and a reward for each."""
    north, _ = two
    number = decide(north, weights=(1.0, 0.63))
    with log.transaction:
        end(north, number, {0: 0.5})
    kept = next(north.decisions())
    assert (kept.status, kept.reward) == ("pending", None)
    assert [(slot.action, slot.weight, slot.status, slot.reward) for slot in kept.slots] == [
        (1, 1.0, "rewarded", 0.5),
        (0, 0.63, "pending", None),
    ]
    with pytest.raises(StateError), log.transaction:
        end(north, number, {0: 0.25})
    with log.transaction:
        end(north, number, {1: None})
    kept = next(north.decisions())
    assert (kept.status, kept.reward) == ("rewarded", 0.5)
    assert log.database.execute("SELECT slot, status, reward FROM outcomes ORDER BY seq") == [
        (1, "rewarded", 0.5),
        (2, "withdrawn", None),
        (0, "rewarded", 0.5),
    ]
    steps = [entry.step for entry in north.entries() if isinstance(entry.step, Ended)]
    assert steps == [Ended(number, {0: 0.5}), Ended(number, {1: None}, "withdrawn"), Ended(number, {})]
    assert north.counts()["rewarded"] == 1
    with open_for_reading(place) as database:
        assert [each.damage for each in check_logs(database)] == [None, None]


def test_a_snapshot_with_what_is_not_a_number_or_too_large(two: list[Journal], log: Log) -> None:
    """These are written as `json` writes them, and numbers to the bit."""
    body = {"numbers": [0.1, 1e-7, -0.0, 1e300, 5e-324, 2**53 + 1], "text": "é"}
    for more in ({}, {"odd": [math.nan, math.inf, -math.inf]}, {"large": 2**70}, {"half": "\ud800"}):
        two[0].write_snapshot(body | more)
        state = two[0].snapshot(log.end)
        assert repr(state) == repr(body | more)
