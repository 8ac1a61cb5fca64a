"""Allot rounds to events that have ids, from a ledger."""

from __future__ import annotations

from functools import lru_cache

import numpy as np
import pyarrow as pa

from ccbps.arrays import Bools, Bytes, Rounds
from ccbps.arrow import row_name, with_nulls
from ccbps.columnar.reasons import Batch, no_reasons, readable
from ccbps.errors import KeyMismatchError, RandomnessReuseError
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
    """Allot rounds to events; NULL where the id is NULL.

    Args:
        matcher: the public parameters.
        key: source of the publisher's master seed.
        ledger: ledger of the publisher's events.
        row: fields by position: the event's id, a string, and the schema's attributes.
        event: name of the column of ids, for errors.
        reject: whether to set aside events that cannot be encoded, or whose id was used for other
            content.

    Returns:
        int64; with `reject`, a struct of the round and the reason.

    Raises:
        EventError: a record does not fit the schema, and is not set aside; names its id.
        RandomnessReuseError: an id was used for other content. Nothing of the batch was allotted.
        KeyMismatchError: the key is no master seed.
        LedgerError: the ledger cannot be used, or has no round left.
    """
    columns, seed = row.flatten(), seeds(key)
    if not isinstance(seed, SharedSeed):
        raise KeyMismatchError(f"{key!r} holds several seeds; this needs the master of all pairs")
    batch = Batch(columns, 1, *readable([event], columns[:1], reject=reject))
    events = batch.encode(matcher.schema, [event], reject=reject)
    (ids,) = batch.public
    purpose, content = name_of(b"events of " + matcher.digest), event_content(events)

    def tags(rounds: Rounds) -> Bytes:
        return seed.marks(purpose, rounds, None, content).tags

    def refuse(other: Bools, rounds: Rounds) -> None:
        if not reject:
            where = row_name([event], [ids], int(np.argmax(other)))
            raise RandomnessReuseError(f"{where}: {OTHER_CONTENT}; number events once and for all")

    stream, tokens = _names(seed, purpose)
    names = tokens.many(ids)[:, :8].copy().view(np.int64)[:, 0]
    if isinstance(ledger, RemoteLedger):
        rounds, other = ledger.allot(seed.ledger_key(), stream, names, tags, refuse)
    else:
        rounds, other = ledger.allot(stream, names, tags, refuse)
    reasons = no_reasons(len(ids))
    reasons[other] = OTHER_CONTENT
    good = batch.set_aside(reasons)
    numbers = with_nulls(pa.array(rounds[good].astype(np.int64)), batch.valid)
    return batch.answer(numbers, "round", reject=reject)


@lru_cache(maxsize=8)
def _names(seed: SharedSeed, purpose: bytes) -> tuple[bytes, TopicTokens]:
    """Return the ledger's stream of a seed and matcher, and the maker of events' names."""
    stream = seed.naming_key(b"stream of " + purpose)
    return stream, TopicTokens(FilterKey(seed.naming_key(purpose)))
