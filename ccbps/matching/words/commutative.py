"""CommutativeMatch: equality of keywords under layers of commutative encryption, one broker.

The case r = 2 of multiple-layer commutative encryption with one broker between publishers and
subscribers: a client's message has a layer that it shares with the broker and a layer that it
shares with the clients on the other side. The broker takes its own layer off and compares.

Conventions: a keyword is the values of all attributes together, or of those named. The body of a
message is 8 random bytes that name the client's layer and one element, most significant byte first.
Differs from [SOM09]: one key for all publishers and subscribers stands for a key of each pair, so
that an event is encrypted once and not once for each subscriber; and the broker derives the keys it
shares with clients from one secret, so that clients may join later. Chains of several brokers, with
any number of layers and the keys of the paper, are in `ccbps.overlay.commutative_chain`.

Hazard: two nodes in a row break it: the broker and any one client read all keywords that they can
think of. Deterministic: the broker sees which keywords are equal.
Source: [SOM09]; [Survey] section 4.5.
"""

from __future__ import annotations

from collections.abc import Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import numpy as np

from ccbps.algebra.prime_order import ModpGroup, PrimeOrderGroup, prime_order_group
from ccbps.arrays import Bools, Bytes, Randomness, Words
from ccbps.ciphers.group_layers import GroupLayers
from ccbps.ciphers.pohlig_hellman import PohligHellman
from ccbps.inputs.topic import keyword_attributes, keyword_codes, keyword_of
from ccbps.keys.role_key import Role, RoleKey
from ccbps.leakage import LeakageCard
from ccbps.matching.parameters import Cost
from ccbps.matching.reusable import ReusableMatcher
from ccbps.matching.reusable_roles import ReusableBroker
from ccbps.predicates import Schema
from ccbps.predicates.schema import Events
from ccbps.wire import HEADER_BYTES, Cause

__all__ = ["CommutativeBroker", "CommutativeMatch"]


ID_BYTES: Final = 8
TOKEN_BYTES: Final = 16


