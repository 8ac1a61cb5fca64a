"""Attacks on KeywordFilterMatch and KeywordDictionaryMatch: what the cards say, done.

The attacker is the broker: it has messages, its own key, and where a test says so something it
knows about the world or a client that helps. Nothing of the secret keys is used.
"""

from __future__ import annotations

from collections import Counter
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from ccbps import Category, Schema, UInt
from ccbps.attacks.schemes.words import (
    Clause,
    attributes_of_words,
    clauses_of,
    hits_of,
    in_line,
    named_by_frequency,
    null_of,
    values_from_cells,
    words_in_common,
)
from ccbps.ciphers.word_prf import NonceHash, to_blocks
from ccbps.errors import BrokenSchemeWarning, DecodeError
from ccbps.matching import KeywordDictionaryMatch, KeywordFilterMatch, Matcher
from ccbps.wire import KEY_HEADER_BYTES, Cause
from tests.support import reusable_checks
from tests.support.reusable_checks import BODY, sealed
from tests.support.word_matchers import Both, both

Bytes = NDArray[np.uint8]
Bools = NDArray[np.bool_]
Floats = NDArray[np.float64]
Indices = NDArray[np.intp]

NAMES = [f"S{number}" for number in range(8)]
SCHEMA = Schema(issue=Category(NAMES), price=UInt(8))
POINTS = {"price": list(range(16, 256, 16))}


def world(matcher: Matcher, count: int = 4_000, seed: int = 3) -> tuple[Any, Any]:
    """A key server, and records with Zipf's frequencies of issues."""
    rng = np.random.default_rng(seed)
    chances = 1 / np.arange(1, 9)
    issue = rng.choice(8, count, p=chances / chances.sum())
    records = {"issue": [NAMES[i] for i in issue], "price": rng.integers(0, 256, count)}
    return server_of(matcher), records


def server_of(matcher: Matcher) -> Any:
    """A key server. Keys are seeded: false positives of filters could spoil any figure."""
    return matcher.key_server(randomness=np.random.default_rng(7).bytes)


def sent(matcher: Matcher, records: Any, interests: Any, server: Any) -> tuple[Bytes, Bytes]:
    """All that a broker sees: messages of events and of interests, seeded as keys are."""
    draw = np.random.default_rng(17).bytes
    return reusable_checks.sent(matcher, records, interests, server, draw)


def words_of(matcher: Any, interest: Bytes) -> list[bytes]:
    """The words of one message, each a clause of its own."""
    (clauses,) = clauses_of(matcher, interest[None, BODY])
    return [word for (word,) in clauses]


def all_clauses(matcher: Any, interests: Bytes) -> list[Clause]:
    """The clauses of all messages."""
    return [clause for body in clauses_of(matcher, interests[:, BODY]) for clause in body]


@both
def test_equal_trapdoors_show_who_wants_the_same(kind: Both) -> None:
    matcher = kind(SCHEMA, points=POINTS)
    server, records = world(matcher, 1)
    rng = np.random.default_rng(5)
    issues = rng.integers(0, 8, 100)
    limits = rng.integers(0, 15, 100) * 16 + 16
    texts = [f"issue = 'S{i}' AND price < {p}" for i, p in zip(issues, limits, strict=True)]
    _, interests = sent(matcher, records, texts, server)
    seen = [set(words_of(matcher, interest)) for interest in interests]
    common = np.array([[len(a & b) for b in seen] for a in seen])
    truth = (issues[:, None] == issues).astype(int) + (limits[:, None] == limits)
    assert np.array_equal(common, truth)


@both
def test_number_of_words_is_read_off(kind: Both) -> None:
    matcher = kind(SCHEMA, points=POINTS)
    server, records = world(matcher, 1)
    texts = ["TRUE", "issue = 'S1'", "price > 16 AND price < 64", "price = 3 AND issue = 'S1'"]
    _, interests = sent(matcher, records, texts, server)
    assert [len(words_of(matcher, interest)) for interest in interests] == [0, 1, 2, 2]


