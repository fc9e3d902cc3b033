"""The machine of secure aggregation: rounds, changes of epochs, crashes, backups, clones, wrong keys."""

from __future__ import annotations

import random
from dataclasses import replace
from pathlib import Path

import msgspec
import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfairx.federation.aggregation import machine
from fedfairx.federation.aggregation.machine import (
    PATIENCE,
    TRANSITIONS,
    Came,
    Keep,
    MakeRow,
    Phase,
    Publish,
    RosterTaken,
    RowMade,
    Store,
    Tick,
    step,
)
from fedfairx.federation.aggregation.messages import (
    Partial,
    Past,
    PastTotal,
    parse,
    past_place,
    row_and_share,
    sign,
    with_share,
)
from fedfairx.federation.aggregation.records import MemoryStore, Vault
from fedfairx.federation.aggregation.shares import as_integers, from_bytes
from fedfairx.federation.roster.signing_keys import new_signing_key
from machine_helpers import EVERY, FEDERATION, Actor, Crash, Hostile, World

NAMES = ("a", "b", "c", "d")


def running(names: tuple[str, ...] = NAMES) -> World:
    """All members are in epoch 1."""
    world = World(names).start()
    world.give(world.draft())
    world.turn()
    assert phases(world) == {Phase.RUNNING}
    return world


def phases(world: World) -> set[Phase]:
    return {actor.phase for actor in world.actors.values()}


def known(world: World) -> set[int]:
    return {actor.known for actor in world.actors.values()}


def learn(world: World, first: int) -> None:
    for number, actor in enumerate(world.actors.values()):
        actor.learn(first + number)


def total_of(actor: Actor) -> list[int]:
    part = actor.state.record.part
    assert part is not None
    assert part.total is not None
    values: list[int] = as_integers(from_bytes(part.total.values)).tolist()
    return values


# --- rounds -----------------------------------------------------------------------------------------------


@given(st.integers(3, 6), st.integers(0, 2), st.randoms(use_true_random=False))
def test_totals_are_the_sums_of_all_rows_in_any_order_of_arrival(
    members: int, more: int, rng: random.Random
) -> None:
    names = tuple("abcdef"[:members])
    openers = names[: 2 + min(more, members - 3)]
    world = World(names).start()
    world.give(world.draft(openers=openers))
    world.turn(times=6)
    records = {name: rng.randrange(1, 1000) for name in names}
    for name, record in records.items():
        world.actors[name].learn(record)
    world.now += EVERY
    for _ in range(60):
        actor = world.actors[rng.choice(names)]
        actor.receive({place: world.bus[place] for place in rng.sample([*world.bus], 3)})
        actor.tick()
    world.turn()
    assert known(world) == {1}
    for actor in world.actors.values():
        assert total_of(actor) == [sum(records.values()), members]
        assert not actor.refused


def test_a_row_is_stored_then_marked_in_the_vault_and_then_published() -> None:
    world = running()
    actor = world.actors["c"]
    world.now += EVERY
    state, effects = step(actor.state, Tick(actor.confirmed, frozenset(NAMES)), world.now)
    assert effects == [MakeRow(1)]
    made = RowMade(1, np.array([0, 0], dtype=np.int64), bytes(32), bytes(32))
    state, effects = step(state, made, world.now)
    assert [type(each) for each in effects] == [Store, Keep, Publish, Publish]
    record, vault = state.record, state.vault
    assert effects[0] == Store(record)
    assert effects[1] == Keep(vault)
    assert vault.mark == record.mark != b""
    assert [each.place for each in effects if isinstance(each, Publish)] == ["c.row.a", "c.row.b"]
    again, effects = step(state, made, world.now)
    assert (again.record, effects) == (record, [])  # a round has one row


def test_a_partial_is_stored_twice_before_it_is_published() -> None:
    world = running()
    world.now += EVERY
    world.turn("b", "c", "d")
    actor = world.actors["a"]
    actor.receive(world.bus)
    state, effects = step(actor.state, Tick(actor.confirmed, frozenset(NAMES)), world.now)
    made = RowMade(1, np.array([0, 0], dtype=np.int64), bytes(32), bytes(32))
    state, effects = step(state, made, world.now)
    kinds = [type(each) for each in effects]
    place = next(
        i for i, each in enumerate(effects) if isinstance(each, Publish) and each.place == "a.partial"
    )
    assert kinds[place - 2 : place] == [Store, Keep]
    assert state.record.part is not None
    assert state.record.part.opened == state.vault.opened


def test_members_see_no_rows_but_their_own_and_those_sent_to_them() -> None:
    world = running()
    world.round()
    assert {place for place in world.bus if ".row." in place} == {
        f"{name}.row.{opener}" for name in NAMES for opener in "ab"
    }
    shares = {place: world.bus[place] for place in world.bus if place.endswith(".row.a")}
    other = world.actors["b"]
    before = other.state
    other.feed(Came(shares))
    assert other.state.rows == before.rows  # another opener's shares are of no use


def test_a_row_is_made_only_while_all_members_give_signs_of_life() -> None:
    world = running()
    world.round(alive=("a", "b"))  # nobody hears c and d
    assert known(world) == {0}
    assert not world.sent
    world.turn()  # all do
    assert known(world) == {1}


