"""Write the notebooks of the pages in docs/learn to examples/notebooks.

    python docs/notebook.py
    python docs/notebook.py --run 01     # run page 01 first, and renew its output and its pictures

A page's blocks of Python and bash are the cells of its notebook, and the text block behind one is
its output. A test makes the notebooks again and compares. Other tests run the cells, and compare
their output with the page.
"""

from __future__ import annotations

import argparse
import contextlib
import io
import json
import os
import re
import subprocess
import sys
import tempfile
from base64 import b64encode
from pathlib import Path
from typing import Any

DOCS = Path(__file__).resolve().parent
sys.path.insert(0, str(DOCS))

from pictures import PICTURES

PAGES = sorted((DOCS / "learn").glob("*.md"))
NOTEBOOKS = DOCS.parent / "examples" / "notebooks"
CODE = re.compile(r"```(python|bash)\n(.*?)```\n(?:\n```text\n(.*?)```\n)?", re.DOTALL)
PICTURE = re.compile(r"!\[([^\]]*)\]\(\.\./(images/[^)]*)\)")


def path_of(page: Path) -> Path:
    """Return the path of a page's notebook."""
    return NOTEBOOKS / f"{page.stem}.ipynb"


def notebook(page: str) -> str:
    """Return a page's text as cells: its code with the output, and the text between."""
    cells, place = [], 0
    for found in CODE.finditer(page):
        cells += words(page[place : found.start()])
        place = found.end()
        code = "%%bash\n" * (found[1] == "bash") + found[2]
        outputs: list[dict[str, Any]] = []
        if found[3]:
            outputs.append({"output_type": "stream", "name": "stdout", "text": lines(found[3])})
        drawn = re.compile(rf"\s*{PICTURE.pattern}").match(page, place)
        if drawn and Path(drawn[2]).name in code:  # the cell draws it
            data = {**content_of(drawn[2]), "text/plain": lines(drawn[1])}
            outputs.append({"output_type": "display_data", "data": data, "metadata": {}})
            place = drawn.end()
        cells.append(cell("code", code, execution_count=None, outputs=outputs))
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
        name = Path(found[2]).name
        pictures[name] = content_of(found[2])
        return f"![{found[1]}](attachment:{name})"

    text = PICTURE.sub(enclose, text.strip())
    text = re.sub(r"\]\(\.\./([\w/]+\.md)", r"](../../docs/\1", text)
    text = re.sub(r"\]\((\w+)\.md", r"](\1.ipynb", text)
    return [cell("markdown", text, **({"attachments": pictures} if pictures else {}))] * bool(text)


def content_of(picture: str) -> dict[str, str]:
    """Return a picture of the documentation by its media type, in base64."""
    path = DOCS / picture
    if path.name in PICTURES:
        return {"image/svg+xml": b64encode(PICTURES[path.name]().encode()).decode()}
    return {"image/png": b64encode(path.read_bytes()).decode()}


def cell(kind: str, text: str, **more: object) -> dict[str, Any]:
    return {"cell_type": kind, "metadata": {}, **more, "source": lines(text.rstrip("\n"))}


def lines(text: str) -> list[str]:
    return text.splitlines(keepends=True)


def run(page: str, folder: Path, times: int = 1) -> list[tuple[str, str, str]]:
    """Run a page's cells in a folder: return their code, the output in the page, and their own.

    With `times`, the cells run again in the folder that the last run left.
    """
    programs = f"{Path(sys.executable).parent}{os.pathsep}{os.environ.get('PATH', '')}"
    world: dict[str, Any] = {}
    seen = []
    with contextlib.chdir(folder):
        for language, code, output in CODE.findall(page) * times:
            if language == "bash":
                call = ["bash", "-e", "-c", code]
                environment = {**os.environ, "PATH": programs}
                done = subprocess.run(  # noqa: S603
                    call, env=environment, stdout=subprocess.PIPE, check=True, timeout=300
                )
                seen.append((code, output, done.stdout.decode()))
                continue
            with contextlib.redirect_stdout(io.StringIO()) as said:
                exec(compile(code, "<cell>", "exec", dont_inherit=True), world)  # noqa: S102
            seen.append((code, output, said.getvalue()))
    return seen


def renew(path: Path) -> None:
    """Run a page, and write to it what its cells print, and beside it the pictures they draw."""
    page = path.read_text("utf-8")
    with tempfile.TemporaryDirectory() as folder:
        outputs = iter(run(page, Path(folder)))
        drawn = {each.name: each.read_bytes() for each in Path(folder).rglob("*.png")}

    def replaced(found: re.Match[str]) -> str:
        said = next(outputs)[2]
        block = f"\n```text\n{said}```\n" if said else ""
        return f"```{found[1]}\n{found[2]}```\n{block}"

    path.write_text(CODE.sub(replaced, page), "utf-8")
    for _, picture in PICTURE.findall(page):
        if Path(picture).name in drawn:
            (DOCS / picture).write_bytes(drawn[Path(picture).name])


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__)
    parser.add_argument("--run", action="append", default=[], metavar="NUMBER")
    numbers = parser.parse_args().run
    os.environ["CCBPS_CACHE"] = os.devnull  # plans show no seconds of this machine
    for page in PAGES:
        if page.stem.partition("_")[0] in numbers:
            renew(page)
        path_of(page).write_text(notebook(page.read_text("utf-8")), "utf-8")


if __name__ == "__main__":
    main()
