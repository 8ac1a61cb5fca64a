"""A scheme as short as the contract allows: equality of all attributes, by a keyed hash."""

from __future__ import annotations

import hmac
from collections.abc import Mapping
from typing import Any

import numpy as np

from ccbps import Schema
from ccbps.arrays import Bools, Bytes, Randomness
from ccbps.checks import fields
from ccbps.dictionary import DictionaryColumn
from ccbps.forms.topic import topic_codes, topic_of
from ccbps.keys.role_key import hex_bytes
from ccbps.leakage import LeakageCard
from ccbps.matching import Cost, Matcher, Operation
from ccbps.matching.contract.scheme import Draw, ServerScheme, Sizes, TableScheme
from ccbps.predicates import Events
from ccbps.predicates.bound import bound_predicate


class ToyMatch(Matcher, ServerScheme, TableScheme):
    """HMAC of all values; equal hashes match."""

    name = "toy"
    operators = ("=", "and")

    def __init__(self, schema: Schema) -> None:
        self._set_up(schema, Sizes(16, 16))

    def parameters(self) -> dict[str, Any]:
        return {}

    @property
    def leakage(self) -> LeakageCard:
        return LeakageCard(
            scheme="ToyMatch",
            adversary="the broker",
            hides=("values of which nothing is known",),
            protects=frozenset(),
            learns=("every match", "which messages are equal"),
            security="computational",
            assumption="HMAC-SHA256 is a pseudorandom function",
            reuse="reusable",
        )

    @property
    def costs(self) -> tuple[Cost, ...]:
        hashed = (Cost("publisher", "event", Operation.HASH_BLOCK, 2),)
        return (*hashed, Cost("subscriber", "interest", Operation.HASH_BLOCK, 2))

    def generate(self, randomness: Randomness) -> dict[str, Any]:
        return {"key": randomness(32).hex()}

    def issue(self, master: Any, role: Any, name: str, randomness: Any) -> dict[str, Any]:
        return {} if role == "broker" else dict(master)

    def check_key_data(self, role: Any, data: Mapping[str, Any]) -> None:
        for key in fields("key data", data, () if role == "broker" else ("key",)).values():
            hex_bytes(key, 32)

    def prepare(self, interest: Any) -> Any:
        return topic_of(bound_predicate(self.schema, interest), self.schema.names)

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        out[:] = hashed(key, topic_codes(events, self.schema.names))

    def encode_interests(
        self, key: Mapping[str, Any], interests: DictionaryColumn[Any], draw: Draw, out: Bytes
    ) -> None:
        out[:] = hashed(key, interests.values)[interests.index]

    def table(self, key: Mapping[str, Any], bodies: Bytes) -> Bytes:
        return bodies.copy()

    def match(self, key: Mapping[str, Any], events: Bytes, table: Bytes) -> Bools:
        return np.asarray((events[:, None] == table).all(axis=2))


def hashed(key: Mapping[str, Any], topics: Any) -> Bytes:
    """16 bytes for each row of codes."""
    secret = bytes.fromhex(key["key"])
    rows = [hmac.digest(secret, np.asarray(row).tobytes(), "sha256")[:16] for row in topics]
    return np.frombuffer(b"".join(rows), dtype=np.uint8).reshape(-1, 16)