@both
def test_number_of_cells_shows_the_width_of_a_range(kind: Both) -> None:
    """From one message alone: a range of k cells of 16 is 16 (k - 2) + 2 to 16 k values wide."""
    matcher = kind(SCHEMA, partitions={"price": (16, 1)})
    server, records = world(matcher, 1)
    rng = np.random.default_rng(4)
    widths = rng.integers(2, 200, 100)
    starts = [int(rng.integers(0, 256 - width)) for width in widths]
    texts = [
        f"price BETWEEN {low} AND {low + w - 1}" for low, w in zip(starts, widths, strict=True)
    ]
    _, interests = sent(matcher, records, texts, server)
    cells = np.array([len(clause) for clause in all_clauses(matcher, interests)])
    assert ((16 * (cells - 2) + 2 <= widths) & (widths <= 16 * cells)).all()
    assert len(set(cells.tolist())) > 10  # so it says something


@both
def test_frequencies_give_words_their_names(kind: Both) -> None:
    """Knows how frequent issues are in general; sees conjunctions, each taken apart."""
    matcher = kind(SCHEMA, points=POINTS)
    server, records = world(matcher)
    order = np.random.default_rng(8).permutation(8)
    texts = [f"issue = 'S{i}' AND price > {16 * (j + 1)}" for j, i in enumerate(order)]
    events, interests = sent(matcher, records, texts, server)
    words = sorted({word for interest in interests for word in words_of(matcher, interest)})
    hits = hits_of(matcher, server.broker_key(), events[:, BODY], words)
    share = dict(zip(words, hits.mean(axis=0).tolist(), strict=True))
    # A word of an issue, with the frequency 1/rank, and a point of a price, with its own.
    chances = 1 / np.arange(1, 9) / (1 / np.arange(1, 9)).sum()
    shares = [[share[word] for word in words_of(matcher, interest)] for interest in interests]
    above = (255 - 16 * np.arange(1, 16)) / 256
    recovered = named_by_frequency(shares, chances, above, len(events))
    assert np.mean(np.array(recovered) == order) >= 0.5  # chance: 1 in 8
    # Without the prices in the way, all of them.
    texts = [f"issue = 'S{i}'" for i in order]
    events, interests = sent(matcher, records, texts, server)
    counts = matcher.broker(server.broker_key()).match_all(events, interests).sum(axis=0)
    assert np.argsort(-counts).tolist() == np.argsort(order).tolist()


@both
def test_null_is_told_from_values_by_its_opposite(kind: Both) -> None:
    """Nothing known: all other words are in events where IS NOT NULL is, and IS NULL is not."""
    matcher = kind(Schema(issue=Category(NAMES, nullable=True), price=UInt(8)))
    server, records = world(matcher, 1_000)
    rng = np.random.default_rng(9)
    records["issue"] = [None if rng.random() < 0.1 else issue for issue in records["issue"]]
    texts = [f"issue = '{name}'" for name in NAMES] + ["issue IS NULL", "issue IS NOT NULL"]
    texts = [texts[at] for at in rng.permutation(len(texts))]
    events, interests = sent(matcher, records, texts, server)
    hits = matcher.broker(server.broker_key()).match_all(events, interests)
    present, null = null_of(hits)
    assert (texts[present], texts[null]) == ("issue IS NOT NULL", "issue IS NULL")
    # No frequency says so: other issues are rarer, and one is more frequent.
    assert 0 < np.argsort(hits.sum(axis=0)).tolist().index(null) < len(texts) - 2


