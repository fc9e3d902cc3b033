"""A small group of senders and openers of one epoch: their keys, rows and partials."""

from __future__ import annotations

import hashlib
from collections.abc import Mapping
from dataclasses import dataclass

import numpy as np

from fedfairx.federation.aggregation.epoch import Epoch
from fedfairx.federation.aggregation.messages import with_share
from fedfairx.federation.aggregation.records import Opened
from fedfairx.federation.aggregation.rows import MadeRow, make_row, open_round
from fedfairx.federation.aggregation.shares import Integers, public_key_of
from fedfairx.federation.roster.signing_keys import SigningKey, new_signing_key

FEDERATION, ROSTER = "ab" * 16, "cd" * 32


@dataclass
class Group:
    """Members of one epoch."""

    epoch: Epoch
    keys: dict[str, SigningKey]
    secrets: dict[str, bytes]

    def values(self, seed: int) -> dict[str, Integers]:
        rng = np.random.default_rng(seed)
        return {name: rng.integers(-(2**40), 2**40, self.epoch.entries) for name in self.epoch.members}

    def row(
        self,
        name: str,
        number: int,
        values: Integers,
        earlier: tuple[bytes | None, ...] | None = None,
        *,
        place: bytes = bytes(32),
        random: bytes | None = None,
    ) -> MadeRow:
        fresh = hashlib.sha256(f"{name} {number} {values.tolist()}".encode()).digest()
        earlier = (None,) * (number - 1) if earlier is None else earlier
        key = self.keys[name]
        return make_row(
            self.epoch, name, key, number, values, earlier=earlier, place=place, random=random or fresh
        )

    def rows(self, number: int) -> dict[str, MadeRow]:
        return {name: self.row(name, number, values) for name, values in self.values(number).items()}

    def open(
        self, opener: str, number: int, rows: Mapping[str, MadeRow], opened: Opened | None = None
    ) -> Opened:
        messages = {name: with_share(row.signed, row.shares[opener]) for name, row in rows.items()}
        return self.open_messages(opener, number, messages, opened)

    def open_messages(
        self, opener: str, number: int, messages: Mapping[str, bytes], opened: Opened | None = None
    ) -> Opened:
        key, secret = self.keys[opener], self.secrets[opener]
        return open_round(self.epoch, opener, key, secret, number, messages, opened)

    def partials(self, number: int, rows: Mapping[str, MadeRow]) -> list[bytes]:
        return [self.open(opener, number, rows).partial for opener in self.epoch.openers]


def group(members: int = 4, colluding: int = 1, *, entries: int = 3, rounds: int = 9) -> Group:
    names = [f"org{number:02}" for number in range(members)]
    keys = {name: new_signing_key() for name in names}
    secrets = {name: hashlib.sha256(name.encode()).digest() for name in names[: colluding + 1]}
    epoch = Epoch(
        federation=FEDERATION,
        roster=ROSTER,
        number=1,
        members={name: key.public for name, key in keys.items()},
        openers={name: public_key_of(secret) for name, secret in secrets.items()},
        honest=members - colluding,
        entries=entries,
        rounds=rounds,
    )
    return Group(epoch, keys, secrets)


def exact(rows: Mapping[str, Integers]) -> list[int]:
    """The sum of rows, by Python's integers."""
    return [sum(each) for each in zip(*(row.tolist() for row in rows.values()), strict=True)]
