"""TagMatch: what the broker sees is what the card lists, and nothing else.

- *Everything, in the small*: with ideal functions in place of AES, over all of them, the messages
  of two worlds with the same leakage have one distribution; with different leakage they do not.
- *Simulated*: messages made from the leakage alone, which is computed from plaintext, show the
  broker the same hits, and statistics do not tell them from real ones. The same statistics do
  tell a publisher that repeats its nonces.
- *Attacks* with what is listed: equal keys, frequencies of values and of prefixes, a client that
  helps.
"""

from __future__ import annotations

from collections import Counter
from itertools import pairwise, permutations, product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from ccbps import Category, Schema, UInt
from ccbps.arrays import Bytes, Randomness, Words
from ccbps.attacks.schemes.tag import bounds_from_shares, values_by_trying
from ccbps.attacks.schemes.views import hits_of
from ccbps.ciphers.word_prf import NonceHash, to_blocks
from ccbps.dictionary import DictionaryColumn
from ccbps.matching import TagMatch
from ccbps.matching.contract.scheme import Draw
from ccbps.matching.tag import tag
from tests.support.reusable_checks import BODY, users
from tests.support.tag_bodies import bodies_of

# -- all ideal functions, enumerated -------------------------------------------------------------


class IdealWords:
    """An injection from words, each (code, head) of its only block, to keys."""

    table: dict[tuple[int, ...], int]

    def __init__(self, key: bytes) -> None:
        pass

    def extend(self, states: Words, blocks: Words) -> Words:
        mixed = np.broadcast_arrays(states, blocks)[1]
        flat = [self.table[tuple(block)] for block in mixed.reshape(-1, 2).tolist()]
        keys = np.zeros((len(flat), 2), np.uint64)
        keys[:, 0] = flat
        return keys.reshape(mixed.shape)

    def extend_halves(self, states: Words, first: Words, second: Words) -> Words:
        return self.extend(states, np.stack(np.broadcast_arrays(first, second), axis=-1))


class IdealHash:
    """A random function of keys 0 .. 2 and nonces 0, 1 into bits."""

    values: dict[tuple[int, int], int]

    def __init__(self, key: bytes) -> None:
        pass

    def pairs(self, keys: Words, nonces: Words) -> Words:
        y, n = np.broadcast_arrays(keys[..., 0], nonces[..., 0])
        columns = [
            self.values[pair] for pair in zip(y.ravel().tolist(), n.ravel().tolist(), strict=True)
        ]
        return np.array(columns, np.uint64).reshape(y.shape)


def drawn(randomness: Randomness) -> Draw:
    def none(*places: int) -> Bytes:
        raise AssertionError("tags share no randomness of rounds")

    return Draw(randomness, none, none)


def views(
    monkeypatch: pytest.MonkeyPatch, values: list[int], interest: str | None, nonces: list[int]
) -> Counter[tuple[bytes, bytes]]:
    """How often each pair of messages occurs, over all ideal functions; attribute of one bit.

    Words: the empty prefix, x = 0, x = 1. The broker's copy of the hash function, all of its
    values at the subscription's key, belongs to what it sees.
    """
    monkeypatch.setattr(tag, "WordKeys", IdealWords)
    monkeypatch.setattr(tag, "NonceHash", IdealHash)
    matcher = TagMatch(Schema(x=UInt(1)))
    key = {"words": {"0": ""}, "permutation": ""}
    events = matcher.schema.encode({"x": values})
    fixed = b"".join(nonce.to_bytes(16, "little") for nonce in nonces)
    heads = [(0, 1 << 32), (0, (1 << 32) | (1 << 16)), (1, (1 << 32) | (1 << 16))]
    prepared = None if interest is None else matcher.prepare(interest)
    seen: Counter[tuple[bytes, bytes]] = Counter()
    pairs = list(product(range(3), (0, 1)))
    for order in permutations(range(3)):
        IdealWords.table = dict(zip(heads, order, strict=True))
        for bits in product((0, 1), repeat=6):
            IdealHash.values = dict(zip(pairs, bits, strict=True))
            out = np.zeros((len(values), matcher.sizes.event), np.uint8)
            matcher.encode_events(key, events, drawn(lambda n: fixed[:n]), out)
            asked = np.zeros((1, matcher.sizes.interest), np.uint8)
            mine = b""
            if prepared is not None:
                mine_key = {"words": "", "filling": ""}
                column = DictionaryColumn([prepared], np.zeros(1, dtype=np.intp))
                matcher.encode_interests(mine_key, column, drawn(lambda n: b""), asked)
                mine = bytes(IdealHash.values[asked[0, 0], nonce] for nonce in (0, 1))
            seen[out.tobytes(), asked.tobytes() + mine] += 1
    return seen


