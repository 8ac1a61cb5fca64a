"""Keys of filters: strings or bytes of any length, single or in columns, as contiguous bytes."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any, NamedTuple, TypeAlias

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bytes, Numbers
from ccbps.checks import octets
from ccbps.errors import ParameterError

Keys: TypeAlias = "Sequence[str | bytes] | NDArray[Any] | Any"
"""A list of strings or bytes, a NumPy array of them (objects, `S` or `U`) or of rows of bytes
(uint8 of shape (keys, width)), or an Arrow column of strings or binary without NULL."""


class KeyBytes(NamedTuple):
    """Contiguous keys.

    Attributes:
        data: bytes of the keys, and at least 16 more at the end.
        offsets: start of each key, and the end of the last, shape (keys + 1,).
    """

    data: Bytes
    offsets: Numbers

    def __len__(self) -> int:
        return len(self.offsets) - 1


SPARE = 16
"""Number of bytes behind the last key, so that whole words can be read."""


def as_key_bytes(keys: Keys) -> KeyBytes:
    """Convert keys to bytes, strings in UTF-8.

    Raises:
        ParameterError: an object is not a key, or NULL.
    """
    if isinstance(keys, np.ndarray):
        if keys.dtype == np.uint8 and keys.ndim == 2:
            count, width = keys.shape
            return _spared(keys.reshape(-1), np.arange(count + 1, dtype=np.int64) * width)
        keys = keys.tolist()
    elif hasattr(keys, "combine_chunks") or hasattr(keys, "buffers"):
        return _arrow(keys)
    if isinstance(keys, (str, bytes)) or not isinstance(keys, Sequence):
        raise ParameterError(
            f"keys must be a list or a column of strings or bytes, got {type(keys).__name__}"
        )
    try:
        parts = [key.encode() if isinstance(key, str) else key for key in keys]
        joined = b"".join(parts)
    except (TypeError, UnicodeEncodeError) as error:
        raise ParameterError(f"keys must be strings or bytes: {error}") from None
    lengths = np.fromiter(map(len, parts), dtype=np.int64, count=len(parts))
    return _spared(np.frombuffer(joined, dtype=np.uint8), _offsets(lengths))


def one_key(key: str | bytes) -> bytes:
    """Convert a single key to bytes.

    Raises:
        ParameterError: the key is neither text in Unicode nor bytes.
    """
    if isinstance(key, bytes):
        return key
    if not isinstance(key, str):
        return octets("a key", key, hint="text is a key, too")
    try:
        return key.encode()
    except UnicodeEncodeError as error:
        raise ParameterError(f"a key must be text in Unicode or bytes: {error}") from None


def _offsets(lengths: Numbers) -> Numbers:
    return np.concatenate([np.zeros(1, dtype=np.int64), np.cumsum(lengths)])


def _spared(data: Bytes, offsets: Numbers) -> KeyBytes:
    return KeyBytes(np.concatenate([data, np.zeros(SPARE, dtype=np.uint8)]), offsets)


def _arrow(column: Any) -> KeyBytes:
    import pyarrow as pa

    from ccbps.arrow import binary_buffers

    if isinstance(column, pa.ChunkedArray):
        column = column.combine_chunks()
    if pa.types.is_dictionary(column.type):
        column = column.dictionary_decode()
    if pa.types.is_fixed_size_binary(column.type):
        column = column.cast(pa.binary())
    kind = column.type
    if kind not in (pa.string(), pa.large_string(), pa.binary(), pa.large_binary()):
        raise ParameterError(f"keys must be a column of strings or binary, got {kind}")
    if column.null_count:
        raise ParameterError(f"keys: {column.null_count} are NULL; drop them first")
    offsets, data = binary_buffers(column)
    return _spared(data[offsets[0] : offsets[-1]], offsets.astype(np.int64) - offsets[0])
