"""Topics of events and subscriptions: the values of some attributes together, as codes.

Matchers of equality compare them: one value for each attribute of the topic, and nothing about the
others. A topic is a row of limbs, uint64, the most significant limb of each attribute first.

*Meeting points*: clients and publishers that know nothing of one another find the node where a
topic's requests and events are compared, and the tag that they have there, from the topic and the
epoch alone (`meeting_points`). That node learns which requests and events have one topic in an
epoch, and forwards without learning for whom: requests may be return onions
(`ccbps.overlay.onion.universal_onion`).

Hazard: topics are plaintext. Without a key, whoever sees a tag tries topics until one has it.
Source of the meeting points: [Survey] section 4.2, on onions; the tags are this package's own.
"""

from __future__ import annotations

from collections.abc import Sequence
from typing import Final

import numpy as np

from ccbps import primitives
from ccbps.arrays import Words
from ccbps.checks import array, octets, whole
from ccbps.errors import ParameterError, UnsupportedPredicateError
from ccbps.predicates import Predicate, Schema
from ccbps.predicates.attributes import Events
from ccbps.predicates.codes import pack

TAG_BYTES: Final = 16
MOST_KEY: Final = 64
"""Longest key of the meeting points of topics."""


def chosen_names(schema: Schema, names: Sequence[str] | None) -> tuple[str, ...]:
    """Check a list of attributes; return them in the schema's order, or all for None.

    Raises:
        ParameterError: the names are not a list, empty, not in the schema, or repeated.
    """
    if names is None:
        return schema.names
    wanted, came = f"must name some of {', '.join(schema)}", f"each once, got {names!r}"
    if isinstance(names, str) or not isinstance(names, Sequence) or not names:
        raise ParameterError(f"attributes must be a list of names, which {wanted}, {came}")
    for name in names:
        if name not in schema.names:
            raise ParameterError(f"no attribute {name!r}: attributes {wanted}, {came}")
    if len(set(names)) < len(names):
        raise ParameterError(f"attributes must differ: they {wanted}, {came}")
    return tuple(name for name in schema if name in names)


def topic_attributes(schema: Schema, attributes: Sequence[str] | None) -> tuple[str, ...]:
    """Check the attributes that make a topic, as `chosen_names` does; a name stands for itself."""
    if isinstance(attributes, str):
        attributes = [attributes]
    return chosen_names(schema, None if attributes is None else tuple(attributes))


def topic_codes(events: Events, attributes: Sequence[str]) -> Words:
    """Return the topic of each event, shape (events, limbs)."""
    return np.concatenate([events.codes[name] for name in attributes]).T


def topic_of(predicate: Predicate, attributes: Sequence[str]) -> Words:
    """Return the topic that a predicate names, shape (limbs,).

    Raises:
        UnsupportedPredicateError: an attribute of the topic is left open, or another constrained.
    """
    schema, names = predicate.schema, ", ".join(attributes)
    codes = []
    for name, (low, high) in predicate.box().ranges.items():
        if name not in attributes:
            if (low, high) != (0, schema[name].size - 1):
                raise UnsupportedPredicateError(
                    f"{name!r} is not part of the topic ({names}): leave it out",
                    text=predicate.text,
                )
            continue
        if low != high:
            raise UnsupportedPredicateError(
                f"a topic has one value of {name!r}: use = on each of {names}", text=predicate.text
            )
        codes.append(pack([low], schema[name].limbs)[:, 0])
    return np.concatenate(codes)


def meeting_points(
    topics: Words, epoch: int, nodes: Sequence[str], *, key: bytes = b""
) -> list[tuple[str, bytes]]:
    """Return the node where each topic is compared in an epoch, and its tag there, 16 bytes.

    Equal topics have equal tags. Those of two epochs, or under two keys, have nothing in common.

    Args:
        topics: topics, shape (count, limbs).
        epoch: number of the epoch.
        nodes: names of the nodes, in an order that all agree on. Another number of them moves
            nearly all topics.
        key: up to 64 bytes that clients and publishers share and nodes lack, so that nodes cannot
            try topics; empty for none.

    Raises:
        ParameterError: there are no nodes, or the key is too long.

    Example:
        >>> from ccbps import Category, Schema
        >>> from ccbps.forms.topic import meeting_points, topic_codes
        >>> schema = Schema(issue=Category(["AAPL", "IBM"]))
        >>> events = schema.encode({"issue": ["IBM", "AAPL", "IBM"]})
        >>> (node, tag), other, same = meeting_points(
        ...     topic_codes(events, ["issue"]), 7, ["left", "right"], key=b"of the group"
        ... )
        >>> (node, tag) == same, tag == other[1]
        (True, False)
    """
    rows = array("topics", topics, np.uint64, ("topics", "limbs"))
    head = whole("epoch", epoch, 0, (1 << 63) - 1).to_bytes(8, "little")
    names = [*nodes]
    whole("the number of nodes", len(names), 1)
    if len(octets("key", key)) > MOST_KEY:
        raise ParameterError(f"key has at most {MOST_KEY} bytes, got {len(key)}: hash it")
    points = []
    for row in np.ascontiguousarray(rows, dtype="<u8"):
        data = b"ccbps meeting point\0" + head + row.tobytes()
        digest = primitives.blake2b(data, key=key, digest_size=48).digest()
        place = int.from_bytes(digest[TAG_BYTES:], "little") % len(names)
        points.append((names[place], digest[:TAG_BYTES]))
    return points
