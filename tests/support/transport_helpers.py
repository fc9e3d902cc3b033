"""The transports that the contract is held to, each with a way to open several ends of one."""

from __future__ import annotations

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

from fedfairx.federation.transport import MemoryTransport, SqliteTransport, Transport
from nats_server import nats_server

FEDERATION = "0123456789abcdef0123456789abcdef"
Opening = Callable[[str], Transport]


@contextmanager
def ends_of(kind: str, folder: Path) -> Iterator[Opening]:
    """open(agent) gives that agent's end of one transport; all are closed in the end."""
    opened: list[Transport] = []
    memory = MemoryTransport()

    def keep(transport: Transport) -> Transport:
        opened.append(transport)
        return transport

    try:
        if kind == "memory":
            yield lambda _: memory
        elif kind == "sqlite":
            yield lambda _: keep(SqliteTransport(folder / "transport.sqlite", poll=0.01))
        else:
            with nats_server(folder / "nats", federation=FEDERATION) as server:
                from fedfairx.federation.transport.nats import NatsTransport

                yield lambda agent: keep(NatsTransport(server.url, federation=FEDERATION, agent=agent))
                for transport in opened:
                    transport.close()
    finally:
        for transport in opened:
            transport.close()
