"""Headers of events and interests: 8 bytes with rounds, 16 with a key server or sessions.

With a key server:

=====  =======  ================================================================
bytes  field    meaning
=====  =======  ================================================================
0      kind     `Kind`: 1 = event, 2 = interest
1      version  version of the message format: 1
2-7    matcher  first 6 bytes of the matcher's fingerprint (its public parameters)
8-15   key      6 bytes of the key's id and 2 of its epoch
=====  =======  ================================================================

With rounds:

=====  =======  ================================================================
bytes  field    meaning
=====  =======  ================================================================
0      kind     `Kind` in the low 4 bits; version of the format, 2, in the high 4
1-7    check    tag xor 7 bytes of the matcher's fingerprint: bytes 0-6 of it in an
                event or labels, bytes 7-13 in an interest or a message ahead
=====  =======  ================================================================

The tag T is 7 bytes of the pair's shared randomness for this round, the same on both sides. Let A
be the fingerprint's first 7 bytes and B the next 7. The broker adds the checks T ^ A and T ^ B: the
tag cancels, and A ^ B, which is public, must remain. The broker refuses the following messages, up
to a probability of 2^-56 each:

- messages of different pairs, rounds or seeds: their tags are independent, so the sum is uniform;
- two messages that were both made for another matcher: A' ^ B' remains;
- an event or an interest that was made for another matcher. The derivation of randomness from a
  seed depends on the fingerprint, so the two tags are unrelated. Bytes of a one-time pad do not
  depend on the matcher, and the tags may be equal; then A' ^ B or A ^ B' remains. (If only one side
  had the fingerprint, a message of the other side could be another matcher's. If both sides had A,
  both messages could be.)

Nothing secret depends on a tag. So each check alone is uniform, and the other one follows from it
and from the public fingerprint. They only tell the broker which messages belong together.

Labels and messages ahead (`ccbps.matching.one_time.deferred`) are two sides in the same way, of a
seed that only the publisher has.
"""

from __future__ import annotations

from enum import IntEnum, unique
from functools import lru_cache
from typing import Final, Self

import numpy as np
from numpy.typing import NDArray

from ccbps.arrays import Bytes
from ccbps.errors import DecodeError

KEY_HEADER_BYTES: Final = 16
"""Length of a header with a key server, and with sessions."""
ROUND_HEADER_BYTES: Final = 8
TAG_BYTES: Final = 7
VERSION: Final = 1
ROUND_VERSION: Final = 2
"""Version of messages of rounds. It is part of fingerprints, so that no two versions share a key
stream."""
SERVER_BYTES: Final = 2
"""Length of a server's name, the first bytes of a key's id. It stays when the key changes."""


