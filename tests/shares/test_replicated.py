"""Three brokers: right answers, the messages of a slow twin, and views that say nothing else."""

from __future__ import annotations

from collections.abc import Sequence
from itertools import combinations, pairwise, product
from typing import Any

import numpy as np
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps.arrays import Bools, Bytes, Words
from ccbps.errors import UnsupportedPredicateError
from ccbps.forms.branching import box_form
from ccbps.forms.digits import BoxDigits, DigitForm, FormulaDigits, HiddenDigits
from ccbps.predicates import Events, Schema, UInt
from ccbps.predicates.codes import Intervals, unpack
from ccbps.predicates.hiding import DoesNotFit, hide
from ccbps.shares.replicated import (
    Evaluation,
    Shares,
    add_rows,
    lanes,
    unpacked,
    whole_vectors,
)
from tests.reference import three_brokers
from tests.support.effort import examples
from tests.support.strategies import predicates, record, rows, schemas
from tests.support.three_brokers import recorded

KINDS = ("literal", "compare", "interval", "box")


def shared(bits: Any, rng: np.random.Generator) -> list[Any]:
    first, second = rng.integers(0, 2, (2, *bits.shape), dtype=np.uint8)
    return [first, second, bits ^ first ^ second]


def evaluated(
    form: DigitForm,
    events: Sequence[Bytes],
    interests: Sequence[Words],
    keys: Sequence[Words],
    *,
    opened: bool = True,
) -> tuple[list[Shares], list[list[Words]]]:
    """Run three brokers on shares; return what each returns, and what each receives.

    Args:
        form: the lookups and layers.
        events: three shares of what events send.
        interests: three shares of interests in lanes.
        keys: masks F(k_0), F(k_1) and F(k_2), shape (gates, events, words).
        opened: whether the answers are told to all.
    """
    whole = [whole_vectors(s, form.digit_bits, i == 0) for i, s in enumerate(events)]
    evaluation = Evaluation(form.program, form.digit_bits, form.tables, form.table_rows)

    def broker(i: int) -> Any:
        j, used = (i + 1) % 3, [0]

        def masks(shape: tuple[int, ...]) -> Words:
            at = slice(used[0], used[0] + shape[0])
            used[0] = at.stop
            return np.broadcast_to(keys[i][at] ^ keys[j][at], shape)

        pairs = (whole[i], whole[j]), (interests[i], interests[j])
        return evaluation.steps(*pairs, masks, opened=opened)

    return recorded([broker(i) for i in range(3)])


def answers(form: DigitForm, events: Bytes, interests: Bytes, seed: int = 0) -> Bools:
    """Return the answers of three brokers for plain bits of both sides, (events, interests)."""
    rng = np.random.default_rng(seed)
    shares = [lanes(part) for part in shared(interests, rng)]
    shape = form.program.gates, len(events), shares[0].shape[1]
    keys = rng.integers(0, 1 << 64, (3, *shape), dtype=np.uint64)
    done, _ = evaluated(form, shared(events, rng), shares, keys)
    assert all(np.array_equal(done[0][0], other[0]) for other in done)
    return unpacked(done[0][0], len(interests))


# -- answers ----------------------------------------------------------------------------------


@given(data=st.data(), schema=schemas())
@settings(max_examples=examples(200))
def test_templates_answer_as_in_plaintext(data: st.DataObject, schema: Schema) -> None:
    drawn = data.draw(predicates(schema))
    template = schema.parse(drawn.text)
    windows = {name: data.draw(st.integers(1, 6)) for name in schema}
    form = FormulaDigits(schema, windows, template.true_form())
    bound = template.bind(**drawn.private)
    events = schema.encode([record(row) for row in data.draw(rows(schema))])
    if events.count:
        interests = form.interest_rows([bound.true_form()])
        assert interests.shape == (1, form.rows)
        got = answers(form, form.event_rows(events), interests)
        assert got[:, 0].tolist() == bound.evaluate(events).tolist()


@given(data=st.data(), schema=schemas(), kind=st.sampled_from(KINDS), depth=st.integers(0, 3))
@settings(max_examples=examples(80))
def test_hidden_formulas_answer_as_in_plaintext(
    data: st.DataObject, schema: Schema, kind: Any, depth: int
) -> None:
    predicate = schema.parse(data.draw(predicates(schema, private=False)).text)
    windows = {name: data.draw(st.integers(1, 6)) for name in schema}
    try:
        tree = hide(schema, predicate.true_form(), depth, kind)
    except DoesNotFit:
        return
    form = HiddenDigits(schema, windows, depth, kind)
    events = schema.encode([record(row) for row in data.draw(rows(schema))])
    if events.count:
        got = answers(form, form.event_rows(events), form.interest_rows([tree]))
        assert got[:, 0].tolist() == predicate.evaluate(events).tolist()


