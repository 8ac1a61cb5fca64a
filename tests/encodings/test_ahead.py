"""Event messages in two parts: equal to the whole ones, as the definition says, and as small."""

from __future__ import annotations

from collections.abc import Callable

import numpy as np
import pytest
from cryptography.hazmat.primitives.ciphers import Cipher, algorithms, modes
from hypothesis import given, settings
from numpy.typing import NDArray

from ccbps.encodings.formula.ahead import AheadEncoding
from ccbps.encodings.formula.encoding import FormulaEncoding
from ccbps.encodings.labels import LABEL_BYTES, NONCE_BYTES
from ccbps.errors import ShapeError
from ccbps.programs.branching import ONE, event_bit, interest_bit
from ccbps.programs.formula import And, Formula, Sum
from tests.reference.rank_one_gates import RankOneTwin
from tests.support.effort import examples
from tests.support.formula_strategies import (
    bits_used,
    box,
    comparison,
    equality,
    interval,
    literal_tree,
    packed,
    random_formula,
    uniform,
    unpacked,
)
from tests.support.kernels import KERNELS, wished
from tests.support.program_strategies import seeds

Bytes = NDArray[np.uint8]
BATCHES = [0, 1, 65, 4097]


class Case:
    """A formula, some events, and both parts of their messages."""

    def __init__(self, formula: Formula, batch: int, seed: int = 1) -> None:
        events, interests = bits_used(formula)
        self.whole = FormulaEncoding(formula, events, interests)
        self.encoding = encoding = AheadEncoding(self.whole)
        rng = np.random.default_rng(seed)
        self.events = rng.integers(0, 2, (batch, events)).astype(np.bool_)
        self.shared = uniform(self.whole, batch, seed)
        self.rounds = rng.integers(0, 256, (batch, encoding.labels.round_bytes), dtype=np.uint8)
        self.nonces = rng.integers(0, 256, (batch, NONCE_BYTES), dtype=np.uint8)

    def labels(self) -> Bytes:
        out = np.empty((len(self.events), self.encoding.label_bytes), np.uint8)
        self.encoding.encode_event(packed(self.events), self.rounds, out)
        return out

    def ahead(self) -> Bytes:
        out = np.empty((len(self.events), self.encoding.ahead_bytes), np.uint8)
        nonces = iter(self.nonces.tobytes())

        def fresh(count: int) -> bytes:
            return bytes(next(nonces) for _ in range(count))

        self.encoding.prepare(
            lambda a, b: self.shared[a:b], lambda a, b: self.rounds[a:b], fresh, out
        )
        return out

    def messages(self) -> Bytes:
        return self.whole.encode_event(packed(self.events), self.shared)

    def complete(self, labels: Bytes, ahead: Bytes) -> Bytes:
        out = np.full((len(ahead), self.whole.event_bytes), 0xEE, np.uint8)
        assert not self.encoding.complete(labels, ahead, out).any()
        return out


NAMED: dict[str, Formula] = {
    "always": ONE,
    "event bit": event_bit(3),
    "interest bit": interest_bit(0),
    "literal": event_bit(0) ^ interest_bit(0),
    "of event bits": And(event_bit(0), event_bit(1)),
    "of both": And(event_bit(0), interest_bit(0)),
    "with itself": Sum((event_bit(0), event_bit(0), And(event_bit(1), event_bit(1)))),
    "over many words": And(event_bit(200) ^ interest_bit(70), event_bit(64) ^ interest_bit(129)),
    "comparison": comparison(16, 0, 0),
    "interval": interval(9, 0, 0),
    "equality": equality(13, 0, 0),
    "box": box([16, 16, 20]),
    "wide": box([32] * 6),
    "hidden": literal_tree(3, 5)[0],
}


# -- the definition -----------------------------------------------------------------------------


def pad_bits(label: bytes, nonce: bytes, place: int, blocks: int) -> list[int]:
    tweaks = b"".join(
        nonce + place.to_bytes(2, "little") + j.to_bytes(2, "little") for j in range(blocks)
    )
    stream = Cipher(algorithms.AES128(label), modes.ECB()).encryptor().update(tweaks)
    return [byte >> i & 1 for byte in stream for i in range(8)]


def factors(
    case: Case, twin: RankOneTwin, randomness: list[int]
) -> tuple[list[int], dict[tuple[int, int], int]]:
    """Of each slot sent what it holds for the event 0; of each bit and slot the factor."""
    width, order = case.whole.event_bits, case.whole.slots.order["publisher"]
    nothing = [0] * case.whole.interest_bits
    zero, _ = twin.parts([0] * width, nothing, randomness)
    found = {}
    for i in range(width):
        one, _ = twin.parts([int(i == j) for j in range(width)], nothing, randomness)
        for place, slot in enumerate(order):
            found[i, place] = zero[slot] ^ one[slot]
    return [zero[slot] for slot in order], found


