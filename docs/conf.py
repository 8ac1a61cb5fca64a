"""Sphinx configuration: `make docs`."""

import sys
from pathlib import Path

import ccbps

sys.path.insert(0, str(Path(__file__).parent))

project = "ccbps"
author = "ccbps contributors"
copyright = author
version = release = ccbps.__version__

extensions = [
    "mathml",
    "myst_parser",
    "sphinx.ext.autodoc",
    "sphinx.ext.doctest",
    "sphinx.ext.napoleon",
    "sphinx_copybutton",
]
exclude_patterns = ["_build"]
default_role = "py:obj"

myst_enable_extensions = ["colon_fence", "deflist", "dollarmath"]
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

html_math_renderer = "mathml"
html_theme = "furo"
html_title = f"ccbps {release}"
html_show_sphinx = False
html_show_copyright = False
html_static_path = ["_static"]
html_css_files = ["wide.css"]

# What a copy button takes along: commands and code, without prompts and output.
copybutton_prompt_text = r">>> |\.\.\. |\$ "
copybutton_prompt_is_regexp = True
