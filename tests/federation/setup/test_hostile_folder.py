"""A member's folder that somebody made to do harm: `federate check` ends, and says what is wrong."""

from __future__ import annotations

import json
import os
import random
import resource
import shutil
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import pytest

from fedfairx.cli.main import main
from fedfairx.federation.roster.terms import Terms
from fedfairx.federation.setup.create import create_federation
from nats_server import free_port

MEMBER = "org1"


@pytest.fixture(scope="module")
def made(tmp_path_factory: pytest.TempPathFactory) -> Path:
    """A federation whose hub nobody has started."""
    base = tmp_path_factory.mktemp("made")
    names = dict.fromkeys((MEMBER, "org2", "org3"))
    terms = Terms(dimension=3, agents=3, horizon=100, epsilon=2.0)
    create_federation(base / "federation", terms, names, hosts=["127.0.0.1"], port=free_port())
    return base / "federation"


@pytest.fixture
def little_memory() -> Iterator[None]:
    """A limit on what one call may take: a device has no end."""
    before = resource.getrlimit(resource.RLIMIT_AS)
    used = int(Path("/proc/self/statm").read_text().split()[0]) * resource.getpagesize()
    resource.setrlimit(resource.RLIMIT_AS, (used + 2**30, before[1]))
    yield
    resource.setrlimit(resource.RLIMIT_AS, before)


def replaced(make: Callable[[Path], object]) -> Callable[[Path], object]:
    def harm(path: Path) -> None:
        path.unlink()
        make(path)

    return harm


HARMS: dict[str, Callable[[Path], object]] = {
    "a pipe": replaced(lambda path: os.mkfifo(path, 0o600)),
    "a device": replaced(lambda path: path.symlink_to("/dev/zero")),
    "a folder": replaced(lambda path: path.mkdir()),
    "nothing": lambda path: path.write_bytes(b""),
    "zeros": lambda path: path.write_bytes(bytes(1_000)),
    "nested": lambda path: path.write_bytes(b"[" * 200_000),
    "large": lambda path: os.truncate(path, 2**33),
    "half": lambda path: path.write_bytes(path.read_bytes()[: path.stat().st_size // 2]),
}
FILES = ("agent.key", "authority.crt", "fedfairx.toml", "roster.json", "tls.crt", "tls.key")


def check(folder: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """Have `federate check` find the fault of a folder: it says so, and does not fail itself."""
    assert main(["federate", "check", str(folder)]) == 1
    assert "WRONG" in capsys.readouterr().out


@pytest.mark.usefixtures("little_memory")
@pytest.mark.parametrize("harm", HARMS)
@pytest.mark.parametrize("file", FILES)
def test_a_file_that_is_none(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str], file: str, harm: str
) -> None:
    shutil.copytree(made, tmp_path / "federation")
    HARMS[harm](tmp_path / "federation" / MEMBER / file)
    check(tmp_path / "federation" / MEMBER, capsys)


def test_a_roster_whose_values_are_others(
    made: Path, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Each value of the roster, in the place of which something else stands: the signature or a rule."""
    rng = random.Random(1)
    shutil.copytree(made, tmp_path / "federation")
    path = tmp_path / "federation" / MEMBER / "roster.json"
    signed = path.read_text()
    others = [None, True, -1, 1e308, "", "../../x", "a" * 100_000, [], {}, [[]], "é\n\0", 2**70]
    for _ in range(150):
        values = json.loads(signed)
        place, key = rng.choice(_places(values))
        place[key] = rng.choice([each for each in others if each != place[key]])
        path.write_text(json.dumps(values))
        check(path.parent, capsys)


def _places(value: Any) -> list[tuple[Any, Any]]:
    keys = [*value] if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [each for key in keys for each in ((value, key), *_places(value[key]))]
