"""Attacks on TagMatch by who sees subscriptions alone, and what groups of subscribers change.

The attacker has messages and public parameters. Keys that subscriptions have in common are what
they show of one another; `ccbps.matching.tag.tag_words` says which those are.
"""

from __future__ import annotations

import numpy as np
import pytest
from scipy import stats

from ccbps import Category, Decimal, Schema, UInt
from ccbps.arrays import Bytes
from ccbps.attacks.schemes.tag import (
    BoundTree,
    keys_in_common,
    keys_of,
    limits_from_prior,
    limits_from_shares,
    limits_from_turns,
    never_holding,
    turns_from_hits,
    turns_from_intervals,
    values_by_trying,
    widths_from_hits,
)
from ccbps.attacks.schemes.views import hits_of
from ccbps.forms.prefixes import range_prefixes
from ccbps.matching import TagMatch
from ccbps.matching.tag import tag_words
from tests.support.reusable_checks import BODY, secrets_of
from tests.support.tag_bodies import bodies_of

BITS = 12
SIZE = 1 << BITS
SCHEMA = Schema(price=UInt(BITS), volume=UInt(BITS))


def sent(matcher: TagMatch, texts: list[str], **group: int) -> Bytes:
    """Bodies of subscriptions under keys that are seeded: what is read depends on them a little."""
    draw = np.random.default_rng(len(texts)).bytes
    key = matcher.key_server(randomness=draw).subscriber_key("alice", **group)
    return matcher.subscriber(key, randomness=draw).encode(texts)[:, BODY]


# -- how many subscriptions have a key ----------------------------------------------------------


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
    recovered = limits_from_shares(keys_of(matcher, sent(matcher, texts), "price"), SIZE)
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


def test_single_bounds_show_their_common_prefixes_and_nothing_else() -> None:
    """As many keys in common as first bits, and none of upper bounds with lower ones. So bounds
    show the same as others of which each two have as many first bits in common, such as those
    that result where 0 and 1 change places after any beginning."""
    rng = np.random.default_rng(21)
    upper, lower = rng.choice(np.arange(2, SIZE - 2), (2, 120), replace=False)
    bounds = np.concatenate([upper, lower])
    texts = [f"price < {c}" for c in upper] + [f"price > {d}" for d in lower]
    matcher = TagMatch(SCHEMA)
    keys = keys_of(matcher, sent(matcher, texts), "price")
    alike = BITS - np.ceil(np.log2((bounds[:, None] ^ bounds) + 1)).astype(int)
    np.fill_diagonal(alike, keys.shape[1])
    alike[:120, 120:] = alike[120:, :120] = 0
    assert np.array_equal(keys_in_common(keys), alike)


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
        keys = keys_of(matcher, sent(matcher, [f"price < {c}" for c in limits]), "price")
        depth = min(7, int(np.log2(count)) + 1)
        recovered = limits_from_prior(BoundTree(keys, BITS).paths, UNEVEN, depth)
        wrong.append(np.median(np.abs(recovered - limits)))
    # Always to say the middle of the distribution is wrong by 16 %.
    assert np.median(wrong) <= share * SIZE


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
    keys = keys_of(matcher, sent(matcher, texts), "price")
    tree = BoundTree(keys[:500], BITS)
    ones, paths = turns_from_intervals(tree, keys[500:])
    recovered = limits_from_turns([*tree.paths, *paths], ones, BITS)
    wrong = np.abs(recovered - [*limits, *(pairs[:, 1] + 1)])
    assert least * SIZE <= np.median(wrong[:500]) <= most * SIZE
    assert two_bounds == 0 or np.median(wrong[500:]) <= most * SIZE


# -- what the schema alone, and a crowd, say of bounds -------------------------------------------


