"""Starts `fedfairx serve` many times without importing it many times: a message in, a process out.

Each service is a process of its own, forked while nothing is open and no thread runs, so that it can be
killed. The standard input is a socket; a message has the arguments, the environment, and the file for
standard error; with a folder, in which to run, also for standard output.
With "die:module:Class.method" as the first argument a service kills itself when that method first returns,
with "die:before:module:Class.method" when it is first called.
"""

from __future__ import annotations

import functools
import gc
import importlib
import json
import os
import signal
import socket
import tempfile
import threading
from contextlib import suppress
from pathlib import Path
from typing import Any

from fedfairx.cli.main import main, parser
from fedfairx.federation.aggregation import machine
from fedfairx.federation.setup.member_folder import MemberFolder
from fedfairx.service import federation, service, standby
from fedfairx.service.app import make_app
from fedfairx.service.server import config
from service_helpers import asking, decide, settings_for

LONGEST = 2**17  # bytes of a message
EVERY = 0.1  # seconds between two exchanges of a member: tests wait for them
PAUSED = GIVE_UP = 1.5  # seconds until a standby may take over, for the same reason
PATIENCE = 5.0  # seconds that a member waits for the last total of its epoch, for the same reason


def prepare() -> None:
    """Load once what services need to start and to answer, and let none of them look for garbage in it."""
    parser()  # imports all commands
    for name in ("psycopg", "uvicorn.lifespan.on"):
        with suppress(ImportError):
            importlib.import_module(name)
    with tempfile.TemporaryDirectory() as folder:
        place = str(Path(folder) / "agent.db")
        config(make_app, settings_for(place)).get_loop_factory()
        for _ in range(2):  # which makes the database, and reads it
            with asking(place) as client:
                made = decide(client)
                client.put(f"/v1/decisions/{made['decision_id']}/reward", json={"reward": 0.5})
        with asking(str(Path(folder) / "private" / "agent.db"), epsilon=2.0) as client:
            decide(client)
    assert threading.active_count() == 1
    gc.collect()
    gc.freeze()


def die_after(what: str) -> None:
    """As the power going off right then would, for the process."""
    before = what.startswith("before:")
    module, _, name = what.removeprefix("before:").partition(":")
    owner, method = name.split(".")
    kind = getattr(importlib.import_module(module), owner)
    real = getattr(kind, method)

    @functools.wraps(real)
    def dying(*args: Any, **options: Any) -> None:
        if not before:
            real(*args, **options)
        os.kill(os.getpid(), signal.SIGKILL)

    setattr(kind, method, dying)


def serve(arguments: list[str], environment: dict[str, str], folder: str, said: int) -> None:
    """What the forked process does."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    os.dup2(said, 2)
    if folder:
        os.setsid()
        os.chdir(folder)
        os.dup2(said, 1)
    os.environ.clear()
    os.environ.update(environment)
    if arguments[0].startswith("die:"):
        die_after(arguments.pop(0).removeprefix("die:"))
    os._exit(main(arguments))


if __name__ == "__main__":
    prepare()
    federation.EVERY, machine.PATIENCE = EVERY, PATIENCE
    standby.PAUSED, service.GIVE_UP = PAUSED, GIVE_UP
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # processes that end need no wait()
    asked = socket.socket(fileno=0)
    while True:
        message, files, _, _ = socket.recv_fds(asked, LONGEST, 1)
        if not message:  # the tests have ended
            break
        wanted = json.loads(message)
        if wanted["member"]:
            with suppress(Exception):  # calibrated once for all; what is wrong with the folder, `serve` says
                _ = MemberFolder.read(wanted["member"]).roster.terms.limits
        child = os.fork()
        if child == 0:
            serve(wanted["arguments"], wanted["environment"], wanted["folder"], files[0])
        os.close(files[0])
        asked.send(b"%d" % child)
