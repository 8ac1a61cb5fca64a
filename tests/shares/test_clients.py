"""Clients' shares: brokers expand them to what was shared, and to noise for all who cheat."""

from __future__ import annotations

import pickle

import numpy as np
import pytest

from ccbps.arrays import Bytes
from ccbps.errors import DecodeError, ParameterError, SerializationError
from ccbps.forms.branching import box_form
from ccbps.forms.digits import FormulaDigits
from ccbps.predicates import Schema, UInt
from ccbps.shares.clients import HEAD_BYTES, BrokerKey, Client, SharedKeys, expand
from ccbps.shares.replicated import Evaluation, lanes, unpacked, whole_vectors
from tests.support.three_brokers import Three, run_together, share

CONTEXT = b"digest and epoch"
KEYS = [BrokerKey.generate() for _ in range(3)]
PUBLIC = [key.public for key in KEYS]


def opened(client: Client, context: bytes = CONTEXT) -> list[SharedKeys]:
    pairs = zip(KEYS, client.hellos, strict=True)
    return [key.open(party, hello, context) for party, (key, hello) in enumerate(pairs)]


def expanded(client: Client, kind: str, messages: Three, bits: int) -> list[tuple[Bytes, Bytes]]:
    held = opened(client)
    return [expand(i, held[i], kind, messages[i], bits) for i in range(3)]


