"""Routers know their neighbours by any names of links: pseudonyms change nothing."""

from __future__ import annotations

import random
from collections import deque
from collections.abc import Callable
from functools import partial

import pytest

from ccbps import Schema, UInt
from ccbps.overlay import PlainRelation, Router

RELATION = PlainRelation(Schema(x=UInt(5)))
PARENTS = {1: 0, 2: 0, 3: 1, 4: 1, 5: 2, 6: 5}
Record = list[tuple[int, int, bytes]]
"""Messages on links: sender, receiver, bytes."""


def history(link: Callable[[int, int], str], seed: int) -> tuple[Record, set[tuple[str, int]]]:
    """Run a random history, where `link` names the neighbour b for the broker a.

    Returns:
        all messages between brokers, and clients with the events that they got.
    """
    sent, got, waiting = Record(), set[tuple[str, int]](), deque[tuple[int, int, object]]()
    brokers = range(len(PARENTS) + 1)
    links = [*PARENTS.items(), *((b, a) for a, b in PARENTS.items())]
    known = {a: {link(a, b): b for one, b in links if one == a} for a in brokers}

    def send(broker: int, name: str, message: object) -> None:
        to = known[broker][name]
        sent.append((broker, to, message.to_bytes()))  # type: ignore[attr-defined]
        waiting.append((broker, to, message))

    def run() -> None:
        while waiting:
            broker, to, message = waiting.popleft()
            routers[to].receive(link(to, broker), message)  # type: ignore[arg-type]

    routers = {
        broker: Router(
            RELATION, partial(send, broker), lambda client, one: got.add((client, one.number))
        )
        for broker in brokers
    }
    for a, b in links:
        routers[a].connect(link(a, b))
    run()
    draw, live = random.Random(seed), list[tuple[str, int, int]]()
    for number in range(60):
        home, low = draw.randrange(len(brokers)), draw.randrange(32)
        content = RELATION.filter_bytes(f"x BETWEEN {low} AND {draw.randrange(low, 32)}")
        kind = draw.choice(["subscription", "advertisement", "event", "event", "end"])
        if kind == "event":
            routers[home].add("advertisement", f"client {home}", 1000 + number, content)
            run()
            routers[home].publish(f"client {home}", number, RELATION.event_bytes({"x": low}))
        elif kind == "end" and live:
            kind, home, name = live.pop(draw.randrange(len(live)))
            routers[home].withdraw(kind, f"client {home}", name)  # type: ignore[arg-type]
        elif kind != "end":
            routers[home].add(kind, f"client {home}", number, content)  # type: ignore[arg-type]
            live.append((kind, home, number))
        run()
    return sent, got


@pytest.mark.parametrize("seed", range(5))
def test_pseudonyms_of_links_change_no_message_and_no_delivery(seed: int) -> None:
    draw = random.Random(seed + 100)
    pseudonyms: dict[tuple[int, int], str] = {}

    def pseudonym(own: int, other: int) -> str:
        return pseudonyms.setdefault((own, other), draw.randbytes(8).hex())

    plain = history(lambda own, other: f"broker {other}", seed)
    numbered = history(lambda own, other: f"link {(own * 7 + other * 3) % 11}", seed)
    hidden = history(pseudonym, seed)
    assert len(plain[1]) > 2
    assert sorted(plain[0]) == sorted(numbered[0]) == sorted(hidden[0])
    assert plain[1] == numbered[1] == hidden[1]
    # No message says which broker sent it.
    assert not any(
        name.encode() in content for name in pseudonyms.values() for *_, content in hidden[0]
    )
