"""A member's folder, as `fedfairx federate` makes it: settings, roster, keys and transport."""

from __future__ import annotations

import contextlib
import json
import os
import ssl
import tomllib
from collections.abc import Collection, Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedfairx.agent.agent import Agent
from fedfairx.agent.settings import read_value
from fedfairx.errors import InvalidInput, StateError, require
from fedfairx.federation.aggregation.records import FileStore
from fedfairx.federation.exchange.envelope import SignedCodec
from fedfairx.federation.exchange.member import Member
from fedfairx.federation.exchange.secure_member import SecureMember
from fedfairx.federation.roster.certificates import expires
from fedfairx.federation.roster.roster import Roster
from fedfairx.federation.roster.signing_keys import SigningKey, signed_by
from fedfairx.federation.transport import EngineTransport, SqliteTransport, Transport
from fedfairx.util.canonical_json import canonical
from fedfairx.util.files import write_atomically
from fedfairx.util.foreign_files import read_file

SETTINGS = "fedfairx.toml"
CONFIRMED = "confirmed.json"  # with secure aggregation: the members that the operator has confirmed
_CONFIRMED_LABEL = b"fedfairx confirmed members 1\n"
VAULT = "member.vault"  # with secure aggregation: what was sent last; keep it out of all backups
NOT_FLOWER = (
    "secure aggregation needs NATS or SQLite: an engine such as Flower carries only one message of each"
)
_TRANSPORTS = {
    "nats": """transport = "nats"
servers = [{address}]
authority = "authority.crt"
certificate = "tls.crt"
certificate_key = "tls.key"
""",
    "flower": """transport = "engine"  # a Flower SuperNode beside the agent carries its messages
superlink = {address}
authority = "authority.crt"
node_key = "node.key"
""",
    "sqlite": """transport = "sqlite"
path = "../transport.sqlite"
""",
}


def settings(roster: Roster, name: str, transport: str, address: str) -> str:
    """TOML settings of a member's service; with SQLite the transport is a file beside the folders."""
    return f"""# Settings of {name} in federation {roster.federation}; paths are relative to this folder.
# Dimension, merit, schedule and privacy are in the roster, which all members hold.
name = {json.dumps(name)}
data = "data"

[federation]
id = "{roster.federation}"
roster = "roster.json"
key = "agent.key"
{_TRANSPORTS[transport].format(address=json.dumps(address))}"""


@dataclass(frozen=True)
class _Confirmed:
    """The content of `CONFIRMED`."""

    federation: str
    members: dict[str, str]  # public keys, by name
    signature: str


