"""Starts `fedfairx serve` many times without importing it many times: a line of arguments in, a process out.

Each service is a process of its own, forked before it has opened anything, so that it can be killed. With
"die:module:Class.method" as the first argument it kills itself when that method first returns, with
"die:before:module:Class.method" when it is first called. A folder in a federation, as the nursery's own
argument, is read beforehand.
"""

from __future__ import annotations

import functools
import importlib
import json
import os
import signal
import sys
from typing import Any

import fedfairx.service.app
import fedfairx.service.server
from fedfairx.cli.main import main
from fedfairx.federation.setup.member_folder import MemberFolder


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


if __name__ == "__main__":
    agent = fedfairx.Agent(3)
    agent.observe(agent.decide([[0.0, 0.0, 0.0]]), reward=0.0)  # compiled code is loaded once, too
    if len(sys.argv) > 1:
        _ = MemberFolder.read(sys.argv[1]).roster.terms.limits  # so that calibrating is done once
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead need no burying
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            arguments = json.loads(line)
            if arguments[0].startswith("die:"):
                die_after(arguments.pop(0).removeprefix("die:"))
            os._exit(main(arguments))
        print(child, flush=True)