def test_no_row_is_made_in_an_epoch_that_others_have_left() -> None:
    """They are alive. One that was removed does not know of the next epoch."""
    world = running()
    world.round()
    world.give(world.draft(2, members=("a", "b", "c")), "a", "b", "c")
    world.turn()
    assert {name: actor.epoch for name, actor in world.actors.items()} == {"a": 2, "b": 2, "c": 2, "d": 1}
    learn(world, 1)
    world.round()
    assert {row.number for row in world.sent.values() if row.name == "d"} == {1}


def test_a_missed_round_is_superseded() -> None:
    world = running()
    learn(world, 1)
    world.round("a", "b", "c")
    learn(world, 10)
    world.round()
    assert known(world) == {2}
    assert total_of(world.actors["d"]) == [1 + 2 + 3 + 4 + 10 + 11 + 12 + 13, 8]


def test_no_opener_opens_a_round_twice_or_an_earlier_one() -> None:
    world = running()
    learn(world, 1)
    world.round()
    early = dict(world.bus)
    world.round()
    assert known(world) == {2}
    opened = len(world.opened)
    for actor in world.actors.values():
        actor.receive(early)
        actor.tick()
        actor.boot()
        actor.receive(early)
        actor.tick()
    world.turn()
    assert len({(name, each.partial) for name, each in world.opened}) == opened
    world.check()


def test_other_partials_of_a_round_that_is_known_change_nothing() -> None:
    """All openers together could make another total of the last round, and of an earlier one."""
    world = running()
    world.round()
    world.round()
    actor = world.actors["d"]
    before = actor.state
    for name in ("a", "b"):
        signed = world.bus[f"{name}.partial"]
        partial = parse(signed)
        assert isinstance(partial, Partial)
        for number in (1, 2):
            other = msgspec.structs.replace(partial, number=number, total=bytes(16))
            actor.receive({f"{name}.partial": sign(other, world.keys[name])})
    assert replace(actor.state, heard={}) == replace(before, heard={})


def test_an_implausible_total_leaves_the_last_in_place() -> None:
    world = running()
    learn(world, 1)
    world.round()
    world.now += EVERY
    world.turn("a", "c", "d", times=1)  # all rows but one are here
    signed = world.bus["b.partial"]
    world.turn("b", times=1)
    world.turn("a", times=2)
    honest = world.actors["b"]
    honest.receive(world.bus)
    honest.tick()
    partial = parse(world.bus["b.partial"])
    assert isinstance(partial, Partial)
    assert world.bus["b.partial"] != signed
    negative = np.frombuffer(partial.total, "<u8").copy()
    negative[-1] -= np.uint64(1000)  # records
    absurd = sign(msgspec.structs.replace(partial, total=negative.tobytes()), world.keys["b"])
    actor = world.actors["d"]
    actor.receive({**world.bus, "b.partial": absurd})
    assert actor.known == 1
    assert [reason for _, reason in actor.refused] == ["absurd"]


# --- phases -----------------------------------------------------------------------------------------------


def test_a_later_epoch_begins_when_all_have_accepted_it() -> None:
    world = running()
    learn(world, 1)
    world.round()
    learn(world, 10)
    world.give(world.draft(2, openers=("c", "d")), "a", "b", "c")
    world.turn()
    assert {name: actor.phase for name, actor in world.actors.items()} == {
        **dict.fromkeys("abc", Phase.CHANGING),
        "d": Phase.RUNNING,
    }
    assert {actor.epoch for actor in world.actors.values()} == {1}
    world.give(world.draft(2, openers=("c", "d")), "d")
    world.turn()
    assert {actor.epoch for actor in world.actors.values()} == {2}


def test_records_since_the_last_row_go_into_the_next_epoch_and_others_stay() -> None:
    world = running()
    learn(world, 1)
    world.round()
    learn(world, 10)
    world.give(world.draft(2, openers=("c", "d")))
    world.turn()
    assert {actor.epoch for actor in world.actors.values()} == {2}
    world.round()
    assert total_of(world.actors["a"]) == [10 + 11 + 12 + 13, 4]
    past = world.actors["a"].state.record.past
    assert [(each.number, each.members, each.round) for each in past] == [(1, 4, 1)]
    assert as_integers(from_bytes(past[0].values)).tolist() == [1 + 2 + 3 + 4, 4]
    world.check()


def test_a_member_waits_ten_minutes_for_the_total_of_its_last_row() -> None:
    world = running()
    learn(world, 1)
    world.round("a", "c", "d")  # b opens nothing
    world.give(world.draft(2, openers=("c", "d")))
    world.turn()
    ending = {name for name, actor in world.actors.items() if actor.phase is Phase.ENDING}
    assert ending == set()  # b has sent its row meanwhile, and all know the total
    assert known(world) == {0}
    assert {actor.epoch for actor in world.actors.values()} == {2}


