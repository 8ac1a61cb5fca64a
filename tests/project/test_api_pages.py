"""The API pages: every public name under the name it is imported by, one attribute on a line."""

from __future__ import annotations

import ast
import importlib
import re
from pathlib import Path

import pytest

ROOT = Path(__file__).resolve().parents[2]
PACKAGES = (
    "ccbps",
    "ccbps.keys",
    "ccbps.network",
    "ccbps.rounds",
    "ccbps.matching",
    "ccbps.matching.broken",
    "ccbps.planner",
    "ccbps.predicates",
    "ccbps.algebra.pairing",
    "ccbps.delivery",
    "ccbps.access",
    "ccbps.functional",
    "ccbps.p3s",
    "ccbps.anonymity",
    "ccbps.attacks",
    "ccbps.filters",
    "ccbps.circuits",
    "ccbps.encodings",
    "ccbps.overlay",
    "ccbps.sharing",
    "ccbps.broker",
    "ccbps.mqtt",
    "ccbps.spark",
    "ccbps.testing",
)
DESCRIBED = {
    name
    for page in (ROOT / "docs" / "api").glob("*.md")
    for name in re.findall(
        r"^\.\. auto(?:class|function|data):: (\S+)", page.read_text("utf-8"), re.MULTILINE
    )
}
SECTION = re.compile(r"(Args|Attributes|Raises|Returns):$")


def exported(package: str) -> dict[str, object]:
    module = importlib.import_module(package)
    things = {name: getattr(module, name) for name in module.__all__ if name[0] != "_"}
    # Errors and warnings are all on one page, as `ccbps.errors`.
    return {
        name: thing
        for name, thing in things.items()
        if not (isinstance(thing, type) and issubclass(thing, Exception))
    }


@pytest.mark.parametrize("package", PACKAGES)
def test_what_a_package_exports_is_described_under_its_name(package: str) -> None:
    if package == "ccbps.spark":
        pytest.importorskip("pyspark")
    shorter = {id(thing) for thing in exported("ccbps").values()} if package != "ccbps" else set()
    wanted = {
        f"{package}.{name}" for name, thing in exported(package).items() if id(thing) not in shorter
    }
    assert wanted - DESCRIBED == set(), "give each a directive of its own in docs/api"


def fields(text: str) -> list[str]:
    """First lines of the entries under Attributes of a docstring."""
    section, found = "", []
    for line in text.splitlines():
        heading = SECTION.match(line)
        if heading:
            section = heading[1]
        elif line and line[0] != " ":
            section = ""
        elif section == "Attributes" and re.match(r"    \S", line):
            found.append(line.strip())
    return found


def test_every_attribute_has_a_line_of_its_own() -> None:
    # Two names in front of one colon come out as a name and its type.
    wrong = [
        f"{path.relative_to(ROOT)}: {node.name}: {line}"
        for path in sorted((ROOT / "ccbps").rglob("*.py"))
        for node in ast.walk(ast.parse(path.read_text("utf-8")))
        if isinstance(node, ast.ClassDef) and node.name[0] != "_"
        for line in fields(ast.get_docstring(node) or "")
        if not re.match(r"[*\w]+: ", line)
    ]
    assert wrong == []


def test_fields_of_a_docstring() -> None:
    text = "What.\n\nAttributes:\n    a, b: both.\n        And more: on.\n    c: one.\n\nEnd: here."
    assert fields(text) == ["a, b: both.", "c: one."]
