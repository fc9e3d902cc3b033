"""`fedfairx serve`: one agent as a service."""

from __future__ import annotations

import argparse
from contextlib import suppress
from typing import Any

from fedfairx.cli.common import add_parser, as_merit


def add(verbs: Any) -> None:
    add_parser(
        verbs,
        "serve",
        run,
        _fill,
        summary="Serve decisions over HTTP, each on disk before it is acknowledged. Without a key it answers "
        "this machine alone. Every setting can also be given in the environment (--port as FEDFAIRX_PORT) or "
        "in a TOML file (port = 8000).",
        example="""
            fedfairx serve --data DIR --actions ann,ben,cid
            fedfairx serve --data DIR --dimension 5 --port 8000
            fedfairx serve --data DIR --features price=0:10,rating=1:5 --intercept yes
            fedfairx serve --config service.toml""",
    )


def _fill(parser: argparse.ArgumentParser) -> None:
    from fedfairx.service.settings import table  # which needs none of the service's libraries

    parser.add_argument("--config", metavar="FILE", help="a TOML file with any of these (default: none)")
    for each in table():
        each.add_to(parser)


def run(args: argparse.Namespace) -> int:
    from fedfairx.errors import needs
    from fedfairx.service.settings import load, table

    settings = load({each.name: each.given(args) for each in table()}, config=args.config)
    merit = as_merit(settings.merit) if settings.merit else None
    with needs("service"):
        from fedfairx.service.app import make_app
        from fedfairx.service.factory import open_service
        from fedfairx.service.server import serve
    with suppress(KeyboardInterrupt):  # the usual way to stop it
        serve(make_app(open_service(settings, merit=merit)), settings)
    return 0
