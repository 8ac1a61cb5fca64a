"""Workers of three operators find one another, in whatever order they come, and come again."""

from __future__ import annotations

import random
import threading
import time
from collections.abc import Callable
from typing import Any

import numpy as np
import pytest

from ccbps import Schema, UInt
from ccbps.errors import DecodeError, NetworkError, ParameterError
from ccbps.keys import ClientKey, OperatorKey, from_text
from ccbps.matching import ThreeBrokerMatch
from ccbps.network.channel import connect
from ccbps.shares import meeting as meeting_module
from ccbps.shares.meeting import meeting
from ccbps.shares.operators import Operator, broker_key, identity
from ccbps.shares.ring import Ring
from tests.support.three_brokers import free_ports

KEYS = [OperatorKey.generate() for _ in range(3)]
CONTEXT = bytes(32)
WORKER = 1


@pytest.fixture
def operators() -> list[Operator]:
    port = free_ports(6)
    return [Operator.of(key, f"127.0.0.1:{port + 2 * i}") for i, key in enumerate(KEYS)]


def at_once(run: Callable[[int], None]) -> None:
    """Run a function for parties 0, 1 and 2, each in a thread."""
    threads = [threading.Thread(target=run, args=(party,)) for party in range(3)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()


def met(operators: list[Operator], act: Callable[[int, Ring], Any], *delays: float) -> list[Any]:
    """Results of three workers that come after some seconds each, or their errors."""
    results: list[Any] = [None] * 3

    def run(party: int) -> None:
        time.sleep(delays[party])
        try:
            with meeting(
                party,
                KEYS[party],
                operators,
                CONTEXT,
                worker=WORKER,
                host="127.0.0.1",
                seconds=20,
            ) as ring:
                results[party] = act(party, ring)
        except NetworkError as error:
            results[party] = error

    at_once(run)
    return results


def test_they_meet_whoever_comes_first(operators: list[Operator]) -> None:
    coins = met(operators, lambda _, ring: ring.coin(), 0.4, 0, 0.2)
    assert len(set(coins)) == 1
    again = met(operators, lambda _, ring: ring.exchange(bytes(_), 2), 0, 0, 0)
    assert again == [[b"", b"\0", b"\0\0"]] * 3


def test_a_worker_that_came_and_went_does_not_matter(operators: list[Operator]) -> None:
    def come_and_go() -> None:
        port = int(operators[1].address.rpartition(":")[2]) + WORKER
        with connect(f"127.0.0.1:{port}", identity(KEYS[2]), operators[1].pin, seconds=5):
            time.sleep(0.1)

    ghost = threading.Thread(target=come_and_go)
    timer = threading.Timer(0.3, ghost.start)
    timer.start()
    coins = met(operators, lambda _, ring: ring.coin(), 0, 0, 0.8)
    timer.join()
    ghost.join()
    assert len(set(coins)) == 1


class KilledError(BaseException):
    """End of a worker amid its meeting, with all its connections."""


@pytest.mark.slow
@pytest.mark.parametrize("seed", range(4))
def test_workers_that_are_killed_while_they_meet_and_come_again(
    operators: list[Operator], seed: int, monkeypatch: pytest.MonkeyPatch
) -> None:
    draw, wait = random.Random(seed), meeting_module._wait
    left = {party: [draw.randrange(3) for _ in range(draw.randrange(4))] for party in range(3)}
    own = threading.local()

    def killed(*arguments: Any) -> None:
        time.sleep(0.02)
        if own.steps == 0:
            raise KilledError
        own.steps -= 1
        wait(*arguments)
        time.sleep(0.02)

    monkeypatch.setattr(meeting_module, "_wait", killed)
    results: list[Any] = [None] * 3

    def run(party: int) -> None:
        # Nobody knows whether the last message of a meeting arrived: a link may break when one or
        # two have met already. Then they come again, as tasks of Spark do.
        for steps in [*left[party], *[-1] * 6]:
            own.steps = steps
            try:
                with meeting(
                    party, KEYS[party], operators, CONTEXT, worker=0, host="127.0.0.1", seconds=30
                ) as ring:
                    results[party] = ring.coin()
                    until = time.monotonic() + 2
                    while len({*results}) > 1 and time.monotonic() < until:
                        time.sleep(0.01)
                    if len({*results}) == 1:
                        return
            except KilledError:
                continue
            except NetworkError as error:
                results[party] = error

    at_once(run)
    assert len(set(results)) == 1, results


def test_one_that_fails_ends_the_others(operators: list[Operator]) -> None:
    def act(party: int, ring: Ring) -> Any:
        if party == 1:
            raise NetworkError("by itself")
        return ring.coin()

    assert all(isinstance(error, NetworkError) for error in met(operators, act, 0, 0, 0))


def test_a_client_key_gives_one_client_and_fresh_nonces() -> None:
    public = [broker_key(key).public for key in KEYS]
    key = ClientKey.generate(public)
    assert from_text(key.to_text()) == key
    assert key.brokers == tuple(public)
    matcher = ThreeBrokerMatch.box(Schema(a=UInt(8)))
    one, other = matcher.publisher(key), matcher.subscriber(key)
    assert one.hellos == other.hellos
    assert matcher.publisher(ClientKey.generate(public)).hellos[0] != one.hellos[0]
    wider = ThreeBrokerMatch.box(Schema(a=UInt(9)))
    assert wider.publisher(key).hellos[0][:16] != one.hellos[0][:16]
    messages = np.concatenate(
        [one.encode({"a": [1, 1]}), matcher.publisher(key).encode([{"a": 1}])]
    )
    assert len(np.unique(messages[:, 24:52], axis=0)) == 3
    assert len(np.unique(messages[:, 52:], axis=0)) == 3
    for party, hello in enumerate(one.hellos):
        broker_key(KEYS[party]).open(party, hello, matcher.digest)
    with pytest.raises(DecodeError):
        broker_key(KEYS[0]).open(0, one.hellos[0], wider.digest)
    with pytest.raises(ParameterError, match="three different brokers, got 2"):
        ClientKey.generate(public[:2])
