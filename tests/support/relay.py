"""A relay between clients and servers, as a load balancer or a network is: it can cut a connection."""

from __future__ import annotations

import socket
import struct
import threading
from collections.abc import Callable
from contextlib import suppress

#: Gets bytes of a server, before they are passed on, and the socket of its client; False cuts the connection.
Watch = Callable[[bytes, socket.socket], bool]


class Relay:
    """Passes bytes between each connection that it accepts and one that `connect` opens."""

    def __init__(
        self, listener: socket.socket, connect: Callable[[], socket.socket], watch: Watch | None = None
    ) -> None:
        self._listener, self._connect, self._watch = listener, connect, watch
        listener.listen(100)
        threading.Thread(target=self._accept, daemon=True).start()

    @classmethod
    def at_port(cls, connect: Callable[[], socket.socket]) -> Relay:
        """A relay at a free port of this machine."""
        listener = socket.socket()
        listener.bind(("127.0.0.1", 0))
        return cls(listener, connect)

    @property
    def port(self) -> int:
        return int(self._listener.getsockname()[1])

    def close(self) -> None:
        """Accept no more connections; those that are open stay."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()

    def _accept(self) -> None:
        while True:
            try:
                client, _ = self._listener.accept()
            except OSError:  # closed
                return
            try:
                server = self._connect()
            except OSError:  # nobody is there
                client.close()
                continue
            for pair in ((client, server), (server, client)):
                threading.Thread(target=self._pass, args=(*pair, client), daemon=True).start()

    def _pass(self, source: socket.socket, target: socket.socket, client: socket.socket) -> None:
        with suppress(OSError):
            while data := source.recv(1 << 16):
                if source is not client and self._watch is not None and not self._watch(data, client):
                    break
                target.sendall(data)
        for each in (source, target):
            with suppress(OSError):
                each.shutdown(socket.SHUT_RDWR)  # which also ends the other thread
            each.close()


def process_of(client: socket.socket) -> int:
    """The process at the other end of a Unix socket."""
    size = struct.calcsize("3i")
    process, _, _ = struct.unpack("3i", client.getsockopt(socket.SOL_SOCKET, socket.SO_PEERCRED, size))
    return int(process)
