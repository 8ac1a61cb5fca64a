"""Prefix-preserving encryption: two values share k leading bits exactly when their ciphertexts do.

Bit by bit::

    a'_i = a_i XOR f_(i-1)(a_1 ... a_(i-1))        i = 1 ... n

Every such cipher on n bits is given by a bit for each inner node of the binary tree of height n: 1
if the node's children change places. `FlipTree` holds these bits themselves, `CryptoPAn` computes
them with AES-128 and, for IPv4 and IPv6 addresses, is the cipher of that name.

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
from typing import Final

import numpy as np
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from numpy.typing import ArrayLike, NDArray

from ccbps.checks import array, choice, whole
from ccbps.errors import KeyMismatchError, ParameterError, ShapeError
from ccbps.keys.secret import Confined

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


class PrefixPreservingCipher(Confined, ABC):
    """A permutation of n-bit values that keeps common prefixes. Subclasses define the f_i.

    Attributes:
        bits: bits of a value, n, 1 to 128.
    """

    def __init__(self, bits: int) -> None:
        self.bits = whole("bits", bits, 1, MAX_BITS)
        self._limbs, self._words = -(-bits // 64), -(-bits // 32)
        self._spare = np.uint64(64 * self._limbs - bits)
        self._table_bits = min(bits, TABLE_BITS)
        self._seen = 0
        self._tables: tuple[Words, Words] | None = None

    def __repr__(self) -> str:
        return f"<{type(self).__name__} of {self.bits} bits>"

    @abstractmethod
    def _flips(self, words: Words, start: int, stop: int) -> Words:
        """Return f_start ... f_(stop-1) of every row, each at its bit's place; shape (rows,).

        Args:
            words: values, shape (rows, words). Bits from `start` on may be unknown for f_start, and
                so on: f_i may look at the first i bits only.
            start: first position, 0 for the most significant bit of the first word.
            stop: position after the last one, in the same word.
        """

    def encrypt(self, codes: Codes) -> Codes:
        """Encrypt a batch of values ([Survey] Algorithm 2).

        Args:
            codes: values, shape (limbs, rows), with one limb up to 64 bits and two above.

        Raises:
            ShapeError: the array has another shape or dtype.
            ParameterError: a value has more than `bits` bits.
        """
        words = self._left_aligned(codes)
        out = words.copy()
        start = self._look_up(out, decrypt=False)
        while start < self.bits:
            stop = min(self.bits, (start // 32 + 1) * 32)
            out[:, start // 32] ^= self._flips(words, start, stop)
            start = stop
        return self._right_aligned(out)

    def decrypt(self, codes: Codes) -> Codes:
        """Decrypt a batch of ciphertexts ([Survey] Algorithm 3), one bit after the other.

        Raises:
            ShapeError: the array has another shape or dtype.
            ParameterError: a value has more than `bits` bits.
        """
        words = self._left_aligned(codes)
        for place in range(self._look_up(words, decrypt=True), self.bits):
            # The bits before `place` are plaintext by now; f_place looks at no others.
            words[:, place // 32] ^= self._flips(words, place, place + 1)
        return self._right_aligned(words)

    def _look_up(self, words: Words, *, decrypt: bool) -> int:
        """Replace the leading bits of words by table, if there is one; return their number.

        The table is made as soon as the rows so far would have paid for it.
        """
        bits = self._table_bits
        self._seen += len(words)
        if self._tables is None and self._seen * bits >= 1 << bits:
            self._tables = self._make_tables()
        if self._tables is None:
            return 0
        shift = np.uint32(32 - bits)
        low = words[:, 0] & np.uint32((1 << (32 - bits)) - 1)
        words[:, 0] = self._tables[decrypt][words[:, 0] >> shift] << shift | low
        return bits

    def _make_tables(self) -> tuple[Words, Words]:
        """Compute the leading bits of ciphertexts by those of values, and the inverse."""
        table = np.zeros(1, dtype=np.uint32)
        for place in range(self._table_bits):
            nodes = np.zeros((1 << place, self._words), dtype=np.uint32)
            nodes[:, 0] = np.arange(1 << place, dtype=np.uint32)
            nodes[:, 0] <<= np.uint32(32 - place) if place else np.uint32(0)
            flips = self._flips(nodes, place, place + 1) >> np.uint32(31 - place)
            children = table * np.uint32(2)
            table = np.stack([children | flips, children | (flips ^ np.uint32(1))], axis=1)
            table = table.reshape(-1)
        inverse = np.empty_like(table)
        inverse[table] = np.arange(len(table), dtype=np.uint32)
        return table, inverse

    def _left_aligned(self, codes: Codes) -> Words:
        limbs, spare = array("codes", codes, np.uint64, (self._limbs, "rows")), self._spare
        if spare and (limbs[0] >> (np.uint64(64) - spare)).any():
            raise ParameterError(f"a value has more than {self.bits} bits")
        shifted = limbs << spare
        if spare and self._limbs == 2:
            shifted[0] |= limbs[1] >> (np.uint64(64) - spare)
        words = np.ascontiguousarray(shifted.T, dtype=">u8").view(">u4")
        return np.ascontiguousarray(words[:, : self._words], dtype=np.uint32)

    def _right_aligned(self, words: Words) -> Codes:
        padded = np.zeros((len(words), 2 * self._limbs), dtype=">u4")
        padded[:, : self._words] = words
        limbs, spare = padded.view(">u8").T.astype(np.uint64), self._spare
        out = np.ascontiguousarray(limbs >> spare)
        if spare and self._limbs == 2:
            out[1] |= limbs[0] << (np.uint64(64) - spare)
        return out


class FlipTree(PrefixPreservingCipher):
    """The cipher with given flips: any prefix-preserving permutation of up to 20 bits is one.

    Args:
        flips: 2^n - 1 bits, level after level from the root, each level in the order of the
            plaintext prefixes; f_i of prefix p is number 2^i - 1 + p.

    Raises:
        ShapeError: the number of flips is not 2^n - 1 for n of 1 to 20.
    """

    def __init__(self, flips: ArrayLike) -> None:
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
    """The cipher whose f_i is the first bit of AES-128 of a value's first i bits and a pad's bits.

    The pad is AES of the key's second half, the AES key its first. With 32 bits this is Crypto-PAn
    for IPv4 addresses, with 128 for IPv6; values of other widths take the leading bits of the block
    like addresses do. Ciphers of different widths under one key share flips: use a key for each.

    Args:
        key: key of 32 bytes.
        bits: bits of a value.

    Raises:
        KeyMismatchError: the key has another length.
    """

    def __init__(self, key: bytes, bits: int = 32) -> None:
        if not isinstance(key, (bytes, bytearray)) or len(key) != 2 * BLOCK:
            got = len(key) if isinstance(key, (bytes, bytearray)) else type(key).__name__
            raise KeyMismatchError(f"a Crypto-PAn key has 32 bytes, got {got}")
        super().__init__(bits)
        self._cipher = Cipher(algorithms.AES(bytes(key[:BLOCK])), modes.ECB())
        pad = self._cipher.encryptor().update(bytes(key[BLOCK:]))
        self._pad = np.frombuffer(pad, dtype=np.uint32)
        self._places: dict[tuple[int, int], tuple[Words, Words, Words]] = {}

    def encrypt_addresses(self, addresses: Sequence[str]) -> list[str]:
        """Encrypt addresses given as text, all of the cipher's version; `encrypt` takes arrays.

        Raises:
            ParameterError: the cipher does not have the width of addresses, or one of them does not
                fit.
        """
        choice("bits", self.bits, (32, 128), hint="addresses have one of these widths")
        kind = ipaddress.IPv4Address if self.bits == 32 else ipaddress.IPv6Address
        values: list[bytes] = []
        for text in addresses:
            try:
                values.append(kind(text).packed)
            except ValueError:
                break
        if len(values) != len(addresses):
            raise ParameterError(f"row {len(values)}: not an address of {self.bits} bits")
        dtype = ">u4" if self.bits == 32 else ">u8"
        wire = np.frombuffer(b"".join(values), dtype=dtype).reshape(-1, self._limbs)
        out = self.encrypt(wire.T.astype(np.uint64)).T.astype(dtype)
        return [str(kind(row.tobytes())) for row in out]

    def _masks(self, start: int, stop: int) -> tuple[Words, Words, Words]:
        """Return three columns for positions, shape (positions, 1).

        They are a mask of the prefix within its word, the pad's bits after it (both in the byte
        order of blocks), and the shift to the flip's place.
        """
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