def test_views_in_the_small_depend_on_the_leakage_only(monkeypatch: pytest.MonkeyPatch) -> None:
    # No subscription: equal and different events look the same.
    assert views(monkeypatch, [0, 0], None, [0, 1]) == views(monkeypatch, [0, 1], None, [0, 1])
    # With one nonce twice they do not.
    assert views(monkeypatch, [0, 0], None, [0, 0]) != views(monkeypatch, [0, 1], None, [0, 0])
    # A miss is a miss and a hit is a hit, on whichever side and of whichever value.
    miss = views(monkeypatch, [1, 1], "x = 0", [0, 1])
    hit = views(monkeypatch, [0, 0], "x = 0", [0, 1])
    assert miss == views(monkeypatch, [0, 0], "x = 1", [0, 1])
    assert hit == views(monkeypatch, [1, 1], "x = 1", [0, 1])
    assert hit != miss


# -- simulated from the leakage ------------------------------------------------------------------

SCHEMA = Schema(issue=Category(["A", "B", "C", "D"]), price=UInt(6), size=UInt(4))
INTERVALS = {"price": 6, "size": 4}
TEXTS = [
    "issue = 'A' AND price < 20",
    "issue = 'A' AND price < 20",
    "issue = 'A' AND price BETWEEN 3 AND 30 AND size >= 5",
    "issue = 'B'",
    "price BETWEEN 8 AND 55",
    "size = 3 AND issue = 'C'",
    "issue = 'D' AND price > 70",
    "issue = 'D' AND price > 70",
    "price < 20",
    "price < 22 AND size < 9",
]


def plain_words(record: dict[str, Any], topic: bool) -> set[Any]:
    """Words of an event, from the definition."""
    asked = [None, record["issue"]] if topic else []
    words: set[Any] = set()
    for name, bits in INTERVALS.items():
        for length in range(bits + 1):
            prefix = f"{record[name]:0{bits}b}"[:length]
            words |= {(choice, name, prefix) for choice in asked or [None]}
    if not topic:
        code = f"{'ABCD'.index(record['issue']):02b}"
        words |= {(None, "issue", code[:length]) for length in range(3)}
    return words


def plain_nodes(low: int, high: int, bits: int) -> set[tuple[str, str]]:
    """What a subscription to low .. high names of an attribute: (kind, first bits)."""
    last = 2**bits - 1
    if low == high:
        return {("prefix", f"{low:0{bits}b}")}
    if (low, high) == (0, last):
        return {("prefix", "")}
    columns = set()
    bounds = {}
    if low > 0:
        bounds["1"] = f"{low - 1:0{bits}b}"
    if high < last:
        bounds["0"] = f"{high + 1:0{bits}b}"
    apart = 0
    if len(bounds) == 2:
        apart = next(n for n in range(bits) if bounds["0"][n] != bounds["1"][n]) + 1
    for inner, bound in bounds.items():
        for length in range(apart + 1, bits + 1):
            first = bound[:length]
            inside = first[-1] != inner
            columns.add(("prefix", first[:-1] + inner) if inside else ("decoy " + inner, first))
    return columns


def plain_interest(matcher: TagMatch, text: str) -> dict[str, tuple[Any, set[Any]]] | None:
    """For each attribute the name of a subscription's interval, and its words, from its box."""
    ranges = SCHEMA.parse(text).box().ranges
    if any(low > high for low, high in ranges.values()):
        return None
    topic = bool(matcher.topic)
    low, high = ranges["issue"]
    choice = "ABCD"[low] if topic and low == high else None
    columns: dict[str, tuple[Any, set[Any]]] = {}
    for name, bits in (INTERVALS if topic else {"issue": 2, **INTERVALS}).items():
        nodes = plain_nodes(*ranges[name], bits)
        words = {
            (choice, name, first if kind == "prefix" else (kind, first)) for kind, first in nodes
        }
        columns[name] = ((choice, name, ranges[name]), words)
    return columns


