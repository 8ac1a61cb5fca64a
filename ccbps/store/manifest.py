"""What a task that wrote a part reports: its runs and checksums, or why there are none."""

from __future__ import annotations

from collections.abc import Iterable, Sequence
from typing import Final

import pyarrow as pa

from ccbps.errors import ParameterError
from ccbps.store.files import RUNS, PartWriter, Refused
from ccbps.store.folder import Folder
from ccbps.store.index import About, Index

MANIFEST: Final = RUNS.append(pa.field("checksums", pa.binary())).append(
    pa.field("problem", pa.string())
)
"""A row per run, with the checksums of all batches in the row of the first; or one row with the
problem."""


def write_part(
    folder: Folder, stem: str, width: int, rows: Iterable[Sequence[pa.Array]]
) -> pa.RecordBatch:
    """Write a part from rows in order: rounds, messages and, where there are any, subscriptions."""
    part, problem = PartWriter(folder, stem, width), None
    runs: dict[str, pa.Array] = {}
    try:
        for columns in rows:
            part.append(*columns)
        runs = part.finish()
    except BaseException as error:
        part.abandon()
        if not isinstance(error, Refused):
            raise
        problem = str(error)
    # A problem is an answer, not a failure: Spark would try a failed task again.
    if problem is not None:
        runs = {"problem": pa.array([problem])}
    count = len(next(iter(runs.values()), ()))
    if part.checksums and problem is None:
        runs["checksums"] = pa.array([part.checksums] + [None] * (count - 1), pa.binary())
    return pa.RecordBatch.from_arrays(
        [
            runs[f.name].cast(f.type) if f.name in runs else pa.nulls(count, f.type)
            for f in MANIFEST
        ],
        schema=MANIFEST,
    )


def collected(folder: Folder, about: About, manifest: pa.Table) -> Index:
    """The index of the parts that tasks report.

    Raises:
        ParameterError: one of them has a problem, or two have events of a broadcast's round.
    """
    manifest = manifest.cast(MANIFEST)
    problems = manifest["problem"].drop_null()
    if len(problems):
        raise ParameterError(f"path={folder.path!r}: nothing was written: {problems[0]}")
    first = manifest.filter(manifest["checksums"].is_valid())
    checksums = dict(zip(first["part"].to_pylist(), first["checksums"].to_pylist(), strict=True))
    return Index.of(folder, about, manifest.select(RUNS.names), checksums)
