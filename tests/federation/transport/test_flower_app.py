"""The Flower app's ServerApp, by itself, and members whose messages it carries. The ClientApp is in
test_flower_client.py; all of it with a real SuperLink and SuperNodes in test_flower.py."""

from __future__ import annotations

import ast
import sys
import tomllib
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pytest

from fedfairx.federation.exchange.member import Member
from fedfairx.federation.transport import EngineTransport
from fedfairx.federation.transport.flower.files import APP
from flower_app import Grid, Message, RecordDict, answering, carried_by, context, flower_app
from member_helpers import NAMES, work, world

ROOT = Path(__file__).parents[3]


@pytest.fixture
def app() -> Iterator[tuple[Any, Any, list[str]]]:
    with flower_app() as modules:
        yield modules


def test_the_app_needs_flower_and_nothing_else() -> None:
    for path in APP.rglob("*.py"):
        for node in ast.walk(ast.parse(path.read_text())):
            if isinstance(node, ast.Import | ast.ImportFrom):
                names = (
                    [alias.name for alias in node.names] if isinstance(node, ast.Import) else [node.module]
                )
                for name in names:
                    assert name.split(".")[0] in {"flwr", *sys.stdlib_module_names}, f"{path.name}: {name}"


def test_one_version_of_flower() -> None:
    extra = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]["optional-dependencies"]["flower"]
    assert tomllib.loads((APP / "pyproject.toml").read_text())["project"]["dependencies"] == extra


# --- ServerApp ---------------------------------------------------------------------------------------------


def test_everybody_gets_what_everybody_has_said(app: Any) -> None:
    server, _, _ = app
    boards: dict[str, list[dict[str, bytes]]] = {"a": [], "b": [], "c": []}
    grid = Grid({
        11: ("a", answering(b"of a", boards["a"])),
        22: ("b", answering(b"of b", boards["b"])),
        33: ("c", answering(None, boards["c"])),
    })  # fmt: skip
    server.forward(grid, context())
    for (
        seen
    ) in boards.values():  # one that asks and one that spreads; each has its own back, which is its receipt
        assert seen == [{}, {"a": b"of a", "b": b"of b"}]
    server.forward(grid, context(rounds=2))
    assert [len(seen) for seen in boards.values()] == [5, 5, 5]  # where nothing was new, nothing is spread


def test_a_node_writes_under_the_name_that_its_key_was_registered_by(app: Any) -> None:
    server, _, said = app

    def liar(asked: Message) -> Message:
        answer = {"message": b"forged", "name": "a", "a": b"forged"}
        return Message(RecordDict({"answer": answer, "a": {"message": b"forged"}}), reply_to=asked)

    grid = Grid({1: ("a", answering(b"of a")), 2: ("b", liar), 3: ("", answering(b"of nobody")),
                 4: ("c", answering(b"one")), 5: ("c", answering(b"other"))})  # fmt: skip
    board: dict[str, bytes] = {}
    server.exchange(grid, board, deadline=0.05)
    assert board == {"a": b"of a", "b": b"forged"}  # which nobody takes: it is not signed by b
    assert sum("left out" in line for line in said) == 2


def test_a_sign_of_life_goes_round_but_is_no_news(app: Any) -> None:
    server, _, _ = app

    def alive(asked: Message) -> Message:
        return Message(RecordDict({"answer": {"alive": b"life"}}), reply_to=asked)

    def noisy(asked: Message) -> Message:
        return Message(RecordDict({"answer": {"alive": b"x" * 2000}}), reply_to=asked)

    board: dict[str, bytes] = {}
    assert not server.exchange(Grid({1: ("a", alive), 2: ("b", noisy)}), board, deadline=0.05)
    assert board == {"a.alive": b"life"}


def test_who_is_silent_late_or_wrong_hinders_nobody(app: Any) -> None:
    server, _, said = app

    def failed(asked: Message) -> Message:
        reply = Message(RecordDict(), reply_to=asked)
        reply.error = SimpleNamespace(code=7, reason="a text that could hold anything")
        return reply

    def stray(asked: Message) -> Message:
        reply = Message(RecordDict({"answer": {"message": b"stray"}}), reply_to=asked)
        reply.metadata.reply_to_message_id = "of another run"
        return reply

    def troubled(asked: Message) -> Message:
        return Message(RecordDict({"answer": {"trouble": "service away " + "x" * 1000}}), reply_to=asked)

    def empty(asked: Message) -> Message:
        return Message(RecordDict(), reply_to=asked)

    nodes = (lambda _: None, failed, stray, troubled, empty, answering(b"x" * (2**20 + 1)))
    grid = Grid({i: (f"n{i}", node) for i, node in enumerate(nodes)} | {99: ("a", answering(b"of a"))})
    grid.nodes[98] = ("t", lambda asked: Message(RecordDict({"answer": {"message": "text"}}), reply_to=asked))
    board = {"n0": b"earlier"}
    assert server.exchange(grid, board, deadline=0.05)
    assert board == {"n0": b"earlier", "a": b"of a"}  # what a silent one has said before stays
    assert not any("anything" in line or len(line) > 200 for line in said)
    assert not server.exchange(grid, board, deadline=0.05)
    assert not server.exchange(Grid({}), board, deadline=0.05)


def test_a_superlink_that_is_away_is_waited_for_but_not_for_ever(app: Any) -> None:
    server, _, said = app

    class Away(Grid):
        def __init__(self, times: int) -> None:
            super().__init__({1: ("a", answering(b"of a"))})
            self.times = times

        def get_nodes(self) -> Any:
            self.times -= 1
            if self.times >= 0:
                raise ConnectionError("away")
            return super().get_nodes()

    grid = Away(server.FAILURES - 1)
    server.forward(grid, context(rounds=server.FAILURES))
    assert len(grid.sent) == 2
    assert sum("failed" in line for line in said) == server.FAILURES - 1
    with pytest.raises(ConnectionError):
        server.forward(Away(server.FAILURES), context(rounds=0))


# --- members whose messages the ServerApp carries; more in test_carried.py --------------------------------


def release(member: Member, seed: int = 0) -> None:
    work(member.agent, seed=seed)
    member.agent.release()


def test_a_run_that_begins_anew_has_everything_again(app: Any) -> None:
    here = world(EngineTransport())
    members = [here.member(name) for name in NAMES]
    release(members[0])
    app[0].forward(carried_by(*members[:2]), context())
    app[0].forward(carried_by(*members), context())  # the third comes late
    assert [member.agent.held["org1"].number for member in members] == [1, 1, 1]


def test_another_members_message_under_ones_own_name_is_refused(app: Any) -> None:
    here = world(EngineTransport())
    one, other, third = (here.member(name) for name in NAMES)
    release(one)
    release(other)
    grid = carried_by(one, third)
    grid.nodes[9] = ("org2", answering(one.message))
    app[0].forward(grid, context())
    assert dict(third.refusals) == {("org2", "sender"): 1}
    assert third.agent.held["org1"].number == 1
