"""ThreeBrokerMatch: what its card names as hazards, and a broker's view at real size."""

from __future__ import annotations

import os
from collections.abc import Mapping
from typing import Any

import numpy as np
import pytest

from ccbps import SharedSeed
from ccbps.arrays import Bools, Bytes
from ccbps.attacks.schemes.three_brokers import sum_of_shares, sums_from_lookups
from ccbps.delivery import Canary
from ccbps.matching import ThreeBrokerMatch
from ccbps.predicates import Schema, UInt
from ccbps.shares.clients import HEAD_BYTES, BrokerKey, expand
from ccbps.shares.masks import MaskStreams
from ccbps.shares.replicated import (
    Evaluation,
    Shares,
    Steps,
    lanes,
    unpacked,
    whole_vectors,
)
from tests.support.statistics import (
    BITS,
    EVENT,
    FAMILY_ERROR,
    MATCHING,
    RANGES,
    bit_statistics,
    corrected,
)
from tests.support.three_brokers import recorded, run_together

SCHEMA = Schema(price=UInt(16), volume=UInt(16), issue=UInt(20))
MATCHER = ThreeBrokerMatch.box(SCHEMA)
KEYS = [BrokerKey.generate() for _ in range(3)]
PUBLIC = [key.public for key in KEYS]


def held(matcher: Any, role: Any, kind: str, messages: Bytes) -> list[tuple[Bytes, Bytes]]:
    """Return the shares of each broker for messages of a role."""
    bits, out = matcher.form.event_bits if kind == "event" else matcher.form.rows, []
    for party, key in enumerate(KEYS):
        keys = key.open(party, role.hellos[party], matcher.digest)
        part = messages if party else messages[:, :HEAD_BYTES]
        out.append(expand(party, keys, kind, part, bits))
    return out


@pytest.mark.parametrize("pair", [(0, 1), (1, 2), (2, 0)])
def test_two_brokers_read_every_event(pair: tuple[int, int]) -> None:
    records = {name: [3, 40_000, 77] for name in SCHEMA}
    publisher, form = MATCHER.publisher(PUBLIC), MATCHER.form
    sent = publisher.encode(records)
    shares = held(MATCHER, publisher, "event", sent)
    opened = sum_of_shares({number: shares[number] for number in pair})
    assert np.array_equal(opened, form.event_rows(SCHEMA.encode(records)))


def test_a_nonce_used_twice_shows_differences_to_brokers_1_and_2() -> None:
    """A client whose randomness repeats, after a restart from a snapshot, for example."""
    state = os.urandom(32)
    records = [{name: [value] for name in SCHEMA} for value in (5, 9_000)]
    form, sent = MATCHER.form, []
    for record in records:
        drawn = iter(range(1 << 20))

        def repeated(count: int, drawn: Any = drawn) -> bytes:
            number = next(drawn).to_bytes(4, "little")
            stream = np.random.default_rng(list(state + number))
            return stream.bytes(count)

        sent.append(MATCHER.publisher(PUBLIC, randomness=repeated).encode(record))
    difference = np.unpackbits((sent[0] ^ sent[1])[:, HEAD_BYTES:], axis=1, bitorder="little")
    plain = [form.event_rows(SCHEMA.encode(record)) for record in records]
    assert np.array_equal(difference[:, : form.event_bits], plain[0] ^ plain[1])


def test_an_event_of_zeros_is_the_last_value_of_each_digit() -> None:
    """Vectors always have an odd sum, so that no event matches what it does not mean."""
    form = MATCHER.form
    zeros = np.zeros((1, form.event_bits), dtype=np.uint8)
    last = SCHEMA.encode({name: [SCHEMA[name].size - 1] for name in SCHEMA})
    assert np.array_equal(form.event_rows(last), zeros)
    whole = whole_vectors(zeros, form.digit_bits, True)
    assert whole.sum() == len(form.digit_bits)


# -- the view of a broker at real size ------------------------------------------------------------


