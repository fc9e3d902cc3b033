"""The JetStream buckets of a federation: their settings, and how the hub's operator makes them.

There is one, and with secure aggregation a second for rows, with the same settings. Unlike nats-py's own
buckets it allows no roll-ups, no purge and no deletion, so that a member, who may write
its own keys, can't remove another's. The server republishes stored messages under subjects that no member may
write to. Members can't create a bucket, or the first of them would choose its settings.
"""

from __future__ import annotations

import asyncio
import contextlib
from collections.abc import Awaitable, Callable, Sequence
from typing import Any, TypeVar

from fedfairx.errors import TransportRefused, TransportUnavailable, needs
from fedfairx.federation.transport.nats.tls import Tls, new_client
from fedfairx.federation.transport.nats_subjects import HUB, inbox_of, news_of, stream_of_bucket, subjects_of
from fedfairx.federation.transport.protocol import LARGEST

with needs("nats"):
    from nats.errors import Error as NatsError
    from nats.js import api
    from nats.js.errors import APIError, NotFoundError

Answer = TypeVar("Answer")
MAKE = "`fedfairx federate bucket`, run by the hub's operator, makes and repairs it"


def new_bucket(federation: str, *, replicas: int, rows: bool = False) -> api.StreamConfig:
    """Settings of a bucket."""
    subjects = subjects_of(federation, rows=rows)
    return api.StreamConfig(
        name=stream_of_bucket(federation, rows=rows),
        subjects=[subjects],
        max_msgs_per_subject=1,
        max_msg_size=LARGEST,
        max_age=0,
        max_bytes=-1,
        max_msgs=-1,
        storage=api.StorageType.FILE,
        num_replicas=replicas,
        discard=api.DiscardPolicy.NEW,
        deny_delete=True,
        deny_purge=True,
        allow_rollup_hdrs=False,
        republish=api.RePublish(src=subjects, dest=news_of(federation, ">", rows=rows)),
    )


def flaws(config: api.StreamConfig, federation: str, *, replicas: int = 1, rows: bool = False) -> list[str]:
    """The settings by which a bucket could lose messages or tell nobody of them; at least `replicas`."""
    wanted = new_bucket(federation, replicas=replicas, rows=rows)
    republishes = config.republish is not None and config.republish.dest == news_of(
        federation, ">", rows=rows
    )
    rules = {
        "subjects": (config.subjects, wanted.subjects),
        "history": (config.max_msgs_per_subject, 1),
        "max_age": (config.max_age or 0, 0),
        "max_bytes": (_limit(config.max_bytes), -1),
        "max_msgs": (_limit(config.max_msgs), -1),
        "max_msg_size": (min(_limit(config.max_msg_size) % 2**31, LARGEST), LARGEST),
        "storage": (_word(config.storage), "file"),
        "discard": (_word(config.discard), "new"),
        "deny_delete": (bool(config.deny_delete), True),
        "deny_purge": (bool(config.deny_purge), True),
        "allow_rollup_hdrs": (bool(config.allow_rollup_hdrs), False),
        "republish": (republishes, True),
        "replicas": (min(config.num_replicas or 1, replicas), replicas),
    }
    return [f"{name} must be {rule}, got {got}" for name, (got, rule) in rules.items() if got != rule]


def _limit(number: int | None) -> int:
    return number or -1


def _word(value: Any) -> str:
    return str(getattr(value, "value", value))


def require_sound(
    config: api.StreamConfig, federation: str, *, replicas: int = 1, rows: bool = False
) -> None:
    """Refuse a bucket that could lose messages or does not republish them."""
    reasons = flaws(config, federation, replicas=replicas, rows=rows)
    if reasons:
        raise TransportRefused(
            f"the hub's bucket {config.name} could lose messages: {'; '.join(reasons)}; {MAKE}"
        )


