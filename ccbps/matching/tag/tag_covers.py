"""Nodes of TagMatch: the prefixes that make up an interval, among decoys shared like them.

A prefix of n bits is in the covers of one in 2^n intervals `x < c`. If subscriptions held nothing
but the keys of their covers, the share of a key among them would show the prefix's length, and the
lengths are the digits of c: half of all subscriptions share the key of the first bit, and so on.

So a bound gives a key at *every* length, of a cover or not. The cover of x < c has, at length n,
the prefix c[:n-1] + "0" if bit n of c is 1. If it is 0, a decoy stands in its place, named by
c[:n] and known to no event. Either way the key stands for c[:n]: two bounds have it in common if,
and only if, they begin with the same n bits. Keys therefore show common prefixes of bounds, and
whichever way the tree of all codes is turned at any of its nodes, the same would be seen.
Likewise for x > c, with 0 and 1 exchanged; a prefix that ends in 0 is always from an upper bound.

An interval with two bounds c < x < d has these keys from the first bit on after the one in which c
and d part. Equality has one key, that of the whole code; no condition has that of the empty prefix.

NULL is code 0 of its attribute. Events that are NULL have tags for that code and for the empty
prefix only, so that `x < c` needs no second bound to leave NULL out. All others have one more tag.

Hazard: intervals with two bounds do show which way the tree is turned where their bounds part: the
upper one is on the side of 1. So does the end of a domain that is no power of two, or that bounds
fill: where nothing can be, nothing is.
"""

from __future__ import annotations

from typing import Final, TypeAlias

import numpy as np

from ccbps.arrays import Words
from ccbps.forms.prefixes import most_prefixes
from ccbps.predicates.codes import pack
from ccbps.predicates.types import AttributeType

Node: TypeAlias = tuple[int, int, int]
"""(what it is, a code, a length): the code's first bits, so many of them; the rest is zero."""

PREFIX: Final = 0
"""A prefix, which events with such codes have a tag for."""
DECOY_BELOW: Final = 1
"""What no event has a tag for; stands for the first bits of a lower bound."""
DECOY_ABOVE: Final = 2
"""The same of an upper bound."""
NOT_NULL: Final = 3
"""What all events but those that are NULL have a tag for. A node of length 0."""


def nodes_within(kind: AttributeType) -> int:
    """The most nodes that an interval of an attribute has."""
    # With NULL: the nodes of an upper bound, and NULL itself.
    return max(most_prefixes(kind.bits), kind.bits + 1 if kind.nullable and kind.bits > 1 else 0)


def nodes_of_events(bits: int, limbs: int, nullable: bool) -> tuple[Words, Words, Words]:
    """What nodes are, their lengths, and what each leaves of a code: (n,), (n,), (limbs, n)."""
    full = (1 << bits) - 1
    kept = [full >> (bits - length) << (bits - length) for length in range(bits + 1)]
    lengths = np.arange(bits + 1, dtype=np.uint64)
    what = np.full_like(lengths, PREFIX)
    if nullable:
        what, lengths, kept = np.append(what, NOT_NULL), np.append(lengths, 0), [*kept, 0]
    return what.astype(np.uint64), lengths.astype(np.uint64), pack(kept, limbs)


def nodes_of(low: int, high: int, kind: AttributeType) -> list[Node]:
    """The nodes of the codes low ... high, both inclusive, 0 <= low <= high < kind.size."""
    bits = kind.bits
    last = (1 << bits) - 1
    if low == high:
        return [(PREFIX, low, bits)]
    if high == kind.size - 1:
        high = last  # codes there are none of
    if (low, high) == (0, last):
        return [(PREFIX, 0, 0)]
    if kind.nullable and (low, high) == (1, last):
        return [(NOT_NULL, 0, 0)]
    found: list[Node] = []
    if kind.nullable and low == 0:
        found, low = [(PREFIX, 0, bits)], 1
    if kind.nullable and low == 1:
        low = 0  # the prefixes of NULL are in no event, see above
    below, above = low - 1, high + 1
    two = low > 0 and high < last
    shared = bits - (below ^ above).bit_length() + 1 if two else 0
    for length in range(shared + 1, bits + 1):
        place = bits - length
        if low > 0:
            found.append(_node(below >> place, place, length, 0))
        if high < last:
            found.append(_node(above >> place, place, length, 1))
    return found


def _node(first: int, place: int, length: int, wanted: int) -> Node:
    """What stands for the first bits of a bound: if the last of them is as `wanted`, the prefix
    with the other in its place, all of which is inside."""
    if first & 1 == wanted:
        return PREFIX, (first ^ 1) << place, length
    return (DECOY_ABOVE if wanted else DECOY_BELOW), first << place, length
