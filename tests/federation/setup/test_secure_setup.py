"""The folders of a federation with secure aggregation: terms, permissions, confirmations."""

from __future__ import annotations

import json
from pathlib import Path

import pytest

from fedfairx.cli.main import main
from fedfairx.errors import InvalidInput, StateError
from fedfairx.federation.roster.roster import Roster, create_roster
from fedfairx.federation.roster.signing_keys import SigningKey, new_signing_key
from fedfairx.federation.setup.create import amend_federation, create_federation, hub_members
from fedfairx.federation.setup.member_folder import CONFIRMED, SETTINGS, VAULT, MemberFolder
from fedfairx.federation.transport.nats_subjects import subject_of
from fedfairx.privacy import SimulatedNoise
from fedfairx.service.settings import load
from member_helpers import secure_terms
from secure_helpers import NAMES

INIT = ["federate", "init", "--agents", "a,b,c,d", "--aggregation", "secure"]


def test_init_makes_a_secure_federation(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    hourly = ["--first-round", "3600", "--round-ratio", "1", "--round-count", "100", "--begin"]
    assert (
        main([*INIT, "--out", "f", "--openers", "b,d", "--decide-from", "released", *hourly, "7000000000"])
        == 0
    )
    told = capsys.readouterr().out
    roster = Roster.read("f/roster.json")
    assert roster.openers == ("b", "d")
    assert roster.terms.rounds is not None
    assert roster.terms.rounds.times[-1] == 7_000_360_000
    assert roster.terms.options.decide_from == "released"
    assert "b, d open totals, 100 of them, from 2191-10-27 13:26 to 2191-10-31 16:26 UTC" in told
    assert "against the hub and up to 1 of 4 members together: ε=2" in told
    assert roster.digest in told
    assert "confirm anew" not in told
    assert main(["federate", "amend", "f", "--add", "e"]) == 2
    refused = capsys.readouterr()
    assert "members hold √2 = 1.41 times the noise of one" in refused.out
    assert "--yes must be given to open the next epoch" in refused.err
    assert Roster.read("f/roster.json") == roster


def test_amend_opens_the_next_epoch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    monkeypatch.chdir(tmp_path)
    assert main([*INIT, "--out", "f", "--openers", "b,d"]) == 0
    capsys.readouterr()
    amended = ["--add", "e", "--remove", "b", "--begin", "4000000000", "--yes"]
    assert main(["federate", "amend", "f", *amended]) == 0
    told = capsys.readouterr().out
    assert "Delete the vault of b. Records in rows that were sent and are in no total" in told
    assert "d, a open totals, 50 of them, from 2096-10-02 08:06" in told
    roster = Roster.read("f/e/roster.json")
    assert (roster.version, roster.openers, [*roster.members]) == (2, ("d", "a"), ["a", "c", "d", "e"])
    assert roster.digest in told
    assert "Every operator must confirm anew before epoch 2 can begin" in told
    for wrong, text in (
        (["--remove", "e"], "members must be at least 4"),
        (["--rekey", "a"], "keys must stay with secure aggregation"),
        (["--openers", "a"], "openers must be 2 members"),
        (["--begin", "0"], "--begin must be so late that the last round is still to come"),
    ):
        assert main(["federate", "amend", "f", "--yes", *wrong]) == 2
        assert text in capsys.readouterr().err
    assert Roster.read("f/roster.json") == roster
    assert main(["federate", "init", "--agents", "a,b", "--out", "g"]) == 0
    assert main(["federate", "amend", "g", "--add", "c", "--yes"]) == 2
    assert "--yes is for secure aggregation" in capsys.readouterr().err


@pytest.mark.parametrize(
    ("given", "text"),
    [
        (["--transport", "flower"], "secure aggregation needs NATS or SQLite"),
        (["--colluding", "3"], "members must be at least 5 for secure aggregation where 3 may collude"),
        (["--openers", "a"], "openers must be 2 members"),
        (["--round-ratio", "0"], "ratio must be 1, or from"),
        (["--begin", "0"], "--begin must be so late that the last round is still to come"),
        (["--aggregation", "plain", "--first-round", "5"], "--first-round is for --aggregation secure"),
        (["--aggregation", "plain", "--colluding", "1"], "colluding is for aggregation='secure'"),
        (["--aggregation", "plain", "--decide-from", "released"], "decide_from must be left to each member"),
        (["--aggregation", "plain", "--openers", "a,b"], "openers must be left out"),
        (["--algorithm", "fed-fairx-bayes"], "which is not private"),
    ],
)
def test_init_refuses_what_can_not_be(
    given: list[str], text: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([*INIT, "--out", str(tmp_path / "f"), *given]) == 2
    assert text in capsys.readouterr().err


def test_members_may_write_exactly_their_own_keys(tmp_path: Path) -> None:
    roster = create_federation(tmp_path, secure_terms(), dict.fromkeys(NAMES), transport="nats")
    text = hub_members(roster)
    for name in NAMES:
        (line,) = (line for line in text.splitlines() if "publish:" in line and f'.{name}.row.*"' in line)
        may = json.loads(line.partition("publish: ")[2].rstrip(","))
        kinds = ["alive", "accepted", "row.*", "past", "opener", "partial"]  # it may become an opener
        keys = {subject_of(roster.federation, f"{name}.{kind}") for kind in kinds}
        assert {each for each in may if each.startswith("$KV")} == keys


@pytest.mark.long
def test_operators_confirm_each_other(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    """With a hub nobody is confirmed by the convener's command; on one machine all are."""
    roster = create_federation(tmp_path / "f", secure_terms(), dict.fromkeys(NAMES))
    folder = tmp_path / "f" / "org3"
    place = MemberFolder.read(folder)
    assert place.confirmed() == {}
    assert "must confirm all of org1, org2" in place.unconfirmed()
    assert main(["federate", "check", str(tmp_path / "f"), "--json"]) == 1
    wrong = [each["what"] for each in json.loads(capsys.readouterr().out) if not each["fine"]]
    assert wrong == [
        f"{name}: its operator has confirmed as many members as secure aggregation needs" for name in NAMES
    ]
    told = ["federate", "confirm", str(folder), "--members", "org1,org2", "--roster"]
    assert main([*told, "ab" * 32]) == 2
    assert "somebody has another roster" in capsys.readouterr().err
    assert place.confirmed() == {}
    assert main([*told, roster.digest.upper()]) == 0
    assert "at least 4 members in all" in capsys.readouterr().out
    assert main(["federate", "confirm", str(folder), "--members", "org9", "--roster", roster.digest]) == 2
    assert main(["federate", "confirm", str(folder), "--members", "org4", "--roster", roster.digest]) == 0
    assert "these are enough" in capsys.readouterr().out
    assert place.confirmed() == {name: roster.members[name] for name in ("org1", "org2", "org4")}
    assert place.confirmed_here() == ["org1", "org2", "org4"]
    for content in ("{", "[]", '{"federation": "", "members": {}, "signature": "x"}'):
        (folder / CONFIRMED).write_text(content)
        with pytest.raises(StateError, match="is damaged"):
            place.confirmed()
    forged = {"federation": roster.federation, "members": dict(roster.members), "signature": "00" * 64}
    (folder / CONFIRMED).write_text(json.dumps(forged))  # as a convener might hand it out
    with pytest.raises(StateError, match="must be signed by the key of 'org3'"):
        place.confirmed()
    (folder / CONFIRMED).unlink()
    place.confirm(NAMES)
    convener = SigningKey.read(tmp_path / "f" / "convener" / "federation.key")
    create_roster(convener, secure_terms(epsilon=9.0), roster.members).write(folder / "roster.json")
    again = Roster.read(folder / "roster.json")
    assert MemberFolder(folder, "org3", again, place.table).confirmed() == {}  # it was another federation
    later = roster.amended(convener, {**roster.members, "org5": new_signing_key().public})
    after = MemberFolder(folder, "org3", later, place.table)
    assert after.confirmed_here() == [*NAMES]  # they stay confirmed
    without = {name: key for name, key in later.members.items() if name != "org4"}
    back = later.amended(convener, without).amended(convener, {**without, "org4": new_signing_key().public})
    named = MemberFolder(folder, "org3", back, place.table)
    assert named.confirmed_here() == ["org1", "org2", "org3"]  # not with another key
    assert named.confirmed()["org4"] == roster.members["org4"]  # and in the epoch before it still is
    named.confirm(["org4"])
    assert named.confirmed_here() == [*NAMES]
    assert after.confirmed_here() == ["org1", "org2", "org3"]
    create_federation(tmp_path / "g", secure_terms(), dict.fromkeys(NAMES), transport="sqlite")
    assert all(MemberFolder.read(tmp_path / "g" / name).unconfirmed() == "" for name in NAMES)
    assert main(["federate", "confirm", str(tmp_path / "g" / "org1")]) == 0
    assert main(["federate", "check", str(tmp_path / "g")]) == 0


def test_confirming_is_for_secure_aggregation(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    terms = secure_terms(aggregation="plain", rounds=None)
    create_federation(tmp_path, terms, dict.fromkeys(NAMES), transport="sqlite")
    assert main(["federate", "confirm", str(tmp_path / "org1")]) == 2
    assert "must be of a federation with secure aggregation" in capsys.readouterr().err


def test_a_vault_lies_beside_its_key(tmp_path: Path) -> None:
    create_federation(tmp_path, secure_terms(), dict.fromkeys(NAMES), transport="sqlite")
    for number, name in enumerate(NAMES):
        place = MemberFolder.read(tmp_path / name)
        agent = place.roster.terms.agent(name, noise=SimulatedNoise(1, agent=number))
        place.member(agent).close()
        assert (tmp_path / name / VAULT).stat().st_mode & 0o077 == 0


def test_a_vault_may_be_elsewhere(tmp_path: Path) -> None:
    create_federation(tmp_path, secure_terms(), dict.fromkeys(NAMES), transport="sqlite")
    place = MemberFolder.read(tmp_path / "org1", vaults=str(tmp_path / "vaults"))
    agent = place.roster.terms.agent("org1", noise=SimulatedNoise(1))
    place.member(agent).close()
    assert (tmp_path / "vaults" / "org1.vault").stat().st_mode & 0o077 == 0
    assert not (tmp_path / "org1" / VAULT).exists()
    with (tmp_path / "org1" / SETTINGS).open("r+") as file:
        content = file.read()
        file.seek(0)
        file.write(f'vault = "vaults"\n{content}')
    assert load({"federation": str(tmp_path / "org1")}, environment={}).vault == f"{tmp_path}/org1/vaults"
    nowhere = MemberFolder.read(tmp_path / "org1", vaults="/proc")  # where nobody can write
    with pytest.raises(InvalidInput, match=r"vault must be a folder that this member can write to .*'/proc'"):
        nowhere.member(agent)


def test_an_engine_does_not_carry_rows(tmp_path: Path) -> None:
    create_federation(tmp_path, secure_terms(), dict.fromkeys(NAMES), transport="sqlite")
    file = tmp_path / "org1" / SETTINGS
    file.write_text(file.read_text().replace('transport = "sqlite"', 'transport = "engine"'))
    place = MemberFolder.read(tmp_path / "org1")
    with pytest.raises(StateError, match="secure aggregation needs NATS or SQLite"):
        place.member(place.roster.terms.agent("org1", noise=SimulatedNoise(1)))


def test_on_one_machine_an_amendment_confirms_everybody(tmp_path: Path) -> None:
    create_federation(tmp_path, secure_terms(), dict.fromkeys(NAMES), transport="sqlite")
    roster = amend_federation(tmp_path, add={"org5": None}, remove=["org1"])
    for name in roster.members:
        place = MemberFolder.read(tmp_path / name)
        assert place.confirmed_here() == [*roster.members]
        assert place.unconfirmed() == ""


def test_flower_has_no_secure_aggregation(tmp_path: Path) -> None:
    with pytest.raises(InvalidInput, match="secure aggregation needs NATS or SQLite"):
        create_federation(tmp_path / "f", secure_terms(), dict.fromkeys(NAMES), transport="flower")