@unique
class Kind(IntEnum):
    """Kind of a message, its first byte. No other module defines one.

    Events and interests have the headers above, labels and messages ahead that of rounds. The
    others have a byte for the kind and one for a version, followed by the formats of their modules,
    such as `ccbps.delivery.naive` and `ccbps.matching.session.layout`.
    """

    EVENT = 1
    INTEREST = 2
    PAYLOAD = 3
    """A sealed payload."""
    REQUEST = 4
    """A subscriber's request for a session."""
    SESSION = 5
    """A publisher's answer to a request."""
    SESSION_EVENT = 6
    """An event for the subscribers of sessions."""
    TABLE = 7
    """A saved table of interests: `ccbps.matching.contract.table`."""
    LABELS = 8
    """Labels of an event: `ccbps.matching.one_time.deferred`."""
    AHEAD = 9
    """A publisher's message that is written before the events and completed by labels."""
    SHARE = 10
    """A share of a secret: `ccbps.sharing.share`."""
    FRAGMENT = 11
    """A fragment of a secret on its way through brokers: `ccbps.overlay.splits.fragments`."""
    SEALED_FRAGMENT = 12
    """A fragment on its way to or from a simulated enclave: `ccbps.overlay.enclave.sessions`."""
    GROUP_EVENT = 13
    """An event for a group of subscribers: `ccbps.delivery.group_protocol`."""
    KEY_REQUEST = 14
    """A subscriber's request to the broker for a key of a group."""
    KEY_ANSWER = 15
    """The broker's answer to such a request."""
    SUBSCRIBE = 16
    """A subscription at a matching broker: `ccbps.broker.messages`."""
    PUBLISH = 17
    """A publication at a matching broker."""
    DELIVERY = 18
    """A delivery of a matching broker."""
    PAYLOADS = 19
    """Payloads that a publisher sealed for clients of a matching broker."""
    HELLOS = 20
    """Keys of a client for three brokers, at a matching broker."""
    GRANT = 21
    """A grant of an authority, for three brokers: `ccbps.shares.grants`."""
    GRANTS = 22
    """Grants on their way to a matching broker."""
    AUTHORITY = 23
    """The public key of an authority: `ccbps.functional.keys`."""
    FUNCTIONAL = 24
    """A message of functional encryption."""
    POLICY_PAYLOAD = 25
    """A payload sealed for a policy: `ccbps.delivery.policies`."""
    P3S = 26
    """A request to a server of P3S, or its reply: `ccbps.p3s.messages`."""
    TREE_EVENT = 27
    """A payload under a key of a tree: `ccbps.delivery.key_tree`."""
    ROUTABLE = 28
    """An event with routable and secret attributes: `ccbps.delivery.routable`."""
    CERTIFICATE = 29
    """A publisher's certificate: `ccbps.overlay.credentials.tree`."""
    CREDENTIAL_EVENT = 30
    """An event for holders of credentials: `ccbps.overlay.credentials.tree`."""
    CREDENTIAL_REQUEST = 31
    """A request to connect to a node that holds a credential."""
    ROUTING = 32
    """A message between brokers of a network: `ccbps.overlay.routing`."""
    POLICY = 33
    """A policy of access control: `ccbps.access.policy`."""
    NOTICE = 34
    """A policy as brokers see it: `ccbps.access.notice`."""
    PRESENTATION = 35
    """A token with the proof that its sender holds its key: `ccbps.access.tokens`."""
    PERMIT = 36
    """An authority's permit for a subscription: `ccbps.access.notice`."""
    DELEGATION = 37
    """A link of a chain of delegations: `ccbps.access.delegation`."""
    PROPOSAL = 38
    """An offer of an owner or a manager: `ccbps.access.negotiation`."""
    ENACTMENT = 39
    """A policy for a broker: `ccbps.broker.enforcement`."""
    DOMAIN = 40
    """A label, a hop policy or a message between domains: `ccbps.access`."""


@unique
class Cause(IntEnum):
    """Cause for refusing a message.

    Attributes:
        text: description of the cause.
    """

    text: str

    def __new__(cls, value: int, text: str = "") -> Self:
        cause = int.__new__(cls, value)
        cause._value_, cause.text = value, text
        return cause

    NONE = 0, ""
    EVENT_WIDTH = 1, "the event message has the wrong number of bytes"
    INTEREST_WIDTH = 2, "the interest message has the wrong number of bytes"
    EVENT_KIND = 3, "the event bytes are not an event message of this version"
    INTEREST_KIND = 4, "the interest bytes are not an interest message of this version"
    EVENT_MATCHER = 5, "the event message was made for another matcher"
    INTEREST_MATCHER = 6, "the interest message was made for another matcher"
    PAIRING = (
        7,
        "event and interest are of different matchers, pairs, rounds or seeds, or both were made "
        "for another matcher",
    )
    PADDING = 8, "unused bits at the end of a message are not zero"
    ELEMENT = 9, "a message holds bytes that are not elements of the group"
    PRODUCT = 10, "the product is neither alpha nor the identity: a message was altered"
    KEY = 11, "the message was made under another master key"
    EPOCH = 12, "the message was made in another key epoch"
    VALUE = 13, "the message holds a value that no message of this scheme has"
    USER = (
        14,
        "the message is from a user this broker does not serve: revoked, or with a key that "
        "was issued after the broker's, which broker.admit(server.broker_key()) takes in",
    )
    SEGMENT = 15, "a segment is from another message, or out of place: pieces were mixed up"
    ALTERED = 16, "the message was altered on its way, or made without a key of its side"
    LABELS_KIND = 17, "the bytes are not labels of this version"
    AHEAD_KIND = 18, "the bytes are not a message ahead of this version"
    LABELS = 19, "labels and message ahead are of different matchers, rounds or seeds"
    TWO_EVENTS = (
        20,
        "two different events have this round, which serves one: whoever published has used it "
        "twice, or a message was altered",
    )
    SWAPPED = 21, "event and interest are swapped: events come first"
    CLIENT = 22, "the message is from a client whose hello is missing, or is not for this broker"
    ABSENT = 23, "another of the three brokers lacks the message, or refuses it"
    SHARES = (
        24,
        "the message was shared wrongly: two brokers hold different shares, or an event has "
        "several values for one digit",
    )
    REPEATED = 25, "the message occurs more than once"
    GRANT_KIND = 26, "the bytes are not a grant of this version"
    GRANT_MATCHER = 27, "the grant was made for another matcher"
    UNGRANTED = 28, "the message is from a client that has no grant: the authority sends one first"


