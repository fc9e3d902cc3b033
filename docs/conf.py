"""Sphinx's configuration: `make docs` builds site/ from the pages of this folder."""

from __future__ import annotations

import re
import sys
from pathlib import Path
from typing import Any

from sphinx.application import Sphinx
from sphinx.errors import ExtensionError

sys.path.insert(0, str(Path(__file__).parent))

from generated import GENERATED

import fedfairx

project = "fedfairx"
author = "the fedfairx developers"
copyright = author
version = release = fedfairx.__version__
extensions = ["myst_parser", "sphinx.ext.autodoc"]
exclude_patterns = ["img"]
default_role = "code"  # docstrings write code between single backticks

html_theme = "furo"
html_title = f"fedfairx {version}"
html_copy_source = False
html_show_sphinx = False
html_static_path = ["static"]
html_css_files = ["site.css"]

myst_heading_anchors = 3
myst_links_external_new_tab = False

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
nitpick_ignore_regex = [(r"py:(class|obj|data|exc)", r".*")]  # annotations name types that have no page

PARAMETER = re.compile(r"^([a-z_]\w*(?:, [a-z_]\w*)*): (.+)$")
LOADED = re.compile(r'<(?:script|link|img|iframe|source)\b[^>]*(?:src|href)="(?:https?:)?//[^>]*>')
PAGE = re.compile(r"`?docs/([\w/-]+)\.md`?")


def fill_in(_app: Sphinx, _docname: str, source: list[str]) -> None:
    """Replace each `generated` comment with the generated text."""

    def made(found: re.Match[str]) -> str:
        name, *arguments = found[1].split()
        return GENERATED[name](*arguments)

    source[0] = re.sub(r"^<!-- generated: (.+?) -->$", made, source[0], flags=re.MULTILINE)


def to_rst(*arguments: Any) -> None:
    """Translate a docstring: `name: explanation` becomes a field, docs/….md a link, a list a list."""
    lines: list[str] = arguments[-1]
    found: list[str] = []
    for line in lines:
        before = found[-1] if found else ""
        parameter = PARAMETER.match(line)
        begins = (parameter or before.startswith(":param")) and not line.startswith(" ")
        if before and (begins or (line.startswith("- ") and not before.startswith(("- ", " ")))):
            found.append("")
        if not line.lstrip().startswith(">>>"):
            line = "`".join(
                part if number % 2 else re.sub(r"([*|])", r"\\\1", part)
                for number, part in enumerate(line.split("`"))
            )
        if parameter:
            line = f":param {line}"
        found.append(PAGE.sub(r":doc:`/\1`", line))
    lines[:] = found


def load_nothing_from_elsewhere(app: Sphinx, failed: Exception | None) -> None:
    """Refuse pages that would make a reader's browser ask another host."""
    for file in () if failed else Path(app.outdir).rglob("*.html"):
        found = LOADED.search(file.read_text(encoding="utf-8"))
        if found:
            raise ExtensionError(f"{file.name} loads from another host: {found[0]}")


def setup(app: Sphinx) -> None:
    """Connect these to Sphinx."""
    app.connect("source-read", fill_in)
    app.connect("autodoc-process-docstring", to_rst)
    app.connect("build-finished", load_nothing_from_elsewhere)
