"""BroadcastMatch: one event for all interests of its round answers as plaintext, in any order."""

from __future__ import annotations

import copy
import json
import pickle
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import assume, given, settings
from hypothesis import strategies as st
from numpy.typing import NDArray

from ccbps import Category, OneTimePad, Schema, SharedSeed, UInt
from ccbps.dictionary import DictionaryColumn
from ccbps.encodings.labels import LABEL_BYTES, NONCE_BYTES
from ccbps.errors import (
    CcbpsError,
    DecodeError,
    KeyMismatchError,
    ParameterError,
    RandomnessReuseError,
    UnsupportedPredicateError,
)
from ccbps.leakage import Protects
from ccbps.matching import BroadcastMatch, FormulaMatch, Matcher, from_json
from ccbps.predicates import Events, Predicate
from ccbps.predicates.hiding import LeafKind
from ccbps.programs.formula import depth, gates
from ccbps.wire import ROUND_HEADER_BYTES, TAG_BYTES, Cause
from tests.matching.test_formula import (
    BITS,
    CONSTRUCTS,
    QUOTES,
    TEMPLATE,
    WIDE,
    hidden,
    private_kinds,
    small,
    some_formula,
    some_leaf,
    some_schema,
    text_of,
    uniform,
)
from tests.support.effort import examples
from tests.support.strategies import Node, predicates, record, render, rows, schemas, small_types

SEED = SharedSeed(bytes(range(32)))
STOCK = Schema(a=UInt(16), b=UInt(16), c=UInt(20))
WINDOWS = (1, 2, 3, 4)
every_window = pytest.mark.parametrize("window", WINDOWS)

MATCHERS: dict[str, Callable[..., BroadcastMatch]] = {
    "box": lambda **o: BroadcastMatch.box(QUOTES, **o),
    "template": lambda **o: BroadcastMatch(QUOTES, TEMPLATE, **o),
    "hidden": lambda **o: BroadcastMatch.hidden(QUOTES, leaves=2, leaf="interval", **o),
}
every_matcher = pytest.mark.parametrize("name", MATCHERS)


def answered(
    matcher: BroadcastMatch,
    events: Events,
    interests: Any,
    which: Sequence[int] | NDArray[np.intp],
) -> Any:
    """Answers for interest i of a list with event which[i]; one round for each event."""
    which = np.asarray(which, dtype=np.uint64)
    names = [f"subscription {row}" for row in range(len(which))]
    sent = matcher.publisher(SEED).encode(events, range(events.count))
    wanted = matcher.subscriber(SEED).encode(interests, which, pairs=names)
    return matcher.broker().match(sent[which.astype(np.intp)], wanted)


def plaintext(bound: Sequence[Predicate], events: Events) -> NDArray[np.bool_]:
    """Shape (predicates, events)."""
    return np.array([one.evaluate(events) for one in bound]).reshape(len(bound), events.count)


# -- every construct ----------------------------------------------------------------------------


@given(schema=schemas(max_attributes=3), data=st.data())
@settings(max_examples=examples(60))
def test_template_answers_as_plaintext_for_any_schema(schema: Schema, data: st.DataObject) -> None:
    drawn = data.draw(predicates(schema))
    events = schema.encode([record(row) for row in data.draw(rows(schema))])
    window = data.draw(st.sampled_from(WINDOWS))
    matcher = BroadcastMatch(schema, drawn.text, window=window, max_gates=1 << 16)
    expected = schema.parse(drawn.text).bind(**drawn.private).evaluate(events)
    which = np.repeat(np.arange(events.count), 2)
    found = answered(matcher, events, drawn.private, which)
    assert found.tolist() == expected[which].tolist()
    assert pickle.loads(pickle.dumps(matcher)) == matcher


@given(schema=schemas(max_attributes=4), data=st.data())
@settings(max_examples=examples(60))
def test_box_answers_as_plaintext_for_any_schema(schema: Schema, data: st.DataObject) -> None:
    drawn = data.draw(predicates(schema, hamming=False))
    predicate = schema.parse(drawn.text).bind(**drawn.private)
    events = schema.encode([record(row) for row in data.draw(rows(schema))])
    matcher = BroadcastMatch.box(schema, window=data.draw(st.sampled_from(WINDOWS)))
    try:
        predicate.box()
    except UnsupportedPredicateError:
        with pytest.raises(UnsupportedPredicateError):
            matcher.prepare(predicate)
    else:
        found = answered(matcher, events, predicate, range(events.count))
        assert found.tolist() == predicate.evaluate(events).tolist()


