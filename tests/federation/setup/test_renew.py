"""Certificates are renewed for the keys that they have."""

from __future__ import annotations

from datetime import UTC, datetime, timedelta
from pathlib import Path

import pytest
from cryptography import x509

from fedfairx.cli.main import main
from fedfairx.errors import InvalidInput, StateError
from fedfairx.federation.roster.certificates import check_certificate, new_authority, read_certificate
from fedfairx.federation.setup.create import create_federation
from fedfairx.federation.setup.member_folder import MemberFolder
from fedfairx.federation.setup.renew import renew_certificates
from fedfairx.federation.setup.verify import inspect
from member_helpers import terms

NAMES = ("org1", "org2")


@pytest.fixture
def base(tmp_path: Path) -> Path:
    """A federation whose certificates expire in ten days."""
    create_federation(tmp_path / "federation", terms(), dict.fromkeys(NAMES), days=10)
    return tmp_path / "federation"


def days_left(path: Path) -> float:
    return (read_certificate(path).not_valid_after_utc - datetime.now(UTC)) / timedelta(days=1)


def wrong(folder: Path) -> list[str]:
    return [each.trouble for each in inspect(folder) if not each.fine]


def test_all_are_renewed_and_nothing_else_changes(base: Path) -> None:
    before = {path: path.read_bytes() for path in base.rglob("*") if path.is_file()}
    soon = wrong(base)
    assert len(soon) == 4  # the hub, its operator and two members
    assert all("it expires in 9 days" in each and "`fedfairx federate renew`" in each for each in soon)
    written = renew_certificates(base, days=400)
    assert {owner: sorted(path.name for path in files) for owner, files in written.items()} == {
        "convener": ["authority.crt"],
        "hub": ["authority.crt", "hub.crt", "tls.crt"],
        "org1": ["authority.crt", "tls.crt"],
        "org2": ["authority.crt", "tls.crt"],
    }
    changed = {path for path, content in before.items() if path.read_bytes() != content}
    assert changed == {path for files in written.values() for path in files}
    assert wrong(base) == []
    for file in ("hub/hub.crt", "hub/tls.crt", "org1/tls.crt"):
        assert 399 < days_left(base / file) < 401
        old, new = x509.load_pem_x509_certificate(before[base / file]), read_certificate(base / file)
        assert (old.public_key(), old.subject) == (new.public_key(), new.subject)
        assert list(old.extensions) == list(new.extensions)
        assert old.serial_number != new.serial_number
    assert 799 < days_left(base / "convener/authority.crt") < 801
    MemberFolder.read(base / "org1").tls()  # key and certificate go together


def test_an_authority_that_lasts_longer_stays(tmp_path: Path) -> None:
    base = tmp_path / "federation"
    create_federation(base, terms(), dict.fromkeys(NAMES), days=10)
    assert renew_certificates(base, only=["org2"], days=15) == {"org2": [base / "org2" / "tls.crt"]}
    assert 14 < days_left(base / "org2/tls.crt") < 16
    assert 9 < days_left(base / "org1/tls.crt") < 11


def test_what_the_authority_issued_before_it_was_renewed_stays_valid(base: Path) -> None:
    """A member that has the old authority's certificate meets one with the new, and the other way round."""
    old, older = (read_certificate(base / "org2" / name) for name in ("tls.crt", "authority.crt"))
    renew_certificates(base, days=400)
    new, newer = (read_certificate(base / "org2" / name) for name in ("tls.crt", "authority.crt"))
    assert newer.not_valid_after_utc > older.not_valid_after_utc
    check_certificate(old, newer)
    check_certificate(new, older)


def test_only_what_this_authority_issued_to_its_owner_is_renewed(base: Path) -> None:
    before = (base / "org1" / "tls.crt").read_bytes()
    (base / "org1" / "tls.crt").write_bytes((base / "org2" / "tls.crt").read_bytes())
    with pytest.raises(StateError, match=r"org1/tls.crt can't be renewed: it must be for org1@"):
        renew_certificates(base)
    (base / "org1" / "tls.crt").unlink()
    with pytest.raises(StateError, match=r"org1/tls.crt is missing: ask for it, it holds no secret"):
        renew_certificates(base)
    (base / "org1" / "tls.crt").write_bytes(before)
    for file in ("authority.crt", "authority.key"):
        (base / "convener" / file).unlink()
    new_authority("other", days=900).write(base / "convener/authority.crt", base / "convener/authority.key")
    with pytest.raises(StateError, match="was not issued by this authority"):
        renew_certificates(base)
    with pytest.raises(InvalidInput, match=r"only must be of hub, org1, org2, got only='org9'"):
        renew_certificates(base, only=["org9"])


def test_other_transports(tmp_path: Path) -> None:
    create_federation(tmp_path / "flower", terms(), dict.fromkeys(NAMES), transport="flower", days=10)
    written = renew_certificates(tmp_path / "flower", only=["hub"], days=15)
    assert written == {"hub": [tmp_path / "flower" / "hub" / "hub.crt"]}
    create_federation(tmp_path / "sqlite", terms(), dict.fromkeys(NAMES), transport="sqlite")
    with pytest.raises(InvalidInput, match="it has no certificates"):
        renew_certificates(tmp_path / "sqlite")


def test_on_the_command_line(base: Path, capsys: pytest.CaptureFixture[str]) -> None:
    assert main(["federate", "check", str(base)]) == 1
    assert main(["federate", "renew", str(base)]) == 0
    out = capsys.readouterr().out
    assert f"{base}/org1/tls.crt: for org1" in out
    assert "for hub, then: nats-server --signal reload" in out
    assert main(["federate", "check", str(base)]) == 0
    assert main(["federate", "renew", str(base), "--days", "0"]) == 2


def test_a_folder_without_a_roster_is_named(base: Path) -> None:
    (base / "roster.json").unlink()
    with pytest.raises(InvalidInput, match=f"`federate init` made, with roster.json, got {base}"):
        renew_certificates(base)
