"""Values of slow oracles, stored: closed forms in hundreds of digits, and searches by brute force.

A value that is not stored is computed; FEDFAIRX_ORACLE=write adds it to the file. FEDFAIRX_ORACLE=compute, as
`make test-all` has it, computes all of them and compares.
"""

from __future__ import annotations

import atexit
import functools
import json
import os
import re
import zlib
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest

HOW = os.environ.get("FEDFAIRX_ORACLE", "")


def _plain(value: Any) -> Any:
    """An array's numbers, or how an object shows itself, without its address."""
    return value.tolist() if hasattr(value, "tolist") else re.sub(" at 0x[0-9a-f]+", "", str(value))


def stored(path: Path) -> Callable[[Callable[..., float]], Callable[..., float]]:
    """Keep what a function returns, by its arguments, in a file."""
    known: dict[str, float] = json.loads(path.read_text()) if path.exists() else {}
    if HOW == "write":
        atexit.register(lambda: path.write_text(json.dumps(known, indent=0, sort_keys=True) + "\n"))

    def keep(function: Callable[..., float]) -> Callable[..., float]:
        @functools.wraps(function)
        def look(*args: Any) -> float:
            key = f"{function.__name__}-{zlib.crc32(json.dumps(args, default=_plain).encode()):08x}"
            if HOW == "compute" and key in known:
                assert function(*args) == pytest.approx(known[key], rel=1e-13)
            elif key not in known:
                known[key] = function(*args)
            return known[key]

        return look

    return keep
