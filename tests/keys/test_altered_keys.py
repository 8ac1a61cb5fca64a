"""Keys and states whose content was altered, with checks that were computed again.

A check in a key guards against accidents, and uses no secret. Whoever alters a key computes it.
"""

from __future__ import annotations

import random
from collections.abc import Iterator
from typing import Any

import msgspec
import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers.aead import AESGCM

from ccbps import Schema, SharedSeed, UInt
from ccbps.delivery import (
    BrokerState,
    ClusteredCache,
    ClusteredPopularCache,
    Clusters,
    GroupOpener,
    GroupSealer,
    Naive,
    SimpleCache,
    SubscriberRing,
    pack_groups,
)
from ccbps.delivery.group_opener import derive
from ccbps.delivery.key_tree import KeyTree, RangeKey, TreeKey
from ccbps.errors import CcbpsError, ParameterError
from ccbps.functional import Authority, CpAbe, UserKey
from ccbps.keys import EpochSeed, SeedRing, from_text
from ccbps.keys.delivery_keys import SubscriberKey
from ccbps.keys.plain_key import ClientKey, ExchangeKey, FilterKey, OperatorKey, SigningKey
from ccbps.keys.text_form import KINDS, read_key, write_key
from ccbps.matching import KeywordFilterMatch, TagMatch
from ccbps.matching.broken import AspeMatch
from ccbps.shares.clients import BrokerKey
from ccbps.testing.key_checks import altered, shown_by
from tests.support.effort import examples
from tests.support.refusals import refused

N = 8
GROUPS = pack_groups(np.random.default_rng(1).random((30, N)) < 0.4)


ABOVE: dict[str, Any] = {
    kind.text_kind: kind for kind in (Authority, BrokerKey, RangeKey, TreeKey, UserKey)
}
"""Keys of rooms above that of keys, which `from_text` does not know."""


def every_key() -> dict[str, str]:
    """A text of each kind of key."""
    sealer, server = GroupSealer(Naive(3)), TagMatch(Schema(a=UInt(4))).key_server()
    own = [sealer.join(number) for number in range(3)]
    with pytest.warns(match="is broken"):
        update = AspeMatch(Schema(a=UInt(4))).key_server().rotate()
    stepped = EpochSeed(bytes(range(32)))
    stepped.pair("alice")
    seed = SharedSeed.generate()
    authority = Authority.generate(CpAbe(Schema(a=UInt(4)), pairing="transparent"))
    tree_key = TreeKey.generate()
    keys: list[Any] = [
        seed, stepped, SeedRing({"alice": seed, "bob": SharedSeed.generate()}),
        server.key, server.publisher_key(), server.subscriber_key("alice"), server.broker_key(),
        update, FilterKey.generate(), seed.ledger_key(), SigningKey.generate(),
        own[0], SubscriberRing.of(own), sealer.state,
        ClientKey.generate([bytes([n] * 32) for n in range(3)]), OperatorKey.generate(),
        BrokerKey.generate(), ExchangeKey.generate(), authority, authority.key({"a": 5}, epoch=1),
        tree_key, KeyTree(Schema(a=UInt(4)), "t").subscriber_key(tree_key, "a > 2", epoch=3),
    ]  # fmt: skip
    return {read_key(key.to_text())[0]: key.to_text() for key in keys}


def changed(content: bytes, count: int) -> Iterator[bytes]:
    """Yield bytes cut off, with other bytes, and, where they are a record, with other fields."""
    draw = random.Random(2)
    yield from (content[:end] for end in {*range(min(24, len(content))), len(content) - 1})
    yield from (content + b"\0", content * 2, b"\x90", b"\x80", b"\xc0")
    for _ in range(count):
        other = bytearray(content)
        for _ in range(draw.choice((1, 2, 5))):
            other[draw.randrange(len(other))] = draw.randrange(256)
        yield bytes(other)
    try:
        fields = msgspec.msgpack.decode(content)
    except ValueError:
        return
    for record in altered({"fields": fields}, count):
        if isinstance(record, dict) and "fields" in record:
            yield msgspec.msgpack.encode(record["fields"])


