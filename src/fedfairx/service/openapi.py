"""The OpenAPI 3.1 document, from the operations and msgspec's schemas."""

from __future__ import annotations

import re
from collections.abc import Iterable
from dataclasses import is_dataclass
from typing import Any

import msgspec

from fedfairx.agent.by_name import MERITS
from fedfairx.agent.half_life import LONGEST as LONGEST_HALF_LIFE
from fedfairx.service import schemas
from fedfairx.service.endpoint import Operation, Parameter
from fedfairx.service.problems import KINDS, MEDIA_TYPE
from fedfairx.service.roles import RESTRICTED
from fedfairx.util.config import NUMBER, explained, plain_settings

ALWAYS = ("method",)
WITH_BODY = ("malformed", "too-large", "media-type", "invalid")
WITH_KEY = ("unauthenticated", "forbidden", "host")
WRITING = ("cross-site",)
STORED = ("unavailable", "busy")
OF_AGENT = ("unknown-agent",)
REQUEST_ID = {
    "description": "The request's own X-Request-Id if it is at most 128 plain characters, or a new id.",
    "schema": {"type": "string"},
}


_ABSENT: dict[str, Any] = {"not": {}}  # no value fits: as `false`, which generators refuse
_ONE_REWARD = {
    "anyOf": [
        {"required": ["reward", "rewards"]},
        {"properties": {"reward": _ABSENT, "rewards": _ABSENT}},
    ]
}
#: Which fields do not go together, of which types say nothing: generators of clients leave `not` out.
NOT_TOGETHER: dict[type, dict[str, Any]] = {
    schemas.Reward: _ONE_REWARD,
    schemas.RewardOf: _ONE_REWARD,
    schemas.DecisionRequest: {
        "required": ["actions", "contexts"],
        "properties": {"actions": {"type": "array"}, "contexts": {"type": "array"}},
    },
    schemas.AgentSettings: {
        "anyOf": [
            {"required": ["actions", "dimension"]},
            {"required": ["actions", "features"]},
            {"required": ["actions", "shared"], "properties": {"shared": {"minItems": 1}}},
            {"required": ["actions", "intercept"], "properties": {"intercept": {"const": True}}},
            *(
                {"required": [name], "properties": {"epsilon": _ABSENT}}
                for name in ("delta", "releases", "decide_from", "person_records")
            ),
            {"required": ["half_life", "epsilon"]},
            {"required": ["half_life", "rule"], "properties": {"rule": {"const": "optimism"}}},
            {"required": ["default_reward"], "properties": {"window": _ABSENT}},
            {
                "required": ["mode", "control_share"],
                "properties": {"mode": {"const": "shadow"}, "control_share": {"exclusiveMinimum": 0}},
            },
        ]
    },
}


_ENDS = {"minimum": NUMBER.ge, "maximum": NUMBER.le}
_NUMBER = r"[0-9]{1,9}(\.[0-9]{1,9})?"
_POSITIVE = rf"(?=[0-9.]*[1-9]){_NUMBER}"
_MERITS = "|".join(
    f"{name}(:({'|'.join(names)})={_NUMBER}(,({'|'.join(names)})={_NUMBER})*)?"
    for name, names in ((name, [*plain_settings(type(merit))]) for name, merit in MERITS.items())
)
_RANGE = {"type": "array", "items": {"type": "number", **_ENDS}, "minItems": 2, "maxItems": 2}
_LEVELS = {"type": "array", "items": {"type": "string", "minLength": 1, "maxLength": 200}, "minItems": 1}
_LEVELS |= {"uniqueItems": True}
#: What is read from a text or a list by a function of ours, and not by its type.
READ: dict[type, dict[str, dict[str, Any]]] = {
    schemas.AgentSettings: {
        "slots": {"anyOf": msgspec.json.schema(schemas.Slots)["anyOf"]},
        "merit": {"pattern": rf"^(doubling:{_POSITIVE}|{_MERITS})$"},
        "half_life": {
            "anyOf": [
                {"type": "number", "exclusiveMinimum": 0, "maximum": LONGEST_HALF_LIFE},
                {"type": "string", "pattern": r"^(?=.*[1-9])[0-9]{1,6}(\.[0-9]{1,6})?[wdhms]?$"},
            ]
        },
        "features": {
            "propertyNames": {"pattern": r"\S"},
            "additionalProperties": {"anyOf": [_RANGE, _LEVELS, {"enum": ["bool"]}]},
        },
    }
}


