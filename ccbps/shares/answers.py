"""Answers that no broker learns: a matching subscriber gets the event's key, and others nothing.

The publisher shares a *payload key* K, 128 bits that are not all 0, together with its event. From
the answer m the brokers compute m K, and do not open it. Broker i has z_i, and the three add up to
m K; masks make any two of the z_i uniform. Each broker seals its z_i for the subscriber, under a
key that only the two of them have::

    sealed_i = z_i + F(key of subscriber and broker i; event's head, interest's head, attempt)

The subscriber opens the three and adds them up: the sum is 0 if the event does not match, and K if
it does. Nobody who passes the sealed shares on learns the answer.

An *attempt* is one evaluation of one event. Its name is 16 random bytes, which the brokers draw
when they have the events. A repeated evaluation has another name and other masks, and its sealed
answers do not combine with earlier ones. Two events of one batch never have the same name, even if
a client gives them the same head.

A broker that adds d to its z_i would turn "no match" into the key d, which it knows. So the
publisher makes a *commitment* H(head, K) public for each event. A sum other than 0 that does not
fit it is a fault, and not a match. A broker causes faults for events whether they match or not. But
a publisher whose commitments are wrong causes faults only where its events match. So a subscriber
whose faults are visible may reveal its answers to publishers.

F is AES-256 of the sum of two names: half a SHA-256 of the attempt's name and the event's head, and
the CBC-MAC of the interest's place under another key that the subscriber and broker share. Names of
attempts are random, and those of interests are known to nobody else, so nobody can make two sums
equal.

Hazards: a broker that flips m itself gives K to subscribers that do not match, or withholds it from
those that do. If only matching subscribers fetch a payload, fetching reveals the match.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from hashlib import sha256
from typing import Final

import numpy as np

from ccbps.arrays import Bools, Bytes
from ccbps.checks import Printable, array
from ccbps.errors import DecodeError, ParameterError
from ccbps.keys.plain_key import PARTIES
from ccbps.keys.stream import BLOCK, row_tags
from ccbps.shares.clients import CLIENT, HEAD_BYTES, PLACE, SharedKeys

PAYLOAD_KEY_BYTES: Final = 16
ATTEMPT_BYTES: Final = 16
COMMITMENT_BYTES: Final = 32
PAD_BLOCKS: Final = 1
"""AES blocks that seal a share, besides two per batch and interest."""
_PAIRS: Final = 1 << 16
"""Pairs whose pads are computed at a time."""


@dataclass(frozen=True, slots=True, repr=False)
class SealedAnswers(Printable):
    """One broker's part of the answers to a batch of events.

    Attributes:
        attempts: names of the evaluations, shape (events, 16); the same at all three brokers.
        shares: sealed shares, shape (events, lanes, 16).
    """

    attempts: Bytes
    shares: Bytes

    def __repr__(self) -> str:
        events, interests = self.shares.shape[:2]
        return f"<SealedAnswers: {events} events, {interests} interests>"


@dataclass(frozen=True, slots=True, repr=False)
class OpenedAnswers(Printable):
    """Answers as the subscriber reads them.

    Attributes:
        matched: True where an event matches an interest, bool (events, interests).
        keys: payload key of each event that matches, zeros for the others, shape
            (events, interests, 16).
    """

    matched: Bools
    keys: Bytes

    def __repr__(self) -> str:
        events, interests = self.matched.shape
        return f"<OpenedAnswers: {events} events, {interests} interests>"


def attempt_names(coin: bytes, count: int) -> Bytes:
    """Return names of the evaluations of a batch, shape (count, 16).

    Args:
        coin: random bytes that the brokers drew together for the batch.
        count: number of events.
    """
    hashed = (
        sha256(b"ccbps attempt\0" + row.to_bytes(8, "little") + coin).digest()
        for row in range(count)
    )
    names = b"".join(digest[:ATTEMPT_BYTES] for digest in hashed)
    return np.frombuffer(names, dtype=np.uint8).reshape(count, ATTEMPT_BYTES)


def commitments(heads: Bytes, keys: Bytes) -> Bytes:
    """Return the public commitments to payload keys, shape (count, 32).

    Args:
        heads: heads of events, shape (count, 52).
        keys: payload keys, shape (count, 16).
    """
    rows = zip(heads[:, :HEAD_BYTES], keys, strict=True)
    hashed = b"".join(
        sha256(b"ccbps commitment\0" + head.tobytes() + key.tobytes()).digest()
        for head, key in rows
    )
    return np.frombuffer(hashed, dtype=np.uint8).reshape(-1, COMMITMENT_BYTES)


def add_pads(
    party: int,
    clients: Mapping[bytes, SharedKeys],
    events: Bytes,
    interests: Bytes,
    attempts: Bytes,
    shares: Bytes,
) -> None:
    """Seal shares in place, or open them again.

    Args:
        party: number of the broker whose shares these are.
        clients: keys of subscribers by name. Shares for others become 0.
        events: heads of events, shape (events, 52).
        interests: heads of interests, shape (lanes, 52).
        attempts: names of the evaluations, shape (events, 16).
        shares: shares, shape (events, lanes, 16).
    """
    names = np.ascontiguousarray(interests[:, CLIENT]).view(f"V{CLIENT.stop - CLIENT.start}")
    distinct, owner = np.unique(names[:, 0], return_inverse=True)
    owner = owner.reshape(-1)
    held = [clients.get(bytes(name)) for name in distinct]
    known = np.array([keys is not None for keys in held], dtype=np.bool_)[owner]
    shares[:, ~known] = 0
    pairs = [keys.answer_keys(party) for keys in held if keys is not None]
    naming, sealing = [pair[0] for pair in pairs], [pair[1] for pair in pairs]
    numbers = np.cumsum([keys is not None for keys in held]) - 1
    order = np.flatnonzero(known)
    order = order[np.argsort(owner[order], kind="stable")]
    named = np.concatenate([attempts, events], axis=1)
    hashed = (sha256(b"ccbps answer\0" + row.tobytes()).digest() for row in named)
    labels = np.frombuffer(b"".join(half[:BLOCK] for half in hashed), dtype="<u8").reshape(-1, 2)
    words = shares.view("<u8")
    step = max(1, _PAIRS // max(1, len(events)))
    for start in range(0, len(order), step):
        lanes = order[start : start + step]
        index, rows = numbers[owner[lanes]], np.zeros((len(lanes), 2 * BLOCK), dtype=np.uint8)
        rows[:, : PLACE.stop - PLACE.start] = interests[lanes, PLACE]
        names = row_tags(naming, index, rows).view("<u8")
        blocks = (names[:, None] ^ labels).view(np.uint8).reshape(-1, BLOCK)
        pads = row_tags(sealing, np.repeat(index, len(events)), blocks).view("<u8")
        pads = pads.reshape(len(lanes), len(events), 2).transpose(1, 0, 2)
        if lanes[-1] - lanes[0] == len(lanes) - 1:
            words[:, lanes[0] : lanes[-1] + 1] ^= pads
        else:
            words[:, lanes] ^= pads


def opened_answers(
    keys: SharedKeys,
    events: Bytes,
    interests: Bytes,
    sealed: Sequence[SealedAnswers],
    promised: Bytes,
) -> OpenedAnswers:
    """Open the answers to a subscriber's interests.

    Args:
        keys: the subscriber's keys.
        events: heads of events, shape (events, 52).
        interests: heads of interests, shape (interests, 52).
        sealed: answers of brokers 0, 1 and 2.
        promised: commitments of the events, shape (events, 32).

    Raises:
        DecodeError: the answers are not of one attempt, or do not fit the commitments of the events
            at the places `rows`.
        ParameterError: there are not three answers.
        ShapeError: the arrays do not fit one another.
    """
    if len(sealed) != PARTIES:
        raise ParameterError(f"answers of three brokers are needed, got {len(sealed)}")
    shape = len(events), len(interests), PAYLOAD_KEY_BYTES
    for party, answers in enumerate(sealed):
        array(f"answers of broker {party}", answers.shares, np.uint8, shape)
    array("commitments", promised, np.uint8, (len(events), COMMITMENT_BYTES))
    for answers in sealed:
        array("attempts", answers.attempts, np.uint8, (len(events), ATTEMPT_BYTES))
    first, *others = (answers.attempts for answers in sealed)
    mixed = np.flatnonzero(np.logical_or.reduce([(first != names).any(axis=1) for names in others]))
    if len(mixed):
        raise DecodeError(
            f"event {mixed[0]}: the answers are of different attempts, and do not go together; "
            "take three of one attempt, which have the same name",
            rows=tuple(mixed.tolist()),
        )
    total = np.zeros(shape, dtype=np.uint8)
    for party, answers in enumerate(sealed):
        shares = answers.shares.copy()
        add_pads(party, {keys.client: keys}, events, interests, first, shares)
        total ^= shares
    matched: Bools = np.any(total, axis=2)
    rows, places = np.nonzero(matched)
    # An honest event has one key, however many interests it matches.
    named = np.concatenate(
        [rows.astype("<i8")[:, None].view(np.uint8), total[rows, places]], axis=1
    )
    distinct = np.unique(named, axis=0)
    event = np.ascontiguousarray(distinct[:, :8]).view("<i8")[:, 0]
    fits = (commitments(events[event], distinct[:, 8:]) == promised[event]).all(axis=1)
    faults = np.unique(event[~fits]).tolist()
    if faults:
        more = f" (and {len(faults) - 1} more events)" if len(faults) > 1 else ""
        raise DecodeError(
            f"event {faults[0]}: the answers do not fit its commitment{more}. They are of another "
            "event or interest, or a broker or the publisher does not follow the protocol. Let "
            "neither of them see that you noticed: it may happen where the event matches only",
            rows=tuple(faults),
        )
    return OpenedAnswers(matched, total)
