"""Classes of records that cannot be told apart: formed for k and a rule, merged for a larger k.

Each record has the number of its class. Classes with neighbouring numbers are neighbours in the
domain, so unions of neighbours are a nearly optimal coarser partition.
"""

from __future__ import annotations

from typing import Final, Literal, TypeAlias

import numpy as np

from ccbps.anonymity.contiguous import runs
from ccbps.anonymity.diversity import Diversity
from ccbps.anonymity.mondrian import mondrian
from ccbps.arrays import Bools, Index, Reals, Words
from ccbps.errors import ParameterError
from ccbps.predicates.attributes import Attributes
from ccbps.predicates.types import ConstantError

Method: TypeAlias = Literal["optimal", "mondrian"]
METHODS: Final = ("optimal", "mondrian", None)
MOST_BITS: Final = 64
SUPPRESSED: Final = -1
"""Class of records that are not published."""


def partition(
    lows: Words,
    highs: Words,
    scale: Reals,
    k: int,
    rule: Diversity | None = None,
    values: Index | None = None,
    method: Method | None = None,
) -> Index:
    """Put boxes into classes of at least k, each of which keeps the rule.

    Args:
        lows: least coordinates, shape (dimensions, rows).
        highs: greatest coordinates, of the same shape; `lows` itself for points.
        scale: width of the domain of each dimension, above 0.
        k: least number of rows of a class.
        rule: rule on the sensitive values of each class; None for no rule.
        values: sensitive value of each row, by number; None without a rule.
        method: "optimal" for one dimension, "mondrian" for any; None for the first that fits.

    Returns:
        number of each row's class; `SUPPRESSED` for all rows if all together are not enough.
    """
    count = lows.shape[1]
    whole = np.zeros(count, dtype=np.intp)
    enough = count >= k
    if enough and rule is not None and values is not None:
        enough = bool(rule.of_groups(whole, values, 1)[0])
    if not enough:
        return whole + SUPPRESSED
    if (method or ("optimal" if len(lows) == 1 else "mondrian")) == "mondrian":
        centres = lows if lows is highs else lows + (highs - lows) // np.uint64(2)
        return mondrian(centres, scale, k, rule, values)
    order = np.lexsort((highs[0], lows[0]))
    allowed = None
    if rule is not None and values is not None:
        given, arranged = rule, values[order]

        def allowed(start: int, stop: int, longest: int) -> Bools:
            return given.windows(arranged, start, stop, longest)

    starts = runs(lows[0][order], highs[0][order], k, allowed)
    classes = np.empty(count, dtype=np.intp)
    classes[order] = np.repeat(np.arange(len(starts)), np.diff(starts, append=count))
    return classes


def merged(
    classes: Index, k: int, rule: Diversity | None = None, values: Index | None = None
) -> Index:
    """Merge whole classes of neighbouring numbers until each has k rows and keeps the rule.

    Classes are merged from the first on. The last ones, if they are too few, join those before.

    Args:
        classes: class of each row, from 0; `SUPPRESSED` stays.
        k: least number of rows of a class.
        rule: rule on the sensitive values of each class; None for no rule.
        values: sensitive value of each row, by number; None without a rule.

    Returns:
        number of each row's class; `SUPPRESSED` for all rows if all together are not enough.
    """
    kept = classes >= 0
    count = int(classes.max(initial=-1)) + 1
    ends = np.cumsum(np.bincount(classes[kept], minlength=count))
    # The class up to which one that begins after so many rows must reach.
    following = np.searchsorted(ends, np.concatenate([[0], ends]) + k).tolist()
    starts, place = [], 0
    while place < count and following[place] < count:
        starts.append(place)
        place = following[place] + 1
    out = np.full(len(classes), SUPPRESSED, dtype=np.intp)
    if not starts:
        return out
    target = np.repeat(np.arange(len(starts)), np.diff([*starts, count]))
    out[kept] = target[classes[kept]]
    if rule is None or values is None:
        return out
    groups = len(starts)
    while not (good := rule.of_groups(out[kept], values[kept], groups)).all():
        if groups == 1:
            return np.full(len(classes), SUPPRESSED, dtype=np.intp)
        # A class that breaks the rule joins the one before it; the first is joined by the second.
        alone = good.copy()
        alone[1] &= alone[0]
        alone[0] = True
        target = np.cumsum(alone) - 1
        out[kept] = target[out[kept]]
        groups = int(target[-1]) + 1
    return out


def neighbours(lows: Words, highs: Words, scale: Reals) -> Index:
    """Return an order of boxes in which those that are near one another are neighbours.

    One dimension is sorted by its bounds, several along a Z-curve through the centres.

    Args:
        lows: least coordinates, shape (dimensions, boxes).
        highs: greatest coordinates, of the same shape.
        scale: width of the domain of each dimension, above 0.
    """
    if len(lows) == 1:
        return np.lexsort((highs[0], lows[0]))
    bits = MOST_BITS // len(lows)
    parts = (lows + (highs - lows) // np.uint64(2)) / scale[:, None]
    # Doubles have 53 bits, so the largest word is below 2^bits.
    cells = np.minimum(parts * 2.0 ** min(bits, 32), 2.0 ** min(bits, 32) - 1).astype(np.uint64)
    curve = np.zeros(lows.shape[1], dtype=np.uint64)
    for bit in range(min(bits, 32) - 1, -1, -1):
        for cell in cells:
            curve = curve << np.uint64(1) | cell >> np.uint64(bit) & np.uint64(1)
    return np.argsort(curve, kind="stable")


def renumbered(classes: Index) -> Index:
    """Number the classes that occur from 0 on, in the same order; `SUPPRESSED` stays."""
    kept = classes >= 0
    out = classes.copy()
    out[kept] = np.unique(classes[kept], return_inverse=True)[1]
    return out


def extremes(classes: Index, codes: Words, *, greatest: bool) -> Index:
    """Return the row of the least, or the greatest, code of each class; none is empty.

    Args:
        classes: class of each row, from 0, none of them suppressed.
        codes: code of each row.
        greatest: True for the greatest code.
    """
    order = np.lexsort((codes, classes))
    first = np.flatnonzero(np.diff(classes[order], prepend=-1))
    return order[np.append(first, len(order))[1:] - 1 if greatest else first]


def check_ordered(schema: Attributes, name: str, hint: str) -> None:
    """Refuse an attribute without an order, or with more than 64 bits.

    Raises:
        ParameterError: it is such an attribute; ends with `hint`.
    """
    kind = schema[name]
    try:
        kind.check_operator("<")
    except ConstantError as error:
        problem = str(error)
    else:
        if kind.bits <= MOST_BITS:
            return
        problem = f"it has {kind.bits} bits, and at most {MOST_BITS} are allowed"
    raise ParameterError(f"attribute {name!r} cannot become a range: {problem}; {hint}")
