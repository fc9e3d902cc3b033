"""A release and its bytes."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from hypothesis.extra.numpy import arrays

from fedfairx.errors import MessageRefused
from fedfairx.privacy.release import Release, leaf_digest

DIGEST = "ab" * 32


@given(
    st.integers(1, 2**63),
    st.integers(0, 2**63),
    arrays(np.float64, st.integers(1, 30), elements=st.floats(width=64)),
)
def test_bytes_and_back_are_the_same_bits(number: int, count: int, packed: np.ndarray) -> None:
    release = Release(number, packed, count, DIGEST)
    back = Release.from_bytes(release.to_bytes())
    assert back.to_bytes() == release.to_bytes()
    assert (back.number, back.count, back.mechanism) == (number, count, DIGEST)
    assert back.packed.tobytes() == packed.tobytes()
    assert back == release
    assert hash(back) == hash(release)
    assert back != number


def test_packed_is_read_only() -> None:
    release = Release(1, np.zeros(5), 0, DIGEST)
    with pytest.raises(ValueError, match="read-only"):
        release.packed[0] = 1.0
    with pytest.raises(ValueError, match="read-only"):
        Release.from_bytes(release.to_bytes()).packed[0] = 1.0


@pytest.mark.parametrize("damage", [b"", b"FFXR\x01", b"x" * 61, b"FFXR\x02" + bytes(56)])
def test_other_bytes_are_refused(damage: bytes) -> None:
    with pytest.raises(MessageRefused):
        Release.from_bytes(damage)


def test_a_cut_message_is_refused() -> None:
    message = Release(1, np.zeros(5), 0, DIGEST).to_bytes()
    with pytest.raises(MessageRefused):
        Release.from_bytes(message[:-3])


def test_leaf_digest_names_the_content() -> None:
    assert leaf_digest(np.zeros(3)) != leaf_digest(np.ones(3))
    assert leaf_digest(np.ones(3)) == leaf_digest(np.ones(3))
