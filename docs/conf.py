"""Sphinx configuration."""

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
