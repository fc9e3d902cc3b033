"""Messages that somebody else carries: an engine beside the agent fetches its own and brings the others'.

There is nothing to call here. `Member.message` is what the engine fetches, `Member.take` what it brings; that
the agent's own envelope has come back with the others' is how it is acknowledged.
"""

from __future__ import annotations

from collections.abc import Callable

from fedfairx.errors import TransportUnavailable


class EngineTransport:
    """Waits for the engine: nothing can be published or looked at from this side."""

    def publish(self, agent: str, message: bytes, *, replacing: bytes | None) -> None:  # noqa: ARG002
        raise TransportUnavailable(f"the engine beside {agent!r} has not carried its latest release yet")

    def latest(self) -> dict[str, bytes]:
        raise TransportUnavailable("the engine beside this agent brings messages; they can't be fetched")

    def watch(self, notify: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002
        return lambda: None

    def close(self) -> None:
        """It holds nothing open."""
