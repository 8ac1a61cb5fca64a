"""The leaks of P3S, carried out with what each server really holds, and no key."""

from __future__ import annotations

from itertools import combinations

import numpy as np

from ccbps.attacks.schemes.p3s import (
    co_matches,
    containments,
    fetches_of,
    items_of,
    predicates_of,
)
from tests.support.p3s_world import (
    ATTRIBUTES,
    POLICIES,
    World,
    drawn_members,
    drawn_predicate,
    drawn_records,
    matches,
    satisfies,
)


def run(
    payloads: list[bytes], seed: int = 7, subscribers: int = 12
) -> tuple[World, dict[str, set[int]], list[str]]:
    """Publish and receive; return what happened, rows that match each subscriber, and policies."""
    rng = np.random.default_rng(seed)
    world = World(drawn_members(rng, subscribers))
    asked = {name: drawn_predicate(rng) for name in world.members}
    readers = {name: world.subscriber(name, predicate) for name, predicate in asked.items()}
    records, publisher = drawn_records(rng, len(payloads)), world.publisher()
    policies = [POLICIES[int(rng.integers(len(POLICIES)))] for _ in payloads]
    for record, payload, policy in zip(records, payloads, policies, strict=True):
        publisher.publish([record], [payload], policy)
    for reader in readers.values():
        assert reader.position == 0
        [*reader.receive()]
    return world, {name: matches(asked[name], records) for name in asked}, policies


def test_the_repository_finds_who_matches_the_same_events() -> None:
    world, matching, policies = run([b"payload"] * 40)
    true = {frozenset((a, b)) for a, b in combinations(matching, 2) if matching[a] & matching[b]}
    assert co_matches(world.seen["repository"]) == true
    assert 0 < len(true) < len(matching) * (len(matching) - 1) // 2
    # It learns matches, whether the subscriber can open the payload or not.
    fetches = sum(request.verb == "fetch" for _, request in world.seen["repository"])
    opened = sum(
        satisfies(policies[row], world.members[name])
        for name, rows in matching.items()
        for row in rows
    )
    assert fetches == sum(map(len, matching.values())) > opened


def test_the_repository_finds_which_subscriptions_lie_in_others() -> None:
    world, matching, _ = run([b"payload"] * 40)
    learned = containments(world.seen["repository"])
    assert learned == {
        (a, b) for a in matching for b in matching if matching[a] and matching[a] < matching[b]
    }
    assert learned


def test_the_repository_reads_policies_and_padded_lengths() -> None:
    lengths = [1, 200, 255, 256, 600]
    world, _, policies = run([bytes(length) for length in lengths], seed=3)
    parts = items_of(world.seen["repository"])
    # Without any key: a tree for each text, the same for the same text.
    trees = [world.access.public.read(part.capsule) for part in parts]
    own = {text: world.access.scheme.target(text, None) for text in POLICIES}
    assert trees == [own[policy] for policy in policies]
    assert trees[policies.index("desk = 'shares'")].text == "desk=2"
    assert [len(part.sealed) - 16 for part in parts] == [256, 256, 256, 512, 768]
    for part, policy in zip(parts, policies, strict=True):
        assert all(word.encode() in part.capsule for word in own[policy].words)


def test_the_dissemination_server_sees_numbers_and_sizes_that_are_all_the_same() -> None:
    world, matching, _ = run([bytes(n) for n in range(0, 3000, 100)])
    seen = world.seen["dissemination"]
    sizes = [len(request.content) for _, request in seen if request.verb == "announce"]
    assert len(sizes) == 30
    assert len({*sizes}) == 1  # whatever the metadata, the policy and the payload
    # Each subscriber asks for the same, whether it matches or not.
    asked = {client: request for client, request in seen if request.verb == "listen"}
    assert {*asked} == {*matching}
    assert len({*asked.values()}) == 1
    assert any(not rows for rows in matching.values()) or len({*map(len, matching.values())}) > 1


def test_both_servers_together_know_which_announcement_matched_whom() -> None:
    world, matching, _ = run([b"payload"] * 25, seed=5)
    learned = fetches_of(world.seen["repository"])
    assert learned == {name: rows for name, rows in matching.items() if rows}


def test_the_authority_reads_every_predicate() -> None:
    world, matching, _ = run([b"payload"])
    asked = predicates_of(world.seen["authority"])
    assert {*asked} == {*matching}
    assert all("price BETWEEN" in text for (text,) in asked.values())
    assert ATTRIBUTES.names == world.access.scheme.schema.names  # type: ignore[union-attr]