@pytest.mark.parametrize("bits", [1, 8, 195, 688])
def test_shares_add_up(bits: int) -> None:
    client, rng = Client(PUBLIC, CONTEXT), np.random.default_rng(bits)
    plain = rng.integers(0, 2, (40, bits), dtype=np.uint8)
    messages = share(client, "event", plain)
    assert [part.shape[1] - HEAD_BYTES for part in messages] == [0, -(-bits // 8), -(-bits // 8)]
    held = expanded(client, "event", messages, bits)
    for i in range(3):
        assert np.array_equal(held[i][1], held[(i + 1) % 3][0])
    assert np.array_equal(held[0][0] ^ held[1][0] ^ held[2][0], plain)
    # Rows may come in any order and from any batch.
    again = share(client, "event", plain)
    mixed = [np.concatenate([b, a])[::-1] for a, b in zip(messages, again, strict=True)]
    held = expanded(client, "event", (mixed[0], mixed[1], mixed[2]), bits)
    total = held[0][0] ^ held[1][0] ^ held[2][0]
    assert np.array_equal(total, np.concatenate([plain, plain])[::-1])
    # The same bits again have other shares.
    assert bits < 8 or not np.array_equal(again[1][:, HEAD_BYTES:], messages[1][:, HEAD_BYTES:])


def test_clients_and_brokers_match() -> None:
    schema = Schema(price=UInt(16), volume=UInt(16, nullable=True))
    form = FormulaDigits(schema, dict.fromkeys(schema, 4), box_form(schema))
    texts = ["price < 120", "volume >= 7 AND price = 3", "TRUE", "price > 9 AND price < 5"]
    predicates = [schema.parse(text) for text in texts]
    events = schema.encode({"price": [119, 120, 3, 65_535], "volume": [None, 6, 7, 65_535]})
    publisher, subscriber = Client(PUBLIC, CONTEXT), Client(PUBLIC, CONTEXT)
    sent = share(publisher, "event", form.event_rows(events))
    rows = form.interest_rows([box_form(schema, p.box()) for p in predicates])
    wanted = share(subscriber, "interest", rows)
    evaluation = Evaluation(form.program, form.digit_bits, form.tables, form.table_rows)
    events_held = expanded(publisher, "event", sent, form.event_bits)
    interests_held = expanded(subscriber, "interest", wanted, form.rows)
    keys = [np.random.default_rng(i) for i in (7, 8, 9)]
    drawn: list[list[Bytes]] = [[], [], []]

    def broker(i: int):  # type: ignore[no-untyped-def]
        whole = [
            whole_vectors(share, form.digit_bits, (i + n) % 3 == 0)
            for n, share in enumerate(events_held[i])
        ]
        used = [0]

        def masks(shape: tuple[int, ...]) -> Bytes:
            for key in range(3):
                if len(drawn[key]) == used[0]:
                    drawn[key].append(keys[key].integers(0, 1 << 64, shape, dtype=np.uint64))
            used[0] += 1
            return drawn[i][used[0] - 1] ^ drawn[(i + 1) % 3][used[0] - 1]

        shares = lanes(interests_held[i][0]), lanes(interests_held[i][1])
        return evaluation.steps((whole[0], whole[1]), shares, masks)

    answers = unpacked(run_together([broker(i) for i in range(3)])[0][0], len(texts))
    assert np.array_equal(answers, np.stack([p.evaluate(events) for p in predicates], axis=1))


def test_hellos_are_for_one_broker_and_one_context() -> None:
    client = Client(PUBLIC, CONTEXT)
    assert [key.client for key in opened(client)] == [opened(client)[0].client] * 3
    with pytest.raises(DecodeError, match="not for broker 1"):
        KEYS[1].open(1, client.hellos[1], b"another context")
    with pytest.raises(DecodeError, match="not for broker 2"):
        KEYS[2].open(2, client.hellos[1], CONTEXT)
    with pytest.raises(DecodeError, match="a hello for broker 0 has"):
        KEYS[0].open(0, client.hellos[1], CONTEXT)
    for place in range(0, len(client.hellos[0]), 7):
        altered = bytearray(client.hellos[0])
        altered[place] ^= 1
        with pytest.raises(DecodeError, match="not for broker 0"):
            KEYS[0].open(0, bytes(altered), CONTEXT)
    with pytest.raises(DecodeError, match="not for broker 1"):
        KEYS[1].open(1, client.hellos[1][:16] + bytes(32) + client.hellos[1][48:], CONTEXT)


def test_what_is_copied_is_refused_or_noise() -> None:
    ann, bob = Client(PUBLIC, CONTEXT), Client(PUBLIC, CONTEXT)
    plain = np.zeros((50, 200), dtype=np.uint8)
    messages = share(ann, "event", plain)
    with pytest.raises(DecodeError, match="are not an interest message"):
        expanded(ann, "interest", messages, 200)
    with pytest.raises(DecodeError, match="another master key"):
        expanded(bob, "event", messages, 200)
    # With a head that fits, the shares do not.
    heads = share(bob, "interest", plain)[0]
    heads[:, 24:] = messages[0][:, 24:]
    copied = [np.concatenate([heads, m[:, HEAD_BYTES:]], axis=1) for m in messages]
    held = expanded(bob, "interest", (copied[0], copied[1], copied[2]), 200)
    total = held[0][0] ^ held[1][0] ^ held[2][0]
    assert 4_500 < total.sum() < 5_500


def test_malformed_messages_are_refused() -> None:
    client = Client(PUBLIC, CONTEXT)
    first, second, _ = share(client, "event", np.zeros((3, 9), dtype=np.uint8))
    held = opened(client)
    with pytest.raises(DecodeError, match="have 52 bytes"):
        expand(0, held[0], "event", second, 9)
    with pytest.raises(DecodeError, match="have 54 bytes"):
        expand(1, held[1], "event", first, 9)
    with pytest.raises(DecodeError, match="unused bits"):
        expand(1, held[1], "event", second | np.uint8(0xFF) * (np.arange(54) == 53), 9)
    with pytest.raises(ParameterError, match="kind"):
        expand(1, held[1], "events", second, 9)


def test_secrets_stay() -> None:
    client = Client(PUBLIC, CONTEXT)
    for secret in (KEYS[0], opened(client)[0]):
        with pytest.raises(SerializationError):
            pickle.dumps(secret)
    assert BrokerKey.from_text(KEYS[0].to_text()).public == PUBLIC[0]
    assert client._shared._keys["01"].hex() not in repr(vars(client))


@pytest.mark.parametrize("brokers", [PUBLIC[:2], [PUBLIC[0]] * 3, [*PUBLIC[:2], b"short"]])
def test_three_public_keys_are_needed(brokers: list[bytes]) -> None:
    with pytest.raises(ParameterError, match="brokers"):
        Client(brokers, CONTEXT)
