"""The files of a federation: made, checked, changed; every fault is found and named."""

from __future__ import annotations

import json
import os
import re
import subprocess
import tomllib
from collections.abc import Callable
from pathlib import Path

import pytest

from fedfairx.cli.main import main
from fedfairx.errors import InvalidInput, StateError
from fedfairx.features import Schema
from fedfairx.federation.roster.certificates import Identity, new_authority
from fedfairx.federation.roster.roster import Roster
from fedfairx.federation.roster.signing_keys import SigningKey, new_signing_key
from fedfairx.federation.setup.create import amend_federation, create_federation
from fedfairx.federation.setup.member_folder import MemberFolder
from fedfairx.federation.setup.verify import inspect
from fedfairx.privacy import SimulatedNoise
from member_helpers import released, terms
from nats_server import BINARY, require_nats

NAMES = ("org1", "org2", "org3")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    create_federation(tmp_path / "federation", terms(), dict.fromkeys(NAMES))
    return tmp_path / "federation"


def wrong(base: Path) -> list[str]:
    """What is wrong with the files; no hub runs here."""
    found = [each for each in inspect(base) if not each.fine]
    return [f"{each.what}: {each.trouble}" for each in found if "hub can't be reached" not in each.trouble]


def test_all_is_made_and_goes_together(base: Path) -> None:
    assert wrong(base) == []
    for name in NAMES:
        assert wrong(base / name) == []
        assert {path.name for path in (base / name).iterdir()} == {
            "agent.key",
            "authority.crt",
            "fedfairx.toml",
            "roster.json",
            "tls.crt",
            "tls.key",
        }
        values = tomllib.loads((base / name / "fedfairx.toml").read_text())
        assert values["name"] == name
        assert values["federation"]["id"] == Roster.read(base / "roster.json").federation


def test_secrets_are_their_owners_alone(base: Path) -> None:
    secrets = [path for path in base.rglob("*") if path.suffix == ".key"]
    assert len(secrets) == 2 + 2 + 2 * len(NAMES)
    assert all(path.stat().st_mode & 0o077 == 0 for path in secrets)
    assert all((base / name).stat().st_mode & 0o077 == 0 for name in (*NAMES, "hub", "convener"))
    private = {path.read_bytes() for path in secrets}
    assert len(private) == len(secrets)  # nobody has another's
    for path in base.rglob("*"):
        if path.is_file() and path not in secrets:
            assert b"PRIVATE KEY" not in path.read_bytes()


