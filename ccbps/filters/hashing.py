"""128 bits of hash for each key, the same in all processes and on all machines.

- `Murmur3`: MurmurHash3, x64, 128 bits, the same bit for bit as the package mmh3, which hashes
  single keys. Everybody can compute it: a filter tells anybody who guesses a key whether it is
  present.
- `SipHash`: SipHash-2-4 with 128 bits of output under a secret key. Without the key nobody can
  query the filter. Its bits still show the number of keys, and which of two filters are equal.

Columns are hashed without a Python loop over keys. NumPy hashes the blocks of all keys together.
Compiled kernels hash each key in place. Both results are the same bit for bit.

Keys are strings or bytes of any length, single or in columns.

Sources: A. Appleby, MurmurHash3 (public domain, 2011); J.-P. Aumasson and D. J. Bernstein, SipHash,
INDOCRYPT 2012, and its reference implementation for 128 bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator, Sequence
from hashlib import blake2b
from typing import Any, Final, NamedTuple, TypeAlias

import mmh3
import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bytes, Index, Numbers, Words, slices
from ccbps.checks import Printable, instance, octets, whole
from ccbps.compiled import rows_compiled
from ccbps.errors import ParameterError
from ccbps.keys.plain_key import FilterKey

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
    except (TypeError, UnicodeEncodeError):
        parts = [one_key(key, f"keys[{place}]") for place, key in enumerate(keys)]
        joined = b"".join(parts)
    lengths = np.fromiter(map(len, parts), dtype=np.int64, count=len(parts))
    return _spared(np.frombuffer(joined, dtype=np.uint8), _offsets(lengths))


def one_key(key: str | bytes, name: str = "a key") -> bytes:
    """Convert a single key to bytes.

    Args:
        key: the key.
        name: its name in errors.

    Raises:
        ParameterError: the key is neither text in Unicode nor bytes.
    """
    if isinstance(key, bytes):
        return key
    if not isinstance(key, str):
        return octets(name, key, hint="text is a key, too")
    try:
        return key.encode()
    except UnicodeEncodeError as error:
        raise ParameterError(f"{name} must be text in Unicode or bytes: {error}") from None


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


_C1: Final = np.uint64(0x87C37B91114253D5)
_C2: Final = np.uint64(0x4CF5AD432745937F)
_AT_ONCE: Final = 1 << 12
"""Number of keys whose words fit into the cache."""
_MASK: Final = (1 << 64) - 1


def kernels(rows: int, words: int) -> Any:
    """Return the compiled kernels if they pay off for so many rows of so many words, else None."""
    if not rows_compiled(rows, words, "filters.compiled_filters"):
        return None
    from ccbps.filters import compiled_filters

    return compiled_filters


class Hashing(Printable, ABC):
    """A hash of 128 bits.

    Example:
        >>> from ccbps.filters import Hashing, Murmur3, SipHash
        >>> issubclass(Murmur3, Hashing), issubclass(SipHash, Hashing)
        (True, True)
    """

    @abstractmethod
    def one(self, key: bytes) -> tuple[int, int]:
        """Return both halves for a key."""

    def many(self, keys: KeyBytes) -> tuple[Words, Words]:
        """Return both halves for each key, two arrays of shape (keys,)."""
        first, second = (np.empty(len(keys), dtype=np.uint64) for _ in range(2))
        if compiled := kernels(len(keys), 4):
            self._compute(compiled, keys, first, second)
        else:
            for at in slices(len(keys), _AT_ONCE):
                part = KeyBytes(keys.data, keys.offsets[at.start : at.stop + 1])
                self._compute(None, part, first[at], second[at])
        return first, second

    @abstractmethod
    def _compute(self, compiled: Any, keys: KeyBytes, first: Words, second: Words) -> None:
        """Write both halves for each key, by compiled kernels or, for None, by NumPy."""

    @abstractmethod
    def identity(self) -> bytes:
        """Return 8 bytes that identify the hash, with a fingerprint of its key if it has one."""


class Murmur3(Hashing):
    """MurmurHash3 with a public seed.

    Args:
        seed: seed, an integer of 32 bits.

    Example:
        >>> from ccbps.filters import Murmur3
        >>> Murmur3().one(b"hello")
        (14688674573012802306, 6565844092913065241)
    """

    def __init__(self, seed: int = 0) -> None:
        self.seed = whole("seed", seed, 0, (1 << 32) - 1)

    def one(self, key: bytes) -> tuple[int, int]:
        first, second = mmh3.hash64(key, self.seed, signed=False)
        return int(first), int(second)

    def _compute(self, compiled: Any, keys: KeyBytes, first: Words, second: Words) -> None:
        first[:] = second[:] = self.seed
        if compiled:
            compiled.murmur(keys.data, keys.offsets, first, second)
        else:
            _murmur(keys, first, second)

    def identity(self) -> bytes:
        return b"mmh3" + self.seed.to_bytes(4)

    def __repr__(self) -> str:
        return f"Murmur3(seed={self.seed})"


class SipHash(Hashing):
    """SipHash-2-4-128 under a secret key.

    Args:
        key: secret key of publishers and subscribers.

    Example:
        >>> from ccbps.filters import FilterKey, SipHash
        >>> key = FilterKey(bytes(range(16)))
        >>> "".join(f"{half.to_bytes(8, 'little').hex()}" for half in SipHash(key).one(b""))
        'a3817f04ba25a8e66df67214c7550293'
    """

    def __init__(self, key: FilterKey) -> None:
        self._key = instance("key", key, FilterKey)

    def one(self, key: bytes) -> tuple[int, int]:
        v = self._start()
        tail = len(key) & ~7
        words = [int.from_bytes(key[at : at + 8], "little") for at in range(0, tail, 8)]
        words.append(int.from_bytes(key[tail:], "little") | (len(key) & 0xFF) << 56)
        for word in words:
            _absorb(v, word, _rounds)
        return _finished(v, _rounds)

    def _compute(self, compiled: Any, keys: KeyBytes, first: Words, second: Words) -> None:
        start = np.array(self._start(), dtype=np.uint64)
        if compiled:
            compiled.siphash(keys.data, keys.offsets, start, first, second)
        else:
            _siphash(keys, start, first, second)

    def identity(self) -> bytes:
        return blake2b(self._key.fingerprint.encode(), digest_size=8, person=b"siphash").digest()

    def _start(self) -> list[int]:
        secret = self._key.export_secret()
        k0, k1 = (int.from_bytes(secret[at : at + 8], "little") for at in (0, 8))
        return [
            k0 ^ 0x736F6D6570736575,
            k1 ^ 0x646F72616E646F6D ^ 0xEE,
            k0 ^ 0x6C7967656E657261,
            k1 ^ 0x7465646279746573,
        ]

    def __repr__(self) -> str:
        return f"<SipHash of {self._key!r}>"


def _absorb(v: list[Any], word: Any, rounds: Callable[[list[Any], int], None]) -> None:
    v[3] = v[3] ^ word
    rounds(v, 2)
    v[0] = v[0] ^ word


def _finished(v: list[Any], rounds: Callable[[list[Any], int], None]) -> tuple[Any, Any]:
    """Return both halves of the output."""
    v[2] = v[2] ^ 0xEE
    rounds(v, 4)
    first = v[0] ^ v[1] ^ v[2] ^ v[3]
    v[1] = v[1] ^ 0xDD
    rounds(v, 4)
    return first, v[0] ^ v[1] ^ v[2] ^ v[3]


def _rounds(v: list[int], count: int) -> None:
    def rotate(word: int, by: int) -> int:
        return (word << by | word >> 64 - by) & _MASK

    for _ in range(count):
        v[0] = v[0] + v[1] & _MASK
        v[2] = v[2] + v[3] & _MASK
        v[1] = rotate(v[1], 13) ^ v[0]
        v[3] = rotate(v[3], 16) ^ v[2]
        v[0] = rotate(v[0], 32)
        v[2] = v[2] + v[1] & _MASK
        v[0] = v[0] + v[3] & _MASK
        v[1] = rotate(v[1], 17) ^ v[2]
        v[3] = rotate(v[3], 21) ^ v[0]
        v[2] = rotate(v[2], 32)


# -- columns in NumPy ---------------------------------------------------------------------------


def _blocks(keys: KeyBytes, width: int) -> Iterator[tuple[Index, Index]]:
    """Yield for each block of `width` bytes the keys that have all of it, and its places."""
    starts, lengths = keys.offsets[:-1], np.diff(keys.offsets)
    order = np.argsort(-lengths, kind="stable")
    counts = lengths[order] // width
    for block in range(int(counts[0]) if len(order) else 0):
        rows = order[: np.searchsorted(-counts, -block, side="left")]
        yield rows, starts[rows] + block * width


def _words(keys: KeyBytes) -> Words:
    """Return the word that begins at each byte."""
    return np.ndarray((len(keys.data) - 7,), dtype="<u8", buffer=keys.data, strides=(1,))


def _rotate(words: Words, by: int) -> Words:
    return words << np.uint64(by) | words >> np.uint64(64 - by)


def _low(words: Words, count: Index) -> Words:
    """Return the first bytes of words, 0 to 8 of each."""
    # A shift by 64 is not defined, so this shifts by 32 twice.
    half = np.clip(count, 0, 8).astype(np.uint64) * np.uint64(4)
    return words & ~(~np.uint64(0) << half << half)


def _murmur(keys: KeyBytes, first: Words, second: Words) -> None:
    """Compute MurmurHash3, x64, 128 bits. At first `first` and `second` hold the seed."""
    words, lengths = _words(keys), np.diff(keys.offsets)
    for rows, places in _blocks(keys, 16):
        h1, h2 = first[rows], second[rows]
        h1 ^= _rotate(words[places] * _C1, 31) * _C2
        h1 = (_rotate(h1, 27) + h2) * np.uint64(5) + np.uint64(0x52DCE729)
        h2 ^= _rotate(words[places + 8] * _C2, 33) * _C1
        h2 = (_rotate(h2, 31) + h1) * np.uint64(5) + np.uint64(0x38495AB5)
        first[rows], second[rows] = h1, h2
    left = lengths % 16
    tails = keys.offsets[:-1] + lengths - left
    second ^= _rotate(_low(words[tails + 8], left - 8) * _C2, 33) * _C1
    first ^= _rotate(_low(words[tails], left) * _C1, 31) * _C2
    for half in (first, second):
        half ^= lengths.astype(np.uint64)
    first += second
    second += first
    for half in (first, second):
        half ^= half >> np.uint64(33)
        half *= np.uint64(0xFF51AFD7ED558CCD)
        half ^= half >> np.uint64(33)
        half *= np.uint64(0xC4CEB9FE1A85EC53)
        half ^= half >> np.uint64(33)
    first += second
    second += first


def _siphash(keys: KeyBytes, start: Words, first: Words, second: Words) -> None:
    """Compute SipHash-2-4 with 128 bits of output from the first state of a secret key."""
    words, lengths = _words(keys), np.diff(keys.offsets)
    state = np.repeat(start[:, None], len(keys), axis=1)
    for rows, places in _blocks(keys, 8):
        v = [*state[:, rows]]
        _absorb(v, words[places], _array_rounds)
        state[:, rows] = v
    left = lengths % 8
    last = _low(words[keys.offsets[:-1] + lengths - left], left)
    last |= lengths.astype(np.uint64) << np.uint64(56)
    v = [*state]
    _absorb(v, last, _array_rounds)
    first[:], second[:] = _finished(v, _array_rounds)


def _array_rounds(v: list[Words], count: int) -> None:
    for _ in range(count):
        v[0] = v[0] + v[1]
        v[2] = v[2] + v[3]
        v[1] = _rotate(v[1], 13) ^ v[0]
        v[3] = _rotate(v[3], 16) ^ v[2]
        v[0] = _rotate(v[0], 32)
        v[2] = v[2] + v[1]
        v[0] = v[0] + v[3]
        v[1] = _rotate(v[1], 17) ^ v[2]
        v[3] = _rotate(v[3], 21) ^ v[0]
        v[2] = _rotate(v[2], 32)
