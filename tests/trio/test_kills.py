"""Brokers and links that are killed change no answer, and no mask is used twice."""

from __future__ import annotations

import random
import threading
import time
from collections import Counter
from concurrent.futures import Future
from contextlib import ExitStack
from pathlib import Path
from typing import Any

import numpy as np
import pytest

from ccbps import Schema, UInt
from ccbps.broker import Hellos, Publication, Subscription
from ccbps.errors import RefusedError
from ccbps.matching import ThreeBrokerMatch
from ccbps.mqtt import LocalServer, MqttClient, MqttUrl
from tests.support.trios import Processes

SCHEMA = Schema(price=UInt(8), volume=UInt(6))
MATCHER = ThreeBrokerMatch.box(SCHEMA)
USERS = {"broker": "b", "feed": "f", "ann": "a", "bob": "o"}


def published(feed: MqttClient, messages: list[Publication], most: int) -> None:
    """Publish all messages, in any order, until each has its receipt."""
    waiting: dict[int, Future[Any]] = {}
    todo = messages[::-1]
    while todo or waiting:
        while todo and len(waiting) < most:
            message = todo.pop()
            waiting[message.number] = feed.publish_later(message)
        for number, future in [*waiting.items()]:
            if future.done():
                del waiting[number]
                error = future.exception()
                if error is not None:
                    assert isinstance(error, RefusedError) and error.reason != "revoked", error
                    todo.append(messages[number])
        time.sleep(0.002)


def drill(folder: Path, count: int, kills: int, workers: int) -> Counter[str]:
    """Publish events while brokers and links are killed; return what was killed."""
    rng, chance = np.random.default_rng(8), random.Random(8)
    events = SCHEMA.encode(
        {"price": rng.integers(0, 256, count), "volume": rng.integers(0, 64, count)}
    )
    texts = {
        name: [f"price BETWEEN {3 * n + shift} AND {5 * n + 40}" for n in range(12)]
        for name, shift in (("ann", 0), ("bob", 7))
    }
    done, killed = threading.Event(), Counter[str]()
    with ExitStack() as stack:
        server = stack.enter_context(LocalServer(USERS))
        trio = Processes(MATCHER, folder, (server.url, USERS["broker"]), stack, workers)
        clients = {
            name: stack.enter_context(MqttClient(MqttUrl(server.url, name, word), timeout=120))
            for name, word in USERS.items()
            if name != "broker"
        }
        feed = MATCHER.publisher(trio.public)
        clients["feed"].greet(Hellos(feed.hellos))
        for name, own in texts.items():
            role = MATCHER.subscriber(trio.public)
            clients[name].greet(Hellos(role.hellos))
            for number, row in enumerate(role.seal(role.encode(own))):
                clients[name].subscribe(Subscription(str(number), row[None]))
        sealed = feed.seal(feed.encode(events))
        messages = [Publication(n, row.tobytes(), b"%d" % n) for n, row in enumerate(sealed)]

        def strike() -> None:
            for _ in range(kills):
                time.sleep(chance.uniform(0.3, 1.5))
                if done.is_set():
                    return
                if chance.random() < 0.5:
                    party = chance.randrange(3)
                    trio.kill(party)
                    killed[f"broker {party}"] += 1
                else:
                    link = chance.choice([*trio.links])
                    for relay in trio.links[link]:
                        relay.cut()
                    killed["link"] += 1

        striker = threading.Thread(target=strike)
        striker.start()
        published(clients["feed"], messages, 64)
        striker.join()
        done.set()
        for name, own in texts.items():
            predicates = [SCHEMA.parse(text).evaluate(events) for text in own]
            expected = {
                number: {str(place) for place, hits in enumerate(predicates) if hits[number]}
                for number in np.flatnonzero(np.any(predicates, axis=0)).tolist()
            }
            got: dict[int, set[str]] = {}
            while len(got) < len(expected):
                delivery = clients[name].receive(timeout=60)
                assert delivery.number not in got, "it came twice"
                assert delivery.payload == b"%d" % delivery.number
                got[delivery.number] = {*delivery.names}
            assert got == expected
            with pytest.raises(TimeoutError):
                clients[name].receive(timeout=1)
    used = Counter((folder / "units").read_text().splitlines())
    assert used and max(used.values()) == 1, "masks were used twice"
    return killed


@pytest.mark.slow
def test_a_few_kills(tmp_path: Path) -> None:
    killed = drill(tmp_path, 150, 2, 1)
    assert killed.total() == 2


@pytest.mark.slow
def test_sixty_kills(tmp_path: Path) -> None:
    killed = drill(tmp_path, 5000, 60, 2)
    assert killed.total() == 60 and len(killed) == 4
