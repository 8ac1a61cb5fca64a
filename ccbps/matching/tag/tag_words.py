"""Words of TagMatch: those of an event and of an interval, and the key F(k, word) of each.

**Nodes.** A prefix of n bits is in the covers of one in 2^n intervals `x < c`. If subscriptions
held the keys of their covers alone, the share of a key among them would show the prefix's length,
and the lengths are the digits of c: half of all subscriptions share the key of the first bit, and
so on.

So a bound has a node, hence a key, at *every* length, whether a cover has a prefix of that length
or not. The cover of x < c has, at length n, the prefix c[:n-1] + "0" if bit n of c is 1. If it is
0, a *decoy* stands in its place: a node that is named by c[:n] and that no event has. Either way
the key stands for c[:n], so two bounds share it if, and only if, they begin with the same n bits.
Keys therefore show common prefixes of bounds. If the two children of any node in the tree of all
codes are swapped, the broker's view stays the same. For x > c the roles of 0 and 1 are exchanged; a
prefix that ends in 0 is always from an upper bound.

An interval with two bounds c < x < d has these nodes for all bits after the first one in which c
and d differ. Equality has one node, the whole code. "No condition" has the empty prefix.

NULL is code 0 of its attribute. Events that are NULL have tags for that code and for the empty
prefix only, so that `x < c` needs no second bound to leave NULL out. All others have one more tag.

**Words.** A word is a node of one attribute, joined with the topic: the topic attributes in use,
and their codes. Its blocks are (number, head): the topics in use, their codes, then the node. A
head tells the kind of its block and the blocks still to come, so no word is the beginning of
another.

Hazard: intervals with two bounds show the order of the two children of the node at which their
bounds part: the upper bound is on the side of 1. So does the end of a domain that is no power of
two, or that bounds fill, as no key is beyond it.
Not protected: F(k, word) is the same whenever a word comes back. `ccbps.matching.tag.tag` makes
tags of it with nonces.
"""

from __future__ import annotations

from collections.abc import Iterator, Mapping, Sequence
from hashlib import shake_256
from itertools import compress, product
from typing import Final, NamedTuple, TypeAlias

import numpy as np

from ccbps.arrays import Index, Words
from ccbps.ciphers.word_prf import KEY_BYTES, WordKeys, to_blocks
from ccbps.forms.prefixes import most_prefixes
from ccbps.predicates import Schema
from ccbps.predicates.codes import pack
from ccbps.predicates.types import AttributeType

Node: TypeAlias = tuple[int, int, int]
"""(tag, code, length): the first `length` bits of a code, with zeros after them."""

PREFIX: Final = 0
"""Tag of a prefix. Events with such codes have it."""
DECOY_BELOW: Final = 1
"""Tag of a decoy that stands for the first bits of a lower bound. No event has it."""
DECOY_ABOVE: Final = 2
"""Tag of a decoy that stands for the first bits of an upper bound. No event has it."""
NOT_NULL: Final = 3
"""Tag of a node of length 0 that all events have but those that are NULL."""

Topic: TypeAlias = tuple[int, tuple[int, ...]]
"""One bit for each topic attribute, set if an interest names its value; the codes of these."""
Interval: TypeAlias = tuple[Topic, tuple[int, int]]
"""A topic, and the codes of an interval, ends included."""

_TOPIC: Final = np.uint64(1 << 63)


class _NoAttribute(NamedTuple):
    """An attribute type of one value, in the place of attributes where all are topics."""

    bits: int = 0
    limbs: int = 1
    size: int = 1
    nullable: bool = False


Kind: TypeAlias = AttributeType | _NoAttribute


def nodes_within(kind: Kind) -> int:
    """Return the most nodes that an interval of an attribute has."""
    # With NULL: the nodes of an upper bound, and NULL itself.
    return max(most_prefixes(kind.bits), kind.bits + 1 if kind.nullable and kind.bits > 1 else 0)