def test_after_ten_minutes_the_leaf_of_a_row_in_no_total_is_lost_to_the_others() -> None:
    world = running()
    learn(world, 1)
    world.round("c", "d")
    for name in NAMES:
        world.hidden |= {f"{name}.row.{opener}" for opener in "ab"}
    world.give(world.draft(2, openers=("c", "d")))
    world.turn()
    assert phases(world) == {Phase.ENDING}
    world.now += PATIENCE - EVERY
    learn(world, 10)
    world.turn()
    assert phases(world) == {Phase.ENDING}
    sent = {row.number for row in world.sent.values()}
    world.now += EVERY
    world.hidden = set()
    world.turn()
    assert phases(world) == {Phase.RUNNING}
    assert sent == {1}  # no new row while ending
    world.turn()
    assert {actor.epoch for actor in world.actors.values()} == {2}
    assert total_of(world.actors["a"])[1] in (4, 6)  # a and b had sent no row of round 1 before the change
    world.check()


def test_a_clock_that_goes_back_does_not_keep_a_member_waiting() -> None:
    world = running()
    world.hidden = {f"{name}.partial" for name in "ab"}
    world.round()
    world.give(world.draft(2))
    world.turn()
    assert phases(world) == {Phase.ENDING}
    world.now -= 1.0
    world.turn()
    assert phases(world) == {Phase.RUNNING}


def test_a_later_roster_replaces_one_that_has_not_begun() -> None:
    world = running()
    world.give(world.draft(2), "a", "b", "c")
    world.turn()
    world.give(world.draft(5, openers=("c", "d")))
    world.turn()
    assert {actor.epoch for actor in world.actors.values()} == {5}
    for actor in world.actors.values():
        before = actor.state
        for draft in (world.draft(4), world.draft(5, fork="'")):
            actor.feed(RosterTaken(draft, bytes(32)))
        assert actor.state == before


def test_phases_change_as_the_table_says(monkeypatch: pytest.MonkeyPatch) -> None:
    """All of them, in the other tests of this file and in random attacks, and no others."""
    seen: set[tuple[Phase, Phase]] = set()
    go = machine._Turn.go

    def noting(turn: machine._Turn, phase: Phase) -> None:
        seen.add((turn.state.phase, phase))
        go(turn, phase)

    monkeypatch.setattr(machine._Turn, "go", noting)
    test_records_since_the_last_row_go_into_the_next_epoch_and_others_stay()
    test_after_ten_minutes_the_leaf_of_a_row_in_no_total_is_lost_to_the_others()
    test_an_openers_new_key_is_another_epoch()
    for phase in (Phase.JOINING, Phase.RUNNING, Phase.CHANGING, Phase.ENDING):
        _see_a_row_of_a_clone(phase)
    assert seen == {(before, each.after) for each in TRANSITIONS for before in each.before}


def test_a_change_that_is_not_in_the_table_is_a_mistake() -> None:
    state = running().actors["a"].state
    with pytest.raises(AssertionError, match="can't become"):
        machine._Turn(state, 0.0).go(Phase.JOINING)


def test_the_documentation_has_the_table() -> None:
    page = Path(__file__).parents[3] / "docs" / "explanation" / "secure-aggregation.md"
    text = page.read_text(encoding="utf-8")
    for before, why, after, does in TRANSITIONS:
        phases = ", ".join(phase.value for phase in before)
        assert f"| {phases} | {why} | {after.value} | {does} |" in text


# --- agreement --------------------------------------------------------------------------------------------


def test_an_openers_new_key_is_another_epoch() -> None:
    """As that of an opener that has lost its vault before it sent anything."""
    world = World(NAMES).start("b", "c", "d")
    hostile = Hostile(world, "a")
    world.give(world.draft())
    hostile.show_key(1)
    world.turn()
    accepted = world.actors["c"].state.next
    assert accepted is not None
    hostile.show_key(1, variant=1)
    world.turn()
    other = world.actors["c"].state.next
    assert other is not None
    assert other.digest != accepted.digest
    hostile.accept(accepted)
    world.turn()
    assert phases(world) == {Phase.JOINING}
    hostile.accept(other)
    world.turn()
    assert phases(world) == {Phase.RUNNING}
    world.give(world.draft(2))
    hostile.show_key(2)
    world.turn()
    following = world.actors["c"].state.next
    assert following is not None
    world.now += EVERY
    world.turn(alive=NAMES)  # rows whose total does not come
    hostile.accept(following)
    world.turn()
    assert phases(world) == {Phase.ENDING}
    hostile.show_key(2, variant=1)
    world.turn()
    assert phases(world) == {Phase.CHANGING}


def test_openers_that_tell_members_different_keys_get_no_rows() -> None:
    world = World(NAMES).start("b", "c", "d")
    hostile = Hostile(world, "a")
    world.give(world.draft())
    epochs = {}
    for name, variant in (("b", 0), ("c", 0), ("d", 1)):
        hostile.show_key(1, variant)
        world.turn(name)
        epochs[name] = world.actors[name].state.next
    world.hidden.add("a.opener")
    del world.bus["a.opener"]
    hostile.accept(*(epoch for epoch in epochs.values() if epoch is not None))
    world.turn()
    world.round()
    assert not world.sent


