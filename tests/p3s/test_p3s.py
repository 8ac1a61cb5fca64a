"""P3S: deliveries are the plaintext's, over the network too, and what each party refuses."""

from __future__ import annotations

import pickle
import re
import subprocess
import sys
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import Any

import numpy as np
import pytest
from hypothesis import given
from hypothesis import strategies as st
from msgspec import structs

from ccbps import Schema, UInt
from ccbps.algebra.pairing.curve import BothCurve
from ccbps.delivery import PolicySealer
from ccbps.errors import (
    CcbpsError,
    DecodeError,
    EventError,
    KeyMismatchError,
    NetworkError,
    ParameterError,
    PeerError,
    PredicateError,
    RefusedError,
    ReplayError,
    SerializationError,
    UnknownItemError,
)
from ccbps.functional import Authority, CpAbe, HiddenVectors
from ccbps.network import Credentials, Identity
from ccbps.p3s import (
    DisseminationServer,
    Line,
    Publisher,
    Repository,
    Subscriber,
    TokenAuthority,
    local,
    serve,
)
from ccbps.p3s.messages import (
    ANNOUNCED_BYTES,
    BESIDE,
    GUID_BYTES,
    ITEM_BYTES,
    LISTEN_BYTES,
    PREDICATE_BYTES,
    Reply,
    Request,
    read_reply,
    reply_bytes,
)
from ccbps.p3s.servers import TOKEN_POINTS
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

ALICE = {"alice": {"desk": "shares", "level": 1}}
RECORD = {"issue": "IBM", "price": 5}
GUID = bytes(range(GUID_BYTES))


def published(world: World, *payloads: bytes, **options: Any) -> list[bytes]:
    """Publish events that Alice may read; return their GUIDs."""
    records = [RECORD] * len(payloads)
    return world.publisher().publish(records, payloads, "desk = 'shares'", **options)


def item_of(world: World, payload: bytes = b"a", policy: str = "TRUE") -> bytes:
    return PolicySealer(world.access.public).seal([payload], policy)[0]


def ticket(guid: bytes, item: bytes) -> bytes:
    return guid + sha256(item).digest()


def announce(world: World, content: bytes, client: str = "feed") -> None:
    world.ways(client)[1](Request("announce", content))


def store(world: World, guid: bytes, item: bytes, seconds: int = 60, client: str = "feed") -> None:
    world.ways(client)[2](Request("store", item, guid, seconds))


@pytest.mark.parametrize(
    ("pairing", "subscribers", "events"),
    [
        ("transparent", 12, 40),
        ("bls12-381", 3, 5),
        pytest.param("transparent", 50, 500, marks=pytest.mark.slow),
    ],
)
def test_deliveries_are_those_of_the_plaintext(pairing: str, subscribers: int, events: int) -> None:
    rng = np.random.default_rng(events)
    world = World(drawn_members(rng, subscribers), pairing)
    asked = {name: [drawn_predicate(rng) for _ in range(2)] for name in world.members}
    readers = {name: world.subscriber(name, *asked[name]) for name in asked}
    records, publisher = drawn_records(rng, events), world.publisher()
    payloads = [f"event {row}".encode() for row in range(events)]
    for start in range(0, events, 7):
        rows = slice(start, start + 7)
        publisher.publish(records[rows], payloads[rows], POLICIES[start % 3])
    opened = matched = 0
    for name, reader in readers.items():
        deliveries = [*reader.receive()]
        rows = set().union(*(matches(predicate, records) for predicate in asked[name]))
        assert [delivery.number for delivery in deliveries] == sorted(rows)
        for delivery in deliveries:
            policy = POLICIES[(delivery.number - delivery.number % 7) % 3]
            if satisfies(policy, world.members[name]):
                assert delivery.payload == payloads[delivery.number]
                assert delivery.cause == ""
                opened += 1
            else:
                assert delivery.payload is None
                assert delivery.cause == "the key does not satisfy the policy of the message"
        matched += len(rows)
        assert (reader.position, reader.missed) == (events, 0)
        assert [*reader.receive()] == []
    assert opened > 0
    if pairing == "transparent":
        assert opened < matched < subscribers * events


