"""The Markdown table of a stored run: `run.py --json > run.json`, then `table.py run.json`."""

from __future__ import annotations

import argparse
import json
from pathlib import Path
from typing import Any


def row(figure: dict[str, Any]) -> str:
    """| figure | value | middle half | wanted |"""

    def short(value: float | None) -> str:
        if value is None:
            return ""
        return f"{value:.3g}" if abs(value) < 1000 else f"{value:,.0f}"

    spread = "" if figure["low"] is None else f"{short(figure['low'])} to {short(figure['high'])}"
    wanted = ""
    if figure["met"] is not None:
        bound = "≤" if figure["at_most"] is not None else "≥"
        limit = figure["at_most"] if figure["at_most"] is not None else figure["at_least"]
        wanted = f"{bound} {short(limit)}: {'yes' if figure['met'] else '**no**'}"
    return f"| {figure['name']} | {short(figure['value'])} {figure['unit']} | {spread} | {wanted} |"


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("file", type=Path, help="what run.py --json printed")
    for benchmark in json.loads(parser.parse_args().file.read_text()):
        print(f"\n### {benchmark['benchmark']}\n")
        section = None
        for figure in benchmark["figures"]:
            if figure["section"] != section:
                section = figure["section"]
                print(f"\n{section}\n\n| figure | value | middle half | wanted |\n| --- | --- | --- | --- |")
            print(row(figure))


if __name__ == "__main__":
    main()
