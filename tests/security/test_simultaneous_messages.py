"""Lemmas 12 and 15 of [SSM]: protocols of simultaneous messages are 2-decomposable encodings.

Lemma 12: a 2-decomposable randomized encoding of f, with REC and SIM, gives a protocol in which two
parties with shared randomness send one message each to a third one, who learns f and nothing else;
and such a protocol gives an encoding. Lemma 15: so it is for universal functions U(p, x) = p(x) and
confidential matching. Both ways are walked here, over all randomness.
"""

from __future__ import annotations

from collections import Counter
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass
from itertools import product
from typing import Any

import numpy as np
import pytest
from numpy.typing import NDArray

from ccbps import OneTimePad, Schema, UInt
from ccbps.encodings.equality import EqualityEncoding
from ccbps.matching import Matcher, TruthTableMatch

Bytes = NDArray[np.uint8]


@dataclass
class Encoding:
    """A 2-decomposable randomized encoding of a function of x and y.

    Attributes:
        first: first half, f1(x, r), of all randomness.
        second: second half, f2(y, r).
        recover: REC, which computes f from both halves.
        simulate: SIM, both halves from f alone, for all randomness of its own.
    """

    first: Callable[[Any], Bytes]
    second: Callable[[Any], Bytes]
    recover: Callable[[Bytes, Bytes], NDArray[np.bool_]]
    simulate: Callable[[bool], Bytes]


@dataclass
class Protocol:
    """A protocol of simultaneous messages.

    Attributes:
        alice: messages for x under all randomness.
        bob: messages for y under all randomness.
        carol: answers to pairs of messages.
    """

    alice: Callable[[Any], Bytes]
    bob: Callable[[Any], Bytes]
    carol: Callable[[Bytes, Bytes], NDArray[np.bool_]]


def protocol_of(encoding: Encoding) -> Protocol:
    """Turn an encoding into a protocol: the halves are the messages, and REC is Carol."""
    return Protocol(encoding.first, encoding.second, encoding.recover)


def encoding_of(protocol: Protocol, inputs: Mapping[bool, tuple[Any, Any]]) -> Encoding:
    """Turn a protocol into an encoding: Carol is REC, and SIM runs Alice and Bob on some inputs.

    Args:
        protocol: the protocol.
        inputs: any inputs x and y with each value of f.
    """

    def simulate(value: bool) -> Bytes:
        x, y = inputs[value]
        return np.hstack([protocol.alice(x), protocol.bob(y)])

    return Encoding(protocol.alice, protocol.bob, protocol.carol, simulate)


def views(messages: Bytes) -> Counter[bytes]:
    return Counter(map(bytes, messages))


def check_protocol(
    protocol: Protocol, xs: Sequence[Any], ys: Sequence[Any], f: Callable[[Any, Any], bool]
) -> None:
    """Check a protocol by its definition: Carol is right, and her views with equal f are alike."""
    seen: dict[bool, Counter[bytes]] = {}
    for x, y in product(xs, ys):
        first, second = protocol.alice(x), protocol.bob(y)
        assert (protocol.carol(first, second) == f(x, y)).all()
        view = views(np.hstack([first, second]))
        assert seen.setdefault(f(x, y), view) == view
    assert len(seen) == 2


def check_encoding(
    encoding: Encoding, xs: Sequence[Any], ys: Sequence[Any], f: Callable[[Any, Any], bool]
) -> None:
    """Check an encoding by its definition: REC is right, and SIM has the halves' distribution."""
    for x, y in product(xs, ys):
        first, second = encoding.first(x), encoding.second(y)
        assert (encoding.recover(first, second) == f(x, y)).all()
        assert views(encoding.simulate(f(x, y))) == views(np.hstack([first, second]))


def equality() -> tuple[Encoding, range, range, Callable[[int, int], bool]]:
    """Return the encoding of equality in the field of 4 elements, with its own SIM."""
    own = EqualityEncoding(2, 1)
    rows = np.zeros((12, own.randomness_bytes), dtype=np.uint8)
    rows[:, [0, -1]] = [*product(range(1, 4), range(4))]

    def values(number: int) -> NDArray[np.uint64]:
        return np.array([[number]], dtype=np.uint64)

    def simulate(value: bool) -> Bytes:
        return np.hstack(own.simulate(np.full(len(rows), value), rows))

    encoding = Encoding(
        lambda x: own.encode_event(values(x), rows),
        lambda y: own.encode_interest(values(y)[:, None], rows),
        own.decode,
        simulate,
    )
    return encoding, range(4), range(4), lambda x, y: x == y


def matching() -> tuple[Protocol, list[int], list[str], Callable[[int, str], bool]]:
    """Return a matcher's roles as a protocol for a universal function: all predicates of a bit."""
    schema = Schema(x=UInt(1))
    matcher: Matcher = TruthTableMatch(schema)
    pads = np.zeros((8, matcher.randomness_bytes), dtype=np.uint8)
    pads[:, 0] = np.arange(8) & 1  # rho
    pads[:, 3] = np.arange(8) >> 1  # both bits of the mask
    pad, rounds = pads.tobytes(), range(len(pads))
    texts = ["x = 0", "x = 1", "TRUE", "FALSE"]
    protocol = Protocol(
        lambda x: matcher.publisher(OneTimePad(pad)).encode({"x": [x] * 8}, rounds),
        lambda p: matcher.subscriber(OneTimePad(pad)).encode(p, rounds),
        lambda events, interests: matcher.broker().match(events, interests),
    )
    return protocol, [0, 1], texts, lambda x, p: bool(schema.parse(p).evaluate({"x": [x]})[0])


def test_an_encoding_is_a_protocol_and_a_protocol_an_encoding() -> None:
    encoding, xs, ys, f = equality()
    check_encoding(encoding, xs, ys, f)
    protocol = protocol_of(encoding)
    check_protocol(protocol, xs, ys, f)
    for inputs in ({True: (0, 0), False: (0, 1)}, {True: (3, 3), False: (2, 1)}):
        check_encoding(encoding_of(protocol, inputs), xs, ys, f)


def test_matching_is_an_encoding_of_a_universal_function() -> None:
    protocol, xs, texts, f = matching()
    check_protocol(protocol, xs, texts, f)
    inputs: dict[bool, tuple[Any, Any]] = {True: (0, "TRUE"), False: (1, "x = 0")}
    encoding = encoding_of(protocol, inputs)
    check_encoding(encoding, xs, texts, f)
    check_protocol(protocol_of(encoding), xs, texts, f)


@pytest.mark.parametrize("fault", ["alice", "bob"])
def test_the_checks_find_a_message_that_tells_more(fault: str) -> None:
    encoding, xs, ys, f = equality()
    good = protocol_of(encoding)

    def told(honest: Callable[[Any], Bytes]) -> Callable[[Any], Bytes]:
        return lambda value: np.where(np.arange(12)[:, None] < 11, honest(value), np.uint8(value))

    parts = {"alice": good.alice, "bob": good.bob}
    parts[fault] = told(parts[fault])
    leaky = Protocol(parts["alice"], parts["bob"], lambda a, b: encoding.recover(a, b))
    with pytest.raises(AssertionError):
        check_protocol(leaky, xs, ys, f)
    with pytest.raises(AssertionError):
        check_encoding(encoding_of(leaky, {True: (0, 0), False: (0, 1)}), xs, ys, f)
