"""Brokers that are killed amid grants: each pair meets one grant, the same at all three brokers."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccbps import Schema, UInt
from ccbps.broker import Hellos, Publication, SealedGrants, Subscription
from ccbps.errors import RefusedError
from ccbps.keys import ClientKey
from ccbps.matching import ThreeBrokerMatch
from ccbps.mqtt import LocalServer, MqttClient, MqttUrl
from ccbps.shares.public_clients import Authority
from tests.support.trios import Parts, Processes

SCHEMA = Schema(price=UInt(8), volume=UInt(6))
MATCHER = ThreeBrokerMatch.box(SCHEMA, grants=True)
USERS = {"broker": "b", "feed": "f", "ann": "a", "bob": "o", "giver": "g"}
NAMES = ("ann", "bob")
TEXTS = [f"price BETWEEN {12 * n} AND {12 * n + 70}" for n in range(12)]


def lasting(ask: Any) -> Any:
    """Repeat a request until the brokers are all there, and return its result."""
    while True:
        try:
            return ask()
        except RefusedError as error:
            if error.reason != "brokers":
                raise
            time.sleep(0.1)


def drill(folder: Path, grants: int, kills: int, workers: int) -> Counter[str]:
    """Give grants and publish between them while brokers are killed; return what was killed.

    Events come in runs. Between two runs a client gets another grant, which was answered before the
    next run begins. Some events are sent while a grant is on its way: they meet the grant before it
    or that one, with all subscriptions of the client.
    """
    rng, chance = np.random.default_rng(9), random.Random(9)
    run, amid = 12, 6
    count = grants * (run + amid)
    events = SCHEMA.encode(
        {"price": rng.integers(0, 256, count), "volume": rng.integers(0, 64, count)}
    )
    wanted = np.stack([SCHEMA.parse(text).evaluate(events) for text in TEXTS])
    parts = Parts(workers)
    giver = MATCHER.authority(ClientKey.generate(parts.public))
    parts.name(Authority(MATCHER.digest, giver.hellos))
    done, killed = threading.Event(), Counter[str]()
    with ExitStack() as stack:
        server = stack.enter_context(LocalServer(USERS))
        trio = Processes(MATCHER, folder, (server.url, USERS["broker"]), stack, workers, parts)
        clients = {
            name: stack.enter_context(MqttClient(MqttUrl(server.url, name, word), timeout=120))
            for name, word in USERS.items()
            if name != "broker"
        }
        feed = MATCHER.publisher(trio.public)
        lasting(lambda: clients["feed"].greet(Hellos(feed.hellos)))
        roles = {name: MATCHER.subscriber(trio.public) for name in NAMES}
        nothing = giver.grant(None, to=[role.client for role in roles.values()])
        lasting(lambda: clients["giver"].grant(SealedGrants(nothing)))
        for name, role in roles.items():
            lasting(lambda own=clients[name], role=role: own.greet(Hellos(role.hellos)))
            for place, row in enumerate(role.seal(role.encode(TEXTS))):
                subscription = Subscription(str(place), row[None])
                lasting(lambda own=clients[name], one=subscription: own.subscribe(one))
        sealed = feed.seal(feed.encode(events))
        # Of each client and event the grants of which one counted.
        allowed = {name: np.zeros((2, count), dtype=np.bool_) for name in NAMES}
        now = dict.fromkeys(NAMES, np.zeros(count, dtype=np.bool_))

        def strike() -> None:
            for _ in range(kills):
                time.sleep(chance.uniform(0.2, 1.0))
                if done.is_set():
                    return
                if chance.random() < 0.7:
                    party = chance.randrange(3)
                    trio.kill(party)
                    killed[f"broker {party}"] += 1
                else:
                    for relay in trio.links[chance.choice([*trio.links])]:
                        relay.cut()
                    killed["link"] += 1

        def publish(numbers: range) -> None:
            for number in numbers:
                message = Publication(number, sealed[number].tobytes(), b"%d" % number)
                lasting(lambda one=message: clients["feed"].publish(one))

        striker = threading.Thread(target=strike)
        striker.start()
        for turn in range(grants):
            start = turn * (run + amid)
            name, low = NAMES[turn % 2], int(rng.integers(0, 256))
            text = None if turn % 5 == 4 else f"price >= {low} AND volume < {low % 64}"
            new = np.zeros(count, dtype=np.bool_)
            if text is not None:
                new = SCHEMA.parse(text).evaluate(events)
            message = SealedGrants(giver.grant(text, to=roles[name].client))
            between = range(start, start + amid)
            publisher = threading.Thread(target=publish, args=(between,))
            publisher.start()
            lasting(lambda one=message: clients["giver"].grant(one))
            publisher.join()
            for other in NAMES:
                allowed[other][:, between] = now[other][between]
            allowed[name][1, between] = new[between]
            now[name] = new
            after = range(start + amid, start + amid + run)
            publish(after)
            for other in NAMES:
                allowed[other][:, after] = now[other][after]
        done.set()
        striker.join()
        for name in NAMES:
            got: dict[int, set[str]] = {}
            # These come, however long a broker takes that was killed at the end; and others may.
            certain = {*np.flatnonzero(wanted.any(axis=0) & allowed[name].all(axis=0)).tolist()}
            while True:
                try:
                    delivery = clients[name].receive(timeout=3 if certain <= got.keys() else 60)
                except TimeoutError:
                    break
                assert delivery.number not in got, "it came twice"
                got[delivery.number] = {*delivery.names}
            for number in range(count):
                hits = {str(place) for place in np.flatnonzero(wanted[:, number])}
                either = [hits if may else set() for may in allowed[name][:, number]]
                assert got.get(number, set()) in either, (name, number)
            assert got, "no event was allowed"
    used = Counter((folder / "units").read_text().splitlines())
    assert used and max(used.values()) == 1, "masks were used twice"
    return killed


@pytest.mark.slow
def test_kills_amid_grants(tmp_path: Path) -> None:
    killed = drill(tmp_path, 60, 30, 2)
    assert killed.total() > 15 and len(killed) == 4
