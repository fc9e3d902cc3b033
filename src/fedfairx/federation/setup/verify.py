"""Check that the files of a federation are valid and consistent, and say what is wrong with them."""

from __future__ import annotations

import os
import tomllib
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from datetime import UTC, datetime, timedelta
from pathlib import Path

from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.hazmat.primitives.serialization import load_ssh_private_key

from fedfairx.errors import FedFairXError, StateError
from fedfairx.federation.aggregation.machine import no_key, vault_trouble
from fedfairx.federation.aggregation.records import MemoryStore, record_in, vault_in
from fedfairx.federation.exchange.secure_member import record_store
from fedfairx.federation.roster.certificates import (
    WARNED,
    Identity,
    check_certificate,
    identity_of,
    read_certificate,
)
from fedfairx.federation.roster.roster import Roster
from fedfairx.federation.roster.signing_keys import SigningKey
from fedfairx.federation.setup.create import CONFIGURATION, MEMBERS, hub_members
from fedfairx.federation.setup.member_folder import SETTINGS, MemberFolder
from fedfairx.federation.transport.nats_subjects import HUB
from fedfairx.storage.open_log import open_for_reading
from fedfairx.storage.seen import halted_in
from fedfairx.storage.transaction_log import Log
from fedfairx.util.files import require_private
from fedfairx.util.foreign_files import read_file

REPLICAS = 3  # servers that keep the bucket, where so many are named


@dataclass(frozen=True)
class Finding:
    """One check; `trouble` says what is wrong, "" if nothing is."""

    what: str
    trouble: str = ""

    @property
    def fine(self) -> bool:
        return not self.trouble


#: Where the agent of the member with this folder is stored, and the folder of its vault, if it is another.
Places = Callable[[Path], tuple[str, str]]


def inspect(folder: str | os.PathLike[str], *, places: Places | None = None) -> list[Finding]:
    """Check a federation's folder, or one member's; with `places`, also what members have stored."""
    base = Path(folder)
    if not (base / "roster.json").exists():
        return [Finding(f"{base}", "roster.json is missing: not the folder of a federation or a member")]
    signed = _finding("the roster is signed by its convener", lambda: Roster.read(base / "roster.json"))
    if not signed.fine:
        return [signed]
    roster = Roster.read(base / "roster.json")
    members = ", ".join(roster.members)
    findings = [
        signed,
        Finding(f"federation {roster.federation}, roster version {roster.version}: {members}"),
    ]
    if (base / CONFIGURATION).exists():
        return [*findings, *_hub(base, roster), *_bucket(base)]
    if (base / SETTINGS).exists():
        return [*findings, *_agent(base, roster), *_stored(base, places), *_bucket(base)]
    findings += [*_convener(base / "convener", roster), *_hub(base / "hub", roster)]
    for name in roster.members:
        if (base / name).is_dir():
            findings += [*_agent(base / name, roster, name), *_stored(base / name, places)]
    strays = [path.parent.name for path in base.glob("*/agent.key") if path.parent.name not in roster.members]
    return findings + [
        Finding(f"{name}: has left the federation; its folder can be deleted") for name in strays
    ]


def _finding(what: str, check: Callable[[], object]) -> Finding:
    """The finding of a check that raises an error if something is wrong."""
    try:
        check()
    except FileNotFoundError as error:
        return Finding(what, f"{error.filename} is missing")
    except (FedFairXError, OSError, ValueError) as error:
        return Finding(what, str(error))
    return Finding(what)


def _convener(folder: Path, roster: Roster) -> Iterator[Finding]:
    if not folder.exists():
        yield Finding("the convener's keys are not here, as is right once the files are handed out")
        return

    def key() -> None:
        if SigningKey.read(folder / "federation.key").public != roster.convener:
            raise StateError(f"{folder / 'federation.key'} must be the key that signed the roster")

    yield _finding("convener: federation.key signs this federation's rosters", key)
    if (folder / "authority.crt").exists():
        pair = folder / "authority.crt", folder / "authority.key"
        yield _finding("convener: authority.key matches its certificate", lambda: Identity.read(*pair))


def _hub(folder: Path, roster: Roster) -> Iterator[Finding]:
    def nodes() -> None:
        missing = sorted(set(roster.members) - {path.stem for path in (folder / "nodes").glob("*.pub")})
        if missing:
            raise StateError(f"{folder / 'nodes' / missing[0]}.pub is missing")

    def configuration() -> None:
        lines = _lines(read_file(folder / CONFIGURATION).decode())
        text = "\n".join(lines)
        if "verify_and_map: true" not in text:
            raise StateError("it must have verify_and_map: true, or it admits everybody")
        if f'include "{MEMBERS}"' not in text:
            raise StateError(f'it must have include "{MEMBERS}", which says who is admitted')
        if any(line.startswith("authorization") for line in _outermost(lines)):
            raise StateError(f"it must have no authorization of its own beside that of {MEMBERS}")
        if _lines(read_file(folder / MEMBERS).decode()) != _lines(hub_members(roster)):
            raise StateError(f"{MEMBERS} must be that of roster version {roster.version}: ask the convener")

    if not any((folder / name).exists() for name in ("hub.crt", CONFIGURATION)):
        yield Finding("the hub's files are not here: handed out, or a federation without a hub")
        return
    what = "hub: its certificate is issued by the authority and valid"
    yield _finding(what, lambda: _certificate(folder, "hub"))
    if (folder / "tls.crt").exists():
        email = identity_of(HUB, roster.federation)
        what = "hub: its operator's certificate is issued by the authority and valid"
        yield _finding(what, lambda: _certificate(folder, "tls", email))
    if (folder / "nodes").exists():
        yield _finding("hub: has the key of every member's SuperNode", nodes)
    else:
        yield _finding(f"hub: {CONFIGURATION} admits the members and nobody else", configuration)