def document(operations: Iterable[Operation], version: str) -> dict[str, Any]:
    """The whole document."""
    listed = [
        operation for operation in operations if operation.path.startswith(("/v1/", "/healthz", "/readyz"))
    ]
    kinds = {kind for operation in listed for kind in (operation.takes, operation.gives) if kind is not None}
    ordered = sorted(kinds | {schemas.Problem}, key=lambda kind: kind.__name__)
    links, components = msgspec.json.schema_components(ordered, ref_template="#/components/schemas/{name}")
    references = dict(zip(ordered, links, strict=True))
    types = vars(schemas) | {kind.__name__: kind for kind in ordered}
    for name, component in components.items():
        _describe(component, types[name])
        for field, more in READ.get(types[name], {}).items():
            component["properties"][field] |= more
        if types[name] in NOT_TOGETHER:
            component["not"] = NOT_TOGETHER[types[name]]
        _simplify(component)
    paths: dict[str, Any] = {}
    for operation in [*listed, *(each.of_agent for each in listed if not each.whole)]:
        paths.setdefault(operation.path, {})[operation.method.lower()] = _operation(operation, references)
    return {
        "openapi": "3.1.0",
        "info": {
            "title": "fedfairx",
            "version": version,
            "summary": "Decisions that show each action in proportion to its merit.",
            "license": {"name": "Apache-2.0", "identifier": "Apache-2.0"},
        },
        "paths": paths,
        "components": {
            "schemas": components,
            "headers": {"RequestId": REQUEST_ID},
            "securitySchemes": {"key": {"type": "http", "scheme": "bearer", "bearerFormat": "ffx_…"}},
        },
    }


def _describe(component: dict[str, Any], kind: type) -> None:
    """Take what the docstring says of each field from the component's description into the field's.

    A type of the library is written whole, also where a field has a default, and is described for Python.
    A restricted field may be null.
    """
    component["description"] = re.split(r"\n+(?=[a-z_, ]+: |>>> )", component["description"])[0]
    fields, texts = component["properties"], explained(kind)
    for name in texts.keys() & fields.keys():
        fields[name]["description"] = f"{texts[name]}."
    if is_dataclass(kind):
        component["required"] = list(fields)
        for name, field in fields.items():
            field.pop("default", None)
            if name in texts:
                text = re.sub(r"\bNone\b", "null", field["description"])
                field["description"] = text[0].upper() + text[1:]
    for name, instead in RESTRICTED.get(kind, {}).items():
        field, null = fields[name], {"type": "null"}
        text = f"{field.pop('description', '')} For auditors and admins; else"
        if instead is None and null not in field.get("anyOf", ()):
            field = {"anyOf": [field, null]}
        fields[name] = field | {"description": f"{text} {'null' if instead is None else 'left out'}.".strip()}


def _simplify(schema: Any) -> None:
    """Describe a tuple of equal items as an array: many generators of clients know no `prefixItems`."""
    if isinstance(schema, dict):
        items = schema.get("prefixItems")
        if items and all(each == items[0] for each in items):
            del schema["prefixItems"]
            schema["items"] = items[0]
    for each in schema.values() if isinstance(schema, dict) else schema if isinstance(schema, list) else ():
        _simplify(each)


def _operation(operation: Operation, references: dict[type, dict[str, Any]]) -> dict[str, Any]:
    entry: dict[str, Any] = {
        "operationId": operation.name,
        "summary": operation.summary,
        "responses": _responses(operation, references),
    }
    if operation.parameters:
        entry["parameters"] = [_parameter(parameter) for parameter in operation.parameters]
    if operation.takes is not None:
        entry["requestBody"] = {
            "required": True,
            "content": {"application/json": {"schema": references[operation.takes]}},
        }
    if operation.role is not None:
        entry["security"] = [{"key": []}, {}]  # no key is needed on the same machine while there is none
        entry["description"] = f"For the role {operation.role}."
    return entry


def _parameter(parameter: Parameter) -> dict[str, Any]:
    return {
        "name": parameter.name,
        "in": parameter.place,
        "description": parameter.description,
        "required": parameter.place == "path",
        "schema": parameter.schema,
    }


def _responses(operation: Operation, references: dict[type, dict[str, Any]]) -> dict[str, Any]:
    done: dict[str, Any] = {"description": "Done."}
    if operation.gives is not None:
        done["content"] = {kind: {"schema": references[operation.gives]} for kind in operation.media_types}
    elif operation.status != 204:
        done["content"] = {kind: {} for kind in operation.media_types}
    responses = {str(operation.status): done}
    kinds = [*ALWAYS, *operation.problems]
    kinds += OF_AGENT if not operation.whole else ()
    kinds += WITH_BODY if operation.takes is not None else ()
    kinds += WRITING if operation.method != "GET" else ()
    kinds += WITH_KEY if operation.role is not None else ()
    kinds += STORED if operation.role is not None else ()
    if any(parameter.place in ("query", "header") for parameter in operation.parameters):
        kinds.append("invalid")
    content = {MEDIA_TYPE: {"schema": references[schemas.Problem]}}
    for kind in dict.fromkeys(kinds):
        status, title, _ = KINDS[kind]
        response = responses.setdefault(str(status), {"description": "", "content": content})
        response["description"] = f"{response['description']} {title}.".strip()
    for response in responses.values():
        response["headers"] = {"X-Request-Id": {"$ref": "#/components/headers/RequestId"}}
    return responses
