"""Routers over real connections: random filters and events while brokers end and start again."""

from __future__ import annotations

import logging
import multiprocessing
import os
import random
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import ExitStack, contextmanager, suppress
from typing import Any

import pytest

from ccbps import Schema, UInt
from ccbps.errors import DecodeError, NetworkError, ParameterError, RefusedError
from ccbps.network import Channel, Credentials, Identity, Server, connect
from ccbps.overlay import PlainRelation, Publication, ServedRouter
from ccbps.overlay.routing.reliable import Acknowledge, Opening, Settled
from ccbps.overlay.routing.router import Add, Withdraw
from ccbps.overlay.routing.served import LIMITS, read_message
from tests.support.three_brokers import free_ports

RELATION = PlainRelation(Schema(x=UInt(6)))
ALL = RELATION.filter_bytes("x >= 0")
LINKS = [("left", "middle"), ("middle", "right")]
NAMES = ("left", "middle", "right")


def event(x: int) -> bytes:
    return RELATION.event_bytes({"x": x})


def eventually(condition: Callable[[], bool], seconds: float = 60) -> None:
    until = time.monotonic() + seconds
    while not condition():
        assert time.monotonic() < until
        time.sleep(0.005)


class Net:
    """Three brokers in a line; publishers and subscribers are at both ends."""

    def __init__(self) -> None:
        first = free_ports(3)
        self.ports = {name: first + n for n, name in enumerate(NAMES)}
        self.identities = {name: Identity.generate() for name in NAMES}
        self.got: Counter[tuple[str, str, bytes]] = Counter()
        self.filters: dict[tuple[str, str, int], bytes] = {}
        self.routers: dict[str, ServedRouter] = {}

    def arguments(self, name: str) -> tuple[Any, ...]:
        """What a broker needs to start."""
        near = [a if b == name else b for a, b in LINKS if name in (a, b)]
        places = {
            other: (f"127.0.0.1:{self.ports[other]}", self.identities[other].certificate())
            for other in near
        }
        return self.identities[name].export_secret(), places, self.ports[name]

    def start(self, name: str, **options: Any) -> None:
        secret, places, port = self.arguments(name)
        own = [(key[1], key[2], content) for key, content in self.filters.items() if key[0] == name]
        self.routers[name] = ServedRouter(
            RELATION,
            Identity(secret),
            places,
            self.take,
            filters=tuple(("subscription", *one) for one in own),
            advertise=False,
            port=port,
            **options,
        )

    def take(self, publication: Publication, clients: list[str]) -> None:
        for client in clients:
            self.got[client, publication.publisher, publication.payload] += 1

    def add(self, name: str, client: str, number: int, content: bytes) -> None:
        self.filters[name, client, number] = content
        self.routers[name].add("subscription", client, number, content)

    def withdraw(self, name: str, client: str, number: int) -> None:
        del self.filters[name, client, number]
        self.routers[name].withdraw("subscription", client, number)

    def settle(self) -> None:
        """Wait until each broker has what its neighbours have sent."""

        def agree() -> bool:
            with ExitStack() as stack:
                for router in self.routers.values():  # none is in the middle of a message
                    stack.enter_context(router.lock)
                for a, b in [*LINKS, *[pair[::-1] for pair in LINKS]]:
                    if a in self.routers and b in self.routers:
                        sent = self.routers[a].router.router.sent["subscription"].get(b, {})
                        held = self.routers[b].router.router.tables["subscription"].get(a, {})
                        if {*sent} != {*held}:
                            return False
                return all(router.router.is_ready for router in self.routers.values())

        eventually(agree)
        time.sleep(0.02)  # what one broker sent to another may make it send more
        eventually(agree)


@contextmanager
def net(*names: str) -> Iterator[Net]:
    world = Net()
    try:
        for name in names:
            world.start(name)
        yield world
    finally:
        for router in world.routers.values():
            router.close()


def test_a_broker_in_the_middle_ends_and_starts_again_amid_events() -> None:
    draw = random.Random(4)
    with net(*NAMES) as world:
        sent, wanted = 0, Counter[tuple[str, str, bytes]]()
        for turn in range(4):
            for number in range(4):
                end, (low, high) = draw.choice(["left", "right"]), sorted(draw.sample(range(64), 2))
                content = RELATION.filter_bytes(f"x BETWEEN {low} AND {high}")
                world.add(end, f"{end} {draw.randrange(3)}", 10 * turn + number, content)
                if number == 3:
                    world.withdraw(*draw.choice([*world.filters]))
            world.settle()
            for number in range(60):
                if number == 20 and turn:
                    world.routers["middle"].close()
                if number == 40 and turn:
                    world.start("middle")
                end, x = draw.choice(["left", "right"]), draw.randrange(64)
                payload, sent = b"%d" % sent, sent + 1
                world.routers[end].publish(f"feed {end}", event(x), payload)
                for (_, client, _), content in world.filters.items():
                    if RELATION.matches(
                        RELATION.read_event(event(x)), [RELATION.read_filter(content)]
                    )[0]:
                        wanted[client, f"feed {end}", payload] = 1
            assert all(world.routers[end].wait_arrived(60) for end in ("left", "right"))
        assert world.got == wanted
        assert sum(wanted.values()) > 200
        # Covered subscriptions stay where they are.
        assert world.routers["left"].router.router.entries < len(world.filters)


