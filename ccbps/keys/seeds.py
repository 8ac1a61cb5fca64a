"""Seeds of 32 bytes, from which a pair's shared randomness follows (AES-256-CTR).

HKDF-SHA256 turns a seed into one AES-256 key for each purpose (a matcher's fingerprint) and pair
label. Round r reads blocks r*n .. r*n + n - 1 of the CTR key stream, where n is the number of
16-byte blocks that a round needs. So any round can be reached directly, and a run of consecutive
rounds costs one pass of the cipher. Security is computational.

`ccbps.keys.epochs` has seeds that step forward, `ccbps.keys.rings` the seeds of several pairs.

Hazard: Python cannot wipe memory. An erased seed is one that no object of this package holds.
Sources: RFC 5869 (HKDF), NIST SP 800-38A (CTR).
"""

from __future__ import annotations

import contextlib
import os
from collections.abc import Iterable
from typing import Final, Self

import numpy as np
from cryptography.hazmat.primitives.ciphers import algorithms
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.kdf.hkdf import HKDF
from numpy.typing import NDArray

from ccbps.arrays import Bytes, Rounds
from ccbps.errors import ParameterError
from ccbps.keys.plain_key import LedgerKey, PlainKey
from ccbps.keys.randomness import NAME_BYTES, Marks, Pairs, RandomnessReader
from ccbps.keys.secret import confined
from ccbps.keys.share_form import join_key, split_key
from ccbps.keys.stream import BLOCK, KeyStream, row_tags
from ccbps.sharing import Share

KEPT_PAIRS: Final = 1 << 16
"""Derived seeds of pairs that are kept at a time."""


class SharedSeed(PlainKey):
    """A 32-byte seed that a publisher and a subscriber share.

    A publisher with many subscribers keeps one master seed and gives subscriber "alice" the seed
    ``master.pair("alice")``. No subscriber can derive another's.

    Example:
        >>> from ccbps import SharedSeed
        >>> master = SharedSeed.generate()
        >>> text = master.to_text()                      # for a key file that nobody else may read
        >>> text[:13], len(text)
        ('ccbps-seed-3:', 93)
        >>> SharedSeed.from_text(text) == master
        True
        >>> master.pair("alice") == master.pair("bob")   # each subscriber gets its own
        False
    """

    kind = "seed"
    length = 32
    text_kind = "seed"
    __slots__ = ("_ciphers", "_marking", "_pairs")

    def __init__(self, secret: bytes) -> None:
        super().__init__(secret)
        # Keys derived before: HKDF takes longer than a message.
        self._pairs: dict[str, SharedSeed] = {}
        self._ciphers: dict[bytes, algorithms.AES256] = {}
        self._marking: dict[bytes, tuple[bytes, algorithms.AES256]] = {}

    @classmethod
    def generate(cls) -> Self:
        """Draw a seed from the operating system."""
        return cls(os.urandom(32))

    @confined
    def to_shares(self, k: int, n: int) -> list[Share]:
        """Split the secret into n shares: any k give it back, and fewer say nothing about it.

        Shares bring a seed to a counterpart through parties of whom fewer than k work together.
        Each one carries ``share.to_bytes()``. A share is 60 bytes.

        Raises:
            ParameterError: not ``1 <= k <= n <= 255``.

        Example:
            >>> from ccbps import SharedSeed
            >>> from ccbps.sharing import Share
            >>> seed = SharedSeed.generate()
            >>> sent = [share.to_bytes() for share in seed.to_shares(3, 5)]
            >>> came = [Share.from_bytes(message) for message in (sent[4], sent[0], sent[2])]
            >>> SharedSeed.from_shares(came) == seed
            True
        """
        return split_key(self.text_kind, self._to_bytes(), k, n)

    @classmethod
    @confined
    def from_shares(cls, shares: Iterable[Share]) -> Self:
        """Recover the seed that `to_shares` split.

        A seed carries a check, so nobody who altered fewer than k shares can make this return
        another one. If k of the shares are as they were made, the others may be altered, doubled or
        of other secrets.

        Args:
            shares: k shares or more, in any order.

        Raises:
            DecodeError: the shares do not give a seed of this class back: too few came, or too many
                were altered; or so many came, of which so many were altered, that 10,000 choices of
                k did not find the seed.
            ParameterError: one of them is not a share.
        """
        return cls._from_bytes(join_key(cls.text_kind, shares))

    def pair(self, label: str) -> SharedSeed:
        """Return the seed shared with one counterpart.

        Raises:
            ParameterError: the label is not a string that UTF-8 can hold.
        """
        seed = self._pairs.get(label)
        if seed is None:
            seed = SharedSeed(self._derive(b"pair", check_label(label)))
            if len(self._pairs) >= KEPT_PAIRS:
                self._pairs.clear()
            self._pairs[label] = seed
        return seed

    def reader(
        self, purpose: bytes, width: int, rounds: Rounds, pairs: Pairs | None = None
    ) -> RandomnessReader:
        return reader_of(*self._seeds_of(pairs), purpose, width, rounds)

    def marks(self, purpose: bytes, rounds: Rounds, pairs: Pairs | None, content: Bytes) -> Marks:
        return marks_of(*self._seeds_of(pairs), purpose, rounds, content)

    def naming_key(self, purpose: bytes) -> bytes:
        """Return 16 secret bytes for names in a file that others may read."""
        return self._derive(b"names", purpose, NAME_BYTES)

    def ledger_key(self) -> LedgerKey:
        """Return the key under which this publisher's workers know a `LedgerServer`.

        An `EpochSeed` has another one in each epoch.
        """
        return LedgerKey(self._derive(b"ledger server", b"", LedgerKey.length))

    def _seeds_of(self, pairs: Pairs | None) -> tuple[list[SharedSeed], NDArray[np.intp] | None]:
        """Return the seeds that rows use, and the index of each row's."""
        if pairs is None:
            return [self], None
        pairs = pairs.used()
        return [self._counterpart(label) for label in pairs.values], pairs.index

    def _counterpart(self, label: str) -> SharedSeed:
        return self.pair(label)

    def _cipher(self, purpose: bytes) -> algorithms.AES256:
        if purpose not in self._ciphers:
            self._ciphers[purpose] = algorithms.AES256(self._derive(b"stream", purpose))
        return self._ciphers[purpose]

    def _mark(self, purpose: bytes) -> tuple[bytes, algorithms.AES256]:
        """Return the name of this seed's stream in a ledger, 16 bytes, and the key of its tags."""
        if purpose not in self._marking:
            derived = self._derive(b"ledger", purpose, 32 + NAME_BYTES)
            self._marking[purpose] = derived[32:], algorithms.AES256(derived[:32])
        return self._marking[purpose]

    def _derive(self, use: bytes, info: bytes, length: int = 32) -> bytes:
        context = b"ccbps 1 " + use + b"\0" + len(info).to_bytes(8, "big") + info
        return HKDF(SHA256(), length, salt=None, info=context).derive(self._secret)


