"""Trees of credentials: who opens what, joins that show nothing, splits, publishers, collusion."""

from __future__ import annotations

import os
import random
from collections import Counter
from hashlib import sha256
from typing import Any

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from ccbps import Schema, UInt
from ccbps.ciphers.payloads import open_sealed, seal
from ccbps.errors import CcbpsError, DecodeError, KeyMismatchError, ParameterError
from ccbps.forms.decomposition import Decomposition
from ccbps.forms.trie import trie_depth, trie_leaf, trie_node
from ccbps.functional import Authority, CpAbe, Ibe
from ccbps.keys import SigningKey
from ccbps.overlay import Certificate, Credential, CredentialTree, Links, Member, split_credential
from ccbps.overlay.credentials.member import (
    Adopt,
    Answer,
    Ask,
    Attach,
    Attached,
    Declined,
    Forwarded,
)
from ccbps.overlay.credentials.tree import NO_TAG, _Event, _Request, request_proof, split_tag
from tests.support.altered import altered
from tests.support.effort import examples

DEPTH = 8
AUTHORITY = Authority.generate(Ibe(pairing="transparent"))
ISSUER, EXCHANGE, EVE = (SigningKey.generate() for _ in range(3))
TREE = CredentialTree("quotes", DEPTH, AUTHORITY.public, ISSUER.identity)
EVERYTHING = TREE.certify(ISSUER, EXCHANGE.identity, [""], epoch=7)


def credential(node: str, epoch: int = 7) -> Credential:
    (issued,) = TREE.issue(AUTHORITY, [node], epoch=epoch)
    return issued


class World:
    """Members over simulated links, a root among them, and what each got."""

    def __init__(self, seed: int = 0, delay: Any = (0.5, 3)) -> None:
        self.links = Links(delay=delay, seed=seed)
        self.members: dict[str, Member] = {}
        self.nodes: dict[str, str] = {}
        self.got: Counter[tuple[str, int]] = Counter()
        self.heard: list[tuple[str, str, Any]] = []
        self.number = 0
        self.add("root", "", root=True)

    def add(self, name: str, node: str, **options: Any) -> Member:
        world = self

        class Entry:
            def receive(self, sender: str, message: Any) -> None:
                world.heard.append((sender, name, message))
                world.members[name].receive(sender, message)

        def deliver(event: Any) -> None:
            world.got[name, event.number] += 1

        send, links = self.links.attach(name, Entry()).send, self.links
        self.nodes[name] = node
        self.members[name] = Member(
            name,
            TREE,
            credential(node),
            send,
            lambda other: links.link(name, other),
            deliver,
            **options,
        )
        return self.members[name]

    def join(self, name: str, node: str, start: str = "root", **options: Any) -> Member:
        member = self.add(name, node, **options)
        member.join(start)
        self.links.run()
        return member

    def check_tree(self) -> None:
        """A parent's credential is a prefix of its child's, and all come to the root."""
        for name, member in self.members.items():
            if name == "root":
                continue
            assert member.parent is not None
            assert self.nodes[name].startswith(self.nodes[member.parent])
            assert name in self.members[member.parent].children
            steps, at = 0, name
            while at != "root":
                at, steps = self.members[at].parent or "", steps + 1
                assert steps <= len(self.members)

    def publish(self, leaf: str, start: str = "root") -> None:
        """Publish an event, and compare who got it."""
        self.number += 1
        event = TREE.seal_event(b"x", leaf, EXCHANGE, EVERYTHING, number=self.number)
        self.members[start].publish(event)
        self.links.run()
        got = {name for name, number in self.got if number == self.number}
        assert got == {name for name, node in self.nodes.items() if leaf.startswith(node)}
        assert set(self.got.values()) <= {1}


def forest(seed: int, joins: int, *, together: bool = False) -> World:
    draw, world = random.Random(seed), World(seed)
    for number in range(joins):
        node = "".join(draw.choices("01", k=draw.randrange(DEPTH + 1)))
        show = draw.random() < 0.5
        joined = [name for name, member in world.members.items() if member.joined]
        world.add(f"m{number}", node, show=show).join(draw.choice(joined))
        if not together or draw.random() < 0.3:
            world.links.run()
    world.links.run()
    return world


