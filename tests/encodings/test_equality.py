"""Equality in a binary field: answers, all randomness at the smallest size, the simulator."""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable
from itertools import product

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from numpy.typing import NDArray

from ccbps.encodings.equality import EqualityEncoding
from ccbps.errors import ParameterError, SamplingError, ShapeError
from tests.reference import binary_polynomials as polynomials

Bytes = NDArray[np.uint8]


def limbs(encoding: EqualityEncoding, values: list[list[int]]) -> NDArray[np.uint64]:
    """Return values of interests, shape (limbs, interests, slots)."""
    size = 8 * encoding.field.limbs
    octets = b"".join(value.to_bytes(size, "little") for row in values for value in row)
    words = np.frombuffer(octets, dtype="<u8").reshape(len(values), -1, encoding.field.limbs)
    return np.ascontiguousarray(words.transpose(2, 0, 1))


def uniform(encoding: EqualityEncoding, batch: int, seed: int = 0) -> Bytes:
    rng = np.random.default_rng(seed)
    return rng.integers(0, 256, (batch, encoding.randomness_bytes), dtype=np.uint8)


@given(data=st.data(), bits=st.sampled_from([1, 3, 7, 8, 16, 24, 64, 72, 128, 1024]))
def test_answers_are_membership_and_messages_the_formula(data: st.DataObject, bits: int) -> None:
    slots = data.draw(st.sampled_from([1, 2, 8] if bits > 2 else [1, 2]))
    encoding = EqualityEncoding(bits, slots)
    value = st.integers(0, (1 << bits) - 1)
    batch = data.draw(st.integers(1, 6))
    members = [
        data.draw(st.lists(value, min_size=slots, max_size=slots, unique=True))
        for _ in range(batch)
    ]
    events = [data.draw(value | st.sampled_from(members[row])) for row in range(batch)]
    randomness = uniform(encoding, batch, data.draw(st.integers(0, 99)))
    sent = encoding.encode_event(limbs(encoding, [[x] for x in events])[:, :, 0], randomness)
    wanted = encoding.encode_interest(limbs(encoding, members), randomness)
    expected = [x in row for x, row in zip(events, members, strict=True)]
    assert encoding.decode(sent, wanted).tolist() == expected
    size, field = encoding.field.element_bytes, encoding.field
    modulus = 1 << bits | 1 | sum(1 << exponent for exponent in field.exponents)
    for row, event, drawn_bytes in zip(sent, events, randomness, strict=True):
        parts = drawn_bytes[-slots * (encoding.candidates + 1) * size :]
        for slot, drawn in enumerate(parts.reshape(slots, -1, size)):
            elements = [
                int.from_bytes(part.tobytes(), "little") & (1 << bits) - 1 for part in drawn
            ]
            multiplier = next(element for element in elements[:-1] if element)
            element = polynomials.remainder(polynomials.product(multiplier, event), modulus)
            message = int.from_bytes(row[slot * size : (slot + 1) * size].tobytes(), "little")
            assert message == element ^ elements[-1]


def test_all_randomness_of_the_smallest_field_with_two_slots() -> None:
    """Enumerate r_1, r_2, s_1, s_2 and the turn: views depend on the answer alone."""
    encoding = EqualityEncoding(2, 2)
    rows = []
    for turn, *elements in product(range(2), *[range(1, 4), range(4)] * 2):
        parts = np.zeros((2, encoding.candidates + 1), dtype=np.uint8)
        parts[:, 0], parts[:, -1] = elements[::2], elements[1::2]
        rows.append(np.concatenate([[turn, *[0] * 7], parts.reshape(-1)]).astype(np.uint8))
    randomness = np.array(rows)
    views: dict[bool, list[Counter[bytes]]] = {True: [], False: []}
    sides: dict[str, list[Counter[bytes]]] = {"event": [], "interest": []}
    interests = list(product(range(4), repeat=2))
    for x, members in product(range(4), interests):
        if members[0] == members[1]:
            continue
        sent = encoding.encode_event(np.array([[x]], dtype=np.uint64), randomness)
        wanted = encoding.encode_interest(limbs(encoding, [list(members)]), randomness)
        answers = encoding.decode(sent, wanted)
        assert answers.all() == answers.any() == (x in members)
        pairs = np.concatenate([sent, wanted], axis=1)
        views[x in members].append(Counter(row.tobytes() for row in pairs))
        sides["event"].append(Counter(row.tobytes() for row in sent))
        sides["interest"].append(Counter(row.tobytes() for row in wanted))
    for equal in (*views.values(), *sides.values()):
        assert len(equal) > 1
        assert all(view == equal[0] for view in equal)
    for answer, equal in views.items():
        simulated = encoding.simulate(np.full(len(randomness), answer), randomness)
        pairs = np.concatenate(simulated, axis=1)
        assert Counter(row.tobytes() for row in pairs) == equal[0]


