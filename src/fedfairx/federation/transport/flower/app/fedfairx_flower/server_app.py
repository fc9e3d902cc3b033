"""At the SuperLink: collect every agent's latest message and send all of them to every node.

It forwards signed bytes, which it can't change unnoticed. It keeps them in memory only, because a new run has
everything again after its first round.

A node writes only under the name that its key was registered by, whatever it answers.
"""

from __future__ import annotations

import time
from collections import Counter
from logging import INFO, WARNING
from typing import Any

from flwr.app import ConfigRecord, Context, Message, RecordDict
from flwr.common.logger import log
from flwr.serverapp import Grid, ServerApp

PULL = 0.1  # seconds between two requests for answers
LARGEST = 2**20  # bytes of a message
SMALL = 2**10  # bytes of a sign of life
FAILURES = 10  # rounds in a row, after which the run ends as failed


def forward(grid: Grid, context: Context) -> None:
    """Run rounds until the run ends; a round with news is followed at once by one that spreads it."""
    gap, deadline = (float(context.run_config[name]) for name in ("gap", "deadline"))
    rounds = int(context.run_config["rounds"])
    board: dict[str, bytes] = {}
    done = failed = 0
    while rounds == 0 or done < rounds:
        began = time.monotonic()
        try:
            if exchange(grid, board, deadline=deadline):
                exchange(grid, board, deadline=deadline)
            failed = 0
        except Exception as error:  # the SuperLink can't be reached; a later round repeats everything
            failed += 1
            log(WARNING, "fedfairx: a round failed: %s", type(error).__name__)
            if failed == FAILURES:
                raise
        done += 1
        if done != rounds:
            time.sleep(max(gap - (time.monotonic() - began), 0.0))


def exchange(grid: Grid, board: dict[str, bytes], *, deadline: float) -> bool:
    """Send the board to every node; return whether an answer was new."""
    names = named(grid.get_nodes())
    content = RecordDict({"board": ConfigRecord(dict(board))})
    messages = [Message(content, node, "query", ttl=deadline) for node in names]
    ids = list(grid.push_messages(messages)) if messages else []
    waiting = {one: names[node] for one, node in zip(ids, names, strict=bool(ids)) if one}
    asked, news, end = len(waiting), [], time.monotonic() + deadline
    while waiting and time.monotonic() < end:
        time.sleep(PULL)
        for reply in grid.pull_messages(list(waiting)):
            name = waiting.pop(reply.metadata.reply_to_message_id, None)
            if name is not None and take(board, name, reply):
                news.append(name)
    log(INFO, "fedfairx: asked %d, answered %d, new of %s", asked, asked - len(waiting), sorted(news))
    return bool(news)


def named(nodes: Any) -> dict[int, str]:
    """Connected nodes by the names that their keys were registered by; duplicate names are left out."""
    pairs = [(int(node.node_id), str(node.name)) for node in nodes]
    times = Counter(name for _, name in pairs)
    for name in sorted(name for name in times if not name or times[name] > 1):
        log(WARNING, "fedfairx: %d nodes are registered as %r: left out", times[name], name)
    return {node: name for node, name in pairs if name and times[name] == 1}


def take(board: dict[str, bytes], name: str, reply: Any) -> bool:
    """Put an answer on the board; return whether its message was new. A sign of life is no news."""
    if reply.has_error():
        log(WARNING, "fedfairx: %s could not answer: code %s", name, reply.error.code)
        return False
    answer = reply.content.config_records.get("answer", {})
    if answer.get("trouble"):
        log(WARNING, "fedfairx: %s has trouble: %.80r", name, answer["trouble"])
    message, alive = answer.get("message"), answer.get("alive")
    if isinstance(alive, bytes) and len(alive) <= SMALL:
        board[f"{name}.alive"] = alive
    if not isinstance(message, bytes) or len(message) > LARGEST or board.get(name) == message:
        return False
    board[name] = message
    return True


app = ServerApp()
app.main()(forward)
