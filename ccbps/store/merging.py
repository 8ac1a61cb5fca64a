"""Merging of a store's parts into fewer: each task takes some runs, and reads the files.

Runs of a subscription that may share rounds go to one task. Other runs may go to different tasks,
so a large subscription is split. No message passes through Spark. Events of a broadcast, which have
no subscriptions, are merged in order of their rounds.
"""

from __future__ import annotations

from collections.abc import Iterator
from itertools import pairwise
from typing import Final

import numpy as np
import pyarrow as pa
import pyarrow.compute as pc

from ccbps.arrow import binary_column
from ccbps.store.files import PartFiles, by_part
from ccbps.store.index import Index
from ccbps.store.plan import BLOCK_BYTES, last_so_far, runs_of, spans, stream

ROWS_AT_ONCE: Final = 1 << 20
"""Number of rows whose places are held in memory, unless runs that share rounds have more."""


def plan_merge(index: Index, tasks: int) -> pa.Table:
    """Plan about equal work for at most `tasks` tasks.

    Returns:
        a row for each task with the column `runs`, an Arrow IPC stream with `part`, `subscription`,
        `group`, `start`, `stop` and `first`. Runs that may share rounds have the same group, and
        groups are in ascending order.
    """
    rows = index.stop - index.start
    label = pc.rank(index.labelled().subscription, tiebreaker="dense").to_numpy().astype(np.int64)
    order = np.lexsort((index.first, label))
    size = max(1, -(-int(rows.sum()) // tasks))
    new = np.diff(label[order], prepend=-1) != 0
    new[1:] |= index.first[order][1:] > last_so_far(label[order], index.last[order])[:-1]
    group = np.cumsum(new) - 1
    before = (np.cumsum(rows[order]) - rows[order])[np.flatnonzero(new)]
    task = (before // size)[group]
    table = pa.table(
        {
            "part": pa.array(index.parts, pa.string()).take(pa.array(index.part[order])),
            "subscription": index.subscription.take(pa.array(order)),
            "group": group,
            "start": index.start[order],
            "stop": index.stop[order],
            "first": index.first[order],
        }
    )
    cuts = [*np.flatnonzero(np.diff(task, prepend=-1)).tolist(), len(order)]
    streams = [stream(table.slice(a, b - a)) for a, b in pairwise(cuts)]
    return pa.table({"runs": pa.array(streams, pa.binary())})


def merged_rows(files: PartFiles, piece: bytes, floor: int) -> Iterator[list[pa.Array]]:
    """Yield the rows of a task in order: rounds, messages and, if there are any, subscriptions.

    Args:
        files: parts of the store.
        piece: runs of the task, from `plan_merge`.
        floor: first round; rows of lower rounds are left out.

    Raises:
        DecodeError: a file is missing or damaged.
    """
    runs = runs_of(piece)
    group, start, stop = (runs[name].to_numpy() for name in ("group", "start", "stop"))
    named = runs["subscription"].null_count == 0
    readers = {name: files.reader(name, verify=True) for name in runs["part"].unique().to_pylist()}
    numbers = runs["part"].dictionary_encode()
    parts = [readers[name] for name in numbers.dictionary.to_pylist()]
    part = numbers.indices.to_numpy()
    # Whole groups, up to the number of rows to hold.
    ends = np.cumsum(stop - start)
    edges = np.flatnonzero(np.diff(group, prepend=-1))
    chunk = (ends - (stop - start))[edges] // ROWS_AT_ONCE
    cuts = [*edges[np.diff(chunk, prepend=-1) != 0].tolist(), len(group)]
    for a, b in pairwise(cuts):
        run, rows = spans(start[a:b], stop[a:b])
        run += a
        rounds = np.empty(len(rows), dtype=np.int64)
        for reader, places, own in by_part(parts.__getitem__, part[run], rows):
            rounds[places] = reader.rounds[own]
            reader.release()
        order = np.lexsort((rounds, group[run]))
        order = order[rounds[order] >= floor]
        step = max(1, BLOCK_BYTES // files.width)
        for at in (order[i : i + step] for i in range(0, len(order), step)):
            messages = np.empty((len(at), files.width), dtype=np.uint8)
            for reader, places, own in by_part(parts.__getitem__, part[run[at]], rows[at]):
                reader.scatter(own, messages, places)
            columns = [pa.array(rounds[at]), binary_column(messages)]
            yield [*columns, *[runs["subscription"].take(pa.array(run[at]))] * named]
