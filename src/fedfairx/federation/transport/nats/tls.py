"""TLS connections to a NATS server, with certificates that are read anew for each connection."""

from __future__ import annotations

import asyncio
import ssl
from collections.abc import Callable
from typing import Any

from fedfairx.errors import needs
from fedfairx.util.foreign_files import read_file

with needs("nats"):
    from nats.aio.client import Client
    from nats.aio.transport import TcpTransport

Tls = Callable[[], ssl.SSLContext]


def tls_context(*, ca: str, certificate: str, key: str) -> ssl.SSLContext:
    """TLS context that trusts only the hub's authority and presents this member's certificate."""
    for path in (ca, certificate, key):
        read_file(path)  # OpenSSL would wait for a pipe, and read a device without end
    context = ssl.create_default_context(ssl.Purpose.SERVER_AUTH, cafile=ca)
    context.load_cert_chain(certificate, key)
    return context


def new_client(tls: Tls | None) -> Client:
    """A client of nats-py that is not connected yet."""
    client = Client()
    if tls is not None:
        client._transport = TlsTransport(tls)
    return client


class TlsTransport(TcpTransport):
    """nats-py's connection, but a renewed certificate is used without a restart.

    A hub that does not answer is not waited for when the connection is closed, and nothing is logged then.
    What is written after that is dropped, as it is without TLS: asyncio fails with an `AttributeError`.
    """

    def __init__(self, tls: Tls) -> None:
        super().__init__()  # type: ignore[no-untyped-call]
        self._tls = tls

    def __bool__(self) -> bool:
        return True  # the client takes this one instead of making its own

    def writelines(self, payload: Any) -> None:
        if self._io_writer is not None and not self._io_writer.is_closing():
            super().writelines(payload)  # type: ignore[no-untyped-call]

    async def connect_tls(
        self,
        uri: Any,
        ssl_context: ssl.SSLContext,  # noqa: ARG002 (as it was when the client was made)
        buffer_size: int,  # noqa: ARG002
        connect_timeout: int,
    ) -> None:
        assert self._io_writer is not None
        loop, reader = asyncio.get_running_loop(), asyncio.StreamReader()
        context, protocol, plain = self._tls(), _Protocol(reader), self._io_writer.transport
        first = plain.get_protocol()
        try:
            transport = await loop.start_tls(
                plain,
                protocol,
                context,
                server_hostname=uri if isinstance(uri, str) else uri.hostname,
                ssl_handshake_timeout=connect_timeout,
                ssl_shutdown_timeout=1.0,
            )
        except BaseException:
            # asyncio does not tell the first protocol that the connection has ended: wait_closed() waits for
            # it, and nats-py calls that.
            first.connection_lost(None)
            raise
        assert transport is not None
        self._io_reader = reader
        self._io_writer = asyncio.StreamWriter(transport, protocol, reader, loop)


class _Protocol(asyncio.StreamReaderProtocol):
    def eof_received(self) -> bool:
        super().eof_received()
        return False  # under TLS a connection can't stay half open; asyncio logs a warning otherwise
