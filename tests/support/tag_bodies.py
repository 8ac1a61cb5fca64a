"""TagMatch as its broker sees it: bodies of messages."""

from __future__ import annotations

import os
from typing import Any

from ccbps.arrays import Bytes, Randomness
from ccbps.matching import TagMatch
from tests.support.reusable_checks import BODY, sent


def bodies_of(
    matcher: TagMatch, records: Any, texts: Any, randomness: Randomness = os.urandom
) -> tuple[str, Bytes, Bytes]:
    """Return the public permutation's key, and bodies of events and of interests."""
    server = matcher.key_server(randomness=randomness)
    events, interests = sent(matcher, records, texts, server, randomness)
    permutation = server.broker_key().export_secret_data()["permutation"]
    return permutation, events[:, BODY], interests[:, BODY]
