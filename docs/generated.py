"""Generate parts of the reference from the code: commands, settings, HTTP interface, envelope and API.

A page includes one by a line like `<!-- generated: cli -->`, which conf.py replaces.
"""

from __future__ import annotations

import argparse
import inspect
import pkgutil
import re
from collections.abc import Callable, Iterator
from typing import Any

import fedfairx
from fedfairx.cli.common import VerbParser
from fedfairx.cli.main import parser
from fedfairx.federation.exchange import envelope
from fedfairx.service import openapi
from fedfairx.service.routes import OPERATIONS


def cli() -> str:
    """One section for each command, with the output of its `--help`."""
    return "\n\n".join(
        f"## `{command.prog}`\n\n```text\n{command.format_help().strip()}\n```"
        for command in _commands(parser())
    )


def _commands(command: argparse.ArgumentParser) -> Iterator[argparse.ArgumentParser]:
    if isinstance(command, VerbParser):
        command.filled()
    command.formatter_class = _fixed_width(command.formatter_class)
    if isinstance(command, VerbParser):
        command.filled()
    yield command
    for action in command._actions:
        if isinstance(action, argparse._SubParsersAction):
            for below in action.choices.values():
                yield from _commands(below)


def _fixed_width(kind: Any) -> Any:
    """A formatter that does not depend on the width of the terminal."""
    return lambda prog: kind(prog, max_help_position=28, width=88)


def settings() -> str:
    """The settings of the service: the flags of `fedfairx serve` except `--config`."""
    serve = next(command for command in _commands(parser()) if command.prog == "fedfairx serve")
    rows = ["| setting | default | meaning |", "| --- | --- | --- |"]
    for action in serve._actions:
        if action.dest not in ("help", "config"):
            text, _, default = (
                (action.help or "").replace("%%", "%").removesuffix(")").partition(" (default: ")
            )
            text = re.sub(r"docs/([\w/-]+)\.md", r"see [\1](../\1.md)", _cell(text))
            rows.append(f"| `{action.dest}` | {f'`{default}`' if default else ''} | {text} |")
    return "\n".join(rows)


def http() -> str:
    """One section for each address, and one for each schema."""
    document = openapi.document(OPERATIONS, fedfairx.__version__)
    parts = ["## Addresses"]
    for path, methods in document["paths"].items():
        if path.startswith("/v1/agents/{agent}/"):  # the same as without
            continue
        for method, operation in methods.items():
            parts += [f"### `{method.upper()} {path}`", _sentence(operation["summary"])]
            if "description" in operation:
                parts[-1] += f" {operation['description']}"
            parts += _parameters(operation)
            taken = operation.get("requestBody", {}).get("content", {}).get("application/json")
            if taken:
                parts.append(f"Takes {_type(taken['schema'])}.")
            parts.append(_answers(operation["responses"]))
    parts.append("## Schemas")
    for name, schema in document["components"]["schemas"].items():
        parts += [f"### {name}", *_schema(schema)]
    return "\n\n".join(parts)


def _parameters(operation: dict[str, Any]) -> Iterator[str]:
    if operation.get("parameters"):
        rows = [
            f"| `{one['name']}` | {one['in']} | {_type(one['schema'])} | {_cell(one['description'])} |"
            for one in operation["parameters"]
        ]
        yield "\n".join(["| parameter | in | type | meaning |", "| --- | --- | --- | --- |", *rows])


def _answers(responses: dict[str, Any]) -> str:
    rows = []
    for code, answer in sorted(responses.items()):
        content = answer.get("content", {}).items()
        given = [
            f"{_type(one.get('schema', {}))} as `{media}`" for media, one in content if "problem" not in media
        ]
        rows.append(f"| {code} | {_cell(answer['description'])} | {', '.join(given)} |")
    return "\n".join(["| status | meaning | body |", "| --- | --- | --- |", *rows])


def _schema(schema: dict[str, Any]) -> Iterator[str]:
    if schema.get("description"):
        yield str(schema["description"])
    required = schema.get("required", ())
    rows = [
        f"| `{name}` | {_type(kind)} | {'yes' if name in required else 'no'} |"
        for name, kind in schema.get("properties", {}).items()
    ]
    if rows:
        yield "\n".join(["| field | type | always there |", "| --- | --- | --- |", *rows])


def _type(schema: dict[str, Any]) -> str:
    if "$ref" in schema:
        name = schema["$ref"].rpartition("/")[2]
        return f"[{name}](#{name.lower()})"
    if "anyOf" in schema:
        return " or ".join(_type(one) for one in schema["anyOf"])
    if "enum" in schema:
        return ", ".join(f"`{one}`" for one in schema["enum"])
    if schema.get("type") == "array":
        return f"array of {_type(schema['items'])}" if schema.get("items") else "array"
    return str(schema.get("type", "text"))


def _cell(text: str) -> str:
    return text.replace("|", "\\|")


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?")) else f"{text}."


def envelope_layout() -> str:
    """The byte layout of an envelope, from the docstring of its module."""
    return f"## The envelope\n\n{inspect.getdoc(envelope)}"


def api(name: str) -> str:
    """All public names of a package, except those on the page of `fedfairx` itself."""
    module = pkgutil.resolve_name(name)
    defined = [
        each for each, found in vars(module).items() if getattr(found, "__module__", "") == module.__name__
    ]
    listed = getattr(module, "__all__", [each for each in defined if not each.startswith("_")])
    elsewhere = () if module is fedfairx else fedfairx.__all__
    directives: list[str] = []
    for each in sorted(set(listed) - set(elsewhere), key=str.lower):
        directives += _directive(f"{name}.{each}", getattr(module, each))
    return "\n".join(["```{eval-rst}", f".. py:module:: {name}", "", *directives, "```"])


def _directive(name: str, found: object) -> Iterator[str]:
    if inspect.ismodule(found):
        return
    if inspect.isclass(found):
        yield f".. autoclass:: {name}"
        if issubclass(found, BaseException):
            yield "   :show-inheritance:"
        else:
            yield from ("   :members:", "   :inherited-members: object, tuple, Protocol")
    elif callable(found):
        yield f".. autofunction:: {name}"
    else:
        yield f".. autodata:: {name}"
    yield ""


GENERATED: dict[str, Callable[..., str]] = {
    "cli": cli,
    "settings": settings,
    "http": http,
    "envelope": envelope_layout,
    "api": api,
}
