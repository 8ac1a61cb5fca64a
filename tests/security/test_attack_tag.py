"""Attacks on TagMatch by who sees subscriptions alone, and what groups of subscribers change.

The attacker has messages and public parameters. Keys that subscriptions have in common are what
they show of one another; `ccbps.matching.tag.tag_words` says which those are.
"""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray
from scipy import stats

from ccbps import Category, Decimal, Schema, UInt
from ccbps.forms.prefixes import range_prefixes
from ccbps.matching import TagMatch
from ccbps.matching.tag import tag_words
from tests.support.reusable_checks import BODY, secrets_of
from tests.support.tag_bodies import bodies_of, hits_of

Bytes = NDArray[np.uint8]
Numbers = NDArray[np.intp]
Floats = NDArray[np.float64]

BITS = 12
SIZE = 1 << BITS
SCHEMA = Schema(price=UInt(BITS), volume=UInt(BITS))


def sent(matcher: TagMatch, texts: list[str], **group: int) -> Bytes:
    """Bodies of subscriptions under fresh keys."""
    key = matcher.key_server().subscriber_key("alice", **group)
    return matcher.subscriber(key).encode(texts)[:, BODY]


def keys_of_prices(matcher: TagMatch, bodies: Bytes) -> Numbers:
    """The keys in the price's place, equal ones by one number: (subscriptions, keys)."""
    edges = np.cumsum([0, *matcher._words.sizes]).tolist()
    place = matcher._words.order.index(matcher._words.others.index("price"))
    keys = np.ascontiguousarray(bodies).view("V16").reshape(len(bodies), -1)
    keys = keys[:, edges[place] : edges[place + 1]]
    return np.unique(keys.reshape(-1), return_inverse=True)[1].reshape(keys.shape)


# -- how many subscriptions have a key ----------------------------------------------------------


def limits_from_shares(keys: Numbers) -> Floats:
    """c of each `price < c`: a key that one in 2^n has is taken for a prefix of n bits, 2^-n of
    the domain; what a single one has is not counted."""
    counts = np.bincount(keys.ravel())
    rounded = 2.0 ** np.rint(np.log2(np.maximum(counts, 1) / len(keys)))
    return np.asarray(np.where(counts > 1, SIZE * rounded, 0)[keys].sum(axis=1))


