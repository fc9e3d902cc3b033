"""Texts that users read or programs rely on: `python tests/golden_texts.py` compares, `--write` stores them.

They are the OpenAPI document, the `--help` of every command, the generated parts of the reference, and the
signatures and docstrings of all public names. A change of one of them is on purpose: it writes the file
again, and the commit shows what has changed for users.
"""

from __future__ import annotations

import argparse
import difflib
import importlib
import inspect
import json
import re
import sys
from collections.abc import Iterator
from pathlib import Path

import fedfairx
from fedfairx.service import openapi
from fedfairx.service.routes import OPERATIONS

ROOT = Path(__file__).resolve().parent.parent
FOLDER = Path(__file__).with_suffix("")
PYTHON = (3, 11)  # other versions lay out help and signatures in another way

sys.path.insert(0, str(ROOT / "docs"))
generated = importlib.import_module("generated")
sys.path.remove(str(ROOT / "docs"))


def texts() -> dict[str, str]:
    """All of them, by the name of their file."""
    document = openapi.document(OPERATIONS, fedfairx.__version__)
    return {
        "openapi.json": json.dumps(document, indent=1, ensure_ascii=False) + "\n",
        **dict(_reference()),
    }


def _reference() -> Iterator[tuple[str, str]]:
    """What `docs/generated.py` makes for each page of the reference."""
    for page in sorted((ROOT / "docs" / "reference").rglob("*.md")):
        for name, package in re.findall(
            r"^<!-- generated: (\w+) ?(\S*) -->$", page.read_text("utf-8"), re.MULTILINE
        ):
            if package:
                yield f"{package}.txt", "\n".join(_documented(package))
            else:
                yield f"{name}.md", generated.GENERATED[name]() + "\n"


def _documented(package: str) -> Iterator[str]:
    """The signature and the docstring of each public name of a package, and of its public members."""
    for name, value in generated.public(package).items():
        if inspect.ismodule(value):
            continue
        yield from _entry(name, value)
        if inspect.isclass(value):
            for member, each in sorted(vars(value).items()):
                if not member.startswith("_"):
                    yield from _entry(f"{name}.{member}", each)


def _entry(name: str, value: object) -> Iterator[str]:
    plain = value.__func__ if isinstance(value, classmethod | staticmethod) else value
    plain = plain.fget if isinstance(plain, property) else plain
    if not callable(plain):
        yield f"{name}\n"
        return
    try:
        signature = re.sub(r" at 0x\w+", "", str(inspect.signature(plain)))  # of a function as a default
        yield name + generated.with_options(signature)
    except (TypeError, ValueError):  # made in C
        yield name
    yield f"{inspect.getdoc(plain) or ''}\n"


def differences() -> list[str]:
    """The lines in which stored and present texts differ."""
    present = texts()
    stored = {path.name: path.read_text("utf-8") for path in FOLDER.iterdir()}
    return [
        line
        for name in sorted({*present, *stored})
        for line in difflib.unified_diff(
            stored.get(name, "").splitlines(),
            present.get(name, "").splitlines(),
            f"stored/{name}",
            f"present/{name}",
            lineterm="",
            n=1,
        )
    ]


def write() -> None:
    FOLDER.mkdir(exist_ok=True)
    present = texts()
    for path in FOLDER.iterdir():
        if path.name not in present:
            path.unlink()
    for name, text in present.items():
        (FOLDER / name).write_text(text, encoding="utf-8")


def main() -> int:
    parser = argparse.ArgumentParser(description=__doc__.partition("\n")[0])
    parser.add_argument("--write", action="store_true", help="store the present texts")
    if parser.parse_args().write:
        write()
        return 0
    lines = differences()
    print("\n".join(lines) or "no text has changed")
    return 1 if lines else 0


if __name__ == "__main__":
    sys.exit(main())
