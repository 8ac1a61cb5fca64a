"""Message stores for tests without Spark: messages that spell their subscription and round."""

from __future__ import annotations

from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from functools import cache
from hashlib import sha256
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import strategies as st
from pyarrow import fs

from ccbps.matching import Answers
from ccbps.records import read, write
from ccbps.store import broadcast_plan, files, merging, plan
from ccbps.store.commit import renew, replace_generations
from ccbps.store.folder import Folder
from ccbps.store.index import FORMAT, About, Index, StoreKind
from ccbps.store.versions import WriterRun

Rounds = dict[str, list[int]]
Rows = Mapping[tuple[str, int], bytes]
# All that a store knows of a matcher.
SPELT: Any = SimpleNamespace(
    fingerprint=bytes(32).hex(), event_bytes=12, interest_bytes=12, answers=Answers.PAIRS
)
INDEX = "index-00000001.arrow"
MODULES = {
    "TOGETHER": broadcast_plan,
    "BATCH_BYTES": files,
    "RUN_ROWS": files,
    "ROWS_AT_ONCE": merging,
    "PIECE_ROWS": plan,
    "VIEW_BYTES": plan,
    "BLOCK_BYTES": plan,
}
ROUNDS = st.one_of(
    st.tuples(st.integers(0, 9), st.integers(1, 30)).map(lambda x: list(range(x[0], sum(x)))),
    st.lists(st.integers(0, 40), min_size=1, unique=True),
)


@contextmanager
def sizes(*, local: bool = True, **values: int) -> Iterator[None]:
    """Change sizes of batches, pieces and blocks, and perhaps use files that cannot be mapped."""
    with pytest.MonkeyPatch.context() as patch:
        for name, value in values.items():
            patch.setattr(MODULES[name], name, value)
        if not local:
            remote = fs.SubTreeFileSystem("/", fs.LocalFileSystem())
            patch.setattr(Folder, "_found", property(lambda self: (remote, self.path)))
        yield


def spelt(label: str, number: int, width: int = 12) -> bytes:
    return f"{label:>4}{number:0{width - 4}d}".encode()


def spelt_rows(
    rounds: Mapping[str, Sequence[int]], width: int = 12
) -> dict[tuple[str, int], bytes]:
    return {(s, n): spelt(s, n, width) for s, numbers in rounds.items() for n in numbers}


def batches(rows: Rows, cut: int = 100, *, named: bool = True) -> Iterator[list[pa.Array]]:
    """Rounds, messages and perhaps subscriptions in order, `cut` rows at a time."""
    keys = sorted(rows)
    for start in range(0, len(keys), cut):
        some = keys[start : start + cut]
        labels = [pa.array([label for label, _ in some], pa.string())] * named
        numbers = pa.array([number for _, number in some], pa.int64())
        yield [numbers, pa.array([rows[key] for key in some], pa.binary()), *labels]


def written(
    folder: Folder,
    run: WriterRun,
    kind: StoreKind,
    parts: Sequence[Rows],
    matcher: Any = SPELT,
    cut: int = 100,
) -> Index:
    """New parts, which are not committed."""
    about = About.of(matcher, kind)
    folder.make("path")
    reports = [
        files.write_part(folder, run.stem, about.width, batches(rows, cut, named=not about.rounds))
        for rows in parts
    ]
    return Index.of(folder, about, pa.Table.from_batches(reports, files.MANIFEST))


def store(
    path: Path,
    kind: StoreKind,
    parts: Sequence[Rows],
    matcher: Any = SPELT,
    cut: int = 100,
    run: WriterRun | None = None,
) -> Index:
    """A store that replaces the one in a folder."""
    folder, run = Folder.of(path, "path"), run or WriterRun(1)
    renew(folder, run, written(folder, run, kind, parts, matcher, cut), before=run.version + 1)
    return Index.read(folder, matcher, kind)


def compact(folder: Folder, tasks: int, matcher: Any = SPELT) -> None:
    """Put the generations of a store of events together, in the parts of so many tasks."""
    now = Index.read(folder, matcher, "event")
    run, width, floor = WriterRun(now.version + 1), now.about.width, now.about.floor
    reports = [
        files.write_part(folder, run.stem, width, merging.merged_rows(now.files, piece, floor))
        for piece in merging.plan_merge(now, tasks)["runs"].to_pylist()
    ]
    if reports:  # an empty store stays as it is
        manifest = pa.Table.from_batches(reports, files.MANIFEST)
        replace_generations(folder, run, now, manifest, matcher)


def works(
    indexes: Sequence[Index],
    pieces: pa.Table,
    open_piece: Callable[..., plan.Work] = plan.open_piece,
    *,
    verify: bool = False,
) -> Iterator[plan.Work]:
    """All pieces of work, as one worker meets them."""

    @cache
    def part(side: int, name: str) -> files.PartReader:
        return indexes[side].files.reader(name, verify=verify)

    for piece in pieces.to_pylist():
        yield open_piece(piece, part)


def named(work: plan.Work) -> list[tuple[str, int]]:
    """Subscriptions and rounds of all pairs of a piece."""
    labels, numbers = (names.to_pylist() for names in plan.pair_names(work))
    return list(zip(labels, numbers, strict=True))


def refused(width: int, *rows: tuple[Any, ...]) -> str:
    """What a writer of parts says about rows: round, message and perhaps subscription."""
    part = files.PartWriter(Folder.of("/nowhere", "path"), "part", width)
    kinds = pa.int64(), pa.binary(), pa.string()
    columns = [pa.array(c, kind) for c, kind in zip(zip(*rows, strict=True), kinds, strict=False)]
    with pytest.raises(files.Refused) as failure:
        part.append(*columns)
    return str(failure.value)


def read_index(path: Path) -> pa.Table:
    return pa.ipc.open_file((path / INDEX).read_bytes()[:-32]).read_all()


def write_index(path: Path, table: pa.Table) -> None:
    """An index that says something else, and whose own checksum is right."""
    sink = pa.BufferOutputStream()
    with pa.ipc.new_file(sink, table.schema) as file:
        file.write_table(table)
    content = sink.getvalue().to_pybytes()
    (path / INDEX).write_bytes(content + sha256(content).digest())


def told(table: pa.Table) -> list[Any]:
    metadata: list[Any] = read(list, table.schema.metadata[b"ccbps"], refusal="not metadata")
    return metadata


def retold(table: pa.Table, content: Any, form: str = FORMAT) -> pa.Table:
    return table.replace_schema_metadata({"format": form, "ccbps": write(content)})


def about(table: pa.Table, **changes: Any) -> pa.Table:
    whose, batch_rows, parts = told(table)
    return retold(table, [[*About(*whose)._replace(**changes)], batch_rows, parts])
