"""Where Flower is, for tests: in an environment of its own, which `make flower` makes."""

from __future__ import annotations

import os
import shutil
import subprocess
import tempfile
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from servers import missing

MADE = Path(__file__).parents[2] / ".venv-flower" / "bin"


def flower_commands() -> Path:
    """The folder with Flower's commands: of FEDFAIRX_FLOWER, of `make flower`, or on the path."""
    given = os.environ.get("FEDFAIRX_FLOWER")
    found = shutil.which("flower-superlink", path=given or os.pathsep.join([str(MADE), os.environ["PATH"]]))
    if found is None:
        missing("Flower (`make flower`, or its commands' folder in FEDFAIRX_FLOWER)")
    assert found is not None
    return Path(found).parent


@contextmanager
def forked_commands() -> Iterator[Path]:
    """A folder with Flower's commands, each of which is a fork of one process (`flower_nursery.py`)."""
    program = str(Path(__file__).with_name("flower_nursery.py"))
    quiet = {"FLWR_TELEMETRY_ENABLED": "0", "FLWR_DISABLE_UPDATE_CHECK": "1"}
    kept = {name: value for name, value in os.environ.items() if name != "PYTHONPATH"}
    with (
        tempfile.TemporaryDirectory(prefix="ffxfl") as folder,
        subprocess.Popen(
            [str(flower_commands() / "python"), program, folder],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            env={**kept, **quiet},
            start_new_session=True,
        ) as nursery,
    ):
        assert nursery.stdout is not None
        assert nursery.stdout.readline() == b"ready\n"
        yield Path(folder)
        nursery.communicate()  # its standard input is closed: it ends