def test_unused_slots_may_be_alike() -> None:
    """Enumerate views of interests whose slots hold one unused value once, and twice."""
    encoding, unused = EqualityEncoding(2, 2), 3
    rows = []
    for turn, *elements in product(range(2), *[range(1, 4), range(4)] * 2):
        parts = np.zeros((2, encoding.candidates + 1), dtype=np.uint8)
        parts[:, 0], parts[:, -1] = elements[::2], elements[1::2]
        rows.append(np.concatenate([[turn, *[0] * 7], parts.reshape(-1)]).astype(np.uint8))
    randomness, views = np.array(rows), []
    for members in ([1, 2], [1, unused], [unused, unused]):
        sent = encoding.encode_event(np.array([[0]], dtype=np.uint64), randomness)
        wanted = encoding.encode_interest(limbs(encoding, [members]), randomness)
        assert not encoding.decode(sent, wanted).any()
        pairs = np.concatenate([sent, wanted], axis=1)
        views.append(Counter(row.tobytes() for row in pairs))
    assert views[0] == views[1] == views[2]


def test_a_later_element_is_the_multiplier_where_the_first_ones_are_0() -> None:
    encoding = EqualityEncoding(16, 1)
    assert encoding.candidates == 4
    randomness = uniform(encoding, 2)
    late = randomness.copy()
    late[0, :4] = 0
    moved = randomness.copy()
    moved[0, :2] = randomness[0, 4:6]
    values = np.array([[7, 9]], dtype=np.uint64)
    first, second = (encoding.encode_event(values, rows) for rows in (late, moved))
    assert np.array_equal(first, second)


@pytest.mark.parametrize("side", ["event", "interest", "simulated"])
def test_randomness_without_a_multiplier_is_refused(side: str) -> None:
    encoding = EqualityEncoding(64, 2)
    randomness = uniform(encoding, 3)
    randomness[1, 8:16] = 0
    values = np.zeros((1, 3, 2), dtype=np.uint64)
    calls: dict[str, Callable[[], object]] = {
        "event": lambda: encoding.encode_event(values[:, :, 0], randomness),
        "interest": lambda: encoding.encode_interest(values, randomness),
        "simulated": lambda: encoding.simulate(np.zeros(3, dtype=np.bool_), randomness),
    }
    with pytest.raises(SamplingError, match="use another one"):
        calls[side]()


def test_one_interest_for_many_messages_and_an_index() -> None:
    encoding = EqualityEncoding(32, 4)
    randomness = uniform(encoding, 3000)
    members = limbs(encoding, [[1, 2, 3, 4], [5, 6, 7, 8]])
    index = np.arange(3000) % 2
    every = encoding.encode_interest(members[:, index], randomness)
    assert np.array_equal(encoding.encode_interest(members, randomness, index=index), every)
    one = encoding.encode_interest(members[:, :1], randomness)
    assert np.array_equal(one[::2], every[::2])
    with pytest.raises(ShapeError, match="2 interests do not fit 3000 messages"):
        encoding.encode_interest(members, randomness)


@pytest.mark.parametrize(("bits", "slots"), [(9, 1), (8, 3), (8, 0), (2000, 1)])
def test_impossible_sizes_are_refused(bits: int, slots: int) -> None:
    with pytest.raises(ParameterError):
        EqualityEncoding(bits, slots)
