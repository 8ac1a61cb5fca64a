"""Shared one-time randomness: the interface of its sources, and the marks that ledgers keep.

A *round* numbers one use of a pair's shared randomness: one event and one interest. A source
hands out a fixed number of bytes for each round, the same to both parties. A role's ledger ensures
that the role asks for each round only once (`ccbps.keys.used_rounds`, `ccbps.rounds.disk_ledger`).

Sources are `ccbps.SharedSeed`, `ccbps.EpochSeed` and `ccbps.SeedRing`, whose security is
computational, and `ccbps.OneTimePad`, whose security is perfect.
"""

from __future__ import annotations

from typing import Final, Protocol, runtime_checkable

import numpy as np
from msgspec import Struct
from numpy.typing import NDArray

from ccbps import primitives
from ccbps.arrays import Bytes, Rounds
from ccbps.dictionary import DictionaryColumn

NAME_BYTES: Final = 16
TAG_BYTES: Final = 16

Pairs = DictionaryColumn[str]
"""A pair label for each row of a batch."""


class Marks(Struct, frozen=True):
    """The data that a ledger keeps of a batch of rounds.

    Attributes:
        names: names of streams, 16 bytes each.
        index: stream of each row, shape (batch,); None where there is one.
        tags: tags of contents, shape (batch, 16): in one stream and round, equal contents have
            equal tags.
        bound: False where tags say nothing of the content; then no round may be used twice.
    """

    names: list[bytes]
    index: NDArray[np.intp] | None
    tags: Bytes
    bound: bool = True


def name_of(purpose: bytes) -> bytes:
    """Return 16 bytes that name a purpose."""
    return primitives.blake2b(purpose, digest_size=NAME_BYTES).digest()


class RandomnessReader(Protocol):
    """A reader of the randomness of a batch, in order, each row once."""

    def __call__(self, start: int, stop: int) -> Bytes:
        """Return rows start .. stop - 1, shape (stop - start, width), valid until the next call.

        Each row is contiguous.
        """


@runtime_checkable
class RandomnessSource(Protocol):
    """A source that roles take as ``seed``: a `SharedSeed`, a `SeedRing` or a `OneTimePad`."""

    def reader(
        self, purpose: bytes, width: int, rounds: Rounds, pairs: Pairs | None
    ) -> RandomnessReader:
        """Return a reader of `width` bytes for each of the rounds, for one purpose.

        Args:
            purpose: use of the bytes; different purposes never share bytes.
            width: bytes per round.
            rounds: round numbers, shape (batch,).
            pairs: labels of the rows' pairs, or None if the source is a pair's own.
        """

    def marks(self, purpose: bytes, rounds: Rounds, pairs: Pairs | None, content: Bytes) -> Marks:
        """Return names and tags for a ledger on disk, which tell nothing without the source.

        Args:
            purpose: use of the bytes, as for `reader`; all its content has one width.
            rounds: round numbers, shape (batch,).
            pairs: labels of the rows' pairs, as for `reader`.
            content: bytes that each row encodes, shape (batch, width).
        """
