"""Attacks on ranges by partitions, in KeywordFilterMatch and KeywordDictionaryMatch.

A range is sent as the words of all cells that it touches. The attacker is the broker: it has
messages, its own key and the public parameters, knows no value and no frequency, and cuts messages
into words.

1. Two ranges that overlap share cells, neighbours most often: from subscriptions alone all cells of
   a partition stand in their order, or in the reverse one.
2. The cells that an event is in, one of each partition, overlap as well: the cells of all
   partitions stand in one order, and each event between its neighbours.
3. Words of one clause are of one attribute, words that are never found together too: attributes
   get their names, as the numbers of their cells are public.
"""

from __future__ import annotations

from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ccbps import Category, Schema, UInt
from ccbps.errors import BrokenSchemeWarning
from ccbps.matching import KeywordDictionaryMatch, KeywordFilterMatch
from ccbps.wire import KEY_HEADER_BYTES
from tests.support.reusable_checks import BODY, sealed, sent
from tests.support.word_matchers import Both, both

Floats = NDArray[np.float64]
Indices = NDArray[np.intp]
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


# -- what the broker has ----------------------------------------------------------------------


def clauses_of(matcher: Any, interests: Any) -> list[list[bytes]]:
    """The words of each clause of all messages, as the broker sees them."""
    shape = len(interests) * matcher.vocabulary.clauses, matcher.vocabulary.slots, -1
    recovered = [
        [word for word in map(bytes, clause) if any(word[4:])]  # an unused place has no key
        for clause in interests[:, BODY].reshape(shape)
    ]
    return [clause for clause in recovered if clause]


def numbered(clauses: list[list[bytes]]) -> tuple[list[bytes], Floats]:
    """The different words, and in how many clauses two of them stand together."""
    words = list(dict.fromkeys(word for clause in clauses for word in clause))
    number = {word: place for place, word in enumerate(words)}
    member = np.zeros((len(clauses), len(words)))
    for row, clause in enumerate(clauses):
        member[row, [number[word] for word in clause]] = 1
    return words, member.T @ member


def hits_of(matcher: Any, server: Any, events: Any, words: list[bytes]) -> Floats:
    """In which events each word is found, put into a message of its own: (events, words)."""
    blank = matcher.subscriber(server.subscriber_key("x")).encode("TRUE")  # or any message's end
    alone = blank.repeat(len(words), axis=0)
    joined = np.frombuffer(b"".join(words), np.uint8).reshape(len(words), -1)
    alone[:, KEY_HEADER_BYTES : KEY_HEADER_BYTES + joined.shape[1]] = joined
    broker = matcher.broker(server.broker_key())
    recovered: Floats = broker.match_all(events, sealed(broker, alone)).astype(float)
    return recovered


# -- what it makes of it ----------------------------------------------------------------------


def in_line(common: Floats) -> Indices:
    """Items put in line, so that those with much in common are neighbours; maybe from the end.

    The second eigenvector of the Laplacian sorts what can be sorted at all [ABH98].
    """
    rest = common - np.diag(np.diag(common))
    return np.argsort(np.linalg.eigh(np.diag(rest.sum(axis=1)) - rest)[1][:, 1])


def parts(common: Floats) -> Indices:
    """For each item the first one that it hangs together with."""
    least = np.arange(len(common))
    while True:
        new = np.array([least[row > 0].min() for row in common])
        if np.array_equal(new, least):
            return least
        least = new


# -- the attacks ------------------------------------------------------------------------------


@both
def test_150_ranges_alone_give_all_cells_in_order(kind: Both) -> None:
    """From 150 messages of subscribers. No event, no key, nothing known."""
    matcher = matcher_of(kind, PRICES, {"price": (32, 1)})
    server = matcher.key_server()
    texts = [
        f"price BETWEEN {low} AND {high}"
        for low, high in ranges(np.random.default_rng(3), 4096, 150, 2048)
    ]
    _, interests = sent(matcher, [], texts, server)
    words, common = numbered(clauses_of(matcher, interests))
    recovered = [words[place] for place in in_line(common)]
    cells = [f"price BETWEEN {128 * cell} AND {128 * cell + 127}" for cell in range(32)]
    _, truth = sent(matcher, [], cells, server)
    expected = [word for clause in clauses_of(matcher, truth) for word in clause]
    assert len(expected) == 32
    assert recovered in (expected, expected[::-1])


@both
def test_200_ranges_place_every_event_within_a_hundredth(kind: Both) -> None:
    """From 200 ranges and 1,000 events: each price to 1.3 % of the domain, or all reflected."""
    matcher = matcher_of(kind, PRICES, {"price": (20, 4)})
    server = matcher.key_server()
    rng = np.random.default_rng(1)
    texts = [f"price BETWEEN {low} AND {high}" for low, high in ranges(rng, 4096, 200, 2048)]
    prices = rng.integers(0, 4096, 1_000)
    events, interests = sent(matcher, {"price": prices}, texts, server)

    words, _ = numbered(clauses_of(matcher, interests))
    hits = hits_of(matcher, server, events, words)
    common = hits.T @ hits
    common[common < 4] = 0  # a filter's false positives
    ranks = np.argsort(in_line(common))
    step = 205 / 4  # a cell is 205 values wide, and each partition starts a quarter earlier
    middles = 2048 + (ranks + 0.5 - len(words) / 2) * step
    guesses = np.array([np.median(middles[row > 0]) for row in hits])

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
    server = matcher.key_server()
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

    words, common = numbered(clauses_of(matcher, interests))
    hits = hits_of(matcher, server, events, words)
    together, count = hits.T @ hits, hits.sum(axis=0)
    part = parts(common)
    size = np.bincount(part, minlength=len(words))[part]
    # A partition of the price has 17 cells, one of the volume 33, and an equality is alone.
    names = np.where(size > 17, "volume", np.where(size > 3, "price", "issue"))
    for word in np.flatnonzero(size <= 3):  # or a cell that was asked for alone
        for other in np.unique(part[size > 3]):
            cells = np.flatnonzero(part == other)
            by_chance = count[word] * count[cells].sum() / len(hits)
            if by_chance > 3 and together[word, cells].sum() < 0.15 * by_chance:
                names[word] = names[other]

    truth: dict[bytes, str] = {}
    for name, some in expected.items():
        _, messages = sent(matcher, {n: [] for n in schema}, some, server)
        truth |= {word: name for clause in clauses_of(matcher, messages) for word in clause}
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
