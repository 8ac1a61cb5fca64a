"""TagMatch as its broker sees it: bodies of messages."""

from __future__ import annotations

from typing import Any

from ccbps.arrays import Bytes
from ccbps.matching import TagMatch
from tests.support.reusable_checks import BODY, sent


def bodies_of(matcher: TagMatch, records: Any, texts: Any) -> tuple[str, Bytes, Bytes]:
    """Return the public permutation's key, and bodies of events and of interests."""
    server = matcher.key_server()
    events, interests = sent(matcher, records, texts, server)
    permutation = server.broker_key().export_secret_data()["permutation"]
    return permutation, events[:, BODY], interests[:, BODY]
