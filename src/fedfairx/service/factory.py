"""A service from settings: its database, its keys and its agents."""

from __future__ import annotations

from fedfairx.errors import require
from fedfairx.service.auth import Authenticator, is_loopback
from fedfairx.service.service import Service
from fedfairx.service.settings import Settings, key_command, make_data_folder, place_of
from fedfairx.storage.api_keys import ApiKeys
from fedfairx.storage.open_log import open_log


def open_service(settings: Settings) -> Service:
    """Open a service, ready for requests."""
    make_data_folder(settings)
    log = open_log(place_of(settings))
    try:
        auth = Authenticator(ApiKeys(log))
        if not auth.any_key:
            _require_local(settings)
        service = Service(settings, log, auth)
        try:
            service.agents.start()
        except BaseException:
            service.agents.close()
            raise
    except BaseException:
        log.close()
        raise
    return service


def _require_local(settings: Settings) -> None:
    """Refuse settings by which others than this machine can reach a service that has no key."""
    key = f"`{key_command(settings)}` makes one"
    rule = "must be loopback while there is no key"
    require(is_loopback(settings.host), "host", rule, settings.host, key)
    for name in ("trusted_proxies", "root_path", "tls_certificate"):
        value = getattr(settings, name)
        require(not value, name, "must be left out while there is no key", value, key)
