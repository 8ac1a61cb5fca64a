"""Words of TagMatch: which ones an event has and an interval asks for, and F(k, word) of them.

A word is a prefix of one attribute, or a decoy (`ccbps.matching.tag.tag_covers`), joined with
the topic: which topic attributes are in use, and their codes. Its blocks are (number, head): the
topics in use, their codes, then the prefix. A head says what the block is and what is still to
come, so no word is the beginning of another.

Not protected: F(k, word) is the same whenever a word comes back; tags and nonces are
`ccbps.matching.tag.tag`'s.
"""

from __future__ import annotations

import json
from collections.abc import Iterator, Mapping, Sequence
from hashlib import shake_256
from itertools import compress, product
from typing import Final

import numpy as np

from ccbps.arrays import Index, Words
from ccbps.ciphers.word_prf import KEY_BYTES, WordKeys, to_blocks
from ccbps.matching.tag.tag_covers import PREFIX, Node, nodes_of, nodes_of_events, nodes_within
from ccbps.predicates import Schema
from ccbps.predicates.codes import pack

_TOPIC: Final = np.uint64(1 << 63)


def in_order(keys: Words) -> Words:
    """Keys (n, 2) in the order of their values, which is random."""
    return keys[np.argsort(keys[:, 0], kind="stable")]


class TagWords:
    """Which words there are for a schema.

    Attributes:
        topic: attributes that are compared as a whole, in the schema's order.
        others: attributes that have prefixes.
        order: places in `others`, those of few keys first, as most pairs end there; one place if
            all attributes are topics.
        sizes: keys of an interval of each attribute in this order.
        each: words that an event has, of one group.
    """

    def __init__(self, schema: Schema, topic: Sequence[str]) -> None:
        self._schema = schema
        self.topic = tuple(name for name in schema if name in topic)
        self.others = tuple(name for name in schema if name not in topic)
        levels = [schema[n].bits + 1 + schema[n].nullable for n in self.others] or [1]
        self.each = 2 ** min(len(self.topic), 20) * sum(levels)
        sizes = [nodes_within(schema[name]) for name in self.others] or [1]
        self.order = sorted(range(len(sizes)), key=lambda at: (sizes[at], at))
        self.sizes = [sizes[at] for at in self.order]

    def bits(self, at: int) -> int:
        """Of the attribute at this place in `others`."""
        return self._schema[self.others[at]].bits if self.others else 0

    def limbs(self, at: int) -> int:
        """Words of 64 bits that a code takes, of the attribute at this place in `others`."""
        return self._schema[self.others[at]].limbs if self.others else 1

    def _nullable(self, at: int) -> bool:
        return bool(self.others) and self._schema[self.others[at]].nullable

    def of_events(
        self, words: WordKeys, codes: Mapping[str, Words], count: int
    ) -> Iterator[tuple[Words, Index, list[slice]]]:
        """Keys of all words that events have, attribute by attribute.

        Args:
            words: F.
            codes: of each attribute, shape (limbs, events).
            count: of events.

        Yields:
            keys, (events, topics, words, 2); which events have not all of them, being NULL; and
            which words these do not have.
        """
        states = []
        for choice in product((False, True), repeat=len(self.topic)):
            used = sum(1 << place for place, one in enumerate(choice) if one)
            state = self._topics(
                words, used, [codes[name] for name in compress(self.topic, choice)]
            )
            states.append(np.broadcast_to(state, (count, 2)))
        topics = np.stack(states, axis=1)[:, :, None]  # (events, topics, 1, 2)
        for at in self.order:
            limbs = codes[self.others[at]] if self.others else np.zeros((1, count), np.uint64)
            bits, null = self.bits(at), np.empty(0, dtype=np.intp)
            what, lengths, masks = nodes_of_events(bits, len(limbs), self._nullable(at))
            cut = limbs[:, :, None, None] & masks[:, None, None]
            if self._nullable(at):
                null = np.flatnonzero(~limbs.any(axis=0))
            keys = self._nodes(words, topics, at, what, lengths, cut)
            # NULL has only two of its words: `ccbps.matching.tag.tag_covers`.
            yield keys, null, [slice(1, bits), slice(bits + 1, None)]

    def of_interval(
        self,
        words: WordKeys,
        filling: bytes,
        used: int,
        topics: Sequence[int],
        number: int,
        bounds: tuple[int, int],
    ) -> Words:
        """The keys of an interval, shape (sizes[number], 2), in the order of their values.

        Args:
            words: F.
            filling: secret, from which comes what fills the set up.
            used: a bit for each topic attribute that is asked for.
            topics: their codes.
            number: of the attribute, in `order`.
            bounds: the codes of the interval, ends included.
        """
        at, size = self.order[number], self.sizes[number]
        names = [name for place, name in enumerate(self.topic) if used >> place & 1]
        codes = [
            pack([code], self._schema[name].limbs) for code, name in zip(topics, names, strict=True)
        ]
        state = self._topics(words, used, codes)
        nodes: list[Node] = [(PREFIX, 0, 0)]
        if self.others:
            nodes = nodes_of(*bounds, self._schema[self.others[at]])
        what, firsts, lengths = zip(*nodes, strict=True)
        # What fills up depends on topic and interval alone: equal ones do not show what fills up.
        text = json.dumps([used, *map(str, [*topics, at, *bounds])]).encode()
        keys = to_blocks(shake_256(filling + text).digest(KEY_BYTES * size)).copy()
        keys[: len(nodes)] = self._nodes(
            words,
            state,
            at,
            np.array(what, dtype=np.uint64),
            np.array(lengths, dtype=np.uint64),
            pack(firsts, self.limbs(at)),
        )
        return in_order(keys)

    def _topics(self, words: WordKeys, used: int, codes: Sequence[Words]) -> Words:
        """States after the topic: `used` has a bit for each topic, `codes` of those; (n, 2)."""
        count = codes[0].shape[1] if codes else 1
        states = np.zeros((count, 2), dtype=np.uint64)
        if not self.topic:
            return states
        states = words.extend(states, np.array([used, _TOPIC], dtype=np.uint64))
        for number, limbs in enumerate(codes):
            for place, limb in enumerate(limbs):
                head = _TOPIC | np.uint64((number + 1) << 16 | place)
                states = words.extend(states, np.stack([limb, np.full_like(limb, head)], axis=1))
        return states

    def _nodes(
        self, words: WordKeys, states: Words, at: int, what: Words, lengths: Words, codes: Words
    ) -> Words:
        """Keys of nodes, (..., 2): states (..., 2), what and lengths (...), codes (limbs, ...)."""
        for place, limb in enumerate(codes):
            head = np.uint64((at + 1) << 32 | place) | lengths << np.uint64(16)
            blocks = np.stack(np.broadcast_arrays(limb, head | what << np.uint64(56)), axis=-1)
            states = words.extend(states, blocks)
        return states