@pytest.mark.process
def test_the_servers_configuration_is_one(base: Path) -> None:
    require_nats()
    command = [str(BINARY), "-t", "-c", "nats-server.conf"]
    done = subprocess.run(command, cwd=base / "hub", capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr


@pytest.mark.parametrize(
    ("harm", "text"),
    [
        (lambda b: (b / "org1" / "agent.key").chmod(0o644), "org1: agent.key .*owner alone"),
        (lambda b: (b / "org1" / "tls.key").chmod(0o640), "org1: its certificate .*owner alone"),
        (
            lambda b: os.replace(b / "org2" / "agent.key", b / "org1" / "agent.key"),
            "org1: agent.key .*not the one in the roster",
        ),
        (lambda b: (b / "org1" / "tls.crt").unlink(), "org1: its certificate .*missing"),
        (
            lambda b: (b / "org1" / "tls.crt").write_bytes((b / "org2" / "tls.crt").read_bytes()),
            "org1: its certificate .*is not the key of",
        ),
        (lambda b: _other_authority(b), "org1: its certificate .*not signed by this federation's authority"),
        (lambda b: _expired(b), "org1: its certificate .*was valid until"),
        (lambda b: _for_another(b), "org1: its certificate .*must be for org1@"),
        (
            lambda b: _edit(b / "org1" / "roster.json", "org3", "org4"),
            "org1: has the latest roster: .*signature",
        ),
        (
            lambda b: _edit(b / "roster.json", "org3", "org4"),
            "the roster is signed by its convener: .*signature",
        ),
        (
            lambda b: _edit(b / "org1" / "fedfairx.toml", "org1", "org2"),
            "org2: fedfairx.toml .*another member",
        ),
        (lambda b: (b / "org1" / "fedfairx.toml").write_text("= ["), "org1: fedfairx.toml .*damaged"),
        (
            lambda b: _edit(b / "hub" / "members.conf", "org1", "org9"),
            "hub: nats-server.conf .*members.conf must be that of roster version 1",
        ),
        (
            lambda b: _edit(b / "hub" / "nats-server.conf", 'include "members.conf"', "# include"),
            "hub: nats-server.conf .*must have include",
        ),
        (
            lambda b: _edit(
                b / "hub" / "nats-server.conf", "include", "authorization { users: [] }\ninclude"
            ),
            "hub: nats-server.conf .*no authorization of its own",
        ),
        (lambda b: (b / "hub" / "members.conf").unlink(), "hub: nats-server.conf .*members.conf is missing"),
        (
            lambda b: _edit(b / "hub" / "nats-server.conf", "verify_and_map: true", "verify: false"),
            "hub: nats-server.conf .*verify_and_map",
        ),
        (lambda b: (b / "hub" / "nats-server.conf").unlink(), "hub: nats-server.conf .*missing"),
        (
            lambda b: os.replace(b / "org1" / "agent.key", b / "convener" / "federation.key"),
            "convener: federation.key .*must be the key",
        ),
        (lambda b: (b / "convener" / "authority.key").unlink(), "convener: authority.key .*missing"),
        (lambda b: (b / "roster.json").unlink(), "roster.json"),
    ],
)
def test_every_fault_is_found_and_named(base: Path, harm: Callable[[Path], object], text: str) -> None:
    harm(base)
    found_wrong = wrong(base)
    assert any(re.search(text, each) for each in found_wrong), found_wrong


def _edit(path: Path, old: str, new: str) -> None:
    text = path.read_text()
    assert old in text
    path.write_text(text.replace(old, new))


def _reissue(base: Path, authority: Identity, *, days: int, email: str) -> None:
    for name in ("tls.crt", "tls.key"):
        (base / "org1" / name).unlink()
    authority.issue("org1", days=days, email=email).write(
        base / "org1" / "tls.crt", base / "org1" / "tls.key"
    )


def _authority(base: Path) -> Identity:
    return Identity.read(base / "convener" / "authority.crt", base / "convener" / "authority.key")


def _address(base: Path, name: str) -> str:
    return f"{name}@{Roster.read(base / 'roster.json').federation}"


def _other_authority(base: Path) -> None:
    _reissue(base, new_authority("other", days=10), days=10, email=_address(base, "org1"))


def _expired(base: Path) -> None:
    _reissue(base, _authority(base), days=0, email=_address(base, "org1"))


def _for_another(base: Path) -> None:
    _reissue(base, _authority(base), days=10, email=_address(base, "org2"))


def test_who_made_its_key_itself_keeps_it(tmp_path: Path) -> None:
    key = new_signing_key()
    roster = create_federation(tmp_path / "f", terms(), {"org1": key.public, "org2": None})
    assert roster.members["org1"] == key.public
    assert not (tmp_path / "f" / "org1" / "agent.key").exists()
    assert wrong(tmp_path / "f") == []
    assert "agent.key is missing" in wrong(tmp_path / "f" / "org1")[0]  # it has to put it there
    key.write(tmp_path / "f" / "org1" / "agent.key")
    assert wrong(tmp_path / "f" / "org1") == []


@pytest.mark.parametrize(
    ("agents", "text"),
    [
        ({"hub": None}, "name must not be"),
        ({"a b": None}, "name must be 1 to 64"),
        ({"org1": "12"}, "32 bytes"),
        ({}, "at least one"),
    ],
)
def test_what_is_refused_leaves_nothing(tmp_path: Path, agents: dict[str, str | None], text: str) -> None:
    with pytest.raises(InvalidInput, match=text):
        create_federation(tmp_path / "f", terms(), agents)
    assert not (tmp_path / "f").exists()


def test_a_folder_with_something_in_it_is_left_alone(base: Path) -> None:
    with pytest.raises(InvalidInput, match="new or an empty folder"):
        create_federation(base, terms(), {"org1": None})


def test_joining_leaving_and_a_new_key(base: Path) -> None:
    before = Roster.read(base / "roster.json")
    old = SigningKey.read(base / "org1" / "agent.key")
    roster = amend_federation(base, add={"org4": None}, remove=["org2"], rekey={"org1": None})
    assert roster.version == 2
    assert set(roster.members) == {"org1", "org3", "org4"}
    roster.require_follows(before)
    assert roster.members["org1"] != old.public
    assert wrong(base) == []
    assert any("org2: has left" in each.what for each in inspect(base))
    assert "org2@" not in (base / "hub" / "members.conf").read_text()
    assert wrong(base / "org4") == []
    assert SigningKey.read(base / "org1" / "agent.key.until-1").public == old.public
    stale = wrong(base / "org2")  # one who has left, or has not got the new roster, sees that by itself only
    assert stale == []
    for change in ({"remove": ["org2"]}, {"rekey": {"org9": None}}, {"add": {"org1": None}}):
        with pytest.raises(InvalidInput, match="name must be"):
            amend_federation(base, **change)  # type: ignore[arg-type]
    assert Roster.read(base / "roster.json") == roster


@pytest.mark.process
def test_own_lines_of_the_hubs_configuration_stay(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    config = base / "hub" / "nats-server.conf"
    own = 'http_port: 8222  # of the operator\nserver_name: "a"\ncluster {\n  name: "c"\n  port: 6222\n'
    own += '  authorization { user: "r", password: "x" }\n}\n'
    config.write_text(text := config.read_text() + own)
    assert main(["federate", "amend", str(base), "--add", "org4"]) == 0
    assert f"{base}/hub/members.conf: for the hub" in capsys.readouterr().out
    assert config.read_text() == text
    assert "org4@" in (base / "hub" / "members.conf").read_text()
    assert wrong(base) == []
    test_the_servers_configuration_is_one(base)
    (base / "hub").rename(base.parent / "handed out")
    amend_federation(base, remove=["org4"])
    assert [path.name for path in (base / "hub").iterdir()] == ["members.conf"]
    assert wrong(base) == []


def test_only_where_the_conveners_key_is_members_change(
    base: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    before = Roster.read(base / "roster.json")
    (base / "convener").rename(base.parent / "offline")
    for folder, file in ((base, "convener/federation.key"), (base.parent, "roster.json")):
        assert main(["federate", "amend", str(folder), "--add", "org4"]) == 2
        text = f"folder must be the one that `federate init` made, with {file}, got {folder}"
        assert text in capsys.readouterr().err
    assert Roster.read(base / "roster.json") == before
    assert not (base / "org4").exists()


def test_on_one_machine_there_is_no_hub(tmp_path: Path) -> None:
    base = tmp_path / "f"
    create_federation(base, terms(), dict.fromkeys(("org1", "org2")), transport="sqlite")
    assert wrong(base) == []
    assert not (base / "hub").exists()
    assert {path.name for path in (base / "org1").iterdir()} == {"agent.key", "fedfairx.toml", "roster.json"}
    amend_federation(base, add={"org3": None})
    assert wrong(base) == []
    members = {}
    for name in ("org1", "org2", "org3"):
        place = MemberFolder.read(base / name)
        assert wrong(base / name) == []
        members[name] = place.member(place.roster.terms.agent(name, noise=SimulatedNoise(1)))
        released(members[name])
    for name, member in members.items():
        assert set(member.receive()) == {"org1", "org2", "org3"} - {name}
        member.transport.close()
    with pytest.raises(StateError, match="name 'org1'"):
        MemberFolder.read(base / "org1").member(members["org2"].agent)


@pytest.mark.parametrize(
    ("old", "new", "text"),
    [
        ('transport = "sqlite"', 'transport = "pigeon"', "must be nats, sqlite or engine"),
        ('transport = "sqlite"', "", "must have transport"),
        ("[federation]", "", "must be TOML with"),
        ('id = "', 'id = "00', "is the roster of federation"),
    ],
)
def test_settings_that_lead_nowhere(tmp_path: Path, old: str, new: str, text: str) -> None:
    roster = create_federation(tmp_path / "f", terms(), {"org1": None}, transport="sqlite")
    _edit(tmp_path / "f" / "org1" / "fedfairx.toml", old, new)
    with pytest.raises(StateError, match=text):
        MemberFolder.read(tmp_path / "f" / "org1").member(roster.terms.agent("org1", noise=SimulatedNoise(1)))


def test_without_the_conveners_key_nothing_is_changed(base: Path) -> None:
    (base / "convener" / "federation.key").unlink()
    new_signing_key().write(base / "convener" / "federation.key")
    with pytest.raises(StateError, match="not the convener's key"):
        amend_federation(base, add={"org4": None})
    assert not (base / "org4").exists()


def test_on_the_command_line(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main(["federate", "init", "--agents", "org1,org2,org3", "--out", "f"]) == 0
    federation = Roster.read("f/roster.json").federation
    assert federation in capsys.readouterr().out
    assert main(["federate", "check", "f"]) == 0
    assert "WRONG" not in capsys.readouterr().out
    assert main(["federate", "key", "--out", "mine.key"]) == 0
    public = capsys.readouterr().out.strip()
    assert main(["federate", "amend", "f", "--add", f"org4={public}", "--remove", "org1"]) == 0
    assert Roster.read("f/roster.json").members["org4"] == public
    Path("f/org2/tls.key").chmod(0o644)
    capsys.readouterr()
    assert main(["federate", "check", "f", "--json"]) == 1
    told = json.loads(capsys.readouterr().out)
    assert [each["what"] for each in told if not each["fine"]] == [
        "org2: its certificate is issued by the authority for it, and valid"
    ]
    for refused in (
        ["federate", "amend", "f"],
        ["federate", "init", "--agents", "org1,org1", "--out", "g"],
        ["federate", "init", "--agents", "org1", "--out", "f"],
        ["federate", "init", "--agents", "org1", "--out", "g", "--algorithm", "none"],
        ["federate", "key", "--out", "mine.key"],
    ):
        assert main(refused) == 2
        assert "fedfairx: " in capsys.readouterr().err
    assert (
        main(
            [
                "federate",
                "init",
                "--agents",
                "a,b",
                "--out",
                "s",
                "--slots",
                "1,0.63,0.5",
                "--context-norm",
                "2",
            ]
        )
        == 0
    )
    assert Roster.read("s/a/roster.json").terms.bounds.slots == (1.0, 0.63, 0.5)
    assert "decisions each (simulated" not in capsys.readouterr().out  # what joining gains is for one slot
    assert main(["federate", "init", "--agents", "a,b", "--out", "g", "--algorithm", "fed-fairx-bayes"]) == 0
    assert Roster.read("g/roster.json").terms.options.epsilon is None
    named = ["--features", "price=0:10,city=Rome|Oslo", "--shared", "city", "--products", "none"]
    assert main(["federate", "init", "--agents", "a,b", "--out", "n", "--minimum-share", "0.1", *named]) == 0
    schema = Schema({"price": (0, 10), "city": ["Rome", "Oslo"]}, shared=["city"], products=[])
    assert Roster.read("n/a/roster.json").terms.schema == schema
    assert Roster.read("n/a/roster.json").terms.options.minimum_share == 0.1
    assert main(["federate", "init", "--agents", "a,b", "--out", "m", "--dimension", "3", *named]) == 2
    assert "dimension must be left out or 5" in capsys.readouterr().err


def test_init_tells_what_is_promised_and_what_joining_gains(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    def told(*more: str) -> str:
        out = str(tmp_path / str(len(list(tmp_path.iterdir()))))
        assert main(["federate", "init", "--transport", "sqlite", "--out", out, *more]) == 0
        return capsys.readouterr().out

    few = told("--agents", "org1,org2", "--horizon", "10000")
    assert "what the record changes in later decisions" in few
    assert 'decide_from="released" is the strict mode, which covers that too' in few
    assert "at 2 members, ε = 2, 10 000 decisions each (simulated: 10 actions" in few
    assert 'In the strict mode (decide_from="released"): none; ' in few
    assert "Warning: the expected gain over deciding alone is less than a tenth: consider a larger ε" in few
    many = told("--agents", ",".join(f"org{i}" for i in range(12)), "--epsilon", "8")
    assert "less regret at 12 members, ε = 8, 100 000 decisions each" in many
    assert "Warning" not in many
    exact = told("--agents", "a,b", "--algorithm", "fed-fairx-bayes")
    assert "less regret at 2 members, exact sums, 100 000 decisions each" in exact
    assert "strict" not in exact
    paper = told("--agents", "a,b", "--algorithm", "priv-fairx-linucb")
    assert "Expected gain" not in paper
    assert "as recorded" not in paper
