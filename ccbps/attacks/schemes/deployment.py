"""Small deployments to attack: keys that follow from a seed, and what one-time matchers show."""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np

from ccbps.arrays import Bools, Randomness
from ccbps.ciphers.row_mac import ROW_KEY_BYTES
from ccbps.keys.role_key import KEY_ID_BYTES, RoleKey
from ccbps.keys.seeds import SharedSeed
from ccbps.matching.contract.key_server import KeyServer
from ccbps.matching.one_time.formula import FormulaMatch
from ccbps.matching.reusable import ReusableMatcher
from ccbps.predicates import Schema


def seeded_server(matcher: ReusableMatcher, randomness: Randomness) -> KeyServer:
    """Make a key server whose master key is drawn from a source of randomness.

    Args:
        matcher: the matcher.
        randomness: source of the master key.
    """
    data = {**matcher.generate(randomness), "macs": randomness(ROW_KEY_BYTES).hex()}
    key_id = randomness(KEY_ID_BYTES)
    return matcher.key_server(RoleKey.make(matcher.digest, "server", key_id, 0, data))


def answers_of(schema: Schema, records: Mapping[str, Any], texts: Sequence[str]) -> Bools:
    """Return all that a broker of `FormulaMatch` learns, shape (subscriptions, events).

    Args:
        schema: the schema.
        records: columns of events.
        texts: subscriptions.
    """
    matcher, seed = FormulaMatch.box(schema), SharedSeed.generate()
    count = len(next(iter(records.values())))
    rounds = range(len(texts) * count)
    columns = {name: np.tile(column, len(texts)) for name, column in records.items()}
    events = matcher.publisher(seed).encode(columns, rounds)
    interests = matcher.subscriber(seed).encode(np.repeat(texts, count).tolist(), rounds)
    return matcher.broker().match(events, interests).reshape(len(texts), count)
