"""BroadcastMatch: one event for all interests of its round answers as plaintext, in any order."""

from __future__ import annotations

from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ccbps import OneTimePad, Schema, SeedRing, SharedSeed, UInt
from ccbps.encodings.labels import LABEL_BYTES, NONCE_BYTES
from ccbps.errors import (
    DecodeError,
    KeyMismatchError,
    ParameterError,
    RandomnessReuseError,
)
from ccbps.matching import BroadcastMatch, FormulaMatch, Matcher
from ccbps.predicates import Events, Predicate
from ccbps.wire import ROUND_HEADER_BYTES, TAG_BYTES, Cause
from tests.support.one_time import BITS, QUOTES, SEED, TEMPLATE

STOCK = Schema(a=UInt(16), b=UInt(16), c=UInt(20))
WINDOWS = (1, 2, 3, 4)
every_window = pytest.mark.parametrize("window", WINDOWS)

MATCHERS: dict[str, Callable[..., BroadcastMatch]] = {
    "box": lambda **o: BroadcastMatch.box(QUOTES, **o),
    "template": lambda **o: BroadcastMatch(QUOTES, TEMPLATE, **o),
    "hidden": lambda **o: BroadcastMatch.hidden(QUOTES, leaves=2, leaf="interval", **o),
}
every_matcher = pytest.mark.parametrize("name", MATCHERS)


def plaintext(bound: Sequence[Predicate], events: Events) -> NDArray[np.bool_]:
    """Shape (predicates, events)."""
    return np.array([one.evaluate(events) for one in bound]).reshape(len(bound), events.count)


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


@pytest.mark.parametrize("order", ["apart", "in turn"])
def test_two_different_events_of_one_round_are_refused(order: str) -> None:
    """By a broker that keeps nothing, where both come in one call; no other round's answers."""
    traded = Traded()
    record = {"a": 1, "b": 2, "c": 3}
    second = traded.matcher.publisher(SEED).encode([record], [1])
    events = np.repeat(traded.events, 40, axis=0)
    assert not traded.broker.examine(events, traded.interests)[1].any()
    changed = np.arange(50, 70, 1 if order == "apart" else 3)
    events[changed] = second
    shuffled = np.random.default_rng(5).permutation(120)
    for rows in (np.arange(120), shuffled):
        answers, causes = traded.broker.examine(events[rows], traded.interests[rows])
        twice = np.repeat([False, True, False], 40)[rows]
        assert np.array_equal(causes == Cause.TWO_EVENTS, twice) and not causes[~twice].any()
        assert np.array_equal(answers, traded.meaning.ravel()[rows] & ~twice)
    with pytest.raises(DecodeError, match="row 40: two different events have this round"):
        traded.broker.match(events, traded.interests)
    # Rows that do not follow one another in memory are compared, too.
    apart = np.zeros((120, 2 * events.shape[1]), dtype=np.uint8)[:, : events.shape[1]]
    apart[:] = events
    assert traded.broker.examine(apart, traded.interests)[1].any()


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
    assert len({one.digest[:6] for one in made}) == len(made)


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
        with pytest.raises(ParameterError, match=r"window must be .* from 1 to 4, got"):
            make(window=window)


def test_all_parties_have_one_seed_and_the_broker_none() -> None:
    matcher, ring = BroadcastMatch.box(BITS), SeedRing.of(SEED, ["ann", "bob"])
    for role in (matcher.publisher, matcher.subscriber):
        with pytest.raises(ParameterError, match="give the SharedSeed of all"):
            role(ring)
    FormulaMatch.box(BITS).publisher(ring)
    with pytest.raises(KeyMismatchError, match="a broker of BroadcastMatch takes no key"):
        matcher.broker(SEED)  # type: ignore[arg-type]


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


@every_window
def test_sizes_follow_from_digits_and_slots(window: int) -> None:
    for make in MATCHERS.values():
        matcher = make(window=window)
        slots = matcher.encoding.slots
        labels = sum(1 << slots.widths[digit] for digit in slots.digits)
        assert matcher.event_bytes == ROUND_HEADER_BYTES + LABEL_BYTES * len(slots.digits)
        assert matcher.randomness_bytes == TAG_BYTES + LABEL_BYTES * labels
        body = -(-(slots.slots + slots.rows) // 8)
        assert matcher.interest_bytes == ROUND_HEADER_BYTES + NONCE_BYTES + body
    # Public conditions of a template are one bit, which has a label.
    public = BroadcastMatch(BITS, "a < 3 OR b > 12 AND NOT c = 5", window=window)
    assert public.sizes.event == LABEL_BYTES


def test_cards_say_whom_labels_are_for() -> None:
    for make in MATCHERS.values():
        card = make().leakage
        said = " ".join(card.hazards)
        for hazard in ("two events", "colludes", "for the broker alone", "leaves"):
            assert hazard in said
        assert "ideal cipher" in card.assumption


def test_a_broadcast_is_proposed_for_what_a_formula_is() -> None:
    for text in ("price < :p AND volume > 5", "price < 5", "price < 5 OR volume > 9"):
        wanted = QUOTES.parse(text)
        found: list[Matcher] = list(BroadcastMatch.propose(QUOTES, wanted))
        other: list[Matcher] = list(FormulaMatch.propose(QUOTES, wanted))
        assert len(found) == len(other) == 1
        assert repr(found[0]).replace("Broadcast", "Formula") == repr(other[0])