@given(schema=schemas(small_types(), max_attributes=3), data=st.data())
@settings(max_examples=examples(60))
def test_hidden_answers_as_plaintext_for_any_schema(schema: Schema, data: st.DataObject) -> None:
    drawn = data.draw(predicates(schema))
    predicate = schema.parse(drawn.text).bind(**drawn.private)
    events = schema.encode([record(row) for row in data.draw(rows(schema))])
    kinds: list[LeafKind] = ["literal", "compare", "interval", "box"]
    window, leaf = data.draw(st.sampled_from(WINDOWS)), data.draw(st.sampled_from(kinds))
    try:
        matcher = BroadcastMatch.hidden(schema, leaves=4, leaf=leaf, window=window)
        matcher.prepare(predicate)
    except CcbpsError:
        assume(False)
    found = answered(matcher, events, predicate, range(events.count))
    assert found.tolist() == predicate.evaluate(events).tolist()


@every_window
@pytest.mark.parametrize("name", CONSTRUCTS)
def test_every_construct_answers_as_plaintext(name: str, window: int) -> None:
    template, values = CONSTRUCTS[name]
    rng = np.random.default_rng(window)
    events = BITS.encode({attribute: rng.integers(0, 16, 150) for attribute in BITS})
    expected = BITS.parse(template).bind(**values).evaluate(events)
    assert 0 < expected.sum() < 150
    found = answered(BroadcastMatch(BITS, template, window=window), events, values, range(150))
    assert np.array_equal(found, expected)


@every_window
@pytest.mark.parametrize("bits", [1, 2, 3, 5])
def test_every_interval_is_its_own_whatever_its_order(bits: int, window: int) -> None:
    """Empty ones, as lo > hi, and full ones; every event is sent once."""
    schema, bounds = Schema(x=UInt(bits)), range(-1, (1 << bits) + 1)
    every = [(low, high) for low in bounds for high in bounds]
    texts = [f"x BETWEEN {low} AND {high}" for low, high in every]
    events = schema.encode({"x": range(1 << bits)})
    expected = plaintext([schema.parse(text) for text in texts], events).ravel()
    assert 0 < expected.sum() < expected.size
    which = np.tile(np.arange(1 << bits), len(every))
    index = np.repeat(np.arange(len(every)), 1 << bits)
    for matcher, asked in (
        (BroadcastMatch.box(schema, window=window), texts),
        (
            BroadcastMatch(schema, "x BETWEEN :low AND :high", window=window),
            [{"low": low, "high": high} for low, high in every],
        ),
    ):
        column: Any = DictionaryColumn(asked, index)
        assert np.array_equal(answered(matcher, events, column, which), expected)


@every_window
def test_a_template_without_private_constants_answers(window: int) -> None:
    matcher = BroadcastMatch(BITS, "a < 3 OR b > 12 AND NOT c = 5", window=window)
    rng = np.random.default_rng(4)
    events = BITS.encode({attribute: rng.integers(0, 16, 60) for attribute in BITS})
    expected = BITS.parse("a < 3 OR b > 12 AND NOT c = 5").evaluate(events)
    assert np.array_equal(answered(matcher, events, {}, range(60)), expected)
    assert matcher.sizes.event == LABEL_BYTES


