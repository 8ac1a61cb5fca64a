"""Attacks on `InnerProductMatch` by the broker, alone and with one client.

The broker alone computes with the generators, all points, and all their pairings.
`ccbps.attacks.schemes.relations` finds all relations of these. With the key of any client, the
broker removes the secret matrix from all messages.
"""

from __future__ import annotations

import os
from collections.abc import Sequence
from typing import Any

import numpy as np

from ccbps.algebra.pairing import Point
from ccbps.algebra.pairing import pairing as pairing_named
from ccbps.algebra.pairing.groups import Pairing
from ccbps.arrays import Bytes, Randomness
from ccbps.attacks.catalogue import Curve, Figure, Outcome, attack
from ccbps.attacks.schemes.relations import observed, pairings, relations_in
from ccbps.attacks.schemes.views import make_broken
from ccbps.checks import choice, whole
from ccbps.functional import InnerProducts
from ccbps.functional.inner_product import Points
from ccbps.keys.role_key import RoleKey
from ccbps.matching.contract.access import bodies_of
from ccbps.matching.inner_product import InnerProductMatch
from ccbps.predicates import Schema, UInt

PAIRINGS = ("bls12-381", "transparent")


def logarithms(bodies: Bytes) -> list[int]:
    """Return the logarithms of the points of messages in the transparent pairing.

    Args:
        bodies: bodies of messages.
    """
    data = np.ascontiguousarray(bodies).tobytes()
    return [int.from_bytes(data[at + 1 : at + 33]) for at in range(0, len(data), 33)]