@pytest.mark.parametrize("count", [300, pytest.param(3_000, marks=pytest.mark.slow)])
@pytest.mark.parametrize("decoys", [False, True])
def test_shares_of_keys_give_constants_of_covers_without_decoys_only(
    decoys: bool, count: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Subscriptions alone, no event and no key: constants if there are nothing but covers, none
    as the library sends them."""
    if not decoys:

        def cover(low: int, high: int, kind: UInt) -> list[tuple[int, int, int]]:
            return [(0, first, length) for first, length in range_prefixes(low, high, kind.bits)]

        monkeypatch.setattr(tag_words, "nodes_of", cover)
    rng = np.random.default_rng(20)
    limits, least = 1 + rng.permutation(SIZE - 1)[:count], rng.permutation(SIZE - 1)[:count]
    texts = [f"price < {c} AND volume > {d}" for c, d in zip(limits, least, strict=True)]
    matcher = TagMatch(SCHEMA)
    recovered = limits_from_shares(keys_of_prices(matcher, sent(matcher, texts)))
    wrong = np.abs(recovered - limits)
    if decoys:
        # No better than to say 2,048 each time, which is wrong by 1,024.
        assert np.median(wrong) >= 900
        assert abs(stats.spearmanr(recovered, limits).statistic) < 0.2
    elif count == 300:
        assert (wrong <= SIZE / 100).mean() >= 0.5
    else:
        assert np.median(wrong) <= 3


# -- what keys in common do show ----------------------------------------------------------------


def in_common(keys: Numbers) -> Numbers:
    """How many keys each two subscriptions have in common."""
    used = np.zeros((len(keys), keys.max() + 1), dtype=np.int64)
    np.put_along_axis(used, keys, 1, axis=1)
    return used @ used.T


def test_single_bounds_show_their_common_prefixes_and_nothing_else() -> None:
    """As many keys in common as first bits, and none of upper bounds with lower ones. So bounds
    show the same as others of which each two have as many first bits in common, such as those
    that result where 0 and 1 change places after any beginning."""
    rng = np.random.default_rng(21)
    upper, lower = rng.choice(np.arange(2, SIZE - 2), (2, 120), replace=False)
    bounds = np.concatenate([upper, lower])
    texts = [f"price < {c}" for c in upper] + [f"price > {d}" for d in lower]
    matcher = TagMatch(SCHEMA)
    keys = keys_of_prices(matcher, sent(matcher, texts))
    alike = BITS - np.ceil(np.log2((bounds[:, None] ^ bounds) + 1)).astype(int)
    np.fill_diagonal(alike, keys.shape[1])
    alike[:120, 120:] = alike[120:, :120] = 0
    assert np.array_equal(in_common(keys), alike)


@dataclass
class Tree:
    """Nested sets of subscriptions, from keys that some and no others have.

    Attributes:
        paths: of each subscription, which of two turns it takes at each node, until it is alone.
        nodes: for keys, the path to the node that they stand for.
    """

    keys: Numbers
    paths: list[tuple[int, ...]] = field(default_factory=list)
    nodes: dict[int, tuple[int, ...]] = field(default_factory=dict)

    def __post_init__(self) -> None:
        self.paths = [()] * len(self.keys)
        self.total = np.bincount(self.keys.ravel())
        self._split(np.arange(len(self.keys)), ())

    def _inside(self, rows: Numbers) -> NDArray[np.int64]:
        """How many of these rows have each key that is in no other row and stands for no node."""
        counts = np.bincount(self.keys[rows].ravel(), minlength=len(self.total))
        counts[counts != self.total] = 0
        counts[list(self.nodes)] = 0
        return counts

    def _split(self, rows: Numbers, path: tuple[int, ...]) -> None:
        if len(rows) < 2 or len(path) == BITS:
            return
        key = int(self._inside(rows).argmax())
        has = (self.keys[rows] == key).any(axis=1)
        for turn, part in enumerate((rows[has], rows[~has])):
            if turn and len(part):
                counts = self._inside(part)
                key = int(counts.argmax())
                if counts[key] < len(part):
                    return
            if len(part):
                here = (*path, turn)
                self.nodes[key] = here
                for row in part:
                    self.paths[row] = here
                self._split(part, here)


def limits_from_tree(paths: list[tuple[int, ...]], prior: Floats, depth: int) -> Floats:
    """The most likely place of each path, of all ways to turn the tree at its nodes.

    Args:
        paths: of subscriptions.
        prior: how likely each bound is, (SIZE,).
        depth: how many turns are looked at.
    """
    counts: dict[tuple[int, ...], int] = {}
    for path in paths:
        for length in range(min(len(path), depth) + 1):
            counts[path[:length]] = counts.get(path[:length], 0) + 1
    sums = np.concatenate([[0.0], np.cumsum(prior)])
    best: dict[Any, tuple[float, bool]] = {}

    def place(node: tuple[int, ...]) -> tuple[int, int]:
        low = int("".join(map(str, node)) or "0", 2) << (BITS - len(node))
        return low, low + (SIZE >> len(node))

    def score(node: tuple[int, ...], at: tuple[int, ...]) -> float:
        if (node, at) not in best:
            low, high = place(at)
            alone = float(np.log(sums[high] - sums[low] + 1e-300))
            parts = [counts.get((*node, turn), 0) for turn in (0, 1)]
            left, turn = counts.get(node, 0) - sum(parts), False
            total = left * alone
            if len(node) < depth and any(parts):
                straight, crossed = (
                    score((*node, 0), (*at, way)) + score((*node, 1), (*at, 1 - way))
                    for way in (0, 1)
                )
                total, turn = total + max(straight, crossed), crossed > straight
            best[node, at] = total, turn
        return best[node, at][0]

    score((), ())
    recovered = []
    for path in paths:
        at: tuple[int, ...] = ()
        for length in range(min(len(path), depth)):
            at = (*at, path[length] ^ best[path[:length], at][1])
        low, high = place(at)
        recovered.append(np.searchsorted(sums, (sums[low] + sums[high]) / 2))
    return np.array(recovered, dtype=float)


UNEVEN = np.exp(-np.arange(SIZE) / 1_600)
UNEVEN[0] = 0
UNEVEN /= UNEVEN.sum()


@pytest.mark.parametrize(
    ("count", "runs", "share"),
    [(30, 15, 0.09), (300, 3, 0.05), pytest.param(3_000, 1, 0.02, marks=pytest.mark.slow)],
)
def test_an_uneven_distribution_that_is_known_turns_the_tree(
    count: int, runs: int, share: float
) -> None:
    """Subscriptions alone, and how likely each bound is: the more of them, the closer."""
    rng, matcher, wrong = np.random.default_rng(22), TagMatch(SCHEMA), []
    for _ in range(runs):
        limits = rng.choice(SIZE, count, p=UNEVEN)
        keys = keys_of_prices(matcher, sent(matcher, [f"price < {c}" for c in limits]))
        depth = min(7, int(np.log2(count)) + 1)
        recovered = limits_from_tree(Tree(keys).paths, UNEVEN, depth)
        wrong.append(np.median(np.abs(recovered - limits)))
    # Always to say the middle of the distribution is wrong by 16 %.
    assert np.median(wrong) <= share * SIZE


def limits_from_intervals(tree: Tree, intervals: Numbers) -> Floats:
    """The upper bounds of a tree, and those of intervals with two bounds, by the intervals.

    What an interval has in common with the tree begins as its upper bound does, and starts one turn
    below the side of 1 of the node where its bounds part.
    """
    ones: dict[tuple[int, ...], int] = {}
    paths = list(tree.paths)
    for row in intervals.tolist():
        nodes_known = sorted((tree.nodes[key] for key in row if key in tree.nodes), key=len)
        paths.append(nodes_known[-1] if nodes_known else ())
        if nodes_known and len(nodes_known[0]) > 1:
            side = nodes_known[0][:-1]
            ones[side[:-1]] = side[-1]
    return limits_from_turns(paths, ones)


def limits_from_turns(paths: list[tuple[int, ...]], ones: dict[tuple[int, ...], int]) -> Floats:
    """Places of paths, as far as is known at their nodes which turn is that to the side of 1."""
    recovered = []
    for path in paths:
        low, length = 0, 0
        while length < len(path) and path[:length] in ones:
            low = low << 1 | (path[length] == ones[path[:length]])
            length += 1
        recovered.append((low + 0.5) * (SIZE >> length))
    return np.array(recovered)


@pytest.mark.parametrize(
    ("two_bounds", "least", "most"), [(0, 0.2, 1), (30, 0.01, 0.06), (300, 0, 0.02)]
)
def test_intervals_with_two_bounds_turn_the_tree_of_single_ones(
    two_bounds: int, least: float, most: float
) -> None:
    """Subscriptions alone, nothing is known of their distribution."""
    rng = np.random.default_rng(23)
    limits = rng.integers(1, SIZE, 500)
    pairs = np.sort(rng.integers(1, SIZE - 1, (two_bounds, 2)), axis=1)
    texts = [f"price < {c}" for c in limits]
    texts += [f"price BETWEEN {low} AND {high}" for low, high in pairs]
    matcher = TagMatch(SCHEMA)
    keys = keys_of_prices(matcher, sent(matcher, texts))
    tree = Tree(keys[:500])
    wrong = np.abs(limits_from_intervals(tree, keys[500:]) - [*limits, *(pairs[:, 1] + 1)])
    assert least * SIZE <= np.median(wrong[:500]) <= most * SIZE
    assert two_bounds == 0 or np.median(wrong[500:]) <= most * SIZE


# -- what the schema alone, and a crowd, say of bounds -------------------------------------------


def test_a_domain_that_is_no_power_of_two_turns_the_first_nodes() -> None:
    """Subscriptions alone, nothing known but the schema: of 3,072 values, 12 bits, those that begin
    with a 1 all go on with a 0. So whoever goes on in one way only is in the upper third."""
    rng = np.random.default_rng(27)
    limits = rng.integers(2, 3_071, 100)
    matcher = TagMatch(Schema(price=Decimal(0, 3_071, 1), volume=UInt(BITS)))
    keys = keys_of_prices(matcher, sent(matcher, [f"price < {c}" for c in limits]))
    paths = Tree(keys).paths
    ways = {turn: {path[1] for path in paths if path[0] == turn} for turn in (0, 1)}
    upper = min(ways, key=lambda turn: len(ways[turn]))
    assert sorted(map(len, ways.values())) == [1, 2]
    assert np.array_equal([path[0] == upper for path in paths], limits >= 2_048)


def test_bounds_that_fill_a_domain_show_where_it_begins() -> None:
    """Subscriptions alone: every `price < c` of 64 values is there. Bounds 0 and 1 are not, as such
    intervals are empty or one value; the gap leads to 0, and every c shows its highest bit."""
    limits = np.random.default_rng(28).permutation(np.arange(2, 64))
    matcher = TagMatch(Schema(price=UInt(6), volume=UInt(BITS)))
    paths = Tree(keys_of_prices(matcher, sent(matcher, [f"price < {c}" for c in limits]))).paths
    members = {path[:n]: 0 for path in paths for n in range(6)}
    for path in paths:
        for n in range(6):
            members[path[:n]] += 1
    (gap,) = (node for node, count in members.items() if len(node) == 4 and count == 2)
    common = [
        next((n for n in range(4) if path[n] != gap[n]), 4) for path in paths
    ]  # bits in common with 0
    assert np.array_equal(common, [min(6 - int(c).bit_length(), 4) for c in limits])


def test_subscriptions_that_never_hold_have_no_key_in_common_with_any_other() -> None:
    """Subscriptions alone: every honest one has some key of many."""
    rng = np.random.default_rng(29)
    limits, least = rng.integers(2, SIZE - 2, (2, 200))
    texts = [f"price < {c} AND volume > {d}" for c, d in zip(limits, least, strict=True)]
    texts += [f"price = {c}" for c in limits[:20]]
    never = rng.choice(len(texts), 15, replace=False)
    for row in never:
        texts[row] = "price < 900 AND price > 3000 AND volume > 5"
    bodies = sent(matcher := TagMatch(SCHEMA), texts).reshape(len(texts), matcher.keys, 16)
    _, names, counts = np.unique(
        np.ascontiguousarray(bodies).view("V16").ravel(), return_inverse=True, return_counts=True
    )
    alone = (counts[names].reshape(len(texts), -1) == 1).all(axis=1)
    assert np.array_equal(np.flatnonzero(alone), np.sort(never))


def test_subscriptions_of_one_topic_are_known_by_their_keys_and_topics_by_their_number() -> None:
    """Subscriptions alone, and how popular issues are: whoever leaves the volume open has a key in
    common with all others that do so in his topic."""
    rng = np.random.default_rng(31)
    chances = 0.5 ** np.arange(6)
    issue = rng.choice(6, 1_000, p=chances / chances.sum())
    texts = [
        f"issue = '{'ABCDEF'[i]}' AND price < {c}"
        for i, c in zip(issue, rng.integers(2, SIZE, len(issue)), strict=True)
    ]
    schema = Schema(issue=Category(list("ABCDEF")), price=UInt(BITS), volume=UInt(BITS))
    bodies = sent(matcher := TagMatch(schema, topic=["issue"]), texts)
    keys = np.ascontiguousarray(bodies).view("V16").reshape(-1, matcher.keys)
    volumes = keys[:, matcher._words.sizes[0] :]  # two attributes of one width: prices come first
    sets, counts = np.unique(volumes[:, 0], return_inverse=True, return_counts=True)[1:]
    ranks = np.argsort(np.argsort(-counts))
    assert len(counts) == 6 and np.array_equal(ranks[sets], issue)


# -- groups and epochs --------------------------------------------------------------------------


def test_groups_and_epochs_have_no_key_in_common() -> None:
    matcher = TagMatch(SCHEMA, groups=2)
    server = matcher.key_server()
    texts = ["price < 99 AND volume > 7", "price = 5", "price BETWEEN 20 AND 4000", "TRUE"]
    issued = [server.subscriber_key(name, group=group) for name, group in (("a", 0), ("b", 0))]
    issued.append(server.subscriber_key("a", group=1))
    server.rotate()
    issued.append(server.subscriber_key("a", group=0))
    seen = [matcher.subscriber(key).encode(texts)[:, BODY].reshape(-1, 16) for key in issued]
    same, other, *apart = (set(map(bytes, keys)) for keys in seen)
    assert same == other and len(same) > 60
    for keys in apart:
        assert len(keys) == len(same) and not same & keys


def read_prices(matcher: TagMatch, events: Bytes, client: Any, broker: Any) -> NDArray[np.int64]:
    """Prices, as the broker and a client find them: -1 where there is no match at all."""
    below = broker.match_all(events, client.encode([f"price < {16 * p}" for p in range(1, 257)]))
    return np.where(below.any(axis=1), 16 * below.argmax(axis=1), -1)


def test_a_client_and_the_broker_read_events_of_the_clients_group_only() -> None:
    matcher = TagMatch(SCHEMA, groups=3)
    server = matcher.key_server()
    prices = np.random.default_rng(24).integers(0, SIZE, 50)
    records = {"price": prices, "volume": prices[::-1]}
    broker = matcher.broker(server.broker_key())
    mallory = matcher.subscriber(server.subscriber_key("mallory", group=1))
    reached = matcher.publisher(server.publisher_key(groups=[1, 2])).encode(records)
    assert np.array_equal(read_prices(matcher, reached, mallory, broker), prices // 16 * 16)
    others = matcher.publisher(server.publisher_key(groups=[0, 2])).encode(records)
    assert (read_prices(matcher, others, mallory, broker) == -1).all()
    # Not even with the key in hand does anything of another group or of a publisher follow.
    key = server.subscriber_key("mallory", group=1)
    held = set(secrets_of(key).values())
    assert not held & set(
        server.publisher_key(groups=[0, 2]).export_secret_data()["words"].values()
    )
    assert not held & set(secrets_of(server.subscriber_key("alice", group=0)).values())
    assert held & set(server.publisher_key(groups=[1]).export_secret_data()["words"].values())


def test_events_that_reach_two_groups_show_which_of_their_keys_belong_together() -> None:
    """The broker and a client of group 1 read `price < 1300` of group 0 by its hits alone."""
    matcher = TagMatch(SCHEMA, groups=2)
    server = matcher.key_server()
    prices = np.random.default_rng(25).integers(0, SIZE, 300)
    events = matcher.publisher(server.publisher_key()).encode({"price": prices, "volume": prices})
    secret = matcher.subscriber(server.subscriber_key("alice", group=0)).encode("price < 1300")
    broker = matcher.broker(server.broker_key())
    mallory = matcher.subscriber(server.subscriber_key("mallory", group=1))
    recovered = read_prices(matcher, events, mallory, broker)
    answers = broker.match_all(events, secret)[:, 0]
    assert (
        1300 - 60 <= recovered[answers].max() < 1300 <= recovered[~answers].min() + 16 <= 1300 + 60
    )


# -- how many events it takes to read what subscriptions alone do not show ------------------------


@pytest.mark.parametrize(("count", "share"), [(100, 0.03), (1_000, 0.003)])
def test_hits_of_some_hundred_events_give_constants(count: int, share: float) -> None:
    """Values are known to be uniform: the share of events that a key hits is its prefix's."""
    rng = np.random.default_rng(26)
    limits = rng.integers(1, SIZE, 60)
    records, texts = {"price": rng.integers(0, SIZE, count)}, [f"price < {c}" for c in limits]
    view = bodies_of(TagMatch(Schema(price=UInt(BITS))), records, texts)
    recovered = widths_from_hits(*view, len(limits))
    assert np.median(np.abs(recovered - limits)) <= share * SIZE


def widths_from_hits(permutation: str, events: Bytes, keys: Bytes, count: int) -> Floats:
    """Widths of as many intervals, from hits of uniform values; all are bodies."""
    hits = hits_of(permutation, events, keys).sum(axis=0)
    shares = np.maximum(hits, 1) / len(events)
    rounded = np.where(hits < 16, shares, 2.0 ** np.rint(np.log2(shares)))
    return np.asarray(np.where(hits > 0, SIZE * rounded, 0).reshape(count, -1).sum(axis=1))


def test_hits_show_which_subscriptions_of_two_groups_are_alike_though_no_event_reaches_both() -> (
    None
):
    """Values are known to be uniform: constants are read in each group by itself, and compared."""
    rng = np.random.default_rng(30)
    limits = 100 + 200 * rng.permutation(19)
    matcher = TagMatch(Schema(price=UInt(BITS)), groups=2)
    server = matcher.key_server()
    permutation = server.broker_key().export_secret_data()["permutation"]
    recovered = []
    for group, mine in enumerate((limits, np.sort(limits))):
        publisher = matcher.publisher(server.publisher_key(groups=[group]))
        events = publisher.encode({"price": rng.integers(0, SIZE, 1_000)})[:, BODY]
        subscriber = matcher.subscriber(server.subscriber_key("alice", group=group))
        keys = subscriber.encode([f"price < {c}" for c in mine])[:, BODY]
        recovered.append(widths_from_hits(permutation, events, keys, len(mine)))
    alike = np.abs(recovered[0][:, None] - recovered[1]).argmin(axis=1)
    assert (np.sort(limits)[alike] == limits).mean() >= 0.8


@pytest.mark.parametrize(
    ("subscriptions", "count", "share"), [(30, 30, 0.07), (300, 30, 0.025), (300, 100, 0.01)]
)
def test_hits_of_few_events_turn_the_tree_however_values_are_distributed(
    subscriptions: int, count: int, share: float
) -> None:
    """Nothing known but that bounds are upper ones; of lower ones all would be reflected. A key
    that fits any event at all is no decoy, and stands for first bits that end in 1."""
    rng, wrong = np.random.default_rng(32), []
    for _ in range(3):
        limits = rng.integers(2, SIZE, subscriptions)
        matcher = TagMatch(Schema(price=UInt(BITS)))
        records = {"price": (SIZE * rng.beta(2, 5, count)).astype(int)}
        view = bodies_of(matcher, records, [f"price < {c}" for c in limits])
        keys = keys_of_prices(matcher, view[2])
        fit = hits_of(*view).any(axis=0).reshape(keys.shape)
        tree, used = Tree(keys), set(keys[fit].tolist())
        ones = {path[:-1]: path[-1] for key, path in tree.nodes.items() if key in used}
        wrong.append(np.median(np.abs(limits_from_turns(tree.paths, ones) - limits)))
    assert np.median(wrong) <= share * SIZE