_PADDING: Final = np.uint8(Cause.PADDING)


def round_kind(kind: Kind) -> int:
    """Return the first byte of a round's message: its kind and version."""
    return kind | ROUND_VERSION << 4


@lru_cache(maxsize=256)
def _unmasked(kind: Kind, digest: bytes) -> Bytes:
    """Return the header of a round whose tag is zero, shape (ROUND_HEADER_BYTES,)."""
    start = TAG_BYTES if kind in (Kind.INTEREST, Kind.AHEAD) else 0
    first = bytes([round_kind(kind)])
    return np.frombuffer(first + digest[start : start + TAG_BYTES], dtype=np.uint8)


@lru_cache(maxsize=256)
def _pair(kinds: tuple[Kind, Kind], digest: bytes) -> tuple[Bytes, Bytes, Bytes]:
    """Return the headers of a pair whose tag is zero, and their sum."""
    event, interest = (_unmasked(kind, digest) for kind in kinds)
    return event, interest, event ^ interest


def write_round_headers(messages: Bytes, kind: Kind, digest: bytes, tags: Bytes) -> None:
    """Write the headers of messages of rounds.

    Args:
        messages: messages, shape (batch, bytes). The bytes behind the header stay unchanged.
        kind: kind of the messages.
        digest: digest of the matcher's parameters, 32 bytes.
        tags: tags of the rounds, shape (batch, TAG_BYTES).
    """
    if len(tags) == 1:  # Python's numbers take less time than calls of NumPy
        word = int.from_bytes(_unmasked(kind, digest).tobytes()) ^ int.from_bytes(tags.tobytes())
        messages[0, :ROUND_HEADER_BYTES] = np.frombuffer(word.to_bytes(ROUND_HEADER_BYTES), "u1")
        return
    # This uses words: single bytes of each row would take longer than all other steps together.
    heads = np.zeros((len(tags), ROUND_HEADER_BYTES), dtype=np.uint8)
    heads[:, 1:] = tags
    words = heads.view(np.uint64)
    words ^= _unmasked(kind, digest).view(np.uint64)
    messages[:, :ROUND_HEADER_BYTES] = heads


def round_tags(messages: Bytes, kind: Kind, digest: bytes) -> Bytes:
    """Read the tags that `write_round_headers` wrote, shape (batch, TAG_BYTES)."""
    return messages[:, 1:ROUND_HEADER_BYTES] ^ _unmasked(kind, digest)[1:]


_PAIR: Final = (Kind.EVENT, Kind.INTEREST)


def check_round_headers(
    events: Bytes, interests: Bytes, digest: bytes, kinds: tuple[Kind, Kind] = _PAIR
) -> Bytes:
    """Return the `Cause` for refusing each pair of messages, or 0; shape (batch,).

    Args:
        events: headers of the event messages, C-contiguous, shape (batch, ROUND_HEADER_BYTES).
        interests: headers of the interest messages, C-contiguous, of the same shape.
        digest: digest of the parameters of the broker's matcher, 32 bytes.
        kinds: kinds of these messages: events and interests, or labels and messages ahead.
    """
    event, interest, both = _pair(kinds, digest)
    causes = np.zeros(len(events), dtype=np.uint8)
    if len(events) == 1:  # Python's numbers take less time than calls of NumPy
        first, second = events.tobytes(), interests.tobytes()
        sum_of_both = int.from_bytes(first) ^ int.from_bytes(second)
        if first[0] == event[0] and sum_of_both == int.from_bytes(both.tobytes()):
            return causes
    sums = events ^ interests
    others = sums.view(np.uint64) != both.view(np.uint64)
    if not np.count_nonzero(others) and not np.count_nonzero(events[:, 0] != event[0]):
        return causes
    wrong = sums[:, 1:] != both[1:]
    causes[wrong.any(axis=1)] = Cause.PAIRING if kinds == _PAIR else Cause.LABELS
    causes[interests[:, 0] != interest[0]] = Cause[f"{kinds[1].name}_KIND"]
    causes[events[:, 0] != event[0]] = Cause[f"{kinds[0].name}_KIND"]
    if kinds == _PAIR:
        swapped = (events[:, 0] == interest[0]) & (interests[:, 0] == event[0])
        causes[swapped] = Cause.SWAPPED
    return causes


