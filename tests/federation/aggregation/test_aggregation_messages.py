"""Messages: one way to write each, every byte signed, and nothing of another epoch, kind or sender taken."""

from __future__ import annotations

import itertools
from typing import Any

import msgspec
import pytest
from hypothesis import given
from hypothesis import strategies as st

from fedfairx.errors import InvalidInput, MessageRefused
from fedfairx.federation.aggregation import messages
from fedfairx.federation.aggregation.epoch import Epoch, typed
from fedfairx.federation.aggregation.messages import (
    Acceptance,
    Message,
    Partial,
    Past,
    PastTotal,
    RowMessage,
    digest,
    key_place,
    parse,
    past_place,
    read,
    read_key,
    row_and_share,
    rows_digest,
    sign,
    verified,
    with_share,
)
from fedfairx.federation.roster.signing_keys import new_signing_key, signed_by
from row_helpers import group

HERE = group(4, 1)
EPOCH, NAMES = HERE.epoch, [*HERE.epoch.members]


def row(epoch: Epoch = EPOCH, name: str = "org00", number: int = 3, **changes: Any) -> RowMessage:
    fields: dict[str, Any] = {"earlier": (None, bytes(32)), "shares": (bytes(32), b"1" * 32)}
    return RowMessage(epoch.digest, name, number, **fields | {"federation": epoch.federation} | changes)


def partial(name: str = "org00", number: int = 3, **changes: Any) -> Partial:
    digests = changes.get("digests", (bytes(32),) * len(NAMES) if name == "org00" else ())
    rows = rows_digest((bytes(32),) * len(NAMES))
    fields = {"rows": rows, "total": bytes(8 * EPOCH.entries), "digests": digests} | changes
    return Partial(EPOCH.digest, name, number, **fields)


def signed(message: Message, by: str | None = None) -> bytes:
    return sign(message, HERE.keys[by or message.name])


def reason(message: bytes, kind: Any = RowMessage, epoch: Epoch = EPOCH) -> str:
    with pytest.raises(MessageRefused) as refused:
        read(message, kind, epoch)
    return refused.value.reason


def test_what_goes_in_comes_out() -> None:
    for message in (row(), partial(), partial("org01"), row(earlier=()), row(number=EPOCH.rounds)):
        assert read(signed(message), type(message), EPOCH) == message  # type: ignore[type-var]
        assert signed(message) == signed(message)


def test_a_changed_byte_anywhere_is_refused() -> None:
    message = signed(row())
    for place in range(len(message)):
        changed = bytearray(message)
        changed[place] ^= 1
        assert reason(bytes(changed))
    for wrong in (
        b"",
        message[:-1],
        message + b"\0",
        bytes(200),
        b"\x91" * 5000,
        b"\xdd\xff\xff\xff\xff" * 30,
    ):
        assert reason(wrong) in ("malformed", "signature")


@given(st.binary(max_size=400))
def test_no_bytes_break_the_parser(junk: bytes) -> None:
    for message in (junk, signed(row())[:80] + junk, msgspec.msgpack.encode(["row", *junk]) + bytes(64)):
        with pytest.raises(MessageRefused):
            read(message, RowMessage, EPOCH)


def test_the_same_bytes_are_verified_once(monkeypatch: pytest.MonkeyPatch) -> None:
    checked = []

    def counted(public: str, text: bytes, signature: bytes) -> bool:
        checked.append(text)
        return signed_by(public, text, signature)

    monkeypatch.setattr(messages, "signed_by", counted)
    messages._is_signed.cache_clear()
    for _ in range(3):
        assert read(signed(row()), RowMessage, EPOCH) == row()
    assert len(checked) == 1
    other = signed(row(), by="org01")
    for _ in range(2):
        assert reason(other) == "signature"  # a refused one again
    assert len(checked) == 2
    assert reason(signed(row()), Partial) == "kind"


