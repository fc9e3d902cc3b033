"""Logging, as text or as JSON, with the id of the request that a line is about."""

from __future__ import annotations

import json
import logging
import random
import re
import sys
import time
import warnings
from collections.abc import Callable, Iterable, MutableMapping
from contextvars import ContextVar
from datetime import UTC, datetime
from typing import Any

from fedfairx.errors import ScaleWarning
from fedfairx.service.settings import Settings

#: The id of the request that is being answered; empty outside of requests.
REQUEST_ID: ContextVar[str] = ContextVar("request_id", default="")
HEADER = b"x-request-id"
_SANE = re.compile(rb"[A-Za-z0-9._:+=/@-]{1,128}").fullmatch
MINUTE = 60.0  # seconds
PER_MINUTE = 10  # warnings of one text that are logged
_FIELDS = ("operation", "status", "seconds", "agent")  # of a request's line, and of an agent's


def id_of(headers: Iterable[tuple[bytes, bytes]]) -> bytes:
    """The caller's id of a request if it is short and plain, otherwise a new one."""
    for name, value in headers:
        if name == HEADER and _SANE(value):
            return value
    return b"%016x" % random.getrandbits(64)


class AgentLog(logging.LoggerAdapter[logging.Logger]):
    """The service's log, for lines about one agent: each begins with its name."""

    def __init__(self, name: str) -> None:
        super().__init__(logging.getLogger("fedfairx.service"), {"agent": name})
        self._head = f"agent {name}: ".replace("%", "%%")

    def process(self, msg: str, kwargs: MutableMapping[str, Any]) -> tuple[str, MutableMapping[str, Any]]:
        return super().process(self._head + msg, kwargs)


class LineFormatter(logging.Formatter):
    """Each record as one line: of text, or a JSON object."""

    def __init__(self, *, as_json: bool) -> None:
        super().__init__("%(asctime)s %(levelname)s %(message)s")
        self._json = as_json

    def format(self, record: logging.LogRecord) -> str:
        request = REQUEST_ID.get()
        if not self._json:
            text = super().format(record)
            return f"{text} [{request}]" if request else text
        entry: dict[str, object] = {
            "time": datetime.fromtimestamp(record.created, UTC).isoformat(timespec="milliseconds"),
            "level": record.levelname.lower(),
            "logger": record.name,
            "message": record.getMessage(),
        }
        if request:
            entry["request_id"] = request
        entry |= {name: vars(record)[name] for name in _FIELDS if name in vars(record)}
        if getattr(record, "otelTraceID", "0") != "0":  # which OpenTelemetry adds
            entry |= {"trace_id": vars(record)["otelTraceID"], "span_id": vars(record)["otelSpanID"]}
        if record.exc_info:
            entry["exception"] = self.formatException(record.exc_info)
        return json.dumps(entry)


class Limited(logging.Filter):
    """Lets a few warnings of each text pass in a minute: anybody can send requests that are broken.

    The first one of a later minute says how many were left out.
    """

    def __init__(self, clock: Callable[[], float] = time.monotonic) -> None:
        super().__init__()
        self._clock = clock
        self._counts: dict[str, tuple[float, int]] = {}  # text → when its minute began, and how many came

    def filter(self, record: logging.LogRecord) -> bool:
        if record.levelno != logging.WARNING:
            return True
        text, now = record.msg, self._clock()
        since, count = self._counts.get(text, (now, 0))
        if now - since >= MINUTE:
            if count > PER_MINUTE:
                record.msg = f"{text} ({count - PER_MINUTE} more were not logged)"
            since, count = now, 0
        self._counts[text] = since, count + 1
        return count < PER_MINUTE


OF_UVICORN = Limited()


def start_logging(settings: Settings) -> None:
    """Log to stderr, warnings too; of an application that has configured logging, change only the format."""
    as_json = settings.log_format == "json"
    handler = logging.StreamHandler(sys.stderr)
    handler.setFormatter(LineFormatter(as_json=as_json))
    logging.basicConfig(level=settings.log_level.upper(), handlers=[handler])
    for each in logging.getLogger().handlers:
        if as_json and type(each) is logging.StreamHandler:  # OpenTelemetry's, with ids of traces
            each.setFormatter(handler.formatter)
    logging.getLogger("uvicorn.error").addFilter(OF_UVICORN)
    logging.captureWarnings(True)
    warnings.simplefilter("ignore", ScaleWarning)  # `ServedAgent.log_warnings` names the agent
