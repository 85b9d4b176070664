"""Sphinx configuration."""

import re

from sparsegpu import __version__

project = "sparsegpu"
author = "The sparsegpu developers"
copyright = "2026, The sparsegpu developers"
release = __version__

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.mathjax",
    "numpydoc",
    "myst_parser",
]
exclude_patterns = ["_build"]
html_theme = "pydata_sphinx_theme"
html_title = "sparsegpu"
autosummary_generate = True
numpydoc_show_class_members = False
myst_heading_anchors = 3
autodoc_default_options = {"members": True, "inherited-members": True}


def escape_batches(app, what, name, obj, options, lines):
    """Keep the star of a shape such as (*B, M, K) from starting emphasis, but in literals."""
    parts = re.split("(``.+?``|^ *>>> [^\\n]*)", "\n".join(lines), flags=re.DOTALL | re.MULTILINE)
    parts[::2] = [re.sub(r"\(\*(?=[\w,)])", r"(\\*", part) for part in parts[::2]]
    lines[:] = "".join(parts).split("\n")


def setup(app):
    app.connect("autodoc-process-docstring", escape_batches, priority=400)