@pytest.mark.parametrize(
    ("pairs", "matchers"), [(20_000, 5), pytest.param(1_000_000, 10, marks=pytest.mark.slow)]
)
@pytest.mark.parametrize("shape", ["box", "template", "hidden"])
def test_random_pairs_over_random_schemas_answer_as_plaintext(
    pairs: int, matchers: int, shape: str
) -> None:
    """Few events, and many interests for each, shuffled."""
    rng = np.random.default_rng([pairs, len(shape)])
    kinds, shares = 25, []
    for number in range(matchers):
        schema, count = some_schema(rng), pairs // matchers
        values = {name: uniform(schema[name], rng, 200) for name in schema}
        events, window = schema.encode(values), WINDOWS[number % 4]
        asked: list[Any] = []
        if shape == "template":
            private: dict[str, Any] = {}
            tree = hidden(some_formula(schema, rng, int(rng.integers(1, 6))), rng, private)
            text = render(schema, tree, sqlite=False)
            matcher = BroadcastMatch(schema, text, window=window, max_gates=1 << 16)
            others = {
                name: [one for one in uniform(schema[kind], rng, 99) if one is not None]
                for name, kind in private_kinds(tree).items()
            }
            asked = [private]
            asked += [{n: some[i] for n, some in others.items()} for i in range(kinds - 1)]
            assert matcher.template is not None
            bound = [matcher.template.bind(**one) for one in asked]
        else:
            if shape == "box":
                matcher = BroadcastMatch.box(schema, window=window)
            else:
                matcher = BroadcastMatch.hidden(
                    schema, leaves=4, leaf="interval", window=window, max_gates=1 << 16
                )
            while len(asked) < kinds:
                asked.append(some_text(schema, rng, box=shape == "box"))
                try:
                    matcher.prepare(asked[-1])
                except UnsupportedPredicateError:
                    asked.pop()  # of a hidden formula, too deep
            bound = [schema.parse(text) for text in asked]
        index, which = rng.integers(0, kinds, count), rng.integers(0, 200, count)
        found = answered(matcher, events, DictionaryColumn(asked, index), which)
        expected = plaintext(bound, events)[index, which]
        assert np.array_equal(found, expected)
        shares.append(expected.mean())
    assert 0.05 < np.mean(shares) < 0.9


def some_text(schema: Schema, rng: np.random.Generator, *, box: bool) -> str:
    """A conjunction of intervals, or any formula."""
    if not box:
        tree = some_formula(schema, rng, int(rng.integers(1, 4)))
    else:
        count = int(rng.integers(1, 3))
        parts = tuple(some_leaf(schema, rng, box=True) for _ in range(count))
        tree = Node("and", parts=parts)
    return render(schema, tree, sqlite=False)


# -- events and interests in any order ----------------------------------------------------------


class Traded:
    """Messages of a box: 3 events, and 40 interests for each."""

    def __init__(self, window: int = 2) -> None:
        self.matcher = BroadcastMatch.box(STOCK, window=window)
        rng = np.random.default_rng(8)
        self.texts = [
            f"a < {a} AND b >= {b}" for a, b in rng.integers(0, 1 << 16, (40, 2)).tolist()
        ]
        records = {"a": [9, 30_000, 60_000], "b": [60_000, 40_000, 9], "c": [1, 2, 3]}
        encoded = STOCK.encode(records)
        self.meaning = plaintext([STOCK.parse(text) for text in self.texts], encoded).T
        assert 0 < self.meaning.sum() < self.meaning.size
        self.events = self.matcher.publisher(SEED).encode(encoded, range(3))
        names = [f"s{i}" for i in range(40)]
        self.interests = self.matcher.subscriber(SEED).encode(
            self.texts * 3, np.repeat(range(3), 40), pairs=names * 3
        )
        self.broker = self.matcher.broker()


@every_window
def test_one_event_meets_many_interests(window: int) -> None:
    traded = Traded(window)
    for number in range(3):
        some = traded.interests[40 * number : 40 * (number + 1)]
        event = traded.events[number : number + 1]
        wanted = traded.meaning[number]
        assert np.array_equal(traded.broker.match(event, some), wanted)
        assert np.array_equal(traded.broker.match(np.repeat(event, 40, axis=0), some), wanted)
        for row in (0, 39):
            assert traded.broker.match(event, some[row : row + 1]).tolist() == [wanted[row]]


def test_many_events_meet_many_interests_in_any_order() -> None:
    traded, wanted = Traded(), Traded().meaning.ravel()
    which, rng = np.repeat(range(3), 40), np.random.default_rng(1)
    for order in (np.arange(120), np.arange(120)[::-1], rng.permutation(120), rng.integers(0, 9)):
        order = np.atleast_1d(order)
        found = traded.broker.match(traded.events[which[order]], traded.interests[order])
        assert np.array_equal(found, wanted[order])


@pytest.mark.parametrize("events", [0, 1])
def test_no_interests_have_no_answers(events: int) -> None:
    traded = Traded()
    answers, causes = traded.broker.examine(traded.events[:events], traded.interests[:0])
    assert answers.shape == causes.shape == (0,) and answers.dtype == np.bool_


