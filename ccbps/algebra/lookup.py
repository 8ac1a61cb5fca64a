"""Products by table look-up, two neighbouring bytes at a time.

Two ranks next to each other, read as one little-endian 16-bit number, are an index: so a long
product is a tree of look-ups with no arithmetic for the index at all. Bytes that are not ranks meet
zeros: what comes from the wire cannot reach beyond the table.

Hazard: look-ups at secret addresses: not constant time.
"""

from __future__ import annotations

from typing import Final

import numpy as np

from ccbps.arrays import Bytes
from ccbps.errors import ShapeError

BLOCK: Final = 1 << 14
"""Elements treated at a time: indices and results stay in the cache."""


def pair_table(products: Bytes) -> Bytes:
    """Entry p + 256 q: products[p, q]; shape (65536,)."""
    table = np.zeros((256, 256), dtype=np.uint8)
    table[: products.shape[1], : products.shape[0]] = products.T
    return table.reshape(-1)


def products(table: Bytes, x: Bytes, y: Bytes, out: Bytes | None = None) -> Bytes:
    """x * y at each position of two arrays (batch, length); `out` may be one of them."""
    if x.shape != y.shape:
        raise ShapeError(f"shapes differ: {x.shape} and {y.shape}")
    out = np.empty(x.shape, dtype=np.uint8) if out is None else out
    step = max(1, BLOCK // max(1, x.shape[1]))
    for rows in range(0, len(x), step):
        for start in range(0, x.shape[1], BLOCK):
            at = (slice(rows, rows + step), slice(start, start + BLOCK))
            pairs = np.empty((*x[at].shape, 2), dtype=np.uint8)
            pairs[..., 0], pairs[..., 1] = x[at], y[at]
            out[at] = table.take(pairs.view("<u2")[..., 0])
    return out


def tree(table: Bytes, x: Bytes) -> Bytes:
    """Products of whole rows, (batch, length) to (batch,)."""
    batch, length = x.shape
    if length > BLOCK:
        whole = length // BLOCK * BLOCK
        heads = tree(table, x[:, :whole].reshape(-1, BLOCK)).reshape(batch, -1)
        tail = tree(table, x[:, whole:])[:, None] if whole < length else heads[:, :0]
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