def kinds(
    case: Case, twin: RankOneTwin, draws: int
) -> tuple[set[tuple[int, int]], set[tuple[int, int]]]:
    """Event bits at slots whose factor is the select bit's, and those that have a row."""
    count = case.whole.slots.random_bits
    rng = np.random.default_rng(8)
    randomness = [[0] * count, [1] * count, *rng.integers(0, 2, (draws, count)).tolist()]
    every = [factors(case, twin, draw)[1] for draw in randomness]
    values = {key: {one[key] for one in every} for key in every[0]}
    direct = {key for key, seen in values.items() if seen == {1}}
    products = {key for key, seen in values.items() if seen == {0, 1}}
    # The root, which is in place 0, has to have a pad.
    at_root = sorted(key for key in direct | products if key[1] == 0)
    if direct.issuperset(at_root):
        masking = {at_root[0] if at_root else (0, 0)}
        direct, products = direct - masking, products | masking
    return direct, products


def check_against_definition(formula: Formula, seed: int) -> None:
    case = Case(formula, 2, seed)
    encoding, whole, twin = case.encoding, case.whole, RankOneTwin(formula)
    # A factor may look constant in few draws.
    for draws in (14, 100):
        direct, products = kinds(case, twin, draws)
        if len(products) == encoding.slots.rows:
            break
    used = sorted({i for i, _ in direct | products})
    assert encoding.slots.bits == used
    assert (encoding.slots.slots, encoding.slots.rows) == (whole.slots.bits[0], len(products))
    ahead = case.ahead()
    both, start = len(whole.slots.both), 8 * -(-whole.slots.random_bits // 8)
    for row in range(2):
        shared = unpacked(case.shared[row : row + 1], 8 * whole.randomness_bytes)[0].astype(int)
        constants, factor = factors(case, twin, shared[: whole.slots.random_bits].tolist())
        slots = [bit ^ (shared[start + t] if t < both else 0) for t, bit in enumerate(constants)]
        made = encoding.labels.of(case.rounds)[row].reshape(len(used), 2, LABEL_BYTES)
        rows = []
        for place, i in enumerate(used):
            select = int(made[place, 0, 0]) & 1
            assert int(made[place, 1, 0]) & 1 == 1 - select
            nonce = case.nonces[row].tobytes()
            pads = [pad_bits(made[place, v].tobytes(), nonce, place, 3) for v in (0, 1)]
            number = 0
            for t in range(len(slots)):
                if (i, t) in direct:
                    slots[t] ^= select
                elif (i, t) in products:
                    zero, one = (pad[number] for pad in pads)
                    rows.append(zero ^ one ^ factor.get((i, t), 0))
                    # What the value with select 0 opens, and what it adds.
                    slots[t] ^= (one ^ factor.get((i, t), 0)) if select else zero
                    number += 1
        assert ahead[row, :NONCE_BYTES].tolist() == case.nonces[row].tolist()
        body = unpacked(ahead[row : row + 1, NONCE_BYTES:], len(slots) + len(rows))[0]
        assert body.astype(int).tolist() == slots + rows
    assert np.array_equal(case.complete(case.labels(), ahead), case.messages())


@pytest.mark.parametrize("name", [name for name in NAMED if name not in ("box", "wide")])
def test_messages_of_named_formulas_are_as_defined(name: str) -> None:
    check_against_definition(NAMED[name], 4)


@given(seed=seeds)
@settings(max_examples=examples(150), deadline=None)
def test_messages_of_any_formula_are_as_defined(seed: int) -> None:
    check_against_definition(random_formula(seed), seed)


# -- kernels and batches ------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "batch"),
    [
        pytest.param(name, batch, marks=[pytest.mark.slow] * ((name, batch) == ("wide", 4097)))
        for name in ("literal", "always", "comparison", "box", "wide", "hidden")
        for batch in BATCHES
    ],
)
def test_both_kernels_complete_to_the_whole_message(name: str, batch: int) -> None:
    case = Case(NAMED[name], batch, batch)
    found = []
    for kernel in KERNELS:
        with wished(kernel):
            ahead = case.ahead()
            assert np.array_equal(case.complete(case.labels(), ahead), case.messages())
            found.append(ahead)
    assert all(np.array_equal(ahead, found[0]) for ahead in found)


@pytest.mark.parametrize("batch", [1, 40])
def test_one_events_labels_complete_all_messages(batch: int) -> None:
    case = Case(NAMED["box"], batch)
    case.rounds[:], case.events[:] = case.rounds[0], case.events[0]
    labels = np.broadcast_to(case.labels()[:1], (batch, case.encoding.label_bytes))
    assert np.array_equal(case.complete(labels, case.ahead()), case.messages())


