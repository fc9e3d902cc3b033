"""docs/howto/from-personalizer.md runs as printed: each service that it starts, with the calls below it."""

from __future__ import annotations

import json
import os
import re
import shutil
import subprocess
from pathlib import Path

import pytest

from fedfairx.cli.main import main
from servers import missing
from service_helpers import Running

DOCS = Path(__file__).resolve().parents[2] / "docs" / "howto" / "from-personalizer.md"
TEXT = DOCS.read_text(encoding="utf-8")
FENCE = re.compile(r"^```(\w+)\n(.*?)^```$", re.MULTILINE | re.DOTALL)


def command(line: str) -> list[str]:
    """The flags of an indented command, without those that a test sets itself."""
    words = line.split()[1:]
    for flag in ("--data", "--port"):
        if flag in words:
            del words[words.index(flag) : words.index(flag) + 2]
    return words


@pytest.mark.process
@pytest.mark.long
def test_every_call_runs_as_printed(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    if shutil.which("curl") is None:
        missing("curl")
    parts = re.split(r"^    (fedfairx serve .*)$", TEXT, flags=re.MULTILINE)[1:]
    starts, bodies = parts[::2], parts[1::2]
    assert [("--mode shadow" in start, "--control-share 0.5" in start) for start in starts] == [
        (True, False),
        (False, True),
    ]
    (program,) = [body for language, body in FENCE.findall(TEXT) if language == "python"]
    said = []
    for start, body in zip(starts, bodies, strict=True):
        running = Running(str(tmp_path / "data" / "agent.db"), *command(start)[1:])
        try:
            where = program.replace("http://127.0.0.1:8000", running.url)
            exec(compile(where, "example", "exec"), {})  # again after going live, as the page says
            shell = "".join(block for language, block in FENCE.findall(body) if language == "sh")
            done = subprocess.run(
                ["bash", "-euo", "pipefail", "-c", f"URL={running.url}\n{shell}"],
                cwd=tmp_path,
                env=os.environ,
                capture_output=True,
                text=True,
                timeout=60,
            )
        finally:
            running.stop()
        assert done.returncode == 0, done.stdout + done.stderr
        said.append(done.stdout)
    printed = capsys.readouterr().out.split(" rewards were learnt")
    assert [int(each) for each in printed[:2]] == [120, 241]  # the first reward by curl too
    shadow = json.loads((tmp_path / "rank.json").read_text())
    assert (shadow["mode"], shadow["action_id"], shadow["policy"][2]) == ("shadow", "salad", 0.0)
    lift = json.loads("{" + said[1].strip())["lift"]
    assert lift["decisions"] == 120
    assert lift["low"] <= lift["value"] <= lift["high"]

    (line,) = re.findall(r"^    (fedfairx evaluate .*)$", TEXT, re.MULTILINE)
    assert main([*command(line), "--data", str(tmp_path / "data")]) == 0
    table = capsys.readouterr().out
    assert re.search(r"^uniform +\S", table, re.MULTILINE)
    assert re.search(r"^greedy +\S", table, re.MULTILINE)
