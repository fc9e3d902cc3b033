"""A service from settings: its database, its keys and its agents."""

from __future__ import annotations

from fedfairx.errors import InvalidInput
from fedfairx.service.auth import Authenticator, is_loopback
from fedfairx.service.service import Service
from fedfairx.service.settings import Settings, make_data_folder, place_of
from fedfairx.storage.api_keys import ApiKeys
from fedfairx.storage.open_log import open_log


def open_service(settings: Settings) -> Service:
    """Open a service, ready for requests."""
    make_data_folder(settings)
    log = open_log(place_of(settings))
    try:
        auth = Authenticator(ApiKeys(log), loopback=is_loopback(settings.host))
        if auth.keys_needed and not auth.any_key:
            raise InvalidInput(
                f"host must be loopback while there is no key, got host={settings.host!r}; "
                "`fedfairx keys create --role writer` makes one"
            )
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
