"""Meeting points of topics: requests and events of one topic meet at one node, and no others."""

from __future__ import annotations

from collections import Counter, defaultdict

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st

from ccbps import Category, Schema, UInt
from ccbps.algebra.prime_order import prime_order_group
from ccbps.ciphers.universal import UniversalCipher
from ccbps.errors import ParameterError, ShapeError
from ccbps.forms.topic import meeting_points, topic_codes, topic_of
from ccbps.overlay import OnionNode, ReturnOnion, UniversalOnions

ISSUES = ["AAPL", "IBM", "MSFT"]
SCHEMA = Schema(issue=Category(ISSUES), year=UInt(60))
NODES = ["north", "east", "south"]


@given(
    st.lists(st.tuples(st.integers(0, 2), st.integers(0, 3)), min_size=1, max_size=20),
    st.integers(0, (1 << 63) - 1),
    st.binary(max_size=64),
)
def test_equal_topics_meet_and_others_do_not(
    topics: list[tuple[int, int]], epoch: int, key: bytes
) -> None:
    issues = [ISSUES[code] for code, _ in topics]
    events = SCHEMA.encode({"issue": issues, "year": [year << 50 for _, year in topics]})
    points = meeting_points(topic_codes(events, SCHEMA.names), epoch, NODES, key=key)
    assert len({*points}) == len({tag for _, tag in points}) == len({*topics})
    assert len({*zip(topics, points, strict=True)}) == len({*topics})
    asked = SCHEMA.parse(f"issue = '{issues[0]}' AND year = {topics[0][1] << 50}")
    (point,) = meeting_points(topic_of(asked, SCHEMA.names)[None], epoch, NODES, key=key)
    assert point == points[0]


def test_tags_of_epochs_and_keys_have_nothing_in_common() -> None:
    topics = np.arange(300, dtype=np.uint64)[:, None]
    sets = [
        {tag for _, tag in meeting_points(topics, epoch, NODES, key=key)}
        for epoch, key in ((0, b""), (1, b""), (0, b"k"), (0, b"kk"))
    ]
    assert len(set.union(*sets)) == 4 * 300
    counts = Counter(node for node, _ in meeting_points(topics, 0, NODES))
    assert {*counts} == {*NODES} and min(counts.values()) > 60


def test_arguments_are_checked() -> None:
    one = np.zeros((1, 1), dtype=np.uint64)
    with pytest.raises(ParameterError, match="number of nodes must be"):
        meeting_points(one, 0, [])
    with pytest.raises(ParameterError, match="at most 64 bytes"):
        meeting_points(one, 0, NODES, key=bytes(65))
    with pytest.raises(ParameterError, match="epoch must be"):
        meeting_points(one, -1, NODES)
    with pytest.raises(ShapeError, match="topics must"):
        meeting_points(one[0], 0, NODES)


def test_a_node_answers_return_onions_of_one_topic_and_learns_no_more() -> None:
    """Clients leave return onions under tags; an event with a tag goes to those that have it."""
    group = prime_order_group("toy64")
    cipher, context = UniversalCipher(group), UniversalOnions.context
    keys = {name: cipher.generate() for name in ("relay", "ann", "bob", "cid")}
    publics = {n: (y, cipher.proofs.prove(x, context(n))) for n, (x, y) in keys.items()}
    onions = UniversalOnions(group, publics, most_hops=2, payload_bytes=32)
    clients = {name: OnionNode(onions, name, x) for name, (x, _) in keys.items()}
    wanted = {"ann": "IBM", "bob": "IBM", "cid": "AAPL"}
    stored: dict[str, dict[bytes, list[ReturnOnion]]] = defaultdict(lambda: defaultdict(list))
    for name, issue in wanted.items():
        topic = topic_of(SCHEMA.parse(f"issue = '{issue}'"), ["issue"])
        ((node, tag),) = meeting_points(topic[None], 3, NODES, key=b"group")
        stored[node][tag].append(clients[name].reply_onion(["relay"]))
    events = SCHEMA.encode({"issue": ["IBM", "MSFT"], "year": [1, 1]})
    got = []
    for node, tag in meeting_points(topic_codes(events, ["issue"]), 3, NODES, key=b"group"):
        for request in stored[node].pop(tag, []):
            step = clients["relay"].handle(onions.fill(request, b"sealed"))
            assert step.after is not None and step.onion is not None
            got.append((step.after, clients[step.after].handle(step.onion).payload))
    assert sorted(got) == [("ann", b"sealed"), ("bob", b"sealed")]
    assert [len(onions) for held in stored.values() for onions in held.values()] == [1]
