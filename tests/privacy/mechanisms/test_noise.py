"""Base noise: a function of its key and its place, normal, and silent about the key."""

from __future__ import annotations

import copy
import hmac
import pickle
from collections.abc import Callable

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher
from cryptography.hazmat.primitives.ciphers.algorithms import AES
from cryptography.hazmat.primitives.ciphers.modes import ECB
from scipy import stats

from fedfairx.errors import InvalidInput, PrivacyError
from fedfairx.privacy.mechanisms.noise import KeyedNoise, SimulatedNoise, new_key, normals_from_words

KEY = bytes(range(32))
HERE = b"a place of 32 bytes in a ledger."


def _keyed(key: bytes = KEY, agent: str = "a", run: str = "r") -> KeyedNoise:
    return KeyedNoise(key, agent=agent, run=run)


def test_the_same_place_gives_the_same_bits_in_any_order() -> None:
    noise = _keyed()
    late, early = noise(7, 20, HERE).tobytes(), noise(2, 20, HERE).tobytes()
    again = _keyed()
    assert again(2, 20, HERE).tobytes() == early
    assert again(7, 20, HERE).tobytes() == late


def test_any_other_place_gives_other_bits() -> None:
    draws = [
        _keyed()(1, 50, HERE),
        _keyed()(2, 50, HERE),
        _keyed()(1, 50, bytes(32)),
        _keyed(agent="b")(1, 50, HERE),
        _keyed(run="s")(1, 50, HERE),
        _keyed(key=bytes(32))(1, 50, HERE),
        _keyed(agent="ar", run="")(1, 50, HERE),
        _keyed(agent="", run="ar")(1, 50, HERE),
    ]
    values = np.concatenate(draws)
    assert np.unique(values).size == values.size
    fingerprints = {_keyed().fingerprint, _keyed(agent="b").fingerprint, _keyed(key=bytes(32)).fingerprint}
    assert len(fingerprints) == 3


def test_it_is_aes_in_counter_mode_from_the_derived_key() -> None:
    """Written down once more with the block cipher alone."""
    label = b"fedfairx noise 2" + (1).to_bytes(8, "big") + b"a" + (1).to_bytes(8, "big") + b"r"
    release = b"release" + (9).to_bytes(8, "big") + HERE
    key = hmac.digest(hmac.digest(KEY, label, "sha256"), release, "sha256")
    block = Cipher(AES(key), ECB()).encryptor()
    words = np.frombuffer(block.update(b"".join(i.to_bytes(16, "big") for i in range(5))), dtype="<u8")
    assert _keyed()(9, 10, HERE).tobytes() == normals_from_words(words).tobytes()


@pytest.mark.parametrize("noise", [_keyed(), SimulatedNoise(5)], ids=["keyed", "simulated"])
def test_it_is_standard_normal_and_independent(noise) -> None:
    """200 releases of 500: p-values above 1e-4 (seeds and keys fixed)."""
    values = np.array([noise(k, 500, HERE) for k in range(1, 201)])
    assert stats.kstest(values.ravel(), "norm").pvalue > 1e-4
    n = values.size
    assert abs(np.square(values).mean() - 1) < 4 * np.sqrt(2 / n)
    assert abs((values[1:] * values[:-1]).mean()) < 4 / np.sqrt(n)
    assert abs((values[:, 1:] * values[:, :-1]).mean()) < 4 / np.sqrt(n)


def test_the_ends_of_the_word_are_finite_and_symmetric() -> None:
    words = np.array([0, 1, 2**64 - 1, 2**64 - 2, 2**63], dtype=np.uint64)
    values = normals_from_words(words)
    assert np.isfinite(values).all()
    assert values[0] == -values[1]
    assert 9.0 < values[1] < 9.3
    assert abs(values[2]) < 1e-9


def test_a_short_key_is_refused_without_showing_it() -> None:
    with pytest.raises(InvalidInput) as caught:
        _keyed(key=b"secret")
    assert "key must be at least 32 bytes, got key='6 bytes'" in str(caught.value)
    assert "secret" not in str(caught.value)


def test_repr_does_not_show_the_key() -> None:
    assert repr(_keyed()) == "KeyedNoise(agent='a', run='r')"
    assert repr(SimulatedNoise(3, agent=2)) == "SimulatedNoise(seed=3, agent=2)"


def test_new_keys_are_fresh_and_long_enough() -> None:
    first, second = new_key(), new_key()
    assert first != second
    assert len(first) == 32
    assert _keyed(key=first).is_private


def test_simulated_noise_says_that_it_is_not_private() -> None:
    assert not SimulatedNoise(0).is_private
    assert "NOT PRIVATE" in (SimulatedNoise.__doc__ or "")
    assert "simulated" in SimulatedNoise(0).fingerprint
    assert not np.array_equal(SimulatedNoise(0)(1, 5), SimulatedNoise(0, agent=1)(1, 5))
    assert np.array_equal(SimulatedNoise(0)(3, 5), SimulatedNoise(0)(3, 5))
    with pytest.raises(InvalidInput, match="seed"):
        SimulatedNoise(-1)


def test_simulated_noise_is_the_same_at_every_place() -> None:
    assert np.array_equal(SimulatedNoise(0)(3, 5, HERE), SimulatedNoise(0)(3, 5, bytes(32)))


@pytest.mark.parametrize("copied", [copy.copy, copy.deepcopy, pickle.dumps])
def test_a_keyed_noise_is_not_copied(copied: Callable[[KeyedNoise], object]) -> None:
    with pytest.raises(PrivacyError, match="a KeyedNoise can't be copied or pickled") as caught:
        copied(_keyed())
    assert KEY.hex() not in str(caught.value)


def test_it_knows_whose_it_is() -> None:
    assert _keyed(agent="clinic-3").owner == "clinic-3"
    assert SimulatedNoise(0, agent=3).owner is None
