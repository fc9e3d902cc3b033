"""Sphinx's configuration: `make docs` builds site/ from the pages of this folder."""

from __future__ import annotations

import hashlib
import logging
import os
import re
import shutil
import sys
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import ziafont
from docutils import nodes
from sphinx import addnodes
from sphinx.application import Sphinx
from sphinx.config import Config
from sphinx.errors import ExtensionError
from sphinx.util.logging import getLogger
from sphinx.writers.html5 import HTML5Translator
from ziamath import Math
from ziamath.tex import tex2mml

sys.path.insert(0, str(Path(__file__).parent))

from generated import GENERATED, with_options

import fedfairx

project = "fedfairx"
author = "the fedfairx developers"
copyright = author
version = release = fedfairx.__version__
extensions = ["myst_nb", "sphinx.ext.autodoc", "sphinx_copybutton"]
exclude_patterns = ["img"]
default_role = "code"  # docstrings write code between single backticks

html_theme = "furo"
html_title = f"fedfairx {version}"
html_copy_source = False
html_show_sphinx = False
html_static_path = ["static"]
html_css_files = ["site.css"]

# Pages with `{code-cell}` blocks are notebooks. Each runs in an empty folder. A failing cell gives a warning.
nb_execution_mode = "cache"
nb_execution_in_temp = True
nb_execution_show_tb = True
nb_execution_timeout = 300  # for a cell, on a busy machine
nb_output_stderr = "remove"
nb_merge_streams = True
copybutton_exclude = ".linenos, .gp, .go"
copybutton_prompt_text = "$ "

myst_enable_extensions = ["dollarmath"]
myst_dmath_double_inline = False
myst_heading_anchors = 3
html_math_renderer = "svg"
ziafont.config.svg2 = False  # paths instead of symbols, whose ids would stand in a page many times

myst_links_external_new_tab = False

autodoc_member_order = "bysource"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
autodoc_preserve_defaults = True
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 80
nitpick_ignore_regex = [(r"py:(class|obj|data|exc)", r".*")]  # annotations name types that have no page

PARAMETER = re.compile(r"^([a-z_]\w*(?:, [a-z_]\w*)*): (.+)$")
LOADED = re.compile(
    r"""<(?:script|link|img|iframe|source)\b[^>]*(?:src|href)="(?:https?:)?//[^>]*>"""
    r"""|@import ["'][^;]*;|url\(["']?(?:https?:)?//[^)]*\)"""
)
SHELL = re.compile(r"\A%%(bash|terminal)\b.*\n")
JOINER = "\N{WORD JOINER}"
FORMULA = 16.0  # points in which formulas are typeset
TAG = re.compile(r"\\tag\{(.+?)\}")
PAGE = re.compile(r"`?docs/([\w/-]+)\.md`?")


def prepare_notebooks(app: Sphinx, config: Config) -> None:
    """Give the kernels our style and our commands, and a cache that is new when a source file has changed."""
    folder = Path(__file__).parent
    sources = [*Path(fedfairx.__file__).parent.rglob("*.py"), *folder.glob("*.py")]
    digest = hashlib.sha256(b"".join(path.read_bytes() for path in sorted(sources)))
    config.nb_execution_cache_path = str(Path(app.doctreedir) / f"notebooks-{digest.hexdigest()[:16]}")
    profile = Path(app.doctreedir) / "ipython" / "profile_default"
    profile.mkdir(parents=True, exist_ok=True)
    shutil.copy(folder / "ipython_kernel_config.py", profile)
    logging.getLogger("traitlets").setLevel(logging.WARNING)
    os.environ["IPYTHONDIR"] = str(profile.parent)
    for name, first in {"PATH": Path(sys.executable).parent, "PYTHONPATH": folder}.items():
        os.environ[name] = os.pathsep.join([str(first), *filter(None, [os.environ.get(name)])])


def finish_page(_app: Sphinx, page: nodes.document) -> None:
    """Show commands without the line that tells IPython to run bash, and demand a text for every figure."""
    for name in list(page.findall(addnodes.literal_strong)):  # names of parameters; see `to_rst`
        name.replace_self(addnodes.literal_strong("", name.astext().replace(JOINER, " ")))
    for block in list(page.findall(nodes.literal_block)):
        text, found = SHELL.subn("", block.astext())
        if found:
            block.replace_self(nodes.literal_block(text, text, language="bash"))
    for image in page.findall(nodes.image):
        if not image.get("alt"):
            getLogger(__name__).warning("an image has no alternative text", location=image)


def fill_in(_app: Sphinx, _docname: str, source: list[str]) -> None:
    """Replace each `generated` comment with the generated text."""

    def made(found: re.Match[str]) -> str:
        name, *arguments = found[1].split()
        return GENERATED[name](*arguments)

    source[0] = re.sub(r"^<!-- generated: (.+?) -->$", made, source[0], flags=re.MULTILINE)


