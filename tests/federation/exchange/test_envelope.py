"""Envelopes: what goes in comes out, and nothing else gets in."""

from __future__ import annotations

import struct
from typing import Any

import numpy as np
import pytest

from fedfairx.agent.validation import accept
from fedfairx.core.statistics import packed_size
from fedfairx.errors import MessageRefused, StateError
from fedfairx.federation.exchange.envelope import Envelope, SignedCodec
from fedfairx.federation.exchange.member import Member
from fedfairx.federation.roster.roster import create_roster
from fedfairx.federation.roster.signing_keys import new_signing_key
from fedfairx.privacy import Release
from member_helpers import D, World, released, terms, work, world


def true_release(here: World, name: str = "org1", **changes: Any) -> Release:
    agent = here.agent(name)
    work(agent)
    made = agent.release()
    fields = {"number": made.number, "packed": made.packed, "count": made.count, "mechanism": made.mechanism}
    return Release(**(fields | changes))


def reason(seal: SignedCodec, name: str, message: bytes, held: Release | None = None) -> str:
    with pytest.raises(MessageRefused) as refused:
        release, agreed = seal.open(name, message), seal.roster.terms
        accept(
            {} if held is None else {name: held},
            {name: release},
            own=seal.name,
            dimension=agreed.columns,
            mechanism=agreed.stated.digest(),
            limits=seal.limits.check,
        )
    assert not any(
        character.isdigit() and "." in word for word in str(refused.value).split() for character in word
    )
    return refused.value.reason


def test_what_goes_in_comes_out() -> None:
    here = world()
    release = true_release(here)
    message = here.seal("org1").close(release)
    assert here.seal("org2").open("org1", message) == release
    assert here.seal("org1").close(release) == message  # one way to write it
    parsed = Envelope.parse(message)
    assert (parsed.federation, parsed.agent, parsed.dimension) == (here.roster.federation, "org1", D)
    assert parsed.terms == here.roster.terms.digest
    # 58 bytes of header, the name, 53 of the release's header, 8 for each number, 64 of signature.
    assert len(message) == 58 + 4 + 53 + 8 * packed_size(D + 1) + 64
    assert message[115 : 115 + 8] == struct.pack("<d", release.packed[0])


def test_a_changed_byte_anywhere_is_refused() -> None:
    here = world()
    message = here.seal("org1").close(true_release(here))
    for place in range(len(message)):
        changed = bytearray(message)
        changed[place] ^= 1
        assert reason(here.seal("org2"), "org1", bytes(changed))
    for wrong in (b"", message[:-1], message + b"\0", message[:60], b"\0" * 500):
        assert reason(here.seal("org2"), "org1", wrong) in ("malformed", "signature")


def test_forged_signatures_and_others_keys() -> None:
    here = world()
    release, ear = true_release(here), here.seal("org3")
    message = here.seal("org1").close(release)
    assert reason(ear, "org1", message[:-64] + bytes(64)) == "signature"
    stranger = new_signing_key()
    forged = SignedCodec.__new__(SignedCodec)
    forged.roster, forged.name, forged._key = here.roster, "org1", stranger
    assert reason(ear, "org1", forged.close(release)) == "signature"
    forged._key = here.keys["org2"]  # a member, in another's name
    assert reason(ear, "org1", forged.close(release)) == "signature"
    assert reason(ear, "org2", message) == "sender"  # a true message, under another's name
    forged.name = "org9"
    assert reason(ear, "org9", forged.close(release)) == "unknown"


def test_another_federation_and_other_terms() -> None:
    here, there = world(), world()
    release = true_release(here)
    assert reason(there.seal("org2"), "org1", here.seal("org1").close(release)) == "federation"
    # The same convener, the same nonce, other terms: as if a member had another roster.
    other = World(here.roster, here.convener, here.keys, here.transport)
    forged = here.seal("org1")
    object.__setattr__(forged.roster, "terms", terms(horizon=2001))
    message = forged.close(release)
    object.__setattr__(forged.roster, "terms", terms())
    assert reason(other.seal("org2"), "org1", message) == "terms"


def test_a_valid_member_that_sends_nonsense() -> None:
    here = world()
    ear, pen, size = here.seal("org2"), here.seal("org1"), packed_size(D + 1)
    true = true_release(here)

    def sent(**changes: Any) -> str:
        return reason(ear, "org1", pen.close(true_release(here, **changes)))

    assert sent(packed=np.zeros(packed_size(D))) == "dimension"
    assert sent(packed=np.zeros(size - 1)) == "dimension"
    for value in (np.nan, np.inf, -np.inf, 1e308):
        packed = true.packed.copy()
        packed[2] = value
        assert sent(packed=packed) == "not finite"
    assert sent(mechanism="00" * 32) == "mechanism"
    assert sent(number=0) == "absurd"
    assert sent(number=2001) == "absurd"  # beyond the budget
    assert sent(count=2**63) == "absurd"
    assert sent(packed=true.packed + 1e9) == "absurd"
    assert sent(packed=np.full(size, 1e100)) == "absurd"


def test_fewer_records_than_before_are_refused() -> None:
    here = world()
    first, later = true_release(here), true_release(here, number=2, count=4)
    message = here.seal("org1").close(later)
    assert here.seal("org2").open("org1", message) == later
    assert reason(here.seal("org2"), "org1", message, first) == "absurd"


def test_a_key_that_is_not_in_the_roster_signs_nothing() -> None:
    here = world()
    with pytest.raises(StateError, match="not the one in the roster"):
        SignedCodec(here.roster, "org1", here.keys["org2"])
    with pytest.raises(StateError, match="'org9' is not in the roster"):
        SignedCodec(here.roster, "org9", new_signing_key())


def test_none_of_it_gets_in_and_none_of_it_stops_the_others() -> None:
    here = world()
    good, victim = here.member("org2"), here.member("org3")
    rogue = here.seal("org1")
    released(good)
    absurd = true_release(here, packed=true_release(here).packed + 1e9)
    for message in (b"", b"junk" * 100, rogue.close(absurd), here.seal("org2").close(true_release(here))):
        here.put("org1", message)
        victim.exchange()
    here.put("org9", here.seal("org1").close(true_release(here)))  # a name that nobody has
    assert victim.exchange()
    assert victim.agent.held.keys() == {"org2"}
    assert victim.refusals == {
        ("org1", "malformed"): 2,
        ("org1", "absurd"): 1,
        ("org1", "sender"): 1,
        ("org9", "sender"): 1,
    }
    assert victim.peers["org1"].refused == 4
    assert victim.peers["org2"].release == 1
    before = victim.agent.estimate.copy()
    victim.exchange()  # what was refused is not looked at again
    assert sum(victim.refusals.values()) == 5
    assert (victim.agent.estimate == before).all()
    here.put("org1", rogue.close(true_release(here)))  # and it may still come to its senses
    assert victim.receive() == ["org1"]


def test_another_convener_cannot_speak_for_a_federation() -> None:
    here, impostor = world(), new_signing_key()
    members = {name: key.public for name, key in here.keys.items()}
    other = create_roster(impostor, here.roster.terms, members)
    assert other.federation != here.roster.federation
    theirs = Member(here.agent("org1"), here.transport, SignedCodec(other, "org1", here.keys["org1"]))
    released(theirs)
    ear = here.member("org2")
    ear.exchange()
    assert ear.refusals == {("org1", "federation"): 1}
