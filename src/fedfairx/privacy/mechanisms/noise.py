"""Base noise: standard normals for release k, the same ones each time they are drawn.

A private agent's noise must be unpredictable to everyone else and must never be drawn twice: fresh noise
for the same data averages out, and the same noise under other data subtracts out. So it is a keyed
function of (agent, run, release, place) and not a generator with a position that a crash could repeat or
skip. The place is the ledger's (`ledger.py`): a message that is made again after a crash has the same place;
any other release, from a copied, restored or new ledger, under other bounds or another budget, has another.

Floating point. A 64-bit word becomes one normal: its lowest bit the sign, the others a tail probability in
(0, ½) put through the inverse normal distribution function. So |z| ≤ 9.2 and the law is exact to 2⁻⁶⁴ in
probability and to rounding in value. As with every sampler that returns floats, the set of values that
noise plus data can take depends, in its last bits, on the data (Mironov 2012); the privatizer rounds
releases to a grid coarser than those bits. Rounding is post-processing and removes the known attack; it
is not a proof in exact arithmetic.
"""

from __future__ import annotations

import hmac
import secrets
from typing import Protocol

import numpy as np

from fedfairx.errors import require
from fedfairx.privacy.release import NoCopy
from fedfairx.util.arrays import Array

_KEY_BYTES = 32


class NoiseSource(Protocol):
    """Standard normals by release number and place: callable as noise(k, count, place)."""

    @property
    def is_private(self) -> bool:
        """Whether only the holder of the key can compute the noise."""

    @property
    def fingerprint(self) -> str:
        """Identifies the source without revealing it; a run continues with the source that it began with."""

    @property
    def owner(self) -> str | None:
        """Name of the agent that it was made for; None if any agent may use it."""

    def __call__(self, number: int, count: int, place: bytes, /) -> Array: ...


def new_key() -> bytes:
    """Make a random noise key: as secret as the data, to be stored with the ledger.

    >>> len(new_key())
    32
    """
    return secrets.token_bytes(_KEY_BYTES)


class KeyedNoise(NoCopy):
    """AES-256-CTR as a pseudo-random function of (key, agent, run, release, place), turned into normals.

    >>> noise = KeyedNoise(new_key(), agent="clinic-3", run="first")
    >>> noise.is_private
    True

    Guarantees:
    - The same key, agent, run, release, place and count give the same bits; if any of them differs, the bits
      are unrelated.
    - Without the key the noise can't be distinguished from true Gaussian noise, as long as AES and
      HMAC-SHA-256 can't be distinguished from random functions.
    - Neither `repr` nor an error shows the key, and it can't be copied or pickled.
    """

    is_private: bool = True

    def __init__(self, key: bytes, *, agent: str, run: str) -> None:
        require(len(key) >= _KEY_BYTES, "key", f"must be at least {_KEY_BYTES} bytes", f"{len(key)} bytes")
        label = b"fedfairx noise 2"
        for part in (agent.encode(), run.encode()):
            # Lengths go in front, so that ("ab", "c") and ("a", "bc") differ.
            label += len(part).to_bytes(8, "big") + part
        self._subkey = hmac.digest(key, label, "sha256")
        self.fingerprint = hmac.digest(self._subkey, b"fedfairx noise fingerprint", "sha256").hex()
        self.agent = self.owner = agent
        self.run = run

    def __call__(self, number: int, count: int, place: bytes, /) -> Array:
        """Draw `count` standard normals for release `number` at `place`."""
        from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes

        # A key for each release and place: no two of them share a block.
        key = hmac.digest(self._subkey, b"release" + number.to_bytes(8, "big") + place, "sha256")
        stream = Cipher(algorithms.AES(key), modes.CTR(bytes(16))).encryptor().update(bytes(8 * count))
        return normals_from_words(np.frombuffer(stream, dtype="<u8"))

    def __repr__(self) -> str:
        return f"KeyedNoise(agent={self.agent!r}, run={self.run!r})"


class SimulatedNoise:
    """Seeded noise for simulation: NOT PRIVATE, since whoever knows the seed can remove the noise.

    >>> SimulatedNoise(seed=0).is_private
    False

    Guarantees:
    - None about privacy. `is_private` is False, and a privatizer that uses it says so in its guarantee.
    - The same seed, agent, release and count give the same bits, whatever the place; agents are independent.
    """

    is_private: bool = False
    owner: str | None = None

    def __init__(self, seed: int, *, agent: int = 0) -> None:
        require(seed >= 0, "seed", "must be >= 0", seed)
        self._key = np.random.SeedSequence([seed, agent]).generate_state(2, np.uint64)
        self.fingerprint = f"simulated:{seed}:{agent}"
        self.seed = seed
        self.agent = agent

    def of_next_run(self) -> SimulatedNoise:
        """A source for the same agent's next run, with unrelated noise."""
        return SimulatedNoise(self.seed, agent=self.agent + 2**32)

    def __call__(self, number: int, count: int, place: bytes = b"", /) -> Array:  # noqa: ARG002 (see above)
        """Draw `count` standard normals for release `number`."""
        generator = np.random.Generator(np.random.Philox(key=self._key, counter=number << 128))
        return generator.standard_normal(count)

    def __repr__(self) -> str:
        return f"SimulatedNoise(seed={self.seed}, agent={self.agent})"


def normals_from_words(words: np.ndarray) -> Array:
    """Turn each 64-bit word into one standard normal, by the inverse distribution function."""
    from scipy.special import ndtri

    tail = ((words >> np.uint64(1)).astype(np.float64) + 0.5) * 2.0**-64
    magnitude = -ndtri(tail)
    return np.where((words & np.uint64(1)).astype(bool), magnitude, -magnitude)
