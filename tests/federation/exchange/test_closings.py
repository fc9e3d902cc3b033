"""What openers publish of an epoch that has ended, and what is refused of it."""

from __future__ import annotations

import json
from collections.abc import Callable
from pathlib import Path

import msgspec
import numpy as np
import pytest

from fedfairx.agent.exchange import OTHERS
from fedfairx.errors import InvalidInput, MessageRefused
from fedfairx.federation.aggregation.agreement import opener_key
from fedfairx.federation.aggregation.messages import Closing, Partial, parse, sign
from fedfairx.federation.aggregation.records import MemoryRecords, Stores
from fedfairx.federation.aggregation.shares import from_bytes, to_bytes
from fedfairx.federation.exchange import secure_member
from fedfairx.federation.exchange.closings import (
    Closed,
    Definition,
    Proved,
    closed_message,
    closed_totals,
    read_closed,
    require_closing_fits,
)
from fedfairx.federation.roster import roster as roster_module
from fedfairx.federation.roster.signing_keys import new_signing_key
from fedfairx.federation.setup.create import amend_federation, create_federation
from fedfairx.federation.transport import MemoryTransport
from member_helpers import secure_terms, work
from secure_helpers import SecureWorld, secure_world


def closed(here: SecureWorld, name: str) -> Closed:
    return read_closed(name, here.transport.latest()[f"{name}.closing"])


def publish(here: SecureWorld, name: str, changed: Closed | bytes) -> None:
    message = changed if isinstance(changed, bytes) else msgspec.msgpack.encode(changed)
    key = f"{name}.closing"
    here.transport.publish(key, message, replacing=here.transport.latest().get(key))


@pytest.fixture
def ended() -> SecureWorld:
    """Two openers have closed an epoch with two rounds, and a newcomer has not started."""
    here = secure_world().start_all()
    for number in (1, 2):
        for place, member in enumerate(here.members.values()):
            work(member.agent, 2 + place, seed=10 * number + place)
        here.round(number)
    here.amend(add=["org5"])
    here.turn()
    return here


def other_federation(found: Closed) -> Closed:
    there = secure_world(transport=MemoryTransport())
    definition = msgspec.structs.replace(found.definition, roster=there.roster.to_json().encode())
    return msgspec.structs.replace(found, definition=definition)


def other_roster(found: Closed) -> Closed:
    document = json.loads(found.definition.roster)
    document["roster"]["openers"] = ["org1", "org3"]
    definition = msgspec.structs.replace(found.definition, roster=json.dumps(document).encode())
    return msgspec.structs.replace(found, definition=definition)


def no_keys(found: Closed) -> Closed:
    return msgspec.structs.replace(found, definition=msgspec.structs.replace(found.definition, keys={}))


def other_settlement(found: Closed) -> Closed:
    definition = msgspec.structs.replace(found.definition, settlement=bytes(32))
    return msgspec.structs.replace(found, definition=definition)


def forged_partial(found: Closed) -> Closed:
    closing = parse(found.closing)
    assert isinstance(closing, Closing)
    return msgspec.structs.replace(found, partial=closing.partial[:-1] + b"x")


@pytest.mark.parametrize(
    ("change", "reason"),
    [
        (lambda _: b"\xc1", "malformed"),
        (lambda found: msgspec.msgpack.encode(found) + b"\x00", "malformed"),
        (other_roster, "malformed"),
        (no_keys, "malformed"),
        (other_settlement, "epoch"),
        (lambda found: msgspec.structs.replace(found, closing=found.closing[:-1] + b"x"), "signature"),
        (forged_partial, "signature"),
    ],
)
def test_a_newcomer_refuses_a_closing_that_is_not_an_openers(
    ended: SecureWorld, change: Callable[[Closed], Closed | bytes], reason: str
) -> None:
    right = closed(ended, "org1")
    publish(ended, "org1", change(right))
    joined = ended.start("org5")
    joined.exchange()
    joined.exchange()
    assert joined.refusals == {("org1", reason): 1}
    assert joined.rejected == {"org1.closing": reason}
    assert joined.progress.waits_for["org1"] == "closing"
    publish(ended, "org1", right)
    ended.turn()
    assert joined.progress.epoch == 2
    assert joined.rejected == {}


