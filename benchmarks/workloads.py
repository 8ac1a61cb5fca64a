"""Common workloads of the benchmarks: schemas, events, predicates and roles."""

from __future__ import annotations

from typing import Any, NamedTuple

import numpy as np

from ccbps import Category, Schema, UInt
from ccbps.matching.contract.matcher import Matcher
from ccbps.predicates import Events

__all__ = ["SCHEMA", "Roles", "boxes", "numbers", "random_events", "roles_of"]

SCHEMA = Schema(a=UInt(16), b=UInt(16), c=UInt(20))
"""Schema of 52 bits, the same in all benchmarks of Spark."""


class Roles(NamedTuple):
    """Roles of a matcher with a key server."""

    publisher: Any
    subscriber: Any
    broker: Any


def roles_of(matcher: Matcher) -> Roles:
    """Return roles with keys of a new key server."""
    server = matcher.key_server()
    return Roles(
        matcher.publisher(server.publisher_key()),
        matcher.subscriber(server.subscriber_key("alice")),
        matcher.broker(server.broker_key()),
    )


def numbers(*widths: int) -> Schema:
    """Return a schema of unsigned attributes of some widths, in bits."""
    return Schema(**{f"a{i}": UInt(bits) for i, bits in enumerate(widths)})


def random_events(schema: Schema, count: int) -> Events:
    """Return uniform events; of wide attributes, with values below 2^63."""
    rng = np.random.default_rng(7)
    columns: dict[str, Any] = {}
    for name in schema:
        kind = schema[name]
        if isinstance(kind, Category):
            columns[name] = [kind.values[i] for i in rng.integers(0, len(kind.values), count)]
        else:
            columns[name] = rng.integers(0, 1 << min(63, kind.bits), count, dtype=np.uint64)
    return schema.encode(columns)


def boxes(schema: Schema, count: int) -> list[str]:
    """Return predicates, each of which constrains every attribute."""
    rng = np.random.default_rng(8)
    texts = []
    for _ in range(count):
        bounds = {
            n: sorted(rng.integers(0, 1 << min(62, schema[n].bits), 2).tolist()) for n in schema
        }
        texts.append(" AND ".join(f"{n} BETWEEN {a} AND {b}" for n, (a, b) in bounds.items()))
    return texts