def views(
    ranges: list[tuple[int, int]],
    seed: int,
    *,
    gates_opened: bool = False,
    for_subscribers: bool = False,
    answers_opened: bool = False,
) -> list[Bools]:
    """Return the view of each broker for an event and many lanes of one interest, (bits, lanes).

    Args:
        ranges: the interest.
        seed: seed of all randomness.
        gates_opened: plant a fault: the values of the first gates are told to all.
        for_subscribers: True for answers that no broker learns.
        answers_opened: plant a fault: all three brokers learn these answers.
    """
    form, rng = MATCHER.form, np.random.default_rng(seed)
    lows, highs = zip(*ranges, strict=True)
    count = 64 * 64
    parts = []
    for number, (low, high) in enumerate(zip(lows, highs, strict=True)):
        none = np.zeros(count, dtype=np.bool_)
        parts.append(form.fill(number, [low] * count, [high] * count, none))
    interest = np.concatenate(parts, axis=1)
    record: Mapping[str, Any] = dict(zip(SCHEMA, ([code] for code in EVENT), strict=True))
    event = form.event_rows(SCHEMA.encode(record))

    def shared(bits: Bytes) -> list[Bytes]:
        first, second = rng.integers(0, 2, (2, *bits.shape), dtype=np.uint8)
        return [first, second, bits ^ first ^ second]

    interests = [lanes(share) for share in shared(interest)]
    events = [
        whole_vectors(share, form.digit_bits, number == 0)
        for number, share in enumerate(shared(event))
    ]
    payload = shared(rng.integers(0, 256, (1, 16), dtype=np.uint8))
    keys = [rng.bytes(32) for _ in range(3)]
    evaluation = Evaluation(form.program, form.digit_bits, form.tables, form.table_rows)

    def broker(i: int) -> Any:
        j = (i + 1) % 3
        masks = MaskStreams(keys[i], keys[j]).unit(seed)
        pairs = (events[i], events[j]), (interests[i], interests[j])
        sealed = (payload[i], payload[j]) if for_subscribers else None
        return evaluation.steps(*pairs, masks, keys=sealed)

    done, seen = recorded([broker(i) for i in range(3)])
    received = [[part.reshape(-1, part.shape[-1]) for part in parts] for parts in seen]
    out = []
    told = [np.bitwise_xor.reduce([messages[0] for messages in received])] * gates_opened
    if for_subscribers:
        # What a broker seals: shares of m K, bit by bit.
        sealed_bits = [lanes(np.unpackbits(z[0].view(np.uint8), axis=1)) for z, _ in done]
        if answers_opened:
            total = np.bitwise_xor.reduce(sealed_bits)
            told = [np.bitwise_or.reduce(total, keepdims=True)]
    for i in range(3):
        own = [interests[i], interests[(i + 1) % 3], *told]
        own += [sealed_bits[i]] if for_subscribers else []
        out.append(unpacked(np.concatenate([*received[i], *own]), count))
    return out


@pytest.mark.parametrize(("one", "other"), [("tight", "full"), ("empty", "beside")])
def test_views_of_interests_with_the_same_answer_look_alike(one: str, other: str) -> None:
    assert MATCHING[one] == MATCHING[other] and len(BITS) == 3
    first, second = views(RANGES[one], 1), views(RANGES[other], 2)
    for broker in range(3):
        tests = bit_statistics(first[broker], second[broker], 3_000, 7)
        assert all(corrected(test) > FAMILY_ERROR for test in tests)


OTHERS = [("tight", "empty"), ("full", "beside"), ("tight", "full")]


@pytest.mark.parametrize(("one", "other"), OTHERS)
def test_views_look_alike_whatever_the_answer_is_for_subscribers(one: str, other: str) -> None:
    first, second = (
        views(RANGES[name], seed, for_subscribers=True) for name, seed in ((one, 3), (other, 4))
    )
    for broker in range(3):
        tests = bit_statistics(first[broker], second[broker], 3_000, 7)
        assert all(corrected(test) > FAMILY_ERROR for test in tests)


def test_answers_for_subscribers_that_are_opened_are_noticed() -> None:
    first, second = (
        views(RANGES[name], seed, for_subscribers=True, answers_opened=True)
        for name, seed in (("tight", 3), ("empty", 4))
    )
    for broker in range(3):
        tests = bit_statistics(first[broker], second[broker], 3_000, 7)
        assert min(map(corrected, tests)) < FAMILY_ERROR


def test_gates_that_are_opened_are_noticed() -> None:
    first, second = (
        views(RANGES[name], seed, gates_opened=True) for name, seed in (("tight", 1), ("full", 2))
    )
    for broker in range(3):
        tests = bit_statistics(first[broker], second[broker], 3_000, 7)
        assert min(map(corrected, tests)) < FAMILY_ERROR


