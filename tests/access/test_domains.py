"""Domains: keys of topics by epoch, messages that open in one place only, routes without
transit."""

from __future__ import annotations

import random
from itertools import pairwise
from typing import Any

import networkx
import pytest
from hypothesis import given, settings
from hypothesis import strategies as st
from msgspec.structs import replace

from ccbps import EpochSeed
from ccbps.access import (
    Body,
    Connections,
    DomainManager,
    DomainMap,
    KeyRing,
    Label,
    SealedMessage,
    Stamp,
    Topic,
)
from ccbps.access.domains import KeyGrant, Notice
from ccbps.errors import (
    DecodeError,
    ParameterError,
    RefusedError,
    ReplayError,
    SerializationError,
)
from ccbps.keys import ExchangeKey, SigningKey
from tests.support.altered import altered
from tests.support.effort import examples
from tests.support.refusals import refused
from tests.support.tracebacks import locals_outside

OWNER = SigningKey.generate()


class World:
    """The manager of domain "clinic", and the rings of three domains."""

    def __init__(self) -> None:
        self.keys = {name: ExchangeKey.generate() for name in ("clinic", "registry", "carrier")}
        signing = SigningKey.generate()
        self.manager = DomainManager(
            "clinic", EpochSeed.generate(), signing, self.keys["clinic"].public
        )
        self.rings = {
            name: KeyRing(name, key, {"clinic": self.manager.identity})
            for name, key in self.keys.items()
        }
        self.take(self.manager.found("vitals"))
        self.take(self.manager.admit("vitals", "registry", self.keys["registry"].public))

    def take(self, *grants: bytes) -> None:
        for grant in grants:
            self.rings[KeyGrant.from_bytes(grant).recipient].take(grant)

    def key(self, domain: str, topic: str = "vitals", epoch: int | None = None) -> bytes | None:
        place = self.manager.topics[topic]
        return self.rings[domain].key(place, place.epoch if epoch is None else epoch)

    def message(self, number: int = 1, topic: str = "vitals", **fields: Any) -> SealedMessage:
        body = Body.of(b"pulse 70", b"chart")
        stamp = Stamp.sign(OWNER, "event", "ward", number, topic, body, Label({"patient"}))
        key = self.key("clinic", topic)
        assert key is not None
        return SealedMessage.seal(stamp, body, self.manager.topics[topic].epoch, key, **fields)


# -- keys ----------------------------------------------------------------------------------------


def test_members_open_messages_and_others_do_not() -> None:
    world = World()
    message = SealedMessage.from_bytes(world.message().to_bytes())
    for domain in ("clinic", "registry"):
        body = message.open(world.key(domain) or b"")
        assert (body.content, body.payload) == (b"pulse 70", b"chart")
    assert (
        world.key("carrier") is None and world.rings["carrier"].newest(message_topic(world)) is None
    )
    for key in (bytes(32), world.keys["carrier"].export_secret()):
        refused(DecodeError, "not a payload for this key", message.open, key)
    assert b"pulse" not in message.to_bytes() and b"vitals" in message.to_bytes()


def message_topic(world: World) -> Topic:
    return world.manager.topics["vitals"]


def test_who_leaves_cannot_read_the_next_epoch() -> None:
    world = World()
    old, old_key = world.message(1), world.key("registry")
    assert old_key is not None
    grants = world.manager.remove("vitals", "registry")
    assert world.key("clinic", epoch=0) is None  # from the notice on, before any grant
    world.take(*grants)
    topic, new = message_topic(world), world.message(2)
    assert (topic.epoch, topic.oldest, topic.members) == (1, 1, {"clinic"})
    refused(DecodeError, "not a payload", new.open, old_key)
    # Nor with the old epoch's number on it, nor by stepping what the leaver holds.
    refused(DecodeError, "", replace(new, epoch=0).open, old_key)
    refused(DecodeError, "", new.open, EpochSeed(old_key).step().export_secret())
    # Members refuse the epoch before, so nothing that the leaver seals is believed.
    assert world.key("clinic", epoch=0) is None
    assert old.open(old_key).content == b"pulse 70"  # what it recorded in its time


def test_a_rotation_keeps_one_epoch_for_messages_on_their_way() -> None:
    world = World()
    message = world.message()
    world.take(*world.manager.rotate())
    assert message.open(world.key("registry", epoch=0) or b"").content == b"pulse 70"
    world.take(*world.manager.rotate())
    assert [world.key("registry", epoch=epoch) is None for epoch in range(4)] == [
        True, False, False, True,
    ]  # fmt: skip


