"""Generate parts of the reference from the code: API, commands, settings, HTTP, roles, metrics, tables.

A page includes one by a line like `<!-- generated: cli -->`, which conf.py replaces.
"""

from __future__ import annotations

import argparse
import inspect
import pkgutil
import re
import sqlite3
import tempfile
from collections.abc import Callable, Iterable, Iterator
from dataclasses import fields
from pathlib import Path
from typing import Any

import yaml

import fedfairx
from fedfairx.agent.algorithms import ALGORITHMS, ALIASES
from fedfairx.agent.options import Options
from fedfairx.agent.schedules import SCHEDULES
from fedfairx.cli.common import VerbParser
from fedfairx.cli.list import everything
from fedfairx.cli.main import parser
from fedfairx.federation.exchange import envelope
from fedfairx.service import openapi
from fedfairx.service.federation import REFUSED
from fedfairx.service.metrics import METRICS, kind
from fedfairx.service.pages import LINKED, PAGES
from fedfairx.service.roles import RESTRICTED, ROLES
from fedfairx.service.routes import OPERATIONS
from fedfairx.storage import open_database
from fedfairx.storage.schema import SQL, create_tables

RULES = Path(__file__).resolve().parent.parent / "deploy" / "prometheus" / "fedfairx.rules.yml"


def cli() -> str:
    """A table of all commands, and one section for each, with the output of its `--help`."""
    _, *commands = found = list(_commands(parser()))
    sections = (f"## `{each.prog}`\n\n```text\n{each.format_help().strip()}\n```" for each in found)
    return "\n\n".join([_table(("command", "what it does", "example"), map(_command, commands)), *sections])


