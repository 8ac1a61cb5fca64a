"""Events are checked while they are evaluated: few messages follow one another, none too early."""

from __future__ import annotations

import threading
from collections import deque
from typing import Any

import numpy as np
import pytest

from ccbps.forms.branching import box_form
from ccbps.forms.digits import FormulaDigits
from ccbps.predicates import Schema, UInt
from ccbps.shares.clients import HEAD_BYTES, BrokerKey, Client
from ccbps.shares.party import Party
from ccbps.shares.ring import Ring, local_links
from tests.support.three_brokers import share

CONTEXT = bytes(32)
KEYS = [BrokerKey.generate() for _ in range(3)]
WIDE = Schema(price=UInt(16), volume=UInt(16))
NARROW = Schema(bit=UInt(1))


class Line:
    """One end of a connection that counts how many messages followed one another."""

    def __init__(self, link: Any, broker: Broker, sent: deque[int], come: deque[int]) -> None:
        self._link, self._broker, self._sent, self._come = link, broker, sent, come

    def send(self, *parts: Any) -> None:
        self._sent.append(self._broker.depth + 1)
        self._broker.sizes.append(sum(map(len, parts)))
        self._link.send(*parts)

    def receive(self, most: int) -> bytearray:
        frame: bytearray = self._link.receive(most)
        self._broker.depth = max(self._broker.depth, self._come.popleft())
        return frame

    def close(self) -> None:
        self._link.close()


class Broker:
    """What a broker sent since it was last asked, and how many messages followed one another."""

    def __init__(self) -> None:
        self.depth, self.sizes = 0, list[int]()


def published(
    schema: Schema, window: int, texts: list[list[str]], bent: int | None = None
) -> list[tuple[Any, Broker]]:
    """Match three events with tables, and return what brokers answer, and what they sent."""
    form = FormulaDigits(schema, dict.fromkeys(schema, window), box_form(schema))
    client, rng = Client([key.public for key in KEYS], CONTEXT), np.random.default_rng(4)
    records = {name: rng.integers(0, 2, 3) for name in schema}
    events = share(client, "event", form.event_rows(schema.encode(records)))
    if bent is not None:
        events[2][bent, HEAD_BYTES] ^= 1
    predicates = [[schema.parse(text) for text in some] for some in texts]
    forms = [[box_form(schema, one.box()) for one in some] for some in predicates]
    wanted = [share(client, "interest", form.interest_rows(some)) for some in forms]
    expected = np.stack([one.evaluate(records) for some in predicates for one in some], axis=1)
    if bent is not None:
        expected[bent] = False
    links, steps, results = local_links(), threading.Barrier(3), list[Any]([None] * 3)
    down, up = ([deque[int]() for _ in range(3)] for _ in range(2))
    brokers = [Broker() for _ in range(3)]

    def run(number: int) -> None:
        broker, above = brokers[number], (number + 1) % 3
        lower = Line(links[number][0], broker, down[number], up[number])
        upper = Line(links[number][1], broker, up[above], down[above])
        with Ring(number, lower, upper, CONTEXT) as ring:
            party = Party(number, form, KEYS[number], ring, CONTEXT)
            party.greet(client.hellos[number])
            tables = [party.new_table() for _ in wanted]
            for table, some in zip(tables, wanted, strict=True):
                party.subscribe(some[number], table=table)
            steps.wait()
            broker.depth = 0
            broker.sizes.clear()
            steps.wait()
            answers, refused = party.publish(events[number], tables=tables)
            steps.wait()
        lanes = np.cumsum([0, *(table.used for table in tables)])
        assert answers.shape[1] == lanes[-1] == expected.shape[1]
        assert np.array_equal(answers, expected)
        results[number] = refused.tolist()

    threads = [threading.Thread(target=run, args=(number,)) for number in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    return [*zip(results, brokers, strict=True)]


@pytest.mark.parametrize("tables", [1, 5])
def test_the_check_takes_no_messages_of_its_own(tables: int) -> None:
    form = FormulaDigits(WIDE, dict.fromkeys(WIDE, 4), box_form(WIDE))
    texts = [[f"price <= {n % 2}" for n in range(3 + k)] for k in range(tables)]
    for refused, broker in published(WIDE, 4, texts):
        assert refused == [False] * 3
        # Positions, a message for each layer, and the answers.
        assert broker.depth == len(form.program.layers) + 2
        # The check has four messages and its position beside them, whatever number of tables.
        assert len(broker.sizes) == broker.depth + 5


@pytest.mark.parametrize(("schema", "window"), [(WIDE, 4), (NARROW, 1)])
def test_no_answer_of_a_refused_event_is_opened(schema: Schema, window: int) -> None:
    name = next(iter(schema))
    for bent, kept in ((None, 3), (1, 2)):
        for refused, broker in published(schema, window, [[f"{name} = 1"] * 70], bent):
            assert refused == [row == bent for row in range(3)]
            assert broker.sizes[-1] == kept * 2 * 8  # two words of lanes
            assert broker.depth >= 6
