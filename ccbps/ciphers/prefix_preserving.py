"""Prefix-preserving encryption: two values share k leading bits exactly when their ciphertexts do.

    a'_i = a_i XOR f_(i-1)(a_1 ... a_(i-1))        i = 1 ... n

Every such cipher on n bits is a bit for each inner node of the binary tree of height n: whether
the node's children change places. `FlipTree` holds these bits themselves, `CryptoPAn` computes them
with AES-128 and, for IPv4 and IPv6 addresses, is the cipher of that name.

Convention: a batch of values is uint64 of shape (limbs, rows), most significant limb first, values
right-aligned. Inside, values are left-aligned 32-bit words of shape (rows, words).

Hazard: ciphertexts show the common prefix of every two values, so equality, frequency, and order up
to the flips; one known value gives the leading bits of all others. Table look-ups and NumPy do not
run in constant time. Sources: [Survey] Algorithms 2 and 3 (Li et al.); [XFAM02] for Crypto-PAn.
"""

from __future__ import annotations

import ipaddress
from abc import ABC, abstractmethod
from collections.abc import Sequence
from typing import Final, NoReturn

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import ArrayLike, NDArray

from ccbps.errors import KeyMismatchError, ParameterError, SerializationError, ShapeError

Codes = NDArray[np.uint64]
Words = NDArray[np.uint32]

BLOCK: Final = 16
MAX_BITS: Final = 128
TREE_BITS: Final = 20
TABLE_BITS: Final = 16
"""Leading bits that are looked up: 2^16 - 1 flips are computed once and take 128 kB, and as much
again for decryption."""
CHUNK: Final = 1 << 15
"""AES blocks enciphered in one go: half a megabyte, which stays in the cache."""


