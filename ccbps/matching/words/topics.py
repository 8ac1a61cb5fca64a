"""Matchers of topics: MaskedTopicMatch, the cheapest of equalities, and CommutativeMatch.

*Masked topics*. A topic is sent as H(topic XOR k) with a group key k; the broker compares.
Source: [Survey] section 4.1 on Chen et al.

*Commutative layers*: the case r = 2 of multiple-layer commutative encryption with one broker
between publishers and subscribers. A client's message has a layer that it shares with the broker
and a layer that it shares with the clients on the other side. The broker takes its own layer off
and compares.

Conventions: a topic is the values of all attributes together, or of those named. The body of a
message of CommutativeMatch is 8 random bytes that name the client's layer and one element, most
significant byte first.
Differs from [SOM09]: one key for all publishers and subscribers replaces a key for each pair, so
that an event is encrypted once and not once for each subscriber; and the broker derives the keys it
shares with clients from one secret, so that clients may join later. Chains of several brokers, with
any number of layers and the keys of the paper, are in `ccbps.overlay.commutative_tree`.

Hazard: both are deterministic: the broker sees which topics are equal, and how often each occurs.
Two nodes in a row break the layers: the broker and any one client read all topics that they can
guess.
Source of the layers: [SOM09]; [Survey] section 4.5.
"""

from __future__ import annotations

from abc import abstractmethod
from collections.abc import Iterable, Mapping, Sequence
from hashlib import sha256
from typing import Any, Final

import numpy as np
from cryptography.hazmat.primitives.hashes import SHA256
from cryptography.hazmat.primitives.hmac import HMAC

from ccbps.algebra.prime_order import ModpGroup, PrimeOrderGroup, prime_order_group
from ccbps.arrays import Bools, Bytes, Randomness, Words
from ccbps.checks import fields, instance
from ccbps.ciphers.pohlig_hellman import GroupLayers, PohligHellman
from ccbps.forms.topic import topic_attributes, topic_codes, topic_of
from ccbps.keys.role_key import Role, hex_bytes
from ccbps.leakage import LeakageCard
from ccbps.matching.contract.scheme import Cost, Draw, Operation, Side, Sizes
from ccbps.matching.reusable import ReusableMatcher, causes, words_of
from ccbps.predicates import Events, Schema
from ccbps.predicates.bound import bound_predicate
from ccbps.predicates.box import Box

ID_BYTES: Final = 8
TOKEN_BYTES: Final = 16


class TopicMatcher(ReusableMatcher):
    """A matcher whose subscriptions name one value for each attribute of the topic.

    Attributes:
        attributes: names of the topic's attributes.
    """

    operators = ("=", "and")
    covering = True
    attributes: tuple[str, ...]

    @abstractmethod
    def _bodies(self, key: Mapping[str, Any], topics: Words) -> Bytes:
        """Return a body for each topic, a row of codes; both sides have the same bodies."""

    def _encoded(self, key: Mapping[str, Any], topics: Words) -> Bytes:
        # Topics repeat, and texts that differ may name one topic: each is encoded once.
        distinct, index = np.unique(topics, axis=0, return_inverse=True)
        return self._bodies(key, distinct)[index.reshape(-1)]

    def encode_events(self, key: Mapping[str, Any], events: Events, draw: Draw, out: Bytes) -> None:
        out[:] = self._encoded(key, topic_codes(events, self.attributes))

    def prepare(self, interest: Any) -> Words:
        return topic_of(bound_predicate(self.schema, interest), self.attributes)

    def _distinct(self, key: Mapping[str, Any], interests: Sequence[Words]) -> Bytes:
        return self._encoded(key, np.stack(interests))