def test_a_client_comes_back_at_another_broker() -> None:
    with net(*NAMES) as world:
        world.add("left", "alice", 1, ALL)
        world.settle()
        world.routers["right"].publish("feed", event(1), b"1")
        assert world.routers["right"].wait_arrived(60)
        world.add("right", "alice", 1, ALL)  # make before break
        world.withdraw("left", "alice", 1)
        world.settle()
        world.routers["right"].publish("feed", event(2), b"2")
        assert world.routers["right"].wait_arrived(60)
        assert world.got == {("alice", "feed", b"1"): 1, ("alice", "feed", b"2"): 1}


def raw(world: Net, name: str, to: str) -> Any:
    """A connection in a broker's name."""
    place = f"127.0.0.1:{world.ports[to]}"
    return connect(place, world.identities[name], world.identities[to].certificate())


@pytest.mark.parametrize(
    "frame",
    [
        b"",
        b"nonsense",
        Opening(bytes(8)).to_bytes() + b"\0",
        Publication("feed", 1, event(1)).to_bytes(),
        Publication("feed", 1, event(1), bytes(1 << 22)).to_bytes(),
    ],
    ids=["empty", "nonsense", "a byte more", "before the opening", "too long"],
)
def test_malformed_bytes_end_the_link(frame: bytes, caplog: pytest.LogCaptureFixture) -> None:
    caplog.set_level(logging.WARNING)
    with net("middle") as world, raw(world, "left", "middle") as channel:
        with suppress(NetworkError):  # it may end before the last byte has left
            channel.send(frame)
        eventually(lambda: not channel.is_quiet())
        eventually(lambda: "the broker refused" in caplog.text)
        # It starts as usual when its neighbours behave.
        world.start("left")
        world.start("right")
        world.add("left", "alice", 1, ALL)
        world.settle()
        world.routers["right"].publish("feed", event(1), b"1")
        assert world.routers["right"].wait_arrived(60)
        assert sum(world.got.values()) == 1


def test_a_malformed_filter_ends_the_link_and_changes_nothing() -> None:
    with net("middle") as world, raw(world, "left", "middle") as channel:
        channel.send(Opening(bytes(8)).to_bytes())
        channel.send(Add("subscription", ("alice", 1), b"no filter").to_bytes())
        eventually(lambda: not channel.is_quiet())
        assert not world.routers["middle"].router.router.entries


def test_messages_have_a_limit_each() -> None:
    for kind, message in {
        Add: Add("subscription", ("a", 1), bytes(LIMITS[Add])),
        Withdraw: Withdraw("subscription", ("a" * 255, 1)),
        Opening: Opening(bytes(8)),
        Settled: Settled("subscription"),
        Acknowledge: Acknowledge(bytes(8), 1 << 62),
        Publication: Publication("a", 1, b"", bytes(LIMITS[Publication])),
    }.items():
        content = message.to_bytes()
        if len(content) <= LIMITS[kind]:
            assert read_message(content) == message
            content += b"\0"
        with pytest.raises(DecodeError):
            read_message(content)
    with net("middle") as world:
        router = world.routers["middle"]
        with pytest.raises(RefusedError, match="at most"):
            router.add("subscription", "alice", 1, bytes(LIMITS[Add]))
        with pytest.raises(RefusedError, match="at most"):
            router.publish("feed", event(1), bytes(LIMITS[Publication]))
        with pytest.raises(RefusedError, match="not all neighbours"):
            router.publish("feed", event(1))
        assert not router.wait_ready(0)
        twice = [("127.0.0.1:9", world.identities["left"].certificate())] * 2
        with pytest.raises(ParameterError, match="different certificates"):
            ServedRouter(RELATION, Identity.generate(), dict(zip("ab", twice, strict=True)))


