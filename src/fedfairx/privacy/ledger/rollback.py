"""Detect a ledger that was restored from an old copy, by what the peers hold.

A ledger or a saved agent restored from an old copy looks, to itself, like one after a crash. Its peers hold
its latest message, so a member of a federation asks them once, when it opens, before anything is sent.

After `Agent.begin_run` peers hold the messages of a `ContinuedPrivatizer`, so it is the one that asks them
(`confirm=`), in its own numbers, and not the privatizer inside.
"""

from __future__ import annotations

import hashlib
from collections.abc import Callable, Iterable

from fedfairx.errors import LedgerMismatch
from fedfairx.privacy.release import Release

#: Called with the number of the last recorded release (0 for none) and the digest of its message; raises
#: `LedgerMismatch` when somebody knows a later number, or the same number with other content.
Confirm = Callable[[int, str], None]


def message_digest(message: bytes | None) -> str:
    """SHA-256 of a message's bytes; "" for no message."""
    return "" if message is None else hashlib.sha256(message).hexdigest()


def refuse_old_copy(held: Iterable[Release]) -> Confirm:
    """A `Confirm` from what the peers hold of this agent.

    Guarantees:
    - A later number than the ledger's last, or the same with other content, is refused.
    - A peer that is behind is ignored: it will get what it missed.
    """
    known = [(release.number, message_digest(release.to_bytes())) for release in held]

    def confirm(number: int, digest: str) -> None:
        latest = max((other for other, _ in known), default=0)
        if latest > number:
            raise LedgerMismatch(
                f"this ledger ends at release {number}, and peers hold release {latest}: it is an old copy; "
                "start a new run with a new ledger and a budget of its own"
            )
        if any(other == number and content != digest for other, content in known):
            raise LedgerMismatch(
                f"peers hold release {number} with other content: this ledger is a copy that diverged; "
                "start a new run with a new ledger and a budget of its own"
            )

    return confirm
