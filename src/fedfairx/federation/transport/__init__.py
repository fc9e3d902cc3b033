"""Transports between agents: in memory, a SQLite file, a NATS server, or an external engine."""

from fedfairx.federation.transport.external import EngineTransport
from fedfairx.federation.transport.memory import MemoryTransport
from fedfairx.federation.transport.protocol import Conflict, Transport
from fedfairx.federation.transport.sqlite import SqliteTransport

__all__ = ["Conflict", "EngineTransport", "MemoryTransport", "SqliteTransport", "Transport"]
