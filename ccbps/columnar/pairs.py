"""Answers row by row: an event and an interest in each."""

from __future__ import annotations

from functools import lru_cache

import pyarrow as pa

from ccbps.arrays import Bools, Bytes
from ccbps.arrow import binary_rows, is_valid
from ccbps.keys.role_key import RoleKey
from ccbps.keys.sources import KeySource, role_key
from ccbps.matching.broker import Broker
from ccbps.matching.matcher import Matcher
from ccbps.wire import Cause

__all__ = ["broker_of", "examine_rows"]


@lru_cache(maxsize=8)
def broker_of(matcher: Matcher, key: RoleKey | None) -> Broker:
    """This worker's broker."""
    return matcher.broker(key)


def examine_rows(
    matcher: Matcher, key: KeySource | None, events: pa.Array, interests: pa.Array
) -> tuple[Bools, Bools, Bytes]:
    """Answers, rows without NULL, and `Cause`s of a batch; a NULL row has no cause, and neither has
    a message of a user who was revoked, which matches nothing."""
    broker = broker_of(matcher, None if key is None else role_key(key))
    valid = is_valid(events, interests)
    event_rows, event_good = binary_rows(events, matcher.event_bytes)
    interest_rows, interest_good = binary_rows(interests, matcher.interest_bytes)
    answers, causes = broker.examine(event_rows, interest_rows)
    causes[~interest_good] = Cause.INTEREST_WIDTH
    causes[~event_good] = Cause.EVENT_WIDTH
    causes[~valid | (causes == Cause.USER)] = Cause.NONE
    return answers, valid, causes
