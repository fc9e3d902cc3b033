"""How messages get from one agent to the others: in one process, by a file, by a NATS server, by others."""

from fedfairx.federation.transport.external import EngineTransport
from fedfairx.federation.transport.memory import MemoryTransport
from fedfairx.federation.transport.protocol import Conflict, Transport
from fedfairx.federation.transport.sqlite import SqliteTransport

__all__ = ["Conflict", "EngineTransport", "MemoryTransport", "SqliteTransport", "Transport"]
