"""Opening of answers that no broker learns: rows of three operators, a pair of messages each."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, Final

import numpy as np
import pyarrow as pa

from ccbps.arrays import Bools, Bytes, Index
from ccbps.arrow import binary_column, binary_rows
from ccbps.columnar.reasons import Reasons, no_reasons, refuse_rows, usable
from ccbps.columnar.roles import kept_role
from ccbps.errors import DecodeError
from ccbps.keys.plain_key import PARTIES
from ccbps.keys.sources import KeySource, client_key
from ccbps.matching.contract.matcher import Matcher
from ccbps.shares.answers import (
    ATTEMPT_BYTES,
    COMMITMENT_BYTES,
    PAYLOAD_KEY_BYTES,
    SealedAnswers,
)
from ccbps.shares.clients import HEAD_BYTES

WIDTHS: Final = {
    "event": HEAD_BYTES,
    "commitment": COMMITMENT_BYTES,
    "interest": HEAD_BYTES,
    "attempt": ATTEMPT_BYTES,
    **{f"share of broker {party}": PAYLOAD_KEY_BYTES for party in range(PARTIES)},
}
"""Columns of rows to open, and their bytes."""
ADVICE: Final = "open_shares sets such rows aside with on_error='reject'"
_OTHERS: Final = "the interest is of another client or matcher"
_FAULT: Final = "the shares do not fit the commitment, or are of another event or interest"


def opened_keys(
    matcher: Matcher,
    key: KeySource,
    columns: Sequence[pa.Array],
    names: Sequence[str],
    ids: Sequence[pa.Array],
    *,
    reject: bool,
) -> tuple[pa.Array, Reasons]:
    """Open rows that three operators have joined.

    Args:
        matcher: the public parameters.
        key: source of the subscriber's `ClientKey`.
        columns: columns of `WIDTHS`, in this order.
        names: names of the columns `ids`.
        ids: public columns that tell rows apart.
        reject: whether rows that cannot be opened get a reason.

    Returns:
        The payload key of each row that matches, NULL for others; and the reasons of rows that
        cannot be opened.

    Raises:
        DecodeError: a row cannot be opened, and is not set aside; names it by its ids.
    """
    reasons, rows = no_reasons(len(columns[0])), list[Bytes]()
    for (title, width), column in zip(WIDTHS.items(), columns, strict=True):
        content, good = binary_rows(column, width)
        rows.append(content)
        missing = column.is_null().to_numpy(zero_copy_only=False)
        reasons[~good & usable(reasons)] = f"the {title} has not {width} bytes"
        reasons[missing] = f"the {title} of this attempt is missing"
    role = kept_role(matcher, "subscriber", client_key(key))
    out = np.zeros((len(reasons), PAYLOAD_KEY_BYTES), dtype=np.uint8)
    matched = np.zeros(len(reasons), dtype=np.bool_)
    heads = np.ascontiguousarray(rows[2]).view(f"V{HEAD_BYTES}")[:, 0]
    distinct, owner = np.unique(heads, return_inverse=True)
    good = usable(reasons)
    for place in range(len(distinct)):
        at = np.flatnonzero(good & (owner.reshape(-1) == place))
        try:
            _opened(role, rows, at, at[:0])
        except DecodeError:
            reasons[at] = _OTHERS
            continue
        try:
            found = _opened(role, rows, at, at)
        except DecodeError as error:
            faults = np.array(error.rows, dtype=np.intp)
            reasons[at[faults]] = _FAULT
            at = np.delete(at, faults)
            found = _opened(role, rows, at, at)
        out[at], matched[at] = found
    if not reject:
        aside = np.flatnonzero(~usable(reasons)).tolist()
        refuse_rows({row: str(reasons[row]) for row in aside}, names, ids, ADVICE)
    return binary_column(out[matched], matched), reasons


def _opened(role: Any, rows: Sequence[Bytes], own: Index, at: Index) -> tuple[Bytes, Bools]:
    """Return payload keys and answers of some rows, shapes (rows, 16) and (rows,).

    Args:
        role: the subscriber.
        rows: contents of the columns of `WIDTHS`.
        own: rows of one interest.
        at: rows to open, which are some of them.

    Raises:
        DecodeError: the interest is another client's; or a row does not fit, and `rows` names it by
            its place in `at`.
    """
    event, commitment, _, attempt, *shares = (content[at] for content in rows)
    sealed = [SealedAnswers(attempt, np.ascontiguousarray(part)[:, None]) for part in shares]
    answers = role.open(event, rows[2][own[:1]], sealed, commitment)
    return answers.keys[:, 0], answers.matched[:, 0]
