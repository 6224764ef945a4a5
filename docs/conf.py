"""How `make docs` builds the site.

Run by Sphinx with the repository's root as source folder.
The root is the source folder so that pages link to notebooks, benchmarks and the change
log as they do in the repository. Nothing is fetched: no CDN, no web font, formulas as
MathML.
"""

from __future__ import annotations

import pathlib
import sys
from typing import Any

from pygments.lexers.special import TextLexer

HERE = pathlib.Path(__file__).resolve().parent
sys.path[:0] = [str(HERE / "_site"), str(HERE.parent)]

from mrsa_jax import __version__  # noqa: E402

project = "mrsa_jax"
author = "the authors of mrsa_jax"
copyright = "the authors of mrsa_jax, Apache-2.0"
version = release = __version__

extensions = [
    "myst_nb",
    "sphinx.ext.autodoc",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
    "sphinx_design",
    "site_cards",
    "site_math",
    "site_redirect",
    "site_reference",
]
root_doc = "docs/index"
include_patterns = [
    "docs/**.md",
    "docs/**.rst",
    "notebooks/*.ipynb",
    "benchmarks/README.md",
    "paper/paper.md",
    "CHANGELOG.md",
    "CONTRIBUTING.md",
    "README.md",
    "watch/README.md",
]
exclude_patterns = [".*", "build", "dist", "mrsa_jax", "tests", "results", "docs/_site"]
source_suffix = {".rst": "restructuredtext", ".md": "myst-nb", ".ipynb": "myst-nb"}

nb_execution_mode = "off"  # notebooks are shown as they are stored
nb_number_source_lines = False
myst_enable_extensions = ["colon_fence", "dollarmath", "attrs_inline", "deflist"]
myst_heading_anchors = 4

napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_use_rtype = False
napoleon_attr_annotations = False  # docstrings say them
napoleon_custom_sections = [("Source", "Source"), ("Cost", "Cost")]
autodoc_typehints = "signature"
autodoc_member_order = "bysource"
python_use_unqualified_type_names = True
python_maximum_signature_line_length = 76
add_module_names = False
toc_object_entries_show_parents = "hide"

# other projects' types: nothing is fetched to link to them
nitpick_ignore_regex = [
    (
        "py:.*",
        r"(np|numpy|jax|jaxlib|jaxtyping|pd|pandas|xr|xarray|nn|flax|optax|matplotlib|tyro)\..*",
    ),
    ("py:.*", r"(collections|pathlib|os|fractions|typing|datetime|enum)\..*"),
    (
        "py:class",
        r"(Array|ArrayLike|Bool|Float|Float32|Float64|Int|Int32|Int64|Integer|Key|UInt32)",
    ),
    ("py:class", r"(UInt8|UInt64|Shaped|ndarray|Axes|Figure|Mesh|Fraction|IPVersion)"),
]

html_theme = "pydata_sphinx_theme"
html_math_renderer = "mathml"
html_static_path = ["_site/static"]
html_favicon = "_site/static/icon.svg"
html_css_files = ["site.css"]
# excerpts only where a browser may fetch them
html_js_files = ["search.js", "sortable.js"]
html_title = f"mrsa_jax {release}"
html_copy_source = False
html_show_sourcelink = False
html_sidebars = {
    page: [] for page in ("README", "docs/gallery/index", "docs/index", "docs/tour")
}
html_theme_options = {
    "logo": {"text": "mrsa_jax"},
    "show_nav_level": 1,
    "navigation_depth": 3,
    "show_toc_level": 2,
    "header_links_before_dropdown": 9,
    "pygments_light_style": "a11y-high-contrast-light",
    "pygments_dark_style": "a11y-high-contrast-dark",
    "footer_start": ["copyright"],
    "footer_end": [],
}


def setup(app: Any) -> None:
    """Show CSV, which Pygments does not know, as text."""
    app.add_lexer("csv", TextLexer)