# -- joins ----------------------------------------------------------------------------------------


def check_forest(seed: int, events: int) -> None:
    world, draw = forest(seed, 30), random.Random(seed)
    world.check_tree()
    for _ in range(events):
        world.publish("".join(draw.choices("01", k=DEPTH)), draw.choice([*world.members]))


@pytest.mark.parametrize("seed", range(4))
def test_events_reach_exactly_the_members_whose_credential_covers_them(seed: int) -> None:
    check_forest(seed, 5)


@pytest.mark.slow
def test_events_of_two_hundred_forests() -> None:
    for seed in range(200):
        check_forest(seed, 20)


@given(st.integers(0, 1 << 32))
@settings(max_examples=examples(80))
def test_members_that_join_and_leave_at_the_same_time(seed: int) -> None:
    world, draw = forest(seed, 10, together=True), random.Random(seed)
    world.check_tree()
    gone = draw.sample([name for name in world.members if name != "root"], 4)
    for name in gone:
        world.members[name].leave()
        del world.nodes[name]
        if draw.random() < 0.5:
            world.links.run(world.links.time + draw.random())
    world.links.run()
    for name in gone:
        del world.members[name]
    world.check_tree()
    world.publish("".join(draw.choices("01", k=DEPTH)))


@given(st.integers(0, 1 << 32))
@settings(max_examples=examples(160), deadline=None)
def test_members_with_equal_credentials_join_again_and_no_circle_forms(seed: int) -> None:
    """Members join, leave and join again from anywhere, also from below themselves."""
    draw, world = random.Random(seed), World(seed, delay=(0.1, 6))
    gone: list[str] = []
    for number in range(25):
        act, alive = draw.random(), [name for name in world.members if name not in gone]
        joined = [name for name in alive if world.members[name].joined]
        settled = [name for name in alive if world.members[name].parent]
        if act < 0.55 or not settled:
            node = "".join(draw.choices("01", k=draw.randrange(3)))
            world.add(f"m{number}", node, show=draw.random() < 0.5).join(draw.choice(joined))
        elif act < 0.75:
            gone.append(draw.choice(settled))
            world.members[gone[-1]].leave()
        else:
            world.members[draw.choice(settled)].join(draw.choice(joined))
        world.links.run(world.links.time + 4 * draw.random())
    world.links.run()
    for name in gone:
        del world.members[name], world.nodes[name]
    world.check_tree()
    world.publish("".join(draw.choices("01", k=DEPTH)), draw.choice([*world.members]))


def test_a_member_does_not_join_below_itself() -> None:
    world = World()
    chain = [world.join(name, "0") for name in "abc"]
    assert [member.parent for member in chain] == ["root", "a", "b"]
    chain[0].join("c")
    world.links.run()
    world.check_tree()


def test_events_of_a_member_without_a_parent_wait_for_the_next_one() -> None:
    world = World()
    low = world.add("low", "00")
    low.join("root")
    event = TREE.seal_event(b"x", "1" * DEPTH, EXCHANGE, EVERYTHING, number=1)
    low.publish(event)
    world.links.run()
    assert world.got == {("root", 1): 1}


def test_a_member_with_many_children_declines_and_newcomers_look_elsewhere() -> None:
    world = World()
    world.join("low", "0", most_children=2)
    for number in range(4):
        world.join(f"m{number}", f"0{number % 2}{number // 2}")
    parents = [world.members[f"m{number}"].parent for number in range(4)]
    assert parents == ["low", "low", "root", "root"]
    world.publish("01100000")
    with pytest.raises(ParameterError, match="most_children"):
        world.add("bad", "0", most_children=0)


