"""Keys of trees: a key opens its box, hashes are counted, epochs end, and trees bind attributes."""

from __future__ import annotations

import itertools
import random

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps import Category, Schema, UInt
from ccbps.delivery.key_tree import KeyTree, RangeKey, TreeKey, hashed_down
from ccbps.errors import CcbpsError, DecodeError, KeyMismatchError, UnsupportedPredicateError
from ccbps.forms.decomposition import Decomposition, covers
from ccbps.records import write
from tests.support.effort import examples

SECRET = TreeKey.generate()
TWO = Schema(x=UInt(3), issue=Category(["A", "B", "C"], nullable=True))
RECORDS = [{"x": x, "issue": issue} for x in range(8) for issue in (None, "A", "B", "C")]


def sorted_pair(draw: random.Random, size: int) -> tuple[int, int]:
    low, high = sorted((draw.randrange(size), draw.randrange(size)))
    return low, high


# -- decomposition ----------------------------------------------------------------------------


@given(st.integers(0, 1 << 32), st.integers(1, 5))
@settings(max_examples=examples(200))
def test_a_cover_holds_the_box_and_at_full_depth_nothing_else(seed: int, depth: int) -> None:
    draw = random.Random(seed)
    low, high = sorted_pair(draw, 8)
    text = f"x BETWEEN {low} AND {high}"
    text += draw.choice(["", " AND issue = 'B'", " AND issue >= 'B'", " AND issue IS NULL"])
    wanted = TWO.parse(text).evaluate(RECORDS).tolist()
    for tree in (Decomposition(TWO), Decomposition(TWO, depth)):
        nodes = tree.cover(text)
        held = [sum(covers(node, leaf) for node in nodes) for leaf in tree.leaves(RECORDS)]
        assert max(held, default=0) <= 1  # nodes do not cover one another
        assert all(not want or got for want, got in zip(wanted, held, strict=True))
        if tree.depth == TWO.bits:
            assert [got == 1 for got in held] == wanted


def test_covers_are_the_fewest_nodes() -> None:
    """All intervals of 4 bits, and all sets of nodes up to the size of the cover."""
    schema = Schema(x=UInt(4))
    tree = Decomposition(schema)
    counts = []
    for low, high in itertools.combinations_with_replacement(range(16), 2):
        counts.append(len(tree.cover(f"x BETWEEN {low} AND {high}")))
        left, right, fewest = low, high + 1, 0
        while left < right:  # the classical greedy cover
            size = left & -left or 16
            while left + size > right:
                size //= 2
            left, fewest = left + size, fewest + 1
        assert counts[-1] == fewest
    assert max(counts) == 6  # 2 (n - 1)
    assert round(sum(counts) / len(counts), 2) == 2.48


def test_the_worst_box_in_one_tree_and_in_two() -> None:
    joint = Decomposition(Schema(x=UInt(6), y=UInt(6)))
    assert len(joint.cover("x BETWEEN 1 AND 62 AND y BETWEEN 1 AND 62")) == 332
    each = Decomposition(Schema(x=UInt(6)))
    assert 2 * len(each.cover("x BETWEEN 1 AND 62")) == 20
    with pytest.raises(UnsupportedPredicateError, match="more than 300 nodes"):
        joint.cover("x BETWEEN 1 AND 62 AND y BETWEEN 1 AND 62", most=300)


def test_fewer_cuts_take_fewer_nodes_and_cover_more() -> None:
    draw, schema = random.Random(1), Schema(x=UInt(6), y=UInt(6))
    boxes = [(sorted_pair(draw, 64), sorted_pair(draw, 64)) for _ in range(40)]
    nodes, unwanted = [], []
    for depth in (4, 8, 12):
        tree, held, exact, count = Decomposition(schema, depth), 0, 0, 0
        for (a, b), (c, d) in boxes:
            cover = tree.cover(f"x BETWEEN {a} AND {b} AND y BETWEEN {c} AND {d}")
            held += sum(1 << 12 - len(node) for node in cover)
            exact += (b - a + 1) * (d - c + 1)
            count += len(cover)
        nodes.append(count)
        unwanted.append(1 - exact / held)
    assert nodes == sorted(nodes)
    assert unwanted == sorted(unwanted, reverse=True)
    assert unwanted[-1] == 0 < unwanted[1] < 0.5


