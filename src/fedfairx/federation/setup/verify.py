"""Check that the files of a federation are valid and consistent, and say what is wrong with them."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path
from typing import TypeVar

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from fedfairx.errors import FedFairXError, StateError
from fedfairx.federation.roster.certificates import Identity, certificate_problem, identity_of
from fedfairx.federation.roster.roster import Roster
from fedfairx.federation.roster.signing_keys import SigningKey
from fedfairx.federation.setup.create import hub_configuration
from fedfairx.federation.setup.member_folder import SETTINGS
from fedfairx.util.files import require_private

Made = TypeVar("Made")


@dataclass(frozen=True)
class Finding:
    """One check; `trouble` says what is wrong, "" if nothing is."""

    what: str
    trouble: str = ""

    @property
    def fine(self) -> bool:
        return not self.trouble


def inspect(folder: str | os.PathLike[str]) -> list[Finding]:
    """Check a federation's folder, or one member's."""
    base = Path(folder)
    if not (base / "roster.json").exists():
        return [Finding(f"{base}", "roster.json is missing: not the folder of a federation or a member")]
    found: list[Finding] = []
    roster = _look(found, "the roster is signed by its convener", lambda: Roster.read(base / "roster.json"))
    if roster is None:
        return found
    members = ", ".join(roster.members)
    found.append(Finding(f"federation {roster.federation}, roster version {roster.version}: {members}"))
    if (base / SETTINGS).exists():
        found += _agent(base, roster)
        return found
    found += _convener(base, roster)
    found += _hub(base, roster)
    for name in roster.members:
        if (base / name).is_dir():
            found += _agent(base / name, roster, name)
    strays = [path.parent.name for path in base.glob("*/agent.key") if path.parent.name not in roster.members]
    found += [Finding(f"{name}: has left the federation; its folder can be deleted") for name in strays]
    return found


def _look(found: list[Finding], what: str, work: Callable[[], Made]) -> Made | None:
    """Run `work` as a check: its result, or None if it raises."""
    try:
        made = work()
    except FileNotFoundError as error:
        found.append(Finding(what, f"{error.filename} is missing"))
    except (FedFairXError, OSError) as error:
        found.append(Finding(what, str(error)))
    else:
        found.append(Finding(what))
        return made
    return None


def _convener(base: Path, roster: Roster) -> Iterator[Finding]:
    folder = base / "convener"
    if not folder.exists():
        yield Finding("the convener's keys are not here, as is right once the files are handed out")
        return
    found: list[Finding] = []

    def matching() -> SigningKey:
        key = SigningKey.read(folder / "federation.key")
        if key.public != roster.convener:
            raise StateError(f"{folder / 'federation.key'} must be the key that signed the roster")
        return key

    _look(found, "convener: federation.key signs this federation's rosters", matching)
    if (folder / "authority.crt").exists():
        _look(
            found,
            "convener: authority.key matches its certificate",
            lambda: Identity.read(folder / "authority.crt", folder / "authority.key"),
        )
    yield from found


def _hub(base: Path, roster: Roster) -> Iterator[Finding]:
    folder = base / "hub"
    if not folder.exists():
        yield Finding("the hub's files are not here: handed out, or a federation without a hub")
        return
    yield _certificate(folder, "hub", "hub: its certificate is issued by the authority and valid")
    if (folder / "nodes").exists():
        yield _nodes(folder / "nodes", roster)
        return
    what = "hub: nats-server.conf admits the members and nobody else"
    try:
        text = (folder / "nats-server.conf").read_text(encoding="utf-8")
    except OSError as error:
        yield Finding(what, f"{error.filename} can't be read")
        return
    wanted, there = _users(hub_configuration(roster)), _users(text)
    open_door = "verify_and_map: true" not in text
    trouble = ""
    if open_door:
        trouble = "it must have verify_and_map: true, or it admits everybody"
    elif there != wanted:
        trouble = "its users or permissions differ from this roster's: generate it again"
    yield Finding(what, trouble)


def _nodes(folder: Path, roster: Roster) -> Finding:
    missing = sorted(set(roster.members) - {path.stem for path in folder.glob("*.pub")})
    trouble = f"{folder / missing[0]}.pub is missing" if missing else ""
    return Finding("hub: has the key of every member's SuperNode", trouble)


def _node_key(folder: Path) -> None:
    path = folder / "node.key"
    require_private(path)
    try:
        key = load_ssh_private_key(path.read_bytes(), password=None)
    except (ValueError, TypeError):
        raise StateError(f"{path} must hold an unencrypted private key in OpenSSH's format") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise StateError(f"{path} must hold an ECDSA key, got another kind")


def _users(configuration: str) -> list[str]:
    return [line.strip() for line in configuration.partition("authorization")[2].splitlines() if line.strip()]


def _agent(folder: Path, roster: Roster, name: str | None = None) -> Iterator[Finding]:
    found: list[Finding] = []
    try:
        values = tomllib.loads((folder / SETTINGS).read_text(encoding="utf-8"))
        named, table = str(values["name"]), dict(values["federation"])
        right = named == (name or named) and table["id"] == roster.federation
        trouble = "" if right else f"{SETTINGS} belongs to another member or another federation"
    except (OSError, ValueError, KeyError, TypeError):
        named, table, trouble = name or folder.name, {}, f"{SETTINGS} is missing or damaged"
    yield Finding(f"{named}: {SETTINGS} is its own", trouble)

    def own_roster() -> Roster:
        held = Roster.read(folder / "roster.json", federation=roster.federation)
        if held != roster:
            raise StateError(f"roster must be version {roster.version}, got version {held.version}")
        return held

    def own_key() -> SigningKey:
        key = SigningKey.read(folder / "agent.key")
        roster.require_key(named, key)
        return key

    _look(found, f"{named}: has the latest roster", own_roster)
    if name is None or (folder / "agent.key").exists():
        _look(found, f"{named}: agent.key matches the roster and is private", own_key)
    else:
        found.append(Finding(f"{named}: its key is not here: the member made it and keeps it"))
    if table.get("superlink") is not None:
        _look(found, f"{named}: node.key is a SuperNode's key and private", lambda: _node_key(folder))
    yield from found
    if table.get("transport") in ("sqlite", "engine"):
        return
    email = identity_of(named, roster.federation)
    yield _certificate(
        folder, "tls", f"{named}: its certificate is issued by the authority for it, and valid", email
    )


def _certificate(folder: Path, stem: str, what: str, email: str = "") -> Finding:
    from cryptography import x509

    try:
        identity = Identity.read(folder / f"{stem}.crt", folder / f"{stem}.key")
        authority = x509.load_pem_x509_certificate((folder / "authority.crt").read_bytes())
    except FileNotFoundError as error:
        return Finding(what, f"{error.filename} is missing")
    except (FedFairXError, OSError, ValueError) as error:
        return Finding(what, str(error))
    return Finding(what, certificate_problem(identity.certificate, authority, email=email))
