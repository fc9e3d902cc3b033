"""What starts the processes of Flower, as far as it goes without them."""

from __future__ import annotations

import socket

from fedfairx.federation.transport.flower.launcher import answers


def test_a_port_answers_while_something_listens_on_it() -> None:
    with socket.socket() as server:
        server.bind(("127.0.0.1", 0))
        port = server.getsockname()[1]
        assert answers(port) is False
        server.listen()
        assert answers(port) is True