def test_keys_differ_by_topic_epoch_and_domain() -> None:
    world, keys = World(), set()
    world.take(world.manager.found("trial"))
    for _ in range(3):
        for topic in ("vitals", "trial"):
            keys.add(world.key("clinic", topic))
        world.take(*world.manager.rotate())
    other = DomainManager("other", EpochSeed.generate(), SigningKey.generate(), bytes(31) + b"\1")
    assert len(keys) == 6 and None not in keys
    assert KeyGrant.from_bytes(other.found("vitals")).wrapped not in keys


def test_a_manager_that_is_made_again_has_the_same_keys() -> None:
    world = World()
    signing, seed = SigningKey.generate(), EpochSeed.generate()
    texts = []
    for text in (seed.to_text(), seed.to_text()):
        key = world.keys["clinic"]
        manager = DomainManager("clinic", EpochSeed.from_text(text), signing, key.public)
        ring = KeyRing("clinic", key, {"clinic": manager.identity})
        ring.take(manager.found("vitals"))
        texts.append(ring.key(manager.topics["vitals"], 0))
    assert texts[0] == texts[1] is not None


# -- grants --------------------------------------------------------------------------------------


def test_grants_are_for_one_domain_by_one_manager() -> None:
    world = World()
    grant = world.manager.admit("vitals", "carrier", world.keys["carrier"].public)
    refused(DecodeError, "not a grant for this domain", world.rings["registry"].take, grant)
    fields = KeyGrant.from_bytes(grant)
    eve = SigningKey.generate()
    forged = replace(fields, signature=eve.sign(fields.signed()))
    refused(DecodeError, "not a grant", world.rings["carrier"].take, forged.to_bytes())
    renamed = replace(fields, owner="eve")
    refused(DecodeError, "not a grant", world.rings["carrier"].take, renamed.to_bytes())
    # Another domain's key does not open it, whatever name is on it.
    stolen = KeyRing("carrier", world.keys["registry"], {"clinic": world.manager.identity})
    refused(DecodeError, "not a payload", stolen.take, grant)
    assert world.rings["carrier"].take(grant) == world.rings["carrier"].take(grant) == ("vitals", 0)


def test_an_old_grant_is_a_replay() -> None:
    world = World()
    old = world.manager.admit("vitals", "registry", world.keys["registry"].public)
    world.take(*world.manager.rotate())
    refused(ReplayError, "newer grant", world.rings["registry"].take, old)
    assert world.rings["registry"].newest(message_topic(world)) == 1


def test_malformed_grants_and_messages_are_one_error() -> None:
    world = World()
    grant = world.manager.admit("vitals", "registry", world.keys["registry"].public)
    for other in altered(grant):
        refused(DecodeError, "", world.rings["registry"].take, other)
    message, key = world.message(pad_to=1), world.key("registry") or b""
    content, label_only = message.to_bytes(), 0
    for other in altered(content):
        try:
            SealedMessage.from_bytes(other).open(key)
        except DecodeError:
            continue
        label_only += 1
    assert label_only == 0
    for kind in (Topic, Notice, KeyGrant, SealedMessage):
        refused(DecodeError, f"not {kind.what}", kind.from_bytes, b"")
        refused(DecodeError, f"not {kind.what}", kind.from_bytes, world.rings)


@pytest.mark.parametrize("public", [bytes(32), b"\1" + bytes(31), bytes(31)])
def test_keys_of_low_order_are_not_admitted(public: bytes) -> None:
    world = World()
    refused((DecodeError, ParameterError), "", world.manager.admit, "vitals", "carrier", public)
    assert "carrier" not in message_topic(world).members


def test_managers_refuse_what_makes_no_sense() -> None:
    world = World()
    manager, public = world.manager, world.keys["carrier"].public
    refused(ParameterError, "founded before", manager.found, "vitals")
    refused(ParameterError, "no topic", manager.admit, "trial", "carrier", public)
    refused(ParameterError, "no topic", manager.remove, "trial", "registry")
    refused(ParameterError, "no other member", manager.remove, "vitals", "clinic")
    refused(ParameterError, "no other member", manager.remove, "vitals", "carrier")
    refused(ParameterError, "members", manager.found, "own", forbidden=["clinic"])
    manager.found("trial", forbidden=["carrier"])
    refused(ParameterError, "members", manager.admit, "trial", "carrier", public)
    assert [*manager.topics] == ["vitals", "trial"]
    assert manager.remove("vitals", "registry")
    refused(ParameterError, "oldest", Topic, "t", "a", {"a"}, 1, 2)