# -- keys -------------------------------------------------------------------------------------


@given(st.integers(0, 1 << 32))
@settings(max_examples=examples(80))
def test_a_key_opens_exactly_its_box(seed: int) -> None:
    draw = random.Random(seed)
    low, high = sorted_pair(draw, 8)
    text = f"x BETWEEN {low} AND {high}" + draw.choice(["", " AND issue = 'B'"])
    tree = KeyTree(TWO, "quotes")
    publisher = tree.publisher_key(SECRET, epoch=3)
    subscriber = RangeKey.from_text(tree.subscriber_key(SECRET, text, epoch=3).to_text())
    sealed = publisher.seal([str(row).encode() for row in range(len(RECORDS))], RECORDS)
    for row, want in enumerate(TWO.parse(text).evaluate(RECORDS).tolist()):
        if want:
            assert subscriber.open([sealed[row]]) == [str(row).encode()]
        else:
            with pytest.raises(KeyMismatchError, match="outside of this key's ranges"):
                subscriber.open([sealed[row]])


@pytest.mark.parametrize(("n", "hashes"), [(4, 30), (8, 510), (12, 8190)])
def test_all_leaves_in_order_take_each_key_of_the_tree_once(n: int, hashes: int) -> None:
    key = KeyTree(Schema(x=UInt(n)), "t").publisher_key(SECRET, epoch=0)
    for leaf in range(1 << n):
        key._leaf_key(0, 0, f"{leaf:0{n}b}")
    assert key.hashes == hashes == 2 ** (n + 1) - 2


def test_random_leaves_gain_nothing() -> None:
    n, draw = 8, random.Random(3)
    key = KeyTree(Schema(x=UInt(n)), "t").publisher_key(SECRET, epoch=0)
    for _ in range(20_000):
        key._leaf_key(0, 0, f"{draw.randrange(1 << n):0{n}b}")
    assert abs(key.hashes / 20_000 - (n - 1 + 2**-n)) < 0.05


def test_remembered_paths_give_the_same_keys() -> None:
    draw, tree = random.Random(4), KeyTree(Schema(x=UInt(6)), "t")
    key = tree.subscriber_key(SECRET, "x BETWEEN 5 AND 57", epoch=0)
    for _ in range(300):
        leaf = f"{draw.randrange(5, 58):06b}"
        assert key._leaf_key(0, 0, leaf) == hashed_down(tree._root(SECRET, 0), leaf)


def test_epochs_end_and_overlap() -> None:
    tree = KeyTree(TWO, "quotes")
    keys = {e: tree.subscriber_key(SECRET, "x < 4", epoch=e) for e in (6, 7, 8)}
    sealed = {e: tree.publisher_key(SECRET, epoch=e).seal([b"a"], RECORDS[:1]) for e in (6, 7, 8)}
    assert keys[7].open(sealed[7]) == [b"a"]
    with pytest.raises(KeyMismatchError, match="of epoch 8, and the key of 7"):
        keys[7].open(sealed[8])
    both = keys[6].with_next(keys[7]).with_next(keys[8])
    assert both.epochs == [7, 8]
    assert both.open(sealed[7] + sealed[8] + sealed[7]) == [b"a"] * 3
    with pytest.raises(KeyMismatchError, match="of epoch 6"):
        both.open(sealed[6])
    with pytest.raises(KeyMismatchError, match="another tree"):
        keys[6].with_next(KeyTree(TWO, "other").publisher_key(SECRET, epoch=9))


def test_keys_of_several_boxes_are_put_together() -> None:
    tree = KeyTree(TWO, "quotes")
    low, high, later = (
        tree.subscriber_key(SECRET, box, epoch=epoch)
        for box, epoch in (("x < 2", 1), ("x BETWEEN 1 AND 7", 1), ("x < 4", 2))
    )
    sealed = tree.publisher_key(SECRET, epoch=1).seal([b"x"] * len(RECORDS), RECORDS)
    both = RangeKey.from_text(low.with_next(high).with_next(later).to_text())
    assert both.open(sealed) == [b"x"] * len(RECORDS)
    assert both.epochs == [1, 2]