class PrefixPreservingCipher(ABC):
    """A permutation of n-bit values that keeps common prefixes; subclasses say what the f_i are.

    Attributes:
        bits: n, 1 to 128.
    """

    bits: int

    def __init__(self, bits: int) -> None:
        if not 1 <= bits <= MAX_BITS:
            raise ParameterError(f"bits must be 1 to {MAX_BITS}, got {bits}")
        self.bits = bits
        self._seen = 0
        self._table: Words | None = None
        self._inverse: Words | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.bits} bits>"

    def __reduce__(self) -> NoReturn:
        raise SerializationError(f"a {type(self).__name__} holds a key and must not be pickled")

    @abstractmethod
    def _flips(self, words: Words, start: int, stop: int) -> Words:
        """f_start ... f_(stop-1) of every row, each at its bit's place in its word; shape (rows,).

        Args:
            words: values of which the bits from `start` on need not be known for f_start, and so
                on: f_i may look at the first i bits only. Shape (rows, words).
            start, stop: positions within one word, 0 the most significant bit of the first.
        """

    def encrypt(self, codes: Codes) -> Codes:
        """Ciphertexts of a batch ([Survey] Algorithm 2).

        Args:
            codes: uint64, shape (limbs, rows) with one limb up to 64 bits and two above.

        Raises:
            ShapeError: another shape or dtype.
            ParameterError: a value has more than `bits` bits.
        """
        words = self._left_aligned(codes)
        self._count(len(words))
        out = words.copy()
        start = 0
        if self._table is not None:
            start = self._table_bits
            shift = np.uint32(32 - start)
            low = words[:, 0] & np.uint32((1 << (32 - start)) - 1)
            out[:, 0] = self._table[words[:, 0] >> shift] << shift | low
        while start < self.bits:
            stop = min(self.bits, (start // 32 + 1) * 32)
            out[:, start // 32] ^= self._flips(words, start, stop)
            start = stop
        return self._right_aligned(out)

    def decrypt(self, codes: Codes) -> Codes:
        """Values of a batch of ciphertexts ([Survey] Algorithm 3): one bit after the other.

        Raises:
            ShapeError, ParameterError: see `encrypt`.
        """
        words = self._left_aligned(codes)
        self._count(len(words))
        start = 0
        if self._inverse is not None:
            start = self._table_bits
            shift = np.uint32(32 - start)
            low = words[:, 0] & np.uint32((1 << (32 - start)) - 1)
            words[:, 0] = self._inverse[words[:, 0] >> shift] << shift | low
        for place in range(start, self.bits):
            # The bits before `place` are plaintext by now; f_place looks at no others.
            words[:, place // 32] ^= self._flips(words, place, place + 1)
        return self._right_aligned(words)

    # -- the table of the leading bits --------------------------------------------------------

    @property
    def _table_bits(self) -> int:
        return min(self.bits, TABLE_BITS)

    def _count(self, rows: int) -> None:
        """Make the table as soon as the rows asked for so far would have paid for it."""
        self._seen += rows
        bits = self._table_bits
        if self._table is not None or self._seen * bits < 1 << bits:
            return
        table = np.zeros(1, dtype=np.uint32)
        for place in range(bits):
            nodes = np.zeros((1 << place, self._words), dtype=np.uint32)
            nodes[:, 0] = np.arange(1 << place, dtype=np.uint32)
            nodes[:, 0] <<= np.uint32(32 - place) if place else np.uint32(0)
            flips = self._flips(nodes, place, place + 1) >> np.uint32(31 - place)
            children = table * np.uint32(2)
            table = np.stack([children | flips, children | (flips ^ np.uint32(1))], axis=1)
            table = table.reshape(-1)
        inverse = np.empty_like(table)
        inverse[table] = np.arange(1 << bits, dtype=np.uint32)
        self._inverse, self._table = inverse, table

    # -- between limbs and words --------------------------------------------------------------

    @property
    def _limbs(self) -> int:
        return -(-self.bits // 64)

    @property
    def _words(self) -> int:
        return -(-self.bits // 32)

    def _left_aligned(self, codes: Codes) -> Words:
        array = np.asarray(codes)
        if array.dtype != np.uint64 or array.ndim != 2 or len(array) != self._limbs:
            raise ShapeError(
                f"values of {self.bits} bits must be uint64 of shape ({self._limbs}, rows), "
                f"got {array.dtype} {array.shape}"
            )
        spare = np.uint64(64 * self._limbs - self.bits)
        if spare and (array[0] >> (np.uint64(64) - spare)).any():
            raise ParameterError(f"a value has more than {self.bits} bits")
        if self._words == 1:
            first = array[0] << np.uint64(32 - self.bits)
            return np.asarray(first.astype(np.uint32)[:, None])
        shifted = array << spare
        if spare and self._limbs == 2:
            shifted[0] |= array[1] >> (np.uint64(64) - spare)
        halves = np.stack([shifted >> np.uint64(32), shifted & np.uint64(0xFFFFFFFF)], axis=2)
        words = halves.transpose(1, 0, 2).reshape(array.shape[1], 2 * self._limbs)
        return np.ascontiguousarray(words[:, : self._words].astype(np.uint32))

    def _right_aligned(self, words: Words) -> Codes:
        if self._words == 1:
            return (words[:, 0] >> np.uint32(32 - self.bits)).astype(np.uint64)[None]
        padded = np.zeros((len(words), 2 * self._limbs), dtype=np.uint64)
        padded[:, : self._words] = words
        limbs = (padded[:, ::2] << np.uint64(32) | padded[:, 1::2]).T
        spare = np.uint64(64 * self._limbs - self.bits)
        out = limbs >> spare
        if spare and self._limbs == 2:
            out[1] |= limbs[0] << (np.uint64(64) - spare)
        return np.ascontiguousarray(out)


class FlipTree(PrefixPreservingCipher):
    """The cipher with these flips: any prefix-preserving permutation of up to 20 bits is one."""

    def __init__(self, flips: ArrayLike) -> None:
        """
        Args:
            flips: 2^n - 1 bits, level after level from the root, each level in the order of the
                plaintext prefixes; f_i of prefix p is number 2^i - 1 + p.

        Raises:
            ShapeError: the number of flips is not 2^n - 1 for n of 1 to 20.
        """
        table = np.asarray(flips, dtype=np.bool_)
        bits = (table.size + 1).bit_length() - 1
        if table.ndim != 1 or table.size + 1 != 1 << bits or not 1 <= bits <= TREE_BITS:
            raise ShapeError(
                f"flips must be 2^n - 1 bits for n of 1 to {TREE_BITS}, got shape {table.shape}"
            )
        super().__init__(bits)
        self._nodes = table.astype(np.uint32)

    def _flips(self, words: Words, start: int, stop: int) -> Words:
        out = np.zeros(len(words), dtype=np.uint32)
        for place in range(start, stop):
            prefix = words[:, 0].astype(np.uint64) >> np.uint64(32 - place)
            node = prefix.astype(np.intp) + ((1 << place) - 1)
            out |= self._nodes[node] << np.uint32(31 - place)
        return out


class CryptoPAn(PrefixPreservingCipher):
    """f_i is the first bit of AES-128 of a block: the value's first i bits, then a pad's bits.

    The pad is AES of the key's second half, the AES key its first. With 32 bits this is Crypto-PAn
    for IPv4 addresses, with 128 for IPv6; values of other widths take the leading bits of the block
    like addresses do. Ciphers of different widths under one key share flips: use a key for each.
    """

    def __init__(self, key: bytes, bits: int = 32) -> None:
        """
        Args:
            key: 32 bytes.
            bits: width of the values.

        Raises:
            KeyMismatchError: the key has another length.
        """
        if not isinstance(key, (bytes, bytearray)):
            raise KeyMismatchError(f"a Crypto-PAn key has 32 bytes, got {type(key).__name__}")
        if len(key) != 2 * BLOCK:
            raise KeyMismatchError(f"a Crypto-PAn key has 32 bytes, got {len(key)}")
        super().__init__(bits)
        self._cipher = Cipher(algorithms.AES(bytes(key[:BLOCK])), modes.ECB())
        pad = self._cipher.encryptor().update(bytes(key[BLOCK:]))
        self._pad = np.frombuffer(pad, dtype=np.uint32)
        self._places: dict[tuple[int, int], tuple[Words, Words, Words]] = {}

    def encrypt_addresses(self, addresses: Sequence[str]) -> list[str]:
        """Addresses as text, all of the cipher's version; see `encrypt` for arrays.

        Raises:
            ParameterError: the cipher does not have the width of addresses, or one of them does not
                fit.
        """
        if self.bits not in (32, MAX_BITS):
            raise ParameterError(f"addresses have 32 or 128 bits, this cipher {self.bits}")
        kind = ipaddress.IPv4Address if self.bits == 32 else ipaddress.IPv6Address
        values: list[bytes] = []
        for text in addresses:
            try:
                values.append(kind(text).packed)
            except ValueError:
                break
        if len(values) != len(addresses):
            raise ParameterError(f"row {len(values)}: not an address of {self.bits} bits")
        wire: NDArray[np.uint64]
        if self.bits == 32:
            wire = np.frombuffer(b"".join(values), dtype=">u4").astype(np.uint64)[None]
            return [str(kind(value)) for value in self.encrypt(wire)[0].tolist()]
        wire = np.frombuffer(b"".join(values), dtype=">u8").reshape(-1, 2).T.astype(np.uint64)
        high, low = self.encrypt(wire).tolist()
        return [str(kind(h << 64 | low)) for h, low in zip(high, low, strict=True)]

    def _masks(self, start: int, stop: int) -> tuple[Words, Words, Words]:
        """For each position: a mask of the prefix within its word, the pad's bits after it, and
        where the flip belongs; shape (positions, 1), the first two in the byte order of blocks."""
        places = self._places.get((start, stop))
        if places is None:
            left = [32 - i % 32 for i in range(start, stop)]
            keep = np.array([(-1 << free) & 0xFFFFFFFF for free in left], dtype=">u4")
            mask = keep.view(np.uint32)[:, None]
            shifts = np.array(left, dtype=np.uint32)[:, None] - np.uint32(1)
            places = (mask, self._pad[start // 32] & ~mask, shifts)
            self._places[start, stop] = places
        return places

    def _flips(self, words: Words, start: int, stop: int) -> Words:
        rows, places = len(words), stop - start
        column = start // 32
        mask, rest, shifts = self._masks(start, stop)
        wire = words.astype(">u4").view(np.uint32)
        step = max(1, CHUNK // places)
        blocks = np.empty((places, min(step, rows), 4), dtype=np.uint32)
        blocks[:, :, column + 1 :] = self._pad[column + 1 :]
        space = bytearray(blocks.nbytes + BLOCK)
        encryptor = self._cipher.encryptor()
        out = np.empty(rows, dtype=np.uint32)
        for low in range(0, rows, step):
            part = wire[low : low + step]
            if len(part) < blocks.shape[1]:
                blocks = np.ascontiguousarray(blocks[:, : len(part)])
            blocks[:, :, :column] = part[:, :column]
            blocks[:, :, column] = (part[:, column] & mask) | rest
            encryptor.update_into(blocks.data.cast("B"), space)
            first = np.frombuffer(space, dtype=np.uint8, count=blocks.nbytes)[::BLOCK]
            bits = (first >> np.uint8(7)).reshape(places, -1).astype(np.uint32)
            out[low : low + step] = np.bitwise_or.reduce(bits << shifts, axis=0)
        return out
