"""Tables of three brokers: interests come and go while events are matched."""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest

from ccbps.errors import NetworkError, ParameterError, PeerError
from ccbps.forms.branching import box_form
from ccbps.forms.digits import FormulaDigits
from ccbps.network import Channel
from ccbps.predicates import Predicate, Schema, UInt
from ccbps.shares.clients import HEAD_BYTES, BrokerKey, Client, expand
from ccbps.shares.replicated import Evaluation, unpacked, whole_vectors
from ccbps.shares.ring import Ring
from ccbps.shares.table import Batch, ShareTable, _groups, batches
from tests.support.three_brokers import Three, share, together

SCHEMA = Schema(price=UInt(8), volume=UInt(6))
FORM = FormulaDigits(SCHEMA, {"price": 4, "volume": 3}, box_form(SCHEMA))
EVALUATION = Evaluation(FORM.program, FORM.digit_bits, FORM.tables, FORM.table_rows)
CONTEXT = bytes(range(32))
KEYS = [BrokerKey.generate() for _ in range(3)]
CLIENT = Client([key.public for key in KEYS], CONTEXT)
HELD = [key.open(i, CLIENT.hellos[i], CONTEXT) for i, key in enumerate(KEYS)]
RNG = np.random.default_rng(5)
EVENTS = SCHEMA.encode({"price": RNG.integers(0, 256, 40), "volume": RNG.integers(0, 64, 40)})
SENT = share(CLIENT, "event", FORM.event_rows(EVENTS))


def drawn(count: int) -> list[Predicate]:
    lows = RNG.integers(0, 200, count)
    return [SCHEMA.parse(f"price BETWEEN {low} AND {low + 60} AND volume < 50") for low in lows]


def encoded(predicates: list[Predicate]) -> Three:
    forms = [box_form(SCHEMA, predicate.box()) for predicate in predicates]
    return share(CLIENT, "interest", FORM.interest_rows(forms))


def add(table: ShareTable, party: int, messages: Three) -> Any:
    shares = expand(party, HELD[party], "interest", messages[party], FORM.rows)
    return table.add(messages[party][:, :HEAD_BYTES], shares)


def events_of(party: int) -> Any:
    shares = expand(party, HELD[party], "event", SENT[party], FORM.event_bits)
    whole = [
        whole_vectors(share, FORM.digit_bits, (party + number) % 3 == 0)
        for number, share in enumerate(shares)
    ]
    return SENT[party][:, :HEAD_BYTES], (whole[0], whole[1])


def test_interests_come_and_go() -> None:
    counts = (3, 100, 64, 70)
    groups = [drawn(count) for count in counts]
    messages = [encoded(group) for group in groups]
    everything = [predicate for group in groups for predicate in group]
    removed = [0, 5, 63, 64, 130, 236]

    def act(party: int, lower: Channel, upper: Channel) -> Any:
        table, unit, answers = ShareTable(EVALUATION, FORM.rows, HEAD_BYTES, 128), 0, []
        with Ring(party, lower, upper, CONTEXT) as ring:
            for group in messages:
                add(table, party, group)
                matched, unit = Batch(*events_of(party), [table]).match(ring, unit)
                answers.append(matched)
            table.remove(np.array(removed))
            matched, unit = Batch(*events_of(party), [table]).match(ring, unit)
            answers.append(matched)
        table.remove(np.array([63, 1 << 20]))  # nothing is there
        assert len(table) == sum(counts) - len(removed)
        return answers

    expected = np.stack([predicate.evaluate(EVENTS) for predicate in everything], axis=1)
    for answers in together(act):
        assert not isinstance(answers, Exception), answers
        for count, matched in zip(np.cumsum(counts), answers, strict=False):
            assert np.array_equal(matched, expected[:, :count])
        left = expected.copy()
        left[:, removed] = False
        assert np.array_equal(answers[-1], left)