def test_there_is_one_way_to_write_a_message() -> None:
    """MessagePack can write 3 in two bytes; the signature of a member does not make that another message."""
    body = msgspec.msgpack.encode(row())
    place = body.index(b"\x03", 1 + 4 + 34 + 6)
    longer = body[:place] + b"\xcc\x03" + body[place + 1 :]
    assert msgspec.msgpack.decode(longer) == msgspec.msgpack.decode(body)
    assert (
        reason(longer + HERE.keys["org00"].sign(b"fedfairx aggregation message 2\n" + longer)) == "malformed"
    )
    more = msgspec.msgpack.encode([*msgspec.msgpack.decode(body), 1])
    assert reason(more + HERE.keys["org00"].sign(b"fedfairx aggregation message 2\n" + more)) == "malformed"


def test_of_another_epoch_kind_sender_round_or_signed_for_something_else() -> None:
    there = group(4, 1).epoch
    assert reason(signed(row(there))) == "epoch"
    assert reason(signed(partial())) == "kind"
    assert reason(signed(row(), by="org01")) == "signature"
    assert reason(sign(row(name="nobody"), new_signing_key())) == "unknown"
    assert reason(signed(partial("org02")), Partial) == "opener"  # a member, but no opener
    for number in (0, -1, EPOCH.rounds + 1, 2**63):
        assert reason(signed(row(number=number))) == "round"
    body = msgspec.msgpack.encode(row())
    assert reason(body + HERE.keys["org00"].sign(b"fedfairx envelope 1\n" + body)) == "signature"


def test_parts_of_other_lengths() -> None:
    fine = row().shares
    for shares in ((), fine[:1], (*fine, fine[0]), (fine[0] + b"\0", fine[1])):
        assert reason(signed(row(shares=shares))) == "malformed"
    assert reason(signed(row(earlier=(b"short",)))) == "malformed"
    assert reason(signed(row(number=1, earlier=(None,)))) == "malformed"  # there is no round before the first
    assert reason(signed(partial(digests=(bytes(32),))), Partial) == "malformed"
    assert reason(signed(partial(digests=(b"1" * 32,) * 4)), Partial) == "malformed"  # of another digest
    assert reason(signed(partial(digests=())), Partial) == "malformed"
    assert reason(signed(partial("org01", digests=(bytes(32),) * 4)), Partial) == "malformed"
    assert reason(signed(partial(total=bytes(8))), Partial) == "malformed"


def test_an_openers_key_is_for_one_federation_number_and_name() -> None:
    made = messages.OpenerKey(key_place("ab" * 16, 3), "org00", bytes(32))
    public = HERE.keys["org00"].public
    right: dict[str, Any] = {"federation": "ab" * 16, "number": 3, "name": "org00", "public": public}
    assert read_key(signed(made), **right) == bytes(32)
    for change, why in (
        ({"federation": "cd" * 16}, "epoch"),
        ({"number": 4}, "epoch"),
        ({"name": "org01"}, "sender"),
    ):
        with pytest.raises(MessageRefused) as refused:
            read_key(signed(made), **right | change)
        assert refused.value.reason == why
    short = messages.OpenerKey(made.epoch, "org00", bytes(31))
    with pytest.raises(MessageRefused, match="32 bytes"):
        read_key(signed(short), **right)


def test_the_past_is_of_one_federation() -> None:
    past = Past(past_place("ab" * 16), "org00", (PastTotal(bytes(32), 1, 4, 2, bytes(24)),))
    public = HERE.keys["org00"].public
    assert verified(signed(past), Past, epoch=past_place("ab" * 16), name="org00", public=public) == past
    with pytest.raises(MessageRefused, match="another epoch"):
        verified(signed(past), Past, epoch=past_place("cd" * 16), name="org00", public=public)


def test_a_row_names_its_federation() -> None:
    assert read(signed(row()), RowMessage, EPOCH).federation == EPOCH.federation
    assert reason(signed(row(federation="cd" * 16))) == "malformed"


@given(st.binary(max_size=100), st.binary(max_size=100))
def test_a_row_travels_with_one_share(one: bytes, two: bytes) -> None:
    assert row_and_share(with_share(one, two)) == (one, two)
    if one != msgspec.msgpack.encode((b"", b"")):
        with pytest.raises(MessageRefused):
            row_and_share(one + b"\xc1")


