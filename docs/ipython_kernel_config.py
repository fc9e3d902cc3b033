"""Configure the kernels that run the site's notebooks: they draw SVG, in the style of the package."""

import json
from importlib.resources import files
from typing import Any

COLOURS = ["#0072B2", "#D55E00", "#009E73", "#AA3377", "#B8860B", "#56B4E9", "#555555", "#E69F00"]
STYLE = json.loads((files("fedfairx.util") / "figure_style.json").read_text(encoding="utf-8"))["style"]

c: Any = get_config()  # type: ignore[name-defined]  # noqa: F821  # IPython defines it
c.InteractiveShellApp.extensions = ["terminal"]
c.InteractiveShellApp.exec_lines = ["%matplotlib inline"]
c.IPKernelApp.log_level = "ERROR"
c.HistoryManager.enabled = False
c.InlineBackend.figure_formats = {"svg"}
# Without a background, a figure can be inverted where the page is dark (static/site.css).
c.InlineBackend.rc = STYLE | {
    "figure.figsize": (7.2, 3.0),
    "figure.constrained_layout.use": True,
    "figure.facecolor": "none",
    "axes.facecolor": "none",
    "axes.prop_cycle": f"cycler(color={COLOURS})",
}