@pytest.mark.parametrize("events", [0, 2, 41])
def test_events_pair_with_interests_or_there_is_one(events: int) -> None:
    traded = Traded()
    sent = np.repeat(traded.events[:1], events, axis=0)
    with pytest.raises(DecodeError, match=f"{events} events do not pair with 40 interests"):
        traded.broker.match(sent, traded.interests[:40])


def test_other_schemes_do_not_take_one_event_for_all() -> None:
    matcher = FormulaMatch.box(STOCK)
    event = matcher.publisher(SEED).encode([{"a": 1, "b": 1, "c": 1}], [0])
    interests = matcher.subscriber(SEED).encode("a < 5", [0, 1])
    with pytest.raises(DecodeError, match="1 events do not pair with 2 interests"):
        matcher.broker().match(event, interests)


def test_interests_are_written_before_events_and_by_many_subscribers() -> None:
    """Each has the seed, and none says which labels it takes."""
    matcher, wanted = BroadcastMatch.box(STOCK), [True, False] * 10
    texts = ["a < 5" if one else "a > 5" for one in wanted]
    interests = [matcher.subscriber(SEED).encode(text, [7]) for text in texts]
    event = matcher.publisher(SEED).encode([{"a": 1, "b": 2, "c": 3}], [7])
    assert matcher.broker().match(event, np.concatenate(interests)).tolist() == wanted


# -- what the broker refuses --------------------------------------------------------------------


def test_rows_of_another_round_are_refused_and_others_answered() -> None:
    traded = Traded()
    rows = np.arange(120)
    which = np.repeat(range(3), 40)
    wrong = rows % 7 == 0
    which[wrong] = (which[wrong] + 1) % 3
    answers, causes = traded.broker.examine(traded.events[which], traded.interests)
    assert np.array_equal(causes == Cause.PAIRING, wrong) and not causes[~wrong].any()
    assert np.array_equal(answers, traded.meaning.ravel() & ~wrong)
    with pytest.raises(DecodeError, match="row 0"):
        traded.broker.match(traded.events[which], traded.interests)
    # One event, and interests of its round among others.
    answers, causes = traded.broker.examine(traded.events[1:2], traded.interests)
    assert np.array_equal(causes == Cause.NONE, np.repeat(range(3), 40) == 1)
    assert (
        np.array_equal(answers[40:80], traded.meaning[1]) and answers.sum() == answers[40:80].sum()
    )


@pytest.mark.parametrize(
    "other",
    [
        BroadcastMatch.box(Schema(a=UInt(16), b=UInt(16), d=UInt(20))),
        BroadcastMatch(STOCK, "a < :p AND b > :q AND c > :r"),
        BroadcastMatch.box(STOCK, window=3),
    ],
    ids=repr,
)
def test_messages_of_another_matcher_or_window_are_refused(other: BroadcastMatch) -> None:
    matcher = BroadcastMatch.box(STOCK)
    assert other.fingerprint != matcher.fingerprint
    record = {"a": 1, "b": 2, "c": 3, "d": 3}
    strange = {name: record[name] for name in other.schema}
    interest: Any = "a < 5" if other.template is None else {"p": 5, "q": 1, "r": 1}
    event = matcher.publisher(SEED).encode([{"a": 1, "b": 2, "c": 3}], [0])
    own = matcher.subscriber(SEED).encode("a < 5", [0])
    for sent, wanted in (
        (event, other.subscriber(SEED).encode(interest, [0])),
        (other.publisher(SEED).encode([strange], [0]), own),
    ):
        same = sent.shape == event.shape and wanted.shape == own.shape
        if same:
            assert matcher.broker().examine(sent, wanted)[1].tolist() == [Cause.PAIRING]
        for broker in (matcher.broker(), other.broker()):
            with pytest.raises(DecodeError):
                broker.match(sent, wanted)


def test_pairwise_messages_are_not_those_of_a_broadcast() -> None:
    assert FormulaMatch.box(STOCK).fingerprint != BroadcastMatch.box(STOCK).fingerprint
    made = [BroadcastMatch.box(STOCK, window=window) for window in WINDOWS]
    made += [BroadcastMatch(STOCK, "a < :p"), BroadcastMatch.hidden(STOCK, leaves=2)]
    assert len({one.fingerprint[:6] for one in made}) == len(made)


