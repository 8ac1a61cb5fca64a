"""eq-COT and slots: equal words give equal keys, others do not; bad elements are refused."""

from __future__ import annotations

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps.algebra.prime_order import PrimeOrderGroup, prime_order_group
from ccbps.ciphers.oblivious import AGREED_KEY_BYTES, EqCot
from ccbps.ciphers.slots import SlotKey
from ccbps.errors import DecodeError, ParameterError

TOY = prime_order_group("toy64")
COT = EqCot(TOY)


@given(
    words=st.lists(st.tuples(st.binary(max_size=3), st.binary(max_size=3)), max_size=4),
)
@settings(max_examples=60, deadline=None)
def test_keys_are_equal_exactly_where_words_are(words: list[tuple[bytes, bytes]]) -> None:
    words = [*words, (b"same", b"same")]
    own, theirs = [a for a, _ in words], [b for _, b in words]
    contexts = [b"pair %d" % row for row in range(len(words))]
    secrets, requests = COT.request(own)
    assert requests.shape == (len(words), COT.request_bytes)
    sent, responses = COT.respond(requests, theirs, contexts)
    assert responses.shape == (len(words), COT.response_bytes)
    got = COT.finish(secrets, responses, contexts)
    assert all(len(key) == AGREED_KEY_BYTES for key in sent)
    assert [a == b for a, b in zip(sent, got, strict=True)] == [a == b for a, b in words]


@pytest.mark.parametrize("name", ["secp256k1", "modp2048"])
def test_in_the_groups_of_full_size(name: str) -> None:
    if name == "secp256k1":
        pytest.importorskip("coincurve")
    cot = EqCot(prime_order_group(name))
    secrets, requests = cot.request([b"IBM", b"SAP"])
    sent, responses = cot.respond(requests, [b"IBM", b"IBM"], [b"", b""])
    got = cot.finish(secrets, responses, [b"", b""])
    assert [a == b for a, b in zip(sent, got, strict=True)] == [True, False]
    # The word itself in place of its encryption: the sender must not trip over the quotient 1.
    size = cot.group.element_bytes
    word = cot.group.encode(cot._element(b"IBM"))
    requests[0, 2 * size :] = np.frombuffer(word, dtype=np.uint8)
    sent, responses = cot.respond(requests, [b"IBM", b"IBM"], [b"", b""])
    assert sent[0] != cot.finish(secrets, responses, [b"", b""])[0]


def test_keys_are_bound_to_their_context_and_fresh_each_time() -> None:
    secrets, requests = COT.request([b"IBM"])
    sent, responses = COT.respond(requests, [b"IBM"], [b"one"])
    assert COT.finish(secrets, responses, [b"one"]) == sent
    assert COT.finish(secrets, responses, [b"other"]) != sent
    again, other = COT.respond(requests, [b"IBM"], [b"one"])
    assert again != sent
    assert not np.array_equal(other, responses)
    second, more = COT.request([b"IBM"])
    assert second != secrets
    assert not np.array_equal(more, requests)


def bad_encodings(group: PrimeOrderGroup) -> list[bytes]:
    """0, the identity, -1, a non-square, the modulus, and all ones."""
    p = int(group.modulus)  # type: ignore[attr-defined]
    good = int(group.hash_to_group(b"word"))
    width = group.element_bytes
    return [
        value.to_bytes(width, "big") for value in (0, 1, p - 1, p - good, p, 2 ** (8 * width) - 1)
    ]


@pytest.mark.parametrize("place", [0, 1, 2])
def test_requests_outside_the_subgroup_are_refused(place: int) -> None:
    size = TOY.element_bytes
    _, requests = COT.request([b"IBM"] * 7)
    for row, bad in enumerate(bad_encodings(TOY)):
        requests[row, place * size : (place + 1) * size] = np.frombuffer(bad, dtype=np.uint8)
    with pytest.raises(DecodeError, match="row 0: a message holds bytes that are no") as caught:
        COT.respond(requests, [b"IBM"] * 7, [b""] * 7)
    assert caught.value.rows == (0, 1, 2, 3, 4, 5)
    assert len(caught.value.causes) == 6


@pytest.mark.parametrize("place", [0, 1])
def test_responses_outside_the_subgroup_are_refused(place: int) -> None:
    size = TOY.element_bytes
    for bad in bad_encodings(TOY):
        secrets, requests = COT.request([b"IBM"] * 2)
        _, responses = COT.respond(requests, [b"IBM"] * 2, [b""] * 2)
        responses[1, place * size : (place + 1) * size] = np.frombuffer(bad, dtype=np.uint8)
        with pytest.raises(DecodeError, match="row 1: a message holds") as caught:
            COT.finish(secrets, responses, [b""] * 2)
        assert caught.value.rows == (1,)


def test_arrays_of_other_shapes_are_refused() -> None:
    with pytest.raises(
        ParameterError, match=r"requests must be a uint8 array of shape \(count, 24\)"
    ):
        COT.respond(np.zeros((1, 23), dtype=np.uint8), [b""], [b""])
    with pytest.raises(
        ParameterError, match=r"responses must be a uint8 array of shape \(count, 16\)"
    ):
        COT.finish([1], np.zeros((1, 16), dtype=np.int64), [b""])


# -- slots --------------------------------------------------------------------------------------


def test_slots_are_recognized_by_their_key_and_number_only() -> None:
    numbers = np.array([0, 1, 2**40, 2**64 - 1], dtype=np.uint64)
    key, other = SlotKey(bytes(32)), SlotKey(bytes(31) + b"\1")
    keys = np.arange(64, dtype=np.uint8).reshape(4, 16)
    for slots in (key.slots(numbers), key.slots(numbers, keys)):
        assert key.recognizes(numbers, slots).all()
        assert not other.recognizes(numbers, slots).any()
        assert not key.recognizes(numbers[::-1], slots).any()
    assert np.array_equal(key.payload_keys(numbers, key.slots(numbers, keys)), keys)
    assert len({row.tobytes() for row in key.slots(numbers)}) == 4
    assert key.slots(numbers[:0]).shape == (0, 16)


def test_a_slot_is_aes_of_number_and_place() -> None:
    # AES-256 of the zero block under the zero key: NIST's known-answer test for a zero key.
    zero = np.zeros(1, dtype=np.uint64)
    assert SlotKey(bytes(32)).slots(zero).tobytes().hex() == "dc95c078a2408989ad48a21492842087"
