"""Base of one-time schemes whose messages an encoding makes and opens."""

from __future__ import annotations

from typing import Any

import numpy as np

from ccbps.arrays import Bools, Bytes
from ccbps.encodings.rows import PairEncoding
from ccbps.matching.contract.scheme import PairScheme, Sizes
from ccbps.wire import padding_causes


class EncodedScheme(PairScheme):
    """A one-time scheme whose bodies are the messages of an encoding.

    Attributes:
        encoding: the encoders and the decoder.
    """

    encoding: Any

    def _encoded_sizes(self, encoding: PairEncoding, pieces: int = 1) -> Sizes:
        """Keep the encoding, and return the sizes of its messages and of its randomness."""
        self.encoding = encoding
        sizes = encoding.event_bytes, encoding.interest_bytes, encoding.randomness_bytes
        return Sizes(*sizes, pieces)

    def match_pairs(self, events: Bytes, interests: Bytes) -> tuple[Bools, Bytes]:
        return self.match_behind(events, interests, np.empty((2, len(events), 0), dtype=np.uint8))

    def match_behind(self, events: Bytes, interests: Bytes, heads: Bytes) -> tuple[Bools, Bytes]:
        answers, stray = self.encoding.decode_with_heads(events, interests, heads)
        return answers, padding_causes(stray)