def to_rst(_app: Sphinx, what: str, *arguments: Any) -> None:
    """Translate a docstring: `name: explanation` becomes a field, docs/….md a link, a list a list."""
    lines: list[str] = arguments[-1]
    found: list[str] = []
    for line in lines:
        before = found[-1] if found else ""
        parameter = PARAMETER.match(line) if what in ("class", "function", "method") else None
        begins = (parameter or before.startswith(":param")) and not line.startswith(" ")
        if before and (begins or (line.startswith("- ") and not before.startswith(("- ", " ")))):
            found.append("")
        if not line.lstrip().startswith(">>>"):
            line = "`".join(
                part if number % 2 else re.sub(r"([*|])", r"\\\1", part)
                for number, part in enumerate(line.split("`"))
            )
        if parameter:  # of several names, Sphinx would take all before the last space as a type
            line = f":param {line.replace(' ', JOINER, parameter[1].count(','))}"
        found.append(PAGE.sub(r":doc:`/\1`", line))
    lines[:] = found


def show_options(*arguments: Any) -> tuple[str | None, str | None]:
    """Show every option in the signatures of what takes options as keywords."""
    signature, returns = arguments[-2:]
    return signature and with_options(signature), returns


def load_nothing_from_elsewhere(app: Sphinx, failed: Exception | None) -> None:
    """Refuse pages that would make a reader's browser ask another host."""
    files = [] if failed else [*Path(app.outdir).rglob("*.html"), *Path(app.outdir).rglob("*.css")]
    for file in files:
        found = LOADED.search(file.read_text(encoding="utf-8"))
        if found:
            raise ExtensionError(f"{file.name} loads from another host: {found[0]}")


def show_inline(writer: HTML5Translator, node: nodes.math) -> None:
    """Draw a formula within a line, on the line."""
    formula = typeset(node, inline=True)
    drop = formula.getyofst() / FORMULA
    span = f'<span class="math" style="vertical-align:{drop:.3f}em">{drawing(formula, node)}</span>'
    writer.body.append(f"{JOINER}{span}{JOINER}")  # no line ends between a formula and a comma after it
    raise nodes.SkipNode


def show_block(writer: HTML5Translator, node: nodes.math_block) -> None:
    """Draw a formula on lines of its own, with its number at the right."""
    tag = TAG.search(node.astext())
    number = f'<span class="number">({tag[1]})</span>' if tag else ""
    writer.body.append(f'<div class="math">{drawing(typeset(node), node)}{number}</div>')
    raise nodes.SkipNode


def typeset(node: nodes.Element, inline: bool = False) -> Math:
    """Typeset the TeX of a node. A command that is not known gives a warning."""
    formula = tex2mml(TAG.sub("", node.astext()), inline=inline)
    unknown = re.search(r"\\\w+", formula)
    if unknown:
        getLogger(__name__).warning("unknown command %s in a formula", unknown[0], location=node)
    for found, better in {
        "<math ": '<math mathcolor="currentColor" ',
        "<mo>&#x00302;</mo>": '<mo stretchy="false">&#x002C6;</mo>',  # a hat, as wide as a letter
        "<mi>&#x0007E;</mi>": "<mo>&#x0223C;</mo>",  # a relation, with space around it
        "<mo>&#x02016;</mo>": '<mo fence="false" stretchy="false">&#x02016;</mo>',  # \lVert, as \| is
    }.items():
        formula = formula.replace(found, better)
    return Math(formula, size=FORMULA)


def drawing(formula: Math, node: nodes.Element) -> str:
    """Return the formula as SVG, sized relative to the text, with its TeX for those who can't see it."""
    svg = re.sub(r'(?<= )(width|height)="([\d.]+)"', in_em, formula.svg(), count=2)
    return svg.replace("<svg", f'<svg role="img" aria-label={quoteattr(node.astext().strip())}', 1)


def in_em(length: re.Match[str]) -> str:
    """Return a length of a drawing relative to the size of the text."""
    return f'{length[1]}="{float(length[2]) / FORMULA:.3f}em"'


def setup(app: Sphinx) -> None:
    """Connect these to Sphinx."""
    app.add_html_math_renderer("svg", (show_inline, None), (show_block, None))
    app.connect("config-inited", prepare_notebooks)
    app.connect("doctree-read", finish_page)
    app.connect("source-read", fill_in)
    app.connect("autodoc-process-docstring", to_rst)
    app.connect("autodoc-process-signature", show_options)
    app.connect("build-finished", load_nothing_from_elsewhere)
