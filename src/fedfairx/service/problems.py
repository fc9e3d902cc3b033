"""Errors as callers see them: problem+json with a type, a title, a detail and a remedy.

The detail names a field, a rule or a count. It never contains a context, a reward, or the error text of
another library.
"""

from __future__ import annotations

import errno
import logging
import os
import re
import traceback
from pathlib import Path
from typing import Any

import msgspec
from msgspec import UNSET
from starlette.exceptions import HTTPException
from starlette.responses import Response

from fedfairx.errors import (
    AlreadyObserved,
    InvalidInput,
    MissingLibrary,
    OutcomeUnknown,
    PrivacyError,
    ReplacementRefused,
    StorageError,
    StorageUnavailable,
    UnknownDecision,
)
from fedfairx.service import schemas
from fedfairx.service.logs import REQUEST_ID
from fedfairx.util.places import is_plain, place

PACKAGE = Path(__file__).resolve().parents[1]
MEDIA_TYPE = "application/problem+json"
LOG = logging.getLogger("fedfairx.service")

#: name → (status, title, remedy)
KINDS: dict[str, tuple[int, str, str]] = {
    "malformed": (400, "The body is not JSON", "Send one JSON object as UTF-8, without NaN or infinity."),
    "no-http": (400, "The request is not HTTP", "Send HTTP/1.1, with one Host and a path in ASCII."),
    "unauthenticated": (401, "An API key is required", "Send the header Authorization: Bearer KEY."),
    "forbidden": (403, "This API key does not allow the request", "Use a key with the role for it."),
    "cross-site": (403, "Cross-site request refused", "Send it from a program, or a page of this service."),
    "host": (403, "Local access only", "Make a key first: fedfairx keys create --role admin --data DIR."),
    "not-found": (404, "Not found", "GET /v1/openapi.json lists all paths."),
    "unknown-decision": (404, "Unknown decision", "Use the decision_id that POST /v1/decisions answered."),
    "unknown-action": (404, "Unknown action", "GET /v1/actions lists all actions."),
    "unknown-agent": (404, "Unknown agent", "GET /v1/agents lists all; PUT /v1/agents/{agent} makes one."),
    "no-release": (404, "There is no release yet", "GET /v1/sync tells when the next is due."),
    "method": (405, "Method not allowed", "GET /v1/openapi.json lists all methods."),
    "slow": (408, "The request took too long", "Send it at once, or raise the limit in the settings."),
    "conflict": (409, "Conflict with an earlier request", "Nothing was changed; look at the decision first."),
    "agent-exists": (409, "The agent has other settings", "GET /v1/agents/{agent}; nothing was changed."),
    "archived": (409, "This agent is archived", "PUT /v1/agents/{agent} with its settings offers it again."),
    "key-reused": (409, "The Idempotency-Key was used for another request", "Use a new key."),
    "alone": (409, "This agent is in no federation", "Start a member: fedfairx serve --federation DIR."),
    "features": (409, "This service's actions have features", "Name the actions in each decision."),
    "halted": (409, "Sending is halted", "Do what the detail says; decisions go on meanwhile."),
    "budget": (409, "The privacy budget does not allow it", "GET /v1/privacy tells what is spent."),
    "gone": (410, "The content is gone", "It was dropped by age, or deleted with a person's records."),
    "too-large": (413, "The request is too large", "Send less at once, or raise the limit in the settings."),
    "media-type": (415, "The body must be JSON", "Send the header Content-Type: application/json."),
    "invalid": (422, "A value breaks its rule", "Change what the detail names; nothing was changed here."),
    "long-header": (431, "The header is too long", "Send less in it, or raise the limit in the settings."),
    "internal": (500, "Internal error", "Nothing was acknowledged; the service's log tells where it was."),
    "unavailable": (503, "The storage can't be reached", "Try again later, with the same Idempotency-Key."),
    "busy": (503, "Too many requests are waiting", "Try again later, with the same Idempotency-Key."),
}
RETRY_AFTER = 1  # seconds


class ProblemError(Exception):
    """A problem, as the response to a request."""

    def __init__(self, kind: str, detail: str, headers: dict[str, str] | None = None) -> None:
        super().__init__(kind)
        self.kind = kind
        self.detail = detail
        self.headers = headers or {}

    @property
    def status(self) -> int:
        return KINDS[self.kind][0]


def answer(refused: ProblemError) -> Response:
    """The response of a problem."""
    status, title, remedy = KINDS[refused.kind]
    body = schemas.Problem(
        type=f"urn:fedfairx:problem:{refused.kind}",
        title=title,
        status=status,
        detail=refused.detail,
        remedy=remedy,
        request_id=REQUEST_ID.get() or UNSET,
    )
    headers = dict(refused.headers)
    if status == 503:
        headers["retry-after"] = str(RETRY_AFTER)
    return Response(msgspec.json.encode(body), status_code=status, headers=headers, media_type=MEDIA_TYPE)