def test_malformed_messages_name_their_row_and_nodes_have_bits_only() -> None:
    tree = KeyTree(TWO, "quotes", depth=3)
    key = tree.publisher_key(SECRET, epoch=1)
    (sealed,) = key.seal([b"a"], RECORDS[:1])
    with pytest.raises(DecodeError, match="row 1: not a payload") as caught:
        key.open([sealed, b"x"])
    assert caught.value.rows == (1,)
    with pytest.raises(DecodeError, match="not a payload under a key of a tree"):
        key.open([sealed.replace(b"000", b"00\n")])  # a pattern that ends with $ lets it through
    fields = "quotes", TWO.to_json(), 3, ((1, (("0\n", bytes(32)),)),)
    with pytest.raises(DecodeError, match="not a key of ranges"):
        RangeKey._from_bytes(write(fields))


def test_other_trees_and_altered_messages() -> None:
    tree = KeyTree(TWO, "quotes")
    key = tree.publisher_key(SECRET, epoch=1)
    (sealed,) = key.seal([b"a"], RECORDS[:1], pad_to=1)
    others = [KeyTree(TWO, "else"), KeyTree(TWO, "quotes", depth=4)]
    for other in others:
        with pytest.raises(KeyMismatchError, match="another tree"):
            other.publisher_key(SECRET, epoch=1).open([sealed])
    with pytest.raises(DecodeError, match="row 0"):
        tree.publisher_key(TreeKey.generate(), epoch=1).open([sealed])
    for at in range(len(sealed)):
        altered = sealed[:at] + bytes([sealed[at] ^ 1]) + sealed[at + 1 :]
        with pytest.raises((DecodeError, KeyMismatchError)):
            key.open([altered])


def test_arguments_are_refused_clearly() -> None:
    tree = KeyTree(TWO, "quotes")
    key = tree.publisher_key(SECRET, epoch=1)
    for call in (
        lambda: KeyTree(TWO, 3),
        lambda: KeyTree(TWO, "t", depth=9),
        lambda: tree.publisher_key("secret", epoch=1),
        lambda: tree.publisher_key(SECRET, epoch=-1),
        lambda: tree.subscriber_key(SECRET, "x = 1 OR issue = 'A'", epoch=1),
        lambda: tree.subscriber_key(SECRET, "FALSE", epoch=1),
        lambda: key.seal([b"a"], RECORDS),
        lambda: key.seal(["a"], RECORDS[:1]),
        lambda: key.open([b"x"]),
    ):
        with pytest.raises(CcbpsError):
            call()


def test_keys_of_two_trees_can_be_put_together_and_one_tree_binds() -> None:
    """Alice may see price < 4 at any volume up to 3, Bob price >= 4 with volume >= 4."""
    draw = random.Random(5)
    price, volume = KeyTree(Schema(p=UInt(3)), "p"), KeyTree(Schema(v=UInt(3)), "v")
    alice = price.subscriber_key(SECRET, "p < 4", epoch=0)
    bob = volume.subscriber_key(SECRET, "v >= 4", epoch=0)
    # An event key that is a hash of both attributes' keys: (2, 6) is in neither box, and opens.
    leaf = f"{2:03b}", f"{6:03b}"
    event = [
        hashed_down(t._root(SECRET, 0), one) for t, one in zip((price, volume), leaf, strict=True)
    ]
    assert [alice._leaf_key(0, 0, leaf[0]), bob._leaf_key(0, 0, leaf[1])] == event
    # In one tree both keys together open the two boxes, and nothing else.
    joint = KeyTree(Schema(p=UInt(3), v=UInt(3)), "both")
    keys = [
        joint.subscriber_key(SECRET, box, epoch=0)
        for box in ("p < 4 AND v < 4", "p >= 4 AND v >= 4")
    ]
    publisher = joint.publisher_key(SECRET, epoch=0)
    for _ in range(30):
        p, v = draw.randrange(8), draw.randrange(8)
        (sealed,) = publisher.seal([b"x"], [{"p": p, "v": v}])
        opened = 0
        for key in keys:
            try:
                opened += key.open([sealed]) == [b"x"]
            except KeyMismatchError:
                continue
        assert opened == ((p < 4) == (v < 4))
