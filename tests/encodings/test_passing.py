"""Inputs, randomness and messages of all pair encodings: how they are passed, and what is refused.

Each encoding stands for one formula whose messages have unused bits.
"""

from __future__ import annotations

from collections.abc import Callable
from dataclasses import dataclass
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ccbps.arrays import Bytes, Index
from ccbps.encodings import BranchingEncoding
from ccbps.encodings.broadcast.encoding import BroadcastEncoding
from ccbps.encodings.formula.encoding import FormulaEncoding
from ccbps.encodings.labels import NONCE_BYTES
from ccbps.encodings.rows import PairEncoding
from ccbps.errors import ShapeError
from tests.support import digit_formulas
from tests.support.digit_formulas import Stream, fresh_bytes
from tests.support.formula_strategies import box, packed
from tests.support.kernels import Recorder, both_kernels, each_kernel  # noqa: F401
from tests.support.program_strategies import box_program

BATCHES = [0, 1, 63, 64, 65, 263, 513, 4097]
Encode = Callable[..., Bytes]


@dataclass
class Party:
    """One party's encoder: ``encode(inputs, randomness, out=None, index=None)``."""

    encode: Encode
    width: int
    draws: bool = True
    """Whether randomness may be a function."""
    indexed: bool = True


class Small:
    """An encoding, rows of inputs for both parties, and its unused bits.

    Attributes:
        bits: bits of an event and of an interest message that are used.
    """

    encoding: PairEncoding
    parties: list[Party]
    bits: tuple[int, int]

    def inputs(self, batch: int) -> list[NDArray[Any]]:
        raise NotImplementedError

    def randomness(self, batch: int, seed: int = 4) -> Bytes:
        width = self.encoding.randomness_bytes
        return np.random.default_rng(seed).integers(0, 256, (batch, width), dtype=np.uint8)

    def messages(self, batch: int) -> list[Bytes]:
        randomness = self.randomness(batch, 7)
        pairs = zip(self.parties, self.inputs(batch), strict=True)
        return [party.encode(rows, randomness) for party, rows in pairs]


class OfBits(Small):
    """Branching programs and formulas: both parties' inputs are bits."""

    def __init__(self, encoding: Any, widths: tuple[int, int], bits: tuple[int, int]) -> None:
        self.encoding, self._widths, self.bits = encoding, widths, bits
        event = Party(encoding.encode_event, encoding.event_bytes, indexed=False)
        self.parties = [event, Party(encoding.encode_interest, encoding.interest_bytes)]

    def inputs(self, batch: int) -> list[NDArray[Any]]:
        rng = np.random.default_rng(3)
        return [packed(rng.integers(0, 2, (batch, width))) for width in self._widths]


class OfDigits(Small):
    """A broadcast: events are digits, and whoever writes an interest draws a nonce and masks."""

    encoding: BroadcastEncoding

    def __init__(self) -> None:
        attributes = [[2, 2, 1], [1, 2, 1]]
        widths = [width for row in attributes for width in row]
        self._attributes = attributes
        bits = 2 * sum(map(digit_formulas.table_bits, attributes))
        self.encoding = encoding = BroadcastEncoding(digit_formulas.box(attributes), widths, bits)
        self.bits = 8 * encoding.event_bytes, 8 * NONCE_BYTES + encoding.slots.bits
        self.parties = [
            Party(self._event, encoding.event_bytes, draws=False, indexed=False),
            Party(self._interest, encoding.interest_bytes),
        ]

    def inputs(self, batch: int) -> list[NDArray[Any]]:
        rng = np.random.default_rng(3)
        widths = [self.encoding.slots.widths[digit] for digit in self.encoding.slots.digits]
        event = rng.integers(0, 1 << np.array(widths), (batch, len(widths)), dtype=np.uint8)
        ranges = rng.integers(0, [[32], [16]], (batch, 2, 2))
        rows = [digit_formulas.box_bits(self._attributes, row) for row in ranges.tolist()]
        return [event, packed(np.array(rows).reshape(batch, self.encoding.interest_bits))]

    def _event(self, event: Bytes, randomness: Bytes, out: Bytes | None = None) -> Bytes:
        if out is None:
            out = np.empty((len(randomness), self.encoding.event_bytes), np.uint8)
        event = np.repeat(event, len(out), axis=0) if len(event) == 1 else event
        self.encoding.encode_event(event, randomness, out)
        return out

    def _interest(
        self, rows: Any, randomness: Any, out: Bytes | None = None, *, index: Index | None = None
    ) -> Bytes:
        if out is None:
            out = np.empty((len(randomness), self.encoding.interest_bytes), np.uint8)
        draw = randomness if callable(randomness) else lambda start, stop: randomness[start:stop]
        if index is None and len(rows) != 1:
            index = np.arange(len(out))
        fresh = np.random.default_rng(5).integers(
            0, 256, (len(out), fresh_bytes(self.encoding)), dtype=np.uint8
        )
        self.encoding.encode_interest(rows, draw, Stream(fresh), out, index=index)
        return out


