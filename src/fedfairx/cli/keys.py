"""`fedfairx keys`: the API keys of a service."""

from __future__ import annotations

from dataclasses import dataclass, field
from datetime import UTC, datetime
from typing import Any, Literal

from fedfairx.cli.common import Output, add_verb, print_json, print_table


@dataclass(frozen=True, kw_only=True)
class Keys(Output):
    """Flags of `fedfairx keys`.

    what: what to do.
    role: role of the new key; create needs one.
    name: name of whoever will use the new key, for the list.
    id: id of the key to revoke, as the list shows it.
    config: the service's TOML file.
    data: the service's data folder (default: fedfairx-data).
    database: its PostgreSQL database, instead of the data folder.
    """

    what: Literal["create", "list", "revoke"] = field(metadata={"positional": True, "metavar": "WHAT"})
    role: Literal["reader", "writer", "federation", "admin"] | None = None
    name: str = ""
    id: str | None = None
    config: str | None = field(default=None, metadata={"metavar": "FILE"})
    data: str | None = field(default=None, metadata={"metavar": "DIR"})
    database: str | None = field(default=None, metadata={"metavar": "URL"})


def add(verbs: Any) -> None:
    add_verb(
        verbs,
        "keys",
        run,
        Keys,
        summary="Create, list and revoke the API keys of a service. A reader may look, a writer may also "
        "decide and reward, an admin may also export and see exact numbers. A federation key is for an "
        "engine beside the service, and opens nothing but envelopes. A key is shown once and kept as a hash. "
        "The command works whether or not the service is running; the service notices within two seconds.",
        example="""
            fedfairx keys create --data DIR --role writer --name shop
            fedfairx keys list --data DIR
            fedfairx keys revoke --data DIR --id 1f0c2d3e4b5a""",
    )


def run(args: Keys) -> int:
    from pathlib import Path

    from fedfairx.errors import InvalidInput
    from fedfairx.service.settings import load, place_of
    from fedfairx.storage.api_keys import open_keys

    settings = load({"data": args.data, "database": args.database}, config=args.config)
    if not settings.database:
        Path(settings.data).mkdir(mode=0o700, parents=True, exist_ok=True)
    if args.what == "create" and args.role is None:
        raise InvalidInput("--role must be given for a new key")
    if args.what == "revoke" and args.id is None:
        raise InvalidInput("--id must be given for revoking")
    with open_keys(place_of(settings)) as keys:
        if args.role is not None and args.what == "create":
            made = keys.add(args.name, args.role)
            if args.json:
                print_json({"key": made, "role": args.role})
            else:
                print(made)
        elif args.id is not None and args.what == "revoke":
            keys.revoke(args.id)
        else:
            found = [_row(key) for key in keys.all()]
            if args.json:
                print_json(found)
            else:
                columns = ("id", "role", "name", "created", "revoked")
                print_table(columns, [tuple(row.values()) for row in found])
    return 0


def _row(key: Any) -> dict[str, str]:
    return {
        "id": key.id,
        "role": key.role,
        "name": key.name,
        "created": _date(key.created),
        "revoked": "" if key.revoked is None else _date(key.revoked),
    }


def _date(seconds: float) -> str:
    return datetime.fromtimestamp(seconds, UTC).isoformat(timespec="seconds")
