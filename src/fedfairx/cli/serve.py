"""`fedfairx serve`: one agent as a service."""

from __future__ import annotations

import argparse
from contextlib import suppress
from typing import Any

from fedfairx.cli.common import add_verb, as_merit


def add(verbs: Any) -> None:
    parser = add_verb(
        verbs,
        "serve",
        run,
        summary="serve decisions over HTTP, each on disk before it is acknowledged",
        details="Without a key it answers this machine alone. Every setting can also be given in the "
        "environment (--port as FEDFAIRX_PORT) or in a TOML file (port = 8000).",
        example="""
            fedfairx serve --data DIR --actions ann,ben,cid
            fedfairx serve --data DIR --dimension 5 --port 8000
            fedfairx serve --data DIR --features price=0:10,rating=1:5 --intercept true
            fedfairx serve --config service.toml""",
    )
    add_settings(parser)


def add_settings(parser: argparse.ArgumentParser) -> None:
    """A flag for each setting. The table needs none of the service's libraries."""
    from fedfairx.service.settings import table

    parser.add_argument("--config", metavar="FILE", help="a TOML file with any of these (default: none)")
    for one in table():
        default = f" (default: {one.shown or 'none'})"
        parser.add_argument(
            one.flag, metavar=one.metavar, dest=one.name, help=one.help.replace("%", "%%") + default
        )


def run(args: argparse.Namespace) -> int:
    from fedfairx.errors import needs
    from fedfairx.service.settings import load, table

    settings = load({one.name: getattr(args, one.name) for one in table()}, config=args.config)
    merit = as_merit(settings.merit) if settings.merit else None
    with needs("service"):
        from fedfairx.service.app import make_app
        from fedfairx.service.factory import open_service
        from fedfairx.service.server import serve
    with suppress(KeyboardInterrupt):  # which is how one stops it
        serve(make_app(open_service(settings, merit=merit)), settings)
    return 0