def small_branching() -> Small:
    encoding = BranchingEncoding(box_program([7, 5]))
    return OfBits(encoding, (12, 24), (encoding.layout.bits,) * 2)


def small_formula() -> Small:
    encoding = FormulaEncoding(box([6, 5]), 11, 44)
    assert encoding.slots.ties
    return OfBits(encoding, (11, 44), encoding.slots.bits)


SMALL: dict[str, Callable[[], Small]] = {
    "branching": small_branching,
    "formula": small_formula,
    "broadcast": OfDigits,
}


@pytest.fixture(scope="module", params=SMALL)
def small(request: pytest.FixtureRequest) -> Small:
    made = SMALL[request.param]()
    assert made.bits[1] % 8
    return made


# -- inputs and randomness ----------------------------------------------------------------------


@both_kernels
@pytest.mark.parametrize("batch", [*BATCHES, 5000])
def test_one_input_for_all_rows_equals_that_input_repeated(small: Small, batch: int) -> None:
    randomness = small.randomness(batch)
    for party, one in zip(small.parties, small.inputs(1), strict=True):
        repeated = np.repeat(one, batch, axis=0)
        assert np.array_equal(party.encode(one, randomness), party.encode(repeated, randomness))


@both_kernels
@pytest.mark.parametrize("batch", [0, 1, 2, 5, 513, 2056, 2057, 4097, 5000])
@pytest.mark.parametrize("rows", [1, 6])
def test_inputs_by_index_equal_those_inputs(small: Small, rows: int, batch: int) -> None:
    randomness, index = small.randomness(batch), np.random.default_rng(1).integers(0, rows, batch)
    for party, few in zip(small.parties, small.inputs(rows), strict=True):
        if party.indexed:
            expected = party.encode(few[index], randomness)
            reversed_ = index[::-1].copy()[::-1]
            for other in (index, np.repeat(index, 2)[::2], reversed_, index.astype(np.uint8)):
                assert np.array_equal(party.encode(few, randomness, index=other), expected)


@both_kernels
@pytest.mark.parametrize("batch", BATCHES)
def test_randomness_is_drawn_once_and_in_order(small: Small, batch: int) -> None:
    randomness = small.randomness(batch, 5)
    for party, rows in zip(small.parties, small.inputs(batch), strict=True):
        if party.draws:
            draw, out = Recorder(randomness), np.empty((batch, party.width), np.uint8)
            assert party.encode(rows, draw, out) is out
            assert draw.asked == list(range(batch))
            assert np.array_equal(out, party.encode(rows, randomness))


@both_kernels
def test_rows_may_start_anywhere_and_be_read_only(small: Small) -> None:
    batch, wide = 700, []
    shared = np.zeros((2 * batch, 8 + small.encoding.randomness_bytes), np.uint8)
    randomness = shared[::2, 8:]
    randomness[:] = small.randomness(batch, 5)
    shared.setflags(write=False)
    for party, inputs in zip(small.parties, small.inputs(batch), strict=True):
        spread = np.repeat(inputs, 2, axis=0)[::2]
        spread.setflags(write=False)
        rows = np.full((2 * batch, 5 + party.width + 3), 0x77, np.uint8)
        out = rows[::2, 5:-3]
        assert party.encode(spread, randomness, out) is out
        assert np.array_equal(out, party.encode(inputs, randomness.copy()))
        assert all((rest == 0x77).all() for rest in (rows[1::2], rows[:, :5], rows[:, -3:]))
        rows.setflags(write=False)
        wide.append(out)
    events, interests = wide
    answers = small.encoding.decode(events.copy(), interests.copy())
    assert np.array_equal(small.encoding.decode(events, interests), answers)
    assert np.array_equal(small.encoding.decode(events[::-1], interests[::-1]), answers[::-1])
    by_columns = np.asfortranarray(events), np.repeat(interests, 2, axis=1)[:, ::2]
    assert np.array_equal(small.encoding.decode(*by_columns), answers)