class MaskedTopicMatch(TopicMatcher):
    """H(topic XOR k): equality of all attributes together. Shows which topics are equal.

    Args:
        schema: the attributes of the topic. A subscription names one value for every attribute.

    Example:
        >>> from ccbps import Category, Schema, UInt
        >>> from ccbps.matching import MaskedTopicMatch
        >>> schema = Schema(issue=Category(["AAPL", "IBM"]), price=UInt(8))
        >>> matcher = MaskedTopicMatch(schema)
        >>> server = matcher.key_server()
        >>> publisher = matcher.publisher(server.publisher_key())
        >>> subscriber = matcher.subscriber(server.subscriber_key("alice"))
        >>> broker = matcher.broker(server.broker_key())
        >>> events = publisher.encode({"issue": ["IBM", "AAPL"], "price": [119, 121]})
        >>> interests = subscriber.encode(["issue = 'IBM' AND price = 119"])
        >>> broker.match_all(events, interests)
        array([[ True],
               [False]])
    """

    name = "masked topic"
    parts = ("key",)

    def __init__(self, schema: Schema) -> None:
        self.attributes = schema.names
        self._set_up(schema, Sizes(TOKEN_BYTES, TOKEN_BYTES))

    @property
    def leakage(self) -> LeakageCard:
        return self._card(
            hides=(
                "topics of which no event or subscription is known, from anyone who neither has "
                "the group key nor knows how often topics occur",
            ),
            learns=("every match", "which events and subscriptions have the same topic"),
            security="computational",
            assumption="HMAC-SHA256 is a pseudorandom function",
            hazards=(
                "a client colludes with the broker: with the group key it can try all topics",
            ),
            attacks=(
                "frequency: the most frequent token is the most frequent topic",
                "known plaintext: one known event names all events and subscriptions of its topic",
            ),
        )

    @property
    def costs(self) -> tuple[Cost, ...]:
        note = "once for each distinct topic"
        return (
            Cost("publisher", "event", Operation.HASH_BLOCK, 2, note=note),
            Cost("subscriber", "interest", Operation.HASH_BLOCK, 2, note=note),
            Cost("broker", "pair", Operation.COMPARISON, 1, of="128 bits"),
        )

    def generate(self, randomness: Randomness) -> dict[str, Any]:
        return {"key": randomness(32).hex()}

    def check_part(self, name: str, value: Any) -> None:
        hex_bytes(value, 32)

    def _bodies(self, key: Mapping[str, Any], topics: Words) -> Bytes:
        # HMAC replaces H(topic XOR k). It leaks the same; XOR would show related topics, too.
        base, codes = HMAC(bytes.fromhex(key["key"]), SHA256()), topics.astype("<u8").tobytes()
        width, tokens = 8 * topics.shape[1], []
        for start in range(0, len(codes), width):
            context = base.copy()
            context.update(codes[start : start + width])
            tokens.append(context.finalize()[:TOKEN_BYTES])
        return np.frombuffer(b"".join(tokens), dtype=np.uint8).reshape(-1, TOKEN_BYTES)

    def table(self, key: Mapping[str, Any], bodies: Bytes) -> Words:
        return words_of(bodies)

    def match(self, key: Mapping[str, Any], events: Bytes, table: Words) -> Bools:
        tokens = words_of(events)
        out: Bools = tokens[:, :1] == table[:, 0]
        out &= tokens[:, 1:] == table[:, 1]
        return out

    def match_rows(self, key: Mapping[str, Any], events: Bytes, interests: Bytes) -> Bools:
        return np.asarray((words_of(events) == words_of(interests)).all(axis=1))

    def covers(self, key: Mapping[str, Any], wide: Words, narrow: Words) -> Bools:
        return np.asarray((wide[:, None] == narrow).all(axis=2))


