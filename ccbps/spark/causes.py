"""What happens to messages that a broker refuses: the job fails, or the rows are set aside."""

from __future__ import annotations

from collections.abc import Sequence

import numpy as np
import pyarrow as pa
from numpy.typing import NDArray

from ccbps.errors import DecodeError, ParameterError
from ccbps.spark.frames import row_name
from ccbps.wire import Cause

__all__ = ["cause_texts", "check_on_error", "refuse"]


def check_on_error(on_error: str) -> None:
    """One of the two ways to treat malformed messages."""
    if on_error not in ("raise", "reject"):
        raise ParameterError(f"on_error must be 'raise' or 'reject', got {on_error!r}")


SET_ASIDE = "match and match_messages set such rows aside with on_error='reject'"


def refuse(
    causes: NDArray[np.uint8],
    names: Sequence[str],
    ids: Sequence[pa.Array],
    advice: str = SET_ASIDE,
) -> None:
    """Raise one `DecodeError` that names the first refused row by its columns, if there is any."""
    rows = np.flatnonzero(causes)
    if not len(rows):
        return
    row = int(rows[0])
    where = row_name(names, ids, row)
    more = f" (and {len(rows) - 1} more rows in this batch)" if len(rows) > 1 else ""
    raise DecodeError(
        f"{where or f'row {row} of the batch'}: {Cause(causes[row]).text}{more}; {advice}",
        rows=tuple(rows.tolist()),
        causes=tuple(Cause(c).text for c in causes[rows]),
    )


def cause_texts(causes: NDArray[np.uint8]) -> pa.Array:
    """`Cause`s in words, NULL where there is none."""
    texts = pa.array([cause.text or None for cause in Cause], type=pa.string())
    return texts.take(pa.array(causes))