@both_kernels
def test_nothing_that_is_passed_in_is_changed(small: Small) -> None:
    randomness, messages, inputs = small.randomness(70), small.messages(70), small.inputs(70)
    passed = [randomness, *messages, *inputs]
    before = [rows.copy() for rows in passed]
    for party, rows in zip(small.parties, inputs, strict=True):
        party.encode(rows, randomness)
    small.encoding.decode(*messages)
    assert all(map(np.array_equal, passed, before))


# -- messages -----------------------------------------------------------------------------------


@both_kernels
@pytest.mark.parametrize("skip", [1, 8, 16, 23])
@pytest.mark.parametrize("same", [False, True])
def test_messages_may_stand_behind_headers(small: Small, same: bool, skip: int) -> None:
    batch = 4097
    events, interests = small.messages(batch)
    headers = np.random.default_rng(6).integers(0, 256, (2, batch, skip), dtype=np.uint8)
    if same:  # one event, header included, in one row of memory
        events, headers[0] = np.repeat(events[:1], batch, axis=0), headers[0, :1]
    rows = [np.hstack(pair) for pair in zip(headers, (events, interests), strict=True)]
    if same:
        rows[0] = np.broadcast_to(rows[0][0], rows[0].shape)
    heads = np.zeros_like(headers)
    answers, stray = small.encoding.decode_with_heads(rows[0], rows[1], heads)
    assert np.array_equal(answers, small.encoding.decode(events, interests))
    assert same or 0 < answers.sum() < batch
    assert np.array_equal(heads, headers)
    assert not stray.any()