@both
def test_contradictions_are_one_word_of_a_dictionary_and_a_word_each_for_a_filter(
    kind: Both,
) -> None:
    """Subscriptions to all eight issues, 30 of them, and six that never hold."""
    matcher = kind(SCHEMA)
    server, records = world(matcher, 1_000)
    texts = [f"issue = 'S{number % 8}'" for number in range(30)]
    texts += 3 * ["issue = 'S1' AND issue = 'S2'", "price = 3 AND price = 4"]
    events, interests = sent(matcher, records, texts, server)
    hits = matcher.broker(server.broker_key()).match_all(events, interests)
    rare = hits.sum(axis=0) < 10  # false positives
    assert rare.tolist() == 30 * [False] + 6 * [True]
    words = {words_of(matcher, interest)[0] for interest in interests[rare]}
    assert len(words) == (1 if kind is KeywordDictionaryMatch else 6)


@both
def test_containment_of_answers_puts_points_in_order(kind: Both) -> None:
    matcher = kind(SCHEMA, points=POINTS)
    server, records = world(matcher)
    order = np.random.default_rng(9).permutation(15)
    texts = [f"price > {16 * (j + 1)}" for j in order]
    events, interests = sent(matcher, records, texts, server)
    answers = matcher.broker(server.broker_key()).match_all(events, interests)
    assert np.argsort(-answers.sum(axis=0)).tolist() == np.argsort(order).tolist()
    # And events with them: each one's price to within 16, with no plaintext known.
    ranks = answers.sum(axis=1)
    wrong = ranks != (records["price"] - 1) // 16
    exact = kind is KeywordDictionaryMatch
    assert wrong[records["price"] > 0].mean() <= (0 if exact else 0.02)


@both
def test_a_client_reads_everything(kind: Both) -> None:
    """Dictionary attack: one client's key and the broker's messages."""
    matcher = kind(SCHEMA, points=POINTS)
    server, records = world(matcher, 50)
    secret = [f"issue = 'S{i}' AND price > {16 * i + 16}" for i in range(8)]
    events, interests = sent(matcher, records, secret, server)
    client = matcher.subscriber(server.subscriber_key("mallory"))
    tried = {f"issue = '{name}'": name for name in NAMES}
    named = {
        words_of(matcher, message)[0]: name
        for message, name in zip(client.encode(list(tried)), tried.values(), strict=True)
    }
    got = [[named[w] for w in words_of(matcher, i) if w in named] for i in interests]
    assert got == [[name] for name in NAMES]
    broker = matcher.broker(server.broker_key())
    prices = broker.match_all(events, client.encode([f"price = {p}" for p in range(256)]))
    assert (prices[np.arange(50), records["price"]]).all()
    assert prices.sum() <= 50 + 60  # false positives of 12,800


def test_padding_hides_the_number_of_words_and_bad_padding_shows_it() -> None:
    schema = Schema(x=UInt(8, nullable=True), y=UInt(8, nullable=True))
    points = {name: list(range(10, 250, 20)) for name in schema}
    matcher = KeywordFilterMatch(schema, points=points)
    key = server_of(matcher).publisher_key()
    rng = np.random.default_rng(2)
    null = rng.random(997) < 0.5
    values = [
        None if gone else int(v) for gone, v in zip(null, rng.integers(0, 256, 997), strict=True)
    ]
    records = {"x": values, "y": values}

    def bits(randomness: Any) -> NDArray[np.int64]:
        events = matcher.publisher(key, randomness=randomness).encode(records)
        return np.unpackbits(events[:, BODY][:, 16:], axis=1).sum(axis=1, dtype=np.int64)

    good = bits(rng.bytes)
    assert stats.ks_2samp(good[null], good[~null]).pvalue > 1e-4
    # Padding that is always the same sets few bits, and NULL is seen in every single event.
    bad = bits(lambda n: rng.bytes(n) if n == 16 * 997 else bytes(n))
    guessed = bad < (bad.min() + bad.max()) / 2
    assert np.array_equal(guessed, null)


