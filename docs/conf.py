"""Sphinx configuration: `make docs`."""

import ccbps

project = "ccbps"
author = "The ccbps developers"
copyright = author
version = release = ccbps.__version__

extensions = [
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.napoleon",
]
exclude_patterns = ["_build"]
default_role = "py:obj"

myst_enable_extensions = ["colon_fence", "deflist"]
myst_heading_anchors = 3

autodoc_default_options = {"members": True, "member-order": "bysource"}
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = ["Cost", "Source"]

# A document says in itself what its examples import.
doctest_test_doctest_blocks = "default"

html_theme = "furo"
html_title = f"ccbps {release}"
html_show_sphinx = False
html_show_copyright = False