@pytest.mark.parametrize("how", ["opener", "member", "too few"])
def test_a_changed_key_of_a_confirmed_name_is_not_confirmed(how: str) -> None:
    """Also if the folder has the later roster, with the other key."""
    world = running()
    world.round()
    changed = {"opener": "a", "member": "c", "too few": "d"}[how]
    world.keys[changed] = new_signing_key()
    world.publics = {**world.publics, changed: world.keys[changed].public}
    draft = world.draft(2, openers=("a", "b"), honest=3)
    others = [name for name in NAMES if name != changed]
    world.give(draft, *others)
    if how == "opener":
        Hostile(world, changed).show_key(2)
    world.turn(*others)
    for name in others:
        assert world.actors[name].phase is Phase.CHANGING
        assert "must be" in world.actors[name].state.unconfirmed
        assert world.actors[name].record.accepted == ()
    world.now += EVERY
    world.turn()
    assert known(world) == {2}  # the epoch goes on


def test_a_member_whose_key_is_another_in_an_epoch_makes_no_row_there() -> None:
    """A convener has given its name to somebody else, whom all others have confirmed."""
    world = running()
    actor = world.actors["d"]
    world.now += EVERY
    for key, effects in ((actor.key, [MakeRow(1)]), (new_signing_key(), [])):
        state = replace(actor.state, identity=replace(actor.state.identity, key=key))
        assert step(state, Tick(actor.confirmed, frozenset(NAMES)), world.now)[1] == effects


def test_no_epoch_begins_while_confirmations_are_missing() -> None:
    """It was accepted while they were there, and a later roster has come since."""
    world = running()
    draft, actor = world.draft(2), world.actors["a"]
    world.give(draft, "a", "b", "c")
    world.turn()
    world.give(world.draft(3), "a")
    actor.confirmed = {}
    actor.tick()
    world.give(draft, "d")
    world.turn()
    assert {name: each.epoch for name, each in world.actors.items()} == {"a": 1, "b": 2, "c": 2, "d": 2}
    actor.confirmed = dict(world.publics)
    world.turn()
    assert actor.epoch == 2


def test_nothing_is_sent_or_opened_while_confirmations_are_missing() -> None:
    world = running()
    world.round()
    for actor in world.actors.values():
        actor.confirmed = {}
    sent, opened = len(world.sent), len(world.opened)
    world.round()
    assert (len(world.sent), len(world.opened)) == (sent, opened)


def test_an_opener_that_has_all_rows_opens_nothing_while_confirmations_are_missing() -> None:
    world = running()
    world.round()
    world.now += EVERY
    world.turn(times=1)  # the openers, who come first, have not seen the others' rows
    sent, opened = len(world.sent), len(world.opened)
    openers = [world.actors[name] for name in ("a", "b")]
    confirmed = [actor.confirmed for actor in openers]
    for actor in openers:
        actor.confirmed = {}
        actor.tick()
    world.turn()
    assert (len(world.sent), len(world.opened)) == (sent, opened)
    for actor, keys in zip(openers, confirmed, strict=True):
        actor.confirmed = keys
    world.turn()
    assert known(world) == {2}


@pytest.mark.parametrize("opener", [False, True])
def test_a_newcomer_that_never_starts_stops_no_totals(opener: bool) -> None:
    world = World((*NAMES, "e")).start(*NAMES)
    world.give(world.draft(members=NAMES))
    world.turn()
    world.round()
    openers = ("a", "e") if opener else ("a", "b")
    world.give(world.draft(2, openers=openers), *NAMES)
    for number in (2, 3, 4):
        world.round()
        assert known(world) == {number}
    assert phases(world) == {Phase.CHANGING}
    world.start("e")
    world.give(world.draft(2, openers=openers), "e")  # of another time: the others must take it, too
    world.give(world.draft(3, openers=openers))
    world.turn()
    assert {actor.epoch for actor in world.actors.values()} == {3}


@pytest.mark.parametrize("restarts", [False, True])
def test_a_roster_that_comes_before_all_have_begun_the_last_one_stops_no_totals(restarts: bool) -> None:
    """Three of four have begun epoch 2 when a third roster comes, whose newcomer never starts."""
    world = World((*NAMES, "e")).start(*NAMES)
    world.give(world.draft(members=NAMES))
    world.turn()
    world.round()
    world.give(world.draft(2, members=NAMES), *NAMES)
    world.turn("b", times=1)  # it accepts, and hears no acceptance yet
    world.turn("a", "c", "d")
    assert {name: world.actors[name].epoch for name in NAMES} == {"a": 2, "b": 1, "c": 2, "d": 2}
    if restarts:
        world.actors["b"].boot()
    world.give(world.draft(3), *NAMES)
    for number in (1, 2, 3):
        world.round()
        assert {world.actors[name].epoch for name in NAMES} == {2}
        assert known(world) == {number}
    assert phases(world) == {Phase.CHANGING}
    world.start("e")
    world.give(world.draft(4))
    world.turn()
    assert {actor.epoch for actor in world.actors.values()} == {4}
    assert all(actor.state.record.accepted == () for actor in world.actors.values())


