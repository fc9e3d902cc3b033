"""How a release becomes a message, and a message a release again: plainly here, signed in `envelope.py`."""

from __future__ import annotations

from typing import TYPE_CHECKING, Protocol

from fedfairx.privacy import Release

if TYPE_CHECKING:
    from fedfairx.federation.roster import Roster

__all__ = ["Seal", "Unsealed"]


class Seal(Protocol):
    """How a release becomes a message and is verified when it comes (`envelope.Signed`)."""

    @property
    def roster(self) -> Roster | None:
        """Who is in and under which terms; None among agents of one process."""
        ...

    def close(self, release: Release) -> bytes: ...

    def open(self, name: str, message: bytes, held: Release | None = None) -> Release:
        """The release in a message of `name`, or `MessageRefused`."""
        ...


class Unsealed:
    """Plain bytes, for agents of one process, which need no protection from each other."""

    roster: None = None

    def __init__(self) -> None:
        self._opened: dict[str, tuple[bytes, Release]] = {}  # all agents share one copy of a release

    def close(self, release: Release) -> bytes:
        return release.to_bytes()

    def open(self, name: str, message: bytes, held: Release | None = None) -> Release:  # noqa: ARG002 (a seal's)
        before = self._opened.get(name)
        if before is None or before[0] is not message:
            before = self._opened[name] = message, Release.from_bytes(message)
        return before[1]
