"""Starts Flower's commands many times without importing Flower many times, run by Flower's Python.

Each part is a process of its own, forked after the imports. A folder has a small program for each command,
which asks for the process, passes signals on, and ends as it ends. Process groups are those that there would
be without it: a group's leader passes signals on to all of it, and when the leader is killed, so are all.

    python flower_nursery.py FOLDER

FOLDER gets the commands. It ends, and all parts with it, when its standard input is closed.
"""

from __future__ import annotations

import importlib
import json
import os
import select
import signal
import socket
import sys
import threading
import time
from pathlib import Path
from types import SimpleNamespace

COMMANDS = {
    "flower-superlink": "flwr.superlink.cli:flower_superlink",
    "flower-supernode": "flwr.supernode.cli:flower_supernode",
    "flower-superexec": "flwr.supercore.cli:flower_superexec",
    "flwr": "flwr.cli.app:app",
    "flwr-serverapp": "flwr.superlink.cli:flwr_serverapp",
    "flwr-clientapp": "flwr.supernode.cli:flwr_clientapp",
}
LONGEST = 2**17  # bytes of a request
SHORT = 0.1  # seconds between two questions to the SuperLink

COMMAND = """#!{python} -IS
import json, os, signal, socket, sys

asked = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
asked.connect({address!r})
group = os.getpgid(0)
wanted = {{"arguments": sys.argv, "environment": dict(os.environ), "folder": os.getcwd()}}
socket.send_fds(asked, [json.dumps(wanted | {{"group": group}}).encode()], [0, 1, 2])
process = int(asked.recv(100) or 0)


def pass_on(which, _):
    try:
        (os.killpg if group == os.getpid() else os.kill)(process, which)
    except ProcessLookupError:
        pass


for which in (signal.SIGTERM, signal.SIGINT, signal.SIGQUIT):
    signal.signal(which, pass_on)
ended = asked.recv(100)
os._exit(int(ended) if ended else 128 + signal.SIGKILL)
"""


def run(wanted: dict[str, object], asked: socket.socket, files: list[int]) -> None:
    """What the forked process does."""
    signal.signal(signal.SIGCHLD, signal.SIG_DFL)
    leads = False
    try:
        os.setpgid(0, int(str(wanted["group"])))  # of the part that has started this one
    except OSError:
        os.setpgid(0, 0)
        leads = True
    ending = os.dup(0)
    for number, file in enumerate(files):
        os.dup2(file, number)
        os.close(file)
    os.environ.clear()
    os.environ.update(wanted["environment"])  # type: ignore[call-overload]
    os.chdir(str(wanted["folder"]))
    sys.argv = list(wanted["arguments"])  # type: ignore[call-overload]
    asked.send(b"%d" % os.getpid())
    ended = threading.Event()
    threading.Thread(target=end_with, args=(asked, ending, leads, ended), daemon=True).start()
    module, _, name = COMMANDS[Path(sys.argv[0]).name].partition(":")
    code = 0
    os_exit = os._exit

    def leave(status: int) -> None:
        sys.stdout.flush()
        sys.stderr.flush()
        ended.set()
        asked.send(b"%d" % status)
        os_exit(status)

    os._exit = leave  # type: ignore[assignment]  # Flower ends so, too
    try:
        getattr(importlib.import_module(module), name)()
    except SystemExit as ends:
        code = ends.code if isinstance(ends.code, int) else int(ends.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())
        code = 1
    threading._shutdown()  # type: ignore[attr-defined]  # as the interpreter does when it ends
    leave(code)


def end_with(asked: socket.socket, ending: int, leads: bool, ended: threading.Event) -> None:
    """Be killed when the command is, and at the end of the tests."""
    select.select([asked, ending], [], [])
    if not ended.is_set():
        os.killpg(0, signal.SIGKILL) if leads else os.kill(os.getpid(), signal.SIGKILL)


def wait_less() -> None:
    """Ask sooner again, where Flower has no option for it: for messages, and for what they are made of."""
    supernode = importlib.import_module("flwr.supernode.start_client_internal")
    vars(supernode)["time"] = SimpleNamespace(sleep=lambda seconds: time.sleep(min(seconds, SHORT)))
    objects = importlib.import_module("flwr.supercore.inflatable.inflatable_utils")
    for function in (objects.pull_objects, objects.pull_and_inflate_object_from_tree):
        function.__kwdefaults__["initial_backoff"] = SHORT


def main(folder: Path) -> None:
    for place in COMMANDS.values():
        importlib.import_module(place.partition(":")[0])
    wait_less()
    assert threading.active_count() == 1  # others would not be there in a forked process
    address = str(folder / "nursery")
    listening = socket.socket(socket.AF_UNIX, socket.SOCK_SEQPACKET)
    listening.bind(address)
    listening.listen(100)
    for name in COMMANDS:
        (folder / name).write_text(COMMAND.format(python=sys.executable, address=address))
        (folder / name).chmod(0o700)
    signal.signal(signal.SIGCHLD, signal.SIG_IGN)  # processes that end need no wait()
    print("ready", flush=True)
    while True:
        ready, _, _ = select.select([0, listening], [], [])
        if 0 in ready:  # the tests have ended
            break
        asked, _ = listening.accept()
        message, files, _, _ = socket.recv_fds(asked, LONGEST, 3)
        if os.fork() == 0:
            listening.close()
            run(json.loads(message), asked, files)
        for file in files:
            os.close(file)
        asked.close()


if __name__ == "__main__":
    main(Path(sys.argv[1]))
