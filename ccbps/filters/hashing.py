"""128 bits of hash for each key, alike in all processes and on all machines.

- `Murmur3`: MurmurHash3, x64, 128 bits, the same bit for bit as the package mmh3, which does single
  keys. Everybody can compute it: a filter gives away to anybody who guesses a key whether it is in.
- `SipHash`: SipHash-2-4 with 128 bits of output under a secret key. Whoever has no key cannot ask
  the filter, and learns from its bits how many there are, and which of two filters are alike.

Columns are hashed without a Python loop over keys. NumPy takes all keys through their blocks
together; compiled, each key is hashed where it lies. Both are the same bit for bit.

Sources: A. Appleby, MurmurHash3 (public domain, 2011); J.-P. Aumasson and D. J. Bernstein, SipHash,
INDOCRYPT 2012, and its reference implementation for 128 bits.
"""

from __future__ import annotations

from abc import ABC, abstractmethod
from hashlib import blake2b
from typing import Final

import mmh3
import numpy as np

from ccbps.arrays import Words
from ccbps.compiled import rows_compiled
from ccbps.errors import ParameterError
from ccbps.filters.array_hashes import murmur_arrays, parts, siphash_arrays
from ccbps.filters.keys import KeyBytes
from ccbps.keys.filter_key import FilterKey

_MASK: Final = (1 << 64) - 1


class Hashing(ABC):
    """A hash of 128 bits.

    Example:
        >>> from ccbps.filters import Hashing, Murmur3, SipHash
        >>> issubclass(Murmur3, Hashing), issubclass(SipHash, Hashing)
        (True, True)
    """

    @abstractmethod
    def one(self, key: bytes) -> tuple[int, int]:
        """Both halves for one key."""

    @abstractmethod
    def many(self, keys: KeyBytes) -> tuple[Words, Words]:
        """Both halves for keys, shape (keys,) each."""

    @abstractmethod
    def identity(self) -> bytes:
        """8 bytes that say which hash it is; of a key, a fingerprint."""


class Murmur3(Hashing):
    """MurmurHash3 with a public seed.

    Attributes:
        seed: 32 bits.

    Example:
        >>> from ccbps.filters import Murmur3
        >>> Murmur3().one(b"hello")
        (14688674573012802306, 6565844092913065241)
    """

    def __init__(self, seed: int = 0) -> None:
        """
        Raises:
            ParameterError: the seed has not 32 bits.
        """
        if type(seed) is not int or not 0 <= seed < 1 << 32:
            raise ParameterError(f"seed must be a whole number, 0 .. 2^32 - 1, got {seed!r}")
        self.seed = seed

    def one(self, key: bytes) -> tuple[int, int]:
        """See `Hashing.one`."""
        first, second = mmh3.hash64(key, self.seed, signed=False)
        return int(first), int(second)

    def many(self, keys: KeyBytes) -> tuple[Words, Words]:
        """See `Hashing.many`."""
        first, second = (np.full(len(keys), self.seed, dtype=np.uint64) for _ in range(2))
        if _compiled(keys):
            from ccbps.filters import compiled_filters

            compiled_filters.murmur(keys.data, keys.offsets, first, second)
        else:
            for some, part in parts(keys):
                murmur_arrays(part, first[some], second[some])
        return first, second

    def identity(self) -> bytes:
        """See `Hashing.identity`."""
        return b"mmh3" + self.seed.to_bytes(4)

    def __repr__(self) -> str:
        return f"Murmur3(seed={self.seed})"


class SipHash(Hashing):
    """SipHash-2-4-128 under a secret key.

    Example:
        >>> from ccbps.filters import FilterKey, SipHash
        >>> key = FilterKey(bytes(range(16)))
        >>> "".join(f"{half.to_bytes(8, 'little').hex()}" for half in SipHash(key).one(b""))
        'a3817f04ba25a8e66df67214c7550293'
    """

    def __init__(self, key: FilterKey) -> None:
        """
        Raises:
            ParameterError: not a FilterKey.
        """
        if not isinstance(key, FilterKey):
            raise ParameterError(f"key must be a FilterKey, got {type(key).__name__}")
        self._key = key

    def one(self, key: bytes) -> tuple[int, int]:
        """See `Hashing.one`."""
        v = self._start()
        whole = len(key) & ~7
        words = [int.from_bytes(key[at : at + 8], "little") for at in range(0, whole, 8)]
        words.append(int.from_bytes(key[whole:], "little") | (len(key) & 0xFF) << 56)
        for word in words:
            v[3] ^= word
            _rounds(v, 2)
            v[0] ^= word
        v[2] ^= 0xEE
        _rounds(v, 4)
        first = v[0] ^ v[1] ^ v[2] ^ v[3]
        v[1] ^= 0xDD
        _rounds(v, 4)
        return first, v[0] ^ v[1] ^ v[2] ^ v[3]

    def many(self, keys: KeyBytes) -> tuple[Words, Words]:
        """See `Hashing.many`."""
        start = np.array(self._start(), dtype=np.uint64)
        first, second = (np.empty(len(keys), dtype=np.uint64) for _ in range(2))
        if _compiled(keys):
            from ccbps.filters import compiled_filters

            compiled_filters.siphash(keys.data, keys.offsets, start, first, second)
        else:
            for some, part in parts(keys):
                siphash_arrays(part, start, first[some], second[some])
        return first, second

    def identity(self) -> bytes:
        """See `Hashing.identity`."""
        return blake2b(self._key.fingerprint().encode(), digest_size=8, person=b"siphash").digest()

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


def _compiled(keys: KeyBytes) -> bool:
    return rows_compiled(len(keys), 4, "filters.compiled_filters")


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
