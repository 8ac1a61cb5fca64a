"""Write the notebook of the Spark tutorial, examples/spark_tutorial.ipynb, from its page.

    python docs/notebook.py

A test makes the notebook again and compares. Another test runs its cells, and compares their output
with that in the page.
"""

from __future__ import annotations

import json
import re
import sys
from base64 import b64encode
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS))

from pictures import PICTURES

PAGE, NOTEBOOK = DOCS / "spark_tutorial.md", DOCS.parent / "examples" / "spark_tutorial.ipynb"
CODE = re.compile(r"```python\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)


def notebook(page: str) -> str:
    """Return a page's text as cells: its code with the output, and the text between."""
    cells, place = [], 0
    for found in CODE.finditer(page):
        cells += words(page[place : found.start()])
        place = found.end()
        output = {"output_type": "stream", "name": "stdout", "text": lines(found[2] or "")}
        cells.append(
            cell("code", found[1], execution_count=None, outputs=[output] if found[2] else [])
        )
    cells += words(page[place:])
    for number, one in enumerate(cells):
        one["id"] = f"cell-{number}"
    kernel = {"display_name": "Python 3", "language": "python", "name": "python3"}
    whole = {
        "cells": cells,
        "metadata": {"kernelspec": kernel, "language_info": {"name": "python"}},
        "nbformat": 4,
        "nbformat_minor": 5,
    }
    return json.dumps(whole, indent=1, ensure_ascii=False) + "\n"


def words(text: str) -> list[dict[str, Any]]:
    """Return a cell of text with its pictures inside and its links to the documentation."""
    pictures: dict[str, Any] = {}

    def enclose(found: re.Match[str]) -> str:
        path = DOCS / found[2]
        if path.name in PICTURES:
            kind, content = "image/svg+xml", PICTURES[path.name]().encode()
        else:
            kind, content = "image/png", path.read_bytes()
        pictures[path.name] = {kind: b64encode(content).decode()}
        return f"![{found[1]}](attachment:{path.name})"

    text = re.sub(r"!\[([^\]]*)\]\((images/[^)]*)\)", enclose, text.strip())
    text = re.sub(r"\]\(([\w/]+\.md)", r"](../docs/\1", text)
    return [cell("markdown", text, **({"attachments": pictures} if pictures else {}))] * bool(text)


def cell(kind: str, text: str, **more: object) -> dict[str, Any]:
    return {"cell_type": kind, "metadata": {}, **more, "source": lines(text.rstrip("\n"))}


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


if __name__ == "__main__":
    NOTEBOOK.write_text(notebook(PAGE.read_text("utf-8")), "utf-8")
