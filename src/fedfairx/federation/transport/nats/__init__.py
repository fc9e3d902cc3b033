"""A transport between machines by a NATS server: `pip install 'fedfairx[nats]'`."""

from fedfairx.federation.transport.nats.bucket import check_bucket, make_bucket
from fedfairx.federation.transport.nats.client import NatsTransport
from fedfairx.federation.transport.nats.tls import tls_context

__all__ = ["NatsTransport", "check_bucket", "make_bucket", "tls_context"]