@pytest.mark.slow
@pytest.mark.timeout(900)
def test_fifty_subscribers_and_500_events_on_the_curve_in_processes(tmp_path: Path) -> None:
    example = Path(__file__).parents[2] / "examples" / "p3s.py"
    run = subprocess.run(
        [sys.executable, str(example), "--events", "500", "--subscribers", "50"],
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=True,
    )
    assert run.stderr == ""
    assert "differences                          0" in run.stdout
    opened = re.search(r"payloads opened +([\d,]+)", run.stdout)
    assert opened is not None
    assert int(opened[1].replace(",", "")) > 1000
    assert "given to: 50 subscribers" in run.stdout
    learned = re.search(r"in common: (\d+), .*\n +(\d+) in plaintext, (\d+) of", run.stdout)
    assert learned is not None
    assert learned[1] == learned[2] == learned[3] != "0"


# -- over the network -----------------------------------------------------------------------------


class Net:
    """The servers of a world at addresses, with identities of all parties."""

    def __init__(self, world: World, stack: ExitStack) -> None:
        names = ("authority", "dissemination", "repository", "feed", "alice", "mallory")
        self.own = {name: Identity.derive(bytes(32), name.encode()) for name in names}
        self.world = world
        self.prints = {name: one.certificate().fingerprint for name, one in self.own.items()}
        feed, self.stack = [self.prints["feed"]], stack
        members = {self.prints["alice"]: world.members["alice"]}
        self.roles: dict[str, Any] = {
            "authority": TokenAuthority(world.metadata, world.access, members),
            "dissemination": DisseminationServer(world.metadata.public, feed, wait_seconds=0.05),
            "repository": Repository(world.access.public, feed),
        }
        self.servers = {name: self.serve(name) for name in self.roles}

    def serve(self, name: str, **options: Any) -> Any:
        pinned = tuple(self.own[client].certificate() for client in ("feed", "alice"))
        credentials = Credentials(self.own[name], pinned)
        return self.stack.enter_context(serve(self.roles[name], credentials, **options))

    def line(self, client: str, server: str) -> Line:
        address, peer = self.servers[server].address, self.own[server].certificate()
        return self.stack.enter_context(Line(address, self.own[client], peer, seconds=60))

    def lines(self, client: str) -> list[Line]:
        return [self.line(client, server) for server in self.roles]


@contextmanager
def networked() -> Iterator[Net]:
    with ExitStack() as stack:
        yield Net(World(ALICE), stack)


def test_the_same_over_the_network_and_after_a_loss() -> None:
    with networked() as net:
        alice = Subscriber.enrol(["price = 5"], *net.lines("alice"))
        feed = Publisher.enrol(*net.lines("feed"))
        feed.publish([RECORD, {**RECORD, "price": 4}], [b"a", b"b"], "level = 1")
        assert [(got.number, got.payload) for got in alice.receive()] == [(0, b"a")]
        # The server comes back at the same place, and lines connect anew.
        port = int(net.servers["repository"].address.rpartition(":")[2])
        net.servers["repository"].close()
        with pytest.raises(NetworkError):
            feed.publish([RECORD], [b"lost"], "level = 1")
        net.serve("repository", port=port)
        feed.publish([RECORD], [b"c"], "level = 1")
        assert [(got.number, got.payload) for got in alice.receive()] == [(2, b"c")]
        assert [*alice.receive()] == []


def test_over_the_network_clients_do_what_they_are_admitted_to() -> None:
    with networked() as net:
        with pytest.raises(KeyMismatchError):
            net.line("mallory", "repository")(Request("fetch", guid=GUID))
        feed = Publisher.enrol(net.line("alice", "authority"), *net.lines("alice")[1:])
        with pytest.raises(KeyMismatchError, match="no publisher's"):
            feed.publish([RECORD], [b"a"], "TRUE")
        with pytest.raises(KeyMismatchError, match="no subscriber's"):
            Subscriber.enrol(["TRUE"], *net.lines("feed"))
        with pytest.raises(PredicateError, match="prize"):
            Subscriber.enrol(["prize = 1"], *net.lines("alice"))


def test_bytes_that_are_no_request_get_one_error_and_the_connection_goes_on() -> None:
    with networked() as net:
        line = net.line("alice", "repository")
        for content in (b"", b"junk", bytes(1000), Reply().to_bytes()):
            with pytest.raises(UnknownItemError):
                line(Request("fetch", guid=GUID))
            channel: Any = line._channel
            channel.send(content)
            reply = Reply.from_bytes(bytes(channel.receive(1000)))
            assert reply.error == "DecodeError"


