"""Products by table look-up, two neighbouring bytes at a time.

Two neighbouring ranks, read as one little-endian 16-bit number, are an index. So a long product is
a tree of look-ups without arithmetic for the index. The table has zeros for bytes that are not
ranks, so bytes from the wire cannot reach beyond the table.

Hazard: look-ups at secret addresses: not constant time.
"""

from __future__ import annotations

from collections.abc import Iterator
from typing import Final

import numpy as np

from ccbps.arrays import Bytes
from ccbps.errors import ShapeError

BLOCK: Final = 1 << 14
"""Elements treated at a time: indices and results stay in the cache."""


def pair_table(products: Bytes) -> Bytes:
    """Return a table of shape (65536,) with products[p, q] at p + 256 q."""
    table = np.zeros((256, 256), dtype=np.uint8)
    table[: products.shape[1], : products.shape[0]] = products.T
    return table.reshape(-1)


def products(table: Bytes, x: Bytes, y: Bytes, out: Bytes | None = None) -> Bytes:
    """Return x * y at each position of two arrays (batch, length); `out` may be one of them."""
    if x.shape != y.shape:
        raise ShapeError(f"shapes differ: {x.shape} and {y.shape}")
    out = np.empty(x.shape, dtype=np.uint8) if out is None else out
    for at in blocks(x):
        pairs = np.empty((*x[at].shape, 2), dtype=np.uint8)
        pairs[..., 0], pairs[..., 1] = x[at], y[at]
        out[at] = table.take(pairs.view("<u2")[..., 0])
    return out


def blocks(x: Bytes) -> Iterator[tuple[slice, slice]]:
    """Yield parts of an array (batch, length), about `BLOCK` elements each."""
    step = max(1, BLOCK // max(1, x.shape[1]))
    for row in range(0, len(x), step):
        for start in range(0, x.shape[1], BLOCK):
            yield slice(row, row + step), slice(start, start + BLOCK)


def tree(table: Bytes, x: Bytes) -> Bytes:
    """Return the products of whole rows, from (batch, length) to (batch,)."""
    batch, length = x.shape
    if length > BLOCK:
        complete = length // BLOCK * BLOCK
        heads = tree(table, x[:, :complete].reshape(-1, BLOCK)).reshape(batch, -1)
        tail = tree(table, x[:, complete:])[:, None] if complete < length else heads[:, :0]
        return tree(table, np.concatenate([heads, tail], axis=1))
    result = np.empty(batch, dtype=np.uint8)
    step = max(1, BLOCK // length)
    for start in range(0, batch, step):
        level = x[start : start + step]
        while (count := level.shape[1]) > 1:
            pairs = np.ascontiguousarray(level[:, : count - count % 2]).view("<u2")
            halves = table.take(pairs)
            level = np.concatenate([halves, level[:, -1:]], axis=1) if count % 2 else halves
        result[start : start + step] = level[:, 0]
    return result
