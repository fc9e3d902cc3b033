"""Detect a ledger that was restored from an old copy, by the releases that the peers hold.

A ledger restored from an old copy looks like one after a crash. Its peers hold its latest
message, so a member of a federation asks them once, when it opens, before it sends anything.

After `Agent.begin_run` the peers hold messages of a `ContinuedPrivatizer`. So that privatizer asks them
(`confirm=`), by its own release numbers, and the privatizer inside does not.
"""

from __future__ import annotations

from collections.abc import Callable, Iterable

from fedfairx.errors import LedgerMismatch
from fedfairx.privacy.release import Release

#: Called with the number of the last recorded release (0 for none) and its digest ("" for none); raises
#: `LedgerMismatch` if a peer holds a later number, or the same number with other content.
Confirm = Callable[[int, str], None]


def refuse_old_copy(held: Iterable[Release]) -> Confirm:
    """Make a `Confirm` from the releases of this agent that its peers hold.

    >>> from fedfairx.privacy import KeyedNoise, new_key, private
    >>> noise = KeyedNoise(new_key(), agent="clinic", run="first")
    >>> sent = private(2, epsilon=2.0, releases=9, noise=noise).release()
    >>> private(2, epsilon=2.0, releases=9, noise=noise, confirm=refuse_old_copy([sent]))
    Traceback (most recent call last):
    fedfairx.errors.LedgerMismatch: this ledger ends at release 0, and peers hold release 1: ...

    Guarantees:
    - A number later than the ledger's last, or the same number with other content, is refused.
    - A peer that is behind is ignored: it will receive what it has missed.
    """
    digests = [(release.number, release.digest) for release in held]

    def confirm(number: int, digest: str) -> None:
        latest = max((other for other, _ in digests), default=0)
        if latest > number:
            raise LedgerMismatch(
                f"this ledger ends at release {number}, and peers hold release {latest}: it is an old copy; "
                "start a new run with a new ledger and a new budget"
            )
        if any(other == number and content != digest for other, content in digests):
            raise LedgerMismatch(
                f"peers hold release {number} with other content: this ledger is a copy that diverged; "
                "start a new run with a new ledger and a new budget"
            )

    return confirm
