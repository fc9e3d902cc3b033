"""Messages carried by an external engine, which fetches the agent's own and delivers its peers'.

The engine fetches `Member.message` and delivers by `Member.take`; the agent's own envelope among the
delivered ones acknowledges it.
"""

from __future__ import annotations

from collections.abc import Callable

from fedfairx.errors import TransportUnavailable


class EngineTransport:
    """A transport that can only wait for the engine to carry messages."""

    def publish(self, agent: str, message: bytes, *, replacing: bytes | None) -> None:  # noqa: ARG002
        raise TransportUnavailable(f"the external engine has not carried the latest release of {agent!r} yet")

    def latest(self) -> dict[str, bytes]:
        raise TransportUnavailable("the external engine delivers messages; they can't be fetched")

    def watch(self, notify: Callable[[], None]) -> Callable[[], None]:  # noqa: ARG002
        return lambda: None

    def close(self) -> None:
        """Nothing to close."""
