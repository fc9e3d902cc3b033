"""Unique decision ids: a random prefix for each opening of an agent's database, and a running number.

An agent draws a prefix of 80 bits when it is created or loaded, and when it is first opened after its
database was. So neither a second agent nor a restored backup can issue an id that was issued before, and an
agent recognises the ids that it issued: each of its prefixes is valid from some number on.
"""

from __future__ import annotations

import secrets
from base64 import b32encode
from bisect import bisect_right
from collections.abc import Iterable


class IdPrefixes:
    """The prefixes of one agent, in order, each with the first number that it is valid for."""

    def __init__(self, pairs: Iterable[tuple[int, str]] = ()) -> None:
        self.pairs = list(pairs)

    def begin(self, first: int) -> str:
        """Draw a new prefix, for numbers from `first` on."""
        self.pairs.append((first, b32encode(secrets.token_bytes(10)).decode().lower()))
        return self.pairs[-1][1]

    def used(self, following: int) -> list[tuple[int, str]]:
        """Prefixes that have issued an id below `following`."""
        last = dict(self.pairs)  # of several that begin at one number, only the last has issued it
        return [(first, origin) for first, origin in last.items() if first < following]

    def of(self, number: int) -> str | None:
        """The prefix that is valid for a number."""
        if self.pairs and number >= self.pairs[-1][0]:  # the usual case
            return self.pairs[-1][1]
        at = bisect_right(self.pairs, number, key=lambda pair: pair[0]) - 1
        return self.pairs[at][1] if at >= 0 else None

    def number_in(self, identity: str) -> int | None:
        """The number in an id; None if its prefix is not the one of that number here."""
        origin, _, digits = identity.rpartition("-")
        if not (digits.isascii() and digits.isdigit() and len(digits) < 19):
            return None
        number = int(digits)
        return number if self.of(number) == origin and str(number) == digits else None
