"""Docstrings read as a technical writer would write them: the rules that no linter checks."""

from __future__ import annotations

import ast
import re
from collections.abc import Iterator
from pathlib import Path

import pytest

PACKAGE = Path(__file__).resolve().parents[2] / "ccbps"
VERBS = frozenset(Path(__file__).with_name("verbs.txt").read_text("utf-8").split())
"""Verbs in the imperative that a function's docstring may begin with. Add one that is missing
to the file."""

QUESTIONS = frozenset(
    ["what", "which", "how", "where", "who", "why", "whose", "when", "that", "those", "of"]
)
"""Words that a noun phrase does not begin with."""

ENTRY = re.compile(r"^ {4,}(\*{0,2}\w+(?:, \*{0,2}\w+)*): (\w+)")


def nodes(path: Path) -> Iterator[tuple[ast.AST, str]]:
    """Yield what has a docstring, with the docstring."""
    for node in ast.walk(ast.parse(path.read_text("utf-8"))):
        if not isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef | ast.ClassDef):
            continue
        if text := ast.get_docstring(node, clean=False):
            yield node, text


def complaints(path: Path) -> Iterator[str]:
    """Yield a line for each docstring that breaks a rule."""
    for node, text in nodes(path):
        line = f"{path.name}:{node.lineno} {node.name}"  # type: ignore[attr-defined]
        first = re.split(r"[\s.,:;]", text.strip(), maxsplit=1)[0].lower()
        decorators = [ast.unparse(part) for part in getattr(node, "decorator_list", ())]
        is_noun = isinstance(node, ast.ClassDef) or any("property" in part for part in decorators)
        if is_noun and first in QUESTIONS:
            yield f"{line}: begin with a noun, not with {first!r}"
        if not is_noun and first not in VERBS:
            yield f"{line}: begin with a verb in the imperative, not with {first!r}"
        section = ""
        for entry in text.splitlines():
            if heading := re.match(r"^ +(Args|Attributes|Returns|Raises|Example):$", entry):
                section = heading[1]
            elif section in ("Args", "Attributes"):
                named = ENTRY.match(entry)
                if named and named[2].lower() in QUESTIONS:
                    yield f"{line}: describe {named[1]} by a noun, not by {named[2]!r}"


def test_docstrings_begin_as_they_should() -> None:
    paths = sorted(PACKAGE.rglob("*.py"))
    assert len(paths) > 100
    assert [line for path in paths for line in complaints(path)] == []


@pytest.mark.parametrize(
    ("text", "complaint"),
    [
        ("def f():\n    '''Return the rows.'''", None),
        ("def f():\n    '''What the rows hold.'''", "begin with a verb"),
        ("def f():\n    '''Rows of a table.'''", "begin with a verb"),
        ("class C:\n    '''Rows of a table.'''", None),
        ("class C:\n    '''What a table holds.'''", "begin with a noun"),
        ("class C:\n    @property\n    def rows(self):\n        '''Number of rows.'''", None),
        ("class C:\n    @property\n    def rows(self):\n        '''How many.'''", "a noun"),
        ("def f(n):\n    '''Add.\n\n    Args:\n        n: how many.\n    '''", "describe n"),
        ("def f(n):\n    '''Add.\n\n    Args:\n        n: number of rows.\n    '''", None),
    ],
)
def test_each_rule_is_noticed(tmp_path: Path, text: str, complaint: str | None) -> None:
    path = tmp_path / "module.py"
    path.write_text(text, "utf-8")
    said = [*complaints(path)]
    assert said == [] if complaint is None else complaint in said[0]
