"""`federate check` of members that have run: what they have stored says whether they can go on."""

from __future__ import annotations

import shutil
from contextlib import suppress
from pathlib import Path
from typing import Any

import pytest

from fedfairx.cli.main import main
from fedfairx.errors import LedgerMismatch
from fedfairx.federation.exchange.member import Member
from fedfairx.federation.exchange.secure_member import SecureMember
from fedfairx.federation.setup.create import create_federation
from fedfairx.federation.setup.member_folder import SETTINGS, VAULT, MemberFolder
from member_helpers import released, secure_terms, terms
from secure_helpers import NAMES


def database(folder: Path) -> Path:
    return folder / "data" / "agent.sqlite"


def start(folder: Path) -> Any:
    """A member as a service would start it."""
    place = MemberFolder.read(folder)
    database(folder).parent.mkdir(exist_ok=True)
    members = len(place.roster.members) if place.roster.terms.secure else None
    return place.member(place.roster.terms.open_agent(place.name, database(folder), members=members))


def stop(member: Member | SecureMember) -> None:
    member.close()
    member.agent.close()


def put_back(folder: Path, copy: Path) -> None:
    """An older copy, as somebody in a hurry puts it back."""
    for file in database(folder).parent.iterdir():
        file.unlink()
    shutil.copy(copy, database(folder))


def check(folder: Path, capsys: pytest.CaptureFixture[str]) -> tuple[int, str]:
    capsys.readouterr()
    return main(["federate", "check", str(folder)]), capsys.readouterr().out


def test_a_halted_member_is_found_and_stays_halted(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    base = tmp_path / "federation"
    create_federation(base, terms(), dict.fromkeys(("org1", "org2")), transport="sqlite")
    folder, copy = base / "org1", tmp_path / "copy"
    code, told = check(folder, capsys)
    assert (code, "halted" in told) == (0, False)  # it has not run yet
    settings = (folder / SETTINGS).read_text()
    (folder / SETTINGS).write_text(f"pirt = 8000\n{settings}")
    code, told = check(folder, capsys)
    assert (code, "pirt is not a setting" in told) == (1, True)
    (folder / SETTINGS).write_text(settings)
    member = start(folder)
    released(member)
    stop(member)
    shutil.copy(database(folder), copy)
    member = start(folder)
    released(member)
    code, told = check(folder, capsys)  # while it runs
    assert (code, "ok     org1: sending is not halted" in told) == (0, True)
    stop(member)
    put_back(folder, copy)
    member = start(folder)
    with pytest.raises(LedgerMismatch, match="old copy"):
        member.exchange()
    for place in (folder, base):
        code, told = check(place, capsys)
        assert code == 1
        assert "WRONG  org1: sending is not halted\n         peers hold release 2 of 'org1'" in told
    stop(member)
    (base / "transport.sqlite").unlink()  # the peers' copy is not the only one that knows
    member = start(folder)
    with pytest.raises(LedgerMismatch, match="old copy"):
        member.exchange()
    assert "org1" not in member.transport.latest()
    stop(member)
    assert check(folder, capsys)[0] == 1


@pytest.mark.long
def test_of_secure_aggregation_a_restored_member_and_one_without_its_vault(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    base = tmp_path / "federation"
    create_federation(base, secure_terms(), dict.fromkeys(NAMES), transport="sqlite")
    opener, other, copy = base / "org1", base / "org3", tmp_path / "copy"

    def take_turns(times: int) -> None:
        members = [start(base / name) for name in NAMES]
        for _ in range(times):
            for member in members:
                member.show_life()
                with suppress(LedgerMismatch):
                    member.exchange()
        for member in members:
            stop(member)

    take_turns(1)
    shutil.copy(database(other), copy)  # before it has sent a row
    assert check(base, capsys)[0] == 0
    take_turns(3)
    code, told = check(opener, capsys)
    assert (code, f"ok     org1: {VAULT} belongs to its database" in told) == (0, True)
    assert f"ok     org3: {VAULT} belongs to its database" in check(other, capsys)[1]
    with monkeypatch.context() as patch:
        patch.setenv("FEDFAIRX_VAULT", str(tmp_path))  # a setting of the service, where there is none
        assert check(opener, capsys)[0] == 1
    (opener / VAULT).unlink()
    for _ in range(2):  # also when it has started again
        for place in (opener, base):
            code, told = check(place, capsys)
            assert code == 1
            assert "the vault of 'org1' is missing or damaged" in told
        take_turns(1)
    put_back(other, copy)
    take_turns(2)
    code, told = check(other, capsys)
    assert code == 1
    assert f"WRONG  org3: {VAULT} belongs to its database" in told
    assert "one of them was restored from a backup" in told
    assert "can't continue under its name" in told
