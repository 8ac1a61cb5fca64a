"""Naive delivery: who can open what, and what refuses."""

from __future__ import annotations

import multiprocessing
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps import EpochSeed, SharedSeed
from ccbps.arrays import Bytes
from ccbps.ciphers.payloads import PAD_TO
from ccbps.delivery import PayloadOpener, PayloadSealer, naive
from ccbps.delivery.naive import KEY_BYTES, OVERHEAD_BYTES
from ccbps.errors import DecodeError, KeyMismatchError, ParameterError, RandomnessReuseError
from ccbps.wire import Kind

SEED = SharedSeed(bytes(range(32)))


def sent(payload: bytes, pair: str = "a", **options: Any) -> tuple[list[bytes], Bytes]:
    """Seal a payload as event 0, and wrap its key for round 0 of a pair."""
    sealer = PayloadSealer(SEED)
    return sealer.seal([payload], [0], **options), sealer.wrap([0], [0], pairs=[pair])


@given(payloads=st.lists(st.binary(max_size=50), max_size=5), start=st.integers(0, 2**63))
def test_open_inverts_seal_for_the_pair(payloads: list[bytes], start: int) -> None:
    sealer = PayloadSealer(SEED)
    events = np.arange(start, start + len(payloads), dtype=np.uint64)
    rounds = events + np.uint64(1)
    sealed = sealer.seal(payloads, events)
    assert {len(c) - OVERHEAD_BYTES for c in sealed} <= {PAD_TO}
    wrapped = sealer.wrap(events, rounds, pairs=["alice"] * len(payloads))
    assert PayloadOpener(SEED.pair("alice")).open(sealed, wrapped, rounds) == payloads


def test_one_payload_serves_many_subscribers_and_no_other() -> None:
    sealer = PayloadSealer(SEED)
    sealed = sealer.seal([b"quote"], [3]) * 2
    wrapped = sealer.wrap([3, 3], [9, 9], pairs=["alice", "bob"])
    for i, name in enumerate(("alice", "bob")):
        opener = PayloadOpener(SEED.pair(name))
        assert opener.open(sealed[i : i + 1], wrapped[i : i + 1], [9]) == [b"quote"]
        with pytest.raises(DecodeError, match="row 0"):
            opener.open(sealed[i : i + 1], wrapped[1 - i : 2 - i], [9])
        with pytest.raises(DecodeError, match="row 0"):
            opener.open(sealed[i : i + 1], wrapped[i : i + 1], [8])


def test_keys_differ_between_events_and_wraps_between_rounds() -> None:
    sealer = PayloadSealer(SEED)
    wrapped = sealer.wrap([1, 1, 2], [1, 2, 3], pairs=["a", "a", "a"])
    assert len({row.tobytes() for row in wrapped}) == 3
    again = PayloadSealer(SEED).wrap([1], [1], pairs=["a"])
    assert np.array_equal(again[0], wrapped[0])


@pytest.mark.parametrize("pad_to", [1, 16, 100])
@given(payload=st.binary(max_size=40) | st.sampled_from([b"\x80", b"\0\0", b"x\x80\0"]))
def test_padding_hides_the_length_and_comes_off(pad_to: int, payload: bytes) -> None:
    sealed, wrapped = sent(payload, pad_to=pad_to)
    padded = len(sealed[0]) - OVERHEAD_BYTES
    assert padded % pad_to == 0
    assert 0 < padded - len(payload) <= pad_to
    assert PayloadOpener(SEED.pair("a")).open(sealed, wrapped, [0]) == [payload]


def test_equal_payloads_seal_to_different_bytes() -> None:
    sealer, again = PayloadSealer(SEED), PayloadSealer(SEED)
    first, second = sealer.seal([b"same", b"same"], [1, 2])
    assert len({first, second, *again.seal([b"same"], [1])}) == 3


def test_an_event_number_seals_one_payload() -> None:
    sealer = PayloadSealer(SEED)
    with pytest.raises(RandomnessReuseError, match="event number 7 occurs more than once"):
        sealer.seal([b"public", b"secret"], [7, 7])
    sealer.seal([b"public"], [7])
    with pytest.raises(RandomnessReuseError, match="event number 7 was already used"):
        sealer.seal([b"secret"], [7])


def test_payloads_and_ciphertexts_are_bytes() -> None:
    for wrong in ("text", None, 5):
        with pytest.raises(ParameterError, match="payloads must be bytes, one per row; row 1"):
            PayloadSealer(SEED).seal([b"x", wrong], [0, 1])  # type: ignore[list-item]
        with pytest.raises(ParameterError, match="ciphertexts must be bytes"):
            PayloadOpener(SEED).open([wrong], np.zeros((1, 32), np.uint8), [0])  # type: ignore[list-item]
    for wrong in (2.5, 0):
        with pytest.raises(ParameterError, match="pad_to must be a whole number"):
            PayloadSealer(SEED).seal([b"x"], [0], pad_to=wrong)  # type: ignore[arg-type]


