"""Shares add up to the row, fewer than all of them say nothing about it, and each opens in one place only."""

from __future__ import annotations

import itertools
import secrets

import numpy as np
import pytest
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey
from hypothesis import given
from hypothesis import strategies as st

from fedfairx.errors import InvalidInput, MessageRefused
from fedfairx.federation.aggregation import shares
from fedfairx.federation.aggregation.shares import (
    KEY_BYTES,
    Ring,
    add,
    as_integers,
    as_ring,
    derive,
    expand,
    numbers_of,
    public_key_of,
    require_key,
    seal,
    sealed_bytes,
    split,
    unseal,
)

LABEL = b"a label"
EDGES = [0, 1, -1, 2**63 - 1, -(2**63), 2**53 + 1]


@given(
    st.lists(st.sampled_from(EDGES) | st.integers(-(2**63), 2**63 - 1), min_size=1, max_size=30),
    st.lists(st.binary(min_size=32, max_size=32), min_size=1, max_size=12),
)
def test_shares_add_up_to_the_row(values: list[int], seeds: list[bytes]) -> None:
    row = np.array(values, dtype=np.int64)
    parts = split(row, seeds)
    last = len(parts) - 1
    numbers = [numbers_of(part, row.size, last=place == last) for place, part in enumerate(parts)]
    assert as_integers(add(numbers, row.size)).tolist() == values


def test_the_stream_is_chacha20_of_rfc_8439() -> None:
    """The first block for the key and nonce of zero: appendix A.1, test vector 1."""
    block = bytes.fromhex(
        "76b8e0ada0f13d90405d6ae55386bd28bdd219b8a08ded1aa836efcc8b770dc7"
        "da41597c5157488d7724e03fb8d84a376a43b8f41518a11cc387b669b2ee6586"
    )
    assert expand(bytes(32), 8).tolist() == np.frombuffer(block, "<u8").tolist()


@pytest.mark.parametrize("openers", [2, 3, 5])
def test_without_one_share_every_row_is_equally_likely(openers: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """The exact argument: a bijection of the hidden stream maps a view of one row to that of another.

    With streams x_1 … x_c and the row r, the last share is r - Σ x. Whoever lacks stream j sees the others
    and r - Σ x. For the row r' the stream x_j + r' - r gives the same view, and x_j is as likely as that. Who
    lacks the last share sees streams only.
    """
    rng = np.random.default_rng(1)
    first, second = rng.integers(-(2**63), 2**63, (2, 4))
    streams = rng.integers(0, 2**64, (openers - 1, 4), dtype=np.uint64)
    seeds = [bytes([number]) * 32 for number in range(openers - 1)]

    def view(row: np.ndarray, hidden: int, used: Ring) -> list[list[int]]:
        monkeypatch.setattr(shares, "expand", lambda seed, _: used[seed[0]])
        parts = split(row, seeds)
        numbers = [*used, np.frombuffer(parts[-1], "<u8")]
        assert parts[:-1] == seeds
        return [part.tolist() for place, part in enumerate(numbers) if place != hidden]

    for hidden in range(openers):
        others = streams.copy()
        if hidden < openers - 1:
            others[hidden] += as_ring(second) - as_ring(first)
        assert view(first, hidden, streams) == view(second, hidden, others)


def test_any_shares_but_one_are_uniform() -> None:
    """χ² of the bytes of the numbers that c of c + 1 openers see, for extreme rows: with each hidden in turn.

    The seeds are fixed. For a right program the statistic is above 255 + 6·√510 with probability 1e-7 in each
    of 24 tests: 3e-6 in all.
    """
    rng = np.random.default_rng(7)
    for row in (np.zeros(400, dtype=np.int64), np.full(400, 2**62)):
        for hidden in range(3):
            seen = []
            for _ in range(40):
                parts = split(row, [rng.bytes(32), rng.bytes(32)])
                numbers = [numbers_of(part, 400, last=place == 2) for place, part in enumerate(parts)]
                kept = [each for place, each in enumerate(numbers) if place != hidden]
                seen += [*kept, kept[0] - kept[1], kept[0] + kept[1]]  # and what they can make of two
            for one in range(4):
                counts = np.bincount(np.concatenate(seen[one::4]).view(np.uint8), minlength=256)
                expected = counts.sum() / 256
                assert ((counts - expected) ** 2 / expected).sum() < 255 + 6 * 510**0.5


def test_a_share_opens_with_its_key_and_label_alone() -> None:
    private, other = secrets.token_bytes(32), secrets.token_bytes(32)
    sealed = seal(public_key_of(private), b"a share", LABEL, secrets.token_bytes(32))
    assert unseal(private, sealed, LABEL) == b"a share"
    for key, text, label in (
        (other, sealed, LABEL),
        (private, sealed, b"another label"),
        (private, sealed[:-1], LABEL),
        (private, b"", LABEL),
        (private, bytes(32) + sealed[32:], LABEL),  # an ephemeral key of small order
        *((private, _flipped(sealed, place), LABEL) for place in range(len(sealed))),
    ):
        with pytest.raises(MessageRefused):
            unseal(key, text, label)


def _flipped(text: bytes, place: int) -> bytes:
    return text[:place] + bytes([text[place] ^ 1]) + text[place + 1 :]


def test_a_sealed_share_has_the_length_of_its_kind_whatever_is_in_it() -> None:
    public = public_key_of(secrets.token_bytes(32))
    for row in (np.zeros(5, dtype=np.int64), np.full(5, -(2**63))):
        parts = split(row, [secrets.token_bytes(32)])
        for last, part in zip((False, True), parts, strict=True):
            sealed = seal(public, part, LABEL, secrets.token_bytes(32))
            assert len(sealed) == sealed_bytes(5, last=last)
    for wrong in (b"", bytes(39), bytes(41)):
        with pytest.raises(MessageRefused, match="length"):
            numbers_of(wrong, 5, last=True)
        with pytest.raises(MessageRefused, match="length"):
            numbers_of(wrong, 5, last=False)


def test_keys_differ_by_label_and_by_secret() -> None:
    made = [derive(secret, label) for secret, label in itertools.product((b"a", b"b"), (b"c", b"d"))]
    assert len({*made}) == 4
    assert {len(key) for key in made} == {KEY_BYTES}


def test_keys_of_small_order_are_refused() -> None:
    for point in (bytes(32), bytes([1, *bytes(31)])):
        with pytest.raises(InvalidInput, match="small order"):
            require_key(point)
    with pytest.raises(InvalidInput, match="X25519"):
        require_key(bytes(31))
    require_key(X25519PrivateKey.generate().public_key().public_bytes_raw())