def used(key: Any) -> None:
    """Let a key do what it can."""
    read = ABOVE[key.text_kind].from_text if getattr(key, "text_kind", "") in ABOVE else from_text
    assert repr(key) and read(key.to_text()) is not None
    if isinstance(key, BrokerState):
        GroupSealer(Naive(3), key).seal(b"IBM", 1, pack_groups(np.ones(3, dtype=np.bool_)))
    elif isinstance(key, SubscriberKey):
        assert key.number >= 0 and GroupOpener(key, capacity=3)
    elif isinstance(key, SharedSeed | SeedRing):
        key.reader(bytes(32), 16, np.arange(2, dtype=np.uint64), None)(0, 2)


def test_every_kind_of_key_is_altered_here() -> None:
    assert every_key().keys() == KINDS.keys()


@pytest.mark.parametrize("kind", KINDS)
def test_altered_keys_are_refused_or_other_keys(kind: str) -> None:
    _, content = read_key(every_key()[kind])
    for other in changed(content, examples(300)):
        try:
            read = ABOVE[kind].from_text if kind in ABOVE else from_text
            used(read(write_key(kind, other)))
        except CcbpsError as error:
            shown = shown_by(error)
            secrets = [other[at : at + 8] for at in range(0, len(other) - 8, 8)]
            secrets = [part for part in secrets if not part.isalpha()]  # names of fields
            assert not any(s.hex() in shown or repr(s)[2:-1] in shown for s in secrets)


CLUSTERS = Clusters([range(4), range(4, N)])
STRATEGIES = {
    "none": lambda: Naive(N),
    "simple": lambda: SimpleCache(N, 10),
    "clustered": lambda: ClusteredCache(CLUSTERS, 10),
    "popular": lambda: ClusteredPopularCache(CLUSTERS, 10, 10),
}


@pytest.mark.parametrize("name", STRATEGIES)
def test_altered_memories_of_sealers_are_refused_or_others(name: str) -> None:
    sealer = GroupSealer(STRATEGIES[name]())
    for number in range(N):
        sealer.join(number)
    for event, group in enumerate(GROUPS):
        sealer.seal(b"IBM", event, group)
    whole = sealer.snapshot()[16:]  # Behind the tag; 16 bytes, the strategy's tag and its memory.
    contents = [whole[:end] for end in range(40)]
    inner = sealer.strategy._snapshot()
    if inner:
        parts = (sealer.strategy._tag(other) + other for other in changed(inner, examples(200)))
        contents += [whole[:16] + part for part in parts]
    for content in contents:
        after = GroupSealer(STRATEGIES[name](), sealer.state)
        try:
            after.restore(after._tag(content) + content)
        except CcbpsError:
            continue
        after.seal(b"IBM", 100, GROUPS[0])
        assert after.snapshot()


def test_altered_memories_of_openers_are_refused_or_others() -> None:
    sealer = GroupSealer(SimpleCache(N, 10))
    keys = [sealer.join(number) for number in range(N)]
    opener = GroupOpener(keys[0], capacity=10)
    events = [sealer.seal(b"IBM", number, group) for number, group in enumerate(GROUPS)]
    sent = [event.to_bytes() for event, group in zip(events, GROUPS, strict=True) if group[0] & 1]
    for message in sent[:8]:
        opener.open(message)
    snapshot, cipher = opener.snapshot(), AESGCM(derive(opener._own, b"snapshot"))
    content = cipher.decrypt(snapshot[:12], snapshot[12:], None)
    for other in changed(content, examples(300)):
        after = GroupOpener(keys[0], capacity=10)
        try:
            after.restore(snapshot[:12] + cipher.encrypt(snapshot[:12], other, None))
            assert after.snapshot()
            for message in sent[8:]:
                after.open(message)
        except CcbpsError:
            continue


@pytest.mark.parametrize("given", [[4, []], [[4, 1]], [4], 4, "41", {4: 1}, [4, None], [None, 1]])
def test_partitions_of_any_form_are_refused_clearly(given: Any) -> None:
    schema = Schema(volume=UInt(8))
    refused(ParameterError, "'volume'", KeywordFilterMatch, schema, partitions={"volume": given})


def test_a_state_is_told_from_other_bytes() -> None:
    refused(ParameterError, "state must be a BrokerState, got bytes", GroupSealer, Naive(2), b"ab")
    refused(ParameterError, "subscribers must be a whole number", BrokerState.new, "2")
