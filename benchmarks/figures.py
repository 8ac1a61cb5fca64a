"""Run the benchmarks one after another, and write what they print to docs/figures.json.

Pages of the documentation read their figures from this file, so one run on an idle machine renews
all of them. Programs whose figures no page shows are left out. It also renews those of README, and
draws the pictures that pages show. Every program runs in a process of its own. Its figures and its
seconds are written as soon as it ends; from the seconds the next run computes its progress. The
file keeps the old figures of programs that fail or are not named, and old tables and rows that a
run lacks, since a peer or server may be missing on this machine. If a run and the file differ in
more than figures, the differences are printed, and the exit status is 1. Rows that no program
prints any more must be removed from the file by hand. All programs take about half an hour on two
idle cores.

    python benchmarks/figures.py [--only bench_formula bench_ledger] [--quick]

With --quick the programs run with few rounds or small sizes. Such figures say little, so nothing is
written; the titles, rows and columns are compared with those of the file.
"""

from __future__ import annotations

import json
import os
import re
import runpy
import shutil
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterable, Mapping
from pathlib import Path
from typing import Any

from report import RECORD, options
from timing import machine
from tqdm import tqdm

BENCHMARKS = Path(__file__).resolve().parent
DOCS = BENCHMARKS.parent / "docs"
FIGURES = DOCS / "figures.json"
SHOWN = {
    name
    for page in DOCS.rglob("*.md")
    for name in re.findall(r"\{figures?\}[ `]+(\w+) / ", page.read_text(encoding="utf-8"))
}
"""Names of the programs whose figures pages show."""
PROGRAMS = {
    path.stem: path
    for path in (*sorted(BENCHMARKS.glob("bench_*.py")), *sorted(BENCHMARKS.glob("reproduce/*.py")))
    if path.stem in SHOWN
}
"""These programs by name, in the order of the file. `make bench` runs the others, too."""
PICTURES = {
    "bench_branching": "branching_growth.png",
    "bench_broker": "broker.png",
    "bench_formula": "formula_growth.png",
    "bench_hamming": "hamming_growth.png",
    "hyshare": "",
    "key_caching": "",
    "prefilter": "",
}
"""Pictures of programs that draw one; the name is empty if a program draws several in a folder."""

BAR = "{desc}: {percentage:3.0f}%|{bar}| {elapsed}, about {remaining} left"

README = BENCHMARKS.parent / "README.md"
IN_README = {
    "takes {} times as long as NumPy's XOR": (
        "bench_formula / Box of 16+16+20 bits / FormulaMatch, compiled / broker ÷ "
        "FormulaMatch, limit / broker | .1f"
    ),
    "these have 1/{} of the bytes of half-gates": (
        "bench_formula / Box of 16+16+20 bits / half-gates / both bytes ÷ "
        "FormulaMatch / both bytes | .0f"
    ),
}
"""What README says, and the names of its figures."""

Entry = dict[str, Any]
"""Command, machine, seconds and tables of a program. A table has columns, and rows by name."""


def load() -> dict[str, Entry]:
    """Return the entries of the file by program."""
    entries: dict[str, Entry] = json.loads(FIGURES.read_text(encoding="utf-8"))
    return entries


def run(name: str, quick: bool = False) -> Entry | None:
    """Run a program, and return its entry; None if it fails."""
    command = ["python", str(PROGRAMS[name].relative_to(BENCHMARKS.parent))]
    with tempfile.TemporaryDirectory() as folder:
        record, drawn = Path(folder, "rows"), Path(folder, "drawn")
        record.touch()
        arguments, begun = ["--quick"] if quick else [], time.monotonic()
        if name in PICTURES and not quick:
            arguments += ["--plot", str(drawn / PICTURES[name])]
        done = subprocess.run(
            [sys.executable, str(PROGRAMS[name]), *arguments],
            env={**os.environ, RECORD: str(record)},
            check=False,
        )
        took = round(time.monotonic() - begun)
        if done.returncode:
            return None
        tables = collected(map(json.loads, record.read_text(encoding="utf-8").splitlines()))
        for picture in drawn.glob("*.png"):
            if (DOCS / "images" / picture.name).exists():
                shutil.copyfile(picture, DOCS / "images" / picture.name)
    about = {"command": " ".join(command), "machine": machine(), "seconds": took}
    return {**about, "tables": tables}


def collected(lines: Iterable[dict[str, Any]]) -> dict[str, Any]:
    """Return the tables of a program from its recorded rows."""
    tables: dict[str, Any] = {}
    for line in lines:
        new = {"columns": line["columns"], "rows": {}}
        table = tables.setdefault(line["table"], new)
        if table["columns"] != line["columns"] or line["row"] in table["rows"]:
            raise ValueError(f"{line['table']}: two tables of this title, or rows {line['row']!r}")
        table["rows"][line["row"]] = line["figures"]
    return tables


