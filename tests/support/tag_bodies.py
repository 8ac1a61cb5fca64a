"""TagMatch as its broker sees it: bodies of messages, and the keys that fit tags."""

from __future__ import annotations

from typing import Any

import numpy as np

from ccbps.arrays import Bools, Bytes
from ccbps.ciphers.word_prf import NonceHash, to_blocks
from ccbps.matching import TagMatch
from tests.support.reusable_checks import BODY, sent


def bodies_of(matcher: TagMatch, records: Any, texts: Any) -> tuple[str, Bytes, Bytes]:
    """Return the public permutation's key, and bodies of events and of interests."""
    server = matcher.key_server()
    events, interests = sent(matcher, records, texts, server)
    permutation = server.broker_key().export_secret_data()["permutation"]
    return permutation, events[:, BODY], interests[:, BODY]


def hits_of(permutation: str, events: Bytes, interests: Bytes) -> Bools:
    """Return the keys that fit some tag of an event, from bodies, shape (events, keys)."""
    keys, nonces = to_blocks(interests.tobytes()), to_blocks(events[:, :16].tobytes())
    tags = np.ascontiguousarray(events[:, 16:]).view("<u8")
    values = NonceHash(bytes.fromhex(permutation)).all_pairs(keys, nonces)
    return np.stack([np.isin(row, mine) for row, mine in zip(values, tags, strict=True)])