def test_keys_do_not_print_pickle_or_show_in_tracebacks() -> None:
    world = World()
    for thing in (world.manager, world.rings["clinic"]):
        assert repr(thing).startswith("<") and "topics" in repr(thing)
        refused(SerializationError, "must not be pickled", thing.__reduce__)
    key, message = world.key("clinic") or b"", world.message()
    with pytest.raises(DecodeError) as caught:
        replace(message, epoch=5).open(key)
    assert repr(key)[2:-1] not in locals_outside(__file__, caught.value)


# -- messages ------------------------------------------------------------------------------------


def test_a_message_opens_in_its_place_only() -> None:
    """Move ciphertexts between topics, numbers, owners, labels and epochs."""
    world = World()
    world.take(world.manager.found("trial"))
    vitals, other = world.message(1), world.message(2)
    trial = world.message(1, "trial")
    keys = world.key("clinic"), world.key("clinic", "trial")
    assert keys[0] and keys[1]
    for stamp in (other.stamp, trial.stamp, replace(vitals.stamp, topic="trial")):
        for key in keys:
            refused(DecodeError, "not a payload", replace(vitals, stamp=stamp).open, key)
    for changes in (
        {"owner": "eve"},
        {"origin": Label()},
        {"privacy": 9},
        {"kind": "subscription"},
    ):
        moved = replace(vitals, stamp=replace(vitals.stamp, **changes))
        refused(DecodeError, "not a payload", moved.open, keys[0])
    for change in ({"epoch": 1}, {"nonce": other.nonce}, {"sealed": other.sealed}):
        refused(DecodeError, "not a payload", replace(vitals, **change).open, keys[0])
    # Changes of the label are no part of it: those who make them sign them.
    stepped = vitals.stamp.relabel("ward", OWNER, Label())
    assert replace(vitals, stamp=stepped).open(keys[0]).content == b"pulse 70"


def test_a_member_that_seals_other_content_is_found_out() -> None:
    world = World()
    message, key = world.message(), world.key("registry") or b""
    forged = Body.of(b"pulse 0")
    refused(ParameterError, "stamp must be", SealedMessage.seal, message.stamp, forged, 0, key)
    stamp = replace(message.stamp, commitment=forged.commitment)
    sealed = SealedMessage.seal(stamp, forged, 0, key)
    refused(DecodeError, "not a payload", replace(sealed, stamp=message.stamp).open, key)
    # The commitment is checked beside the binding, too: this body is bound to the true stamp.
    from ccbps.ciphers.payloads import seal
    from ccbps.records import write

    content = seal(write(forged), message._own_key(key), message._bound(), pad_to=1)
    swapped = replace(message, sealed=content)
    refused(DecodeError, "not what the owner signed", swapped.open, key)


def test_equal_contents_look_different_and_sizes_come_in_steps() -> None:
    world = World()
    messages = [world.message(1) for _ in range(8)]
    assert len({m.sealed for m in messages} | {m.stamp.commitment for m in messages}) == 16
    assert {len(m.sealed) % 256 for m in messages} == {16}


# -- routes --------------------------------------------------------------------------------------


def mapped(domains: dict[str, str], links: Any, topic: Topic, pairs: Any = None) -> DomainMap:
    names = sorted({*domains.values()})
    everybody = tuple((one, other) for one in names for other in names)
    result = DomainMap(domains, links, Connections(everybody if pairs is None else pairs))
    result.update(topic)
    return result


@given(st.integers(0, 1 << 32), st.integers(2, 14))
@settings(max_examples=examples(300))
def test_routes_avoid_forbidden_domains_or_are_refused(seed: int, brokers: int) -> None:
    draw = random.Random(seed)
    names = [f"B{n}" for n in range(brokers)]
    domains = {name: draw.choice("abcd") for name in names}
    domains["B0"] = "a"
    forbidden = {name for name in "bcd" if draw.random() < 0.4}
    graph = networkx.gnp_random_graph(brokers, 0.3, seed=seed)
    pairs = tuple((m, n) for m in "abcd" for n in "abcd" if draw.random() < 0.7)
    links = [(names[m], names[n]) for m, n in graph.edges]
    world = mapped(domains, links, Topic("t", "a", {"a"}, forbidden=forbidden), pairs)

    def linked(m: str, n: str) -> bool:
        own, other = domains[m], domains[n]
        return own == other or (own, other) in pairs or (other, own) in pairs

    assert world.links == [(m, n) for m, n in links if linked(m, n)]
    allowed = networkx.Graph(world.links)
    allowed.add_nodes_from(names)
    allowed.remove_nodes_from([name for name in names if domains[name] in forbidden])
    reached = networkx.node_connected_component(allowed, "B0")
    for target in names:
        if target not in reached:
            error = refused(RefusedError, "no route", world.route, "t", "B0", target)
            assert error.reason == "domain"
            refused(RefusedError, "no route", world.route, "t", target, "B0")
            assert world.neighbours("t", target) == []
            continue
        route = world.route("t", "B0", target)
        assert (route[0], route[-1]) == ("B0", target)
        assert all(allowed.has_edge(m, n) for m, n in pairwise(route))
        assert not {domains[name] for name in route} & forbidden
        assert len(route) == networkx.shortest_path_length(allowed, "B0", target) + 1
        assert world.route("t", target, "B0") == route[::-1]
        for other in reached:
            way = world.route("t", other, target)
            assert len({*way}) == len(way)
            assert all(n in world.neighbours("t", m) for m, n in pairwise(way))