def merged(kept: Entry | None, new: Entry) -> Entry:
    """Return the entry of a run, with the tables and rows of the kept entry that the run lacks.

    If the columns of a table differ, a kept row has no figures in the new ones.
    """
    if kept is None:
        return new
    tables = {**kept["tables"], **new["tables"]}
    for title in (title for title in new["tables"] if title in kept["tables"]):
        old, columns = kept["tables"][title], new["tables"][title]["columns"]
        rows = {}
        for name, cells in old["rows"].items():
            by_column = dict(zip(old["columns"], cells, strict=True))
            rows[name] = [by_column.get(column) for column in columns]
        tables[title] = {"columns": columns, "rows": {**rows, **new["tables"][title]["rows"]}}
    return {**new, "tables": tables}


def differences(kept: Entry | None, new: Entry, *, whole: bool = False) -> list[str]:
    """List what a run has and the kept entry lacks: tables, columns and rows, whatever the figures.

    Args:
        kept: entry of the file.
        new: entry of a run.
        whole: True for a run that was not quick, which must also have everything of the entry.
    """
    old, printed = ({} if kept is None else kept["tables"]), new["tables"]
    texts = [f"the file has no table {title!r}" for title in printed if title not in old]
    if whole:
        texts += [f"no table {title!r} was printed" for title in old if title not in printed]
    for title in (title for title in printed if title in old):
        columns, rows = old[title]["columns"], old[title]["rows"]
        if columns != printed[title]["columns"]:
            texts.append(f"{title}: columns {columns} or {printed[title]['columns']}")
        new_rows = printed[title]["rows"]
        texts += [f"{title}: the file has no row {name!r}" for name in new_rows if name not in rows]
        if whole:
            lacking = [name for name in rows if name not in new_rows]
            texts += [f"{title}: no row {name!r} was printed" for name in lacking]
    return texts


def text_of(entries: Mapping[str, Entry]) -> str:
    """Return the text of the file: a line for each row, programs in order."""

    def line(value: Any) -> str:
        return json.dumps(value, ensure_ascii=False)

    def block(items: Iterable[str], margin: str) -> str:
        return "{\n" + ",\n".join(margin + " " + item for item in items) + f"\n{margin}}}"

    programs = []
    for name in (name for name in PROGRAMS if name in entries):
        entry, tables = entries[name], []
        for title, table in entry["tables"].items():
            rows = [f"{line(row)}: {line(cells)}" for row, cells in table["rows"].items()]
            both = [f'"columns": {line(table["columns"])}', f'"rows": {block(rows, "    ")}']
            tables.append(f"{line(title)}: {block(both, '   ')}")
        parts = [f'"{what}": {line(value)}' for what, value in entry.items() if what != "tables"]
        parts.append(f'"tables": {block(tables, "  ")}')
        programs.append(f"{line(name)}: {block(parts, ' ')}")
    return block(programs, "") + "\n"


def readme(text: str) -> str:
    """Return README with the figures of the file."""
    figure = runpy.run_path(str(DOCS / "measured.py"))["figure"]
    for says, name in IN_README.items():
        before, after = (re.escape(part).replace("\\ ", r"\s+") for part in says.split("{}"))
        text, count = re.subn(f"({before})[\\d.]+({after})", rf"\g<1>{figure(name)}\g<2>", text)
        if count != 1:
            raise ValueError(f"README says {count} times: {says}")
    return text


def main() -> None:
    only = {"nargs": "+", "metavar": "PROGRAM", "choices": [*PROGRAMS], "help": "names to run"}
    given = options(__doc__, only=only, quick="compare titles, rows and columns; write nothing")
    names = [name for name in PROGRAMS if not given.only or name in given.only]
    failed, differ, begun = [], [], time.monotonic()
    parts = dict.fromkeys(names, 1)
    if not given.quick:
        parts = {name: load().get(name, {}).get("seconds", 60) for name in names}
    with tqdm(total=sum(parts.values()), desc="all programs", bar_format=BAR, delay=1) as bar:
        for number, name in enumerate(names, 1):
            print(f"==> {number} of {len(names)}: {name}", flush=True)
            new = run(name, given.quick)
            spent = f"{time.monotonic() - begun:.0f} s in all"
            bar.update(parts[name])
            if new is None:
                print(f"\n==> {name}: failed; {spent}", flush=True)
                failed.append(name)
                continue
            print(f"\n==> {name}: {new['seconds']} s; {spent}", flush=True)
            entries = load()
            kept = entries.get(name)
            texts = differences(kept, new, whole=not given.quick)
            differ += [f"{name}: {text}" for text in texts]
            if not given.quick:
                # At once, so that nothing is lost if a later program is stopped.
                FIGURES.write_text(text_of({**entries, name: merged(kept, new)}), encoding="utf-8")
                README.write_text(readme(README.read_text(encoding="utf-8")), encoding="utf-8")
    for text in differ:
        print(f"==> differs: {text}")
    if failed:
        print(f"==> failed, old figures kept: {', '.join(failed)}")
    if failed or differ:
        raise SystemExit(1)


if __name__ == "__main__":
    main()
