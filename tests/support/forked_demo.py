"""`fedfairx demo` that says a line sooner, and whose services are forks of it: one start of Python.

python forked_demo.py FLAGS
"""

from __future__ import annotations

import os
import signal
import subprocess
import sys
import time
from collections.abc import Sequence
from contextlib import suppress
from pathlib import Path
from typing import Any

import nursery
from fedfairx.cli import demo
from fedfairx.cli.main import main
from fedfairx.demo import launcher

SOON = 0.5  # seconds between two lines


class Fork:
    """A service, with what `fedfairx.demo.launcher` asks of a `Popen`."""

    def __init__(self, command: Sequence[str], *, log: Path, cwd: Path) -> None:
        assert [*command[:3]] == [sys.executable, "-m", "fedfairx"]
        self._code: int | None = None
        with log.open("wb") as file:
            self._process = os.fork()
            if self._process == 0:
                nursery.serve([*command[3:]], dict(os.environ), str(cwd), file.fileno())

    def poll(self) -> int | None:
        if self._code is None:
            ended, status = os.waitpid(self._process, os.WNOHANG)
            self._code = os.waitstatus_to_exitcode(status) if ended else None
        return self._code

    def wait(self, timeout: float = 30.0) -> None:
        ends = time.monotonic() + timeout
        while self.poll() is None:
            if time.monotonic() > ends:
                raise subprocess.TimeoutExpired("serve", timeout)
            time.sleep(0.01)

    def terminate(self) -> None:
        self._send(signal.SIGTERM)

    def kill(self) -> None:
        self._send(signal.SIGKILL)

    def _send(self, which: int) -> None:
        if self.poll() is None:
            with suppress(ProcessLookupError):
                os.kill(self._process, which)


if __name__ == "__main__":
    replaced: dict[Any, Any] = {(demo, "BETWEEN_LINES"): SOON, (launcher, "start_process"): Fork}
    for (module, name), value in replaced.items():
        setattr(module, name, value)
    sys.exit(main(["demo", *sys.argv[1:]]))