@both_kernels
def test_stray_bits_are_reported(small: Small) -> None:
    messages, rows = small.messages(40), iter(range(40))
    answers, expected = small.encoding.decode(*messages), np.zeros(40, np.bool_)
    heads = np.empty((2, 40, 0), np.uint8)
    for message, bits in zip(messages, small.bits, strict=True):
        for bit in range(bits, 8 * message.shape[1]):
            row = next(rows)
            message[row, bit // 8] ^= np.uint8(1 << bit % 8)
            expected[row] = True
    found, stray = small.encoding.decode_with_heads(*messages, heads)
    assert stray.any() and np.array_equal(stray, expected)
    # Stray bits of a broadcast do not even change the answer.
    kept = slice(None) if isinstance(small.encoding, BroadcastEncoding) else ~stray
    assert np.array_equal(found[kept], answers[kept])
    # Bits that are used are no stray bits, whatever they are.
    for message, bits in zip(messages, small.bits, strict=True):
        message[:] = np.packbits(np.arange(8 * message.shape[1]) < bits, bitorder="little")
    assert not small.encoding.decode_with_heads(*messages, heads)[1].any()


def uniform_bytes(small: Small) -> int:
    """Bytes of a row for the simulator."""
    encoding = small.encoding
    if isinstance(encoding, BranchingEncoding):
        return encoding.randomness_bytes
    return encoding.event_bytes + encoding.interest_bytes


@both_kernels
def test_simulate_leaves_uniform_bytes_as_they_are(small: Small) -> None:
    encoding: Any = small.encoding
    rows, answers = np.full((3, uniform_bytes(small)), 0xFF, np.uint8), np.arange(3) % 2 == 0
    events, interests = encoding.simulate(answers, rows)
    assert (rows == 0xFF).all()
    heads = np.empty((2, 3, 0), np.uint8)
    found, stray = encoding.decode_with_heads(events, interests, heads)
    assert np.array_equal(found, answers) and not stray.any()


# -- refusals -----------------------------------------------------------------------------------

Change = Callable[[Any, Bytes, Bytes], tuple[Any, ...]]

DECODED: dict[str, tuple[Change, str]] = {
    "narrow events": (lambda s, e, i: (e[:, 1:], i), r"events must be uint8 of shape \(batch, "),
    "wide interests": (lambda s, e, i: (e, np.hstack([i, i])), "interests must be uint8"),
    "other bytes": (lambda s, e, i: (e, i.astype(np.uint16)), "interests must be uint8"),
    "one row": (lambda s, e, i: (e[0], i), "events must be uint8"),
    "other numbers": (lambda s, e, i: (e, i[:4]), "5 events do not pair with 4 interests"),
}
HEADS: dict[str, tuple[Any, str]] = {
    "few heads": (np.zeros((2, 4, 0), np.uint8), r"heads must be uint8 of shape \(2, 5, skip\)"),
    "signed heads": (np.zeros((2, 5, 0), np.int8), "heads must be uint8"),
    "heads by columns": (np.zeros((2, 2, 5), np.uint8).transpose(0, 2, 1), "C-contiguous"),
}


@pytest.mark.parametrize("name", DECODED)
def test_decode_refuses_messages_of_other_shapes(small: Small, name: str) -> None:
    change, said = DECODED[name]
    with pytest.raises(ShapeError, match=said):
        small.encoding.decode(*change(small, *small.messages(5)))


@pytest.mark.parametrize("name", HEADS)
def test_decode_refuses_heads_of_other_shapes(small: Small, name: str) -> None:
    heads, said = HEADS[name]
    front = np.zeros((5, heads.shape[2]), np.uint8)
    events, interests = (np.hstack([front, rows]) for rows in small.messages(5))
    with pytest.raises(ShapeError, match=said):
        small.encoding.decode_with_heads(events, interests, heads)


Encoded = Callable[[Any, NDArray[Any], Bytes, Bytes], object]

ENCODED: dict[str, tuple[Encoded, str]] = {
    "signed inputs": (lambda e, x, r, o: e(x.view(np.int64), r), "bits must be uint64 of shape"),
    "few inputs": (lambda e, x, r, o: e(x[:3], r), r"uint64 of shape \(5 or 1, 1\)"),
    "narrow inputs": (lambda e, x, r, o: e(x[:, :0], r), "uint64 of shape"),
    "inputs in one row": (lambda e, x, r, o: e(x[:, 0], r), "uint64 of shape"),
    "narrow randomness": (lambda e, x, r, o: e(x, r[:, 1:]), "randomness must be uint8 of shape"),
    "signed randomness": (lambda e, x, r, o: e(x, r.view(np.int8)), "randomness must be uint8"),
    "flat randomness": (lambda e, x, r, o: e(x, r[0]), "randomness must be uint8"),
    "randomness by columns": (lambda e, x, r, o: e(x, np.asfortranarray(r)), "contiguous rows"),
    "a function without out": (lambda e, x, r, o: e(x, lambda a, b: r), "out is needed"),
    "a function of one row for all": (
        lambda e, x, r, o: e(x, lambda a, b: r[:1], o), "randomness must have 5 rows, got 1"
    ),
    "a function of narrow rows": (
        lambda e, x, r, o: e(x, lambda a, b: r[a:b, 1:], o), "randomness must be uint8"
    ),
    "out of other rows": (lambda e, x, r, o: e(x, r, o[:4]), "out has 4 rows, randomness 5"),
    "out of another width": (lambda e, x, r, o: e(x, r, np.hstack([o, o])), "out must"),
}  # fmt: skip


@both_kernels
@pytest.mark.parametrize("name", ENCODED)
def test_encode_refuses_what_does_not_fit(small: Small, name: str) -> None:
    if not isinstance(small, OfBits):
        return  # its matcher makes its arrays, and nobody else calls it
    call, said = ENCODED[name]
    for party, rows in zip(small.parties, small.inputs(5), strict=True):
        with pytest.raises(ShapeError, match=said):
            call(party.encode, rows, small.randomness(5), np.empty((5, party.width), np.uint8))


@pytest.mark.parametrize("length", [0, 1, 4, 6])
def test_encode_refuses_an_index_of_another_length(small: Small, length: int) -> None:
    if isinstance(small, OfBits):
        rows, encode = small.inputs(3)[1], small.parties[1].encode
        with pytest.raises(ShapeError, match="index of 5"):
            encode(rows, small.randomness(5), index=np.zeros(length, np.intp))
        for beyond in (-1, 3):
            with pytest.raises(ShapeError, match="within the 3 rows of interest bits"):
                encode(rows, small.randomness(5), index=np.full(5, beyond))


@pytest.mark.parametrize("change", [lambda rows: rows[1:], lambda rows: rows[:, 1:]])
def test_simulate_refuses_rows_that_do_not_fit(
    small: Small, change: Callable[[Bytes], Bytes]
) -> None:
    encoding: Any = small.encoding
    if isinstance(small, OfBits):
        rows = np.zeros((5, uniform_bytes(small)), np.uint8)
        with pytest.raises(ShapeError, match="uniform must"):
            encoding.simulate(np.zeros(5, np.bool_), change(rows))