def test_an_opener_with_a_later_roster_keeps_nobody_from_an_accepted_epoch() -> None:
    """Then its key of the later roster is in the place of the one that all have accepted."""
    world = World((*NAMES, "e")).start(*NAMES)
    world.give(world.draft(members=NAMES))
    world.turn()
    world.hidden |= {f"{name}.partial" for name in NAMES}
    world.round()
    world.give(world.draft(2, members=NAMES), *NAMES)
    world.turn()
    assert phases(world) == {Phase.ENDING}  # all wait for the total
    world.now += PATIENCE
    world.turn("d", times=1)
    following = world.draft(3)
    world.give(following, "a")
    world.turn("b", "c")  # the later roster has not come to them
    world.hidden = set()
    world.give(following, *NAMES)
    world.turn()
    world.now += PATIENCE
    world.turn()
    assert {actor.epoch for actor in world.actors.values()} == {2}
    assert known(world) == {world.actors["a"].known} != {0}
    world.round()
    assert phases(world) == {Phase.CHANGING}  # the newcomer never starts


@pytest.mark.parametrize("when", ["before", "at", "after"])
def test_a_dead_member_costs_each_of_the_others_at_most_one_leaf(when: str) -> None:
    """It is removed after a week."""
    world = running()
    learn(world, 1)
    world.round()
    others = ("a", "b", "c")
    learn(world, 10)
    if when == "at":  # its last sign of life is so young that the others send one more row
        world.round(*others)
    if when == "after":
        world.round()
    learned = [10, 11, 12]
    for number in range(10):  # no sign of life any more
        for place, name in enumerate(others):
            world.actors[name].learn(100 * (number + 1) + place)
            learned.append(100 * (number + 1) + place)
        world.round(*others, alive=others)
    del world.actors["d"]
    world.give(world.draft(2, members=others))
    world.turn(alive=others)
    world.now += PATIENCE
    world.turn(alive=others)
    world.round(alive=others)
    assert {actor.epoch for actor in world.actors.values()} == {2}
    lost = {"before": 0, "at": 3, "after": 3}[when]  # "after": they are in the last total of the old epoch
    assert total_of(world.actors["a"])[1] == len(learned) - lost
    world.check()


# --- the past ---------------------------------------------------------------------------------------------


def joined() -> tuple[World, PastTotal]:
    """A newcomer in epoch 2, after an epoch with a total."""
    world = World((*NAMES, "e")).start(*NAMES)
    world.give(world.draft(members=NAMES))
    world.turn()
    learn(world, 1)
    world.round()
    (total,) = {actor.state.record.part.total for actor in world.actors.values()}  # type: ignore[union-attr]
    assert total is not None
    world.start("e")
    return world, total


def test_a_newcomer_learns_the_totals_of_earlier_epochs_once() -> None:
    world, total = joined()
    world.give(world.draft(2))
    world.turn()
    newcomer = world.actors["e"]
    assert newcomer.past == [total]
    newcomer.boot()
    world.turn()
    world.round()
    assert newcomer.past == [total]
    assert newcomer.state.record.past == (total,)
    assert all(not world.actors[name].past for name in NAMES)  # it is their own


@pytest.mark.parametrize("late", ["process", "confirmation"])
def test_a_newcomer_learns_totals_that_came_before_its_confirmations(late: str) -> None:
    """A transport shows a message once: to a process that has just started, or before the operator acts."""
    world, total = joined()
    newcomer = world.actors["e"]
    if late == "confirmation":
        newcomer.confirmed = {name: world.publics[name] for name in "abe"}
        world.hidden |= {"a.past"}
    else:
        world.hidden |= {f"{name}.past" for name in NAMES}
    world.give(world.draft(2))
    world.turn()
    assert newcomer.past == []
    if late == "process":
        newcomer.boot()
        newcomer.receive({place: each for place, each in world.history if place.endswith(".past")})
    newcomer.confirmed = dict(world.publics)
    newcomer.tick()
    assert newcomer.past == [total]


@pytest.mark.parametrize("signers", [1, 2])
def test_an_invented_past_needs_more_signers_than_may_collude(signers: int) -> None:
    world, total = joined()
    invented = PastTotal(b"\1" * 32, 1, 4, 1, total.values)
    world.give(world.draft(2))
    world.turn()
    newcomer = world.actors["e"]
    for name in NAMES[:signers]:
        message = Past(past_place(FEDERATION), name, (invented,))
        newcomer.receive({f"{name}.past": sign(message, world.keys[name])})
    assert (invented in newcomer.past) == (signers == 2)


def test_members_that_sign_different_totals_of_an_epoch_do_not_count_together() -> None:
    world, total = joined()
    world.hidden |= {f"{name}.past" for name in NAMES}
    world.give(world.draft(2))
    world.turn()
    newcomer = world.actors["e"]
    for number, name in enumerate(NAMES):
        other = msgspec.structs.replace(total, round=1 + number)
        message = Past(past_place(FEDERATION), name, (other,))
        newcomer.receive({f"{name}.past": sign(message, world.keys[name])})
    assert newcomer.past == []


