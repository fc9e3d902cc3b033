"""Where Flower is, for tests: in an environment of its own, which `make flower` makes."""

from __future__ import annotations

import os
import shutil
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