@pytest.mark.parametrize("position", [0, 1, 5, 12, 30, -1])
def test_a_changed_byte_is_a_decode_error(position: int) -> None:
    (sealed,), wrapped = sent(b"quote")
    changed = bytearray(sealed)
    changed[position] ^= 1
    with pytest.raises(DecodeError, match=r"not a (sealed )?payload"):
        PayloadOpener(SEED.pair("a")).open([bytes(changed)], wrapped, [0])


def test_short_bytes_and_wrong_shapes_are_decode_errors() -> None:
    opener = PayloadOpener(SEED)
    with pytest.raises(DecodeError, match=r"not a (sealed )?payload"):
        opener.open([b"\x03\x01"], np.zeros((1, KEY_BYTES), np.uint8), [0])
    with pytest.raises(DecodeError, match="wrapped"):
        opener.open([b"x"], np.zeros((1, 31), np.uint8), [0])


def test_views_of_wide_items_are_padded_as_their_bytes_are() -> None:
    items = np.arange(100, dtype=np.int32)
    sealer = PayloadSealer(SEED)
    sealed = sealer.seal([memoryview(items), items.tobytes()], [0, 1])
    assert [len(one) for one in sealed] == [512 + OVERHEAD_BYTES] * 2
    wrapped = sealer.wrap([0], [0], pairs=["alice"])
    opener = PayloadOpener(SEED.pair("alice"))
    assert opener.open([memoryview(sealed[0])], wrapped, [0]) == [items.tobytes()]


def test_a_round_wraps_one_key_once() -> None:
    sealer = PayloadSealer(SEED)
    sealer.wrap([1], [5], pairs=["a"])
    sealer.wrap([1], [5], pairs=["b"])
    with pytest.raises(RandomnessReuseError, match="pair 'a': round 5"):
        sealer.wrap([2, 2], [6, 5], pairs=["b", "a"])
    sealer.wrap([2], [6], pairs=["b"])  # the refused call claimed nothing


def test_a_pair_that_is_not_known_yet_uses_no_round() -> None:
    master = EpochSeed(bytes(range(32)))
    sealer = PayloadSealer(master)
    with pytest.raises(KeyMismatchError, match="no seed for pair 'alice'"):
        sealer.wrap([1], [5], pairs=["alice"])
    opener = PayloadOpener(master.pair("alice"))
    wrapped = sealer.wrap([1], [5], pairs=["alice"])
    assert opener.open(sealer.seal([b"x"], [1]), wrapped, [5]) == [b"x"]


def test_a_seed_is_required() -> None:
    with pytest.raises(ParameterError, match="SharedSeed"):
        PayloadSealer(b"x" * 32)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="SharedSeed"):
        PayloadOpener(b"x" * 32)  # type: ignore[arg-type]


@pytest.mark.parametrize("pairs", ["ab", 5, ["a"], [1, 2]])
def test_pairs_are_labels_one_a_row(pairs: object) -> None:
    with pytest.raises(ParameterError, match=r"pairs must be|each row must be"):
        PayloadSealer(SEED).wrap([1, 2], [1, 2], pairs=pairs)  # type: ignore[arg-type]


def test_a_forked_child_seals_and_wraps_nothing_with_its_parents_sealer() -> None:
    sealer, context = PayloadSealer(SEED), multiprocessing.get_context("fork")
    queue = context.SimpleQueue()

    def use() -> None:
        refused = 0
        for call in (
            lambda: sealer.seal([b"x"], [0]),
            lambda: sealer.wrap([0], [0], pairs=["alice"]),
        ):
            try:
                call()
            except RandomnessReuseError as error:
                refused += "forked" in str(error)
        queue.put(refused)

    process = context.Process(target=use)
    process.start()
    assert queue.get() == 2
    process.join()
    sealer.seal([b"x"], [0])
    sealer.wrap([0], [0], pairs=["alice"])


def test_payloads_of_another_kind_or_version_are_refused_even_with_their_key(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    for front in (bytes([Kind.PAYLOAD, naive.VERSION + 1]), bytes([Kind.EVENT, naive.VERSION])):
        with monkeypatch.context() as patch:
            patch.setattr(naive, "FRONT", front)
            sealed, wrapped = sent(b"x")
        with pytest.raises(DecodeError, match="row 0: not a sealed payload of this version"):
            PayloadOpener(SEED.pair("a")).open(sealed, wrapped, [0])