def _command(command: argparse.ArgumentParser) -> tuple[str, str, str]:
    """The row of a command: the first sentence of its description, and the first of its examples."""
    summary, _, _ = " ".join((command.description or "").split()).partition(". ")
    _, example, *_ = (command.epilog or "").splitlines()
    return (
        f"[`{command.prog}`](#{command.prog.replace(' ', '-')})",
        summary.rstrip("."),
        f"`{example.strip()}`",
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
            text = _cell(_linked(text))
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
        yield inspect.cleandoc(schema["description"])
    required = schema.get("required", ())
    rows = (
        (f"`{name}`", _type(kind), "yes" if name in required else "no", _linked(kind.get("description", "")))
        for name, kind in schema.get("properties", {}).items()
    )
    if schema.get("properties"):
        yield _table(("field", "type", "always there", "meaning"), rows)


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


def _linked(text: str) -> str:
    """The text with links to the pages that it names."""
    return re.sub(r"docs/([\w/-]+)\.md", r"see [\1](../\1.md)", text)


def _sentence(text: str) -> str:
    return text if text.endswith((".", "?")) else f"{text}."


def envelope_layout() -> str:
    """The byte layout of an envelope, from the docstring of its module."""
    return f"## The envelope\n\n{inspect.getdoc(envelope)}"


def refusals() -> str:
    """Why a message may be refused."""
    return _table(("reason", "meaning"), ((f"`{name}`", text) for name, text in REFUSED.items()))


def roles() -> str:
    """The addresses and pages that the key of each role opens."""
    opened: dict[str, list[str]] = {"no key": [], **{role: [] for role in ROLES}}
    for each in OPERATIONS:
        opened[each.role or "no key"].append(f"{each.method} {each.path}")
    for page in (PAGES | LINKED).values():
        opened[page.role].append(f"GET {page.path}")
    rows = (
        (role, _listed(addresses), ", ".join(other for other in ROLES.get(role, ()) if other != role))
        for role, addresses in opened.items()
    )
    return _table(("role", "opens", "and all that these open"), rows)


def restricted() -> str:
    """What only auditors and admins see, of the types of answers and of metrics."""
    rows = [
        (f"[{kind.__name__}](http.md#{kind.__name__.lower()})", _listed(names))
        for kind, names in RESTRICTED.items()
        if kind.__name__ not in ("Exposure", "Row")  # of pages
    ]
    numbers = [f"fedfairx_{name}" for name, each in METRICS.items() if each.restricted]
    rows.append(("[metrics](metrics.md)", _listed(numbers)))
    return _table(("of", "only for auditors and admins"), rows)


def metrics() -> str:
    """All metrics, with their types and labels."""
    return _table(
        ("metric", "type", "labels", "meaning"),
        (
            (f"`fedfairx_{name}`", kind(name), _listed(each.labels), each.help)
            for name, each in METRICS.items()
        ),
    )


def alerts() -> str:
    """All alerts, with their conditions, from the rules for Prometheus."""
    rules = yaml.safe_load(RULES.read_text(encoding="utf-8"))
    found = [rule for group in rules["groups"] for rule in group["rules"]]
    return _table(
        ("alert", "severity", "meaning", "condition"),
        (
            (
                f"`{rule['alert']}`",
                rule["labels"]["severity"],
                re.sub(
                    r"\{\{ \$labels\.(\w+) \}\}",
                    lambda label: label[1].upper(),
                    rule["annotations"]["summary"],
                ),
                f"`{rule['expr']}`",
            )
            for rule in found
        ),
    )


def tables() -> str:
    """All tables of a database that was made just now, with the lines above them in `schema.sql`."""
    with tempfile.TemporaryDirectory() as folder:
        place = Path(folder, "agent.db")
        database = open_database(place)
        create_tables(database)
        database.close()
        found = sqlite3.connect(place)
        columns = {
            name: [row[1] for row in found.execute(f"PRAGMA table_info({name})")]
            for (name,) in found.execute("SELECT name FROM sqlite_master WHERE type = 'table'")
        }
        found.close()
    content = {name: line for line, name in re.findall(r"^-- (.+)\nCREATE TABLE (\w+)", SQL, re.MULTILINE)}
    rows = ((f"`{name}`", content[name], _listed(columns[name])) for name in sorted(columns))
    return _table(("table", "content", "columns"), rows)


def names() -> str:
    """Everything that has a name, as `fedfairx list` prints it."""
    also = {name: f" (alias `{alias}`)" for alias, name in ALIASES.items()}
    made = {name: (f"`{one.schedule}`", f"`{one.decide_from}`") for name, one in ALGORITHMS.items()}
    made |= {name: (f"`{one}`",) for name, one in SCHEDULES.items()}
    headers = {"algorithms": ("schedule", "decides from"), "schedules": ("default",)}
    parts = []
    for what, described in everything().items():
        header = (what.removesuffix("s"), "description", *headers.get(what, ()))
        rows = [
            (f"`{name}`{also.get(name, '')}", text, *made.get(name, ())) for name, text in described.items()
        ]
        parts += [f"## {what.capitalize()}", _table(header, rows)]
    return "\n\n".join(parts)


def _table(header: tuple[str, ...], rows: Iterable[tuple[str, ...]]) -> str:
    lines = (header, ("---",) * len(header), *rows)
    return "\n".join(f"| {' | '.join(map(_cell, line))} |" for line in lines)


def _listed(words: Iterable[str]) -> str:
    return ", ".join(f"`{word}`" for word in words)


def public(name: str) -> dict[str, object]:
    """All public names of a package, except those on the page of `fedfairx` itself."""
    module = pkgutil.resolve_name(name)
    defined = [
        each for each, found in vars(module).items() if getattr(found, "__module__", "") == module.__name__
    ]
    listed = getattr(module, "__all__", [each for each in defined if not each.startswith("_")])
    elsewhere = () if module is fedfairx else fedfairx.__all__
    return {
        f"{name}.{each}": getattr(module, each)
        for each in sorted(sorted(set(listed) - set(elsewhere)), key=str.lower)
    }


def with_options(signature: str) -> str:
    """A signature with every option in place of the keywords that stand for them."""
    options = ", ".join(f"{each.name}: {each.type} = {each.default!r}" for each in fields(Options))
    return re.sub(r"\*\*keywords: \S*Unpack\[\S*Keywords\]'?", lambda _: options, signature)


def api(name: str) -> str:
    """The documentation of the public names of a package."""
    directives = [line for each, found in public(name).items() for line in _directive(each, found)]
    return "\n".join(["```{eval-rst}", f".. py:module:: {name}", "", *directives, "```"])


def _directive(name: str, found: object) -> Iterator[str]:
    if inspect.ismodule(found):
        return
    if inspect.isclass(found):
        yield f".. autoclass:: {name}"
        package, _, own = name.rpartition(".")
        home = ".".join(found.__module__.split(".")[:2])
        if package not in ("fedfairx", home) and own in getattr(pkgutil.resolve_name(home), "__all__", ()):
            yield "   :no-index:"  # that package has a page too, to which references lead
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
    "refusals": refusals,
    "roles": roles,
    "restricted": restricted,
    "metrics": metrics,
    "alerts": alerts,
    "tables": tables,
    "names": names,
    "api": api,
}