@pytest.mark.parametrize("window", range(1, 7))
def test_all_codes_meet_all_intervals(window: int) -> None:
    schema = Schema(x=UInt(5))
    form = FormulaDigits(schema, {"x": window}, box_form(schema))
    events = schema.encode({"x": range(32)})
    bounds = [(low, high) for low in range(33) for high in range(low - 1, 32)]
    interests = form.fill(0, *zip(*bounds, strict=True), np.zeros(len(bounds), dtype=np.bool_))
    x = np.arange(32)[:, None]
    expected = np.array([(low <= x) & (x <= high) for low, high in bounds])[:, :, 0].T
    assert np.array_equal(answers(form, form.event_rows(events), interests), expected)


def with_ends(size: int, ends: Sequence[int]) -> tuple[Intervals, Intervals]:
    """Return the set of codes below `size` with these ends, and the codes outside of it."""
    parts = [(low, high - 1) for low, high in pairwise([0, *ends, size])]
    return tuple(parts[::2]), tuple(parts[1::2])


@pytest.mark.parametrize("window", range(1, 5))
@pytest.mark.parametrize("intervals", [1, 2])
def test_all_codes_meet_all_sets_of_so_many_ends(window: int, intervals: int) -> None:
    schema = Schema(x=UInt(4))
    form = BoxDigits(schema, {"x": window}, {"x": intervals})
    events = form.event_rows(schema.encode({"x": range(16)}))
    most = 2 * intervals if window < 4 else 15
    places = [some for count in range(most + 1) for some in combinations(range(1, 16), count)]
    sets = [allowed for ends in places for allowed in with_ends(16, ends)]
    interests = form.interest_rows([{"x": allowed} for allowed in sets])
    inside = [[any(a <= x <= b for a, b in allowed) for allowed in sets] for x in range(16)]
    assert np.array_equal(answers(form, events, interests), inside)


@given(data=st.data(), schema=schemas())
@settings(max_examples=examples(120))
def test_boxes_of_sets_answer_as_in_plaintext(data: st.DataObject, schema: Schema) -> None:
    form, events, boxes = drawn_boxes(data, schema)
    if not events.count:
        return
    codes = {name: unpack(events.codes[name]) for name in schema}
    expected = [
        [
            all(any(a <= codes[name][row] <= b for a, b in box[name]) for name in schema)
            for box in boxes
        ]
        for row in range(events.count)
    ]
    got = answers(form, form.event_rows(events), form.interest_rows(boxes))
    assert np.array_equal(got, expected)


def drawn_boxes(
    data: st.DataObject, schema: Schema
) -> tuple[BoxDigits, Events, list[dict[str, Intervals]]]:
    """Draw events, and boxes whose sets end near the events' codes."""
    windows = {name: data.draw(st.integers(1, 6)) for name in schema}
    form = BoxDigits(schema, windows, {name: data.draw(st.integers(1, 3)) for name in schema})
    events = schema.encode([record(row) for row in data.draw(rows(schema, 4))])

    def box() -> dict[str, Intervals]:
        sets = {}
        for name in schema:
            size, most = schema[name].size, 2 * form.intervals[name]
            near = [code + more for code in unpack(events.codes[name]) for more in (0, 1)]
            places = sorted({end for end in (1, size - 1, *near) if 0 < end < size})
            inner = (
                st.sets(st.sampled_from(places), max_size=min(most, 8))
                if places
                else st.just(set())
            )
            ends = data.draw(inner)
            sets[name] = data.draw(st.sampled_from(with_ends(size, sorted(ends))))
        return sets

    return form, events, [box() for _ in range(data.draw(st.integers(1, 3)))]


@given(data=st.data(), schema=schemas())
@settings(max_examples=examples(150))
def test_predicates_are_boxes_of_sets(data: st.DataObject, schema: Schema) -> None:
    drawn = data.draw(predicates(schema))
    predicate = schema.parse(drawn.text).bind(**drawn.private)
    windows = {name: data.draw(st.integers(1, 6)) for name in schema}
    form = BoxDigits(schema, windows, {name: data.draw(st.integers(1, 3)) for name in schema})
    events = schema.encode([record(row) for row in data.draw(rows(schema))])
    try:
        sets = predicate.sets(form.intervals)
    except UnsupportedPredicateError:
        return
    if events.count:
        got = answers(form, form.event_rows(events), form.interest_rows([sets]))
        assert got[:, 0].tolist() == predicate.evaluate(events).tolist()