@every_matcher
@every_window
def test_bits_behind_the_last_row_are_refused(name: str, window: int) -> None:
    matcher = MATCHERS[name](window=window)
    interest: Any = {"issue": "IBM", "price": 9} if name == "template" else "price < 9"
    event = matcher.publisher(SEED).encode([{"issue": "IBM", "price": 3, "volume": 5}], [0])
    interests = matcher.subscriber(SEED).encode(
        [interest] * 8, [0] * 8, pairs=[f"s{i}" for i in range(8)]
    )
    used = (matcher.encoding.slots.bits - 1) % 8 + 1
    for bit in range(used, 8):
        interests[bit, -1] ^= 1 << bit
    answers, causes = matcher.broker().examine(event, interests)
    wrong = [bit >= used for bit in range(8)]
    assert causes.tolist() == [Cause.PADDING if one else Cause.NONE for one in wrong]
    assert answers.tolist() == [not one for one in wrong]


def test_some_interests_have_unused_bits_and_some_have_none() -> None:
    bits = {MATCHERS[n](window=w).encoding.slots.bits % 8 for n in MATCHERS for w in WINDOWS}
    assert len(bits) > 3


# -- what the roles refuse ----------------------------------------------------------------------


@pytest.mark.parametrize("disk", [False, True], ids=["memory", "disk"])
def test_a_subscription_is_written_once_for_a_round(disk: bool, tmp_path: Path) -> None:
    matcher = BroadcastMatch.box(STOCK)
    ledger = tmp_path / "rounds" if disk else None
    subscriber = matcher.subscriber(SEED, ledger=ledger)
    subscriber.encode(["a < 5", "b < 5"], [3, 3], pairs=["ann", "bob"])
    subscriber.encode(["a < 6", "a < 5"], [4, 3], pairs=["ann", "cy"])
    with pytest.raises(RandomnessReuseError, match=r"'ann'.*3"):
        subscriber.encode(["a < 6"], [3], pairs=["ann"])
    with pytest.raises(RandomnessReuseError, match="more than once in this batch"):
        subscriber.encode(["a < 6", "a < 7"], [9, 9], pairs=["ann", "ann"])
    # Nothing of a refused batch is used up.
    subscriber.encode(["a < 6"], [9], pairs=["ann"])
    if disk:
        again = matcher.subscriber(SEED, ledger=ledger)
        with pytest.raises(RandomnessReuseError, match=r"'bob'.*3"):
            again.encode(["a < 6"], [3], pairs=["bob"])
        assert len(again.encode(["b < 5", "a < 6"], [3, 3], pairs=["bob", "dan"])) == 2


@pytest.mark.parametrize("disk", [False, True], ids=["memory", "disk"])
def test_a_round_serves_one_event(disk: bool, tmp_path: Path) -> None:
    matcher = BroadcastMatch.box(STOCK)
    ledger = tmp_path / "rounds" if disk else None
    publisher, record = matcher.publisher(SEED, ledger=ledger), {"a": 1, "b": 2, "c": 3}
    sent = publisher.encode([record], [3])
    for role in [publisher, matcher.publisher(SEED, ledger=ledger)][: 1 + disk]:
        with pytest.raises(RandomnessReuseError, match="round 3"):
            role.encode([{**record, "c": 4}], [3])
    if disk:
        again = matcher.publisher(SEED, ledger=ledger).encode([record], [3])
        assert np.array_equal(again, sent)
    with pytest.raises(ParameterError, match="leave out pairs"):
        publisher.encode([record], [8], pairs=["ann"])
    publisher.encode([record], [8])


def test_a_pad_serves_all_subscriptions_of_a_round() -> None:
    """Labels in the clear, so to say: a pad is as long as a round's labels, once for each round."""
    matcher = BroadcastMatch(Schema(a=UInt(4)), "a < :p", window=1)
    secret = SharedSeed.generate().export_secret() * matcher.randomness_bytes
    publisher = matcher.publisher(OneTimePad(secret))
    subscriber = matcher.subscriber(OneTimePad(secret))
    interests = subscriber.encode(
        [{"p": 5}, {"p": 3}, {"p": 9}], [2, 2, 1], pairs=["ann", "bob", "ann"]
    )
    events = publisher.encode([{"a": 4}, {"a": 4}], [2, 1])
    found = matcher.broker().match(events[[0, 0, 1]], interests)
    assert found.tolist() == [True, False, True]
    with pytest.raises(RandomnessReuseError):
        subscriber.encode([{"p": 5}], [2], pairs=["bob"])


