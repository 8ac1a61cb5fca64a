"""Trees of thresholds in postfix order: how an access tree stands in a message and is evaluated.

A step is a pair of bytes: (0, 1) takes the next leaf, (k, n) with n > 1 replaces the last n results
by whether at least k of them hold, (0, 0) fills up the end. No step at all is a tree that always
holds. Nothing here is secret: the broker reads it.
"""

from __future__ import annotations

from typing import Final

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bools, Bytes
from ccbps.predicates.codes import conjunction, disjunction

Steps = tuple[tuple[int, int], ...]

LEAF: Final = (0, 1)


def sound(steps: Bytes, leaves: NDArray[np.intp]) -> Bools:
    """Which rows of steps are trees over that many leaves, each used once and in order."""
    least, parts = steps[:, :, 0].astype(np.int64), steps[:, :, 1].astype(np.int64)
    unused, leaf = parts == 0, parts == 1
    fits = np.where(leaf | unused, least == 0, (least >= 1) & (least <= parts))
    good = np.asarray(fits.all(axis=1))
    good &= ~(unused[:, :-1] & ~unused[:, 1:]).any(axis=1)
    good &= leaf.sum(axis=1) == leaves
    depth = np.cumsum(np.where(unused, 0, np.where(leaf, 1, 1 - parts)), axis=1)
    good &= (unused | (depth >= 1)).all(axis=1)
    good &= (depth[:, -1] == 1) | unused.all(axis=1)
    return good


def evaluate(steps: Steps, leaves: tuple[int, ...], held: Bools) -> Bools:
    """Answers of one sound tree, shape (events,).

    Args:
        steps: the tree.
        leaves: for each leaf in order, its row in `held`.
        held: which leaves hold for which events, shape (different leaves, events).
    """
    if not steps:
        return np.ones(held.shape[1], dtype=np.bool_)
    stack: list[Bools] = []
    numbers = iter(leaves)
    for least, parts in steps:
        if parts == 1:
            stack.append(held[next(numbers)])
            continue
        taken = stack[-parts:]
        del stack[-parts:]
        if least == parts:
            stack.append(conjunction(taken))
        elif least == 1:
            stack.append(disjunction(taken))
        else:
            stack.append(np.asarray(np.sum(taken, axis=0, dtype=np.int64) >= least))
    return stack[0]