@pytest.mark.parametrize("intervals", [1, 2, 5])
@pytest.mark.parametrize("window", range(1, 9))
def test_intervals_take_what_the_formulas_say(window: int, intervals: int) -> None:
    schema = Schema(price=UInt(16), volume=UInt(5), issue=UInt(20))
    form = BoxDigits(schema, dict.fromkeys(schema, window), dict.fromkeys(schema, intervals))
    digits = [-(-schema[name].bits // window) for name in schema]
    leaves = [intervals * (4 * m - 4) + 1 for m in digits]
    assert len(form.tables) == sum(leaves)
    assert form.program.gates == sum(leaves) + len(schema) - 1
    least = BoxDigits(schema, dict.fromkeys(schema, window), dict.fromkeys(schema, 1))
    assert len(form.program.layers) == len(least.program.layers)
    assert form.event_bits == least.event_bits
    assert form.interest_rows([]).shape == (0, form.rows)


def test_lanes_that_are_empty_match_nothing() -> None:
    schema = Schema(x=UInt(5), y=UInt(3))
    form = FormulaDigits(schema, {"x": 2, "y": 2}, box_form(schema))
    events = form.event_rows(schema.encode({"x": range(32), "y": [0, 7] * 16}))
    assert not answers(form, events, np.zeros((70, form.rows), dtype=np.uint8)).any()


@pytest.mark.parametrize(
    ("window", "event", "interest", "gates", "layers"),
    [(4, 25, 86, 45, 6), (6, 60, 190, 33, 5), (2, 10, 48, 97, 11)],
)
def test_sizes_of_the_stock_box(
    window: int, event: int, interest: int, gates: int, layers: int
) -> None:
    schema = Schema(price=UInt(16), volume=UInt(16), issue=UInt(20))
    form = FormulaDigits(schema, dict.fromkeys(schema, window), box_form(schema))
    assert -(-form.event_bits // 8) == event
    assert -(-form.rows // 8) == interest
    # And one more message, in which the answer is opened.
    assert (form.program.gates, len(form.program.layers)) == (gates, layers)


@given(data=st.data(), size=st.integers(1, 20), words=st.integers(1, 3))
def test_rows_are_added(data: st.DataObject, size: int, words: int) -> None:
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    table = rng.integers(0, 1 << 64, (size, words), dtype=np.uint64)
    chosen = rng.integers(0, 2, (5, size), dtype=np.uint8)
    out = rng.integers(0, 1 << 64, (5, words), dtype=np.uint64)
    expected = out.copy()
    for event, row in product(range(5), range(size)):
        if chosen[event, row]:
            expected[event] ^= table[row]
    add_rows(table, chosen, out)
    assert np.array_equal(out, expected)


# -- messages ---------------------------------------------------------------------------------


@given(data=st.data(), schema=schemas(), box=st.booleans())
@settings(max_examples=examples(60))
def test_messages_are_those_of_the_twin(data: st.DataObject, schema: Schema, box: bool) -> None:
    form: FormulaDigits | BoxDigits
    if box:
        form, events, boxes = drawn_boxes(data, schema)
        plain = form.interest_rows(boxes[:1])
    else:
        drawn = data.draw(predicates(schema))
        template = schema.parse(drawn.text)
        form = FormulaDigits(schema, dict.fromkeys(schema, 2), template.true_form())
        events = schema.encode([record(row) for row in data.draw(rows(schema, 2))])
        plain = form.interest_rows([template.bind(**drawn.private).true_form()])
    if not events.count:
        return
    rng = np.random.default_rng(data.draw(st.integers(0, 1 << 32)))
    event, interest = shared(form.event_rows(events)[:1], rng), shared(plain, rng)
    keys = rng.integers(0, 2, (3, form.program.gates, 1, 1), dtype=np.uint64)
    done, seen = evaluated(form, event, [lanes(s) for s in interest], keys, opened=False)
    sent, shares = three_brokers.messages(
        form,
        np.concatenate(event).T.tolist(),
        np.concatenate(interest).T.tolist(),
        keys[:, :, 0, 0].tolist(),
    )
    for i in range(3):
        got = [int(word) & 1 for message in seen[i] for word in message[:, 0, 0]]
        assert got == [z[(i + 1) % 3] for z in sent]
        assert [int(part[0, 0]) & 1 for part in done[i]] == [shares[i], shares[(i + 1) % 3]]


# -- views ------------------------------------------------------------------------------------

ENUMERATED = 4 + 6  # bits of randomness of an interest and of the masks of two evaluations


def all_views(
    form: DigitForm, xs: tuple[int, int], interest: Bytes, *, opened: bool, masks: str = "fresh"
) -> list[Any]:
    """Count all views of each broker: one interest meets two events, for all randomness.

    Events stand for the random shares of both, and lanes for the interest's and the masks.
    """
    schema = form.schema
    plain = form.event_rows(schema.encode({"x": xs}))[:, 0]
    events = np.array(list(product((0, 1), repeat=4)), dtype=np.uint8)
    random = np.array(list(product((0, 1), repeat=ENUMERATED)), dtype=np.uint8)
    parts = random[:, 0:2], random[:, 2:4]
    interests = [lanes(part) for part in (*parts, parts[0] ^ parts[1] ^ interest)]
    places = (4, 4) if masks == "again" else (4, 7)
    shares = [[events[:, [n]], events[:, [2 + n]]] for n in (0, 1)]
    views: list[list[Bytes]] = [[], [], []]
    for n in (0, 1):
        three = [*shares[n], shares[n][0] ^ shares[n][1] ^ plain[n]]
        keys = [lanes(random[:, [places[n] + i]] * (masks != "none"))[None] for i in range(3)]
        keys = [np.broadcast_to(key, (1, len(events), key.shape[2])) for key in keys]
        done, seen = evaluated(form, three, interests, keys, opened=opened)
        for i in range(3):
            j = (i + 1) % 3
            used = [seen[i][0][0], *((done[i][0],) if opened else ())]
            columns = [unpacked(word, len(random)).view(np.uint8) for word in used]
            columns += [np.repeat(three[k], len(random), axis=1) for k in (i, j)]
            columns += [unpacked(keys[k][0], len(random)).view(np.uint8) for k in (i, j)]
            views[i] += columns
    everything = [*parts, parts[0] ^ parts[1] ^ interest]
    counts = []
    for i in range(3):
        own = np.concatenate([everything[i], everything[(i + 1) % 3]], axis=1)
        columns = views[i] + [np.broadcast_to(column, views[i][0].shape) for column in own.T]
        bits = np.stack([column.reshape(-1) for column in columns], axis=1)
        codes = bits.astype(np.int64) @ (1 << np.arange(bits.shape[1], dtype=np.int64))
        counts.append(np.unique(codes, return_counts=True))
    return counts


def views_depend_on(opened: bool, masks: str = "fresh") -> bool:
    """Tell whether views are the same for all inputs, or for all that have the same answers."""
    schema = Schema(x=UInt(1))
    form = BoxDigits(schema, {"x": 1}, {"x": 1})
    groups: dict[Any, list[Any]] = {}
    for xs in product((0, 1), repeat=2):
        for allowed in ((), ((0, 0),), ((1, 1),), ((0, 1),)):
            interest = form.interest_rows([{"x": allowed}])
            key = tuple((x, x) in allowed or (0, 1) in allowed for x in xs) if opened else ()
            views = all_views(form, xs, interest, opened=opened, masks=masks)
            groups.setdefault(key, []).append(views)
    return all(
        np.array_equal(a, b)
        for views in groups.values()
        for other in views[1:]
        for mine, its in zip(views[0], other, strict=True)
        for a, b in zip(mine, its, strict=True)
    )


def test_views_are_the_same_for_all_inputs() -> None:
    assert views_depend_on(opened=False)


def test_views_with_answers_depend_on_the_answers_only() -> None:
    assert views_depend_on(opened=True)


@pytest.mark.parametrize("masks", ["again", "none"])
def test_masks_that_are_missing_or_used_again_are_noticed(masks: str) -> None:
    assert not views_depend_on(opened=False, masks=masks)


def test_two_brokers_read_everything() -> None:
    schema = Schema(x=UInt(5))
    form = FormulaDigits(schema, {"x": 2}, box_form(schema))
    rows_of_events = form.event_rows(schema.encode({"x": [19, 4]}))
    shares = shared(rows_of_events, np.random.default_rng(3))
    first, second = (shares[0], shares[1]), (shares[1], shares[2])
    assert np.array_equal(first[0] ^ first[1] ^ second[1], rows_of_events)