class Colluder:
    """A broker with the key of one client, which removes the secret matrix from all messages.

    Args:
        matcher: the matcher.
        key: key of a publisher or a subscriber.
        pairing: name of the matcher's pairing.

    Attributes:
        group: the pairing.
    """

    def __init__(self, matcher: InnerProductMatch, key: RoleKey, pairing: str) -> None:
        self.group: Pairing = pairing_named(pairing)
        self._products = InnerProducts(matcher.size - 1, pairing=pairing)
        basis = self._products.basis(bytes.fromhex(key.export_secret_data()["seed"]))
        unit = np.array([[int(i == j) for j in range(matcher.size)] for i in range(matcher.size)])
        self._rows, self._dual = (
            times(unit.astype(object)) for times in (basis.times, basis.times_dual)
        )

    def _cleared(self, points: Points, matrix: Any) -> list[Point]:
        out = []
        for row in matrix:
            total, *others = (
                self.group.power(point, int(number))
                for point, number in zip(points, row, strict=True)
            )
            for other in others:
                total = self.group.multiply(total, other)
            out.append(total)
        return out

    def event(self, body: Bytes) -> list[Point]:
        """Return g1^(b y): all coordinates of an event, with one unknown factor.

        Args:
            body: body of an event, shape (bytes,).
        """
        return self._cleared(self._products.read_ciphertext(body.tobytes()), self._rows)

    def interest(self, body: Bytes) -> list[Point]:
        """Return g2^(a x): all coefficients of a subscription, with one unknown factor.

        Args:
            body: body of a subscription, shape (bytes,).
        """
        return self._cleared(self._products.read_token(body.tobytes()), self._dual)

    def ratio(self, base: Point, power: Point, bits: int) -> int | None:
        """Return x below 2^bits with base^x = power, in 2^(bits / 2) steps; None if there is none.

        Args:
            base: a point.
            power: a point of the same group.
            bits: number of bits of x.
        """
        steps, group = 1 << -(-bits // 2), self.group
        small, table = group.power(base, 0), {}
        for number in range(steps):
            table[str(small)] = number
            small = group.multiply(small, base)
        back, at = group.power(base, -steps), power
        for number in range(steps):
            if str(at) in table:
                return number * steps + table[str(at)]
            at = group.multiply(at, back)
        return None


def difference_of(
    group: Pairing, ciphertext: Points, token: Points, first: tuple[Point, Point], most: int
) -> int | None:
    """Find the scalar product of two messages, if it is small, from published first components.

    Args:
        group: the pairing.
        ciphertext: points of an event.
        token: points of a subscription.
        first: g1^b and g2^a, of the event and the subscription.
        most: largest absolute value that is tried.

    Returns:
        the scalar product; None if it is larger.
    """
    pairs = list(zip(ciphertext, token, strict=True))
    for size in range(most + 1):
        for product in dict.fromkeys((size, -size)):
            if group.cancels([*pairs, (group.power(first[0], -product), first[1])]):
                return product
    return None


# -- the catalogue ---------------------------------------------------------------------------------


@attack(
    title="The broker and one client read everything of their epoch",
    goal="confidentiality",
    adversary="the broker of `InnerProductMatch` and any one client, who pool their keys",
    defence="new keys often: `KeyServer.rotate`; `ThreeBrokerMatch`, whose clients have no key in "
    "common, where clients are strangers",
    source="[KLMMRW16]",
)
def inner_product_collusion(
    *, events: int = 48, epochs: int = 8, bits: int = 8, pairing: str = "transparent", seed: int = 1
) -> Outcome:
    """Read events with the key of one client, in 2^(bits / 2) steps each.

    With the defence, the same events are spread over several epochs, each with a key of its own,
    and the client has the key of the first one. The attack computes with elements of the groups
    only, so that it does not differ with `pairing`. "bls12-381" takes longer, and the extra
    ``pairings``.

    Args:
        events: number of events, one for each epoch or more.
        epochs: number of epochs, with the defence; 2 or more.
        bits: number of bits of a value, 1 to 24.
        pairing: name of the pairing, "transparent" or "bls12-381".
        seed: seed of the events.

    Example:
        >>> from ccbps.attacks import inner_product_collusion
        >>> print(inner_product_collusion(epochs=4)["events read"])
        Figure(name='events read', unit='', undefended=1.0, defended=0.25, expected=1.0)
    """
    whole("epochs", epochs, 2)
    whole("events", events, epochs)
    choice("pairing", pairing, PAIRINGS)
    random = np.random.default_rng(whole("seed", seed, 0))
    values = random.integers(0, 1 << whole("bits", bits, 1, 24), events)
    counts = sorted({2**power for power in range(epochs.bit_length())} | {epochs})
    # "transparent" hides nothing, and the attack makes no use of that.
    matcher = make_broken(InnerProductMatch, Schema(x=UInt(bits)), pairing=pairing)
    read = []
    for count in counts:
        server = matcher.key_server()
        colluder = Colluder(matcher, server.subscriber_key("mallory"), pairing)
        right = 0
        for epoch in range(count):
            mine = values[epoch::count]
            messages = matcher.publisher(server.publisher_key()).encode({"x": mine})
            for body, value in zip(bodies_of(matcher, messages, "event"), mine, strict=True):
                # Coordinates: 1, the value, and the pad.
                one, coordinate, _ = colluder.event(body)
                right += int(colluder.ratio(one, coordinate, bits) == value)
            server.rotate()
        read.append(right / events)
    return Outcome(
        (Figure("events read", "", read[0], read[-1], 1.0),),
        Curve(
            "epochs",
            "events read (share)",
            tuple(counts),
            {"without defence": (read[0],) * len(counts), "with new keys": tuple(read)},
            log="x",
        ),
    )


@attack(
    title="First components give differences of values and constants away",
    goal="confidentiality",
    adversary="a broker that has no key, and tries small products",
    defence="messages without first components, as `InnerProducts` makes them",
    source="[KLMMRW16]",
)
def inner_product_first_components(
    *, pairs: int = 200, most: int = 64, bits: int = 8, seed: int = 1
) -> Outcome:
    """Try differences of a value x and a constant v of ``x = v``.

    The scheme as it is printed sends g1^b and g2^a with the messages, by which the product x - v of
    two messages can be tried. The library sends neither. Without them, all that can be tried is
    whether the product is 0. The simulation runs in the transparent pairing, whose logarithms the
    attack does not use.

    Args:
        pairs: number of pairs of an event and a subscription, 1 or more.
        most: largest difference that is tried, 1 or more.
        bits: number of bits of a value, 1 to 24.
        seed: seed of values and constants.

    Example:
        >>> from ccbps.attacks import inner_product_first_components
        >>> share = inner_product_first_components(pairs=100)["differences found"]
        >>> share.undefended > 0.3 > 0.05 > share.defended
        True
    """
    whole("pairs", pairs, 1)
    whole("most", most, 1)
    random = np.random.default_rng(whole("seed", seed, 0))
    size = 1 << whole("bits", bits, 1, 24)
    products = InnerProducts(2, pairing="transparent")
    basis, group = products.basis(os.urandom(32)), products.group
    values, constants = random.integers(0, size, (2, pairs)).tolist()
    drawn: list[bytes] = []

    def recorded(count: int) -> bytes:
        drawn.append(os.urandom(count))
        return drawn[-1]

    sizes, bare = [], []
    for value, constant in zip(values, constants, strict=True):
        drawn.clear()
        sent = products.ciphertexts(basis, [[value, 1]], recorded)[0].tobytes()
        asked = products.tokens(basis, [[1, -constant]], recorded)[0].tobytes()
        # Each call draws its factors last.
        b, a = (group.exponents(1, lambda _, part=part: part)[0] for part in (drawn[0], drawn[2]))  # type: ignore[misc]
        first = group.power(group.g1, b), group.power(group.g2, a)
        points = products.read_ciphertext(sent), products.read_token(asked)
        tried = difference_of(group, *points, first, most)
        sizes.append(most + 1 if tried is None or tried != value - constant else abs(tried))
        bare.append(group.cancels(list(zip(*points, strict=True))))
    tries = sorted({round(most * part) for part in (0, 0.1, 0.25, 0.5, 1)})
    shares = [float(np.mean(np.array(sizes) <= each)) for each in tries]
    expected = 1 - max(0, size - most - 1) * max(0, size - most) / size**2
    return Outcome(
        (Figure("differences found", "", shares[-1], float(np.mean(bare)), expected),),
        Curve(
            "largest difference that is tried",
            "differences found (share)",
            tuple(tries),
            {
                "without defence": tuple(shares),
                "with no first components": (float(np.mean(bare)),) * len(tries),
            },
        ),
    )


@attack(
    title="Factors that repeat show which events are equal",
    goal="confidentiality",
    adversary="a broker that has no key, and looks for linear relations between all it can compute",
    defence="fresh factors for each message, from the operating system's randomness, as publishers "
    "draw them by default",
    source="[KLMMRW16]",
)
def inner_product_relations(*, events: int = 3, seed: int = 1) -> Outcome:
    """Count linear relations that always hold between what a broker can compute.

    There is one for each pair that matches, which is the answer. All others are leaks. The events
    are equal, and the one subscription matches all of them. A publisher whose randomness repeats
    draws the same factor for each. The search runs in the transparent pairing, so that it misses no
    relation that generic groups have.

    Args:
        events: number of events, 2 to 4.
        seed: seed of the events' value.

    Example:
        >>> from ccbps.attacks import inner_product_relations
        >>> print(inner_product_relations(events=2)["relations beyond answers"])
        Figure(name='relations beyond answers', unit='', undefended=11, defended=0, expected=11)
    """
    whole("events", events, 2, 4)
    value = int(np.random.default_rng(whole("seed", seed, 0)).integers(2))
    matcher = make_broken(InnerProductMatch, Schema(x=UInt(1)), pairing="transparent")
    group = pairing_named("transparent")

    def extra(count: int, repeated: bool) -> int:
        def view() -> Sequence[int]:
            server, block = matcher.key_server(), os.urandom(group.exponent_bytes)
            randomness: Randomness = (lambda n: (block * n)[:n]) if repeated else os.urandom
            publisher = matcher.publisher(server.publisher_key(), randomness=randomness)
            subscriber = matcher.subscriber(server.subscriber_key("client"))
            sent = publisher.encode({"x": [value] * count})
            asked = subscriber.encode(f"x = {value}")
            ones = logarithms(bodies_of(matcher, sent, "event"))
            twos = logarithms(bodies_of(matcher, asked, "interest"))
            return pairings([1, *ones], [1, *twos], group.order)

        return relations_in(observed(view, group.order), group.order) - count

    counts = tuple(range(1, events + 1))
    repeated, fresh = ([extra(count, each) for count in counts] for each in (True, False))
    # Each further event has the same n points as the first one, times 1 and the n of the token. One
    # of these relations follows from two answers.
    expected = (events - 1) * (matcher.size * (matcher.size + 1) - 1)
    return Outcome(
        (Figure("relations beyond answers", "", repeated[-1], fresh[-1], expected),),
        Curve(
            "equal events",
            "relations beyond answers",
            counts,
            {"without defence": tuple(repeated), "with fresh factors": tuple(fresh)},
        ),
    )
