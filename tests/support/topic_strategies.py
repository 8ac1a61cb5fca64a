"""Subscriptions that name one value of some attributes, for matchers of equality."""

from __future__ import annotations

from collections.abc import Sequence
from typing import Any

from hypothesis import strategies as st

from ccbps.ciphers.signatures import SIGNATURE_BYTES
from ccbps.matching import ObliviousTopicMatch
from ccbps.matching.session.roles import ObliviousPublisher, ObliviousSubscriber
from ccbps.predicates import Schema
from tests.support.strategies import Const, Node, record, render, rows, schemas


def equalities(schema: Schema, row: dict[str, Any], attributes: Sequence[str]) -> str:
    """The predicate that a drawn row meets, and no row with other values of `attributes`."""
    leaves = [
        Node("null", name, detail=False)
        if row[name] is None
        else Node("compare", name, (Const(row[name]),), detail=("=", False))
        for name in attributes
    ]
    return render(schema, Node("and", parts=tuple(leaves)), sqlite=False)


def introduce(publisher: ObliviousPublisher, *subscribers: ObliviousSubscriber) -> None:
    """Publisher and subscribers have each other's identities."""
    for subscriber in subscribers:
        publisher.admit(subscriber.identity)
        subscriber.trust(publisher.identity)


def acquainted(
    matcher: ObliviousTopicMatch, topics: Sequence[str], subscribers: int = 1
) -> tuple[Any, ...]:
    """Make a publisher of some topics, and subscribers that it admits and that trust it."""
    publisher = matcher.new_publisher(topics)
    roles = [matcher.new_subscriber() for _ in range(subscribers)]
    introduce(publisher, *roles)
    return publisher, *roles


def sign(role: ObliviousPublisher | ObliviousSubscriber, message: Any, digest: bytes = b"") -> None:
    """Sign one message again, as its owner could who does not follow the protocol.

    Args:
        message: changed; a request, or a session if there is the digest of its request.
    """
    covered = role._layout.session(message, digest) if digest else role._layout.request(message)
    message[-SIGNATURE_BYTES:] = list(role._signing.sign(covered))


@st.composite
def topics_and_records(
    draw: st.DrawFn, kinds: Any = None
) -> tuple[Schema, tuple[str, ...], list[str], list[dict[str, Any]]]:
    """A schema, the attributes of the topic, subscriptions and records, some of them equal."""
    schema = draw(schemas(kinds))
    attributes = draw(st.lists(st.sampled_from(schema.names), min_size=1, unique=True))
    chosen = tuple(name for name in schema if name in attributes)
    some = draw(rows(schema).filter(bool))
    asked = draw(st.lists(st.sampled_from(some), min_size=1, max_size=4))
    sent = draw(st.lists(st.sampled_from(some), max_size=6)) + draw(rows(schema, max_size=3))
    texts = [equalities(schema, row, chosen) for row in asked]
    return schema, chosen, texts, [record(row) for row in sent]