def rounds_of_two_events(heads: Bytes, events: Bytes) -> NDArray[np.bool_]:
    """Mark the rows whose round occurs with two different events, bool, shape (batch,).

    Args:
        heads: headers of the event messages, C-contiguous, shape (batch, ROUND_HEADER_BYTES).
        events: the messages, shape (batch, bytes).
    """
    rounds = heads.view("<u8")[:, 0]
    if len(rounds) < 2 or not events.strides[0]:
        return np.zeros(len(rounds), dtype=np.bool_)
    # Most often, an event's rows follow one another: only where rows differ is more to be done.
    words = np.ascontiguousarray(events).view("u1" if events.shape[1] % 8 else "<u8")
    flat, width = words.reshape(-1), words.shape[1]
    changed = (flat[width:] != flat[:-width]).reshape(-1, width)
    if not changed.any():
        return np.zeros(len(rounds), dtype=np.bool_)
    starts = np.flatnonzero(np.append(True, changed.any(axis=1)))
    distinct, first, place = np.unique(rounds[starts], return_index=True, return_inverse=True)
    if len(distinct) == len(starts):
        return np.zeros(len(rounds), dtype=np.bool_)
    other = (words[starts] != words[starts[first[place]]]).any(axis=1)
    return np.isin(rounds, rounds[starts[other]], kind="sort")


def key_header(kind: Kind, digest: bytes, key_id: bytes, epoch: int) -> Bytes:
    """Return the header of all messages of a key, with its id and epoch at the end.

    Args:
        kind: kind of the messages.
        digest: digest of the matcher's parameters, 32 bytes.
        key_id: identity of the key, 6 bytes.
        epoch: epoch of the key, below 2^16.
    """
    head = bytes([kind, VERSION]) + digest[:6] + key_id + epoch.to_bytes(2, "little")
    return np.frombuffer(head, dtype=np.uint8)


def check_key_headers(heads: Bytes, right: Bytes) -> Bytes:
    """Return the `Cause` for refusing each header, shape (count, 16), that is not the right one."""
    event = right[0] == Kind.EVENT
    causes = np.zeros(len(heads), dtype=np.uint8)
    other = heads != right
    if not other.any():
        return causes
    causes[other[:, 14:].any(axis=1)] = Cause.EPOCH
    # A server's next keys have new ids: a key of this server in another epoch is old or new.
    key = other[:, 8:14].any(axis=1)
    server = other[:, 8 : 8 + SERVER_BYTES].any(axis=1)
    causes[key & (server | (causes == Cause.NONE))] = Cause.KEY
    causes[other[:, 2:8].any(axis=1)] = Cause.EVENT_MATCHER if event else Cause.INTEREST_MATCHER
    causes[other[:, :2].any(axis=1)] = Cause.EVENT_KIND if event else Cause.INTEREST_KIND
    return causes


def padding_causes(stray: NDArray[np.bool_]) -> NDArray[np.uint8]:
    """Return the `Cause` for refusing each message with an unused bit that is set, or 0."""
    return stray.view(np.uint8) * _PADDING


def raise_for(causes: NDArray[np.uint8]) -> None:
    """Raise a `DecodeError` that names the refused rows, if there are any."""
    if not np.count_nonzero(causes):
        return
    rows = np.flatnonzero(causes)
    texts = tuple(Cause(c).text for c in causes[rows])
    more = f" (and {len(rows) - 1} more rows)" if len(rows) > 1 else ""
    raise DecodeError(f"row {rows[0]}: {texts[0]}{more}", rows=tuple(rows.tolist()), causes=texts)