def test_where_transit_is_forbidden_there_is_no_way_round() -> None:
    domains = {"B1": "clinic", "B2": "carrier", "B3": "registry"}
    line = [("B1", "B2"), ("B2", "B3")]
    world = mapped(domains, line, Topic("t", "clinic", {"clinic"}, forbidden={"carrier"}))
    refused(RefusedError, "avoids domains carrier", world.route, "t", "B1", "B3")
    refused(RefusedError, "avoids domains carrier", world.route, "t", "B1", "B2")
    assert world.route("t", "B1", "B1") == ["B1"]
    with_detour = mapped(
        domains | {"B4": "other"}, [*line, ("B1", "B4"), ("B4", "B3")], world.topic("t")
    )
    assert with_detour.route("t", "B1", "B3") == ["B1", "B4", "B3"]


def test_brokers_agree_on_routes_whatever_order_links_come_in() -> None:
    graph = networkx.gnp_random_graph(12, 0.4, seed=3)
    names = {f"B{n}": "abc"[n % 3] for n in range(12)}
    links = [(f"B{m}", f"B{n}") for m, n in graph.edges]
    topic = Topic("t", "a", {"a"})
    mixed = [pair[::-1] for pair in links]
    random.Random(1).shuffle(mixed)
    backwards = dict([*names.items()][::-1])
    assert mapped(names, links, topic).tree("t") == mapped(backwards, mixed, topic).tree("t")


def test_old_notices_and_other_owners_are_refused() -> None:
    world = mapped({"B1": "a", "B2": "b"}, [("B1", "B2")], Topic("t", "a", {"a"}, 3, 2))
    older, reopened = Topic("t", "a", {"a", "b"}, 2, 2), Topic("t", "a", {"a"}, 3, 1)
    for topic in (older, reopened, Topic("t", "b", {"b"}, 4, 4)):
        assert refused(RefusedError, "older", world.update, topic).reason == "domain"
    world.update(Topic("t", "a", {"a", "b"}, 3, 2))
    assert world.is_member("t", "B2") and world.topic("t").members == {"a", "b"}
    refused(RefusedError, "no manager has told", world.topic, "trial")
    refused(ParameterError, "no broker", world.route, "t", "B1", "B9")
    refused(ParameterError, "no broker", DomainMap, {"B1": "a"}, [("B1", "B2")], Connections())


def test_notices_are_of_the_owners_manager() -> None:
    manager, eve = (
        World().manager,
        DomainManager("clinic", EpochSeed.generate(), SigningKey.generate(), bytes(31) + b"\1"),
    )
    brokers, pairs = {"B1": "clinic", "B2": "registry"}, Connections((("clinic", "registry"),))
    world = DomainMap(brokers, [("B1", "B2")], pairs, {"clinic": manager.identity})
    old = manager.notice("vitals")
    assert world.take(old) == world.topic("vitals") == manager.topics["vitals"]
    manager.remove("vitals", "registry")
    assert world.take(manager.notice("vitals")).members == {"clinic"}
    assert refused(RefusedError, "older", world.take, old).reason == "domain"
    eve.found("vitals", forbidden=["registry"])
    refused(DecodeError, "not a notice by", world.take, eve.notice("vitals"))
    fields = Notice.from_bytes(manager.notice("vitals"))
    stranger = replace(fields, topic=replace(fields.topic, owner="eve", members={"eve"}))
    refused(DecodeError, "not a notice by", world.take, stranger.to_bytes())
    for other in altered(manager.notice("vitals")):
        refused(DecodeError, "not a notice", world.take, other)
    refused(ParameterError, "no topic", manager.notice, "oncology")


def test_topics_have_one_wire_form() -> None:
    topic = Topic("t", "a", {"a", "b"}, 3, 2, {"c"}, Label({"x"}))
    assert Topic.from_bytes(topic.to_bytes()) == topic
    for other in altered(topic.to_bytes()):
        try:
            assert Topic.from_bytes(other).to_bytes() == other
        except DecodeError:
            continue
