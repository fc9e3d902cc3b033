"""Checks of the protocol of secure aggregation: shares hide their row, and a round is opened once.

The senders and openers are those of the members, with long rows. All openers but one, in turn, decrypt their
shares of two rows that differ as much as rows can: zeros, and the ends of the range. What they hold must look
uniform in either case, each share and their sum, by a χ² test of its bytes. No number of a share may occur
twice, as it would if two seeds were alike or followed from the row and its round.

Then a member that colludes signs a second row of a round that was opened. Every opener is asked to open that
round for it and for fewer members, and to open an earlier round.
"""

from __future__ import annotations

import secrets
from collections.abc import Mapping

import numpy as np
from scipy.special import gammainccinv

from fedfairx.audit.subject import CheckResult
from fedfairx.errors import FedFairXError
from fedfairx.federation.aggregation.epoch import Epoch
from fedfairx.federation.aggregation.messages import with_share
from fedfairx.federation.aggregation.records import Opened
from fedfairx.federation.aggregation.rows import MadeRow, make_row, open_round
from fedfairx.federation.aggregation.shares import (
    KEY_BYTES,
    Integers,
    Ring,
    add,
    numbers_of,
    public_key_of,
    to_bytes,
    unseal,
)
from fedfairx.federation.roster.signing_keys import new_signing_key
from fedfairx.privacy.mechanisms.noise_share import RANGE_BITS
from whole_config import WholeConfig

_ENTRIES = 4_096
_PLACE = bytes(32)


class _Protocol:
    """Members of an epoch, without agents."""

    def __init__(self, *, members: int, openers: int, honest: int, entries: int) -> None:
        names = [f"member-{number:02}" for number in range(members)]
        self.keys = {name: new_signing_key() for name in names}
        self.secrets = {name: secrets.token_bytes(KEY_BYTES) for name in names[:openers]}
        self.epoch = Epoch(
            federation="00" * 16,
            roster="00" * 32,
            number=1,
            members={name: key.public for name, key in self.keys.items()},
            openers={name: public_key_of(secret) for name, secret in self.secrets.items()},
            honest=honest,
            entries=entries,
            rounds=3,
        )

    def row(self, name: str, number: int, values: Integers) -> MadeRow:
        """The first row of a member; another call makes another one."""
        return make_row(
            self.epoch,
            name,
            self.keys[name],
            number,
            values,
            earlier=(None,) * (number - 1),
            place=_PLACE,
            random=secrets.token_bytes(KEY_BYTES),
        )

    def send(self, number: int, values: Integers) -> dict[str, MadeRow]:
        """The rows of a round, the same one of each member."""
        return {name: self.row(name, number, values) for name in self.keys}

    def open(
        self, opener: str, number: int, rows: Mapping[str, MadeRow], opened: Opened | None = None
    ) -> Opened:
        """What an opener answers that is asked for a round of these rows."""
        messages = {name: with_share(row.signed, row.shares[opener]) for name, row in rows.items()}
        key, secret = self.keys[opener], self.secrets[opener]
        return open_round(self.epoch, opener, key, secret, number, messages, opened)

    def decrypted(self, sender: str, number: int, row: MadeRow) -> dict[str, Ring]:
        """The numbers that each opener sees of a row."""
        epoch, seen = self.epoch, {}
        for name, secret in self.secrets.items():
            share = unseal(secret, row.shares[name], epoch.label("share", number, sender, name))
            seen[name] = numbers_of(share, epoch.entries, last=epoch.is_last(name))
        return seen


def hiding(subject: WholeConfig, error_rate: float) -> tuple[CheckResult, ...]:
    """Check what all openers but one see of two rows; the test of its bytes fails with `error_rate`."""
    protocol = _Protocol(
        members=subject.agents, openers=_openers(subject), honest=subject.honest, entries=_ENTRIES
    )
    ends = np.full(_ENTRIES, 1 << RANGE_BITS, dtype=np.int64)
    ends[1::2] *= -1
    sender, seen, views = next(iter(protocol.keys)), [], []
    for number, row in enumerate((np.zeros_like(ends), ends), start=1):
        shares = protocol.decrypted(sender, number, protocol.row(sender, number, row))
        seen += [*shares.values()]
        for hidden in shares:
            views.append(add((part for name, part in shares.items() if name != hidden), _ENTRIES))
    views += seen
    again = protocol.row(sender, 1, np.zeros_like(ends))  # nothing differs but fresh random bytes
    seen += [*protocol.decrypted(sender, 1, again).values()]
    numbers = np.concatenate(seen)
    twice = numbers.size - np.unique(numbers).size  # by chance once in 10⁸, with up to 40 openers
    largest = max(_chi_squared(view) for view in views)
    most = 2.0 * float(gammainccinv(255 / 2, error_rate / len(views)))
    return (
        CheckResult(f"shares: numbers that occur twice, of {numbers.size}", float(twice), "= 0", twice == 0),
        CheckResult("shares: χ² of what colluding openers see", largest, f"≤ {most:.1f}", largest <= most),
    )


def _chi_squared(numbers: Ring) -> float:
    """Pearson's statistic of the bytes, which has 255 degrees of freedom if they are uniform."""
    counts = np.bincount(np.frombuffer(to_bytes(numbers), dtype=np.uint8), minlength=256)
    expected = counts.sum() / 256
    return float(np.square(counts - expected).sum() / expected)


def opened_once(subject: WholeConfig) -> CheckResult:
    """Count the answers of openers to requests that they must refuse."""
    openers = _openers(subject)
    protocol = _Protocol(members=subject.agents, openers=openers, honest=subject.honest, entries=2)
    first, second = (protocol.send(number, np.full(2, number, dtype=np.int64)) for number in (1, 2))
    last = [*protocol.keys][-1]
    others = {**second, last: protocol.row(last, 2, np.array([9, 9], dtype=np.int64))}
    fewer = {name: row for name, row in second.items() if name != last}
    asked = answered = 0
    for opener in protocol.epoch.openers:
        opened = protocol.open(opener, 2, second)
        for number, rows in ((2, second), (2, others), (2, fewer), (1, first), (3, second)):
            asked += 1
            answered += _answers(protocol, opener, number, rows, opened)
    name = f"openers: answers to requests that must be refused, of {asked}"
    return CheckResult(name, float(answered), "= 0", answered == 0)


def _answers(
    protocol: _Protocol, opener: str, number: int, rows: Mapping[str, MadeRow], opened: Opened
) -> bool:
    try:
        protocol.open(opener, number, rows, opened)
    except FedFairXError:
        return False
    return True


def _openers(subject: WholeConfig) -> int:
    return subject.agents - subject.seen + 1