def test_children_of_a_member_that_leaves_miss_no_event() -> None:
    world = World(3, delay=(0.5, 2))
    for number in range(8):
        world.join(f"m{number}", "0" * (number % 3))
    leaving = next(m for name, m in world.members.items() if name != "root" and m.children)
    for number in range(30):
        if number == 10:
            leaving.leave()
        event = TREE.seal_event(b"x", "0" * DEPTH, EXCHANGE, EVERYTHING, number=number)
        world.members["root"].publish(event)
        world.links.run(world.links.time + 0.4)
    world.links.run()
    assert (leaving.parent, leaving.children) == (None, [])
    for name in world.members:
        assert name == leaving.name or all(world.got[name, number] == 1 for number in range(30))


def test_a_walk_through_members_without_end_ends(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccbps.overlay.credentials.member.MOST_ASKED", 50)
    world = World()
    new = world.add("new", "01")
    new.join("liar 0")
    for number in range(60):
        name = f"liar {number}"
        new.receive(name, Answer(None, False, f"liar {number + 1}", ()))
    assert world.links.sent["new", "liar 49"] == 1
    assert ("new", "liar 50") not in world.links.sent


def test_requests_that_others_repeat_are_not_answered() -> None:
    """Whoever was asked has the request. It tells nothing about further members, nor joins."""
    world = World()
    world.join("wide", "01")
    eve = world.join("eve", "1")
    request = world.add("new", "0110")._request
    eve._connect("wide")
    world.heard.clear()
    for message in (Ask(request), Attach(request, None)):
        world.links.send("eve", "wide", message)
    world.links.run()
    answers = [message for sender, to, message in world.heard if (sender, to) == ("wide", "eve")]
    assert isinstance(answers[0], Answer)
    assert (answers[0].proof, answers[0].children) == (None, ())
    assert isinstance(answers[1], Declined)
    assert world.members["wide"].children == []


def test_anybody_can_make_a_request_for_any_credential() -> None:
    """Attack: by trying nodes eve finds a credential. What is sealed stays sealed for her."""
    world = World()
    world.join("victim", "01")
    forged = Credential("01", 7, credential("1").key)
    victim = world.members["victim"]
    opened = {
        node: TREE.open_request(
            TREE.seal_request(Credential(node, 7, forged.key), "eve")[0], victim._credential, "eve"
        )
        is not None
        for node in ("00", "01", "10", "11")
    }
    assert opened == {"00": False, "01": True, "10": False, "11": False}
    event = TREE.seal_event(b"x", "01" + "0" * 6, EXCHANGE, EVERYTHING, number=1)
    with pytest.raises(DecodeError):
        TREE.open_event(event, forged)


def test_a_newcomer_takes_over_finer_children_and_children_rejoin_at_the_grandparent() -> None:
    world = World()
    for name, node in {"a": "010", "b": "011", "c": "1"}.items():
        assert world.join(name, node).parent == "root"
    world.join("wide", "01", start="c")
    assert sorted(world.members["wide"].children) == ["a", "b"]
    assert sorted(world.members["root"].children) == ["c", "wide"]
    world.members["wide"].leave()
    world.links.run()
    del world.members["wide"], world.nodes["wide"]
    assert sorted(world.members["root"].children) == ["a", "b", "c"]
    world.publish("01000000")


def test_each_member_that_is_asked_learns_one_bit() -> None:
    """All it hears before it is chosen is a request; keys of its own open one position or none."""
    for node, wide in (("0110", True), ("01111111", True), ("0", False), ("1", False), ("", False)):
        world = World()
        asked = world.join("asked", "01")
        world.join("other", "1")
        world.heard.clear()
        world.join("new", node, start="asked")
        heard = [(to, message) for sender, to, message in world.heard if sender == "new"]
        (request,) = {m.request for _, m in heard if isinstance(m, Ask)}
        mine = [m for to, m in heard if to == "asked"]
        (answer,) = {
            m.proof is not None
            for sender, to, m in world.heard
            if (sender, to) == ("asked", "new") and isinstance(m, Answer)
        }
        assert answer is wide
        assert {type(m) for m in mine} <= (
            {Ask, Attach} if wide else {Ask, Adopt, Answer, Attached}
        )
        assert not any(isinstance(m, Attach) and m.shown is not None for m in mine)
        # What the member opens is a nonce and a tag, whatever the newcomer's credential.
        opened = TREE.open_request(request, asked._credential, "new")
        assert (opened is not None) is wide
        if opened is not None:
            assert opened[1] == NO_TAG
        positions = _Request.from_bytes(request).capsules
        assert [opens(asked._credential, capsule) for capsule in positions] == [
            wide and at == 2 for at in range(DEPTH + 1)
        ]


def opens(held: Credential, capsule: bytes) -> bool:
    try:
        held.key.open(capsule)
    except CcbpsError:
        return False
    return True


def test_requests_do_not_show_the_length_of_the_credential() -> None:
    """Every position is a message that anybody can read as far as its form goes."""
    for node in ("", "0110", "01101001"):
        request, _ = TREE.seal_request(credential(node), "new")
        capsules = _Request.from_bytes(request).capsules
        assert len(capsules) == DEPTH + 1
        assert len({len(capsule) for capsule in capsules}) == 1
        for capsule in capsules:
            AUTHORITY.public.read(capsule)  # random bytes are refused
    with pytest.raises(DecodeError):
        AUTHORITY.public.read(os.urandom(len(capsules[0])))


def test_a_member_is_no_oracle_for_events() -> None:
    """A capsule of an event, put into a request, is not answered."""
    event = TREE.seal_event(b"secret", "01101001", EXCHANGE, EVERYTHING, number=1)
    capsules = _Event.from_bytes(event).capsules
    forged = _Request(capsules).to_bytes()
    assert opens(credential("01"), capsules[2])
    assert TREE.open_request(forged, credential("01"), "new") is None


def test_a_proof_of_another_member_does_not_count() -> None:
    """Children follow nobody who cannot open their request, nor one that repeats a proof."""
    world = World()
    child = world.join("child", "0110")
    world.join("wide", "01")
    world.add("eve", "1").join("root")
    world.links.run()
    assert child.parent == "wide"
    opened = TREE.open_request(child._request, credential("01"), "child")
    assert opened is not None
    for proof in (b"", os.urandom(32), request_proof(opened[0], "wide")):
        child.receive("eve", Adopt(proof))
        child.receive("eve", Answer(proof, False, None, ()))
    world.links.run()
    assert child.parent == "wide"
    with pytest.raises(DecodeError, match="no message"):
        child.receive("eve", "hello")  # type: ignore[arg-type]
    with pytest.raises(DecodeError):
        child.receive("eve", Ask(b"hello"))


def test_a_newcomer_does_not_connect_to_a_member_that_only_claims_to_fit() -> None:
    """It asks its way past a member whose proof is of nothing."""
    world = World()
    world.join("wide", "01")
    world.join("eve", "1")
    new = world.add("new", "0110")
    new.join("eve")
    new.receive("eve", Answer(os.urandom(32), False, "root", ()))
    new.receive("eve", Attached(()))
    assert new.parent is None
    world.links.run()
    assert new.parent == "wide"
    assert "new" not in world.members["eve"].children


# -- splits ---------------------------------------------------------------------------------------


def test_the_parts_of_a_split_have_parents_of_their_own() -> None:
    """Three parts, three parents, which know 1/2, 1/4 and 1/4 of the credential."""
    assert split_credential("1", 3) == ["10", "110", "111"]
    world, tag = World(), split_tag(os.urandom(16))
    for number in range(3):
        world.join(f"p{number}", "1", show=True)
    for number, part in enumerate(split_credential("1", 3)):
        assert world.join(f"new{number}", part, show=True, tag=tag).joined
    parents = [world.members[f"new{number}"].parent or "" for number in range(3)]
    assert len(set(parents)) == 3
    shares = []
    for name in parents:
        (shown,) = [
            child.shown for key, child in world.members[name]._children.items() if "new" in key
        ]
        assert shown is not None
        shares.append(2.0 ** (1 - len(shown)))
    assert shares == [1 / 2, 1 / 4, 1 / 4]
    world.publish("11100000")
    world.publish("10000000")


def test_a_split_without_enough_parents_does_not_join() -> None:
    world, tag = World(), split_tag(b"pseudonym")
    parts = split_credential("1", 2)
    assert world.join("new0", parts[0], tag=tag).parent == "root"
    assert not world.join("new1", parts[1], tag=tag).joined
    world.join("p", "1")
    world.members["new1"].join("new0")
    world.links.run()
    assert {world.members[f"new{number}"].parent for number in range(2)} == {"root", "p"}


def test_members_of_one_person_share_their_tags() -> None:
    world, tag, tags = World(), split_tag(b"pseudonym"), Counter[bytes]()
    for number in range(2):
        world.join(f"p{number}", "1", tags=tags)
    first, second = (
        world.join(f"new{n}", part, tag=tag) for n, part in enumerate(split_credential("1", 2))
    )
    assert {first.parent, second.parent} == {"p1", "root"} or {first.parent, second.parent} == {
        "p0",
        "root",
    }


def test_only_members_that_show_their_credential_are_spared_events() -> None:
    for show in (True, False):
        world = World()
        world.join("a", "0", show=show)
        world.heard.clear()
        world.publish("11111111")
        sent = [to for _, to, message in world.heard if isinstance(message, Forwarded)]
        assert sent == ([] if show else ["a"])


# -- publishers -----------------------------------------------------------------------------------


def test_events_of_others_are_dropped() -> None:
    world = World()
    member = world.members["root"]
    certificate = TREE.certify(ISSUER, EXCHANGE.identity, ["00", "01"], epoch=7)
    eve, own = (
        SigningKey.generate(),
        CredentialTree("quotes", DEPTH, AUTHORITY.public, EVE.identity),
    )

    class Forger(CredentialTree):
        def _require_certified(self, *_: Any) -> None:
            """Seal whatever is asked for."""

    forger = Forger("quotes", DEPTH, AUTHORITY.public, ISSUER.identity)

    def offer(leaf: str, key: SigningKey, proof: Any, number: int = 1) -> str:
        before = Counter(member.dropped)
        member.publish(forger.seal_event(b"x", leaf, key, proof, number=number))
        return next(iter(member.dropped - before), "delivered")

    assert offer("01" + "0" * 6, EXCHANGE, certificate) == "delivered"
    assert offer("01" + "0" * 6, EXCHANGE, certificate) == "repeated"
    assert offer("01" + "0" * 6, EXCHANGE, certificate, 5000) == "delivered"
    assert offer("01" + "0" * 6, EXCHANGE, certificate, 2) == "repeated"  # too old
    assert offer("10" + "0" * 6, EXCHANGE, certificate, 5001) == "refused"  # not advertised
    assert offer("01" + "0" * 6, eve, certificate, 5001) == "refused"  # signed by another one
    wider = Certificate(certificate.tree, 7, certificate.identity, ("",), certificate.signature)
    assert offer("10" + "0" * 6, EXCHANGE, wider, 5001) == "refused"
    mine = own.certify(EVE, eve.identity, [""], epoch=7)
    assert offer("01" + "0" * 6, eve, mine, 5001) == "refused"  # another issuer
    later = TREE.certify(ISSUER, EXCHANGE.identity, [""], epoch=8)
    assert offer("01" + "0" * 6, EXCHANGE, later, 5001) == "refused"


def test_a_publisher_is_told_that_an_event_would_be_dropped() -> None:
    certificate = TREE.certify(ISSUER, EXCHANGE.identity, ["0"], epoch=7)
    for leaf, key in (("1" * DEPTH, EXCHANGE), ("0" * DEPTH, EVE)):
        with pytest.raises(ParameterError, match="a prefix of the leaf"):
            TREE.seal_event(b"x", leaf, key, certificate, number=1)


def test_the_leaf_must_be_that_of_the_capsules() -> None:
    """A publisher that seals for others than its leaf says is dropped by them."""
    certificate = TREE.certify(ISSUER, EXCHANGE.identity, ["0"], epoch=7)

    class Liar(CredentialTree):
        def _capsules(self, content: bytes, node: str, *rest: Any) -> tuple[bytes, ...]:
            return super()._capsules(content, "1" * DEPTH, *rest)

    liar = Liar("quotes", DEPTH, AUTHORITY.public, ISSUER.identity)
    event = liar.seal_event(b"x", "0" * DEPTH, EXCHANGE, certificate, number=1)
    with pytest.raises(DecodeError, match="do not cover its leaf"):
        TREE.open_event(event, credential("1"))


def test_altered_events_do_not_open() -> None:
    event = TREE.seal_event(b"x", "01101001", EXCHANGE, EVERYTHING, number=1, pad_to=1)
    held = credential("0110")
    assert TREE.open_event(event, held).payload == b"x"
    for data in [*altered(event)][::41]:
        with pytest.raises(DecodeError):
            TREE.open_event(data, held)
    deeper = CredentialTree("deeper", DEPTH + 2, AUTHORITY.public, ISSUER.identity)
    others = [credential("0111"), credential("1"), credential("0110", epoch=8)]
    others += deeper.issue(AUTHORITY, ["0110" * 2, "0110" * 2 + "01"], epoch=7)
    request, _ = TREE.seal_request(held, "new")
    for other in others:
        with pytest.raises(DecodeError):
            TREE.open_event(event, other)
        if other is not others[2]:
            assert TREE.open_request(request, other, "new") is None


def test_arguments_are_checked() -> None:
    with pytest.raises(ParameterError, match="8"):
        credential("0" * 9)
    with pytest.raises(ParameterError, match="key of the tree's issuer"):
        TREE.certify(EXCHANGE, EXCHANGE.identity, [""], epoch=7)
    with pytest.raises(ParameterError, match="authority"):
        TREE.issue(Authority.generate(Ibe(pairing="transparent")), [""], epoch=7)
    public = Authority.generate(CpAbe(Schema(x=UInt(1)), pairing="transparent")).public
    with pytest.raises(ParameterError, match="Ibe"):
        CredentialTree("t", 3, public, ISSUER.identity)
    world = World()
    with pytest.raises(ParameterError, match="root"):
        world.members["root"].join("root")
    with pytest.raises(ParameterError, match="parent"):
        world.members["root"].leave()
    with pytest.raises(ParameterError, match="root"):
        world.add("second", "0", root=True)


# -- strings, the curve, collusion ----------------------------------------------------------------


@given(st.text(max_size=6), st.text(max_size=4))
@settings(max_examples=examples(200))
def test_tries_find_prefixes_and_suffixes(value: str, part: str) -> None:
    most = 32
    for suffixes, holds in ((False, value.startswith(part)), (True, value.endswith(part))):
        leaf = trie_leaf(value, most, suffixes=suffixes)
        assert len(leaf) <= trie_depth(most)
        node = trie_node(part, most, suffixes=suffixes)
        whole = leaf.startswith(trie_leaf(part, most, suffixes=suffixes))
        assert (leaf.startswith(node), whole) == (holds, value == part)


def test_strings_are_leaves_too_and_their_lengths_do_not_show() -> None:
    tree = CredentialTree("names", trie_depth(6), AUTHORITY.public, ISSUER.identity)
    certificate = tree.certify(ISSUER, EXCHANGE.identity, [trie_node("a", 6)], epoch=7)
    events = [
        tree.seal_event(b"x", trie_leaf(name, 6), EXCHANGE, certificate, number=1)
        for name in ("ab", "abc", "abcdefghi", "abcdefxyz")
    ]
    assert len({len(event) for event in events}) == 1
    nodes = [trie_node("abc", 6), trie_leaf("ab", 6), trie_leaf("abcdefghi", 6)]
    opened: list[list[bool]] = []
    for held in tree.issue(AUTHORITY, nodes, epoch=7):
        opened.append([])
        for event in events:
            try:
                opened[-1].append(tree.open_event(event, held).payload == b"x")
            except DecodeError:
                opened[-1].append(False)
    assert opened[0] == [False, True, True, True]
    assert opened[1] == [True, False, False, False]
    assert opened[2] == [False, False, True, True]  # cut: a false positive, to be filtered again
    with pytest.raises(ParameterError, match="6 bytes or less"):
        trie_node("abcdefg", 6)


def test_on_the_curve() -> None:
    pytest.importorskip("py_arkworks_bls12381")
    authority = Authority.generate(Ibe())
    tree = CredentialTree("quotes", 3, authority.public, ISSUER.identity)
    certificate = tree.certify(ISSUER, EXCHANGE.identity, ["0"], epoch=7)
    event = tree.seal_event(b"IBM", "010", EXCHANGE, certificate, number=1)
    wide, other = tree.issue(authority, ["01", "00"], epoch=7)
    assert tree.open_event(event, wide).payload == b"IBM"
    with pytest.raises(DecodeError, match="not for this credential"):
        tree.open_event(event, other)
    request, nonce = tree.seal_request(tree.issue(authority, ["010"], epoch=7)[0], "new")
    assert tree.open_request(request, wide, "new") == (nonce, NO_TAG)
    assert tree.open_request(request, other, "new") is None


def test_credentials_of_single_attributes_are_open_to_collusion_and_one_tree_is_not() -> None:
    """Alice may read price < 4, any volume above 3; bob any price above 3, volume < 4.

    The event (1, 1) is for neither. With a key for each attribute, both together open it.
    """
    schema = Schema(price=UInt(3), volume=UInt(3))
    alice, bob = "price < 4 AND volume >= 4", "price >= 4 AND volume < 4"
    record = {"price": 1, "volume": 1}
    public = AUTHORITY.public

    # Separate credentials: the event key is a function of a key for each attribute.
    parts = {name: os.urandom(32) for name in schema}
    key = sha256(parts["price"] + parts["volume"]).digest()
    spaces = {name: Decomposition(Schema({name: schema[name]})) for name in schema}
    sealed = seal(b"secret", key, b"", pad_to=1)
    capsules = {}
    for name, space in spaces.items():
        (leaf,) = space.leaves([record])
        capsules[name] = [
            public.seal(parts[name], f"{name}|{leaf[:end]}", epoch=7) for end in range(4)
        ]
    held = {
        "price": spaces["price"].cover("price < 4"),
        "volume": spaces["volume"].cover("volume < 4"),
    }
    found = {}
    for name, nodes in held.items():  # alice's for the price, bob's for the volume
        for node in nodes:
            own = AUTHORITY.key(f"{name}|{node}", epoch=7)
            found[name] = own.open(capsules[name][len(node)])
    joined = sha256(found["price"] + found["volume"]).digest()
    assert open_sealed(sealed, joined, b"") == b"secret"

    # One tree: nothing of what the two hold opens it.
    space = Decomposition(schema)
    tree = CredentialTree("both", space.depth, public, ISSUER.identity)
    certificate = tree.certify(ISSUER, EXCHANGE.identity, [""], epoch=7)
    (leaf,) = space.leaves([record])
    event = tree.seal_event(b"secret", leaf, EXCHANGE, certificate, number=1)
    nodes = [*space.cover(alice), *space.cover(bob)]
    assert not any(leaf.startswith(node) for node in nodes)
    for node in nodes:
        (own_credential,) = tree.issue(AUTHORITY, [node], epoch=7)
        assert not any(
            opens(own_credential, capsule) for capsule in _Event.from_bytes(event).capsules
        )

    # A policy of CP-ABE over the prefixes of each attribute binds them, too.
    policies = Authority.generate(CpAbe(schema, pairing="transparent"))
    bound = policies.public.seal(b"secret", "price = 1 AND volume = 1", epoch=7)
    users = [{"price": 1, "volume": 6}, {"price": 6, "volume": 1}]
    for user in users:
        with pytest.raises(KeyMismatchError):
            policies.key(user, epoch=7).open(bound)
