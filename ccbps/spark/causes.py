"""What happens to messages that a broker refuses: the job fails, or the rows are set aside."""

from __future__ import annotations

from collections.abc import Mapping, Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ccbps.errors import DecodeError, ParameterError
from ccbps.spark.frames import row_name
from ccbps.wire import Cause

__all__ = ["cause_texts", "check_on_error", "refuse", "refuse_rows"]


def check_on_error(on_error: str, other: str = "reject") -> None:
    """One of the two ways to treat malformed messages."""
    if on_error not in ("raise", other):
        raise ParameterError(f"on_error must be 'raise' or {other!r}, got {on_error!r}")


MATCH_NOTHING = "with on_error='drop' such rows match nothing"
SET_ASIDE = "match and match_messages set such rows aside with on_error='reject'"


def refuse(
    causes: NDArray[np.uint8],
    names: Sequence[str],
    ids: Sequence[pa.Array],
    advice: str = SET_ASIDE,
) -> None:
    """Raise one `DecodeError` that names the first refused row by its columns, if there is any."""
    texts = {row: Cause(causes[row]).text for row in np.flatnonzero(causes).tolist()}
    refuse_rows(texts, names, ids, advice)


def refuse_rows(
    problems: Mapping[int, str], names: Sequence[str], ids: Sequence[pa.Array], advice: str
) -> None:
    """As `refuse`, for rows with what is wrong in words."""
    if not problems:
        return
    rows = sorted(problems)
    where = row_name(names, ids, rows[0]) or f"row {rows[0]} of the batch"
    more = f" (and {len(rows) - 1} more rows in this batch)" if len(rows) > 1 else ""
    raise DecodeError(
        f"{where}: {problems[rows[0]]}{more}; {advice}",
        rows=tuple(rows),
        causes=tuple(problems[row] for row in rows),
    )


def cause_texts(causes: NDArray[np.uint8]) -> pa.Array:
    """`Cause`s in words, NULL where there is none."""
    texts = pa.array([cause.text or None for cause in Cause], type=pa.string())
    return texts.take(pa.array(causes))