@pytest.mark.parametrize("window", [0, 5, -1, 2.0, "2", None, True])
def test_a_window_has_one_to_four_bits(window: Any) -> None:
    for make in MATCHERS.values():
        with pytest.raises(ParameterError, match="window must be a whole number of bits from 1 to 4"):
            make(window=window)


def test_a_matcher_without_a_template_names_the_others() -> None:
    with pytest.raises(ParameterError, match=r"take BroadcastMatch\.box\(schema\)"):
        BroadcastMatch(BITS)
    with pytest.raises(KeyMismatchError, match="a broker of BroadcastMatch takes no key"):
        BroadcastMatch.box(BITS).broker(SEED)  # type: ignore[arg-type]


# -- public parameters --------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("window", "event", "interest"), [(1, 832, 148), (2, 416, 173), (3, 304, 226), (4, 208, 289)]
)
def test_stock_box_is_as_small_as_counted(window: int, event: int, interest: int) -> None:
    matcher = BroadcastMatch.box(STOCK, window=window)
    assert (matcher.sizes.event, matcher.sizes.interest) == (event, NONCE_BYTES + interest)
    assert matcher.event_bytes == ROUND_HEADER_BYTES + event
    assert matcher.interest_bytes == ROUND_HEADER_BYTES + NONCE_BYTES + interest
    message = matcher.subscriber(SEED).encode("a < 5", [0])
    assert message.shape == (1, 8 + 12 + interest)


def test_wider_boxes_are_as_small_as_counted() -> None:
    found = {}
    for count, bits in ((4, 32), (8, 16)):
        schema = Schema({f"a{i}": UInt(bits) for i in range(count)})
        for window in (1, 2, 4):
            sizes = BroadcastMatch.box(schema, window=window).sizes
            found[count, window] = sizes.event, sizes.interest - NONCE_BYTES
    assert found == {
        (4, 1): (2048, 505),
        (4, 2): (1024, 610),
        (4, 4): (512, 1101),
        (8, 1): (2048, 483),
        (8, 2): (1024, 572),
        (8, 4): (512, 994),
    }


@every_matcher
@every_window
def test_a_matcher_is_the_same_after_pickling_and_from_its_text(name: str, window: int) -> None:
    matcher = MATCHERS[name](window=window)
    for made in (
        pickle.loads(pickle.dumps(matcher)),
        copy.deepcopy(matcher),
        from_json(matcher.to_json()),
    ):
        assert isinstance(made, BroadcastMatch) and made == matcher
        assert made.fingerprint == matcher.fingerprint and made.window == window
        assert made.sizes == matcher.sizes
    interest: Any = {"issue": "IBM", "price": 9} if name == "template" else "price < 9"
    event = matcher.publisher(SEED).encode([{"issue": "IBM", "price": 3, "volume": 5}], [0])
    broker = pickle.loads(pickle.dumps(matcher.broker()))
    other = from_json(matcher.to_json()).subscriber(SEED)
    assert broker.match(event, other.encode(interest, [0])).tolist() == [True]


@pytest.mark.parametrize(
    ("schema", "parameters", "message"),
    [
        (WIDE, {"gates": 4096}, "more than the 4,096 AND gates"),
        (BITS, {"gates": 4097}, r"at most 4,096 gates, got 4,097.*max_gates=4097"),
        (BITS, {"gates": 1}, "the matcher has .* gates, not 1"),
        (BITS, {"window": 5}, "window must be a whole number of bits from 1 to 4, got 5"),
        (BITS, {"window": 2.0}, "has a number that is not whole"),
        (BITS, {"window": True}, "window must be a whole number of bits"),
        (BITS, {"width": 2}, "the parameters are not those of a BroadcastMatch"),
        (BITS, {"hidden": [30, "box"]}, "depth must be a whole number from 0 to 16"),
        (BITS, {"hidden": [1, "tree"]}, "leaf must be 'literal'"),
        (BITS, {"hidden": 1}, "hidden must be levels and a kind of leaves"),
    ],
)
def test_texts_that_ask_for_too_much_are_refused(
    schema: Schema, parameters: dict[str, Any], message: str
) -> None:
    text = text_of(BroadcastMatch.box(BITS), schema, **parameters)
    small(lambda: from_json(text), message)


