"""The Flower app without Flower: enough of its names to import the app, and to play SuperLink and nodes."""

from __future__ import annotations

import importlib
import sys
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from itertools import count
from types import ModuleType, SimpleNamespace
from typing import Any

from fedfairx.federation.exchange.member import Member
from fedfairx.federation.transport.flower.files import APP


class RecordDict(dict[str, Any]):
    @property
    def config_records(self) -> RecordDict:
        return self


class Message:
    def __init__(
        self,
        content: RecordDict,
        dst_node_id: int = 0,
        message_type: str = "",
        *,
        ttl: float | None = None,
        reply_to: Message | None = None,
    ) -> None:
        self.content, self.message_type, self.ttl = content, message_type, ttl
        asked = "" if reply_to is None else reply_to.metadata.message_id
        self.metadata = SimpleNamespace(message_id="", reply_to_message_id=asked, dst_node_id=dst_node_id)
        self.error: Any = None

    def has_error(self) -> bool:
        return self.error is not None


class App:
    """`ServerApp` and `ClientApp`: what is registered stays as it is."""

    def main(self) -> Callable[[Any], Any]:
        return lambda function: function

    query = main


Node = Callable[[Message], Message | None]  # None: it is silent


class Grid:
    """A SuperLink in this process: nodes by id, with the names that they were registered by."""

    def __init__(self, nodes: dict[int, tuple[str, Node]]) -> None:
        self.nodes = nodes
        self.sent: list[Message] = []
        self.replies: dict[str, Message] = {}
        self._ids = count(1)

    def get_nodes(self) -> Iterable[Any]:
        return [SimpleNamespace(node_id=node, name=name) for node, (name, _) in self.nodes.items()]

    def push_messages(self, messages: Iterable[Message]) -> list[str | None]:
        ids: list[str | None] = []
        for message in messages:
            message.metadata.message_id = f"m{next(self._ids)}"
            ids.append(message.metadata.message_id)
            self.sent.append(message)
            reply = self.nodes[message.metadata.dst_node_id][1](message)
            if reply is not None:
                self.replies[message.metadata.message_id] = reply
        return ids

    def pull_messages(self, ids: Iterable[str]) -> list[Message]:
        return [self.replies.pop(one) for one in ids if one in self.replies]


@contextmanager
def flower_app() -> Iterator[tuple[Any, Any, list[str]]]:
    """The app's modules for server and client, and what they log."""
    said: list[str] = []
    stubs = {name: ModuleType(name) for name in ("flwr", "flwr.app", "flwr.serverapp", "flwr.clientapp")}
    stubs |= {name: ModuleType(name) for name in ("flwr.common", "flwr.common.logger")}
    vars(stubs["flwr.app"]).update(
        ConfigRecord=dict, Context=SimpleNamespace, Message=Message, RecordDict=RecordDict
    )
    vars(stubs["flwr.serverapp"]).update(Grid=Grid, ServerApp=App)
    vars(stubs["flwr.clientapp"]).update(ClientApp=App)
    vars(stubs["flwr.common.logger"]).update(log=lambda _level, text, *given: said.append(text % given))
    before = {name: sys.modules.get(name) for name in stubs}
    sys.modules.update(stubs)
    sys.path.insert(0, str(APP))
    try:
        server = importlib.import_module("fedfairx_flower.server_app")
        client = importlib.import_module("fedfairx_flower.client_app")
        server.PULL = 0.001
        yield server, client, said
    finally:
        sys.path.remove(str(APP))
        for name in [name for name in sys.modules if name.partition(".")[0] == "fedfairx_flower"]:
            del sys.modules[name]
        for name, module in before.items():
            if module is None:
                del sys.modules[name]
            else:
                sys.modules[name] = module


def context(**run_config: float) -> Any:
    return SimpleNamespace(run_config={"gap": 0.0, "deadline": 0.05, "rounds": 1, **run_config})


def answering(message: bytes | None, seen: list[dict[str, bytes]] | None = None) -> Node:
    """A node whose agent has this message; `seen` gets every board that comes."""

    def answer(asked: Message) -> Message:
        if seen is not None:
            seen.append(dict(asked.content["board"]))
        given = {} if message is None else {"message": message}
        return Message(RecordDict({"answer": given}), reply_to=asked)

    return answer


def carried_by(*members: Member) -> Grid:
    """Nodes that do what the ClientApp and a service do, for members in this process."""

    def node(member: Member) -> Any:
        def answer(asked: Message) -> Message:
            member.take(asked.content["board"])
            given = {} if member.halted or member.message is None else {"message": member.message}
            return Message(RecordDict({"answer": given}), reply_to=asked)

        return answer

    return Grid({number: (member.agent.name, node(member)) for number, member in enumerate(members)})
