"""Additive shares of a row, and their encryption to the openers.

A row is a vector of integers modulo 2^64. For n openers it is split into n vectors that add up to it: n - 1
are ChaCha20 streams of independent 32-byte seeds, and the last is what is left. Whoever lacks one of the n
shares lacks either what is left, which is then independent of what it has, or a stream that hides what is
left. So any n - 1 shares look uniform and independent of the row, as far as ChaCha20 does.

A share is encrypted to its opener's X25519 key with an ephemeral key. HKDF-SHA256 makes the key of
ChaCha20-Poly1305 out of the shared secret, the label, the ephemeral key and the opener's key. A key encrypts
one message, so the nonce is zero. The label says what the share is for (`Epoch.label`), so a share that is
copied into another message can't be decrypted there.
"""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from functools import lru_cache

import numpy as np
import numpy.typing as npt
from cryptography.exceptions import InvalidTag
from cryptography.hazmat.primitives.asymmetric.x25519 import X25519PrivateKey, X25519PublicKey
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms
from cryptography.hazmat.primitives.ciphers.aead import ChaCha20Poly1305
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF

from fedfairx.errors import InvalidInput, MessageRefused

Integers = npt.NDArray[np.int64]
Ring = npt.NDArray[np.uint64]

KEY_BYTES = 32  # of a seed, an X25519 key and a symmetric key
_OVERHEAD = KEY_BYTES + 16  # the ephemeral public key and the tag
_NONCE = bytes(12)


# --- the ring ---------------------------------------------------------------------------------------------


def as_ring(row: Integers) -> Ring:
    """A row of signed integers as numbers modulo 2^64."""
    return row.astype(np.uint64)


def as_integers(numbers: Ring) -> Integers:
    """The signed integers that these numbers modulo 2^64 stand for: exact if they fit into 64 bits."""
    return numbers.astype(np.int64)


def add(parts: Iterable[Ring], entries: int) -> Ring:
    """The sum modulo 2^64."""
    total = np.zeros(entries, dtype=np.uint64)
    for part in parts:
        total += part  # wraps
    return total


def expand(seed: bytes, entries: int) -> Ring:
    """The numbers that a seed stands for."""
    stream = Cipher(algorithms.ChaCha20(seed, bytes(16)), mode=None).encryptor()
    return from_bytes(stream.update(bytes(8 * entries)))


def to_bytes(numbers: Ring) -> bytes:
    """Little-endian bytes."""
    return numbers.astype("<u8").tobytes()


def from_bytes(content: bytes) -> Ring:
    """The numbers of `to_bytes`."""
    return np.frombuffer(content, dtype="<u8").astype(np.uint64)


# --- shares -----------------------------------------------------------------------------------------------


def split(row: Integers, seeds: Sequence[bytes]) -> list[bytes]:
    """The shares of a row: the seeds, and what is left of the row when their numbers are taken off."""
    mask = add((expand(seed, row.size) for seed in seeds), row.size)
    return [*seeds, to_bytes(as_ring(row) - mask)]


def share_bytes(entries: int, *, last: bool) -> int:
    """The length of a share: a seed, or for the last opener all numbers."""
    return 8 * entries if last else KEY_BYTES


def numbers_of(share: bytes, entries: int, *, last: bool) -> Ring:
    """The numbers of a decrypted share."""
    if len(share) != share_bytes(entries, last=last):
        raise MessageRefused("a share must have the length of the epoch's rows", reason="share")
    return from_bytes(share) if last else expand(share, entries)


# --- encryption -------------------------------------------------------------------------------------------


def derive(secret: bytes, label: bytes) -> bytes:
    """A 32-byte key from a secret, for the one purpose that the label names."""
    return HKDF(algorithm=SHA256(), length=KEY_BYTES, salt=None, info=label).derive(secret)


def sealed_bytes(entries: int, *, last: bool) -> int:
    """The length of an encrypted share."""
    return share_bytes(entries, last=last) + _OVERHEAD


def seal(public: bytes, share: bytes, label: bytes, ephemeral: bytes) -> bytes:
    """Encrypt a share to an opener. The ephemeral private key must never be used again."""
    mine = X25519PrivateKey.from_private_bytes(ephemeral)
    head = mine.public_key().public_bytes_raw()
    shared = mine.exchange(X25519PublicKey.from_public_bytes(public))
    return head + _box(shared, label, head, public).encrypt(_NONCE, share, label)


def unseal(private: bytes, sealed: bytes, label: bytes) -> bytes:
    """Decrypt a share; `MessageRefused` unless it was made for this key and label."""
    mine = X25519PrivateKey.from_private_bytes(private)
    head, body = sealed[:KEY_BYTES], sealed[KEY_BYTES:]
    try:
        shared = mine.exchange(X25519PublicKey.from_public_bytes(head))
        own = mine.public_key().public_bytes_raw()
        return _box(shared, label, head, own).decrypt(_NONCE, body, label)
    except (InvalidTag, ValueError):  # ValueError: a point of small order, or no point
        raise MessageRefused("a share can't be decrypted with the opener's key", reason="share") from None


def _box(shared: bytes, label: bytes, head: bytes, public: bytes) -> ChaCha20Poly1305:
    return ChaCha20Poly1305(derive(shared, label + head + public))


def public_key_of(private: bytes) -> bytes:
    """The public key of an X25519 private key."""
    return X25519PrivateKey.from_private_bytes(private).public_key().public_bytes_raw()


@lru_cache(1024)  # an epoch's keys are looked at whenever it is read again
def require_key(public: bytes) -> None:
    """Refuse an X25519 key of small order: everybody knows the secrets that are shared with it."""
    try:
        X25519PrivateKey.generate().exchange(X25519PublicKey.from_public_bytes(public))
    except ValueError:
        raise InvalidInput("an opener's key must be an X25519 key that is not of small order") from None