def test_unconfirmed_members_do_not_tell_a_newcomer_the_past() -> None:
    world, total = joined()
    newcomer = world.actors["e"]
    newcomer.confirmed = {name: world.publics[name] for name in "abe"}
    world.give(world.draft(2))
    world.turn()
    world.hidden |= {"a.past"}
    assert newcomer.past == [total]
    invented = PastTotal(b"\1" * 32, 1, 4, 1, total.values)
    for name in "cd":
        message = Past(past_place(FEDERATION), name, (invented,))
        newcomer.receive({f"{name}.past": sign(message, world.keys[name])})
    assert newcomer.past == [total]


# --- crashes, backups, clones -----------------------------------------------------------------------------


def _life(world: World, actor: Actor) -> None:
    """Rounds and two changes of epochs, in which `actor` is everything there is to be."""
    world.give(world.draft(openers=("a", "b")))
    world.turn()
    for number in range(3):
        learn(world, 10 * number)
        world.round()
    world.give(world.draft(2, openers=("a", "c")))
    world.turn()
    learn(world, 40)
    world.round()
    world.give(world.draft(3, openers=("b", "c")))
    world.turn()
    learn(world, 50)
    world.round()


def test_a_process_that_dies_at_any_step_goes_on_where_it_was() -> None:
    alone = World(NAMES).start()
    _life(alone, alone.actors["a"])
    steps = alone.actors["a"].steps
    assert steps > 40
    for dies_at in range(2, steps):
        world = World(NAMES).start()
        actor = world.actors["a"]
        actor.dies_at = dies_at
        feed = actor.feed

        def dying(event: object, actor: Actor = actor, feed=feed) -> None:  # type: ignore[no-untyped-def]
            try:
                feed(event)
            except Crash:
                actor.boot()

        actor.feed = dying  # type: ignore[method-assign]
        _life(world, actor)
        world.turn()
        world.round()
        world.check()
        assert phases(world) == {Phase.RUNNING}, dies_at
        assert {each.epoch for each in world.actors.values()} == {3}, dies_at
        assert len(known(world)) == 1, dies_at
        runs = [frozenset[int]().union(*run.leaves, run.open) for run in actor.disk.runs]
        assert sum(map(len, runs)) == len(frozenset().union(*runs)) == 5  # each record in one run


def test_a_database_restored_to_any_earlier_point_makes_no_row_again() -> None:
    """The vault stays; the bus hides the rows; the honest opener is removed. Others go on without it."""
    world = World((*NAMES, "e")).start()
    actor, backups = world.actors["d"], []
    world.give(world.draft(openers=("a", "b")))
    for number in range(3):
        backups.append(actor.backup())
        world.turn()
        learn(world, 10 * number)
        backups.append(actor.backup())
        world.now += EVERY
        actor.tick()
        world.turn()
    assert known(world) == {3}
    rows = {digest for digest, row in world.sent.items() if row.name == "d"}
    for disk in backups:
        actor.restore(disk)
        assert actor.phase is Phase.HALTED
        assert "restored from a backup" in actor.state.halted
        for place in [*world.bus]:
            if place.startswith("d."):
                del world.bus[place]
        old = dict(world.history)  # an acceptance of the past, shown again
        actor.take_roster(world.draft(7, members=("b", "c", "d", "e"), openers=("b", "c")))
        actor.receive({**world.bus, **old})
        world.now += EVERY
        actor.tick()
        assert actor.phase is Phase.HALTED
    assert {digest for digest, row in world.sent.items() if row.name == "d"} == rows
    del world.actors["d"]
    world.give(world.draft(8, members=("a", "b", "c", "e"), openers=("b", "c")))
    world.turn()
    world.now += PATIENCE
    world.round()
    assert {each.epoch for each in world.actors.values()} == {8}
    world.round()
    assert known(world) == {8}  # as many rounds after the roster was given


def test_a_lost_last_commit_after_publishing_is_noticed() -> None:
    world = running()
    actor = world.actors["d"]
    before = actor.backup()
    world.now += EVERY
    actor.tick()
    assert [row.name for row in world.sent.values()] == ["d"]
    actor.restore(before)
    assert actor.phase is Phase.HALTED


def test_a_member_that_was_put_right_again_goes_on() -> None:
    """An operator has confused two databases."""
    world = running()
    actor = world.actors["d"]
    before = actor.backup()
    world.round()
    latest = actor.backup()
    actor.restore(before)
    assert actor.phase is Phase.HALTED
    actor.restore(latest)
    world.round()
    assert known(world) == {2}


@pytest.mark.parametrize(
    "what", ["missing", "damaged", "another's", "another federation's", "ahead", "older"]
)
def test_with_a_wrong_vault_nothing_is_sent(what: str) -> None:
    world = running()
    vaults = [world.actors["d"].vault_content]
    for _ in range(3):
        world.round()
        vaults.append(world.actors["d"].vault_content)
    actor, content = world.actors["d"], vaults[-1]
    wrong: bytes | None = {
        "missing": None,
        "damaged": msgspec.msgpack.encode(content)[:-3],
        "another's": msgspec.msgpack.encode(world.actors["c"].vault_content),
        "another federation's": msgspec.msgpack.encode(
            msgspec.structs.replace(content, federation="cd" * 16)
        ),
        "ahead": msgspec.msgpack.encode(msgspec.structs.replace(content, mark=b"\1" * 32, round=4)),
        "older": msgspec.msgpack.encode(vaults[1]),
    }[what]
    right = actor.vault
    actor.vault = MemoryStore(wrong)
    actor.boot()
    assert actor.phase is Phase.HALTED
    assert actor.state.halted
    assert actor.vault.value == wrong  # a new one would hide the mistake
    world.round()
    assert known(world) == {3}
    actor.vault = right
    actor.boot()
    world.turn()
    assert known(world) == {4}