@pytest.mark.parametrize("fault", ["order", "removed", "more", "events"])
def test_brokers_with_other_tables_part(fault: str) -> None:
    messages = [encoded(drawn(20)), encoded(drawn(20))]

    def act(party: int, lower: Channel, upper: Channel) -> Any:
        table = ShareTable(EVALUATION, FORM.rows, HEAD_BYTES, 64)
        other = party == 1
        for group in reversed(messages) if other and fault == "order" else messages:
            add(table, party, group)
        if other and fault == "removed":
            table.remove(np.array([7]))
        if other and fault == "more":
            add(table, party, messages[0])
        heads, events = events_of(party)
        if other and fault == "events":
            heads, events = heads[::-1], (events[0][::-1], events[1][::-1])
        with Ring(party, lower, upper, CONTEXT) as ring:
            return Batch(heads, events, [table]).match(ring, 0)

    errors = together(act)
    assert all(isinstance(error, NetworkError) for error in errors), errors
    assert any(isinstance(error, PeerError) for error in errors)


def test_an_empty_table_matches_nothing() -> None:
    def act(party: int, lower: Channel, upper: Channel) -> Any:
        with Ring(party, lower, upper, CONTEXT) as ring:
            table = ShareTable(EVALUATION, FORM.rows, HEAD_BYTES)
            return Batch(*events_of(party), [table]).match(ring, 4)

    for matched, unit in together(act):
        assert matched.shape == (len(EVENTS), 0) and unit == 4
    with pytest.raises(ParameterError, match="multiple of 64"):
        ShareTable(EVALUATION, FORM.rows, HEAD_BYTES, 100)


def test_interests_go_to_any_lanes_and_replace_others() -> None:
    form_rows, rng = 5, np.random.default_rng(3)
    table = ShareTable(EVALUATION, form_rows, 4, 128)
    held: dict[int, Any] = {}
    for _ in range(40):
        chosen = rng.choice(600, rng.integers(1, 90), replace=False)
        heads = rng.integers(0, 256, (len(chosen), 4), dtype=np.uint8)
        bits = rng.integers(0, 2, (2, len(chosen), form_rows), dtype=np.uint8)
        table.put(chosen, heads, (bits[0], bits[1]))
        held |= {int(lane): (heads[row], bits[:, row]) for row, lane in enumerate(chosen)}
        gone = rng.choice(700, 30, replace=False)
        table.remove(gone)
        for lane in gone.tolist():
            held.pop(lane, None)
        assert len(table) == len(held)
    assert table.used <= 600
    for number, block in enumerate(table.blocks):
        assert block.used == 128 or block is table.blocks[-1]
        shown = np.stack([unpacked(share, 128) for share in block.shares])
        for place in range(128):
            head, bits = held.get(128 * number + place, (None, np.zeros((2, form_rows))))
            assert np.array_equal(shown[:, :, place], bits)
            assert block.live[place] == (head is not None)
            if head is not None:
                assert np.array_equal(block.heads[place], head)


@pytest.mark.parametrize(("lanes", "size"), [(0, 256), (64, 256), (1024, 64), (10**6, 16)])
def test_units_of_few_lanes_have_more_events(lanes: int, size: int) -> None:
    found = [*batches(1024, lanes)]
    assert [row for rows in found for row in range(1024)[rows]] == [*range(1024)]
    assert {rows.stop - rows.start for rows in found} == {size}


def test_small_blocks_are_evaluated_as_one() -> None:
    def filled(count: int) -> ShareTable:
        table = ShareTable(EVALUATION, 1, 4)
        bits = np.zeros((count, 1), np.uint8)
        table.add(np.zeros((count, 4), np.uint8), (bits, bits))
        return table

    sizes = 1, 70, 5000, 3, 4096, 64, 70_000, 5
    groups = [[piece.block.used for piece in group] for group in _groups([*map(filled, sizes)])]
    assert groups == [[1, 70], [5000], [3, 4096, 64], [65_536], [4464], [5]]
    pieces = [piece for group in _groups([*map(filled, sizes)]) for piece in group]
    ends = np.cumsum([piece.block.used for piece in pieces])
    assert [piece.lanes.stop for piece in pieces] == ends.tolist()
    assert [piece.places.start for piece in pieces] == [0, 64, 0, 0, 64, 4160, 0, 0, 0]