def test_the_list_of_earlier_rows_is_read_by_round() -> None:
    one, two = b"1" * 32, b"2" * 32
    message = row(number=5, earlier=(one, None, two))  # of rounds 2, 3 and 4
    assert message.lists(2, one)
    assert message.lists(4, two)
    for number, seen in ((1, one), (1, two), (2, two), (3, one), (4, one), (5, two), (6, one), (0, one)):
        assert not message.lists(number, seen)
    assert not row(number=5, earlier=()).lists(4, one)


def test_digests_tell_all_fields_apart_and_not_the_signature() -> None:
    messages = [
        row(),
        row(name="org01"),
        row(number=4),
        row(earlier=()),
        partial(),
        Acceptance(EPOCH.digest, "org00"),
    ]
    seen = [digest(signed(message)) for message in messages]
    assert len({*seen}) == len(seen)
    assert digest(signed(row())[:-64] + bytes(64)) == digest(signed(row()))
    assert parse(signed(row())[:-64] + bytes(64)) == row()  # parsing verifies nothing


def test_labels_are_typed_and_length_prefixed() -> None:
    parts: list[tuple[object, ...]] = [
        ("a", "b"), ("ab",), ("a", "b", ""), ("", "ab"), (b"ab",), (1, 2), (12,), ("1", "2"), (("a", "b"),),
        (None,), (),
    ]  # fmt: skip
    made = [typed(kind, *each) for kind in ("a", "ab") for each in parts]
    assert len({*made}) == len(made)


def test_a_label_covers_federation_roster_epoch_round_sender_and_opener() -> None:
    same: dict[str, Any] = {
        name: getattr(EPOCH, name)
        for name in ("federation", "roster", "number", "members", "openers", "honest", "entries", "rounds")
    }
    members = {**EPOCH.members, "zed": new_signing_key().public}
    epochs = [
        EPOCH,
        Epoch(**same | {"federation": "00" * 16}),
        Epoch(**same | {"roster": "00" * 32}),
        Epoch(**same | {"number": 2}),
        Epoch(**same | {"members": members}),
        Epoch(**same | {"openers": dict(zip(NAMES[1:3], EPOCH.openers.values(), strict=True))}),
        Epoch(**same | {"honest": 2}),
        Epoch(**same | {"entries": 4}),
        Epoch(**same | {"rounds": 8}),
    ]
    assert len({epoch.digest for epoch in epochs}) == len(epochs)
    labels = [
        epoch.label(purpose, number, sender, opener)
        for epoch in epochs
        for purpose, number, sender, opener in itertools.product(
            ("share", "seed"), (1, 2), ("org00", "org01"), ("org00", "org01")
        )
    ]
    assert len({*labels}) == len(labels)
    for text in (EPOCH.federation.encode(), EPOCH.roster.encode(), EPOCH.digest):
        assert text in EPOCH.label("share", 1, "org00", "org01")


@pytest.mark.parametrize(
    ("changes", "text"),
    [
        ({"honest": 1}, "honest must be >= 2"),
        ({"honest": 4}, "members must be at least 5"),
        ({"openers": {"org00": b"x"}}, "openers must be at least two"),
        ({"openers": {"org00": b"x", "zed": b"y"}}, "openers must be members"),
        ({"openers": {"org00": bytes(32), "org01": b"y" * 32}}, "small order"),
        ({"openers": dict.fromkeys(("org00", "org01"), EPOCH.openers["org00"])}, "same key twice"),
        ({"members": {**EPOCH.members, "a/b": "00" * 32}}, "name must be"),
        ({"number": 0}, "number must be >= 1"),
        ({"entries": 0}, "entries must be >= 1"),
        ({"rounds": 0}, "rounds must be >= 1"),
    ],
)  # fmt: skip
def test_epochs_that_would_not_hide_a_row_are_refused(changes: dict[str, Any], text: str) -> None:
    same = {name: getattr(EPOCH, name) for name in ("federation", "roster", "number", "members", "openers")}
    same |= {"honest": 3, "entries": 3, "rounds": 9}
    with pytest.raises(InvalidInput, match=text):
        Epoch(**same | changes)