def nodes_of(low: int, high: int, kind: Kind) -> list[Node]:
    """Return the nodes of the codes low ... high, ends included, 0 <= low <= high < kind.size."""
    bits = kind.bits
    last = (1 << bits) - 1
    if low == high:
        return [(PREFIX, low, bits)]
    if high == kind.size - 1:
        high = last  # No event has a code above the greatest.
    if (low, high) == (0, last):
        return [(PREFIX, 0, 0)]
    if kind.nullable and (low, high) == (1, last):
        return [(NOT_NULL, 0, 0)]
    nodes: list[Node] = []
    if kind.nullable and low == 0:
        nodes, low = [(PREFIX, 0, bits)], 1
    if kind.nullable and low == 1:
        low = 0  # Events that are NULL have no tag for a proper prefix.
    below, above = low - 1, high + 1
    has_both = low > 0 and high < last
    shared = bits - (below ^ above).bit_length() + 1 if has_both else 0
    for length in range(shared + 1, bits + 1):
        shift = bits - length
        if low > 0:
            nodes.append(_bound_node(below >> shift, shift, length, 0))
        if high < last:
            nodes.append(_bound_node(above >> shift, shift, length, 1))
    return nodes


def _bound_node(first: int, shift: int, length: int, inner: int) -> Node:
    """Return the node for the first bits of a bound.

    If the last of these bits is `inner`, all codes with the other bit in its place are inside of
    the interval, and the node is their prefix. Otherwise it is a decoy.
    """
    if first & 1 == inner:
        return PREFIX, (first ^ 1) << shift, length
    return (DECOY_ABOVE if inner else DECOY_BELOW), first << shift, length


def in_order(keys: Words) -> Words:
    """Return sets of keys, shape (..., n, 2), each in the order of its values, which is random."""
    order = keys[..., :1].argsort(axis=-2, kind="stable")
    return np.take_along_axis(keys, order, axis=-2)