def test_frames_are_as_long_as_the_role_needs() -> None:
    """Any client could make each server reserve 64 MB for a frame of which nothing came."""
    with networked() as net:
        lengths = {name: role.request_bytes for name, role in net.roles.items()}
        assert lengths["authority"] < lengths["repository"] >> 9
        assert lengths["dissemination"] < 8 << 10
        assert lengths["repository"] == ITEM_BYTES + BESIDE
        for name, length in lengths.items():
            line = net.line("alice", name)
            with pytest.raises(CcbpsError):
                line(Request("fetch", guid=GUID))
            channel: Any = line._channel
            channel.send(bytes(length))
            assert Reply.from_bytes(bytes(channel.receive(1000))).error == "DecodeError"
            with suppress(NetworkError):  # the connection may end before all of it is sent
                channel.send(bytes(length + 1))
            with pytest.raises(NetworkError):
                channel.receive(1000)


def test_a_line_sends_and_takes_what_a_request_may_have() -> None:
    with networked() as net:
        feed, alice = net.line("feed", "repository"), net.line("alice", "repository")
        alice._item_bytes = 2_000
        for request in (
            Request("store", bytes(ITEM_BYTES + 1), GUID, 9),
            Request("token", bytes(PREDICATE_BYTES + 1)),
            Request("announce", bytes(ANNOUNCED_BYTES + 1)),
            Request("listen", bytes(17)),
            Request("public", b"x"),
        ):
            with pytest.raises(ParameterError, match=f"a request to {request.verb} has at most"):
                feed(request)
        assert feed._channel is None
        world = net.world
        items = [PolicySealer(world.access.public).seal([bytes(n)], "TRUE")[0] for n in (1, 9_000)]
        for number, item in enumerate(items):
            feed(Request("store", item, bytes([number] * 16), 9))
        assert alice(Request("fetch", guid=bytes(16))).contents == (items[0],)
        with pytest.raises(PeerError, match="at most 6096 were expected"):
            alice(Request("fetch", guid=bytes([1] * 16)))