class CommutativeMatch(ReusableMatcher):
    """Keywords under two layers; the broker takes one off. Shows which keywords are equal.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.matching import CommutativeMatch
        >>> schema = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8))
        >>> matcher = CommutativeMatch(schema, ["issue"])
        >>> server = matcher.key_server()
        >>> publisher = matcher.publisher(server.publisher_key())
        >>> subscriber = matcher.subscriber(server.subscriber_key("alice"))
        >>> broker = matcher.broker(server.broker_key())
        >>> events = publisher.encode({"issue": ["IBM", "AAPL"], "price": [119, 121]})
        >>> interests = subscriber.encode(["issue = 'IBM'"])
        >>> broker.match_all(events, interests)
        array([[ True],
               [False]])
    """

    scheme = "commutative layers"
    operators = ("=", "and")
    covering = True

    def __init__(
        self,
        schema: Schema,
        attributes: Sequence[str] | None = None,
        *,
        group: str = "modp2048",
    ) -> None:
        """
        Args:
            schema: the events' attributes.
            attributes: those that make the keyword; all by default. A subscription names one value
                of each of them and nothing else.
            group: a name that `ccbps.algebra.prime_order.prime_order_group` knows. Modulo a safe
                prime the cipher is `PohligHellman`, on a curve `GroupLayers`, which is 10 times as
                fast or more.

        Raises:
            ParameterError: an attribute is not in the schema or named twice; there is no such
                group, or its library is missing.
        """
        self.attributes = keyword_attributes(schema, attributes)
        self.group: PrimeOrderGroup = prime_order_group(group)
        self.cipher = _cipher_of(self.group)
        body = ID_BYTES + self.cipher.element_bytes
        parameters = {"attributes": list(self.attributes), "group": group}
        self._set_up(schema, body, body, parameters)

    def __reduce__(self) -> tuple[Any, ...]:
        return _rebuild, (self.schema, self.attributes, self.group.name)

    @property
    def leakage(self) -> LeakageCard:
        """What the broker learns."""
        toy = () if self.group.security else ("the group is a toy: every layer comes off",)
        short = ", for exponents of 256 bits" if isinstance(self.cipher, PohligHellman) else ""
        return LeakageCard(
            scheme="CommutativeMatch",
            adversary="the broker, which follows the protocol and keeps all it sees",
            hides=(
                "which keyword an element stands for, from anyone who lacks the key that "
                "clients share and knows no event, no subscription and no frequency",
                "clients' names",
            ),
            learns=(
                "every match",
                "which events and which subscriptions have the same keyword",
                "which messages were made with the same client key",
            ),
            security="broken" if toy else "computational",
            assumption=f"decisional Diffie-Hellman in {self.group.name}{short}; no client "
            "colludes with the broker",
            reuse="reusable",
            hazards=(
                "the broker colludes with a client: two nodes in a row hold all layers",
                "a client that is also the broker, or sees its table, can try all keywords",
                *toy,
            ),
            attacks=(
                "dictionary: the broker and one client find every keyword that they can think of",
                "chosen filters: a client subscribes to guesses, or publishes them, and the broker "
                "compares; no key is needed",
                "frequency: the most frequent element is the most frequent keyword",
            ),
        )

    @property
    def costs(self) -> tuple[Cost, ...]:
        """Operations of each role; encoding and taking off are once for each distinct keyword."""
        name = f"exponentiation in {self.group.name}"
        short = " (256-bit exponent)" if isinstance(self.cipher, PohligHellman) else ""
        return (
            Cost("publisher", "event", name, 1),
            Cost("subscriber", "interest", name, 1),
            Cost("broker", "event", name + short, 1),
            Cost("broker", "interest", name + short, 1),
            Cost("broker", "pair", "32-bit comparison", 1),
        )

    def broker(self, key: RoleKey) -> CommutativeBroker:
        """The role that matches."""
        return CommutativeBroker(self, key, "broker", _no_randomness)

    # -- keys ---------------------------------------------------------------------------------

    def _generate(self, randomness: Randomness) -> dict[str, Any]:
        clients = self.cipher.generate(randomness).export_secret()
        return {"clients": clients.hex(), "broker": randomness(32).hex()}

    def _issue(
        self, master: Mapping[str, Any], role: Role, name: str, randomness: Randomness
    ) -> dict[str, Any]:
        if role == "broker":
            return {"broker": master["broker"]}
        # Drawn, and not made of the name: the broker sees it, and can think of names. The broker
        # derives the layer from it, so that a name that is given a key again may get another one.
        client = randomness(ID_BYTES)
        own = self._hop(master, role, client).export_secret()
        return {"id": client.hex(), "layers": [own.hex(), master["clients"]]}

    def _hop(self, key: Mapping[str, Any], role: str, client: bytes) -> Any:
        """The layer between the broker and one client."""
        return self.cipher.derive(bytes.fromhex(key["broker"]), role.encode() + b"\0" + client)

    # -- messages -----------------------------------------------------------------------------

    def _encrypt(self, key: Mapping[str, Any], codes: Words, out: Bytes) -> None:
        # Keywords repeat: each distinct one takes one exponentiation.
        distinct, index = np.unique(codes, axis=0, return_inverse=True)
        layers = [self.cipher.key(bytes.fromhex(text)) for text in key["layers"]]
        words = [self.cipher.encode(row.tobytes()) for row in distinct.astype("<u8")]
        elements = self.cipher.to_rows(self.cipher.add(words, *layers))
        out[:, :ID_BYTES] = np.frombuffer(bytes.fromhex(key["id"]), dtype=np.uint8)
        out[:, ID_BYTES:] = elements[index.reshape(-1)]

    def _encode_events(
        self, key: Mapping[str, Any], events: Events, out: Bytes, randomness: Randomness
    ) -> None:
        self._encrypt(key, keyword_codes(events, self.attributes), out)

    def _prepare(self, interest: Any) -> Words:
        return keyword_of(self._predicate(interest), self.attributes)

    def _encode_interests(
        self,
        key: Mapping[str, Any],
        interests: Sequence[Words],
        out: Bytes,
        randomness: Randomness,
    ) -> None:
        self._encrypt(key, np.stack(interests), out)

    def _check(self, bodies: Bytes) -> Bytes:
        good: list[bool] = []
        found: dict[bytes, bool] = {}  # Equal keywords of a client are equal bytes.
        for row in bodies[:, ID_BYTES:]:
            data = row.tobytes()
            if data not in found:
                found[data] = self.cipher.is_element(self.cipher.from_rows(row[None])[0])
            good.append(found[data])
        return np.where(good, np.uint8(Cause.NONE), np.uint8(Cause.VALUE))

    def _check_events(self, key: Mapping[str, Any], bodies: Bytes) -> Bytes:
        return self._check(bodies)

    def _check_interests(self, key: Mapping[str, Any], bodies: Bytes) -> Bytes:
        return self._check(bodies)

    def _tokens(self, key: Mapping[str, Any], bodies: Bytes, role: str) -> list[bytes]:
        """Each without the broker's layer, hashed to 16 bytes."""
        found: dict[bytes, bytes] = {}
        layers: dict[bytes, Any] = {}
        joined = []
        for row in bodies:
            body = row.tobytes()
            if body not in found:
                client = body[:ID_BYTES]
                if client not in layers:
                    layers[client] = self._hop(key, role, client)
                elements = self.cipher.from_rows(row[None, ID_BYTES:])
                bare = self.cipher.to_rows(self.cipher.remove(elements, layers[client]))
                found[body] = sha256(bare.tobytes()).digest()[:TOKEN_BYTES]
            joined.append(found[body])
        return joined

    def _table(self, key: Mapping[str, Any], bodies: Bytes) -> _Keywords:
        return _Keywords(self._tokens(key, bodies, "subscriber"))

    def _match_all(self, key: Mapping[str, Any], events: Bytes, table: _Keywords) -> Bools:
        return table.equal(self._tokens(key, events, "publisher"))

    def _covers(self, key: Mapping[str, Any], wide: _Keywords, narrow: _Keywords) -> Bools:
        return narrow.equal(wide.tokens)