@dataclass(frozen=True)
class MemberFolder:
    """A member's name, roster, key and transport, read from its folder."""

    folder: Path
    name: str
    roster: Roster
    table: Mapping[str, Any]  # [federation] of its settings
    vaults: str = ""  # the folder of its vault, if that is not beside its key

    @classmethod
    def read(cls, folder: str | os.PathLike[str], *, vaults: str = "") -> MemberFolder:
        """Read settings and roster, which must be of the federation that the settings name."""
        base = Path(folder)
        try:
            values = tomllib.loads(read_file(base / SETTINGS).decode())
            name, table = str(values["name"]), dict(values["federation"])
            roster, federation = base / str(table["roster"]), str(table["id"])
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError):
            raise StateError(f"{base / SETTINGS} must be TOML with a name and a [federation]") from None
        return cls(base, name, Roster.read(roster, federation=federation), table, vaults)

    def stamp(self, *entries: str) -> tuple[int, ...]:
        """A cheap value that changes whenever one of these files is rewritten."""
        marks: list[int] = []
        for entry in entries:
            with contextlib.suppress(OSError):  # it may be about to be replaced
                status = os.stat(self._file(entry))
                marks += status.st_mtime_ns, status.st_size, status.st_ino
        return tuple(marks)

    @property
    def certificates(self) -> tuple[str, ...]:
        """The entries of the settings that name certificates."""
        return tuple(entry for entry in ("certificate", "authority") if entry in self.table)

    def expiries(self) -> dict[str, float]:
        """When each certificate expires, in seconds since 1970, by its file; without unreadable ones."""
        times: dict[str, float] = {}
        for entry in self.certificates:
            with contextlib.suppress(OSError, StateError):
                times[str(self.table[entry])] = expires(self._file(entry)).timestamp()
        return times

    @property
    def hub(self) -> tuple[str, str]:
        """Transport and address of the hub, as `federate init` takes them; "" without a hub."""
        if self.table.get("superlink") is not None:
            return "flower", str(self.table["superlink"])
        if self.table.get("transport") == "nats":
            return "nats", self.servers[0]
        return "sqlite", ""

    def _entry(self, name: str) -> Any:
        if name not in self.table:
            raise StateError(f"{self.folder / SETTINGS} must have {name} in [federation]")
        return self.table[name]

    def _file(self, name: str) -> str:
        return str(self.folder / str(self._entry(name)))

    def seal(self) -> SignedCodec:
        """The codec of this member's envelopes."""
        return SignedCodec(self.roster, self.name, SigningKey.read(self._file("key")))

    def transport(self) -> Transport:
        """Open this member's transport."""
        kind = self._entry("transport")
        if kind == "sqlite":
            return SqliteTransport(self._file("path"))
        if kind == "engine":
            return EngineTransport()
        if kind != "nats":
            raise StateError(f"transport in [federation] must be nats, sqlite or engine, got {kind!r}")
        from fedfairx.federation.transport.nats import NatsTransport

        federation, rows = self.roster.federation, self.roster.terms.secure
        return NatsTransport(self.servers, federation=federation, agent=self.name, tls=self.tls, rows=rows)

    @property
    def servers(self) -> list[str]:
        """The addresses of the NATS servers."""
        return [str(server) for server in self._entry("servers")]

    def tls(self) -> ssl.SSLContext:
        """The TLS context of a connection to the NATS servers, from the certificates as they are now."""
        from fedfairx.federation.transport.nats import tls_context

        files = {"ca": "authority", "certificate": "certificate", "key": "certificate_key"}
        return tls_context(**{each: self._file(entry) for each, entry in files.items()})

    @property
    def carried(self) -> bool:
        """Whether an external engine carries messages, instead of a transport of ours."""
        return bool(self._entry("transport") == "engine")

    def confirmed(self) -> dict[str, str]:
        """The keys of the members that this member's operator has confirmed, by name.

        They stay confirmed in later rosters, as long as they have these keys there. The file is signed by the
        member's key, so that a convener can't hand it out with the folder.
        """
        path = self.folder / CONFIRMED
        try:
            stored = read_value(json.loads(read_file(path).decode()), _Confirmed, CONFIRMED)
            signature = bytes.fromhex(stored.signature)
        except FileNotFoundError:
            return {}
        except (OSError, ValueError, StateError):
            raise StateError(f"{path} is damaged: remove it, then `fedfairx federate confirm`") from None
        text = _CONFIRMED_LABEL + canonical([stored.federation, self.name, stored.members])
        if not signed_by(SigningKey.read(self._file("key")).public, text, signature):
            raise StateError(
                f"{path} must be signed by the key of {self.name!r}: remove it, then confirm members again"
            )
        return stored.members if stored.federation == self.roster.federation else {}

    def confirmed_here(self) -> list[str]:
        """The confirmed members that have the same key in this roster."""
        confirmed = self.confirmed()
        return [name for name, key in self.roster.members.items() if confirmed.get(name) == key]

    def unconfirmed(self) -> str:
        """What the operator has still to confirm; empty if nothing."""
        share, confirmed = self.roster.terms.share, {*self.confirmed_here(), self.name}
        if share is None:
            return ""
        openers = [name for name in self.roster.openers if name not in confirmed]
        least = share.honest + share.colluding
        if not openers and len(confirmed) >= least:
            return ""
        who = (
            f"all of {', '.join(self.roster.openers)}, which open totals, and at least {least} members in all"
        )
        got = ", ".join(sorted(confirmed))
        return f"the operator must confirm {who} (`fedfairx federate confirm`), got {got}"

    def confirm(self, names: Collection[str]) -> None:
        """Confirm members of this roster."""
        for name in names:
            text = f"must be one of the members {', '.join(self.roster.members)}"
            require(name in self.roster.members, "members", text, name)
        federation = self.roster.federation
        members = {**self.confirmed(), **{name: self.roster.members[name] for name in sorted(names)}}
        signed = _CONFIRMED_LABEL + canonical([federation, self.name, members])
        signature = SigningKey.read(self._file("key")).sign(signed).hex()
        content = {"federation": federation, "members": members, "signature": signature}
        write_atomically(self.folder / CONFIRMED, json.dumps(content, indent=1) + "\n")

    def member(self, agent: Agent) -> Member | SecureMember:
        """Connect an agent with the roster's terms (`roster.terms.agent`) and this member's name."""
        if agent.name != self.name:
            raise StateError(f"agent must have the member's name {self.name!r}, got {agent.name!r}")
        if not self.roster.terms.secure:
            return Member(agent, self.transport(), self.seal())
        if self.carried:
            raise StateError(NOT_FLOWER)
        seal, key, vault = self.seal(), SigningKey.read(self._file("key")), self._vault()
        try:
            return SecureMember(agent, self.transport(), seal, key, confirmed=self.confirmed, vault=vault)
        except BaseException:
            vault.close()
            raise

    def _vault(self) -> FileStore:
        try:
            self.vault.parent.mkdir(mode=0o700, parents=True, exist_ok=True)
            return FileStore(self.vault)
        except OSError as error:
            rule = f"must be a folder that this member can write to ({error.strerror})"
            raise InvalidInput(f"vault {rule}, got vault={str(self.vault.parent)!r}") from None

    @property
    def vault(self) -> Path:
        """Where the member's vault is."""
        if self.vaults:
            return Path(self.vaults) / f"{self.name}.vault"
        return Path(self._file("key")).with_name(VAULT)

    def update(self, member: Member | SecureMember) -> None:
        """Have a connected member follow this roster, which is later than its own."""
        if isinstance(member, SecureMember):
            member.follow(self.seal(), confirmed=self.confirmed)
        else:
            member.follow(self.seal())