def _bucket(folder: Path) -> Iterator[Finding]:
    """Ask the hub for its bucket, as the member or the operator whose folder this is."""

    def ask() -> None:
        from fedfairx.federation.transport.nats import check_bucket

        servers = place.servers
        check_bucket(
            servers,
            federation=place.roster.federation,
            agent=place.name,
            tls=place.tls,
            replicas=min(len(servers), REPLICAS),
            rows=place.roster.terms.secure,
        )

    try:
        place = MemberFolder.read(folder)
    except (FedFairXError, OSError):
        return  # said already
    if place.hub[0] == "nats":
        yield _finding(f"{place.name}: the hub answers, and its bucket loses no messages", ask)


def _lines(configuration: str) -> list[str]:
    """The lines of a configuration, without comments."""
    lines = (line.partition("#")[0].strip() for line in configuration.splitlines())
    return [line for line in lines if line]


def _outermost(lines: list[str]) -> Iterator[str]:
    """The lines of a configuration that are in no block: that of a cluster may have an authorization."""
    depth = 0
    for line in lines:
        if depth == 0:
            yield line
        depth += line.count("{") - line.count("}")


def _agent(folder: Path, roster: Roster, name: str | None = None) -> Iterator[Finding]:
    try:
        values = tomllib.loads(read_file(folder / SETTINGS).decode())
        named, table = str(values["name"]), dict(values["federation"])
        right = named == (name or named) and table["id"] == roster.federation
        trouble = "" if right else f"{SETTINGS} belongs to another member or another federation"
    except (OSError, ValueError, KeyError, TypeError):
        named, table, trouble = name or folder.name, {}, f"{SETTINGS} is missing or damaged"
    yield Finding(f"{named}: {SETTINGS} is its own", trouble)

    def latest() -> None:
        own = Roster.read(folder / "roster.json", federation=roster.federation)
        if own != roster:
            raise StateError(f"roster must be version {roster.version}, got version {own.version}")

    yield _finding(f"{named}: has the latest roster", latest)
    if name is None or (folder / "agent.key").exists():
        yield _finding(
            f"{named}: agent.key matches the roster and is private",
            lambda: roster.require_key(named, SigningKey.read(folder / "agent.key")),
        )
    else:
        yield Finding(f"{named}: its key is not here: the member made it and keeps it")
    if roster.terms.secure:
        what = f"{named}: its operator has confirmed as many members as secure aggregation needs"
        yield _finding(what, lambda: _confirmed(folder))
    if table.get("superlink") is not None:
        yield _finding(f"{named}: node.key is a SuperNode's key and private", lambda: _node_key(folder))
    if table.get("transport") not in ("sqlite", "engine"):
        email = identity_of(named, roster.federation)
        what = f"{named}: its certificate is issued by the authority for it, and valid"
        yield _finding(what, lambda: _certificate(folder, "tls", email))


def _stored(folder: Path, places: Places | None) -> Iterator[Finding]:
    """Whether a member that has run can still send, and its vault belongs to what it has stored."""
    if places is None:
        return
    try:
        MemberFolder.read(folder)
    except (FedFairXError, OSError):
        return  # said already
    settings = _finding(f"{folder.name}: a service would take its settings", lambda: places(folder))
    if not settings.fine:
        yield settings
        return
    place, vaults = places(folder)
    member = MemberFolder.read(folder, vaults=vaults)
    if "://" not in place and not Path(place).exists():
        return
    name, roster = member.name, member.roster

    def halted() -> None:
        with open_for_reading(place) as opened:
            why = halted_in(opened, name, roster.federation)
            record = record_in(record_store(Log(opened), name, roster.federation))
        if why or record.halted:
            raise StateError(why or record.halted)

    def vault() -> None:
        with open_for_reading(place) as opened:
            record = record_in(record_store(Log(opened), name, roster.federation))
        if member.vault.exists():
            require_private(member.vault)
        content = member.vault.read_bytes() if member.vault.exists() else None
        vault = vault_in(MemoryStore(content))
        why = vault_trouble(roster.federation, name, record, vault)
        part = record.part
        if not why and part is not None and name in part.epoch.openers:
            lost = vault is None or part.epoch.number not in vault.secrets
            why = no_key(name, part.epoch.number) if lost else ""
        if why:
            raise StateError(why)

    yield _finding(f"{name}: sending is not halted", halted)
    if roster.terms.secure:
        yield _finding(f"{name}: {member.vault.name} belongs to its database", vault)


def _confirmed(folder: Path) -> None:
    lacking = MemberFolder.read(folder).unconfirmed()
    if lacking:
        raise StateError(lacking)


def _node_key(folder: Path) -> None:
    path = folder / "node.key"
    require_private(path)
    try:
        key = load_ssh_private_key(read_file(path), password=None)
    except (ValueError, TypeError):
        raise StateError(f"{path} must hold an unencrypted private key in OpenSSH's format") from None
    if not isinstance(key, ec.EllipticCurvePrivateKey):
        raise StateError(f"{path} must hold an ECDSA key, got another kind")


def _certificate(folder: Path, stem: str, email: str = "") -> None:
    identity = Identity.read(folder / f"{stem}.crt", folder / f"{stem}.key")
    authority = read_certificate(folder / "authority.crt")
    check_certificate(identity.certificate, authority, email=email)
    for each, whose in ((identity.certificate, "it"), (authority, "the authority's certificate")):
        left = each.not_valid_after_utc - datetime.now(UTC)
        if left < timedelta(days=WARNED):
            raise StateError(
                f"{whose} expires in {left.days} days, on {each.not_valid_after_utc:%Y-%m-%d}: "
                "`fedfairx federate renew`, run by the convener, renews it"
            )