def reader_of(
    seeds: list[SharedSeed],
    index: NDArray[np.intp] | None,
    purpose: bytes,
    width: int,
    rounds: Rounds,
) -> RandomnessReader:
    """Make a `RandomnessSource.reader` whose row i uses seeds[index[i]], or the only seed."""
    return KeyStream([seed._cipher(purpose) for seed in seeds], index, rounds, width)


def marks_of(
    seeds: list[SharedSeed],
    index: NDArray[np.intp] | None,
    purpose: bytes,
    rounds: Rounds,
    content: Bytes,
) -> Marks:
    """Compute `RandomnessSource.marks` where row i uses seeds[index[i]], or the only seed."""
    # The round is tagged, too, so that equal contents of two rounds have different tags.
    rows = np.zeros((len(rounds), -(-(8 + content.shape[1]) // BLOCK) * BLOCK), dtype=np.uint8)
    rows[:, :8] = rounds.astype(">u8").view(np.uint8).reshape(-1, 8)
    rows[:, 8 : 8 + content.shape[1]] = content
    marking = [seed._mark(purpose) for seed in seeds]
    tags = row_tags([cipher for _, cipher in marking], index, rows)
    return Marks([name for name, _ in marking], index, tags)


def check_label(label: str) -> bytes:
    """Return a pair label as UTF-8.

    Raises:
        ParameterError: the label is not a string that UTF-8 can hold.
    """
    if isinstance(label, str):
        with contextlib.suppress(UnicodeEncodeError):
            return label.encode()
    raise ParameterError(f"a pair label must be a string that UTF-8 can hold, got {label!r}")


def as_labels(labels: Iterable[str]) -> Iterable[str]:
    """Return labels of pairs, and refuse a single string with a ParameterError."""
    if isinstance(labels, str):
        raise ParameterError(f"labels must be a list, got one string; write [{labels!r}]")
    return labels