def test_labels_show_neither_bits_nor_what_is_not_used() -> None:
    """Select bits are the value plus a secret shift; bits that the formula leaves out have none."""
    case = Case(And(event_bit(2) ^ interest_bit(0), event_bit(5)), 4000)
    assert case.encoding.slots.bits == [2, 5]
    assert case.encoding.label_bytes == 2 * LABEL_BYTES
    labels = case.labels()
    shown = labels[:, ::LABEL_BYTES] & 1
    agree = (shown == case.events[:, [2, 5]]).mean(axis=0)
    assert (abs(agree - 0.5) < 0.05).all()
    case.events[:, [0, 1, 3, 4]] ^= True
    assert np.array_equal(case.labels(), labels)


# -- the simulator, and what is malformed -------------------------------------------------------


@pytest.mark.parametrize("name", NAMED)
def test_simulated_parts_complete_to_the_message(name: str) -> None:
    case = Case(NAMED[name], 30)
    width = case.encoding.label_bytes + case.encoding.ahead_bytes
    drawn = np.random.default_rng(2).integers(0, 256, (30, width), dtype=np.uint8)
    kept = drawn.copy()
    labels, ahead = case.encoding.simulate(case.messages(), drawn)
    assert np.array_equal(case.complete(labels, ahead), case.messages())
    # All but slots are the uniform bytes themselves.
    assert np.array_equal(drawn, kept)
    assert np.array_equal(labels, drawn[:, : case.encoding.label_bytes])
    first = 8 * NONCE_BYTES + case.encoding.slots.slots
    drawn = drawn[:, case.encoding.label_bytes :]
    end = 8 * NONCE_BYTES + case.encoding.slots.body_bits
    assert np.array_equal(unpacked(ahead, end)[:, first:], unpacked(drawn, end)[:, first:])


def test_bits_behind_the_last_row_are_noticed() -> None:
    case = Case(NAMED["interval"], 40)
    used = 8 * NONCE_BYTES + case.encoding.slots.body_bits
    total = 8 * case.encoding.ahead_bytes
    assert used < total
    ahead, out = case.ahead(), np.empty((40, case.whole.event_bytes), np.uint8)
    for row, bit in enumerate(range(used - 10, total)):
        ahead[row, bit // 8] ^= np.uint8(1 << bit % 8)
    stray = case.encoding.complete(case.labels(), ahead, out)
    assert np.flatnonzero(stray).tolist() == list(range(10, 10 + total - used))


REFUSED: dict[str, Callable[[Bytes, Bytes, Bytes], tuple[Bytes, Bytes, Bytes]]] = {
    "labels must": lambda labels, ahead, out: (labels[:, :-1], ahead, out),
    "ahead must": lambda labels, ahead, out: (labels, ahead[:-1], out),
    "out must": lambda labels, ahead, out: (labels, ahead, out[:, 1:]),
    "labels must be a uint8 array of shape .* got int64": lambda labels, ahead, out: (
        labels.astype(np.int64), ahead, out,
    ),
}  # fmt: skip


@pytest.mark.parametrize("said", REFUSED)
def test_wrong_shapes_are_refused(said: str) -> None:
    case = Case(NAMED["interval"], 3)
    out = np.empty((3, case.whole.event_bytes), np.uint8)
    with pytest.raises(ShapeError, match=said):
        case.encoding.complete(*REFUSED[said](case.labels(), case.ahead(), out))


# -- sizes --------------------------------------------------------------------------------------


@pytest.mark.slow
def test_the_stock_box_takes_a_slot_for_each_of_an_event_and_1209_rows() -> None:
    formula = box([16, 16, 20])
    case = Case(formula, 1)
    direct, products = kinds(case, RankOneTwin(formula), 30)
    assert (len(direct), len(products)) == (52, 1209)
    assert (case.encoding.slots.slots, case.encoding.slots.rows) == (577, 1209)
    assert case.encoding.ahead_bytes - NONCE_BYTES == 224 == -(-(577 + 1209) // 8)
    assert case.encoding.label_bytes == 832


@pytest.mark.parametrize("name", NAMED)
def test_sizes_follow_from_slots_and_rows(name: str) -> None:
    encoding = Case(NAMED[name], 0).encoding
    slots = encoding.slots
    rows = [one for one in slots.coordinates if one.row >= 0]
    assert [one.row for one in rows] == list(range(slots.rows))
    assert encoding.ahead_bytes == NONCE_BYTES + -(-(slots.slots + slots.rows) // 8)
    assert encoding.label_bytes == LABEL_BYTES * len(slots.bits)
    assert encoding.labels.round_bytes == 2 * LABEL_BYTES * len(slots.bits)
    # No bit of a pad serves twice.
    assert len({(one.bit, one.pad) for one in rows}) == slots.rows
    assert max((one.pad for one in rows), default=-1) < 8 * slots.pad_bytes
