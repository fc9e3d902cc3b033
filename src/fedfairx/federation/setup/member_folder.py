"""An agent's folder in a federation, as `fedfairx federate` makes it: its settings, and what they lead to."""

from __future__ import annotations

import contextlib
import json
import os
import tomllib
from collections.abc import Mapping
from dataclasses import dataclass
from pathlib import Path
from typing import Any

from fedfairx.agent.agent import Agent
from fedfairx.errors import StateError
from fedfairx.federation.exchange.envelope import SignedCodec
from fedfairx.federation.exchange.member import Member
from fedfairx.federation.roster.roster import Roster
from fedfairx.federation.roster.signing_keys import SigningKey
from fedfairx.federation.transport import EngineTransport, SqliteTransport, Transport

SETTINGS = "fedfairx.toml"
_NATS = """transport = "nats"
servers = [{server}]
authority = "authority.crt"
certificate = "tls.crt"
certificate_key = "tls.key"
"""
_FLOWER = """transport = "engine"  # a Flower SuperNode beside the agent carries its messages
superlink = {superlink}
authority = "authority.crt"
node_key = "node.key"
"""
_SQLITE = """transport = "sqlite"
path = "../transport.sqlite"
"""


def settings(roster: Roster, name: str, *, server: str | None, superlink: str | None = None) -> str:
    """TOML for an agent's service; without a server the way is a file beside the agents' folders."""
    way = _SQLITE if server is None else _NATS.format(server=json.dumps(server))
    if superlink is not None:
        way = _FLOWER.format(superlink=json.dumps(superlink))
    return f"""# Settings of {name} in federation {roster.federation}; paths are relative to this folder.
# Dimension, merit, schedule and privacy are in the roster, which all members hold.
name = {json.dumps(name)}
data = "data"

[federation]
id = "{roster.federation}"
roster = "roster.json"
key = "agent.key"
{way}"""


@dataclass(frozen=True)
class MemberFolder:
    """Who an agent is in its federation, and the way to the others."""

    folder: Path
    name: str
    roster: Roster
    table: Mapping[str, Any]  # [federation] of its settings

    @classmethod
    def read(cls, folder: str | os.PathLike[str]) -> MemberFolder:
        """The folder's settings and roster, which must be of the federation that the settings name."""
        base = Path(folder)
        try:
            values = tomllib.loads((base / SETTINGS).read_text(encoding="utf-8"))
            name, table = str(values["name"]), dict(values["federation"])
            roster, federation = base / str(table["roster"]), str(table["id"])
        except (tomllib.TOMLDecodeError, UnicodeDecodeError, KeyError, TypeError, ValueError):
            raise StateError(f"{base / SETTINGS} must be TOML with a name and a [federation]") from None
        return cls(base, name, Roster.read(roster, federation=federation), table)

    def stamp(self) -> tuple[int, ...]:
        """Another one when the roster's file or the key's was written anew; to look is cheap."""
        marks: list[int] = []
        for entry in ("roster", "key"):
            with contextlib.suppress(OSError):  # on its way, perhaps
                found = os.stat(self._file(entry))
                marks += found.st_mtime_ns, found.st_size, found.st_ino
        return tuple(marks)

    @property
    def server(self) -> str | None:
        """The first server of its hub; None where the way is a file."""
        return str(self._entry("servers")[0]) if self.table.get("transport") == "nats" else None

    @property
    def superlink(self) -> str | None:
        """Where its SuperNode finds the SuperLink; None where the way is another than Flower."""
        return None if self.table.get("superlink") is None else str(self.table["superlink"])

    def _entry(self, name: str) -> Any:
        if name not in self.table:
            raise StateError(f"{self.folder / SETTINGS} must have {name} in [federation]")
        return self.table[name]

    def _file(self, name: str) -> str:
        return str(self.folder / str(self._entry(name)))

    def seal(self) -> SignedCodec:
        """Its envelopes, by its roster and its own key."""
        return SignedCodec(self.roster, self.name, SigningKey.read(self._file("key")))

    def transport(self) -> Transport:
        """Its end of the way to the others."""
        kind = self._entry("transport")
        if kind == "sqlite":
            return SqliteTransport(self._file("path"))
        if kind == "engine":
            return EngineTransport()
        if kind != "nats":
            raise StateError(f"transport in [federation] must be nats, sqlite or engine, got {kind!r}")
        from fedfairx.federation.transport.nats import NatsTransport, tls_context

        files = {"ca": "authority", "certificate": "certificate", "key": "certificate_key"}
        return NatsTransport(
            self._entry("servers"),
            federation=self.roster.federation,
            agent=self.name,
            tls=tls_context(**{each: self._file(entry) for each, entry in files.items()}),
        )

    @property
    def carried(self) -> bool:
        """Whether an engine beside the agent carries messages, instead of a transport of its own."""
        return bool(self._entry("transport") == "engine")

    def member(self, agent: Agent) -> Member:
        """This agent's place taken: an agent of the roster's terms (`roster.terms.agent`), under its name."""
        if agent.name != self.name:
            raise StateError(f"this is the place of {self.name!r}, and the agent is called {agent.name!r}")
        return Member(agent, self.transport(), self.seal())
