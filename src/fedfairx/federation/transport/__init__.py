"""How messages get from one agent to the others: in one process, by a file, or by a NATS server."""

from fedfairx.federation.transport.memory import MemoryTransport
from fedfairx.federation.transport.protocol import Taken, Transport
from fedfairx.federation.transport.sqlite import SqliteTransport

__all__ = ["MemoryTransport", "SqliteTransport", "Taken", "Transport"]