def simulate(
    matcher: TagMatch, records: list[dict[str, Any]], permutation: str, rng: np.random.Generator
) -> tuple[Bytes, Bytes]:
    """Bodies from the leakage: which keys and intervals are equal, and which keys fit which event.

    Takes no plaintext but through the sets of words that are asked for: names of keys.
    """
    asked = [plain_interest(matcher, text) for text in TEXTS]
    union = set().union(
        *(words for groups in asked if groups is not None for _, words in groups.values())
    )
    leaked_hits = [plain_words(record, bool(matcher.topic)) & union for record in records]
    # From here on, words and intervals are nothing but names.
    keys = {word: rng.bytes(16) for word in sorted(union, key=repr)}
    sizes = dict(
        zip(
            (matcher._words.others[at] for at in matcher._words.order),
            matcher._words.sizes,
            strict=True,
        )
    )
    simulation: dict[Any, bytes] = {}
    rows = []
    for number, groups in enumerate(asked):
        body = []
        for name, size in sizes.items():
            interval, words = ((number, name), set()) if groups is None else groups[name]
            if interval not in simulation:
                chosen = [keys[word] for word in words]
                chosen += [rng.bytes(16) for _ in range(size - len(chosen))]
                chosen.sort(key=lambda key: int.from_bytes(key[:8], "little"))
                simulation[interval] = b"".join(chosen)
            body.append(simulation[interval])
        rows.append(np.frombuffer(b"".join(body), np.uint8))
    hashed = NonceHash(bytes.fromhex(permutation))
    events = []
    for hits in leaked_hits:
        nonce = rng.bytes(16)
        tags = rng.integers(0, 2**64, matcher.tags, dtype=np.uint64)
        if hits:
            mine = to_blocks(b"".join(keys[word] for word in sorted(hits, key=repr)))
            tags[: len(hits)] = hashed.all_pairs(mine, to_blocks(nonce))[0]
        tags.sort()
        events.append(np.frombuffer(nonce + tags.tobytes(), np.uint8))
    return np.stack(events), np.stack(rows)


def sample(count: int, seed: int) -> list[dict[str, Any]]:
    rng = np.random.default_rng(seed)
    columns = rng.integers(0, [4, 64, 16], (count, 3)).tolist()
    return [{"issue": "ABCD"[i], "price": p, "size": s} for i, p, s in columns]


@pytest.mark.parametrize("topic", [(), ("issue",)])
def test_hits_are_those_of_the_leakage_and_no_more(topic: tuple[str, ...]) -> None:
    matcher, records = TagMatch(SCHEMA, topic=topic), sample(300, 4)
    permutation, events, interests = bodies_of(matcher, records, TEXTS)
    real = hits_of(permutation, events, interests).reshape(300, -1)
    simulation = simulate(matcher, records, permutation, np.random.default_rng(5))
    simulated = hits_of(permutation, *simulation).reshape(300, -1)
    # The same hits in every event and subscription. Within an attribute keys stand in the order
    # of their values, which is random: compare as columns of a set.
    edges = np.cumsum([0, *matcher._words.sizes * len(TEXTS)])
    for low, high in pairwise(edges.tolist()):
        left, other = (sorted(map(bytes, view[:, low:high].T)) for view in (real, simulated))
        assert left == other
    # The pattern of equal keys, too.
    groups = [
        Counter(Counter(map(bytes, view.reshape(-1, 16))).values())
        for view in (interests, simulation[1])
    ]
    assert groups[0] == groups[1]
    assert np.array_equal(interests[0], interests[1])
    if topic:  # of another topic than the one asked for, nothing shows
        others = np.array([record["issue"] != "A" for record in records])
        of_a = real[:, : 3 * matcher.keys]
        assert not of_a[others].any() and of_a[~others].any(axis=1).all()


def statistics(events: Bytes, hits: NDArray[np.bool_]) -> list[NDArray[np.int64]]:
    """Counts that ought not to tell real from simulated: bytes of tags, of what neighbouring
    events have in common, of tags against nonces; tags that occur twice; hits an event."""
    tags = np.ascontiguousarray(events[:, 16:]).view("<u8")
    nonces = np.ascontiguousarray(events[:, :16]).view("<u8")
    mixed = [tags, tags[::2] ^ tags[1::2], tags ^ nonces[:, :1], tags ^ nonces[:, 1:]]
    counts = [
        np.bincount(byte, minlength=256)
        for words in mixed
        for byte in np.ascontiguousarray(words).view(np.uint8).reshape(-1, 8).T
    ]
    again = len(tags.ravel()) - len(np.unique(tags))
    counts.append(np.array([again, len(tags.ravel()) - again]))
    counts.append(np.bincount(hits.sum(axis=(1, 2)), minlength=100))
    return counts


def least_p(left: list[NDArray[np.int64]], other: list[NDArray[np.int64]]) -> float:
    """Least p-value of chi-squared tests of homogeneity, times their number."""
    values = []
    for a, b in zip(left, other, strict=True):
        table = np.stack([a, b])[:, (a + b) > 0]
        if table.shape[1] > 1:
            values.append(stats.chi2_contingency(table).pvalue)
    return float(min(values) * len(values))


