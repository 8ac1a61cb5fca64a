"""Sphinx configuration: `make docs`."""

import doctest
import re
import sys
import warnings
from pathlib import Path
from typing import Any

from sphinx.util import inspect, logging

import ccbps

DOCS = Path(__file__).parent
_log = logging.getLogger(__name__)
sys.path.insert(0, str(DOCS))

project = "ccbps"
author = "The ccbps developers"
copyright = author
version = release = ccbps.__version__

extensions = [
    "figures",
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
autoclass_content = "both"
autodoc_typehints = "signature"
autodoc_typehints_format = "short"
# Arrays by the names that the code has for them; docs/api/index.md says what they are.
autodoc_type_aliases = {
    name: name.removeprefix("npt.")
    for name in (
        "ArrayLike", "npt.ArrayLike", "Bits", "BoolArray", "Bools", "Bulk", "Bytes", "CodeArray",
        "Indices", "Limbs", "Ranks", "Rounds", "Words",
    )
}  # fmt: skip
napoleon_google_docstring = True
napoleon_numpy_docstring = False
napoleon_use_ivar = True
napoleon_custom_sections = ["Cost", "Source"]

# A document says in itself what its examples import.
doctest_test_doctest_blocks = "default"
# What errors say is part of the examples.
doctest_default_flags = doctest.ELLIPSIS | doctest.DONT_ACCEPT_TRUE_FOR_1

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


def _signature(
    app: Any,
    what: str,
    name: str,
    of: Any,
    options: Any,
    arguments: str | None,
    returns: str | None,
) -> tuple[str | None, str | None]:
    """Name an array's alias in signatures as the code does.

    A class gets the signature of its constructor.
    """
    if what == "class" and arguments and "*arguments" in arguments:
        # All matchers share a __new__ that takes anything; what they take is in __init__.
        arguments = "()"
        if of.__init__ is not object.__init__:
            found = inspect.signature(of.__init__, bound_method=True)
            arguments = inspect.stringify_signature(
                found, show_return_annotation=False, unqualified_typehints=True
            )
    alias = re.compile(r"TypeAliasForwardRef\('(\w+)'\)")
    return (arguments and alias.sub(r"\1", arguments), returns and alias.sub(r"\1", returns))


def _blocks(app: Any, what: str, name: str, of: Any, options: Any, lines: list[str]) -> None:
    """Warn of an indented block that is shown as a quotation, its lines run together."""
    if not str(getattr(of, "__module__", "ccbps") or "ccbps").startswith("ccbps"):
        return  # imported; autodoc leaves it out
    for number, (line, space, block) in enumerate(zip(lines, lines[1:], lines[2:], strict=False)):
        margin = len(line) - len(line.lstrip())
        is_block = line.strip() and not space.strip() and block[: margin + 1].isspace()
        # Of sections and directives; output of an example; the end of an item.
        is_known = re.match(r"(\.\. |- |>>> |\.\.\. |\w+:$)|.*::$", line.strip())
        if is_block and not is_known and not _in_example(lines, number):
            _log.warning("%s, line %d: '::' is missing before a block", name, number + 1)


def _in_example(lines: list[str], number: int) -> bool:
    """Return whether a line belongs to an example: it follows a prompt without an empty line."""
    while number >= 0 and lines[number].strip():
        if lines[number].lstrip().startswith(">>> "):
            return True
        number -= 1
    return False


def _arguments(app: Any, what: str, name: str, of: Any, options: Any, lines: list[str]) -> None:
    """Give arguments that share a line a line each; napoleon takes the first for a type."""
    for number in reversed(range(len(lines))):
        shared = re.fullmatch(r"( +)(\w+(?:, \w+)+): (.+)", lines[number])
        if shared:
            margin, names, text = shared.groups()
            rest = [f"{margin}{other}: likewise." for other in names.split(", ")[1:]]
            stop = number + 1
            while stop < len(lines) and lines[stop].startswith(margin + " "):
                stop += 1
            lines[stop:stop] = rest
            lines[number] = f"{margin}{names.partition(',')[0]}: {text}"


def _docstring(app: Any, what: str, name: str, of: Any, options: Any, lines: list[str]) -> None:
    """Show types of attributes without their modules, and restore sentences with a colon."""
    array = re.compile(r"numpy\.ndarray\[tuple\[Any, \.\.\.\], numpy\.dtype\[numpy\.(\w+)\]\]")
    for number, line in enumerate(lines):
        if line.startswith(":vartype"):
            line = array.sub(r"NDArray[\1]", line)
            lines[number] = re.sub(r"(?<![~\w.])(\w+\.)+(?=\w)", r"~\g<0>", line)
        elif line.startswith(":type: ") and what in ("attribute", "data", "property"):
            # "Code of the least value: 0" is no type with its description. Types are annotated.
            lines[0] = f"{line.removeprefix(':type: ')}: {lines[0]}"
            del lines[number:]
            break


def _generate(app: Any) -> None:
    """Write the generated pictures and pages, which are not in the repository."""
    with warnings.catch_warnings():
        # Broken schemes have a row, too.
        warnings.simplefilter("ignore", ccbps.BrokenSchemeWarning)
        import gallery
        import leakage_table
        import pictures

        pictures.write()
        gallery.write()
        page = leakage_table.leakage(leakage_table.load_figures())
    pictures.write_changed(DOCS / "leakage.md", page)


def setup(app: Any) -> None:
    app.connect("builder-inited", _generate)
    app.connect("autodoc-process-signature", _signature)
    # Before napoleon, which reads sections, and after it, when it has written fields.
    app.connect("autodoc-process-docstring", _blocks, priority=50)
    app.connect("autodoc-process-docstring", _arguments, priority=100)
    app.connect("autodoc-process-docstring", _docstring, priority=900)
