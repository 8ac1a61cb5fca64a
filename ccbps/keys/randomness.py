"""Shared one-time randomness: what sources of it hand out, and what ledgers keep of its use.

A *round* numbers one use of a pair's shared randomness: one event and one interest. A source
hands out a fixed number of bytes for each round, the same to both parties. A role's ledger ensures
that the role asks for each round only once (`ccbps.keys.used_rounds`, `ccbps.rounds.disk_ledger`).

Sources are `ccbps.SharedSeed`, `ccbps.EpochSeed` and `ccbps.SeedRing`, whose security is
computational, and `ccbps.OneTimePad`, whose security is perfect.
"""

from __future__ import annotations

from dataclasses import dataclass
from hashlib import blake2b
from typing import Final, Protocol, runtime_checkable

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bytes, Rounds
from ccbps.dictionary import DictionaryColumn

NAME_BYTES: Final = 16
TAG_BYTES: Final = 16

Pairs = DictionaryColumn[str]
"""A pair label for each row of a batch."""


@dataclass(frozen=True, slots=True)
class Marks:
    """What a ledger keeps of a batch of rounds.

    Attributes:
        names: of streams, bytes.
        index: each row's stream, shape (batch,); None where there is one.
        tags: uint8, shape (batch, 16): equal in the same stream and round where the content is.
        bound: False where tags say nothing of the content, so that no round passes twice.
    """

    names: list[bytes]
    index: NDArray[np.intp] | None
    tags: Bytes
    bound: bool = True


def name_of(purpose: bytes) -> bytes:
    """16 bytes that name a purpose."""
    return blake2b(purpose, digest_size=NAME_BYTES).digest()


class RandomnessReader(Protocol):
    """Hands out the randomness of a batch in order: rows start .. stop - 1, each once."""

    def __call__(self, start: int, stop: int) -> Bytes:
        """Shape (stop - start, width), uint8, rows contiguous; valid until the next call."""


@runtime_checkable
class RandomnessSource(Protocol):
    """What roles take as ``seed``: a `SharedSeed`, a `SeedRing` or a `OneTimePad`."""

    def reader(
        self, purpose: bytes, width: int, rounds: Rounds, pairs: Pairs | None
    ) -> RandomnessReader:
        """A reader of `width` bytes for each of the rounds, for one purpose.

        Args:
            purpose: what the bytes are for; different purposes never share bytes.
            width: bytes per round.
            rounds: uint64, shape (batch,).
            pairs: labels of the pairs the rows belong to, or None: the source is a pair's own.
        """

    def marks(self, purpose: bytes, rounds: Rounds, pairs: Pairs | None, content: Bytes) -> Marks:
        """What a ledger on disk keeps of the rounds: names and tags that tell nothing without
        the source.

        Args:
            purpose, rounds, pairs: as for `reader`; a purpose has content of one width.
            content: what each row encodes, uint8, shape (batch, width).
        """
