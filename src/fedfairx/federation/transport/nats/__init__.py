"""A transport between machines by a NATS server: `pip install 'fedfairx[nats]'`."""

from fedfairx.federation.transport.nats.client import NatsTransport, tls_context

__all__ = ["NatsTransport", "tls_context"]