def test_dictionary_with_one_nonce_twice_shows_how_many_words_differ() -> None:
    matcher = KeywordDictionaryMatch(SCHEMA)
    key = matcher.key_server().publisher_key()
    publisher = matcher.publisher(key, randomness=lambda n: bytes(n))
    records = {"issue": ["S1", "S1", "S2"], "price": [9, 8, 7]}
    bodies = publisher.encode(records)[:, BODY][:, 16:]
    differing = [np.unpackbits(bodies[0] ^ bodies[other]).sum() for other in (0, 1, 2)]
    assert differing == [0, 2, 4]  # one attribute, two attributes


def test_without_a_trapdoor_bits_are_coins() -> None:
    """What is masked: bits of equal events agree half of the time, in filters as many as chance."""
    for matcher in (KeywordDictionaryMatch(SCHEMA, points=POINTS), KeywordFilterMatch(SCHEMA)):
        publisher = matcher.publisher(matcher.key_server().publisher_key())
        records = {"issue": ["S1"] * 2_000, "price": [9] * 2_000}
        bits = np.unpackbits(publisher.encode(records)[:, BODY][:, 16:], axis=1)
        if isinstance(matcher, KeywordDictionaryMatch):
            bits = bits[:, :300]  # the last bits may be unused
        share = bits.mean()
        expected = 1_000 * bits.shape[1] * (share**2 + (1 - share) ** 2)
        agreeing = (bits[::2] == bits[1::2]).sum()
        assert abs(agreeing - expected) < 6 * np.sqrt(expected)


def test_broker_evaluates_a_trapdoor_with_public_operations_only() -> None:
    """The filter's definition, spelled out: all bits F(y_i, N) mod m."""
    matcher = KeywordFilterMatch(SCHEMA, hashes=5, bits=128)
    server, records = world(matcher, 300)
    events, interests = sent(matcher, records, ["issue = 'S0'"], server)
    trapdoor = to_blocks(words_of(matcher, interests[0])[0])
    hashed = NonceHash(bytes.fromhex(server.broker_key().export_secret_data()["permutation"]))
    nonces = to_blocks(events[:, KEY_HEADER_BYTES : KEY_HEADER_BYTES + 16].tobytes())
    bits = np.unpackbits(events[:, BODY][:, 16:], axis=1, bitorder="little")
    positions = (hashed.all_pairs(trapdoor, nonces) % np.uint64(128)).astype(np.int64)
    by_hand = np.take_along_axis(bits, positions, axis=1).all(axis=1)
    answers = matcher.broker(server.broker_key()).match_all(events, interests)[:, 0]
    assert np.array_equal(by_hand, answers)


