"""Starts `fedfairx serve` many times without importing it many times: a line of arguments in, a process out.

Each service is a process of its own, forked before it has opened anything, so that it can be killed.
"""

from __future__ import annotations

import json
import os
import signal
import sys

import fedfairx.service.app
import fedfairx.service.server
from fedfairx.cli import main

if __name__ == "__main__":
    agent = fedfairx.Agent(3)
    agent.observe(agent.decide([[0.0, 0.0, 0.0]]), reward=0.0)  # compiled code is loaded once, too
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # the dead need no burying
    for line in sys.stdin:
        child = os.fork()
        if child == 0:
            signal.signal(signal.SIGCHLD, signal.SIG_DFL)
            os._exit(main(json.loads(line)))
        print(child, flush=True)