class TagWords:
    """The words of a schema.

    Attributes:
        topic: attributes that are compared as a whole, in the schema's order.
        others: attributes that have prefixes; one without a name if all attributes are topics.
        kinds: types of `others`.
        order: places in `others`, those of few keys first, as most pairs end there.
        sizes: number of keys of an interval, for each attribute in this order.
        each: number of words of an event, for one group.
    """

    def __init__(self, schema: Schema, topic: Sequence[str]) -> None:
        self._schema = schema
        self.topic = tuple(name for name in schema if name in topic)
        self.others = tuple(name for name in schema if name not in topic) or ("",)
        self.kinds: tuple[Kind, ...] = tuple(
            schema[name] if name else _NoAttribute() for name in self.others
        )
        levels = sum(kind.bits + 1 + kind.nullable for kind in self.kinds)
        self.each = 2 ** min(len(self.topic), 20) * levels
        sizes = [nodes_within(kind) for kind in self.kinds]
        self.order = sorted(range(len(sizes)), key=lambda place: (sizes[place], place))
        self.sizes = [sizes[place] for place in self.order]

    def of_events(
        self, words: WordKeys, codes: Mapping[str, Words], count: int
    ) -> Iterator[tuple[Words, Index, list[slice]]]:
        """Yield the keys of all words that events have, attribute by attribute.

        Args:
            words: the function F.
            codes: codes of each attribute, shape (limbs, events).
            count: number of events.

        Yields:
            keys, (events, topics, words, 2); the events that are NULL; and the words that those
            do not have.
        """
        states = []
        for choice in product((False, True), repeat=len(self.topic)):
            used = sum(1 << place for place, chosen in enumerate(choice) if chosen)
            topic = [codes[name] for name in compress(self.topic, choice)]
            states.append(np.broadcast_to(self._topics(words, used, topic), (count, 2)))
        topics = np.stack(states, axis=1)[:, :, None]  # (events, topics, 1, 2)
        nothing = np.zeros((1, count), np.uint64)
        for place in self.order:
            kind, limbs = self.kinds[place], codes.get(self.others[place], nothing)
            bits, null = kind.bits, np.empty(0, dtype=np.intp)
            kept = [(1 << bits) - (1 << bits - length) for length in range(bits + 1)]
            tags, lengths = [PREFIX] * (bits + 1), [*range(bits + 1)]
            if kind.nullable:
                tags, lengths, kept = [*tags, NOT_NULL], [*lengths, 0], [*kept, 0]
                null = np.flatnonzero(~limbs.any(axis=0))
            cut = limbs[:, :, None, None] & pack(kept, len(limbs))[:, None, None]
            keys = self._nodes(words, topics, place, tags, lengths, cut)
            # NULL has the empty prefix and the whole code alone.
            yield keys, null, [slice(1, bits), slice(bits + 1, None)]

    def of_intervals(
        self,
        words: WordKeys,
        states: Mapping[Topic, Words],
        filling: bytes,
        number: int,
        intervals: Sequence[Interval],
    ) -> Words:
        """Return the keys of intervals of an attribute, each set in the order of its values.

        Args:
            words: the function F.
            states: states after the topics of the intervals, from `states_of`.
            filling: secret from which the keys come that fill the sets up.
            number: place of the attribute in `order`.
            intervals: the intervals, different ones.

        Returns:
            keys, shape (intervals, sizes[number], 2).
        """
        place, size = self.order[number], self.sizes[number]
        kind, filled, nodes = self.kinds[place], [], list[Node]()
        rows: list[int] = []  # of the keys of the nodes, and of their states
        owners: list[int] = []
        for owner, ((used, topics), bounds) in enumerate(intervals):
            own = nodes_of(*bounds, kind)
            nodes += own
            rows += range(owner * size, owner * size + len(own))
            owners += [owner] * len(own)
            # It depends on topic and interval alone, so equal ones do not show which it is.
            text = '", "'.join(map(str, [*topics, place, *bounds]))
            told = filling + f'[{used}, "{text}"]'.encode()
            filled.append(shake_256(told).digest(KEY_BYTES * size))
        keys = to_blocks(b"".join(filled)).copy()
        tags, firsts, lengths = zip(*nodes, strict=True)
        after = np.array([states[topic] for topic, _ in intervals])
        keys[rows] = self._nodes(
            words, after[owners], place, tags, lengths, pack(firsts, kind.limbs)
        )
        return in_order(keys.reshape(-1, size, 2))

    def states_of(self, words: WordKeys, topics: Sequence[Topic]) -> dict[Topic, Words]:
        """Return the states after topics, shape (2,), by topic."""
        some: dict[int, dict[tuple[int, ...], None]] = {}
        for used, codes in topics:
            some.setdefault(used, {})[codes] = None
        states: dict[Topic, Words] = {}
        for used, distinct in some.items():
            names = [name for bit, name in enumerate(self.topic) if used >> bit & 1]
            columns = [
                pack(column, self._schema[name].limbs)
                for column, name in zip(zip(*distinct, strict=True), names, strict=True)
            ]
            after = self._topics(words, used, columns)
            states |= {(used, codes): state for codes, state in zip(distinct, after, strict=True)}
        return states

    def _topics(self, words: WordKeys, used: int, codes: Sequence[Words]) -> Words:
        """Return the states after the topic, shape (n, 2).

        Args:
            words: the function F.
            used: one bit for each topic attribute, set if it is part of the words.
            codes: codes of these attributes, each of shape (limbs, n).
        """
        count = codes[0].shape[1] if codes else 1
        states = np.zeros((count, 2), dtype=np.uint64)
        if not self.topic:
            return states
        states = words.extend(states, np.array([used, _TOPIC], dtype=np.uint64))
        for number, limbs in enumerate(codes):
            for place, limb in enumerate(limbs):
                head = _TOPIC | np.uint64((number + 1) << 16 | place)
                states = words.extend_halves(states, limb, np.asarray(head))
        return states

    def _nodes(
        self,
        words: WordKeys,
        states: Words,
        place: int,
        tags: Sequence[int],
        lengths: Sequence[int],
        codes: Words,
    ) -> Words:
        """Return the keys of nodes, shape (..., n, 2).

        Args:
            words: the function F.
            states: states after the topic, shape (..., 2).
            place: the attribute's place in `others`.
            tags: tags of the n nodes.
            lengths: lengths of the nodes, bits.
            codes: codes of the nodes, shape (limbs, ..., n).
        """
        kinds = np.array(lengths, np.uint64) << np.uint64(16)
        kinds |= np.array(tags, np.uint64) << np.uint64(56)
        for number, limb in enumerate(codes):
            head = kinds | np.uint64((place + 1) << 32 | number)
            states = words.extend_halves(states, limb, head)
        return states