def test_a_vault_that_is_behind_by_one_crash_goes_on() -> None:
    world = running()
    before = msgspec.msgpack.encode(world.actors["d"].vault_content)
    world.round()
    actor = world.actors["d"]
    actor.vault = MemoryStore(before)
    actor.boot()
    assert actor.vault_content.mark == actor.record.mark  # before the row is published again
    world.round()
    assert known(world) == {2}
    assert actor.vault_content.mark == actor.record.mark


def test_a_member_without_rows_may_lose_its_vault() -> None:
    world = running()
    for name in ("a", "d"):
        world.actors[name].vault = MemoryStore()
        world.actors[name].boot()
    world.turn()
    assert "no key of epoch 1" in world.actors["a"].state.trouble
    world.give(world.draft(2))
    world.turn()
    world.round()
    assert known(world) == {1}


def test_an_opener_without_its_key_makes_no_row() -> None:
    """No round of the epoch can be opened, so its leaf would be lost to the others."""
    world = running()
    actor = world.actors["a"]
    actor.vault = MemoryStore()
    actor.boot()
    learn(world, 1)
    world.round()
    assert {row.name for row in world.sent.values()} == {"b", "c", "d"}
    world.give(world.draft(2, openers=("c", "d")))
    world.turn()
    world.now += PATIENCE
    world.turn()
    assert {each.epoch for each in world.actors.values()} == {2}
    assert actor.state.trouble == ""  # it opens nothing here
    world.round()
    assert total_of(actor)[0] == 1


def test_a_vault_of_another_member_stops_one_without_rows() -> None:
    world = World(NAMES).start()
    actor = world.actors["d"]
    actor.vault = MemoryStore(msgspec.msgpack.encode(Vault(b"1", FEDERATION, "c")))
    actor.boot()
    assert "another one" in actor.state.halted


def test_an_opener_restored_from_a_backup_opens_no_round_again() -> None:
    world = running()
    actor = world.actors["a"]
    world.now += EVERY
    actor.tick()  # its row is made
    before = actor.backup()
    world.turn()
    assert known(world) == {1}
    actor.restore(before)  # it has not opened yet, and the vault knows that it has
    assert actor.phase is Phase.RUNNING
    world.turn()
    world.round()
    assert known(world) == {2}
    world.check()


def test_of_two_rows_of_a_round_an_opener_keeps_the_first_that_it_can_open() -> None:
    world = World(NAMES).start("a", "b", "c")
    hostile, opener = Hostile(world, "d"), world.actors["a"]
    world.give(world.draft())
    for number in range(4):
        hostile.help(random.Random(0))
        world.turn()
        world.now += EVERY * (number == 2)
    part = opener.state.record.part
    assert part is not None
    assert part.total_round == 1
    digests = dict(hostile.rows[part.epoch.digest])

    def refused(number: int, value: int, earlier: dict[int, bytes]) -> list[str]:
        opener.refused.clear()
        hostile.rows[part.epoch.digest] = dict(earlier)
        hostile.send_row(part.epoch, number, value)
        world.turn("a", times=1)
        return [reason for _, reason in opener.refused]

    world.now += EVERY
    world.turn("b", "c", times=1)
    opener.tick()
    assert refused(2, 1, {}) == ["restored"]  # it lists no row of the round that was opened
    assert refused(2, 2, digests) == []
    assert opener.state.opened is not None
    assert opener.state.opened.number == 2
    digests = dict(hostile.rows[part.epoch.digest])
    world.now += EVERY  # the others have not sent yet
    assert refused(3, 3, digests) == []
    assert refused(3, 4, digests) == ["two contents"]


@pytest.mark.parametrize("restored", ["database", "vault", "neither"])
def test_an_opener_shown_another_row_of_an_opened_round_does_not_open_it(restored: str) -> None:
    """The difference of the two totals would be without the others' noise."""
    world = World(NAMES).start("a", "b", "c")
    hostile = Hostile(world, "d")
    world.give(world.draft())
    for _ in range(3):
        hostile.help(random.Random(0))
        world.turn()
    actor = world.actors["a"]
    assert actor.epoch == 1
    world.now += EVERY
    actor.tick()  # its row is made
    disk, vault = actor.backup(), MemoryStore(actor.vault.value)
    world.turn()
    assert [each.number for name, each in world.opened if name == "a"] == [1]
    if restored == "vault":
        actor.vault = vault
    actor.restore(disk if restored == "database" else actor.backup())
    part = actor.state.record.part
    assert part is not None
    hostile.rows.clear()
    hostile.send_row(part.epoch, 1, value=5)
    actor.receive(world.bus)
    actor.tick()
    assert {each.partial for name, each in world.opened if name == "a"} == {world.opened[0][1].partial}
    assert actor.state.opened == world.opened[0][1]