def test_a_neighbour_that_stays_away_is_given_up() -> None:
    with ExitStack() as stack:
        world = stack.enter_context(net("right"))
        world.start("left", patience=0.3)
        world.start("middle", patience=0.3)
        world.add("right", "alice", 1, ALL)
        world.settle()
        world.routers.pop("right").close()
        eventually(lambda: not world.routers["left"].router.router.entries)
        world.routers["left"].publish("feed", event(1))
        assert world.routers["left"].wait_arrived(60)
        world.start("right")  # with the subscription
        eventually(lambda: bool(world.routers["left"].router.router.entries))
        world.routers["left"].publish("feed", event(2), b"2")
        assert world.routers["left"].wait_arrived(60)
        eventually(lambda: world.got == {("alice", "feed", b"2"): 1})


def test_a_neighbour_of_which_nothing_comes_is_given_up() -> None:
    """One direction is there; it begins anew, with all filters, when the other one is back."""
    openings: list[Opening] = []
    with net() as world:
        world.start("middle", patience=0.3)
        place = world.ports["left"]
        pins = (world.identities["middle"].certificate(),)

        def note(channel: Channel) -> None:
            with suppress(NetworkError):
                while True:
                    message = read_message(bytes(channel.receive(1 << 20, 60)))
                    openings.extend([message] if isinstance(message, Opening) else [])

        with Server(Credentials(world.identities["left"], pins), note, port=place):
            eventually(lambda: len(openings) > 1)
        world.start("left")
        world.start("right")
        world.add("left", "alice", 1, ALL)
        world.settle()
        assert world.routers["right"].router.router.entries == 1


def test_a_link_that_is_too_slow_begins_anew(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr("ccbps.overlay.routing.served.MOST_WAITING", 5)
    with net(*NAMES) as world:
        world.settle()
        left = world.routers["left"]
        with left.lock:  # nothing is sent meanwhile
            for number in range(40):
                left.add("subscription", "alice", number, RELATION.filter_bytes(f"x = {number}"))
        world.settle()
        assert left.router.router.sent["subscription"]["middle"]
        assert world.routers["right"].router.router.entries == 40


def test_an_event_whose_delivery_fails_is_logged(caplog: pytest.LogCaptureFixture) -> None:
    def fail(*_: object) -> None:
        raise ValueError("on purpose")

    with ServedRouter(RELATION, Identity.generate(), {}, fail, advertise=False) as alone:
        alone.add("subscription", "alice", 1, ALL)
        alone.publish("feed", event(1))
        assert alone.wait_arrived(60)
    assert "an event of feed was not delivered" in caplog.text


def serve(secret: bytes, places: Any, port: int) -> None:
    with ServedRouter(RELATION, Identity(secret), places, advertise=False, port=port):
        threading.Event().wait()


@pytest.mark.slow
def test_a_process_in_the_middle_is_killed_again_and_again() -> None:
    spawn, draw = multiprocessing.get_context("spawn"), random.Random(1)
    with net("left", "right") as world:
        arguments, sent, stop = world.arguments("middle"), Counter[str](), threading.Event()
        world.add("left", "alice", 1, ALL)
        world.add("right", "bob", 1, RELATION.filter_bytes("x < 32"))
        middle = spawn.Process(target=serve, args=arguments, daemon=True)
        middle.start()

        def publish(end: str) -> None:
            while not stop.is_set():
                x = sent[end] % 64
                try:
                    world.routers[end].publish(end, event(x), b"%d" % sent[end])
                except RefusedError:  # as many as may be are on their way
                    time.sleep(0.05)
                    continue
                sent[end] += 1
                time.sleep(0.001)

        assert all(world.routers[end].wait_ready(60) for end in ("left", "right"))
        eventually(lambda: all(one.router.router.entries == 2 for one in world.routers.values()))
        threads = [threading.Thread(target=publish, args=(end,)) for end in ("left", "right")]
        for thread in threads:
            thread.start()
        for _ in range(4):
            time.sleep(draw.uniform(0.3, 1))
            assert middle.pid is not None
            os.kill(middle.pid, signal.SIGKILL)
            middle.join()
            middle = spawn.Process(target=serve, args=arguments, daemon=True)
            middle.start()
            assert world.routers["left"].router.lost == 0
            time.sleep(draw.uniform(1, 3))
        eventually(lambda: min(sent[end] for end in ("left", "right")) > 500)
        stop.set()
        for thread in threads:
            thread.join()
        assert all(world.routers[end].wait_arrived(60) for end in ("left", "right"))
        middle.kill()
        for client, least in (("alice", 64), ("bob", 32)):
            for end, count in sent.items():
                numbers = [n for n in range(count) if n % 64 < least]
                got = {key: n for key, n in world.got.items() if key[:2] == (client, end)}
                assert got == {(client, end, b"%d" % n): 1 for n in numbers}
        assert min(sent.values()) > 500