def no_bucket(federation: str, *, rows: bool = False) -> TransportRefused:
    """The error of a hub without a bucket."""
    return TransportRefused(f"the hub has no bucket {stream_of_bucket(federation, rows=rows)}; {MAKE}")


def reason_of(error: Exception) -> str:
    """Why a connection failed, in words."""
    if isinstance(error, TimeoutError | ConnectionAbortedError):  # or it does not even end a connection
        return "it does not answer"
    text = str(error) or type(error).__name__
    if "authorization violation" in text.lower():
        text += ": this member may have been removed from the federation; ask the convener"
    return text


# --- one request to the hub, of its operator or of `federate check` ----------------------------------------


def make_bucket(
    servers: str | Sequence[str],
    *,
    federation: str,
    tls: Tls | None = None,
    replicas: int = 1,
    rows: bool = False,
    deadline: float = 5.0,
) -> bool:
    """Create the bucket as the hub's operator, or change its settings; False if they were right.

    rows: whether there is one for rows, too, as secure aggregation needs.
    """

    async def make_one(js: Any, of_rows: bool) -> bool:
        wanted = new_bucket(federation, replicas=replicas, rows=of_rows)
        try:
            config = (await js.stream_info(wanted.name)).config
        except NotFoundError:
            await js.add_stream(wanted)
            return True
        if not flaws(config, federation, rows=of_rows) and config.num_replicas == replicas:
            return False
        await js.update_stream(wanted)
        return True

    async def make(js: Any) -> bool:
        return any([await make_one(js, of_rows) for of_rows in _kinds(rows)])

    return _ask(servers, HUB, make, tls=tls, deadline=deadline)


def check_bucket(
    servers: str | Sequence[str],
    *,
    federation: str,
    agent: str,
    tls: Tls | None = None,
    replicas: int = 1,
    rows: bool = False,
    deadline: float = 5.0,
) -> None:
    """Raise unless the hub can be reached as `agent` and has buckets with the right settings."""

    async def check(js: Any) -> None:
        for of_rows in _kinds(rows):
            try:
                info = await js.stream_info(stream_of_bucket(federation, rows=of_rows))
            except NotFoundError:
                raise no_bucket(federation, rows=of_rows) from None
            require_sound(info.config, federation, replicas=replicas, rows=of_rows)

    _ask(servers, agent, check, tls=tls, deadline=deadline)


def _kinds(rows: bool) -> tuple[bool, ...]:
    return (False, True) if rows else (False,)


def _ask(
    servers: str | Sequence[str],
    agent: str,
    work: Callable[[Any], Awaitable[Answer]],
    *,
    tls: Tls | None,
    deadline: float,
) -> Answer:
    """Connect, do `work` with the server's JetStream, and disconnect."""
    reasons: list[str] = []

    async def failed(error: Exception) -> None:
        reasons.append(reason_of(error))

    async def ask() -> Answer:
        client = new_client(tls)
        try:
            async with asyncio.timeout(deadline):
                await client.connect(
                    [servers] if isinstance(servers, str) else list(servers),
                    name=f"fedfairx {agent}",
                    tls=None if tls is None else tls(),
                    inbox_prefix=inbox_of(agent),
                    connect_timeout=max(1, int(deadline)),
                    allow_reconnect=False,
                    max_reconnect_attempts=1,
                    reconnect_time_wait=0,
                    error_cb=failed,
                )
                return await work(client.jetstream(timeout=deadline))
        finally:
            with contextlib.suppress(Exception):  # nats-py fails if it never began to connect
                await client.close()

    try:
        return asyncio.run(ask())
    except APIError as error:
        raise TransportRefused(f"the hub refuses this: {error.description}") from error
    except (NatsError, OSError, TimeoutError) as error:
        text = (reasons or [str(error) or "no answer in time"])[0]
        if "permissions violation" in text.lower():
            raise TransportRefused(f"the hub denies {agent!r} permission: {text}") from error
        raise TransportUnavailable(f"the hub can't be reached now: {text}") from error