def test_of_a_member_and_its_clone_one_history_is_opened() -> None:
    """With its vault: neither of them can know."""
    world = running()
    learn(world, 1)
    world.round()
    one = world.actors["d"]
    two = Actor.__new__(Actor)
    two.__dict__.update(one.__dict__)
    two.disk, two.vault = one.backup(), MemoryStore(one.vault.value)
    two._restarted = 100
    world.copied.add("d")
    two.boot()
    two.learn(999)
    one.learn(500)
    for number in range(4):
        world.now += EVERY
        for copy in (one, two) if number % 2 else (two, one):
            copy.receive(world.bus)
            copy.tick()
            world.turn("a", "b", "c", times=1)
        world.turn("a", "b", "c")
    world.check()
    opened = {record for record, epochs in world.records_in(opened=True).items() if epochs}
    assert not {500, 999} <= opened


def _see_a_row_of_a_clone(phase: Phase) -> World:
    """A member sees a row of its own, signed with its key, that it has no record of."""
    world = running()
    other = World(NAMES)
    other.keys, other.publics = world.keys, world.publics
    other.start()
    other.give(other.draft(9, openers=("c", "d")))
    other.turn()
    other.round()
    actor = world.actors["d"]
    if phase is Phase.JOINING:
        actor = world.actors["d"] = Actor(world, "d", world.keys["d"])
    if phase is Phase.CHANGING:
        actor.take_roster(world.draft(2))
    if phase is Phase.ENDING:
        world.hidden |= {f"{name}.partial" for name in "ab"}
        world.round()
        world.give(world.draft(2))
        world.turn()
    assert actor.phase is phase
    actor.feed(Came({place: other.bus[place] for place in ("d.row.c", "d.row.d")}))
    assert actor.phase is Phase.HALTED
    assert "another row of round 1" in actor.state.halted
    actor.boot()
    assert actor.phase is Phase.HALTED  # it is stored
    return world


@pytest.mark.parametrize("phase", [Phase.JOINING, Phase.RUNNING, Phase.CHANGING, Phase.ENDING])
def test_a_member_that_sees_a_row_of_its_own_without_a_record_halts(phase: Phase) -> None:
    world = _see_a_row_of_a_clone(phase)
    sent = {digest for digest, row in world.sent.items() if row.name == "d"}
    world.round()
    assert {digest for digest, row in world.sent.items() if row.name == "d"} == sent


def test_a_row_of_its_own_in_another_federation_does_not_halt_a_member() -> None:
    """Its key may have been used before: whoever has its rows of then could stop it for good."""
    world = running()
    world.round()
    actor = world.actors["a"]
    signed, share = row_and_share(world.bus["a.row.a"])
    row = parse(signed)
    for federation, phase in (("cd" * 16, Phase.RUNNING), (FEDERATION, Phase.HALTED)):
        other = msgspec.structs.replace(row, epoch=b"\1" * 32, federation=federation)
        actor.feed(Came({"a.row.a": with_share(sign(other, actor.key), share)}))
        assert actor.phase is phase


def test_a_total_with_a_row_without_a_record_halts_its_member() -> None:
    """Of a clone whose rows came first; this member does not see rows."""
    world = running()
    actor, disk = world.actors["d"], world.actors["d"].backup()
    vault = MemoryStore(actor.vault.value)
    world.round()
    actor.disk, actor.vault = disk, vault  # the clone, which was away
    actor._restarted = 50
    actor.boot()
    actor.tick()  # it makes a row of its own
    assert actor.phase is Phase.RUNNING
    actor.receive({place: message for place, message in world.bus.items() if place.endswith(".partial")})
    assert actor.phase is Phase.HALTED
    assert "no record" in actor.state.halted


def test_an_opener_that_sees_another_partial_of_its_own_goes_on() -> None:
    """Only a copy of it can have signed it, and only rows halt a member."""
    world = running()
    world.round()
    actor = world.actors["a"]
    assert actor.state.record.part is not None
    assert actor.state.record.part.opened is not None
    partial = parse(actor.state.record.part.opened.partial)
    other = sign(msgspec.structs.replace(partial, number=2), actor.key)
    actor.feed(Came({"a.partial": other}))
    world.round()
    assert known(world) == {2}


def test_a_removed_openers_keys_are_deleted() -> None:
    world = running()
    assert {*world.actors["a"].vault_content.secrets} == {1}
    world.give(world.draft(2, openers=("b", "c")))
    world.turn()
    assert {name: {*actor.vault_content.secrets} for name, actor in world.actors.items()} == {
        "a": set(),
        "b": {2},
        "c": {2},
        "d": set(),
    }


def test_refused_messages_are_counted_and_change_nothing() -> None:
    world = running()
    world.round()
    actor = world.actors["a"]
    before = actor.state
    for place in ("b.row.a", "b.partial", "b.accepted", "b.past", "b.opener"):
        for message in (b"", b"\x00" * 200, world.bus["b.row.a"][:-1]):
            actor.feed(Came({place: message}))
    assert replace(actor.state, heard={}) == replace(before, heard={})
    assert {sender for sender, _ in actor.refused} == {"b"}
