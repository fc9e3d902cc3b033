"""What a SuperLink and its SuperNodes need: made, checked and amended with the rest of a federation."""

from __future__ import annotations

import re
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from fedfairx.cli.main import main
from fedfairx.federation.setup.create import amend_federation
from fedfairx.federation.setup.member_folder import MemberFolder
from fedfairx.federation.setup.verify import inspect
from member_helpers import NAMES


def wrong(base: Path) -> list[str]:
    return [f"{each.what}: {each.trouble}" for each in inspect(base) if not each.fine]


@pytest.fixture
def by_flower(tmp_path: Path) -> Path:
    command = ["federate", "init", "--agents", ",".join(NAMES), "--transport", "flower"]
    assert main([*command, "--out", str(tmp_path / "federation")]) == 0
    return tmp_path / "federation"


def test_what_flower_needs_is_made(by_flower: Path) -> None:
    assert wrong(by_flower) == []
    for name in NAMES:
        assert wrong(by_flower / name) == []
        assert {path.name for path in (by_flower / name).iterdir()} == {
            *("agent.key", "authority.crt", "fedfairx.toml", "node.key", "roster.json")
        }
        place = MemberFolder.read(by_flower / name)
        assert place.carried
        assert place.hub == ("flower", "localhost:9092")
        public = (by_flower / "hub" / "nodes" / f"{name}.pub").read_bytes()
        assert public.startswith(b"ecdsa-sha2-nistp384 ")
        secret = by_flower / name / "node.key"
        assert b"OPENSSH PRIVATE KEY" in secret.read_bytes()
        assert secret.stat().st_mode & 0o077 == 0
    hub = by_flower / "hub"
    assert (hub / "superexec.secret").stat().st_mode & 0o077 == 0
    components = tomllib.loads((hub / "app" / "pyproject.toml").read_text())["tool"]["flwr"]["app"][
        "components"
    ]
    for component in components.values():
        module = component.partition(":")[0].replace(".", "/")
        assert (hub / "app" / f"{module}.py").exists()
    assert not [path for path in hub.rglob("*") if path.suffix in (".fab", ".pyc")]


def test_who_joins_later_has_a_node_too(by_flower: Path) -> None:
    amend_federation(by_flower, add={"org4": None}, remove=["org2"])
    assert wrong(by_flower) == []
    assert (by_flower / "hub" / "nodes" / "org4.pub").exists()
    assert MemberFolder.read(by_flower / "org4").hub == ("flower", "localhost:9092")
    assert not (by_flower / "hub" / "nats-server.conf").exists()


@pytest.mark.parametrize(
    ("harm", "text"),
    [
        (lambda b: (b / "org1" / "node.key").chmod(0o644), "org1: node.key .*owner alone"),
        (lambda b: (b / "org1" / "node.key").unlink(), "org1: node.key .*missing"),
        (lambda b: (b / "org1" / "node.key").write_text("x"), "org1: node.key .*OpenSSH"),
        (lambda b: (b / "hub" / "nodes" / "org3.pub").unlink(), "hub: has the key .*org3.pub"),
    ],
)
def test_every_fault_of_flowers_files_is_found(
    by_flower: Path, harm: Callable[[Path], object], text: str
) -> None:
    harm(by_flower)
    assert any(re.search(text, each) for each in wrong(by_flower)), wrong(by_flower)


def test_flower_is_asked_for_where_it_is_not(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    demo = ["demo", "--transport", "flower", "--flower", str(tmp_path)]
    assert main(demo) == 2
    assert "no flower-superlink" in capsys.readouterr().err