def test_the_longest_messages_fit() -> None:
    """Tokens of as many points as an authority makes, and replies full of announcements."""
    schema = Schema(x=UInt(32))
    metadata = Authority.generate(HiddenVectors(schema, pairing="transparent"))
    access = Authority.generate(CpAbe(ATTRIBUTES, pairing="transparent"))
    authority = TokenAuthority(metadata, access, ALICE, token_points=TOKEN_POINTS)

    def asked(count: int) -> bytes:
        values = ", ".join(str(65_537 * number) for number in range(count))
        content = authority.answer(
            "alice", Request("token", f"x IN ({values})".encode()).to_bytes()
        )
        read_reply(content)
        return content

    count = TOKEN_POINTS // (2 * 33)
    points_bytes = TOKEN_POINTS * (BothCurve.g2_bytes - metadata.scheme.group.g2_bytes)
    assert len(asked(count)) + 2 * points_bytes < reply_bytes("token", 0)
    with pytest.raises(PredicateError, match=r"has 16,434 points, and at most 16,384 are made"):
        asked(count + 1)
    ds = DisseminationServer(metadata.public, ["feed"], wait_seconds=0)
    announcement = metadata.public.seal(bytes(48), {"x": 3}, pad_to=1)
    ds._kept.extend([announcement] * (2 * LISTEN_BYTES // len(announcement)))
    ds._end = len(ds._kept)
    reply = ds.answer("alice", Request("listen").to_bytes())
    assert LISTEN_BYTES // 2 < len(reply) <= reply_bytes("listen", 0)


# -- retention, replays ---------------------------------------------------------------------------


def test_items_end_and_what_never_was_looks_the_same() -> None:
    world = World(ALICE)
    alice, fetch = world.subscriber("alice", "TRUE"), world.ways("alice")[2]
    (early, late) = published(world, b"early", seconds=60) + published(world, b"late", seconds=90)
    assert len(world.repository) == 2
    world.now = 59.9
    assert len(fetch(Request("fetch", guid=early)).contents) == 1
    world.now = 60.0
    assert len(world.repository) == 1
    texts = set()
    for guid in (early, GUID):
        with pytest.raises(UnknownItemError) as error:
            fetch(Request("fetch", guid=guid))
        texts.add(str(error.value))
    assert texts == {
        "the repository has no item of this GUID: it was never stored, or its time is over"
    }
    assert [(got.payload, got.cause) for got in alice.receive()] == [(None, *texts), (b"late", "")]
    world.now = 90.0
    with pytest.raises(UnknownItemError):
        fetch(Request("fetch", guid=late))


def test_a_guid_is_used_once() -> None:
    world = World(ALICE, limits={"most_seconds": 100})
    item = item_of(world)
    store(world, GUID, item)
    # Neither while it is kept, nor for as long after its end as an item may be kept.
    for world.now in (0.0, 59.0, 61.0, 159.0):
        for again in (item, item_of(world)):
            with pytest.raises(ReplayError, match="GUID was used before"):
                store(world, GUID, again)
    world.now = 160.0
    store(world, GUID, item)


def test_an_announcement_is_made_once() -> None:
    world = World(ALICE, keep=2)
    alice, item = world.subscriber("alice", "TRUE"), item_of(world)
    store(world, GUID, item)
    seal = world.metadata.public.seal
    first, again = (seal(ticket(GUID, item), RECORD) for _ in range(2))
    announce(world, first)
    with pytest.raises(ReplayError, match="made before"):
        announce(world, first)
    # What a server brings again is not delivered again, however it is encrypted.
    announce(world, again)
    assert [got.payload for got in alice.receive()] == [b"a"]
    assert alice.position == 2
    announce(world, seal(ticket(GUID, item), RECORD))
    announce(world, seal(ticket(GUID, item), RECORD))
    announce(world, first)  # no longer kept, so no longer known
    assert [*alice.receive()] == []
    assert (alice.position, alice.missed) == (5, 1)


def test_slow_subscribers_know_what_they_missed_and_new_ones_start_anywhere() -> None:
    world = World(ALICE, keep=3)
    slow, late = (world.subscriber("alice", "TRUE", start=start) for start in (0, 4))
    published(world, *(bytes([n]) for n in range(5)))
    assert [(got.number, got.payload) for got in slow.receive()] == [
        (2, b"\2"),
        (3, b"\3"),
        (4, b"\4"),
    ]
    assert (slow.position, slow.missed) == (5, 2)
    assert [got.number for got in late.receive()] == [4]
    assert late.missed == 0


def test_payloads_of_an_epoch_need_its_keys() -> None:
    world = World(ALICE)
    _, *servers = world.ways("alice")
    readers = []
    for epoch in (7, 8):
        authority = TokenAuthority(world.metadata, world.access, ALICE, epoch=epoch)
        readers.append(Subscriber.enrol(["TRUE"], local(authority, "alice"), *servers))
    published(world, b"a", epoch=7)
    published(world, b"b", epoch=8)
    received = [[got.payload for got in reader.receive()] for reader in readers]
    assert received == [[b"a", None], [None, b"b"]]


def test_a_server_that_starts_anew_is_noticed() -> None:
    world = World(ALICE)
    alice = world.subscriber("alice", "TRUE", start=3)
    with pytest.raises(DecodeError, match="is at announcement 0, and was at 3"):
        [*alice.receive()]


def test_receive_goes_on_where_it_failed() -> None:
    world, fails = World(ALICE), [True]
    authority, dissemination, repository = world.ways("alice")

    def ask(request: Request) -> Reply:
        if request.guid == guids[1] and fails.pop():
            raise NetworkError("gone")
        return repository(request)

    alice = Subscriber.enrol(["TRUE"], authority, dissemination, ask)
    guids = published(world, b"a", b"b", b"c")
    received = alice.receive()
    assert next(received).payload == b"a"
    with pytest.raises(NetworkError):
        next(received)
    fails.append(False)
    assert next(alice.receive()).payload == b"b"  # and no more is taken
    assert [got.payload for got in alice.receive()] == [b"c"]


# -- what is refused ------------------------------------------------------------------------------


def test_an_item_in_another_ones_place_is_noticed() -> None:
    world = World(ALICE)
    alice = world.subscriber("alice", "TRUE")
    (guid,) = published(world, b"a")
    world.repository._items[guid] = item_of(world, b"forged")
    (delivery,) = alice.receive()
    assert delivery.payload is None
    assert delivery.cause == "the repository gave another item than was announced"


def test_a_false_announcement_of_a_guid_does_not_keep_the_true_one_away() -> None:
    """The dissemination server and a subscriber, who knows the GUID, can make one together."""
    world = World(ALICE)
    alice = world.subscriber("alice", "price = 5")
    (guid,) = published(world, b"a")
    (true,) = world.ways("alice")[1](Request("listen")).contents
    false = world.metadata.public.seal(ticket(guid, b"another item"), RECORD, pad_to=1)
    alice._dissemination = lambda request: Reply((false, true, true), request.number)
    assert [delivery.payload for delivery in alice.receive()] == [None, b"a"]


def test_an_announcement_without_a_ticket_is_told() -> None:
    world = World(ALICE)
    announce(world, world.metadata.public.seal(b"no ticket", RECORD))
    (delivery,) = world.subscriber("alice", "TRUE").receive()
    assert delivery.cause == "the announcement does not hold a ticket"


@given(content=st.binary(max_size=60))
def test_any_bytes_are_one_error(content: bytes) -> None:
    for role in (SHARED.authority, SHARED.dissemination, SHARED.repository):
        for sent in (content, Request.front + content):
            reply = Reply.from_bytes(role.answer("feed", sent))
            assert (reply.error, reply.text) == (
                "DecodeError",
                "not a request of P3S of this version, or cut off",
            )


@given(data=st.data())
def test_altered_requests_are_refused_or_other_requests(data: st.DataObject) -> None:
    item = item_of(SHARED)
    requests = [
        Request("store", item, GUID, 5),
        Request("announce", SHARED.metadata.public.seal(bytes(48), RECORD)),
        Request("fetch", guid=GUID),
        Request("token", b"price = 1"),
    ]
    content = bytearray(data.draw(st.sampled_from(requests)).to_bytes())
    at, bit = data.draw(st.integers(0, len(content) - 1)), data.draw(st.integers(0, 7))
    content[at] ^= 1 << bit
    for role in (SHARED.authority, SHARED.dissemination, SHARED.repository):
        for cut in (bytes(content), bytes(content[:at])):
            reply = Reply.from_bytes(role.answer("mallory", cut))
            assert reply.error in ("", "DecodeError", "KeyMismatchError", "UnknownItemError")


def test_contents_are_checked_where_they_arrive() -> None:
    world, other = World(ALICE), World(ALICE)
    announcement, item = world.metadata.public.seal(bytes(48), RECORD), item_of(world)
    for wrong in (b"", b"junk", announcement[:-1], item):
        with pytest.raises(DecodeError):
            announce(world, wrong)
    for wrong in (b"", b"junk", item[:-1], announcement):
        with pytest.raises(DecodeError):
            store(world, GUID, wrong)
    with pytest.raises(KeyMismatchError, match="of authority"):
        announce(world, other.metadata.public.seal(bytes(48), RECORD))
    with pytest.raises(KeyMismatchError, match="of authority"):
        store(world, GUID, item_of(other))
    for client in ("alice", "mallory"):
        with pytest.raises(KeyMismatchError, match="no publisher's"):
            announce(world, announcement, client)
        with pytest.raises(KeyMismatchError, match="no publisher's"):
            store(world, GUID, item, client=client)
    with pytest.raises(DecodeError, match="the repository has no answer to 'announce'"):
        world.ways("feed")[2](Request("announce", announcement))
    with pytest.raises(DecodeError, match="UTF-8"):
        world.ways("alice")[0](Request("token", b"\xff"))
    with pytest.raises(ParameterError, match="a predicate has at most"):
        world.ways("alice")[0](Request("token", b"TRUE" + b" " * (1 << 16)))
    assert len(world.repository) == 0


def test_limits_of_the_repository() -> None:
    world = World(ALICE)
    size = len(item_of(world))
    world = World(ALICE, limits={"most_bytes": 2 * size, "item_bytes": size, "most_seconds": 60})
    with pytest.raises(ParameterError, match="seconds"):
        store(world, GUID, item_of(world), 61)
    with pytest.raises(ParameterError, match="seconds"):
        store(world, GUID, item_of(world), 0)
    with pytest.raises(ParameterError, match="an item has at most"):
        store(world, GUID, item_of(world, bytes(300)))
    store(world, bytes(16), item_of(world))
    store(world, bytes([1] * 16), item_of(world))
    with pytest.raises(RefusedError, match="full") as error:
        store(world, GUID, item_of(world))
    assert error.value.reason == "queue"
    world.now = 60.0
    store(world, GUID, item_of(world))


def test_requests_have_a_guid_where_they_need_one() -> None:
    for verb, guid in (("store", None), ("fetch", None), ("listen", GUID), ("token", GUID)):
        with pytest.raises(ParameterError, match="guid"):
            Request(verb, guid=guid)  # type: ignore[arg-type]
    with pytest.raises(ParameterError, match="guid"):
        Request("fetch", guid=b"short")
    request = Request("fetch", guid=GUID)
    assert Request.from_bytes(request.to_bytes()) == request
    assert structs.replace(request, verb="store") != request


def test_replies_are_checked() -> None:
    world = World(ALICE)
    authority, dissemination, repository = world.ways("alice")

    def giving(*contents: bytes) -> Any:
        return lambda request: Reply(contents)

    for contents in ((), (b"junk",), (b"\xff",), (b"a", b"b")):
        with pytest.raises(DecodeError):
            Subscriber.enrol(["TRUE"], giving(*contents), dissemination, repository)
        with pytest.raises(DecodeError):
            Publisher.enrol(giving(*contents), dissemination, repository)
    alice = Subscriber.enrol(["TRUE"], authority, giving(b"junk", b""), repository)
    assert [*alice.receive()] == []  # what no token opens does not match
    assert alice.position == 2


def test_keys_of_other_schemes_and_authorities_are_refused() -> None:
    world, other = World(ALICE), World(ALICE)
    _, dissemination, repository = world.ways("alice")
    token, access = world.metadata.key("TRUE"), world.access.key(ALICE["alice"])
    for tokens, key in (([access], access), ([token], token), ([None], access)):
        with pytest.raises(ParameterError):
            Subscriber(tokens, key, dissemination, repository)  # type: ignore[arg-type]
    for tokens in ([], [token, other.metadata.key("TRUE")]):
        with pytest.raises(ParameterError, match="tokens must be keys of one authority"):
            Subscriber(tokens, access, dissemination, repository)
    stranger = Subscriber([other.metadata.key("TRUE")], access, dissemination, repository)
    with pytest.raises(KeyMismatchError, match="announcements are of authority"):
        [*stranger.receive()]
    with pytest.raises(ParameterError):
        Publisher(world.access.public, world.metadata.public, dissemination, repository)
    with pytest.raises(ParameterError):
        TokenAuthority(world.access, world.metadata, {})


def test_parties_are_made_of_lists_and_keys_of_their_scheme() -> None:
    world = World(ALICE)
    metadata, access = world.metadata.public, world.access.public
    ways = world.ways("alice")
    for make in (
        lambda: DisseminationServer(metadata, "feed"),
        lambda: DisseminationServer(access, ["feed"]),
        lambda: Repository(access, "feed"),
        lambda: Repository(metadata, ["feed"]),
        lambda: Subscriber.enrol("price = 5", *ways),
        lambda: Subscriber.enrol([b"price = 5"], *ways),
        lambda: Subscriber.enrol(["price = 5 OR issue = '\ud83d'"], *ways),
    ):
        with pytest.raises(ParameterError, match=r"must be"):
            make()


def test_nothing_is_published_if_an_argument_does_not_fit() -> None:
    world = World(ALICE)
    feed = world.publisher()
    with pytest.raises(ParameterError, match="got 1 and 2"):
        feed.publish([RECORD], [b"a", b"b"], "TRUE")
    with pytest.raises(PredicateError):
        feed.publish([RECORD], [b"a"], "desk = 'none'")
    with pytest.raises(EventError):
        feed.publish([RECORD, {**RECORD, "price": 99}], [b"a", b"b"], "TRUE")
    with pytest.raises(ParameterError, match="seconds"):
        feed.publish([RECORD], [b"a"], "TRUE", seconds=0)
    assert feed.publish([], [], "TRUE") == []
    assert [request.verb for _, request in world.seen["repository"]] == []


def test_parties_do_not_print_or_pickle_secrets() -> None:
    world = World(ALICE)
    alice = world.subscriber("alice", "price = 5")
    for party in (alice, world.publisher(), world.authority, world.repository):
        with pytest.raises(SerializationError):
            pickle.dumps(party)
        assert "price" not in repr(party)
    for message in (Request("token", b"price = 5"), Reply((b"price = 5",))):
        assert "price" not in repr(message)
        with pytest.raises(SerializationError):
            pickle.dumps(message)
    published(world, b"secret")
    (delivery,) = alice.receive()
    assert replace(delivery, payload=None) != delivery


SHARED = World(ALICE)