def problem_of(error: Exception) -> ProblemError:
    """The problem of an error; an unexpected error is logged with its location, without its text."""
    if isinstance(error, ProblemError):
        return error
    if isinstance(error, HTTPException):  # Starlette's own: no such address, no such method
        kind = {404: "not-found", 405: "method"}.get(error.status_code, "invalid")
        return ProblemError(kind, f"{error.detail}.", dict(error.headers or {}))
    if isinstance(error, msgspec.ValidationError):
        return ProblemError("invalid", about(error))
    if isinstance(error, msgspec.DecodeError):
        return ProblemError("malformed", "The body can't be read as JSON.")
    if isinstance(error, UnknownDecision):
        return ProblemError("unknown-decision", "This service made no such decision.")
    if isinstance(error, AlreadyObserved | ReplacementRefused):
        return ProblemError("conflict", str(error))
    if isinstance(error, PrivacyError):
        return ProblemError("budget", str(error))
    if isinstance(error, InvalidInput | MissingLibrary):
        return ProblemError("invalid", str(error))
    return _unforeseen(error)


def _unforeseen(error: Exception) -> ProblemError:
    if isinstance(error, StorageError):  # its text names a place and a cause
        if not isinstance(error, StorageUnavailable):  # which `Outage` logs
            LOG.warning("the storage can't be used: %s", error)
        if isinstance(error, OutcomeUnknown):
            return ProblemError(
                "unavailable",
                "Whether it was stored is not known: the connection to the database was lost. Repeat it with "
                "the same Idempotency-Key.",
            )
        return ProblemError("unavailable", "It could not be written; nothing was changed.")
    LOG.error("unforeseen %s at %s", _kind(error), _where(error))  # its text might hold what was sent
    return ProblemError("internal", "Nothing was acknowledged.")


def _kind(error: Exception) -> str:
    """The error's type, and what the system says if it comes from there."""
    name = type(error).__name__
    if isinstance(error, OSError) and error.errno is not None:
        return f"{name} {errno.errorcode.get(error.errno, error.errno)} ({os.strerror(error.errno)})"
    return name


def _where(error: Exception) -> str:
    """The innermost places in this package, by their paths in it; in other code, if none is in it."""
    frames = [(Path(each.filename), each.lineno) for each in traceback.extract_tb(error.__traceback__)]
    own = [(path.relative_to(PACKAGE), at) for path, at in frames if path.is_relative_to(PACKAGE)]
    return " < ".join(f"{path}:{at}" for path, at in reversed((own or frames)[-6:]))


def about(error: msgspec.ValidationError, body: bytes = b"", where: str = "") -> str:
    """What msgspec refuses, as other errors say it: the place, the rule and the kind of value.

    body: in which the name of a feature is looked up, which msgspec leaves out.
    where: the place of what was read, if that is not a whole body.
    """
    whole = str(error)
    unknown = "contains unknown field" in whole
    parts = (_UNKNOWN if unknown else _AT).fullmatch(whole)
    if parts is None:
        return "The body must have no unknown field, got one whose name is not shown."
    text, path = parts[1], where + (parts[2] or "")
    if unknown:
        return f"{place(*filter(None, (path, text)))} must be left out: it is an unknown field."
    if path.endswith(_NAMELESS):
        path = _with_name(path.removesuffix(_NAMELESS), body)
    missing = re.search(r"missing required field `(\w+)`$", text)
    if missing:
        return f"{place(*filter(None, (path, missing[1])))} must be given."
    if text.startswith("Invalid enum value"):  # which it has
        text = "Expected one of the values that /v1/openapi.json lists"
    rule = re.sub(r"`([a-z| ]+)`", lambda match: _words(match[1]), text).replace("Expected", "must be", 1)
    return f"{path or 'The body'} {rule}."


_AT = re.compile(r"(.*?)(?: - at (?:`key` in )?`\$\.?(.*)`)?", re.DOTALL)
_UNKNOWN = re.compile(r"Object contains unknown field `([^\W\d][\w-]{0,39})`(?: - at `\$\.?(.*)`)?")
_NAMELESS = "[...]"
_OF = {"features": schemas.Values, "context": schemas.Values, "rewards": schemas.Rewards}  # their types
_WORDS = {
    "bool": "a boolean",
    "int": "an integer",
    "float": "a number",
    "str": "a string",
    "array": "a list",
    "object": "an object",
}


def _words(kinds: str) -> str:
    return " or ".join(_WORDS.get(kind, kind) for kind in kinds.split(" | "))


def _with_name(path: str, body: bytes) -> str:
    """The place of the first value that is refused among those by name at this place of a body."""
    try:
        values: Any = msgspec.json.decode(body)
        for key in re.findall(r"\w+", path):
            values = values[int(key) if key.isdecimal() else key]
    except (msgspec.DecodeError, LookupError, TypeError):
        return path
    kind = _OF.get(path.rpartition(".")[2])
    if kind is None:
        return path
    for name, value in values.items():
        try:
            msgspec.convert({name: value}, kind)
        except msgspec.ValidationError:
            return place(path, name) if is_plain(name) else path
    return path
