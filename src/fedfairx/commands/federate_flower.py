"""`fedfairx federate flower`: the services of a federation, and Flower between them, all on this machine."""

from __future__ import annotations

import argparse
import re
import signal
import subprocess
import sys
import time
from contextlib import ExitStack, suppress
from pathlib import Path
from typing import Any

from fedfairx.commands.common import add_verb

KEY = "engine.key"  # of the service's doors for messages, in an agent's folder


def add(parts: Any) -> None:
    parser = add_verb(
        parts,
        "flower",
        run,
        summary="start all agents' services, a SuperLink, its SuperNodes and the run, on this machine",
        details="For trying it out: organisations start each part where it belongs (docs/federation.md). "
        "Flower is looked for on the path, or in --flower; Ctrl-C ends all of it.",
        example="""
            fedfairx federate init --agents org1,org2,org3 --transport flower --out federation
            fedfairx federate flower federation --flower ~/flower/bin""",
    )
    parser.add_argument("folder", metavar="DIR", help="what `federate init --transport flower` has made")
    parser.add_argument("--flower", metavar="BIN", help="folder with flower-superlink and the others")
    parser.add_argument(
        "--gap", type=float, default=60.0, help="seconds between two rounds of messages (default: 60)"
    )
    parser.add_argument("--seconds", type=float, help="end after so long (default: never)")


def run(args: argparse.Namespace) -> int:
    from fedfairx.errors import InvalidInput
    from fedfairx.federation.place import Place
    from fedfairx.federation.roster import Roster
    from fedfairx.federation.transport.flower.running import Flower, find_commands

    commands, base = find_commands(args.flower), Path(args.folder)
    names = list(Roster.read(base / "roster.json").members)
    places = [Place.read(base / name) for name in names]
    if any(place.superlink is None for place in places):
        raise InvalidInput(f"{base} must be of `federate init --transport flower`, and has another transport")
    port = int(str(places[0].superlink).rpartition(":")[2])
    signal.signal(signal.SIGTERM, signal.default_int_handler)  # as Ctrl-C: nothing is left running
    with suppress(KeyboardInterrupt), ExitStack() as stack:
        services = {name: (serve(stack, base / name), key_of(base / name)) for name in names}
        for name, (url, _) in services.items():
            print(f"{name}: {url}", flush=True)
        flower = stack.enter_context(Flower(base, services, commands=commands, port=port, gap=args.gap))
        print(
            f"Flower carries messages every {args.gap:g} s (Ctrl-C ends it); logs are in {base}/logs",
            flush=True,
        )
        ends = time.monotonic() + (args.seconds or float("inf"))
        while time.monotonic() < ends:
            flower.check()
            time.sleep(1.0)
    return 0


def serve(stack: ExitStack, folder: Path) -> str:
    """An agent's service in a process of its own, on a free port; its address."""
    from fedfairx.errors import StateError

    log = folder / "service.log"
    with log.open("wb") as file:
        command = [sys.executable, "-m", "fedfairx", "serve", "--federation", str(folder), "--port", "0"]
        process = subprocess.Popen(command, stdin=subprocess.DEVNULL, stdout=file, stderr=file)
    stack.callback(_end, process)
    while process.poll() is None:
        found = re.search(r"serves on (http://\S+)", log.read_text(errors="replace"))
        if found:
            return found[1]
        time.sleep(0.05)
    raise StateError(f"the service of {folder.name} did not start; see {log}")


def _end(process: subprocess.Popen[bytes]) -> None:
    process.terminate()
    process.wait()


def key_of(folder: Path) -> Path:
    """A file with a key of role federation, made if there is none."""
    from fedfairx.federation.keys import write_private
    from fedfairx.service.settings import load, place_of
    from fedfairx.storage.guest import open_keys

    path = folder / KEY
    if not path.exists():
        with open_keys(place_of(load({"federation": str(folder)}, environment={}))) as keys:
            write_private(path, keys.add("SuperNode", "federation").encode())
    return path