def test_a_domain_that_is_no_power_of_two_turns_the_first_nodes() -> None:
    """Subscriptions alone, nothing known but the schema: of 3,072 values, 12 bits, those that begin
    with a 1 all go on with a 0. So whoever goes on in one way only is in the upper third."""
    rng = np.random.default_rng(27)
    limits = rng.integers(2, 3_071, 100)
    matcher = TagMatch(Schema(price=Decimal(0, 3_071, 1), volume=UInt(BITS)))
    keys = keys_of(matcher, sent(matcher, [f"price < {c}" for c in limits]), "price")
    paths = BoundTree(keys, BITS).paths
    ways = {turn: {path[1] for path in paths if path[0] == turn} for turn in (0, 1)}
    upper = min(ways, key=lambda turn: len(ways[turn]))
    assert sorted(map(len, ways.values())) == [1, 2]
    assert np.array_equal([path[0] == upper for path in paths], limits >= 2_048)


def test_bounds_that_fill_a_domain_show_where_it_begins() -> None:
    """Subscriptions alone: every `price < c` of 64 values is there. Bounds 0 and 1 are not, as such
    intervals are empty or one value; the gap leads to 0, and every c shows its highest bit."""
    limits = np.random.default_rng(28).permutation(np.arange(2, 64))
    matcher = TagMatch(Schema(price=UInt(6), volume=UInt(BITS)))
    keys = keys_of(matcher, sent(matcher, [f"price < {c}" for c in limits]), "price")
    paths = BoundTree(keys, 6).paths
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
    bodies = sent(matcher := TagMatch(SCHEMA), texts)
    found = never_holding([keys_of(matcher, bodies, name) for name in SCHEMA])
    assert np.array_equal(found, np.sort(never))


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
    keys = keys_of(matcher, bodies, "volume")
    sets, counts = np.unique(keys[:, 0], return_inverse=True, return_counts=True)[1:]
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


def test_a_client_and_the_broker_read_events_of_the_clients_group_only() -> None:
    matcher = TagMatch(SCHEMA, groups=3)
    server = matcher.key_server()
    prices = np.random.default_rng(24).integers(0, SIZE, 50)
    records = {"price": prices, "volume": prices[::-1]}
    broker = matcher.broker(server.broker_key())
    mallory = matcher.subscriber(server.subscriber_key("mallory", group=1))
    reached = matcher.publisher(server.publisher_key(groups=[1, 2])).encode(records)
    tried = range(15, SIZE, 16)
    found = values_by_trying(broker, mallory, reached, "price", tried)
    assert np.array_equal(found, prices // 16 * 16 + 15)
    others = matcher.publisher(server.publisher_key(groups=[0, 2])).encode(records)
    assert (values_by_trying(broker, mallory, others, "price", tried) == -1).all()
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
    recovered = values_by_trying(broker, mallory, events, "price", range(15, SIZE, 16)) - 15
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
    view = bodies_of(TagMatch(Schema(price=UInt(BITS))), records, texts, rng.bytes)
    recovered = widths_from_hits(hits_of(*view), SIZE)
    assert np.median(np.abs(recovered - limits)) <= share * SIZE


def test_hits_show_which_subscriptions_of_two_groups_are_alike_though_no_event_reaches_both() -> (
    None
):
    """Values are known to be uniform: constants are read in each group by itself, and compared."""
    rng = np.random.default_rng(30)
    limits = 100 + 200 * rng.permutation(19)
    matcher = TagMatch(Schema(price=UInt(BITS)), groups=2)
    server = matcher.key_server(randomness=np.random.default_rng(31).bytes)
    permutation = server.broker_key().export_secret_data()["permutation"]
    recovered = []
    for group, mine in enumerate((limits, np.sort(limits))):
        publisher = matcher.publisher(server.publisher_key(groups=[group]))
        events = publisher.encode({"price": rng.integers(0, SIZE, 1_000)})[:, BODY]
        subscriber = matcher.subscriber(server.subscriber_key("alice", group=group))
        keys = subscriber.encode([f"price < {c}" for c in mine])[:, BODY]
        recovered.append(widths_from_hits(hits_of(permutation, events, keys), SIZE))
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
        view = bodies_of(matcher, records, [f"price < {c}" for c in limits], rng.bytes)
        tree = BoundTree(keys_of(matcher, view[2], "price"), BITS)
        ones = turns_from_hits(tree, hits_of(*view))
        recovered = limits_from_turns(tree.paths, ones, BITS)
        wrong.append(np.median(np.abs(recovered - limits)))
    assert np.median(wrong) <= share * SIZE