class _Keywords:
    """Tokens of interests, numbered: pairs are compared by number."""

    def __init__(self, tokens: list[bytes]) -> None:
        self.tokens = tokens
        self._number = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
        self._numbers = np.array([self._number[token] for token in tokens], dtype=np.int32)

    def equal(self, others: list[bytes]) -> Bools:
        """Which of `others` equal which token, shape (len(others), len(tokens))."""
        numbers = [self._number.get(token, -1) for token in others]
        return np.asarray(np.array(numbers, dtype=np.int32)[:, None] == self._numbers)


class CommutativeBroker(ReusableBroker):
    """A broker that takes each layer off once, also where it matches pairs."""

    matcher: CommutativeMatch

    def match(self, events: Bytes, interests: Bytes) -> Bools:
        """Which pairs match; row i of one belongs to row i of the other. Shape (batch,)."""
        self._require_pairs(events, interests)
        left = self.matcher._tokens(self._key, events[:, HEADER_BYTES:], "publisher")
        right = self.matcher._tokens(self._key, interests[:, HEADER_BYTES:], "subscriber")
        return np.array([a == b for a, b in zip(left, right, strict=True)], dtype=np.bool_)


def _cipher_of(group: PrimeOrderGroup) -> Any:
    return PohligHellman(group.modulus) if isinstance(group, ModpGroup) else GroupLayers(group)


def _rebuild(schema: Schema, attributes: Sequence[str], group: str) -> CommutativeMatch:
    return CommutativeMatch(schema, attributes, group=group)


def _no_randomness(count: int) -> bytes:
    raise AssertionError("a broker draws nothing")
