"""Thresholds by Legendre symbols: answers, the formula, all randomness of the smallest prime."""

from __future__ import annotations

from collections import Counter
from itertools import product

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ccbps.encodings.threshold import FAILURE, ThresholdEncoding
from ccbps.errors import SamplingError, ShapeError
from tests.support.effort import examples

Bytes = NDArray[np.uint8]


def uniform(encoding: ThresholdEncoding, batch: int, seed: int = 0) -> Bytes:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (batch, encoding.randomness_bytes), dtype=np.uint8)


def parts(encoding: ThresholdEncoding, events: Bytes, interests: Bytes) -> list[list[int]]:
    """Return, of each pair, the bits e, the number c, the numbers D, and d."""
    order, size = "little" if encoding.prime < 1 << 50 else "big", encoding.number_bytes
    out = []
    for event, interest in zip(events, interests, strict=True):
        bits = np.unpackbits(event[:-size], bitorder="little")[: encoding.bits].tolist()
        numbers = [event[-size:], *interest.reshape(-1, size)]
        out.append([*bits, *(int.from_bytes(n.tobytes(), order) for n in numbers)])  # type: ignore[arg-type]
    return out


@given(data=st.data(), total=st.sampled_from([1, 2, 7, 8, 30, 64, 80, 81, 130]))
@settings(max_examples=examples(60))
def test_answers_are_thresholds(data: st.DataObject, total: int) -> None:
    bits = data.draw(st.integers(1, min(total, 70)))
    encoding = ThresholdEncoding(bits, total)
    batch = data.draw(st.integers(1, 5))
    rng = np.random.default_rng(data.draw(st.integers(0, 999)))
    values = rng.integers(0, 2, (batch, bits)).astype(np.uint8)
    most = total // bits
    weights = rng.integers(-most, most + 1, (batch, bits))
    sums = (values * weights).sum(axis=1)
    least, greatest = (np.where(s * weights > 0, weights, 0).sum(axis=1) for s in (-1, 1))
    limits = np.clip(sums + rng.integers(-2, 3, batch), least, greatest + 1)
    randomness = uniform(encoding, batch, data.draw(st.integers(0, 999)))
    events = encoding.encode_event(values, randomness)
    interests = encoding.encode_interest(weights, limits, randomness)
    answers = encoding.decode(events, interests)
    assert np.array_equal(answers, sums >= limits)
    for row, pair in enumerate(parts(encoding, events, interests)):
        sent, correction, *numbers = pair[:bits], *pair[bits:]
        shown = sum(d for e, d in zip([*sent, 1], numbers, strict=True) if e) + correction
        v = 2 * int(sums[row] - limits[row]) + 1
        # A square times v: the number says nothing but the sign.
        ratio = shown * pow(v, -1, encoding.prime) % encoding.prime
        assert pow(ratio, encoding.prime // 2, encoding.prime) == 1


@pytest.mark.parametrize("bits", [1, pytest.param(2, marks=pytest.mark.slow)])
def test_all_randomness_of_the_smallest_prime(bits: int, monkeypatch: pytest.MonkeyPatch) -> None:
    """Enumerate b, a, z and r: views depend on the answer alone, and are those of the simulator."""
    encoding = ThresholdEncoding(bits, bits)
    p = encoding.prime
    assert p == 11
    drawn = [
        (turns, numbers)
        for turns in product(range(2), repeat=bits)
        for numbers in product(range(1, p), *[range(p)] * (bits + 1))
    ]
    turns = np.array([row[0] for row in drawn], dtype=np.uint8)
    numbers = np.array([row[1] for row in drawn], dtype=np.int64)
    places = iter(())

    def given_numbers(_: object, rows: Bytes) -> tuple[Bytes, NDArray[np.int64]]:
        nonlocal places
        chosen = np.array([next(places) for _ in rows])
        return turns[chosen], numbers[chosen]

    monkeypatch.setattr(ThresholdEncoding, "_drawn", given_numbers)
    randomness = np.zeros((len(drawn), encoding.randomness_bytes), dtype=np.uint8)
    views: dict[bool, list[Counter[bytes]]] = {True: [], False: []}
    sides: dict[str, list[Counter[bytes]]] = {"event": [], "interest": []}
    for weights in product([-1, 1], repeat=bits):
        least, most = weights.count(-1) * -1, weights.count(1)
        for limit in range(least, most + 2):
            places = iter(range(len(drawn)))
            own = np.array([weights]), np.array([limit])
            interests = encoding.encode_interest(*own, randomness)
            sides["interest"].append(Counter(map(bytes, interests)))
            for value in product(range(2), repeat=bits):
                places = iter(range(len(drawn)))
                bit_row = np.array([value], dtype=np.uint8)
                events = encoding.encode_event(bit_row, randomness)
                expected = sum(w * x for w, x in zip(weights, value, strict=True)) >= limit
                answers = encoding.decode(events, interests)
                assert answers.all() == answers.any() == expected
                views[expected].append(Counter(map(bytes, np.hstack([events, interests]))))
                if len(sides["event"]) < 1 << bits:
                    sides["event"].append(Counter(map(bytes, events)))
    for alike in (*views.values(), *sides.values()):
        assert len(alike) > 1
        assert all(view == alike[0] for view in alike)
    for answer, alike in views.items():
        places = iter(range(len(drawn)))
        simulated = encoding.simulate(np.full(len(drawn), answer), randomness)
        assert Counter(map(bytes, np.hstack(simulated))) == alike[0]


@pytest.mark.parametrize(("bits", "total"), [(1, 1), (8, 8), (8, 20), (64, 64), (5, 300)])
def test_numbers_are_uniform(bits: int, total: int) -> None:
    """Words above the last multiple of p are not used, nor is an r of 0."""
    encoding = ThresholdEncoding(bits, total)
    randomness = uniform(encoding, 1000)
    _, numbers = encoding._drawn(randomness)
    residues = np.array([[int(n) % encoding.prime for n in row] for row in numbers], dtype=object)
    assert residues.shape == (1000, bits + 2)
    assert (residues[:, 0] != 0).all()
    scaled = np.array(residues / encoding.prime, dtype=np.float64)
    assert abs(scaled.mean() - 0.5) < 0.05
    if encoding.prime == 11:
        counts = np.bincount(residues[:, 1].astype(np.int64), minlength=11)
        assert abs(counts - 1000 / 11).max() < 50
        zero = uniform(encoding, 1)
        zero[0, 8:10] = 0  # r, z and a are 0: the next word serves
        assert encoding._drawn(zero)[1][0, 0] != 0


@pytest.mark.parametrize(("bits", "total"), [(1, 1), (8, 8), (64, 64), (5, 300)])
@pytest.mark.parametrize("filling", [0, 255])
def test_randomness_without_numbers_is_refused(bits: int, total: int, filling: int) -> None:
    encoding = ThresholdEncoding(bits, total)
    randomness = np.full((2, encoding.randomness_bytes), filling, dtype=np.uint8)
    values = np.zeros((2, bits), dtype=np.uint8)
    weights, limits = np.zeros((1, bits), dtype=np.int64), np.zeros(1, dtype=np.int64)
    with pytest.raises(SamplingError, match="use another one"):
        encoding.encode_event(values, randomness)
    with pytest.raises(SamplingError, match="use another one"):
        encoding.encode_interest(weights, limits, randomness)
    with pytest.raises(SamplingError, match="use another one"):
        encoding.simulate(np.zeros(2, dtype=np.bool_), randomness)


@pytest.mark.parametrize("total", [96, 112, 1024])
@pytest.mark.parametrize("bits", [1, 1024])
def test_long_numbers_are_missed_no_more_often_than_said(bits: int, total: int) -> None:
    encoding = ThresholdEncoding(bits, total)
    drawn = encoding.randomness_bytes - 8 * -(-bits // 64)
    values = 1 << 8 * drawn // (bits + 2)
    rejected = values % encoding.prime / values
    assert (bits + 2) * rejected + 1 / encoding.prime <= FAILURE


@pytest.mark.parametrize(("bits", "total"), [(3, 3), (64, 64), (80, 100)])
def test_simulated_pairs_have_their_answers(bits: int, total: int) -> None:
    encoding = ThresholdEncoding(bits, total)
    answers = np.arange(20) % 3 == 0
    events, interests = encoding.simulate(answers, uniform(encoding, 20))
    assert events.shape == (20, encoding.event_bytes)
    assert interests.shape == (20, encoding.interest_bytes)
    assert np.array_equal(encoding.decode(events, interests), answers)


def test_numbers_that_are_too_large_are_noticed() -> None:
    for total in (64, 100):
        encoding = ThresholdEncoding(8, total)
        randomness = uniform(encoding, 3)
        events = encoding.encode_event(np.zeros((1, 8), dtype=np.uint8), randomness)
        weights, limits = np.ones((1, 8), dtype=np.int64), np.zeros(1, dtype=np.int64)
        interests = encoding.encode_interest(weights, limits, randomness)
        heads = np.empty((2, 3, 0), dtype=np.uint8)
        assert not encoding.decode_with_heads(events, interests, heads)[1].any()
        events[0, -encoding.number_bytes :] = 255
        interests[2, : encoding.number_bytes] = 255
        stray = encoding.decode_with_heads(events, interests, heads)[1]
        assert stray.tolist() == [True, False, True]


def test_one_interest_and_one_event_serve_many_messages() -> None:
    encoding = ThresholdEncoding(16, 16)
    randomness = uniform(encoding, 1500)
    weights, limits = np.ones((2, 16), dtype=np.int64), np.array([3, 9])
    index = np.arange(1500) % 2
    every = encoding.encode_interest(weights[index], limits[index], randomness)
    assert np.array_equal(encoding.encode_interest(weights, limits, randomness, index=index), every)
    one = encoding.encode_interest(weights[:1], limits[:1], randomness)
    assert np.array_equal(one[::2], every[::2])
    with pytest.raises(ShapeError, match="2 interests do not fit 1500 messages"):
        encoding.encode_interest(weights, limits, randomness)