class CommutativeMatch(TopicMatcher):
    """Topics under two layers; the broker takes one off. Shows which topics are equal.

    Args:
        schema: the events' attributes.
        attributes: names of the topic's attributes; all by default. A subscription names one
            value of each of them and nothing else.
        group: a name that `ccbps.algebra.prime_order.prime_order_group` knows. Modulo a safe
            prime the cipher is `PohligHellman`, on a curve `GroupLayers`, which is 10 times as
            fast or more.

    Raises:
        ParameterError: an attribute is not in the schema or named twice; there is no such
            group, or its library is missing.

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

    name = "commutative layers"

    def __init__(
        self, schema: Schema, attributes: Sequence[str] | None = None, *, group: str = "modp2048"
    ) -> None:
        self.attributes = topic_attributes(schema, attributes)
        self.group: PrimeOrderGroup = prime_order_group(group)
        self.cipher: Any = (
            PohligHellman(self.group.modulus)
            if isinstance(self.group, ModpGroup)
            else GroupLayers(self.group)
        )
        body = ID_BYTES + self.cipher.element_bytes
        self._set_up(schema, Sizes(body, body))

    def parameters(self) -> dict[str, Any]:
        return {"attributes": list(self.attributes), "group": self.group.name}

    @classmethod
    def options_for(cls, schema: Schema, box: Box) -> Iterable[Mapping[str, Any]]:
        named = [name for name, (low, high) in box.ranges.items() if low == high]
        return [{"attributes": named, "group": group} for group in ("secp256k1", "modp2048")]

    @property
    def leakage(self) -> LeakageCard:
        toy = () if self.group.security else ("the group is a toy: every layer comes off",)
        short = ", for exponents of 256 bits" if isinstance(self.cipher, PohligHellman) else ""
        return self._card(
            hides=(
                "which topic an element stands for, from anyone who lacks the key that "
                "clients share and knows no event, no subscription and no frequency",
                "clients' names",
            ),
            learns=(
                "every match",
                "which events and which subscriptions have the same topic",
                "which messages were made with the same client key",
            ),
            security="broken" if toy else "computational",
            assumption=f"decisional Diffie-Hellman in {self.group.name}{short}; no client "
            "colludes with the broker",
            hazards=(
                "the broker colludes with a client: as two nodes in a row, they have the keys of "
                "all layers",
                "a client that is also the broker, or sees its table, can try all topics",
                *toy,
            ),
            attacks=(
                "dictionary: the broker and one client find every topic that they can think of",
                "chosen filters: a client subscribes to guesses, or publishes them, and the broker "
                "compares; no key is needed",
                "frequency: the most frequent element is the most frequent topic",
            ),
        )

    @property
    def costs(self) -> tuple[Cost, ...]:
        of, each = self.group.name, "once for each distinct topic"
        short = f"{of}, 256-bit exponent" if isinstance(self.cipher, PohligHellman) else of
        by_key = f"{each} of a client's key"
        return (
            Cost("publisher", "event", Operation.EXPONENTIATION, 1, of=of, note=each),
            Cost("subscriber", "interest", Operation.EXPONENTIATION, 1, of=of, note=each),
            Cost("broker", "event", Operation.EXPONENTIATION, 1, of=short, note=by_key),
            Cost("broker", "interest", Operation.EXPONENTIATION, 1, of=short, note=by_key),
            Cost("broker", "pair", Operation.COMPARISON, 1, of="32 bits"),
        )

    # -- keys ---------------------------------------------------------------------------------

    def generate(self, randomness: Randomness) -> dict[str, Any]:
        clients = self.cipher.generate(randomness).export_secret()
        return {"clients": clients.hex(), "broker": randomness(32).hex()}

    def issue(
        self, master: dict[str, Any], role: Role, name: str, randomness: Randomness
    ) -> dict[str, Any]:
        if role == "broker":
            return {"broker": master["broker"]}
        # Drawn, as the broker sees it and can think of names. The broker derives the layer from
        # it, so a name that is given a key again has another layer.
        client = randomness(ID_BYTES)
        layer = self._hop(master, role, client).export_secret()
        return {"id": client.hex(), "layers": [layer.hex(), master["clients"]]}

    def check_key_data(self, role: Role, data: Mapping[str, Any]) -> None:
        if role == "broker":
            hex_bytes(fields("key data", data, ("broker",))["broker"], 32)
        elif role == "server":
            fields("key data", data, ("broker", "clients"))
            hex_bytes(data["broker"], 32)
            self.cipher.key(hex_bytes(data["clients"]))
        else:
            hex_bytes(fields("key data", data, ("id", "layers"))["id"], ID_BYTES)
            layer, clients = instance("layers", data["layers"], list)
            self.cipher.key(hex_bytes(layer))
            self.cipher.key(hex_bytes(clients))

    def _hop(self, key: Mapping[str, Any], role: str, client: bytes) -> Any:
        """Return the layer between the broker and one client."""
        return self.cipher.derive(bytes.fromhex(key["broker"]), role.encode() + b"\0" + client)

    # -- messages -----------------------------------------------------------------------------

    def _bodies(self, key: Mapping[str, Any], topics: Words) -> Bytes:
        layers = [self.cipher.key(bytes.fromhex(text)) for text in key["layers"]]
        words = [self.cipher.encode(row.tobytes()) for row in topics.astype("<u8")]
        out = np.empty((len(topics), self.sizes.event), dtype=np.uint8)
        out[:, :ID_BYTES] = np.frombuffer(bytes.fromhex(key["id"]), dtype=np.uint8)
        out[:, ID_BYTES:] = self.cipher.to_rows(self.cipher.add(words, *layers))
        return out

    def _element(self, row: bytes) -> Any:
        return self.cipher.from_rows(np.frombuffer(row, dtype=np.uint8)[None])[0]

    def check(self, key: Mapping[str, Any], side: Side, bodies: Bytes) -> Bytes:
        rows = [row.tobytes() for row in bodies[:, ID_BYTES:]]
        # Equal topics of a client are equal bytes.
        is_good = {row: self.cipher.is_element(self._element(row)) for row in set(rows)}
        return causes(np.array([not is_good[row] for row in rows], dtype=np.bool_))

    def _tokens(self, key: Mapping[str, Any], bodies: Bytes, role: str) -> list[bytes]:
        """Return the topics without the broker's layer, hashed to 16 bytes."""
        rows = [row.tobytes() for row in bodies]
        hops = {id_: self._hop(key, role, id_) for id_ in {row[:ID_BYTES] for row in rows}}
        tokens = {}
        for row in set(rows):
            bare = self.cipher.remove([self._element(row[ID_BYTES:])], hops[row[:ID_BYTES]])
            digest = sha256(self.cipher.to_rows(bare).tobytes()).digest()
            tokens[row] = digest[:TOKEN_BYTES]
        return [tokens[row] for row in rows]

    def table(self, key: Mapping[str, Any], bodies: Bytes) -> _Topics:
        return _Topics(self._tokens(key, bodies, "subscriber"))

    def open_events(self, key: Mapping[str, Any], bodies: Bytes) -> list[bytes]:
        return self._tokens(key, bodies, "publisher")

    def match(self, key: Mapping[str, Any], events: list[bytes], table: _Topics) -> Bools:
        return table.equal(events)

    def match_rows(self, key: Mapping[str, Any], events: Bytes, interests: Bytes) -> Bools:
        left = self._tokens(key, events, "publisher")
        right = self._tokens(key, interests, "subscriber")
        return np.array([a == b for a, b in zip(left, right, strict=True)], dtype=np.bool_)

    def covers(self, key: Mapping[str, Any], wide: _Topics, narrow: _Topics) -> Bools:
        return narrow.equal(wide.tokens)


class _Topics:
    """Tokens of interests, numbered: pairs are compared by number."""

    def __init__(self, tokens: list[bytes]) -> None:
        self.tokens = tokens
        self._number = {token: number for number, token in enumerate(dict.fromkeys(tokens))}
        self._numbers = np.array([self._number[token] for token in tokens], dtype=np.int32)

    def equal(self, others: list[bytes]) -> Bools:
        """Return the pairs of equal tokens, bool, shape (len(others), len(tokens))."""
        numbers = [self._number.get(token, -1) for token in others]
        return np.asarray(np.array(numbers, dtype=np.int32)[:, None] == self._numbers)
