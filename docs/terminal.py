"""IPython extension: `%%bash` runs a cell as commands; `%%terminal` starts each of its lines as a server.

`%ctrl_c` stops the servers. A port that is given as `--port` is exchanged for a free one in this and all
later cells, so that a page can show port 8000 wherever it is built.
"""

from __future__ import annotations

import atexit
import re
import shlex
import socket
import subprocess
import time
import urllib.request
from pathlib import Path
from typing import Any

PORT = re.compile(r"--port (\d+)")
SECONDS = 200.0  # that a server may take to start

ports: dict[str, str] = {}
servers: list[subprocess.Popen[bytes]] = []


def load_ipython_extension(shell: Any) -> None:
    """Add these to a kernel."""
    shell.input_transformers_cleanup.append(exchange_ports)
    shell.register_magic_function(bash, "cell", "bash")
    shell.register_magic_function(terminal, "cell", "terminal")
    shell.register_magic_function(ctrl_c, "line", "ctrl_c")
    atexit.register(ctrl_c)


def exchange_ports(lines: list[str]) -> list[str]:
    """Replace the ports of servers by free ones."""
    for port in PORT.findall("".join(lines)):
        if port not in ports:
            with socket.create_server(("127.0.0.1", 0)) as free:
                ports[port] = str(free.getsockname()[1])
    return [re.sub(r"\b\d{4,5}\b", lambda found: ports.get(found[0], found[0]), line) for line in lines]


def bash(_line: str, cell: str) -> None:
    """Run commands and print what they print; fail if one of them fails."""
    done = subprocess.run(["bash", "-euo", "pipefail", "-c", cell], capture_output=True, text=True)
    print(done.stdout, end="")
    if done.returncode:
        raise RuntimeError(f"exit code {done.returncode}: {done.stderr}")


def terminal(_line: str, cell: str) -> None:
    """Start the servers and wait until they are ready."""
    started = []
    for command in cell.splitlines():
        (port,) = PORT.findall(command)
        log = Path(f"{port}.log")
        with log.open("w") as file:
            server = subprocess.Popen(shlex.split(command), stdout=file, stderr=file)
        servers.append(server)
        started.append((server, f"http://127.0.0.1:{port}/readyz", log))
    end = time.monotonic() + SECONDS
    for server, url, log in started:
        while not _is_ready(url):
            if server.poll() is not None or time.monotonic() > end:
                raise RuntimeError(f"no server at {url}: {log.read_text()}")
            time.sleep(0.2)


def _is_ready(url: str) -> bool:
    try:
        with urllib.request.urlopen(url, timeout=5):
            return True
    except OSError:
        return False


def ctrl_c(_line: str = "") -> None:
    """Stop the servers as Ctrl-C does in a terminal."""
    while servers:
        server = servers.pop()
        server.send_signal(2)
        server.wait(SECONDS)
