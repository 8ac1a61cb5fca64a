"""Bases of one-time schemes whose messages an encoding makes and opens."""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

import numpy as np

from ccbps.arrays import Bools, Bytes, Words
from ccbps.dictionary import DictionaryColumn
from ccbps.encodings.rows import PairEncoding
from ccbps.leakage import LeakageCard
from ccbps.matching.contract.scheme import Cost, Draw, Operation, PairScheme, Sizes
from ccbps.matching.templates import TemplateMatcher
from ccbps.predicates import Schema
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


class TemplateScheme(TemplateMatcher, EncodedScheme):
    """Public side of a one-time scheme with a template or a box.

    Attributes:
        template: the public predicate, or None.
        encoding: the encoders and the decoder.
        size: number of nodes or AND gates.
    """

    _form: Any
    """Form of the template or the box, which writes the private bits of an interest."""

    def _use(self, schema: Schema, form: Any, encoding: PairEncoding) -> None:
        """Keep the form and the encoding. Call this at the end of the constructor."""
        self._form = form
        self._set_up(schema, self._encoded_sizes(encoding))

    @property
    def leakage(self) -> LeakageCard:
        return self._perfect(*self._hidden_part())

    @property
    def costs(self) -> tuple[Cost, ...]:
        counts = self.encoding.operations.items()
        return tuple(Cost(role, "pair", Operation.WORD, count) for role, count in counts)

    # -- interests and messages -------------------------------------------------------------------

    def _interest_row(self, form: Any) -> Words:
        """Return the private bits of a subscription, shape (1, words)."""
        row: Words = self._form.interest_row(form)
        return row

    def identify(self, prepared: Words) -> bytes:
        return prepared.tobytes()

    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[Words], draw: Draw, out: Bytes
    ) -> None:
        one = len(interests.values) == 1
        rows = interests.values[0] if one else np.concatenate(interests.values)
        index = None if one else interests.index
        self.encoding.encode_interest(rows, draw.rows, out, index=index)
