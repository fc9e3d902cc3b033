"""At a member's SuperNode: deliver the peers' messages to the agent's service, and fetch its own.

The SuperLink sends this code, so its operator can run other code here. Therefore it holds no secret of the
agent: only an API key for the service's two message endpoints, in a file that the node's configuration
names. Nothing that the SuperLink sends decides which address or key is used.

Each message starts a new Python process: nothing is imported but the standard library and Flower. Errors are
a few fixed words, because an exception's text would be sent to the SuperLink.
"""

from __future__ import annotations

import base64
import http.client
import ipaddress
import json
from collections.abc import Iterator, Mapping
from pathlib import Path
from typing import Any
from urllib.parse import quote, urlsplit

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.clientapp import ClientApp

TIMEOUT = 10.0  # seconds
LARGEST = 2**21  # bytes of an answer
PORTION = 2**21  # characters of messages in a request; a service accepts twice as many


class Trouble(Exception):
    """An error whose text may be sent to the SuperLink."""


def carry(message: Message, context: Context) -> Message:
    """Answer a message of the ServerApp."""
    try:
        answer: dict[str, Any] = exchange(
            context.node_config, message.content.config_records.get("board", {})
        )
    except Trouble as trouble:
        answer = {"trouble": str(trouble)}
    except Exception:
        answer = {"trouble": "failed"}
    return Message(RecordDict({"answer": ConfigRecord(answer)}), reply_to=message)


def exchange(config: Mapping[str, Any], board: Mapping[str, Any]) -> dict[str, bytes]:
    """Deliver the board to the agent's service, then fetch its message: in this order the service knows what
    peers hold of it before it sends more."""
    host, port, key = service_address(config)
    named = config.get("agent")  # of several in the service; by default its default agent
    root = "/v1" if named is None else f"/v1/agents/{quote(str(named), safe='')}"
    answer = {}
    for envelopes in portions(board):
        reply = ask(host, port, key, "PUT", f"{root}/peers", json.dumps({"envelopes": envelopes}).encode())
        answer["alive"] = base64.b64decode(reply["alive"], validate=True)
    release = ask(host, port, key, "GET", f"{root}/release/latest")
    if release is not None:
        answer["message"] = base64.b64decode(release["envelope"], validate=True)
    return answer


def portions(board: Mapping[str, Any]) -> Iterator[dict[str, str]]:
    """Split the board into requests within the service's size limit."""
    portion: dict[str, str] = {}
    for name, message in board.items():
        if isinstance(message, bytes):
            text = base64.b64encode(message).decode()
            if portion and sum(map(len, portion.values())) + len(text) > PORTION:
                yield portion
                portion = {}
            portion[name] = text
    yield portion


def service_address(config: Mapping[str, Any]) -> tuple[str, int, str]:
    """Address of the agent's service on this machine and the API key, from the node's configuration."""
    try:
        address = urlsplit(str(config["service"]))
        key = Path(str(config["key-file"])).read_text(encoding="ascii").strip()
        host, port = address.hostname or "", address.port or 8000
        local = host == "localhost" or ipaddress.ip_address(host).is_loopback
    except (KeyError, ValueError, OSError):
        raise Trouble("node not configured") from None
    if address.scheme != "http" or not local:
        raise Trouble("service must be on loopback")
    return host, port, key


def ask(host: str, port: int, key: str, method: str, path: str, body: bytes | None = None) -> Any:
    """Request the service without proxy or redirects; None if it has no release yet."""
    connection = http.client.HTTPConnection(host, port, timeout=TIMEOUT)
    headers = {"Authorization": f"Bearer {key}", "Content-Type": "application/json"}
    try:
        connection.request(method, path, body, headers)
        answer = connection.getresponse()
        content = answer.read(LARGEST + 1)
    except (OSError, http.client.HTTPException):
        raise Trouble("service away") from None
    finally:
        connection.close()
    if answer.status == 404 and method == "GET":
        return None  # it has released nothing yet
    if answer.status != 200:
        raise Trouble(f"service answered {answer.status}")
    if len(content) > LARGEST:
        raise Trouble("answer too large")
    return json.loads(content)


app = ClientApp()
app.query()(carry)
