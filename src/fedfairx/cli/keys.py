"""`fedfairx keys`: the API keys of a service."""

from __future__ import annotations

import shlex
from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Literal

from fedfairx.cli.common import Output
from fedfairx.util.formatting import text_table


@dataclass(frozen=True, kw_only=True)
class Keys(Output):
    """Create, list and revoke the API keys of a service. A reader sees what was possible, shown and answered,
    and nothing that comes from rewards; a writer may also decide and send rewards. An auditor sees everything
    and changes nothing; an admin may do everything. A federation key is for an engine beside the service and
    gives access to envelopes only. A key is shown once and stored as a hash. The command works whether or not
    the service is running; a running service notices within a second.

        fedfairx keys create --data DIR --role writer --name shop
        fedfairx keys create --data DIR --role reader --agents shop,news
        fedfairx keys list --data DIR
        fedfairx keys revoke --data DIR --id 1f0c2d3e4b5a

    what: what to do.
    role: role of the new key; required by create.
    name: who will use the new key, shown by list.
    agents: names of the agents that the new key is for, as shop,news, which must be there; * is all.
    key_file: a file with the new key, made elsewhere, such as the secret of a container; nothing changes if
        the service has this key already.
    id: id of the key to revoke, as shown by list.
    config: the service's TOML file.
    data: the service's data folder (default: fedfairx-data).
    database: the service's PostgreSQL database, instead of the data folder.
    """

    what: Literal["create", "list", "revoke"] = field(metadata={"positional": True, "metavar": "WHAT"})
    role: Literal["reader", "writer", "federation", "auditor", "admin"] | None = None
    name: str = ""
    agents: str = "*"
    key_file: str | None = field(default=None, metadata={"metavar": "FILE"})
    id: str | None = None
    config: str | None = field(default=None, metadata={"metavar": "FILE"})
    data: str | None = field(default=None, metadata={"metavar": "DIR"})
    database: str | None = field(default=None, metadata={"metavar": "URL"})

    def run(self) -> int:
        from pathlib import Path

        from fedfairx.errors import InvalidInput, require
        from fedfairx.service.settings import load, place_of
        from fedfairx.storage.api_keys import open_keys

        settings = load({"data": self.data, "database": self.database}, config=self.config)
        there, rule = settings.database or Path(settings.data).is_dir(), "must be the folder of a service"
        remedy = f"for a new one, make it first (mkdir -m 700 {shlex.quote(settings.data)})"
        require(bool(there), "data", rule, settings.data, remedy)
        if self.what == "create" and self.role is None:
            raise InvalidInput("--role must be given for a new key")
        if self.what == "revoke" and self.id is None:
            raise InvalidInput("--id must be given for revoking")
        agents = None if self.agents == "*" else [name.strip() for name in self.agents.split(",")]
        if agents is not None and not all(agents):
            raise InvalidInput(f"--agents must be names with commas between, or *, got {self.agents!r}")
        text = None
        if self.key_file is not None:
            try:
                text = Path(self.key_file).read_text(encoding="ascii").strip()
            except (OSError, UnicodeDecodeError):
                raise InvalidInput(f"--key-file must be a text file, got {self.key_file}") from None
        with open_keys(place_of(settings)) as keys:
            if self.role is not None and self.what == "create":
                new_key = keys.add(self.name, self.role, agents, text=text)
                if text is None:  # else the caller has it
                    identity = new_key.partition(".")[0]
                    self.answer({"id": identity, "key": new_key, "role": self.role}, new_key)
            elif self.id is not None and self.what == "revoke":
                keys.revoke(self.id)
            else:
                columns = ("id", "role", "name", "agents", "created", "revoked")
                rows = [
                    (
                        *(key.id, key.role, key.name),
                        "*" if key.agents is None else ", ".join(sorted(key.agents)),
                        *(_date(key.created), _date(key.revoked)),
                    )
                    for key in keys.all()
                ]
                self.answer([dict(zip(columns, row, strict=True)) for row in rows], text_table(columns, rows))
        return 0


def _date(seconds: float | None) -> str:
    return "" if seconds is None else datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
