"""Seals: a digest of each row, chained through the log of its agent.

A seal is 48 bytes: the digest of the row before it in the agent's log, whichever table that is in; the row's
own digest, the first 16 bytes of BLAKE2b over that one, the salt and all columns; and the salt, random bytes.
A changed row no longer fits its own digest; a removed, inserted or moved one breaks the chain at the next
row. There is no key: seals protect against damage and casual edits. Whoever rewrites a whole log changes its
last digest, the head. A row that loses its content also loses its salt, so that nobody who guesses the
content can compare the guess with the digest.
"""

from __future__ import annotations

import os
from collections.abc import Iterator, Sequence
from functools import lru_cache
from hashlib import blake2b
from struct import Struct
from typing import Any

SIZE = 16  # bytes of a digest and of a salt
#: The parts of a seal.
PREVIOUS, DIGEST, SALT = slice(SIZE), slice(SIZE, 2 * SIZE), slice(2 * SIZE, 3 * SIZE)
#: In SQL: the seal of a row that loses its content.
WITHOUT_SALT = f"SUBSTR(seal, 1, {2 * SIZE})"
START = bytes(SIZE)  # stands in for the row before the first one

#: The columns of each table except the seal. Those of a plain row come first; the others have defaults in the
#: database.
PLAIN_DECISION = "seq, agent, time, contexts, policy, theta, action, drawn, propensity"
NOTED_DECISION = f"{PLAIN_DECISION}, model_version"  # of most decisions of a service
_TEXTS = "names, groups, key, digest, extra, slots"
NO_TEXTS = 6 * (None,)  # where a decision has none of them
DECISION = f"{PLAIN_DECISION}, mode, baseline, control_share, model_version, {_TEXTS}"
PLAIN_OUTCOME = "seq, agent, decision, time, reward"
OUTCOME = f"{PLAIN_OUTCOME}, status, person, slot, turn"
EVENT = "seq, agent, time, kind, body"

_DECISION = Struct("<16s16s5qd3i")
_DECISION_REST = Struct("<qdq8i")
_OUTCOME = Struct("<16s16s4q?d")
_OUTCOME_REST = Struct("<2q2i")
_EVENT = Struct("<16s16s3qii")


def salts() -> Iterator[bytes]:
    """Random salts without end; the system is asked for many at a time."""
    while True:
        many = os.urandom(256 * SIZE)
        yield from (many[at : at + SIZE] for at in range(0, len(many), SIZE))


def columns(names: str, table: str) -> str:
    """The columns of a sealed row and its seal, as those of `table` in a join."""
    return ", ".join(f"{table}.{name}" for name in (*names.split(", "), "seal"))


def seal_decision(previous: bytes, salt: bytes, row: Sequence[Any], prefix: str) -> bytes:
    """The seal of a row of `DECISION`, or of fewer columns; `prefix` is the one of the decision's id.

    Columns after those of `DECISION` are ignored, as in the other functions: a stored row ends with its seal.
    """
    return seal_packed_decision(previous, salt, row[:9], packed_rest(prefix, row[9:19]))


def seal_packed_decision(previous: bytes, salt: bytes, plain: Sequence[Any], rest: bytes) -> bytes:
    """The seal of a row of `PLAIN_DECISION` and the `packed_rest` of its other columns."""
    seq, agent, time, contexts, policy, theta, action, drawn, propensity = plain
    numbers = _DECISION.pack(
        previous, salt, seq, agent, time, action, drawn, propensity, len(contexts), len(policy), len(theta)
    )
    return previous + blake2b(b"".join((numbers, contexts, policy, theta, rest))).digest()[:SIZE] + salt


def packed_rest(prefix: str, rest: Sequence[Any]) -> bytes:
    """The columns of `DECISION` or `NOTED_DECISION` after those of `PLAIN_DECISION`, as bytes."""
    if len(rest) < 10:
        return _noted_rest(prefix, "live", 0.0, *rest)
    mode, baseline, control_share, model_version, *texts = rest
    if baseline is None and rest[4:] == NO_TEXTS:
        return _noted_rest(prefix, mode, control_share, model_version)
    return _decision_rest(prefix, mode, baseline, control_share, model_version, *texts)


def seal_outcome(previous: bytes, salt: bytes, row: Sequence[Any]) -> bytes:
    """The seal of a row of `OUTCOME` or `PLAIN_OUTCOME`."""
    seq, agent, decision, time, reward = row[:5]
    rest = row[5:9]
    numbers = _OUTCOME.pack(
        previous, salt, seq, agent, decision, time, reward is None, 0.0 if reward is None else reward
    )
    packed = _REWARDED if not rest or rest == _REWARDED_COLUMNS else _outcome_rest(*rest)
    return previous + blake2b(numbers + packed).digest()[:SIZE] + salt


def seal_event(previous: bytes, salt: bytes, row: Sequence[Any]) -> bytes:
    """The seal of a row of `EVENT`."""
    seq, agent, time, kind, body = row[:5]
    name = kind.encode()
    numbers = _EVENT.pack(previous, salt, seq, agent, time, len(name), len(body))
    return previous + blake2b(numbers + name + body).digest()[:SIZE] + salt


def seal_other(*values: object) -> bytes:
    """The digest of a row that is in no chain: an agent's settings, a snapshot."""
    parts = [value if isinstance(value, bytes) else str(value).encode() for value in values]
    return blake2b(b"".join(len(part).to_bytes(8, "little") + part for part in parts)).digest()[:SIZE]


def _packed(texts: Sequence[str | None]) -> tuple[list[int], bytes]:
    """The lengths of texts, -1 for NULL, and all of them as bytes."""
    return [-1 if text is None else len(text) for text in texts], "".join(filter(None, texts)).encode()


def _decision_rest(
    prefix: str, mode: str, baseline: int | None, control_share: float, model_version: int, *texts: str | None
) -> bytes:
    """The columns of `DECISION` after those of `PLAIN_DECISION`, as bytes."""
    sizes, content = _packed((prefix, mode, *texts))
    row = -1 if baseline is None else baseline
    return _DECISION_REST.pack(row, control_share, model_version, *sizes) + content


@lru_cache(1024, typed=True)  # equal numbers of another type are refused
def _noted_rest(prefix: str, mode: str, control_share: float, model_version: int = 0) -> bytes:
    """`_decision_rest` without baseline and texts, which many decisions share."""
    return _decision_rest(prefix, mode, None, control_share, model_version, *NO_TEXTS)


def _outcome_rest(status: str, person: str | None, slot: int, turn: int) -> bytes:
    """The columns of `OUTCOME` after those of `PLAIN_OUTCOME`, as bytes."""
    sizes, content = _packed((status, person))
    return _OUTCOME_REST.pack(slot, turn, *sizes) + content


_REWARDED_COLUMNS = ("rewarded", None, 0, 0)
_REWARDED = _outcome_rest(*_REWARDED_COLUMNS)