def test_a_closing_of_another_opener_or_federation_does_not_count(ended: SecureWorld) -> None:
    right = closed(ended, "org1")
    joined = ended.start("org5")
    for wrong in (closed(ended, "org2"), other_federation(right)):
        publish(ended, "org1", wrong)
        joined.exchange()
        assert joined.progress.waits_for["org1"] == "closing"
    publish(ended, "org1", right)
    ended.turn()
    assert joined.progress.epoch == 2


def test_two_closings_of_an_opener_do_not_begin_an_epoch(ended: SecureWorld) -> None:
    """It tells the newcomer that it has opened nothing, and the others the truth."""
    right = closed(ended, "org1")
    small = sign(Closing(parse(right.closing).epoch, "org1", b"", ()), ended.keys["org1"])
    publish(ended, "org1", msgspec.structs.replace(right, closing=small, partial=b""))
    joined = ended.start("org5")
    joined.exchange()
    assert joined.progress.acceptances  # it has accepted what nobody else has
    ended.turn()
    assert {member.progress.epoch for member in ended.members.values()} == {0, 1}
    assert ("org1", "epoch") in joined.refusals
    assert not any(member.agent.released > 2 for member in ended.members.values())


def test_only_totals_that_all_openers_have_signed_are_learnt(ended: SecureWorld) -> None:
    found = closed(ended, "org1")
    member = ended.members["org3"]
    part = member._participant
    assert part is not None
    assert part.total is not None
    right = Proved(found.definition, part.total.partials)
    known = closed_totals([right], member._epoch_in, member._plausible_among)
    assert known[1].total.number == 2
    sent = parse(part.total.partials[0])
    assert isinstance(sent, Partial)
    numbers = from_bytes(sent.total)
    numbers[0] += np.uint64(2**40)
    absurd = sign(Partial(sent.epoch, sent.name, 2, sent.rows, to_bytes(numbers)), ended.keys[sent.name])
    forged = sign(Partial(sent.epoch, sent.name, 2, sent.rows, to_bytes(numbers)), ended.keys["org4"])
    for partials in ((), right.partials[:1], (forged, right.partials[1]), (absurd, right.partials[1])):
        wrong = Proved(found.definition, partials)
        assert closed_totals([wrong], member._epoch_in, member._plausible_among) == {}
        both = closed_totals([wrong, right], member._epoch_in, member._plausible_among)
        assert both[1].total.number == 2


def test_a_definition_is_verified_once_and_memory_is_bounded(
    ended: SecureWorld, monkeypatch: pytest.MonkeyPatch
) -> None:
    member, found = ended.members["org3"], closed(ended, "org1").definition
    epoch = member._epoch_in(found)
    assert member._epoch_in(found) is epoch
    monkeypatch.setattr(secure_member, "_EPOCHS", 3)
    member._epochs.clear()
    others = [msgspec.structs.replace(found, settlement=bytes([k]) * 32) for k in range(5)]
    assert len({member._epoch_in(each).digest for each in (found, *others)}) == 6
    assert len(member._epochs) == 3
    member._take_roster(member._seal)
    assert not member._epochs  # another roster verifies them again


def test_an_opener_can_not_add_an_epoch_of_its_own(ended: SecureWorld) -> None:
    """A newcomer learns from epochs of this federation only, whoever has signed others."""
    there = secure_world(transport=MemoryTransport()).start_all()
    work(there.members["org1"].agent, 50)
    there.round(1)
    there.amend()
    there.turn()
    (made,) = there.members["org1"]._proved().values()
    publish(ended, "org1", msgspec.structs.replace(closed(ended, "org1"), earlier=(made,)))
    joined = ended.start("org5")
    joined.exchange()
    ended.turn(without=["org1"])
    ended.members["org1"].exchange()
    published = ended.transport.latest()["org1.closing"]
    ended.turn(without=["org1"])
    assert joined.progress.epoch == 2
    assert msgspec.msgpack.decode(published, type=Closed).earlier == ()  # org1 has replaced it by its own
    known = closed_totals([made], ended.members["org1"]._epoch_in, ended.members["org1"]._plausible_among)
    assert known == {}
    assert joined.agent.held[OTHERS].count == sum(
        member.agent.observed for name, member in ended.members.items() if name != "org5"
    )


