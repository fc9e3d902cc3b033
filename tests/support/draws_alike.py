"""Keys and draws that must differ: of keyed noise, whatever its key, agent, run, release or place.

No two draws are alike whose key, agent, run, release or place differs in any way, however little.
"""

from __future__ import annotations

import hashlib
from collections.abc import Sequence

import numpy as np

from fedfairx.audit.subject import CheckResult
from fedfairx.privacy.mechanisms import noise
from fedfairx.privacy.mechanisms.noise import KeyedNoise
from fedfairx.util.arrays import Array
from whole_agents import LONG

_KEYS = 1 << 14  # keys of 16 or 24 bits would occur twice
_RELEASES = [*range(1, 65), *(1 << power for power in range(7, 33))]
#: Of agents and runs: they differ late, by case, by spaces, in how a letter is written, in where one ends.
_NAMES = [
    "",
    "A",
    "a",
    "a ",
    "a\0",
    "A ",
    "\u00e9",
    "e\u0301",
    LONG,
    f"{LONG}1",
    f"{LONG}2",
    f"{LONG}2".upper(),
]


def draws_alike(agents: Sequence[Array], *, key: str) -> CheckResult:
    """Count draws that occur twice, among those of agents and of inputs that are nearly the same."""
    # By chance two consecutive numbers occur again, up to signs, with probability below 1e-15 over all pairs.
    rows = [np.stack([draw[:-1], draw[1:]], axis=1) for draw in (*agents, *_related(key))]
    pairs = np.round(np.abs(np.concatenate(rows)), 12)
    alike = len(pairs) - len(np.unique(pairs, axis=0))
    return CheckResult(f"draws: alike, of {len(rows)}", float(alike), "= 0", alike == 0)


def _related(text: str) -> list[Array]:
    """Return draws whose key, agent, run, release or place differ as little as possible."""
    key, place = (hashlib.sha256(f"{part} {text}".encode()).digest() for part in ("key", "place"))

    def draw(
        key: bytes = key, agent: str = "audit", run: str = "audit", number: int = 1, place: bytes = place
    ) -> Array:
        return KeyedNoise(key, agent=agent, run=run)(number, 4, place)

    return [
        *(draw(number=number) for number in _RELEASES),
        *(draw(key=changed) for changed in _one_bit_changed(key)),
        *(draw(place=changed) for changed in (b"", place[:-1], *_one_bit_changed(place))),
        *(draw(agent=name) for name in _NAMES),
        *(draw(run=name) for name in _NAMES),
        *(draw(agent=agent, run=run) for agent, run in (("ab", "c"), ("a", "bc"), ("abc", ""), ("", "abc"))),
    ]


def _one_bit_changed(value: bytes) -> list[bytes]:
    number, bits = int.from_bytes(value, "big"), 8 * len(value)
    return [(number ^ 1 << bit).to_bytes(len(value), "big") for bit in range(bits)]


def keys() -> CheckResult:
    """Check that keys from the operating system are long enough and all different."""
    distinct = {key for key in (noise.new_key() for _ in range(_KEYS)) if len(key) >= 32}
    wrong = _KEYS - len(distinct)
    return CheckResult(f"keys: too short or made twice, of {_KEYS}", float(wrong), "= 0", wrong == 0)
