"""Where a service listens."""

from __future__ import annotations

import re
import socket
from pathlib import Path

import pytest

from fedfairx.cli.main import main


def test_a_port_in_use_is_named_before_anything_is_made(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with socket.create_server(("127.0.0.1", 0)) as other:
        port = other.getsockname()[1]
        assert main(["serve", "--data", str(tmp_path / "new"), "--dimension", "2", "--port", str(port)]) == 2
    assert capsys.readouterr().err == (
        "fedfairx: port must be one that can be listened on (Address already in use), "
        f"got port={port}; --port takes another\n"
    )
    assert not (tmp_path / "new").exists()


@pytest.mark.parametrize("host", ["192.0.2.1", "nowhere.invalid"])
def test_a_host_of_others_is_named(tmp_path: Path, capsys: pytest.CaptureFixture[str], host: str) -> None:
    assert main(["serve", "--data", str(tmp_path / "new"), "--dimension", "2", "--host", host]) == 2
    rule = rf"host must be one that can be listened on \(.+\), got host='{host}'; --host takes another"
    assert re.fullmatch(f"fedfairx: {rule}\n", capsys.readouterr().err)
    assert not (tmp_path / "new").exists()
