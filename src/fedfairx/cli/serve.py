"""`fedfairx serve`: agents as a service."""

from __future__ import annotations

import argparse
from collections.abc import Mapping
from contextlib import suppress
from dataclasses import dataclass, field
from typing import Any, Self

from fedfairx.cli.common import Verb
from fedfairx.util.config import Scope


@dataclass(frozen=True, kw_only=True)
class Serve(Verb):
    """Serve decisions over HTTP. Each is on disk before it is acknowledged. Without an API key only requests
    from this machine are answered. Every setting can also be given in the environment (--port as
    FEDFAIRX_PORT) or in a TOML file (port = 8000). Without settings of an agent it serves the agents that it
    has, and requests can make others.

        fedfairx serve --data DIR
        fedfairx serve --data DIR --actions ann,ben,cid
        fedfairx serve --data DIR --dimension 5 --port 8000
        fedfairx serve --data DIR --features "price=0:10,city=Rome|Oslo" --shared city
        fedfairx serve --config service.toml
        fedfairx serve --database postgresql://user@host/name --wait

    config: a TOML file with any of these settings.
    """

    config: str | None = field(default=None, metadata={"metavar": "FILE"})
    settings: Mapping[str, Any] = field(default_factory=dict)  # flags of `service.settings`

    @classmethod
    def fill(cls, parser: argparse.ArgumentParser) -> None:
        from fedfairx.service.settings import table  # which needs none of the service's libraries

        super().fill(parser)
        groups = {scope: parser.add_argument_group(scope) for scope in Scope}
        for each in table():
            each.add_to(groups[each.scope])

    @classmethod
    def read(cls, args: argparse.Namespace) -> Self:
        from fedfairx.service.settings import table

        return cls(config=args.config, settings={each.name: each.given(args) for each in table()})

    def run(self) -> int:
        from fedfairx.errors import needs
        from fedfairx.service.settings import load

        settings = load(self.settings, config=self.config)
        with needs("service"):
            from fedfairx.service.logs import start_logging
            from fedfairx.service.server import require_port, serve
            from fedfairx.service.standby import open_when_free
        require_port(settings)  # before a data folder is made
        start_logging(settings)  # before anything is compiled, which is logged
        with suppress(KeyboardInterrupt):  # the usual way to stop it
            serve(open_when_free(settings))
        return 0
