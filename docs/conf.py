"""Sphinx configuration."""

import re
import sys
import zlib
from pathlib import Path

import itables
from sphinx.addnodes import pending_xref

from sparsegpu import __version__

project = "sparsegpu"
author = "The sparsegpu developers"
copyright = "2026, The sparsegpu developers"
release = __version__

HERE = Path(__file__).parent
sys.path.insert(0, str(HERE / "_ext"))
sys.path.append(str(HERE.parent))  # tools

extensions = [
    "sphinx.ext.autodoc",
    "sphinx.ext.autosummary",
    "sphinx.ext.intersphinx",
    "numpydoc",
    "myst_nb",
    "sphinx_copybutton",
    "sphinx_design",
    "diagrams",
    "figures",
    "notebooks",
]
exclude_patterns = ["_build", "_ext", "_inventories", "_templates"]
templates_path = ["_templates"]
default_role = "py:obj"  # `bsr_array` in a docstring is a link
nitpicky = True  # what is named is found
nitpick_ignore = {  # of signatures; users make none of them
    ("py:class", "sparsegpu.kernels.config.Meta"),  # what functions of a kernel get: a Mapping
    ("py:class", "sparsegpu.ops._product_24.Half"),  # what an operation of ours reads
    ("py:class", "sparsegpu.semi_structured.layout.Halves"),
}
ALIASES = {  # as signatures name a class, and as its own documentation does
    "np.dtype": "numpy.dtype",
    "numpy.random._generator.Generator": "numpy.random.Generator",
}
autosummary_generate = True
numpydoc_show_class_members = False
numpydoc_xref_param_type = False
autodoc_default_options = {"members": True, "inherited-members": True, "undoc-members": True}
toc_object_entries_show_parents = "hide"  # bsr_array.aslinearoperator() is wider than its column
autodoc_preserve_defaults = True  # xp=numpy, not the path of the module

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3
nb_execution_mode = "off"  # _ext/notebooks.py runs them
nb_merge_streams = True
nb_output_stderr = "remove"  # what says how far something is
copybutton_exclude = ".linenos, .gp, .go"

html_theme = "pydata_sphinx_theme"
html_title = "sparsegpu"
html_logo = "_static/logo.svg"
html_favicon = "_static/logo.svg"
html_static_path = ["_static", str(Path(itables.__file__).parent / "html")]
html_css_files = ["site.css"]
html_context = {"default_mode": "auto"}
html_theme_options = {
    "logo": {"text": f"sparsegpu {release}"},
    "header_links_before_dropdown": 7,
    "navbar_align": "left",
    "show_toc_level": 2,
    "show_prev_next": False,
    "footer_start": ["copyright"],
    "footer_end": [],
    "secondary_sidebar_items": {
        "**": ["page-toc"],
        "index": [],
        "gallery/index": [],
        "measurements": [],
        "about": [],
        "changelog": [],
    },
}
WITHOUT_SIDEBAR = ["index", "install", "performance", "measurements", "gallery/*"]
html_sidebars = {page: [] for page in WITHOUT_SIDEBAR}


def inventory(name: str) -> str:
    """Return where the names of another project's documentation are, in Sphinx's format.

    They are kept as text: the site is built, and its links are resolved, without a network.
    """
    names = (HERE / "_inventories" / f"{name}.txt").read_bytes()
    target = HERE / "generated" / f"{name}.inv"
    target.parent.mkdir(exist_ok=True)
    head = f"# Sphinx inventory version 2\n# Project: {name}\n# Version: \n"
    head += "# The remainder of this file is compressed using zlib.\n"
    target.write_bytes(head.encode() + zlib.compress(names))
    return str(target.relative_to(HERE))


intersphinx_mapping = {
    "python": ("https://docs.python.org/3/", inventory("python")),
    "numpy": ("https://numpy.org/doc/stable/", inventory("numpy")),
    "scipy": ("https://docs.scipy.org/doc/scipy/", inventory("scipy")),
    "cupy": ("https://docs.cupy.dev/en/stable/", inventory("cupy")),
}


def escape_batches(app, what, name, obj, options, lines):
    """Keep the star of a shape such as (*B, M, K) from starting emphasis, but in literals."""
    parts = re.split("(``.+?``|^ *>>> [^\\n]*)", "\n".join(lines), flags=re.DOTALL | re.MULTILINE)
    parts[::2] = [re.sub(r"\(\*(?=[\w,)])", r"(\\*", part) for part in parts[::2]]
    lines[:] = "".join(parts).split("\n")


def show_defaults(app, what, name, obj, options, signature, returned):
    """Show what a dataclass makes anew as an ellipsis: Sphinx cannot read its <factory>."""
    return (signature.replace("<factory>", "..."), returned) if signature else None


def name_in_public(app, doctree):
    """Name a class as its documentation does, so that the link is found."""
    for node in doctree.findall(pending_xref):
        node["reftarget"] = ALIASES.get(node.get("reftarget"), node.get("reftarget"))


def shorten_titles(app, page, source):
    """Leave the package's name out of the titles of the API's pages: it breaks the side column."""
    if page.startswith("api/generated/"):
        source[0] = source[0].replace("sparsegpu.", "", 1)


def add_data_tables(app, page, template, context, doctree):
    """Make the tables of the page of measurements sortable and searchable."""
    if page == "measurements":
        app.add_css_file("dt_bundle.css")
        app.add_js_file("tables.js", type="module")


def setup(app):
    app.connect("autodoc-process-docstring", escape_batches, priority=400)
    app.connect("autodoc-process-signature", show_defaults)
    app.connect("doctree-read", name_in_public)
    app.connect("source-read", shorten_titles)
    app.connect("html-page-context", add_data_tables)