def test_statistics_do_not_tell_real_from_simulated_but_do_tell_repeated_nonces() -> None:
    matcher = TagMatch(SCHEMA, topic=["issue"])
    records = [record for record in sample(1_500, 6) for _ in range(2)]  # pairs of equal events
    rng = np.random.default_rng(7)
    server = matcher.key_server(randomness=rng.bytes)
    permutation = server.broker_key().export_secret_data()["permutation"]
    subscriber = matcher.subscriber(server.subscriber_key("alice"), randomness=rng.bytes)
    interests = subscriber.encode(TEXTS)[:, BODY]

    def real(randomness: Any) -> list[NDArray[np.int64]]:
        publisher = matcher.publisher(server.publisher_key(), randomness=randomness)
        events = publisher.encode(records)[:, BODY]
        return statistics(events, hits_of(permutation, events, interests))

    simulation = simulate(matcher, records, permutation, rng)
    simulated = statistics(simulation[0], hits_of(permutation, *simulation))
    assert least_p(real(rng.bytes), simulated) > 1e-4
    assert least_p(real(lambda n: rng.bytes(16) * (n // 16)), simulated) < 1e-9


# -- attacks with what is listed -----------------------------------------------------------------


def test_subscriptions_to_all_values_sort_events_by_frequency() -> None:
    """Knows how frequent issues are; sees who subscribes to what; names issues of events."""
    matcher = TagMatch(SCHEMA, topic=["issue"])
    _, broker, publisher, subscriber = users(matcher)
    rng = np.random.default_rng(8)
    issue = rng.choice(4, 2_000, p=[0.5, 0.25, 0.15, 0.1])
    records = {"issue": ["ABCD"[i] for i in issue], "price": issue * 3, "size": issue}
    order = rng.permutation(4)
    texts = [f"issue = '{'ABCD'[i]}'" for i in order]
    answers = broker.match_all(publisher.encode(records), subscriber.encode(texts))
    named = np.empty(4, int)
    named[np.argsort(-answers.sum(axis=0))] = np.arange(4)
    assert np.array_equal(named[answers.argmax(axis=1)], issue)


def test_a_client_and_the_broker_read_everything() -> None:
    records = sample(40, 9)
    _, broker, publisher, client = users(TagMatch(SCHEMA), "mallory")
    found = values_by_trying(broker, client, publisher.encode(records), "price", range(64))
    assert found.tolist() == [record["price"] for record in records]


def test_prefixes_of_an_interval_part_its_events() -> None:
    """Of events in price < 48, the broker sees which half of the cover, 0* or 10*, each is in."""
    prices = np.random.default_rng(3).integers(0, 48, 500)
    view = bodies_of(TagMatch(Schema(price=UInt(6))), {"price": prices}, "price < 48")
    hits = hits_of(*view)[:, 0]
    used = hits[:, hits.any(axis=0)]
    assert used.shape[1] == 2 and (used.sum(axis=1) == 1).all()
    larger = used[:, used.sum(axis=0).argmax()]
    assert np.array_equal(larger, prices < 32)


def counted(matcher: TagMatch, values: NDArray[np.int64], texts: list[str]) -> list[list[float]]:
    """For each subscription, what share of events each key hits that hits at all, ascending.

    Uses what the broker has: messages, and its key for the public permutation.
    """
    shares = hits_of(*bodies_of(matcher, {"price": values}, texts)).mean(axis=0)
    return [sorted(row[row > 0].tolist()) for row in shares]


def test_counted_hits_give_the_prefixes_and_the_constant_of_a_comparison() -> None:
    """Ciphertext only; knows that prices are uniform. Each key's hits give its prefix's length, and
    lengths the number of values in the interval: c, of price < c, with no event known."""
    limits = (173, 48, 200, 97, 1, 255)
    prices = np.random.default_rng(12).integers(0, 256, 20_000)
    texts = [f"price < {limit}" for limit in limits] + ["price BETWEEN 37 AND 90"]
    columns = counted(TagMatch(Schema(price=UInt(8))), prices, texts)
    lengths = [np.rint(-np.log2(shares)).astype(int) for shares in columns]
    assert [len(mine) for mine in lengths] == [5, 2, 3, 3, 1, 8, 8]
    assert [int((256 >> mine).sum()) for mine in lengths] == [*limits, 90 - 37 + 1]


def test_counted_hits_give_both_bounds_where_values_are_uneven() -> None:
    """Ciphertext only; knows how prices are distributed. Of all 2,080 intervals the one whose
    prefixes would be hit most nearly as often as the keys are is the subscription's."""
    chances = np.exp(-np.arange(64) / 25)
    chances /= chances.sum()
    rng = np.random.default_rng(13)
    bounds = [tuple(sorted(pair)) for pair in rng.integers(0, 64, (40, 2)).tolist()]
    texts = [f"price BETWEEN {low} AND {high}" for low, high in bounds]
    shares = counted(TagMatch(Schema(price=UInt(6))), rng.choice(64, 20_000, p=chances), texts)
    found = bounds_from_shares(shares, chances)
    right = sum(a == b for a, b in zip(found, bounds, strict=True))
    assert right >= 28  # chance: 1 in 2,080 each