def test_a_role_with_a_seed_is_not_pickled_and_shows_nothing() -> None:
    matcher = BroadcastMatch.box(BITS)
    for role in (matcher.publisher(SEED), matcher.subscriber(SEED)):
        with pytest.raises(CcbpsError):
            pickle.dumps(role)
        assert bytes(range(32)).hex() not in repr(role)


@every_matcher
@every_window
def test_explain_states_sizes_costs_and_the_leakage_card(name: str, window: int) -> None:
    matcher = MATCHERS[name](window=window)
    text, slots = matcher.explain(), matcher.encoding.slots
    labels = sum(1 << slots.widths[digit] for digit in slots.digits)
    for figure in (
        f"{gates(matcher.formula):,} AND gates, depth {depth(matcher.formula)}",
        f"{len(slots.digits)} of at most {window} bits, a label each",
        f"{slots.slots:,} slots and {slots.rows:,} rows of an interest, after a nonce of 12 bytes",
        f"{slots.products:,} at the broker",
        f"{matcher.event_bytes:,} bytes per event, {matcher.interest_bytes:,} bytes per interest",
        f"{matcher.randomness_bytes:,} bytes per round",
        *(f"{cost.role}:" for cost in matcher.costs),
    ):
        assert figure in text
    assert all(line in text for line in str(matcher.leakage).splitlines())
    assert matcher.event_bytes == ROUND_HEADER_BYTES + LABEL_BYTES * len(slots.digits)
    assert matcher.randomness_bytes == TAG_BYTES + LABEL_BYTES * labels
    body = -(-(slots.slots + slots.rows) // 8)
    assert matcher.interest_bytes == ROUND_HEADER_BYTES + NONCE_BYTES + body
    assert {cost.role for cost in matcher.costs} == {"publisher", "subscriber", "broker"}


def test_cards_say_what_is_public_and_whom_labels_are_for() -> None:
    cards = {name: make().leakage for name, make in MATCHERS.items()}
    for card in cards.values():
        assert card.security == "computational" and card.reuse == "one-time"
        assert json.loads(json.dumps(card.to_dict()))["scheme"] == "BroadcastMatch"
        said = " ".join(card.hazards)
        for hazard in ("two events", "colludes", "for the broker alone", "leaves"):
            assert hazard in said
        assert "ideal cipher" in card.assumption
        assert {Protects.EVENT, Protects.EQUALITY_OF_EVENTS, Protects.CONSTANTS} <= card.protects
    assert cards["box"].protects - cards["template"].protects == {Protects.ATTRIBUTES}
    assert cards["hidden"].protects - cards["box"].protects == {Protects.FORMULA}


def test_a_broadcast_is_proposed_for_what_a_formula_is() -> None:
    for text in ("price < :p AND volume > 5", "price < 5", "price < 5 OR volume > 9"):
        wanted = QUOTES.parse(text)
        found: list[Matcher] = list(BroadcastMatch.propose(QUOTES, wanted))
        other: list[Matcher] = list(FormulaMatch.propose(QUOTES, wanted))
        assert len(found) == len(other) == 1
        assert repr(found[0]).replace("Broadcast", "Formula") == repr(other[0])


# -- compiled kernels ---------------------------------------------------------------------------


@pytest.mark.parametrize("count", [1, 7, 64, 513, 2049])
def test_compiled_kernels_read_the_same_messages(
    count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    pytest.importorskip("numba")
    rng = np.random.default_rng(count)
    events = QUOTES.encode(
        {
            "issue": rng.choice(QUOTES["issue"].values, count),  # type: ignore[attr-defined]
            "price": rng.integers(0, 65_536, count) / 100,
            "volume": rng.integers(0, 2**20, count),
        }
    )
    text = "issue >= 'ORCL' AND price < 500"
    assert isinstance(QUOTES["issue"], Category)
    sent, answers = [], []
    for wish in "01":
        monkeypatch.setenv("CCBPS_COMPILED", wish)
        matcher = BroadcastMatch.box(QUOTES)
        sent.append(matcher.publisher(SEED).encode(events, range(count)))
        wanted = matcher.subscriber(SEED).encode(text, range(count))
        answers += [matcher.broker().match(one, wanted) for one in sent]
    assert np.array_equal(*sent)
    expected = QUOTES.parse(text).evaluate(events)
    assert all(np.array_equal(found, expected) for found in answers)
