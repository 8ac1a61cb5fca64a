"""Rounds for events that have ids, from a ledger."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa

from ccbps.arrays import Bools, Bytes, Rounds
from ccbps.arrow import chosen, row_name
from ccbps.columnar.reasons import (
    examine_events,
    named,
    no_reasons,
    readable,
    usable,
    with_reasons,
)
from ccbps.errors import EventError, KeyMismatchError, RandomnessReuseError
from ccbps.filters.tokens import TopicTokens
from ccbps.keys.plain_key import FilterKey
from ccbps.keys.randomness import name_of
from ccbps.keys.seeds import SharedSeed
from ccbps.keys.sources import KeySource, seeds
from ccbps.matching.contract.matcher import Matcher
from ccbps.matching.contract.roles import event_content
from ccbps.rounds.event_ledger import EventLedger
from ccbps.rounds.remote_ledger import RemoteLedger

OTHER_CONTENT = "its id was used for an event with other content"


def allotted_rounds(
    matcher: Matcher,
    key: KeySource,
    ledger: EventLedger | RemoteLedger,
    row: pa.StructArray,
    event: str,
    *,
    reject: bool = False,
) -> pa.Array:
    """Allot rounds to events; NULL where the id is.

    Args:
        key: holds the publisher's master seed.
        row: fields by position: the event's id, a string, and the schema's attributes.
        event: name of the column of ids, for errors.
        reject: set aside what cannot be encoded, or has other content than its id had before.

    Returns:
        int64; with `reject`, a struct of the round and why there is none.

    Raises:
        EventError: a record does not fit the schema, and is not set aside; names its id.
        RandomnessReuseError: an id was used for other content. Nothing of the batch was allotted.
        KeyMismatchError: the key is no master seed.
        LedgerError: see `EventLedger.allot`.
    """
    columns = row.flatten()
    valid, why = readable([event], columns[:1], reject=reject)
    ids, *values = chosen(valid, *columns)
    records = pa.RecordBatch.from_arrays(values, names=list(matcher.schema))
    seed, reasons = seeds(key), no_reasons(len(records))
    if not isinstance(seed, SharedSeed):
        raise KeyMismatchError(f"{key!r} holds several seeds; this needs the master of all pairs")
    try:
        events = matcher.schema.encode(records)
    except EventError as error:
        if not reject:
            raise named(error, [event], [ids]) from None
        events, reasons = examine_events(matcher.schema, records)
    good = usable(reasons)
    (used,) = chosen(good, ids)
    purpose, content = name_of(b"events of " + matcher.fingerprint), event_content(events)

    def tags(rounds: Rounds) -> Bytes:
        return seed.marks(purpose, rounds, None, content).tags

    def refuse(other: Bools, rounds: Rounds) -> None:
        if not reject:
            first = int(np.argmax(other))
            where = row_name([event], [used], first)
            raise RandomnessReuseError(f"{where}: {OTHER_CONTENT}; number events once and for all")

    stream, naming = _names(seed, purpose)
    names = naming.many(used)[:, :8].copy().view(np.int64)[:, 0]
    if isinstance(ledger, RemoteLedger):
        found, other = ledger.allot(seed.ledger_key(), stream, names, tags, refuse)
    else:
        found, other = ledger.allot(stream, names, tags, refuse)
    reasons[np.flatnonzero(good)[other]] = OTHER_CONTENT
    rounds = np.zeros(len(valid), dtype=np.int64)
    rounds[np.flatnonzero(valid)[good]] = found.astype(np.int64)
    there = valid.copy()
    there[valid] = usable(reasons)
    numbers = pa.array(rounds, mask=~there)
    why[valid] = reasons
    return with_reasons(numbers, why if reject else None, "round")


@lru_cache(maxsize=8)
def _names(seed: SharedSeed, purpose: bytes) -> tuple[bytes, TopicTokens]:
    """Return the stream of the seed's and matcher's events in a ledger, and what names events."""
    stream = seed.naming_key(b"stream of " + purpose)
    return stream, TopicTokens(FilterKey(seed.naming_key(purpose)))
