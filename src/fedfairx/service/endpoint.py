"""Endpoints: roles, parameters, bodies. Routes and the OpenAPI document are made from them."""

from __future__ import annotations

import re
from collections.abc import Awaitable, Callable
from dataclasses import dataclass, replace
from types import NoneType
from typing import Annotated, Any, TypeVar, get_type_hints

import msgspec
from msgspec import Meta, Struct
from starlette.requests import Request
from starlette.responses import Response

from fedfairx.service.agents import NAME as AGENT_NAME
from fedfairx.service.fast_path import JSON, body_of, decode
from fedfairx.service.problems import ProblemError
from fedfairx.service.schemas import Name, Time
from fedfairx.service.served_agent import ServedAgent
from fedfairx.service.service import Service
from fedfairx.util.config import LONGEST, explained

Handler = Callable[[Any, Request], Awaitable[object]]  # of a `Service` or of one `ServedAgent`
Decoded = TypeVar("Decoded")


@dataclass(frozen=True)
class Parameter:
    """A value in the path, the query or a header; `schema` is JSON Schema."""

    name: str
    place: str  # path, query, header
    description: str
    schema: dict[str, Any]


NAME = {"type": "string", "minLength": 1, "maxLength": LONGEST}
AGENT = {"type": "string", "pattern": f"^{AGENT_NAME}$"}
PATH_PARAMETERS = {
    "agent": Parameter(
        "agent", "path", "The agent's name.", {"type": "string", "pattern": f"^{AGENT_NAME}$"}
    ),
    "decision_id": Parameter("decision_id", "path", "The id in the answer to the decision.", NAME),
    "action_id": Parameter("action_id", "path", "Its name, percent-encoded: a slash is %2F.", NAME),
    "person": Parameter("person", "path", "As rewards had it, percent-encoded: a slash is %2F.", NAME),
}


@dataclass(frozen=True)
class Operation:
    """One method of one path."""

    method: str
    path: str
    name: str
    summary: str
    handler: Handler
    role: str | None = None  # the role that is needed; None: no key
    takes: type | None = None
    gives: type | None = None
    status: int = 200
    media_types: tuple[str, ...] = (JSON,)
    problems: tuple[str, ...] = ()
    query: type[Struct] | None = None
    headers: tuple[Parameter, ...] = ()
    whole: bool = False  # whether the handler takes the service, and not one of its agents

    @property
    def of_agent(self) -> Operation:
        """The same operation of an agent that the path names."""
        path = self.path.replace("/v1/", "/v1/agents/{agent}/")
        return replace(self, path=path, name=f"agent_{self.name}")

    @property
    def parameters(self) -> tuple[Parameter, ...]:
        """All parameters: those of the path, of the query's struct, and headers."""
        in_path = (PATH_PARAMETERS[name] for name in re.findall(r"{(\w+)}", self.path))
        return (*in_path, *(() if self.query is None else _parameters(self.query)), *self.headers)


def endpoint(method: str, path: str, **more: Any) -> Callable[[Handler], Operation]:
    """Make an operation of the decorated handler, with its name, docstring and return type."""

    def decorate(handler: Handler) -> Operation:
        summary, hints = (handler.__doc__ or "").rstrip("."), get_type_hints(handler)
        takes, *_, gives = hints.values()
        more["whole"] = takes is Service
        if gives is NoneType:
            more["status"] = 204
        elif not issubclass(gives, Response):
            more["gives"] = gives
        return Operation(method, path, handler.__name__, summary, handler, **more)

    return decorate


def _parameters(query: type[Struct]) -> tuple[Parameter, ...]:
    """The fields of a query, with their limits and descriptions."""
    (_,), components = msgspec.json.schema_components([query])
    parameters, texts = [], explained(query)
    for name, schema in components[query.__name__]["properties"].items():
        plain = {"type": "string", **schema.get("anyOf", [schema])[0]}  # a query has no null
        plain.pop("default", None)
        parameters.append(Parameter(name, "query", f"{texts[name]}.", plain))
    return tuple(parameters)


async def body_as(kind: type[Decoded], served: ServedAgent | Service, request: Request) -> Decoded:
    """The body, read as this type."""
    return decode(await body_of(request, served.settings.max_body), kind)


def query_of(request: Request, kind: type[Decoded]) -> Decoded:
    """The query, as a Struct: numbers are read from their text, unknown and repeated names are refused."""
    values: dict[str, str] = {}
    for name, value in request.query_params.multi_items():
        if name in values or value.lower() == "null":  # which would be read as None
            raise ProblemError("invalid", "A name occurs twice in the query, or has no value.")
        values[name] = value
    return msgspec.convert(values, kind, strict=False)


class Named(Struct, forbid_unknown_fields=True):
    """Which actions, by their names.

    name: Text that the name contains.
    limit: How many of them, at most.
    """

    name: Name | None = None
    limit: Annotated[int, Meta(ge=1, le=100_000)] = 100

    def asks_for(self, name: str) -> bool:
        """Whether it is about the action of this name."""
        return self.name is None or self.name.casefold() in name.casefold()


class Window(Struct, forbid_unknown_fields=True):
    """A window of time.

    since: Made at this time or later, in seconds since 1970.
    until: Made before this time.
    """

    since: Time | None = None
    until: Time | None = None