@pytest.mark.parametrize("masked", [False, True])
def test_without_masks_a_broker_reads_sums_of_events(masked: bool) -> None:
    """One interest meets more events than a digit has values.

    Of what broker 1 sends for a lookup, broker 0 lacks y_2, which is added times x_1. Some sums of
    events have x_1 = 0. There the rest is the sum of <x, y_1>, and broker 0 has y_1.
    """
    form, rng, count = MATCHER.form, np.random.default_rng(3), 60
    records = {name: rng.integers(0, SCHEMA[name].size, count) for name in SCHEMA}
    plain = form.event_rows(SCHEMA.encode(records))
    interest = rng.integers(0, 2, (1, form.rows), dtype=np.uint8)
    shares = []
    for bits in (plain, interest):
        first, second = rng.integers(0, 2, (2, *bits.shape), dtype=np.uint8)
        shares.append([first, second, bits ^ first ^ second])
    x = [whole_vectors(s, form.digit_bits, number == 0) for number, s in enumerate(shares[0])]
    y = [lanes(share) for share in shares[1]]
    evaluation = Evaluation(form.program, form.digit_bits, form.tables, form.table_rows)
    masks = MaskStreams(rng.bytes(32), rng.bytes(32)).unit(0)
    draw = masks if masked else lambda shape: np.zeros(shape, dtype=np.uint64)
    sent = next(evaluation.steps((x[1], x[2]), (y[1], y[2]), draw))
    number, gate = next(
        (i, gate) for i, gate in enumerate(form.program.layers[0]) if gate.tables and not i
    )
    (table,) = gate.tables
    rows = slice(form.table_rows[table], form.table_rows[table + 1])
    start = sum(1 << width for width in form.digit_bits[: form.tables[table]])
    digit = slice(start, start + (1 << form.digit_bits[form.tables[table]]))
    y_1 = shares[1][1][0, rows]
    z = (sent[number, :, 0] & np.uint64(1)).astype(np.bool_)
    # All of this is known to broker 0, which has x_0, x_1 and y_1.
    sums = sums_from_lookups(x[0][:, digit], x[1][:, digit], y_1, z)
    assert len(sums) >= count - 16
    whole = (x[0] ^ x[1] ^ x[2])[:, digit]
    right = sum(read == int((whole[chosen] @ y_1).sum()) % 2 for chosen, read in sums)
    if masked:
        assert right < len(sums)
    else:
        assert right == len(sums)


def test_a_broker_that_flips_answers_is_found_by_canaries_at_the_stated_rate() -> None:
    """It changes a tenth of the answers, before it knows them; a fiftieth are canaries."""
    schema, flipped, share, count, trials = Schema(price=UInt(4)), 0.1, 0.02, 300, 300
    matcher = ThreeBrokerMatch.box(schema)
    form, rng = matcher.form, np.random.default_rng(11)
    evaluation = Evaluation(form.program, form.digit_bits, form.tables, form.table_rows)
    publisher, subscriber = matcher.publisher(PUBLIC), matcher.subscriber(PUBLIC)
    interest = held(matcher, subscriber, "interest", subscriber.encode("price < 8"))
    found = 0
    for _ in range(trials):
        canary = Canary(SharedSeed.generate(rng.bytes), share=share)
        due = canary.due(range(count))
        prices = np.where(due, rng.integers(0, 8, count), rng.integers(0, 16, count))
        events = held(matcher, publisher, "event", publisher.encode({"price": prices}))
        keys = [os.urandom(32) for _ in range(3)]

        def lying(steps: Steps, chance: Any = rng) -> Steps:
            sums = next(steps)
            while True:
                # The last sum is the answer.
                flips = chance.random(sums.shape[1]) < flipped
                sums = sums ^ (np.arange(len(sums)) == len(sums) - 1)[:, None, None] * flips[
                    :, None
                ].astype(np.uint64)
                arrived = yield sums
                try:
                    sums = steps.send(arrived)
                except StopIteration as stop:
                    done: Shares = stop.value
                    return done

        brokers = []
        for party in range(3):
            masks = MaskStreams(keys[party], keys[(party + 1) % 3]).unit(0)
            whole = [
                whole_vectors(one, form.digit_bits, (party + place) % 3 == 0)
                for place, one in enumerate(events[party])
            ]
            held_ = lanes(interest[party][0]), lanes(interest[party][1])
            steps = evaluation.steps((whole[0], whole[1]), held_, masks)
            brokers.append(lying(steps) if party == 1 else steps)
        answers = unpacked(run_together(brokers)[0][0], 1)[:, 0]
        found += bool(canary.missing(np.flatnonzero(answers).tolist(), count))
    expected = 1 - (1 - share * flipped) ** count
    assert abs(found / trials - expected) < 4.5 * (expected * (1 - expected) / trials) ** 0.5
