"""Starts `fedfairx serve` many times without importing it many times: a message in, a process out.

Each service is a process of its own, forked before it has opened anything, so that it can be killed. The
standard input is a socket; a message has the arguments, the environment, and the file for standard error;
with a folder, in which to run, also for standard output.
With "die:module:Class.method" as the first argument a service kills itself when that method first returns,
with "die:before:module:Class.method" when it is first called.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import signal
import socket
from contextlib import suppress
from typing import Any

import fedfairx.service.app
import fedfairx.service.server
from fedfairx.cli.main import main
from fedfairx.federation.setup.member_folder import MemberFolder

LONGEST = 2**17  # bytes of a message


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
    agent = fedfairx.Agent(3)
    agent.observe(agent.decide([[0.0, 0.0, 0.0]]), reward=0.0)  # compiled code is loaded once, too
    fedfairx.service.app.openapi_document()  # as this is made once
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
