"""Ed25519 signing keys of members and of the convener, in files that only their owner may read."""

from __future__ import annotations

import os
from functools import lru_cache

from cryptography.exceptions import InvalidSignature
from cryptography.hazmat.primitives.asymmetric.ed25519 import Ed25519PrivateKey, Ed25519PublicKey
from cryptography.hazmat.primitives.serialization import (
    Encoding,
    NoEncryption,
    PrivateFormat,
    load_pem_private_key,
)

from fedfairx.errors import StateError
from fedfairx.util.files import require_private, write_private
from fedfairx.util.foreign_files import read_file

SIGNATURE_BYTES = 64
_PRIME = 2**255 - 19
_EIGHTH = 0x7A03AC9277FDC74EC6CC392CFA53202A0F67100D760B3CBA4FD84D3D706A17C7  # y of two points of order 8

#: All encodings of the eight points whose order divides 8, those too that RFC 8032 does not allow and the
#: library reads: y above the prime, and a sign of x = 0. With one of them as public key, a signature that
#: nobody has made verifies for one message in eight or more.
SMALL_ORDER = frozenset(
    (y | sign << 255).to_bytes(32, "little").hex()
    for y in (0, 1, _EIGHTH, _PRIME - _EIGHTH, _PRIME - 1, _PRIME, _PRIME + 1)
    for sign in (0, 1)
)


class SigningKey:
    """A private key, which signs and never shows itself."""

    def __init__(self, key: Ed25519PrivateKey) -> None:
        self._key = key

    @property
    def public(self) -> str:
        """The public key, 32 bytes as hexadecimal digits."""
        return self._key.public_key().public_bytes_raw().hex()

    def sign(self, message: bytes) -> bytes:
        return self._key.sign(message)

    def __repr__(self) -> str:
        return f"SigningKey(public={self.public!r})"

    def write(self, path: str | os.PathLike[str]) -> None:
        """Write a new file with mode 0600; an existing one is never overwritten."""
        write_private(path, self._key.private_bytes(Encoding.PEM, PrivateFormat.PKCS8, NoEncryption()))

    @classmethod
    def read(cls, path: str | os.PathLike[str]) -> SigningKey:
        """Read a key file; refuse one that others may read."""
        require_private(path)
        try:
            key = load_pem_private_key(read_file(path), password=None)
        except (ValueError, TypeError):
            raise StateError(f"{path} must hold an unencrypted private key as PEM") from None
        if not isinstance(key, Ed25519PrivateKey):
            raise StateError(f"{path} must hold an Ed25519 key, got another kind")
        return cls(key)


def new_signing_key() -> SigningKey:
    """Generate a key."""
    return SigningKey(Ed25519PrivateKey.generate())


def signed_by(public: str, message: bytes, signature: bytes) -> bool:
    """Whether `signature` of `message` is valid under the public key; never under one of small order."""
    if public in SMALL_ORDER:
        return False
    try:
        _public_key(public).verify(signature, message)
    except (InvalidSignature, ValueError):
        return False
    return True


@lru_cache(1024)  # used for every message of a member; loading a key takes half as long as verifying
def _public_key(public: str) -> Ed25519PublicKey:
    return Ed25519PublicKey.from_public_bytes(bytes.fromhex(public))
