"""`fedfairx keys`: who may ask a service, and for what."""

from __future__ import annotations

import argparse
from datetime import UTC, datetime
from typing import Any

from fedfairx.cli.common import add_json, add_verb, print_json, print_table

WHAT = ("create", "list", "revoke")
ROLES = ("reader", "writer", "federation", "admin")


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "keys",
        run,
        summary="create, list and revoke the API keys of a service",
        details="A reader may look, a writer also decide and reward, an admin also export and see exact "
        "numbers. A federation key is for an engine beside the service, and opens nothing but envelopes. A "
        "key is shown once and kept as a hash. It works whether or not the service is running, which notices "
        "within two seconds.",
        example="""
            fedfairx keys create --data DIR --role writer --name shop
            fedfairx keys list --data DIR
            fedfairx keys revoke --data DIR --id 1f0c2d3e4b5a""",
    )
    parser.add_argument("what", choices=WHAT, help="what to do")
    parser.add_argument("--role", choices=ROLES, help="of the new key (default: none; create needs one)")
    parser.add_argument(
        "--name", default="", help="of whoever will use the new key, for the list (default: none)"
    )
    parser.add_argument("--id", help="of the key to revoke, as the list has it (default: none)")
    parser.add_argument("--config", metavar="FILE", help="the service's TOML file (default: none)")
    parser.add_argument("--data", metavar="DIR", help="the service's data folder (default: fedfairx-data)")
    parser.add_argument(
        "--database", metavar="URL", help="its PostgreSQL database, instead of that (default: none)"
    )
    add_json(parser)


def run(args: argparse.Namespace) -> int:
    from pathlib import Path

    from fedfairx.errors import require
    from fedfairx.service.settings import load, place_of
    from fedfairx.storage.api_keys import open_keys

    settings = load({"data": args.data, "database": args.database}, config=args.config)
    if not settings.database:
        Path(settings.data).mkdir(mode=0o700, parents=True, exist_ok=True)
    require(
        args.what != "create" or args.role is not None, "--role", "must be given for a new key", args.role
    )
    require(args.what != "revoke" or args.id is not None, "--id", "must be given for revoking", args.id)
    with open_keys(place_of(settings)) as keys:
        if args.what == "create":
            made = keys.add(args.name, args.role)
            if args.json:
                print_json({"key": made, "role": args.role})
            else:
                print(made)
        elif args.what == "revoke":
            keys.revoke(args.id)
        elif args.json:
            print_json([_row(key) for key in keys.all()])
        else:
            found = [_row(key) for key in keys.all()]
            print_table(("id", "role", "name", "created", "revoked"), [tuple(row.values()) for row in found])
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
