"""`fedfairx bench`: the benchmarks of a source checkout."""

from __future__ import annotations

import argparse
import subprocess
import sys
from pathlib import Path
from typing import Any

from fedfairx.cli.common import add_verb
from fedfairx.errors import InvalidInput


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "bench",
        run,
        summary="run the benchmarks of a source checkout",
        example="fedfairx bench\nfedfairx bench -- --json",
    )
    parser.add_argument("--folder", type=Path, default=Path("benchmarks"), help="default: ./benchmarks")
    parser.add_argument("arguments", nargs="*", help="passed on to benchmarks/run.py (after --)")


def run(args: argparse.Namespace) -> int:
    script = args.folder / "run.py"
    if not script.is_file():
        raise InvalidInput(
            f"folder must hold run.py, got folder={str(args.folder)!r}; benchmarks are in the source tree"
        )
    return subprocess.run([sys.executable, str(script), *args.arguments], check=False).returncode
