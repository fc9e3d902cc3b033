"""Checks of the protocol of secure aggregation: shares hide their row, and a round is opened once.

The senders and openers are those of the members, with long rows. All openers but one, in turn, decrypt their
shares of two rows that differ as much as rows can: zeros, and the ends of the range. What they hold must look
uniform in either case, each share and their sum, by a χ² test of its bytes. No number of a share may occur
twice, as it would if two seeds were alike or followed from the row and its round.

Then a member that colludes signs a second row of a round that was opened. Every opener is asked to open that
round for it and for fewer members, and to open an earlier round.
"""

from __future__ import annotations

from collections.abc import Mapping

import numpy as np
from scipy.special import gammainccinv

from fedfairx.audit.subject import AuditedConfig, Check
from fedfairx.errors import FedFairXError
from fedfairx.federation.aggregation.agreement import Agreement, opener_key
from fedfairx.federation.aggregation.epoch import Epoch
from fedfairx.federation.aggregation.messages import OpenerKey, Row, parse
from fedfairx.federation.aggregation.opener import Opener
from fedfairx.federation.aggregation.records import MemoryRecords, Stores
from fedfairx.federation.aggregation.sender import Sender
from fedfairx.federation.aggregation.shares import Integers, Ring, add, numbers_of, to_bytes, unseal
from fedfairx.federation.roster.signing_keys import new_signing_key
from fedfairx.privacy.mechanisms.noise_share import RANGE_BITS

_ENTRIES = 4_096
_PLACE = bytes(32)


class _Protocol:
    """Members that have agreed on an epoch, without agents."""

    def __init__(self, *, members: int, openers: int, honest: int, entries: int) -> None:
        names = [f"member-{number}" for number in range(members)]
        self.keys = {name: new_signing_key() for name in names}
        self.stores = {name: Stores(name, MemoryRecords(), MemoryRecords()) for name in names}
        federation, opened = "00" * 16, {}
        for name in names[:openers]:
            made = parse(opener_key(federation, 1, key=self.keys[name], stores=self.stores[name]))
            assert isinstance(made, OpenerKey)
            opened[name] = made.key
        self.epoch = Epoch(
            federation=federation,
            roster="00" * 32,
            number=1,
            members={name: key.public for name, key in self.keys.items()},
            openers=opened,
            honest=honest,
            entries=entries,
            rounds=3,
        )
        agreements = {name: Agreement(self.epoch, stores) for name, stores in self.stores.items()}
        self._accepted = [
            agreement.accept(self.keys[name], confirmed=names) for name, agreement in agreements.items()
        ]
        for agreement in agreements.values():
            self._hear(agreement)
        self.senders = {name: Sender(agreement, self.keys[name]) for name, agreement in agreements.items()}
        self.openers = {name: Opener(agreements[name], self.keys[name]) for name in self.epoch.openers}

    def _hear(self, agreement: Agreement) -> None:
        for signed in self._accepted:
            agreement.take(signed)

    def send(self, number: int, row: Integers) -> dict[str, bytes]:
        """The rows of a round, the same one of each member, as they are sent."""
        return {
            name: sender.send(number, row, place=_PLACE, opened=0) for name, sender in self.senders.items()
        }

    def other_row(self, name: str, number: int, row: Integers) -> bytes:
        """A second row of a round, as a member makes it that has set up everything anew."""
        agreement = Agreement(self.epoch, Stores(name, MemoryRecords(), MemoryRecords()))
        agreement.accept(self.keys[name], confirmed=self.epoch.members)
        self._hear(agreement)
        return Sender(agreement, self.keys[name]).send(number, row, place=_PLACE, opened=0)

    def decrypted(self, signed: bytes) -> dict[str, Ring]:
        """The numbers that each opener sees of a row."""
        row, epoch = parse(signed), self.epoch
        assert isinstance(row, Row)
        found = {}
        for place, name in enumerate(epoch.openers):
            private = self.stores[name].secret(epoch.federation, epoch.number)
            assert private is not None
            share = unseal(private, row.shares[place], epoch.label("share", row.number, row.name, name))
            found[name] = numbers_of(share, epoch.entries, last=epoch.is_last(name))
        return found


def hiding(subject: AuditedConfig, error_rate: float) -> tuple[Check, ...]:
    """Check what all openers but one see of two rows; the test of its bytes fails with `error_rate`."""
    made = _Protocol(
        members=subject.agents, openers=_openers(subject), honest=subject.honest, entries=_ENTRIES
    )
    ends = np.full(_ENTRIES, 1 << RANGE_BITS, dtype=np.int64)
    ends[1::2] *= -1
    sender, seen, views = next(iter(made.keys)), [], []
    for number, row in enumerate((np.zeros_like(ends), ends), start=1):
        shares = made.decrypted(made.senders[sender].send(number, row, place=_PLACE, opened=0))
        seen += [*shares.values()]
        for hidden in shares:
            views.append(add((part for name, part in shares.items() if name != hidden), _ENTRIES))
    views += seen
    again = made.other_row(sender, 1, np.zeros_like(ends))  # nothing differs but fresh random bytes
    seen += [*made.decrypted(again).values()]
    numbers = np.concatenate(seen)
    twice = numbers.size - np.unique(numbers).size  # by chance once in 10⁸, with up to 40 openers
    largest = max(_chi_squared(view) for view in views)
    most = 2.0 * float(gammainccinv(255 / 2, error_rate / len(views)))
    return (
        Check(f"shares: numbers that occur twice, of {numbers.size}", float(twice), "= 0", twice == 0),
        Check("shares: χ² of what colluding openers see", largest, f"≤ {most:.1f}", largest <= most),
    )


def _chi_squared(numbers: Ring) -> float:
    """Pearson's statistic of the bytes, which has 255 degrees of freedom if they are uniform."""
    counts = np.bincount(np.frombuffer(to_bytes(numbers), dtype=np.uint8), minlength=256)
    expected = counts.sum() / 256
    return float(np.square(counts - expected).sum() / expected)


def opened_once(subject: AuditedConfig) -> Check:
    """Count the answers of openers to requests that they must refuse."""
    openers = _openers(subject)
    made = _Protocol(members=subject.agents, openers=openers, honest=subject.honest, entries=2)
    first, second = (made.send(number, np.full(2, number, dtype=np.int64)) for number in (1, 2))
    last = [*made.keys][-1]
    others = {**second, last: made.other_row(last, 2, np.array([9, 9], dtype=np.int64))}
    fewer = {name: row for name, row in second.items() if name != last}
    asked = answered = 0
    for opener in made.openers.values():
        recorded = opener.open(2, second)
        asked += 1
        answered += opener.open(2, second) != recorded  # the same again is no second content
        for number, rows in ((2, others), (2, fewer), (1, first), (3, second)):
            asked += 1
            answered += _answers(opener, number, rows)
    name = f"openers: answers to requests that must be refused, of {asked}"
    return Check(name, float(answered), "= 0", answered == 0)


def _answers(opener: Opener, number: int, rows: Mapping[str, bytes]) -> bool:
    try:
        opener.open(number, rows)
    except FedFairXError:
        return False
    return True


def _openers(subject: AuditedConfig) -> int:
    return subject.agents - subject.seen + 1