def test_a_message_has_as_many_earlier_totals_as_fit(ended: SecureWorld) -> None:
    found = closed(ended, "org1")
    part = ended.members["org1"]._participant
    assert part is not None
    assert part.total is not None
    proved = Proved(found.definition, part.total.partials)
    alone, each = len(msgspec.msgpack.encode(found)), len(msgspec.msgpack.encode(proved))
    for fit in (0, 1, 3):
        message = closed_message(found, [proved] * 5, largest=4096 + alone + fit * each + each // 2)
        assert len(read_closed("org1", message).earlier) == fit


def test_an_epoch_whose_end_does_not_fit_into_a_message_is_refused(tmp_path: Path) -> None:
    """Sizes of real messages are within the estimate, and near it."""
    here = secure_world(dimension=40).start_all()
    here.round(1)
    here.round(2)
    before = here.roster
    here.amend()
    here.turn()
    size = len(here.transport.latest()["org1.closing"])
    require_closing_fits(before, largest=size + 20_000)
    with pytest.raises(InvalidInput, match="dimension must be so small that what 2 openers say"):
        require_closing_fits(before, largest=size)
    terms = secure_terms(dimension=250, agents=6, colluding=4)
    create_federation(tmp_path / "nats", terms, dict.fromkeys("abcdef"))
    with pytest.raises(InvalidInput, match="message of 1048576 bytes at the hub, got dimension=250"):
        amend_federation(tmp_path / "nats", add={"g": None})
    assert not (tmp_path / "nats" / "g").exists()


def test_what_is_no_closing_is_refused() -> None:
    for message in (b"", b"\x00", msgspec.msgpack.encode([1, 2]), b"\x91" * 5000):
        with pytest.raises(MessageRefused, match="closing of 'org1' is not one of this version"):
            read_closed("org1", message)


def test_a_convener_and_an_opener_can_not_make_up_an_epoch_without_the_others(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """All but the opener are told that they were out of an epoch, whose total is forged."""
    here = secure_world().start_all()
    here.round(1)
    real, convener = here.roster, here.convener
    assert convener is not None
    invented = {"org1": here.keys["org1"], **{f"new{k}": new_signing_key() for k in range(3)}}
    public = {name: key.public for name, key in invented.items()}
    with monkeypatch.context() as patched:  # a convener may sign anything
        patched.setattr(roster_module, "require", lambda *_: None)
        fake = real.amended(convener, public, openers=["org1", "new0"], begin=int(here.now))
        here.roster = fake.amended(convener, real.members, openers=["org1", "org2"], begin=int(here.now))
    openers, keys = {name: invented[name] for name in fake.openers}, {}
    for name, key in openers.items():
        stores = Stores(name, MemoryRecords(), MemoryRecords())
        keys[name] = opener_key(fake.federation, 2, key=key, stores=stores)
    definition = Definition.of(fake, keys, bytes(32))
    epoch = definition.epoch(fake)
    rows, zero = (bytes(32),) * len(epoch.members), bytes(8 * epoch.entries)
    partials = [sign(Partial(epoch.digest, name, 1, rows, zero), key) for name, key in openers.items()]
    closing = sign(Closing(epoch.digest, "org1", partials[0], tuple(partials)), here.keys["org1"])
    del here.members["org1"]
    for name, member in here.members.items():
        here.follow(name, member)
    publish(here, "org1", Closed(definition, closing))
    stores = Stores("org1", MemoryRecords(), MemoryRecords())
    signed = opener_key(real.federation, 3, key=here.keys["org1"], stores=stores)
    here.transport.publish("org1.opener", signed, replacing=here.transport.latest()["org1.opener"])
    here.turn()
    for member in here.members.values():
        assert "members of epoch 2 that stay" in member.progress.unconfirmed
        assert member.progress.epoch == 1