@both
def test_order_of_words_shows_neither_attributes_nor_cells(kind: Both) -> None:
    """Places in a message are those of random numbers: a cell's word is first half of the time."""
    schema = Schema(price=UInt(8), size=UInt(8))
    matcher = kind(schema, partitions={"price": (8, 1), "size": (8, 1)})
    first = Counter[str]()
    for _ in range(200):
        subscriber = matcher.subscriber(matcher.key_server().subscriber_key("alice"))
        texts = ["price < 64 AND size < 64", "price < 64", "price < 32", "size < 64"]
        both_of, two, cell, _ = subscriber.encode(texts)[:, BODY]
        clause, slot = (len(two) // parts for parts in (2, 2 * 9))
        first["attribute"] += bool((both_of[:clause] == two[:clause]).all())
        first["cell"] += bool((two[:slot] == cell[:slot]).all())
    assert 60 < first["attribute"] < 140 and 60 < first["cell"] < 140


# -- messages that nobody honest sends -----------------------------------------------------------


@both
def test_gaps_between_words_are_refused(kind: Both) -> None:
    """Past a gap the answer to one subscription would depend on the others of a table."""
    matcher = kind(SCHEMA, points={"price": [100]}, partitions={"issue": (4, 1)})
    server, records = world(matcher, 1)
    _, good = sent(matcher, records, ["issue = 'S1' AND price < 99", "issue < 'S5'"], server)
    clauses, slots = matcher.vocabulary.clauses, matcher.vocabulary.slots

    def moved(row: int, clause: int, slot: int) -> Bytes:
        """A message whose first word is put elsewhere; its last is unused."""
        message = good[row].copy()
        words = message[BODY].reshape(clauses, slots, -1)
        words[clause, slot], words[0, 0] = words[0, 0].copy(), words[-1, -1]
        return message

    between = good[0].copy()
    parts = between[BODY].reshape(clauses, -1)
    parts[2], parts[1] = parts[1].copy(), parts[2].copy()  # used, unused, used
    broker = matcher.broker(server.broker_key())
    wrong = np.stack([moved(0, 2, 0), moved(0, 0, 2), moved(1, 0, 4), between])
    sealed(broker, wrong)
    assert broker.examine_interests(good).tolist() == [Cause.NONE] * 2
    assert broker.examine_interests(wrong).tolist() == [Cause.VALUE] * 4
    with pytest.raises(DecodeError, match="row 2: the message holds a value"):
        broker.prepare(np.concatenate([good, wrong]))


def test_filters_fuller_than_an_event_makes_them_are_refused() -> None:
    """A filter of ones would match every subscription."""
    matcher = KeywordFilterMatch(SCHEMA, hashes=3, bits=128)
    server, records = world(matcher, 4)
    events, interests = sent(matcher, records, ["price = 9"], server)
    for row, count in enumerate((6, 7, 128)):  # 3 bits for each of 2 words is the most
        events[row, BODY][16:] = np.packbits(np.arange(128) < count)
    broker = matcher.broker(server.broker_key())
    sealed(broker, events)
    assert broker.examine_events(events).tolist() == [0, Cause.VALUE, Cause.VALUE, 0]
    with pytest.raises(DecodeError, match="row 0: the message holds a value"):
        broker.match_all(events[2:], interests)
    # What is honest is taken, also where a filter is too small for its words.
    small = KeywordFilterMatch(SCHEMA, hashes=64, bits=64)
    server, records = world(small, 100)
    events, _ = sent(small, records, ["price = 9"], server)
    assert not small.broker(server.broker_key()).examine_events(events).any()


# -- ranges by partitions -------------------------------------------------------------------------

PRICES = Schema(price=UInt(12))


def matcher_of(kind: Both, schema: Schema, partitions: dict[str, tuple[int, int]]) -> Any:
    """A matcher that decides ranges of some attributes, and equality of the others."""
    if kind is KeywordFilterMatch:
        return KeywordFilterMatch(schema, partitions=partitions)
    return KeywordDictionaryMatch(
        schema, partitions=partitions, dictionaries={name: [] for name in partitions}
    )


def ranges(rng: np.random.Generator, size: int, count: int, widest: int) -> list[tuple[int, int]]:
    widths = rng.integers(2, widest, count)
    lows = rng.integers(0, size - widths)
    return list(zip(lows.tolist(), (lows + widths - 1).tolist(), strict=True))


@both
def test_150_ranges_alone_give_all_cells_in_order(kind: Both) -> None:
    """From 150 messages of subscribers. No event, no key, nothing known."""
    matcher = matcher_of(kind, PRICES, {"price": (32, 1)})
    server = server_of(matcher)
    texts = [
        f"price BETWEEN {low} AND {high}"
        for low, high in ranges(np.random.default_rng(3), 4096, 150, 2048)
    ]
    _, interests = sent(matcher, [], texts, server)
    words, common = words_in_common(all_clauses(matcher, interests))
    recovered = [words[place] for place in in_line(common)]
    cells = [f"price BETWEEN {128 * cell} AND {128 * cell + 127}" for cell in range(32)]
    _, truth = sent(matcher, [], cells, server)
    expected = [word for clause in all_clauses(matcher, truth) for word in clause]
    assert len(expected) == 32
    assert recovered in (expected, expected[::-1])


@both
def test_200_ranges_place_every_event_within_a_hundredth(kind: Both) -> None:
    """From 200 ranges and 1,000 events: each price to 1.3 % of the domain, or all reflected."""
    matcher = matcher_of(kind, PRICES, {"price": (20, 4)})
    server = server_of(matcher)
    rng = np.random.default_rng(1)
    texts = [f"price BETWEEN {low} AND {high}" for low, high in ranges(rng, 4096, 200, 2048)]
    prices = rng.integers(0, 4096, 1_000)
    events, interests = sent(matcher, {"price": prices}, texts, server)

    words, _ = words_in_common(all_clauses(matcher, interests))
    hits = hits_of(matcher, server.broker_key(), events[:, BODY], words)
    # A cell is 205 values wide, and each partition starts a quarter earlier.
    guesses = values_from_cells(hits, 205 / 4, 4096)
    errors = min(np.abs(guesses - prices), np.abs(4095 - guesses - prices), key=np.mean) / 4096
    assert np.mean(errors <= 0.013) >= (1 if kind is KeywordDictionaryMatch else 0.99)
    assert np.median(errors) < 0.005


@both
def test_clauses_and_hits_give_words_the_names_of_their_attributes(kind: Both) -> None:
    """Of more than 100 words of 200 subscriptions to any of three attributes, at least 98 %."""
    schema = Schema(
        issue=Category([f"S{number}" for number in range(20)]), price=UInt(12), volume=UInt(16)
    )
    matcher = matcher_of(kind, schema, {"price": (16, 2), "volume": (32, 2)})
    server = server_of(matcher)
    rng = np.random.default_rng(2)
    chances = 1 / np.arange(1, 21)
    issue = [f"S{i}" for i in rng.choice(20, 1_700, p=chances / chances.sum())]
    expected = {
        "issue": [f"issue = '{name}'" for name in issue[1_500:]],
        "price": [f"price BETWEEN {a} AND {b}" for a, b in ranges(rng, 1 << 12, 200, 1_500)],
        "volume": [f"volume BETWEEN {a} AND {b}" for a, b in ranges(rng, 1 << 16, 200, 30_000)],
    }
    chosen = rng.random((200, 3)) < 0.6
    texts = [
        " AND ".join(text for text, use in zip(terms, uses, strict=True) if use) or "TRUE"
        for terms, uses in zip(zip(*expected.values(), strict=True), chosen, strict=True)
    ]
    records = {
        "issue": issue[:1_500],
        "price": np.clip(rng.normal(2_000, 700, 1_500), 0, 4_095).astype(int),
        "volume": np.minimum(rng.exponential(12_000, 1_500), 65_535).astype(int),
    }
    events, interests = sent(matcher, records, texts, server)

    words, common = words_in_common(all_clauses(matcher, interests))
    hits = hits_of(matcher, server.broker_key(), events[:, BODY], words)
    # A partition of the price has 17 cells, one of the volume 33, and an equality is alone.
    names = attributes_of_words(common, hits, {"issue": 1, "price": 17, "volume": 33})

    truth: dict[bytes, str] = {}
    for name, some in expected.items():
        _, messages = sent(matcher, {n: [] for n in schema}, some, server)
        truth |= {word: name for clause in all_clauses(matcher, messages) for word in clause}
    assert len(words) > 100 and {truth[word] for word in words} == set(schema)
    assert np.mean([truth[word] == name for word, name in zip(words, names, strict=True)]) >= 0.98


@both
def test_cards_are_broken_where_there_are_partitions(kind: Both) -> None:
    with pytest.warns(BrokenSchemeWarning, match="Known attack: ranges alone: 150 give all"):
        card = matcher_of(kind, PRICES, {"price": (20, 4)}).leakage
    assert card.security == "broken"
    equalities = kind(Schema(x=UInt(8))).leakage
    assert equalities.security == "computational"
    assert not any("cell" in text for text in (*equalities.attacks, *equalities.learns))
